"""Episodes of a policy with deviations, counted: the compiled part of closed-loop PRI after exploration.

At every step a coin, independent of everything else, may ask for a *deviation*: a random one of the actions still worth
trying there, if there are any, instead of an action of the policy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.counts import count_episode
from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.simulate.meter import collect, watch_policy
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step


class Tries(NamedTuple):
    """The deviations beside a plan, which are the same in all of its blocks."""

    options: IntArray  # [H*S, A]: the actions to deviate to come first
    upto: FloatArray  # [H*S, A]: their cumulative weights, which add up to their number
    choices: IntArray  # [H*S]: how many those are
    share: FloatArray  # [H*S, A]: how likely each action is in a deviation


class Block(NamedTuple):
    """What a block of episodes plays."""

    pi: FloatArray  # [H*S, A]: the policy with its deviations, for the meter
    cdf: FloatArray  # [H*S, A]: cumulative probabilities of the policy itself
    sure: IntArray  # [H*S]: its action where it has only one, else -1
    options: IntArray  # see `Tries`, as the next two
    upto: FloatArray
    choices: IntArray
    coin: FloatArray  # [H*S]: chance of a deviation
    deviates: bool  # whether there is any such chance


class Ledger(NamedTuple):
    """What episodes earned; compiled code changes the arrays in place."""

    totals: FloatArray  # [M]: of all episodes, exploration included
    recent: FloatArray  # [1 + 2 M]: number, sums and squares of the totals of the policies since the last plan
    sample: FloatArray  # [capacity, M]: totals of the policy handed over, for its certificate
    size: IntArray  # [1]: episodes in that sample


def new_ledger(M: int) -> Ledger:
    """Nothing earned yet, and no room in the sample."""
    return Ledger(np.zeros(M), np.zeros(1 + 2 * M), np.zeros((0, M)), np.zeros(1, dtype=np.int64))


def with_sample_room(ledger: Ledger, episodes: int) -> Ledger:
    """The same ledger with room for so many more episodes in its sample, which is replaced only if it must grow."""
    needed, capacity = int(ledger.size[0]) + episodes, len(ledger.sample)
    if needed <= capacity:
        return ledger
    extra = max(2 * capacity, needed) - capacity
    return ledger._replace(sample=np.concatenate((ledger.sample, np.zeros((extra, ledger.sample.shape[1])))))


def tries_of(explore: BoolArray, weights: FloatArray) -> Tries:
    """The deviations to `explore` [H, S, A].

    Of the actions that may be tried in a state, each is as frequent as its share of their weights [H, S, A].
    """
    A = explore.shape[-1]
    options = explore.reshape(-1, A)
    choices = options.sum(axis=-1)
    weight = options * weights.reshape(-1, A)
    total = np.where(choices > 0, weight.sum(axis=-1), 1.0)[:, None]
    order = np.argsort(~options, axis=-1, kind="stable")
    upto = np.cumsum(np.take_along_axis(weight, order, -1), axis=-1) * (choices[:, None] / total)
    upto[np.arange(A) >= choices[:, None] - 1] = np.inf
    return Tries(order, upto, choices, weight / total)


def block_of(pi: FloatArray, tries: Tries, chance: FloatArray) -> Block:
    """A block that plays pi [H, S, A] and deviates with chance [H, S] where there is something to try."""
    flat = pi.reshape(-1, pi.shape[-1])
    cdf = np.cumsum(flat, axis=-1)
    coin = np.where(tries.choices > 0, chance.ravel(), 0.0)
    return Block(
        pi=(1 - coin)[:, None] * flat + coin[:, None] * tries.share,
        cdf=cdf / cdf[:, -1:],
        sure=np.where(flat.max(axis=-1) == 1.0, flat.argmax(axis=-1), -1),
        options=tries.options,
        upto=tries.upto,
        choices=tries.choices,
        coin=coin,
        deviates=bool(chance.any()),
    )


@compiled
def play_episodes(sim, meter, memory, block, ledger, episode, rng, out, done, n, room, first, certify):
    """Play up to n episodes of a block, while the memory has room for one more; returns how many were played.

    `first` says that the block has just begun, `certify` that its episodes are the sample of the certificate.
    """
    H, M = episode.signals.shape
    for k in range(n):
        if room - memory.used[0] < H:
            return k
        watch_policy(meter, first and k == 0, block.pi)
        s = reset(sim, rng)
        for h in range(H):
            a = act(block, h, np.int64(s), len(memory.starts), rng)
            s_next, x = step(sim, h, s, a, rng)
            episode.states[h], episode.actions[h] = s, a
            for m in range(M):
                episode.signals[h, m] = sim.outcomes[x, m]
            s = s_next
        finish(memory, block, ledger, episode, certify)
        for m in range(M):
            out[m, done + k] = episode.totals[m]
        collect(meter, episode.totals)
    return n


@inlined
def act(block, h, s, S, rng):
    """The action to take."""
    i = h * S + s
    if block.deviates and uniform(rng) < block.coin[i]:
        x = uniform(rng) * block.choices[i]
        j = 0
        while x >= block.upto[i, j]:
            j += 1
        return block.options[i, j]
    if block.sure[i] >= 0:
        return block.sure[i]
    u = uniform(rng)
    a = 0
    while u >= block.cdf[i, a]:
        a += 1
    return a


@inlined
def finish(memory, block, ledger, episode, certify):
    """Learn from an episode that has ended."""
    H, M = episode.signals.shape
    for m in range(M):
        total = 0.0
        for h in range(H):
            total += episode.signals[h, m]
        episode.totals[m] = total
        ledger.totals[m] += total
        ledger.recent[1 + m] += total
        ledger.recent[1 + M + m] += total * total
        if certify:
            ledger.sample[ledger.size[0], m] = total
    ledger.recent[0] += 1.0
    if certify:
        ledger.size[0] += 1
    count_episode(memory, episode, block.pi.shape[1])
