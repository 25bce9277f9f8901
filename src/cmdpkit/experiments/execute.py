"""Carrying out an experiment: skip what is done, continue what is not, record what fails, and keep everything.

The folder of an experiment holds, per run, the files of `cmdpkit.records.store`, the policy (KEY.policy.json) and,
while the run is under way, its saved state (KEY.run.npz); models/ holds the models by their fingerprint. All of it is
written whole or not at all, so the same command continues after a crash, and several may work on one folder at once.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.experiments.worker import Done, Job, work
from cmdpkit.io.atomic import make_folder
from cmdpkit.io.models import read_model, write_model
from cmdpkit.model.cmdp import CMDP
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.records.store import has_record, load_failures, load_record, save_failure
from cmdpkit.results.study import Study
from cmdpkit.running.learning import Progress
from cmdpkit.running.threads import in_threads
from cmdpkit.simulate.simulator import Noise

MODELS = "models"
LEFT_OVER = 3600.0  # seconds after which a temporary file belongs to nobody

Executor = Literal["serial", "processes", "dask"]
EXECUTORS: tuple[Executor, ...] = ("serial", "processes", "dask")


class Observer(Protocol):
    """Somebody who is told how an experiment gets on."""

    def begin(self, total: int, done: int) -> None:
        """So many runs are asked for, and so many were done before."""

    def report(self, at: Progress) -> None:
        """A run stands here."""

    def ended(self, run: Run, reason: str | None) -> None:
        """A run is done, or failed for this reason."""


@dataclass(frozen=True)
class Outcome:
    """What one invocation did: runs that were done already, those done now, and those that failed, with reasons."""

    folder: Path
    runs: tuple[Run, ...]
    skipped: int
    failed: Mapping[str, str]  # key of the run -> reason
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        failed = [{**run.to_dict(), "reason": self.failed[run.key]} for run in self.runs if run.key in self.failed]
        done = len(self.runs) - self.skipped - len(failed)
        return {
            "out": str(self.folder),
            "runs": len(self.runs),
            "skipped": self.skipped,
            "done": done,
            "failed": failed,
            "seconds": self.seconds,
        }

    def study(self, models: Mapping[str, CMDP] | None = None) -> Study:
        """The finished runs of the experiment, in its order, and those that failed."""
        records = [load_record(self.folder, run.key) for run in self.runs if run.key not in self.failed]
        failures = [failure for failure in load_failures(self.folder) if failure.run.key in self.failed]
        return Study(tuple(records), models, tuple(failures))


def execute(
    runs: Sequence[Run],
    models: Mapping[str, CMDP],
    folder: str | os.PathLike[str],
    *,
    executor: Executor = "processes",
    workers: int | None = None,
    address: str | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Carry out the runs that a folder does not hold yet, on the models that they name.

    A run that fails is recorded with its reason, does not stop the others and is tried again next time. If nothing can
    be written any more (disk full, no permission) or the cluster is lost, it ends with a ValueError; nothing is lost.
    """
    began = time.monotonic()
    _check(executor, workers, address)
    folder = Path(folder)
    todo = [run for run in runs if not has_record(folder, run.key)]
    failed: dict[str, str] = {}
    _tidy(folder)
    if observer is not None:
        observer.begin(len(runs), len(runs) - len(todo))
    if todo:
        jobs = _jobs(todo, models, folder.absolute())
        ends = _spread(jobs, executor, workers, address, observer)
        with _explaining(folder, runs), closing(ends):
            for job, reason in ends:
                if reason is None and not has_record(folder, job.run.key):
                    raise CmdpkitError(
                        f"a worker is done with {job.run.key}, but not in {job.folder}: it sees another disk"
                    )
                if reason is not None:
                    failed[job.run.key] = reason
                    save_failure(job.run, reason, folder)
                if observer is not None:
                    observer.ended(job.run, reason)
    return Outcome(folder, tuple(runs), len(runs) - len(todo), failed, time.monotonic() - began)


def _check(executor: str, workers: int | None, address: str | None) -> None:
    if executor not in EXECUTORS:
        raise CmdpkitError(f"executor is {executor!r}, expected one of {', '.join(EXECUTORS)}")
    if workers is not None and workers < 1:
        raise CmdpkitError(f"workers is {workers}, expected at least 1")
    for name, given, of in (("workers", workers, ("processes", "dask")), ("address", address, ("dask",))):
        if given is not None and executor not in of:
            raise CmdpkitError(f"{name} is for the executor {' or '.join(of)}, not for {executor}")


def _spread(
    jobs: Sequence[Job], executor: Executor, workers: int | None, address: str | None, observer: Observer | None
) -> Generator[Done, None, None]:
    """Every job, as it ends."""
    report = None if observer is None else observer.report
    n = min(workers or os.cpu_count() or 1, len(jobs))
    if executor == "serial":
        return in_threads(work, jobs, 1, report)  # one after the other
    if executor == "processes":
        from cmdpkit.experiments.processes import processes

        return processes(jobs, report, n)
    from cmdpkit.experiments.cluster import dask

    return dask(jobs, report, n, address)


def _jobs(runs: Iterable[Run], models: Mapping[str, CMDP], folder: Path) -> list[Job]:
    """The runs with the files of their models, written where they are missing."""
    make_folder(folder / MODELS)
    jobs = [Job(run, str(folder / MODELS / f"{run.fingerprint}.npz"), str(folder)) for run in runs]
    for path, name in {job.model: job.run.env for job in jobs}.items():
        if not Path(path).exists():
            write_model(models[name], path, overwrite=True)
    return jobs


def models_of(folder: str | os.PathLike[str], records: Iterable[RunRecord]) -> dict[str, CMDP]:
    """The models that a folder and those below it keep, by the names that the records have for them."""
    kept = {path.stem: path for path in Path(folder).rglob(f"{MODELS}/*.npz")}
    names = {record.run.env: record.run.fingerprint for record in records}
    return {name: read_model(kept[fingerprint]) for name, fingerprint in names.items() if fingerprint in kept}


@contextmanager
def _explaining(folder: Path, runs: Sequence[Run]) -> Iterator[None]:
    """Add to an error that ends everything what is safe and what to do."""
    try:
        yield
    except ValueError as error:
        done = sum(has_record(folder, run.key) for run in runs)
        safe = f"{done} of {len(runs)} runs are finished and kept in {folder}; the same command continues"
        raise CmdpkitError(f"{error}. {safe}") from None


def _tidy(folder: Path) -> None:
    """Remove what killed processes left behind: saved states of finished runs, and files half written long ago."""
    with suppress(OSError):  # removed by somebody else, or nobody may remove anything here
        for path in folder.glob("*.run.npz"):
            if has_record(folder, path.name.partition(".")[0]):
                path.unlink()
        for path in folder.glob(".*.tmp"):
            if time.time() - path.stat().st_mtime > LEFT_OVER:
                path.unlink()


def bench(
    environments: Iterable[CMDP | str | Mapping[str, Any]] | Mapping[str, CMDP | str],
    algorithms: Iterable[str | Mapping[str, Any]],
    *,
    episodes: float,
    seeds: int | Iterable[int] = 10,
    noise: Noise = "none",
    out: str | os.PathLike[str] | None = None,
    executor: Executor = "processes",
    workers: int | None = None,
    address: str | None = None,
    observer: Observer | None = None,
) -> Study:
    """Run algorithms on environments, with several seeds, and look at the results together.

    An environment is a model, a name, a file or ``{"model": ..., "params": {...}, "bounds": {...}}`` (give a mapping to
    give models names), an algorithm a name or ``{"name": ..., "preset": ..., "params": {...}}``; a list in these is
    several settings. With a folder ``out`` the records are kept there, and the same call continues where one stopped.

    >>> study = bench(["paper/synthetic"], ["triple-q", "dual-q"], episodes=500, seeds=2, executor="serial")
    >>> [(group.label, group.seeds) for group in study.groups()]
    [('triple-q', (0, 1)), ('dual-q', (0, 1))]
    """
    if isinstance(environments, Mapping):
        environments = [{"model": model, "name": name} for name, model in environments.items()]
    listed = {"environments": list(environments), "algorithms": list(algorithms), "seeds": seeds}
    experiment = Experiment.of({"name": "bench", **listed, "episodes": episodes, "noise": noise}, "bench")
    models = dict(experiment.problems)
    with tempfile.TemporaryDirectory(prefix="cmdpkit-") if out is None else _kept(out) as folder:
        done = execute(
            experiment.runs(),
            models,
            folder,
            executor=executor,
            workers=workers,
            address=address,
            observer=observer,
        )
        return done.study(models)


@contextmanager
def _kept(folder: str | os.PathLike[str]) -> Iterator[str]:
    yield os.fspath(folder)
