"""What CL-PRI with counts has to say about a run: notes before it, warnings and an account after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners._counts.homogeneity import warning

if TYPE_CHECKING:
    from cmdpkit.learners import Spec
    from cmdpkit.learners.cl_pri.counts import WithCounts
    from cmdpkit.learners.cl_pri.counts.schedule import Timetable

MISSED = 1e-12  # shortfalls per episode up to this are rounding


def notes_of(spec: Spec, cells: int, table: Timetable) -> tuple[str, ...]:
    """What a user should know before the run."""
    if table.explore >= 2 * cells:
        return ()
    return (
        f"K = {spec.K:,} is short for {cells:,} cells: exploration ends after at most {table.explore:,} episodes, "
        "and the policy may be far from the best",
    )


def warnings_of(learner: WithCounts) -> tuple[str, ...]:
    """Bounds that were missed or could not be promised, and a world that depends on the step after all."""
    clock, table = learner.clock, learner.table
    said: list[str] = []
    if clock.episode >= table.freeze and clock.infeasible_last:
        said.append(BoundWarning("in the model that the counts suggest no policy meets all bounds"))
    if clock.episode >= table.hand:
        said += _uncovered(learner)
    if clock.episode >= learner.spec.K:
        said += _missed(learner)
    said += warning(learner.memory.halves)
    return tuple(said)


def _uncovered(learner: WithCounts) -> list[str]:
    """Bounds that the policy handed over may miss, as far as its own error goes."""
    template = (
        "the policy handed over may miss {constraint} by up to {by}: no policy of the estimated model clears it by a "
        "margin for its own error, which more episodes would narrow"
    )
    short = learner.uncovered
    return [BoundWarning(template, int(n), by=float(short[n]), doubtful=False) for n in np.flatnonzero(short > 0)]


def _missed(learner: WithCounts) -> list[str]:
    """Bounds that were missed in what was realised."""
    template = (
        "{constraint} was missed by {by} per episode in what was realised: the episodes did not suffice to repay what "
        "exploration had cost"
    )
    k = learner.clock.episode
    short = (k * learner.spec.rho - learner.ledger.totals[1:]) / k
    return [BoundWarning(template, int(n), by=float(short[n]), doubtful=False) for n in np.flatnonzero(short > MISSED)]


def account(learner: WithCounts) -> dict[str, Any]:
    """The run as plain values."""
    seen = int((learner.memory.visits > 0).sum())
    return {
        "counts": "shared by all steps" if learner.T == 1 else "kept per step",
        "cells seen": f"{seen} of {learner.cells}",
        "transitions seen": int(learner.memory.used[0]),
        "exploration ended after episode": learner.clock.explored,
        "plans": learner.clock.plans,
        "plans that could not meet the bounds": learner.clock.infeasible,
        "margin of the policy handed over": learner.margin.round(6).tolist(),
    }
