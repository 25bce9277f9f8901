"""What MF-PRI samples, in compiled code, and what the samples say.

The *warm-up* is optimistic Q-learning of reward and utilities, with prices that follow. An episode is learned from when
it has ended, from its last step to its first, so that news from its end reaches its start at once. Where the world does
not depend on the step, what was seen at one step is a sample for all steps: the action values of every step move
towards the signals plus the value, one step later, of the state that came next.

A *block* of episodes plays one policy pi. At every step chance, independent of everything else, may ask for a
*deviation*: a random one of the actions still in question there, if there are any, instead of an action of pi. What
follows a deviation is pi again, until the next one. Three kinds of samples come of it, each a vector (reward,
utilities):

- a row (h, s, a): what the step earned plus what the rest of the episode is worth under pi, which is read off a table
  of values at the first later state whose value is well known; up to there the sample runs on, and it is dropped if a
  deviation is asked for on the way. Bootstrapping from values of pi, not from rows, keeps out the noise of rare
  actions.
- a value (h, s): the return from there on, if no deviation is asked for at h or later.
- a start: the return of a whole episode without deviations, with its visits.

Deviations are asked for whether or not a state has anything to try, so that none being asked for says nothing about the
path: samples are unbiased. A record of n samples x [M], M = 1+N, is the sum of (1, x) (1, x)^T, with n in its first
place; that of whole episodes fades, so that n need not be whole. Around the policies played so far, totals are linear
in the action probabilities p of each reached decision (h, s):

    v(p) = v_base + sum_{h,s} reach(h,s) sum_a p(a|h,s) (Q(h,s,a) - Q(h,s,base)),     w_n(p) likewise with C_n.

Both passes from the end of an episode to its start follow one path of samples. There are no transition rows in them, so
that they are no case for the operators.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.counts import new_episode
from cmdpkit.exact.master import INFINITY, answer, configured, program, run
from cmdpkit.learners import Spec
from cmdpkit.learners._closed_loop import Ledger, book
from cmdpkit.learners._episodes import choose, learn, show
from cmdpkit.learners._q_learning import PriceConstants, PricedTables, find_best, learn_cell, move_prices
from cmdpkit.model.compiled import compiled
from cmdpkit.model.tolerances import LP_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.policies import conditional
from cmdpkit.simulate.meter import ExploringPolicy, PolicyTable, watch
from cmdpkit.simulate.random import draw, uniform


class SampledEpisode(NamedTuple):
    """The episode under way, and working memory for its samples."""

    states: IntArray  # [H]
    actions: IntArray  # [H]
    signals: FloatArray  # [H, 1+N]: reward and utilities
    totals: FloatArray  # [1+N]: of the whole episode
    deviations: BoolArray  # [H]: whether a deviation was asked for
    to_go: FloatArray  # [1+N]: the return from some step on
    target: FloatArray  # [1+N]: the sample of a row

    @classmethod
    def of(cls, spec: Spec) -> SampledEpisode:
        """Before the first episode."""
        return cls(*new_episode(spec.H, 1 + spec.N), np.zeros(spec.H, dtype=bool), *np.zeros((2, 1 + spec.N)))


# -- WARM UP -----------------------------------------------------------------------------------------------------------


def warm_up(spec: Spec, episodes: int, price: float) -> tuple[PriceConstants, PricedTables]:
    """A warm-up of this number of episodes in which no price exceeds `price`, before its first episode."""
    frame, eta = math.ceil(episodes ** (1 / 3)), 2 / (spec.H * math.sqrt(episodes))
    moves = {"frame": frame, "eta": eta, "lam_start": 1.0, "lam_max": price, "average_from": episodes / 2}
    c = PriceConstants.of(spec, **moves, explore=0.0, explore_for=1.0)  # no random actions: optimism tries everything
    return c, PricedTables.of(spec, c)


def mean_prices(values: PricedTables) -> FloatArray:
    """[N]: the average of the prices over the second half; before that, the prices now."""
    frames, sums = values.lam_sum[0], values.lam_sum[1:]
    return sums / frames if frames else values.weight.copy()


# -- LOOP: blocks of episodes with deviations --------------------------------------------------------------------------


class SampledBlock(NamedTuple):
    """What is played in a block."""

    chance: float  # probability per step that a deviation is asked for
    learn: bool  # whether rows, values and starts are sampled
    certify: bool  # whether the block is in the sample of the returned policy
    policy: FloatArray  # [H*S, A]: the policy without deviations
    deviating: FloatArray  # [H*S, A]: what is played where a deviation is asked for
    pi: FloatArray  # [H*S, A]: what is played, deviations included, for the meter
    ahead: FloatArray  # [H, S, 1+N]: value estimates
    known: BoolArray  # [H, S]: where they are good enough to end a sample with
    fresh: BoolArray  # [1]: whether the meter has not been told of it yet

    @classmethod
    def of(
        cls, pi: FloatArray, question: BoolArray, chance: float, ends: tuple[FloatArray, BoolArray], use: str
    ) -> SampledBlock:
        """A block that plays pi, with deviations to the actions in question, both [H, S, A].

        `use` is what it is for, "learn", "certify" or "repay"; `ends` are ahead and known.
        """
        A = pi.shape[-1]
        pi, question = pi.reshape(-1, A), question.reshape(-1, A)
        deviating = conditional(question.astype(float), pi)
        mixed = (1 - chance) * pi + chance * deviating
        return cls(chance, use == "learn", use == "certify", pi.copy(), deviating, mixed, *ends, np.ones(1, dtype=bool))


class Samples(NamedTuple):
    """Records of all samples, [2+N, 2+N] each."""

    rows: FloatArray  # [H, S, A, record]: of what follows each action
    values: FloatArray  # [H, S, record]: of the return from each state on
    start: FloatArray  # [record]: of the return of whole episodes
    visits: FloatArray  # [H, S, A]: how often the episodes of `start` took each action

    @classmethod
    def of(cls, spec: Spec) -> Samples:
        """No samples yet."""
        cells, record = spec.allowed.shape, (2 + spec.N, 2 + spec.N)
        return cls(np.zeros(cells + record), np.zeros(cells[:2] + record), np.zeros(record), np.zeros(cells))


class ModelFree(NamedTuple):
    """What compiled code plays and learns from."""

    values: PricedTables  # of the warm-up
    c: PriceConstants
    shared: bool  # whether all steps learn from what one of them has seen
    block: SampledBlock
    samples: Samples
    ledger: Ledger
    warming: bool  # whether the warm-up is still on; else it plays the block


@show.of(ModelFree)
def _show(player, meter):
    if player.warming:
        policy = ExploringPolicy(player.values.best, 0.0, player.c.usable)
        watch(meter, player.values.changed[0], policy, meter.every)
    else:
        watch(meter, player.block.fresh[0], PolicyTable(player.block.pi), 1)


@choose.of(ModelFree)
def _choose(player, episode, h, s, rng):
    """The action to take.

    At the first step all deviations are asked for, so that where an episode ends says nothing about them.
    """
    block, i = player.block, h * player.block.known.shape[1] + s
    if player.warming:
        return np.int64(player.values.best[i])
    if h == 0:
        for j in range(len(episode.states)):
            episode.deviations[j] = block.chance > 0.0 and uniform(rng) < block.chance
    return np.int64(draw(block.deviating if episode.deviations[h] else block.policy, i, rng))


@learn.of(ModelFree)
def _learn(player, episode, rng):
    """Learn from an episode that has ended; a warm-up learns at all steps from what one has seen if they are alike."""
    block, values, c = player.block, player.values, player.c
    book(player.ledger, episode, block.certify)
    if not player.warming:
        block.fresh[0] = False
        if block.learn:
            _sample(block, player.samples, episode)
        return False
    H, S = len(episode.states), np.int64(c.S)
    values.changed[0] = False
    for h in range(H - 1, -1, -1):
        alone = not player.shared or h == H - 1  # the state after the last step is not seen: it learns for itself only
        then, a = episode.states[h + 1] if h + 1 < H else 0, episode.actions[h]
        for j in range(h if alone else H - 1, h - 1 if alone else -1, -1):
            i, i_next = np.uint64(j * S + episode.states[h]), np.uint64((j + 1) * S + then)
            if c.usable[i, a]:
                cell, cell_next = i * c.A + np.uint64(a), i_next * c.A + values.best[i_next]
                learn_cell(values, c, cell, cell_next, episode.signals, h, None, 0.0)
                find_best(values, c, i)
    move_prices(values, c, episode.totals)
    return False


@compiled(inline=True)
def _sample(block, samples, episode):
    """Samples of an episode, from its end to its start.

    That of a row runs on up to a known state; a deviation on the way ends it.
    """
    H, M = episode.signals.shape
    free = True  # no deviation is asked for at this step or later
    episode.to_go[:] = 0.0
    for h in range(H - 1, -1, -1):
        s = episode.states[h]
        free = free and not episode.deviations[h]
        for m in range(M):
            episode.to_go[m] += episode.signals[h, m]
        if free:
            _add(samples.values[h, s], episode.to_go)
        end = h + 1
        while end < H and not block.known[end, episode.states[end]] and not episode.deviations[end]:
            end += 1
        if end < H and not block.known[end, episode.states[end]]:
            continue
        for m in range(M):
            episode.target[m] = 0.0
            for j in range(h, end):
                episode.target[m] += episode.signals[j, m]
            if end < H:
                episode.target[m] += block.ahead[end, episode.states[end], m]
        _add(samples.rows[h, s, episode.actions[h]], episode.target)
    if free:
        _add(samples.start, episode.to_go)
        for h in range(H):
            samples.visits[h, episode.states[h], episode.actions[h]] += 1.0


@compiled(inline=True)
def _add(record, x):
    """One more sample x [1+N] in a record."""
    for i in range(len(record)):
        for j in range(len(record)):
            record[i, j] += (x[i - 1] if i > 0 else 1.0) * (x[j - 1] if j > 0 else 1.0)


# -- What samples say --------------------------------------------------------------------------------------------------


def means(records: FloatArray) -> FloatArray:
    """[..., M], zero where there is no sample."""
    return records[..., 0, 1:] / np.maximum(records[..., 0, :1], 1.0)


def covariance(records: FloatArray) -> FloatArray:
    """[..., M, M], of each record."""
    mean = means(records)
    return records[..., 1:, 1:] / np.maximum(records[..., :1, :1], 1.0) - mean[..., :, None] * mean[..., None, :]


class Measured(NamedTuple):
    """What the samples say about totals around the policies that were played."""

    n: float  # episodes of these policies without deviations
    played: FloatArray  # [H, S, A]: how often they took each action, per episode
    reach: FloatArray  # [H, S]: probability of getting there
    base: IntArray  # [H, S]: actions that effects are measured against
    at_base: FloatArray  # [M]: totals if every decision took its base action
    effect: FloatArray  # [H, S, A, M]: what an action brings more than the base action
    error: FloatArray  # [H, S, A, M, M]: squared errors of row means, and their products
    noise: FloatArray  # [M, M]: covariance of an episode's totals
    ok: BoolArray  # [H, S, A]: there are samples of it and of the base action

    def totals(self, p: FloatArray) -> FloatArray:
        """[M]: value and utilities of a policy p [H, S, A]."""
        return np.asarray(self.at_base + np.einsum("hs,hsa,hsam->m", self.reach, p, self.effect))

    def errors(self, p: FloatArray) -> FloatArray:
        """[N]: standard errors of the utilities of p: of what was played, and of the effects of what is changed."""
        changed = (self.reach[..., None] * p - self.played) ** 2
        own = np.einsum("hsa,hsamm->m", changed, self.error)
        return np.asarray(np.sqrt(np.maximum(np.diag(self.noise) / self.n + own, 1e-24))[1:])

    def worse(self, lam: FloatArray, doubt: float) -> BoolArray:
        """[H, S, A]: actions that lose at prices lam [N], by more than `doubt` standard errors."""
        advantage, error = self.advantage(lam)
        return self.ok & (advantage + doubt * error < 0)

    def advantage(self, lam: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[H, S, A] each: what actions gain at prices lam [N], and the standard error of that."""
        c, b = np.append(1.0, lam), self.base[..., None]
        square = np.einsum("m,hsamn,n->hsa", c, self.error, c)
        return self.effect @ c, np.sqrt(np.maximum(square + np.take_along_axis(square, b, -1), 0.0))


def view(samples: Samples, pi: FloatArray, pseudo: float) -> Measured:
    """The view from the samples, with base actions of the present policy pi [H, S, A].

    Few samples say little about their variance, so the average of the step is mixed in with the weight of `pseudo`
    samples, and so that samples that are all the same do not count as exact, one sample of the largest variance there
    can be is added to all samples of the step.
    """
    rows, start, n = samples.rows, samples.start, max(float(samples.start[0, 0]), 1.0)
    played, base = samples.visits / n, pi.argmax(axis=-1)
    X, spread, count = means(rows), covariance(rows), rows[..., :1, :1]
    largest = np.arange(len(pi), 0, -1.0)[:, None, None] ** 2 / 4 * np.eye(X.shape[-1])
    pooled = ((spread * count).sum(axis=(1, 2)) + largest) / (count.sum(axis=(1, 2)) + 1)
    error = (spread * count + pseudo * pooled[:, None, None]) / (count + pseudo) / np.maximum(count, 1.0)
    effect = X - np.take_along_axis(X, base[..., None, None], 2)
    at_base = means(start) - np.einsum("hsa,hsam->m", played, effect)
    tried = rows[..., 0, 0] > 0
    ok = tried & np.take_along_axis(tried, base[..., None], -1)
    return Measured(n, played, played.sum(axis=-1), base, at_base, effect, error, covariance(start), ok)


def best(
    seen: Measured, target: FloatArray, high: FloatArray, live: BoolArray, fee: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The best policy on the actions `live` [H, S, A] that reaches the target [N] as far as no price exceeds high [N].

    Coming into use costs fee [H, S, A] per unit of reach. Returns the policy [H, S, A], with base actions where there
    was nothing to decide, the prices [N], and what is missing to the target [N]. A linear program:

        minimise cost . q + high . short,  where each decision's q sum to 1, and their effects plus short reach the gap
                                           between what base actions earn and the target

    Its answer is a vertex: at most N actions are in use beyond one per decision.
    """
    p, N = np.eye(live.shape[-1])[seen.base], len(target)
    decided = (seen.reach > 0) & (live.sum(axis=-1) > 1)
    h, s, a = np.nonzero(live & decided[..., None])
    gap, m, n = target - seen.at_base[1:], len(h), int(decided.sum())
    if m == 0:
        return p, np.where(gap > 0, high, 0.0), np.maximum(gap, 0.0)
    effect = seen.reach[h, s, None] * seen.effect[h, s, a]
    cost = seen.reach[h, s] * fee[h, s, a] - effect[:, 0]
    decision = np.cumsum(decided.ravel()).reshape(decided.shape)[h, s] - 1
    own = np.column_stack((decision, np.broadcast_to(n + np.arange(N), (m, N))))
    start = np.concatenate(((1 + N) * np.arange(m), (1 + N) * m + np.arange(2 * N + 1)))
    index = np.concatenate((own.ravel(), n + np.arange(N), n + np.arange(N)))
    value = np.concatenate((np.column_stack((np.ones(m), effect[:, 1:])).ravel(), np.ones(N), -np.ones(N)))
    equal = np.concatenate((np.ones(n), gap))
    limits = np.zeros(m + 2 * N), np.full(m + 2 * N, INFINITY)
    highs = configured()
    highs.passModel(program(np.concatenate((cost, high, np.zeros(N))), limits, (equal, equal), (start, index, value)))
    ended = run(highs)
    if ended != "optimal":
        raise RuntimeError(f"the master LP ended as {ended}")
    found, duals = answer(highs)
    p[h, s, a] = np.where(found[:m] < LP_TOLERANCE, 0.0, found[:m])
    return p / p.sum(axis=-1, keepdims=True), np.clip(duals[n:], 0.0, high), np.maximum(found[m : m + N], 0.0)


def greedy(seen: Measured, lam: FloatArray, live: BoolArray) -> FloatArray:
    """[M]: totals of the policy that takes the best live action at prices lam [N] everywhere."""
    worth = np.where(live, seen.effect @ np.append(1.0, lam), -np.inf)
    return seen.totals(np.eye(live.shape[-1])[worth.argmax(axis=-1)])
