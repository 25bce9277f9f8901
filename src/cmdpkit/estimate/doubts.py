"""What a log says against the assumptions of a promise: steps or times that differ, heavy tails, cut episodes.

A promise assumes that the process stays as it was, that all steps behave alike where that is declared, and that no step
is worse than the declared range or, without one, than the worst of the log.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.errors import quoted, shown
from cmdpkit.estimate.alike import Alike, compared, records_of, several_marks, together
from cmdpkit.estimate.fitted import Fitted, state_values
from cmdpkit.estimate.log import Log
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

STEP_GROUPS = 4  # parts of the horizon that are compared with each other
PERIODS = 8  # of time, that are compared with each other
DATED = 40  # periods among which a change is dated
NAMED = 3  # places that are named in a note
TAIL_FACTOR = 10.0  # a value this many times as large as the usual one is far out
TAIL_ROWS, TAIL_SHARE = 0.02, 0.2  # a tail is heavy if at most this share of rows makes up at least this share of all


class Change(NamedTuple):
    """The process changed while the log was recorded."""

    p: float  # of the test that found it
    since: int  # the first time (see `Log.time`) after the change
    note: str  # what is told about it: when, where and by how much


def steps_alike(log: Log) -> Alike:
    """Whether the log contradicts that all steps of the horizon behave alike."""
    H = int(log.criterion.horizon or 1)
    return _compared(log, np.minimum(log.step * STEP_GROUPS // H, STEP_GROUPS - 1), STEP_GROUPS, 1)


def change_of(log: Log, T: int) -> Change | None:
    """The clearest change of the process in the course of time, if the log contradicts that there is none."""
    found = _compared(log, _periods(log, PERIODS), PERIODS, T)
    if not found.contradicted:
        return None
    dated = _compared(log, _periods(log, DATED), DATED, T)
    late = _periods(log, DATED) >= dated.split
    since = int(log.time[late].min())
    places = [_named(log, T, int(cell)) for cell in dated.cells[:NAMED]]
    when = log.place[int(np.flatnonzero(late)[np.argmin(log.time[late])])]
    note = (
        f"the process changes at about {when}: what followed {', '.join(places)} is not the same before and after it "
        f"(p = {found.p:.2g}). {_sizes(log, T, late)}"
    )
    return Change(found.p, since, note)


def _periods(log: Log, periods: int) -> IntArray:
    """[n]: the period of time of each transition."""
    first, last = int(log.time.min()), int(log.time.max())
    return np.asarray((log.time - first) * periods // (last - first + 1))


def _compared(log: Log, group: IntArray, groups: int, T: int) -> Alike:
    """Compare groups of transitions: their signals, their next states, and the values of their next states."""
    cells = T * log.S * log.A
    cell = (np.where(T > 1, log.step, 0) * log.S + log.s) * log.A + log.a
    inner = np.ones(len(log.s), dtype=bool)
    if log.criterion.horizon is not None:
        inner = log.step < log.criterion.horizon - 1  # the next state after the last step does not matter
    signals = compared(records_of(cell, group, cells, groups, log.x), np.ptp(log.x, axis=1))
    marks = np.concatenate((several_marks(log.S), _values(log, T)))
    seen = marks[:, log.s_next[inner]]
    moves = compared(records_of(cell[inner], group[inner], cells, groups, seen), np.ptp(marks, axis=1))
    return together(signals, moves)


def _values(log: Log, T: int) -> FloatArray:
    """[1 + N, S]: values of states for every signal if the behaviour of the log goes on, averaged over the steps."""
    found = []
    for V in state_values(log, T):
        steps = V[:-1] if len(V) > 1 else V
        found.append((steps - steps.mean(axis=1, keepdims=True)).mean(axis=0))
    values = np.array(found)
    return values if np.isfinite(values).all() else np.zeros((0, log.S))


def _named(log: Log, T: int, cell: int) -> str:
    t, s, a = np.unravel_index(cell, (T, log.S, log.A))
    at = f" at step {int(t) + 1}" if T > 1 else ""
    return f"{quoted(log.action_names[int(a)])} in state {quoted(log.states[int(s)])}{at}"


def _sizes(log: Log, T: int, late: BoolArray) -> str:
    """How far the totals of the log's own behaviour moved."""
    pi = Fitted(log, T).behaviour()
    before, after = (Fitted(log.part(x), T).totals(pi)[0] for x in (~late, late))
    names = ["reward", *(c.name for c in log.constraints)]
    moved = [
        f"the total of {shown(name)} goes from {x.middle:.4g} to {y.middle:.4g}"
        for name, x, y in zip(names, before, after, strict=True)
    ]
    return f"With the same decisions, {', '.join(moved)}"


def heavy_tails(log: Log) -> list[str]:
    """A note on every constraint without a declared range whose total rests on a few very large values."""
    notes = []
    for n, c in enumerate(log.constraints):
        if log.declared[1 + n] is not None:
            continue
        bad = -c.sign * log.x[1 + n]
        over = bad - np.median(bad)
        usual = over[over > 0]
        if not len(usual):
            continue
        far = over > TAIL_FACTOR * np.median(usual)
        share = float(over[far].sum() / usual.sum())
        if far.any() and far.mean() <= TAIL_ROWS and share >= TAIL_SHARE:
            worst = log.x[1 + n].max() if c.sign < 0 else log.x[1 + n].min()
            notes.append(
                f"{shown(c.name)} has a heavy tail: {int(far.sum()):,} of {len(over):,} rows make up {share:.0%} of "
                f"what exceeds its usual value, and the worst is {worst:g}; something worse may not have happened yet, "
                f"so declare what a single step can be at worst (ranges={{{c.name!r}: (low, high)}}, --range)"
            )
    return notes


def condition_of(log: Log) -> str | None:
    """What has to be true of signals without a declared range, or None if there are none."""
    found = {}
    for sign, word, end in ((-1, "above", "largest"), (1, "below", "smallest")):
        told = [
            f"{shown(c.name)} {word} {log.ranges[1 + n, 1 if sign < 0 else 0]:g}"
            for n, c in enumerate(log.constraints)
            if c.sign == sign and log.declared[1 + n] is None
        ]
        if told:
            found[end] = " or ".join(told)
    if not found:
        return None
    said = " or ".join(f"{told} (the {end} in this log)" for end, told in found.items())
    return f"if no single step ever has {said}"


def unfinished(log: Log, horizon: int) -> list[str]:
    """A note on episodes that end early in a state from which others went on."""
    last = np.ones(len(log.episode), dtype=bool)
    last[:-1] = np.diff(log.episode) != 0
    cut = int((last & (log.step + 1 < horizon) & ~log.terminal[log.s_next]).sum())
    if not cut:
        return []
    return [
        f"{cut:,} of {log.episodes:,} episodes end before step {horizon} in a state where other decisions were "
        "recorded; they are taken as cut off there, which is right only if what cut them off has nothing to do with "
        "what would have followed"
    ]


def unchanging(log: Log) -> list[str]:
    """A note on every constraint about which the log says nothing but one number."""
    notes = []
    for n in log.constant:
        name, x, (low, high) = log.constraints[n].name, float(log.x[1 + n, 0]), log.ranges[1 + n]
        notes.append(
            f"{shown(name)} is {x:g} in all {len(log.s):,} rows, so its range is unknown; a range of {high - low:g} is "
            "assumed"
        )
    return notes


def left_out(log: Log) -> list[str]:
    """A note on episodes that were dropped because of mistakes."""
    if not log.cleaned.episodes:
        return []
    return [
        f"{log.cleaned}; this is right only if the mistakes in these episodes have nothing to do with what they earned "
        "and cost"
    ]
