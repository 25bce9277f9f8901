"""OptCMDP with theory constants on paper/synthetic: how near the optimum its policies come, and how near any could.

From K episodes the utility of a policy is known up to a standard error that no estimate undercuts: that of a mean over
K episodes of the optimal policy itself, where nothing but transitions is unknown. A policy whose estimated utility
meets the bound exactly misses the truth by about as much.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from cmdpkit import Policy, Solution, evaluate, load, occupancy, solve
from cmdpkit.learners import Source, Spec
from cmdpkit.learners import load as learner_of
from cmdpkit.operators.policies import action_values
from cmdpkit.simulate.random import stream

SEEDS, NEAR = 40, 0.005
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("signals known", {"deterministic": True, "margin": 0.0}),
    ("signals unknown", {"margin": 0.0}),
)


def main() -> None:
    optimum = solve(load("paper/synthetic"))
    for K in (5_000, 20_000):
        error = standard_error(optimum, K)
        share = 2 * NormalDist().cdf(NEAR / error) - 1
        print(f"K = {K:,}: no estimate of the utility is better than ± {error:.4f}, within {NEAR} with p = {share:.0%}")
        for name, changes in CASES:
            with ThreadPoolExecutor(2) as pool:
                errors = np.array(list(pool.map(partial(errors_of, optimum, K, changes), range(SEEDS))))
            for what, mine in zip(("returned", "played last"), errors.T, strict=True):
                near = f"{int((mine <= NEAR).sum())} of {SEEDS} within {NEAR}"
                print(f"  {name:15s}  {what}: {near}, median {np.median(mine):.4f}, largest {mine.max():.4f}")


def errors_of(optimum: Solution, K: int, changes: dict[str, Any], seed: int) -> tuple[float, float]:
    """The larger error of value and utility, of the returned policy and of the one that was played last."""
    cmdp = optimum.cmdp
    learner = learner_of("opt-cmdp")(Spec.of(cmdp, K), preset="theory", **changes)
    learner.run(Source.of(cmdp), stream(seed), K)
    found = [evaluate(cmdp, Policy.of(cmdp, pi)) for pi in (learner.recommend(), learner.behaviour())]
    last, played = (max(abs(x.v - optimum.value), float(np.abs(x.w - optimum.utilities).max())) for x in found)
    return last, played


def standard_error(optimum: Solution, K: int) -> float:
    """Of the first utility of the optimal policy: what its transitions leave to chance, at every step."""
    cmdp, pi = optimum.cmdp, optimum.policy.pi
    _, V = action_values(cmdp, cmdp.g[0], pi)
    q, P = occupancy(cmdp, optimum.policy), np.broadcast_to(cmdp.P, (cmdp.H, cmdp.S, cmdp.A, cmdp.S))
    spread = [P[h] @ V[h + 1] ** 2 - (P[h] @ V[h + 1]) ** 2 for h in range(cmdp.H - 1)]
    return float(np.sqrt(sum((q[h] * x).sum() for h, x in enumerate(spread)) / K))
