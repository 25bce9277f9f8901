"""The backend `dask`: runs on a cluster whose machines can write to the same folder, or on one that is started here."""

from __future__ import annotations

import importlib
import logging
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.backends.processes import without_main
from cmdpkit.experiments.worker import Done, Figures, Job, throttled, unpacked, work
from cmdpkit.records.record import Run
from cmdpkit.running.active import Report

TOPIC = "cmdpkit"  # under which workers publish progress reports
CONNECT_TIMEOUT = "10s"  # how long an answer of the scheduler is waited for


@dataclass(frozen=True)
class Dask:
    """Carries out jobs on the cluster at an address, or on a new one with a number of workers on this machine."""

    workers: int  # number of workers of a new cluster
    address: str | None  # address of a running scheduler; None for a new cluster

    def run(self, jobs: Sequence[Job], report: Report | None) -> Generator[Done, None, None]:
        """Yield every job when it ends.

        A worker that dies is replaced. If the scheduler is lost, CmdpkitError is raised; finished runs are kept.
        """
        distributed = _distributed()
        runs = {job.run.key: job.run for job in jobs}
        call = uuid.uuid4().hex[:8]  # makes task names unique, as two commands may ask for the same run at once
        with _quiet_log(), _client(distributed, min(self.workers, len(jobs)), self.address) as client:
            if report is not None:
                client.subscribe_topic(TOPIC, lambda event: _pass_on(event[1], runs, report))
            task = work if report is None else _work
            pending = {client.submit(task, job, key=f"{job.run.key}-{call}", pure=False): job for job in jobs}
            try:
                for future in distributed.as_completed(list(pending), loop=client.loop):
                    try:
                        reason = future.result()
                    except distributed.KilledWorker as error:
                        reason = f"the workers that did this run died: {error}"
                    except (CancelledError, OSError):  # the connection is lost
                        at = f" at {self.address}" if self.address else ""
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


def _work(job: Job) -> str | None:
    """Do a run in a worker, and publish its progress."""
    worker = _distributed().get_worker()
    return work(job, throttled(lambda figures: worker.log_event(TOPIC, figures)))


def _pass_on(figures: Figures, runs: Mapping[str, Run], report: Report) -> None:
    with suppress(ValueError, KeyError, TypeError):  # a report of another experiment on the same cluster
        report(unpacked(figures, runs))
