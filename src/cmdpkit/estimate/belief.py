"""What the counts say of the model, kept up to date row by row.

A planner looks at the estimated kernel, at its radii and at the box they leave. All of these have H S^2 A entries, or
S^2 A where the steps share their counts, but from one plan to the next only those rows change whose action was taken
meanwhile. `refresh` finds these rows by their number of visits and leaves all others alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import (
    Box,
    box_of,
    list_needed_row,
    point,
    total_radius,
    update_box_row,
    update_start,
)
from cmdpkit.estimate.counts import Counts
from cmdpkit.estimate.means import Means, means_of, update_row, update_start_estimate
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray

STALE = -1  # a number of visits that no row has, so that the row is filled again


class Belief(NamedTuple):
    """Estimates, how far they can be trusted, and the kernels that remain possible."""

    means: Means  # the estimated model
    box: Box  # kernels to plan with: all within their radii, or the estimated one alone
    width: FloatArray  # [T, S, A]: sum_s' beta_p, the radii of a row added up

    def transition_bonus(self, H: int) -> FloatArray:
        """`width` for every step [H, S, A]; 0 at the last one, which no transition follows."""
        bonus = np.broadcast_to(self.width, (H, *self.width.shape[1:])).copy()
        bonus[H - 1] = 0.0
        return bonus


def new_belief(counts: Counts, A: int, *, boxed: bool) -> Belief:
    """A belief that has seen nothing; `boxed` asks for the box of all kernels within their radii."""
    means = means_of(counts, A)
    sides = (np.zeros(means.p.shape), np.zeros(means.p.shape), np.zeros(means.mu.shape), np.zeros(means.mu.shape))
    belief = Belief(means, box_of(*sides) if boxed else point(means.p, means.mu), np.zeros(means.visits.shape))
    forget(belief)
    return belief


def forget(belief: Belief) -> None:
    """Let the next `refresh` fill every row."""
    belief.means.visits[...] = STALE


@compiled
def refresh(counts, belief, log, H, boxed):
    """Bring a belief up to date with the counts; `log` is that of the radii of transitions."""
    means, box = belief.means, belief.box
    T, S, A = means.visits.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                if means.visits[t, s, a] == counts.visits[(t * S + s) * A + a]:
                    continue
                update_row(counts, means, t, s, a)
                belief.width[t, s, a] = total_radius(means.p[t, s, a], means.moved[t, s, a], log)
                if boxed:
                    update_box_row(means, log, H, box, t, s, a)
                else:
                    list_needed_row(box.lo[t, s, a], box.needed, box.states, box.missing, t, s, a)
    update_start_estimate(counts, means)
    if boxed:
        update_start(means, log, box)
