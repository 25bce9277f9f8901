"""Do steps behave alike, and did the process change? One test, and one answer, for logs and for runs.

A promise assumes that the process stays as it was, and that all steps behave alike where that is declared.

**Records.** Observations are kept by cell (a state and an action, or a step, a state and an action) and by group (parts
of the horizon, or periods of time): their number, and the sum and the squares of several quantities. These are the
signals and marks of the next state, which tell next states apart.

**Test** (`compared`). The groups are in order, and every split, "the first g groups against the others", is tested. For
each quantity three statistics are compared with chance: the largest difference of a single cell; the sum of squared
differences of all cells, in standard errors, against a chi-squared distribution; and the sum of the differences
themselves, which finds a small shift that all cells share. Limits are those of Bernstein's inequality where outcomes
may be rare. The smallest p-value counts, times the number of tests (Bonferroni), so that the probability of a false
alarm is at most the error that is asked for.

**Changes** (`change_of`). The signals, the next states by their marks, the values of the next states, and the first
states of episodes are tested. If groups differ, the size of the change is told as a user would ask for it: what the
same decisions bring before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import chdtrc, ndtr

from cmdpkit.errors import shown
from cmdpkit.estimate.counts import kernel_of, means_of, several_marks, start_of
from cmdpkit.estimate.model import as_recorded, values_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.tolerances import EQUAL_SUMS, SMALLEST_ERROR
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel


class Alike(NamedTuple):
    """The result of the test."""

    p: float  # bound on the probability of differences as large as these, if all groups are alike
    comparisons: int  # differences that were looked at
    split: int  # groups before the split with the clearest difference
    cells: IntArray  # the cells that differ at that split, the clearest first

    @property
    def contradicted(self) -> bool:
        """Whether the groups differ more than chance explains, which does so with probability 0.005 at most."""
        return self.p < 0.005


def steps_warning(signals: FloatArray, moves: FloatArray, error: float = 1e-4) -> tuple[str, ...]:
    """What a user is told where that is so; ``error`` is small because a run looks more than once."""
    p = together(compared(signals), compared(moves)).p
    if p >= error:
        return ()
    return (
        "the steps were taken to behave alike, but the same actions in the same states have different consequences at "
        f"different steps (p = {p:.2g}). Either the world depends on the step: declare it (stationary=False for a "
        "Gymnasium environment, a model with a step axis). Or the state is too coarse, as where an observation was cut "
        "into few cells: make it finer",
    )


def compared(records: FloatArray, ranges: FloatArray | None = None) -> Alike:
    """Test whether the groups are alike; ``ranges`` [Q] are the largest differences that a quantity can have (1)."""
    groups, width = records.shape[1:]
    spans = np.ones((width - 1) // 2)
    if ranges is not None:
        spans = np.where(ranges > EQUAL_SUMS, ranges, np.inf)  # a constant is never apart
    sums = np.cumsum(records, axis=1)
    whole = sums[:, -1]
    found: list[tuple[float, int, IntArray]] = []  # strength, split, clearest cells
    smallest = 1.0
    tests = comparisons = 0
    for split in range(1, groups):
        before = sums[:, split - 1]
        n, m = before[:, 0], whole[:, 0] - before[:, 0]
        both = np.flatnonzero((n > 0) & (m > 0) & (n + m > 2))
        if not len(both):
            continue
        n, m = n[both, None], m[both, None]
        early, late = before[both, 1::2] / n, (whole - before)[both, 1::2] / m
        inverse = 1 / n + 1 / m
        within = whole[both, 2::2] - n * early**2 - m * late**2
        variance = np.maximum(within, 0.0) / (n + m - 2)
        variance = np.where(variance > (1e-7 * spans) ** 2, variance, 0.0)
        apart = np.where(np.abs(late - early) > EQUAL_SUMS * np.maximum(spans, np.abs(early)), late - early, 0.0)
        p, count = _p_values(apart, variance, inverse, np.minimum(n, m), spans)
        smallest, tests, comparisons = min(smallest, p), tests + count, comparisons + apart.size
        z = np.abs(apart) / np.sqrt(np.maximum(variance * inverse, SMALLEST_ERROR))
        strength = float(np.minimum(z**2, 1e6).sum())  # beyond this a difference is as clear as it can be
        found.append((strength, split, both[np.argsort(-z.max(axis=1), kind="stable")]))
    if not found:
        return Alike(1.0, 0, 0, np.zeros(0, dtype=np.int64))
    _, split, clearest = max(found, key=lambda x: x[0])
    return Alike(min(1.0, max(tests, 1) * smallest), comparisons if tests else 0, split, clearest)


def together(*found: Alike) -> Alike:
    """Several tests of the same groups as one: the clearest of them, its p-value times their number."""
    clearest = min(found, key=lambda x: x.p)
    return clearest._replace(p=min(1.0, len(found) * clearest.p), comparisons=sum(x.comparisons for x in found))


def _p_values(
    apart: FloatArray,
    variance: FloatArray,
    inverse: FloatArray,
    least: FloatArray,
    spans: FloatArray,
    *,
    enough: int = 10,
    spread: float = 5.0,
) -> tuple[float, int]:
    """The smallest p-value of the three statistics of one split, and the number of tests.

    Differences and variances are [cells, Q], and 1 / n + 1 / m and the smaller number of observations are [cells, 1].
    Single cells are tested if both sides have `enough` observations. Squared differences count as chi-squared if there
    are at least `spread` observations times variance, with range 1.
    """
    found = []
    for q, span in enumerate(spans):
        if np.isinf(span):
            continue
        d, v, varies = apart[:, q], variance[:, q], variance[:, q] > 0
        single = (least[:, 0] >= enough) & (varies | (d != 0))
        if single.any():
            found.append(_tail(d[single], v[single], inverse[single, 0], span).min() * int(single.sum()))
        usual = varies & (least[:, 0] * v >= spread * span**2)
        if usual.any():
            total = float((d[usual] ** 2 / (v[usual] * inverse[usual, 0])).sum())
            found.append(chdtrc(int(usual.sum()), total))
        if varies.any():
            weights = 1 / inverse[varies, 0]
            found.append(_tail(np.array([weights @ d[varies]]), np.array([weights @ v[varies]]), np.ones(1), span)[0])
    return float(min(found, default=1.0)), len(found)


def _tail(apart: FloatArray, variance: FloatArray, inverse: FloatArray, span: float) -> FloatArray:
    """Probability of differences as large as these by chance, as in Bernstein's inequality: z sd + z^2 span / 6."""
    a, b = span * inverse / 6, np.sqrt(variance * inverse)
    z = (np.sqrt(b**2 + 4 * a * np.abs(apart)) - b) / (2 * a)
    certain = (variance == 0) & (apart != 0)  # the same number at every visit, but another one in each group
    return np.where(certain, 0.0, 2 * ndtr(-z))


# -- Changes between groups --------------------------------------------------------------------------------------------

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
