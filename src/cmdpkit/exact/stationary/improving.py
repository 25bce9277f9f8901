"""Compiled passes over the rows of a model: the best row of every state, and sweeps of the policy that takes these."""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import compiled


@compiled
def improve(P, first, o, gamma, tie, h, choice, change):
    """Let every state take its best row for o [R] and what follows, h [S], unless its present one is within `tie`.

    State s has the rows first[s] to first[s + 1] - 1. `choice` [S] is updated in place; `change` [S] becomes
    T h - h with the T of the choice. Returns the smallest and the largest entry of T h - h with the T of all rows.
    """
    low, high = np.inf, -np.inf
    for s in range(len(h)):
        best, top, kept = -np.inf, first[s], -np.inf
        for i in range(first[s], first[s + 1]):
            total = 0.0
            for e in range(P.indptr[i], P.indptr[i + 1]):
                total += P.data[e] * h[P.columns[e]]
            value = o[i] + gamma * total
            if value > best:
                best, top = value, i
            if i == choice[s]:
                kept = value
        if kept < best - tie:
            choice[s], kept = top, best
        change[s] = kept - h[s]
        low, high = min(low, best - h[s]), max(high, best - h[s])
    return low, high


@compiled
def follow(P, o, choice, gamma, tau, most, aim, h, change):
    """At most `most` sweeps of the choice [S], until the span of their change is at most `aim`; how many there were.

    h [S] moves in place and is 0 at the first state. `change` [S] is that of the choice at h, before and after.
    """
    for sweep in range(most):
        base = h[0] + tau * change[0]
        for s in range(len(h)):
            h[s] = h[s] + tau * change[s] - base
        low, high = np.inf, -np.inf
        for s in range(len(h)):
            total = 0.0
            for e in range(P.indptr[choice[s]], P.indptr[choice[s] + 1]):
                total += P.data[e] * h[P.columns[e]]
            change[s] = o[choice[s]] + gamma * total - h[s]
            low, high = min(low, change[s]), max(high, change[s])
        if high - low <= aim:
            return sweep + 1
    return most
