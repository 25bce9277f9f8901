"""Values of a policy in an estimated model.

Q[h] = x[h] + p[h] V[h+1], V[h, s] = sum_a pi[h, s, a] Q[h, s, a], V[H] = 0. Truncated evaluation also cuts every Q[h]
to [0, H - h] before V is taken: no sum of numbers in [0, 1] over the steps that remain lies outside, so nothing true is
lost when x carries an optimistic bonus. Pessimistic utilities are never truncated: cutting them from below would call a
policy safer than it was shown to be.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import compiled, internal, readonly
from cmdpkit.model.transitions import FloatArray


def policy_values(p: FloatArray, x: FloatArray, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Q [H, S, A] and V [H+1, S] of a signal x [1 or H, S, A] under pi [H, S, A] and p [1 or H, S, A, S]."""
    Q, V = np.zeros(pi.shape), np.zeros((pi.shape[0] + 1, pi.shape[1]))
    update_values(readonly(p), readonly(x), readonly(pi), Q, V)
    return Q, V


@compiled
def update_values(p, x, pi, Q, V):
    """Fill Q [H, S, A] and V [H+1, S]."""
    _backward(p, x, pi, -np.inf, np.inf, Q, V)


@internal
def update_truncated_values(p, x, pi, Q, V):
    """Fill Q [H, S, A], cut to [0, H - h], and V [H+1, S]."""
    _backward(p, x, pi, 0.0, 1.0, Q, V)


@internal
def _backward(p, x, pi, least, most_per_step, Q, V):
    """The recursion with every Q[h] cut to [least, most_per_step * (H - h)]."""
    H, S, A = pi.shape
    V[H] = 0.0
    for h in range(H - 1, -1, -1):
        t, hx = h % len(p), h % len(x)
        most = most_per_step * (H - h)
        for s in range(S):
            total = 0.0
            for a in range(A):
                value = x[hx, s, a]
                for s_next in range(S):
                    value += p[t, s, a, s_next] * V[h + 1, s_next]
                Q[h, s, a] = min(max(value, least), most)
                total += pi[h, s, a] * Q[h, s, a]
            V[h, s] = total
