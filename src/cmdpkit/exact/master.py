"""The master problem of column generation: the best mixture of the policies found so far, and which prices to try next.

The problem is a small LP, which is solved in one of three ways. With one constraint it is the upper hull of points in
the plane. With several constraints HiGHS solves it, and keeps the program between rounds. Where HiGHS fails or misses
a threshold, the same program is solved in exact arithmetic, which always succeeds.

Every price gives a valid bound, and a policy that may join the pool: a bad guess costs a round and nothing else. The
prices of the master are where the tangents of the Lagrangian bound intersect. With few policies they are the right
choice. In a model with many states the bound is almost a smooth function of the prices, and its minimum is mostly found
in fewer rounds by methods that are made for smooth functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cmdpkit.exact.highs import INFINITY, answer, configured, empty_maximisation, run
from cmdpkit.exact.rational import best_mixture, farthest_mixture
from cmdpkit.model.tolerances import FEASIBLE
from cmdpkit.model.transitions import FloatArray

if TYPE_CHECKING:
    from cmdpkit.exact.columns import PolicyColumn  # which itself needs the master from here

CLEARLY = 1e-6  # a point that misses the bound by less, scaled, does not tell the slope
STEPS = 2_000  # of the simplex method, in one round; a program with so few rows takes a few dozen
MIN_AVERAGED = 3  # constraints from which on averaged prices save rounds
MIN_DIFFERENT = 100  # decisions in which two policies differ, from which on a price in between is interpolated
NEAR = 0.1  # a guess this close to an end of the interval, as a share of its length, is moved away from that end
LEAST = 0.01  # no guess is closer to an end than this
MAX_GAP_LEFT = 0.9  # a round at other prices than the master's that leaves a larger share of the gap has failed


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


class Trials:
    """The prices of each round of one search: after a failure, those of the master; after N + 1 failures always."""

    def __init__(self) -> None:
        self.guessed = False  # whether the prices of this round are others than the master's
        self.failed, self.failures, self.gap = False, 0, np.inf

    def prices(self, mixed: Sequence[PolicyColumn], shares: FloatArray, lam: FloatArray, rho: FloatArray) -> FloatArray:
        """Prices [N] of the next round; `trial_prices` describes the arguments."""
        guess = not self.failed and self.failures <= len(lam)
        prices = trial_prices(mixed, shares, lam, rho) if guess else lam
        self.guessed = prices is not lam
        return prices

    def judge(self, fresh: bool, gap: float) -> None:
        """Learn whether the round found a new policy, and the gap that it left."""
        self.failed = self.guessed and (not fresh or gap > MAX_GAP_LEFT * self.gap)
        self.failures += self.failed
        self.gap = gap


def trial_prices(mixed: Sequence[PolicyColumn], shares: FloatArray, lam: FloatArray, rho: FloatArray) -> FloatArray:
    """Prices [N] to try next: those of the master, lam, unless others are likely to be better.

    The best mixture so far that meets the thresholds rho [N] has the policies ``mixed`` with these shares.
    """
    if not all(column.weights[0] > 0 for column in mixed):
        return lam
    if len(lam) >= MIN_AVERAGED:
        return averaged(mixed, shares, lam)
    if len(lam) != 1 or len(mixed) != 2 or mixed[0].differences(mixed[1]) < MIN_DIFFERENT:
        return lam
    low, high = sorted(Tangent(float(c.weights[1] / c.weights[0]), c.v, float(c.w[0])) for c in mixed)
    return np.array([between(low, high, float(rho[0]))]) if low.price < high.price else lam


def averaged(mixed: Sequence[PolicyColumn], shares: FloatArray, lam: FloatArray) -> FloatArray:
    """Halfway between the prices lam of the master and those at which the policies of its mixture were found, [N].

    The prices of the master jump while few policies are known. With several constraints this takes many rounds; the
    average of the prices at which the policies of the mixture were found lies closer to the optimal ones.
    """
    mean: FloatArray = sum(share * c.weights[1:] / c.weights[0] for share, c in zip(shares, mixed, strict=True))
    return (lam + mean) / 2


class Tangent(NamedTuple):
    """What a policy says about the Lagrangian bound of a model with one constraint, as a function of the price."""

    price: float  # at which the policy is best
    v: float  # its expected total reward
    w: float  # its expected total of the constraint's signal

    def bound(self, rho: float) -> float:
        """The Lagrangian bound at that price, for the threshold rho."""
        return self.v + self.price * (self.w - rho)


def between(low: Tangent, high: Tangent, rho: float) -> float:
    """The price between those of two policies at which the Lagrangian bound is likely to be smallest.

    ``low`` misses the threshold rho and ``high`` meets it, so the bound falls at the one price and rises at the other.
    The guess is where the cubic polynomial with the same two values and slopes is smallest. If that is close to one of
    the policies, it is moved to twice the distance or to LEAST: then the true minimum is likely to lie between that
    policy and the guess, and the interval becomes short from both sides.
    """
    length = high.price - low.price
    falls, rises = low.w - rho, high.w - rho
    middle = falls + rises + 3 * (low.bound(rho) - high.bound(rho)) / length
    root = math.sqrt(max(0.0, middle * middle - falls * rises))
    share = 1 - (rises + root - middle) / (rises - falls + 2 * root)
    if share < NEAR:
        share = max(2 * share, LEAST)
    elif share > 1 - NEAR:
        share = 1 - max(2 * (1 - share), LEAST)
    return low.price + share * length
