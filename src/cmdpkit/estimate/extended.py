"""The best policy and, at the same time, the best kernel of a box: for one objective, and under constraints.

**Extended value iteration** is for one objective and goes backward in h. Given the values V of the next step, the best
row within [lo, up] starts from lo and gives the missing probability to the states of largest V first, to each of them
up to its `up`. One sort of the states serves all rows of a step. Every state and action has a row of its own, so that
the best rows can be chosen independently, and the best policy is greedy for them. Cost O(H S^2 A). With lo = up it is
plain backward induction.

**The extended LP** has constraints:

    maximise <z, r>  over z[h, s, a, s'] = q[h, s, a] p[h, s, a, s'], p in the box, q the occupancy of a policy under p
    subject to <z, g_n> >= rho_n for all n

Written out it has H S^2 A variables and twice as many rows. Its extreme points are deterministic policies with an
extreme kernel each, so column generation solves it with extended value iteration as pricing; the logic is that of a
known model (`cmdpkit.exact.columns`). A mixture of such points is a point of the same polytope, so a policy and a
kernel of the box can be read off it. With lo = up = p it is the plain occupancy LP on p.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import Box
from cmdpkit.exact.columns import Columns, PolicyColumn
from cmdpkit.exact.induction import Choice
from cmdpkit.model.compiled import compiled, internal, readonly
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import FEASIBLE, MAX_UNEXPLAINED_GAP, NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


class Optimistic(NamedTuple):
    """A deterministic policy, the kernel and start distribution chosen with it, and start values under all three.

    The kernel is not written out. `fill_row` makes any row of it from the box and the order of the states.
    """

    choice: Choice  # [H, S]: the action of the policy
    order: IntArray  # [H+1, S]: states by falling value, for rows of each step; last, for the start distribution
    totals: FloatArray  # [1+M]: expected totals of the objective and of M further signals
    V: FloatArray  # [2, S]: working memory, the values of the present and of the next step
    X: FloatArray  # [2, S, M]: working memory, the same for the further signals
    row: FloatArray  # [S]: working memory, a row of the kernel

    @classmethod
    def empty(cls, H: int, S: int, M: int) -> Optimistic:
        """Arrays for `extended_induction` to fill."""
        return cls(
            choice=np.zeros((H, S), dtype=np.int16),
            order=np.zeros((H + 1, S), dtype=np.int64),
            totals=np.zeros(1 + M),
            V=np.zeros((2, S)),
            X=np.zeros((2, S, M)),
            row=np.zeros(S),
        )


def extended_value_iteration(
    box: Box, objective: FloatArray, signals: FloatArray, allowed: BoolArray, H: int
) -> Optimistic:
    """Maximise the expected total of `objective` [1 or H, S, A] over policies and over the kernels of a box.

    `signals` [M, 1 or H, S, A] are evaluated under the maximiser; `allowed` [1 or H, S, A] says which actions exist.
    """
    found = Optimistic.empty(H, objective.shape[1], len(signals))
    extended_induction(Box(*map(readonly, box)), readonly(objective), readonly(signals), readonly(allowed), found)
    return found


@compiled
def extended_induction(box, objective, signals, allowed, found):
    """Fill `found` (an Optimistic)."""
    H, S = found.choice.shape
    M = len(signals)
    found.V[H % 2] = 0.0
    found.X[H % 2] = 0.0
    for s in range(S):
        found.order[H - 1, s] = s  # all values after the last step are equal
    for h in range(H - 1, -1, -1):
        _step(box, objective, signals, allowed, found, h)
        before = h - 1 if h > 0 else H  # whose rows lead to the values just found
        for s in range(S):
            found.order[before, s] = found.order[h, s]
        sort_descending(found.V[h % 2], found.order[before])
    fill_row(box.start_lo, box.start_up, found.order[H], found.row)
    for m in range(1 + M):
        found.totals[m] = 0.0
    for s in range(S):
        found.totals[0] += found.row[s] * found.V[0, s]
        for m in range(M):
            found.totals[1 + m] += found.row[s] * found.X[0, s, m]


@compiled
def _step(box, objective, signals, allowed, found, h):
    """Choose the actions of step h, and fill the values V and X of its states."""
    S, A, M = len(found.row), allowed.shape[2], len(signals)
    V, X = found.V[h % 2], found.X[h % 2]
    V_next, X_next = found.V[(h + 1) % 2], found.X[(h + 1) % 2]
    t, ho, ha, hx = h % len(box.lo), h % len(objective), h % len(allowed), h % signals.shape[1]
    last = h + 1 == len(found.choice)
    for s in range(S):
        best, best_value = -1, -np.inf
        for a in range(A):
            if not allowed[ha, s, a]:
                continue
            value = objective[ho, s, a]
            if not last:
                value += row_value(box, t, s, a, V_next, found.order[h])
            if value > best_value:
                best, best_value = a, value
        found.choice[h, s] = best
        V[s] = best_value
        for m in range(M):
            X[s, m] = signals[m, hx, s, best]
        if last or M == 0:
            continue
        fill_row(box.lo[t, s, best], box.up[t, s, best], found.order[h], found.row)
        for s_next in range(S):
            if found.row[s_next] > 0.0:
                for m in range(M):
                    X[s, m] += found.row[s_next] * X_next[s_next, m]


@internal
def row_value(box, t, s, a, V, order):
    """The largest expectation of V over the distributions of a row of the box; `order` lists states by falling V."""
    lo, up, states = box.lo[t, s, a], box.up[t, s, a], box.states[t, s, a]
    value = 0.0
    for i in range(box.needed[t, s, a]):
        s_next = np.uint64(states[i])
        value += lo[s_next] * V[s_next]
    missing = box.missing[t, s, a]
    for i in range(len(order)):
        if missing <= 0.0:
            break
        s_next = np.uint64(order[i])
        extra = min(up[s_next] - lo[s_next], missing)
        missing -= extra
        value += extra * V[s_next]
    return value


@internal
def fill_row(lo, up, order, row):
    """Fill row [S] with the distribution in [lo, up] that gives as much as possible to the states first in `order`."""
    missing = 1.0
    for s in range(len(row)):
        row[s] = lo[s]
        missing -= lo[s]
    for i in range(len(order)):
        if missing <= 0.0:
            break
        at = np.uint64(order[i])
        extra = min(up[at] - lo[at], missing)
        row[at] += extra
        missing -= extra


@internal
def sort_descending(V, order):
    """Reorder the states in `order` by falling V: insertion, which is quick where neighbouring steps agree."""
    for i in range(1, len(order)):
        s = order[i]
        value = V[np.uint64(s)]
        j = i
        while j > 0 and V[np.uint64(order[j - 1])] < value:
            order[j] = order[j - 1]
            j -= 1
        order[j] = s


class ExtendedPlan(NamedTuple):
    """A policy, and its values in the model of the box that was chosen with it."""

    pi: FloatArray  # [H, S, A]: the policy
    value: float  # expected total reward of the policy in that model
    utilities: FloatArray  # [N]: expected total utilities of the policy in that model
    lam: FloatArray  # [N]: multipliers; if infeasible, weights with max lam . (w - rho) < 0 over all pairs
    feasible: bool  # whether some pair of a policy and a model meets the thresholds
    q: FloatArray  # [H, S, A]: expected visits of the policy in that model


class PairSource:
    """A source of columns that are pairs of a policy and a model, with values that are exact up to rounding."""

    exact = True
    first: tuple[PolicyColumn, ...] = ()

    def __init__(self, units: FloatArray) -> None:
        self.units, self.N = units, len(units) - 1
        self.offsets, self.noise = np.zeros(1 + self.N), np.zeros(1 + self.N)
        self.best = np.full(self.N, np.inf)

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """Values of backward induction are exact up to rounding."""
        return column


class BoxSource(PairSource):
    """The source of columns of the extended LP: pairs of a policy and a kernel in the box; `last` is the latest."""

    def __init__(self, box: Box, r: FloatArray, g: FloatArray, allowed: BoolArray, H: int) -> None:
        largest = np.array([float(np.abs(x).max(initial=0.0)) for x in (r, *g)])
        super().__init__(np.where(largest > 0, H * largest, 1.0))
        (_, self.S, self.A), self.r, self.g = r.shape, r, g
        self.last = Optimistic.empty(H, self.S, 1 + self.N)
        signals = np.empty((1 + self.N, max(len(r), g.shape[1] if len(g) else 1), self.S, self.A))
        for signal, x in zip(signals, (r, *g), strict=True):
            signal[:] = x
        self.box, self._signals, self._allowed = Box(*map(readonly, box)), readonly(signals), readonly(allowed)
        self._objective = np.zeros(signals.shape[1:])

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The pair with the largest weights . (v, w), and that value."""
        per_unit = weights / self.units
        np.multiply(self.r, per_unit[0], out=self._objective)
        for n, x in enumerate(self.g):
            if per_unit[1 + n]:
                self._objective += per_unit[1 + n] * x
        extended_induction(self.box, readonly(self._objective), self._signals, self._allowed, self.last)
        total, values = float(self.last.totals[0]), self.last.totals[1:] / self.units
        return total, [PolicyColumn(self.last.choice.copy(), float(values[0]), values[1:], weights, total)]


def plan(
    box: Box,
    r: FloatArray,
    g: FloatArray,
    rho: FloatArray,
    allowed: BoolArray,
    H: int,
    guess: FloatArray | None = None,
    gap: float = 0.0,
) -> ExtendedPlan:
    """Maximise the reward over policies and kernels of the box, with every utility at least rho [N].

    r [1 or H, S, A], g [N, 1 or H, S, A], allowed [1 or H, S, A]. If no pair of policy and kernel reaches rho, the plan
    is the one that misses it least, relative to the range of the utilities (for N = 1: the largest utility), and
    `feasible` is false. Multipliers near a `guess` [N] are found sooner; those of a similar problem are a good one.
    The plan is the best one up to rounding, or up to `gap` times H times the largest reward, which is proved.
    """
    pool = Columns(BoxSource(box, r, g, allowed, H), FEASIBLE, MAX_UNEXPLAINED_GAP)
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


def _read_off(pool: Columns[BoxSource], weights: FloatArray, lam: FloatArray, *, feasible: bool) -> ExtendedPlan:
    """The policy q / sum_a q of a mixture of pairs, and the values of the mixture.

    In states that the mixture does not reach, the policy is that of the pair that was found last.
    """
    source = pool.source
    pi = one_hot(source.last.choice, source.A)
    q, d, totals = np.zeros(pi.shape), np.zeros((2, source.S)), np.zeros(1 + pool.N)
    for weight, column in pool.parts(weights):
        source.price(column.weights, 0.0)
        totals += weight * source.last.totals[1:]
        _add_flow(weight, source.box, source.last, d, q)
    used = q > NEGLIGIBLE
    reached = used.any(axis=-1)
    pi[reached] = np.where(used, q, 0.0)[reached]
    pi /= pi.sum(axis=-1, keepdims=True)
    return ExtendedPlan(pi, float(totals[0]), totals[1:], lam, feasible, q)


@compiled
def _add_flow(weight, box, pair, d, q):
    """Add `weight` times the flow of a pair (an Optimistic) to q [H, S, A]; d [2, S] is working memory."""
    H, S = pair.choice.shape
    fill_row(box.start_lo, box.start_up, pair.order[H], pair.row)
    for s in range(S):
        d[0, s] = weight * pair.row[s]
    for h in range(H):
        now, then, t = d[h % 2], d[(h + 1) % 2], h % len(box.lo)
        then[:] = 0.0
        for s in range(S):
            if now[s] == 0.0:
                continue
            a = pair.choice[h, s]
            q[h, s, a] += now[s]
            if h + 1 < H:
                fill_row(box.lo[t, s, a], box.up[t, s, a], pair.order[h], pair.row)
                for s_next in range(S):
                    then[s_next] += now[s] * pair.row[s_next]
