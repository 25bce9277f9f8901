"""Column generation: a constrained MDP through its deterministic policies.

Every policy is a mixture of deterministic ones, so the problem is a small LP over their values (v_j, w_j):

    maximise sum_j alpha_j v_j   subject to   sum_j alpha_j w_j >= rho,  sum_j alpha_j = 1,  alpha >= 0.

Its columns are generated when they are needed (Dantzig-Wolfe): with multipliers lam, backward induction on r + lam . g
returns the policy with the largest v + lam . w, and therefore the Lagrangian bound max_pi v + lam . (w - rho) >= v*.
When that policy is no better than those in the pool, the bound equals the optimum. Totals are shifted and divided by
`Columns.units`, so that a tolerance means the same for all models.

Only the backward induction uses transition probabilities. `Pool` takes them from a model; other subclasses of `Columns`
may choose them together with the policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.induction import Choice as Choice
from cmdpkit.exact.induction import Induction
from cmdpkit.exact.master import Master, hull, looser_price
from cmdpkit.exact.steps import Threads
from cmdpkit.exact.trial_prices import Trials
from cmdpkit.exact.units import FEASIBLE, Units, survey
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray

CONVERGED_GAP = 1e-12  # the search ends when upper bound and value of the master LP are this close, in scaled totals
EXTRA_LOWERING = FEASIBLE / 32  # unreachable thresholds are lowered to what can be reached, and by this much more
MAX_ROUNDS = 10_000  # of column generation
SAME_PRICE = 1e-6  # prices that differ by a smaller share are the same but for rounding


class Column(NamedTuple):
    """A deterministic policy and its start values, scaled."""

    choice: Choice  # [H, S], the action of each step and state
    v: float  # expected total reward
    w: FloatArray  # [N], expected total utilities
    weights: FloatArray  # [1 + N], of reward and utilities in the objective for which this policy is best
    objective: float  # expected total of that objective, per weight / unit in the user's units

    def differences(self, other: Column) -> int:
        """Number of decisions in which two policies differ."""
        return int(np.count_nonzero(self.choice != other.choice))


class Optimum(NamedTuple):
    """The best mixture of all policies, as the master LP found it; numbers are scaled."""

    weights: FloatArray  # [pool], the share of each column in the mixture
    value: float  # of the mixture
    bound: float  # no mixture that meets the thresholds has a larger value
    proof: Column  # the policy that is best for r + lam . g in every state; its objective proves the bound
    rho: FloatArray  # [N], the thresholds that the mixture meets

    @property
    def lam(self) -> FloatArray:
        """Multipliers of the thresholds, [N]."""
        return self.proof.weights[1:]


class Columns(ABC):
    """The policies found so far; they serve every bound rho, so a sweep over bounds is warm-started.

    r [T, S, A] and g [N, T, S, A] have 1 or H steps each. Scaled totals are (total - offsets) / units.
    """

    # If bound and master differ by more and no new policy explains it, the master is solved again in exact arithmetic.
    max_unexplained_gap = 1e-10
    band: float = FEASIBLE  # a policy that misses a threshold by this much counts as reaching it, in scaled totals

    def __init__(self, r: FloatArray, g: FloatArray, H: int) -> None:
        _, S, A = r.shape
        if np.iinfo(np.int16).max < A:
            raise CmdpkitError(f"the model has {A} actions, column generation takes at most {np.iinfo(np.int16).max}")
        self.H, self.S, self.A, self.N = H, S, A, len(g)
        self.r, self.g = r, g
        self.units = np.array([_unit(x, H) for x in (r, *g)])  # [1 + N]
        self.offsets = np.zeros(1 + self.N)
        self.noise = np.zeros(1 + self.N)  # the rounding error that scaled totals may have
        self.columns: list[Column] = []
        self.so_far: Optimum | None = None  # the best that `maximise` had found at the end of its last round
        steps = max(len(r), g.shape[1] if len(g) else 1)
        self._objective = np.zeros((steps, S, A))
        self._master: Master | None = None

    @abstractmethod
    def _induct(self, objective: FloatArray, choice: Choice, totals: FloatArray) -> None:
        """Fill choice [H, S] with the best policy for `objective` and totals with its (objective, v, w_1 .. w_N)."""

    @property
    def v(self) -> FloatArray:
        """Scaled rewards of the columns, [pool]."""
        return np.array([c.v for c in self.columns])

    @property
    def w(self) -> FloatArray:
        """Scaled utilities of the columns, [pool, N]."""
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
        return total - float(per_unit @ self.offsets), Column(choice, float(values[0]), values[1:], weights, total)

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

    def maximise(self, rho: FloatArray, enough: Callable[[Optimum], bool] | None = None) -> Optimum:
        """The optimum under thresholds rho (scaled); the pool must hold a feasible mixture (`reach` sees to that).

        After every round, what was found so far is kept in ``so_far``, and ``enough`` is asked whether that will do.
        """
        self.so_far = None
        if not self.columns:
            self.price(1.0, np.zeros(self.N))
        exactly, trials = False, Trials()
        weights, lam, value = self._solve_master(rho, exactly)
        for _ in range(MAX_ROUNDS):
            mixed = np.flatnonzero(weights)
            prices = trials.prices([self.columns[j] for j in mixed], weights[mixed], lam, rho)
            total, column = self.price(1.0, prices)
            known = self._known(column)
            if known:
                self.columns.pop()
            else:
                weights, lam, value = self._solve_master(rho, exactly)
            best = Optimum(weights, value, total - float(prices @ rho), column, rho)
            if self.so_far is not None and self.so_far.bound < best.bound:
                best = best._replace(bound=self.so_far.bound, proof=self.so_far.proof)
            self.so_far = best
            gap = best.bound - value
            if (enough is not None and enough(best)) or self._converged(best):
                break
            if known and not trials.guessed:  # the master LP was not exact, or this is as exact as floating point gets
                if exactly or self.N < 2 or gap <= self.max_unexplained_gap:
                    break
                exactly = True
                weights, lam, value = self._solve_master(rho, exactly)
            trials.judge(not known, gap)
        return best

    def with_looser_price(self, best: Optimum) -> Optimum:
        """The same optimum with the smallest price that proves it, where there is one constraint.

        That is the slope of the trade-off on the side of looser bounds, see `looser_price`.
        """
        if self.N != 1 or not self._converged(best):
            return best
        rho = float(best.rho[0])
        for _ in range(MAX_ROUNDS):
            price = looser_price(self.w[:, 0], self.v, rho, best.value)
            if price >= (1 - SAME_PRICE) * best.lam[0]:
                break
            total, column = self.price(1.0, np.array([price]))
            looser = best._replace(bound=total - price * rho, proof=column)
            if self._converged(looser):
                return looser
            if self._known(column):
                self.columns.pop()
                break
        return best

    def reach(self, rho: FloatArray, per: FloatArray, enough: float = np.inf) -> tuple[float, FloatArray, FloatArray]:
        """Maximise t with w_n >= rho_n + t per_n for all n: how far all bounds can be exceeded at once.

        Returns t, the weights of a mixture that reaches it, and multipliers y (y . per = 1) with
        max_pi y . (w - rho) = t, which prove that no policy does better. Stops early once t >= enough.
        """
        N = self.N
        if N == 1:
            most = [j for j, column in enumerate(self.columns) if column.weights[0] == 0.0]
            if not most:
                self.price(0.0, np.ones(1))
            j = most[0] if most else len(self.columns) - 1
            t = float((self.columns[j].w[0] - rho[0]) / per[0])
            return t, np.eye(1, len(self.columns), j)[0], 1.0 / per
        if not self.columns:
            self.price(1.0, np.zeros(N))
        t, weights, y, exactly = -np.inf, np.zeros(0), np.full(N, 1.0 / N) / per, False
        for _ in range(MAX_ROUNDS):
            total, column = self.price(0.0, y)
            bound = total - float(y @ rho)
            if bound - t <= CONVERGED_GAP + float(self.noise[1:] @ y) or t >= enough:
                break
            if np.isfinite(t) and self._known(column):
                if exactly or bound - t <= self.max_unexplained_gap:
                    break
                exactly = True
            weights, y, t = self._master_lp().exceed(self.w, rho, per, exactly=exactly)
        return t, weights, y

    def _converged(self, best: Optimum) -> bool:
        """Whether bound and value are equal but for rounding."""
        return best.bound - best.value <= CONVERGED_GAP + float(self.noise[0] + self.noise[1:] @ best.lam)

    def _known(self, column: Column) -> bool:
        """Whether the pool already had a column with the values of the last one, which then adds nothing."""
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

    max_unexplained_gap = CONVERGED_GAP

    def __init__(
        self, cmdp: CMDP, ranges: Units | None = None, band: float = FEASIBLE / 2, threads: Threads = None
    ) -> None:
        super().__init__(cmdp.compact.r, cmdp.compact.g, cmdp.H)
        self.cmdp, self.band = cmdp, band
        self.induction = Induction(cmdp, threads)
        extremes: list[Choice] = []
        if ranges is None:
            ranges, extremes = survey(self.induction)
        self.ranges = ranges
        self.units, self.offsets = ranges.unit, ranges.worst
        self.noise = ranges.rounding / (2 * self.units)
        for k, choice in enumerate(extremes):  # the policies that collect the most of one signal are the first columns
            v, *w = (self.induction.evaluate(choice) - self.offsets) / self.units
            weights = np.eye(1, 1 + self.N, k)[0]
            self.columns.append(Column(choice, float(v), np.array(w), weights, float(ranges.best[k] / self.units[k])))

    def _induct(self, objective: FloatArray, choice: Choice, totals: FloatArray) -> None:
        totals[:] = self.induction.best(objective, choice)

    def bound(self, proof: Column, rho: FloatArray) -> float:
        """An upper bound on the value under thresholds rho, in the user's units, from a column with a weight of 1."""
        per_unit = proof.weights / self.units
        return float((proof.objective - per_unit[1:] @ rho) / per_unit[0])

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
        return rho if t >= 0 else rho + t - EXTRA_LOWERING

    def optimum(self, rho: FloatArray) -> Optimum | None:
        """The optimum under thresholds rho (scaled), or None if no policy meets them."""
        possible = self.thresholds(rho)
        return None if possible is None else self.maximise(possible)

    def value(self, best: Optimum) -> float:
        """The optimal value in the user's units."""
        return float(best.value * self.units[0] + self.offsets[0])

    def proved(self, best: Optimum) -> float:
        """By how much the optimal value can exceed that of ``best``, with rounding included, in the user's units."""
        lam = best.lam * self.units[0] / self.units[1:]
        rounding = self.ranges.gap_rounding(lam, best.rho * self.units[1:] + self.offsets[1:])
        return float(max(0.0, best.bound - best.value) * self.units[0]) + rounding

    def slack(self, rho: FloatArray) -> float:
        """max over mixtures of min_n (w_n - rho_n), with thresholds rho and the answer in the user's units."""
        smallest = float(self.units[1:].min())
        return smallest * self.reach(self.scaled(rho), smallest / self.units[1:])[0]


def _unit(x: FloatArray, H: int) -> float:
    largest = float(np.abs(x).max(initial=0.0))
    return H * largest if largest > 0 else 1.0
