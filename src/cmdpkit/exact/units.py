"""What policies can collect from the start: the natural unit of every signal, and the rounding error of its totals.

A backward induction per signal gives the least and the largest expected total of any policy. Numbers in states that
no policy reaches have no influence, and a large number that is reached with a small probability counts with that
probability. The largest total of absolute values bounds the rounding error of every total that is computed; it takes
another induction if the signal has both signs.

The *tolerance* of a bound is FEASIBLE times the range of its signal's total, plus four times the rounding error. No
other tolerance is used. The unit of each signal is chosen such that the tolerance is FEASIBLE in scaled totals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.induction import Choice, Induction, Threads
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.tolerances import FEASIBLE, ROUNDOFF
from cmdpkit.model.transitions import FloatArray


class Units(NamedTuple):
    """Ranges and rounding errors of the reward and the N utilities, in that order; utilities as in `CMDP.g`."""

    worst: FloatArray  # [1+N], the least total of any policy
    best: FloatArray  # [1+N], the largest total of any policy
    rounding: FloatArray  # [1+N], no total of a policy is computed with a larger error
    magnitude: FloatArray  # [1+N], the largest total of the signal's absolute value

    @property
    def tolerance(self) -> FloatArray:
        """A bound missed by no more than this counts as met, [1+N]; FEASIBLE for a signal that is always 0."""
        allowed = FEASIBLE * (self.best - self.worst) + 4 * self.rounding
        return np.where(allowed > 0, allowed, FEASIBLE)

    @property
    def unit(self) -> FloatArray:
        """Scaled totals are (total - worst) / unit, [1+N]. The unit is at least the range, so they lie in 0..1."""
        unit: FloatArray = self.tolerance / FEASIBLE
        return unit

    def of(self, constraints: list[int]) -> Units:
        """The same numbers for the reward and some of the constraints only."""
        rows = [0, *(1 + n for n in constraints)]
        return Units(*(x[rows] for x in self))

    def gap_rounding(self, lam: FloatArray, rho: FloatArray) -> float:
        """How wrong the difference between a Lagrangian bound at prices lam [N] and a policy's value can be."""
        share = self.rounding / np.where(self.magnitude > 0, self.magnitude, 1.0)
        return float(2 * self.rounding[0] + lam @ self.rounding[1:] + lam @ (share[1:] * np.abs(rho)))


def units_of(cmdp: CMDP, threads: Threads = None) -> Units:
    """Ranges of all totals by backward induction, and their rounding errors by counting operations."""
    return survey(Induction(cmdp, threads))[0]


def survey(induction: Induction) -> tuple[Units, list[Choice]]:
    """The units of a model, and for the reward and each utility a policy that collects the most of it."""
    cmdp = induction.cmdp
    found, extremes = [], []
    for x in (cmdp.compact.r, *cmdp.compact.g):
        extremes.append(induction.choices())
        worst, best = induction.extremes(x, extremes[-1])
        if x.min() >= 0:
            magnitude = best
        else:
            magnitude = -worst if x.max() <= 0 else induction.choose(np.abs(x), induction.choices())
        found.append((worst, best, magnitude))
    worst_, best_, magnitude_ = np.array(found).T.copy()
    return Units(worst_, best_, operations(cmdp) * ROUNDOFF * magnitude_, magnitude_), extremes


def operations(cmdp: CMDP) -> int:
    """How many roundings a term of a total goes through at most.

    One product and one sum for each of a row's successors at every step, the sum over the actions of a stochastic
    decision (there are at most N of them), the start distribution, and the few that combine signals or change units.
    """
    width = int(np.diff(cmdp.kernel.indptr).max(initial=1))
    return cmdp.H * (width + 4) + int(np.count_nonzero(cmdp.mu)) + 4 * cmdp.N + 16
