"""The policy to hand over: the best one of the estimated model, with a margin for the error of its own prediction."""

from __future__ import annotations

from itertools import count
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

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


def handed_over(model: Model, rho: FloatArray, extra: FloatArray, *, z: float, missed: float = 0.0) -> HandOver:
    """The policy that is worth most, among the best plans that clear the bounds by z, z + 1/2, ... standard errors.

    A plan is worth its value, less `missed` of the range of values times the probability that it misses a bound, for
    every bound; with `missed` 0 the first of them is taken. Where no policy clears all bounds by z standard errors, as
    large a part of the margin as possible is kept, and `uncovered` says what is missing to it. The margin comes on top
    of `extra` [N], or of as much of that as is possible.
    """
    pool, nothing = Columns(Horizon(model.cmdp)), np.zeros(len(rho))
    found = HandOver(best_plan(model, rho, pool), nothing, nothing)
    if not len(rho):
        return found
    unit = plan_errors(model, found.plan.pi)
    if not found.plan.feasible:
        return found._replace(uncovered=np.maximum(rho + z * unit - found.plan.utilities, 0.0))
    loss = missed * _value_range(model, pool) if missed else 0.0
    if extra.any():
        extra = extra * possible(pool, model, rho, extra)
    best, share = -np.inf, possible(pool, model, rho + extra, z * unit)
    for t in count(z, 0.5) if share == 1 else (share * z,):
        plan = best_plan(model, rho + extra + t * unit, pool)
        errors = np.maximum(plan_errors(model, plan.pi), NO_SPREAD)
        worth = plan.value - loss * float(ndtr((rho + extra - plan.utilities) / errors).sum())
        if worth <= best or not plan.feasible:
            break
        best = worth
        found = HandOver(plan, extra + t * unit, np.maximum(rho + z * errors - plan.utilities, 0.0))
        if not loss:
            break
    return found


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


def _value_range(model: Model, pool: Columns[Horizon]) -> float:
    """By how much the values of two policies of the model can differ."""
    nothing, lowest = np.zeros(model.cmdp.N), model._replace(cmdp=model.cmdp.reformulated(r=-model.cmdp.compact.r))
    return best_plan(model, nothing, pool).value + best_plan(lowest, nothing).value
