"""Learning: an algorithm acts in a world for K episodes, is watched, and can be stopped and resumed at any point.

A run is played in pieces, between which curves are read, checkpoints are written and progress is reported. The pieces
do not change a single bit of the result, because a learner's run of n episodes is the same as n runs of one episode.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.learners import Learner, name_of, resolve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import check_seed, is_int
from cmdpkit.records.code import code_digest
from cmdpkit.records.origin import checkout_of, versions
from cmdpkit.records.record import Certificate, Run, RunRecord, Scalar
from cmdpkit.running.baselines import Baseline, known_safe
from cmdpkit.running.checkpoint import Arrays, check_saved, read_saved, write_saved
from cmdpkit.running.evaluation import evaluated
from cmdpkit.running.parameters import check_parameters, check_readings
from cmdpkit.running.wording import in_users_units
from cmdpkit.running.worlds import ModelWorld, World, world_of
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import Stream, stream
from cmdpkit.simulate.simulator import Noise

SAVE_SECONDS = 5.0  # between two checkpoints on disk
CHUNK_SECONDS = 0.25  # between two progress reports


class Progress(NamedTuple):
    """How far a run has come; this is what progress callbacks are given."""

    run: Run  # what was asked
    done: int  # episodes played so far
    phase: str  # name of the phase that the learner is in
    tally: Tally  # regret and violation so far
    seconds: float  # spent so far, including the time before the run was resumed


@dataclass
class ActiveRun:
    """A run that is under way: everything that changes while it is played."""

    run: Run  # what was asked
    world: World  # where the learner acts
    learner: Learner
    rng: Stream  # the random numbers of the run
    done: int  # episodes played so far
    seconds: float  # spent so far, including the time before the run was resumed
    rows: list[FloatArray]  # one row for each episode at which curves are read, see `_row`


def learn(
    env: CMDP | World | str | Any,
    algo: str | type,
    *,
    episodes: int,
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
    """Let an algorithm learn in a world for a number of episodes.

    Parameters
    ----------
    env : a CMDP, a name or file that `cmdpkit.load` knows, a Gymnasium environment, or "package.module:function" for a
        function of your own that makes one of these
    algo : a name that `cmdpkit algos` lists, a class of your own, or its name, "package.module:Class"
    episodes, seed : length of the run, and the seed of all its random numbers
    preset, params : choose the constants of the algorithm
    noise : with "bernoulli", rewards and utilities of a model are drawn as 0 or 1
    bounds : new bounds of a model, by the names of their constraints
    constraints : bounds on ``info["cost"]`` of a Gymnasium environment
    baseline, baseline_utility : a safe policy and its totals, one per constraint, for algorithms that must know them;
        if there is a model, what is not given is computed
    readings : episodes at which curves are read, beside the usual 250 or so
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
    run = request(world, kind, episodes=episodes, seed=seed, preset=preset, baseline=safe, readings=readings, **params)
    return learn_in(world, run, kind, baseline=safe, checkpoint=checkpoint, progress=progress)


def request(
    world: World,
    kind: type[Learner],
    *,
    episodes: int,
    seed: int = 0,
    preset: str | None = None,
    baseline: Baseline | None = None,
    readings: Iterable[int] = (),
    **params: Scalar,
) -> Run:
    """Check what is asked for, and return it as a `Run`, whose key is the address of the result."""
    if baseline is not None and not kind.needs:
        raise CmdpkitError(f"{name_of(kind)} needs no safe policy, so baseline and baseline_utility have no use")
    if not is_int(episodes) or episodes < 1:
        raise CmdpkitError(f"episodes is {episodes!r}, expected a whole number, at least 1")
    check_seed(seed)
    check_parameters(params)
    readings = tuple(readings)
    check_readings(readings, episodes)
    return Run(
        env=world.name,
        algo=name_of(kind),
        episodes=int(episodes),
        seed=int(seed),
        preset=preset or kind.default_preset(),
        params=params,
        fingerprint=world.fingerprint,
        bounds=dict(world.bounds),
        noise=world.noise,
        baseline="" if baseline is None else baseline.digest(),
        code=code_digest(kind),
        readings=readings,
    )


def learn_in(
    world: World,
    run: Run,
    kind: type[Learner],
    *,
    baseline: Baseline | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    save_end: bool = True,
    progress: Callable[[Progress], None] | None = None,
) -> RunRecord:
    """Carry out a run in a world in which nothing has been counted yet.

    ``kind`` and ``baseline`` are those for which the run was requested. With ``save_end=False`` no checkpoint is
    written at the end, for callers that keep the record instead.
    """
    given, said = _given(world, kind, baseline)
    learner = kind(world.spec(run.episodes), preset=run.preset, **given, **run.params)
    learner.notes = (*said, *learner.notes)
    active = ActiveRun(run, world, learner, stream(run.seed), 0, 0.0, [])
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None:
        _resume(active, path)
    _play(active, path, progress)
    if path is not None and save_end:
        write_saved(path, _arrays(active))
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
        f"told: {', '.join(needs)} of {found.of} (slack {found.slack:.4g})",
    )


def checkpoints(K: int, readings: Iterable[int] = ()) -> list[int]:
    """The episodes at which curves are read: 60 log-spaced ones, 200 evenly spaced ones, and those asked for."""
    early = np.geomspace(1, K, 60)
    return sorted({int(k) for k in np.concatenate((early, np.linspace(K / 200, K, 200)))} - {0} | {K, *readings})


def _play(active: ActiveRun, path: Path | None, progress: Callable[[Progress], None] | None) -> None:
    """Play all episodes that are left, and read curves, save the run and report progress in between."""
    stops = checkpoints(active.run.episodes, active.run.readings)
    saved = time.perf_counter()
    for n in _pieces(active, stops):
        _play_piece(active, path, n)
        active.done += n
        if active.done == stops[len(active.rows)]:
            active.rows.append(_row(active))
        if path is not None and time.perf_counter() - saved > SAVE_SECONDS:
            write_saved(path, _arrays(active))
            saved = time.perf_counter()
        if progress is not None:
            _report(active, path, progress)


def _play_piece(active: ActiveRun, path: Path | None, n: int) -> None:
    """Play n more episodes. If the environment fails within them, the state before them is saved.

    In a model the state is not copied for this, because its compiled episodes cannot fail half-way.
    """
    before = None if path is None or isinstance(active.world, ModelWorld) else _arrays(active)
    try:
        active.world.play(active.learner, active.rng, n)
    except BaseException as error:
        kept = "nothing of it is kept, as no checkpoint was given"
        if path is not None and before is not None:
            write_saved(path, before)
            kept = f"the first {active.done:,} episodes are saved in {path}, from where the same call continues"
        if not isinstance(error, RunFailed):
            raise
        run = active.run
        message = f"{run.algo} on {run.env}, seed {run.seed}: {error}. The run has ended; {kept}"
        raise RunFailed(message) from error.__cause__


def _report(active: ActiveRun, path: Path | None, progress: Callable[[Progress], None]) -> None:
    """Report progress; if the callback raises an exception, save the run before it ends."""
    try:
        progress(Progress(active.run, active.done, _phase(active), active.world.tally(), active.seconds))
    except BaseException:
        if path is not None:
            write_saved(path, _arrays(active))
        raise


def _pieces(active: ActiveRun, stops: list[int]) -> Iterator[int]:
    """Yield how many episodes to play next: no more than up to the next stop, and for about CHUNK_SECONDS."""
    piece = 1
    while active.done < active.run.episodes:
        began = time.perf_counter()
        yield min(piece, stops[len(active.rows)] - active.done)
        spent = time.perf_counter() - began
        active.seconds += spent
        if spent < CHUNK_SECONDS / 2:
            piece *= 2
        elif spent > CHUNK_SECONDS * 2:
            piece = max(1, piece // 2)


def _phase(active: ActiveRun) -> str:
    """Name of the phase that the learner is in; "learning" if it has no phases."""
    begun = [name for name, first in active.learner.phases() if first <= active.done]
    return begun[-1] if begun else "learning"


# -- curves ------------------------------------------------------------------------------------------------------------


def _row(active: ActiveRun) -> FloatArray:
    """One point of every curve, in the order in which `_curves` takes them apart again."""
    tally = active.world.tally()
    kinds = [x for x in (tally.weak, tally.strong, tally.realised) if x is not None]
    numbers = [np.concatenate(([] if x.regret is None else [x.regret], x.violation)) for x in kinds]
    unsafe = [] if tally.unsafe is None else [float(tally.unsafe)]
    return np.concatenate(([float(tally.episodes)], *numbers, unsafe, _earned(active), _multipliers(active)))


def _earned(active: ActiveRun) -> FloatArray:
    """Realised reward and utilities in the user's sense if there is no model to measure regret with, else empty."""
    if active.world.cmdp is not None:
        return np.zeros(0)
    signs = np.array([1.0, *(c.sign for c in active.world.constraints)])
    earned: FloatArray = signs * active.world.tally().earned
    return earned


def _multipliers(active: ActiveRun) -> FloatArray:
    """The learner's current prices of the bounds, in the user's units; empty if it has none."""
    lam = active.learner.multipliers
    if lam is None:
        return np.zeros(0)
    reward, *utilities = (scale.span for scale in active.world.scales)
    prices: FloatArray = np.asarray(lam, dtype=float) * reward / np.array(utilities)
    return prices


def _curves(active: ActiveRun) -> dict[str, FloatArray]:
    """The curves by name: [C] at C episodes, or [N, C] for violations, utilities and multipliers."""
    table = np.array(active.rows).T
    N = len(active.world.constraints)
    tally = active.world.tally()
    curves, i = {"episode": table[0]}, 1
    for prefix, sums in (("", tally.weak), ("strong_", tally.strong), ("realised_", tally.realised)):
        if sums is None:
            continue
        if sums.regret is not None:
            curves[f"{prefix}regret"] = table[i]
            i += 1
        curves[f"{prefix}violation"] = table[i : i + N]
        i += N
    if tally.unsafe is not None:
        curves["unsafe_episodes"] = table[i]
        i += 1
    if active.world.cmdp is None:
        curves["realised_reward"], curves["realised_utility"] = table[i], table[i + 1 : i + 1 + N]
        i += 1 + N
    if len(table) > i:
        curves["multiplier"] = table[i:]
    return curves


def _record(active: ActiveRun) -> RunRecord:
    world, learner = active.world, active.learner
    pi = learner.recommend()
    policy = world.policy(pi)
    exact = world.values(policy)
    return RunRecord(
        run=active.run,
        constraints=world.constraints,
        optimum=world.optimum,
        curves=_curves(active),
        policy=policy,
        policy_value=None if exact is None else exact[0].v,
        policy_utilities=None if exact is None else exact[0].w,
        decisions=tuple(policy.stochastic_decisions() if exact is None else exact[1]),
        certificate=_certificate(active),
        phases=learner.phases(),
        explanation=learner.explain(),
        notes=(*world.notes, *(in_users_units(x, world) for x in (*learner.notes, *learner.warnings()))),
        seconds=active.seconds,
        versions=dict(versions()),
        checkout=checkout_of(type(learner)),
        evaluation=evaluated(world, pi, active.run.seed) if exact is None else None,
    )


def _certificate(active: ActiveRun) -> Certificate | None:
    """The learner's confidence intervals, converted to the user's units and sense and compared with the bounds."""
    found = active.learner.certificate()
    if found is None:
        return None
    H = active.learner.spec.H
    totals = [
        tuple(scale.total_from_unit(x, H) for x in bounds)
        for scale, bounds in zip(active.world.scales, found.intervals, strict=True)
    ]
    utilities, safe = [], []
    for c, (low, high) in zip(active.world.constraints, totals[1:], strict=True):
        rho = c.sign * c.bound
        safe.append(True if low >= rho else False if high < rho else None)
        utilities.append((float(low), float(high)) if c.sign > 0 else (float(-high), float(-low)))
    value = (float(totals[0][0]), float(totals[0][1]))
    return Certificate(found.level, found.episodes, value, tuple(utilities), tuple(safe))


# -- saved runs --------------------------------------------------------------------------------------------------------


def _arrays(active: ActiveRun) -> Arrays:
    """Everything that changes during a run, for a checkpoint."""
    arrays = {"key": np.array(active.run.key), "rng": active.rng.copy(), "rows": np.array(active.rows, dtype=float)}
    arrays |= {"done": np.array(active.done), "seconds": np.array(active.seconds, dtype=float)}
    arrays |= {f"learner/{name}": x for name, x in active.learner.state().items()}
    return arrays | {f"world/{name}": x for name, x in active.world.state().items()}


def _resume(active: ActiveRun, path: Path) -> None:
    """Continue from a saved run if there is one; refuse it if it belongs to another run or was changed."""
    if not path.exists():
        return
    arrays = read_saved(path, active.run.key)
    fresh = {name: x for name, x in _arrays(active).items() if name == "rng" or name.startswith("world/")}
    stops = checkpoints(active.run.episodes, active.run.readings)
    check_saved(path, arrays, stops, len(_row(active)), fresh)
    active.done, active.seconds = int(arrays["done"]), float(arrays["seconds"])
    try:
        active.learner.restore({name[8:]: x for name, x in arrays.items() if name.startswith("learner/")})
        active.world.restore({name[6:]: x for name, x in arrays.items() if name.startswith("world/")})
        counted = active.world.tally().episodes
        if counted != active.done:
            raise CmdpkitError(f"its world has counted {counted} episodes, its run {active.done}")
    except RunFailed:
        raise
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise CmdpkitError(f"{path} cannot be continued: {error}; delete it to start again") from error
    active.rng[...] = arrays["rng"]
    active.rows.extend(arrays["rows"])
