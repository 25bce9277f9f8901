"""CL-PRI with each piece off, on the development problems, so that nobody adds a rule that does not earn its place.

    python -m bench ablation                # 19 problems, two seeds, 1,000 and 10,000 episodes
    python -m bench.ablation 3000           # another length

A piece stays if it moves *good* or *rv* by two standard errors at two lengths. *rv* is the share of runs whose realised
violation is at most 0, *met* that of policies that keep their bounds, and *good* that of those that also lack at most
1 % of the range of values. Differences are those to the run with everything on, with two standard errors.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import cmdpkit as ck
from bench._ranges import total_range
from bench._suite import problems

PIECES: dict[str, dict[str, float]] = {
    "everything on": {},
    "hardly any exploration at first": {"exploration_share": 0.01},
    "no optimism in exploration": {"optimism": 0.0},
    "no curiosity": {"curiosity": 0.0},
    "no tries beside the plan": {"bonus": 0.0},
    "tries whatever they cost": {"spend": 1e6},
    "no reserve": {"reserve": 0.0},
    "no cheap price, only the highest": {"steep": 1e6},
    "nothing is repaid at a dear price": {"repay_price": 1.0},
    "hardly any margin at the hand-over": {"delta": 0.5, "missed": 0.0},
    "a margin of one level, whatever it costs": {"missed": 0.0},
}
SEEDS, GOOD = 2, 0.01


def measure(job: tuple[ck.CMDP, int, int, dict[str, float]]) -> tuple[float, bool, bool, bool]:
    cmdp, K, seed, params = job
    span = max(total_range(cmdp, np.asarray(cmdp.r)), 1e-9)
    run = ck.learn(cmdp, "cl-pri", seed=seed, episodes=K, **params)
    short = [c.sign * (c.bound - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    met = max(short, default=0.0) <= 1e-9
    kept = float(np.max(run.final("realised_violation"), initial=-np.inf)) <= 0
    return 100 * run.regret / K / span, kept, met, met and run.optimum - run.policy_value <= GOOD * span


def main(*lengths: str) -> None:
    print("| off | episodes | regret in %, median (mean) | rv | met | good |\n|---|---|---|---|---|---|")
    for K in [int(float(x)) for x in lengths] or [1_000, 10_000]:
        whole = np.zeros(0)
        for name, params in PIECES.items():
            jobs = [(cmdp, K, seed, params) for _, cmdp in problems("development", 1) for seed in range(SEEDS)]
            with ProcessPoolExecutor(2) as pool:
                found = np.array(list(pool.map(measure, jobs)), dtype=float)
            whole = found if not params else whole
            apart = 100 * (found - whole)[:, 1:]
            moved = zip(100 * found[:, 1:].mean(axis=0), apart.mean(axis=0), apart.std(axis=0), strict=True)
            shares = [f"{x:.0f} ({d:+.0f} ± {2 * sd / np.sqrt(len(found)):.0f})" for x, d, sd in moved]
            regret = f"{np.median(found[:, 0]):.2f} ({found[:, 0].mean():.2f})"
            print(f"| {name} | {K:,} | {regret} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
