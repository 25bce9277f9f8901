"""Runs side by side in threads that end together: after the last run, after a failure, or after Ctrl-C.

Python delivers Ctrl-C to the main thread. If compiled code were running there, nothing would happen until the run has
ended, so the main thread only waits. When the runs have to stop, the next progress report of each raises
KeyboardInterrupt, and a run with a checkpoint is saved then (see `cmdpkit.running.learning.learn`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import TypeVar

from cmdpkit.running.active import Progress

GRACE_SECONDS = 1.5  # how long runs may take to save themselves when they have to stop

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Progress], None]


def in_threads(
    work: Callable[[Item, Report], Result], items: Sequence[Item], threads: int, report: Report | None = None
) -> Generator[tuple[Item, Result], None, None]:
    """Yield every item with the result of ``work(item, report)``, in the order in which they end.

    At most ``threads`` items are worked on at once. Close the generator to stop those that are under way.
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
    """A progress callback that calls ``report``, and raises KeyboardInterrupt once ``stop`` is set."""

    def told(at: Progress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        if report is not None:
            report(at)

    return told
