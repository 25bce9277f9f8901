"""What it costs to hand out runs: a thousand short ones by each executor.

A run needs its learning, which its record times, and the writing of its files, which a plain loop times. Overhead is
all the rest of the time that the workers had, starting the processes included, as a share of that serial compute time.
Both are taken within one pass, because a machine may be a tenth faster or slower a minute later.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cmdpkit.execute import execute
from cmdpkit.experiment import Experiment
from cmdpkit.runs import ensure
from cmdpkit.store import load_records
from cmdpkit.worlds import ModelWorld

RUNS, EPISODES = 1000, 500_000
LIMIT = 0.10


def main() -> None:
    sizes = {"name": "short", "episodes": EPISODES, "seeds": RUNS}
    experiment = Experiment.of({**sizes, "environments": ["paper/synthetic"], "algorithms": ["triple-q"]}, "bench")
    runs, models = experiment.runs(), dict(experiment.problems)
    world = ModelWorld(models["paper/synthetic"], "paper/synthetic")

    def loop(folder: str, some: int = RUNS) -> None:
        for run in runs[:some]:
            ensure(run, Path(folder), world.fresh)

    measured(lambda folder: loop(folder, 2))  # compiled and warm
    wall, learning = measured(loop)
    writing = wall - learning
    print(f"{RUNS} runs in a loop: {learning:.1f} s of learning, {writing:.1f} s of writing")
    for executor, workers in (("serial", None), ("processes", 1), ("processes", os.cpu_count())):
        wall, learning = measured(lambda folder: execute(runs, models, folder, executor=executor, workers=workers))  # noqa: B023
        n = workers or 1
        overhead = n * wall / (learning + writing) - 1
        verdict = f"{'below' if overhead < LIMIT else 'ABOVE'} {LIMIT:.0%}"
        print(f"{executor:>9} x {n}: {wall:5.1f} s, overhead {overhead:+.1%} of serial compute time ({verdict})")


def measured(work: Callable[[str], object]) -> tuple[float, float]:
    """Seconds that all took in an empty folder, and those of them that were learning."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        work(folder)
        wall = time.perf_counter() - began
        return wall, sum(record.seconds for record in load_records(folder))


if __name__ == "__main__":
    main()
