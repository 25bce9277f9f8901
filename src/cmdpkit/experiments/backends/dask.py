"""The backend `dask`: runs on a cluster whose machines see the same folder, or on one started here for them."""

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
from cmdpkit.experiments.worker import Done, Figures, Job, now_and_then, unpacked, work
from cmdpkit.records.record import Run
from cmdpkit.running.threads import Report

TOPIC = "cmdpkit"  # of the reports
CONNECT_TIMEOUT = "10s"  # a scheduler that takes longer to answer is not there


@dataclass(frozen=True)
class Dask:
    """The cluster at an address, or one of this machine with so many workers."""

    workers: int
    address: str | None

    def run(self, jobs: Sequence[Job], report: Report | None) -> Generator[Done, None, None]:
        """Every job, as it ends.

        A worker that dies is replaced by another. Without its scheduler a cluster is lost: a ValueError, but no run is.
        """
        distributed = _distributed()
        runs = {job.run.key: job.run for job in jobs}
        call = uuid.uuid4().hex[:8]  # tells apart two that ask for the same run at once: each takes its own answer
        with _calm(), _client(distributed, min(self.workers, len(jobs)), self.address) as client:
            if report is not None:
                client.subscribe_topic(TOPIC, lambda event: _pass_on(event[1], runs, report))
            task = work if report is None else _work
            flying = {client.submit(task, job, key=f"{job.run.key}-{call}", pure=False): job for job in jobs}
            try:
                for future in distributed.as_completed(list(flying), loop=client.loop):
                    try:
                        reason = future.result()
                    except distributed.KilledWorker as error:
                        reason = f"the workers that did this run died: {error}"
                    except (CancelledError, OSError):  # no connection any more
                        at = f" at {self.address}" if self.address else ""
                        raise CmdpkitError(f"lost the dask scheduler{at}") from None
                    yield flying.pop(future), reason
            finally:
                with suppress(Exception):  # the scheduler may be gone
                    client.cancel(list(flying))


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
def _calm() -> Iterator[None]:
    """A lost connection is told once, as an error, and not as tracebacks beside it."""
    log = logging.getLogger("distributed.client")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _work(job: Job) -> str | None:
    """Do a run in a worker and report on it."""
    worker = _distributed().get_worker()
    return work(job, now_and_then(lambda figures: worker.log_event(TOPIC, figures)))


def _pass_on(figures: Figures, runs: Mapping[str, Run], report: Report) -> None:
    with suppress(ValueError, KeyError, TypeError):  # of another experiment on the same cluster
        report(unpacked(figures, runs))
