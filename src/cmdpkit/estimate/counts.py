"""The one store of counts: transitions that were seen, and the moments of what each step earned.

A *cell* is a pair (state, action), or a triple (step, state, action) where the world is not declared stationary. The
next states seen from a cell are kept as a linked list, so memory grows with the transitions seen and never with the
square of the number of states. A transition out of the last step is not observed and not counted, so a cell may have
fewer moves than visits.

`Counts` is a tuple of named arrays that compiled loops change in place. Only the lists of next states grow: a caller
makes room before (`with_room`, `with_room_for_episodes`), because compiled code does not allocate.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel
from cmdpkit.operators.rows import expect, push, row_of

PARTS = 4  # of an episode: its first step, its two halves without both ends, its last step (see `count_episode`)
MARKS = 2  # numbers by which next states are told apart


class Counts(NamedTuple):
    """Counts of everything seen; compiled code changes the arrays in place. M = 1 + N signals, reward first."""

    head: NDArray[np.int32]  # [cells]: the first entry of the cell's list, -1 where nothing was seen
    link: NDArray[np.int32]  # [capacity]: the next entry of the same list, -1 at its end
    state: NDArray[np.int32]  # [capacity]: a next state
    times: IntArray  # [capacity]: how often the cell led there
    used: IntArray  # [1]: entries in use
    visits: IntArray  # [cells]: how often the action was taken
    moves: IntArray  # [cells]: how often its next state was seen
    moments: FloatArray  # [cells, M + M (M + 1) / 2]: sums of the signals, and the lower triangle of their products
    starts: IntArray  # [S]: episodes that began there
    parts: FloatArray  # [cells, PARTS, 1 + 2 M]: records for `changes.compared` of the signals, by part of the episode
    part_moves: FloatArray  # [cells, PARTS, 1 + 2 MARKS]: the same of the next states, by their marks
    marks: FloatArray  # [MARKS, S]: the marks of every state


class Episode(NamedTuple):
    """The episode under way, step by step."""

    states: IntArray  # [H]
    actions: IntArray  # [H]
    signals: FloatArray  # [H, M]
    totals: FloatArray  # [M]


def new_counts(T: int, S: int, A: int, M: int, capacity: int = 256) -> Counts:
    """Nothing seen yet, with room for `capacity` transitions; T is 1 where all steps share their counts, else H."""
    cells = T * S * A
    return Counts(
        head=np.full(cells, -1, dtype=np.int32),
        link=np.zeros(capacity, dtype=np.int32),
        state=np.zeros(capacity, dtype=np.int32),
        times=np.zeros(capacity, dtype=np.int64),
        used=np.zeros(1, dtype=np.int64),
        visits=np.zeros(cells, dtype=np.int64),
        moves=np.zeros(cells, dtype=np.int64),
        moments=np.zeros((cells, M + M * (M + 1) // 2)),
        starts=np.zeros(S, dtype=np.int64),
        parts=new_records(cells if T == 1 else 0, PARTS, M),
        part_moves=new_records(cells if T == 1 else 0, PARTS, MARKS),
        marks=several_marks(S, MARKS),
    )


def new_records(cells: int, groups: int, quantities: int) -> FloatArray:
    """Room for what is observed: number, then sum and squares of every quantity, by cell and group."""
    return np.zeros((cells, groups, 1 + 2 * quantities))


def several_marks(S: int, marks: int = 3) -> FloatArray:
    """[marks, S]: the number of the state, which shows shifts along an order of the states, and random marks.

    Random marks are in the lower third for half of the states and in the upper third for the others. A shift towards a
    state in the middle would not change the mean of a mark.
    """
    rng = np.random.default_rng(S)
    drawn = [(2 * (rng.permutation(S) % 2) + rng.random(S)) / 3 for _ in range(marks - 1)]
    return np.array([np.linspace(0.0, 1.0, S), *drawn])


def new_episode(H: int, M: int) -> Episode:
    """Room for one episode."""
    return Episode(np.zeros(H, dtype=np.int64), np.zeros(H, dtype=np.int64), np.zeros((H, M)), np.zeros(M))


def with_room(counts: Counts, entries: int) -> Counts:
    """The same counts with room for more transitions; arrays are replaced only if they must grow."""
    needed = int(counts.used[0]) + entries
    capacity = len(counts.link)
    if needed <= capacity:
        return counts
    extra = max(2 * capacity, needed) - capacity
    link, state, times = (np.append(x, np.zeros(extra, x.dtype)) for x in (counts.link, counts.state, counts.times))
    return counts._replace(link=link, state=state, times=times)


def with_room_for_episodes(counts: Counts, H: int, least: int = 64) -> tuple[Counts, int]:
    """The same counts with room for some more episodes of H steps, and for how many; at least `least`.

    The room is at least as large as what is in use, so that a long run is rarely interrupted to make more.
    """
    used = int(counts.used[0])
    grown = with_room(counts, max(used, least * H))
    return grown, (len(grown.link) - used) // H


def steps_of(counts: Counts, A: int) -> int:
    """T, the number of steps that have counts of their own: 1 where all steps share their counts."""
    return len(counts.head) // (len(counts.starts) * A)


def signals_of(counts: Counts) -> int:
    """M, the number of signals: the reward and N utilities."""
    columns = counts.moments.shape[1]  # M (M + 3) / 2
    return (math.isqrt(9 + 8 * columns) - 3) // 2


@compiled(inline=True)
def count_step(counts, cell, outcomes, x):
    """The action of a cell was taken and earned the signals outcomes[x] [M]."""
    counts.visits[cell] += 1
    M = outcomes.shape[1]
    i = M
    for m in range(M):
        counts.moments[cell, m] += outcomes[x, m]
        for n in range(m + 1):
            counts.moments[cell, i] += outcomes[x, m] * outcomes[x, n]
            i += 1


@compiled(inline=True)
def count_episode(counts, episode, A):
    """Add an episode that has ended to the counts; returns how many cells it visited for the first time.

    If all steps share their counts, signals and next states are recorded by the part of the episode, too. Both ends are
    parts of their own, so that a penalty at the last step is not diluted by steps without it.
    """
    H = len(episode.signals)
    S = len(counts.starts)
    T = len(counts.head) // (S * A)
    new = 0
    counts.starts[episode.states[0]] += 1
    for h in range(H):
        t = 0 if T == 1 else h
        cell = (t * S + episode.states[h]) * A + episode.actions[h]
        part = 0 if h == 0 else PARTS - 1 if h == H - 1 else 1 + (2 * h >= H)
        new += counts.visits[cell] == 0
        count_step(counts, cell, episode.signals, h)
        if T == 1:
            _add_record(counts.parts[cell, part], episode.signals[h])
        if h + 1 < H:
            count_move(counts, cell, episode.states[h + 1])
            if T == 1:
                _add_record(counts.part_moves[cell, part], counts.marks[:, episode.states[h + 1]])
    return new


@compiled(inline=True)
def _add_record(record, x):
    """Add the quantities x [Q] of one observation to a record for `changes.compared`."""
    record[0] += 1.0
    for q in range(len(x)):
        record[1 + 2 * q] += x[q]
        record[2 + 2 * q] += x[q] * x[q]


@compiled(inline=True)
def count_move(counts, cell, s_next):
    """The cell led to s_next."""
    counts.moves[cell] += 1
    j = counts.head[cell]
    while j >= 0:
        if counts.state[j] == s_next:
            counts.times[j] += 1
            return
        j = counts.link[j]
    j = counts.used[0]
    counts.used[0] += 1
    counts.state[j] = s_next
    counts.times[j] = 1
    counts.link[j] = counts.head[cell]
    counts.head[cell] = j


# -- From counts to a model ------------------------------------------------------------------------------------------
#
# All estimated models of the package are made here: a row of weights is divided by its sum, a sum of signals by the
# number of observations, and the number of starts in each state by the number of episodes.


class Estimated(NamedTuple):
    """The model that counts suggest."""

    kernel: Kernel  # observed frequencies; an action whose next state was never seen leads back to its state
    signals: FloatArray  # [M, T, S, A]: mean reward and utilities; 0 where the action was never taken
    mu: FloatArray  # [S]: observed frequencies of starts; uniform before the first


def estimated(counts: Counts, A: int) -> Estimated:
    """The observed frequencies and means, for A actions."""
    shape = steps_of(counts, A), len(counts.starts), A
    means = signal_means(counts).T.reshape(-1, *shape)
    return Estimated(kernel_of(shape, *entries_of(counts)), means, start_of(counts.starts))


def kernel_of(
    shape: tuple[int, int, int],
    rows: IntArray,
    successors: IntArray,
    weights: IntArray | FloatArray,
    unknown: IntArray | None = None,
) -> Kernel:
    """Rows in proportion to the weights of entries (row, next state, weight) in any order, for a shape (T, S, A).

    Weights are numbers of transitions, to which the caller may have added guesses. A row without any leads to its state
    of `unknown` [T * S * A], by default back to where it is.

    >>> kernel_of((1, 2, 1), np.array([0, 0, 0]), np.array([1, 0, 1]), np.ones(3)).dense(1)[0, :, 0].round(4)
    array([[0.3333, 0.6667],
           [0.    , 1.    ]])
    """
    T, S, A = shape
    total = np.bincount(rows, weights, T * S * A)
    empty = np.flatnonzero(total == 0)
    to = empty // A % S if unknown is None else unknown[empty]
    rows, to = np.append(rows, empty), np.append(successors, to)
    every: FloatArray = np.append(weights, np.ones(len(empty))).astype(float)
    total[empty] = 1.0
    order = np.lexsort((to, rows))
    rows, to, every = rows[order], to[order], every[order]
    first = np.flatnonzero(np.append(True, (np.diff(rows) != 0) | (np.diff(to) != 0)))
    rows, to, every = rows[first], to[first], np.add.reduceat(every, first)
    used = every > 0
    return Kernel.in_order(shape, rows[used], to[used], every[used] / total[rows[used]])


def means_of(sums: FloatArray | IntArray, n: IntArray | FloatArray) -> FloatArray:
    """Sums of n observations as means; 0 where there are none."""
    means: FloatArray = sums / np.maximum(n, 1)
    return means


def start_of(starts: IntArray | FloatArray) -> FloatArray:
    """The start distribution of episodes that began starts [S] times in each state; uniform before the first."""
    total = starts.sum()
    mu: FloatArray = starts / total if total else np.full(len(starts), 1 / len(starts))
    return mu


@compiled(inline=True)
def mean_of(counts, cell, m, extra):
    """The mean of signal m in a cell; the sum is divided by `extra` more than the number of visits."""
    return counts.moments[cell, m] / max(counts.visits[cell] + extra, 1)


def entries_of(counts: Counts) -> tuple[IntArray, IntArray, IntArray]:
    """[used] each: cell, next state and number of times of every transition that was seen."""
    used = int(counts.used[0])
    owner = np.empty(used, dtype=np.int64)
    cell = np.flatnonzero(counts.head >= 0)
    at = counts.head[cell]
    while len(at):  # every list one entry further
        owner[at], at = cell, counts.link[at]
        cell, at = cell[at >= 0], at[at >= 0]
    return owner, counts.state[:used].astype(np.int64), counts.times[:used]


def with_transitions(counts: Counts, cell: IntArray, s_next: IntArray, times: IntArray) -> Counts:
    """Counts without any transitions with these [E], which are sorted by cell; `moves` is left to the caller."""
    seen, first = np.unique(cell, return_index=True)
    counts.head[seen] = first
    link = np.arange(1, len(cell) + 1, dtype=np.int32)
    link[np.append(first[1:], len(cell))[: len(first)] - 1] = -1  # where the list of a cell ends
    states, used = s_next.astype(np.int32), np.array([len(cell)])
    return counts._replace(link=link, state=states, times=times.astype(np.int64), used=used)


def signal_means(counts: Counts) -> FloatArray:
    """[cells, M]: mean reward and utilities, 0 where the action was never taken."""
    return means_of(counts.moments[:, : signals_of(counts)], counts.visits[:, None])


def signal_squares(counts: Counts, M: int) -> FloatArray:
    """[cells, M]: sums of the squared signals, which are the diagonal of the triangle of products."""
    return counts.moments[:, M + np.cumsum(np.arange(1, M + 1)) - 1]


def signal_variances(counts: Counts, c: FloatArray) -> FloatArray:
    """[cells]: variance of c . signals among the visits of each cell."""
    M = len(c)
    rows, columns = np.tril_indices(M)
    pairs = np.where(rows == columns, 1.0, 2.0) * c[rows] * c[columns]
    seen = np.maximum(counts.visits, 1)
    variances: FloatArray = np.maximum(counts.moments[:, M:] @ pairs / seen - (signal_means(counts) @ c) ** 2, 0.0)
    return variances


# -- Counts as transition rows, for learners that evaluate the estimated model after every episode --------------------


class Frequencies(NamedTuple):
    """The observed frequencies, read off the lists of next states as they grow, so that nothing has to be built.

    Rows divide by `extra` more than the number of moves; with 0 this is the model of `estimated`. An action that
    was never tried leads back to its state, as far as it leads anywhere.
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
