"""Which policy to play next, and which actions are worth trying beside it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from cmdpkit.estimate.errors import Evidence
from cmdpkit.estimate.model import Model, Plan, best_plan, surplus_at
from cmdpkit.model.transitions import BoolArray, FloatArray

MILD_LOSS = 0.02  # of an episode's noise: losses smaller than this count as this
UNKNOWN_LOSS = 0.25  # of an episode's noise: what an action that was never tried is taken to lose
WORTH_TRYING = 5.0  # times its cost that the information of a deviation must be worth
FEW = 3  # observations below which nothing is ruled out
SHORT = 10_000  # episodes: while no more are to come, an action that is hardly better is not worth a search
NORMAL = 25_000  # episodes from which on errors are nearly normal, as quantiles of margins take them to be
RARE_SHARE = 0.2  # of the noise of all episodes to come: what tries in states that are hardly ever reached may cost
TIED_LOSS = 0.002  # of an episode's noise: in a long run, only losses smaller than this count as this
DOUBTED = 10.0  # tries with which the error of an action's value is still larger by a factor of sqrt(2) than they say
REACHED = 0.9  # of what can be repaid at prices that are allowed: a plan is asked for no more, because estimates err
ENOUGH = 5  # observations from which an action's own error says what it may still be worth


class Repaying(NamedTuple):
    """A plan that repays what is owed, as far as that is not dear."""

    plan: Plan
    surplus: FloatArray  # [N]: by how much plans can exceed the bounds at allowed prices; infinite if none meets them


def repaying_plan(model: Model, rho: FloatArray, repay: FloatArray, most: float, *, settled: bool) -> Repaying:
    """The best plan that meets the bounds and exceeds them by `repay` [N], or by part of it where that is dear.

    A target that is almost out of reach has prices that multiply all noise, so what raises the prices to more than
    twice those of the bounds themselves is halved, and given up in the end. Once the run is `settled` and nothing new
    is tried, prices multiply nothing. At prices above `most` nothing is repaid at all.
    """
    plan = best_plan(model, rho)
    if not plan.feasible or not len(rho):
        return Repaying(plan, np.full(len(rho), np.inf))
    asked = repay > 0
    allowed = np.where(asked, most, np.inf)
    if not settled:
        allowed = np.minimum(2 * plan.prices + 0.05, allowed)
    surplus = _surplus(model, rho, plan, np.minimum(allowed, most))
    if not asked.any():
        return Repaying(plan, surplus)
    part = float((surplus[asked] / repay[asked]).min())
    first = min(1.0, REACHED * part) if part > 0 else 1.0
    for share in (first, first / 2, first / 4, first / 8):
        other = best_plan(model, rho + share * repay)
        if other.feasible and (other.prices <= allowed).all():
            return Repaying(other, surplus)
    return Repaying(plan, surplus)


def _surplus(model: Model, rho: FloatArray, plan: Plan, allowed: FloatArray) -> FloatArray:
    """[N]: by how much each bound can be exceeded, if its own price alone rises from that of the plan to `allowed`."""
    surplus: FloatArray = plan.utilities - rho
    for n, price in enumerate(allowed):
        prices = plan.prices.copy()
        prices[n] = price
        surplus[n] = max(surplus[n], surplus_at(model, rho, prices)[n])
    return surplus


def largest_margin_error(delta: float, K: int) -> float:
    """The largest probability with which the margin of the policy handed over may be too small, however dear it is.

    It is half of delta. In short runs it is less, because errors that come from few observations exceed normal ones.
    """
    return delta / 2 * min(1.0, math.sqrt(K / NORMAL))


def expected_gain(advantage: FloatArray, error: FloatArray) -> FloatArray:
    """What an action is worth on average if it is used only where it is better, after an estimate with that error.

    It is never 0: in a long run even an unlikely gain is worth a few more tries.
    """
    error = np.maximum(error, 1e-12)
    below = -advantage / error
    gain: FloatArray = error * (np.exp(-(below**2) / 2) / math.sqrt(2 * math.pi) - below * ndtr(-below))
    return np.maximum(gain, 0.0)


class Deviations(NamedTuple):
    """Actions that are worth trying beside a plan."""

    worth: BoolArray  # [H, S, A]
    rare: BoolArray  # [H, S, A]: those of them that cost next to nothing, because their states are hardly ever reached
    loss: FloatArray  # [H, S, A]: what a try costs; in a run that is not long, their average


def worth_trying(
    model: Model, found: Evidence, seen: FloatArray, came: FloatArray, left: int, noise: float, z: float, *, long: bool
) -> Deviations:
    """Actions whose knowledge could gain more in the episodes left than trying them costs.

    seen [H, S, A] are observations of each action, came [H, S] how often an episode came there; `noise` is the spread
    of an episode's total at the present prices, and an advantage z standard errors below 0 rules an action out.

    In a `long` run, a few tries are doubted more, and an action is also worth trying in states so rare that to try it
    whenever an episode gets there costs next to nothing.
    """
    reach = np.maximum(found.reach, 0.2 * came)
    if model.cmdp.kernel.T == 1:  # what is learned at one step serves all of them
        reach = np.broadcast_to(reach.sum(axis=0, keepdims=True), reach.shape)
    error = _doubted_error(found, seen) if long else found.error
    worse = (seen >= FEW) & (found.advantage + z * error < 0)
    likely = np.maximum(found.advantage + 2 * found.error, 0.0)
    if left > SHORT:
        likely = np.maximum(likely, expected_gain(found.advantage, error))
    potential = np.where(seen >= ENOUGH, likely, noise)
    cost = np.where(seen > 0, np.maximum(-found.advantage, MILD_LOSS * noise), UNKNOWN_LOSS * noise)
    open_ = ~worse & model.known[..., None]
    worth = open_ & (reach[..., None] * potential * left > WORTH_TRYING * cost)
    if long:
        rare = open_ & (reach[..., None] * left * cost < _allowance(model, noise, left))
        return Deviations(worth | rare, rare, _weighted_loss(found.advantage, error, seen, noise))
    weight = found.reach[..., None] * worth
    loss = max(float((weight * cost).sum()) / max(float(weight.sum()), 1e-12), MILD_LOSS * noise)
    return Deviations(worth, np.zeros_like(worth), np.full(worth.shape, loss))


def _doubted_error(found: Evidence, seen: FloatArray) -> FloatArray:
    """[H, S, A]: standard errors for a long run, in which an action that is wrongly ruled out costs most.

    After n tries, an outcome with a probability of about 1 / n may be one that was never seen, however much those that
    were seen are alike.
    """
    tries = np.maximum(seen, 1)
    squared: FloatArray = found.error**2 * (1 + DOUBTED / tries) + (found.surprise / tries) ** 2
    return np.sqrt(squared)


def _allowance(model: Model, noise: float, left: int) -> float:
    """What tries in one state may cost in all episodes left: an equal part, so that all states cost a known share."""
    T, S, _ = model.cmdp.kernel.shape
    return RARE_SHARE * noise * math.sqrt(left) / (T * S)


def _weighted_loss(advantage: FloatArray, error: FloatArray, seen: FloatArray, noise: float) -> FloatArray:
    """[H, S, A]: what one try of an action costs on average, times the square of loss over error where that is above 1.

    There is little left to learn of an action whose error is small beside its loss. An action that is as good as the
    plan at the present prices seems to cost nothing, but it shifts the utilities, which takes control to make up for.
    """
    loss = np.where(seen > 0, expected_gain(-advantage, error), UNKNOWN_LOSS * noise)
    loss = np.maximum(loss, TIED_LOSS * noise)
    known = np.where(seen > 0, loss / np.maximum(error, 1e-12), 1.0)
    weighted: FloatArray = loss * np.clip(known, 1.0, 1e6) ** 2
    return weighted
