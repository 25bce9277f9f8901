"""The compiled part of Triple-Q: what is learned in a step, at the end of an episode and at the end of a frame.

`play` has a loop of its own, beside that of `_episodes`: it learns while it plays, without a note of the episode, which
takes two thirds of the time. `learn` does the same with an episode that was played elsewhere.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners._q_learning import find_best, find_best_everywhere, learn_cell, random_action, worth_of
from cmdpkit.model.compiled import ONE, ZERO, compiled
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.meter import ExploringPolicy, collect, watch
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step


class TripleQConstants(NamedTuple):
    """What compiled code needs of spec and parameters.

    With one constraint the lengths of `zero` and `lift` are known when compiling (see `per_signal`). So is whether
    `bonus` and `extras` are None, which makes "practical" a tenth faster.
    """

    H: np.uint64  # number of steps
    S: np.uint64  # number of states
    A: np.uint64  # number of actions
    zero: tuple[float, ...] | FloatArray  # [1+N]: zeros; only its length is used
    chi: float  # the learning rate at the t-th visit is (chi + 1) / (chi + t)
    bonus: tuple[float, ...] | FloatArray | None  # [1+N]: scale of the bonus of reward and utilities, if there is one
    lift: tuple[float, ...] | FloatArray  # [1+N]: what is added to reward and utility values over the whole run
    fresh: FloatArray  # [H, 1+N]: values of an untried action
    ceiling: FloatArray  # [H, 1+N]: values lifted above this start afresh
    usable: NDArray[np.bool_]  # [H*S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    K: float  # number of episodes of the whole run
    p: Any  # the fields of `TripleQParams`
    extras: Literal[True] | None  # None if the next two are False: the compiler then leaves out what they ask for
    explores: bool  # whether some actions are random
    estimated: bool  # whether the queues are driven by C at the first step, not by realised utilities


class TripleQLearned(NamedTuple):
    """What one run has learned."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N and the number of visits of every (h, s, a)
    best: NDArray[np.uint64]  # [(H+1)*S]: the action that is worth most at the prices
    second: FloatArray  # [(H+1)*S]: the largest worth of the other actions; a search is due if `best` falls below
    weight: FloatArray  # [N]: Z / eta, the price of each utility
    queue: FloatArray  # [N]: Z
    short: FloatArray  # [N]: by how much the last frame fell short of the tightened threshold, per episode
    swing: FloatArray  # [N]: largest recent half distance between two frames in a row on either side of the bound
    debt: FloatArray  # [N]: realised violation of all frames that have ended
    drive: FloatArray  # [N]: C at the first step, summed over the episodes of the running frame
    earned: FloatArray  # [1+N]: realised reward and utilities, summed over the finished episodes of the running frame
    totals: FloatArray  # [1+N]: reward and utilities of the running episode so far
    explore: FloatArray  # [2]: probability of a random action, and its fading part
    frames: NDArray[np.int64]  # [1]: how many frames have ended
    left: NDArray[np.int64]  # [1]: episodes left in the running frame
    changed: NDArray[np.bool_]  # [1]: whether the policy has changed since the last episode began
    kept: FloatArray  # [H*S*A]: visits that the frame began with
    usage: FloatArray  # [3, H*S*A]: uses before and since the number of frames last doubled, and all that came earlier


@compiled
def play(sim, meter, learned, c, rng, out):
    """Algorithm 1, for as many episodes as `out` [1+N, n] has columns."""
    for k in range(out.shape[1]):
        policy = ExploringPolicy(learned.best, learned.explore[0], c.usable)
        watch(meter, learned.changed[0], policy, meter.every)
        learned.changed[0] = False
        s = reset(sim, rng)
        a = choose(learned, c, ZERO, s, rng)
        for h in range(c.H):
            s_next, x = step(sim, h, s, a, rng)
            a_next = choose(learned, c, h + ONE, s_next, rng)
            _update(learned, c, h, s, a, sim.outcomes, x, s_next, a_next)
            s, a = s_next, a_next
        for n in range(len(c.zero)):
            out[n, k] = learned.totals[n]
        collect(meter, learned.totals)
        _end_episode(learned, c, rng)


@compiled
def learn(learned, c, states, actions, signals, rng):
    """What `play` does with an episode, when it was played elsewhere."""
    for h in range(c.H):
        ahead = h + ONE if h + ONE < c.H else h
        s, a, s_next, a_next = states[h], actions[h], states[ahead], actions[ahead]
        # As unsigned numbers, like those of `play`, so that `_update` is compiled for one kind of number only.
        _update(learned, c, h, np.uint64(s), np.uint64(a), signals, h, np.uint64(s_next), np.uint64(a_next))
    _end_episode(learned, c, rng)


@compiled(inline=True)
def choose(learned, c, h, s, rng):
    """The action to take at step h in state s: argmax of Q + sum_n Z_n / eta C_n, or a random one."""
    i = np.uint64(h) * c.S + np.uint64(s)
    if c.extras is not None and c.explores and h < c.H and uniform(rng) < learned.explore[0]:
        return random_action(c.usable, i, rng)
    return learned.best[i]


@compiled(inline=True)
def _update(learned, c, h, s, a, outcomes, x, s_next, a_next):
    """Learn from outcomes[x], received at (h, s, a) on the way to s_next, where a_next follows."""
    i = h * c.S + s
    j, j_next = i * c.A + a, ((h + ONE) * c.S + s_next) * c.A + a_next
    if c.extras is not None and c.estimated and h == ZERO:
        for n in range(len(learned.drive)):
            learned.drive[n] += learned.cells[j, n + 1]
    worth = learn_cell(learned, c, j, j_next, outcomes, x, c.bonus, c.p.bonus_offset)
    for n in range(len(c.zero)):
        learned.totals[n] += outcomes[x, n]
    if worth < learned.second[i] or (c.extras is not None and c.explores and a != learned.best[i]):
        find_best(learned, c, i)


@compiled(inline=True)
def _end_episode(learned, c, rng):
    """Add up the episode's totals; at the end of a frame, move the queues."""
    for n in range(len(c.zero)):
        learned.earned[n] += learned.totals[n]
        learned.totals[n] = 0.0
    if c.extras is not None and c.explores:
        learned.explore[1] *= c.p.explore_decay
        explore = 1.0 - (1.0 - c.p.explore) * (1.0 - learned.explore[1])
        if explore != learned.explore[0]:
            learned.explore[0] = explore
            learned.changed[0] = True
    learned.left[0] -= 1
    if learned.left[0] == 0:
        _end_frame(learned, c)
        if c.p.random_ties:
            _break_ties(learned, c, rng)


@compiled
def _end_frame(learned, c):
    """Queues first, then lift the tables and let the counts fade, then find the best actions again."""
    learned.frames[0] += 1
    learned.left[0] = c.p.frame
    frames = learned.frames[0]
    k = float(frames * c.p.frame)
    horizon = min(c.p.window, max(c.K - k, float(c.p.frame)))
    for n in range(len(learned.queue)):
        learned.debt[n] += c.p.frame * c.rho[n] - learned.earned[n + 1]
        eps = min(max((learned.debt[n] + c.p.margin) / horizon, c.p.eps_low), c.p.eps_high)
        reached = (learned.drive[n] if c.estimated else learned.earned[n + 1]) / c.p.frame
        short = c.rho[n] + eps - reached
        # How widely frames swing around the bound damps its queue. A queue that is pushed across the right price and
        # back makes the learner jump between two extremes forever. The damping itself changes slowly, over a whole
        # window, so that frames above and below the bound still have the same weight.
        turn = abs(short - learned.short[n]) / 2.0 if short * learned.short[n] < 0.0 else 0.0
        learned.short[n] = short
        learned.swing[n] = max(turn, learned.swing[n] * max(1.0 - c.p.frame / c.p.window, 0.0))
        learned.queue[n] = max(learned.queue[n] + short / max(1.0, learned.swing[n] / c.p.steady), 0.0)
        learned.weight[n] = learned.queue[n] / c.p.eta
        learned.drive[n] = 0.0
    for n in range(len(c.zero)):
        learned.earned[n] = 0.0
    share = (k / c.K) ** c.p.lift_power - ((k - c.p.frame) / c.K) ** c.p.lift_power
    _refresh(learned, c, share, frames & (frames - 1) == 0)
    find_best_everywhere(learned, c)


@compiled(inline=True)
def _refresh(learned, c, share, doubled):
    """Raise all values by a share of the run's lift; what gets above the ceiling starts afresh. Let the counts fade.

    The frame's visits are counted as usage; when the number of frames has doubled, the older half becomes history.
    """
    for j in range(np.uint64(len(learned.kept))):
        if learned.cells[j, 0] == -np.inf:  # not usable
            continue
        h = j // (c.S * c.A)
        for n in range(len(c.zero)):
            lifted = learned.cells[j, n]
            if c.lift[n] > 0.0:  # an infinite lift times 0 would be no number
                lifted += c.lift[n] * share
            learned.cells[j, n] = c.fresh[h, n] if lifted > c.ceiling[h, n] else lifted
        visits = learned.cells[j, len(c.zero)]
        learned.usage[1, j] += visits - learned.kept[j]
        if doubled:
            learned.usage[2, j] += learned.usage[0, j]
            learned.usage[0, j] = learned.usage[1, j]
            learned.usage[1, j] = 0.0
        learned.kept[j] = visits * c.p.keep
        learned.cells[j, len(c.zero)] = learned.kept[j]


@compiled(inline=True)
def _break_ties(learned, c, rng):
    """Where several actions are best, take one at random."""
    for i in range(c.H * c.S):
        top, ties = worth_of(learned, c, i, learned.best[i]), 0
        for a in range(c.A):
            ties += worth_of(learned, c, i, a) == top
        if ties == 1:
            continue
        draw = np.int64(uniform(rng) * ties)
        for a in range(c.A):
            if worth_of(learned, c, i, a) == top:
                if draw == 0:
                    learned.best[i] = a
                draw -= 1
        learned.changed[0] = True
