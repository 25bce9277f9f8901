"""The simplest policy that is nearly as good as the optimum, for people who have to follow it.

Only decisions count that the policy can meet and that leave a choice. A *phase* is a run of steps at which every state
has one action. A stochastic decision belongs to any phase, and is counted for itself.

The search estimates what single decisions add: taking action a in state s at step h instead of what a policy does adds
d[h, s] (Q[h, s, a] - V[h, s]) to a total, with d the probability that the policy is there and Q its action values. For
costs that add up like this, dynamic programming finds the best policy with few phases at prices of the bounds.
Estimates are made again at that policy until it gets no better, and the prices are moved until the bounds are just met.
Where no policy at any price is good enough, two are left: one meets the bounds and earns too little, one earns enough
and misses a bound. Both are changed a little, one state at the beginning or end of a phase. At last, runs of states
take over the action of a neighbouring run. Every candidate is evaluated exactly.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.solver import Solution
from cmdpkit.model.decisions import of_rows
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import Name
from cmdpkit.operators.chains import stationary_action_values
from cmdpkit.operators.policies import action_values, evaluate, reach

MOST_PIECES = 128  # beginnings of phases that are considered; of longer horizons, every so many steps
NONE = -1  # in place of an action where no decision counts
ELSEWHERE = 1e-3  # weight of places that the policy may miss and a changed one may reach
NEARLY_ONE = 1 - 1e-6  # a discount in place of an average, where several classes of states are never left
PRICES_TRIED = 10  # for one number of phases
ROUNDING = 1e-12  # relative: a smaller gain is rounding
MOST_IMPROVEMENTS = 12  # times that phases are improved at the same prices
MOST_NUDGES = 3  # small changes that are made one after the other
MOST_TRIED = 24  # small changes that are evaluated in a round
MOST_SINGLES = 100  # runs of states that are joined one by one, after many of them at once
MOST_NUMBERS = 100_000_000  # steps times states times actions; several tables of this size are needed


class Shape(NamedTuple):
    """How simple a policy is; of two, the one that is smaller in this order is the simpler one."""

    phases: int  # how many there are
    draws: int  # stochastic decisions, those of different steps counted apart
    over_states: int  # changes of the action from one state to the next, in all phases together
    over_steps: int  # changes of the action of a state from one step to a later one


def counted(policy: Policy, visits: FloatArray, actions: BoolArray) -> BoolArray:
    """[H, S]: which decisions count, for phases and changes: those met, with a choice, and not stochastic."""
    counts = (visits > NEGLIGIBLE) & (actions.sum(axis=-1) > 1)
    where = policy.rows[0]
    counts[where[:, 0], where[:, 1]] = False
    return np.asarray(counts)


def shape_of(choice: IntArray, counts: BoolArray, draws: int) -> Shape:
    """The shape of choice [H, S], where `counts` [H, S] says which decisions count."""
    edges, rules = phases_of(choice, counts)
    over_states = sum(max(0, len(runs_of(rule)) - 1) for rule in rules)
    before, over_steps = np.full(choice.shape[1], NONE), 0
    for here, count in zip(choice, counts, strict=True):
        over_steps += int((count & (before != NONE) & (before != here)).sum())
        before[count] = here[count]
    return Shape(len(edges) - 1, draws, over_states, over_steps)


def phases_of(choice: IntArray, counts: BoolArray) -> tuple[list[int], IntArray]:
    """The edges 0 = e[0] < e[1] < ... = H of the fewest phases, and the action of each state in each, or NONE.

    A phase is extended as long as possible: what can be one phase still can if it is cut short, so nothing is lost.
    """
    edges, rules = [0], [np.full(choice.shape[1], NONE)]
    for h, (actions, here) in enumerate(zip(choice, counts, strict=True)):
        if (here & (rules[-1] != NONE) & (rules[-1] != actions)).any():
            edges.append(h)
            rules.append(np.full(choice.shape[1], NONE))
        rules[-1][here] = actions[here]
    return [*edges, len(choice)], np.array(rules)


def runs_of(rule: IntArray) -> list[IntArray]:
    """Runs of neighbouring states with the same action in a phase; states whose decisions do not count are left out."""
    known = np.flatnonzero(rule != NONE)
    return np.split(known, np.flatnonzero(np.diff(rule[known])) + 1) if len(known) else []


class Rule(NamedTuple):
    """Neighbouring states in which the same is done."""

    states: tuple[Name, ...]  # those that are reached and leave a choice, in the model's order
    action: Name  # what is done in all of them


class Phase(NamedTuple):
    """Consecutive steps at which the same is done in every state."""

    first: int | None  # step, from 1; None without a horizon
    last: int | None  # step, likewise
    rules: tuple[Rule, ...]  # in the order of the states


@dataclass(frozen=True, kw_only=True)
class Simplified(Solution):
    """A simple policy that meets all bounds and is nearly as good as the optimum; see `simplify`.

    It can be used wherever a `Solution` can: ``value``, ``utilities`` and ``policy`` are those of the simple policy,
    the prices are those of the optimum, and no policy within the bounds has a value above ``value + gap``.
    """

    optimum: Solution  # what was simplified
    least: float  # the value that was asked for
    before: Shape  # phases, stochastic decisions, changes over states and over steps at the optimum
    after: Shape  # the same of the simple policy

    @property
    def lost(self) -> float:
        """What the simple policy earns less than the optimum, in the units of the reward."""
        return max(0.0, self.optimum.value - self.value)

    @property
    def share(self) -> float:
        """What is lost, as a share of the optimum; inf if the optimum is 0 and something is lost."""
        if self.lost == 0:
            return 0.0
        return self.lost / abs(self.optimum.value) if self.optimum.value else math.inf

    @property
    def slack(self) -> FloatArray:
        """What is left of every bound, [N]; negative only by less than the tolerance."""
        return np.asarray(self.cmdp.signs * self.utilities - self.cmdp.rho)

    @property
    def simpler(self) -> bool:
        """False if nothing simpler was found: then the policy is the optimum."""
        return self.after < self.before

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """What to do, phase by phase and state by state, without the `stochastic_decisions`."""
        cmdp, found = self.cmdp, []
        edges, chosen = phases_of(self.policy.choice.astype(np.int64), counted(self.policy, self.reach, cmdp.actions))
        for (first, last), here in zip(pairwise(edges), chosen, strict=True):
            names = ((tuple(cmdp.states[int(s)] for s in x), int(here[x[0]])) for x in runs_of(here))
            rules = tuple(Rule(states, cmdp.action_names[a]) for states, a in names)
            found.append(Phase(first + 1, last, rules) if cmdp.criterion.has_horizon else Phase(None, None, rules))
        return tuple(found)


def simplify(solution: Solution, within: float = 0.01, *, at_least: float | None = None) -> Simplified:
    """The simplest policy found that meets all bounds and whose value is within a share of the optimum.

    Simpler means, in this order: fewer phases (runs of steps at which every state has one action), fewer stochastic
    decisions, and fewer changes of the action between neighbouring states, in the order of the model's states. Without
    a horizon there is one phase. Only decisions count that are ever met and that leave a choice; elsewhere the policy
    does what it does in the nearest state.

    To find the very simplest is hard in general, so this is a search. Every candidate is evaluated exactly before it is
    accepted: no bound is broken, and no more is given up than is allowed. If nothing simpler is found, the policy is
    the optimum, and ``simpler`` is False.

    Parameters
    ----------
    solution : what `solve` returned
    within : the share of the optimum's absolute value that may be given up: 0.01 for 1 %
    at_least : instead of a share, the value that must be reached, in the units of the reward; use it where the optimum
        is near 0, so that a share of it is next to nothing

    >>> import cmdpkit as ck
    >>> found = simplify(ck.solve(ck.load("queue")), within=0.02)
    >>> found.before.phases > found.after.phases, found.share <= 0.02, bool((found.slack >= -found.tolerance).all())
    (True, True, True)
    """
    began = time.perf_counter()
    least = _least(solution, within, at_least)
    search = PhaseSearch(solution, least)
    before = search.shape
    _fewest_phases(search)
    _fewest_changes(search)
    chosen = search.best
    value, utilities = float(chosen.totals[0]), chosen.totals[1:]
    return Simplified(
        cmdp=solution.cmdp,
        policy=chosen.policy,
        value=value,
        utilities=solution.cmdp.signs * utilities + 0.0,
        shadow_prices=solution.shadow_prices,
        gap=max(0.0, solution.value - value) + solution.gap,
        tolerance=solution.tolerance,
        binds=solution.binds & (utilities - solution.cmdp.rho <= solution.tolerance),
        method=solution.method,
        seconds=time.perf_counter() - began,
        ended=solution.ended,
        optimum=solution,
        least=least,
        before=before,
        after=search.shape,
    )


def _least(solution: Solution, within: float, at_least: float | None) -> float:
    """The value that must be reached; CmdpkitError if something is wrong with what was asked."""
    if not isinstance(solution, Solution):
        raise CmdpkitError(f"solution is a {type(solution).__name__}, expected what cmdpkit.solve(model) returns")
    if not isinstance(solution.policy, Policy):
        raise CmdpkitError("the optimum is a draw among several policies, of which none can be simplified for itself")
    if getattr(solution, "one_class", None) is not None:
        raise CmdpkitError(
            "the solution was asked for one recurrent class, and a simpler policy may have several; "
            "simplify what solve(model) returns without one_class"
        )
    cmdp = solution.cmdp
    numbers = cmdp.n_steps * cmdp.S * cmdp.A
    if numbers > MOST_NUMBERS:
        raise CmdpkitError(
            f"the model has {numbers:,} steps x states x actions, and simplify takes at most {MOST_NUMBERS:,}"
        )
    if at_least is not None:
        if not isinstance(at_least, (int, float)) or not at_least <= solution.value:
            raise CmdpkitError(
                f"at_least is {quoted(at_least)}, expected a value of at most the optimum, {solution.value:.6g}"
            )
        return float(at_least)
    if isinstance(within, bool) or not isinstance(within, (int, float)) or not 0 <= within < 1:
        raise CmdpkitError(f"within is {quoted(within)}, expected a share of the optimum such as 0.01 for 1 %")
    return solution.value - within * abs(solution.value)


# -- dynamic programming -----------------------------------------------------------------------------------------------


def best_phases(costs: FloatArray, K: int) -> IntArray:
    """choice [H, S] with at most K phases for which the costs [H, S, A] add up to the least."""
    H = len(costs)
    ends = np.unique(np.linspace(0, H, min(H, MOST_PIECES) + 1).astype(np.int64))
    pieces = np.add.reduceat(costs, ends[:-1], axis=0)
    m = len(pieces)
    by_action = np.ascontiguousarray(np.moveaxis(pieces, -1, 0))  # the least over the actions is found faster so
    block = np.full((m, m + 1), np.inf)  # the least cost of the pieces i .. j - 1 with one action for each state
    for i in range(m):
        block[i, i + 1 :] = np.cumsum(by_action[:, i:], axis=1).min(axis=0).sum(axis=-1)
    edges = ends[_edges(block, min(K, m))]
    rules = np.add.reduceat(costs, edges[:-1], axis=0).argmin(axis=-1)
    return np.repeat(rules, np.diff(edges), axis=0)


def _edges(cost: FloatArray, K: int) -> IntArray:
    """Edges 0 = e[0] < ... = m of at most K blocks of least cost, then the fewest; of length 1 if K is too few."""
    m = len(cost)
    least, came = np.full((K + 1, m + 1), np.inf), np.zeros((K + 1, m + 1), dtype=np.int64)
    least[0, 0] = 0.0
    for k in range(1, K + 1):
        through = least[k - 1, :m, None] + cost  # [i, j]
        came[k], least[k] = through.argmin(axis=0), through.min(axis=0)
    k = int(least[:, m].argmin())
    if not np.isfinite(least[k, m]):
        return np.arange(m + 1)
    edges = [m]
    while k:
        edges.append(int(came[k, edges[-1]]))
        k -= 1
    return np.array(edges[::-1])


# -- the search --------------------------------------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A policy and its exact totals."""

    policy: Policy
    totals: FloatArray  # [1 + N], reward and utilities, which are to be at least rho

    @property
    def choice(self) -> IntArray:
        """[H, S], the index of the action; H is 1 where there is no horizon."""
        return self.policy.choice.astype(np.int64)

    def worth(self, prices: FloatArray) -> float:
        """Reward plus priced utilities."""
        return float(self.totals[0] + self.totals[1:] @ prices)


class PhaseSearch:
    """Makes candidates for a solved model, and keeps the simplest that is good: all bounds met, a value of `least`."""

    def __init__(self, found: Solution, least: float) -> None:
        self.cmdp, self.found, self.least = found.cmdp, found, least
        short = found.cmdp.rho - found.cmdp.signs * found.utilities
        self.room = np.maximum(found.tolerance / 2, short)  # half of the tolerance is left for rounding
        self.unit = max(abs(found.value), found.value - least) / np.maximum(found.tolerance * 1e9, 1e-300)  # of prices
        self.spread = reach(self.cmdp, Policy.uniform(self.cmdp))  # [H, S], if all actions are equally likely
        self.best = self._evaluated(found.policy)
        self.shape, self.at_optimum = self.shape_of(self.best), self.effects(self.best)

    def candidate(self, choice: IntArray, where: IntArray | None = None, p: FloatArray | None = None) -> Candidate:
        """The candidate that takes choice [H, S], except where it draws; what does not exist is replaced."""
        actions = self.cmdp.actions
        exists = np.take_along_axis(actions, choice[..., None], axis=2)[..., 0]
        legal = np.where(exists, choice, actions.argmax(axis=-1))
        where = np.zeros((0, 2), dtype=np.int64) if where is None else where
        p = np.zeros((0, self.cmdp.A)) if p is None else p
        return self._evaluated(Policy.fitting(self.cmdp, of_rows(legal, where, p), self.cmdp.n_steps))

    def _evaluated(self, policy: Policy) -> Candidate:
        v, w = evaluate(self.cmdp, policy)
        return Candidate(policy, np.append(v, self.cmdp.signs * w))

    def short(self, candidate: Candidate) -> BoolArray:
        """[N]: which bounds are not met."""
        return np.asarray(self.cmdp.rho - candidate.totals[1:] > self.room)

    def good(self, candidate: Candidate) -> bool:
        """Whether all bounds are met and the value is as large as was asked for."""
        return bool(candidate.totals[0] >= self.least) and not self.short(candidate).any()

    def counts(self, candidate: Candidate) -> BoolArray:
        """[H, S]: which decisions count."""
        return counted(candidate.policy, reach(self.cmdp, candidate.policy), self.cmdp.actions)

    def shape_of(self, candidate: Candidate) -> Shape:
        """How simple the candidate is."""
        draws = len(candidate.policy.stochastic_decisions(reach=reach(self.cmdp, candidate.policy)))
        return shape_of(candidate.choice, self.counts(candidate), draws)

    def offer(self, candidate: Candidate) -> None:
        """Keep a candidate if it is good and simpler; of two that are as simple, the one with the larger value."""
        if self.good(candidate):
            shape = self.shape_of(candidate)
            if (*shape, -candidate.totals[0]) < (*self.shape, -self.best.totals[0]):
                self.best, self.shape = candidate, shape

    def distance(self, totals: FloatArray) -> FloatArray:
        """How far reward and utilities [1 + N, ...] are from being good, each in its unit; 0 if they are good."""
        others = (slice(None), *(None,) * (totals.ndim - 1))
        value = np.maximum(self.least - totals[0], 0.0)
        missed = np.maximum((self.cmdp.rho - self.room)[others] - totals[1:], 0.0)
        return np.asarray(value + (missed * self.unit[others]).sum(axis=0))

    def effects(self, candidate: Candidate) -> FloatArray:
        """[1 + N, H, S, A]: estimate of what another action adds to reward and utilities; 0 without a choice."""
        c, pi = self.cmdp.compact, candidate.policy.pi
        d = reach(self.cmdp, candidate.policy) + ELSEWHERE * self.spread
        d[self.cmdp.actions.sum(axis=-1) <= 1] = 0.0
        added = []
        for signal in (c.r, *c.g):
            if self.cmdp.criterion.has_horizon:
                Q = action_values(self.cmdp, signal, pi)[0]
            else:
                stand_in = NEARLY_ONE if self.cmdp.criterion.kind == "average" else None
                Q = stationary_action_values(self.cmdp, pi[0], signal, stand_in)
            added.append(d[..., None] * (Q - (pi * Q).sum(axis=-1, keepdims=True)))
        return np.array(added)

    def costs(self, effects: FloatArray, prices: FloatArray) -> FloatArray:
        """[H, S, A]: what an action taken instead costs at the prices of the bounds; inf where there is none."""
        return np.where(self.cmdp.actions, -np.tensordot(np.append(1.0, prices), effects, 1), np.inf)


def _fewest_phases(search: PhaseSearch) -> None:
    """Look for good candidates with one phase, two, and so on; of many, some numbers are left out."""
    K = 1
    while search.shape.phases > K:
        _attempt(search, K)
        K += max(1, K // 4)


def _attempt(search: PhaseSearch, K: int) -> None:
    """Offer candidates with K phases, or one or two more where that is needed to meet the bounds.

    The prices of the bounds are raised while a bound is missed, and lowered while all are met.
    """
    met = missed = None
    N, prices = search.cmdp.N, search.found.lam
    low, high = np.zeros(N), np.full(N, np.inf)
    for _ in range(PRICES_TRIED):
        candidate = _at_prices(search, K, prices)
        search.offer(candidate)
        if search.good(candidate) or candidate.worth(prices) - float(search.cmdp.rho @ prices) < search.least:
            return  # found, or hopeless: at these prices no policy with K phases seems to be worth enough
        short = search.short(candidate)
        if short.any():
            missed = candidate
            low = np.where(short, prices, low)
            raised = np.where(np.isfinite(high), (low + high) / 2, np.maximum(2 * prices, 0.1 * search.unit))
            prices = np.where(short, raised, prices)
        else:
            met = candidate
            high = np.where(prices > low, prices, high)
            prices = (low + prices) / 2
    for candidate in filter(None, (missed, met)):
        _nudge(search, candidate)


def _at_prices(search: PhaseSearch, K: int, prices: FloatArray) -> Candidate:
    """A candidate with at most K phases that is worth much at these prices."""
    best = search.candidate(best_phases(search.costs(search.at_optimum, prices), K))
    for _ in range(MOST_IMPROVEMENTS):
        better = search.candidate(best_phases(search.costs(search.effects(best), prices), K))
        if better.worth(prices) <= best.worth(prices) + ROUNDING * abs(best.worth(prices)):
            break
        best = better
    return best


class _Move(NamedTuple):
    """Another action in some states and steps."""

    cost: float  # estimated
    steps: slice  # those that it begins and ends with
    states: IntArray  # the states
    action: int  # which they take from now on


def _cheapest(moves: list[_Move]) -> list[_Move]:
    """The moves that are possible, the cheapest first."""
    return sorted((move for move in moves if np.isfinite(move.cost)), key=lambda move: move.cost)


def _moved(search: PhaseSearch, candidate: Candidate, moves: list[_Move]) -> Candidate:
    """The candidate after some moves; what they change is not left to chance any more."""
    choice = candidate.choice
    moved = np.zeros(choice.shape, dtype=bool)
    for move in moves:
        choice[move.steps, move.states] = move.action
        moved[move.steps, move.states] = True
    where, p = candidate.policy.rows
    kept = ~moved[where[:, 0], where[:, 1]]
    return search.candidate(choice, where[kept], p[kept])


def _nudge(search: PhaseSearch, candidate: Candidate) -> None:
    """Offer candidates that differ from one in a few runs of steps of single states."""
    for _ in range(MOST_NUDGES):
        tried = [_moved(search, candidate, [move]) for move in _nudges(search, candidate)]
        for each in tried:
            search.offer(each)
        nearest = min(tried, key=lambda x: search.distance(x.totals), default=candidate)
        if search.good(nearest) or search.distance(nearest.totals) >= search.distance(candidate.totals):
            return
        candidate = nearest


def _nudges(search: PhaseSearch, candidate: Candidate) -> list[_Move]:
    """Another action in one state, from the beginning of a phase on or up to its end; the most promising ones."""
    effects, found = search.effects(candidate), []
    for first, last in pairwise(phases_of(candidate.choice, search.counts(candidate))[0]):
        for way in (1, -1)[: last - first]:
            added = np.cumsum(effects[:, first:last][:, ::way], axis=1)
            distance = search.distance(candidate.totals[:, None, None, None] + added)
            distance[(added == 0).all(axis=0) | ~search.cmdp.actions[first:last][::way]] = np.inf
            for i in np.argsort(distance, axis=None)[:MOST_TRIED]:
                n, s, a = (int(x) for x in np.unravel_index(i, distance.shape))
                steps = slice(first, first + n + 1) if way == 1 else slice(last - n - 1, last)
                found.append(_Move(float(distance[n, s, a]), steps, np.array([s]), a))
    return _cheapest(found)[:MOST_TRIED]


def _fewest_changes(search: PhaseSearch) -> None:
    """Look for good candidates with fewer stochastic decisions and fewer changes between neighbouring states.

    Runs of states do what a neighbouring run does: many at once, and one by one where that does not help.
    """
    start = None
    while start is not search.best:
        start = search.best
        for h, s in start.policy.rows[0].tolist():
            for a in np.flatnonzero(start.policy.row(h, s)).tolist():
                search.offer(_moved(search, search.best, [_Move(0.0, slice(h, h + 1), np.array([s]), a)]))
        now = search.best
        joins = _joins(search, now)
        for k in range(len(joins).bit_length()):  # all, the cheapest half, and so on
            search.offer(_moved(search, now, joins[: len(joins) >> k]))
        if search.best is start:
            for join in joins[:MOST_SINGLES]:
                search.offer(_moved(search, search.best, [join]))


def _joins(search: PhaseSearch, candidate: Candidate) -> list[_Move]:
    """All runs that could do what the run before or after them does in a phase, the cheapest first."""
    found = []
    costs = search.costs(search.effects(candidate), search.found.lam)
    edges, rules = phases_of(candidate.choice, search.counts(candidate))
    for (first, last), rule in zip(pairwise(edges), rules, strict=True):
        block = costs[first:last].sum(axis=0)
        for one, other in pairwise(runs_of(rule)):
            for run, neighbour in ((one, other), (other, one)):
                action = int(rule[neighbour[0]])
                found.append(_Move(float(block[run, action].sum()), slice(first, last), run, action))
    return _cheapest(found)
