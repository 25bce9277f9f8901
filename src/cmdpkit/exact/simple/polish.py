"""The best policy of the same shape: phases begin a little earlier or later, and so do the runs of states."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from cmdpkit.exact.simple.judge import Best, Judge
from cmdpkit.exact.simple.shape import NONE, phases_of
from cmdpkit.model.transitions import IntArray

MOST_MOVES = 10  # moves that are made one after the other
MOST_TRIED = 100  # moves in a round; of more, those that come first
DISTANCES = (1, 2, 4, 8)  # steps by which the beginning of a phase is moved


def polish(judge: Judge, best: Best) -> None:
    """Move beginnings of phases and of runs as long as that gives a larger value, or an even simpler policy."""
    for _ in range(MOST_MOVES):
        candidate = best.candidate
        moved = [judge.candidate(x, candidate.where, candidate.p) for x in islice(_moves(judge, best), MOST_TRIED)]
        helped = [best.offer(each) for each in moved]
        if not any(helped):
            return


def _moves(judge: Judge, best: Best) -> Iterator[IntArray]:
    """choice [H, S] with one beginning moved."""
    candidate = judge.filled(best.candidate)
    edges, rules = phases_of(candidate.choice, judge.counts(candidate))
    for edge in edges[1:-1]:
        for distance in DISTANCES:
            yield _copied(candidate.choice, edge, edge - distance, edge)
            yield _copied(candidate.choice, edge - 1, edge, edge + distance)
    for first, last, rule in zip(edges[:-1], edges[1:], rules, strict=True):
        known = np.flatnonzero(rule != NONE)
        for i in np.flatnonzero(np.diff(rule[known])):
            for here, other in ((known[i], known[i + 1]), (known[i + 1], known[i])):
                choice = candidate.choice.copy()
                choice[first:last, here] = rule[other]
                yield choice


def _copied(choice: IntArray, step: int, first: int, last: int) -> IntArray:
    """Decisions in which the steps first .. last - 1 do what another step does."""
    moved = choice.copy()
    moved[max(first, 0) : last] = choice[step]
    return moved
