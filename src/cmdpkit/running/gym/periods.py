"""What a run saw in an environment, by periods of time, so that a change of the environment can be found afterwards.

An environment may change while it is learned in: demand rises, a machine wears. A run therefore counts next states and
signals apart in up to `PERIODS` periods of equal length, a power of 2, which follows from the number of episodes. So
memory does not grow with the run, and a run that is resumed counts as if it had never been interrupted.

The counts are a table with one row for each period, cell and next state that occurred, which is the form that changes
are looked for in (`cmdpkit.estimate.changes`). New steps are rows of their own until there are many. The columns are

- the place, (cell + 1) * (S + 1) + next state, where the cell `START` leads to the first states;
- an episode that the row has counted, counting from 0;
- the number of steps, and then sum and squares of each signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.changes import START, Judge, Observed
from cmdpkit.model.transitions import FloatArray, IntArray

PERIODS = 16  # the longest of a run; there are more than half as many from the 16th episode on
MOST_ROWS = 200_000  # of the table; where there would be more, a random half of all cells is left out
FEWEST_NEW = 10_000  # steps that are summed up at once, at least
BLOCK = 64  # episodes after which that is looked at, so that pieces of a run of any length give the same sums


class Periods:
    """Counts of transitions and moments of signals in unit scale, by period. M = 1 + N signals, reward first."""

    def __init__(self, T: int, S: int, A: int, M: int) -> None:
        self.shape = (T, S, A)  # S with the state in which an episode is over; T is 1 if all steps share their cells
        self.M = M
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.rows = [np.zeros((0, 3 + 2 * self.M))]  # the table, then new steps
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
        rows = np.ones((n, H + 1, 3 + 2 * self.M))
        rows[..., 0] = (np.column_stack((np.full(n, START), cell)) + 1) * (S + 1) + s_next
        rows[..., 1] = self.episodes + np.arange(n)[:, None]
        rows[:, 0, 3:] = 0.0
        rows[:, 1:, 3::2], rows[:, 1:, 4::2] = x, x * x
        self.rows.append(rows[np.arange(H + 1) <= lengths[part, None]])
        self.episodes = k
        if k % BLOCK == 0 and sum(map(len, self.rows[1:])) >= max(FEWEST_NEW, len(self.rows[0])):
            self.rows = [self._table()]
            while len(self.rows[0]) > MOST_ROWS:
                self.share /= 2.0
                self.rows = [self._table()]

    def _table(self) -> FloatArray:
        """One row for each period and place: the sum of its rows, one after the other."""
        rows = np.concatenate(self.rows)
        cell = np.maximum(rows[:, 0] // (self.shape[1] + 1) - 1, 0)  # so that the first states are never left out
        drawn = cell.astype(np.int64) * 2_654_435_761 % 2**32 / 2**32  # a number for each cell, as good as random
        rows = rows[drawn < self.share]
        key = rows[:, 0] * PERIODS + rows[:, 1] // self.length
        _, first, row = np.unique(key, return_index=True, return_inverse=True)
        columns = [np.bincount(row, weights=column, minlength=len(first)) for column in rows[:, 2:].T]
        return np.column_stack((rows[first, :2], *columns))

    @property
    def length(self) -> int:
        """Episodes of a period: the least power of 2 that suffices."""
        return 1 << ((max(self.episodes, 1) - 1) // PERIODS).bit_length()

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that changes but the number of episodes, for a checkpoint."""
        table = np.array(len(self.rows[0]))
        return {"rows": np.concatenate(self.rows), "table": table, "share": np.array(self.share)}

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Continue from a checkpoint after k episodes; one that does not fit is refused."""
        T, S, A = self.shape
        rows, table = state["rows"].copy(), int(state["table"])
        ends = (T * S * A + 1) * (S + 1), k
        if not (0 <= table <= len(rows) and ((rows[:, :2] >= 0) & (rows[:, :2] < ends)).all()):
            raise CmdpkitError("what it has counted by periods of time does not fit together")
        self.rows, self.share, self.episodes = [rows[:table], rows[table:]], float(state["share"]), k

    def observed(self, judge: Judge) -> Observed:
        """Everything that was counted, in the form that changes are looked for in."""
        table, S = self._table(), self.shape[1]
        (place, episode), columns = table[:, :2].T.astype(np.int64), table[:, 2:].T
        group = episode // self.length
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
