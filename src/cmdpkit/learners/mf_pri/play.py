"""The compiled part of MF-PRI: its warm-up, and blocks of episodes of a policy with deviations.

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
path: samples are unbiased. A record of samples x is the sum of (1, x) (1, x)^T, with their number in its first place.

Both passes from the end of an episode to its start follow one path of samples. There are no transition rows in them, so
that they are no case for the operators.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.counts import new_episode
from cmdpkit.learners import Spec
from cmdpkit.learners._closed_loop import Ledger, book
from cmdpkit.learners._episodes import choose, learn, show
from cmdpkit.learners._q_learning import PriceConstants, PricedTables, find_best, learn_cell, move_prices
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.mixing import conditional
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
        M = 1 + spec.N
        return cls(*new_episode(spec.H, M), np.zeros(spec.H, dtype=bool), np.zeros(M), np.zeros(M))


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
    visits: FloatArray  # [H, S]: how often the episodes of `start` came to each state

    @classmethod
    def of(cls, spec: Spec) -> Samples:
        """No samples yet."""
        cells, record = spec.allowed.shape, (2 + spec.N, 2 + spec.N)
        return cls(np.zeros(cells + record), np.zeros(cells[:2] + record), np.zeros(record), np.zeros(cells[:2]))


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
    """The action to take; notes whether a deviation was asked for."""
    block, i = player.block, h * player.block.known.shape[1] + s
    if player.warming:
        return np.int64(player.values.best[i])
    episode.deviations[h] = block.chance > 0.0 and uniform(rng) < block.chance
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
            samples.visits[h, episode.states[h]] += 1.0


@compiled(inline=True)
def _add(record, x):
    """One more sample x [1+N] in a record."""
    for i in range(len(record)):
        for j in range(len(record)):
            record[i, j] += (x[i - 1] if i > 0 else 1.0) * (x[j - 1] if j > 0 else 1.0)
