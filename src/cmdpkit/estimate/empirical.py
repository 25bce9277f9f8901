"""Counts of what was seen, and the estimates they give.

`Counts` is a tuple of named arrays that compiled loops update in place and checkpoints save (`Counts._asdict`). With
T = H every step has its own counts; with T = 1 they are pooled over the steps, for worlds that are declared stationary
(`Spec.stationary`). What the first and the second half of the steps saw is then also kept apart, to warn where the data
contradict the declaration. The last step has no transition, so the moves counted at a pair may be fewer
than its visits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.halves import count_half, marks_of, new_halves
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray


class Counts(NamedTuple):
    """What was seen so far."""

    starts: IntArray  # [S]: episodes that began in each state
    visits: IntArray  # [T, S, A]: how often each action was taken
    moves: IntArray  # [T, S, A, S]: how often each transition was seen; none are counted at the last step
    signals: FloatArray  # [1+N, T, S, A]: reward and utilities, summed over visits
    squares: FloatArray  # [1+N, T, S, A]: squares of reward and utilities, summed over visits
    halves: FloatArray  # [S * A or 0, 2, 3 + 2 (1 + N)]: the first and second half of the steps, if pooled
    marks: FloatArray  # [S]: a fixed random number per state, by which next states are told apart in `halves`


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


def no_counts(H: int, S: int, A: int, N: int, *, pooled: bool = False) -> Counts:
    """Counts before the first episode.

    >>> no_counts(3, 2, 4, 1).moves.shape, no_counts(3, 2, 4, 1, pooled=True).moves.shape
    ((3, 2, 4, 2), (1, 2, 4, 2))
    """
    cells = (1 if pooled else H, S, A)
    return Counts(
        starts=np.zeros(S, dtype=np.int64),
        visits=np.zeros(cells, dtype=np.int64),
        moves=np.zeros((*cells, S), dtype=np.int64),
        signals=np.zeros((1 + N, *cells)),
        squares=np.zeros((1 + N, *cells)),
        halves=new_halves(S * A if pooled else 0, 1 + N),
        marks=marks_of(S),
    )


def means_of(counts: Counts) -> Means:
    """Means of everything counted."""
    cells = counts.visits.shape
    means = Means(
        mu=np.zeros(len(counts.starts)),
        p=np.zeros(counts.moves.shape),
        signals=np.zeros(counts.signals.shape),
        episodes=np.zeros(1, dtype=np.int64),
        moved=np.zeros(cells, dtype=np.int64),
        visits=np.zeros(cells, dtype=np.int64),
    )
    update_means(counts, means)
    return means


@compiled
def count_start(counts, s):
    """An episode begins in s."""
    counts.starts[s] += 1


@compiled
def count_step(counts, h, s, a, outcomes, x):
    """Action a was taken at (h, s) and earned outcomes[x] [1+N]."""
    t = np.uint64(h) % np.uint64(len(counts.visits))
    counts.visits[t, s, a] += 1
    for n in range(len(counts.signals)):
        counts.signals[n, t, s, a] += outcomes[x, n]
        counts.squares[n, t, s, a] += outcomes[x, n] * outcomes[x, n]


@compiled
def count_move(counts, h, s, a, s_next):
    """Action a at (h, s) led to s_next; not to be called at the last step."""
    counts.moves[np.uint64(h) % np.uint64(len(counts.moves)), s, a, s_next] += 1


@compiled
def compare_halves(counts, H, h, s, a, s_next, outcomes, x):
    """Note the step apart in the half of the episode that it lies in, if all steps share their counts."""
    if len(counts.halves) > 0:
        cell = s * counts.visits.shape[2] + a
        count_half(counts.halves[cell, 2 * h // H], counts.marks[s_next], outcomes[x])


@compiled
def update_means(counts, means):
    """Fill `means` (Means) from the counts."""
    T, S, A = counts.visits.shape
    update_start_estimate(counts, means)
    for t in range(T):
        for s in range(S):
            for a in range(A):
                update_row(counts, means, t, s, a)


@compiled
def update_row(counts, means, t, s, a):
    """Fill what `means` (Means) says of one cell."""
    means.visits[t, s, a] = counts.visits[t, s, a]
    seen = max(counts.visits[t, s, a], 1)
    for n in range(len(counts.signals)):
        means.signals[n, t, s, a] = counts.signals[n, t, s, a] / seen
    means.moved[t, s, a] = _sum(counts.moves[t, s, a])
    _fill_shares(counts.moves[t, s, a], means.moved[t, s, a], means.p[t, s, a])


@compiled
def update_start_estimate(counts, means):
    """Fill the start distribution of `means` (Means)."""
    means.episodes[0] = _sum(counts.starts)
    _fill_shares(counts.starts, means.episodes[0], means.mu)


@compiled
def _sum(seen):
    """The sum of counts [S]; `np.sum` would allocate."""
    total = 0
    for s in range(len(seen)):
        total += seen[s]
    return total


@compiled
def _fill_shares(seen, total, p):
    """Fill p [S] with the shares of counts `seen` [S] in their total; uniform if there are none."""
    for s in range(len(seen)):
        p[s] = seen[s] / total if total > 0 else 1.0 / len(seen)
