"""Learning in worlds without episodes: six instances, five seeds, one run of a million steps each.

For every algorithm and instance: regret and violation realised, what the policy handed over lacks, and by how much it
misses a bound, all with signals scaled to [0, 1]; then how many runs ended within their bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

import cmdpkit as ck
from bench.infinite import sparse_model
from cmdpkit.records.record import RunRecord

STEPS, SEEDS = 1_000_000, range(5)
ALGOS = ("cl-pri", "cmdp-psrl", "c-ucrl", "triple-qa", "ucrl-cmdp", "chen-jain-luo")
INSTANCES: dict[str, Callable[[], ck.CMDP]] = {
    "machine": lambda: ck.load("machine"),
    "power-queue": lambda: ck.load("power-queue"),
    "rover, slip 0.1": lambda: ck.load("rover:slip=0.1"),
    "flow-queue": lambda: ck.load("flow-queue"),
    "random S=10 A=3": lambda: sparse_model(10, 1, A=3, criterion="average"),
    "random S=30 A=4 N=2": lambda: sparse_model(30, 2, A=4, criterion="average"),
}


def scaled(cmdp: ck.CMDP, run: RunRecord) -> dict[str, float]:
    """The figures of one run in unit scale; the worst bound where there are several."""
    reward, utilities = cmdp.reward_scale.span, np.array([scale.span for scale in cmdp.utility_scales])
    missed = np.array([c.sign * (c.bound - w) for c, w in zip(run.constraints, run.policy_utilities, strict=True)])
    return {
        "regret": run.final("realised_regret") / reward,
        "violation": float((run.final("realised_violation") / utilities).max()),
        "gaps paid": run.final("gaps_paid") / reward,
        "slope": slope(run),
        "policy lacks": (run.optimum - run.policy_value) / reward,
        "policy misses": float((missed / utilities).max()),
        "seconds": run.seconds,
    }


def slope(run: RunRecord) -> float:
    """The b in gaps paid ~ steps^b over the last nine tenths of the run."""
    steps, paid = np.asarray(run.read_at), np.asarray(run.curves["gaps_paid"])
    tail = (steps >= steps[-1] / 10) & (paid > 0)
    return float(np.polyfit(np.log(steps[tail]), np.log(paid[tail]), 1)[0]) if tail.sum() > 2 else 0.0


def measure(algo: str, name: str, seeds: Iterable[int] = SEEDS, steps: int = STEPS) -> list[dict[str, float]]:
    """The figures of all seeds on one instance, printed as they come."""
    cmdp = INSTANCES[name]()
    found = []
    for seed in seeds:
        found.append(scaled(cmdp, ck.learn(cmdp, algo, steps=steps, seed=seed)))
        told = ", ".join(f"{key} {value:.4g}" for key, value in found[-1].items())
        print(f"{algo:10} {name:20} {steps:>9,} steps, seed {seed}: {told}", flush=True)
    return found


def main() -> None:
    """Print every run, and for each algorithm how many ended within their bounds."""
    for algo in ALGOS:
        runs = [run for name in INSTANCES for run in measure(algo, name)]
        within = sum(run["violation"] <= 0 for run in runs)
        print(f"{algo}: {within} of {len(runs)} runs ended within their bounds", flush=True)
