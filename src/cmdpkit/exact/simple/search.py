"""The search for simple candidates: few phases first, then few changes from state to state and few draws.

For a number of phases, `attempt` takes policies that are best at prices of the bounds, and moves the prices until a
bound is just met. Where no single one is good, two are left: one meets the bounds and earns too little, one earns
enough and misses a bound. On the way from one to the other, decision by decision, the bounds begin to be met somewhere;
the candidates there, and a draw between the two actions of that place, are tried too. Both are also changed a little,
one state at the beginning or end of a phase; effects are estimated, and the most promising changes evaluated. This
finds policies that are best at no prices whatsoever.

Runs of states then take over the action of a neighbouring run, and phases and runs begin a little earlier or later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.exact.simple.judge import Best, Candidate, Judge, best_phases, best_runs, phases_at, phases_of, runs_of
from cmdpkit.model.transitions import FloatArray, IntArray

REPAIRS = 3  # changes that are made one after the other
EVALUATED = 24  # promising changes in a round
PRICES_TRIED = 10  # for one number of phases
IMPROVEMENTS = 6  # rounds in which phases and rules are improved at fixed prices
PARTS = (1, 4, 16)  # all promising changes are tried at once, then a quarter of them, and so on
BETTER = 1e-12  # of the value: a smaller gain is rounding
DRAW_HALVINGS = 30  # of the probability of a draw
SMALL = 0.01  # a draw with a smaller probability is left out or made this large, if bounds and value allow it
RAISED = (1.0, 1.2, 2.0, 5.0)  # prices that are tried, as multiples: higher ones make room below the bounds
PRICE_HALVINGS = 12  # of the exponent of what a change from state to state may cost
ROUNDS = 4  # in which runs of states are joined, each beginning with the best candidate so far
MOST_JOINED = 40  # times that runs are joined
MOST_SINGLES = 40  # runs that are tried for themselves, after many of them at once
PASSES = 3  # over the runs that may be joined
MOST_MOVES = 10  # moves that are made one after the other
MOST_TRIED = 100  # moves in a round; of more, those that come first
DISTANCES = (1, 2, 4, 8)  # steps by which the beginning of a phase is moved

Change = tuple[Any, Any, Any]  # steps, states, and the action that they take from now on


def changed(choice: IntArray, changes: Iterable[Change]) -> IntArray:
    """choice [H, S] after some changes."""
    new = choice.copy()
    for steps, states, action in changes:
        new[steps, states] = action
    return new


# -- few phases


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
        candidate = _at_prices(judge, K, prices)
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


def _at_prices(judge: Judge, K: int, prices: FloatArray) -> Candidate:
    """A candidate with at most K phases that is worth much at these prices."""
    best = judge.candidate(best_phases(judge.costs(judge.optimum, prices), K))
    for _ in range(IMPROVEMENTS - 1):
        candidate = judge.candidate(best_phases(judge.costs(best, prices), K))
        if not _gains(judge, candidate, best, prices):
            break
        best = candidate
    return _settled(judge, best, prices)


def _gains(judge: Judge, new: Candidate, old: Candidate, prices: FloatArray) -> bool:
    return new.worth(prices) > old.worth(prices) + BETTER * judge.scale


def _settled(judge: Judge, candidate: Candidate, prices: FloatArray) -> Candidate:
    """The candidate with better actions in its phases, whose edges stay where they are."""
    steps = np.flatnonzero((np.diff(candidate.choice, axis=0) != 0).any(axis=1)) + 1
    edges = np.array([0, *steps, len(candidate.choice)])
    for _ in range(IMPROVEMENTS):
        costs = judge.costs(candidate, prices)
        wanted = phases_at(costs, edges)[edges[:-1]]
        now = candidate.choice[edges[:-1]]
        blocks = np.add.reduceat(costs, edges[:-1], axis=0)
        with np.errstate(invalid="ignore"):
            gain = np.take_along_axis(blocks, now[..., None], 2) - np.take_along_axis(blocks, wanted[..., None], 2)
        gain = np.nan_to_num(gain[..., 0], nan=0.0).reshape(-1)
        promising = np.flatnonzero(gain > 0)[np.argsort(-gain[gain > 0], kind="stable")]
        for part in PARTS if len(promising) else ():
            rules, places = now.copy(), np.unravel_index(promising[: -(-len(promising) // part)], now.shape)
            rules[places] = wanted[places]
            new = judge.candidate(np.repeat(rules, np.diff(edges), axis=0))
            if _gains(judge, new, candidate, prices):
                candidate = new
                break
        else:
            return candidate
    return candidate


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
    """Candidates where the bounds begin to be met, if places change in this order; a group is a whole step or state.

    The last one draws between the two actions of the place where they begin to be met, such that they just are.
    """
    order = order[missed.choice.reshape(-1)[order] != met.choice.reshape(-1)[order]]
    h, s = np.unravel_index(order, missed.choice.shape)

    def with_first(k: int) -> Candidate:
        return judge.candidate(changed(missed.choice, [(h[:k], s[:k], met.choice[h[:k], s[:k]])]))

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
    for _ in range(DRAW_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if judge.met(mixed(middle)) else (middle, high)
    if high < 1.0:
        yield mixed(high)


# -- small changes of candidates that are nearly good


def repair(judge: Judge, best: Best, candidate: Candidate) -> None:
    """Offer candidates that differ from one in a few runs of steps of single states."""
    for _ in range(REPAIRS):
        tried = [judge.candidate(changed(candidate.choice, [change])) for change in _promising(judge, candidate)]
        for new in tried:
            best.offer(new)
        if not tried:
            return
        nearest = min(tried, key=lambda x: judge.distance(x.totals))
        if judge.distance(nearest.totals) >= judge.distance(candidate.totals) or judge.good(nearest):
            return
        candidate = nearest


def _promising(judge: Judge, candidate: Candidate) -> list[Change]:
    """Changes after which the candidate is nearest to being good, as far as can be estimated."""
    edges, _ = phases_of(candidate.choice, judge.counts(candidate))
    effects = judge.effects(candidate)
    found: list[tuple[float, Change]] = []
    for first, last in pairwise(edges):
        block = effects[:, first:last]
        for way in (1, -1)[: last - first]:  # from the beginning of the phase, and from its end
            added = np.cumsum(block[:, ::way], axis=1)
            for distance, n, s, a in _nearest(judge, candidate, added):
                steps = slice(first, first + n + 1) if way == 1 else slice(last - n - 1, last)
                found.append((distance, (steps, s, a)))
    found.sort(key=lambda x: x[0])
    return [change for _, change in found[:EVALUATED]]


def _nearest(judge: Judge, candidate: Candidate, added: FloatArray) -> Iterator[tuple[float, int, int, int]]:
    """The best changes, whose effects are added [1 + N, steps, S, A]: distance from good, step, state, action."""
    totals = candidate.totals[:, None, None, None] + added
    larger = 1e-9 * np.tanh((totals[0] - judge.least) / (judge.scale or 1.0))  # of equals, the larger value
    distance = judge.distance(totals) - larger
    nothing = (added == 0).all(axis=0) | ~np.isfinite(distance)
    flat = np.where(nothing, np.inf, distance).reshape(-1)
    top = np.argpartition(flat, min(EVALUATED, len(flat) - 1))[:EVALUATED]
    for i in top[np.isfinite(flat[top])].tolist():
        n, s, a = (int(x) for x in np.unravel_index(i, distance.shape))
        yield float(flat[i]), n, s, a


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
    return [
        (h, s, int(a))
        for (h, s), p in zip(candidate.where.tolist(), candidate.p, strict=True)
        for a in np.flatnonzero((p > 0) & (p < SMALL))
    ]


def firmly(judge: Judge, candidate: Candidate, h: int, s: int, action: int | None = None) -> Candidate:
    """The same without the draw at one step and state: there it takes a given action, or the likeliest one."""
    here = (candidate.where == (h, s)).all(axis=1)
    taken = candidate.p[here][0].argmax() if action is None else action
    return judge.candidate(changed(candidate.choice, [(h, s, taken)]), candidate.where[~here], candidate.p[~here])


# -- few changes from state to state


def fewest_changes(judge: Judge, best: Best) -> None:
    """Look for good candidates with fewer changes between neighbouring states, and fewer stochastic decisions."""
    for _ in range(ROUNDS):
        before, drawing = best.shape, best.candidate
        for (h, s), row in zip(drawing.where, drawing.p, strict=True):
            for a in np.flatnonzero(row).tolist():
                best.offer(firmly(judge, best.candidate, h, s, a))
        _by_price_of_a_change(judge, best)
        _by_joining_runs(judge, best)
        if best.shape == before:
            return


def _by_price_of_a_change(judge: Judge, best: Best) -> None:
    """Let every change from state to state cost something: the more it costs, the fewer there are."""
    candidate = best.candidate
    edges, _ = phases_of(candidate.choice, judge.counts(candidate))
    for factor in RAISED:
        prices = np.where(judge.prices > 0, factor * judge.prices, (factor - 1) * 0.1 * judge.scale / judge.ranges)
        blocks = np.add.reduceat(judge.costs(candidate, prices), edges[:-1], axis=0)
        finite = np.abs(blocks[np.isfinite(blocks)])
        low, high = np.log(max(float(finite.max(initial=0.0)), 1e-300)) + np.array([-25.0, np.log(judge.shape[1] + 1)])
        for _ in range(PRICE_HALVINGS):
            middle = (low + high) / 2
            rules = best_runs(blocks, float(np.exp(middle)))
            found = judge.candidate(np.repeat(rules, np.diff(edges), axis=0), candidate.where, candidate.p)
            best.offer(found)
            low, high = (middle, high) if judge.good(found) else (low, middle)


class _Join(NamedTuple):
    """A run of states that does what the run before or after it does, in one phase."""

    adds: FloatArray  # [1 + N], to reward and utilities, estimated
    change: Change  # steps of the phase, states of the run, and the action of the neighbour
    touches: set[tuple[int, int]]  # both runs, by their first step and state


def _by_joining_runs(judge: Judge, best: Best) -> None:
    """Let runs of states do what a neighbouring run does: many at once, and one by one where that does not help."""

    def offer(joins: Iterable[_Join]) -> bool:
        choice = changed(candidate.choice, (join.change for join in joins))
        return best.offer(judge.candidate(choice, candidate.where, candidate.p))

    for _ in range(MOST_JOINED):
        candidate, joins = best.candidate, _joins(judge, best.candidate)
        least = np.append(judge.least, judge.cmdp.rho - judge.room)
        packed, apart = (_packed(joins, candidate.totals, x) for x in (least, np.full(len(least), -np.inf)))
        together = [some[: len(some) >> k] for some in (packed, apart) for k in range(len(some).bit_length())]
        helped = [offer(some) for some in together]  # all of them, the first half, the first quarter, and so on
        if not any(helped) and not any(offer([join]) for join in joins[:MOST_SINGLES]):
            return


def _joins(judge: Judge, candidate: Candidate) -> list[_Join]:
    """All runs that could be joined to a neighbour, the cheapest at the prices first."""
    effects = judge.effects(candidate)
    edges, rules = phases_of(candidate.choice, judge.counts(candidate))
    found = []
    for (first, last), rule in zip(pairwise(edges), rules, strict=True):
        block, runs = effects[:, first:last].sum(axis=1), runs_of(rule)
        for i, run in enumerate(runs):
            for neighbour in runs[max(i - 1, 0) : i] + runs[i + 1 : i + 2]:
                a = int(rule[neighbour[0]])
                adds = block[:, run, a].sum(axis=1)
                if np.isfinite(adds).all():
                    touches = {(first, int(x[0])) for x in (run, neighbour)}
                    found.append(_Join(adds, (slice(first, last), run, a), touches))
    weights = np.append(1.0, judge.prices)
    return sorted(found, key=lambda join: -float(weights @ join.adds))


def _packed(joins: Sequence[_Join], totals: FloatArray, least: FloatArray) -> list[_Join]:
    """Joins that do not touch each other, with which totals [1 + N] seem to stay at least as large as asked for.

    Some make room below a bound for others, which are found in the next pass.
    """
    taken: set[tuple[int, int]] = set()
    packed: list[_Join] = []
    for _ in range(PASSES):
        for join in joins:
            if not join.touches & taken and (totals + join.adds >= np.minimum(least, totals)).all():
                taken |= join.touches
                totals = totals + join.adds
                packed.append(join)
    return packed


# -- the best of the same shape


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
    choice = candidate.choice
    edges, rules = phases_of(choice, judge.counts(candidate))
    for edge in edges[1:-1]:
        for distance in DISTANCES:
            yield changed(choice, [(slice(max(edge - distance, 0), edge), slice(None), choice[edge])])
            yield changed(choice, [(slice(edge, edge + distance), slice(None), choice[edge - 1])])
    for (first, last), rule in zip(pairwise(edges), rules, strict=True):
        for one, other in pairwise(runs_of(rule)):
            for here, there in ((one[-1], other[0]), (other[0], one[-1])):
                yield changed(choice, [(slice(first, last), here, rule[there])])
