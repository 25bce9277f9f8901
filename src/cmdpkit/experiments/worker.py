"""One run as a job for any process on any machine that can write to the same folder.

The process that does a run writes the result into the folder. Only jobs, reasons of failures and progress reports are
sent between processes, so a process may be killed at any time: a run is finished when its record exists, not earlier.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
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
from cmdpkit.records.store import has_record, load_record, load_records, save_record
from cmdpkit.running.active import Progress
from cmdpkit.running.baselines import Baseline, known_safe
from cmdpkit.running.gym.recipe import GymRecipe
from cmdpkit.running.learning import learn_in, length_of, request, stop_rule
from cmdpkit.running.parameters import check_parameters, with_certified
from cmdpkit.running.stopping import Asked, Stop
from cmdpkit.running.threads import Report, in_threads
from cmdpkit.running.worlds import ModelWorld, World, model_world, world_of
from cmdpkit.simulate.meter import Sums, Tally
from cmdpkit.simulate.simulator import Noise

WORLD_CACHE_SIZE = 8  # worlds that a process keeps, with their optima
REPORT_SECONDS = 0.25  # between two progress reports of a run to another process

Figures = dict[str, Any]  # a progress report as plain values, see `packed`


class Job(NamedTuple):
    """A run, and everything that a process needs to know to carry it out."""

    run: Run  # what is asked
    world: str | GymRecipe  # the file of a model, or how to make an environment
    folder: str  # where the record is written
    modules: tuple[str, ...]  # folders from which the user's modules are imported


Done = tuple[Job, str | None]  # a job that has ended, and the reason if it failed


def work(job: Job, report: Report | None = None) -> str | None:
    """Do a run unless its record exists; returns why it failed, or None. Raises CmdpkitError if writing fails."""
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

    ``kind`` returns the class of the learner, and ``world`` a world in which nothing is counted yet; neither is called
    if there is nothing to do. The policy is written first and the record last, so that a record means that everything
    is there. Several processes may do the same run at once: all get the same result, and the first record is kept.
    """
    saved = checkpoint(folder, run.key)
    if not has_record(folder, run.key):
        make_folder(folder)  # if this fails, it should fail now and not after hours of learning
        learner = kind()
        with closing(world()) as place:
            record = learn_in(
                place, run, learner, baseline=baseline, checkpoint=saved, save_end=False, progress=progress
            )
        write_policy(record.policy, folder / f"{run.key}.policy.json", overwrite=True)
        save_record(record, folder)
    saved.unlink(missing_ok=True)


def ensure_stopped(
    run: Run,
    stop: Stop,
    folder: Path,
    kind: type[Learner],
    world: Callable[[], World],
    progress: Report,
    baseline: Baseline | None,
) -> RunRecord:
    """The record of an anytime run that has stopped by a rule; what a folder holds of it is continued.

    Its state stays in the folder, so that it can be continued once more.
    """
    if stop.episodes is not None and has_record(folder, replace(run, episodes=stop.episodes).key):
        return load_record(folder, replace(run, episodes=stop.episodes).key)
    make_folder(folder)
    saved = checkpoint(folder, run.key)
    with closing(world()) as place:
        record = learn_in(place, run, kind, baseline=baseline, stop=stop, checkpoint=saved, progress=progress)
    write_policy(record.policy, folder / f"{record.run.key}.policy.json", overwrite=True)
    save_record(record, folder)
    return record


def checkpoint(folder: Path, key: str) -> Path:
    """Where an unfinished run is saved."""
    return folder / f"{key}.run.npz"


def learn_many(
    env: str | GymRecipe,
    algo: str | type,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    stop: Asked | None = None,
    more: int | None = None,
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
    """Learn with several seeds, and return one record per seed, in the order of the seeds.

    Runs are carried out in ``threads`` threads, because compiled code releases the interpreter lock. With a folder
    ``out``, finished runs are read from it, unfinished ones are continued, and the policy of each is written there too.
    Ctrl-C saves the runs under way within seconds. ``more`` continues the runs in ``out`` that were ended by ``stop``,
    each by so many episodes. ``renormalise`` divides the probabilities in a model file by their sum. The other
    parameters are those of `cmdpkit.learn`.

    >>> records = learn_many("paper/synthetic", "triple-q", episodes=500, seeds=range(2))
    >>> [record.run.seed for record in records]
    [0, 1]
    """
    check_parameters(params)
    world, kind = world_of(env, None, noise, bounds, renormalise=renormalise), resolve(algo)
    safe = None if baseline is None else known_safe(world, baseline)
    length = length_of(world, episodes, steps)
    until = stop_rule(world, length, stop if more is None else more)
    if until is not None and until.certified:
        params = with_certified(kind, preset, params)
    asked: dict[str, Any] = {"episodes": length, "preset": preset, "baseline": safe, **params}
    runs = [request(world, kind, seed=seed, **asked) for seed in seeds]
    targets = {run.key: until for run in runs}
    if more is not None:
        ended = [_ended(run, out) for run in runs]
        runs = [replace(run, episodes=0) for run in ended]
        targets = {replace(run, episodes=0).key: Stop(episodes=run.episodes + more) for run in ended}

    def one(run: Run, report: Report) -> RunRecord:
        target = targets[run.key]
        if out is None:
            with closing(world.fresh()) as place:
                return learn_in(place, run, kind, baseline=safe, stop=target, progress=report)
        if target is not None:
            return ensure_stopped(run, target, Path(out), kind, world.fresh, report, safe)
        ensure(run, Path(out), lambda: kind, world.fresh, report, safe)
        return load_record(out, run.key)

    many = threads or min(len(runs), os.cpu_count() or 1)
    with closing(world), closing(in_threads(one, runs, many, progress)) as ends:
        records = {run.key: record for run, record in ends}
    return [records[run.key] for run in runs]


def _ended(run: Run, out: str | os.PathLike[str] | None) -> Run:
    """The longest run in a folder that was asked for in the same words and was ended by a rule.

    A run that was to stop when it is certified has ``certified`` among its parameters, which need not be repeated.
    """
    if out is None:
        raise CmdpkitError("to continue runs, say in which folder they are kept: give out=, on the command line --out")
    same = (run, replace(run, params={"certified": True, **run.params}))
    ended = [record.run for record in load_records(out) if replace(record.run, episodes=0) in same]
    if not ended:
        raise CmdpkitError(
            f"{os.fspath(out)} has no run of {run.algo} on {run.problem} with seed {run.seed} that can be continued: "
            "begin one with stop= (on the command line --stop), with the same model, settings and code"
        )
    return max(ended, key=lambda other: other.episodes)


# -- what a job needs --------------------------------------------------------------------------------------------------


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
    """What went wrong, and for an unexpected error also where in the code."""
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
