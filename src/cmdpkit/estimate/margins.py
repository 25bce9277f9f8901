"""The policy to hand over: the best one of the estimated model, with a margin for the error of its own prediction."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.errors import plan_errors
from cmdpkit.estimate.model import Model, Plan, best_plan
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.sources import Horizon
from cmdpkit.model.tolerances import NO_SPREAD
from cmdpkit.model.transitions import FloatArray


class HandOver(NamedTuple):
    """The policy to hand over and what its margin covers."""

    plan: Plan
    margin: FloatArray  # [N]: by how much it was asked to clear the bounds
    uncovered: FloatArray  # [N]: by how much its own error may take it beyond a bound all the same


def handed_over(model: Model, rho: FloatArray, extra: FloatArray, z: float) -> HandOver:
    """The best plan that clears the bounds by z standard errors of its prediction, as far as that is possible.

    Where no policy clears all bounds by so much, the largest part of the margin is kept that all bounds allow together,
    and `uncovered` says what is missing. The margin comes on top of `extra` [N], or of as much of that as is possible.
    """
    pool, nothing = Columns(Horizon(model.cmdp)), np.zeros(len(rho))
    plan = best_plan(model, rho, pool)
    if not len(rho):
        return HandOver(plan, nothing, nothing)
    margin = nothing
    if plan.feasible:
        for more in (extra, z * plan_errors(model, plan.pi)):
            margin = margin + (more * possible(pool, model, rho + margin, more) if more.any() else nothing)
        cleared = best_plan(model, rho + margin, pool)
        plan, margin = (cleared, margin) if cleared.feasible else (plan, nothing)
    return HandOver(plan, margin, np.maximum(rho + z * plan_errors(model, plan.pi) - plan.utilities, 0.0))


def error_quantile(delta: float, tests: int) -> float:
    """Standard errors beyond which one of several normal tests errs with probability at most delta, one-sided.

    >>> round(error_quantile(0.05, 27 * 40), 2)
    3.91
    """
    error = delta / max(tests, 1)
    if error < 1e-9:  # 1 - error would lose too many digits
        return -NormalDist().inv_cdf(error)
    return NormalDist().inv_cdf(1 - error)


def possible(pool: Columns[Horizon], model: Model, rho: FloatArray, more: FloatArray) -> float:
    """The share, at most 1, of `more` [N] by which all bounds rho can be exceeded at once, less 1 % for rounding."""
    per = np.maximum(more, max(float(more.max(initial=0.0)) / 1000, NO_SPREAD)) / pool.units[1:]
    reached = pool.reach(pool.scaled(np.where(model.moot, 0.0, rho)), per)[0]
    return min(1.0, max(0.0, 0.99 * reached))
