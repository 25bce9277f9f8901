"""Runs side by side in threads that end together: after the last run, after a failure, or after Ctrl-C.

Python gives Ctrl-C to the main thread, and compiled code there would hold it back until a run has ended. So the main
thread only waits. When it has to stop, the next report of progress of every run raises KeyboardInterrupt; a run that
has a checkpoint saves itself then (see `cmdpkit.running.learning.learn`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import TypeVar

from cmdpkit.running.learning import Progress

GRACE_SECONDS = 1.5  # that runs have to save themselves once they are to stop

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Progress], None]


def in_threads(
    work: Callable[[Item, Report], Result], items: Sequence[Item], threads: int, report: Report | None = None
) -> Generator[tuple[Item, Result], None, None]:
    """Every item with what ``work(item, report)`` returns, as they end, so many at a time.

    Close the generator to stop those that are under way.
    """
    stop = threading.Event()
    told = stoppable(stop, report)
    pool = ThreadPoolExecutor(threads)
    futures = {pool.submit(work, item, told): item for item in items}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for future in futures if not future.cancelled()], GRACE_SECONDS)


def stoppable(stop: threading.Event, report: Report | None) -> Report:
    """A report that raises KeyboardInterrupt once it is time to stop, and is passed on until then."""

    def told(at: Progress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        if report is not None:
            report(at)

    return told
