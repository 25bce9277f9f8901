"""Carrying out a run: it is played in pieces, between which curves are read, checkpoints written and progress reported.

The pieces do not change a single bit of the result, because a learner's run of n episodes is the same as n runs of one
episode. `play` is the only way in which a run is carried out, and `keep` does it for a folder that holds the records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.io.atomic import make_folder
from cmdpkit.learners import Learner
from cmdpkit.records.belief import Counted
from cmdpkit.records.code import checkout_of, versions
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.running.account import account_of, told_slack
from cmdpkit.running.active import (
    ActiveRun,
    Progress,
    arrays_of,
    curves_of,
    gap_now,
    progress_of,
    put_back,
    range_of_values,
    readings_of,
    row_of,
    saved_key,
    with_gap,
)
from cmdpkit.running.checkpoint import read_saved, write_saved
from cmdpkit.running.request import Baseline, Request, Stop, known_safe
from cmdpkit.running.worlds import ModelWorld, World
from cmdpkit.simulate.random import stream

SAVE_SECONDS = 5.0  # between two checkpoints on disk
CHUNK_SECONDS = 0.25  # between two progress reports
FIRST_STAGE = 1000  # episodes of the first stage of an anytime run, see `Spec.anytime`


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
    stop = request.stop or Stop(episodes=request.run.episodes)
    path = Path(checkpoint) if checkpoint is not None else None
    active = _begin(request, stop)
    if path is not None and path.exists():
        put_back(active, read_saved(path, saved_key(active.run)), path)
    elif begun is not None:
        put_back(active, begun, "the record")
    _check_not_beyond(active, stop)
    saved = time.perf_counter()
    for n, read in _pieces(active, stop):
        with _saved_on_failure(active, path):
            active.world.play(active.learner, active.rng, n)
        active.done += n
        if read:
            row = row_of(active.world, active.learner)
            active.rows.append(with_gap(row, gap_now(active)) if active.learner.certifies else row)
        if path is not None and time.perf_counter() - saved > SAVE_SECONDS:
            write_saved(path, arrays_of(active))
            saved = time.perf_counter()
        if progress is not None:
            with _saved_on_interrupt(active, path):
                progress(progress_of(active))
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

    ends = run.episodes if stop is None else stop.episodes  # unknown if a rule ends the run
    saved = saved_run(folder, run.key)
    if ends is not None and has_record(folder, replace(run, episodes=ends).key):
        record = load_record(folder, replace(run, episodes=ends).key)
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


def _begin(request: Request, stop: Stop) -> ActiveRun:
    """The run with a new learner in a world in which nothing is counted."""
    run, world = request.run, request.world
    world.begin()
    given, said = _given(world, request.kind, request.baseline)
    spec = replace(world.spec(FIRST_STAGE), anytime=True) if run.anytime else world.spec(run.episodes)
    learner = request.kind(spec, preset=run.preset, **given, **run.params)
    learner.notes = (*said, *learner.notes)
    active = ActiveRun(replace(run, episodes=stop.episodes or 0), world, learner, stream(run.seed))
    if stop.gap is not None:
        size, relative = stop.gap
        active.goal = size * range_of_values(world, learner) if relative else size
    return active


def _given(world: World, kind: type[Learner], baseline: Baseline | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an algorithm must be told in addition to the spec, by name, and notes about it."""
    needs = kind.needs
    if not needs:
        return {}, ()
    found = known_safe(world) if baseline is None else baseline
    offered = {"baseline": found.pi, "baseline_utility": found.utility, "slack": found.slack}
    if "baseline" in needs and found.pi is None:
        raise CmdpkitError(
            "this algorithm plays the safe policy itself: give it as baseline=, beside baseline_utility="
        )
    return {name: offered[name] for name in needs}, (
        f"told: {', '.join(needs)} of {found.of}{told_slack(world, found)}",
    )


def _check_not_beyond(active: ActiveRun, stop: Stop) -> None:
    """Refuse to continue a run that is already longer than asked for."""
    if stop.episodes is not None and active.done > stop.episodes:
        raise CmdpkitError(
            f"the run has already played {active.done:,} {active.run.unit}s, more than the {stop.episodes:,} asked for "
            "now; ask for more, or begin again without its checkpoint"
        )


def _pieces(active: ActiveRun, stop: Stop) -> Iterator[tuple[int, bool]]:
    """Yield how many episodes to play next, for about CHUNK_SECONDS, and whether curves are read after them.

    The run ends after its last episode, after its seconds, or when its rule says so. Rules are asked only where curves
    are read.
    """
    readings = (k for k in readings_of(active.run) if k > active.done)
    piece, target = 1, next(readings, None)
    while active.done != stop.episodes and (stop.seconds is None or active.seconds < stop.seconds):
        began = time.perf_counter()
        was_read = bool(active.rows) and active.rows[-1][0] == active.done
        if was_read and stop.rule is not None and stop.rule(progress_of(active)):
            return
        ends = [k for k in (target, stop.episodes) if k is not None]
        n = min([piece, *(k - active.done for k in ends)])
        read = active.done + n == target
        yield n, read
        target = next(readings, None) if read else target
        spent = time.perf_counter() - began
        active.seconds += spent
        if spent < CHUNK_SECONDS / 2:
            piece *= 2
        elif spent > CHUNK_SECONDS * 2:
            piece = max(1, piece // 2)


@contextmanager
def _saved_on_failure(active: ActiveRun, path: Path | None) -> Iterator[None]:
    """If the environment fails within a piece, save the state before the piece, and say where it is saved.

    In a model the state is not copied for this, because its compiled episodes cannot fail half-way.
    """
    before = None if path is None or isinstance(active.world, ModelWorld) else arrays_of(active)
    try:
        yield
    except BaseException as error:
        kept = "nothing of it is kept, as no checkpoint was given"
        if path is not None and before is not None:
            write_saved(path, before)
            kept = (
                f"the first {active.done:,} {active.run.unit}s are saved in {path}, from where the same call continues"
            )
        if not isinstance(error, RunFailed):
            raise
        run = active.run
        message = f"{run.algo} on {run.env}, seed {run.seed}: {error}. The run has ended; {kept}"
        raise RunFailed(message) from error.__cause__


@contextmanager
def _saved_on_interrupt(active: ActiveRun, path: Path | None) -> Iterator[None]:
    """If a progress callback raises an exception, save the run before it ends."""
    try:
        yield
    except BaseException:
        if path is not None:
            write_saved(path, arrays_of(active))
        raise


def _record(active: ActiveRun) -> RunRecord:
    world, learner, rows = active.world, active.learner, active.rows
    if not rows or rows[-1][0] != active.done:  # an anytime run may stop where curves are not read
        rows = [*rows, row_of(world, learner)]
    pi, counts = learner.recommend(), learner.counted()
    policy = world.policy(pi)
    exact = world.values(policy)
    account = account_of(world, learner, pi, active.run.seed)
    if learner.certifies:
        proved = account.certificate
        rows = [*rows[:-1], with_gap(rows[-1], None if proved is None else proved.gap)]
    return RunRecord(
        run=replace(active.run, episodes=active.done),
        constraints=world.constraints,
        optimum=world.optimum,
        curves=curves_of(world, rows, certified=learner.certifies),
        policy=policy,
        policy_value=None if exact is None else exact[0].v,
        policy_utilities=None if exact is None else exact[0].w,
        decisions=tuple(policy.stochastic_decisions() if exact is None else exact[1]),
        certificate=account.certificate,
        phases=account.phases,
        explanation=account.explanation,
        notes=(*account.notes, *account.missing),
        seconds=active.seconds,
        versions=dict(versions()),
        checkout=checkout_of(type(learner)),
        evaluation=account.evaluation,
        saved=arrays_of(active) if active.run.anytime else None,
        counted=None if counts is None else Counted(counts, world.spec(1).allowed, world.scales),
    )
