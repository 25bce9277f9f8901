"""What policies can collect from the start: the natural unit of every signal, and how exactly its totals are known.

Two backward inductions per signal give the least and the largest total that any policy has. What is stored in states
that nobody reaches has no influence on them, and a large number that is reached with a small probability counts with
that probability. A third induction, on absolute values, bounds the rounding error of every total that is computed.

The *tolerance* of a bound is FEASIBLE times the range of its signal's total, plus four times the rounding error. It is
the only tolerance there is: the unit is chosen such that it is FEASIBLE in scaled totals, for every signal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import njit
from cmdpkit.model.transitions import FloatArray

FEASIBLE = 1e-10  # shortfall of a utility that still counts as meeting its bound, in scaled totals
ROUNDOFF = 2.0**-53  # relative error of one floating-point operation


class Units(NamedTuple):
    """Of the reward and the N utilities, in that order; utilities in the sense of `CMDP.g`."""

    worst: FloatArray  # [1+N], the least total of any policy
    best: FloatArray  # [1+N], the largest
    rounding: FloatArray  # [1+N], no total of a policy is computed with a larger error
    magnitude: FloatArray  # [1+N], the largest total of the signal's absolute value

    @property
    def tolerance(self) -> FloatArray:
        """[1+N]: a bound that is missed by no more than this counts as met; of a signal that is always 0, FEASIBLE."""
        allowed = FEASIBLE * (self.best - self.worst) + 4 * self.rounding
        return np.where(allowed > 0, allowed, FEASIBLE)

    @property
    def unit(self) -> FloatArray:
        """[1+N]: totals less `worst` are divided by this; at least the range, so that scaled totals are in 0..1."""
        unit: FloatArray = self.tolerance / FEASIBLE
        return unit

    def of(self, constraints: list[int]) -> Units:
        """The same for the reward and some of the constraints."""
        rows = [0, *(1 + n for n in constraints)]
        return Units(*(x[rows] for x in self))

    def gap_rounding(self, lam: FloatArray, rho: FloatArray) -> float:
        """How wrong the difference between a Lagrangian bound at prices lam [N] and a policy's value can be."""
        share = self.rounding / np.where(self.magnitude > 0, self.magnitude, 1.0)
        return float(2 * self.rounding[0] + lam @ self.rounding[1:] + lam @ (share[1:] * np.abs(rho)))


def units_of(cmdp: CMDP) -> Units:
    """Ranges of all totals by backward induction, and their rounding errors by counting operations."""
    c = cmdp.compact
    signals = (c.r, *c.g)
    found = np.zeros((len(signals), 3))
    for row, x in zip(found, signals, strict=True):
        _extremes(c.indptr, c.successors, c.prob, x, c.allowed, c.mu, cmdp.H, row)
    worst, best, magnitude = found.T.copy()
    return Units(worst, best, operations(cmdp) * ROUNDOFF * magnitude, magnitude)


def operations(cmdp: CMDP) -> int:
    """How many roundings a term of a total goes through at most.

    One product and one sum for each of a row's successors at every step, the sum over the actions of a decision that
    draws (there are at most N of them), the start distribution, and the few that combine signals or change units.
    """
    width = int(np.diff(cmdp.kernel.indptr).max(initial=1))
    return cmdp.H * (width + 4) + int(np.count_nonzero(cmdp.mu)) + 4 * cmdp.N + 16


@njit(cache=True, nogil=True)
def _extremes(indptr, successors, prob, x, allowed, mu, H, found):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill found with the least and the largest total of x from the start, and the largest total of |x|."""
    _, S, A = allowed.shape
    T = (len(indptr) - 1) // (S * A)
    V = np.zeros((2, S, 3))
    for h in range(H - 1, -1, -1):
        now, then = V[h % 2], V[(h + 1) % 2]
        for s in range(S):
            low, high, size = np.inf, -np.inf, 0.0
            for a in range(A):
                if not allowed[h % len(allowed), s, a]:
                    continue
                here = x[h % len(x), s, a]
                least, most, total = here, here, abs(here)
                if h < H - 1:
                    row = ((h % T) * S + s) * A + a
                    for i in range(indptr[row], indptr[row + 1]):
                        p, s_next = prob[i], successors[i]
                        least += p * then[s_next, 0]
                        most += p * then[s_next, 1]
                        total += p * then[s_next, 2]
                low, high, size = min(low, least), max(high, most), max(size, total)
            now[s, 0], now[s, 1], now[s, 2] = low, high, size
    found[:] = 0.0
    for s in range(S):
        if mu[s] > 0.0:
            for i in range(3):
                found[i] += mu[s] * V[0, s, i]
