"""Transition weights: how much each next state of a row counts, as a sparse list, from counts and from priors.

A model is made of weights by dividing rows by their sums: the observed frequencies, draws from a posterior, and
observations to which guesses are added. Row (t * S + s) * A + a is that of step t, state s and action a.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cmdpkit.estimate.counts import Counts, entries_of
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Rows
from cmdpkit.operators.row_lists import rows_of


class RowWeights(NamedTuple):
    """Positive weights, sorted by row and next state, each of which occurs once."""

    row: IntArray  # [E]
    to: IntArray  # [E], the next state
    weight: FloatArray  # [E]


def observed(counts: Counts) -> RowWeights:
    """How often each transition was seen."""
    return added(len(counts.starts), entries_of(counts))


def added(S: int, *parts: tuple[IntArray, IntArray, FloatArray | IntArray]) -> RowWeights:
    """The sum of lists (row, next state, weight), each in any order, for S states."""
    rows, states, weights = (np.concatenate(x) for x in zip(*parts, strict=True))
    keys, place = np.unique(rows * S + states, return_inverse=True)
    total: FloatArray = np.bincount(place, weights, len(keys)).astype(float)
    there = total > 0
    return RowWeights(keys[there] // S, keys[there] % S, total[there])


def everywhere(rows: IntArray, S: int, weight: float) -> RowWeights:
    """These rows, in rising order, with the same weight on all states."""
    return RowWeights(np.repeat(rows, S), np.tile(np.arange(S), len(rows)), np.full(len(rows) * S, float(weight)))


def shared(seen: RowWeights, rows: IntArray, S: int, A: int, weight: float) -> RowWeights:
    """These rows with a weight shared by all states to which some action has led from the same state and step."""
    pairs = np.unique(seen.row // A * S + seen.to)
    first = np.searchsorted(pairs // S, np.arange(rows.max(initial=0) // A + 2))
    place, length = rows // A, np.diff(first)[rows // A]
    at = np.arange(int(length.sum())) + np.repeat(first[place] - (np.cumsum(length) - length), length)
    return RowWeights(np.repeat(rows, length), pairs[at] % S, np.repeat(weight * (1.0 / np.maximum(length, 1)), length))


def led(seen: RowWeights, R: int) -> BoolArray:
    """[R]: whether a row has any weight."""
    return np.bincount(seen.row, minlength=R) > 0


def gamma_drawn(shape: RowWeights, R: int, S: int, prior: float, draw: np.random.Generator) -> RowWeights:
    """RowWeights drawn from Gamma distributions, which become Dirichlet ones when rows are divided by their sums.

    A row without weights says nothing, so that every state has the weight `prior` in it.
    """
    shape = added(S, shape, everywhere(np.flatnonzero(~led(shape, R)), S, prior))
    drawn = draw.standard_gamma(shape.weight)
    lost = np.bincount(shape.row, drawn, R)[shape.row] == 0.0  # all draws were rounded to 0, which small shapes can do
    return shape._replace(weight=np.where(lost, shape.weight, drawn))


def normalised(weights: RowWeights, R: int, S: int) -> Rows:
    """R transition rows in proportion to the weights."""
    P: Any = sparse.csr_array((weights.weight, (weights.row, weights.to)), shape=(R, S))
    total = np.asarray(P.sum(axis=1)).reshape(-1)
    return rows_of(sparse.diags_array(np.where(total > 0, 1.0 / np.maximum(total, 1e-300), 0.0)) @ P)
