"""Many episodes of a fixed policy at once, by exact counts: the time is the same for every number of episodes.

`counts` never plays a single episode. It draws from a multinomial distribution how many of the n episodes start in each
state. At every step it then draws how the number in a state splits over its actions, and how the number of each (state,
action) splits over the next states. The result has exactly the joint distribution of the counts of n independent
episodes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cmdpkit import CMDP
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream, generator
from cmdpkit.simulate.simulator import Noise, stacked


class Counts(NamedTuple):
    """Episodes played all at once: totals over them, in unit scale."""

    reward: float  # summed over the episodes
    utilities: FloatArray  # [N], summed over the episodes
    visits: IntArray  # [H, S, A], over all episodes


def counts(cmdp: CMDP, pi: FloatArray, rng: Stream, n: int, noise: Noise = "none") -> Counts:
    """Visits and total returns of n independent episodes of pi [H, S, A].

    >>> import cmdpkit as ck
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = ck.load("paper/synthetic")
    >>> played = counts(cmdp, ck.Policy.uniform(cmdp).pi, stream(1), 10**9)
    >>> int(played.visits.sum()), round(played.reward / 10**9, 3)
    (3000000000, 1.275)
    """
    kernel, draw = cmdp.kernel, generator(rng)
    starts = np.flatnonzero(cmdp.mu)
    visits = np.zeros((cmdp.H, cmdp.S * cmdp.A), dtype=np.int64)
    share = _shares_of_rows(kernel.indptr, kernel.prob)
    whole = np.array([0, len(starts)])
    here = _split(draw, np.array([n]), whole[:1], whole[1:], _shares_of_rows(whole, cmdp.mu[starts]), starts, cmdp.S)
    for h in range(cmdp.H):
        visits[h] = _split_over_actions(draw, here, _shares(pi[h])).reshape(-1)
        if h + 1 == cmdp.H:
            break
        used = np.flatnonzero(visits[h])
        rows = used + (h % kernel.T) * cmdp.S * cmdp.A
        first, width, going = kernel.indptr[rows], np.diff(kernel.indptr)[rows], visits[h, used]
        one = width == 1  # no random number is needed where there is only one next state
        here = np.bincount(kernel.successors[first[one]], weights=going[one], minlength=cmdp.S).astype(np.int64)
        if not one.all():
            here += _split(draw, going[~one], first[~one], width[~one], share, kernel.successors, cmdp.S)
    earned = _earned(cmdp, draw, visits, noise)
    return Counts(float(earned[0]), earned[1:], visits.reshape(cmdp.H, cmdp.S, cmdp.A))


def _split(
    draw: np.random.Generator, n: IntArray, first: IntArray, width: IntArray, share: FloatArray, to: IntArray, S: int
) -> IntArray:
    """How many of n[i] arrive in each state, [S], when they spread over to[first[i] : first[i] + width[i]]."""
    arrived = np.zeros(S)
    left = n.copy()
    for j in range(int(width.max())):
        going = np.flatnonzero((width > j) & (left > 0))
        at = first[going] + j
        moved = draw.binomial(left[going], share[at])
        left[going] -= moved
        arrived += np.bincount(to[at], weights=moved, minlength=S)
    return arrived.astype(np.int64)


def _split_over_actions(draw: np.random.Generator, n: IntArray, share: FloatArray) -> IntArray:
    """How many of n[s] take each action, [S, A], given each action's share [S, A] among itself and the later ones."""
    taken = np.empty(share.shape, dtype=np.int64)
    left = n.copy()
    for a in range(share.shape[1]):
        taken[:, a] = draw.binomial(left, share[:, a])
        left -= taken[:, a]
    return taken


def _shares_of_rows(indptr: IntArray, prob: FloatArray) -> FloatArray:
    """Probability of every entry, given that it is this one or a later one of its row."""
    share = np.ones(len(prob))
    for first, last in pairwise(indptr):
        row = prob[first:last]
        share[first:last] = row / np.cumsum(row[::-1])[::-1]
    return share


def _shares(pi: FloatArray) -> FloatArray:
    """Probability of an action given that none before it was taken; 1 where only it is left."""
    tail = np.cumsum(pi[..., ::-1], axis=-1)[..., ::-1]
    share = np.divide(pi, tail, out=np.zeros_like(pi), where=tail > 0)
    last = pi.shape[-1] - 1 - np.argmax(pi[..., ::-1] > 0, axis=-1)
    np.put_along_axis(share, last[..., None], 1.0, axis=-1)
    return np.minimum(share, 1.0)


def _earned(cmdp: CMDP, draw: np.random.Generator, visits: IntArray, noise: Noise) -> FloatArray:
    """Total reward and utilities [1+N] of the visits [H, S*A]."""
    signals = np.clip(stacked(cmdp, unit=True), 0.0, 1.0)
    used = (visits if len(signals) > visits.shape[1] else visits.sum(axis=0)).reshape(-1, 1)
    earned: FloatArray = (draw.binomial(used, signals) if noise == "bernoulli" else used * signals).sum(axis=0)
    return earned
