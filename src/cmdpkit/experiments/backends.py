"""Where runs are carried out: in this process, in processes of this machine, or on a cluster. The records are the same.

A backend is a function of jobs, which yields each of them when it ends, with the reason if it failed. To add one, write
it here and name it in `backend_of`.

A job is one run for any process on any machine that can write to the same folder. The process that does it writes the
result into the folder. Only jobs, reasons of failures and progress reports are sent between processes, so a process
may be killed at any time: a run is finished when its record exists, not earlier.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.loading import look_in
from cmdpkit.io.models import read_model
from cmdpkit.learners import resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import Run, plain
from cmdpkit.running.active import Progress
from cmdpkit.running.gym.world import GymRecipe
from cmdpkit.running.playing import GRACE_SECONDS, Report, in_threads, keep, saved_run, stoppable
from cmdpkit.running.request import Request
from cmdpkit.running.worlds import ModelWorld, World, model_world
from cmdpkit.simulate.meter import Sums, Tally
from cmdpkit.simulate.simulator import Noise

Executor = Literal["serial", "processes", "dask"]
EXECUTORS: tuple[Executor, ...] = ("serial", "processes", "dask")


WORLD_CACHE_SIZE = 8  # worlds that a process keeps, with their optima
REPORT_SECONDS = 0.25  # between two progress reports of a run to another process

Figures = dict[str, Any]  # a progress report as plain values, see `packed`


class Job(NamedTuple):
    """A run, and everything that a process needs to know to carry it out."""

    run: Run  # the request
    world: CMDP | str | GymRecipe  # a model, or for other processes its file, or how to make an environment
    folder: str  # where the record is written
    modules: tuple[str, ...]  # folders from which the user's modules are imported


Done = tuple[Job, str | None]  # a job that has ended, and the reason if it failed


# Carries out jobs: yields every job when it ends, with the reason if it failed, and tells of their progress meanwhile.
Backend = Callable[[Sequence[Job], Report | None], Generator[Done, None, None]]


def backend_of(executor: str, workers: int | None = None, address: str | None = None) -> Backend:
    """The backend with the name of an executor; options that it does not use are refused."""
    if executor not in EXECUTORS:
        raise CmdpkitError(f"executor is {executor!r}, expected one of {', '.join(EXECUTORS)}")
    if workers is not None and workers < 1:
        raise CmdpkitError(f"workers is {workers}, expected at least 1")
    for name, given, of in (("workers", workers, ("processes", "dask")), ("address", address, ("dask",))):
        if given is not None and executor not in of:
            raise CmdpkitError(f"{name} is for the executor {' or '.join(of)}, not for {executor}")
    many = workers or os.cpu_count() or 1
    if executor == "processes":
        return partial(in_processes, workers=many)
    if executor == "dask":
        return partial(on_dask, workers=many, address=address)
    return lambda jobs, report: in_threads(work, jobs, 1, report)


# -- a run as a job ----------------------------------------------------------------------------------------------------


def work(job: Job, report: Report | None = None) -> str | None:
    """Do a run unless its record exists; returns why it failed, or None. Raises CmdpkitError if writing fails."""
    folder = Path(job.folder)
    try:
        keep(job.run, folder, lambda: _request_of(job), progress=report)
    except Exception as error:
        if isinstance(error, OSError) or isinstance(error.__context__, OSError):  # the disk's fault, not the run's
            raise CmdpkitError(str(error)) from None
        return _reason(error, saved_run(folder, job.run.key))
    return None


def _request_of(job: Job) -> Request:
    """The run in a world in which nothing is counted yet; refused if it was requested for other code."""
    for folder in job.modules:
        look_in(folder)
    world = _world_of(job)
    kind = resolve(job.run.algo, world.criterion)
    if code_digest(kind) != job.run.code:
        raise CmdpkitError(
            f"the code of {job.run.algo} in this process (digest {code_digest(kind)}) is not the one that was asked "
            f"for ({job.run.code}): it was edited meanwhile, or the worker has imported an earlier one. Start the "
            "workers again, and give the command again"
        )
    return Request(job.run, world, kind)


def _world_of(job: Job) -> World:
    run = job.run
    if isinstance(job.world, GymRecipe):
        world: World = job.world.make()
    else:
        world = _model_world(job.world, run.env, cast("Noise", run.noise), tuple(run.bounds.items())).fresh()
    if world.fingerprint != run.fingerprint:
        what = job.world.source if isinstance(job.world, GymRecipe) else job.world
        remedy = "delete it" if isinstance(job.world, str) else "give the command again"
        raise CmdpkitError(f"{what} is not the model of this run any more; {remedy}")
    return world


@lru_cache(maxsize=WORLD_CACHE_SIZE)
def _model_world(model: CMDP | str, name: str, noise: Noise, bounds: tuple[tuple[str, float], ...]) -> ModelWorld:
    """The world of a model; its optimum is computed only once per process."""
    return model_world(read_model(model) if isinstance(model, str) else model, name, noise, dict(bounds))


def _reason(error: Exception, saved: Path) -> str:
    """The error message, and for an unexpected error also its place in the code."""
    said = str(error)
    if not isinstance(error, CmdpkitError):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {said} ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"
    return f"{said} (saved so far: {saved}; delete it to start this run again)" if saved.exists() else said


def throttled(send: Callable[[Figures], None]) -> Report:
    """A progress callback that calls ``send`` with plain values, at most once every REPORT_SECONDS."""
    last = 0.0

    def tell(at: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_SECONDS:
            last = time.monotonic()
            with suppress(CmdpkitError):  # a lost progress report does no harm
                send(packed(at))

    return tell


def packed(at: Progress) -> Figures:
    """How far a run is and its sums, as plain values."""
    tally = plain(at.tally, "tally")
    return {"key": at.run.key, "done": at.done, "phase": at.phase, "tally": tally, "seconds": at.seconds}


def unpacked(figures: Mapping[str, Any], runs: Mapping[str, Run]) -> Progress:
    """The inverse of `packed`; raises KeyError, TypeError or ValueError for values that it did not make."""
    done, *sums, unsafe, earned, gaps = figures["tally"]
    weak, strong, realised = (None if x is None else Sums(x[0], np.array(x[1], dtype=float)) for x in sums)
    if realised is None:
        raise ValueError("a run always has realised sums")
    tally = Tally(int(done), weak, strong, realised, unsafe, None if earned is None else np.array(earned), gaps)
    run, seconds = runs[figures["key"]], float(figures["seconds"])
    return Progress(run, int(figures["done"]), str(figures["phase"]), tally, seconds, lambda: None)


# -- The backend `processes`: runs side by side in processes of this machine, any of which may die.

LOOPBACK = "127.0.0.1"
DIED = "the process that did this run died, and again when it was the only one (out of memory?)"


def in_processes(jobs: Sequence[Job], report: Report | None, workers: int) -> Generator[Done, None, None]:
    """Carry out jobs in a number of processes of this machine.

    If a process dies, all runs that were under way are done again, one at a time. A run whose process then dies a
    second time has failed.
    """
    waiting = deque(jobs)
    workers = min(workers, len(jobs))
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
                with suppress(ValueError):  # not sent by one of the workers
                    _pass_on(json.loads(message), runs, report)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        port = channel.getsockname()[1]
        try:
            yield port
        finally:
            channel.sendto(b"", (LOOPBACK, port))
            thread.join()


# -- The backend `dask`: runs on a cluster whose machines can write to the same folder, or on one that is started here.

TOPIC = "cmdpkit"  # under which workers publish progress reports
CONNECT_TIMEOUT = "10s"  # how long an answer of the scheduler is waited for


def on_dask(
    jobs: Sequence[Job], report: Report | None, workers: int, address: str | None
) -> Generator[Done, None, None]:
    """Carry out jobs on the cluster at an address, or on a new one with a number of workers on this machine.

    A worker that dies is replaced. If the scheduler is lost, CmdpkitError is raised; finished runs are kept.
    """
    distributed = _distributed()
    runs = {job.run.key: job.run for job in jobs}
    call = uuid.uuid4().hex[:8]  # makes task names unique, as two commands may ask for the same run at once
    with _quiet_log(), _client(distributed, min(workers, len(jobs)), address) as client:
        if report is not None:
            client.subscribe_topic(TOPIC, lambda event: _pass_on(event[1], runs, report))
        task = work if report is None else _work_there
        pending = {client.submit(task, job, key=f"{job.run.key}-{call}", pure=False): job for job in jobs}
        try:
            for future in distributed.as_completed(list(pending), loop=client.loop):
                try:
                    reason = future.result()
                except distributed.KilledWorker as error:
                    reason = f"the workers that did this run died: {error}"
                except (CancelledError, OSError):  # the connection is lost
                    at = f" at {address}" if address else ""
                    raise CmdpkitError(f"lost the dask scheduler{at}") from None
                yield pending.pop(future), reason
        finally:
            with suppress(Exception):  # the scheduler may be gone
                client.cancel(list(pending))


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ImportError:
        raise CmdpkitError("the executor 'dask' needs distributed: pip install 'cmdpkit[dask]'") from None


@contextmanager
def _client(distributed: Any, workers: int, address: str | None) -> Iterator[Any]:
    if address is not None:
        try:
            client = distributed.Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise CmdpkitError(f"no dask scheduler answers at {address}: {error}") from None
        with client:
            yield client
        return
    with without_main():
        cluster = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Silence the log of dask's client, so that a lost connection is reported once, as an error without tracebacks."""
    log = logging.getLogger("distributed.client")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _work_there(job: Job) -> str | None:
    """Do a run in a worker, and publish its progress."""
    worker = _distributed().get_worker()
    return work(job, throttled(lambda figures: worker.log_event(TOPIC, figures)))


def _pass_on(figures: Figures, runs: Mapping[str, Run], report: Report) -> None:
    with suppress(ValueError, KeyError, TypeError):  # of another experiment on the same cluster, or not of a worker
        report(unpacked(figures, runs))
