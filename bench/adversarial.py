"""24,000 problems made to break the exact solver, each compared with an exact rational answer.

There are 20,000 with a horizon and 4,000 without.

python -m bench adversarial
python -m bench.adversarial horizon 500      only the first 500 with a horizon; `stationary` are those without

Every fifth is also diagnosed and traded off, and an instance that takes more than 10 s of CPU is a fault. Prints every
kind of fault by family of problems, and how problems within the documented tolerance of infeasibility were reported.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "oracles"))
import stationary_adversarial as without_horizon

import adversarial as with_horizon  # the tests run some of the same problems

WIDE = 5  # one in five is diagnosed and traded off
SHOWN = 40
LIMIT = 10.0  # seconds of CPU for one instance
KINDS = {  # words of a fault, and what they mean
    "takes more": "too slow",
    "diagnose": "diagnose",
    "tradeoff": "tradeoff",
    "crash": "crash",
    "is called": "wrong verdict",
    "missed": "missed bound",
    "gap": "gap below the true one",
    "tolerance is": "wrong tolerance",
    "exactly evaluated": "wrong value",
    "even with": "not optimal",
    "prices": "wrong price",
}


class Suite(NamedTuple):
    """A sequence of problems, and how the answer to one of them is examined."""

    instance: Callable[[np.random.Generator], Any]
    examine: Callable[..., with_horizon.Report]
    seed: int
    size: int


SUITES = {
    "horizon": Suite(with_horizon.instance, with_horizon.examine, seed=2, size=20_000),
    "stationary": Suite(without_horizon.instance, without_horizon.examine, seed=8, size=4_000),
}


class TooSlow(BaseException):
    """Not an `Exception`, which `examine` would report as a crash of the solver."""


def _stop(*_: object) -> None:
    raise TooSlow


def limited(examine: Callable[..., with_horizon.Report], made: Any, *, wide: bool) -> with_horizon.Report:
    """`examine` within the limit of time."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        return examine(made, wide=wide)
    except TooSlow:
        return with_horizon.Report([f"takes more than {LIMIT:.0f} s"], 0.0, "")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def run(name: str, suite: Suite, instances: int) -> None:
    """Examine the first instances of a suite, and print what was found."""
    began, worst, faulty_instances = time.process_time(), 0.0, 0
    faulty, borderline = Counter[tuple[str, str]](), Counter[str]()
    for k in range(instances):
        made = suite.instance(np.random.default_rng([suite.seed, k]))
        report = limited(suite.examine, made, wide=k % WIDE == 0)
        worst = max(worst, report.miss)
        borderline[report.borderline] += 1
        faulty_instances += bool(report.faults)
        for fault in report.faults:
            family = getattr(made, "family", name)
            faulty[family, next((meaning for words, meaning in KINDS.items() if words in fault), "other")] += 1
            if faulty.total() <= SHOWN:
                print(f"instance {k} ({family}): {fault}", flush=True)
        if (k + 1) % (suite.size // 8) == 0:
            print(f"{k + 1:,} done, {faulty.total()} faults in {faulty_instances} instances", flush=True)
    for (family, kind), times in sorted(faulty.items()):
        print(f"{family}: {times} times {kind}")
    print(
        f"{name}: {instances:,} instances in {time.process_time() - began:.0f} s of CPU: {faulty.total()} faults in "
        f"{faulty_instances} instances; the largest miss of a bound is {worst:.2f} of its tolerance"
    )
    print(
        f"{borderline['solved'] + borderline['infeasible']:,} are infeasible by less than the tolerance: "
        f"{borderline['solved']:,} were solved to within it, {borderline['infeasible']:,} called infeasible"
    )


def main() -> None:
    """Run both suites in full."""
    signal.signal(signal.SIGPROF, _stop)
    for name, suite in SUITES.items():
        run(name, suite, suite.size)


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, _stop)
    asked = SUITES[sys.argv[1]]
    run(sys.argv[1], asked, int(sys.argv[2]) if len(sys.argv) > 2 else asked.size)
