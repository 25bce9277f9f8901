"""Boxes of models: an interval for every transition probability, as sparse as the counts, and known models beside them.

Of a row, the next states that were seen have an interval each, and all others share the interval [0, unseen]. This is
`operators.rows.BestRows`, on the lists of `Counts`, so that all operators work on a box: they take the
distribution of each row that is best for the values at hand. The start distribution is a box of one row. A `Known`
model has the same two parts, without intervals; the functions here and the planners take both.

How wide the intervals are is said by a value like `radii.Bernstein` or `radii.AllTimes`, for whose type `ends` has a
body. `update_box` fills only rows that have changed, by their number of moves.

`plan` finds the best policy and, at the same time, the best model of a box under constraints. The problem is the
*extended LP*:

    maximise <z, r>  over z[h, s, a, s'] = q[h, s, a] p[h, s, a, s'], p in the box, q the occupancy of a policy under p
    subject to <z, g_n> >= rho_n for all n

Written out it has H S^2 A variables and twice as many rows. Its extreme points are deterministic policies with an
extreme kernel each, so column generation solves it (`cmdpkit.exact.columns`), with extended value iteration as pricing:
backward induction in which every row is the best distribution of the box (`best_pair`). A mixture of such points is a
point of the same polytope, so a policy and a kernel of the box can be read off it. In a known model it is the plain
occupancy LP.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from cmdpkit.estimate.counts import Counts, new_counts, with_transitions
from cmdpkit.exact.columns import Columns, PolicyColumn
from cmdpkit.model.compiled import call, compiled, primitive, readonly
from cmdpkit.model.decisions import Decisions, one_hot, undrawn
from cmdpkit.model.tolerances import FEASIBLE, MAX_UNEXPLAINED_GAP, NEGLIGIBLE, NOTHING_MISSING
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel, Rows, Signals
from cmdpkit.operators.rows import BestRows, expect, prepare, row_of
from cmdpkit.operators.steps import NO_CHOICE, all_drawn, flow, induction, occupy


class Known(NamedTuple):
    """One model."""

    rows: Rows
    start: Rows  # one row, the start distribution

    @classmethod
    def of(cls, kernel: Kernel, mu: FloatArray) -> Known:
        """The model of a kernel and a start distribution [S]."""
        possible = np.flatnonzero(mu).astype(np.int32)
        start = Rows.of(np.array([0, len(possible)]), possible, np.asarray(mu, dtype=float)[possible], 1, 1)
        return cls(Rows.of(*kernel.arrays, kernel.S, kernel.A), start)


class Box(NamedTuple):
    """All models with probabilities in their intervals."""

    rows: BestRows
    start: BestRows  # one row, the start distribution
    moves: IntArray  # [rows]: numbers of moves that the intervals rest on; -1 before the first


Models: TypeAlias = Known | Box


@primitive
def ends(interval, k, n):
    """Both ends for a probability, if it came about k times in n."""


def new_box(counts: Counts, H: int, A: int) -> Box:
    """The box of all models of H steps; `update_box` fills it with what was counted."""
    S, rows = len(counts.starts), len(counts.head)
    lists = counts.head, counts.link, counts.state
    sides = np.zeros(len(counts.link)), np.zeros(len(counts.link))
    states = np.arange(S, dtype=np.int32)
    every = np.zeros(1, np.int32), np.append(states[1:], np.int32(-1)), states
    start = BestRows.of(every, np.zeros(S), np.ones(S), np.zeros(1), np.ones(1), (2, S, 1))
    order = np.tile(states.astype(np.int64), (1 + H, 1))  # the start is sorted like a step before
    best = BestRows.of(lists, *sides, np.ones(rows), np.ones(rows), (H, S, A))._replace(order=order[1:])
    return Box(best, start._replace(order=order[:2]), np.full(rows, -1))


def grown(box: Box, counts: Counts) -> Box:
    """The box on the lists of counts that may have grown."""
    rows, used = box.rows, min(len(box.rows.lo), len(counts.link))
    lo, up = (np.append(x[:used], np.zeros(len(counts.link) - used)) for x in (rows.lo, rows.up))
    return box._replace(rows=rows._replace(head=counts.head, link=counts.link, state=counts.state, lo=lo, up=up))


def box_of(
    shape: tuple[int, int, int],
    row: IntArray,
    state: IntArray,
    sides: FloatArray,
    unseen: FloatArray,
    start: FloatArray,
) -> Box:
    """The box of entries with the sides lo and up [2, E], sorted by row, and of the sides `start` [2, S].

    The shape is (H, S, A), and unseen [rows] the largest probability of any one state without an entry.
    """
    (H, S, A), (lo, up) = shape, sides
    nothing = new_counts(len(unseen) // (S * A), S, A, 1)
    box = new_box(with_transitions(nothing, row, state, np.ones_like(row)), H, A)
    box.rows.lo[...], box.rows.up[...], box.rows.unseen[...] = lo, up, unseen
    box.start.lo[...], box.start.up[...], box.start.unseen[...] = *start, 0.0
    for rows, total in ((box.rows, np.bincount(row, lo, len(unseen))), (box.start, start[0].sum())):
        rows.spare[...] = np.where(total < 1 - NOTHING_MISSING, 1 - total, 0.0)
    return box


@compiled
def update_box(counts, box, interval):
    """Bring all rows up to date whose number of moves has changed, and the start."""
    rows, start = box.rows, box.start
    for row in range(len(box.moves)):
        n = counts.moves[row]
        if n == box.moves[row]:
            continue
        box.moves[row] = n
        total, j = 0.0, rows.head[row]
        while j >= 0:
            rows.lo[j], rows.up[j] = ends(interval, counts.times[j], n)
            total += rows.lo[j]
            j = rows.link[j]
        rows.spare[row], rows.unseen[row] = max(1.0 - total, 0.0), ends(interval, 0, n)[1]
    episodes, total = counts.starts.sum(), 0.0
    for s in range(len(counts.starts)):
        start.lo[s], start.up[s] = ends(interval, counts.starts[s], episodes)
        total += start.lo[s]
    start.spare[0], start.unseen[0] = max(1.0 - total, 0.0), 0.0


# -- What the models have of a policy ---------------------------------------------------------------------------------

NO_VALUES = np.zeros((0, 1, 1))  # in the place of action values that nobody asks for


class BestPair(NamedTuple):
    """A policy and the model chosen with it, which `BestRows` writes row by row from the order of states."""

    policy: Decisions  # its actions, choice [H, S]
    V: FloatArray  # [L, S]: values of the objective from step h on, in place h % L
    X: FloatArray  # [L, S, M]: the same of M signals
    Q: FloatArray  # [0, 1, 1]: no room for action values
    totals: FloatArray  # [1 + M]: expected totals of the objective and of the signals

    @classmethod
    def empty(cls, shape: tuple[int, ...], M: int, L: int = 2) -> BestPair:
        """Arrays for `best_pair` to fill, for a shape (H, S, A)."""
        H, S, A = shape
        policy = undrawn(np.zeros((H, S), dtype=np.int16), A)
        return cls(policy, np.zeros((L, S)), np.zeros((L, S, M)), NO_VALUES, np.zeros(1 + M))


@compiled
def best_pair(models, objective, allowed, signals, pair):
    """Fill `pair` with the policy and the model that have most of an objective [1 or H, S, A], and their signals."""
    (H, S), L = pair.policy.choice.shape, len(pair.V)
    pair.V[H % L], pair.X[H % L] = 0.0, 0.0
    induction(models.rows, objective, allowed, signals, pair.policy, 0, H - 1, 0, S, pair.V, pair.X, pair.Q)
    from_start(models, pair.V[0], pair.X[0], pair.totals)


@compiled
def from_start(models, V, X, totals):
    """Expectations of V [S] and X [S, M] over the start distribution where that of V is largest."""
    prepare(models.start, 0, V)
    row = row_of(models.start, 0, 0, 0)
    totals[0] = expect(models.start, row, V, 0.0)
    for m in range(X.shape[1]):
        totals[1 + m] = expect(models.start, row, X[:, m], 0.0)


def total(models: Models, x: FloatArray, pi: Decisions, X: FloatArray) -> float:
    """The largest total of a signal x [1 or H, S, A] under a policy in the models; X [L, S, 1] gets its values."""
    (H, S), totals = pi.choice.shape, np.zeros(1)
    X[H % len(X)] = 0.0
    signals, policy = signals_of(x[None]), pi._replace(choice=np.array(pi.choice))
    given = models.rows, signals.r, readonly(np.ones((1, 1, 1), dtype=bool)), signals, policy
    call(induction, work_of(models, H), *given, 0, H - 1, 0, S, NO_CHOICE, X, NO_VALUES)
    call(from_start, 2 * S, models, X[0, :, 0], X[0, :, :0], totals)
    return float(totals[0])


def visits(models: Models, pi: FloatArray) -> FloatArray:
    """Expected visits [H, S, A] of a policy pi [H, S, A], in a box those in the best models of the last induction."""
    (H, S, A), d, none = pi.shape, np.zeros(pi.shape[:2]), np.zeros(0)
    signals, inflow = signals_of(np.zeros((1, 1, S, A))), readonly(np.zeros((0, S)))
    first = undrawn(np.zeros((1, 1), dtype=np.int16), 1)  # of the one row of the start
    call(occupy, S, models.start, first, signals, 0, np.ones(1), d[0], none)
    call(flow, work_of(models, H) // 4, models.rows, drawn(pi), signals, 0, H - 1, inflow, d, none)
    return d[..., None] * pi


def drawn(pi: FloatArray) -> Decisions:
    """A table pi [H, S, A] as compiled code takes it; it sees later changes of the table."""
    return Decisions(*map(readonly, all_drawn(pi)))


def signals_of(x: FloatArray) -> Signals:
    """Signals x [1 + N, 1 or H, S, A] as compiled code takes them."""
    return Signals(readonly(x[0]), readonly(x[1:]))


def work_of(models: Models, H: int) -> int:
    """Inner loops of a pass over all rows of H steps."""
    rows = models.rows
    work = 2 * len(rows.prob) if isinstance(rows, Rows) else len(rows.head) + len(rows.lo)
    return work * (H if rows.stride == 0 else 1)


# -- The best policy and, at the same time, the best model of a box under constraints ---------------------------------


class ExtendedPlan(NamedTuple):
    """A policy, and its values in the model of the box that was chosen with it."""

    pi: FloatArray  # [H, S, A]: the policy
    value: float  # expected total reward of the policy in that model
    utilities: FloatArray  # [N]: expected total utilities of the policy in that model
    lam: FloatArray  # [N]: multipliers; if infeasible, weights with max lam . (w - rho) < 0 over all pairs
    feasible: bool  # whether some pair of a policy and a model meets the thresholds
    q: FloatArray  # [H, S, A]: expected visits of the policy in that model


class PairSource:
    """The source of columns of the extended LP: pairs of a policy and one of the models; `pair` is the latest.

    x [1 + N, 1 or H, S, A] are the reward and the utilities, in whose `units` [1 + N] values are scaled.
    """

    exact = True
    first: tuple[PolicyColumn, ...] = ()

    def __init__(self, models: Models, x: FloatArray, allowed: BoolArray, H: int, units: FloatArray) -> None:
        self.models, self.x, self.units, self.N = models, x, units, len(x) - 1
        self.offsets, self.noise = np.zeros(1 + self.N), np.zeros(1 + self.N)
        self.best = np.full(self.N, np.inf)
        self.pair = BestPair.empty((H, *x.shape[2:]), 1 + self.N)
        self._signals, self._allowed = signals_of(x), readonly(allowed)

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """Values of backward induction are exact up to rounding."""
        return column

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The pair with the largest weights . (v, w), and that value."""
        pair = self.pair
        objective = (weights / self.units)[None] @ self.x.reshape(1 + self.N, -1)
        given = self.models, readonly(objective.reshape(self.x.shape[1:])), self._allowed, self._signals, pair
        call(best_pair, 2 * work_of(self.models, len(pair.policy.choice)), *given)
        largest, values = float(pair.totals[0]), pair.totals[1:] / self.units
        choice = pair.policy.choice.copy()
        return largest, [PolicyColumn(choice, float(values[0]), values[1:], weights, largest)]


def plan(
    models: Models,
    x: FloatArray,
    rho: FloatArray,
    allowed: BoolArray,
    H: int,
    guess: FloatArray | None = None,
    gap: float = 0.0,
) -> ExtendedPlan:
    """Maximise the reward over policies and over the models, with every utility at least rho [N].

    x [1 + N, 1 or H, S, A] are reward and utilities, allowed [1 or H, S, A] says which actions exist. If no pair of
    policy and model reaches rho, the plan is the one that misses it least, relative to the range of the utilities (for
    N = 1: the largest utility), and `feasible` is false. Multipliers near a `guess` [N] are found sooner; those of a
    similar problem are a good one. The plan is the best one up to rounding, or up to `gap` times H times the largest
    reward, which is proved.
    """
    largest = np.abs(x).max(axis=(1, 2, 3), initial=0.0)
    units = np.where(largest > 0, H * largest, 1.0)
    pool = Columns(PairSource(models, x, allowed, H, units), FEASIBLE, MAX_UNEXPLAINED_GAP)
    thresholds = pool.scaled(rho)
    if guess is not None and guess.any():
        for factor in (1.05, 0.95):  # the first two columns are priced on both sides of it
            pool.price(np.append(1.0, factor * guess * pool.units[1:] / pool.units[0]))
    if pool.N and not (pool.w >= thresholds).all(axis=1).any():
        t, weights, y = pool.reach(thresholds, np.ones(pool.N), enough=0.0)
        if t < -FEASIBLE:
            return _read_off(pool, weights, y / pool.units[1:], feasible=False)
    best = pool.maximise(thresholds, enough=lambda found: found.bound - found.value <= gap)
    return _read_off(pool, best.weights, best.lam * pool.units[0] / pool.units[1:], feasible=True)


def _read_off(pool: Columns[PairSource], weights: FloatArray, lam: FloatArray, *, feasible: bool) -> ExtendedPlan:
    """The policy q / sum_a q of a mixture of pairs, and the values of the mixture.

    In states that the mixture does not reach, the policy is that of the pair that was found last.
    """
    source, A = pool.source, pool.source.x.shape[3]
    pi = one_hot(source.pair.policy.choice, A)
    q, totals = np.zeros(pi.shape), np.zeros(1 + pool.N)
    for weight, column in pool.parts(weights):
        source.price(column.weights, 0.0)
        totals += weight * source.pair.totals[1:]
        q += weight * visits(source.models, one_hot(source.pair.policy.choice, A))
    used = q > NEGLIGIBLE
    reached = used.any(axis=-1)
    pi[reached] = np.where(used, q, 0.0)[reached]
    pi /= pi.sum(axis=-1, keepdims=True)
    return ExtendedPlan(pi, float(totals[0]), totals[1:], lam, feasible, q)
