"""Transition rows in several forms, and what can be done with one row of each.

The operators of `steps` are written on these *primitives*, and a form of rows is a NamedTuple with a body for each:

    row_of   the row of step h, state s and action a, in whatever form the other primitives take it
    expect   x + sum_i p_i V[s_i], added up in the order of the row, beginning with x; `expect2` for two signals at once
    at_most  a number no smaller than `expect` that costs less, where there is one
    push     out[s_i] += mass p_i
    prepare  what a form must know of V before its rows are asked for; most need nothing

The order of additions is part of the contract: results do not change in the last bit when a caller changes its form.
The body is chosen while compiling, by the type of the first argument. A new form needs no change of any operator.

Here are two forms: `Rows` of arrays, which is a model or a Markov chain, and `Stepped`, where a function gives the next
state and nothing is stored. A third form are the best rows of a box of models: as much probability as possible goes to
the states of largest value. A box gives every transition probability an interval. Given the values V of the next step,
the distribution of a row with the largest expectation begins with the smallest probabilities and gives what is missing
to the states of largest value first, to each up to its largest probability. One sort of the states, in `prepare`,
serves all rows of a step. Every state and action has a row of its own, so the best rows can be chosen independently,
and a policy that is greedy for them is the best one in the best model of the box. With lo = up these are plain rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.compiled import ONE, compiled, primitive
from cmdpkit.model.transitions import FloatArray, IntArray, Rows


@primitive
def row_of(rows, h, s, a):
    """The row of step h, state s and action a."""


@primitive
def expect(rows, row, V, x):
    """x + sum_i p_i V[s_i] for V [S]."""


@primitive
def expect2(rows, row, X, k, x, y):
    """x + sum_i p_i X[s_i, k] and y + sum_i p_i X[s_i, k + 1] for X [S, K]."""


@primitive
def at_most(rows, row, V, x):
    """A number no smaller than `expect`, up to rounding, found with less work; infinite where there is none."""


@primitive
def push(rows, row, mass, out):
    """Add mass p_i to out[s_i]."""


@primitive
def prepare(rows, h, V):
    """Get ready for rows of step h, which lead to states with values V [S]."""


@row_of.of(object)
def _row_of(rows, h, s, a):
    return np.uint64(h), np.uint64(s), np.uint64(a)


@expect2.of(object)
def _expect2(rows, row, X, k, x, y):
    return expect(rows, row, X[:, k], x), expect(rows, row, X[:, k + ONE], y)


@at_most.of(object)
def _at_most(rows, row, V, x):
    return np.inf


@prepare.of(object)
def _prepare(rows, h, V):
    pass


# -- Rows of arrays ---------------------------------------------------------------------------------------------------


@row_of.of(Rows)
def _array_row(rows, h, s, a):
    return np.uint64(h) * rows.stride + np.uint64(s) * rows.A + np.uint64(a)


@expect.of(Rows)
def _array_expect(rows, row, V, x):
    value = x
    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
        value += rows.prob[i] * V[rows.successors[i]]
    return value


@expect2.of(Rows)
def _array_expect2(rows, row, X, k, x, y):
    value, other = x, y
    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
        p, s = rows.prob[i], rows.successors[i]
        value += p * X[s, k]
        other += p * X[s, k + ONE]
    return value, other


@push.of(Rows)
def _array_push(rows, row, mass, out):
    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
        out[rows.successors[i]] += mass * rows.prob[i]


# -- No rows at all: a step function ----------------------------------------------------------------------------------


class Stepped(NamedTuple):
    """The next state is step(data, h, s, a, w) for an outcome w with probability chance[w]; nothing else is stored.

    Two outcomes may lead to the same state. Compiled operators on a step function are compiled in every process.
    """

    step: Any  # a compiled function that returns an index of a state
    data: Any  # its first argument: a number, an array, or a NamedTuple of them
    chance: FloatArray  # [W], probabilities of the outcomes


@expect.of(Stepped)
def _stepped_expect(rows, row, V, x):
    value = x
    for w in range(len(rows.chance)):
        value += rows.chance[w] * V[rows.step(rows.data, row[0], row[1], row[2], w)]
    return value


@push.of(Stepped)
def _stepped_push(rows, row, mass, out):
    for w in range(len(rows.chance)):
        out[rows.step(rows.data, row[0], row[1], row[2], w)] += mass * rows.chance[w]


# -- The best rows of a box of models ----------------------------------------------------------------------------------


class BestRows(NamedTuple):
    """A box, and the order of the states by which its best rows are chosen.

    The states of a row with an interval of their own stand in a linked list, like the transitions of `Counts`. All
    others share the interval [0, unseen]. A start distribution is a box with one row.
    """

    head: NDArray[np.integer]  # [rows], the first entry of each row's list, -1 if it is empty
    link: NDArray[np.integer]  # [entries], the next entry of the same row, -1 at the end
    state: NDArray[np.integer]  # [entries], the next state of each entry
    lo: FloatArray  # [entries], its smallest probability
    up: FloatArray  # [entries], its largest probability
    unseen: FloatArray  # [rows], the largest probability of any one state that is not in the list
    spare: FloatArray  # [rows], 1 - sum of lo, the probability that is still to be given out
    order: IntArray  # [H, S], filled by `prepare`: states by falling value, for the rows of each step
    room: FloatArray  # [S], -1 everywhere; working memory
    to: IntArray  # [2 S], the next states of the row that was written last; working memory
    prob: FloatArray  # [2 S], their probabilities; working memory
    A: np.uint64  # number of actions
    stride: np.uint64  # from the rows of a step to those of the next one: S * A, or 0 if all steps have the same rows

    @classmethod
    def of(
        cls,
        lists: tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.integer]],
        lo: FloatArray,
        up: FloatArray,
        unseen: FloatArray,
        spare: FloatArray,
        shape: tuple[int, int, int],
    ) -> BestRows:
        """A box for a horizon H, S states and A actions; `lists` are head, link and state."""
        H, S, A = shape
        order = np.tile(np.arange(S), (H, 1))
        work = np.full(S, -1.0), np.zeros(2 * S, dtype=np.int64), np.zeros(2 * S)
        return cls(
            *lists, lo, up, unseen, spare, order, *work, np.uint64(A), np.uint64(S * A if len(unseen) > S * A else 0)
        )


@row_of.of(BestRows)
def _best_row(rows, h, s, a):
    return np.uint64(h), np.uint64(h) * rows.stride + np.uint64(s) * rows.A + np.uint64(a)


@expect.of(BestRows)
def _best_expect(rows, row, V, x):
    value = 0.0  # x is added last, as in `at_most`, so that both round alike
    for i in range(write_row(rows, row[0], row[1])):
        value += rows.prob[i] * V[rows.to[i]]
    return x + value


@expect2.of(BestRows)
def _best_expect2(rows, row, X, k, x, y):
    value, other = 0.0, 0.0
    for i in range(write_row(rows, row[0], row[1])):
        value += rows.prob[i] * X[rows.to[i], k]
        other += rows.prob[i] * X[rows.to[i], k + ONE]
    return x + value, y + other


@at_most.of(BestRows)
def _best_at_most(rows, row, V, x):
    """All that is missing goes to the state of largest value."""
    value, j = rows.spare[row[1]] * V[rows.order[row[0], 0]], rows.head[row[1]]
    while j >= 0:
        value += rows.lo[j] * V[rows.state[j]]
        j = rows.link[j]
    return x + value


@push.of(BestRows)
def _best_push(rows, row, mass, out):
    for i in range(write_row(rows, row[0], row[1])):
        out[rows.to[i]] += mass * rows.prob[i]


@compiled
def write_row(rows, h, row):
    """Write the best row to `to` and `prob`: first the smallest probabilities, then the rest; returns its length."""
    n, j = 0, rows.head[row]
    while j >= 0:
        rows.to[n], rows.prob[n] = rows.state[j], rows.lo[j]
        rows.room[rows.state[j]] = rows.up[j] - rows.lo[j]
        n, j = n + 1, rows.link[j]
    listed, missing, i = n, rows.spare[row], 0
    while missing > 0.0 and i < rows.order.shape[1]:
        s = rows.order[h, i]
        more = min(rows.unseen[row] if rows.room[s] < 0.0 else rows.room[s], missing)
        rows.to[n], rows.prob[n] = s, more
        n, missing, i = n + 1, missing - more, i + 1
    for i in range(listed):
        rows.room[rows.to[i]] = -1.0
    return n


@prepare.of(BestRows)
def _best_prepare(rows, h, V):
    """Sort the states by falling V, by insertion: quick, since neighbouring steps nearly agree on the order.

    It begins with the order of the next step. That of the last step is sorted as it is, and the values are equal there.
    """
    H, order = len(rows.order), rows.order[h]
    for i in range(len(order)):
        s = order[i] if h == H - 1 else rows.order[h + 1, i]
        value, j = V[np.uint64(s)], i
        while j > 0 and V[np.uint64(order[j - 1])] < value:
            order[j] = order[j - 1]
            j -= 1
        order[j] = s
