"""Candidates with fewer changes from state to state, and without draws, in the phases that were found."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmdpkit.exact.simple.best import Best
from cmdpkit.exact.simple.judge import Judge
from cmdpkit.exact.simple.segments import best_runs
from cmdpkit.exact.simple.shape import NONE, phases_of
from cmdpkit.model.transitions import FloatArray, IntArray

RAISED = (1.0, 1.2, 2.0, 5.0)  # prices that are tried, as multiples: higher ones make room below the bounds
HALVINGS = 12  # of the exponent of what a change from state to state may cost
ROUNDS = 4
MOST_TRIED = 300  # single changes that are evaluated


def fewest_changes(judge: Judge, best: Best) -> None:
    """Look for good candidates with fewer changes between neighbouring states, and fewer draws."""
    for _ in range(ROUNDS):
        before = best.shape
        _without_draws(judge, best)
        _by_price_of_a_change(judge, best)
        _one_by_one(judge, best)
        if best.shape == before:
            return


def _without_draws(judge: Judge, best: Best) -> None:
    """Take one of the actions where the candidate draws."""
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


def _one_by_one(judge: Judge, best: Best) -> None:
    """Let single runs of states, the cheapest first, take the action of a neighbouring run."""
    tried = 0
    improved = True
    while improved and tried < MOST_TRIED:
        improved = False
        costs = judge.costs(best.candidate, judge.prices)
        for choice in _joined(judge, best, costs):
            tried += 1
            improved = best.offer(judge.candidate(choice, best.candidate.where, best.candidate.p))
            if improved or tried >= MOST_TRIED:
                break


def _joined(judge: Judge, best: Best, costs: FloatArray) -> Iterator[IntArray]:
    """choice [H, S] with one run of states that does what the run before or after it does, the cheapest first."""
    candidate = best.candidate
    edges, rules = phases_of(candidate.choice, judge.counts(candidate))
    found: list[tuple[float, slice, IntArray, int]] = []
    for first, last, rule in zip(edges[:-1], edges[1:], rules, strict=True):
        steps = slice(first, last)
        block = costs[steps].sum(axis=0)
        known = np.flatnonzero(rule != NONE)
        runs = np.split(known, np.flatnonzero(np.diff(rule[known])) + 1)
        for i, run in enumerate(runs):
            for neighbour in runs[max(i - 1, 0) : i] + runs[i + 1 : i + 2]:
                a = int(rule[neighbour[0]])
                price = float((block[run, a] - block[run, rule[run]]).sum())
                if np.isfinite(price):
                    found.append((price, steps, run, a))
    for _, steps, run, a in sorted(found, key=lambda x: x[0]):
        choice = candidate.choice.copy()
        choice[steps, run] = a
        yield choice
