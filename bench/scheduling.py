"""What it costs to hand out runs: a thousand short ones by each executor.

A run needs its learning, which its record times, and the writing of its files, which plain loops time: as many of them
side by side as there are workers, each with its share, since processes slow each other down whoever hands out the work.
Overhead is all the rest of the time that the workers had, starting them included, as a share of that serial compute
time. Learning is taken from the same pass, because a machine may be a tenth faster or slower a minute later.
"""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import cmdpkit as ck
from cmdpkit.experiments.execute import execute
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.learners.registry import resolve
from cmdpkit.records.store import load_records
from cmdpkit.running.playing import keep
from cmdpkit.running.request import Request
from cmdpkit.running.worlds import ModelWorld

RUNS, EPISODES = 1000, 500_000
LIMIT = 0.1
SIZES = {"name": "short", "episodes": EPISODES, "environments": ["paper/synthetic"], "algorithms": ["triple-q"]}


def main() -> dict[str, float]:
    ratios = {}
    experiment = Experiment.of({**SIZES, "seeds": RUNS}, "bench")
    runs, worlds = experiment.runs(), experiment.worlds
    writing = {n: in_loops(n) for n in {1, os.cpu_count() or 1}}
    print(f"{RUNS} runs")
    for executor, workers in (("serial", None), ("processes", 1), ("processes", os.cpu_count())):
        wall, learning = measured(lambda folder: execute(runs, worlds, folder, executor=executor, workers=workers))  # noqa: B023
        n = workers or 1
        overhead = n * wall / (learning + writing[n]) - 1
        verdict = f"{'below' if overhead < LIMIT else 'ABOVE'} {LIMIT:.0%}"
        spent = f"{learning:.1f} s of learning, {writing[n]:.1f} s of writing"
        print(f"{executor:>9} x {n}: {wall:5.1f} s; {spent}; overhead {overhead:+.1%} of these ({verdict})")
        ratios[f"time over serial compute time, 1,000 short runs, {executor} x {n}"] = 1 + overhead
    return ratios


def measured(work: Callable[[str], object]) -> tuple[float, float]:
    """Seconds that all took in an empty folder, and those of them that were learning."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        work(folder)
        wall = time.perf_counter() - began
        return wall, sum(record.seconds for record in load_records(folder))


def in_loops(n: int) -> float:
    """Seconds that n loops side by side spend on everything but learning, all added up."""
    with ProcessPoolExecutor(n, get_context("spawn")) as pool:
        return sum(pool.map(loop, range(n), [n] * n))


def loop(first: int, n: int) -> float:
    """Every n-th run, in this process."""
    experiment = Experiment.of({**SIZES, "seeds": list(range(first, RUNS, n))}, "bench")
    world = ModelWorld(ck.load("paper/synthetic"), "paper/synthetic")

    def work(folder: str, some: int = RUNS) -> None:
        for run in experiment.runs()[:some]:
            keep(run, Path(folder), lambda run=run: Request(run, world.fresh(), resolve("triple-q")))

    measured(lambda folder: work(folder, 2))  # compiled and warm
    wall, learning = measured(work)
    return wall - learning


if __name__ == "__main__":
    main()
