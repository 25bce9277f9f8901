"""How the time and the memory of an exact solve grow with states, actions, steps, constraints and successors.

One number of a base case is changed at a time. Each case is solved in a process of its own, on one thread. It prints
the table of docs/guide/scale.md. The memory is what solving allocates at most, policies found on the way included.
"""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc

import cmdpkit as ck
from bench.solver import sparse_model

BASE = {"S": 20_000, "A": 5, "H": 20, "successors": 5, "N": 1}
CHANGES = (
    {},
    {"S": 2_000},
    {"S": 200_000},
    {"A": 2},
    {"A": 20},
    {"H": 5},
    {"H": 80},
    {"successors": 2},
    {"successors": 20},
    {"N": 2},
    {"N": 4},
    {"N": 8},
)
COLUMNS = ("S", "A", "H", "successors", "N", "nonzeros", "rounds", "CPU s", "ns per round", "MB added", "relative gap")


def report(case: dict[str, int]) -> None:
    ck.solve(sparse_model(10, 2, 3, 2, case["N"]))  # compile
    cmdp, rounds = sparse_model(**case), [0]
    tracemalloc.start()
    cpu = time.process_time()
    solution = ck.solve(cmdp, "columns", threads=1, progress=lambda at: rounds.append(at.number))
    cpu, added = time.process_time() - cpu, tracemalloc.get_traced_memory()[1] / 1e6
    work = cmdp.kernel.nonzeros * (cmdp.H - 1)  # nothing follows the last step
    row = [f"{case[x]:,}" for x in BASE]
    row += [f"{cmdp.kernel.nonzeros:,}", f"{rounds[-1]}", f"{cpu:.2f}", f"{1e9 * cpu / work / rounds[-1]:.1f}"]
    print("|", " | ".join([*row, f"{added:.0f}", f"{solution.gap / abs(solution.value):.0e}"]), "|", flush=True)


def main() -> None:
    print("|", " | ".join(COLUMNS), "|")
    print("|---" * len(COLUMNS) + "|", flush=True)
    for change in CHANGES:
        call = f"from bench import scale; scale.report({BASE | change!r})"
        subprocess.run([sys.executable, "-c", call], check=True)
