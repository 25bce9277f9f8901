"""Column generation over stationary policies: the master problem and its loop.

The problem is a small linear program over the values (v_j, w_j) of columns, found when needed: with multipliers lam,
pricing returns columns for r + lam . g and an upper bound on every policy's v + lam . w, hence a bound on the optimum.
The master is that of `exact.master`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.columns import CONVERGED_GAP, EXTRA_LOWERING, MAX_ROUNDS, SAME_PRICE
from cmdpkit.exact.master import Master, hull, looser_price
from cmdpkit.exact.stationary.pricing import EPS
from cmdpkit.exact.stationary.sources import Column, Source
from cmdpkit.exact.trial_prices import Trials
from cmdpkit.exact.units import FEASIBLE
from cmdpkit.model.transitions import FloatArray

LOOSE = 0.01  # share of the gap to which pricing is done while the gap is large
EXACT_BELOW = 1e-8  # gap from which on pricing is done as well as it can be
STALLED = 1e-10  # a larger gap that no new column explains: the master was not exact
SAME = 1e-14  # columns whose scaled values differ by less are the same


class Optimum(NamedTuple):
    """A mixture of columns, the multipliers, and what was proved."""

    parts: list[tuple[float, Column]]  # positive weights and their columns
    lam: FloatArray  # [N], scaled
    bound: float  # no policy that meets the thresholds has more
    rho: FloatArray  # [N], the thresholds it meets, scaled


class Pool:
    """The columns found so far; they serve every threshold."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.N = len(source.X) - 1
        self.columns: list[Column] = []
        self._master = Master(self.N) if self.N > 1 else None

    @property
    def v(self) -> FloatArray:
        """[pool]"""
        return np.array([c.v for c in self.columns])

    @property
    def w(self) -> FloatArray:
        """[pool, N]"""
        return np.array([c.w for c in self.columns]).reshape(len(self.columns), self.N)

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, bool]:
        """The upper bound for these weights [1 + N], and whether a new column joined the pool."""
        upper, columns = self.source.price(weights, slack)
        fresh = [c for c in columns if not self._known(c)]
        self.columns += fresh
        return upper, bool(fresh)

    def maximise(self, rho: FloatArray) -> Optimum:
        """The optimum under scaled thresholds rho; the pool must hold a feasible mixture (`reach` sees to that)."""
        bound, best_prices = np.inf, np.zeros(self.N)
        if not self.columns:
            self.price(np.eye(1, 1 + self.N)[0])
        rho = self._reached(rho)
        slack = 0.0  # while the gap is large, pricing may stop early
        exactly, trials = False, Trials()  # whether the master is solved in fractions; prices to try
        weights, lam, value = self._solve_master(rho, exactly)
        for _ in range(MAX_ROUNDS):
            mixed = np.flatnonzero(weights)
            prices = trials.prices([self.columns[j] for j in mixed], weights[mixed], lam, rho)
            upper, fresh = self.price(np.append(1.0, prices), slack)
            if fresh:
                weights, lam, value = self._solve_master(rho, exactly)
            here = self._bound(upper, prices, rho)
            if here < bound:
                bound, best_prices = here, prices
            gap = bound - value
            if gap <= CONVERGED_GAP:
                break
            if not fresh and not slack and not trials.guessed:
                if exactly or self._master is None or gap <= STALLED:
                    break
                exactly = True
                weights, lam, value = self._solve_master(rho, exactly)
            trials.judge(fresh, gap)
            slack = LOOSE * gap if fresh and gap > EXACT_BELOW else 0.0
        parts = [(float(x), c) for x, c in zip(weights, self.columns, strict=False) if x > 0]
        return Optimum(parts, best_prices, bound, rho)

    def with_looser_price(self, best: Optimum) -> Optimum:
        """The same optimum with the smallest price that proves it, where there is one constraint.

        That is the slope of the trade-off on the side of looser bounds, see `looser_price`.
        """
        value = sum(share * column.v for share, column in best.parts)
        if self.N != 1 or best.bound - value > CONVERGED_GAP:
            return best
        rho = float(best.rho[0])
        for _ in range(MAX_ROUNDS):
            price = looser_price(self.w[:, 0], self.v, rho, value)
            if price >= (1 - SAME_PRICE) * best.lam[0]:
                break
            upper, fresh = self.price(np.array([1.0, price]))
            bound = self._bound(upper, np.array([price]), best.rho)
            if bound - value <= CONVERGED_GAP:
                return best._replace(bound=min(bound, best.bound), lam=np.array([price]))
            if not fresh:
                break
        return best

    def reach(self, rho: FloatArray, per: FloatArray, enough: float = np.inf) -> tuple[float, FloatArray, FloatArray]:
        """Maximise t with w_n >= rho_n + t per_n for all n; t, the mixture's weights, and multipliers y that prove it.

        Stops early once t >= enough.
        """
        if not self.columns:
            self.price(np.append(0.0, 1.0 / per))
        t, weights, y, exactly = -np.inf, np.zeros(0), np.full(self.N, 1.0 / self.N) / per, False
        for _ in range(MAX_ROUNDS):
            upper, fresh = self.price(np.append(0.0, y))
            gap = upper - float(y @ rho) - t
            if gap <= CONVERGED_GAP or t >= enough:
                break
            if np.isfinite(t) and not fresh:
                if exactly or self._master is None or gap <= STALLED:
                    break
                exactly = True
            weights, y, t = self._exceed(rho, per, exactly)
        return t, weights, y

    def _bound(self, upper: float, prices: FloatArray, rho: FloatArray) -> float:
        """The bound on the optimum that the upper bound on the objective at these prices [N] proves, rounded up."""
        return upper - float(prices @ rho) + (self.N + 2) * EPS * (abs(upper) + float(prices @ np.abs(rho)))

    def _reached(self, rho: FloatArray) -> FloatArray:
        """Thresholds rho; where the columns miss them by less than counts, what the columns reach."""
        if self._master is None:
            return rho
        t = self._exceed(rho, np.ones(self.N), False)[2]
        return rho if t >= 0 else rho + t - EXTRA_LOWERING

    def _exceed(self, rho: FloatArray, per: FloatArray, exactly: bool) -> tuple[FloatArray, FloatArray, float]:
        if self._master is not None:
            return self._master.exceed(self.w, rho, per, exactly=exactly)
        best = int(self.w[:, 0].argmax())
        weights = np.eye(1, len(self.columns), best)[0]
        return weights, 1.0 / per, float((self.w[best, 0] - rho[0]) / per[0])

    def _known(self, column: Column) -> bool:
        """Whether a column with the same values is there: then nothing new can come."""
        if not self.columns:
            return False
        same = np.abs(self.v - column.v) < SAME
        return bool((same & (np.abs(self.w - column.w).max(axis=1, initial=0.0) < SAME)).any())

    def _solve_master(self, rho: FloatArray, exactly: bool) -> tuple[FloatArray, FloatArray, float]:
        if self.N == 0:
            best = int(self.v.argmax())
            return np.eye(1, len(self.columns), best)[0], np.zeros(0), float(self.v[best])
        if self._master is None:
            return hull(self.w[:, 0], self.v, float(rho[0]), FEASIBLE)
        return self._master.maximise(self.v, self.w, rho, exactly=exactly)


def feasible(t: float) -> bool:
    """Whether bounds that can be exceeded by t (scaled) count as met."""
    return t >= -FEASIBLE
