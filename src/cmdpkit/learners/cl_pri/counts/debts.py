"""What is short of the bounds in what was realised (the *debt*), and how fast it is repaid.

A debt is repaid evenly over all episodes that are left. Repaying costs reward: at a price of 30, a unit of utility
costs 30 units of reward. Where the price is beyond what the user allows (`repay_price`), debts are left as they are.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners.cl_pri.counts.schedule import SMALLEST_BLOCK
from cmdpkit.model.transitions import FloatArray


def owed(short: FloatArray, sd: FloatArray, gain: FloatArray, left: int, late: float) -> FloatArray:
    """[N]: what is short by now, with a margin for what the last blocks may bring.

    ``gain`` is by how much full control could raise each utility of an episode, and ``late`` says how much the time at
    the end counts in which even full control could not make up for bad luck.
    """
    gain = np.maximum(gain, 1e-12)
    worst = np.minimum((1.5 * sd / gain) ** 2, max(left, 0))
    beyond_control = np.maximum(3 * sd * np.sqrt(worst) - gain * worst, 0.0) * (gain > 1e-9)
    total: FloatArray = short + 3 * sd * np.sqrt(2 * SMALLEST_BLOCK) + late * beyond_control
    return total


def affordable(rate: FloatArray, prices: FloatArray, repay_price: float) -> FloatArray:
    """The rate [N] at which debts are repaid, 0 at most where that is too dear."""
    capped: FloatArray = np.where(prices > repay_price, np.minimum(rate, 0.0), rate)
    return capped
