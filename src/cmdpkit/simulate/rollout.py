"""Episodes of a fixed policy: one by one, or n at once by exact counts.

`counts` never plays a single episode. It draws from a multinomial distribution how many of the n episodes start in each
state. At every step it then draws how the number in a state splits over its actions, and how the number of each (state,
action) splits over the next states. The result has exactly the joint distribution of the counts of n independent
episodes, and takes the same time for every n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream, generator, uniform
from cmdpkit.simulate.simulator import HALF, LOW, Simulator, reset, step


class Rollout(NamedTuple):
    """Episodes played one by one, in unit scale."""

    reward: FloatArray  # [n], total reward of each episode
    utilities: FloatArray  # [N, n], total utilities of each episode
    visits: IntArray | None  # [H, S, A], over all episodes; None if they were not asked for


class Counts(NamedTuple):
    """Episodes played all at once: totals over them, in unit scale."""

    reward: float  # summed over the episodes
    utilities: FloatArray  # [N], summed over the episodes
    visits: IntArray  # [H, S, A], over all episodes


def episodes(
    sim: Simulator, policy: Policy | FloatArray, rng: Stream, n: int, *, visits: bool = True, discount: float = 1.0
) -> Rollout:
    """n episodes of a policy, or of its table pi [H, S, A], step by step.

    Without ``visits`` nothing of size [H, S, A] is made, which matters for large models. What is earned at step h
    counts discount^h times.

    >>> from cmdpkit import Policy, envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/grid")
    >>> played = episodes(Simulator.of(cmdp), Policy.uniform(cmdp), stream(1), 1000)
    >>> played.reward.shape, int(played.visits.sum())
    ((1000,), 6000)
    """
    played = _checked(sim, policy)
    totals = np.zeros((sim.outcomes.shape[1], n))
    counted = np.zeros(played.shape if visits else (0, 0, 0), dtype=np.int64)
    decisions = played.decisions
    _play(sim, decisions._replace(p=np.cumsum(decisions.p, axis=1)), rng, float(discount), totals, counted)
    return Rollout(totals[0], totals[1:], counted if visits else None)


def counts(sim: Simulator, policy: Policy | FloatArray, rng: Stream, n: int) -> Counts:
    """Visits and total returns of n independent episodes of a policy, or of its table pi [H, S, A].

    >>> from cmdpkit import Policy, envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> played = counts(Simulator.of(cmdp), Policy.uniform(cmdp), stream(1), 10**9)
    >>> int(played.visits.sum()), round(played.reward / 10**9, 3)
    (3000000000, 1.275)
    """
    played = _checked(sim, policy)
    H, S, A = played.shape
    draw = generator(rng)
    visits = np.zeros((H, S * A), dtype=np.int64)
    starts = len(sim.start)
    here = _split(draw, np.array([n]), np.array([0]), np.array([starts]), sim.start_share, sim.start, S)
    for h in range(H):
        visits[h] = _split_over_actions(draw, here, _shares(played.table(h))).reshape(-1)
        if h + 1 == H:
            break
        used = np.flatnonzero(visits[h])
        here = _move(draw, sim, used + h * int(sim.kernel_stride), visits[h, used])
    earned = _earned(sim, draw, visits)
    return Counts(float(earned[0]), earned[1:], visits.reshape(H, S, A))


def _move(draw: np.random.Generator, sim: Simulator, rows: IntArray, n: IntArray) -> IntArray:
    """How many arrive in each state, [S], if n[i] of them use row rows[i] of the transition tables."""
    packed = sim.rows[rows]
    place, width = (packed >> HALF).astype(np.int64), (packed & LOW).astype(np.int64)
    single = width == 1  # the place is the successor itself
    arrived = np.bincount(place[single], weights=n[single], minlength=int(sim.S)).astype(np.int64)
    several = ~single
    if several.any():
        arrived += _split(draw, n[several], place[several], width[several], sim.share, sim.entries, int(sim.S))
    return arrived


def _split(
    draw: np.random.Generator,
    n: IntArray,
    first: IntArray,
    width: IntArray,
    share: FloatArray,
    entries: NDArray[np.uint64],
    S: int,
) -> IntArray:
    """How many of n[i] arrive in each state, [S], when they spread over the entries first[i] .. first[i] + width[i]."""
    arrived = np.zeros(S)
    left = n.copy()
    for j in range(int(width.max())):
        going = np.flatnonzero((width > j) & (left > 0))
        at = first[going] + j
        moved = draw.binomial(left[going], share[at])
        left[going] -= moved
        arrived += np.bincount((entries[at, 1] & LOW).astype(np.int64), weights=moved, minlength=S)
    return arrived.astype(np.int64)


def _split_over_actions(draw: np.random.Generator, n: IntArray, share: FloatArray) -> IntArray:
    """How many of n[s] take each action, [S, A], given each action's share [S, A] among itself and the later ones."""
    taken = np.empty(share.shape, dtype=np.int64)
    left = n.copy()
    for a in range(share.shape[1]):
        taken[:, a] = draw.binomial(left, share[:, a])
        left -= taken[:, a]
    return taken


def _shares(pi: FloatArray) -> FloatArray:
    """Probability of an action given that none before it was taken; 1 where only it is left."""
    tail = np.cumsum(pi[..., ::-1], axis=-1)[..., ::-1]
    share = np.divide(pi, tail, out=np.zeros_like(pi), where=tail > 0)
    last = pi.shape[-1] - 1 - np.argmax(pi[..., ::-1] > 0, axis=-1)
    np.put_along_axis(share, last[..., None], 1.0, axis=-1)
    return np.minimum(share, 1.0)


def _earned(sim: Simulator, draw: np.random.Generator, visits: IntArray) -> FloatArray:
    """Total reward and utilities [1+N] of the visits [H, S*A]."""
    used = visits if sim.signal_stride else visits.sum(axis=0, keepdims=True)
    flat = used.reshape(-1, 1)
    earned: FloatArray = (draw.binomial(flat, sim.signals) if sim.coins else flat * sim.signals).sum(axis=0)
    return earned


def _checked(sim: Simulator, policy: Policy | FloatArray) -> Policy:
    shape = (int(sim.H), int(sim.S), int(sim.A))
    given = policy.shape if isinstance(policy, Policy) else np.shape(policy)
    if given != shape or (isinstance(policy, Policy) and policy.is_stationary and shape[0] > 1):
        raise CmdpkitError(f"the policy has shape {given}, the simulator (H, S, A) = {shape}")
    return policy if isinstance(policy, Policy) else Policy(policy)


@compiled
def _play(sim, decisions, rng, discount, totals, visits):
    """Episodes of a policy, one per column of totals [1+N, n]; decisions.p holds cumulative probabilities here.

    Every step takes one random number for the action, whether the decision draws or not.
    """
    for k in range(totals.shape[1]):
        s = reset(sim, rng)
        weight = 1.0
        for h in range(sim.H):
            a = _action(decisions, h, s, uniform(rng))
            if len(visits) > 0:
                visits[h, s, a] += 1
            s, x = step(sim, h, s, a, rng)
            for n in range(len(totals)):
                totals[n, k] += weight * sim.outcomes[x, n]
            weight *= discount


@inlined
def _action(decisions, h, s, u):
    """The action at step h in state s for a number u in [0, 1)."""
    t, s = np.int64(h) if len(decisions.choice) > 1 else np.int64(0), np.int64(s)  # h % T, which takes longer
    low, high = decisions.first[t], decisions.first[t + 1]
    last = high
    if high - low == decisions.choice.shape[1]:  # every state draws
        low = high = low + s
    while low < high:  # the first row of this step whose state is not below s
        middle = (low + high) // 2
        if decisions.s[middle] < s:
            low = middle + 1
        else:
            high = middle
    if low == last or decisions.s[low] != s:
        return np.int64(decisions.choice[t, s])
    a = 0
    u *= decisions.p[low, -1]
    while decisions.p[low, a] <= u:
        a += 1
    return a
