"""Compiled sweeps over a Markov chain: one multiplication by its transition matrix after the other, until they settle.

They take less memory than LU factors, which fill up on random graphs, and one sweep is one pass over the transitions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.model.compiled import compiled, embedded, readonly

DAMPING = 0.9  # share of a new sweep where gamma = 1: periodic chains do not converge without damping
STUCK = 20  # sweeps without a smaller change after which it is rounding that is left,
NEARLY = 1e-13  # provided that the relative change is at most this
SETTLED = 1e-15  # relative change of a sweep that counts as none


class Sparse(NamedTuple):
    """The rows of a sparse matrix as compiled code sees them, always with the same types."""

    indptr: Any  # [rows + 1]
    columns: Any  # [nonzeros]
    data: Any  # [nonzeros]


def sparse_rows(P: Any) -> Sparse:
    """The rows of a SciPy matrix in CSR form."""
    return Sparse(
        readonly(P.indptr.astype(np.int64, copy=False)),
        readonly(P.indices.astype(np.int32, copy=False)),
        readonly(P.data.astype(np.float64, copy=False)),
    )


@compiled
def settle(P, x, gamma, tau, flows, relative, pivot, most, y, change):
    """Repeat y <- y + tau (x + gamma P y - y), in place, until it settles; whether it did within `most` sweeps.

    With `flows` it is P^T that multiplies. With `relative`, y is meant up to a constant, and is 0 at `pivot`.
    `change` [S] is room to work in.
    """
    S = len(y)
    largest = 0.0
    for s in range(S):
        largest = max(largest, abs(x[s]))
    smallest, waited = np.inf, 0
    for _ in range(most):
        if flows:
            _push(P, y, change)
        else:
            _pull(P, y, change)
        size, scale = _finish_change(x, gamma, relative, y, change)
        settled = size <= SETTLED * (scale + largest)
        if size < 0.9 * smallest:
            waited = 0
        else:
            waited += 1
        smallest = min(smallest, size)
        if not settled and waited > STUCK and size < NEARLY * scale:  # rounding lets it come no nearer
            return True
        if settled and relative:
            return True
        step = 1.0 if settled else tau
        base = y[pivot] + step * change[pivot] if relative else 0.0
        for s in range(S):
            y[s] = y[s] + step * change[s] - base
        if settled:
            return True
    return False


@embedded
def _pull(P, y, out):
    """out [S] = P y."""
    for s in range(len(y)):
        total = 0.0
        for e in range(P.indptr[s], P.indptr[s + 1]):
            total += P.data[e] * y[P.columns[e]]
        out[s] = total


@embedded
def _push(P, y, out):
    """out [S] = P^T y."""
    out[:] = 0.0
    for s in range(len(y)):
        for e in range(P.indptr[s], P.indptr[s + 1]):
            out[P.columns[e]] += P.data[e] * y[s]


@embedded
def _finish_change(x, gamma, relative, y, change):
    """Turn the product in `change` into x + gamma * product - y; how large that is, and how large y is."""
    low, high, size, largest, scale = np.inf, -np.inf, 0.0, 0.0, 0.0
    for s in range(len(y)):
        change[s] = x[s] + gamma * change[s] - y[s]
        low, high = min(low, change[s]), max(high, change[s])
        size += abs(change[s])
        largest = max(largest, abs(y[s]))
        scale += abs(y[s])
    return (high - low, largest) if relative else (size, scale)
