"""The backend `processes`: runs side by side in processes of this machine, any of which may die."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import ModuleType

from cmdpkit.experiments.worker import Done, Figures, Job, throttled, unpacked, work
from cmdpkit.records.record import Run
from cmdpkit.running.active import GRACE_SECONDS, Report, stoppable

LOOPBACK = "127.0.0.1"
DIED = "the process that did this run died, and again when it was the only one (out of memory?)"


@dataclass(frozen=True)
class Processes:
    """Carries out jobs in a number of processes of this machine."""

    workers: int  # how many processes

    def run(self, jobs: Sequence[Job], report: Report | None) -> Generator[Done, None, None]:
        """Yield every job when it ends.

        If a process dies, all runs that were under way are done again, one at a time. A run whose process then dies a
        second time has failed.
        """
        waiting = deque(jobs)
        workers = min(self.workers, len(jobs))
        with _listening({job.run.key: job.run for job in jobs}, report) as port:
            while waiting:
                suspects = deque((yield from _pooled(waiting, workers, 2 * workers, port)))  # each has a next job ready
                while suspects:
                    for job in (yield from _pooled(suspects, 1, 1, port)):
                        yield job, DIED


def _pooled(waiting: deque[Job], workers: int, ahead: int, port: int) -> Generator[Done, None, list[Job]]:
    """Yield jobs from the queue as they end, with at most ``ahead`` submitted at once.

    Returns the jobs that were under way when a process died, or an empty list if the queue is empty. The workers hold
    the reading end of a pipe. They end when its other end is closed, which also happens if this process is killed.
    """
    context = get_context("spawn")
    lifeline, our_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(waiting)), context, initializer=_begin, initargs=(lifeline, port))
    pending: dict[Future[str | None], Job] = {}
    try:
        while waiting or pending:
            with without_main():
                while waiting and len(pending) < ahead:
                    future = pool.submit(_work, waiting[0])
                    pending[future] = waiting.popleft()
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                reason = future.result()
                yield pending.pop(future), reason
        return []
    except BrokenProcessPool:
        return list(pending.values())
    finally:
        if pending:
            our_end.close()
        pool.shutdown(wait=True, cancel_futures=True)
        our_end.close()
        lifeline.close()


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the user's script from new processes, which do not need it and would run it a second time."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# -- in the worker -----------------------------------------------------------------------------------------------------

_stop = threading.Event()  # set when the process that started this one wants it to stop, or has ended
_report: Report = stoppable(_stop, None)


def _begin(lifeline: Connection, port: int) -> None:
    """Set up a worker. It ignores Ctrl-C, which is for the process that started it, and ends when that one ends."""
    global _report
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit.register(os._exit, 0)  # nothing needs to be cleaned up, and DuckDB would print errors
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    if not port:
        return
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(figures: Figures) -> None:
        with suppress(OSError):  # a lost progress report does no harm
            channel.sendto(json.dumps(figures).encode(), (LOOPBACK, port))

    _report = stoppable(_stop, throttled(send))


def _end_with(lifeline: Connection) -> None:
    """Wait until the other end of the pipe is closed, give the run time to save itself, and end this process."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    _stop.set()
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _work(job: Job) -> str | None:
    return work(job, _report)


# -- progress reports --------------------------------------------------------------------------------------------------


@contextmanager
def _listening(runs: Mapping[str, Run], report: Report | None) -> Iterator[int]:
    """Receive the workers' progress reports at a port of this machine, which is returned; 0 without a callback.

    They are sent as datagrams. A worker that is killed while sending one does not block the others, as a lock would.
    """
    if report is None:
        yield 0
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind((LOOPBACK, 0))

        def listen() -> None:
            while message := channel.recv(65_536):
                with suppress(ValueError, KeyError, TypeError):  # not sent by one of the workers
                    report(unpacked(json.loads(message), runs))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        port = channel.getsockname()[1]
        try:
            yield port
        finally:
            channel.sendto(b"", (LOOPBACK, port))
            thread.join()
