"""A run that is under way: what it consists of, what it reports, and how it is saved and continued."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.learners import Learner
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Certificate, Run
from cmdpkit.running.checkpoint import Arrays, check_saved
from cmdpkit.running.curves import readings_of, row_of
from cmdpkit.running.worlds import World
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import Stream


class Progress(NamedTuple):
    """How far a run has come; this is what progress callbacks and stop rules are given."""

    run: Run  # what was asked
    done: int  # episodes played so far
    phase: str  # name of the phase that the learner is in
    tally: Tally  # regret and violation so far
    seconds: float  # spent so far, including the time before the run was resumed
    certificate: Callable[[], Certificate | None]  # computes what the data prove by now about the policy


@dataclass
class ActiveRun:
    """A run that is under way: everything that changes while it is played."""

    run: Run  # what was asked; an anytime run of unknown length has 0 episodes here
    world: World  # where the learner acts
    learner: Learner  # the algorithm at work
    rng: Stream  # the random numbers of the run
    done: int = 0  # episodes played so far
    seconds: float = 0.0  # spent so far, including the time before the run was resumed
    rows: list[FloatArray] = field(default_factory=list)  # one per episode at which curves are read, see `row_of`


def progress_of(active: ActiveRun) -> Progress:
    """A report of how far the run has come."""
    return Progress(
        active.run,
        active.done,
        _phase(active),
        active.world.tally(),
        active.seconds,
        lambda: certificate_of(active.world, active.learner),
    )


def _phase(active: ActiveRun) -> str:
    """Name of the phase that the learner is in; "learning" if it has no phases, or cannot tell them."""
    try:
        begun = [str(name) for name, first in active.learner.phases() if first <= active.done]
    except Exception:  # a phase is only shown; the record will have a note about the error
        begun = []
    return begun[-1] if begun else "learning"


def certificate_of(world: World, learner: Learner) -> Certificate | None:
    """The learner's confidence intervals, converted to the user's units and sense and compared with the bounds."""
    found = learner.certificate()
    if found is None:
        return None
    steps = 1.0 / learner.spec.restart if learner.spec.restart else 1.0  # a discounted total has so many
    totals = [
        tuple(steps * scale.total_from_unit(x, learner.spec.H) for x in bounds)
        for scale, bounds in zip(world.scales, found.intervals, strict=True)
    ]
    utilities, safe = [], []
    for c, (low, high) in zip(world.constraints, totals[1:], strict=True):
        rho = c.sign * c.total
        safe.append(True if low >= rho else False if high < rho else None)
        utilities.append((float(low), float(high)) if c.sign > 0 else (float(-high), float(-low)))
    value = (float(totals[0][0]), float(totals[0][1]))
    return Certificate(found.level, found.episodes, value, tuple(utilities), tuple(safe), found.approximate)


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
