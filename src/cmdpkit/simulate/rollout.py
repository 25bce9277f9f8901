"""Episodes of a fixed policy: one by one, or n at once by exact counts.

`counts` never plays an episode. The n of them start in states drawn as one multinomial; at every step the number in a
state splits over its actions, and the number of each (state, action) over its successors. These are the numbers that n
independent episodes produce, drawn from exactly their joint law, at a cost that does not grow with n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream, generator, uniform
from cmdpkit.simulate.simulator import HALF, LOW, Simulator, reset, step


class Rollout(NamedTuple):
    """Episodes played one by one, in unit scale."""

    reward: FloatArray  # [n]
    utilities: FloatArray  # [N, n]
    visits: IntArray  # [H, S, A]


class Counts(NamedTuple):
    """Episodes played all at once: totals over them, in unit scale."""

    reward: float
    utilities: FloatArray  # [N]
    visits: IntArray  # [H, S, A]


def episodes(sim: Simulator, pi: FloatArray, rng: Stream, n: int) -> Rollout:
    """n episodes of the policy pi [H, S, A], step by step.

    >>> from cmdpkit import Policy, envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/grid")
    >>> played = episodes(Simulator.of(cmdp), Policy.uniform(cmdp).pi, stream(1), 1000)
    >>> played.reward.shape, int(played.visits.sum())
    ((1000,), 6000)
    """
    pi = _checked(sim, pi)
    totals = np.zeros((sim.outcomes.shape[1], n))
    visits = np.zeros(pi.shape, dtype=np.int64)
    _play(sim, np.cumsum(pi, axis=-1), rng, totals, visits)
    return Rollout(totals[0], totals[1:], visits)


def counts(sim: Simulator, pi: FloatArray, rng: Stream, n: int) -> Counts:
    """Visits and total returns of n independent episodes of the policy pi [H, S, A].

    >>> from cmdpkit import Policy, envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> played = counts(Simulator.of(cmdp), Policy.uniform(cmdp).pi, stream(1), 10**9)
    >>> int(played.visits.sum()), round(played.reward / 10**9, 3)
    (3000000000, 1.275)
    """
    pi = _checked(sim, pi)
    H, S, A = pi.shape
    draw = generator(rng)
    visits = np.zeros((H, S * A), dtype=np.int64)
    chances = _shares(pi)
    starts = len(sim.start)
    here = _split(draw, np.array([n]), np.array([0]), np.array([starts]), sim.start_share, sim.start, S)
    for h in range(H):
        visits[h] = _split_evenly(draw, here, chances[h]).reshape(-1)
        if h + 1 == H:
            break
        used = np.flatnonzero(visits[h])
        here = _move(draw, sim, used + h * int(sim.kernel_stride), visits[h, used])
    earned = _earned(sim, draw, visits)
    return Counts(float(earned[0]), earned[1:], visits.reshape(H, S, A))


def _move(draw: np.random.Generator, sim: Simulator, rows: IntArray, n: IntArray) -> IntArray:
    """How many arrive in each state, [S], when n[i] leave by row rows[i] of the transition tables."""
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


def _split_evenly(draw: np.random.Generator, n: IntArray, share: FloatArray) -> IntArray:
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


def _checked(sim: Simulator, pi: FloatArray) -> FloatArray:
    shape = (int(sim.H), int(sim.S), int(sim.A))
    if np.shape(pi) != shape:
        raise CmdpkitError(f"the policy has shape {np.shape(pi)}, the simulator (H, S, A) = {shape}")
    return np.ascontiguousarray(pi, dtype=float)


@compiled
def _play(sim, cdf, rng, totals, visits):  # type: ignore[no-untyped-def]
    """Episodes of the policy with cumulative probabilities cdf [H, S, A], one per column of totals [1+N, n]."""
    for k in range(totals.shape[1]):
        s = reset(sim, rng)
        for h in range(sim.H):
            u = uniform(rng) * cdf[h, s, -1]
            a = 0
            while cdf[h, s, a] <= u:
                a += 1
            visits[h, s, a] += 1
            s, x = step(sim, h, s, a, rng)
            for n in range(len(totals)):
                totals[n, k] += sim.outcomes[x, n]
