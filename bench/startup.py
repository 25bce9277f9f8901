"""How long a person waits for the first answer, and what a first command on a new machine compiles.

    python -m bench startup
    OTHER=path/to/another/src python -m bench startup    # the same for another version, old and new in turn

Compilation is measured in processor seconds of the command on an empty cache, and in small kernels, because processors
differ: a kernel is what it takes to compile, as Numba users would, one function that adds up a row of a matrix.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cmdpkit

WARM = {"cmdpkit --help": ("--help",), "cmdpkit solve paper/synthetic": ("solve", "paper/synthetic")}
FIRST = {
    "solve queue": ("solve", "queue"),
    "learn queue": ("learn", "queue", "--episodes", "2000", "--seeds", "2"),
}
PASSES = 2  # over all first commands; the smaller time counts, as other work on the machine only adds to it
KERNEL = """
import time
import numpy as np
from numba import njit

def kernel(indptr, successors, prob, V, row):
    value = 0.0
    for i in range(indptr[row], indptr[row + 1]):
        value += prob[i] * V[successors[i]]
    return value

given = np.array([0, 2]), np.array([0, 1]), np.ones(2), np.ones(2), 0
njit(kernel)(*given)  # with what Numba does once per process
took = []
for _ in range(10):
    began = time.process_time()
    njit(kernel)(*given)
    took.append(time.process_time() - began)
print(sorted(took)[5])
"""


def seconds(*arguments: str) -> float:
    """Median of five, after one that warms the disk."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "cmdpkit", *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def kernel_seconds() -> float:
    """Processor seconds that one small kernel takes to compile."""
    return float(subprocess.run([sys.executable, "-c", KERNEL], check=True, capture_output=True, text=True).stdout)


def first_seconds(source: Path, arguments: tuple[str, ...]) -> float:
    """Processor seconds of a command on an empty cache, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": f"{folder}/code"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "cmdpkit", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    other = os.environ.get("OTHER")
    sources = {"this version": Path(cmdpkit.__file__).parents[1]} | ({"the other": Path(other)} if other else {})
    for name, arguments in WARM.items():
        print(f"{name:<30} {seconds(*arguments):.2f} s")
    print("\nprocessor seconds on an empty cache, and the same in small kernels")
    took: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(PASSES):
        for command, arguments in FIRST.items():
            for name, source in sources.items():
                kernel = kernel_seconds()
                took.setdefault((command, name), []).append((first_seconds(source, arguments), kernel))
    for (command, name), found in took.items():
        least, kernel = min(x for x, _ in found), min(k for _, k in found)
        print(f"{command:<12} {name:<12} {least:6.2f} s {least / kernel:6.1f} kernels of {1000 * kernel:.0f} ms")
