"""Carrying out a run: it is played in pieces, between which curves are read, checkpoints written and progress reported.

The pieces do not change a single bit of the result, because a learner's run of n episodes is the same as n runs of one
episode. `play` is the only way in which a run is carried out, and `keep` does it for a folder that holds the records.

Several runs are carried out in threads that end together (`in_threads`): after the last run, after a failure, or after
Ctrl-C. Python delivers Ctrl-C to the main thread. If compiled code were running there, nothing would happen until the
run has ended, so the main thread only waits. When the runs have to stop, the next progress report of each raises
KeyboardInterrupt, and a run with a checkpoint is saved then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cmdpkit.errors import CmdpkitError, RunFailed, printable
from cmdpkit.estimate.changes import steps_warning
from cmdpkit.io.atomic import make_folder
from cmdpkit.learners import Learner, name_of
from cmdpkit.learners._note import ActionIndex, Note, StateIndex, UnitTotals
from cmdpkit.model.compiled import COMPILE_METER
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.code import checkout_of, versions
from cmdpkit.records.record import OVER, Certificate, Counted, Evaluation, Run, RunRecord, plain
from cmdpkit.running.active import (
    ActiveRun,
    Progress,
    arrays_of,
    certificate_of,
    curves_of,
    gap_now,
    point_of,
    progress_of,
    put_back,
    range_of_values,
    read_saved,
    readings_of,
    write_saved,
)
from cmdpkit.running.request import Baseline, Request, Stop, known_safe
from cmdpkit.running.worlds import ModelWorld, World
from cmdpkit.simulate.random import stream

SAVE_SECONDS = 5.0  # between two checkpoints on disk
CHUNK_SECONDS = 0.25  # between two progress reports
FIRST_STAGE = 1000  # episodes of the first stage of an anytime run, see `Spec.anytime`
EVALUATION_EPISODES = 1000  # episodes of the final policy, in addition to those of the run
CONFIDENCE_LEVEL = 0.95  # of every interval of the evaluation
EVALUATION_STREAM = 1  # key of the stream, which makes its random numbers independent of those of the run

GRACE_SECONDS = 1.5  # how long runs may take to save themselves when they have to stop

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Progress], None]
Part = TypeVar("Part")


def play(
    request: Request,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    begun: Mapping[str, Any] | None = None,
    save_end: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """Carry out a run; whatever was counted in its world before is forgotten.

    It is continued from the file ``checkpoint`` if that exists, else from the arrays ``begun``. With ``save_end=False``
    no checkpoint is written at the end, for callers that keep the record instead.
    """
    stop = request.stop or Stop(length=request.run.length)
    path = Path(checkpoint) if checkpoint is not None else None
    active = _begin(request, stop)
    if path is not None and path.exists():
        put_back(active, read_saved(path, active.run), path)
    elif begun is not None:
        put_back(active, begun, "the record")
    if stop.length is not None and active.done > stop.length:
        raise CmdpkitError(
            f"the run has already played {active.done:,} {active.run.unit}s, more than the {stop.length:,} asked for "
            "now; ask for more, or begin again without its checkpoint"
        )
    saved = time.perf_counter()
    for n, read in _pieces(active, stop):
        with _saved_on_failure(active, path):
            active.world.play(active.learner, active.rng, n)
        active.done += n
        if read:
            active.points.append(point_of(active.world, active.learner, gap_now(active)))
        if path is not None and time.perf_counter() - saved > SAVE_SECONDS:
            write_saved(path, arrays_of(active))
            saved = time.perf_counter()
        if progress is not None:
            try:
                progress(progress_of(active))
            except BaseException:
                if path is not None:
                    write_saved(path, arrays_of(active))
                raise
    if path is not None and save_end:
        write_saved(path, arrays_of(active))
    return _record(active)


def keep(
    run: Run,
    folder: Path,
    request: Callable[[], Request],
    stop: Stop | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """The record of a run in a folder: a finished run is left alone, a saved one is continued, a new one is played.

    ``request`` is called only if there is something to play, and its world is closed afterwards. The policy is written
    first and the record last, so that a record means that everything is there. Several processes may do the same run at
    once: all get the same result, and the first record is kept. The state of an anytime run, which ``stop`` ends,
    stays in the folder, so that it can be continued once more.
    """
    from cmdpkit.io.policies import write_policy  # a run without a folder needs no files and none of their formats
    from cmdpkit.records.store import has_record, load_record, save_record

    ends = run.length if stop is None else stop.length  # unknown if a rule ends the run
    saved = saved_run(folder, run.key)
    if ends is not None and has_record(folder, replace(run, length=ends).key):
        record = load_record(folder, replace(run, length=ends).key)
    else:
        make_folder(folder)  # if this fails, it should fail now and not after hours of learning
        asked = request()
        with closing(asked.world):
            record = play(asked, checkpoint=saved, save_end=run.anytime, progress=progress)
        write_policy(record.policy, folder / f"{record.run.key}.policy.json", overwrite=True)
        save_record(record, folder)
    if not run.anytime:
        saved.unlink(missing_ok=True)
    return record


def saved_run(folder: Path, key: str) -> Path:
    """The file in a folder of records in which an unfinished run is saved."""
    return folder / f"{key}.run.npz"


def in_threads(
    work: Callable[[Item, Report], Result], items: Sequence[Item], threads: int, report: Report | None = None
) -> Generator[tuple[Item, Result], None, None]:
    """Yield items with ``work(item, report)`` as they end, at most ``threads`` at once; closing stops the others."""
    stop = threading.Event()
    told = stoppable(stop, report)
    pool = ThreadPoolExecutor(threads)
    futures = {pool.submit(work, item, told): item for item in items}
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for future in futures if not future.cancelled()], GRACE_SECONDS)


def stoppable(stop: threading.Event, report: Report | None) -> Report:
    """A progress callback that calls ``report``, and raises KeyboardInterrupt once ``stop`` is set."""

    def told(at: Progress) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        if report is not None:
            report(at)

    return told


def _begin(request: Request, stop: Stop) -> ActiveRun:
    """The run with a new learner in a world in which nothing is counted."""
    run, world = request.run, request.world
    world.begin()
    given, said = _given(world, request.kind, request.baseline)
    spec = replace(world.spec(FIRST_STAGE), anytime=True) if run.anytime else world.spec(run.length)
    learner = request.kind(spec, preset=run.preset, **given, **run.params)
    learner.notes = (*said, *learner.notes)
    active = ActiveRun(replace(run, length=stop.length or 0), world, learner, stream(run.seed))
    if stop.gap is not None:
        size, relative = stop.gap
        active.goal = size * range_of_values(world, learner) if relative else size
    return active


def _given(world: World, kind: type[Learner], baseline: Baseline | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an algorithm needs to know in addition to the spec, by name, and notes about it."""
    if not kind.needs:
        return {}, ()
    safe = known_safe(world) if baseline is None else baseline
    if "baseline" in kind.needs and safe.pi is None:
        raise CmdpkitError(
            "this algorithm plays the safe policy itself: give it as baseline=, beside baseline_utility="
        )
    return safe.told(kind), (f"told: {', '.join(kind.needs)} of {safe.of}{told_slack(world, safe)}",)


def _pieces(active: ActiveRun, stop: Stop) -> Iterator[tuple[int, bool]]:
    """Yield how many episodes to play in about CHUNK_SECONDS, and whether curves are read then; rules wait for that."""
    readings = (k for k in readings_of(active.run) if k > active.done)
    piece, target = 1, next(readings, None)
    while active.done != stop.length and (stop.seconds is None or active.seconds < stop.seconds):
        began = _busy_seconds()
        was_read = bool(active.points) and active.points[-1].length == active.done
        if was_read and stop.rule is not None and stop.rule(progress_of(active)):
            return
        ends = [k for k in (target, stop.length) if k is not None]
        n = min([piece, *(k - active.done for k in ends)])
        read = active.done + n == target
        yield n, read
        target = next(readings, None) if read else target
        spent = _busy_seconds() - began
        active.seconds += spent
        if spent < CHUNK_SECONDS / 2:
            piece *= 2
        elif spent > CHUNK_SECONDS * 2:
            piece = max(1, piece // 2)


def _busy_seconds() -> float:
    """A clock that stands still while this process compiles."""
    return time.perf_counter() - COMPILE_METER.seconds


@contextmanager
def _saved_on_failure(active: ActiveRun, path: Path | None) -> Iterator[None]:
    """Save the state before a piece in which the environment fails, and say where; compiled episodes cannot fail."""
    before = None if path is None or isinstance(active.world, ModelWorld) else arrays_of(active)
    try:
        yield
    except BaseException as error:
        run, kept = active.run, "nothing of it is kept, as no checkpoint was given"
        if path is not None and before is not None:
            write_saved(path, before)
            kept = f"the first {active.done:,} {run.unit}s are saved in {path}, from where the same call continues"
        if not isinstance(error, RunFailed):
            raise
        message = f"{run.algo} on {run.env}, seed {run.seed}: {error}. The run has ended; {kept}"
        raise RunFailed(message) from error.__cause__


def _record(active: ActiveRun) -> RunRecord:
    world, learner, points = active.world, active.learner, active.points
    if not points or points[-1].length != active.done:  # an anytime run may stop where curves are not read
        points = [*points, point_of(world, learner)]
    pi, counts = learner.recommend(), learner.counted()
    policy = world.policy(pi)
    exact = world.values(policy)
    account = account_of(world, learner, pi, active.run.seed)
    if learner.certifies and account.certificate is not None and account.certificate.gap is not None:
        points = [*points[:-1], points[-1]._replace(certified_gap=account.certificate.gap)]
    return RunRecord(
        run=replace(active.run, length=active.done),
        constraints=world.constraints,
        optimum=world.optimum,
        curves=curves_of(points, active.run.unit),
        policy=policy,
        policy_value=None if exact is None else exact[0].v,
        policy_utilities=None if exact is None else exact[0].w,
        decisions=tuple(policy.stochastic_decisions() if exact is None else exact[1]),
        certificate=account.certificate,
        phases=account.phases,
        internals=account.internals,
        notes=(*account.notes, *account.missing),
        seconds=active.seconds,
        versions=dict(versions()),
        finished=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        checkout=checkout_of(type(learner)),
        evaluation=account.evaluation,
        saved=arrays_of(active) if active.run.anytime else None,
        counted=None if counts is None else Counted(counts, world.spec(1).allowed, world.scales),
    )


# -- The parts of a record that are for its reader only: the learner's internals, phases, notes and certificate. A run
# is worth hours, and its result is complete without these. So if one of them cannot be computed (a method of a user's
# learner raises an error, or returns a value that a record cannot hold), it is left out and a note says why.


class RecordAccount(NamedTuple):
    """The parts of a record that no result depends on."""

    certificate: Certificate | None  # intervals for the values of the policy
    phases: tuple[tuple[str, int], ...]  # name and first episode of each phase
    internals: dict[str, Any]  # the state of the learner at the end, as plain values
    evaluation: Evaluation | None  # estimated values of the policy; only in a world without a model
    notes: tuple[str, ...]  # sentences of the world and of the learner; a change of the world first, see `account_of`
    missing: tuple[str, ...]  # a sentence for every part that could not be computed


def account_of(world: World, learner: Learner, pi: FloatArray, seed: int) -> RecordAccount:
    """The account of a run that has ended with the policy `pi` of the learner."""
    policy = world.policy(pi)
    missing: list[str] = []
    no_notes: list[str] = []

    def part(name: str, make: Callable[[], Part], otherwise: Part) -> Part:
        try:
            return make()
        except Exception as error:
            who = name_of(type(learner))
            missing.append(
                f"the record has no {name}, because it could not be computed for {who}: {type(error).__name__}: "
                f"{printable(str(error))}. Everything else in the record is complete"
            )
            return otherwise

    def internals() -> dict[str, Any]:
        told: dict[str, Any] = in_users_names(learner.internals(), world, policy)
        plain(told, "internals")  # refuses what a record cannot hold
        return told

    def phases() -> tuple[tuple[str, int], ...]:
        return tuple((str(name), int(first)) for name, first in learner.phases())

    changed = part("search for changes of the environment", world.change, None)
    counts = learner.counted()
    # A learner whose policy changes meets the steps in other shares, which looks like a change of the world in time.
    by_step = changed is not None and counts is not None and steps_warning(counts.parts, counts.part_moves)

    def notes() -> list[str]:
        said = [*learner.notes, *learner.warnings()]
        if changed is not None:  # more of the same would not have mended it
            said = [x for x in said if not (isinstance(x, Note) and x.patience)]
        return [in_users_units(note, world, changed=changed is not None) for note in said]

    def certificate() -> Certificate | None:
        found = certificate_of(world, learner)
        if found is None or changed is None:
            return found
        proved = replace(found, gap=None, optimum_at_most=None, infeasible=False, least_known=())
        return replace(proved, safe=(None,) * len(found.safe), since=changed[0])

    return RecordAccount(
        certificate=part("certificate", certificate, None),
        phases=part("list of phases", phases, ()),
        internals=part("description of internals", internals, {}),
        evaluation=part("evaluation", lambda: evaluated(world, pi, seed), None) if world.cmdp is None else None,
        notes=(
            *(() if changed is None or by_step else (changed[1],)),
            *world.notes,
            *part("notes of the learner", notes, no_notes),
            *((f"that the steps differ may be why it looks as if {changed[1]}",) if changed and by_step else ()),
            *world.warnings(policy),
        ),
        missing=tuple(missing),  # evaluated last
    )


def evaluated(world: World, pi: FloatArray, seed: int) -> Evaluation:
    """An estimate of what a policy is worth where there is no model to compute it from, by fresh episodes."""
    totals = world.sample(pi, stream(seed, EVALUATION_STREAM), EVALUATION_EPISODES)  # [1+N, n]
    means = totals.mean(axis=1)
    half = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2) * totals.std(axis=1, ddof=1) / np.sqrt(EVALUATION_EPISODES)
    value, *utilities = (float(x) for x in means)
    first, *others = ((float(m - x), float(m + x)) for m, x in zip(means, half, strict=True))
    return Evaluation(EVALUATION_EPISODES, CONFIDENCE_LEVEL, value, first, tuple(utilities), tuple(others))


# -- What learners say, put into the user's names and units.


def in_users_units(note: str | Note, world: World, *, changed: bool = False) -> str:
    """A note or warning of a learner in the names and units of the world's user.

    If the optimum of the world is known, all bounds can be met together, and no warning may say otherwise. If the
    world has ``changed`` during the run, that may be why a bound was missed, and no other reason is suspected.
    """
    if not isinstance(note, Note):
        return note
    possible = None if changed else world.optimum is not None
    n = note.constraint
    if n is None:
        return note.told("a constraint", possible=possible)
    reward, utility = world.scales[0].span, world.scales[1 + n].span
    name = str(world.constraints[n])
    return note.told(name, note.by * utility, note.price * reward / utility, possible=possible)


def in_users_names(value: Any, world: World, policy: Policy) -> Any:
    """A learner's internals with states and actions by name instead of index, and totals in the user's units."""
    if isinstance(value, Mapping):
        return {key: in_users_names(inner, world, policy) for key, inner in value.items()}
    if isinstance(value, StateIndex):
        return policy.states[value] if value < len(policy.states) else OVER
    if isinstance(value, ActionIndex):
        return policy.action_names[value]
    if isinstance(value, UnitTotals):
        return [x * scale.span for x, scale in zip(value, world.scales[1:], strict=True)]
    if isinstance(value, list | tuple):
        return [in_users_names(inner, world, policy) for inner in value]
    return value


def told_slack(world: World, safe: Baseline) -> str:
    """By how much a safe policy clears its bounds, in the user's units."""
    rho, spans = world.spec(1).rho, [scale.span for scale in world.scales[1:]]
    clears = (safe.utility - rho) * spans
    told = (f"{c} by {x / c.scale:.4g}" for c, x in zip(world.constraints, clears, strict=True))
    return f", which clears {', '.join(told)}" if world.constraints else ""
