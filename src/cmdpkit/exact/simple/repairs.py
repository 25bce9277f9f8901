"""Small changes of a candidate that is nearly good: one state does something else at the beginning or end of a phase.

What such a change adds to the reward and to every utility is estimated for all of them at once, and the most promising
ones are evaluated. This finds policies that are best at no prices whatsoever, because they lie between two that are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.simple.judge import Best, Candidate, Judge
from cmdpkit.exact.simple.shape import phases_of
from cmdpkit.model.transitions import FloatArray, IntArray

ROUNDS = 3  # changes that are made one after the other
EVALUATED = 24  # promising changes in a round


class _Change(NamedTuple):
    """One state takes an action at some steps."""

    steps: slice  # at which it does so
    s: int  # the state
    a: int  # the action


def repair(judge: Judge, best: Best, candidate: Candidate) -> None:
    """Offer candidates that differ from one in a few runs of steps of single states."""
    for _ in range(ROUNDS):
        tried = [judge.candidate(_with(candidate.choice, change)) for change in _promising(judge, candidate)]
        for new in tried:
            best.offer(new)
        if not tried:
            return
        nearest = min(tried, key=lambda x: _distance(judge, x.totals))
        if _distance(judge, nearest.totals) >= _distance(judge, candidate.totals) or judge.good(nearest):
            return
        candidate = nearest


def _with(choice: IntArray, change: _Change) -> IntArray:
    changed = choice.copy()
    changed[change.steps, change.s] = change.a
    return changed


def _distance(judge: Judge, totals: FloatArray) -> float:
    """How far reward and utilities [1 + N] are from what is asked for, each in its unit; 0 if good."""
    value = max(0.0, judge.least - float(totals[0])) / judge.scale if judge.scale else 0.0
    return value + float((np.maximum(judge.cmdp.rho - totals[1:] - judge.room, 0.0) / judge.ranges).sum())


def _promising(judge: Judge, candidate: Candidate) -> list[_Change]:
    """Changes after which the candidate is nearest to being good, as far as can be estimated."""
    edges, _ = phases_of(candidate.choice, judge.counts(candidate))
    effects = judge.effects(candidate)
    found: list[tuple[float, _Change]] = []
    for first, last in pairwise(edges):
        block = effects[:, first:last]
        ways = [(np.cumsum(block, axis=1), False)]
        if last - first > 1:
            ways.append((np.cumsum(block[:, ::-1], axis=1), True))
        for added, from_end in ways:
            found += _nearest(judge, candidate, added, first, last, from_end)
    found.sort(key=lambda x: x[0])
    return [change for _, change in found[:EVALUATED]]


def _nearest(
    judge: Judge, candidate: Candidate, added: FloatArray, first: int, last: int, from_end: bool
) -> list[tuple[float, _Change]]:
    """The best changes of 1, 2, ... steps at one end of a phase, whose effects are added [1 + N, steps, S, A]."""
    totals = candidate.totals[:, None, None, None] + added
    value = np.maximum(judge.least - totals[0], 0.0) / (judge.scale or 1.0)
    missed = np.maximum((judge.cmdp.rho - judge.room)[:, None, None, None] - totals[1:], 0.0)
    distance = value + (missed / judge.ranges[:, None, None, None]).sum(axis=0)
    distance = distance - 1e-9 * np.tanh(
        (totals[0] - judge.least) / (judge.scale or 1.0)
    )  # of equals, the larger value
    nothing = (added == 0).all(axis=0) | ~np.isfinite(distance)
    flat = np.where(nothing, np.inf, distance).reshape(-1)
    top = np.argpartition(flat, min(EVALUATED, len(flat) - 1))[:EVALUATED]
    changes = []
    for i in top[np.isfinite(flat[top])].tolist():
        n, s, a = np.unravel_index(i, distance.shape)
        steps = slice(last - int(n) - 1, last) if from_end else slice(first, first + int(n) + 1)
        changes.append((float(flat[i]), _Change(steps, int(s), int(a))))
    return changes
