"""The table of docs/algorithms/triple-q.md: preset "practical" on instances that were not used to choose it.

The last rows, applications, are the exception: `steady` was chosen on all of them but `inventory`.

    python -m bench.triple_q_table [episodes] [seeds] [preset]

Regret and violation are exact (expected under the policies played) and weak, that is, signed; 95 % intervals over
seeds. The value range of an instance is the largest minus the smallest value any policy has.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import stats

from bench._suite import total_range
from cmdpkit import CMDP, diagnose, envs, solve
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.triple_q import TripleQ
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import stream

FIRST = [  # chosen before the preset was; one of them failed with its first version
    {"S": 5, "A": 3, "H": 5, "slack": 0.05, "seed": 1},
    {"S": 10, "A": 4, "H": 6, "concentration": 1.0, "slack": 0.03, "seed": 2},
    {"S": 10, "A": 3, "H": 10, "N": 2, "slack": 0.05, "seed": 3},
    {"S": 20, "A": 4, "H": 8, "conflict": 0.3, "slack": 0.1, "seed": 4},
    {"S": 15, "A": 3, "H": 6, "N": 3, "conflict": 0.5, "slack": 0.05, "seed": 5},
]
SECOND = [  # chosen before the second version was run on anything but the development set
    {"S": 6, "A": 4, "H": 5, "slack": 0.05, "seed": 11},
    {"S": 12, "A": 3, "H": 8, "concentration": 1.0, "slack": 0.02, "seed": 12},
    {"S": 8, "A": 5, "H": 6, "N": 2, "conflict": 0.3, "slack": 0.05, "seed": 13},
    {"S": 25, "A": 3, "H": 10, "conflict": 0.3, "slack": 0.1, "seed": 14},
    {"S": 10, "A": 4, "H": 4, "N": 3, "conflict": 0.5, "slack": 0.05, "seed": 15},
]
PAPER, APPLICATIONS = ("paper/synthetic", "paper/grid"), ("inventory", "streaming", "treatment", "queue")
REPORTED = [
    *((name, {}) for name in PAPER),
    *(("random", given) for given in FIRST + SECOND),
    *((name, {}) for name in APPLICATIONS),
]


def run(cmdp: CMDP, optimum: float, K: int, seed: int, preset: str) -> tuple[Tally, float]:
    source = Source.of(cmdp, optimum)
    begin = time.thread_time()
    TripleQ(Spec.of(cmdp, K), preset=preset).run(source, stream(seed), K)
    return source.meter.tally(), time.thread_time() - begin


def interval(x: np.ndarray) -> str:
    """Mean and half width of its 95 % interval."""
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    return f"{x.mean():.3g} ± {half:.2g}" if half > 1e-9 * abs(x.mean()) else f"{x.mean():.3g}"


def row(title: str, cmdp: CMDP, K: int, seeds: int, preset: str, pool: ThreadPoolExecutor) -> str:
    solution, span = solve(cmdp), total_range(cmdp, cmdp.r)
    slack = diagnose(cmdp, separation=False).slater_slack
    runs = list(pool.map(lambda seed: run(cmdp, solution.value, K, seed, preset), range(seeds)))
    regret, strong_regret = (
        np.array([getattr(tally, kind).regret for tally, _ in runs]) / (K * span) for kind in ("weak", "strong")
    )
    violation, strong_violation = (
        np.array([getattr(tally, kind).violation for tally, _ in runs]) / K for kind in ("weak", "strong")
    )
    worst = int(violation.mean(axis=0).argmax())
    cells = [
        title,
        f"{cmdp.H}, {cmdp.S}, {cmdp.A}, {cmdp.N}",
        f"{slack / cmdp.H:.1%}",
        ", ".join(f"{x:.2f}" for x in solution.shadow_prices),
        f"{interval(100 * regret)} %",
        f"{interval(1e3 * violation[:, worst])}",
        f"{interval(100 * strong_regret)} %",
        f"{interval(1e3 * strong_violation[:, worst])}",
        f"{np.mean([seconds for _, seconds in runs]):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main(episodes: str = "1e6", seeds: str = "10", preset: str = "practical") -> None:
    K = int(float(episodes))
    print(f"Preset {preset}, K = {K:,}, {seeds} seeds.\n")
    print(
        "| instance | H, S, A, N | slack / H | multipliers | regret | violation | strong regret | strong violation "
        "| s per run |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with ThreadPoolExecutor(2) as pool:
        for name, given in REPORTED:
            title = name + ":" * bool(given) + ",".join(f"{key}={value}" for key, value in given.items())
            print(row(f"`{title}`", envs.build(name, **given), K, int(seeds), preset, pool), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
