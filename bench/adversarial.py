"""20,000 problems made to break the exact solver, each held against an exact rational answer.

Every fifth is also diagnosed and traded off. Prints what was wrong, if anything was, and how problems within the
documented tolerance of infeasibility were reported.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracles"))
from adversarial import examine, instance  # the tests run some of the same problems

INSTANCES = 20_000
WIDE = 5  # every so manieth is diagnosed and traded off
SEED = 2
SHOWN = 20


def kind(fault: str) -> str:
    """What sort of fault a sentence describes."""
    for word in ("crash", "is called", "missed", "gap"):
        if word in fault:
            return {"is called": "wrong verdict", "missed": "missed bound", "gap": "gap below the true one"}.get(
                word, word
            )
    return "other"


def main() -> None:
    began, faulty, worst = time.perf_counter(), Counter[str](), 0.0
    borderline = Counter[str]()
    for k in range(INSTANCES):
        if k and k % 2_000 == 0:
            print(f"{k:,} done, {faulty.total()} faults", flush=True)
        report = examine(instance(np.random.default_rng([SEED, k])), wide=k % WIDE == 0)
        worst = max(worst, report.miss)
        borderline[report.borderline] += 1
        for fault in report.faults:
            faulty[kind(fault)] += 1
            if faulty.total() <= SHOWN:
                print(f"instance {k}: {fault}", flush=True)
    found = ", ".join(
        f"{faulty[x]} {x}" for x in ("crash", "wrong verdict", "missed bound", "gap below the true one", "other")
    )
    print(
        f"{INSTANCES:,} instances in {time.perf_counter() - began:.0f} s: {found}; the largest miss of a bound is "
        f"{worst:.2f} of its tolerance"
    )
    print(
        f"{borderline['solved'] + borderline['infeasible']:,} are infeasible by less than the tolerance: "
        f"{borderline['solved']:,} were solved to within it, {borderline['infeasible']:,} called infeasible"
    )
