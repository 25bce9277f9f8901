"""What a run saw in an environment, by periods of time, so that a change of the environment can be found afterwards.

An environment may change while it is learned in: demand rises, a machine wears. A run therefore counts next states and
signals apart in up to `PERIODS` periods of equal length, a power of 2, which follows from the number of episodes. So
memory does not grow with the run, and a run that is resumed counts as if it had never been interrupted.

The counts are a table with one row for each period, cell and next state that occurred, which is the form that changes
are looked for in (`cmdpkit.estimate.changes`). New steps are rows of their own until there are many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.changes import START, Judge, Observed
from cmdpkit.model.transitions import FloatArray, IntArray

PERIODS = 16  # the longest of a run; there are more than half as many from the 16th episode on
MOST_ROWS = 200_000  # of the table; where there would be more, a random half of all cells is left out
FEWEST_NEW = 10_000  # steps that are summed up at once, at least
BLOCK = 64  # episodes after which that is looked at, so that pieces of a run of any length give the same sums


class PeriodRows(NamedTuple):
    """Rows of the table."""

    place: IntArray  # [rows]: (cell + 1) * (S + 1) + next state; the cell `START` leads to the first states
    episode: IntArray  # [rows]: one that the row has counted, counting from 0
    sums: FloatArray  # [rows, 1 + 2 M]: the number of steps, then sum and squares of each signal

    def kept(self, rows: NDArray[Any]) -> PeriodRows:
        """The rows that a mask or indices name."""
        return PeriodRows(*(x[rows] for x in self))


class Periods:
    """Counts of transitions and moments of signals in unit scale, by period. M = 1 + N signals, reward first."""

    def __init__(self, T: int, S: int, A: int, M: int) -> None:
        self.shape = (T, S, A)  # S with the state in which an episode is over; T is 1 if all steps share their cells
        self.M = M
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        none = np.zeros(0, dtype=np.int64)
        self.rows = [PeriodRows(none, none, np.zeros((0, 1 + 2 * self.M)))]  # the table, then new steps
        self.share = 1.0  # of the cells that are counted
        self.episodes = 0  # that were counted

    def count(self, states: IntArray, actions: IntArray, lengths: IntArray, signals: FloatArray, k: int) -> None:
        """Count episodes up to k; given is their block: states, actions [n, H], lengths [n], signals [n, H, M]."""
        part = slice(self.episodes % BLOCK, (k - 1) % BLOCK + 1)
        states, actions, x = states[part], actions[part], signals[part]
        T, S, A = self.shape
        n, H = states.shape
        s_next = np.column_stack((states, np.full(n, S)))  # after the last step it does not matter
        cell = ((np.arange(H) if T > 1 else np.zeros(H, dtype=np.int64)) * S + states) * A + actions
        place = (np.column_stack((np.full(n, START), cell)) + 1) * (S + 1) + s_next
        episode = np.broadcast_to(self.episodes + np.arange(n)[:, None], place.shape)
        sums = np.ones((n, H + 1, 1 + 2 * self.M))
        sums[:, 0, 1:] = 0.0
        sums[:, 1:, 1::2], sums[:, 1:, 2::2] = x, x * x
        taken = np.arange(H + 1) <= lengths[part, None]
        self.rows.append(PeriodRows(place, episode, sums).kept(taken))
        self.episodes = k
        table = len(self.rows[0].place)
        if k % BLOCK == 0 and sum(len(new.place) for new in self.rows[1:]) >= max(FEWEST_NEW, table):
            self._sum_up()

    def _sum_up(self) -> None:
        """Make one table of everything, and leave out cells until it is small enough."""
        self.rows = [self._table()]
        while len(self.rows[0].place) > MOST_ROWS:
            self.share /= 2.0
            self.rows = [self._table()]

    def _table(self) -> PeriodRows:
        """One row for each period and place: the sum of its rows, one after the other."""
        rows = self._together()
        cell = np.maximum(rows.place // (self.shape[1] + 1) - 1, 0)  # so that the first states are never left out
        drawn = cell * 2_654_435_761 % 2**32 / 2**32  # a number between 0 and 1 for each cell, as good as random
        rows = rows.kept(drawn < self.share)
        key = rows.place * PERIODS + rows.episode // self.length
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        columns = [np.bincount(row, weights=column, minlength=len(first)) for column in rows.sums.T]
        return rows.kept(first)._replace(sums=np.stack(columns, axis=-1))

    def _together(self) -> PeriodRows:
        return PeriodRows(*(np.concatenate(x) for x in zip(*self.rows, strict=True)))

    @property
    def length(self) -> int:
        """Episodes of a period: the least power of 2 that suffices."""
        return 1 << ((max(self.episodes, 1) - 1) // PERIODS).bit_length()

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that changes but the number of episodes, for a checkpoint."""
        table = len(self.rows[0].place)
        return {**self._together()._asdict(), "table": np.array(table), "share": np.array(self.share)}

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Continue from a checkpoint after k episodes; one that does not fit is refused."""
        T, S, A = self.shape
        rows, table = PeriodRows(*(state[name].copy() for name in PeriodRows._fields)), int(state["table"])
        for x, end in ((rows.place, (T * S * A + 1) * (S + 1)), (rows.episode, k)):
            if not (0 <= table <= len(rows.sums) == len(x) and ((x >= 0) & (x < end)).all()):
                raise CmdpkitError("what it has counted by periods of time does not fit together")
        self.rows = [rows.kept(np.arange(table)), rows.kept(np.arange(table, len(rows.sums)))]
        self.share, self.episodes = float(state["share"]), k

    def observed(self, judge: Judge) -> Observed:
        """Everything that was counted, in the form that changes are looked for in."""
        place, episode, sums = self._table()
        S, group, columns = self.shape[1], episode // self.length, sums.T
        cell, s_next = np.divmod(place, S + 1)
        cell, s_next = cell - 1, np.where(s_next == S, -1, s_next)
        first = cell == START
        starts = np.zeros((-(-self.episodes // self.length), S))
        starts[group[first], s_next[first]] = columns[0, first]
        columns = columns[:, ~first]
        return Observed(
            self.shape,
            len(starts),
            group[~first],
            cell[~first],
            s_next[~first],
            columns[0],
            columns[1::2],
            columns[2::2],
            np.ones(self.M),
            starts,
            judge,
        )
