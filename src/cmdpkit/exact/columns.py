"""Column generation: a constrained MDP through its deterministic policies, as docs/theory/exact.md explains it.

The master LP mixes the policies of a pool, with values (v_j, w_j):

    maximise sum_j alpha_j v_j   subject to   sum_j alpha_j w_j >= rho,  sum_j alpha_j = 1,  alpha >= 0.

At its multipliers lam, a `ColumnSource` finds the policy with the largest v + lam . w, and with it the Lagrangian
bound. Values are shifted and divided by `ColumnSource.units`, so that a tolerance means the same for all models. Only
the source knows what a policy is and how it is priced: over a horizon (`exact.sources`), without one
(`exact.stationary`), or together with the most favourable transition probabilities (the optimistic plans of learners).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from cmdpkit.exact.master import Master, Trials, hull, looser_price
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.tolerances import FEASIBLE
from cmdpkit.model.transitions import FloatArray

CONVERGED_GAP = 1e-12  # the search ends when upper bound and value of the master LP are this close, in scaled values
EXTRA_LOWERING = FEASIBLE / 32  # unreachable thresholds are lowered to what can be reached, and by this much more
MAX_ROUNDS = 10_000  # of column generation
MAX_IDLE_ROUNDS = 50  # the search ends after this many rounds in a row that improve neither value nor bound
SAME_PRICE = 1e-6  # prices that differ by a smaller share are the same but for rounding
SAME = 1e-15  # columns whose scaled values differ by no more than this and their errors are the same
LOOSE = 0.05  # share of the gap to which policies are priced while the gap is large, where that saves time
EXACT_BELOW = 1e-9  # gap from which on policies are priced as well as possible
MORE_EXACT = 0.5  # a known policy's values are replaced by others with less than this share of their error
ROUGH = 1e-14  # a column whose values have a larger error is evaluated again before the search ends


class Units(NamedTuple):
    """What policies can collect of the reward and the N utilities, in that order; utilities as in `CMDP.g`.

    The *tolerance* of a bound is FEASIBLE times the range of its signal's total, plus four times the rounding error. No
    other tolerance is used. The unit of each signal is chosen such that the tolerance is FEASIBLE in scaled totals.
    """

    worst: FloatArray  # [1+N], the least total of any policy
    best: FloatArray  # [1+N], the largest total of any policy
    rounding: FloatArray  # [1+N], no total of a policy is computed with a larger error
    magnitude: FloatArray  # [1+N], the largest total of the signal's absolute value

    @property
    def tolerance(self) -> FloatArray:
        """A bound violated by no more than this counts as met, [1+N]; FEASIBLE for a signal that is always 0."""
        allowed = FEASIBLE * (self.best - self.worst) + 4 * self.rounding
        return np.where(allowed > 0, allowed, FEASIBLE)

    @property
    def unit(self) -> FloatArray:
        """Scaled totals are (total - worst) / unit, [1+N]. The unit is at least the range, so they lie in 0..1."""
        return np.asarray(self.tolerance / FEASIBLE)

    def of(self, constraints: list[int]) -> Units:
        """The same numbers for the reward and some of the constraints only."""
        rows = [0, *(1 + n for n in constraints)]
        return Units(*(x[rows] for x in self))

    def gap_rounding(self, lam: FloatArray, rho: FloatArray) -> float:
        """How wrong the difference between a Lagrangian bound at prices lam [N] and a policy's value can be."""
        share = self.rounding / np.where(self.magnitude > 0, self.magnitude, 1.0)
        return float(2 * self.rounding[0] + lam @ self.rounding[1:] + lam @ (share[1:] * np.abs(rho)))


class PolicyColumn(NamedTuple):
    """A deterministic policy and its values from the start, scaled."""

    choice: Any  # [H, S], the action of each step and state; without a horizon [S], the row of each state
    v: float  # value of the reward
    w: FloatArray  # [N], values of the utilities
    weights: FloatArray  # [1 + N], of reward and utilities in the objective for which this policy was found
    objective: float  # proved: no policy has more of that objective, per weight / unit in the user's units
    error: float = 0.0  # of v and w, at most, where they were not computed as exactly as possible
    plan: Any = None  # whatever else the source needs to make a policy of it


Parts = list[tuple[float, PolicyColumn]]  # of a mixture: the share of each column


class Found(NamedTuple):
    """A policy that a source made of a mixture of columns, with its evaluation in the user's units."""

    policy: Policy | Mixture  # a mixture only where no single policy will do
    totals: FloatArray  # [1 + N], its values, as computed
    least: FloatArray  # [1 + N], its values are proved to be at least this, but for what `Units.gap_rounding` has
    attained: bool = True  # False if stationary policies only come near the optimum
    notes: tuple[str, ...] = ()  # what a user should know about the answer


class ColumnSource(Protocol):
    """Where columns come from: one criterion of one model, whatever the bounds. Scaled = (own - offsets) / units."""

    exact: bool  # whether pricing is always as good as possible, so that slack saves nothing

    @property
    def N(self) -> int:
        """Number of utilities."""

    @property
    def units(self) -> FloatArray:
        """[1 + N], of reward and utilities."""

    @property
    def offsets(self) -> FloatArray:
        """[1 + N], what a scaled value of 0 stands for."""

    @property
    def noise(self) -> FloatArray:
        """[1 + N], the rounding error that scaled values may have."""

    @property
    def best(self) -> FloatArray:
        """[N], no policy has a larger scaled utility; infinite where that is not known."""

    @property
    def first(self) -> Sequence[PolicyColumn]:
        """Columns that are known from the beginning."""

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """An upper bound on weights . (v, w) over all policies, weights [1 + N], and columns within `slack` of it."""

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """The same column with values as exact as they can be."""


class PolicySource(ColumnSource, Protocol):
    """A source that knows the ranges of its values, and can make policies of mixtures."""

    ranges: Units  # what policies can collect, and the rounding in it

    def policy(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Found:
        """A policy like the mixture at an extreme point that meets rho (scaled); `proof` where it never goes."""


class Optimum(NamedTuple):
    """The best mixture of all policies, as the master LP found it; numbers are scaled."""

    weights: FloatArray  # [pool], the share of each column in the mixture
    value: float  # of the mixture
    bound: float  # no mixture that meets the thresholds has a larger value
    proof: PolicyColumn  # the column whose objective proves the bound
    rho: FloatArray  # [N], the thresholds that the mixture meets

    @property
    def lam(self) -> FloatArray:
        """Multipliers of the thresholds, [N]."""
        return self.proof.weights[1:]


class _Idle:
    """Counts the rounds since the best value or the best bound last improved."""

    def __init__(self) -> None:
        self.rounds, self.value, self.bound = 0, -np.inf, np.inf

    def for_long(self, value: float, bound: float) -> bool:
        """Take note of a round's value and bound; whether the search has been idle for too many rounds."""
        improved = value > self.value + SAME or bound < self.bound - SAME
        self.rounds = 0 if improved else self.rounds + 1
        self.value, self.bound = max(self.value, value), min(self.bound, bound)
        return self.rounds >= MAX_IDLE_ROUNDS


From = TypeVar("From", bound=ColumnSource, covariant=True)


class Columns(Generic[From]):
    """The columns found so far, which serve every bound rho; thresholds missed by up to ``band`` count as reached."""

    def __init__(self, source: From, band: float = FEASIBLE / 2, max_unexplained_gap: float = CONVERGED_GAP) -> None:
        self.source, self.N, self.band = source, source.N, band
        self.max_unexplained_gap = max_unexplained_gap  # of a larger gap that no new policy explains, see `maximise`
        self.units, self.offsets, self.noise = source.units, source.offsets, source.noise
        self.columns: list[PolicyColumn] = list(source.first)
        self.so_far: Optimum | None = None  # the best that `maximise` had found at the end of its last round
        self._master: Master | None = None

    @property
    def v(self) -> FloatArray:
        """Scaled rewards of the columns, [pool]."""
        return np.array([c.v for c in self.columns])

    @property
    def w(self) -> FloatArray:
        """Scaled utilities of the columns, [pool, N]."""
        return np.array([c.w for c in self.columns]).reshape(len(self.columns), self.N)

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, PolicyColumn, bool]:
        """The upper bound on weights . (v, w), weights [1 + N], the column found, and whether it joined the pool."""
        upper, columns = self.source.price(weights, slack)
        fresh = [self._join(column) for column in columns]
        return upper, columns[0], any(fresh)

    def scaled(self, rho: FloatArray) -> FloatArray:
        """Thresholds in the pool's units."""
        return np.asarray((rho - self.offsets[1:]) / self.units[1:])

    def parts(self, weights: FloatArray) -> Parts:
        """The columns of a mixture with their shares."""
        return [(float(x), column) for x, column in zip(weights, self.columns, strict=False) if x > 0]

    def maximise(self, rho: FloatArray, enough: Callable[[Optimum], bool] | None = None) -> Optimum:
        """The optimum under thresholds rho (scaled); the pool must hold a feasible mixture (`reach` sees to that).

        After every round, what was found so far is kept in ``so_far``, and ``enough`` is asked whether that will do.
        """
        self.so_far = None
        if not self.columns or not self.N:
            upper, column, _ = self.price(np.eye(1, 1 + self.N)[0])
        if not self.N:
            weights, _, value = self._solve_master(rho, False)
            self.so_far = Optimum(weights, value, upper, column, rho)
            if enough is not None:
                enough(self.so_far)
            return self.so_far
        exactly, trials, slack, idle = False, Trials(), 0.0, _Idle()
        weights, lam, value = self._solve_master(rho, exactly)
        for _ in range(MAX_ROUNDS):
            mixed = np.flatnonzero(weights)
            prices = trials.prices([self.columns[j] for j in mixed], weights[mixed], lam, rho)
            upper, column, fresh = self.price(np.append(1.0, prices), slack)
            if fresh:
                weights, lam, value = self._solve_master(rho, exactly)
            best = Optimum(weights, value, upper - float(prices @ rho), column, rho)
            if self.so_far is not None and self.so_far.bound < best.bound:
                best = best._replace(bound=self.so_far.bound, proof=self.so_far.proof)
            self.so_far = best
            gap = best.bound - value
            if (enough is not None and enough(best)) or idle.for_long(value, best.bound):
                break
            if self._converged(best):
                if not self._refined(weights):
                    break
                weights, lam, value = self._solve_master(rho, exactly)
                slack = 0.0
                continue
            if not fresh and not slack and not trials.guessed:
                # Values were rough, the master was not exact, or this is as exact as floating point gets.
                if not self._refined(weights):
                    if exactly or self.N < 2 or gap <= self.max_unexplained_gap:
                        break
                    exactly = True
                weights, lam, value = self._solve_master(rho, exactly)
            trials.judge(fresh, gap)
            slack = LOOSE * gap if fresh and gap > EXACT_BELOW and not self.source.exact else 0.0
        return best

    def with_looser_price(self, best: Optimum) -> Optimum:
        """The same optimum with the smallest price that proves it, if there is one constraint: see `looser_price`."""
        if self.N != 1 or not self._converged(best):
            return best
        rho = float(best.rho[0])
        for _ in range(MAX_ROUNDS):
            price = looser_price(self.w[:, 0], self.v, rho, best.value)
            if price >= (1 - SAME_PRICE) * best.lam[0]:
                break
            upper, column, fresh = self.price(np.array([1.0, price]))
            looser = best._replace(bound=upper - price * rho, proof=column)
            if self._converged(looser):
                return looser
            if not fresh:
                break
        return best

    def reach(self, rho: FloatArray, per: FloatArray, enough: float = np.inf) -> tuple[float, FloatArray, FloatArray]:
        """Maximise t with w_n >= rho_n + t per_n for all n: how far all bounds can be exceeded at once.

        Returns t, the weights of a mixture that reaches it, and multipliers y (y . per = 1) with
        max_pi y . (w - rho) = t, which prove that no policy does better. Stops early once t >= enough.
        """
        t, weights, y, exactly, slack = -np.inf, np.zeros(0), np.full(self.N, 1.0 / self.N) / per, False, 0.0
        idle, least = _Idle(), np.inf
        if self.columns and self.N == 1:
            weights, y, t = self._exceed(rho, per, exactly)
            if t >= enough or self.source.best[0] - rho[0] - t * per[0] <= CONVERGED_GAP + float(self.noise[1]):
                return t, weights, y
        elif not self.columns:
            self.price(np.eye(1, 1 + self.N)[0])
        for _ in range(MAX_ROUNDS):
            upper, _, fresh = self.price(np.append(0.0, y), slack)
            gap, least = upper - float(y @ rho) - t, min(least, upper - float(y @ rho))
            if gap <= CONVERGED_GAP + float(self.noise[1:] @ y) or t >= enough or idle.for_long(t, least):
                break
            if np.isfinite(t) and not fresh and not slack and not self._refined(weights):
                if exactly or self.N < 2 or gap <= self.max_unexplained_gap:
                    break
                exactly = True
            weights, y, t = self._exceed(rho, per, exactly)
            slack = LOOSE * abs(t) if fresh and abs(t) > EXACT_BELOW and not self.source.exact else 0.0
        return t, weights, y

    def replace(self, columns: list[PolicyColumn]) -> None:
        """Take other values of the same policies."""
        self.columns, self._master = columns, None

    def thresholds(self, rho: FloatArray) -> FloatArray | None:
        """rho (scaled), lowered to what the pool can now reach if it is missed by less than the tolerance, or None."""
        if not self.N:
            return rho
        t, _, _ = self.reach(rho, np.ones(self.N), enough=0.0)
        if t < -self.band:
            return None
        return rho if t >= 0 else rho + t - EXTRA_LOWERING

    def optimum(self, rho: FloatArray) -> Optimum | None:
        """The optimum under thresholds rho (scaled), or None if no policy meets them."""
        possible = self.thresholds(rho)
        return None if possible is None else self.maximise(possible)

    def bound(self, proof: PolicyColumn, rho: FloatArray) -> float:
        """An upper bound on the value under thresholds rho, in the user's units, from a column with a weight of 1."""
        per_unit = proof.weights / self.units
        return float((proof.objective - per_unit[1:] @ rho) / per_unit[0])

    def value(self, best: Optimum) -> float:
        """The optimal value in the user's units."""
        return float(best.value * self.units[0] + self.offsets[0])

    def prices(self, lam: FloatArray) -> FloatArray:
        """Multipliers [N] of scaled thresholds as prices in the user's units."""
        return np.asarray(lam * self.units[0] / self.units[1:])

    def proved(self: Pool, best: Optimum) -> float:
        """By how much the optimal value can exceed that of ``best``, with rounding included, in the user's units."""
        rho = best.rho * self.units[1:] + self.offsets[1:]
        rounding = self.source.ranges.gap_rounding(self.prices(best.lam), rho)
        return float(max(0.0, best.bound - best.value) * self.units[0]) + rounding

    def slack(self, rho: FloatArray) -> float:
        """max over mixtures of min_n (w_n - rho_n), with thresholds rho and the answer in the user's units."""
        if not self.N:
            return float("inf")
        smallest = float(self.units[1:].min())
        return smallest * self.reach(self.scaled(rho), smallest / self.units[1:])[0]

    def _converged(self, best: Optimum) -> bool:
        """Whether bound and value are equal but for rounding."""
        return best.bound - best.value <= CONVERGED_GAP + float(self.noise[0] + self.noise[1:] @ best.lam)

    def _join(self, column: PolicyColumn) -> bool:
        """Add a column to the pool; whether the pool is the better for it.

        A column with values that the pool has already adds nothing. Values that are known up to an error differ a
        little whenever the same policy is evaluated, so such a column is also compared by its policy. A policy that the
        pool has takes the more exact values, and the pool is the better for them if their error is much smaller.
        """
        if self._known(column):
            return False
        known = (j for j, c in enumerate(self.columns) if column.error > 0 and np.array_equal(c.choice, column.choice))
        j = next(known, None)
        if j is None:
            self.columns.append(column)
        elif max(column.error, ROUGH) < MORE_EXACT * self.columns[j].error:
            self.columns[j], self._master = column, None
        else:
            return False
        return True

    def _known(self, column: PolicyColumn) -> bool:
        """Whether the pool has a column with the same values."""
        if not self.columns:
            return False
        off = np.maximum(np.abs(self.v - column.v), np.abs(self.w - column.w).max(axis=1, initial=0.0))
        errors = np.array([c.error for c in self.columns])
        return bool((off < SAME + np.minimum(errors, ROUGH) + min(column.error, ROUGH)).any())

    def _refined(self, weights: FloatArray) -> bool:
        """Evaluate the columns of a mixture as exactly as possible; whether that made a difference."""
        rough = [j for j in np.flatnonzero(weights) if self.columns[j].error > ROUGH]
        for j in rough:
            better = self.source.refine(self.columns[j])
            self.columns[j] = better._replace(error=min(better.error, ROUGH))
        if rough:
            self._master = None
        return bool(rough)

    def _solve_master(self, rho: FloatArray, exactly: bool) -> tuple[FloatArray, FloatArray, float]:
        if self.N == 0:
            best = int(self.v.argmax())
            return np.eye(1, len(self.columns), best)[0], np.zeros(0), float(self.v[best])
        if self.N == 1:
            return hull(self.w[:, 0], self.v, float(rho[0]), self.band)
        return self._master_lp().maximise(self.v, self.w, rho, exactly=exactly)

    def _exceed(self, rho: FloatArray, per: FloatArray, exactly: bool) -> tuple[FloatArray, FloatArray, float]:
        if self.N > 1:
            return self._master_lp().exceed(self.w, rho, per, exactly=exactly)
        best = int(self.w[:, 0].argmax())
        return np.eye(1, len(self.columns), best)[0], 1.0 / per, float((self.w[best, 0] - rho[0]) / per[0])

    def _master_lp(self) -> Master:
        if self._master is None:
            self._master = Master(self.N)
        return self._master


Pool = Columns[PolicySource]  # of a source that can also make policies
