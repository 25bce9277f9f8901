"""What is short of the bounds in what was realised (the *debt*), and how fast it is repaid.

A debt is repaid evenly over all episodes that are left. Repaying costs reward: at a price of 30, a unit of utility
costs 30 units of reward. Where the price is beyond what the user allows (`repay_price`), debts are left as they are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.learners.cl_pri.counts.schedule import SMALLEST_BLOCK
from cmdpkit.learners.cl_pri.counts.steer import PRICED
from cmdpkit.model.transitions import FloatArray

if TYPE_CHECKING:
    from cmdpkit.learners.cl_pri.counts import WithCounts

CONTROLLED = 1e-9  # effects of all stochastic decisions together below this are none
STEEPEST = 0.02  # of H: the most that a plan is asked to exceed the bounds by to repay a debt


def repayment(learner: WithCounts) -> FloatArray:
    """[N]: by how much a plan is asked to exceed the bounds, to repay what is owed."""
    return np.clip(repayment_rate(learner), 0.0, STEEPEST * learner.spec.H)


def repayment_rate(learner: WithCounts) -> FloatArray:
    """[N]: by how much episodes that are steered must exceed the bounds, to repay what is owed by the end."""
    k, table, rho = learner.clock.episode, learner.table, learner.spec.rho
    short, left = k * rho - learner.ledger.totals[1:], float(table.K - k)
    late = min(1.0, 4 * k / table.K)
    debt = owed(short, learner.sd[1:], _gain(learner), table.K - k, late, reserve_quantile(table.K))
    if k >= table.hand:  # every other block plays the policy that is handed over
        left = left / 2
        debt = debt - left * (learner.final_utilities - rho)
    rate: FloatArray = debt / max(left, 1)
    return rate


def _gain(learner: WithCounts) -> FloatArray:
    """[N]: by how much episodes exceed the bounds on average under full control; 0 where nothing is controlled.

    Bounds that have a price share the same stochastic decisions, and what raises one utility may lower another.
    """
    rho, sharing = learner.spec.rho, max(int((learner.prices > PRICED).sum()), 1)
    above = learner.predicted + learner.shift / sharing - rho
    if learner.clock.episode >= learner.table.hand:  # every other block plays the policy that is handed over
        above = (above + learner.final_utilities - rho) / 2
    gain: FloatArray = np.where(learner.shift > CONTROLLED, np.maximum(above, 0.0), 0.0)
    return gain


def reserve_quantile(K: int) -> float:
    """How many standard deviations of bad luck a reserve covers; the longer a run, the less more of them cost."""
    return 3 + 0.5 * max(math.log10(K / 10_000), 0.0)


def owed(short: FloatArray, sd: FloatArray, gain: FloatArray, left: int, late: float, z: float) -> FloatArray:
    """[N]: what is short by now, with a margin for what the last blocks may bring.

    ``gain`` is by how much full control could raise each utility of an episode, and ``late`` says how much the time at
    the end counts in which even full control could not make up for z standard deviations of bad luck.
    """
    gain = np.maximum(gain, 1e-12)
    worst = np.minimum((z * sd / (2 * gain)) ** 2, max(left, 0))
    beyond_control = np.maximum(z * sd * np.sqrt(worst) - gain * worst, 0.0) * (gain > CONTROLLED)
    total: FloatArray = short + z * sd * np.sqrt(2 * SMALLEST_BLOCK) + late * beyond_control
    return total


def affordable(rate: FloatArray, prices: FloatArray, repay_price: float) -> FloatArray:
    """The rate [N] at which debts are repaid, 0 at most where that is too dear."""
    capped: FloatArray = np.where(prices > repay_price, np.minimum(rate, 0.0), rate)
    return capped
