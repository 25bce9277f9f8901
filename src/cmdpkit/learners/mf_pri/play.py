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
path: samples are unbiased. All samples go into records of moments, n, sums and products, side by side in memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Spec
from cmdpkit.learners._q_learning import (
    PriceConstants,
    find_best_everywhere,
    learn_cell,
    move_prices,
    nothing_learned,
)
from cmdpkit.model.compiled import ONE, ZERO, compiled, embedded, inlined
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.meter import collect, watch, watch_policy
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step


class MfPriEpisode(NamedTuple):
    """The running episode."""

    states: NDArray[np.uint64]  # [H+1]
    actions: NDArray[np.uint64]  # [H]
    deviations: BoolArray  # [H]: whether a deviation was asked for
    signals: FloatArray  # [H, 1+N]: reward and utilities
    total: FloatArray  # [1+N]: the return from some step on, at last of the whole episode
    target: FloatArray  # [1+N]: the sample that is being made


def new_episode(spec: Spec) -> MfPriEpisode:
    """Before the first episode."""
    H, M = spec.H, 1 + spec.N
    return MfPriEpisode(
        states=np.zeros(H + 1, dtype=np.uint64),
        actions=np.zeros(H, dtype=np.uint64),
        deviations=np.zeros(H, dtype=bool),
        signals=np.zeros((H, M)),
        total=np.zeros(M),
        target=np.zeros(M),
    )


# -- The warm-up.


class WarmUpRules(NamedTuple):
    """What compiled code needs of spec and parameters."""

    c: PriceConstants  # sizes, thresholds, and how the prices move
    shared: bool  # whether all steps learn from what one of them has seen
    half: float  # number of episodes after which the average of the prices begins


class OptimisticValues(NamedTuple):
    """What the warm-up has learned."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N and the number of samples of every (h, s, a)
    best: NDArray[np.uint64]  # [(H+1)*S]: the action of the largest weighted value
    weight: FloatArray  # [1+N]: 1, and the prices lam
    drive: FloatArray  # [N]: shortfall of each utility, summed over the episodes of the running frame
    lam_sum: FloatArray  # [1+N]: number of frames in the second half so far, and the sums of their prices
    explore: FloatArray  # [1]: probability of a random action
    episodes: NDArray[np.int64]  # [1]: how many episodes were played
    changed: BoolArray  # [1]: whether the policy has changed since the last episode began


def warm_up(spec: Spec, episodes: int, price: float) -> tuple[WarmUpRules, OptimisticValues]:
    """A warm-up of this number of episodes in which no price exceeds `price`, before its first episode."""
    frame, eta = math.ceil(episodes ** (1 / 3)), 2 / (spec.H * math.sqrt(episodes))
    none = {"explore": 0.0, "explore_for": 1.0}  # no random actions: optimism tries everything
    c = PriceConstants.of(spec, frame=frame, eta=eta, lam_start=1.0, lam_max=price, **none)
    values = OptimisticValues(lam_sum=np.zeros(1 + spec.N), **nothing_learned(spec, c))
    find_best_everywhere(values, c)
    return WarmUpRules(c, bool(spec.stationary), episodes / 2), values


def mean_prices(values: OptimisticValues) -> FloatArray:
    """[N]: the average of the prices over the second half; before that, the prices now."""
    frames, sums = values.lam_sum[0], values.lam_sum[1:]
    return sums / frames if frames else values.weight[1:].copy()


def values_at(spec: Spec, values: OptimisticValues, lam: FloatArray) -> FloatArray:
    """[H, S, A]: the learned values of actions at prices lam [N], -inf where an action does not exist."""
    found = values.cells.reshape(spec.H + 1, spec.S, spec.A, -1)[: spec.H, :, :, : 1 + spec.N]
    return np.where(spec.allowed, found[..., 0] + found[..., 1:] @ lam, -np.inf)


@embedded
def _learn(values, rules, episode):
    """Learn from an episode of the warm-up, add up its totals, and at the end of a frame move the prices."""
    c = rules.c
    for back in range(c.H):
        h = c.H - ONE - back
        for n in range(len(c.zero)):
            episode.total[n] += episode.signals[h, n]
        alone = not rules.shared or back == 0  # the state after the last step is not seen: it learns for itself only
        for other in range(ONE if alone else c.H):
            j = h if alone else c.H - ONE - other
            i, i_next = j * c.S + episode.states[h], (j + ONE) * c.S + episode.states[h + ONE]
            learn_cell(values, c, i, episode.actions[h], i_next, episode.signals, h)
    for n in range(len(values.drive)):
        values.drive[n] += c.rho[n] - episode.total[n + 1]
    values.episodes[0] += 1
    if values.episodes[0] % c.frame == 0:
        move_prices(values, c, values.episodes[0])
        if values.episodes[0] >= rules.half:
            values.lam_sum[0] += 1.0
            for n in range(len(values.drive)):
                values.lam_sum[n + 1] += values.weight[n + 1]
        find_best_everywhere(values, c)


# -- Blocks of episodes with deviations.


class MfPriBlock(NamedTuple):
    """What is played in a block."""

    deviation_chance: float  # probability per step that a deviation is asked for
    learn: bool  # whether rows, values and starts are sampled
    certify: bool  # whether returns are sampled for the certificate of a fixed policy
    batch: int  # how many of these returns are added up in a row of `Samples.sample`
    pi: FloatArray  # [H*S, A]: what is played, deviations included, for the meter
    cdf: FloatArray  # [H*S, A]: cumulative probabilities of the policy without deviations
    sure: NDArray[np.uint64]  # [H*S]: its action where it has only one, else A
    options: NDArray[np.uint64]  # [H*S, A]: actions to deviate to come first
    choices: NDArray[np.int64]  # [H*S]: how many those are
    ahead: FloatArray  # [(H+1)*S, 1+N]: value estimates; row H stays 0
    known: BoolArray  # [(H+1)*S]: where they are good enough; row H is


class Samples(NamedTuple):
    """Sums of all samples; a record of moments holds n, 1+N sums and the lower triangle of products."""

    rows: FloatArray  # [H*S*A, record]: of what follows each action
    values: FloatArray  # [H*S, record]: of the return from each state on
    start: FloatArray  # [record]: of the return of whole episodes
    sample: FloatArray  # [batches, 1+N]: returns of the policy handed over, each row the sum of a batch of them
    sampled: NDArray[np.int64]  # [1]: how many returns that are
    visits: FloatArray  # [H*S]: how often the episodes of `start` came to each state
    totals: FloatArray  # [1+N]: reward and utilities of all episodes, added up


def new_block(
    pi: FloatArray,
    question: BoolArray,
    chance: float,
    values: tuple[FloatArray, BoolArray],
    learn: bool,
    certify: bool,
    batch: int,
) -> MfPriBlock:
    """A block that plays pi, with deviations to the actions in question, both [H, S, A]."""
    A = pi.shape[-1]
    pi, question = pi.reshape(-1, A), question.reshape(-1, A)
    choices, cdf = question.sum(axis=-1), np.cumsum(pi, axis=-1)
    deviating = np.where(choices[:, None] > 0, question / np.maximum(choices, 1)[:, None], pi)
    return MfPriBlock(
        deviation_chance=chance,
        learn=learn,
        certify=certify,
        batch=batch,
        pi=(1 - chance) * pi + chance * deviating,
        cdf=cdf / cdf[:, -1:],
        sure=np.where(pi.max(axis=-1) == 1.0, pi.argmax(axis=-1), A).astype(np.uint64),
        options=np.argsort(~question, axis=-1, kind="stable").astype(np.uint64),
        choices=choices,
        ahead=values[0],
        known=values[1],
    )


def record_size(M: int) -> int:
    """Length of a record of samples [M]: their number, sums and products."""
    return 1 + M + M * (M + 1) // 2


def new_samples(spec: Spec, rows: int) -> Samples:
    """No samples yet, with room for the rows of the certificate."""
    H, S, A, M = spec.H, spec.S, spec.A, 1 + spec.N
    return Samples(
        rows=np.zeros((H * S * A, record_size(M))),
        values=np.zeros((H * S, record_size(M))),
        start=np.zeros(record_size(M)),
        sample=np.zeros((rows, M)),
        sampled=np.zeros(1, dtype=np.int64),
        visits=np.zeros(H * S),
        totals=np.zeros(M),
    )


# -- Episodes of the warm-up, where there is no block, and of blocks.


@compiled
def episodes(sim, meter, values, rules, block, samples, episode, rng, changed, out, first, n):
    """Play n episodes, whose returns go to `out` [1+N, :] from column `first` on; `changed`: is the policy new?"""
    c = rules.c
    for k in range(first, first + n):
        if block is None:
            watch(meter, values.changed[0], values.best, 0.0, c.usable)
            values.changed[0] = False
        else:
            watch_policy(meter, changed and k == first, block.pi)
        s = reset(sim, rng)
        for h in range(c.H):
            a = act(values, rules, block, episode, h, s, rng)
            s_next, x = step(sim, h, s, a, rng)
            for m in range(len(c.zero)):
                episode.signals[h, m] = sim.outcomes[x, m]
            s = s_next
        finish(values, rules, block, samples, episode)
        for m in range(len(c.zero)):
            out[m, k] = episode.total[m]
        collect(meter, episode.total)


@inlined
def act(values, rules, block, episode, h, s, rng):
    """The action to take at step h in state s: decide whether to deviate, choose, and write both down."""
    i = np.uint64(h) * rules.c.S + np.uint64(s)
    deviates = False
    if block is None:
        a = values.best[i]
    else:
        deviates = block.deviation_chance > 0.0 and uniform(rng) < block.deviation_chance
        a = _chosen(block, rules.c, i, deviates, rng)
    episode.states[h], episode.actions[h], episode.deviations[h] = s, a, deviates
    return a


@embedded
def _chosen(block, c, i, deviates, rng):
    """An action in row i = h*S + s: one in question, if it deviates and there is any, else one of the policy."""
    if deviates and block.choices[i] > 0:
        return block.options[i, np.int64(uniform(rng) * block.choices[i])]
    if block.sure[i] < c.A:
        return block.sure[i]
    u = uniform(rng)
    a = ZERO
    while u >= block.cdf[i, a]:
        a += ONE
    return a


@inlined
def finish(values, rules, block, samples, episode):
    """Learn from an episode that has ended; episode.total is then its return."""
    episode.states[rules.c.H] = ZERO
    for n in range(len(rules.c.zero)):
        episode.total[n] = 0.0
    if block is None:
        _learn(values, rules, episode)
    else:
        _sample(rules.c, block, samples, episode)
    for n in range(len(rules.c.zero)):
        samples.totals[n] += episode.total[n]


@embedded
def _sample(c, block, samples, episode):
    """Samples of an episode, from its end to its start; episode.total holds the return-to-go."""
    free = True  # no deviation is asked for at this step or later
    for back in range(c.H):
        h = c.H - ONE - back
        i = h * c.S + episode.states[h]
        free = free and not episode.deviations[h]
        for n in range(len(c.zero)):
            episode.total[n] += episode.signals[h, n]
        if not block.learn:
            continue
        if free:
            _add(c, samples.values[i], episode.total)
        if _look_ahead(c, block, episode, h):
            _add(c, samples.rows[i * c.A + episode.actions[h]], episode.target)
    if block.certify and samples.sampled[0] < block.batch * len(samples.sample):
        row = samples.sampled[0] // block.batch
        for n in range(len(c.zero)):
            samples.sample[row, n] += episode.total[n]
        samples.sampled[0] += 1
    if block.learn and free:
        _add(c, samples.start, episode.total)
        for h in range(c.H):
            samples.visits[h * c.S + episode.states[h]] += 1.0


@embedded
def _look_ahead(c, block, episode, h):
    """Fill episode.target with step h's signals and what follows, up to the first known state; False at a deviation."""
    for n in range(len(c.zero)):
        episode.target[n] = episode.signals[h, n]
    j = h + ONE
    while not block.known[j * c.S + episode.states[j]]:
        if episode.deviations[j]:
            return False
        for n in range(len(c.zero)):
            episode.target[n] += episode.signals[j, n]
        j += ONE
    for n in range(len(c.zero)):
        episode.target[n] += block.ahead[j * c.S + episode.states[j], n]
    return True


@embedded
def _add(c, record, x):
    """One more sample x [1+N] in a record of moments."""
    record[0] += 1.0
    i = 1 + len(c.zero)
    for m in range(len(c.zero)):
        record[1 + m] += x[m]
        for n in range(m + 1):
            record[i] += x[m] * x[n]
            i += 1
