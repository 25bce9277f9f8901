"""Settings of the presets `practical` of algorithms without episodes, chosen on problems that are not reported.

Every setting runs on each of six development problems. Its score is the sum of realised regret, violation (what
is within the bounds counts as 0), and what the policy handed over lacks and misses, each per step in percent of the
range of a signal, averaged over the problems. The setting with the smallest score is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import cmdpkit as ck
from bench.continuing import scaled
from bench.infinite import sparse_model
from bench.settings import grid

STEPS = 100_000
SEEDS = {"triple-qa": range(11, 15)}  # it is quick and varies much; the others run with one seed
SETTINGS: dict[str, list[Mapping[str, float]]] = {
    "c-ucrl": grid(width=(0.01, 0.05, 0.2)),
    "triple-qa": grid(horizon=(10, 20, 50), eta=(0.3, 1, 3), lift=(0.001, 0.002, 0.005)),
    "ucrl-cmdp": grid(c=(1e-6, 1e-4), few=(5, 20)),
    "chen-jain-luo": grid(segment=(20, 50), c=(1e-6, 1e-4)),
}


def problems() -> dict[str, ck.CMDP]:
    """Models of the kinds that are reported, with other sizes, numbers and seeds."""
    return {
        "machine-two": ck.load("machine-two"),
        "service-level": ck.load("service-level:capacity=6,service=0.9"),
        "short queue": ck.load("power-queue:capacity=8,arrives=0.5,backlog=2.5"),
        "rover, slip 0.3": ck.load("rover:slip=0.3,pits=0.3"),
        "random S=8": sparse_model(8, 1, seed=21, A=3, criterion="average"),
        "random S=15 N=2": sparse_model(15, 2, seed=22, A=3, criterion="average"),
    }


def score(cmdp: ck.CMDP, algo: str, setting: Mapping[str, float]) -> tuple[float, float]:
    """The mean score of the runs on one problem, and their seconds."""
    lost, seconds = [], 0.0
    for seed in SEEDS.get(algo, (11,)):
        found = scaled(cmdp, ck.learn(cmdp, algo, steps=STEPS, seed=seed, **setting))
        realised = found["regret"] + max(0.0, found["violation"])
        handed_over = max(0.0, found["policy lacks"]) + max(0.0, found["policy misses"])
        lost.append(100 * (realised / STEPS + handed_over))
        seconds += found["seconds"]
    return float(np.mean(lost)), seconds


def main() -> None:
    """Print the score of every setting, and the best one of each algorithm."""
    cases = problems()
    for algo, settings in SETTINGS.items():
        scores = []
        for setting in settings:
            runs = np.array([score(cmdp, algo, setting) for cmdp in cases.values()])
            scores.append(float(runs[:, 0].mean()))
            each = " ".join(f"{x:.2f}" for x in runs[:, 0])
            print(f"{algo} {dict(setting)}: {scores[-1]:.3f} ({each}), {runs[:, 1].sum():.0f} s", flush=True)
        print(f"{algo}: {dict(settings[int(np.argmin(scores))])}", flush=True)
