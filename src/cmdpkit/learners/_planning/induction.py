"""Extended value iteration: the best policy and, at the same time, the best kernel of a box, for one objective.

It goes backward in h. Given the values V of the next step, the best row within [lo, up] starts from lo and gives the
missing probability to the states of largest V first, to each of them up to its `up`. One sort of the states serves all
rows of a step. Every state and action has a row of its own, so that the best rows can be chosen independently, and the
best policy is greedy for them. Cost O(H S^2 A). With lo = up it is plain backward induction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.columns import Choice
from cmdpkit.learners._planning.confidence import Box
from cmdpkit.model.compiled import compiled, readonly
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


class Optimistic(NamedTuple):
    """A deterministic policy, the kernel and start distribution chosen with it, and start values under all three."""

    choice: Choice  # [H, S]: the action of the policy
    p: FloatArray  # [H, S, A, S]: the kernel; 0 where the action does not exist
    mu: FloatArray  # [S]: the start distribution
    totals: FloatArray  # [1+M]: expected totals of the objective and of M further signals
    V: FloatArray  # [2, S]: working memory, the values of the present and of the next step
    X: FloatArray  # [2, S, M]: working memory, the same for the further signals
    order: IntArray  # [S]: working memory, the states in the order of falling values

    @classmethod
    def empty(cls, H: int, S: int, A: int, M: int) -> Optimistic:
        """Arrays for `extended_induction` to fill."""
        return cls(
            choice=np.zeros((H, S), dtype=np.int16),
            p=np.zeros((H, S, A, S)),
            mu=np.zeros(S),
            totals=np.zeros(1 + M),
            V=np.zeros((2, S)),
            X=np.zeros((2, S, M)),
            order=np.arange(S),
        )


def extended_value_iteration(
    box: Box, objective: FloatArray, signals: FloatArray, allowed: BoolArray, H: int
) -> Optimistic:
    """Maximise the expected total of `objective` [1 or H, S, A] over policies and over the kernels of a box.

    `signals` [M, 1 or H, S, A] are evaluated under the maximiser; `allowed` [1 or H, S, A] says which actions exist.
    """
    _, S, A = objective.shape
    found = Optimistic.empty(H, S, A, len(signals))
    extended_induction(Box(*map(readonly, box)), readonly(objective), readonly(signals), readonly(allowed), found)
    return found


@compiled
def extended_induction(box, objective, signals, allowed, found):
    """Fill `found` (an Optimistic)."""
    H, S = found.choice.shape
    A, M = allowed.shape[2], len(signals)
    found.V[H % 2] = 0.0
    found.X[H % 2] = 0.0
    for s in range(S):
        found.order[s] = s  # so that ties do not depend on what was computed before
    for h in range(H - 1, -1, -1):
        V, X = found.V[h % 2], found.X[h % 2]
        V_next, X_next = found.V[(h + 1) % 2], found.X[(h + 1) % 2]
        sort_descending(V_next, found.order)
        t, ho, ha, hx = h % len(box.lo), h % len(objective), h % len(allowed), h % signals.shape[1]
        for s in range(S):
            best, best_value = -1, -np.inf
            for a in range(A):
                if not allowed[ha, s, a]:
                    continue
                row = found.p[h, s, a]
                value = objective[ho, s, a] + best_row(box.lo[t, s, a], box.up[t, s, a], V_next, found.order, row)
                if value > best_value:
                    best, best_value = a, value
            found.choice[h, s] = best
            V[s] = best_value
            for m in range(M):
                X[s, m] = signals[m, hx, s, best]
                for s_next in range(S):
                    X[s, m] += found.p[h, s, best, s_next] * X_next[s_next, m]
    sort_descending(found.V[0], found.order)
    found.totals[0] = best_row(box.start_lo, box.start_up, found.V[0], found.order, found.mu)
    for m in range(M):
        found.totals[1 + m] = 0.0
        for s in range(S):
            found.totals[1 + m] += found.mu[s] * found.X[0, s, m]


@compiled
def best_row(lo, up, V, order, row):
    """Fill row [S] with the distribution in [lo, up] that maximises row . V; `order` lists the states by falling V."""
    missing, value = 1.0, 0.0
    for s in range(len(V)):
        row[s] = lo[s]
        missing -= lo[s]
        value += lo[s] * V[s]
    for s in order:
        if missing <= 0.0:
            break
        extra = min(up[s] - lo[s], missing)
        row[s] += extra
        missing -= extra
        value += extra * V[s]
    return value


@compiled
def sort_descending(V, order):
    """Reorder the states in `order` by falling V: insertion, which is quick where neighbouring steps agree."""
    for i in range(1, len(order)):
        s = order[i]
        j = i
        while j > 0 and V[order[j - 1]] < V[s]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = s
