"""Column generation: a constrained MDP through its deterministic policies.

Every policy is a mixture of deterministic ones, so the problem is a small LP over their values (v_j, w_j):

    maximise sum_j alpha_j v_j   subject to   sum_j alpha_j w_j >= rho,  sum_j alpha_j = 1,  alpha >= 0.

Its columns are found when needed (Dantzig-Wolfe): with multipliers lam, backward induction on r + lam . g returns the
policy with the largest v + lam . w, hence also the Lagrangian bound max_pi v + lam . (w - rho) >= v*. When that policy
improves on nothing in the pool, the bound is the optimum. N = 1 needs no LP at all: the optimum lies on the upper hull
of the points (w_j, v_j) at rho. Totals are divided by `Columns.units`, so tolerances mean the same for all models.

Only the induction knows the dynamics: `Pool` has them from a model, other `Columns` may choose them too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import njit
from cmdpkit.model.transitions import FloatArray

Choice = NDArray[np.int16]  # [H, S], action index; A <= 32767 is checked

CONVERGED = 1e-12  # bound - master, in scaled totals
FEASIBLE = 1e-10  # shortfall of a utility that still counts as reaching its bound, in scaled totals
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


class Columns(ABC):
    """The policies found so far; they serve every bound rho, so a sweep over bounds is warm-started.

    r [T, S, A] and g [N, T, S, A] have 1 or H steps each.
    """

    def __init__(self, r: FloatArray, g: FloatArray, H: int) -> None:
        _, S, A = r.shape
        if np.iinfo(np.int16).max < A:
            raise CmdpkitError(f"the model has {A} actions, column generation takes at most {np.iinfo(np.int16).max}")
        self.H, self.S, self.A, self.N = H, S, A, len(g)
        self.r, self.g = r, g
        self.units = np.array([_unit(x, H) for x in (r, *g)])  # [1 + N]
        self.columns: list[Column] = []
        steps = max(len(r), g.shape[1] if len(g) else 1)
        self._objective = np.zeros((steps, S, A))
        self._master: _Master | None = None

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
        np.multiply(self.r, per_unit[0], out=self._objective)
        for n, x in enumerate(self.g):
            if weights[1 + n]:
                self._objective += per_unit[1 + n] * x
        choice = np.zeros((self.H, self.S), dtype=np.int16)
        totals = np.zeros(2 + self.N)
        self._induct(self._objective, choice, totals)
        return float(totals[0]), Column(choice, totals[1] / self.units[0], totals[2:] / self.units[1:], weights)

    def scaled(self, rho: FloatArray) -> FloatArray:
        """Thresholds in the pool's units."""
        scaled: FloatArray = rho / self.units[1:]
        return scaled

    def maximise(self, rho: FloatArray) -> Optimum:
        """The optimum under thresholds rho (scaled); the pool must hold a feasible mixture (`reach` sees to that)."""
        if not self.columns:
            self.price(1.0, np.zeros(self.N))
        for _ in range(ROUNDS):
            weights, lam, value = self._solve_master(rho)
            total, column = self.price(1.0, lam)
            bound = total - float(lam @ rho)
            if bound - value <= CONVERGED or self._known(column):
                self.columns.pop()
                break
        return Optimum(weights, lam, value, bound, column.choice)

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
        t, weights, y = -np.inf, np.zeros(0), np.full(N, 1.0 / N) / per
        for _ in range(ROUNDS):
            total, column = self.price(0.0, y)
            bound = total - float(y @ rho)
            if bound - t <= CONVERGED or t >= enough or (np.isfinite(t) and self._known(column)):
                break
            weights, y, t = self._master_lp().exceed(self, rho, per)
        return t, weights, y

    def _known(self, column: Column) -> bool:
        """Whether another column of the pool has the same values: then nothing new can come."""
        same = np.abs(self.v[:-1] - column.v) < 1e-15
        return bool((same & (np.abs(self.w[:-1] - column.w).max(axis=1, initial=0.0) < 1e-15)).any())

    def _solve_master(self, rho: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        if self.N == 0:
            best = int(self.v.argmax())
            return np.eye(1, len(self.columns), best)[0], np.zeros(0), float(self.v[best])
        if self.N == 1:
            return _hull(self.w[:, 0], self.v, float(rho[0]))
        return self._master_lp().maximise(self, rho)

    def _master_lp(self) -> _Master:
        if self._master is None:
            self._master = _Master(self.N)
        return self._master


class Pool(Columns):
    """Policies of a known model."""

    def __init__(self, cmdp: CMDP) -> None:
        super().__init__(cmdp.compact.r, cmdp.compact.g, cmdp.H)
        self.cmdp = cmdp

    def _induct(self, objective: FloatArray, choice: Choice, totals: FloatArray) -> None:
        m = self.cmdp.compact
        _greedy(m.indptr, m.successors, m.prob, objective, m.r, m.g, m.allowed, m.mu, choice, totals)


def _unit(x: FloatArray, H: int) -> float:
    largest = float(np.abs(x).max(initial=0.0))
    return H * largest if largest > 0 else 1.0


def _hull(w: FloatArray, v: FloatArray, rho: float) -> tuple[FloatArray, FloatArray, float]:
    """The one-constraint master in closed form: the upper hull of the points (w, v) to the right of rho."""
    weights = np.zeros(len(w))
    met = w >= rho - FEASIBLE
    top = np.flatnonzero(met)[v[met].argmax()]
    weights[top] = 1.0
    below = np.flatnonzero(~met & (v > v[top]))
    if not len(below):
        return weights, np.zeros(1), float(v[top])
    above = np.flatnonzero(met)
    slopes = (v[below, None] - v[None, above]) / (w[None, above] - w[below, None])
    reached = v[above] + np.maximum(slopes, 0.0).max(axis=0) * np.maximum(w[above] - rho, 0.0)
    j = int(reached.argmax())
    # Steepest line from the chosen policy: at w[hi] = rho all lines reach the same value, only this one bounds v*.
    i = int(slopes[:, j].argmax())
    lo, hi = below[i], above[j]
    share = min(1.0, max(0.0, (rho - w[lo]) / (w[hi] - w[lo])))
    weights[top] = 0.0
    weights[lo], weights[hi] = 1 - share, share
    return weights, np.array([max(0.0, float(slopes[i, j]))]), float(weights @ v)


class _Master:
    """The master LP in HiGHS, kept between rounds: new columns are added, the basis is reused.

    Rows 0..N-1: sum_j alpha_j w_jn - per_n t >= rho_n; row N: sum_j alpha_j = 1. Column 0 is t, fixed at 0 while the
    value is maximised. Numbers are blown up by `BLOW` because HiGHS's smallest tolerance is 1e-10 absolute.
    """

    BLOW = 1e3

    def __init__(self, N: int) -> None:
        self.N, self.size = N, 0
        self.highs = highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("presolve", "off")
        highs.setOptionValue("solver", "simplex")
        highs.setOptionValue("simplex_strategy", 4)  # primal: a new column leaves the old basis primal feasible
        highs.setOptionValue("primal_feasibility_tolerance", 1e-10)
        highs.setOptionValue("dual_feasibility_tolerance", 1e-10)
        highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for _ in range(N):
            highs.addRow(0.0, highspy.kHighsInf, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        highs.addRow(1.0, 1.0, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
        self.rows = np.arange(N + 1, dtype=np.int32)
        highs.addCol(0.0, 0.0, 0.0, N, self.rows[:N], -np.ones(N))
        self.costs = np.zeros(0)

    def maximise(self, pool: Columns, rho: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Weights, lam, value of the best mixture with w >= rho."""
        self._update(pool, rho)
        self.highs.changeColBounds(0, 0.0, 0.0)
        self._set_costs(np.concatenate(([0.0], self.BLOW * pool.v)))
        weights, duals = self._run()
        return weights, duals[: self.N], float(weights @ pool.v)

    def exceed(self, pool: Columns, rho: FloatArray, per: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Weights, y, t of the mixture that exceeds all bounds by the most."""
        self._update(pool, rho)
        for n in range(self.N):
            self.highs.changeCoeff(n, 0, -self.BLOW * float(per[n]))
        self.highs.changeColBounds(0, -highspy.kHighsInf, highspy.kHighsInf)
        self._set_costs(np.concatenate(([self.BLOW], np.zeros(self.size))))
        weights, duals = self._run()
        y = duals[: self.N] / max(float(duals[: self.N] @ per), 1e-300)
        return weights, y, float(((weights @ pool.w - rho) / per).min())

    def _update(self, pool: Columns, rho: FloatArray) -> None:
        for column in pool.columns[self.size :]:
            values = np.append(self.BLOW * column.w, 1.0)
            self.highs.addCol(0.0, 0.0, highspy.kHighsInf, self.N + 1, self.rows, values)
        self.size = len(pool.columns)
        for n in range(self.N):
            self.highs.changeRowBounds(n, self.BLOW * float(rho[n]), highspy.kHighsInf)

    def _set_costs(self, costs: FloatArray) -> None:
        self.highs.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)

    def _run(self) -> tuple[FloatArray, FloatArray]:
        self.highs.run()
        status = self.highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"the master LP ended as {self.highs.modelStatusToString(status)}")
        solution = self.highs.getSolution()
        weights = np.maximum(np.array(solution.col_value)[1:], 0.0)
        return weights / weights.sum(), np.maximum(-np.array(solution.row_dual), 0.0)


@njit(cache=True, nogil=True)
def _greedy(  # type: ignore[no-untyped-def]  # pragma: no cover
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
