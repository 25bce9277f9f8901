"""Transition rows as lists: rows selected, joined, searched, and turned into SciPy matrices and back.

In a model as the stationary solver takes it, state s has the rows first[s] to first[s + 1] - 1, one for each of its
actions. A policy is improved over such rows, and what its values lack is computed, without knowing what rows are for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from cmdpkit.model.compiled import ONE, ZERO, compiled, readonly
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Rows
from cmdpkit.operators.rows import expect


def rows_of(P: Any) -> Rows:
    """The rows of a SciPy matrix, which are those of a chain if it is square."""
    P = sparse.csr_array(P)
    return _rows(P.indptr.astype(np.uint64), P.indices.astype(np.uint32), P.data.astype(np.float64))


def _rows(indptr: NDArray[np.uint64], successors: NDArray[np.uint32], prob: FloatArray) -> Rows:
    return Rows(readonly(indptr), readonly(successors), readonly(prob), ONE, ZERO)


def lengths(rows: Rows) -> IntArray:
    """[R], the number of entries of every row."""
    return np.diff(rows.indptr).astype(np.int64)


def matrix_of(rows: Rows, S: int) -> Any:
    """The rows as a SciPy matrix [R, S]."""
    entries = (rows.prob, rows.successors.astype(np.int32), rows.indptr.astype(np.int64))
    return sparse.csr_array(entries, shape=(len(rows.indptr) - 1, S))


class Entries(NamedTuple):
    """All entries of a list of rows."""

    row: IntArray  # [entries], which row has the entry
    to: NDArray[np.uint32]  # [entries], where it leads
    prob: FloatArray  # [entries], how likely that is


def entries_of(rows: Rows) -> Entries:
    """Row, next state and probability of every entry."""
    return Entries(np.repeat(np.arange(len(rows.indptr) - 1), lengths(rows)), rows.successors, rows.prob)


def joined(rows: Rows, used: IntArray, weights: FloatArray, owner: IntArray, S: int) -> Rows:
    """One row for each of S states: those of `used` rows that it owns, in rising order, times their weights."""
    length = lengths(rows)[used]
    ends = np.cumsum(length)
    at = np.arange(int(length.sum())) + np.repeat(rows.indptr[used].astype(np.int64) - (ends - length), length)
    indptr = np.append(0, np.cumsum(np.bincount(owner, length, S))).astype(np.uint64)
    return _rows(indptr, rows.successors[at], rows.prob[at] * np.repeat(weights, length))


class Selection(NamedTuple):
    """Some rows of some states, renumbered."""

    first: NDArray[np.uint64]  # [S + 1], the first row of every state
    rows: Rows
    kept: IntArray  # [R], which of the original rows they are
    lost: FloatArray  # [R], what they lose to states that were left out


def selected(
    rows: Rows, first: NDArray[np.uint64], states: IntArray, wanted: BoolArray, *, normalised: bool = False
) -> Selection:
    """The wanted rows of some states, given in rising order, without entries of probability 0.

    With ``normalised``, each row is divided by the sum of what is left of it.
    """
    number = np.full(len(first) - 1, -1, dtype=np.int64)
    number[states] = np.arange(len(states))
    most, entries = len(wanted), len(rows.prob)
    new_first, indptr = np.zeros(len(states) + 1, dtype=np.uint64), np.zeros(most + 1, dtype=np.uint64)
    successors, prob = np.empty(entries, dtype=np.uint32), np.empty(entries)
    kept, lost = np.zeros(most, dtype=np.int64), np.zeros(most)
    given = rows, first, number, readonly(wanted), normalised
    R, n = _select(*given, new_first, indptr, successors, prob, kept, lost)
    return Selection(new_first, _rows(indptr[: R + 1], successors[:n], prob[:n]), kept[:R], lost[:R])


@compiled
def _select(rows, first, number, wanted, normalised, new_first, indptr, successors, prob, kept, lost):
    """Fill the arrays of a `Selection`, and return the numbers of rows and of entries."""
    n, i = 0, 0
    for s in range(len(number)):
        if number[s] < 0:
            continue
        for row in range(first[s], first[s + 1]):
            if not wanted[row]:
                continue
            begin, total = n, 0.0
            for e in range(rows.indptr[row], rows.indptr[row + ONE]):
                t = number[rows.successors[e]]
                if t < 0:
                    lost[i] += rows.prob[e]
                elif rows.prob[e] > 0.0:
                    successors[n], prob[n] = t, rows.prob[e]
                    total += rows.prob[e]
                    n += 1
            if normalised:
                for e in range(begin, n):
                    prob[e] /= total
            kept[i] = row
            i += 1
            indptr[i] = n
        new_first[number[s] + 1] = i
    return i, n


class Followed(NamedTuple):
    """The Markov chain of a policy that takes one row in every state, and its signals."""

    rows: Rows  # row s is that of state s; a compact copy, because it is multiplied many times
    x: FloatArray  # [S, K]


def followed(rows: Rows, X: FloatArray, choice: IntArray, entries: int) -> Followed:
    """The chain of a choice [S] of rows that have this many entries, with signals X [K, R]."""
    indptr, x = np.zeros(len(choice) + 1, dtype=np.uint64), np.empty((len(choice), len(X)))
    successors, prob = np.empty(entries, dtype=np.uint32), np.empty(entries)
    _gather(rows, X, choice, indptr, successors, prob, x)
    return Followed(_rows(indptr, successors, prob), x)


@compiled
def _gather(rows, X, choice, indptr, successors, prob, x):
    """Fill the arrays of `Followed`."""
    n = ZERO
    for s in range(np.uint64(len(choice))):
        i = np.uint64(choice[s])
        for e in range(rows.indptr[i], rows.indptr[i + ONE]):
            successors[n], prob[n] = rows.successors[e], rows.prob[e]
            n += ONE
        indptr[s + ONE] = n
        for k in range(len(X)):
            x[s, k] = X[k, i]


def reached_from(rows: Rows, first: NDArray[np.uint64], start: BoolArray) -> BoolArray:
    """[S], the states that can be reached from those in `start` [S]; every entry of a row is a possible step."""
    begin, index = np.flatnonzero(start), np.int32 if len(rows.prob) + len(start) < 2**31 else np.int64
    indptr = np.append(rows.indptr[first], len(rows.prob) + len(begin)).astype(index)  # SciPy copies other types
    to = np.append(rows.successors, begin.astype(np.uint32)).astype(index)
    S = len(start)  # and one more state, from which the search begins
    graph = sparse.csr_array((np.ones(len(to)), to, indptr), shape=(S + 1, S + 1))
    reached = np.zeros(S + 1, dtype=bool)
    reached[breadth_first_order(graph, S, return_predecessors=False)] = True
    return reached[:S]


@compiled
def improve_rows(rows, first, o, h, tie, choice):
    """Let every state take its best row for o [R] and what follows, h [S], unless its present one is within `tie`.

    State s has the rows first[s] to first[s + 1] - 1. `choice` [S] is updated in place. Returns the largest entry of
    T h - h, and how many states moved.
    """
    high, moved = -np.inf, 0
    for s in range(np.uint64(len(h))):
        top, chosen = first[s], np.uint64(choice[s])
        best, kept = -np.inf, -np.inf
        for i in range(first[s], first[s + ONE]):
            value = expect(rows, i, h, o[i])
            top = i if value > best else top
            best = value if value > best else best
            kept = value if i == chosen else kept
        high = max(high, best - h[s])
        if kept < best - tie:
            choice[s] = top
            moved += 1
    return high, moved


@compiled
def differences(rows, owner, loss, o, h, delta, size):
    """delta_i = o_i + sum_j P_ij (h_j - h_s) - loss_i h_s for every row i of state s, and the size of what is added.

    It is o_i + P_i h - h_s for a row that loses loss_i, without the subtraction of nearly equal numbers: where a
    state is seldom left, h is large and differs little from state to state. o, delta and size are [K, rows], h [K, S].
    """
    for k in range(len(o)):
        for i in range(np.uint64(o.shape[1])):
            here, total, scale = h[k, owner[i]], 0.0, 0.0
            for e in range(rows.indptr[i], rows.indptr[i + ONE]):
                term = rows.prob[e] * (h[k, rows.successors[e]] - here)
                total += term
                scale += abs(term)
            delta[k, i] = o[k, i] + total - loss[i] * here
            size[k, i] = scale + abs(loss[i] * here)
