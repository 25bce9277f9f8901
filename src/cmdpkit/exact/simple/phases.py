"""Candidates with few phases, and small changes of those that are nearly good.

For a number of phases, `attempt` looks for policies that are best at prices of the bounds, and moves the prices until a
bound is just met. Two candidates are left over where no single one is good: one that meets the bounds and earns too
little, one that earns enough and misses a bound. Walking from the one to the other, decision by decision, there is a
place where the bounds begin to be met. The candidates there, and a draw between two actions at that very place, are
tried too; the draw meets the bound exactly. And both are changed a little: one state does something else at the
beginning or end of a phase. What such a change adds to the reward and to every utility is estimated for all of them at
once, and the most promising ones are evaluated. This finds policies that are best at no prices whatsoever, because they
lie between two that are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.simple.judge import Best, Candidate, Judge
from cmdpkit.exact.simple.shape import best_phases, phases_at, phases_of
from cmdpkit.model.transitions import FloatArray, IntArray

REPAIRS = 3  # changes that are made one after the other
EVALUATED = 24  # promising changes in a round
PRICES_TRIED = 10  # for one number of phases
ROUNDS = 6  # in which phases and rules are improved at fixed prices
PARTS = (1, 4, 16)  # all promising changes are tried at once, then a quarter of them, and so on
BETTER = 1e-12  # of the value: a smaller gain is rounding
HALVINGS = 30  # of the probability of a draw
SMALL = 0.01  # a draw with a smaller probability is left out or made this large, if bounds and value allow it


class _Change(NamedTuple):
    """One state takes an action at some steps."""

    steps: slice  # at which it does so
    s: int  # the state
    a: int  # the action


def repair(judge: Judge, best: Best, candidate: Candidate) -> None:
    """Offer candidates that differ from one in a few runs of steps of single states."""
    for _ in range(REPAIRS):
        tried = [judge.candidate(_with(candidate.choice, change)) for change in _promising(judge, candidate)]
        for new in tried:
            best.offer(new)
        if not tried:
            return
        nearest = min(tried, key=lambda x: _distance(judge, x.totals))
        if _distance(judge, nearest.totals) >= _distance(judge, candidate.totals) or judge.good(nearest):
            return
        candidate = nearest


def without_small_draws(judge: Judge, best: Best) -> None:
    """Leave out draws that are hardly ever made, by changing something else instead, or make them often enough."""
    for h, s, _ in small_draws(best.candidate):
        repair(judge, best, firmly(judge, best.candidate, h, s))
    for h, s, a in small_draws(best.candidate):
        now = best.candidate
        p = now.p.copy()
        row = p[(now.where == (h, s)).all(axis=1).argmax()]
        row *= (1 - SMALL) / (1 - row[a])
        row[a] = SMALL
        larger = judge.candidate(now.choice, now.where, p)
        if judge.good(larger):
            best.candidate = larger


def small_draws(candidate: Candidate) -> list[tuple[int, int, int]]:
    """Step, state and action of decisions that are taken, but with a probability below `SMALL`."""
    drawn = [
        (h, s, int(a))
        for (h, s), p in zip(candidate.where.tolist(), candidate.p, strict=True)
        for a in np.flatnonzero((p > 0) & (p < SMALL))
    ]
    return drawn


def firmly(judge: Judge, candidate: Candidate, h: int, s: int) -> Candidate:
    """The same, but taking the likeliest action at one step and state."""
    here = (candidate.where == (h, s)).all(axis=1)
    choice = candidate.choice.copy()
    choice[h, s] = candidate.p[here][0].argmax()
    return judge.candidate(choice, candidate.where[~here], candidate.p[~here])


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


def fewest_phases(judge: Judge, best: Best) -> None:
    """Look for good candidates with fewer and fewer phases."""
    failed, K = 0, 1
    while K == 1 or best.shape.phases > K:
        attempt(judge, best, K)
        if best.shape.phases <= K + 1:
            break
        failed, K = K, K + max(1, K // 2)
    while best.shape.phases - failed > 1:  # between what failed and what was found
        K = (failed + best.shape.phases) // 2
        attempt(judge, best, K)
        if best.shape.phases > K:
            failed = K


def attempt(judge: Judge, best: Best, K: int) -> None:
    """Offer candidates with K phases, or one or two more where that is needed to meet the bounds."""
    met = missed = None
    for prices, candidate in _at_many_prices(judge, K):
        best.offer(candidate)
        if judge.good(candidate) or candidate.worth(prices) - float(prices @ judge.cmdp.rho) < judge.least:
            return  # found, or hopeless: at these prices no policy with K phases seems to be worth enough
        met, missed = (candidate, missed) if judge.met(candidate) else (met, candidate)
    for candidate in (x for x in (missed, met) if x is not None):
        repair(judge, best, candidate)
    if met is not None and missed is not None and best.shape.phases > K:
        for candidate in _between(judge, missed, met):
            best.offer(candidate)


def _at_many_prices(judge: Judge, K: int) -> Iterator[tuple[FloatArray, Candidate]]:
    """Candidates with K phases; the price of a bound is raised while it is missed, and lowered while all are met."""
    N = judge.cmdp.N
    prices, low, high = judge.prices.copy(), np.zeros(N), np.full(N, np.inf)
    least_raise = 0.1 * judge.scale / judge.ranges
    for _ in range(PRICES_TRIED):
        candidate = at_prices(judge, K, prices)
        yield prices, candidate
        short = judge.short(candidate)
        if short.any():
            low[short] = prices[short]
            raised = np.where(np.isfinite(high), (low + high) / 2, np.maximum(2 * prices, least_raise))
            prices = np.where(short, raised, prices)
        elif prices.any():
            high = np.where(prices > low, prices, high)
            prices = (low + prices) / 2
        else:
            return


def at_prices(judge: Judge, K: int, prices: FloatArray) -> Candidate:
    """A candidate with at most K phases that is worth much at these prices."""
    best, here = None, judge.optimum
    for _ in range(ROUNDS):
        candidate = judge.candidate(best_phases(judge.costs(here, prices), K))
        if best is not None and not _gains(judge, candidate, best, prices):
            break
        best = here = candidate
    assert best is not None  # ROUNDS is at least 1
    return settled(judge, best, prices)


def _gains(judge: Judge, new: Candidate, old: Candidate, prices: FloatArray) -> bool:
    return new.worth(prices) > old.worth(prices) + BETTER * judge.scale


def settled(judge: Judge, candidate: Candidate, prices: FloatArray) -> Candidate:
    """The candidate with better actions in its phases, whose edges stay where they are."""
    steps = np.flatnonzero((np.diff(candidate.choice, axis=0) != 0).any(axis=1)) + 1
    edges = np.array([0, *steps, len(candidate.choice)])
    for _ in range(ROUNDS):
        costs = judge.costs(candidate, prices)
        wanted = phases_at(costs, edges)[edges[:-1]]
        now = candidate.choice[edges[:-1]]
        blocks = np.add.reduceat(costs, edges[:-1], axis=0)
        with np.errstate(invalid="ignore"):
            gain = np.take_along_axis(blocks, now[..., None], 2) - np.take_along_axis(blocks, wanted[..., None], 2)
        gain = np.nan_to_num(gain[..., 0], nan=0.0).reshape(-1)
        promising = np.flatnonzero(gain > 0)[np.argsort(-gain[gain > 0], kind="stable")]
        changed = next(_changed(judge, candidate, now, wanted, promising, edges, prices), None)
        if changed is None:
            return candidate
        candidate = changed
    return candidate


def _changed(
    judge: Judge,
    candidate: Candidate,
    now: IntArray,
    wanted: IntArray,
    promising: IntArray,
    edges: IntArray,
    prices: FloatArray,
) -> Iterator[Candidate]:
    """Candidates that gain from taking a part of the promising changes."""
    for part in PARTS:
        taken = promising[: -(-len(promising) // part)]
        if not len(taken):
            return
        rules, places = now.copy(), np.unravel_index(taken, now.shape)
        rules[places] = wanted[places]
        new = judge.candidate(np.repeat(rules, np.diff(edges), axis=0))
        if _gains(judge, new, candidate, prices):
            yield new


def _between(judge: Judge, missed: Candidate, met: Candidate) -> Iterator[Candidate]:
    """Candidates on four ways from one that misses a bound to one that meets all: by steps and by states, both ways."""
    H, S, _ = judge.shape
    places = np.arange(H * S)
    for group in [places % S] + [places // S] * (H > 1):  # the state, or the step, of every place
        for order in (np.argsort(group, kind="stable"), np.argsort(-group, kind="stable")):
            yield from _on_the_way(judge, missed, met, order, group)


def _on_the_way(
    judge: Judge, missed: Candidate, met: Candidate, order: IntArray, group: IntArray
) -> Iterator[Candidate]:
    """Candidates where the bounds begin to be met, if places change in this order; a group is a whole step or state."""
    order = order[missed.choice.reshape(-1)[order] != met.choice.reshape(-1)[order]]

    def with_first(k: int) -> Candidate:
        choice, places = missed.choice.copy(), np.unravel_index(order[:k], missed.choice.shape)
        choice[places] = met.choice[places]
        return judge.candidate(choice)

    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if judge.met(with_first(middle)) else (middle, high)
    ends = np.append(np.flatnonzero(np.diff(group[order])) + 1, len(order))
    yield with_first(int(ends[np.searchsorted(ends, high)]))
    yield with_first(high)
    yield from _drawn(judge, with_first(low), with_first(high))


def _drawn(judge: Judge, missed: Candidate, met: Candidate) -> Iterator[Candidate]:
    """Of two candidates that differ in one place, a draw between their actions that just meets the bounds."""
    where = np.argwhere(missed.choice != met.choice)
    if len(where) != 1:
        return
    (h, s), A = where[0], judge.shape[2]
    ends = np.eye(A)[[missed.choice[h, s], met.choice[h, s]]]

    def mixed(share: float) -> Candidate:
        return judge.candidate(met.choice, where, ((1 - share) * ends[0] + share * ends[1])[None])

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if judge.met(mixed(middle)) else (middle, high)
    if high < 1.0:
        yield mixed(high)
