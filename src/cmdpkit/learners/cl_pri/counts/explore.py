"""Deep exploration: play what looks best when everything that is badly known is taken to be good.

Every (step, state) keeps a value per signal, and every action a value at the present prices. The reward's value carries
a bonus that shrinks with the number of visits; an action that was never tried is worth the most there is. After each
episode its own path is backed up from the last step to the first, so that news travels to the start at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.estimate.counts import count_episode
from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.meter import collect, watch
from cmdpkit.simulate.simulator import reset, step

NOISE_BONUS = 0.5  # standard errors of what an action leads to that are added to its value
DISCOVERY_BONUS = 0.5  # share, divided by visits, of what the best known next state would be worth more
CONSTANT_BONUS = 0.005  # of the steps left, divided by visits
PSEUDO_VISITS = 2.0  # visits that the average noise of a step counts as


class Optimism(NamedTuple):
    """Optimistic values; compiled code changes the arrays in place."""

    values: FloatArray  # [(H+1)*S, M]: of the greedy policy, the reward's with its bonus; the last S rows stay 0
    priced: FloatArray  # [H*S, A]: what an action is worth at the present prices
    best: NDArray[np.uint64]  # [H*S]: the action worth most
    peak: FloatArray  # [H+1]: the largest priced value among the states known at a step
    noise: FloatArray  # [H+1]: average variance of priced values one step ahead, at the last sweep
    prices: FloatArray  # [M]: 1 for the reward, then the price of each utility
    usable: BoolArray  # [H*S, A]
    scratch: FloatArray  # [M]


def new_optimism(allowed: BoolArray, M: int) -> Optimism:
    """Everything is worth the most there is."""
    H, S, A = allowed.shape
    left = np.repeat(np.arange(H, -1, -1.0), S)  # [(H+1)*S]: steps that can still earn
    usable = np.ascontiguousarray(allowed.reshape(-1, A))
    return Optimism(
        values=np.repeat(left[:, None], M, axis=1),
        priced=np.where(usable, left[: H * S, None], -np.inf),
        best=usable.argmax(axis=-1).astype(np.uint64),
        peak=np.zeros(H + 1),
        noise=(np.arange(H, -1, -1.0) / 4) ** 2,
        prices=np.eye(1, M)[0],
        usable=usable,
        scratch=np.zeros(M),
    )


@compiled
def explore_episodes(sim, meter, memory, optimism, episode, rng, out, done, n, room):
    """Play up to n episodes into the columns of out from `done` on, while the memory has room for one more.

    Returns how many were played and how many cells were new.
    """
    H = len(episode.states)
    new = 0
    for k in range(n):
        if room - memory.used[0] < H:
            return k, new
        watch(meter, True, optimism.best, 0.0, optimism.usable)
        s = reset(sim, rng)
        for m in range(len(episode.totals)):
            episode.totals[m] = 0.0
        for h in range(H):
            a = np.int64(optimism.best[h * len(memory.starts) + np.int64(s)])
            s_next, x = step(sim, h, s, a, rng)
            episode.states[h], episode.actions[h] = s, a
            for m in range(len(episode.totals)):
                episode.signals[h, m] = sim.outcomes[x, m]
                episode.totals[m] += sim.outcomes[x, m]
            s = s_next
        for m in range(len(episode.totals)):
            out[m, done + k] = episode.totals[m]
        collect(meter, episode.totals)
        new += learn_path(memory, optimism, episode)
    return n, new


@compiled
def learn_path(memory, optimism, episode):
    """Count an episode and back up the states on its path; returns how many cells were new."""
    A = optimism.usable.shape[1]
    new = count_episode(memory, episode, A)
    for h in range(len(episode.states) - 1, -1, -1):
        _back_up(memory, optimism, h, episode.states[h])
    return new


@compiled
def sweep(memory, optimism):
    """Back up every state that was ever visited, at the present prices, and measure the noise of every step."""
    S = len(memory.starts)
    H, A = len(optimism.usable) // S, optimism.usable.shape[1]
    T = len(memory.head) // (S * A)
    for h in range(H - 1, -1, -1):
        optimism.peak[h] = 0.0
        total, weight = 0.0, 0.0
        for s in range(S):
            for a in range(A):
                cell = ((h % T) * S + s) * A + a
                if h + 1 < H and memory.moves[cell] > 1:
                    total += memory.moves[cell] * _spread(memory, optimism, h, cell)[1]
                    weight += memory.moves[cell]
        if weight > 0.0:
            optimism.noise[h] = total / weight
        for s in range(S):
            _back_up(memory, optimism, h, s)


@compiled
def _spread(memory, optimism, h, cell):
    """Mean and variance of the priced value one step ahead of a cell whose next states are known."""
    S, M = len(memory.starts), len(optimism.prices)
    mean, square = 0.0, 0.0
    j = memory.head[cell]
    while j >= 0:
        y = 0.0
        for m in range(M):
            y += optimism.prices[m] * optimism.values[(h + 1) * S + memory.state[j], m]
        p = memory.times[j] / memory.moves[cell]
        mean += p * y
        square += p * y * y
        j = memory.link[j]
    return mean, max(square - mean * mean, 0.0)


@compiled
def _back_up(memory, optimism, h, s):
    """New values of all tried actions at (h, s), the greedy action, and the state's own values."""
    S, M = len(memory.starts), len(optimism.prices)
    H, A = len(optimism.usable) // S, optimism.usable.shape[1]
    T = len(memory.head) // (S * A)
    i = h * S + s
    left = np.float64(H - h)
    most = 0.0
    for m in range(M):
        most += optimism.prices[m] * left
    best, best_value, tried = -1, -np.inf, False
    for a in range(A):
        if not optimism.usable[i, a]:
            continue
        cell = ((h % T) * S + s) * A + a
        n = memory.moves[cell] if h + 1 < H else memory.visits[cell]
        value = most
        if n > 0:
            tried = True
            value = _action_value(memory, optimism, h, cell, n)
        optimism.priced[i, a] = value
        if value > best_value:
            best, best_value = a, value
    optimism.best[i] = best
    cell = ((h % T) * S + s) * A + best
    n = memory.moves[cell] if h + 1 < H else memory.visits[cell]
    if n > 0:
        _action_value(memory, optimism, h, cell, n)
        for m in range(M):
            optimism.values[i, m] = optimism.scratch[m]
    else:
        for m in range(M):
            optimism.values[i, m] = left
    if tried:
        optimism.peak[h] = max(optimism.peak[h], best_value)


@inlined
def _action_value(memory, optimism, h, cell, n):
    """The priced value of a tried action; leaves its value per signal in `scratch`."""
    S, M = len(memory.starts), len(optimism.prices)
    H = len(optimism.usable) // S
    left = np.float64(H - h)
    for m in range(M):
        optimism.scratch[m] = memory.moments[cell, m] / memory.visits[cell]
    bonus = CONSTANT_BONUS * left / n
    if h + 1 < H:
        mean, variance = _spread(memory, optimism, h, cell)
        j = memory.head[cell]
        while j >= 0:
            p = memory.times[j] / memory.moves[cell]
            for m in range(M):
                optimism.scratch[m] += p * optimism.values[(h + 1) * S + memory.state[j], m]
            j = memory.link[j]
        variance = (n * variance + PSEUDO_VISITS * optimism.noise[h]) / (n + PSEUDO_VISITS)
        bonus += NOISE_BONUS * np.sqrt(variance / n) + DISCOVERY_BONUS * max(optimism.peak[h + 1] - mean, 0.0) / n
    optimism.scratch[0] = min(optimism.scratch[0] + bonus, left)
    value = 0.0
    for m in range(M):
        value += optimism.prices[m] * optimism.scratch[m]
    return value
