"""Learning: an algorithm acts in a world, is watched, and can be stopped and resumed at any point.

A run is played in pieces, between which curves are read, checkpoints are written and progress is reported. The pieces
do not change a single bit of the result, because a learner's run of n episodes is the same as n runs of one episode.

The length of a run is given in advance (``episodes``, or ``steps`` in a world without episodes), or nobody knows it
(*anytime*, ``stop``). An anytime run that is continued is, to the bit, the run that was longer from the start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.learners import Learner, name_of, resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Policy
from cmdpkit.model.validate import check_length, check_seed
from cmdpkit.records.code import code_digest
from cmdpkit.records.origin import checkout_of, versions
from cmdpkit.records.record import Run, RunRecord, Scalar, unit_of
from cmdpkit.running.account import account_of
from cmdpkit.running.active import ActiveRun, Progress, arrays_of, progress_of, put_back, saved_key
from cmdpkit.running.baselines import Baseline, known_safe
from cmdpkit.running.checkpoint import read_saved, write_saved
from cmdpkit.running.curves import curves_of, readings_of, row_of
from cmdpkit.running.parameters import check_criterion, check_parameters, check_readings, with_certified
from cmdpkit.running.stopping import Asked, Stop, stop_of
from cmdpkit.running.wording import told_slack
from cmdpkit.running.worlds import ModelWorld, World, world_of
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Noise

SAVE_SECONDS = 5.0  # between two checkpoints on disk
CHUNK_SECONDS = 0.25  # between two progress reports
FIRST_STAGE = 1000  # episodes of the first stage of an anytime run, see `Spec.anytime`


def learn(
    env: CMDP | World | str | Any,
    algo: str | type,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    stop: Asked | None = None,
    seed: int = 0,
    preset: str | None = None,
    noise: Noise = "none",
    bounds: Mapping[str, float] | None = None,
    constraints: Iterable[Constraint] | None = None,
    baseline: Policy | None = None,
    baseline_utility: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    readings: Iterable[int] = (),
    **params: Scalar,
) -> RunRecord:
    """Let an algorithm learn in a world for a number of episodes or steps, or until a rule says that it is enough.

    Parameters
    ----------
    env : a CMDP, a name or file that `cmdpkit.load` knows, a Gymnasium environment, or "package.module:function" for a
        function of your own that makes one of these
    algo : a name that `cmdpkit algos` lists, a class of your own, or its name, "package.module:Class"
    episodes, seed : length of the run, and the seed of all its random numbers
    steps : instead of ``episodes``, the length of the run in a model without a horizon (long-run averages, discounted
        totals), which is one run of single steps. Regret and violation are then sums over steps.
    stop : instead of ``episodes`` or ``steps``, when to stop a run of which nobody knows the length: after a number of
        them, after a time ("60s", "10min", "2h"), when a function of the `Progress` returns True, or, with episodes,
        when the certificate proves that every bound is kept ("certified") or no interval of it is wider than a number
        ("width=0.1"). Such a run can be continued with `cmdpkit.continue_run`. Algorithms that must know the length
        refuse it.
    preset, params : choose the constants of the algorithm
    noise : with "bernoulli", rewards and utilities of a model are drawn as 0 or 1
    bounds : new bounds of a model, by the names of their constraints
    constraints : bounds on ``info["cost"]`` of a Gymnasium environment
    baseline, baseline_utility : a safe policy and its totals, one per constraint, for algorithms that must know them;
        if there is a model, what is not given is computed
    readings : episodes or steps at which curves are read, beside the usual 250 or so
    checkpoint : a file in which the run is saved every few seconds and when an environment fails. The same call
        continues from it, and the result is the same to the bit.
    progress : called with a `Progress` several times a second; an exception that it raises ends the run, which is
        saved first if there is a checkpoint

    Returns
    -------
    The `RunRecord`, with curves of regret and violation and the policy that was learned.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "triple-q", episodes=2000, seed=7)
    >>> run.policy.pi.shape, len(run.violation)
    ((3, 3, 3), 1)
    """
    world = world_of(env, constraints, noise, bounds)
    kind = resolve(algo)
    given = baseline is not None or baseline_utility is not None
    safe = known_safe(world, baseline, baseline_utility) if given else None
    length = length_of(world, episodes, steps)
    until = stop_rule(world, length, stop)
    if until is not None:
        params = with_certified(kind, preset, params) if until.certified else params
    run = request(world, kind, episodes=length, seed=seed, preset=preset, baseline=safe, readings=readings, **params)
    return learn_in(world, run, kind, baseline=safe, stop=until, checkpoint=checkpoint, progress=progress)


def length_of(world: World, episodes: int | None, steps: int | None) -> int | None:
    """The length of a run that is known in advance, in the unit of the world: episodes, or steps."""
    has_episodes = world.criterion == "horizon"
    if has_episodes and steps is not None:
        raise CmdpkitError(f"steps is given, but {world.name} has a horizon and is learned in episodes: give episodes=")
    if not has_episodes and episodes is not None:
        raise CmdpkitError(f"{world.name} has no horizon and so no episodes: give steps= (on the command line --steps)")
    length = episodes if has_episodes else steps
    return None if length is None else check_length("episodes" if has_episodes else "steps", length)


def stop_rule(world: World, length: int | None, stop: Asked | None) -> Stop | None:
    """The rule that ends a run of unknown length, or None for a run of so many episodes or steps."""
    unit = unit_of(world.criterion)
    if (length is None) == (stop is None):
        many = "neither" if stop is None else "both"
        raise CmdpkitError(
            f"{many} of {unit}s and stop is given; give {unit}s= for a run whose length is known in advance, or "
            "stop= for one that ends when a rule says so and can be continued"
        )
    if stop is None:
        return None
    until = stop_of(stop)
    if until.proved and unit == "step":
        raise CmdpkitError(
            f"stop is {stop!r}, which needs a certificate that holds whenever the run is stopped; {world.name} has no "
            "episodes, and intervals without episodes are approximate: give a number of steps, a time or a function"
        )
    if until.certified and not world.constraints:
        raise CmdpkitError(f'{world.name} has no constraints to certify; give for example stop="width=0.1" instead')
    return until


def request(
    world: World,
    kind: type[Learner],
    *,
    episodes: int | None,
    seed: int = 0,
    preset: str | None = None,
    baseline: Baseline | None = None,
    readings: Iterable[int] = (),
    **params: Scalar,
) -> Run:
    """Check what is asked for, and return it as a `Run`, whose key is the address of the result.

    In a world without episodes, ``episodes`` counts steps. Without a number, it is an anytime run, whose length (0
    until then) is known when it has stopped.
    """
    if baseline is not None and not kind.needs:
        raise CmdpkitError(f"{name_of(kind)} needs no safe policy, so baseline and baseline_utility have no use")
    check_criterion(kind, world.name, world.criterion)
    unit = unit_of(world.criterion)
    if episodes is None and not kind.anytime:
        raise CmdpkitError(
            f"{name_of(kind)} must know the number of {unit}s in advance, so it cannot stop by a rule: give {unit}s=, "
            "or take an algorithm that can, such as cl-pri"
        )
    check_seed(seed)
    check_parameters(params)
    readings = tuple(readings)
    check_readings(readings, episodes)
    return Run(
        env=world.name,
        algo=name_of(kind),
        episodes=0 if episodes is None else int(episodes),
        seed=int(seed),
        preset=preset or kind.default_preset(),
        params=params,
        fingerprint=world.fingerprint,
        bounds=dict(world.bounds),
        noise=world.noise,
        baseline="" if baseline is None else baseline.digest(),
        code=code_digest(kind),
        readings=readings,
        anytime=episodes is None,
        unit=unit,
    )


def learn_in(
    world: World,
    run: Run,
    kind: type[Learner],
    *,
    baseline: Baseline | None = None,
    stop: Stop | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    begun: Mapping[str, Any] | None = None,
    save_end: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """Carry out a run in a world; what was counted there before is forgotten.

    ``kind`` and ``baseline`` are those for which the run was requested, and ``stop`` ends an anytime run. It is
    continued from the file ``checkpoint`` if that exists, else from the arrays ``begun``. With ``save_end=False`` no
    checkpoint is written at the end, for callers that keep the record instead.
    """
    world.begin()
    given, said = _given(world, kind, baseline)
    spec = replace(world.spec(FIRST_STAGE), anytime=True) if run.anytime else world.spec(run.episodes)
    learner = kind(spec, preset=run.preset, **given, **run.params)
    learner.notes = (*said, *learner.notes)
    until = Stop(episodes=run.episodes) if stop is None else stop
    active = ActiveRun(replace(run, episodes=until.episodes or 0), world, learner, stream(run.seed))
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and path.exists():
        put_back(active, read_saved(path, saved_key(active.run)), path)
    elif begun is not None:
        put_back(active, begun, "the record")
    _play(active, until, path, progress)
    if path is not None and save_end:
        write_saved(path, arrays_of(active))
    return _record(active)


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


def _play(active: ActiveRun, stop: Stop, path: Path | None, progress: Callable[[Progress], None] | None) -> None:
    """Play until the run has to stop, and read curves, save the run and report progress in between."""
    readings = (k for k in readings_of(active.run) if k > active.done)
    if stop.episodes is not None and active.done > stop.episodes:
        raise CmdpkitError(
            f"the run has already played {active.done:,} {active.run.unit}s, more than the {stop.episodes:,} asked for "
            "now; ask for more, or begin again without its checkpoint"
        )
    if _has_ended(active, stop):
        return
    saved = time.perf_counter()
    for n, read in _pieces(active, stop, readings):
        _play_piece(active, path, n)
        active.done += n
        if read:
            active.rows.append(row_of(active.world, active.learner))
        if path is not None and time.perf_counter() - saved > SAVE_SECONDS:
            write_saved(path, arrays_of(active))
            saved = time.perf_counter()
        if progress is not None:
            _report(active, path, progress)
        if _has_ended(active, stop):
            return


def _has_ended(active: ActiveRun, stop: Stop) -> bool:
    """Whether the rule says so at this episode, if it is one of those at which it is looked at."""
    read = bool(active.rows) and active.rows[-1][0] == active.done
    return read and stop.rule is not None and stop.rule(progress_of(active))


def _play_piece(active: ActiveRun, path: Path | None, n: int) -> None:
    """Play n more episodes. If the environment fails within them, the state before them is saved.

    In a model the state is not copied for this, because its compiled episodes cannot fail half-way.
    """
    before = None if path is None or isinstance(active.world, ModelWorld) else arrays_of(active)
    try:
        active.world.play(active.learner, active.rng, n)
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


def _report(active: ActiveRun, path: Path | None, progress: Callable[[Progress], None]) -> None:
    """Report progress; if the callback raises an exception, save the run before it ends."""
    try:
        progress(progress_of(active))
    except BaseException:
        if path is not None:
            write_saved(path, arrays_of(active))
        raise


def _pieces(active: ActiveRun, stop: Stop, readings: Iterator[int]) -> Iterator[tuple[int, bool]]:
    """Yield how many episodes to play next, for about CHUNK_SECONDS, and whether curves are read after them."""
    piece, target = 1, next(readings, None)
    while active.done != stop.episodes and (stop.seconds is None or active.seconds < stop.seconds):
        began = time.perf_counter()
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


def _record(active: ActiveRun) -> RunRecord:
    world, learner, rows = active.world, active.learner, active.rows
    if not rows or rows[-1][0] != active.done:  # an anytime run may stop where curves are not read
        rows = [*rows, row_of(world, learner)]
    pi = learner.recommend()
    policy = world.policy(pi)
    exact = world.values(policy)
    account = account_of(world, learner, pi, active.run.seed)
    return RunRecord(
        run=replace(active.run, episodes=active.done),
        constraints=world.constraints,
        optimum=world.optimum,
        curves=curves_of(world, rows),
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
    )
