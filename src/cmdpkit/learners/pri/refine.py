"""Refinement and identification: the deterministic policies of an action set, played with the right weights.

*Refinement* (arXiv 2309.15395) plays the M policies of D in rounds of sqrt K episodes, each for its share
of the round, and finds the shares again after every round from the returns so far (Decomposition-Opt). *Identification*
keeps the last shares and counts visits: the frequencies of the actions, by step and state, are the one Markov policy
that has the occupancy of the mixture. By default the policies are played in turn. With `draw_each` one of them is drawn
in every episode; then the policy of an episode is the mixture itself, and no episode has to make up for another.

Departures: plays are rounded by largest remainders, and what that leaves over is carried to the next round (otherwise
the same rounding in every round would cost a regret of order sqrt K); the floor is lowered where M times the floor
would exceed 1; estimates divide by the actual number of plays; a round has at least M episodes; and where D has more
than `max_policies` policies, those are taken whose actions the base runs visited most.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.exact.master import INFINITY, Highs, answer, configured, program, run
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.contract import Saved
from cmdpkit.learners.pri.presets import PRIParams, rad
from cmdpkit.model.compiled import ONE, compiled
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import LP_TOLERANCE, WHOLE_PLAYS
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.policies import conditional
from cmdpkit.simulate.meter import ExploringPolicy, Meter, collect, watch
from cmdpkit.simulate.random import Stream, uniform
from cmdpkit.simulate.simulator import reset, step

# -- Decomposition-Opt: the weights with which the deterministic policies of an action set are played.
#
#     maximise    sum_m alpha_m v_m
#     subject to  sum_m alpha_m = 1,  alpha_m >= e',
#                 | sum_m alpha_m w_mn - rho_n | <= rad   for all n     (as printed), or
#                 sum_m alpha_m w_mn >= rho_n             for all n     (one-sided, without relaxation)
#
# over *estimated* values v_m, w_mn. Where no weights satisfy the constraints, the smallest margin
# min_n sum_m alpha_m w_mn - rho_n is maximised instead, and the answer is marked as infeasible.


class Weights(NamedTuple):
    """A solution."""

    alpha: FloatArray  # [M]: the weight of each policy
    feasible: bool  # whether the weights meet the thresholds, by the estimates


def simplex() -> Highs:
    """The solver of these programs, which can be used again and again."""
    return configured(tolerance=LP_TOLERANCE, presolve=False)


def decomposition_opt(
    highs: Highs, v: FloatArray, w: FloatArray, rho: FloatArray, floor: float, rad: float | None
) -> Weights:
    """Weights for estimates v [M], w [M, N], one-sided if `rad` is None; they depend on these alone, to the bit.

    Column 0 is t, then the M weights. Row n: sum_m alpha_m w_mn - t, row N: sum_m alpha_m. The weights are found with t
    fixed at 0; the smallest margin is t.

    >>> v, w, rho = np.array([2.0, 1.0]), np.array([[0.0], [1.0]]), np.array([0.25])
    >>> decomposition_opt(simplex(), v, w, rho, 0.01, None).alpha.tolist()
    [0.75, 0.25]
    """
    M, N = w.shape
    rows = np.ones((N + 1, 1 + M))
    rows[:-1, 0], rows[:-1, 1:], rows[-1, 0] = -1.0, w.T, 0.0
    unbounded = np.full(N, INFINITY)
    sides = (rho, unbounded) if rad is None else (rho - rad, rho + rad)
    found = _vertex(highs, rows, np.append(0.0, v), 0.0, floor, sides)
    if found is not None:
        return Weights(found, True)
    found = _vertex(highs, rows, np.append(1.0, np.zeros(M)), INFINITY, floor, (rho, unbounded))
    if found is None:
        raise RuntimeError(f"Decomposition-Opt found no weights for floor {floor} and {M} policies")
    return Weights(found, False)


def _vertex(
    highs: Highs,
    rows: FloatArray,
    costs: FloatArray,
    t_max: float,
    floor: float,
    utilities: tuple[FloatArray, FloatArray],
) -> FloatArray | None:
    """The weights of an optimal basic solution; None where there is no feasible one."""
    number, width = rows.shape
    limits = np.append(-t_max, np.full(width - 1, floor)), np.append(t_max, np.ones(width - 1))
    lower, upper = (np.append(x, 1.0) for x in utilities)
    starts, indices = np.arange(0, rows.size + 1, number), np.tile(np.arange(number), width)
    matrix = starts.astype(np.int32), indices.astype(np.int32), rows.ravel(order="F")
    # A new model forgets everything about the last one; changing the old one would not.
    highs.passModel(program(costs, limits, (lower, upper), matrix, maximise=True))
    ended = run(highs)
    if ended == "infeasible":
        return None
    if ended != "optimal":
        raise RuntimeError(f"Decomposition-Opt ended as {ended}")
    alpha = np.maximum(answer(highs)[0][1:], 0.0)
    normal: FloatArray = alpha / alpha.sum()
    return normal


def whole_plays(exact: FloatArray) -> IntArray:
    """Plays [M] that sum to a whole number, as whole numbers with the same sum: rounded down, largest remainders up.

    >>> whole_plays(np.array([2.5, 1.25, 1.25])).tolist()
    [3, 1, 1]
    """
    plays = round(float(exact.sum()))
    counts = np.maximum(np.floor(exact + WHOLE_PLAYS), 0.0).astype(np.int64)
    while counts.sum() != plays:  # too many only if some of the exact plays are negative
        step = 1 if counts.sum() < plays else -1
        counts[np.argmax(step * (exact - counts) - (counts + step < 0) * plays)] += step
    return counts


REFINE, IDENTIFY = 0, 1
DRAWN = -1  # in place of the number of a policy: one is drawn in every episode


def policies_in(D: BoolArray) -> int:
    """M, the number of deterministic policies of an action set."""
    return math.prod(int(n) for n in D.sum(axis=-1).ravel())


def most_visited(D: BoolArray, use: FloatArray, most: int) -> NDArray[np.uint64]:
    """The deterministic policies of D [M, H*S], at most `most`, by how often base runs visited what they deviate to.

    First comes the policy of the most used actions. Any other one deviates from it at some decisions, and its place is
    that of the product, over these, of the share of episodes that used the action it takes there. Shares of the visits
    of a state would not do: where few episodes come by, the second action may have half of them and still not
    matter. D may have any number of policies: decisions are added one after the other, and after each of them only
    the `most` best choices so far are kept.

    >>> D, use = np.array([[[True, True], [True, True]]]), np.array([[[3.0, 1.0], [8.0, 2.0]]])
    >>> most_visited(D, use, 3).tolist()
    [[0, 0], [0, 1], [1, 0]]
    """
    share = use / np.maximum(use.sum(axis=(1, 2), keepdims=True), 1e-300)  # of the episodes
    share = np.where(D, share, -1.0).reshape(-1, D.shape[-1])
    order = np.argsort(-share, axis=-1, kind="stable").astype(np.uint64)
    size = D.sum(axis=-1).ravel()
    rarity = -np.log(np.maximum(np.take_along_axis(share, order.astype(np.int64), -1), 1e-12))
    best: list[tuple[float, tuple[tuple[int, int], ...]]] = [(0.0, ())]  # deviations: (decision, rank of its action)
    for i in np.flatnonzero(size > 1).tolist():
        ranked = [(float(rarity[i, rank]), ((i, rank),)) for rank in range(1, size[i])]
        further = [(cost + more, taken + deviation) for cost, taken in best for more, deviation in ranked]
        best = sorted(best + further)[:most]
    found = np.tile(order[:, 0], (len(best), 1))
    for policy, (_, taken) in zip(found, best, strict=True):
        for i, rank in taken:
            policy[i] = order[i, rank]
    return found


class Refinement(Saved):
    """Both phases at work, inside an action set D, for tightened thresholds rho [N]."""

    changing: ClassVar[tuple[str, ...]] = (
        *("phase", "round", "block", "played", "fresh", "alpha", "sizes", "carry", "sums", "taken", "plays", "reached"),
        *("history", "rounds_short", "last_short"),
    )

    def __init__(self, spec: Spec, p: PRIParams, D: BoolArray, use: FloatArray, rho: FloatArray) -> None:
        self.spec, self.p, self.rho = spec, p, rho
        self.choices = most_visited(D, use, p.max_policies)
        self._usable = np.array(spec.allowed).reshape(-1, spec.A)
        M = self.M = len(self.choices)
        self.plays_per_round = max(math.isqrt(p.K), M)
        self.rounds = max(p.K // self.plays_per_round, 1)
        self.floor = min(p.floor, 1 / M)  # e'
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
        self.highs = simplex()
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
        self._drawn = self.block
        if self.p.draw_each:
            cdf = np.cumsum(self.alpha)
            self._drawn = int(np.searchsorted(cdf, uniform(rng) * cdf[-1], side="right"))
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
        return max(int(self.floor * self.plays_per_round), 1)

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
            self._decompose()
            if self.round & (self.round - 1) == 0 or self.round == self.rounds:
                self.history = np.vstack([self.history, np.append(self.round, self.alpha)])
            if self.round == self.rounds:
                self.phase, self.round = IDENTIFY, 0
        self._size_blocks()

    def _decompose(self) -> None:
        """Find new weights; before every policy was played, the weights stay as they are."""
        if not self.sums[:, 0].all():
            return
        p, t = self.p, self.round
        v, w = self.estimates()
        radius = rad(self.spec.H, p.K, self.floor, t) if p.band else None
        self.alpha, feasible = decomposition_opt(self.highs, v, w, self.rho, self.floor, radius)
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
        visits = self.reached[full[0]]
        if full[0] == REFINE:  # as printed, all visits of identification count alike
            visits = self.alpha[:, None] * (visits / np.maximum(self.plays[full[0]], 1)[:, None])
        q = np.zeros_like(default)
        for m in range(self.M):
            q += visits[m].reshape(self.spec.H, self.spec.S, 1) * self._one_hot(self.choices[m])
        return conditional(q, default)

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
        watch(part, True, ExploringPolicy(choice, 0.0, usable), 1)
        values += weight * part.values
    meter.hold(values)


@compiled
def _episodes(sim, meter, choices, usable, m, cdf, changed, limit, sums, taken, plays, reached, rng, out):
    """Episodes of policy m, or of one drawn from cdf each time; the returns of the first `limit` of a policy count."""
    draw = m == DRAWN
    for k in range(out.shape[1]):
        s = reset(sim, rng)
        if draw:
            m = np.searchsorted(cdf, uniform(rng) * cdf[-1], side="right")
        choice = choices[m]
        watch(meter, changed and k == 0, ExploringPolicy(choice, 0.0, usable), meter.every)
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
