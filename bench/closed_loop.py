"""How good CL-PRI and MF-PRI are after a few thousand episodes, on problems of fifteen families (`bench._suite`).

    python -m bench closed_loop                            # 57 fresh problems, two seeds, 1,000 to 10,000 episodes
    python -m bench.closed_loop development 3000           # one length on the problems that settings were chosen on
    python -m bench.closed_loop fresh 1e5 1e6              # longer ones; of 1e6 episodes, 16 problems
    python -m bench.closed_loop unseen 1e4 1e5 mf-pri      # without counts
    python -m bench.closed_loop development anytime 3000   # runs that were not told how long they would be

Regret and the optimality gap of the returned policy are shares of the range of values that policies can have. *rv* is
the share of runs whose realised violation is at most 0, *met* that of policies that meet their bounds, and *good* that
of policies that are also at most 1 % of the range below the optimum.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from bench._suite import problems, total_range

LENGTHS = (1_000, 3_000, 10_000)
SEEDS = 2
LONG, FEW = 1_000_000, 16  # runs of so many episodes are measured on so many problems, the first of every family
GOOD = 0.01  # of the range


class Outcome(NamedTuple):
    """One run, in shares of the range of values."""

    regret: float  # per episode
    gap: float  # of the returned policy
    kept: bool  # whether the realised violation is at most 0
    met: bool  # whether the returned policy meets its bounds
    good: bool  # whether it is also close to the optimum


def measure(job: tuple[ck.CMDP, str, int, int, bool]) -> Outcome:
    cmdp, algo, K, seed, anytime = job
    span = max(total_range(cmdp, np.asarray(cmdp.r)), 1e-9)
    run = ck.learn(cmdp, algo, seed=seed, **({"stop": K} if anytime else {"episodes": K}))
    short = [c.sign * (c.bound_on_total - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    kept = float(np.max(run.final("realised_violation"), initial=-np.inf)) <= 0
    gap, met = (run.optimum - run.policy_value) / span, max(short, default=0.0) <= 1e-9
    return Outcome(run.regret / K / span, gap, kept, met, met and gap <= GOOD)


def measured(cmdps: Sequence[ck.CMDP], algo: str, K: int, anytime: bool) -> np.ndarray:
    """The outcomes [runs, 5] of all problems and seeds, regret and gap in %."""
    jobs = [(cmdp, algo, K, seed, anytime) for cmdp in cmdps for seed in range(SEEDS)]
    with ProcessPoolExecutor(2) as pool:
        return 100 * np.array(list(pool.map(measure, jobs)), dtype=float)


def judged(half: str, lengths: Sequence[int], algo: str, anytime: bool) -> None:
    """One line for every length."""
    told = ", anytime" if anytime else ""
    print(f"{algo}, {half} problems, {SEEDS} seeds each{told}; regret and gap in % of the range of values")
    print("| episodes | regret per episode, median (mean) | gap, median | rv | met | good |\n|---|---|---|---|---|---|")
    for K in lengths:
        chosen = [cmdp for _, cmdp in problems(half)[: FEW if K >= LONG else None]]
        found = measured(chosen, algo, K, anytime)
        shares = " | ".join(f"{x:.0f} %" for x in found[:, 2:].mean(axis=0))
        regret = f"{np.median(found[:, 0]):.2f} ({found[:, 0].mean():.2f})"
        print(f"| {K:,} | {regret} | {np.median(found[:, 1]):.2f} | {shares} |", flush=True)


def main(half: str = "fresh", *words: str) -> None:
    anytime, algo = "anytime" in words, "mf-pri" if "mf-pri" in words else "cl-pri"
    lengths = [int(float(x)) for x in words if x not in ("anytime", "mf-pri", "cl-pri")] or LENGTHS
    judged(half, lengths, algo, anytime)


if __name__ == "__main__":
    main(*sys.argv[1:])
