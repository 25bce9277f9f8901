"""The compiled part of Dual-Q: what it has learned, its constants, and the updates of step, episode and frame."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners._exploration import random_action
from cmdpkit.learners._frame_prices import find_best, find_best_everywhere, move_prices
from cmdpkit.model.compiled import ONE, compiled, inlined
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.meter import collect, watch
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step


class DualQConstants(NamedTuple):
    """What compiled code needs of spec and parameters. For `zero` see `per_signal`."""

    H: np.uint64  # number of steps
    S: np.uint64  # number of states
    A: np.uint64  # number of actions
    zero: tuple[float, ...] | FloatArray  # [1+N]: zeros; only its length is used
    usable: NDArray[np.bool_]  # [H*S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    frame: int  # episodes between two steps of the prices
    eta: float  # step of a price per episode and unit of shortfall
    lam_max: float  # largest price
    explore: float  # probability of a random action at first
    explore_for: float  # episodes after which it fades like 1/sqrt(k)


class DualQLearned(NamedTuple):
    """What one run has learned. Step H is a row of zeros, so that the last step needs no case of its own."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N and the number of visits of every (h, s, a)
    best: NDArray[np.uint64]  # [(H+1)*S]: the action of the largest weighted value
    weight: FloatArray  # [1+N]: 1, and the prices lam
    drive: FloatArray  # [N]: shortfall of each utility, summed over the episodes of the running frame
    totals: FloatArray  # [1+N]: reward and utilities of the running episode so far
    explore: FloatArray  # [1]: probability of a random action
    episodes: NDArray[np.int64]  # [1]: how many episodes were played
    changed: NDArray[np.bool_]  # [1]: whether the policy has changed since the last episode began
    usage: FloatArray  # [3, H*S*A]: greedy choices before and since the number of episodes last doubled, and earlier


@compiled
def play(sim, meter, learned, c, rng, out):
    """As many episodes as `out` [1+N, n] has columns."""
    for k in range(out.shape[1]):
        watch(meter, learned.changed[0], learned.best, learned.explore[0], c.usable)
        learned.changed[0] = False
        s = reset(sim, rng)
        for h in range(c.H):
            a = choose(learned, c, h, s, rng)
            s_next, x = step(sim, h, s, a, rng)
            _update(learned, c, h, s, a, sim.outcomes, x, s_next)
            s = s_next
        for n in range(len(c.zero)):
            out[n, k] = learned.totals[n]
        collect(meter, learned.totals)
        end_episode(learned, c)


@compiled
def choose(learned, c, h, s, rng):
    """The action to take at step h in state s: the best one at the present prices, or a random one."""
    i = np.uint64(h) * c.S + np.uint64(s)
    if learned.explore[0] > 0.0 and uniform(rng) < learned.explore[0]:
        return random_action(c.usable, i, rng)
    learned.usage[1, i * c.A + learned.best[i]] += 1.0
    return learned.best[i]


@inlined
def _update(learned, c, h, s, a, outcomes, x, s_next):
    """Learn from outcomes[x], received at (h, s, a) on the way to s_next, where the best action is assumed."""
    i = np.uint64(h) * c.S + np.uint64(s)
    i_next = (np.uint64(h) + ONE) * c.S + np.uint64(s_next)
    j, j_next = i * c.A + np.uint64(a), i_next * c.A + learned.best[i_next]
    t = learned.cells[j, len(c.zero)] + 1.0
    learned.cells[j, len(c.zero)] = t
    rate = (c.H + 1.0) / (c.H + t)
    for n in range(len(c.zero)):
        learned.cells[j, n] += rate * (outcomes[x, n] + learned.cells[j_next, n] - learned.cells[j, n])
        learned.totals[n] += outcomes[x, n]
    find_best(learned, c, i)


@compiled
def learn(learned, c, h, s, a, signals, s_next):
    """Learn from one step that was made outside of `play`."""
    _update(learned, c, h, s, a, signals.reshape((1, len(c.zero))), 0, s_next)


@compiled
def end_episode(learned, c):
    """Add up the episode's totals; at the end of a frame, move the prices and fade the exploration."""
    for n in range(len(learned.drive)):
        learned.drive[n] += c.rho[n] - learned.totals[n + 1]
    for n in range(len(c.zero)):
        learned.totals[n] = 0.0
    learned.episodes[0] += 1
    k = learned.episodes[0]
    if k & (k - 1) == 0:
        for j in range(learned.usage.shape[1]):
            learned.usage[2, j] += learned.usage[0, j]
            learned.usage[0, j] = learned.usage[1, j]
            learned.usage[1, j] = 0.0
    if k % c.frame == 0:
        move_prices(learned, c, k)
        find_best_everywhere(learned, c)
