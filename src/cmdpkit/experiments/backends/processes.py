"""The backend `processes`: runs side by side on this machine, whatever becomes of the processes."""

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

from cmdpkit.experiments.worker import Done, Figures, Job, now_and_then, unpacked, work
from cmdpkit.records.record import Run
from cmdpkit.running.threads import GRACE_SECONDS, Report, stoppable

LOOPBACK = "127.0.0.1"
DIED = "the process that did this run died, and again when it was the only one (out of memory?)"


@dataclass(frozen=True)
class Processes:
    """Processes of this machine."""

    workers: int

    def run(self, jobs: Sequence[Job], report: Report | None) -> Generator[Done, None, None]:
        """Every job, as it ends.

        If a process dies, all runs that were under way are done again, each alone: one that takes its process with it
        a second time is to blame.
        """
        waiting = deque(jobs)
        workers = min(self.workers, len(jobs))
        with _listening({job.run.key: job.run for job in jobs}, report) as port:
            while waiting:
                suspects = deque((yield from _pooled(waiting, workers, 2 * workers, port)))  # one at work, one at hand
                while suspects:
                    for job in (yield from _pooled(suspects, 1, 1, port)):
                        yield job, DIED


def _pooled(waiting: deque[Job], workers: int, ahead: int, port: int) -> Generator[Done, None, list[Job]]:
    """Take jobs from the queue, so many at a time, until it is empty or a process dies; those under way then.

    The workers hold the reading end of a pipe and end when the other is closed, be it because this process is killed.
    """
    context = get_context("spawn")
    lifeline, held = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(workers, len(waiting)), context, initializer=_begin, initargs=(lifeline, port))
    flying: dict[Future[str | None], Job] = {}
    try:
        while waiting or flying:
            with without_main():
                while waiting and len(flying) < ahead:
                    future = pool.submit(_work, waiting[0])
                    flying[future] = waiting.popleft()
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                reason = future.result()
                yield flying.pop(future), reason
        return []
    except BrokenProcessPool:
        return list(flying.values())
    finally:
        if flying:
            held.close()
        pool.shutdown(wait=True, cancel_futures=True)
        held.close()
        lifeline.close()


@contextmanager
def without_main() -> Iterator[None]:
    """New processes need nothing of the user's script, and would run it once more if they knew of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# -- in the worker -----------------------------------------------------------------------------------------------------

_stop = threading.Event()  # set when the process that started this one wants no more, or is gone
_report: Report = stoppable(_stop, None)


def _begin(lifeline: Connection, port: int) -> None:
    """Set up a worker. It ignores Ctrl-C, which is for the process that started it, and ends when that one ends."""
    global _report
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit.register(os._exit, 0)  # there is nothing to clean up, though DuckDB would complain about what it finds
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    if not port:
        return
    channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(figures: Figures) -> None:
        with suppress(OSError):  # a report that gets lost is no loss
            channel.sendto(json.dumps(figures).encode(), (LOOPBACK, port))

    _report = stoppable(_stop, now_and_then(send))


def _end_with(lifeline: Connection) -> None:
    """Wait for the end of the process that holds the other end of the pipe, let the run save itself, and end."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    _stop.set()
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _work(job: Job) -> str | None:
    return work(job, _report)


# -- signs of life -----------------------------------------------------------------------------------------------------


@contextmanager
def _listening(runs: Mapping[str, Run], report: Report | None) -> Iterator[int]:
    """The port of this machine where the workers' reports are taken in and passed on; 0 if nobody wants them.

    By datagrams, as a worker that is killed in the middle of one leaves no lock behind for the others to wait for.
    """
    if report is None:
        yield 0
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind((LOOPBACK, 0))

        def listen() -> None:
            while message := channel.recv(65_536):
                with suppress(ValueError, KeyError, TypeError):  # not from one of ours
                    report(unpacked(json.loads(message), runs))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        port = channel.getsockname()[1]
        try:
            yield port
        finally:
            channel.sendto(b"", (LOOPBACK, port))
            thread.join()
