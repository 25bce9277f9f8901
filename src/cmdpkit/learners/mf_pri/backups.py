"""The compiled part of the warm-up: episodes of a greedy policy, each of which is learned from when it has ended.

The steps of an episode are learned from in reverse order, so that news from its end reaches its start at once. Where
the world does not depend on the step, what was seen at one step is a sample for all steps: the action values of every
step move towards the signals plus the value, one step later, of the state that came next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners._exploration import random_action
from cmdpkit.learners._frame_prices import find_best, find_best_everywhere, move_prices
from cmdpkit.model.compiled import ONE, ZERO, compiled, inlined
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.meter import collect, watch
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step


class MfPriConstants(NamedTuple):
    """What compiled code needs of spec and parameters. For `zero` see `per_signal`."""

    H: Any  # uint64: number of steps
    S: Any  # uint64: number of states
    A: Any  # uint64: number of actions
    zero: tuple[float, ...] | FloatArray  # [1+N]: zeros; only its length is used
    shared: bool  # whether all steps learn from what one of them has seen
    usable: BoolArray  # [H*S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    half: float  # number of episodes after which the average of the prices begins
    frame: int  # episodes between two steps of the prices
    eta: float  # step of a price per episode and unit of shortfall
    lam_max: float  # largest price
    explore: float  # probability of a random action at first
    explore_for: float  # episodes after which it fades like 1/sqrt(k)
    memory: float  # the t-th visit moves a cell by (memory + 1) / (memory + t) towards what was seen


class MfPriLearned(NamedTuple):
    """What the warm-up has learned. Step H is a row of zeros, so that the last step needs no case of its own."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N and the number of samples of every (h, s, a)
    best: NDArray[np.uint64]  # [(H+1)*S]: the action of the largest weighted value
    weight: FloatArray  # [1+N]: 1, and the prices lam
    drive: FloatArray  # [N]: shortfall of each utility, summed over the episodes of the running frame
    lam_sum: FloatArray  # [1+N]: number of frames in the second half so far, and the sums of their prices
    explore: FloatArray  # [1]: probability of a random action
    episodes: NDArray[np.int64]  # [1]: how many episodes were played
    changed: BoolArray  # [1]: whether the policy has changed since the last episode began


@compiled
def play(sim, meter, learned, c, episode, rng, out, first, n):
    """Play n episodes, whose returns go to `out` [1+N, :] from column `first` on."""
    for k in range(first, first + n):
        watch(meter, learned.changed[0], learned.best, learned.explore[0], c.usable)
        learned.changed[0] = False
        s = reset(sim, rng)
        for h in range(c.H):
            a = choose(learned, c, episode, h, s, rng)
            s, x = step(sim, h, s, a, rng)
            for m in range(len(c.zero)):
                episode.signals[h, m] = sim.outcomes[x, m]
        end_episode(learned, c, episode)
        for m in range(len(c.zero)):
            out[m, k] = episode.total[m]
        collect(meter, episode.total)


@compiled
def choose(learned, c, episode, h, s, rng):
    """The action to take at step h in state s, written down: the best one at the present prices, or a random one."""
    i = np.uint64(h) * c.S + np.uint64(s)
    a = learned.best[i]
    if learned.explore[0] > 0.0 and uniform(rng) < learned.explore[0]:
        a = random_action(c.usable, i, rng)
    episode.states[h], episode.actions[h] = s, a
    return a


@compiled
def end_episode(learned, c, episode):
    """Learn from an episode, add up its totals, and at the end of a frame move the prices."""
    episode.states[c.H] = ZERO
    for n in range(len(c.zero)):
        episode.total[n] = 0.0
    for back in range(c.H):
        h = c.H - ONE - back
        for n in range(len(c.zero)):
            episode.total[n] += episode.signals[h, n]
        if not c.shared or back == 0:  # the state after the last step is not seen, so that step learns for itself only
            _update(learned, c, episode, h, h)
            continue
        for other in range(c.H):
            _update(learned, c, episode, h, c.H - ONE - other)
    for n in range(len(learned.drive)):
        learned.drive[n] += c.rho[n] - episode.total[n + 1]
    learned.episodes[0] += 1
    if learned.episodes[0] % c.frame == 0:
        _end_frame(learned, c, learned.episodes[0])


@inlined
def _update(learned, c, episode, h, j):
    """Learn for step j from what was seen at step h, assuming the best action in the state that came next."""
    i = j * c.S + episode.states[h]
    i_next = (j + ONE) * c.S + episode.states[h + ONE]
    cell, ahead = i * c.A + episode.actions[h], i_next * c.A + learned.best[i_next]
    t = learned.cells[cell, len(c.zero)] + 1.0
    learned.cells[cell, len(c.zero)] = t
    rate = (c.memory + 1.0) / (c.memory + t)
    for n in range(len(c.zero)):
        learned.cells[cell, n] += rate * (episode.signals[h, n] + learned.cells[ahead, n] - learned.cells[cell, n])
    find_best(learned, c, i)


@inlined
def _end_frame(learned, c, k):
    """A step of the prices, which are added to their sum; then all best actions are found anew."""
    move_prices(learned, c, k)
    if k >= c.half:
        learned.lam_sum[0] += 1.0
        for n in range(len(learned.drive)):
            learned.lam_sum[n + 1] += learned.weight[n + 1]
    find_best_everywhere(learned, c)
