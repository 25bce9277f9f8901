"""A certificate from counts alone: how far a policy is from the optimum at most, and whether it meets its bounds.

    intervals   for every transition frequency, start frequency and mean signal, by `radii.AllTimes`
    U           the largest v + lam . (w - rho) of any policy in any model within the intervals: no policy within the
                bounds is worth more, whatever lam >= 0 is. An error of the solver that chose lam cannot hurt.
    v_lo, w_lo  the smallest totals of one policy in the models within the intervals, by pessimistic evaluation

The probability that all intervals hold at all times is at least 1 - delta, whatever decided about the actions. On that
one event every policy, chosen from the data or not, meets its bounds if w_lo >= rho, and is at most U - v_lo below the
optimum (docs/theory/guarantees.md, Lemma A and Statement 11). In a world that is declared stationary all steps share
their intervals. In one that is declared noiseless, one visit tells the signals. Rounding is added to U and subtracted
from the lower totals.

The models within the intervals are a box, on which the operators work (`boxes`). An interval is computed again only if
its row has been visited since.

**Logs.** Every row of a log is a draw from the same process, so all of this holds for it too (`certified`), whoever
chose the policy and whatever was looked at before. The range of every signal has to be declared. The optimum is that of
policies which do only what the log has tried: about anything else a log says nothing. A learner is told all states, a
log is not. Unless the user has declared them, the intervals are those of Statement 17 (docs/theory/logs.md), which hold
for any number of states. One more state stands for all that the log never met: every row leads there with a probability
that the log bounds, and from there on anything within the declared ranges may follow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import betaln, xlog1py, xlogy

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.estimate.boxes import (
    BestPair,
    Box,
    Known,
    PairSource,
    best_pair,
    drawn,
    from_start,
    grown,
    new_box,
    total,
    update_box,
    visits,
    work_of,
)
from cmdpkit.estimate.boxes import signals_of as as_signals
from cmdpkit.estimate.changes import steps_warning
from cmdpkit.estimate.counts import (
    Counts,
    entries_of,
    estimated,
    new_counts,
    signal_means,
    signal_squares,
    signals_of,
    steps_of,
    with_transitions,
)
from cmdpkit.estimate.intervals import Certificate, Intervals, UnknownCell, stated
from cmdpkit.estimate.model import model_of
from cmdpkit.estimate.radii import AllTimes, Ranges, update_ranges
from cmdpkit.exact.columns import Columns, PolicyColumn
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import Watch, solve_in
from cmdpkit.exact.sources import Horizon
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import CLEAR_OF_ROUNDING, FEASIBLE, MAX_UNEXPLAINED_GAP, NO_SPREAD, ROUNDOFF, SUM_ORDER
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.steps import expectations, induction

if TYPE_CHECKING:
    from cmdpkit.estimate.log import Log

HALVINGS = 60  # of an interval of length 1 or less, to find the end of another
INTERVAL_WORK = 4  # inner loops that an interval takes, as most have not changed since the last look

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
        self.allowed, self.rho, self.T, self.delta = readonly(allowed), rho, T, delta
        (self.H, S, A), M = allowed.shape, 1 + len(rho)
        self.noiseless, self.contradicted = noiseless, False  # the latter: whether signals vary all the same
        self.counts = new_counts(T, S, A, M, 0)
        self.box, self.ranges = new_box(self.counts, self.H, A), Ranges.unknown(M, T * S * A)
        self._bound: Bound | None = None

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
        self.counts, self._bound, self.box = counts, None, grown(self.box, counts)
        if self.noiseless and _varies(counts, 1 + len(self.rho)):
            self.noiseless, self.contradicted = False, True
            self.box.moves[...], self.ranges.visits[...] = -1, -1
        log = math.log(self.number_of_intervals() / self.delta)
        intervals = len(counts.head) + int(counts.used[0])
        call(update_box, INTERVAL_WORK * intervals, counts, self.box, AllTimes(log))
        call(update_ranges, self.ranges.most.size, counts, self.ranges, log, self.noiseless)

    @property
    def most(self) -> FloatArray:
        """[1+N, T, S, A], the largest mean signals within the intervals."""
        return self.ranges.most.reshape(-1, self.T, *self.allowed.shape[1:])

    @property
    def least(self) -> FloatArray:
        """[1+N, T, S, A], the smallest mean signals within the intervals."""
        return self.ranges.least.reshape(-1, self.T, *self.allowed.shape[1:])

    def contradictions(self, counts: Counts) -> tuple[str, ...]:
        """What the counts contradict of the declarations about the world, in sentences."""
        varied = self.contradicted or (self.noiseless and _varies(counts, 1 + len(self.rho)))
        return (*steps_warning(counts.parts, counts.part_moves), *((NOISY,) if varied else ()))

    def restrict(self, allowed: BoolArray) -> None:
        """From now on only policies with these actions [H, S, A] compete; intervals stay those of all actions."""
        self.allowed, self._bound = readonly(allowed), None

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
        pool = Columns(_Source(self), FEASIBLE, MAX_UNEXPLAINED_GAP)
        thresholds = pool.scaled(self.rho)
        if pool.N:
            t, _, y = pool.reach(thresholds, np.ones(pool.N), enough=0.0)
            if t < -FEASIBLE:
                value = self._largest(np.append(0.0, np.maximum(y, 0.0)))
                if value - float(np.maximum(y, 0.0) @ self.rho) < 0:
                    return Bound(-np.inf, np.zeros(pool.N))
        best = pool.maximise(thresholds, enough=lambda found: found.bound - found.value <= priced_to)
        lam = np.maximum(best.lam, 0.0)
        # The proof has what `_largest` found at these weights, in units of H; a price below 0 would prove nothing.
        most = best.proof.objective * self.H if np.all(best.lam >= 0) else self._largest(np.append(1.0, lam))
        return Bound(float(most - lam @ self.rho), lam)

    def _largest(self, weights: FloatArray) -> float:
        """The largest weights . (v, w) over policies and models, with rounding added."""
        return float(self._pair(weights).totals[0]) + self.rounding(float(weights.sum()))

    def _pair(self, weights: FloatArray) -> BestPair:
        """The pair of a policy and a model with the largest weights . (v, w), and its values at all steps."""
        pair, objective = BestPair.empty(self.allowed.shape, 0, self.H + 1), np.tensordot(weights, self.most, axes=1)
        given = self.box, readonly(objective), self.allowed, as_signals(self.most), pair
        call(best_pair, work_of(self.box, self.H), *given)
        return pair

    def totals(self, pi: FloatArray) -> FloatArray:
        """[1+N, 2]: the smallest and the largest value and utilities of pi [H, S, A] within the intervals."""
        box, policy, X = self.box, drawn(pi), np.zeros((2, pi.shape[1], 1))
        pairs = zip(self.least, self.most, strict=True)
        found = np.array([(-total(box, -least, policy, X), total(box, most, policy, X)) for least, most in pairs])
        return np.clip(found + np.array([-1.0, 1.0]) * self.rounding(1.0), 0.0, float(self.H))

    def least_known(self) -> tuple[float, IntArray]:
        """eps_t, by which totals of a policy differ at most between two models within the intervals, and EXPLORE.

        The latter are the actions [H, S] that lead to where most is unknown (docs/theory/guarantees.md).
        """
        (H, S, _), box = self.allowed.shape, self.box
        rows, (owner, *_) = box.rows, entries_of(self.counts)
        apart, size = (rows.up - rows.lo)[: len(owner)], len(rows.head)
        others = (S - np.bincount(owner, minlength=size)) * rows.unseen
        widths = (np.bincount(owner, apart, size) + others).reshape(self.T, *self.allowed.shape[1:])
        left = np.arange(H - 1, -1, -1.0)[:, None, None]
        x = (self.most - self.least).max(axis=0) + left * np.minimum(1.0, widths / 2)
        V, pair = np.zeros((2, S)), BestPair.empty(self.allowed.shape, 0)
        given = rows, readonly(x), self.allowed, as_signals(self.most), pair.policy
        for h in range(H - 1, -1, -1):  # one step at a time: no operator has a ceiling
            call(induction, work_of(box, 1), *given, h, h, 0, S, V, pair.X, pair.Q)
            np.minimum(V[h % 2], H - h, out=V[h % 2])
        call(from_start, 2 * S, box, V[0], pair.X[0], pair.totals)
        start = H * min(1.0, float((box.start.up - box.start.lo).sum()) / 2)
        return min(start + float(pair.totals[0]), float(H)), pair.policy.choice

    def prove(self, pi: FloatArray, sample: Intervals | None = None) -> Intervals:
        """What the counts prove about pi; `sample` has intervals for the same policy that hold beside the others."""
        best, ends = self.bound(), self.totals(pi)
        parts: tuple[UnknownCell, ...] = ()
        if np.isfinite(best.value):
            parts = self._largest_parts(self._parts_of(pi, np.append(1.0, best.prices)))
        if sample is not None:
            own = np.array(sample.intervals)
            ends = np.stack((np.maximum(ends[:, 0], own[:, 0]), np.minimum(ends[:, 1], own[:, 1])), axis=1)
        return Intervals(
            level=1 - self.delta - (0.0 if sample is None else 1 - sample.level),
            episodes=int(self.counts.starts.sum()),
            intervals=tuple((float(low), float(max(low, high))) for low, high in ends),
            best=best.value,
            parts=parts,
        )

    def safe_policy(
        self, *, plans: int = 8, beyond: float = 0.1, same: float = 1e-3
    ) -> tuple[FloatArray, float] | None:
        """HAND-OVER: of plans that can be proved to meet their bounds, the one with the largest proved value.

        The plans, at most so many, are those of the estimated model with its bounds tightened by a margin. The first
        margin is eps_t, which is all that Statement 12 needs. The others grow by what a plan lacked of a proof and
        the share `beyond` of it, so that the next one suffices, until the relative change is below `same`.
        """
        cmdp = model_of(self.counts, self.rho, self.allowed, 1).cmdp
        pool, best = Columns(Horizon(cmdp)), None
        margin, refused = np.full(len(self.rho), self.least_known()[0]), np.full(len(self.rho), np.inf)
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

    def _parts_of(self, pi: FloatArray, weights: FloatArray) -> FloatArray:
        """[cells]: the parts of the gap of pi, where `weights` [1+N] are those of the bound on the optimum.

        U less its value in the estimated model is a sum over cells of expected visits in the estimated model times what
        the intervals allow beyond the estimate. So is the estimated value of a policy less v_lo.
        """
        best, X = self._pair(weights), np.zeros((self.H + 1, pi.shape[1], 1))
        total(self.box, -self.least[0], drawn(pi), X)
        optimism = self._beyond(weights, self.most, best.V, one_hot(best.policy.choice, pi.shape[2]))
        return optimism + self._beyond(-np.eye(1, len(weights))[0], self.least, X[..., 0], pi)

    def _beyond(self, weights: FloatArray, signals: FloatArray, V: FloatArray, pi: FloatArray) -> FloatArray:
        """[cells]: what the intervals add to the estimate of a policy whose values within them are V [H+1, S]."""
        counts, mean, Q = self.counts, estimated(self.counts, pi.shape[2]), np.zeros((2, *pi.shape))
        model = Known.of(mean.kernel, mean.mu)
        for models, x, found in ((self.box, signals, Q[0]), (model, mean.signals, Q[1])):
            x = readonly(np.tensordot(weights, x, axes=1))
            call(expectations, work_of(models, self.H), models.rows, x, V, found)
        beyond: FloatArray = (visits(model, pi) * (Q[0] - Q[1])).reshape(-1, len(counts.head)).sum(axis=0)
        return beyond

    def _largest_parts(self, amounts: FloatArray, most: int = 3) -> tuple[UnknownCell, ...]:
        """The cells that make the largest parts of U - v_lo, largest first: what is known least, where it matters."""
        found = []
        for cell in np.argsort(-amounts, kind="stable")[:most]:
            h, s, a = (int(i) for i in np.unravel_index(cell, (self.T, *self.allowed.shape[1:])))
            visits = int(self.counts.visits[cell])
            found.append(UnknownCell(None if self.T == 1 else h, s, a, visits, float(amounts[cell])))
        return tuple(part for part in found if part.amount > 0)

    def rounding(self, weight: float) -> float:
        """Rounding error of a total of signals in [0, weight], at most.

        A row adds up at most 2 S products of a probability and a value of at most H weight, and its probabilities have
        errors of at most 2 S units; H rows follow one another, and A products make the value of a state.
        """
        S, A = self.allowed.shape[1:]
        return float(ROUNDOFF * self.H * (self.H * weight) * (4 * S + 2 * A + 8))


class _Source(PairSource):
    """Pairs of a policy and a model within the intervals."""

    def __init__(self, certifier: Certifier) -> None:
        H = certifier.H
        super().__init__(certifier.box, certifier.most, certifier.allowed, H, np.full(len(certifier.most), float(H)))
        self.certifier = certifier

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The pair with the largest weights . (v, w), and that value with rounding added."""
        largest, (column,) = super().price(weights, slack)
        upper = largest + self.certifier.rounding(float((weights / self.units).sum()))
        return upper, [column._replace(objective=upper)]


def _varies(counts: Counts, M: int) -> bool:
    """Whether some action has ever earned different signals."""
    n = np.maximum(counts.visits, 1)[:, None]
    variances = signal_squares(counts, M) / n - signal_means(counts) ** 2
    return bool(np.any(variances > NO_SPREAD + 4 * ROUNDOFF * n))


# -- What a log proves about a policy: `Estimate.certificate` ----------------------------------------------------------


def certified(log: Log, T: int, pi: FloatArray, confidence: float) -> Certificate:
    """What a log with a horizon proves about pi [H, S, A]; T is 1 if all steps share their counts."""
    H, scales = log.criterion.horizon, scales_of(log)
    if H is None:
        raise CmdpkitError(
            f"the log is judged by {log.criterion}, and certificates are for logs with a horizon: see evaluate"
        )
    totals = [c.sign * c.bound_on_total for c in log.constraints]
    rho = np.array([scale.total_to_unit(x, H) for scale, x in zip(scales[1:], totals, strict=True)])
    unmet = int(log.open)  # the last state stands for those that the log never met
    over, S = np.append(log.terminal, np.zeros(unmet, dtype=bool)), log.S + unmet
    shape, nothing = (T, S, log.A), np.array([scale.to_unit(0.0) for scale in scales])
    ends = np.arange(T * S * log.A).reshape(shape)[:, over, 0].ravel()  # rows in which an episode is over
    counts = counts_of_log(log, T, S, scales, ends, nothing)
    certifier = Certifier(np.ones((H, S, log.A), dtype=bool), rho, T, 1 - confidence)
    certifier.look(counts)
    box, ranges, entries = certifier.box, certifier.ranges, counts.head[ends]
    if unmet:
        fill_open_sides(log, T, counts, box, ranges, 1 - confidence)
    # It is certain that an episode that is over stays so and signals nothing.
    box.rows.lo[entries], box.rows.up[entries], box.rows.spare[ends], box.rows.unseen[ends] = 1.0, 1.0, 0.0, 0.0
    ranges.least[:, ends], ranges.most[:, ends] = nothing[:, None], nothing[:, None]
    tried = np.broadcast_to((counts.visits > 0).reshape(shape), (H, S, log.A)).copy()
    tried[~tried.any(axis=-1)] = True  # where nothing was recorded, anything may happen
    certifier.restrict(tried)
    first = np.eye(1, log.A)[0]
    played = np.append(pi, np.broadcast_to(first, (H, unmet, log.A)), axis=1)
    played = np.where(over[:, None], first, played)
    return stated(certifier.prove(played), scales, log.constraints, H, names=(log.states, log.action_names))


def scales_of(log: Log) -> list[Scale]:
    """[1 + N]: the declared ranges in the sense of "at least"; 0 is in them where an episode can be over."""
    names = ["reward", *(c.name for c in log.constraints)]
    missing = [name for name, declared in zip(names, log.declared, strict=True) if declared is None]
    if missing:
        raise CmdpkitError(
            f"the range of {', '.join(map(quoted, missing))} is not declared, and a certificate holds only for signals "
            f"whose range is known: give ranges={{{missing[0]!r}: (smallest, largest)}} to from_log"
        )
    scales = []
    for sign, declared in zip((1.0, *(c.sign for c in log.constraints)), log.declared, strict=True):
        low, high = sorted(sign * float(x) for x in declared or (0.0, 1.0))
        if log.terminal.any():
            low, high = min(low, 0.0), max(high, 0.0)
        scales.append(Scale(low, high - low if high > low else 1.0))
    return scales


def counts_of_log(log: Log, T: int, S: int, scales: list[Scale], ends: IntArray, nothing: FloatArray) -> Counts:
    """Transitions and signals of a log in unit scale; the rows `ends` stay where they are and signal `nothing`.

    If there is one state more than the log has, every visited row has an entry for it, which was seen 0 times.
    """
    A, M, own = log.A, 1 + log.N, log.rows(T, S)
    cells = T * S * A
    moves, s_next = np.append(own[log.moved], ends), np.append(log.s_next[log.moved], ends // A % S)
    unmet = np.unique(own[log.moved]) * S + S - 1 if S > log.S else np.zeros(0, dtype=np.int64)
    pairs, times = np.unique(np.append(moves * S + s_next, unmet), return_counts=True)
    times -= np.isin(pairs, unmet)
    counts = with_transitions(new_counts(T, S, A, M), pairs // S, pairs % S, times)
    visits, signs = np.append(own, ends), (1.0, *(c.sign for c in log.constraints))
    x = np.array([scale.to_unit(sign * y) for scale, sign, y in zip(scales, signs, log.x, strict=True)])
    x = np.append(x, np.repeat(nothing[:, None], len(ends), axis=1), axis=1)
    counts.moves[...] = np.bincount(moves, minlength=cells)
    counts.visits[...] = np.bincount(visits, minlength=cells)
    products = (x[m] * x[n] for m, n in zip(*np.tril_indices(M), strict=True))
    for i, y in enumerate((*x, *products)):
        counts.moments[:, i] = np.bincount(visits, weights=y, minlength=cells)
    counts.starts[...] = np.bincount(log.starts, minlength=S)
    return counts


# -- Intervals that hold for any number of states (Statement 17) -------------------------------------------------------


def fill_open_sides(log: Log, T: int, counts: Counts, box: Box, ranges: Ranges, delta: float) -> None:
    """Fill the intervals of all rows that were visited, and of the start, where the states are not known."""
    A, M = log.A, 1 + log.N
    order, new, new_starts = _discoveries(log)
    S = len(order) + 1
    # The start comes first, then the states in the order in which they were met; each has a part of delta.
    parts = np.log((order + 1.0) * (order + 2.0) * T * A * (2 + M) / delta)
    logs = np.tile(np.repeat(np.append(parts, np.inf), A), T)  # [cells]
    n, (owner, states, times) = counts.moves.astype(float), entries_of(counts)
    rows, start = box.rows, box.start
    lo, up = successor_ends(times, n[owner], logs[owner])
    surprises = np.bincount(log.rows(T, S)[log.moved & new], minlength=len(n))
    to_unmet, moved = states == S - 1, n > 0
    unmet = owner[to_unmet]
    lo[to_unmet], up[to_unmet] = 0.0, unmet_mass(surprises[unmet], n[unmet], logs[unmet])
    rows.lo[: len(owner)], rows.up[: len(owner)] = lo, up
    rows.unseen[moved] = successor_ends(np.zeros(int(moved.sum())), n[moved], logs[moved])[1]
    rows.spare[...] = np.maximum(1.0 - np.bincount(owner, weights=lo, minlength=len(n)), 0.0)
    seen = counts.visits > 0
    for m in range(M):
        k, visits = counts.moments[seen, m], counts.visits[seen].astype(float)
        ranges.least[m, seen], ranges.most[m, seen] = _ends(k, visits - k, _level(k, visits, logs[seen]))
    episodes, first = float(counts.starts.sum()), math.log(4 / delta)
    start.lo[...], start.up[...] = successor_ends(counts.starts, np.full(S, episodes), np.full(S, first))
    start.lo[-1], start.up[-1] = 0.0, unmet_mass(np.array([new_starts]), episodes, first)[0]
    start.spare[0] = max(1.0 - float(start.lo.sum()), 0.0)


def _discoveries(log: Log) -> tuple[IntArray, BoolArray, int]:
    """[S]: the number of each state in the order in which they were met, from 1; [n]: whether a transition led to a
    state that was never met before; and the number of episodes that began in such a state.
    """
    begins = log.begins
    places = np.stack((np.where(begins, log.s, -1), np.where(log.moved, log.s_next, -1)), axis=1).ravel()
    met, first = np.unique(places, return_index=True)
    met, first = met[met >= 0], first[met >= 0]
    order = np.full(log.S, len(met), dtype=np.int64)
    order[met] = np.argsort(np.argsort(first)) + 1
    new = np.zeros(len(places), dtype=bool)
    new[first] = True
    return order, new[1::2], int(new[::2].sum())


def successor_ends(k: FloatArray | IntArray, n: FloatArray, log: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both ends for the probabilities of next states that were seen k times among n, all of a row together."""
    return _ends(k - 1.0, n - k, _level(k, n, log))


def unmet_mass(new: IntArray, n: FloatArray | float, log: FloatArray | float) -> FloatArray:
    """The largest probability of all states together that were never met, if `new` of n moves led to a new state."""
    found: FloatArray = np.minimum((2.0 * new + log) / ((1.0 - math.exp(-2.0)) * n), 1.0)
    return found


def _level(k: FloatArray | IntArray, n: FloatArray, log: FloatArray) -> FloatArray:
    """ln B(k + 1/2, n - k + 1/2) - ln B(1/2, 1/2) - log, lowered by more than all rounding errors."""
    level = betaln(k + 0.5, np.maximum(n - k, 0.0) + 0.5) - math.log(math.pi) - log
    lowered: FloatArray = level - SUM_ORDER * (1.0 + np.abs(level)) - 40.0 * n * n * ROUNDOFF
    return lowered


def _ends(a: Any, b: Any, level: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both ends of { m : a ln m + b ln(1 - m) >= level }, a little outside; 0 where a is 0 or less, 1 where b is."""
    peak = np.where(a > 0, a / np.maximum(a + b, 1.0), 0.0)

    def beyond(end: float) -> FloatArray:
        outside, inside = np.full(len(peak), end), peak.copy()
        for _ in range(HALVINGS):
            middle = (outside + inside) / 2
            held = xlogy(a, middle) + xlog1py(b, -middle) >= level
            inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
        return outside

    return np.where(a > 0, beyond(0.0), 0.0), np.where(b > 0, beyond(1.0), 1.0)
