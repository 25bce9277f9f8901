"""What CL-PRI with counts has to say about a run: notes before it, phases, and an account of it. See also `doubts`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.estimate.model import model_of
from cmdpkit.learners._bound_warning import UtilityAmount
from cmdpkit.model.evaluate import flow

if TYPE_CHECKING:
    from cmdpkit.learners.cl_pri.counts import WithCounts
    from cmdpkit.model.transitions import FloatArray

FEW_TRIES = 2  # episodes of exploration per cell below which a run is called short
SHOWN = 5  # decisions that are listed in an account
REACHED = 1e-3  # of the episodes: decisions in states that are reached less often are not listed


def notes_of(learner: WithCounts) -> tuple[str, ...]:
    """What a user should know before the run."""
    if learner.spec.anytime or learner.table.explore >= FEW_TRIES * learner.cells:
        return ()
    return (short_run(learner, f"{learner.spec.K:,}"),)


def short_run(learner: WithCounts, episodes: str) -> str:
    """The sentence that a run is short for its problem, and how long it should be."""
    enough = math.ceil(FEW_TRIES * learner.cells / learner.params.exploration_share)
    cells = "(state, action) pairs" if learner.T == 1 else "(step, state, action) triples"
    return (
        f"{episodes} episodes are few for {learner.cells:,} {cells}: they cannot all be tried, and the policy may be "
        f"far from the best; at least {enough:,} episodes would help"
    )


def phases_of(learner: WithCounts) -> tuple[tuple[str, int], ...]:
    """Names of the phases and their first episodes; an anytime run names its stages, and what it has begun of one."""
    clock, table = learner.clock, learner.table
    found = []
    if clock.explored != clock.explored_from:
        found += [("exploration", clock.explored_from)]
    if clock.explored >= 0:
        found += [("improvement", clock.explored)]
    found += [("settling", table.freeze), ("certification", table.hand)]
    if not learner.spec.anytime:
        return tuple(found)
    past = [(f"stage {j + 1}", learner.spec.K << (j - 1) if j else 0) for j in range(clock.stage)]
    begun = [(f"stage {clock.stage + 1}: {name}", first) for name, first in found if first <= clock.episode]
    return (*past, *begun)


def account(learner: WithCounts) -> dict[str, Any]:
    """The run as plain values. States and actions are given by index, totals in unit scale: see `cmdpkit.running`."""
    seen = int((learner.memory.visits > 0).sum())
    pi, reach = learner.recommend(), _reach(learner)
    return {
        "counts": "shared by all steps" if learner.T == 1 else "kept per step",
        "cells seen": f"{seen} of {learner.cells}",
        "states reached": f"{_states(learner)} of {learner.spec.S}",
        "transitions seen": int(learner.memory.used[0]),
        "episodes of exploration": _explored(learner),
        "plans": learner.clock.plans,
        "plans that could not meet the bounds": learner.clock.infeasible,
        "margin of the policy handed over": [UtilityAmount(x, n) for n, x in enumerate(learner.margin.round(6))],
        "stochastic decisions": _drawn(pi, reach),
        "actions in use that were tried least": _least_tried(learner, pi, reach),
    }


def _states(learner: WithCounts) -> int:
    """How many states were ever reached."""
    per_state = learner.memory.visits.reshape(learner.T, learner.spec.S, -1).sum(axis=(0, 2))
    return int((per_state > 0).sum())


def _explored(learner: WithCounts) -> int:
    """How many episodes of the run were exploration."""
    clock = learner.clock
    end = clock.episode if learner.exploring else clock.explored
    return clock.explored_before + end - clock.explored_from


def _reach(learner: WithCounts) -> FloatArray:
    """[H, S]: how often the policy handed over comes to each state in the model that the counts suggest."""
    cmdp = model_of(learner.memory, learner.spec.rho, learner.spec.allowed, 1).cmdp
    pi = learner.recommend()
    reach: FloatArray = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu).sum(axis=-1)
    return reach


def _drawn(pi: FloatArray, reach: FloatArray) -> list[dict[str, Any]]:
    """The decisions that draw, in states that are reached."""
    drawn = ((pi > 0).sum(axis=-1) > 1) & (reach > REACHED)
    return [
        {"step": int(h) + 1, "state index": int(s), "action index": int(a), "probability": float(pi[h, s, a])}
        for h, s in np.argwhere(drawn)
        for a in np.flatnonzero(pi[h, s])
    ]


def _least_tried(learner: WithCounts, pi: FloatArray, reach: FloatArray) -> list[dict[str, Any]]:
    """What the policy rests on least: the actions that it uses and that were taken most rarely."""
    spec = learner.spec
    visits = np.broadcast_to(learner.memory.visits.reshape(learner.T, spec.S, spec.A), pi.shape)
    used = (pi > 0) & (reach > REACHED)[..., None]
    places = np.argwhere(used)
    order = np.argsort(visits[used], kind="stable")
    chosen: dict[tuple[int, ...], dict[str, Any]] = {}
    for h, s, a in places[order]:  # where all steps share their counts, a pair is named once
        place = {"state index": int(s), "action index": int(a), "times tried": int(visits[h, s, a])}
        key = (s, a) if learner.T == 1 else (h, s, a)
        chosen.setdefault(key, place if learner.T == 1 else {"step": int(h) + 1, **place})
        if len(chosen) == SHOWN:
            break
    return list(chosen.values())
