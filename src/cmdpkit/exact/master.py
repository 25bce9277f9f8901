"""The master problem of column generation: the best mixture of the policies found so far.

The problem is a small LP, which is solved in one of three ways. With one constraint it is the upper hull of points in
the plane. With several constraints HiGHS solves it, and keeps the program between rounds. Where HiGHS fails or misses
a threshold, the same program is solved in exact arithmetic, which always succeeds.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.exact.highs import INFINITY, answer, configured, empty_maximisation, run
from cmdpkit.exact.rational import best_mixture, farthest_mixture
from cmdpkit.model.transitions import FloatArray
from cmdpkit.tolerances import FEASIBLE

CLEARLY = 1e-6  # a point that misses the bound by less, scaled, does not tell the slope
STEPS = 2_000  # of the simplex method, in one round; a program with so few rows takes a few dozen


def hull(w: FloatArray, v: FloatArray, rho: float, band: float) -> tuple[FloatArray, FloatArray, float]:
    """The one-constraint master in closed form: the upper hull of the points (w, v) to the right of rho.

    Points that miss rho by no more than `band` count as reaching it. Returns weights, the multiplier and the value.
    """
    weights = np.zeros(len(w))
    met = w >= rho - band
    top = np.flatnonzero(met)[v[met].argmax()]
    weights[top] = 1.0
    below = np.flatnonzero(~met & (v > v[top]))
    if not len(below):
        return weights, np.zeros(1), float(v[top])
    above = np.flatnonzero(met)
    slopes = (v[below, None] - v[None, above]) / (w[None, above] - w[below, None])
    reached = v[above] + np.maximum(slopes, 0.0).max(axis=0) * np.maximum(w[above] - rho, 0.0)
    j = int(reached.argmax())
    # Take the steepest line from the chosen policy. If w[hi] = rho, all lines reach the same value at rho, but only the
    # slope of the steepest one gives an upper bound of v*.
    i = int(slopes[:, j].argmax())
    lo, hi = below[i], above[j]
    share = min(1.0, max(0.0, (rho - w[lo]) / (w[hi] - w[lo])))
    weights[top] = 0.0
    weights[lo], weights[hi] = 1 - share, share
    return weights, np.array([max(0.0, float(slopes[i, j]))]), float(weights @ v)


def looser_price(w: FloatArray, v: FloatArray, rho: float, value: float) -> float:
    """The smallest price of one constraint at which none of the points (w, v) is better than `value` at rho.

    At a kink of the trade-off every price between the slopes on both sides proves the optimum. This one is the slope
    on the side of looser bounds, as far as the points tell: what a looser bound would bring.
    """
    below = w < rho - CLEARLY
    slopes = (v[below] - value) / (rho - w[below])
    return max(0.0, float(slopes.max(initial=0.0)))


class Master:
    """The master LP in HiGHS, kept between rounds: new columns are added, the basis is reused.

    Rows 0..N-1: sum_j alpha_j w_jn - per_n t >= rho_n; row N: sum_j alpha_j = 1. Column 0 is t, fixed at 0 while the
    value is maximised. Numbers are multiplied by `MAGNIFICATION`, because the smallest absolute tolerance of HiGHS is
    1e-10. With ``exactly`` HiGHS is not asked, and the program is solved in fractions.
    """

    MAGNIFICATION = 1e3

    def __init__(self, N: int) -> None:
        self.N, self.size = N, 0
        self.highs = configured(presolve=False, primal=True, iterations=STEPS)
        empty_maximisation(self.highs, (np.append(np.zeros(N), 1.0), np.append(np.full(N, INFINITY), 1.0)))
        self.rows = np.arange(N + 1, dtype=np.int32)
        self.highs.addCol(0.0, 0.0, 0.0, N, self.rows[:N], -np.ones(N))

    def maximise(
        self, v: FloatArray, w: FloatArray, rho: FloatArray, *, exactly: bool
    ) -> tuple[FloatArray, FloatArray, float]:
        """Weights, lam, value of the best mixture with utilities at least rho; v [M], w [M, N]."""
        found = None
        if not exactly:
            self._update(w, rho)
            self.highs.changeColBounds(0, 0.0, 0.0)
            self._set_costs(np.concatenate(([0.0], self.MAGNIFICATION * v)))
            found = self._run()
        if found is None or (found[0] @ w - rho).min() < -FEASIBLE / 4:
            found = best_mixture(v, w, rho)
        weights, lam = found
        return weights, lam, float(weights @ v)

    def exceed(
        self, w: FloatArray, rho: FloatArray, per: FloatArray, *, exactly: bool
    ) -> tuple[FloatArray, FloatArray, float]:
        """Weights, y and t of the mixture with the largest t such that its utilities are at least rho + t per."""
        found = None
        if not exactly:
            self._update(w, rho)
            for n in range(self.N):
                self.highs.changeCoeff(n, 0, -self.MAGNIFICATION * float(per[n]))
            self.highs.changeColBounds(0, -INFINITY, INFINITY)
            self._set_costs(np.concatenate(([self.MAGNIFICATION], np.zeros(self.size))))
            found = self._run()
        if found is None or not found[1] @ per > 0:
            return farthest_mixture(w, rho, per)
        weights, duals = found
        y = duals / max(float(duals @ per), 1e-300)
        return weights, y, float(((weights @ w - rho) / per).min())

    def _update(self, w: FloatArray, rho: FloatArray) -> None:
        for row in w[self.size :]:
            values = np.append(self.MAGNIFICATION * row, 1.0)
            self.highs.addCol(0.0, 0.0, INFINITY, self.N + 1, self.rows, values)
        self.size = len(w)
        for n in range(self.N):
            self.highs.changeRowBounds(n, self.MAGNIFICATION * float(rho[n]), INFINITY)

    def _set_costs(self, costs: FloatArray) -> None:
        self.highs.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)

    def _run(self) -> tuple[FloatArray, FloatArray] | None:
        """Weights and multipliers [N]; None if HiGHS finds no optimum, neither from the old basis nor from scratch."""
        if run(self.highs) != "optimal":
            self.highs.clearSolver()
            if run(self.highs) != "optimal":
                return None
        values, duals = answer(self.highs)
        weights = np.maximum(values[1:], 0.0)
        total = weights.sum()
        if not (total > 0 and np.isfinite(duals).all()):
            return None
        return weights / total, np.maximum(-duals[: self.N], 0.0)
