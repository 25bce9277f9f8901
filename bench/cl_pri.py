"""Long runs of CL-PRI and MF-PRI: the figures of docs/algorithms/cl-pri.md and mf-pri.md.

    python -m bench cl_pri                                              # everything, half an hour
    python -c "from bench.cl_pri import redundant; redundant('mf-pri')"   # one of them with one algorithm

- `papers`: the two problems of the PRI paper.
- `random`: thirty instances by one rule, none of them chosen.
- `redundant`: *three copies of one constraint*, whose prices are not unique, and *a constant utility exactly at its
  bound* with signals that are drawn: every policy meets that bound, and by chance every policy seems to miss it by a
  little. Four random problems each, with five seeds each.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import cmdpkit as ck
from cmdpkit import CMDP, envs

ALGORITHMS = ("mf-pri", "cl-pri")
USED = 1e-6  # an occupancy above this counts as use, when supports are compared


class Outcome(NamedTuple):
    """One run."""

    regret: float
    realised: float  # the largest realised violation
    gap: float  # of the returned policy
    met: bool  # whether it meets its bounds
    same: bool  # whether it uses the actions of the optimum and no others, wherever either gets


def play(cmdp: CMDP, algo: str, K: int, seed: int, noise: Any = "none") -> Outcome:
    run, best = ck.learn(cmdp, algo, episodes=K, seed=seed, noise=noise), ck.solve(cmdp)
    used, reached = ck.occupancy(cmdp, run.policy), best.occupancy.sum(axis=-1)
    agree = ((used > USED) == (best.occupancy > USED)).all(axis=-1)
    short = [c.sign * (c.bound_on_total - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    return Outcome(
        regret=run.regret,
        realised=float(run.final("realised_violation").max()),
        gap=run.optimum - run.policy_value,
        met=max(short) <= 1e-9,
        same=bool(agree[np.maximum(used.sum(axis=-1), reached) > USED].all()),
    )


def plays(cmdp: CMDP, algo: str, K: int, seeds: Iterable[int], noise: Any = "none") -> list[Outcome]:
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(partial(play, cmdp, algo, K, noise=noise), seeds))


def report(title: str, runs: list[Outcome]) -> None:
    gap, n = np.array([x.gap for x in runs]), len(runs)
    print(
        f"{title}, {n} runs: mean regret {np.mean([x.regret for x in runs]):,.0f}, realised violation at most 0 in "
        f"{sum(x.realised <= 0 for x in runs)}, bounds met in {sum(x.met for x in runs)}, support of the optimum in "
        f"{sum(x.same for x in runs)}; gap mean {gap.mean():.4f}, largest {gap.max():.4f}, at most 0.005 in "
        f"{(gap <= 0.005).sum()}, at most 0.01 in {(gap <= 0.01).sum()}",
        flush=True,
    )


def papers(algo: str = "cl-pri") -> None:
    for name, K, seeds in (("paper/synthetic", 8_000_000, 20), ("paper/grid", 10_400_000, 10)):
        report(f"{name}, {K:,} episodes, {algo}", plays(envs.build(name), algo, K, range(seeds)))


def instances(n: int = 30) -> list[CMDP]:
    """Instances of `random` by one rule, first come, first served; at least one bound must have a price."""
    rng, found = np.random.default_rng(2024), list[CMDP]()
    for seed in range(1000):
        given = {
            "S": int(rng.integers(3, 21)),
            "A": int(rng.integers(2, 6)),
            "H": int(rng.integers(3, 9)),
            "N": int(rng.integers(1, 4)),
            "concentration": float(rng.choice([0.1, 0.3, 1.0])),
            "conflict": float(rng.choice([0.0, 0.3, 0.5])),
            "slack": round(float(rng.uniform(0.02, 0.2)), 3),
            "seed": 5000 + seed,
        }
        cmdp = envs.build("random", **given)
        if ck.solve(cmdp).shadow_prices.max() > 1e-3:
            found.append(cmdp)
        if len(found) == n:
            break
    return found


def random(algo: str = "cl-pri", seeds: int = 2) -> None:
    for K in (200_000, 2_000_000):
        runs = [run for cmdp in instances() for run in plays(cmdp, algo, K, range(seeds))]
        report(f"random instances, {K:,} episodes, {algo}", runs)


def copies(seed: int) -> CMDP:
    """A random problem whose only constraint is there three times."""
    one = envs.build("random", S=6, A=3, H=5, N=1, conflict=0.5, seed=seed)
    return CMDP(one.P, one.r, np.repeat(one.g, 3, axis=0), np.repeat(one.rho, 3), one.mu)


def constant(seed: int) -> CMDP:
    """A random problem with a utility of 1/2 at every step, and a bound of H/2."""
    one = envs.build("random", S=6, A=3, H=5, N=0, seed=seed)
    return CMDP(one.P, one.r, np.full((1, *one.r.shape), 0.5), np.array([one.H / 2]), one.mu)


def redundant(*algos: str, K: int = 400_000) -> None:
    for title, build, noise in (("three copies", copies, "none"), ("constant utility", constant, "bernoulli")):
        for algo in algos or ALGORITHMS:
            runs = [run for i in range(4) for run in plays(build(i), algo, K, range(5), noise)]
            report(f"{title}, {K:,} episodes, {algo}", runs)


def main() -> None:
    papers()
    random()
    redundant()
