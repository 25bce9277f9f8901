"""Extended value iteration: the best policy and, at the same time, the best kernel of a box, for one objective.

It goes backward in h. Given the values V of the next step, the best row within [lo, up] starts from lo and gives the
missing probability to the states of largest V first, to each of them up to its `up`. One sort of the states serves all
rows of a step. Every state and action has a row of its own, so that the best rows can be chosen independently, and the
best policy is greedy for them. Cost O(H S^2 A). With lo = up it is plain backward induction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import Box
from cmdpkit.exact.induction import Choice
from cmdpkit.model.compiled import compiled, internal, readonly
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
