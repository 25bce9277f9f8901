"""The warm-up of MF-PRI: optimistic Q-learning of reward and utilities, with prices that follow; compiled.

An episode is learned from when it has ended, from its last step to its first, so that news from its end reaches its
start at once. Where the world does not depend on the step, what was seen at one step is a sample for all steps: the
action values of every step move towards the signals plus the value, one step later, of the state that came next.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Spec
from cmdpkit.learners._frame_prices import find_best, find_best_everywhere, move_prices
from cmdpkit.model.compiled import ONE, ZERO, compiled, inlined, per_signal
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.meter import collect, watch
from cmdpkit.simulate.simulator import reset, step


class WarmUpRules(NamedTuple):
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
    explore: float = 0.0  # probability of a random action at first: none, optimism tries everything
    explore_for: float = 1.0  # episodes after which it fades


class OptimisticValues(NamedTuple):
    """What the warm-up has learned. Step H is a row of zeros, so that the last step needs no case of its own."""

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
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    rules = WarmUpRules(
        H=np.uint64(H),
        S=np.uint64(S),
        A=np.uint64(A),
        zero=per_signal([0.0] * (1 + N)),
        shared=bool(spec.stationary),
        usable=np.array(spec.allowed).reshape(-1, A),
        rho=spec.rho,
        half=episodes / 2,
        frame=math.ceil(episodes ** (1 / 3)),
        eta=2 / (H * math.sqrt(episodes)),
        lam_max=price,
    )
    cells = np.zeros((H + 1, S, A, N + 2))
    cells[:H, :, :, :-1] = np.arange(H, 0, -1.0)[:, None, None, None]
    values = OptimisticValues(
        cells=cells.reshape(-1, N + 2),
        best=np.zeros((H + 1) * S, dtype=np.uint64),
        weight=np.ones(1 + N),
        drive=np.zeros(N),
        lam_sum=np.zeros(1 + N),
        explore=np.zeros(1),
        episodes=np.zeros(1, dtype=np.int64),
        changed=np.ones(1, dtype=bool),
    )
    find_best_everywhere(values, rules)
    return rules, values


def mean_prices(values: OptimisticValues) -> FloatArray:
    """[N]: the average of the prices over the second half; before that, the prices now."""
    frames, sums = values.lam_sum[0], values.lam_sum[1:]
    mean: FloatArray = sums / frames if frames else values.weight[1:].copy()
    return mean


def values_at(spec: Spec, values: OptimisticValues, lam: FloatArray) -> FloatArray:
    """[H, S, A]: the learned values of actions at prices lam [N], -inf where an action does not exist."""
    found = values.cells.reshape(spec.H + 1, spec.S, spec.A, -1)[: spec.H, :, :, : 1 + spec.N]
    return np.where(spec.allowed, found[..., 0] + found[..., 1:] @ lam, -np.inf)


@compiled
def warm_up_episodes(sim, meter, values, rules, episode, rng, out, first, n):
    """Play n episodes, whose returns go to `out` [1+N, :] from column `first` on."""
    for k in range(first, first + n):
        watch(meter, values.changed[0], values.best, 0.0, rules.usable)
        values.changed[0] = False
        s = reset(sim, rng)
        for h in range(rules.H):
            a = values.best[np.uint64(h) * rules.S + np.uint64(s)]
            episode.states[h], episode.actions[h] = s, a
            s, x = step(sim, h, s, a, rng)
            for m in range(len(rules.zero)):
                episode.signals[h, m] = sim.outcomes[x, m]
        learn_backwards(values, rules, episode)
        for m in range(len(rules.zero)):
            out[m, k] = episode.total[m]
        collect(meter, episode.total)


@compiled
def learn_backwards(values, rules, episode):
    """Learn from an episode, add up its totals, and at the end of a frame move the prices."""
    episode.states[rules.H] = ZERO
    for n in range(len(rules.zero)):
        episode.total[n] = 0.0
    for back in range(rules.H):
        h = rules.H - ONE - back
        for n in range(len(rules.zero)):
            episode.total[n] += episode.signals[h, n]
        if not rules.shared or back == 0:  # the state after the last step is not seen: it learns for itself only
            _update(values, rules, episode, h, h)
            continue
        for other in range(rules.H):
            _update(values, rules, episode, h, rules.H - ONE - other)
    for n in range(len(values.drive)):
        values.drive[n] += rules.rho[n] - episode.total[n + 1]
    values.episodes[0] += 1
    if values.episodes[0] % rules.frame == 0:
        move_prices(values, rules, values.episodes[0])
        if values.episodes[0] >= rules.half:
            values.lam_sum[0] += 1.0
            for n in range(len(values.drive)):
                values.lam_sum[n + 1] += values.weight[n + 1]
        find_best_everywhere(values, rules)


@inlined
def _update(values, rules, episode, h, j):
    """Learn for step j from what was seen at step h, assuming the best action in the state that came next."""
    i = j * rules.S + episode.states[h]
    i_next = (j + ONE) * rules.S + episode.states[h + ONE]
    cell, ahead = i * rules.A + episode.actions[h], i_next * rules.A + values.best[i_next]
    t = values.cells[cell, len(rules.zero)] + 1.0
    values.cells[cell, len(rules.zero)] = t
    rate = (rules.H + 1.0) / (rules.H + t)
    for n in range(len(rules.zero)):
        values.cells[cell, n] += rate * (episode.signals[h, n] + values.cells[ahead, n] - values.cells[cell, n])
    find_best(values, rules, i)
