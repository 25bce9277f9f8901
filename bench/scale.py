"""How the time and the memory of an exact solve grow with states, actions, steps, constraints and successors.

One number of a base case is changed at a time. Each case is solved in a process of its own, on one thread. It prints
the table of docs/guide/scale.md.
"""

from __future__ import annotations

import subprocess
import sys
import time

import cmdpkit as ck
from bench.solver import _peak, sparse_model

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
    {"N": 0},
    {"N": 2},
    {"N": 4},
    {"N": 8},
)


def report(case: dict[str, int]) -> None:
    ck.solve(sparse_model(10, 2, 3, 2, case["N"]))  # compile
    cmdp = sparse_model(**case)
    before, rounds = _peak(), [0]
    cpu = time.process_time()
    solution = ck.solve(cmdp, "columns", threads=1, progress=lambda at: rounds.append(at.number))
    cpu = time.process_time() - cpu
    work = cmdp.kernel.nonzeros * (cmdp.H - 1)
    print(
        f"| {case['S']:,} | {case['A']} | {case['H']} | {case['successors']} | {case['N']} | {cmdp.kernel.nonzeros:,} "
        f"| {rounds[-1]} | {cpu:.2f} | {1e9 * cpu / work:.0f} | {1000 * (_peak() - before):.0f} "
        f"| {solution.gap / abs(solution.value):.0e} |",
        flush=True,
    )


def main() -> None:
    print(
        "| S | A | H | successors | N | nonzeros | rounds | CPU s | ns per nonzero and step | MB added | relative gap |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for change in CHANGES:
        case = BASE | change
        subprocess.run([sys.executable, "-c", f"from bench import scale; scale.report({case!r})"], check=True)
