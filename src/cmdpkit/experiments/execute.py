"""Carrying out an experiment: finished runs are skipped, interrupted ones continued, and failures recorded.

The folder of an experiment holds, for each run, the files of `cmdpkit.records.store`, the policy (KEY.policy.json) and,
while the run is under way, its saved state (KEY.run.npz); models/ holds the models by their fingerprints. Every file is
written as a whole or not at all. The same command can therefore continue after a crash, and several commands can work
on one folder at once.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.backends import Executor, Job, backend_of
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.io.atomic import make_folder
from cmdpkit.io.loading import builder_of
from cmdpkit.io.models import write_model
from cmdpkit.learners.registry import resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.records.code import Coded, source_folder
from cmdpkit.records.record import Run
from cmdpkit.records.store import has_record, load_failures, load_record, save_failure
from cmdpkit.results.study import MODELS, Study, save_order
from cmdpkit.running.active import Progress
from cmdpkit.running.gym.world import GymRecipe
from cmdpkit.simulate.simulator import Noise

STALE_FILE_SECONDS = 3600.0  # a temporary file that is older was left behind by a killed process

Worlds = Mapping[str, CMDP | GymRecipe]  # the models and environments of the runs, by fingerprint


class Observer(Protocol):
    """Progress callbacks of an experiment."""

    def begin(self, total: int, done: int) -> None:
        """Called first: how many runs are asked for, and how many of them are already done."""

    def report(self, at: Progress) -> None:
        """Called several times a second while a run is under way."""

    def ended(self, run: Run, reason: str | None) -> None:
        """Called when a run has ended, with the reason if it failed."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one call of `execute`."""

    folder: Path  # where the records are
    runs: tuple[Run, ...]  # all runs that were asked for
    worlds: Worlds  # the models and environments of these runs
    title: str  # title of a report about them
    skipped: int  # how many of the runs were done before
    failed: Mapping[str, str]  # key of a run that failed -> reason
    seconds: float  # how long the call took

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        failed = [{**run.to_dict(), "reason": self.failed[run.key]} for run in self.runs if run.key in self.failed]
        counts = {"runs": len(self.runs), "skipped": self.skipped, "done": len(self.runs) - self.skipped - len(failed)}
        return {"out": str(self.folder), **counts, "failed": failed, "seconds": self.seconds}

    def study(self) -> Study:
        """The finished runs of the experiment, in its order, those that failed, and the models."""
        records = [load_record(self.folder, run.key) for run in self.runs if run.key not in self.failed]
        failures = [failure for failure in load_failures(self.folder) if failure.run.key in self.failed]
        models = {key: world for key, world in self.worlds.items() if isinstance(world, CMDP)}
        return Study(tuple(records), models, tuple(failures), title=self.title)


def execute(
    runs: Sequence[Run],
    worlds: Worlds,
    folder: str | os.PathLike[str],
    *,
    title: str = "",
    executor: Executor = "processes",
    workers: int | None = None,
    address: str | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Carry out the runs that a folder does not hold yet, each in the world that has its fingerprint.

    A run that fails is recorded with its reason, does not stop the others and is tried again next time. If nothing can
    be written any more (disk full, no permission) or the cluster is lost, CmdpkitError is raised; finished runs are
    kept. The parameters are those of `bench`.
    """
    began = time.monotonic()
    backend = backend_of(executor, workers, address)
    if executor != "serial":
        _check_importable(runs, worlds)
    folder = Path(folder)
    todo = [run for run in runs if not has_record(folder, run.key)]
    failed: dict[str, str] = {}
    _tidy(folder)
    if observer is not None:
        observer.begin(len(runs), len(runs) - len(todo))
    if todo:
        jobs = _jobs(todo, worlds, folder.absolute(), executor)
        save_order(folder, runs, title)
        ends = backend(jobs, None if observer is None else observer.report)
        with _explaining(folder, runs), closing(ends):
            for job, reason in ends:
                if reason is None and not has_record(folder, job.run.key):
                    raise CmdpkitError(
                        f"a worker has finished {job.run.key}, but its record is not in {job.folder}: it writes to "
                        "another disk; give out= (--out) a folder that all workers share"
                    )
                if reason is not None:
                    failed[job.run.key] = reason
                    save_failure(job.run, reason, folder)
                if observer is not None:
                    observer.ended(job.run, reason)
    return Outcome(folder, tuple(runs), worlds, title, len(runs) - len(todo), failed, time.monotonic() - began)


def _check_importable(runs: Sequence[Run], worlds: Worlds) -> None:
    """Refuse classes and functions that other processes cannot import."""
    made = [world.source for world in worlds.values() if isinstance(world, GymRecipe)]
    for name in (*(run.algo for run in runs), *made):
        if name.startswith("__main__:"):
            raise CmdpkitError(
                f"{name.partition(':')[2]} is defined in the script or notebook itself, where other processes cannot "
                "import it: put it into a file of its own and import it from there, or use executor='serial'"
            )


def _jobs(runs: Iterable[Run], worlds: Worlds, folder: Path, executor: Executor = "processes") -> list[Job]:
    """A job for every run; models that are not in the folder yet are written there, and other processes read them."""
    make_folder(folder / MODELS)
    jobs = []
    for run in runs:
        world = worlds[run.fingerprint]
        parts: list[Coded] = [resolve(run.algo)]
        path = folder / MODELS / f"{run.fingerprint}.npz"
        if isinstance(world, GymRecipe):
            parts.append(builder_of(world.source))
        elif not path.exists():
            write_model(world, path, overwrite=True)
        place = world if isinstance(world, GymRecipe) or executor == "serial" else str(path)
        jobs.append(Job(run, place, str(folder), _modules(parts)))
    return jobs


def _modules(parts: Iterable[Coded]) -> tuple[str, ...]:
    """The folders from which a user's classes and functions are imported."""
    folders = (source_folder(part) for part in parts if not part.__module__.startswith("cmdpkit."))
    return tuple(dict.fromkeys(folder for folder in folders if folder is not None))


@contextmanager
def _explaining(folder: Path, runs: Sequence[Run]) -> Iterator[None]:
    """Add to an error that ends the whole experiment how many runs are finished, and what to do."""
    try:
        yield
    except CmdpkitError as error:
        done = sum(has_record(folder, run.key) for run in runs)
        safe = f"{done} of {len(runs)} runs are finished and kept in {folder}; the same command continues"
        raise CmdpkitError(f"{error}. {safe}") from None


def _tidy(folder: Path) -> None:
    """Remove what killed processes left behind: saved states of finished runs, and old temporary files."""
    with suppress(OSError):  # another process removed them, or this one is not allowed to
        for path in folder.glob("*.run.npz"):
            if has_record(folder, path.name.partition(".")[0]):
                path.unlink()
        for path in folder.glob(".*.tmp"):
            if time.time() - path.stat().st_mtime > STALE_FILE_SECONDS:
                path.unlink()


def bench(
    environments: Iterable[CMDP | str | Mapping[str, Any]] | Mapping[str, CMDP | str],
    algorithms: Iterable[str | type | Mapping[str, Any]],
    *,
    episodes: float | None = None,
    steps: float | None = None,
    seeds: int | Iterable[int] = 10,
    noise: Noise = "none",
    out: str | os.PathLike[str] | None = None,
    executor: Executor = "processes",
    workers: int | None = None,
    address: str | None = None,
    observer: Observer | None = None,
) -> Study:
    """Run algorithms on environments with several seeds, and return the results together.

    Parameters
    ----------
    environments : a list of models, names, files or tables ``{"model": ..., "params": {...}, "bounds": {...}}``, or a
        mapping that gives them names; "package.module:name" is your own function
    algorithms : a list of names, classes or tables ``{"name": ..., "preset": ..., "params": {...}}``. In a table of
        either kind, a list of values means that each of them is tried.
    episodes, steps, noise : of every run, as in `cmdpkit.learn`; environments with a horizon are learned in episodes,
        those without in steps
    seeds : a list of seeds, or how many, counted from 0
    out : folder in which the records are kept; the same call continues from there if it was interrupted
    executor : "processes" for processes of this machine, "serial" for this process only, or "dask" for a cluster
    workers : how many processes or dask workers to start, by default one per processor
    address : of the scheduler of a dask cluster that is already running
    observer : callbacks that are told about progress

    Returns
    -------
    The `Study` of all finished runs.

    >>> study = bench(["paper/synthetic"], ["triple-q", "dual-q"], episodes=500, seeds=2, executor="serial")
    >>> [(group.label, group.seeds) for group in study.groups()]
    [('triple-q', (0, 1)), ('dual-q', (0, 1))]
    """
    if isinstance(environments, Mapping):
        environments = [{"model": model, "name": name} for name, model in environments.items()]
    listed = {"environments": list(environments), "algorithms": list(algorithms), "seeds": seeds}
    length = {"episodes": episodes, "steps": steps}
    experiment = Experiment.of({"name": "bench", **listed, **length, "noise": noise}, "bench")
    runs, worlds = experiment.runs(), experiment.worlds
    with tempfile.TemporaryDirectory(prefix="cmdpkit-") if out is None else nullcontext(os.fspath(out)) as folder:
        done = execute(runs, worlds, folder, executor=executor, workers=workers, address=address, observer=observer)
        return done.study()
