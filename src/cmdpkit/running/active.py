"""A run that is under way: what it consists of, the curves that are read, what it reports, and how it is saved.

Several runs are carried out in threads that end together: after the last run, after a failure, or after Ctrl-C. Python
delivers Ctrl-C to the main thread. If compiled code were running there, nothing would happen until the run has ended,
so the main thread only waits. When the runs have to stop, the next progress report of each raises KeyboardInterrupt,
and a run with a checkpoint is saved then (see `cmdpkit.running.learning.learn`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.estimate.intervals import stated
from cmdpkit.learners import Learner
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Certificate, Run, unit_of
from cmdpkit.running.checkpoint import Arrays, check_saved
from cmdpkit.running.worlds import World
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import Stream

# -- The curves of a run: at which episodes they are read, what is read there, and the table taken apart by name.

GROWN = 1.5  # the certified gap is read whenever the run is this many times as long as at the reading before
FIRST_LOOK = 100  # episodes before which it is not read: nothing is proved by fewer
ANYTIME_SPACING = 25  # in a run of unknown length, curves are read whenever it has grown by one part in this many


def readings_of(run: Run) -> Iterator[int]:
    """The episodes at which the curves of a run are read, in order; those of an anytime run never end."""
    if not run.anytime:
        yield from checkpoints(run.episodes, run.readings)
        return
    for k, _ in groupby(merge(_without_end(), sorted(run.readings))):
        yield k


def checkpoints(K: int, readings: Iterable[int] = ()) -> list[int]:
    """The episodes at which curves are read: 60 log-spaced ones, 200 evenly spaced ones, and those asked for."""
    early = np.geomspace(1, K, 60)
    return sorted({int(k) for k in np.concatenate((early, np.linspace(K / 200, K, 200)))} - {0} | {K, *readings})


def _without_end() -> Iterator[int]:
    k = 1
    while True:
        yield k
        k += max(1, k // ANYTIME_SPACING)


def row_of(world: World, learner: Learner) -> FloatArray:
    """One point of every curve, in the order in which `curves_of` takes them apart again.

    If the learner certifies, the second entry is for the certified gap. Until `with_gap` changes it, it is what needs
    no proof: no two policies differ by more.
    """
    tally = world.tally()
    kinds = [x for x in (tally.weak, tally.strong, tally.realised) if x is not None]
    numbers = [np.concatenate(([] if x.regret is None else [x.regret], x.violation)) for x in kinds]
    others = [] if tally.unsafe is None else [float(tally.unsafe)]
    others += [] if tally.gaps is None else [tally.gaps]
    first = [float(tally.episodes), range_of_values(world, learner)] if learner.certifies else [float(tally.episodes)]
    return np.concatenate((first, *numbers, others, _earned(world), _multipliers(world, learner)))


def with_gap(row: FloatArray, gap: float | None) -> FloatArray:
    """The same point with a certified gap, if there is one."""
    return row if gap is None else np.concatenate((row[:1], [gap], row[2:]))


def range_of_values(world: World, learner: Learner) -> float:
    """The largest minus the smallest total reward that the range of rewards allows an episode, in the user's units."""
    return float(world.scales[0].span * learner.spec.H)


def _earned(world: World) -> FloatArray:
    """Realised reward and utilities in the user's sense if there is no model to measure regret with, else empty."""
    if world.cmdp is not None:
        return np.zeros(0)
    signs = np.array([1.0, *(c.sign for c in world.constraints)])
    earned: FloatArray = signs * world.tally().earned
    return earned


def _multipliers(world: World, learner: Learner) -> FloatArray:
    """The learner's current prices of the bounds, in the user's units; empty if it has none."""
    lam = learner.multipliers
    if lam is None:
        return np.zeros(0)
    reward, *utilities = (scale.span for scale in world.scales)
    prices: FloatArray = np.asarray(lam, dtype=float) * reward / np.array(utilities)
    return prices


def curves_of(world: World, rows: list[FloatArray], *, certified: bool) -> dict[str, FloatArray]:
    """The curves by name: [C] at C episodes or steps, or [N, C] for violations, utilities and multipliers."""
    table = np.array(rows).T
    N = len(world.constraints)
    tally = world.tally()
    curves, i = {unit_of(world.criterion): table[0]}, 2 if certified else 1
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
    if tally.gaps is not None:
        curves["gaps_paid"] = table[i]
        i += 1
    if world.cmdp is None:
        curves["realised_reward"], curves["realised_utility"] = table[i], table[i + 1 : i + 1 + N]
        i += 1 + N
    if certified:
        curves["certified_gap"] = table[1]
    if len(table) > i:
        curves["multiplier"] = table[i:]
    return curves


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
    rows: list[FloatArray] = field(default_factory=list)  # one per episode at which curves are read, see `row_of`
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
    """What the learner can prove about the policy that it would hand over now, in the user's units and names."""
    found = learner.certificate()
    if found is None:
        return None
    steps = (
        1.0 / learner.spec.restart if learner.spec.restart else 1.0
    )  # number of steps that a discounted total counts
    policy = world.policy(learner.recommend()) if found.parts else None
    names = ((), ()) if policy is None else (policy.states, policy.action_names)
    return stated(found, world.scales, world.constraints, learner.spec.H, steps=steps, names=names)


def certified_now(active: ActiveRun) -> Certificate | None:
    """The certificate at this point of the run, which is computed once; None if it cannot be computed.

    If it raises an error the run goes on without it, and the record says why.
    """
    if active.certified is None or active.certified[0] != active.done:
        try:
            found = certificate_of(active.world, active.learner)
        except Exception:  # the account of the run has a note about it
            found = None
        active.certified = active.done, found
    return active.certified[1]


def gap_now(active: ActiveRun) -> float | None:
    """The certified gap for the curve: it is computed whenever the run has grown by half, and kept in between."""
    before, last = active.rows[-1][:2] if active.rows else (0.0, None)
    looks = [math.floor(math.log(max(k, 1) / FIRST_LOOK) / math.log(GROWN)) for k in (before, active.done)]
    if active.done < FIRST_LOOK or (looks[0] == looks[1] and before >= FIRST_LOOK):
        return None if last is None else float(last)
    found = certified_now(active)
    return None if found is None else found.gap


# -- saved runs --------------------------------------------------------------------------------------------------------


def arrays_of(active: ActiveRun) -> Arrays:
    """Everything that changes during a run, for a checkpoint."""
    arrays = {"key": np.array(saved_key(active.run)), "rng": active.rng.copy()}
    arrays |= {"rows": np.array(active.rows, dtype=float)}
    arrays |= {"done": np.array(active.done), "seconds": np.array(active.seconds, dtype=float)}
    arrays |= {f"learner/{name}": x for name, x in active.learner.state().items()}
    return arrays | {f"world/{name}": x for name, x in active.world.state().items()}


def saved_key(run: Run) -> str:
    """The key under which a run is saved: an anytime run has the same one whatever its length."""
    return replace(run, episodes=0).key if run.anytime else run.key


def put_back(active: ActiveRun, arrays: Mapping[str, NDArray[Any]], path: Path | str) -> None:
    """Give a run that has not begun the state that another one was saved in; `path` says where it comes from."""
    fresh = {name: x for name, x in arrays_of(active).items() if name == "rng" or name.startswith("world/")}
    check_saved(
        path,
        arrays,
        _readings_beyond(active.run, int(arrays["done"])),
        len(row_of(active.world, active.learner)),
        fresh,
        [f"world/{name}" for name in active.world.growing],
    )
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


def _readings_beyond(run: Run, done: int) -> list[int]:
    """The episodes at which curves are read: all of a run of known length, else up to the first after `done`."""
    found = []
    for k in readings_of(run):
        found.append(k)
        if run.anytime and k > done:
            break
    return found


# -- Runs side by side in threads that end together: after the last run, after a failure, or after Ctrl-C.

GRACE_SECONDS = 1.5  # how long runs may take to save themselves when they have to stop

Item = TypeVar("Item")
Result = TypeVar("Result")
Report = Callable[[Progress], None]


def in_threads(
    work: Callable[[Item, Report], Result], items: Sequence[Item], threads: int, report: Report | None = None
) -> Generator[tuple[Item, Result], None, None]:
    """Yield every item with the result of ``work(item, report)``, in the order in which they end.

    At most ``threads`` items are worked on at once. Close the generator to stop those that are under way.
    """
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
