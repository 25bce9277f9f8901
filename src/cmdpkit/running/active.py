"""A run that is under way: what it consists of, the curves that are read, what it reports, and how it is saved."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import accumulate, groupby, repeat, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.estimate.intervals import stated
from cmdpkit.io.atomic import make_folder, writing
from cmdpkit.io.formats.npz import Arrays, read_arrays
from cmdpkit.learners import Learner
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Certificate, Run
from cmdpkit.running.worlds import World
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import Stream

# -- The curves of a run: at which episodes they are read, what is read there, and the table taken apart by name.

ANYTIME_SPACING = 25  # in a run of unknown length, curves are read whenever it has grown by one part in this many


def readings_of(run: Run) -> Iterator[int]:
    """The episodes at which the curves of a run are read, in order; those of an anytime run never end."""
    if not run.anytime:
        return iter(checkpoints(run.length, run.readings))
    usual = accumulate(repeat(1), lambda k, _: k + max(1, k // ANYTIME_SPACING))
    return (k for k, _ in groupby(merge(usual, sorted(run.readings))))


def checkpoints(K: int, readings: Iterable[int] = ()) -> list[int]:
    """The episodes at which curves are read: 60 log-spaced ones, 200 evenly spaced ones, and those asked for."""
    early = np.geomspace(1, K, 60)
    return sorted({int(k) for k in np.concatenate((early, np.linspace(K / 200, K, 200)))} - {0} | {K, *readings})


class Point(NamedTuple):
    """One point of every curve, a number or an array [N]; None where a run has no such curve, which never changes."""

    length: float  # episodes or steps so far
    regret: float | None = None
    violation: FloatArray | None = None
    strong_regret: float | None = None
    strong_violation: FloatArray | None = None
    realised_regret: float | None = None
    realised_violation: FloatArray | None = None
    unsafe_episodes: float | None = None
    gaps_paid: float | None = None
    realised_reward: float | None = None
    realised_utility: FloatArray | None = None
    certified_gap: float | None = None
    multiplier: FloatArray | None = None


def point_of(world: World, learner: Learner, gap: float | None = None) -> Point:
    """Every curve now, with a certified gap; where none is proved, that is the range that values can have."""
    point, multipliers = measured(world), learner.multipliers
    if learner.certifies:
        point = point._replace(certified_gap=range_of_values(world, learner) if gap is None else gap)
    if multipliers is not None and world.constraints:
        reward, *utilities = (scale.span for scale in world.scales)
        prices = np.asarray(multipliers, dtype=float) * reward / np.array(utilities)
        point = point._replace(multiplier=prices)
    return point


def measured(world: World) -> Point:
    """What a world has measured so far, without what its learner can tell."""
    tally, sums = world.tally(), dict[str, Any]()
    for prefix, some in (("", tally.weak), ("strong_", tally.strong), ("realised_", tally.realised)):
        if some is not None:
            sums |= {f"{prefix}regret": some.regret, f"{prefix}violation": some.violation}
    if world.cmdp is None and tally.earned is not None:  # there is no model to measure regret with
        signs = np.array([c.sign for c in world.constraints])
        sums |= {"realised_reward": tally.earned[0], "realised_utility": signs * tally.earned[1:]}
    return Point(tally.length, unsafe_episodes=tally.unsafe, gaps_paid=tally.gaps, **sums)


def stacked(points: Sequence[Point]) -> dict[str, FloatArray]:
    """The fields that a run has, each stacked over C points: [C] or [C, N]."""
    columns = dict(zip(Point._fields, zip(*points, strict=True), strict=False))
    return {name: np.array(column, dtype=float) for name, column in columns.items() if column[0] is not None}


def curves_of(points: Sequence[Point], unit: str) -> dict[str, FloatArray]:
    """The curves by name: [C] at C episodes or steps, or [N, C] for violations, utilities and multipliers."""
    return {unit if name == "length" else name: column.T for name, column in stacked(points).items()}


def range_of_values(world: World, learner: Learner) -> float:
    """The largest minus the smallest total reward that the range of rewards allows an episode, in the user's units."""
    return float(world.scales[0].span * learner.spec.H)


class Progress(NamedTuple):
    """How far a run has come; this is what progress callbacks and stop rules are given."""

    run: Run  # the request
    done: int  # episodes played so far
    phase: str  # name of the phase that the learner is in
    tally: Tally  # regret and violation so far
    seconds: float  # spent so far, including the time before the run was resumed
    certificate: Callable[[], Certificate | None]  # computes what the data prove by now about the policy
    latest: Certificate | None = None  # the certificate that was computed last
    goal: float | None = None  # the gap at which the run is to stop, in the user's units, if one is asked for


@dataclass
class ActiveRun:
    """A run that is under way: everything that changes while it is played."""

    run: Run  # the request; an anytime run of unknown length has 0 episodes here
    world: World  # where the learner acts
    learner: Learner  # the algorithm at work
    rng: Stream  # the random numbers of the run
    done: int = 0  # episodes played so far
    seconds: float = 0.0  # spent so far, including the time before the run was resumed
    points: list[Point] = field(default_factory=list)  # one per episode at which curves are read
    certified: tuple[int, Certificate | None] | None = None  # the certificate computed last, and after which episode
    goal: float | None = None  # the gap at which the run is to stop, in the user's units, if one is asked for


def progress_of(active: ActiveRun) -> Progress:
    """A report of how far the run has come."""
    return Progress(
        active.run,
        active.done,
        _phase(active),
        active.world.tally(),
        active.seconds,
        lambda: certified_now(active),
        None if active.certified is None else active.certified[1],
        active.goal,
    )


def _phase(active: ActiveRun) -> str:
    """Name of the phase that the learner is in; "learning" if it has no phases, or cannot tell them."""
    try:
        begun = [str(name) for name, first in active.learner.phases() if first <= active.done]
    except Exception:  # a phase is only shown; the record will have a note about the error
        begun = []
    return begun[-1] if begun else "learning"


def certificate_of(world: World, learner: Learner) -> Certificate | None:
    """What the learner can prove about the policy that it would return now, in the user's units and names."""
    found = learner.certificate()
    if found is None:
        return None
    steps = 1.0 / (learner.spec.restart or 1.0)  # that a discounted total counts
    policy = world.policy(learner.recommend()) if found.parts else None
    names = ((), ()) if policy is None else (policy.states, policy.action_names)
    said = stated(found, world.scales, world.constraints, learner.spec.H, steps=steps, names=names)
    return replace(said, assuming=world.assumed) if learner.certifies else said


def certified_now(active: ActiveRun) -> Certificate | None:
    """The certificate at this point of the run, computed once, or None; the record says why if it raised an error."""
    if active.certified is None or active.certified[0] != active.done:
        try:
            found = certificate_of(active.world, active.learner)
        except Exception:  # the account of the run has a note about it
            found = None
        active.certified = active.done, found
    return active.certified[1]


def gap_now(active: ActiveRun) -> float | None:
    """The certified gap for the curve: it is computed at the readings that the run names, and kept in between."""
    if not active.learner.certifies:
        return None
    if active.done not in active.run.readings:
        return active.points[-1].certified_gap if active.points else None
    found = certified_now(active)
    return None if found is None else found.gap


# -- Saved runs: all arrays of an unfinished run in one npz archive, which is written as a whole and read only if it is
# intact. A checksum reveals damage and edits, but not intent: whoever can write the file can also compute the checksum.
# Therefore `put_back` also checks the sizes of all arrays, so that compiled code stays inside of them.

SAVED_FORMAT = 6  # of saved runs; a file of another format is refused
DIGESTS = {"fingerprint": "the model", "code": "the code of the algorithm", "baseline": "the safe policy"}  # of a run


def arrays_of(active: ActiveRun) -> Arrays:
    """Everything that changes during a run, for a checkpoint."""
    arrays = {
        "run": np.array(asked_of(active.run)),
        "rng": active.rng.copy(),
        "done": np.array(active.done),
        "seconds": np.array(active.seconds, dtype=float),
    }
    arrays |= {f"curve/{name}": x for name, x in _curves(active).items()}
    arrays |= {f"learner/{name}": x for name, x in active.learner.state().items()}
    return arrays | {f"world/{name}": x for name, x in active.world.state().items()}


def asked_of(run: Run) -> str:
    """What was asked of a saved run, as JSON: an anytime run is the same whatever its length."""
    return json.dumps((replace(run, length=0) if run.anytime else run).to_dict(), sort_keys=True)


def put_back(active: ActiveRun, arrays: Mapping[str, NDArray[Any]], path: Path | str) -> None:
    """Give a run that has not begun the state that another one was saved in; `path` says where it comes from."""
    _check_fits(active, arrays, path)
    active.done, active.seconds = int(arrays["done"]), float(arrays["seconds"])
    try:
        active.learner.restore({name[8:]: x for name, x in arrays.items() if name.startswith("learner/")})
        active.world.restore({name[6:]: x for name, x in arrays.items() if name.startswith("world/")})
        counted = active.world.tally().length
        if counted != active.done:
            raise CmdpkitError(f"its world has counted {counted} {active.run.unit}s, its run {active.done}")
    except RunFailed:
        raise
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise CmdpkitError(f"{path} cannot be continued: {error}; delete it to start again") from error
    active.rng[...] = arrays["rng"]
    columns = {name: arrays[f"curve/{name}"] for name in _curves(active)}
    active.points.extend(Point(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))


def _curves(active: ActiveRun) -> dict[str, FloatArray]:
    """The points of a run so far, stacked, [C] or [C, N]; C is 0 in a run that has not begun."""
    points = active.points or [point_of(active.world, active.learner)]
    return {name: x[: len(active.points)] for name, x in stacked(points).items()}


def _check_fits(active: ActiveRun, arrays: Mapping[str, NDArray[Any]], path: Path | str) -> None:
    """Refuse a saved run that contradicts itself or the run to be continued; the learner checks its own arrays."""
    run, growing = active.run, [f"world/{name}" for name in active.world.growing]
    new = {name: x for name, x in arrays_of(active).items() if name != "run" and not name.startswith("learner/")}
    for name, x in new.items():
        if name not in arrays:
            raise _contradicts(path, f"{name} is missing")
        found = arrays[name]
        longer = (name in growing or name.startswith("curve/")) and found.ndim == x.ndim
        if (found.dtype, found.shape[longer:]) != (x.dtype, x.shape[longer:]):
            described = f"{found.dtype} {found.shape}, expected {x.dtype} {x.shape}"
            raise _contradicts(path, f"{name} is an array {described}")
    done, seconds = int(arrays["done"]), float(arrays["seconds"])
    if done < 0 or (done > run.length and not run.anytime):
        raise _contradicts(path, f"it has done {done} {run.unit}s of {run.length}")
    if not (math.isfinite(seconds) and seconds >= 0):
        raise _contradicts(path, f"it has taken {seconds} seconds")
    expected = list(takewhile(lambda k: k <= done, readings_of(run)))
    lengths = {len(arrays[name]) for name in new if name.startswith("curve/")}
    if arrays["curve/length"].tolist() != expected or lengths != {len(expected)}:
        raise _contradicts(path, f"its curves are not read at the episodes expected up to {done}")


def write_saved(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays of a run to a file, with a checksum; a file that exists is replaced as a whole."""
    members = {**arrays, "format": np.array(SAVED_FORMAT)}
    make_folder(path.parent)
    with writing(path, overwrite=True) as file:
        np.savez(file, **members, checksum=np.array(_checksum(members)))  # type: ignore[arg-type]


def read_saved(path: Path, run: Run) -> Arrays:
    """The arrays of this run; raises CmdpkitError if the file is damaged, edited or of another run."""
    try:
        arrays = read_arrays(path)
    except (CmdpkitError, MemoryError) as error:
        raise CmdpkitError(f"{path} is not a readable saved run ({error}); delete it to start again") from None
    if not {"format", "checksum", "run"} <= arrays.keys() or arrays["run"].dtype.kind != "U":
        raise CmdpkitError(f"{path} is not a saved run; choose another checkpoint, or delete it")
    if arrays["format"].tolist() != SAVED_FORMAT:
        raise CmdpkitError(f"{path} was saved by another version; choose another checkpoint, or delete it")
    if arrays.pop("checksum").tolist() != _checksum(arrays):
        raise CmdpkitError(f"{path} is damaged or was edited (its checksum does not fit); delete it to start again")
    _check_same(path, str(arrays["run"]), asked_of(run))
    return arrays


def _check_same(path: Path, saved: str, asked: str) -> None:
    """Refuse a file of another run, and say what differs."""
    one, other = json.loads(saved), json.loads(asked)
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    told = [f"{name} was {one.get(name)!r} and is {other.get(name)!r} now" for name in names if name not in DIGESTS]
    told += [f"{what} is another one" for name, what in DIGESTS.items() if name in names]
    if told:
        raise CmdpkitError(
            f"{path} was saved by another run: {', '.join(told)}; choose another checkpoint, or delete it"
        )


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        x = np.asarray(arrays[name])
        digest.update(repr((name, x.dtype.str, x.shape)).encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


def _contradicts(path: Path | str, what: str) -> CmdpkitError:
    return CmdpkitError(f"{path} contradicts itself or this run: {what}; delete it to start again")
