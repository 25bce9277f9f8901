"""One run as a piece of work for any process on any machine that sees the same folder.

What counts is written into the folder by whoever does the run; nothing but names, reasons and signs of life travels. So
whoever does it may be killed at any time: a run is finished when its record is there, and not before.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.atomic import make_folder
from cmdpkit.io.models import read_model
from cmdpkit.io.policies import write_policy
from cmdpkit.io.references import look_in
from cmdpkit.learners import Learner, resolve
from cmdpkit.model.policy import Policy
from cmdpkit.records.code import code_digest
from cmdpkit.records.record import Run, RunRecord, Scalar
from cmdpkit.records.store import has_record, load_record, save_record
from cmdpkit.running.baselines import Baseline, known_safe
from cmdpkit.running.gym.recipe import GymRecipe
from cmdpkit.running.learning import Progress, learn_in, request
from cmdpkit.running.parameters import check_parameters
from cmdpkit.running.threads import Report, in_threads
from cmdpkit.running.worlds import ModelWorld, World, world_of
from cmdpkit.simulate.meter import Sums, Tally
from cmdpkit.simulate.simulator import Noise

WORLD_CACHE_SIZE = 8  # worlds that a process keeps, with their optima
REPORT_SECONDS = 0.25  # between two reports of a run to another process

Figures = dict[str, Any]


class Job(NamedTuple):
    """A run, its world, the folder its record goes to, and the folders in which to look for a user's modules."""

    run: Run
    world: str | GymRecipe  # the file of a model, or how to make an environment
    folder: str
    modules: tuple[str, ...]


Done = tuple[Job, str | None]  # with the reason, if it failed


def work(job: Job, report: Report | None = None) -> str | None:
    """Do a run unless it is done; None, or why it failed. ValueError if its result cannot be written."""
    folder = Path(job.folder)
    try:
        ensure(job.run, folder, lambda: _class_of(job), lambda: _world_of(job), report)
    except Exception as error:
        if isinstance(error, OSError) or isinstance(error.__context__, OSError):  # the disk's fault, not the run's
            raise CmdpkitError(str(error)) from None
        return _reason(error, checkpoint(folder, job.run.key))
    return None


def ensure(
    run: Run,
    folder: Path,
    kind: Callable[[], type[Learner]],
    world: Callable[[], World],
    progress: Report | None = None,
    baseline: Baseline | None = None,
) -> None:
    """Make sure that a folder holds the record of a run: a finished one is left alone, a saved one is continued.

    ``kind`` gives the class of the learner and ``world`` a world in which nothing is counted yet; neither is called if
    there is nothing to do. The policy is written first and the record last, so that a record means that everything is
    there. Several processes may ensure the same run at once: all of them come to the same bits, and the first record
    stays.
    """
    saved = checkpoint(folder, run.key)
    if not has_record(folder, run.key):
        make_folder(folder)  # now, not after hours of learning
        learner = kind()
        with closing(world()) as place:
            record = learn_in(
                place, run, learner, baseline=baseline, checkpoint=saved, save_end=False, progress=progress
            )
        write_policy(record.policy, folder / f"{run.key}.policy.json", overwrite=True)
        save_record(record, folder)
    saved.unlink(missing_ok=True)


def checkpoint(folder: Path, key: str) -> Path:
    """Where an unfinished run is saved."""
    return folder / f"{key}.run.npz"


def learn_many(
    env: str | GymRecipe,
    algo: str | type,
    *,
    episodes: int,
    seeds: Iterable[int],
    preset: str | None = None,
    bounds: Mapping[str, float] | None = None,
    renormalise: bool = False,
    noise: Noise = "none",
    baseline: Policy | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Report | None = None,
    **params: Scalar,
) -> list[RunRecord]:
    """One record per seed, in the order of the seeds; several at a time, as compiled code frees the interpreter lock.

    With a folder ``out``, finished runs are read from it instead of being made again, and unfinished ones continue from
    where they were saved last; the policy of each is written there too. Ctrl-C saves the runs under way, within
    seconds. ``renormalise`` divides the probabilities in a model file by their sum.

    >>> records = learn_many("paper/synthetic", "triple-q", episodes=500, seeds=range(2))
    >>> [record.run.seed for record in records]
    [0, 1]
    """
    check_parameters(params)
    world, kind = world_of(env, None, noise, bounds, renormalise=renormalise), resolve(algo)
    safe = None if baseline is None else known_safe(world, baseline)
    asked: dict[str, Any] = {"episodes": episodes, "preset": preset, "baseline": safe, **params}
    runs = [request(world, kind, seed=seed, **asked) for seed in seeds]

    def one(run: Run, report: Report) -> RunRecord:
        if out is None:
            with closing(world.fresh()) as place:
                return learn_in(place, run, kind, baseline=safe, progress=report)
        ensure(run, Path(out), lambda: kind, world.fresh, report, safe)
        return load_record(out, run.key)

    many = threads or min(len(runs), os.cpu_count() or 1)
    with closing(world), closing(in_threads(one, runs, many, progress)) as ends:
        records = {run.key: record for run, record in ends}
    return [records[run.key] for run in runs]


# -- what a job needs --------------------------------------------------------------------------------------------------


def _class_of(job: Job) -> type[Learner]:
    """The learner's class, imported here; refused if its code is not the one that the run is about."""
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
    """A model and its optimum, found once per process."""
    return ModelWorld(read_model(model), name, noise, dict(bounds))


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
