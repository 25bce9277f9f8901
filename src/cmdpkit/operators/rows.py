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
state and nothing is stored. The best rows of a box of models have a module of their own, `best_rows`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.model.compiled import ONE, primitive
from cmdpkit.model.transitions import FloatArray, Rows


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
