"""Learning: an algorithm put into a world for K episodes, watched, and stopped or resumed at any point.

Whatever is cut into pieces here (checkpoints of the curves, files, reports of progress) does not change a single bit of
the result, because a learner's run of n episodes is n runs of one.
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
CHUNK_SECONDS = 0.25  # between two reports of progress


class Progress(NamedTuple):
    """Where a run stands."""

    run: Run
    done: int
    phase: str
    tally: Tally
    seconds: float  # spent so far, earlier sittings included


@dataclass
class _Sitting:
    """One run between two checkpoints: the pieces that change together."""

    run: Run
    world: World
    learner: Learner
    rng: Stream
    done: int
    seconds: float
    rows: list[FloatArray]  # a row per curve checkpoint, see _row


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

    ``env`` is a CMDP, a name or file that `cmdpkit.load` knows, or a Gymnasium environment whose ``info["cost"]`` is
    bounded by ``constraints``; "package.module:function" names a function of your own that makes one of these.
    ``bounds`` changes bounds by the names of their constraints. ``algo`` is a name that `cmdpkit algos` lists, a class
    of your own, or its name, "package.module:Class". ``preset`` and ``params`` choose the algorithm's constants;
    ``noise="bernoulli"`` draws rewards and utilities of a model as 0 or 1. Algorithms that must know a safe policy
    take it as ``baseline``, and its totals, one per constraint, as ``baseline_utility``; where there is a model, what
    is not given is computed. With ``checkpoint`` the run is saved there every few seconds and when an environment
    fails, and the same call continues from it, to the same bits. ``progress`` is called several times a second; an
    exception that it raises ends the run, which is saved first. Curves are read at some 250 episodes, and at those
    that ``readings`` names.

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
    """What is asked, checked: its key addresses the result."""
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
    """Carry out a request in a world in which nothing has been counted yet, with the class and baseline it is for.

    The checkpoint of a run that has ended is of no use to those who keep its record; they spare it with ``save_end``.
    """
    given, said = _given(world, kind, baseline)
    learner = kind(world.spec(run.episodes), preset=run.preset, **given, **run.params)
    learner.notes = (*said, *learner.notes)
    sitting = _Sitting(run, world, learner, stream(run.seed), 0, 0.0, [])
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None:
        _resume(sitting, path)
    _play(sitting, path, progress)
    if path is not None and save_end:
        write_saved(path, _arrays(sitting))
    return _record(sitting)


def _given(world: World, kind: type[Learner], baseline: Baseline | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What an algorithm needs beside the spec and cannot find out."""
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
    """Episodes at which curves are read: log-spaced for the beginning, evenly for the rest, and those asked for."""
    early = np.geomspace(1, K, 60)
    return sorted({int(k) for k in np.concatenate((early, np.linspace(K / 200, K, 200)))} - {0} | {K, *readings})


def _play(sitting: _Sitting, path: Path | None, progress: Callable[[Progress], None] | None) -> None:
    """Piece by piece to the end, reading curves, saving and reporting on the way."""
    stops = checkpoints(sitting.run.episodes, sitting.run.readings)
    saved = time.perf_counter()
    for n in _pieces(sitting, stops):
        _play_piece(sitting, path, n)
        sitting.done += n
        if sitting.done == stops[len(sitting.rows)]:
            sitting.rows.append(_row(sitting))
        if path is not None and time.perf_counter() - saved > SAVE_SECONDS:
            write_saved(path, _arrays(sitting))
            saved = time.perf_counter()
        if progress is not None:
            _report(sitting, path, progress)


def _play_piece(sitting: _Sitting, path: Path | None, n: int) -> None:
    """n more episodes. If the environment fails within them, the state before them is saved.

    Episodes of a model are compiled code that cannot fail half-way, so there the copy is spared.
    """
    before = None if path is None or isinstance(sitting.world, ModelWorld) else _arrays(sitting)
    try:
        sitting.world.play(sitting.learner, sitting.rng, n)
    except BaseException as error:
        kept = "nothing of it is kept, as no checkpoint was given"
        if path is not None and before is not None:
            write_saved(path, before)
            kept = f"the first {sitting.done:,} episodes are saved in {path}, from where the same call continues"
        if not isinstance(error, RunFailed):
            raise
        run = sitting.run
        message = f"{run.algo} on {run.env}, seed {run.seed}: {error}. The run has ended; {kept}"
        raise RunFailed(message) from error.__cause__


def _report(sitting: _Sitting, path: Path | None, progress: Callable[[Progress], None]) -> None:
    """Report progress; if the answer is an exception, save what was learned before it ends the run."""
    try:
        progress(Progress(sitting.run, sitting.done, _phase(sitting), sitting.world.tally(), sitting.seconds))
    except BaseException:
        if path is not None:
            write_saved(path, _arrays(sitting))
        raise


def _pieces(sitting: _Sitting, stops: list[int]) -> Iterator[int]:
    """How many episodes to play next: up to the next stop, in pieces of about CHUNK_SECONDS."""
    piece = 1
    while sitting.done < sitting.run.episodes:
        began = time.perf_counter()
        yield min(piece, stops[len(sitting.rows)] - sitting.done)
        spent = time.perf_counter() - began
        sitting.seconds += spent
        if spent < CHUNK_SECONDS / 2:
            piece *= 2
        elif spent > CHUNK_SECONDS * 2:
            piece = max(1, piece // 2)


def _phase(sitting: _Sitting) -> str:
    """Name of the phase the learner is in; learners without phases just learn."""
    begun = [name for name, first in sitting.learner.phases() if first <= sitting.done]
    return begun[-1] if begun else "learning"


# -- curves ------------------------------------------------------------------------------------------------------------


def _row(sitting: _Sitting) -> FloatArray:
    """The tally as numbers, in the order of `_curves`: episodes, regret and violations of each kind, and so on."""
    tally = sitting.world.tally()
    kinds = [x for x in (tally.weak, tally.strong, tally.realised) if x is not None]
    numbers = [np.concatenate(([] if x.regret is None else [x.regret], x.violation)) for x in kinds]
    unsafe = [] if tally.unsafe is None else [float(tally.unsafe)]
    return np.concatenate(([float(tally.episodes)], *numbers, unsafe, _earned(sitting), _multipliers(sitting)))


def _earned(sitting: _Sitting) -> FloatArray:
    """Realised reward and utilities in the user's sense, where there is no model to measure regret with."""
    if sitting.world.cmdp is not None:
        return np.zeros(0)
    signs = np.array([1.0, *(c.sign for c in sitting.world.constraints)])
    earned: FloatArray = signs * sitting.world.tally().earned
    return earned


def _multipliers(sitting: _Sitting) -> FloatArray:
    """The learner's prices now, in the user's units; empty where it has none."""
    lam = sitting.learner.multipliers
    if lam is None:
        return np.zeros(0)
    reward, *utilities = (scale.span for scale in sitting.world.scales)
    prices: FloatArray = np.asarray(lam, dtype=float) * reward / np.array(utilities)
    return prices


def _curves(sitting: _Sitting) -> dict[str, FloatArray]:
    """Columns of the rows by name; those of violations and multipliers are [N, C]."""
    table = np.array(sitting.rows).T
    N = len(sitting.world.constraints)
    tally = sitting.world.tally()
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
    if sitting.world.cmdp is None:
        curves["realised_reward"], curves["realised_utility"] = table[i], table[i + 1 : i + 1 + N]
        i += 1 + N
    if len(table) > i:
        curves["multiplier"] = table[i:]
    return curves


def _record(sitting: _Sitting) -> RunRecord:
    world, learner = sitting.world, sitting.learner
    pi = learner.recommend()
    policy = world.policy(pi)
    exact = world.values(policy)
    return RunRecord(
        run=sitting.run,
        constraints=world.constraints,
        optimum=world.optimum,
        curves=_curves(sitting),
        policy=policy,
        policy_value=None if exact is None else exact[0].v,
        policy_utilities=None if exact is None else exact[0].w,
        decisions=tuple(policy.stochastic_decisions() if exact is None else exact[1]),
        certificate=_certificate(sitting),
        phases=learner.phases(),
        explanation=learner.explain(),
        notes=(*world.notes, *(in_users_units(x, world) for x in (*learner.notes, *learner.warnings()))),
        seconds=sitting.seconds,
        versions=dict(versions()),
        checkout=checkout_of(type(learner)),
        evaluation=evaluated(world, pi, sitting.run.seed) if exact is None else None,
    )


def _certificate(sitting: _Sitting) -> Certificate | None:
    """The learner's confidence intervals (unit scale) in the user's units and sense, held against the bounds."""
    found = sitting.learner.certificate()
    if found is None:
        return None
    H = sitting.learner.spec.H
    totals = [
        tuple(scale.total_from_unit(x, H) for x in bounds)
        for scale, bounds in zip(sitting.world.scales, found.intervals, strict=True)
    ]
    utilities, safe = [], []
    for c, (low, high) in zip(sitting.world.constraints, totals[1:], strict=True):
        rho = c.sign * c.bound
        safe.append(True if low >= rho else False if high < rho else None)
        utilities.append((float(low), float(high)) if c.sign > 0 else (float(-high), float(-low)))
    value = (float(totals[0][0]), float(totals[0][1]))
    return Certificate(found.level, found.episodes, value, tuple(utilities), tuple(safe))


# -- saved runs --------------------------------------------------------------------------------------------------------


def _arrays(sitting: _Sitting) -> Arrays:
    """Everything that changes, as it is now."""
    arrays = {"key": np.array(sitting.run.key), "rng": sitting.rng.copy(), "rows": np.array(sitting.rows, dtype=float)}
    arrays |= {"done": np.array(sitting.done), "seconds": np.array(sitting.seconds, dtype=float)}
    arrays |= {f"learner/{name}": x for name, x in sitting.learner.state().items()}
    return arrays | {f"world/{name}": x for name, x in sitting.world.state().items()}


def _resume(sitting: _Sitting, path: Path) -> None:
    """Continue from a saved run if there is one; refuse one that is not of this very run, or not as it was saved."""
    if not path.exists():
        return
    arrays = read_saved(path, sitting.run.key)
    fresh = {name: x for name, x in _arrays(sitting).items() if name == "rng" or name.startswith("world/")}
    stops = checkpoints(sitting.run.episodes, sitting.run.readings)
    check_saved(path, arrays, stops, len(_row(sitting)), fresh)
    sitting.done, sitting.seconds = int(arrays["done"]), float(arrays["seconds"])
    try:
        sitting.learner.restore({name[8:]: x for name, x in arrays.items() if name.startswith("learner/")})
        sitting.world.restore({name[6:]: x for name, x in arrays.items() if name.startswith("world/")})
        counted = sitting.world.tally().episodes
        if counted != sitting.done:
            raise CmdpkitError(f"its world has counted {counted} episodes, its run {sitting.done}")
    except RunFailed:
        raise
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise CmdpkitError(f"{path} cannot be continued: {error}; delete it to start again") from error
    sitting.rng[...] = arrays["rng"]
    sitting.rows.extend(arrays["rows"])
