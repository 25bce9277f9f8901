"""A certificate from counts alone: how far a policy is from the optimum at most, and whether it keeps its bounds.

    intervals   for every transition frequency, start frequency and mean signal, by `estimate.within`
    U           the largest v + lam . (w - rho) of any policy in any model within the intervals: no policy within the
                bounds is worth more, whatever lam >= 0 is. An error of the solver that chose lam cannot hurt.
    v_lo, w_lo  the smallest totals of one policy in the models within the intervals, by pessimistic induction

The probability that all intervals hold at all times is at least 1 - delta, whatever decided about the actions. On that
one event every policy, chosen from the data or not, keeps its bounds if w_lo >= rho, and is at most U - v_lo below the
optimum (docs/theory/guarantees.md, Lemma A and Statement 11). In a world that is declared stationary all steps share
their intervals. In one that is declared noiseless, one visit tells the signals. Rounding is added to U and subtracted
from the lower totals.

The inductions are in `estimate.within`. An interval is computed again only if its row has been visited since.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate import within
from cmdpkit.estimate.alike import steps_warning
from cmdpkit.estimate.counts import Counts, signal_means, signal_squares, signals_of, steps_of
from cmdpkit.estimate.extended import PairSource
from cmdpkit.estimate.intervals import Intervals, UnknownCell
from cmdpkit.estimate.model import model_of
from cmdpkit.exact.columns import Columns, PolicyColumn
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.progress import Watch
from cmdpkit.exact.solver import solve_in
from cmdpkit.exact.sources import Horizon
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.tolerances import CLEAR_OF_ROUNDING, FEASIBLE, MAX_UNEXPLAINED_GAP, NO_SPREAD, ROUNDOFF
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

NOISY = (
    "the world was declared noiseless, but the same action in the same state and step has earned different signals: "
    "the certificate allows for noise"
)


class Bound(NamedTuple):
    """No policy within the bounds is worth more than `value`, in unit scale; minus infinity if none keeps them."""

    value: float
    prices: FloatArray  # [N]: the lam at which this was found


class Certifier:
    """Proves statements about policies from counts that grow; one object serves one run or one log.

    `allowed` [H, S, A] are the actions that exist, rho [N] the bounds (in unit scale, utilities at least rho), delta
    the probability with which anything stated here may be wrong. T = 1 if all steps share their counts, else H.
    """

    def __init__(self, allowed: BoolArray, rho: FloatArray, T: int, delta: float, *, noiseless: bool = False) -> None:
        if not 0 < delta < 1:
            raise CmdpkitError(f"delta is {delta!r}, expected a probability between 0 and 1, both excluded")
        self.allowed, self.rho, self.T, self.delta = readonly(allowed), rho, T, delta
        (self.H, S, A), M = allowed.shape, 1 + len(rho)
        self.noiseless, self.contradicted = noiseless, False  # the latter: whether signals vary all the same
        self.sides, self.work = within.new_sides(T, S, A, M), within.new_work(self.H, S, A, M)
        self.counts: Counts | None = None
        self._bound: Bound | None = None
        self._priced: FloatArray | None = None  # the weights of the pair that `work` holds, if it holds one

    # -- intervals -----------------------------------------------------------------------------------------------------

    def number_of_intervals(self) -> int:
        """How many intervals must hold at once: each has its equal part of delta."""
        own = int(self.allowed.any(axis=0).sum())
        rows, cells = (own, own) if self.T == 1 else (int(self.allowed[:-1].sum()), int(self.allowed.sum()))
        S: int = self.allowed.shape[1]
        signals = 0 if self.noiseless else 1 + len(self.rho)
        return (rows * S if self.H > 1 else 0) + S + cells * signals

    def look(self, counts: Counts) -> None:
        """Bring the intervals up to date with the counts, which may have grown since the last look."""
        if signals_of(counts) != 1 + len(self.rho) or steps_of(counts, self.allowed.shape[2]) != self.T:
            raise CmdpkitError("the counts have another number of signals or steps than the certificate was made for")
        self.counts, self._bound, self._priced = counts, None, None
        room = len(counts.link) - len(self.sides.lo)
        if room:
            lists = {name: np.append(getattr(self.sides, name)[: len(counts.link)], np.zeros(max(room, 0)))
                     for name in ("lo", "up")}  # fmt: skip
            self.sides = self.sides._replace(**lists)
        if self.noiseless and _varies(counts, 1 + len(self.rho)):
            self.noiseless, self.contradicted = False, True
            self.sides.moves[...], self.sides.visits[...] = -1, -1
        log = math.log(self.number_of_intervals() / self.delta)
        # It is always compiled, because lgamma of Python and of C differ in the last bits.
        within.update_sides(counts, self.sides, log, self.noiseless)

    def contradictions(self, counts: Counts) -> tuple[str, ...]:
        """What the counts contradict of the declarations about the world, in sentences."""
        varied = self.contradicted or (self.noiseless and _varies(counts, 1 + len(self.rho)))
        return (*steps_warning(counts.parts, counts.part_moves), *((NOISY,) if varied else ()))

    def restrict(self, allowed: BoolArray) -> None:
        """From now on only policies with these actions [H, S, A] compete; intervals stay those of all actions."""
        self.allowed, self._bound, self._priced = readonly(allowed), None, None

    # -- what follows from them ----------------------------------------------------------------------------------------

    def bound(self) -> Bound:
        """U, the largest value that any policy within the bounds can have, at the prices that make it smallest.

        The smallest U of all looks would hold too; it is not used, so that a certificate depends only on the counts.
        """
        if self._bound is None:
            self._bound = self._cheapest()
        return self._bound

    def _cheapest(self, priced_to: float = 1e-4) -> Bound:
        """U is the smallest over all prices up to the share `priced_to` of H."""
        pool: Columns[_Source] = Columns(_Source(self), FEASIBLE, MAX_UNEXPLAINED_GAP)
        thresholds = pool.scaled(self.rho)
        if pool.N:
            t, _, y = pool.reach(thresholds, np.ones(pool.N), enough=0.0)
            if t < -FEASIBLE:
                value, _ = self._largest(np.append(0.0, np.maximum(y, 0.0)))
                if value - float(np.maximum(y, 0.0) @ self.rho) < 0:
                    return Bound(-np.inf, np.zeros(pool.N))
        best = pool.maximise(thresholds, enough=lambda found: found.bound - found.value <= priced_to)
        lam = np.maximum(best.lam, 0.0)
        # The proof has what `_largest` found at these weights, in units of H; a price below 0 would prove nothing.
        most = best.proof.objective * self.H if np.all(best.lam >= 0) else self._largest(np.append(1.0, lam))[0]
        return Bound(float(most - lam @ self.rho), lam)

    def _largest(self, weights: FloatArray) -> tuple[float, FloatArray]:
        """The largest weights . (v, w) over policies and models, with rounding added, and (v, w) of the maximiser."""
        self._call(within.best_pair, readonly(weights), self.allowed, self.work)
        self._priced = weights
        totals = self.work.totals
        return float(totals[0]) + self._rounding(float(weights.sum())), totals[1:].copy()

    def totals(self, pi: FloatArray) -> FloatArray:
        """[1+N, 2]: the smallest and the largest value and utilities of pi [H, S, A] within the intervals."""
        found = np.empty((1 + len(self.rho), 2))
        self._call(within.extreme_totals, readonly(pi), self.work, found)
        self._priced = None
        return np.clip(found + np.array([-1.0, 1.0]) * self._rounding(1.0), 0.0, float(self.H))

    def accuracy(self, choice: IntArray | None = None) -> float:
        """eps_t: the totals of a policy differ by no more between two models within the intervals.

        With `choice` [H, S] it is filled with the actions that lead to where most is unknown (EXPLORE).
        """
        found, self._priced = self.work.choice if choice is None else choice, None
        return float(self._call(within.most_unknown, self.allowed, self.work, found))

    def prove(self, pi: FloatArray, sample: Intervals | None = None) -> Intervals:
        """What the counts prove about pi; `sample` has intervals for the same policy that hold beside the others."""
        best, amounts = self.bound(), np.zeros(len(self._seen().visits))
        known = bool(np.isfinite(best.value))
        if known:
            weights = np.append(1.0, best.prices) / self.H
            if self._priced is None or not np.array_equal(self._priced, weights):
                self._largest(weights)
            self._add_parts(self.sides.most, weights, np.eye(self.allowed.shape[2])[self.work.choice], 1.0, amounts)
            amounts *= self.H
        ends = self.totals(pi)
        if known:
            self._add_parts(self.sides.least, np.eye(1, 1 + len(self.rho))[0], pi, -1.0, amounts)
        if sample is not None:
            own = np.array(sample.intervals)
            ends = np.stack((np.maximum(ends[:, 0], own[:, 0]), np.minimum(ends[:, 1], own[:, 1])), axis=1)
        return Intervals(
            level=1 - self.delta - (0.0 if sample is None else 1 - sample.level),
            episodes=int(self._seen().starts.sum()),
            intervals=tuple((float(low), float(max(low, high))) for low, high in ends),
            best=best.value,
            parts=self._largest_parts(amounts),
        )

    def safe_policy(
        self, *, plans: int = 8, beyond: float = 0.1, same: float = 1e-3
    ) -> tuple[FloatArray, float] | None:
        """HAND-OVER: of plans that can be proved to keep their bounds, the one with the largest proved value.

        The plans, at most so many, are those of the estimated model with its bounds tightened by a margin. The first
        margin is `accuracy`, which is all that Statement 12 needs. The others grow by what a plan lacked of a proof and
        the share `beyond` of it, so that the next one suffices, until the relative change is below `same`.
        """
        cmdp = model_of(self._seen(), self.rho, self.allowed, 1).cmdp
        pool, best = Columns(Horizon(cmdp)), None
        margin, refused = np.full(len(self.rho), self.accuracy()), np.full(len(self.rho), np.inf)
        for k in range(plans):
            names = (c.name for c in cmdp.constraints)
            asked = cmdp.with_bounds(**{name: float(x) for name, x in zip(names, self.rho + margin, strict=True)})
            try:
                pi = solve_in(pool, asked, "auto", Watch()).policy.pi
            except Infeasible:
                refused = np.minimum(refused, margin)
                margin = margin / 2 if k else np.zeros(len(margin))
                continue
            low = self.totals(pi)[:, 0]
            if np.all(low[1:] >= self.rho) and (best is None or low[0] > best[1]):
                best = pi, float(low[0])
            lacking = self.rho + CLEAR_OF_ROUNDING * self.H - low[1:]
            before, margin = margin, np.maximum(margin + lacking + beyond * np.maximum(lacking, 0.0), 0.0)
            if np.any(margin >= refused):
                margin = (before + np.minimum(margin, refused)) / 2
            if np.all(lacking <= 0) and np.allclose(before, margin, rtol=same, atol=CLEAR_OF_ROUNDING):
                break
        return best

    def _add_parts(
        self, signals: FloatArray, weights: FloatArray, pi: FloatArray, sign: float, amounts: FloatArray
    ) -> None:
        """Add the parts of a gap to amounts [cells]; `work` has the extreme values of pi.

        U less its value in the estimated model is a sum over cells of expected visits in the estimated model times what
        the intervals allow beyond the estimate. So is the estimated value of a policy less v_lo.
        """
        flow = np.zeros((2, self.allowed.shape[1]))
        self._call(within.add_parts, signals, readonly(weights), readonly(pi), sign, self.work, flow, amounts)

    def _largest_parts(self, amounts: FloatArray, most: int = 3) -> tuple[UnknownCell, ...]:
        """The cells that make the largest parts of U - v_lo, largest first: what is known least, where it matters."""
        found = []
        for cell in np.argsort(-amounts, kind="stable")[:most]:
            h, s, a = (int(i) for i in np.unravel_index(cell, (self.T, *self.allowed.shape[1:])))
            visits = int(self._seen().visits[cell])
            found.append(UnknownCell(None if self.T == 1 else h, s, a, visits, float(amounts[cell])))
        return tuple(part for part in found if part.amount > 0)

    def _rounding(self, weight: float) -> float:
        """Rounding error of a total of signals in [0, weight], at most.

        A row adds up at most 2 S products of a probability and a value of at most H weight, and its probabilities have
        errors of at most 2 S units; H rows follow one another, and A products make the value of a state.
        """
        S, A = self.allowed.shape[1:]
        return float(ROUNDOFF * self.H * (self.H * weight) * (4 * S + 2 * A + 8))

    def _call(self, function: Any, *args: Any) -> Any:
        """An induction over all cells of all steps; the interpreter runs it as long as it is a matter of moments."""
        counts = self._seen()
        work = self.allowed.size * (1 + int(counts.used[0]) // len(counts.head))
        return call(function, work, counts, self.sides, *args)

    def _seen(self) -> Counts:
        if self.counts is None:
            raise CmdpkitError("the certificate has not looked at any counts yet: call look(counts) first")
        return self.counts


class _Source(PairSource):
    """Pairs of a policy and a model within the intervals."""

    def __init__(self, certifier: Certifier) -> None:
        super().__init__(np.full(1 + len(certifier.rho), float(certifier.H)))
        self.certifier = certifier

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The pair with the largest weights . (v, w), and that value."""
        upper, values = self.certifier._largest(weights / self.units)
        values = values / self.units
        choice = self.certifier.work.choice.copy()
        return upper, [PolicyColumn(choice, float(values[0]), values[1:], weights, upper)]


def _varies(counts: Counts, M: int) -> bool:
    """Whether some action has ever earned different signals."""
    n = np.maximum(counts.visits, 1)[:, None]
    variances = signal_squares(counts, M) / n - signal_means(counts, M) ** 2
    return bool(np.any(variances > NO_SPREAD + 4 * ROUNDOFF * n))
