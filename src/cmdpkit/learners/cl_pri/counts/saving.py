"""The state of CL-PRI with counts as named arrays, for checkpoints, and back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners._counts.memory import new_memory, with_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmdpkit.learners import State
    from cmdpkit.learners.cl_pri.counts import WithCounts

ARRAYS = (  # attributes that change, beside the memory, the optimism, the ledger and the clock
    *("pi", "final", "playing", "explore", "effect", "prices", "predicted", "final_utilities", "sd", "loss"),
    *("margin", "uncovered", "swept"),
)
LISTS = ("link", "state", "times")  # arrays of the memory that grow


@dataclass
class Clock:
    """Where a run stands; whole numbers, so that a checkpoint keeps them as one array."""

    episode: int = 0  # episodes played
    block_end: int = 0  # the episode at which the running block ends
    check: int = 0  # exploration: the episode at which it is looked at next
    checked: int = 0  # exploration: the episode at which it was looked at last
    new_cells: int = 0  # exploration: cells found since then
    explored: int = -1  # the episode at which exploration ended, -1 while it goes on
    plan_end: int = 0  # the episode at which the next plan is made
    fresh: int = 1  # 1 if no episode of the running block was played yet
    certifying: int = 0  # 1 if the running block is a sample for the certificate
    plans: int = 0  # plans made
    infeasible: int = 0  # plans that could not meet the bounds in the estimated model
    infeasible_last: int = 0  # 1 if the last plan was one of them


def state_of(learner: WithCounts) -> dict[str, NDArray[Any]]:
    """Copies of all arrays that change, between two episodes."""
    used = int(learner.memory.used[0])
    lists = {name: getattr(learner.memory, name)[:used] for name in LISTS}
    found = {"clock": np.array([getattr(learner.clock, field.name) for field in fields(Clock)])}
    found |= {f"memory.{name}": x for name, x in (learner.memory._asdict() | lists).items()}
    found |= {f"optimism.{name}": x for name, x in learner.optimism._asdict().items()}
    found |= {f"ledger.{name}": x for name, x in learner.ledger._asdict().items()}
    found |= {name: getattr(learner, name) for name in ARRAYS}
    return {name: x.copy() for name, x in found.items()}


def restore(learner: WithCounts, state: State) -> None:
    """Put a state back into a learner that was made with the same spec and parameters."""
    _check(learner, state)
    spec, used = learner.spec, len(state["memory.link"])
    learner.memory = with_room(new_memory(learner.T, spec.S, spec.A, 1 + spec.N), used)
    for name, x in learner.memory._asdict().items():
        x[: used if name in LISTS else None] = state[f"memory.{name}"]
    for part, arrays in (("optimism", learner.optimism), ("ledger", learner.ledger)):
        for name, x in arrays._asdict().items():
            x[...] = state[f"{part}.{name}"]
    for name in ARRAYS:
        getattr(learner, name)[...] = state[name]
    learner.clock = Clock(*(int(x) for x in state["clock"]))


def _check(learner: WithCounts, state: State) -> None:
    """Raise unless a state has all arrays in the right shapes; the lists of transitions may have any length."""
    for name, expected in state_of(learner).items():
        found = state.get(name)
        grows = name.removeprefix("memory.") in LISTS
        if found is None or (found.shape != expected.shape and not (grows and found.ndim == 1)):
            shape = "missing" if found is None else found.shape
            raise CmdpkitError(f"state[{name!r}] has shape {shape}, expected {expected.shape}")
        if found.dtype.kind != expected.dtype.kind:
            raise CmdpkitError(f"state[{name!r}] holds {found.dtype}, expected {expected.dtype}")
