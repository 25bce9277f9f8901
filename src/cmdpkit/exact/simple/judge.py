"""Which candidates are good enough, and what it would cost to decide otherwise.

Every candidate is evaluated exactly. What a change of single decisions costs is only estimated, to know what to try: at
the prices lam, taking action a in state s at step h instead of what a policy does changes reward plus priced utilities
by d[h, s] (Q[h, s, a] - V[h, s]), with d the probability that the policy is there and Q its action values.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.simple.shape import Shape, filled, shape_of
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.stationary.actions import stationary_action_values
from cmdpkit.model.decisions import of_rows
from cmdpkit.model.evaluate import action_values, evaluate, reach
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

ELSEWHERE = 1e-3  # weight of places that the policy may miss and a changed one may reach
NEARLY_ONE = 1 - 1e-6  # a discount in place of an average, where several classes of states are never left


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
        self.shape = (found.cmdp.steps, found.cmdp.S, found.cmdp.A)
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
        missed: BoolArray = self.cmdp.rho - candidate.totals[1:] > self.room
        return missed

    def met(self, candidate: Candidate) -> bool:
        """Whether all bounds are met."""
        return not self.short(candidate).any()

    def good(self, candidate: Candidate) -> bool:
        """Whether all bounds are met and the value is as large as was asked for."""
        return self.met(candidate) and bool(candidate.totals[0] >= self.least)

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
        if self.cmdp.criterion.stationary:
            stand_in = NEARLY_ONE if self.cmdp.criterion.kind == "average" else None
            Q = stationary_action_values(self.cmdp, pi[0], signal, stand_in)
        else:
            Q = action_values(self.cmdp, signal, pi)[0]
        added: FloatArray = Q - (pi * Q).sum(axis=-1, keepdims=True)
        return added


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
