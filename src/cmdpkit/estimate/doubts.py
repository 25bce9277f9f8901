"""What a log says against the assumptions of a promise: steps or times that differ, heavy tails, cut episodes.

A promise assumes that the process stays as it was, that all steps behave alike where that is declared, and that no step
is worse than the declared range or, without one, than the worst of the log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import quoted, shown
from cmdpkit.estimate.alike import Alike
from cmdpkit.estimate.changes import START, Observed, change_of, compared_groups, told
from cmdpkit.estimate.fitted import judged_by
from cmdpkit.estimate.log import Log
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel

STEP_GROUPS = 4  # parts of the horizon that are compared with each other
PERIODS = 8  # number of periods that are compared with each other
DATED = 40  # periods among which a change is dated
TAIL_FACTOR = 10.0  # a value this many times as large as the usual one is far out
TAIL_SHARE = 0.2  # a tail is heavy if values that are far out make up at least this share of all, and
TAIL_ROWS, TAIL_TOP = (
    0.02,
    0.005,
)  # either are at most the first share of the rows, or the largest do that are the second


class Changed(NamedTuple):
    """The process changed while the log was recorded."""

    since: int  # the first time (see `Log.time`) after the change
    note: str  # what is told about it: when, where and by how much


def steps_alike(log: Log) -> Alike:
    """Whether the log contradicts that all steps of the horizon behave alike."""
    H = int(log.criterion.horizon or 1)
    seen = _observed(log, np.minimum(log.step * STEP_GROUPS // H, STEP_GROUPS - 1), STEP_GROUPS, 1)
    return compared_groups(seen._replace(starts=np.zeros((0, log.S))))


def change_in(log: Log, T: int) -> Changed | None:
    """The clearest change of the process in the course of time, if the log contradicts that there is none."""
    found = compared_groups(_observed(log, _periods(log, PERIODS), PERIODS, T))
    change = change_of(found, _observed(log, _periods(log, DATED), DATED, T)) if found.contradicted else None
    if change is None:
        return None
    late = np.flatnonzero(_periods(log, DATED) >= change.split)
    first = int(late[np.argmin(log.time[late])])
    places = [_named(log, T, cell) for cell in change.cells]
    names = ["reward", *(c.name for c in log.constraints)]
    return Changed(int(log.time[first]), told(change, log.place[first], places, names))


def _periods(log: Log, periods: int) -> IntArray:
    """[n]: the period of time of each transition."""
    first, last = int(log.time.min()), int(log.time.max())
    return np.asarray((log.time - first) * periods // (last - first + 1))


def _observed(log: Log, group: IntArray, groups: int, T: int) -> Observed:
    """The transitions of a log in groups [n]."""
    cell = (np.where(T > 1, log.step, 0) * log.S + log.s) * log.A + log.a
    s_next, starts, horizon = log.s_next, np.zeros((0, log.S)), log.criterion.horizon
    if horizon is not None:
        s_next = np.where(log.step < horizon - 1, s_next, -1)  # the next state after the last step does not matter
        first = np.ones(len(log.episode), dtype=bool)
        first[1:] = np.diff(log.episode) != 0
        first &= log.step == 0
        place = group[first] * log.S + log.s[first]
        starts = np.bincount(place, minlength=groups * log.S).reshape(groups, -1).astype(float)
    n, spans = np.ones(len(cell)), np.ptp(log.x, axis=1)

    def judge(kernel: Kernel, signals: FloatArray, mu: FloatArray) -> CMDP:
        asked: Any = {"constraints": log.constraints, **judged_by(log)}
        return CMDP(kernel, signals[0], signals[1:], mu=mu, renormalise=True, **asked)

    return Observed((T, log.S, log.A), groups, group, cell, s_next, n, log.x, log.x**2, spans, starts, judge)


def _named(log: Log, T: int, cell: int) -> str:
    if cell == START:
        return "the beginning of an episode"
    t, s, a = np.unravel_index(cell, (T, log.S, log.A))
    at = f" at step {int(t) + 1}" if T > 1 else ""
    return f"{quoted(log.action_names[int(a)])} in state {quoted(log.states[int(s)])}{at}"


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
        if far.mean() > TAIL_ROWS:
            far &= over > np.quantile(over, 1 - TAIL_TOP)
        share = float(over[far].sum() / usual.sum())
        if share >= TAIL_SHARE:
            worst = log.x[1 + n].max() if c.sign < 0 else log.x[1 + n].min()
            notes.append(
                f"{shown(c.name)} has a heavy tail: the worst {int(far.sum()):,} of {len(over):,} values make up "
                f"{share:.0%} of what exceeds its usual value, and the very worst is {worst:g}; something worse may "
                "not have happened yet, "
                f"so declare what a single step can be at worst (ranges={{{c.name!r}: (low, high)}}, --range)"
            )
    return notes


def condition_of(log: Log) -> str | None:
    """What has to be true of signals without a declared range, or None if there are none."""
    found = {}
    for sign, word, end in ((-1, "above", "largest"), (1, "below", "smallest")):
        limits = [
            f"{shown(c.name)} {word} {log.ranges[1 + n, 1 if sign < 0 else 0]:g}"
            for n, c in enumerate(log.constraints)
            if c.sign == sign and log.declared[1 + n] is None
        ]
        if limits:
            found[end] = " or ".join(limits)
    if not found:
        return None
    said = " or ".join(f"{limits} (the {end} in this log)" for end, limits in found.items())
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
