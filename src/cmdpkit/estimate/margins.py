"""The policy to hand over: the best one of the estimated model, with a margin for the error of its own prediction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.errors import plan_errors
from cmdpkit.estimate.model import Model, Plan, best_plan
from cmdpkit.model.transitions import FloatArray

SLACK = 1.02  # a margin may be too small by so much of itself


class HandOver(NamedTuple):
    """The policy to hand over and what its margin covers."""

    plan: Plan
    margin: FloatArray  # [N]: by how much it was asked to clear the bounds
    uncovered: FloatArray  # [N]: by how much its own error may take it beyond a bound all the same


def covering_plan(model: Model, rho: FloatArray, z: float, extra: FloatArray) -> HandOver:
    """The best plan that clears the bounds by z standard errors of its own prediction and by `extra` [N].

    The margin depends on the plan and the plan on the margin, so they are found in turns. Where no policy clears the
    whole margin, as large a part of it as possible is kept.
    """
    base, share = best_plan(model, rho), 1.0
    plan, margin = base, z * plan_errors(model, base.pi) + extra
    for _ in range(6):
        other = best_plan(model, rho + share * margin)
        if not other.feasible:
            share /= 2
            continue
        plan = other
        wanted = z * plan_errors(model, plan.pi) + extra
        if np.all(wanted <= share * margin * SLACK + 1e-9):
            break
        margin = np.maximum(margin, wanted)
    short = rho + z * plan_errors(model, plan.pi) - plan.utilities
    return HandOver(plan, margin, np.maximum(short, 0.0))
