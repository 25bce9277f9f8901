"""How long a person waits for the first answer."""

import statistics
import subprocess
import sys
import time


def seconds(*arguments: str) -> float:
    """Median of five, after one that warms the disk."""
    times = []
    for _ in range(6):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "cmdpkit", *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def main() -> None:
    print(f"cmdpkit --help                {seconds('--help'):.2f} s")
    print(f"cmdpkit solve paper/synthetic {seconds('solve', 'paper/synthetic'):.2f} s")
