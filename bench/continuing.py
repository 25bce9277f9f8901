"""Learning in worlds without episodes: six algorithms, six instances, five seeds, runs of a million steps.

    python -m bench continuing                        # everything; several hours of processor time, on two processes
    python -m bench.continuing 1e5                    # shorter runs
    python -m bench.continuing 1e6 cl-pri c-ucrl      # some of the algorithms

Every run is printed as it ends: regret and violation realised, gaps paid, what the returned policy lacks, and by how
much it misses a bound, all with signals scaled to [0, 1]. Then follows the table of docs/algorithms/average.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from statistics import median

import numpy as np

import cmdpkit as ck
from bench._suite import halfway
from cmdpkit.records.record import RunRecord


def sparse_model(S: int, N: int, seed: int = 1, A: int = 5, **criterion: object) -> ck.CMDP:
    """Every action has five random successors; bounds halfway."""
    rng = np.random.default_rng(seed)
    successors = 5
    rows, nexts = np.repeat(np.arange(S * A), successors), rng.integers(0, S, S * A * successors)
    kernel = ck.Kernel.from_entries((1, S, A), rows, nexts, rng.dirichlet(np.ones(successors), S * A).reshape(-1))
    constraints = [ck.at_least(f"utility {n + 1}", 0.0, rng.random((S, A))) for n in range(N)]
    cmdp = ck.CMDP(kernel, rng.random((S, A)), constraints=constraints, **criterion)
    return halfway(cmdp)


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
    missed = np.array(
        [c.sign * (c.bound_on_total - w) for c, w in zip(run.constraints, run.policy_utilities, strict=True)]
    )
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


def measure(job: tuple[str, str, int, int]) -> dict[str, float]:
    """The figures of one run: algorithm, instance, number of steps, seed."""
    algo, name, steps, seed = job
    cmdp = INSTANCES[name]()
    found = scaled(cmdp, ck.learn(cmdp, algo, steps=steps, seed=seed))
    told = ", ".join(f"{key} {value:.4g}" for key, value in found.items())
    print(f"{algo:13} {name:20} {steps:>9,} steps, seed {seed}: {told}", flush=True)
    return found


def row(algo: str, name: str, runs: list[dict[str, float]]) -> str:
    """One line of the table: all seeds of an algorithm on an instance."""
    of = {key: [run[key] for run in runs] for key in runs[0]}
    within = sum(violation <= 0 for violation in of["violation"])
    regret, paid = (f"{min(of[key]):,.0f} to {max(of[key]):,.0f}" for key in ("regret", "gaps paid"))
    lacks, misses = max(of["policy lacks"]), max(of["policy misses"])
    ends = f"{within} of {len(runs)} | {max(of['violation']):,.0f} | {regret} | {paid} | {max(of['slope']):.2f}"
    policy = f"{lacks:.4f} | {f'{misses:.4f}' if misses > 0 else 'met'}"
    return f"| `{algo}` | {name} | {ends} | {policy} | {median(of['seconds']):.0f} |"


def main(steps: str = str(STEPS), *algos: str) -> None:
    """Print every run, then the table, and for each algorithm how many runs ended within their bounds."""
    T = int(float(steps))
    cells = [(algo, name) for algo in algos or ALGOS for name in INSTANCES]
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(measure, [(algo, name, T, seed) for algo, name in cells for seed in SEEDS]))
    runs = {cell: found[i * len(SEEDS) : (i + 1) * len(SEEDS)] for i, cell in enumerate(cells)}
    print("\n| | instance | within their bounds | largest violation | regret | gaps paid | largest slope", end=" ")
    print("| policy lacks at most | policy misses at most | seconds |\n|---|---|---|---|---|---|---|---|---|---|")
    for (algo, name), of_cell in runs.items():
        print(row(algo, name, of_cell))
    for algo in algos or ALGOS:
        ends = [run["violation"] for name in INSTANCES for run in runs[algo, name]]
        print(f"{algo}: {sum(x <= 0 for x in ends)} of {len(ends)} runs ended within their bounds", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
