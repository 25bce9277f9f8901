"""Did the process change while it was recorded, and how? One answer for logs and for runs.

A promise assumes that the process stays as it was, and that all steps behave alike where that is declared. What was
observed is kept by group (periods of time, or parts of the horizon), cell and next state. The groups are compared with
the test of `alike`: the signals, the next states by their marks, the values of the next states, and the first states of
episodes. If they differ, the size of the change is told as a user would ask for it: what the same decisions bring
before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cmdpkit.errors import shown
from cmdpkit.estimate.alike import Alike, compared, several_marks, together
from cmdpkit.estimate.counts import kernel_of, means_of, start_of
from cmdpkit.estimate.fitted import as_recorded, judged_by, values_of
from cmdpkit.estimate.log import Log, place_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel

START = -1  # stands for the cell "an episode begins"

# Makes a model of shares of next states, mean signals [M, T, S, A] and shares of first states [S].
Judge: TypeAlias = Callable[[Kernel, FloatArray, FloatArray], CMDP]


class Observed(NamedTuple):
    """What was seen: one entry for each group, cell and next state, or several. M = 1 + N signals, reward first."""

    shape: tuple[int, int, int]  # T, S, A; the cell of step t, state s and action a is (t * S + s) * A + a
    groups: int  # G
    group: IntArray  # [E]
    cell: IntArray  # [E]
    s_next: IntArray  # [E]: the next state, or -1 where it does not matter
    n: FloatArray  # [E]: how often
    sums: FloatArray  # [M, E]: of the signals
    squares: FloatArray  # [M, E]
    spans: FloatArray  # [M]: the largest difference that two values of a signal can have
    starts: FloatArray  # [G, S]: how often episodes began in each state; empty if that does not matter
    judge: Judge


class Change(NamedTuple):
    """The process changed."""

    p: float  # of the test that found it
    split: int  # the first group after the change
    cells: list[int]  # where the difference is clearest; `START` is the first state of an episode
    before: FloatArray  # [M]: what the decisions of the whole time bring in the process before the change
    after: FloatArray  # [M]: and after it


def compared_groups(seen: Observed) -> Alike:
    """Whether the groups are alike; cells of the result are those of ``seen``, or `START`."""
    used = np.flatnonzero(np.bincount(seen.cell))
    row, C, G = np.searchsorted(used, seen.cell), len(used), seen.groups
    signals = compared(_records(row, seen.group, C, G, seen.n, seen.sums, seen.squares), seen.spans)
    marks = np.concatenate((several_marks(seen.shape[1]), _value_marks(seen)))
    inner = seen.s_next >= 0
    row, group, to, n = row[inner], seen.group[inner], seen.s_next[inner], seen.n[inner]
    if len(seen.starts):
        g, s = np.nonzero(seen.starts)
        row, group = np.append(row, np.full(len(g), C)), np.append(group, g)
        to, n = np.append(to, s), np.append(n, seen.starts[g, s])
    y = marks[:, to]
    moves = compared(_records(row, group, C + 1, G, n, n * y, n * y * y), np.ptp(marks, axis=1))
    found = together(signals, moves)
    return found._replace(cells=np.append(used, START)[found.cells])


def change_of(found: Alike, seen: Observed, named: int = 3) -> Change | None:
    """The change that a test has found, if it has, dated by the groups of ``seen``; at most ``named`` cells of it."""
    if not found.contradicted:
        return None
    dated = compared_groups(seen)
    late = seen.group >= dated.split
    cells = [int(cell) for cell in dated.cells[:named]]
    before, _ = _values(seen, ~late, seen.starts[: dated.split])
    after, _ = _values(seen, late, seen.starts[dated.split :])
    return Change(found.p, dated.split, cells, np.array(before), np.array(after))


def told(change: Change, when: str, places: Sequence[str], names: Sequence[str]) -> str:
    """What a user is told of a change; ``names`` are those of reward and constraints, as in its totals."""
    moved = [
        f"the total of {shown(name)} goes from {x:.4g} to {y:.4g}"
        for name, x, y in zip(names, change.before, change.after, strict=True)
    ]
    return (
        f"the process changes at about {when}: what followed {', '.join(places)} is not the same before and after it "
        f"(p = {change.p:.2g}). With the same decisions, {', '.join(moved)}"
    )


def _records(
    row: IntArray, group: IntArray, rows: int, groups: int, n: FloatArray, sums: FloatArray, squares: FloatArray
) -> FloatArray:
    """Records for `compared` of entries [E] with their sums and squares [Q, E]."""
    place, size = row * groups + group, rows * groups
    columns = [n, *(x for pair in zip(sums, squares, strict=True) for x in pair)]
    found = [np.bincount(place, weights=x, minlength=size) for x in columns]
    records: FloatArray = np.stack(found, axis=-1).astype(float).reshape(rows, groups, -1)
    return records


def _model(seen: Observed, part: BoolArray, starts: FloatArray) -> CMDP:
    """The model of a part of what was seen; where the part has nothing of a cell, it is that of everything."""
    T, S, A = seen.shape
    cells = T * S * A
    covered = np.bincount(seen.cell[part], minlength=cells) > 0
    moved = np.bincount(seen.cell[part & (seen.s_next >= 0)], minlength=cells) > 0
    visits = np.where(covered[seen.cell], part, True) * seen.n
    moves = np.where(moved[seen.cell], part, True) * (seen.s_next >= 0) * seen.n
    times = np.bincount(seen.cell, weights=visits, minlength=cells)
    share = np.divide(visits, seen.n, out=np.zeros(len(visits)), where=seen.n > 0)  # 0 or 1
    signals = np.array([np.bincount(seen.cell, weights=share * x, minlength=cells) for x in seen.sums])
    going = moves > 0
    kernel = kernel_of(seen.shape, seen.cell[going], seen.s_next[going], moves[going])
    return seen.judge(kernel, means_of(signals, times).reshape(-1, T, S, A), start_of(starts.sum(axis=0)))


def _values(seen: Observed, part: BoolArray, starts: FloatArray) -> tuple[list[float], list[FloatArray]]:
    """What the decisions of the whole time bring in the process of one part of it: totals and values of states [M].

    Where nothing was recorded, the first action is taken.
    """
    cmdp, (T, S, A) = _model(seen, part, starts), seen.shape
    visits: FloatArray = np.bincount(seen.cell, weights=seen.n, minlength=T * S * A).reshape(T, S, A).astype(float)
    visits[..., 0] += ~visits.any(axis=-1)
    return values_of(cmdp, as_recorded(visits, cmdp.criterion.horizon))[1:]


def _value_marks(seen: Observed) -> FloatArray:
    """[M, S]: values of states if the behaviour goes on, averaged over the steps; [0, S] where they are not defined."""
    found = []
    for V in _values(seen, np.ones(len(seen.cell), dtype=bool), seen.starts)[1]:
        steps = V[:-1] if len(V) > 1 else V
        found.append((steps - steps.mean(axis=1, keepdims=True)).mean(axis=0))
    values = np.array(found)
    return values if np.isfinite(values).all() else np.zeros((0, seen.shape[1]))


# -- Changes in a log ------------------------------------------------------------------------------------------------


def steps_alike(log: Log, parts: int = 4) -> Alike:
    """Whether the log contradicts that all steps of the horizon, which is divided in so many parts, behave alike."""
    H = int(log.criterion.horizon or 1)
    seen = _observed(log, np.minimum(log.step * parts // H, parts - 1), parts, 1)
    return compared_groups(seen._replace(starts=np.zeros((0, log.S))))


def change_in(log: Log, T: int, periods: int = 8, dated: int = 40) -> tuple[int, str] | None:
    """The first time (see `Log.time`) after the clearest change of the process, and a note; None if none was found.

    So many periods are compared with each other, and a change is dated among ``dated`` shorter ones.
    """
    found, finer = compared_groups(_observed(log, _periods(log, periods), periods, T)), _periods(log, dated)
    change = change_of(found, _observed(log, finer, dated, T)) if found.contradicted else None
    if change is None:
        return None
    late = np.flatnonzero(finer >= change.split)
    first = int(late[np.argmin(log.time[late])])
    places = ["the beginning of an episode" if i == START else place_of(*log.named(i, T)) for i in change.cells]
    names = ["reward", *(c.name for c in log.constraints)]
    return int(log.time[first]), told(change, log.place[first], places, names)


def _periods(log: Log, periods: int) -> IntArray:
    """[n]: the period of time of each transition."""
    first, last = int(log.time.min()), int(log.time.max())
    return np.asarray((log.time - first) * periods // (last - first + 1))


def _observed(log: Log, group: IntArray, groups: int, T: int) -> Observed:
    """The transitions of a log in groups [n]."""
    cell, s_next, starts, horizon = log.rows(T), log.s_next, np.zeros((0, log.S)), log.criterion.horizon
    if horizon is not None:
        s_next = np.where(log.step < horizon - 1, s_next, -1)  # the next state after the last step does not matter
        place = group[log.begins] * log.S + log.s[log.begins]
        starts = np.bincount(place, minlength=groups * log.S).reshape(groups, -1).astype(float)
    n, spans = np.ones(len(cell)), np.ptp(log.x, axis=1)

    def judge(kernel: Kernel, signals: FloatArray, mu: FloatArray) -> CMDP:
        asked: Any = {"constraints": log.constraints, **judged_by(log)}
        return CMDP(kernel, signals[0], signals[1:], mu=mu, renormalise=True, **asked)

    return Observed((T, log.S, log.A), groups, group, cell, s_next, n, log.x, log.x**2, spans, starts, judge)
