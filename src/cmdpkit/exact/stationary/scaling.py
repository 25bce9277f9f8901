"""Between the user's units and units of order 1.

Normalised discounted values and long-run averages are means of a signal, so the middle of the signal's range can be
taken off and half the range is the unit: signals that hardly vary are as easy as others. Totals have no such freedom;
their unit is the largest signal times the expected length of the longest run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.stationary.problem import Problem
from cmdpkit.model.transitions import FloatArray


class Scaling(NamedTuple):
    """own value = (scaled value * unit + offset) * factor, for reward and utilities."""

    offset: FloatArray  # [1 + N]
    unit: FloatArray  # [1 + N]
    factor: float  # 1 / (1 - discount), or 1

    def thresholds(self, rho: FloatArray) -> FloatArray:
        """Thresholds [N] in scaled units."""
        thresholds: FloatArray = (rho / self.factor - self.offset[1:]) / self.unit[1:]
        return thresholds

    def own(self, values: FloatArray) -> FloatArray:
        """Scaled values of reward and utilities [1 + N] in the criterion's own units."""
        own: FloatArray = (values * self.unit + self.offset) * self.factor
        return own

    def prices(self, lam: FloatArray) -> FloatArray:
        """Scaled multipliers [N] as prices: value per unit of each bound."""
        prices: FloatArray = lam * self.unit[0] / self.unit[1:]
        return prices


def scaling_of(problem: Problem, longest: float = 1.0) -> Scaling:
    """The scaling of a problem; `longest` is the expected length of the longest run where totals are counted."""
    X = problem.X
    if problem.kind == "total":
        unit = np.abs(X).max(axis=1) * longest
        return Scaling(np.zeros(len(X)), np.where(unit > 0, unit, 1.0), 1.0)
    low, high = X.min(axis=1), X.max(axis=1)
    offset, unit = low + (high - low) / 2, (high - low) / 2
    factor = 1.0 / (1.0 - problem.discount) if problem.kind == "discounted" else 1.0
    return Scaling(offset, np.where(unit > 0, unit, 1.0), factor)
