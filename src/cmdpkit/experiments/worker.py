"""One run as a job for any process on any machine that can write to the same folder.

The process that does a run writes the result into the folder. Only jobs, reasons of failures and progress reports are
sent between processes, so a process may be killed at any time: a run is finished when its record exists, not earlier.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.loading import look_in
from cmdpkit.io.models import read_model
from cmdpkit.learners import Learner, resolve
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import Run
from cmdpkit.running.active import Progress, Report
from cmdpkit.running.gym.world import GymRecipe
from cmdpkit.running.playing import keep, saved_run
from cmdpkit.running.request import Request
from cmdpkit.running.worlds import ModelWorld, World, model_world
from cmdpkit.simulate.meter import Sums, Tally
from cmdpkit.simulate.simulator import Noise

WORLD_CACHE_SIZE = 8  # worlds that a process keeps, with their optima
REPORT_SECONDS = 0.25  # between two progress reports of a run to another process

Figures = dict[str, Any]  # a progress report as plain values, see `packed`


class Job(NamedTuple):
    """A run, and everything that a process needs to know to carry it out."""

    run: Run  # the request
    world: str | GymRecipe  # the file of a model, or how to make an environment
    folder: str  # where the record is written
    modules: tuple[str, ...]  # folders from which the user's modules are imported


Done = tuple[Job, str | None]  # a job that has ended, and the reason if it failed


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


# -- what a job needs --------------------------------------------------------------------------------------------------


def _request_of(job: Job) -> Request:
    """The run in a world in which nothing is counted yet."""
    kind = _class_of(job)
    return Request(job.run, _world_of(job), kind)


def _class_of(job: Job) -> type[Learner]:
    """Import the learner's class, and refuse it if its code is not the code for which the run was requested."""
    for folder in job.modules:
        look_in(folder)
    kind = resolve(job.run.algo)
    if code_digest(kind) != job.run.code:
        raise CmdpkitError(
            f"the code of {job.run.algo} in this process (digest {code_digest(kind)}) is not the one that was asked "
            f"for ({job.run.code}): it was edited meanwhile, or the worker has imported an earlier one. Start the "
            "workers again, and give the command again"
        )
    return kind


def _world_of(job: Job) -> World:
    run = job.run
    if isinstance(job.world, GymRecipe):
        world: World = job.world.make()
    else:
        world = _model_world(job.world, run.env, cast("Noise", run.noise), tuple(run.bounds.items())).fresh()
    if world.fingerprint != run.fingerprint:
        what = job.world if isinstance(job.world, str) else job.world.source
        remedy = "delete it" if isinstance(job.world, str) else "give the command again"
        raise CmdpkitError(f"{what} is not the model of this run any more; {remedy}")
    return world


@lru_cache(maxsize=WORLD_CACHE_SIZE)
def _model_world(model: str, name: str, noise: Noise, bounds: tuple[tuple[str, float], ...]) -> ModelWorld:
    """The world of a model; its optimum is computed only once per process."""
    return model_world(read_model(model), name, noise, dict(bounds))


def _reason(error: Exception, saved: Path) -> str:
    """The error message, and for an unexpected error also its place in the code."""
    said = str(error)
    if not isinstance(error, CmdpkitError):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {said} ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"
    return f"{said} (saved so far: {saved}; delete it to start this run again)" if saved.exists() else said


# -- progress reports from another process ----------------------------------------------------------------------------


def throttled(send: Callable[[Figures], None]) -> Report:
    """A progress callback that calls ``send`` with plain values, at most once every REPORT_SECONDS."""
    last = 0.0

    def tell(at: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_SECONDS:
            last = time.monotonic()
            send(packed(at))

    return tell


def packed(at: Progress) -> Figures:
    """The parts of a progress report that are shown, as plain values."""
    sums = at.tally.weak or at.tally.realised
    totals = {"regret": sums.regret, "violation": [float(x) for x in sums.violation]}
    return {"key": at.run.key, "done": at.done, "phase": at.phase, "seconds": at.seconds, **totals}


def unpacked(figures: Mapping[str, Any], runs: Mapping[str, Run]) -> Progress:
    """The inverse of `packed`; raises KeyError, TypeError or ValueError for values that it did not make."""
    sums = Sums(figures["regret"], np.array(figures["violation"], dtype=float))
    tally = Tally(int(figures["done"]), sums, None, sums, None)
    run, seconds = runs[figures["key"]], float(figures["seconds"])
    return Progress(run, tally.episodes, str(figures["phase"]), tally, seconds, lambda: None)
