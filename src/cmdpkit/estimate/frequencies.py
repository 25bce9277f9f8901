"""Counts as transition rows: the observed frequencies, read off the lists of next states as they grow.

This is the model of `boxes.estimated` for learners that evaluate it after every episode: nothing has to be built.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.counts import Counts
from cmdpkit.model.compiled import compiled
from cmdpkit.operators.rows import expect, push, row_of


class Frequencies(NamedTuple):
    """Rows that divide by `extra` more than the number of moves; with 0 these are the frequencies.

    An action that was never tried leads back to its state, as far as it leads anywhere.
    """

    counts: Counts
    extra: int
    A: np.uint64  # number of actions
    stride: np.uint64  # from the rows of a step to those of the next one: S * A, or 0 if all steps have the same rows


@compiled(inline=True)
def frequencies(counts, A, extra):
    """The rows of counts for A actions."""
    cells = np.uint64(len(counts.starts) * A)
    return Frequencies(counts, extra, np.uint64(A), cells if np.uint64(len(counts.head)) > cells else np.uint64(0))


@row_of.of(Frequencies)
def _row(rows, h, s, a):
    return np.uint64(h) * rows.stride + np.uint64(s) * rows.A + np.uint64(a), np.uint64(s)


@expect.of(Frequencies)
def _expect(rows, row, V, x):
    counts, (i, s) = rows.counts, row
    n, j, total = counts.moves[i], counts.head[i], 0.0
    if n == 0:
        return x + V[s] if rows.extra == 0 else x
    while j >= 0:
        total += counts.times[j] * V[counts.state[j]]
        j = counts.link[j]
    return x + total / (n + rows.extra)


@push.of(Frequencies)
def _push(rows, row, mass, out):
    counts, (i, s) = rows.counts, row
    n, j = counts.moves[i], counts.head[i]
    if n == 0 and rows.extra == 0:
        out[s] += mass
    while j >= 0:
        out[counts.state[j]] += mass * counts.times[j] / (n + rows.extra)
        j = counts.link[j]
