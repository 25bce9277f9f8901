"""Candidates with fewer changes from state to state and fewer stochastic decisions, in the phases that were found.

Of policies of the same shape the best is looked for: phases begin a little earlier or later, and so do runs of states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.simple.judge import Best, Candidate, Judge
from cmdpkit.exact.simple.shape import NONE, best_runs, phases_of
from cmdpkit.model.transitions import FloatArray, IntArray

RAISED = (1.0, 1.2, 2.0, 5.0)  # prices that are tried, as multiples: higher ones make room below the bounds
HALVINGS = 12  # of the exponent of what a change from state to state may cost
ROUNDS = 4  # in which runs of states are joined, each beginning with the best candidate so far
MOST_JOINED = 40  # times that runs are joined
MOST_SINGLES = 40  # runs that are tried for themselves, after many of them at once
PASSES = 3  # over the runs that may be joined
MOST_MOVES = 10  # moves that are made one after the other
MOST_TRIED = 100  # moves in a round; of more, those that come first
DISTANCES = (1, 2, 4, 8)  # steps by which the beginning of a phase is moved


def fewest_changes(judge: Judge, best: Best) -> None:
    """Look for good candidates with fewer changes between neighbouring states, and fewer stochastic decisions."""
    for _ in range(ROUNDS):
        before = best.shape
        _without_draws(judge, best)
        _by_price_of_a_change(judge, best)
        _by_joining_runs(judge, best)
        if best.shape == before:
            return


def _without_draws(judge: Judge, best: Best) -> None:
    """Take one of its actions at every stochastic decision of the candidate."""
    drawing = best.candidate
    for (h, s), row in zip(drawing.where, drawing.p, strict=True):
        for a in np.flatnonzero(row):
            now = best.candidate
            other = (now.where != (h, s)).any(axis=1)
            choice = now.choice.copy()
            choice[h, s] = a
            best.offer(judge.candidate(choice, now.where[other], now.p[other]))


def _by_price_of_a_change(judge: Judge, best: Best) -> None:
    """Let every change from state to state cost something: the more it costs, the fewer there are."""
    candidate = best.candidate
    counts = judge.counts(candidate)
    edges, _ = phases_of(candidate.choice, counts)
    for factor in RAISED:
        prices = np.where(judge.prices > 0, factor * judge.prices, (factor - 1) * 0.1 * judge.scale / judge.ranges)
        costs = judge.costs(candidate, prices)
        blocks = np.add.reduceat(costs, edges[:-1], axis=0)
        finite = np.abs(blocks[np.isfinite(blocks)])
        low, high = np.log(max(float(finite.max(initial=0.0)), 1e-300)) + np.array([-25.0, np.log(judge.shape[1] + 1)])
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            rules = best_runs(blocks, float(np.exp(middle)))
            found = judge.candidate(np.repeat(rules, np.diff(edges), axis=0), candidate.where, candidate.p)
            best.offer(found)
            low, high = (middle, high) if judge.good(found) else (low, middle)


class _Join(NamedTuple):
    """A run of states that does what the run before or after it does, in one phase."""

    adds: FloatArray  # [1 + N], to reward and utilities, estimated
    steps: slice  # of the phase
    run: IntArray  # states
    neighbour: IntArray  # states
    action: int  # of the neighbour, which the run takes over

    @property
    def touches(self) -> set[tuple[int, int]]:
        """Both runs, by their first step and state."""
        return {(self.steps.start, int(run[0])) for run in (self.run, self.neighbour)}


def _by_joining_runs(judge: Judge, best: Best) -> None:
    """Let runs of states do what a neighbouring run does: many at once, and one by one where that does not help."""
    for _ in range(MOST_JOINED):
        candidate, joins = best.candidate, _joins(judge, best)
        together = [*_fewer(_packed(judge, candidate.totals, joins)), *_fewer(_apart(joins))]
        helped = [best.offer(_joined(judge, candidate, each)) for each in together]
        if not any(helped) and not any(best.offer(_joined(judge, candidate, [x])) for x in joins[:MOST_SINGLES]):
            return


def _fewer(joins: list[_Join]) -> list[list[_Join]]:
    """All of them, the first half, the first quarter, and so on."""
    return [joins[: len(joins) >> k] for k in range(len(joins).bit_length())]


def _joined(judge: Judge, candidate: Candidate, joins: Sequence[_Join]) -> Candidate:
    choice = candidate.choice.copy()
    for join in joins:
        choice[join.steps, join.run] = join.action
    return judge.candidate(choice, candidate.where, candidate.p)


def _joins(judge: Judge, best: Best) -> list[_Join]:
    """All runs that could be joined to a neighbour, the cheapest at the prices first."""
    candidate = best.candidate
    effects = judge.effects(candidate)
    edges, rules = phases_of(candidate.choice, judge.counts(candidate))
    found = []
    for first, last, rule in zip(edges[:-1], edges[1:], rules, strict=True):
        block = effects[:, first:last].sum(axis=1)
        known = np.flatnonzero(rule != NONE)
        runs = np.split(known, np.flatnonzero(np.diff(rule[known])) + 1)
        for i, run in enumerate(runs):
            for neighbour in runs[max(i - 1, 0) : i] + runs[i + 1 : i + 2]:
                a = int(rule[neighbour[0]])
                adds = block[:, run, a].sum(axis=1)
                if np.isfinite(adds).all():
                    found.append(_Join(adds, slice(first, last), run, neighbour, a))
    weights = np.append(1.0, judge.prices)
    return sorted(found, key=lambda join: -float(weights @ join.adds))


def _packed(judge: Judge, totals: FloatArray, joins: Sequence[_Join]) -> list[_Join]:
    """Joins that do not touch each other and together seem to be good; some make room below a bound for others."""
    least = np.append(judge.least, judge.cmdp.rho - judge.room)
    taken: set[tuple[int, int]] = set()
    packed: list[_Join] = []
    for _ in range(PASSES):
        for join in joins:
            if not join.touches & taken and (totals + join.adds >= np.minimum(least, totals)).all():
                taken |= join.touches
                totals = totals + join.adds
                packed.append(join)
    return packed


def _apart(joins: Sequence[_Join]) -> list[_Join]:
    """Joins that do not touch each other, the cheapest first."""
    taken: set[tuple[int, int]] = set()
    apart = []
    for join in joins:
        if not join.touches & taken:
            taken |= join.touches
            apart.append(join)
    return apart


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
