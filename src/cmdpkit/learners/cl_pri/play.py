"""Where a run with episodes stands, and the compiled part of CL-PRI: exploration, and blocks of a plan with tries.

Exploration keeps a value per signal for every (step, state), and after each episode its own path is backed up from the
last step to the first, so that news travels to the start at once. No operator does that: one state of a step is backed
up at a time, and the mean and the variance of what follows come of one reading of the counts. A block plays a plan;
where an action of a state is still worth some tries, it is played there instead until it has had them, from the next
episode on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.estimate.counts import Counts, count_episode, mean_of
from cmdpkit.learners._closed_loop import Ledger, book
from cmdpkit.learners._episodes import choose, learn, show
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.simulate.meter import ExploringPolicy, PolicyTable, watch
from cmdpkit.simulate.random import draw


class Optimism(NamedTuple):
    """Optimistic values for exploration; compiled code changes the arrays in place."""

    values: FloatArray  # [(H+1)*S, M]: of the greedy policy, the reward's with its bonus; the last S rows stay 0
    best: NDArray[np.uint64]  # [H*S]: the action that is worth most at the present prices
    peak: FloatArray  # [H+1]: the largest priced value among the states known at a step
    noise: FloatArray  # [H+1]: average variance of what an action brings, at the last sweep
    prices: FloatArray  # [M]: 1 for the reward, then the price of each utility
    usable: BoolArray  # [H*S, A]: the actions that are allowed
    scratch: FloatArray  # [M]: values of one action, while they are computed
    bonus: FloatArray  # [3]: the parameters optimism, curiosity and pseudo
    found: IntArray  # [1]: new cells since exploration was looked at last


class Block(NamedTuple):
    """What a block of episodes plays; compiled code changes the arrays in place as tries are used up."""

    plan: FloatArray  # [H*S, A]: the policy of the plan
    quota: IntArray  # [H*S, A]: visits up to which an action is tried instead; 0 where it is not tried
    trying: IntArray  # [H*S]: the action that is tried now, -1 where the plan is played
    pi: FloatArray  # [H*S, A]: what is played: the plan, and the tries
    fresh: BoolArray  # [1]: whether the meter has not been told of it yet


@dataclass
class Clock:
    """Where a run stands."""

    episode: int = 0  # episodes played
    block_end: int = 0  # the episode at which the running block ends
    swept: int = 0  # exploration: the episode of the last sweep
    check: int = 0  # exploration: the episode at which it is looked at next
    checked: int = 0  # exploration: the episode at which it was looked at last
    all_found: bool = False  # whether exploration ended because it found hardly anything new
    explored: int = -1  # the episode at which the exploration of this stage ended, -1 while it goes on
    explored_from: int = 0  # the episode at which it began
    explored_before: int = 0  # episodes of exploration in earlier stages
    stage: int = 0  # of an anytime run
    infeasible_last: bool = False  # whether the last plan could not meet the bounds in the estimated model
    certifying: bool = False  # whether the running block is a sample for the certificate
    handed: int = -1  # the stage in which a policy to return was fixed last, -1 if there is none yet


@dataclass
class Policies:
    """What a run with episodes plays and returns; arrays are changed in place."""

    pi: FloatArray  # [H, S, A]: the plan
    final: FloatArray  # [H, S, A]: the policy to return, once it is fixed
    prices: FloatArray  # [N]: of the bounds, by the last plan
    predicted: FloatArray  # [N]: utilities of the last plan in the estimated model
    promised: FloatArray  # [N]: utilities of the policy to return in the estimated model
    margin: FloatArray  # [N]: by how much it was asked to clear the bounds
    uncovered: FloatArray  # [N]: by how much its own error may take it beyond a bound all the same
    swept: FloatArray  # [1+N]: what exploration had earned at its last sweep


def new_optimism(allowed: BoolArray, M: int, bonus: tuple[float, float, float]) -> Optimism:
    """Everything is worth the most there is."""
    H, S, A = allowed.shape
    left = np.arange(H, -1, -1.0)  # steps that can still earn
    usable = np.ascontiguousarray(allowed.reshape(-1, A))
    return Optimism(
        values=np.repeat(np.repeat(left, S)[:, None], M, axis=1),
        best=usable.argmax(axis=-1).astype(np.uint64),
        peak=np.zeros(H + 1),
        noise=(left / 4) ** 2,
        prices=np.eye(1, M)[0],
        usable=usable,
        scratch=np.zeros(M),
        bonus=np.array(bonus),
        found=np.zeros(1, dtype=np.int64),
    )


def new_block(pi: FloatArray, quota: IntArray, visits: IntArray) -> Block:
    """A block of pi [H, S, A] with tries up to quota [H, S, A]; visits [T*S*A] are those so far."""
    A = pi.shape[-1]
    plan, quota, so_far = pi.reshape(-1, A), quota.reshape(-1, A), visits.reshape(-1, A)
    due = quota > np.tile(so_far, (len(plan) // len(so_far), 1))
    trying = np.where(due.any(axis=1), due.argmax(axis=1), -1)
    played = np.where(trying[:, None] < 0, plan, np.arange(A) == trying[:, None])
    return Block(plan.copy(), quota.copy(), trying, played, np.ones(1, dtype=bool))


class ClosedLoop(NamedTuple):
    """What compiled code plays and learns from."""

    counts: Counts
    optimism: Optimism
    block: Block
    ledger: Ledger
    exploring: bool  # whether an episode takes the actions that look best; else it plays the block
    certifying: bool  # whether it is in the sample of the certificate


@show.of(ClosedLoop)
def _show(player, meter):
    if player.exploring:
        watch(meter, True, ExploringPolicy(player.optimism.best, 0.0, player.optimism.usable), meter.every)
    else:
        watch(meter, player.block.fresh[0], PolicyTable(player.block.pi), 1)


@choose.of(ClosedLoop)
def _choose(player, episode, h, s, rng):
    """The optimistic action, or one of the block: the one that is tried there, or one of the plan."""
    i = h * len(player.counts.starts) + s
    return np.int64(player.optimism.best[i] if player.exploring else draw(player.block.pi, i, rng))


@learn.of(ClosedLoop)
def _learn(player, episode, rng):
    """Count an episode; back up the states on its path, or see which tries are used up."""
    counts, optimism, block, ledger, exploring, certifying = player
    S, A = len(counts.starts), block.plan.shape[1]
    book(ledger, episode, certifying)
    new = count_episode(counts, episode, A)
    if exploring:
        optimism.found[0] += new
        for h in range(len(episode.states) - 1, -1, -1):
            _back_up(counts, optimism, h, episode.states[h])
        return False
    block.fresh[0] = False
    for h in range(len(episode.states)):
        i = h * S + episode.states[h]
        if block.trying[i] < 0:
            continue
        row, now = i % (len(counts.visits) // A), -1  # the row of the counts, and the action to try from now on
        for a in range(A):
            if counts.visits[row * A + a] < block.quota[i, a]:
                now = a
                break
        if now != block.trying[i]:
            block.trying[i] = now
            block.fresh[0] = True
            for a in range(A):
                block.pi[i, a] = block.plan[i, a] if now < 0 else np.float64(a == now)
    return False


@compiled
def sweep(counts, optimism):
    """Back up every state that was ever visited, at the present prices, and measure the noise of every step."""
    S = len(counts.starts)
    H, A = len(optimism.usable) // S, optimism.usable.shape[1]
    T = len(counts.head) // (S * A)
    for h in range(H - 1, -1, -1):
        optimism.peak[h] = 0.0
        total, weight = 0.0, 0.0
        for s in range(S):
            for a in range(A):
                cell = ((h % T) * S + s) * A + a
                n = counts.moves[cell] if h + 1 < H else counts.visits[cell]
                if n > 1:
                    total += n * _ahead(counts, optimism, h, cell)[1]
                    weight += n
        if weight > 0.0:
            optimism.noise[h] = total / weight
        for s in range(S):
            _back_up(counts, optimism, h, s)


@compiled
def _ahead(counts, optimism, h, cell):
    """The mean priced value one step ahead of a cell, and the variance of that value and of the priced signals.

    Fills `optimism.scratch` with the value of every signal.
    """
    S, M, scratch = len(counts.starts), len(optimism.prices), optimism.scratch
    n = counts.visits[cell]
    first, second, i = 0.0, 0.0, M
    for m in range(M):
        scratch[m] = mean_of(counts, cell, m, 0)
        first += optimism.prices[m] * counts.moments[cell, m] / n
        for l in range(m + 1):
            twice = 1.0 if l == m else 2.0
            second += twice * optimism.prices[m] * optimism.prices[l] * counts.moments[cell, i] / n
            i += 1
    variance = max(second - first * first, 0.0)
    mean, square = 0.0, 0.0
    if (h + 1) * S < len(optimism.usable):
        j = counts.head[cell]
        while j >= 0:
            y, p = 0.0, counts.times[j] / counts.moves[cell]
            for m in range(M):
                value = optimism.values[(h + 1) * S + counts.state[j], m]
                y += optimism.prices[m] * value
                scratch[m] += p * value
            mean += p * y
            square += p * y * y
            j = counts.link[j]
    return mean, variance + max(square - mean * mean, 0.0)


@compiled
def _back_up(counts, optimism, h, s):
    """New values of all tried actions at (h, s), the greedy action, and the state's own values."""
    S, M, scratch = len(counts.starts), len(optimism.prices), optimism.scratch
    H, A = len(optimism.usable) // S, optimism.usable.shape[1]
    T = len(counts.head) // (S * A)
    weight, curiosity, pseudo = optimism.bonus[0], optimism.bonus[1], optimism.bonus[2]
    i = h * S + s
    left = np.float64(H - h)
    most = 0.0
    for m in range(M):
        most += optimism.prices[m] * left
    best_value, tried = -np.inf, False
    for a in range(A):
        if not optimism.usable[i, a]:
            continue
        cell, value = ((h % T) * S + s) * A + a, most
        n = counts.moves[cell] if h + 1 < H else counts.visits[cell]
        if n > 0:
            tried, value = True, 0.0
            mean, variance = _ahead(counts, optimism, h, cell)
            variance = (n * variance + pseudo * optimism.noise[h]) / (n + pseudo)
            bonus = curiosity * left / n + weight * np.sqrt(variance / n)
            if h + 1 < H:
                bonus += weight * max(optimism.peak[h + 1] - mean, 0.0) / n
            scratch[0] = min(scratch[0] + bonus, left)
            for m in range(M):
                value += optimism.prices[m] * scratch[m]
        if value > best_value:
            optimism.best[i], best_value = a, value
            for m in range(M):
                optimism.values[i, m] = scratch[m] if n > 0 else left
    if tried:
        optimism.peak[h] = max(optimism.peak[h], best_value)
