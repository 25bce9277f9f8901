"""The state of CL-PRI with counts as named arrays, for checkpoints, and back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.counts import new_counts, with_room
from cmdpkit.learners.cl_pri.counts.play import new_ledger, with_sample_room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cmdpkit.learners import State
    from cmdpkit.learners.cl_pri.counts import WithCounts

ARRAYS = (  # attributes that change, beside the memory, the optimism, the ledger and the clock
    *("pi", "final", "playing", "explore", "effect", "prices", "predicted", "final_utilities", "sd", "urge"),
    *("weights", "most", "chance", "margin", "uncovered", "swept"),
)
LISTS = ("link", "state", "times")  # arrays of the memory that grow
GROWING = (*(f"memory.{name}" for name in LISTS), "ledger.sample")  # their names in a state, and the sample's


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
    all_found: int = 0  # 1 if exploration ended because it found hardly anything new
    handed: int = -1  # the stage in which a policy to hand over was fixed last, -1 if there is none yet
    stage: int = 0  # of an anytime run
    explored_from: int = 0  # the episode at which the exploration of this stage began
    explored_before: int = 0  # episodes of exploration in earlier stages


def state_of(learner: WithCounts) -> dict[str, NDArray[Any]]:
    """Copies of all arrays that change, between two episodes."""
    used = int(learner.memory.used[0])
    lists = {name: getattr(learner.memory, name)[:used] for name in LISTS}
    ledger = learner.ledger._asdict() | {"sample": learner.ledger.sample[: int(learner.ledger.size[0])]}
    found = {"clock": np.array([getattr(learner.clock, field.name) for field in fields(Clock)])}
    found |= {f"memory.{name}": x for name, x in (learner.memory._asdict() | lists).items()}
    found |= {f"optimism.{name}": x for name, x in learner.optimism._asdict().items()}
    found |= {f"ledger.{name}": x for name, x in ledger.items()}
    found |= {name: getattr(learner, name) for name in ARRAYS}
    return {name: x.copy() for name, x in found.items()}


def restore(learner: WithCounts, state: State) -> None:
    """Put a state back into a learner that was made with the same spec and parameters."""
    _check(learner, state)
    spec, used = learner.spec, len(state["memory.link"])
    learner.memory = with_room(new_counts(learner.T, spec.S, spec.A, 1 + spec.N), used)
    for name, x in learner.memory._asdict().items():
        x[: used if name in LISTS else None] = state[f"memory.{name}"]
    learner.ledger = with_sample_room(new_ledger(1 + spec.N), len(state["ledger.sample"]))
    for part, arrays in (("optimism", learner.optimism), ("ledger", learner.ledger)):
        for name, x in arrays._asdict().items():
            x[...] = state[f"{part}.{name}"]
    for name in ARRAYS:
        getattr(learner, name)[...] = state[name]
    learner.clock = Clock(*(int(x) for x in state["clock"]))


def _check(learner: WithCounts, state: State) -> None:
    """Raise unless a state has all arrays in the right shapes; those that grow may have any length."""
    for name, expected in state_of(learner).items():
        found = state.get(name)
        if found is None or _shape(name, found) != _shape(name, expected):
            shape = "missing" if found is None else found.shape
            raise CmdpkitError(f"state[{name!r}] has shape {shape}, expected {expected.shape}")
        if found.dtype.kind != expected.dtype.kind:
            raise CmdpkitError(f"state[{name!r}] holds {found.dtype}, expected {expected.dtype}")
    if len(state["ledger.sample"]) != int(state["ledger.size"][0]):
        raise CmdpkitError("state['ledger.sample'] does not have as many rows as state['ledger.size'] says")


def _shape(name: str, x: NDArray[Any]) -> tuple[int, ...]:
    """The part of an array's shape that is known in advance."""
    return (x.ndim, *x.shape[1:]) if name in GROWING else x.shape
