"""Did the process change while it was recorded, and how? One answer for logs and for runs.

What was observed is kept by group (periods of time, or parts of the horizon), cell and next state. The groups are
compared with the test of `alike`: the signals, the next states by their marks, the values of the next states, and the
first states of episodes. If they differ, the size of the change is told as a user would ask for it: what the same
decisions bring before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from cmdpkit.errors import shown
from cmdpkit.estimate.alike import Alike, compared, several_marks, together
from cmdpkit.estimate.fitted import value_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel

START = -1  # stands for the cell "an episode begins"
NAMED = 3  # places that are named in a note

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
    marks = np.concatenate((several_marks(seen.shape[1]), _values(seen)))
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


def change_of(found: Alike, seen: Observed) -> Change | None:
    """The change that a test has found, if it has, dated by the groups of ``seen``."""
    if not found.contradicted:
        return None
    dated = compared_groups(seen)
    late = seen.group >= dated.split
    cells = [int(cell) for cell in dated.cells[:NAMED]]
    before, after = _totals(seen, ~late, seen.starts[: dated.split]), _totals(seen, late, seen.starts[dated.split :])
    return Change(found.p, dated.split, cells, before, after)


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
    times, leaves = (np.bincount(seen.cell, weights=x, minlength=cells) for x in (visits, moves))
    share = np.divide(visits, seen.n, out=np.zeros(len(visits)), where=seen.n > 0)  # 0 or 1
    signals = np.array([np.bincount(seen.cell, weights=share * x, minlength=cells) for x in seen.sums])
    stay, going = np.flatnonzero(leaves == 0), moves > 0
    rows = np.concatenate((seen.cell[going], stay))
    nexts = np.concatenate((seen.s_next[going], stay // A % S))
    prob = np.concatenate((moves[going] / leaves[seen.cell[going]], np.ones(len(stay))))
    kernel = Kernel.from_entries(seen.shape, rows, nexts, prob).renormalised()
    mu = starts.sum(axis=0) if starts.sum() else np.ones(S)
    return seen.judge(kernel, (signals / np.maximum(times, 1)).reshape(-1, T, S, A), mu / mu.sum())


def _behaviour(seen: Observed, cmdp: CMDP) -> FloatArray:
    """[H or 1, S, A]: what was done, as often as it was done; the first action where nothing was."""
    T, S, A = seen.shape
    visits = np.bincount(seen.cell, weights=seen.n, minlength=T * S * A).reshape(T, S, A)
    visits[..., 0] += ~visits.any(axis=-1)
    pi = visits / visits.sum(axis=-1, keepdims=True)
    return np.ascontiguousarray(np.broadcast_to(pi, (cmdp.criterion.horizon or 1, S, A)))


def _totals(seen: Observed, part: BoolArray, starts: FloatArray) -> FloatArray:
    """[M]: what the decisions of the whole time bring in the process of one part of it, from its first states."""
    cmdp = _model(seen, part, starts)
    pi = _behaviour(seen, cmdp)
    return np.array([value_of(cmdp, pi, m)[0] for m in range(len(seen.sums))])


def _values(seen: Observed) -> FloatArray:
    """[M, S]: values of states for every signal if the behaviour goes on, averaged over the steps."""
    cmdp = _model(seen, np.ones(len(seen.cell), dtype=bool), seen.starts)
    pi = _behaviour(seen, cmdp)
    found = []
    for m in range(len(seen.sums)):
        V = value_of(cmdp, pi, m)[1]
        steps = V[:-1] if len(V) > 1 else V
        found.append((steps - steps.mean(axis=1, keepdims=True)).mean(axis=0))
    values = np.array(found)
    return values if np.isfinite(values).all() else np.zeros((0, seen.shape[1]))
