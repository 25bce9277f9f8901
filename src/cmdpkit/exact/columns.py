"""Column generation: a constrained MDP through its deterministic policies.

Every policy is a mixture of deterministic ones, so the problem is a small LP over their values (v_j, w_j):

    maximise sum_j alpha_j v_j   subject to   sum_j alpha_j w_j >= rho,  sum_j alpha_j = 1,  alpha >= 0.

Its columns are found when needed (Dantzig-Wolfe): with multipliers lam, backward induction on r + lam . g returns the
policy with the largest v + lam . w, hence also the Lagrangian bound max_pi v + lam . (w - rho) >= v*. When that policy
improves on nothing in the pool, the bound is the optimum. Totals are shifted and divided by `Columns.units`, so
tolerances mean the same for all models.

Only the induction knows the dynamics: `Pool` has them from a model, other `Columns` may choose them too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.master import Master, hull
from cmdpkit.exact.units import FEASIBLE, Units, units_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import njit
from cmdpkit.model.transitions import FloatArray

Choice = NDArray[np.int16]  # [H, S], action index; A <= 32767 is checked

CONVERGED = 1e-12  # bound - master, in scaled totals
LOWERED = FEASIBLE / 32  # how far thresholds that nobody reaches are lowered beyond the best that can be reached
ROUNDS = 10_000


class Column(NamedTuple):
    """A deterministic policy and its start values, scaled."""

    choice: Choice
    v: float
    w: FloatArray  # [N]
    weights: FloatArray  # [1 + N], of reward and utilities: the objective it is best for


class Optimum(NamedTuple):
    """What the master LP says: weights of the columns, multipliers, its value, and the proved upper bound."""

    weights: FloatArray  # [pool]
    lam: FloatArray  # [N], scaled
    value: float
    bound: float
    greedy: Choice  # the last policy priced: best everywhere for r + lam . g
    rho: FloatArray  # [N], the thresholds it meets, scaled


class Columns(ABC):
    """The policies found so far; they serve every bound rho, so a sweep over bounds is warm-started.

    r [T, S, A] and g [N, T, S, A] have 1 or H steps each. Scaled totals are (total - offsets) / units.
    """

    stalled = 1e-10  # a larger difference of bound and master that no new policy explains: the master was not exact
    band: float = FEASIBLE  # a policy that misses a threshold by this much counts as reaching it, in scaled totals

    def __init__(self, r: FloatArray, g: FloatArray, H: int) -> None:
        _, S, A = r.shape
        if np.iinfo(np.int16).max < A:
            raise CmdpkitError(f"the model has {A} actions, column generation takes at most {np.iinfo(np.int16).max}")
        self.H, self.S, self.A, self.N = H, S, A, len(g)
        self.r, self.g = r, g
        self.units = np.array([_unit(x, H) for x in (r, *g)])  # [1 + N]
        self.offsets = np.zeros(1 + self.N)
        self.noise = np.zeros(1 + self.N)  # scaled totals are known no better than this
        self.columns: list[Column] = []
        steps = max(len(r), g.shape[1] if len(g) else 1)
        self._objective = np.zeros((steps, S, A))
        self._master: Master | None = None

    @abstractmethod
    def _induct(self, objective: FloatArray, choice: Choice, totals: FloatArray) -> None:
        """Fill choice [H, S] with the best policy for `objective` and totals with its (objective, v, w_1 .. w_N)."""

    @property
    def v(self) -> FloatArray:
        """[pool]"""
        return np.array([c.v for c in self.columns])

    @property
    def w(self) -> FloatArray:
        """[pool, N]"""
        return np.array([c.w for c in self.columns]).reshape(len(self.columns), self.N)

    def price(self, weight_r: float, lam: FloatArray) -> tuple[float, Column]:
        """The policy with the largest weight_r * v + lam . w, and that value; the policy joins the pool."""
        total, column = self.respond(np.concatenate(([weight_r], lam)))
        self.columns.append(column)
        return total, column

    def respond(self, weights: FloatArray) -> tuple[float, Column]:
        """The policy with the largest weights . (v, w), weights [1 + N], and that value; the pool stays as it is."""
        per_unit = weights / self.units
        total, choice, values = self.greedy(per_unit)
        values = (values - self.offsets) / self.units
        return total - float(per_unit @ self.offsets), Column(choice, float(values[0]), values[1:], weights)

    def greedy(self, weights: FloatArray) -> tuple[float, Choice, FloatArray]:
        """The largest weights . (v, w) in the user's units, the policy that has it, and its v, w [1 + N]."""
        np.multiply(self.r, weights[0], out=self._objective)
        for n, x in enumerate(self.g):
            if weights[1 + n]:
                self._objective += weights[1 + n] * x
        choice = np.zeros((self.H, self.S), dtype=np.int16)
        totals = np.zeros(2 + self.N)
        self._induct(self._objective, choice, totals)
        return float(totals[0]), choice, totals[1:]

    def scaled(self, rho: FloatArray) -> FloatArray:
        """Thresholds in the pool's units."""
        scaled: FloatArray = (rho - self.offsets[1:]) / self.units[1:]
        return scaled

    def maximise(self, rho: FloatArray) -> Optimum:
        """The optimum under thresholds rho (scaled); the pool must hold a feasible mixture (`reach` sees to that)."""
        if not self.columns:
            self.price(1.0, np.zeros(self.N))
        exactly = False
        for _ in range(ROUNDS):
            weights, lam, value = self._solve_master(rho, exactly)
            total, column = self.price(1.0, lam)
            bound = total - float(lam @ rho)
            converged = bound - value <= CONVERGED + self.noise[0] + float(self.noise[1:] @ lam)
            if not (converged or self._known(column)):
                continue
            self.columns.pop()
            if converged or exactly or self.N < 2 or bound - value <= self.stalled:
                break
            exactly = True
        return Optimum(weights, lam, value, bound, column.choice, rho)

    def reach(self, rho: FloatArray, per: FloatArray, enough: float = np.inf) -> tuple[float, FloatArray, FloatArray]:
        """Maximise t with w_n >= rho_n + t per_n for all n: how far all bounds can be exceeded at once.

        Returns t, the weights of a mixture that reaches it, and multipliers y (y . per = 1) with
        max_pi y . (w - rho) = t, which prove that no policy does better. Stops early once t >= enough.
        """
        N = self.N
        if N == 1:
            _, column = self.price(0.0, np.ones(1))
            y = 1.0 / per
            return float((column.w[0] - rho[0]) / per[0]), np.eye(1, len(self.columns), len(self.columns) - 1)[0], y
        if not self.columns:
            self.price(1.0, np.zeros(N))
        t, weights, y, exactly = -np.inf, np.zeros(0), np.full(N, 1.0 / N) / per, False
        for _ in range(ROUNDS):
            total, column = self.price(0.0, y)
            bound = total - float(y @ rho)
            if bound - t <= CONVERGED + float(self.noise[1:] @ y) or t >= enough:
                break
            if np.isfinite(t) and self._known(column):
                if exactly or bound - t <= self.stalled:
                    break
                exactly = True
            weights, y, t = self._master_lp().exceed(self.w, rho, per, exactly=exactly)
        return t, weights, y

    def _known(self, column: Column) -> bool:
        """Whether another column of the pool has the same values: then nothing new can come."""
        same = np.abs(self.v[:-1] - column.v) < 1e-15
        return bool((same & (np.abs(self.w[:-1] - column.w).max(axis=1, initial=0.0) < 1e-15)).any())

    def _solve_master(self, rho: FloatArray, exactly: bool) -> tuple[FloatArray, FloatArray, float]:
        if self.N == 0:
            best = int(self.v.argmax())
            return np.eye(1, len(self.columns), best)[0], np.zeros(0), float(self.v[best])
        if self.N == 1:
            return hull(self.w[:, 0], self.v, float(rho[0]), self.band)
        return self._master_lp().maximise(self.v, self.w, rho, exactly=exactly)

    def _master_lp(self) -> Master:
        if self._master is None:
            self._master = Master(self.N)
        return self._master


class Pool(Columns):
    """Policies of a known model, in units of what its policies can collect; ``ranges`` says what that is.

    Thresholds that are missed by up to ``band`` are lowered to what can be reached. The band is smaller than the
    tolerance, so that what a policy misses and the rounding of its evaluation stay within the tolerance together.
    """

    stalled = CONVERGED

    def __init__(self, cmdp: CMDP, ranges: Units | None = None, band: float = FEASIBLE / 2) -> None:
        super().__init__(cmdp.compact.r, cmdp.compact.g, cmdp.H)
        self.cmdp, self.band = cmdp, band
        self.ranges = units_of(cmdp) if ranges is None else ranges
        self.units, self.offsets = self.ranges.unit, self.ranges.worst
        self.noise = self.ranges.rounding / (2 * self.units)

    def _induct(self, objective: FloatArray, choice: Choice, totals: FloatArray) -> None:
        m = self.cmdp.compact
        _greedy(m.indptr, m.successors, m.prob, objective, m.r, m.g, m.allowed, m.mu, choice, totals)

    def thresholds(self, rho: FloatArray) -> FloatArray | None:
        """rho (scaled) if some policy meets it; None if none does, not even up to the tolerance.

        Thresholds that are missed, but by less than the tolerance, are lowered to what can be reached. Afterwards the
        pool holds a mixture that meets what is returned.
        """
        if not self.N:
            return rho
        t, _, _ = self.reach(rho, np.ones(self.N), enough=0.0)
        if t < -self.band:
            return None
        return rho if t >= 0 else rho + t - LOWERED

    def optimum(self, rho: FloatArray) -> Optimum | None:
        """The optimum under thresholds rho (scaled), or None if no policy meets them."""
        possible = self.thresholds(rho)
        return None if possible is None else self.maximise(possible)

    def value(self, best: Optimum) -> float:
        """The optimal value in the user's units."""
        return float(best.value * self.units[0] + self.offsets[0])

    def slack(self, rho: FloatArray) -> float:
        """max over mixtures of min_n (w_n - rho_n), with thresholds rho and the answer in the user's units."""
        smallest = float(self.units[1:].min())
        return smallest * self.reach(self.scaled(rho), smallest / self.units[1:])[0]


def _unit(x: FloatArray, H: int) -> float:
    largest = float(np.abs(x).max(initial=0.0))
    return H * largest if largest > 0 else 1.0


@njit(cache=True, nogil=True)
def _greedy(  # type: ignore[no-untyped-def]
    indptr, successors, prob, objective, r, g, allowed, mu, choice, totals
):
    """Backward induction on `objective`; fills choice [H, S] and totals = (objective, reward, utilities) at the start.

    The values of reward and utilities under the greedy choice are carried along, so no second pass is needed.
    """
    H, S = choice.shape
    A = allowed.shape[2]
    N = len(g)
    T = (len(indptr) - 1) // (S * A)
    V = np.zeros(S)
    V_next = np.zeros(S)
    X = np.zeros((S, 1 + N))
    X_next = np.zeros((S, 1 + N))
    for h in range(H - 1, -1, -1):
        V, V_next = V_next, V
        X, X_next = X_next, X
        ho, hr, ha = h % len(objective), h % len(r), h % len(allowed)
        hg = h % g.shape[1] if N > 0 else 0
        for s in range(S):
            best = -1
            best_value = -np.inf
            for a in range(A):
                if not allowed[ha, s, a]:
                    continue
                value = objective[ho, s, a]
                if h < H - 1:
                    row = ((h % T) * S + s) * A + a
                    for i in range(indptr[row], indptr[row + 1]):
                        value += prob[i] * V_next[successors[i]]
                if value > best_value:
                    best_value = value
                    best = a
            choice[h, s] = best
            V[s] = best_value
            X[s, 0] = r[hr, s, best]
            for n in range(N):
                X[s, 1 + n] = g[n, hg, s, best]
            if h < H - 1:
                row = ((h % T) * S + s) * A + best
                for i in range(indptr[row], indptr[row + 1]):
                    p = prob[i]
                    s_next = successors[i]
                    for n in range(1 + N):
                        X[s, n] += p * X_next[s_next, n]
    totals[:] = 0.0
    for s in range(S):
        if mu[s] > 0.0:
            totals[0] += mu[s] * V[s]
            for n in range(1 + N):
                totals[1 + n] += mu[s] * X[s, n]
