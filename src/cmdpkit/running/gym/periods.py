"""What a run saw in an environment, by periods of time, so that a change of the environment can be found afterwards.

An environment may change while it is learned in: demand rises, a machine wears. A run therefore counts next states and
signals apart in up to `PERIODS` periods of equal length. When all are full, neighbours are merged and periods are
twice as long, so memory does not grow with the run. Which period an episode lies in depends on its number alone, so a
run that is resumed counts as if it had never been interrupted.

The counts are a table with one row for each period, cell and next state that occurred, which is the form that changes
are looked for in (`cmdpkit.estimate.changes`). Steps are added to it many at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.changes import Judge, Observed
from cmdpkit.model.transitions import FloatArray, IntArray

PERIODS = 16  # the longest of a run; there are at least half as many once they were merged
MOST_ROWS = 200_000  # of the table; where there would be more, a random half of all cells is left out
FEWEST_NEW = 10_000  # steps that are added to the table at once, at least
BLOCK = 64  # episodes after which that is looked at, so that pieces of a run of any length give the same sums


class Periods:
    """Counts of transitions and moments of signals in unit scale, by period. M = 1 + N signals, reward first."""

    def __init__(self, T: int, S: int, A: int, M: int) -> None:
        self.shape = (T, S, A)  # S with the state in which an episode is over; T is 1 if all steps share their cells
        self.keys = np.zeros(0, dtype=np.int64)  # [rows], increasing: (cell * (S + 1) + next state) * PERIODS + period
        self.table = np.zeros((0, 1 + 2 * M))  # [rows]: number, sums and squares of the signals
        self.new_keys = np.zeros(0, dtype=np.int64)  # [n]: of steps that are not in the table yet
        self.new_signals = np.zeros((0, M))  # [n]: their signals
        self.starts = np.zeros((PERIODS, S))  # first states of episodes
        self.kept = np.ones(1)  # share of the cells that are counted
        self.episodes = 0  # that were counted

    def clear(self) -> None:
        """Forget everything."""
        self.__init__(*self.shape, self.new_signals.shape[1])  # type: ignore[misc]

    def count(
        self, states: IntArray, actions: IntArray, lengths: IntArray, signals: FloatArray, first: int, k: int
    ) -> None:
        """Count episodes up to k; states and actions [n, H], lengths [n], signals [n, H, M] begin with ``first``."""
        while self.episodes < k:
            length = _length(self.episodes)
            if self.episodes == PERIODS * length // 2 and self.episodes >= PERIODS:
                self._merge()
            last = min(k, PERIODS * length, self.episodes + BLOCK - self.episodes % BLOCK)
            part = slice(self.episodes - first, last - first)
            self._add(states[part], actions[part], lengths[part], signals[part], length)
            self.episodes = last
            if last % BLOCK == 0 and len(self.new_keys) >= max(FEWEST_NEW, len(self.keys)):
                self._fold()

    def _add(self, states: IntArray, actions: IntArray, lengths: IntArray, signals: FloatArray, length: int) -> None:
        """Note the steps of episodes that follow those counted so far."""
        T, S, A = self.shape
        n, H = states.shape
        period = (self.episodes + np.arange(n)) // length
        np.add.at(self.starts, (period, states[:, 0]), 1.0)
        s_next = np.column_stack((states[:, 1:], np.full(n, S)))  # after the last step it does not matter
        cell = ((np.arange(H) if T > 1 else np.zeros(H, dtype=np.int64)) * S + states) * A + actions
        taken = np.arange(H) < lengths[:, None]
        keys = ((cell * (S + 1) + s_next) * PERIODS + period[:, None])[taken]
        self.new_keys = np.concatenate((self.new_keys, keys))
        self.new_signals = np.concatenate((self.new_signals, signals[taken]))

    def _merge(self) -> None:
        """Merge periods in pairs."""
        self._fold(halved=True)
        half = PERIODS // 2
        self.starts[:half] = self.starts[::2] + self.starts[1::2]
        self.starts[half:] = 0.0

    def _fold(self, *, halved: bool = False) -> None:
        """Add the new steps to the table, with periods half as many if `halved`."""
        self.keys, self.table = self._together()
        if halved:
            self.keys, self.table = _summed(self.keys // PERIODS * PERIODS + self.keys % PERIODS // 2, self.table)
        self.new_keys, self.new_signals = self.new_keys[:0], self.new_signals[:0]
        while len(self.keys) > MOST_ROWS:
            self.kept /= 2.0
            self.keys, self.table = self._together()

    def _together(self) -> tuple[IntArray, FloatArray]:
        """The table with the new steps, without the cells that are left out."""
        x = self.new_signals
        new = np.column_stack((np.ones(len(x)), np.stack((x, x * x), axis=-1).reshape(len(x), 2 * x.shape[1])))
        keys, table = np.concatenate((self.keys, self.new_keys)), np.concatenate((self.table, new))
        cell = keys // (PERIODS * (self.shape[1] + 1))
        drawn = cell * 2_654_435_761 % 2**32 / 2**32  # a number between 0 and 1 for each cell, as good as random
        kept = drawn < self.kept[0]
        return _summed(keys[kept], table[kept])

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything, for a checkpoint."""
        return {name: getattr(self, name).copy() for name in STATE}

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Continue from a checkpoint after k episodes; one that does not fit is refused."""
        T, S, A = self.shape
        sound = all(state[name].shape[1:] == getattr(self, name).shape[1:] for name in STATE)
        sound = sound and all(
            len(state[keys]) == len(state[rows])
            and bool(((state[keys] >= 0) & (state[keys] < T * S * A * (S + 1) * PERIODS)).all())
            for keys, rows in (("keys", "table"), ("new_keys", "new_signals"))
        )
        if not sound or bool((np.diff(state["keys"]) <= 0).any()):
            raise CmdpkitError("what it has counted by periods of time does not fit together")
        for name in STATE:
            setattr(self, name, state[name].copy())
        self.episodes = k

    def first_of(self, period: int) -> int:
        """The number of the first episode of a period, counting from 1."""
        return period * _length(max(self.episodes - 1, 0)) + 1

    def observed(self, judge: Judge) -> Observed:
        """Everything that was counted, in the form that changes are looked for in."""
        keys, table = self._together()
        S, columns = self.shape[1], table.T
        place, group = np.divmod(keys, PERIODS)
        cell, s_next = np.divmod(place, S + 1)
        groups = -(-self.episodes // _length(max(self.episodes - 1, 0)))
        spans = np.ones(self.new_signals.shape[1])
        return Observed(
            self.shape,
            groups,
            group,
            cell,
            np.where(s_next == S, -1, s_next),
            columns[0],
            columns[1::2],
            columns[2::2],
            spans,
            self.starts[:groups],
            judge,
        )


STATE = ("keys", "table", "new_keys", "new_signals", "starts", "kept")  # everything that changes but the episodes


def _length(k: int) -> int:
    """The length of the periods when episode k, counting from 0, is counted: the least power of 2 that suffices."""
    return 1 << max(k // PERIODS, 0).bit_length()


def _summed(keys: IntArray, table: FloatArray) -> tuple[IntArray, FloatArray]:
    """One row for each key, in order: the sum of its rows, one after the other."""
    found, row = np.unique(keys, return_inverse=True)
    columns = [np.bincount(row, weights=column, minlength=len(found)) for column in table.T]
    return found, np.stack(columns, axis=-1)
