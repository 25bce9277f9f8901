"""Which policy to play next, which one to hand over, and which actions are worth trying beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.learners.cl_pri.counts.estimate import Evidence, Model, Plan, best_plan, plan_errors
from cmdpkit.model.transitions import BoolArray, FloatArray

MILD_LOSS = 0.02  # of an episode's noise: losses smaller than this count as this
UNKNOWN_LOSS = 0.25  # of an episode's noise: what an action that was never tried is taken to lose
WORTH_TRYING = 5.0  # times its cost that the information of a deviation must be worth
FEW = 3  # observations below which nothing is ruled out
ENOUGH = 5  # observations from which an action's own error says what it may still be worth


def repaying_plan(model: Model, rho: FloatArray, repay: FloatArray, most: float) -> Plan:
    """The best plan that meets the bounds and exceeds them by `repay` [N], or by part of it where that is dear.

    A target that is almost out of reach has prices that multiply all noise, so what raises the prices to more than
    twice those of the bounds themselves is halved, and given up in the end. At prices above `most` nothing is repaid.
    """
    plan = best_plan(model, rho)
    if not plan.feasible or not repay.any():
        return plan
    for part in (1.0, 0.5, 0.25, 0.125):
        other = best_plan(model, rho + part * repay)
        dear = (other.prices > 2 * plan.prices + 0.05) | ((other.prices > most) & (repay > 0))
        if other.feasible and not dear.any():
            return other
    return plan


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
    plan, share = best_plan(model, rho), 1.0
    margin = z * plan_errors(model, plan.pi) + extra
    for _ in range(6):
        other = best_plan(model, rho + share * margin)
        if not other.feasible:
            share /= 2
            continue
        plan = other
        wanted = z * plan_errors(model, plan.pi) + extra
        if np.all(wanted <= share * margin * 1.02 + 1e-9):
            break
        margin = np.maximum(margin, wanted)
    short = rho + z * plan_errors(model, plan.pi) - plan.utilities
    return HandOver(plan, margin, np.maximum(short, 0.0))


class Deviations(NamedTuple):
    """Actions that are worth trying beside a plan."""

    worth: BoolArray  # [H, S, A]
    loss: float  # what one of them costs on average


def worth_trying(
    model: Model, found: Evidence, seen: FloatArray, came: FloatArray, left: int, noise: float, z: float
) -> Deviations:
    """Actions whose knowledge could gain more in the episodes left than trying them costs.

    seen [H, S, A] are observations of each action, came [H, S] how often an episode came there; `noise` is the spread
    of an episode's total at the present prices, and an advantage z standard errors below 0 rules an action out.
    """
    worse = (seen >= FEW) & (found.advantage + z * found.error < 0)
    potential = np.where(seen >= ENOUGH, np.maximum(found.advantage + 2 * found.error, 0.0), noise)
    cost = np.where(seen > 0, np.maximum(-found.advantage, MILD_LOSS * noise), UNKNOWN_LOSS * noise)
    reach = np.maximum(found.reach, 0.2 * came)
    if model.cmdp.kernel.T == 1:  # what is learned at one step serves all of them
        reach = np.broadcast_to(reach.sum(axis=0, keepdims=True), reach.shape)
    worth = ~worse & (reach[..., None] * potential * left > WORTH_TRYING * cost) & model.known[..., None]
    weight = found.reach[..., None] * worth
    loss = max(float((weight * cost).sum()) / max(float(weight.sum()), 1e-12), MILD_LOSS * noise)
    return Deviations(worth, loss)
