"""4,000 problems without a horizon made to break the exact solver, each compared with an exact rational answer.

Every fifth is also diagnosed and traded off, and an instance that takes more than 10 s of CPU is a fault. Prints every
kind of fault by family of problems, and how problems within the documented tolerance of infeasibility were reported.
`python -m bench adversarial` does the same with a horizon.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracles"))
from stationary_adversarial import Made, Report, examine, instance  # the tests run some of the same problems

INSTANCES = 4_000
WIDE = 5  # one in five is diagnosed and traded off
SEED = 8
SHOWN = 40
LIMIT = 10.0  # seconds of CPU for one instance
KINDS = {  # words of a fault, and what they mean
    "takes more": "too slow",
    "diagnose": "diagnose",
    "tradeoff": "tradeoff",
    "crash": "crash",
    "is called": "wrong verdict",
    "missed": "missed bound",
    "the gap": "gap below the true one",
    "tolerance is": "wrong tolerance",
    "exactly evaluated": "wrong value",
    "even with": "not optimal",
    "prices": "wrong price",
}


class TooSlow(BaseException):
    """Not an `Exception`, which `examine` would report as a crash of the solver."""


def _stop(*_: object) -> None:
    raise TooSlow


def limited(made: Made, *, wide: bool) -> Report:
    """`examine` within the limit of time."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        return examine(made, wide=wide)
    except TooSlow:
        return Report([f"takes more than {LIMIT:.0f} s"], 0.0, "")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    signal.signal(signal.SIGPROF, _stop)
    began, faulty, worst = time.process_time(), Counter[tuple[str, str]](), 0.0
    borderline, instances = Counter[str](), 0
    for k in range(INSTANCES):
        made = instance(np.random.default_rng([SEED, k]))
        report = limited(made, wide=k % WIDE == 0)
        worst = max(worst, report.miss)
        borderline[report.borderline] += 1
        instances += bool(report.faults)
        for fault in report.faults:
            kind = next((meaning for words, meaning in KINDS.items() if words in fault), "other")
            faulty[made.family, kind] += 1
            if faulty.total() <= SHOWN:
                print(f"instance {k} ({made.family}, N = {made.cmdp.N}): {fault}", flush=True)
        if (k + 1) % 500 == 0:
            print(f"{k + 1:,} done, {faulty.total()} faults in {instances} instances", flush=True)
    for (family, kind), times in sorted(faulty.items()):
        print(f"{family}: {times} times {kind}")
    print(
        f"{INSTANCES:,} instances in {time.process_time() - began:.0f} s of CPU: {faulty.total()} faults in "
        f"{instances} instances; the largest miss of a bound is {worst:.2f} of its tolerance"
    )
    print(
        f"{borderline['solved'] + borderline['infeasible']:,} are infeasible by less than the tolerance: "
        f"{borderline['solved']:,} were solved to within it, {borderline['infeasible']:,} called infeasible"
    )
