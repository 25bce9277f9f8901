"""A hundred kills: benches of 40 runs on every executor, killed at random moments and resumed, lose nothing."""

import os
import subprocess
import sys
import time

KILLS = 100


def main() -> None:
    began = time.perf_counter()
    test = [sys.executable, "-m", "pytest", "tests/experiments/test_crash.py", "-p", "no:cacheprovider"]
    subprocess.run(test, env={**os.environ, "CMDPKIT_KILLS": str(KILLS)}, check=True)
    print(f"{KILLS} kills: nothing lost, final records bit-identical ({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
