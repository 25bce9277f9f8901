"""What planning costs and brings: OptCMDP with counts per step and plans at doublings, and as it is now, in one run.

"per step, doubling" is how planners worked before version 0.2, except that a plan itself is quicker today: in 0.1 the
three problems took 8.5, 3.8 and 19 ms per episode. CPU time per episode is that of learning, simulation included.
"""

from __future__ import annotations

import time
from dataclasses import replace
from math import comb, exp, factorial
from typing import NamedTuple

import numpy as np

from bench._ranges import total_range
from cmdpkit import CMDP, Policy, evaluate, load, solve
from cmdpkit.learners import Source, Spec
from cmdpkit.learners import load as learner_of
from cmdpkit.simulate.random import stream

K, SEEDS = 5_000, (1,)
WAYS = {"per step, doubling": (False, "doubling"), "as it is now": (True, "need")}


class Result(NamedTuple):
    """What one run came to; losses are per episode and in percent of the range of the signal."""

    milliseconds: float  # of CPU time per episode
    first: float  # the same in the first tenth of the run
    plans: int
    regret: float  # strong
    violation: float  # strong
    gap: float  # value of the optimum minus that of the policy handed over; negative where that misses a bound
    met: bool  # whether the policy handed over meets the bound


def ward(beds: int = 64, H: int = 42) -> CMDP:
    """A ward that admits at most 0, 3, 6 or 9 patients a day; each leaves with probability 0.1. Crowding is bounded."""
    S, limits = beds + 1, (0, 3, 6, 9)
    arrivals = np.array([exp(-6) * 6**k / factorial(k) for k in range(16)])
    arrivals /= arrivals.sum()
    P, r, g = np.zeros((S, 4, S)), np.zeros((S, 4)), np.zeros((1, S, 4))
    for s in range(S):
        stay = [comb(s, k) * 0.9**k * 0.1 ** (s - k) for k in range(s + 1)]
        g[0, s] = 1 - max(0.0, (s - 40) / 24) ** 2
        for a, most in enumerate(limits):
            r[s, a] = sum(p * min(k, most) for k, p in enumerate(arrivals)) / max(limits)
            for n, p in enumerate(stay):
                for k, q in enumerate(arrivals):
                    P[s, a, min(n + min(k, most), beds)] += p * q
    free = solve(CMDP(P, r, g, [0.0], horizon=H)).utilities[0]
    best = solve(CMDP(P, g[0], horizon=H)).value
    return CMDP(P, r, g, [free + 0.6 * (best - free)], horizon=H)


def problems() -> dict[str, CMDP]:
    """Development problems; none of them is in the comparison table."""
    return {
        "random, S = 100, A = 5, H = 10": load("random", S=100, A=5, H=10, seed=7),
        "the same, stationary": load("random", S=100, A=5, H=10, successors=5, stationary=True, seed=7),
        "ward, S = 65, A = 4, H = 42": ward(),
    }


def main() -> dict[str, float]:
    ratios = {}
    for i, (name, cmdp) in enumerate(problems().items()):
        print(f"{name}: opt-cmdp, {K:,} episodes, medians of {len(SEEDS)} seeds")
        times = []
        for way in WAYS:
            found = [run(cmdp, way, seed) for seed in SEEDS]
            x = Result(*(float(np.median(column)) for column in zip(*found, strict=True)))
            met = sum(y.met for y in found)
            print(
                f"  {way:20s} {x.milliseconds:6.2f} ms per episode ({x.first:6.2f} in the first tenth), {x.plans:5.0f} "
                f"plans, strong regret {x.regret:6.3f} %, strong violation {x.violation:6.3f} %, policy {x.gap:6.3f} % "
                f"below the optimum, bound met {met} of {len(found)}",
                flush=True,
            )
            times.append(x.milliseconds)
        ratios[f"opt-cmdp, time per episode before / now, problem {i + 1}"] = times[0] / times[1]
    return ratios


def run(cmdp: CMDP, way: str, seed: int) -> Result:
    pooled, replan = WAYS[way]
    optimum, spec = solve(cmdp).value, Spec.of(cmdp, K)
    spec = replace(spec, stationary=spec.stationary and pooled)
    make = learner_of("opt-cmdp")
    make(spec, replan=replan).run(Source.of(cmdp, optimum), stream(0), 2)  # compiles
    learner, source, seconds = make(spec, replan=replan), Source.of(cmdp, optimum), []
    for tenth in range(10):
        start = time.process_time()
        learner.run(source, stream(seed, tenth), K // 10)
        seconds.append(time.process_time() - start)
    tally, values = source.meter.tally(), evaluate(cmdp, Policy.of(cmdp, learner.recommend()))
    reward, utility = total_range(cmdp, cmdp.r), total_range(cmdp, cmdp.g[0])
    return Result(
        milliseconds=1e3 * sum(seconds) / K,
        first=1e4 * seconds[0] / K,
        plans=learner.plan_log.plans,
        regret=100 * float(tally.strong.regret) / K / reward,
        violation=100 * float(tally.strong.violation[0]) / K / utility,
        gap=100 * (optimum - values.v) / reward,
        met=bool(values.w[0] >= cmdp.rho[0]),
    )


if __name__ == "__main__":
    main()
