"""Boxes of plausible kernels around the observed frequencies of one unbroken run.

A world that begins anew with probability e after each step is one whose kernel is (1 - e) P + e mu: the box is moved
and shrunk accordingly, and the programs over it know of nothing but long-run averages.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.estimate.boxes import Box, box_of
from cmdpkit.learners._continuing.counting import Counts
from cmdpkit.learners.spec import Spec
from cmdpkit.model.transitions import BoolArray, FloatArray


def frequencies(counts: Counts) -> FloatArray:
    """p [S, A, S], how often each transition followed; alike for all states where nothing was seen."""
    moved = counts.moves.sum(axis=2, keepdims=True)
    p: FloatArray = np.where(moved > 0, counts.moves / np.maximum(moved, 1), 1.0 / counts.moves.shape[2])
    return p


def may_lead(counts: Counts, few: int) -> BoolArray:
    """[S, A, S]: where a pair has led to; anywhere as long as it was tried fewer than `few` times."""
    seen = counts.moves > 0
    may: BoolArray = seen | (counts.visits < few)[:, :, None] | ~seen.any(axis=2, keepdims=True)
    return may


def box_around(p: FloatArray, radius: FloatArray, counts: Counts, spec: Spec, few: int) -> Box:
    """All kernels within radius [S, A, S] of p [S, A, S] that lead only where `may_lead` allows.

    The start of a box is the present state, which is known.
    """
    unseen = ~counts.moves.any(axis=2)[:, :, None]
    lo = np.where(unseen, 0.0, np.maximum(p - radius, 0.0))
    up = np.where(may_lead(counts, few), np.where(unseen, 1.0, np.minimum(p + radius, 1.0)), 0.0)
    if spec.restart:
        mu = counts.starts / counts.starts.sum()
        lo, up = ((1 - spec.restart) * side + spec.restart * mu for side in (lo, up))
    start = np.eye(1, spec.S, int(counts.place[0]))[0]
    return box_of(lo[None], up[None], start, start)
