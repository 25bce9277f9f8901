"""What a run saw in an environment, by periods of time, so that a change of the environment can be found afterwards.

An environment may change while it is learned in: demand rises, a machine wears. A run therefore counts next states and
signals apart in up to `PERIODS` periods of equal length. When all are full, neighbours are merged and periods are
twice as long, so memory does not grow with the run. Which period an episode lies in depends on its number alone, so a
run that is resumed counts as if it had never been interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.changes import Judge, Observed
from cmdpkit.estimate.counts import owners
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray

PERIODS = 16  # the longest of a run; there are at least half as many once they were merged
MOST_ENTRIES = 50_000  # transitions that are kept apart; cells that have others are left out of the comparison
LEFT_OUT, EMPTY = -2, -1  # marks of cells without a list


class Periods:
    """Counts of transitions and moments of signals in unit scale, by period. M = 1 + N signals, reward first."""

    def __init__(self, T: int, S: int, A: int, M: int) -> None:
        self.shape = (T, S, A)  # S with the state in which an episode is over; T is 1 if all steps share their cells
        self.head = np.full(T * S * A, EMPTY, dtype=np.int32)  # [cells]: the last entry of the cell
        self.link = np.zeros(0, dtype=np.int32)  # [room]: the entry before it, or EMPTY
        self.next = np.zeros(0, dtype=np.int32)  # [room]: the next state, or S where it does not matter
        self.seen = np.zeros((0, PERIODS, 1 + 2 * M))  # [room]: number, sums and squares of the signals
        self.starts = np.zeros((PERIODS, S))  # first states of episodes
        self.used = np.zeros(1, dtype=np.int64)  # entries
        self.episodes = 0  # that were counted

    def clear(self) -> None:
        """Forget everything."""
        self.__init__(*self.shape, (self.seen.shape[2] - 1) // 2)  # type: ignore[misc]

    def count(
        self, states: IntArray, actions: IntArray, lengths: IntArray, signals: FloatArray, first: int, k: int
    ) -> None:
        """Count episodes up to k; states and actions [n, H], lengths [n], signals [n, H, M] begin with ``first``."""
        while self.episodes < k:
            length = _length(self.episodes)
            if self.episodes == PERIODS * length // 2 and self.episodes >= PERIODS:
                self._merge()
            last = min(k, PERIODS * length)
            a, b = self.episodes - first, last - first
            self._make_room(int(lengths[a:b].sum()))
            into = (self.head, self.link, self.next, self.seen, self.starts, self.used, self.shape[0])
            _count(*into, states[a:b], actions[a:b], lengths[a:b], signals[a:b], self.episodes, length)
            self.episodes = last

    def _merge(self) -> None:
        """Merge periods in pairs."""
        half = PERIODS // 2
        for array in (self.seen[: self.used[0]].swapaxes(0, 1), self.starts):
            array[:half] = array[::2] + array[1::2]
            array[half:] = 0.0

    def _make_room(self, entries: int) -> None:
        """Make room for more entries, up to the largest number there may be."""
        needed = min(int(self.used[0]) + entries, MOST_ENTRIES)
        if needed > len(self.link):
            extra = min(max(needed, 2 * len(self.link)), MOST_ENTRIES) - len(self.link)
            self.link, self.next = (np.append(x, np.zeros(extra, x.dtype)) for x in (self.link, self.next))
            self.seen = np.concatenate((self.seen, np.zeros((extra, *self.seen.shape[1:]))))

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything, for a checkpoint."""
        used = int(self.used[0])
        return {
            "head": self.head.copy(),
            "link": self.link[:used].copy(),
            "next": self.next[:used].copy(),
            "seen": self.seen[:used].copy(),
            "starts": self.starts.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Continue from a checkpoint after k episodes; one that does not fit is refused."""
        head, link, nexts, seen = (state[name] for name in ("head", "link", "next", "seen"))
        used = len(link)
        sound = len(nexts) == len(seen) == used <= MOST_ENTRIES
        sound = sound and bool(((head >= LEFT_OUT) & (head < used)).all() and (link >= EMPTY).all())
        sound = sound and bool((link < np.arange(used)).all() and ((nexts >= 0) & (nexts <= self.shape[1])).all())
        if not sound:
            raise CmdpkitError("what it has counted by periods of time does not fit together")
        self.head, self.link, self.next, self.seen = head.copy(), link.copy(), nexts.copy(), seen.copy()
        self.starts, self.used, self.episodes = state["starts"].copy(), np.array([used]), k

    def first_of(self, period: int) -> int:
        """The number of the first episode of a period, counting from 1."""
        return period * _length(max(self.episodes - 1, 0)) + 1

    def observed(self, judge: Judge) -> Observed:
        """Everything that was counted, in the form that changes are looked for in."""
        used, S = int(self.used[0]), self.shape[1]
        owner = np.full(used, EMPTY, dtype=np.int64)
        owners(self.head, self.link, owner)
        entry, group = np.nonzero((self.seen[:used, :, 0] > 0) & (owner >= 0)[:, None])
        seen = self.seen[entry, group].T  # [1 + 2 M, E]
        s_next = self.next[entry].astype(np.int64)
        s_next[s_next == S] = -1
        spans = np.ones((len(seen) - 1) // 2)
        groups = -(-self.episodes // _length(max(self.episodes - 1, 0)))
        starts = self.starts[:groups]
        return Observed(
            self.shape, groups, group, owner[entry], s_next, seen[0], seen[1::2], seen[2::2], spans, starts, judge
        )


def _length(k: int) -> int:
    """The length of the periods when episode k, counting from 0, is counted: the least power of 2 that suffices."""
    return 1 << max(k // PERIODS, 0).bit_length()


@compiled
def _count(head, link, nexts, seen, starts, used, T, states, actions, lengths, signals, k, length):
    """Count episodes whose first one has the number k, in periods of this length."""
    n, H, M = signals.shape
    S = starts.shape[1]
    A = len(head) // (T * S)
    for i in range(n):
        period = (k + i) // length
        starts[period, states[i, 0]] += 1.0
        for h in range(lengths[i]):
            cell = ((h if T > 1 else 0) * S + states[i, h]) * A + actions[i, h]
            if head[cell] == LEFT_OUT:
                continue
            s_next = states[i, h + 1] if h + 1 < H else S
            j = head[cell]
            while j >= 0 and nexts[j] != s_next:
                j = link[j]
            if j < 0:
                j = used[0]
                if j == len(link):
                    head[cell] = LEFT_OUT
                    continue
                used[0] += 1
                nexts[j] = s_next
                link[j] = head[cell]
                head[cell] = j
            seen[j, period, 0] += 1.0
            for m in range(M):
                x = signals[i, h, m]
                seen[j, period, 1 + 2 * m] += x
                seen[j, period, 2 + 2 * m] += x * x
