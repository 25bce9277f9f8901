"""How good CL-PRI is after a few thousand episodes, on problems of fifteen families (`bench._suite`).

    python -m bench closed_loop                            # 57 fresh problems, two seeds, 1,000 to 10,000 episodes
    python -m bench.closed_loop development 3000           # one length on the problems that settings were chosen on
    python -m bench.closed_loop fresh 1e5 1e6              # longer ones; of 1e6 episodes, 16 problems
    python -m bench.closed_loop development anytime 3000   # runs that were not told how long they would be

Regret and the gap of the policy are shares of the range of values that policies can have.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from bench._ranges import total_range
from bench._suite import problems

LENGTHS = (1_000, 3_000, 10_000)
SEEDS = 2
LONG, FEW = 1_000_000, 16  # runs of so many episodes are measured on so many problems, the first of every family
GOOD = 0.01  # of the range: a policy that keeps its bounds and lacks no more is good


class Outcome(NamedTuple):
    problem: str
    regret: float  # per episode, as a share of the range
    realised: float  # the largest realised violation
    gap: float  # of the policy handed over, as a share of the range
    met: bool  # whether that policy keeps its bounds


def measure(job: tuple[str, ck.CMDP, int, int, bool]) -> Outcome:
    name, cmdp, K, seed, anytime = job
    span = max(total_range(cmdp, np.asarray(cmdp.r)), 1e-9)
    run = ck.learn(cmdp, "cl-pri", seed=seed, **({"stop": K} if anytime else {"episodes": K}))
    short = [c.sign * (c.bound_on_total - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    realised = float(np.max(run.final("realised_violation"), initial=-np.inf))
    gap = (run.optimum - run.policy_value) / span
    return Outcome(name, run.regret / K / span, realised, gap, max(short, default=0.0) <= 1e-9)


def line(half: str, K: int, anytime: bool) -> str:
    """The figures of one length."""
    judged = problems(half)[: FEW if K >= LONG else None]
    jobs = [(name, cmdp, K, seed, anytime) for name, cmdp in judged for seed in range(SEEDS)]
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(measure, jobs))
    regret, gap = (np.array([getattr(x, name) for x in found]) for name in ("regret", "gap"))
    met = np.array([x.met for x in found])
    kept = np.mean([x.realised <= 0 for x in found])
    good = (met & (gap <= GOOD)).mean()
    figures = f"{100 * np.median(regret):.2f} ({100 * regret.mean():.2f}) | {100 * np.median(gap):.2f}"
    return f"| {K:,} | {figures} | {kept:.0%} | {met.mean():.0%} | {good:.0%} |"


def main(half: str = "fresh", *lengths: str) -> None:
    told = ", anytime" if "anytime" in lengths else ""
    print(f"{half} problems, {SEEDS} seeds each{told}; regret and gap in % of the range of values")
    print("| episodes | regret per episode, median (mean) | gap | realised violation <= 0 | bounds met | good |")
    print("|---|---|---|---|---|---|")
    anytime = "anytime" in lengths
    for K in [int(float(x)) for x in lengths if x != "anytime"] or LENGTHS:
        print(line(half, K, anytime), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
