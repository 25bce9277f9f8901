"""Dense estimates of everything counted, as planners over boxes need them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.counts import Counts, signals_of, steps_of
from cmdpkit.model.compiled import compiled, internal
from cmdpkit.model.transitions import FloatArray, IntArray


class Means(NamedTuple):
    """Empirical means and how many observations each rests on."""

    mu: FloatArray  # [S]: start distribution; uniform before the first episode
    p: FloatArray  # [T, S, A, S]: transition probabilities; uniform where no transition was seen
    signals: FloatArray  # [1+N, T, S, A]: mean reward and utilities; 0 where the action was never taken
    episodes: IntArray  # [1]: number of episodes that the start distribution rests on
    moved: IntArray  # [T, S, A]: number of transitions that each row of p rests on
    visits: IntArray  # [T, S, A]: number of visits that the mean signals rest on

    @property
    def r(self) -> FloatArray:
        """Mean reward [T, S, A]."""
        r: FloatArray = self.signals[0]
        return r

    @property
    def g(self) -> FloatArray:
        """Mean utilities [N, T, S, A]."""
        return self.signals[1:]


def means_of(counts: Counts, A: int) -> Means:
    """Means of everything counted; A is the number of actions."""
    S = len(counts.starts)
    cells, M = (steps_of(counts, A), S, A), signals_of(counts)
    means = Means(
        mu=np.zeros(S),
        p=np.zeros((*cells, S)),
        signals=np.zeros((M, *cells)),
        episodes=np.zeros(1, dtype=np.int64),
        moved=np.zeros(cells, dtype=np.int64),
        visits=np.zeros(cells, dtype=np.int64),
    )
    update_means(counts, means)
    return means


@compiled
def update_means(counts, means):
    """Fill `means` (Means) from the counts."""
    T, S, A = means.visits.shape
    update_start_estimate(counts, means)
    for t in range(T):
        for s in range(S):
            for a in range(A):
                update_row(counts, means, t, s, a)


@internal
def update_row(counts, means, t, s, a):
    """Fill what `means` (Means) says of one cell."""
    _, S, A = means.visits.shape
    cell = (t * S + s) * A + a
    visits, moved, p = counts.visits[cell], counts.moves[cell], means.p[t, s, a]
    means.visits[t, s, a], means.moved[t, s, a] = visits, moved
    for n in range(len(means.signals)):
        means.signals[n, t, s, a] = counts.moments[cell, n] / max(visits, 1)
    for s_next in range(S):
        p[s_next] = 0.0 if moved > 0 else 1.0 / S
    j = counts.head[cell]
    while j >= 0:
        p[counts.state[j]] = counts.times[j] / moved
        j = counts.link[j]


@internal
def update_start_estimate(counts, means):
    """Fill the start distribution of `means` (Means)."""
    S, total = len(counts.starts), 0
    for s in range(S):
        total += counts.starts[s]
    means.episodes[0] = total
    for s in range(S):
        means.mu[s] = counts.starts[s] / total if total > 0 else 1.0 / S
