"""Sparse rows from entries in any order, in compiled passes whose time grows with the number of entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.compiled import compiled, embedded
from cmdpkit.model.first_calls import call

LONGEST_INSERTED = 64  # entries of a row; longer rows are sorted by NumPy, as sorting by insertion would take too long
Rows = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]


def assembled(n_rows: int, rows: Any, successors: Any, prob: Any) -> Rows:
    """Where each of n_rows rows begins [n_rows + 1], next states rising within a row, and their probabilities.

    Entries (row, next state, probability) that have row and next state in common are added up in the given order, and
    zeros are left out. Rows and next states must lie within their ranges, which is for the caller to check.
    """
    begins = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n_rows)))).astype(np.int64)
    s, p = np.empty(len(rows), dtype=np.int32), np.empty(len(rows))
    call(_deal, len(rows), rows, successors, prob, begins[:-1].copy(), s, p)
    for row in np.flatnonzero(np.diff(begins) > LONGEST_INSERTED):
        entries = slice(begins[row], begins[row + 1])
        if (np.diff(s[entries]) < 0).any():
            order = np.argsort(s[entries], kind="stable")
            s[entries], p[entries] = s[entries][order], p[entries][order]
    n = call(_tidy, 2 * len(rows) + n_rows, begins, s, p)
    return begins, s[:n].copy() if n < len(s) else s, p[:n].copy() if n < len(p) else p


@compiled
def _deal(rows, successors, prob, place, s, p):
    """Deal the entries out to their rows; `place` says where the next entry of each row goes."""
    for i in range(len(rows)):
        at = place[rows[i]]
        place[rows[i]] = at + 1
        s[at] = successors[i]
        p[at] = prob[i]


@compiled
def _tidy(begins, s, p):
    """Sort each row, add up what is there twice, drop zeros, close the gaps; returns how many entries are left."""
    kept = 0
    last = 0
    for row in range(len(begins) - 1):
        first, last = last, begins[row + 1]
        _insert(s, p, first, last)
        i = first
        while i < last:
            total, state = p[i], s[i]
            i += 1
            while i < last and s[i] == state:
                total += p[i]
                i += 1
            if total != 0.0:
                s[kept], p[kept] = state, total
                kept += 1
        begins[row + 1] = kept
    return kept


@embedded
def _insert(s, p, first, last):
    """Sort the entries of one row by their states, by insertion; those of the same state keep their order."""
    for i in range(first + 1, last):
        state, x, j = s[i], p[i], i
        while j > first and s[j - 1] > state:
            s[j], p[j] = s[j - 1], p[j - 1]
            j -= 1
        s[j], p[j] = state, x
