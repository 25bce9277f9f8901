"""The policy to hand over: the best one of the estimated model, with a margin for the error of its own prediction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.learners._counts.estimate import Model, Plan, best_plan, plan_errors
from cmdpkit.model.evaluate import flow
from cmdpkit.model.transitions import BoolArray, FloatArray

DEARER = 0.1  # of what the margin costs: a plan that keeps the support may cost so much more
SLACK = 1.02  # a margin may be too small by so much of itself
HALVINGS = 5  # of the interval in which the widest margin that keeps the support is searched for


class HandOver(NamedTuple):
    """The policy to hand over and what its margin covers."""

    plan: Plan
    margin: FloatArray  # [N]: by how much it was asked to clear the bounds
    uncovered: FloatArray  # [N]: by how much its own error may take it beyond a bound all the same


def covering_plan(model: Model, rho: FloatArray, z: float, extra: FloatArray, least: float | None = None) -> HandOver:
    """The best plan that clears the bounds by z standard errors of its own prediction and by `extra` [N].

    The margin depends on the plan and the plan on the margin, so they are found in turns. Where no policy clears the
    whole margin, as large a part of it as possible is kept.

    With `least`, a number of standard errors below z, the plan keeps the support of the best plan for the bounds
    themselves where a margin of at least that many standard errors allows it: see `_keeping_support`.
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
    found = HandOver(plan, margin, np.maximum(short, 0.0))
    if least is not None and least < z and base.feasible:
        return _keeping_support(model, rho, (least, z), extra, base, found)
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
