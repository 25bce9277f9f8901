"""Refinement and identification: the deterministic policies of an action set, played with the right weights.

*Refinement* (arXiv 2309.15395) plays the M policies of D in rounds of sqrt K episodes, each for its share
of the round, and finds the shares anew after every round from the returns so far (Decomposition-Opt). *Identification*
keeps the last shares and counts visits: the frequencies of the actions, by step and state, are the one Markov policy
that has the occupancy of the mixture. By default the policies are played in turn. With `draw_each` one of them is drawn
in every episode; then the policy of an episode is the mixture itself, and no episode has to make up for another.

Departures: plays are rounded by largest remainders, and what that leaves over is carried to the next round (otherwise
the same rounding in every round would cost a regret of order sqrt K); the floor is lowered where M times the floor
would exceed 1; estimates divide by the actual number of plays; a round has at least M episodes; and where D has more
than `max_policies` policies, those are taken whose actions the base runs visited most.
"""

from __future__ import annotations

import heapq
import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Source, Spec
from cmdpkit.learners.pri.decompose import DecompositionOpt, whole_plays
from cmdpkit.learners.pri.presets import PRIParams, rad
from cmdpkit.learners.state import Saved
from cmdpkit.model.compiled import ONE, compiled
from cmdpkit.model.policy import one_hot
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.meter import Meter, collect, watch
from cmdpkit.simulate.random import Stream, uniform
from cmdpkit.simulate.simulator import reset, step

REFINE, IDENTIFY = 0, 1
DRAWN = -1  # in place of the number of a policy: one is drawn in every episode


def policies_in(D: BoolArray) -> int:
    """M, the number of deterministic policies of an action set."""
    return math.prod(int(n) for n in D.sum(axis=-1).ravel())


def most_visited(D: BoolArray, use: FloatArray, most: int) -> NDArray[np.uint64]:
    """The deterministic policies of D [M, H*S], at most `most`, by how often base runs visited what they deviate to.

    First comes the policy of the most used actions. Any other one deviates from it at some decisions, and its place is
    that of the product, over these, of the share of episodes that used the action it takes there. Shares of the visits
    of a state would not do: where hardly anybody comes by, the second action may have half of them and still not
    matter. The policies are found one after the other, so that D may have any number of them.

    >>> D, use = np.array([[[True, True], [True, True]]]), np.array([[[3.0, 1.0], [8.0, 2.0]]])
    >>> most_visited(D, use, 3).tolist()
    [[0, 0], [0, 1], [1, 0]]
    """
    share = use / np.maximum(use.sum(axis=(1, 2), keepdims=True), 1e-300)  # of the episodes
    share = np.where(D, share, -1.0).reshape(-1, D.shape[-1])
    order = np.argsort(-share, axis=-1, kind="stable").astype(np.uint64)
    size = D.sum(axis=-1).ravel()
    rarity = -np.log(np.maximum(np.take_along_axis(share, order.astype(np.int64), -1), 1e-12))
    rarity[:, 0] = 0.0  # the most used action is no deviation
    several = [int(i) for i in np.flatnonzero(size > 1)]
    waiting: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())]  # deviations: (decision, rank of its action)
    seen: set[tuple[tuple[int, int], ...]] = {()}
    found: list[NDArray[np.uint64]] = []
    while waiting and len(found) < most:
        cost, ranks = heapq.heappop(waiting)
        policy = order[:, 0].copy()
        for i, rank in ranks:
            policy[i] = order[i, rank]
        found.append(policy)
        for i in several:
            rank = dict(ranks).get(i, 0)
            further = tuple(sorted({**dict(ranks), i: rank + 1}.items()))
            if rank + 1 < size[i] and further not in seen:
                seen.add(further)
                heapq.heappush(waiting, (cost + float(rarity[i, rank + 1] - rarity[i, rank]), further))
    return np.array(found)


class Refinement(Saved):
    """Both phases at work, inside an action set D, for tightened thresholds rho [N]."""

    changing: ClassVar[tuple[str, ...]] = (
        *("phase", "round", "block", "played", "fresh", "alpha", "sizes", "carry", "sums", "taken", "plays", "reached"),
        *("history", "rounds_short", "last_short", "basis"),
    )

    def __init__(self, spec: Spec, p: PRIParams, D: BoolArray, use: FloatArray, rho: FloatArray) -> None:
        self.spec, self.p, self.rho = spec, p, rho
        self.choices = most_visited(D, use, p.max_policies)
        self._usable = np.array(spec.allowed).reshape(-1, spec.A)
        M = self.M = len(self.choices)
        self.plays_per_round = max(math.isqrt(p.K), M)
        self.rounds = max(p.K // self.plays_per_round, 1)
        self.floor = p.floor_of(M)
        self.phase = REFINE if M > 1 else IDENTIFY
        self.round = 0  # number of rounds of this phase that are over
        self.block = 0  # number of the policy that is being played
        self.played = 0  # number of episodes of that policy in this round
        self.fresh = True  # whether no episode of the block was played yet
        self.alpha = np.full(M, 1.0 / M)  # [M]: weights of the policies
        self.sums = np.zeros((M, 2 + spec.N))  # [M, 2+N]: number of returns that count, their reward and utilities
        self.taken = np.zeros(M, dtype=np.int64)  # [M]: plays of this round whose returns were counted
        self.plays = np.zeros((2, M), dtype=np.int64)  # [2, M]: plays of every policy in each phase
        self.reached = np.zeros((2, M, spec.H * spec.S), dtype=np.int64)  # [2, M, H*S]: visits in each phase
        self.history = np.zeros((0, 1 + M))  # one row for some of the rounds: number of the round, and the weights
        self.rounds_short = 0  # number of rounds in which no weights met the thresholds
        self.last_short = False  # whether the last round was one of these
        self.lp = DecompositionOpt(M, spec.N)
        self.basis = self.lp.cold.copy()  # of the last solution, where the next one starts
        self.carry = np.zeros(M)  # [M]: plays that rounding has withheld from each policy so far
        self._drawn = 0  # number of the policy of the running episode, when it is driven step by step
        self._steps = 0  # number of steps of that episode that are over
        self._size_blocks()

    def play(self, source: Source, rng: Stream, out: FloatArray) -> int:
        """Play at most n episodes and write their totals into the first columns of out [1+N, n]; returns how many."""
        m = DRAWN if self.p.draw_each else self.block
        if self.fresh and self.p.draw_each:
            _show_mixture(source.meter, self.choices, self.alpha, self._usable)
        n = min(int(out.shape[1]), int(self.sizes[self.block]) - self.played)
        got = np.zeros((len(out), n))
        _episodes(
            source.simulator,
            source.meter,
            self.choices,
            self._usable,
            m,
            np.cumsum(self.alpha),
            self.fresh and m != DRAWN,
            self._counted_plays(),
            self.sums,
            self.taken,
            self.plays[self.phase],
            self.reached[self.phase],
            rng,
            got,
        )
        out[:, :n] = got
        self._ended(n)
        return n

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._steps = 0
        self._drawn = int(_draw(np.cumsum(self.alpha), rng)) if self.p.draw_each else self.block
        return self._act(s)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """A step has led to s: the action to take there. Only the returns of whole episodes are learned from."""
        self._steps += 1
        return self._act(s)

    def last(self, signals: FloatArray, earned: FloatArray) -> None:
        """End the episode, which has earned a reward and utilities [1+N]."""
        m = self._drawn
        self.plays[self.phase, m] += 1
        if self.taken[m] < self._counted_plays():
            self.taken[m] += 1
            self.sums[m] += np.append(1.0, earned)
        self._ended(1)

    def _act(self, s: int) -> int:
        i = self._steps * self.spec.S + s
        self.reached[self.phase, self._drawn, i] += 1
        return int(self.choices[self._drawn, i])

    def _ended(self, n: int) -> None:
        """Count n episodes of the block; begin the next block when this one is over."""
        self.played, self.fresh = self.played + n, False
        if self.played == self.sizes[self.block]:
            self._next_block()

    def _counted_plays(self) -> int:
        """Plays of a policy whose returns count in a round."""
        if self.phase == IDENTIFY:
            return 0 if self.M > 1 else self.plays_per_round  # a single policy was never estimated before
        return max(int(self.floor * self.plays_per_round), 1) if self.p.first_block else self.plays_per_round

    def _size_blocks(self) -> None:
        """Divide a round into blocks of episodes, and begin the first block that has any."""
        if self.p.draw_each:
            self.sizes = np.array([self.plays_per_round])
        else:
            exact = self.alpha * self.plays_per_round + self.carry
            self.sizes = whole_plays(exact)
            self.carry = exact - self.sizes
        self.block, self.played, self.fresh = int(np.flatnonzero(self.sizes)[0]), 0, True

    def _next_block(self) -> None:
        later = np.flatnonzero(self.sizes[self.block + 1 :])
        if len(later):
            self.block, self.played, self.fresh = self.block + 1 + int(later[0]), 0, True
            return
        self.round += 1
        self.taken[:] = 0
        if self.phase == REFINE:
            self._decompose(self.floor)
            if self.round & (self.round - 1) == 0 or self.round == self.rounds:
                self.history = np.vstack([self.history, np.append(self.round, self.alpha)])
            if self.round == self.rounds:
                if self.p.release:
                    self._decompose(0.0)
                self.phase, self.round = IDENTIFY, 0
        self._size_blocks()

    def _decompose(self, floor: float) -> None:
        """Find new weights; before every policy was played, the weights stay as they are."""
        if not self.sums[:, 0].all():
            return
        p, t = self.p, self.round
        v, w = self.estimates()
        radius = rad(self.spec.H, p.K, self.floor, t) if p.band else None
        self.alpha, feasible, self.basis = self.lp.solve(v, w, self.rho, floor, radius, self.basis)
        self.rounds_short, self.last_short = self.rounds_short + (not feasible), not feasible

    def estimates(self) -> tuple[FloatArray, FloatArray]:
        """Average reward [M] and utilities [M, N] of the policies, zero where there is none."""
        average = self.sums[:, 1:] / np.maximum(self.sums[:, :1], 1.0)
        return average[:, 0], average[:, 1:]

    def behaviour(self) -> FloatArray:
        """pi of the next episode; where it is drawn, the Markov policy that stands for the mixture."""
        return self.recommend() if self.p.draw_each else self._one_hot(self.choices[self.block])

    def recommend(self) -> FloatArray:
        """The Markov policy with the occupancy of the mixture, estimated from visits.

        In states without visits it takes the most used action. Only visits of identification count, as soon as every
        policy of the mixture was played in that phase.
        """
        used = self.alpha > 0
        full = [phase for phase in (IDENTIFY, REFINE) if self.plays[phase][used].all()]
        default = self._one_hot(self.choices[0])
        if not full:
            return default
        if self.p.pooled and full[0] == IDENTIFY:
            return self._pooled(default)
        q = np.zeros_like(default)
        for m in np.flatnonzero(used):
            reach = self.reached[full[0], m] / self.plays[full[0], m]
            q += self.alpha[m] * reach.reshape(self.spec.H, self.spec.S, 1) * self._one_hot(self.choices[m])
        total = q.sum(axis=-1, keepdims=True)
        return np.where(total > 0, q / np.where(total > 0, total, 1.0), default)

    def _pooled(self, default: FloatArray) -> FloatArray:
        """N_h(s, a) / sum of N_h(s, .) over all episodes of identification, as printed."""
        counts = np.zeros_like(default)
        for m in range(self.M):
            counts += self.reached[IDENTIFY, m].reshape(self.spec.H, self.spec.S, 1) * self._one_hot(self.choices[m])
        total = counts.sum(axis=-1, keepdims=True)
        return np.where(total > 0, counts / np.where(total > 0, total, 1.0), default)

    def _one_hot(self, choice: NDArray[np.uint64]) -> FloatArray:
        return one_hot(choice.reshape(self.spec.H, self.spec.S), self.spec.A)


def _show_mixture(meter: Meter, choices: NDArray[np.uint64], alpha: FloatArray, usable: BoolArray) -> None:
    """Let the meter count the mixture as the policy of the next episodes, by the values of the policies in it."""
    if meter.every == 0:
        return
    values = np.zeros_like(meter.values)
    for choice, weight in zip(choices, alpha, strict=True):
        part = meter._replace(
            values=np.zeros_like(values), sums=np.zeros_like(meter.sums), clock=np.zeros_like(meter.clock)
        )
        _show(part, choice, usable)
        values += weight * part.values
    meter.hold(values)


@compiled
def _show(meter, choice, usable):
    """Have one policy evaluated."""
    watch(meter, 1, choice, 0.0, usable)


@compiled
def _draw(cdf, rng):
    """A policy's number, by cumulative weights."""
    u = uniform(rng) * cdf[-1]
    m = 0
    while cdf[m] <= u:
        m += 1
    return m


@compiled
def _episodes(sim, meter, choices, usable, m, cdf, changed, limit, sums, taken, plays, reached, rng, out):
    """Episodes of policy m, or of one drawn from cdf each time; the returns of the first `limit` of a policy count."""
    draw = m == DRAWN
    for k in range(out.shape[1]):
        s = reset(sim, rng)
        if draw:
            m = _draw(cdf, rng)
        choice = choices[m]
        watch(meter, changed and k == 0, choice, 0.0, usable)
        for h in range(sim.H):
            i = h * sim.S + s
            reached[m, i] += 1
            s, x = step(sim, h, s, choice[i], rng)
            for n in range(len(out)):
                out[n, k] += sim.outcomes[x, n]
        collect(meter, out[:, k])
        plays[m] += ONE
        if taken[m] < limit:
            taken[m] += 1
            sums[m, 0] += 1.0
            for n in range(len(out)):
                sums[m, n + 1] += out[n, k]
