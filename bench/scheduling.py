"""What it costs to hand out runs: a thousand short ones by each executor against the same runs in a plain loop.

The loop does what every run needs anyway, learning and writing its record. Overhead is everything on top, starting the
processes included, as a share of that: in time (workers x time / time of the loop - 1; on a busy machine that measures
the other work too) and in processor time.
"""

import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cmdpkit.execute import execute
from cmdpkit.experiment import Experiment
from cmdpkit.runs import ensure
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

    with tempfile.TemporaryDirectory() as folder:
        loop(folder, 2)  # compiled and warm
    wall, cpu = measured(loop)
    print(f"{RUNS} runs of {1000 * cpu / RUNS:.0f} ms in a loop: {wall:.1f} s, {cpu:.1f} s of processor time")
    for executor, workers in (("serial", None), ("processes", 1), ("processes", os.cpu_count())):
        wall_here, cpu_here = measured(lambda out: execute(runs, models, out, executor=executor, workers=workers))  # noqa: B023
        n = workers or 1
        extra = cpu_here / cpu - 1
        print(
            f"{executor:>9} x {n}: {wall_here:6.1f} s, overhead {n * wall_here / wall - 1:+.1%} of the loop's time, "
            f"{extra:+.1%} of its processor time ({'below' if extra < LIMIT else 'ABOVE'} {LIMIT:.0%})"
        )


def measured(work: Callable[[str], object]) -> tuple[float, float]:
    """Seconds and processor seconds, those of ended children included, in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        began, spent = time.perf_counter(), processor()
        work(folder)
        return time.perf_counter() - began, processor() - spent


def processor() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(x.ru_utime + x.ru_stime for x in usage)


if __name__ == "__main__":
    main()
