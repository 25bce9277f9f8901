"""Where runs are carried out: in this process, in processes of this machine, or on a cluster. The records are the same.

A backend has one method, ``run(jobs, report)``, which yields each job when it ends, with the reason if it failed.
To add one, write its class in a module here and name it in `backend_of`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from typing import Literal, Protocol

from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.worker import Done, Job, work
from cmdpkit.running.active import Report, in_threads

Executor = Literal["serial", "processes", "dask"]
EXECUTORS: tuple[Executor, ...] = ("serial", "processes", "dask")


class Backend(Protocol):
    """Carries out jobs."""

    def run(self, jobs: Sequence[Job], report: Report | None) -> Generator[Done, None, None]:
        """Yield every job when it ends, with the reason if it failed; ``report`` is called with their progress."""


class Serial:
    """Carries out jobs in this process, one after the other."""

    def run(self, jobs: Sequence[Job], report: Report | None) -> Generator[Done, None, None]:
        """Yield every job when it ends."""
        return in_threads(work, jobs, 1, report)


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
        from cmdpkit.experiments.backends.processes import Processes

        return Processes(many)
    if executor == "dask":
        from cmdpkit.experiments.backends.dask import Dask

        return Dask(many, address)
    return Serial()
