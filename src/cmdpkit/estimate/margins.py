"""The policy to hand over: the best one of the estimated model, with a margin for the error of its own prediction.

`covering_plan` takes a margin of so many standard errors. `balanced_plan` decides how many: a margin costs reward, and
the less of it there is, the more likely a bound is missed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.errors import plan_errors
from cmdpkit.estimate.model import Model, Plan, best_plan, value_range
from cmdpkit.estimate.quantiles import different_columns
from cmdpkit.model.evaluate import flow
from cmdpkit.model.transitions import BoolArray, FloatArray

MISSED = 0.1  # of the range of values: what a missed bound counts, beside the reward that a margin costs
WIDEST = 4.0  # standard errors: what a margin has where it costs nothing
DEARER = 0.1  # of what the margin costs: a plan that keeps the support may cost so much more
SLACK = 1.02  # a margin may be too small by so much of itself
HALVINGS = 6  # of the interval in which the number of standard errors is searched for
ROUNDS = 4  # in which a plan and the margin for its own error are found in turns


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


class Quantiles(NamedTuple):
    """Numbers of standard errors between which the margin of a policy is chosen."""

    least: float  # what it has in any case, if some policy can clear so much
    kept: float  # with so many, a plan that keeps the support of the best one is preferred to one with a wider margin


def balanced_plan(model: Model, rho: FloatArray, quantiles: Quantiles, extra: FloatArray) -> HandOver:
    """The best plan with a margin that is widened as long as it avoids more misses than it costs.

    Per standard error, a margin of z of them costs the prices times the standard errors, and lowers the probability of
    a miss by the normal density at z. A miss counts as a share of the range of values. So the margin is wide where it
    costs little, after many episodes or at low prices, and never below the least number of standard errors that was
    asked for, unless no policy can clear it. It comes on top of `extra` [N].
    """
    base = best_plan(model, rho)
    if not base.feasible:
        return covering_plan(model, rho, quantiles.least, extra)
    loss, errors = MISSED * value_range(model), plan_errors(model, base.pi)
    found = HandOver(base, np.zeros(len(rho)), np.zeros(len(rho)))
    low, high = 0.0, max(_balance(model, base, errors, loss), quantiles.least)
    z = high  # prices rise with the margin, so that a balance at higher prices has fewer standard errors
    for _ in range(1 + HALVINGS):
        other = _clearing(model, rho, z, extra, errors)
        if other is not None:
            errors = plan_errors(model, other.plan.pi)
        if other is None or z > max(quantiles.least, SLACK * _balance(model, other.plan, errors, loss)):
            high = z
        else:
            found, low = other, z
        if low == high:
            break
        z = (low + high) / 2
    short = rho + quantiles.least / SLACK * plan_errors(model, found.plan.pi) - found.plan.utilities
    found = found._replace(uncovered=np.maximum(short, 0.0))
    if quantiles.kept < low:
        return _keeping_support(model, rho, (quantiles.kept, low), extra, base, found)
    return found


def _balance(model: Model, plan: Plan, errors: FloatArray, loss: float) -> float:
    """How many standard errors balance what the margin of a plan costs and the misses that it avoids."""
    priced = np.flatnonzero(plan.prices > 0)
    if not len(priced) or not loss:
        return WIDEST
    bounds = different_columns(model.counts.moments[:, 1 + priced])  # all of them can be missed
    density = float(plan.prices @ errors) / (bounds * loss)
    if density <= 0:
        return WIDEST
    return min(math.sqrt(max(-2 * math.log(density * math.sqrt(2 * math.pi)), 0.0)), WIDEST)


def _clearing(model: Model, rho: FloatArray, z: float, extra: FloatArray, errors: FloatArray) -> HandOver | None:
    """The best plan that clears the bounds by z of its own standard errors and by `extra` [N], None if there is none.

    The margin depends on the plan and the plan on the margin, so they are found in turns, from first `errors` [N] on.
    """
    found = None
    for i in range(ROUNDS):
        margin = z * errors + extra
        plan = best_plan(model, rho + margin)
        if not plan.feasible:
            return found
        own = plan_errors(model, plan.pi)
        if np.all(own <= errors * SLACK):
            found = HandOver(plan, margin, np.zeros(len(rho)))
            if np.all(own >= errors / SLACK):
                return found
        errors = np.maximum(errors, own) if i and np.any(own > errors * SLACK) else own
    return found


def _keeping_support(
    model: Model, rho: FloatArray, quantiles: tuple[float, float], extra: FloatArray, base: Plan, found: HandOver
) -> HandOver:
    """A plan with the support of `base`, the best one for the bounds themselves, instead of `found`.

    Prices, and with them the optimality of a support, do not depend on the bounds as long as the support can meet
    them. So a margin changes the support only where it is more than shifting the probabilities inside of it can reach.
    The widest margin that can be reached is taken if it has at least the smaller number of standard errors, and if the
    plan costs hardly more than `found`. Otherwise `found` stays.
    """
    used = _used(model, base.pi)
    if np.array_equal(_used(model, found.plan.pi), used):
        return found
    inside = model._replace(cmdp=model.cmdp.restrict(base.pi > 0))
    (least, high), kept = quantiles, found
    low = z = least
    errors = plan_errors(model, base.pi)
    errors = np.maximum(errors, plan_errors(model, best_plan(inside, rho + z * errors + extra).pi))
    worth = found.plan.value - DEARER * (base.value - found.plan.value)
    for i in range(HALVINGS):
        plan = best_plan(inside, rho + z * errors + extra)
        same = plan.feasible and np.array_equal(_used(model, plan.pi), used)
        covered = least * plan_errors(model, plan.pi) <= z * errors * SLACK
        if same and covered.all() and plan.value >= worth:
            kept, low = HandOver(plan, z * errors + extra, np.zeros(len(rho))), z
        elif not i:
            break
        else:
            high = z
        z = (low + high) / 2
    return kept


def _used(model: Model, pi: FloatArray) -> BoolArray:
    """[H, S, A]: actions that a policy takes in states that it reaches in the estimated model."""
    used: BoolArray = flow(model.cmdp, pi, np.zeros(pi.shape[:2]), model.cmdp.mu) > 0
    return used
