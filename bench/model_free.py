"""`mf-pri` on the suite. Problems that led earlier versions astray are in `lock_in`.

    python -m bench model_free                            # the reserved problems
    python -m bench.model_free development 1e4            # one length on the problems settings were chosen on

To compare with another version, run this file with that version's sources first on the path (PYTHONPATH).
"""

from __future__ import annotations

import sys

import numpy as np

import cmdpkit as ck
from bench._ranges import total_range
from bench._suite import problems
from cmdpkit import CMDP

SEEDS = {10_000: 2, 100_000: 1, 1_000_000: 1}  # by number of episodes
EVERY = {1_000_000: 3}  # long runs are made on every third problem


def outcome(cmdp: CMDP, K: int, seed: int) -> tuple[float, float, bool, bool]:
    """Regret per episode and gap of the policy in % of the range of values; whether what was realised and the policy
    kept their bounds."""
    span = max(total_range(cmdp, np.asarray(cmdp.r)), 1e-9)
    run = ck.learn(cmdp, "mf-pri", episodes=K, seed=seed)
    short = [c.sign * (c.bound_on_total - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    kept = float(np.max(run.final("realised_violation"), initial=-np.inf)) <= 0
    gap = (run.optimum - run.policy_value) / span
    return 100 * run.regret / K / span, 100 * gap, kept, max(short, default=0.0) <= 1e-9


def suite(half: str = "reserved", *lengths: str) -> None:
    """Figures on a half of the suite."""
    print(f"{half} problems, mf-pri; regret and gap in % of the range of values")
    print(
        "| episodes | runs | regret per episode, mean (median) | gap, median | realised violation <= 0 | bounds met |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for K in [int(float(x)) for x in lengths] or list(SEEDS):
        chosen = problems(half)[:: EVERY.get(K, 1)]
        found = [outcome(cmdp, K, seed) for _, cmdp in chosen for seed in range(SEEDS.get(K, 1))]
        regret, gap, kept, met = (np.array(x) for x in zip(*found, strict=True))
        figures = f"{regret.mean():.2f} ({np.median(regret):.2f}) | {np.median(gap):.2f} | {kept.mean():.0%}"
        print(f"| {K:,} | {len(found)} | {figures} | {met.mean():.0%} |", flush=True)


def main() -> None:
    suite()


if __name__ == "__main__":
    suite(*sys.argv[1:])
