"""One run as a piece of work for any process on any machine that sees the same folder.

What counts is written into the folder by whoever does the run; nothing but names, reasons and signs of life travels. So
whoever does it may be killed at any time: a run is finished when its record is there, and not before.
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
from cmdpkit.io.models import read_model
from cmdpkit.records.record import Run
from cmdpkit.running.learning import Progress
from cmdpkit.running.runs import checkpoint, ensure
from cmdpkit.running.threads import Report
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.meter import Sums, Tally
from cmdpkit.simulate.simulator import Noise

WORLDS = 8  # that a process keeps, with their optima
REPORT_SECONDS = 0.25  # between two reports of a run to another process

Figures = dict[str, Any]


class Job(NamedTuple):
    """A run, the file of its model and the folder its record goes to."""

    run: Run
    model: str
    folder: str


Done = tuple[Job, str | None]  # with the reason, if it failed


def work(job: Job, report: Report | None = None) -> str | None:
    """Do a run unless it is done; None, or why it failed. ValueError if its result cannot be written."""
    folder = Path(job.folder)
    try:
        ensure(job.run, folder, lambda: _world_of(job).fresh(), report)
    except Exception as error:
        if isinstance(error, OSError) or isinstance(error.__context__, OSError):  # the disk's fault, not the run's
            raise CmdpkitError(str(error)) from None
        return _reason(error, checkpoint(folder, job.run.key))
    return None


def _world_of(job: Job) -> ModelWorld:
    world = _world(job.model, job.run.env, cast("Noise", job.run.params.get("noise", "none")))
    if world.fingerprint != job.run.fingerprint:
        raise CmdpkitError(f"{job.model} is not the model of this run any more; delete it")
    return world


@lru_cache(maxsize=WORLDS)
def _world(model: str, name: str, noise: Noise) -> ModelWorld:
    """A model and its optimum, found once per process."""
    return ModelWorld(read_model(model), name, noise)


def _reason(error: Exception, saved: Path) -> str:
    """What went wrong, with its place in the code unless the message was written for users."""
    said = str(error)
    if not isinstance(error, CmdpkitError):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {said} ({Path(frame.filename).name}:{frame.lineno} in {frame.name})"
    return f"{said} (saved so far: {saved}; delete it to start this run again)" if saved.exists() else said


# -- signs of life from another process --------------------------------------------------------------------------------


def now_and_then(send: Callable[[Figures], None]) -> Report:
    """A report that passes on plain figures, at most every REPORT_SECONDS."""
    last = 0.0

    def tell(at: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_SECONDS:
            last = time.monotonic()
            send(packed(at))

    return tell


def packed(at: Progress) -> Figures:
    """What people look at, as plain figures."""
    sums = at.tally.weak or at.tally.realised
    violation = [float(x) for x in sums.violation]
    return {
        "key": at.run.key,
        "done": at.done,
        "phase": at.phase,
        "seconds": at.seconds,
        "regret": sums.regret,
        "violation": violation,
    }


def unpacked(figures: Mapping[str, Any], runs: Mapping[str, Run]) -> Progress:
    """The report behind the figures; KeyError, TypeError or ValueError if they are none of ours."""
    sums = Sums(figures["regret"], np.array(figures["violation"], dtype=float))
    tally = Tally(int(figures["done"]), sums, None, sums, None)
    return Progress(runs[figures["key"]], tally.episodes, str(figures["phase"]), tally, float(figures["seconds"]))
