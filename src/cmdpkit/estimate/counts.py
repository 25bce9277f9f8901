"""What closed-loop PRI remembers: transitions that were seen, and the moments of what each step earned.

A *cell* is a pair (state, action), or a triple (step, state, action) where the world is not declared stationary. The
next states seen from a cell are kept as a linked list, so memory grows with the transitions seen and never with the
square of the number of states. A transition out of the last step is not observed and not counted, so a cell may have
fewer moves than visits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.estimate.halves import count_half, marks_of, new_halves
from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel

FIRST_CAPACITY = 256  # transitions there is room for at the beginning


class Memory(NamedTuple):
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
    halves: FloatArray  # [cells, 2, 3 + 2 M]: the same in the first and second half of the steps, see `count_half`
    marks: FloatArray  # [S]: a fixed random number per state, by which next states are told apart in `halves`


class Episode(NamedTuple):
    """The episode under way, step by step."""

    states: IntArray  # [H]
    actions: IntArray  # [H]
    signals: FloatArray  # [H, M]
    totals: FloatArray  # [M]


def new_memory(T: int, S: int, A: int, M: int) -> Memory:
    """Nothing seen yet; T is 1 where all steps share their counts, else H."""
    cells = T * S * A
    return Memory(
        head=np.full(cells, -1, dtype=np.int32),
        link=np.zeros(FIRST_CAPACITY, dtype=np.int32),
        state=np.zeros(FIRST_CAPACITY, dtype=np.int32),
        times=np.zeros(FIRST_CAPACITY, dtype=np.int64),
        used=np.zeros(1, dtype=np.int64),
        visits=np.zeros(cells, dtype=np.int64),
        moves=np.zeros(cells, dtype=np.int64),
        moments=np.zeros((cells, M + M * (M + 1) // 2)),
        starts=np.zeros(S, dtype=np.int64),
        halves=new_halves(cells if T == 1 else 0, M),
        marks=marks_of(S),
    )


def new_episode(H: int, M: int) -> Episode:
    """Room for one episode."""
    return Episode(np.zeros(H, dtype=np.int64), np.zeros(H, dtype=np.int64), np.zeros((H, M)), np.zeros(M))


def with_room(memory: Memory, entries: int) -> Memory:
    """The same memory with room for so many more transitions; arrays are replaced only if they must grow."""
    needed = int(memory.used[0]) + entries
    capacity = len(memory.link)
    if needed <= capacity:
        return memory
    extra = max(2 * capacity, needed) - capacity
    grown = {name: np.append(x, np.zeros(extra, x.dtype)) for name, x in _lists(memory).items()}
    return memory._replace(**grown)


def _lists(memory: Memory) -> dict[str, NDArray[np.generic]]:
    return {"link": memory.link, "state": memory.state, "times": memory.times}


@inlined
def count_episode(memory, episode, A):
    """Add an episode that has ended to the memory; returns how many cells it visited for the first time."""
    H, M = episode.signals.shape
    S = len(memory.starts)
    T = len(memory.head) // (S * A)
    new = 0
    memory.starts[episode.states[0]] += 1
    for h in range(H):
        t = 0 if T == 1 else h
        cell = (t * S + episode.states[h]) * A + episode.actions[h]
        new += memory.visits[cell] == 0
        memory.visits[cell] += 1
        i = M
        for m in range(M):
            memory.moments[cell, m] += episode.signals[h, m]
            for n in range(m + 1):
                memory.moments[cell, i] += episode.signals[h, m] * episode.signals[h, n]
                i += 1
        if h + 1 < H:
            count_move(memory, cell, episode.states[h + 1])
            if T == 1:
                count_half(memory.halves[cell, 2 * h // H], memory.marks[episode.states[h + 1]], episode.signals[h])
    return new


@inlined
def count_move(memory, cell, s_next):
    """The cell led to s_next."""
    memory.moves[cell] += 1
    j = memory.head[cell]
    while j >= 0:
        if memory.state[j] == s_next:
            memory.times[j] += 1
            return
        j = memory.link[j]
    j = memory.used[0]
    memory.used[0] += 1
    memory.state[j] = s_next
    memory.times[j] = 1
    memory.link[j] = memory.head[cell]
    memory.head[cell] = j


def transitions(memory: Memory, T: int, A: int) -> Kernel:
    """The estimated kernel; a cell whose next state was never seen stays where it is."""
    S = len(memory.starts)
    cells = len(memory.head)
    used = int(memory.used[0])
    owner = np.empty(used, dtype=np.int64)
    _owners(memory.head, memory.link, owner)
    known = memory.moves > 0
    stay = np.flatnonzero(~known)
    rows = np.concatenate((owner, stay))
    successors = np.concatenate((memory.state[:used].astype(np.int64), stay // A % S))
    prob = np.concatenate((memory.times[:used] / memory.moves[owner], np.ones(len(stay))))
    order = np.lexsort((successors, rows))
    indptr = np.zeros(cells + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=cells), out=indptr[1:])
    return Kernel.owning(T, S, A, indptr, successors[order].astype(np.int32), prob[order])


@compiled
def _owners(head, link, owner):
    """Fill owner [used] with the cell that every entry belongs to."""
    for cell in range(len(head)):
        j = head[cell]
        while j >= 0:
            owner[j] = cell
            j = link[j]


def signal_means(memory: Memory, M: int) -> FloatArray:
    """[cells, M]: mean reward and utilities, 0 where the action was never taken."""
    means: FloatArray = memory.moments[:, :M] / np.maximum(memory.visits, 1)[:, None]
    return means


def signal_variances(memory: Memory, c: FloatArray) -> FloatArray:
    """[cells]: variance of c . signals among the visits of each cell."""
    M = len(c)
    rows, columns = np.tril_indices(M)
    pairs = np.where(rows == columns, 1.0, 2.0) * c[rows] * c[columns]
    seen = np.maximum(memory.visits, 1)
    variances: FloatArray = np.maximum(memory.moments[:, M:] @ pairs / seen - (signal_means(memory, M) @ c) ** 2, 0.0)
    return variances
