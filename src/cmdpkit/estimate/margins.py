"""The policy to return: the best one of the estimated model, with a margin for the error of its own prediction."""

from __future__ import annotations

from operator import itemgetter
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
    """The policy to return and what its margin covers."""

    plan: Plan
    margin: FloatArray  # [N]: by how much it was asked to clear the bounds
    uncovered: FloatArray  # [N]: by how much its own error may take it beyond a bound all the same


def handed_over(model: Model, rho: FloatArray, extra: FloatArray, z: float, missed: float = 0.0) -> HandOver:
    """The best plan that clears the bounds by a margin of at least z standard errors, as far as that is possible.

    A wider margin costs value and makes it less likely that a bound is missed. Among margins of z, z + 1/3, ...
    standard errors, the plan is chosen that has the largest

        value - missed * range of values * (sum over the bounds of the probability of missing it),

    so the margin is wide where it is cheap. Where no policy clears all bounds by so much, the largest part of the
    margin is kept that all bounds allow together, and `uncovered` says what z standard errors lack. The margin comes on
    top of `extra` [N], or of as much of that as is possible.
    """
    pool, nothing = Columns(Horizon(model.cmdp)), np.zeros(len(rho))
    plan = best_plan(model, rho, pool)
    if not len(rho) or not plan.feasible:
        return HandOver(plan, nothing, _uncovered(model, rho, plan, z))
    base = extra * possible(pool, model, rho, extra) if extra.any() else nothing
    penalty, errors, chosen = missed * _value_range(pool), plan_errors(model, plan.pi), (-np.inf, plan, nothing)
    for i in range(9 if missed else 1):  # up to 8/3 standard errors beyond the least margin
        more = (z + i / 3) * errors
        share = possible(pool, model, rho + base, more) if more.any() else 1.0
        found = best_plan(model, rho + base + share * more, pool)
        if not found.feasible:
            break
        clear = (found.utilities - rho - base) / np.maximum(plan_errors(model, found.pi), NO_SPREAD)
        scored = worth(found.value, clear[~model.moot], penalty), found, base + share * more
        chosen = max(chosen, scored, key=itemgetter(0))
        if share < 1:
            break
    return HandOver(chosen[1], chosen[2], _uncovered(model, rho, chosen[1], z))


def worth(value: float, clear: FloatArray, penalty: float) -> float:
    """The value of a policy less a penalty times the sum of the probabilities of missing each bound.

    The policy clears its bounds by `clear` [N] standard errors.
    """
    return value - penalty * float(ndtr(-clear).sum())


def _uncovered(model: Model, rho: FloatArray, plan: Plan, z: float) -> FloatArray:
    """[N]: by how much z standard errors may take a plan's utilities below the bounds."""
    return np.maximum(rho + z * plan_errors(model, plan.pi) - plan.utilities, 0.0) if len(rho) else np.zeros(0)


def _value_range(pool: Columns[Horizon]) -> float:
    """The difference between the largest and the smallest value of all policies."""
    most, least = (pool.source.greedy(np.append(sign, np.zeros(pool.source.N)))[2][0] for sign in (1.0, -1.0))
    return float(most - least)


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
