"""How simple a policy is, which candidates are good enough, and what it would cost to decide otherwise.

Only decisions count that the policy can meet and that leave a choice. A *phase* is a run of steps at which every state
has one action. A stochastic decision belongs to any phase, and is counted for itself. Few runs of steps or states at
the least cost are found exactly, by dynamic programming, for costs that add up over the single decisions.

Every candidate is evaluated exactly. What a change of single decisions costs is only estimated, to know what to try: at
the prices lam, taking action a in state s at step h instead of what a policy does changes reward plus priced utilities
by d[h, s] (Q[h, s, a] - V[h, s]), with d the probability that the policy is there and Q its action values.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.solver import Solution
from cmdpkit.model.decisions import of_rows
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chains import stationary_action_values
from cmdpkit.operators.policies import action_values, evaluate, reach

NONE = -1  # in place of an action where no decision counts
MOST_PIECES = 128  # beginnings of phases that are considered; of longer horizons, every so many steps
ELSEWHERE = 1e-3  # weight of places that the policy may miss and a changed one may reach
NEARLY_ONE = 1 - 1e-6  # a discount in place of an average, where several classes of states are never left


class Shape(NamedTuple):
    """How simple a policy is; of two, the one that is smaller in this order is the simpler one."""

    phases: int  # how many there are
    draws: int  # stochastic decisions, those of different steps counted apart
    over_states: int  # changes of the action from one state to the next, in all phases together
    over_steps: int  # changes of the action of a state from one step to a later one


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


def filled(choice: IntArray, counts: BoolArray, allowed: BoolArray) -> IntArray:
    """The same decisions where they count; elsewhere what the nearest state does in that phase, if it can be done."""
    edges, rules = phases_of(choice, counts)
    written = choice.copy()
    states = np.arange(choice.shape[1])
    for first, last, rule in zip(edges[:-1], edges[1:], rules, strict=True):
        known = np.flatnonzero(rule != NONE)
        if not len(known):
            continue
        right = np.minimum(np.searchsorted(known, states), len(known) - 1)
        left = np.maximum(right - 1, 0)
        nearer = np.abs(known[left] - states) <= np.abs(known[right] - states)
        near = rule[known[np.where(nearer, left, right)]]
        for h in range(first, last):
            possible = allowed[h, states, near] & ~counts[h]
            written[h, possible] = near[possible]
    return written


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
    return phases_at(costs, ends[_edges(block, min(K, m))])


def phases_at(costs: FloatArray, edges: IntArray) -> IntArray:
    """choice [H, S] with the cheapest action of every state between two edges."""
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


def best_runs(costs: FloatArray, change: float) -> IntArray:
    """rules [K, S] with the least sum of costs [K, S, A] and of `change` for every change from a state to the next."""
    K, S, A = costs.shape
    came = np.zeros((S, K, A), dtype=np.int16)
    here, actions = costs[:, 0].copy(), np.arange(A)
    for s in range(1, S):
        cheapest = here.argmin(axis=1)[:, None]
        switched = np.take_along_axis(here, cheapest, 1) + change
        stays = here <= switched
        came[s] = np.where(stays, actions, cheapest)
        here = costs[:, s] + np.where(stays, here, switched)
    rules = np.zeros((K, S), dtype=np.int64)
    rules[:, -1] = here.argmin(axis=1)
    for s in range(S - 1, 0, -1):
        rules[:, s - 1] = came[s, np.arange(K), rules[:, s]]
    return rules


class Candidate(NamedTuple):
    """A policy and its exact totals."""

    choice: IntArray  # [H, S], index of the action; H is 1 where there is no horizon
    where: IntArray  # [m, 2], step and state of the stochastic decisions,
    p: FloatArray  # [m, A], and the probabilities of their actions
    policy: Policy  # the same as an object
    totals: FloatArray  # [1 + N], reward and utilities, which are to be at least rho

    def worth(self, prices: FloatArray) -> float:
        """Reward plus priced utilities."""
        return float(self.totals[0] + self.totals[1:] @ prices)


class Judge:
    """Makes candidates for a solved model and tells which of them are good: all bounds met, and a value of `least`."""

    def __init__(self, found: Solution, least: float) -> None:
        self.cmdp, self.least, self.prices = found.cmdp, least, found.lam
        self.shape = (found.cmdp.n_steps, found.cmdp.S, found.cmdp.A)
        short = found.cmdp.rho - found.cmdp.signs * found.utilities
        self.room = np.maximum(found.tolerance / 2, short)  # half of the tolerance is left for rounding
        self.scale = max(abs(found.value), found.value - least)  # of the value
        self.ranges = np.maximum(found.tolerance * 1e9, 1e-300)  # of the utilities, roughly
        self.allowed: BoolArray = found.cmdp.actions
        self.choosing: BoolArray = self.allowed.sum(axis=-1) > 1  # [H, S], where there is a choice
        self._only = self.allowed.argmax(axis=-1)
        self.optimum = self.of(found.policy)

    @cached_property
    def _spread(self) -> FloatArray:
        """[H, S]: how likely a place is if all actions are equally likely."""
        return reach(self.cmdp, Policy.uniform(self.cmdp))

    def of(self, policy: Policy) -> Candidate:
        """A given policy as a candidate."""
        where, p = policy.rows
        return self._evaluated(policy.choice.astype(np.int64), where, p, policy)

    def candidate(self, choice: IntArray, where: IntArray | None = None, p: FloatArray | None = None) -> Candidate:
        """The candidate that takes choice [H, S], except where it draws; what does not exist is replaced."""
        H, S, A = self.shape
        here = np.arange(S)
        legal = np.stack([np.where(self.allowed[h, here, choice[h]], choice[h], self._only[h]) for h in range(H)])
        where = np.zeros((0, 2), dtype=np.int64) if where is None else where
        p = np.zeros((0, A)) if p is None else p
        policy = Policy.fitting(self.cmdp, of_rows(legal, where, p), H)
        return self._evaluated(legal, where, p, policy)

    def _evaluated(self, choice: IntArray, where: IntArray, p: FloatArray, policy: Policy) -> Candidate:
        v, w = evaluate(self.cmdp, policy)
        return Candidate(choice, where, p, policy, np.append(v, self.cmdp.signs * w))

    def short(self, candidate: Candidate) -> BoolArray:
        """[N]: which bounds are not met."""
        return np.asarray(self.cmdp.rho - candidate.totals[1:] > self.room)

    def met(self, candidate: Candidate) -> bool:
        """Whether all bounds are met."""
        return not self.short(candidate).any()

    def good(self, candidate: Candidate) -> bool:
        """Whether all bounds are met and the value is as large as was asked for."""
        return self.met(candidate) and bool(candidate.totals[0] >= self.least)

    def distance(self, totals: FloatArray) -> FloatArray:
        """How far reward and utilities [1 + N, ...] are from what is asked for, each in its unit; 0 if good."""
        others = (slice(None), *(None,) * (totals.ndim - 1))
        value = np.maximum(self.least - totals[0], 0.0) / (self.scale or 1.0)
        missed = np.maximum((self.cmdp.rho - self.room)[others] - totals[1:], 0.0)
        return np.asarray(value + (missed / self.ranges[others]).sum(axis=0))

    def counts(self, candidate: Candidate) -> BoolArray:
        """[H, S]: which decisions count, for phases and changes: those met, with a choice, and not stochastic."""
        counts = (reach(self.cmdp, candidate.policy) > NEGLIGIBLE) & self.choosing
        counts[candidate.where[:, 0], candidate.where[:, 1]] = False
        return counts

    def shape_of(self, candidate: Candidate) -> Shape:
        """How simple the candidate is."""
        draws = len(candidate.policy.stochastic_decisions(reach=reach(self.cmdp, candidate.policy)))
        return shape_of(candidate.choice, self.counts(candidate), draws)

    def filled(self, candidate: Candidate) -> Candidate:
        """The same where it counts; elsewhere what the nearest state does."""
        choice = filled(candidate.choice, self.counts(candidate), self.allowed)
        return self.candidate(choice, candidate.where, candidate.p)

    def costs(self, candidate: Candidate, prices: FloatArray) -> FloatArray:
        """[H, S, A]: estimate of what an action taken instead costs; inf where there is none, 0 without a choice."""
        c = self.cmdp.compact
        signal = c.r + np.tensordot(prices, c.g, 1) if self.cmdp.N else c.r
        d = reach(self.cmdp, candidate.policy) + ELSEWHERE * self._spread
        lost = np.where(self.allowed, -d[..., None] * self._advantage(candidate, signal), np.inf)
        lost[~self.choosing] = 0.0
        return lost

    def effects(self, candidate: Candidate) -> FloatArray:
        """[1 + N, H, S, A]: estimate of what an action taken instead adds to reward and utilities; -inf without it."""
        d = reach(self.cmdp, candidate.policy)[..., None]
        signals = (self.cmdp.compact.r, *self.cmdp.compact.g)
        return np.array([np.where(self.allowed, d * self._advantage(candidate, x), -np.inf) for x in signals])

    def _advantage(self, candidate: Candidate, signal: FloatArray) -> FloatArray:
        """[H, S, A]: what an action taken once adds to a signal [1 or H, S, A], if the candidate is followed then."""
        pi = candidate.policy.pi
        if not self.cmdp.criterion.has_horizon:
            stand_in = NEARLY_ONE if self.cmdp.criterion.kind == "average" else None
            Q = stationary_action_values(self.cmdp, pi[0], signal, stand_in)
        else:
            Q = action_values(self.cmdp, signal, pi)[0]
        return np.asarray(Q - (pi * Q).sum(axis=-1, keepdims=True))


class Best:
    """The simplest good candidate so far."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.candidate: Candidate = judge.filled(judge.optimum)
        self.shape: Shape = judge.shape_of(judge.optimum)
        self.firm: Candidate | None = None  # without a draw and within the bounds, the one with the largest value
        if not judge.good(self.candidate):  # rounding
            self.candidate = judge.optimum

    def offer(self, candidate: Candidate) -> bool:
        """Keep a candidate if it is good and simpler; of two that are as simple, the one with the larger value."""
        if not len(candidate.where) and (self.firm is None or candidate.totals[0] > self.firm.totals[0]):
            self.firm = candidate if self.judge.met(candidate) else self.firm
        if not self.judge.good(candidate):
            return False
        shape = self.judge.shape_of(candidate)
        better = (*shape, -candidate.totals[0]) < (*self.shape, -self.candidate.totals[0])
        if better:
            self.candidate, self.shape = candidate, shape
        return better
