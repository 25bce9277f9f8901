"""The master problem of MF-PRI: the best action probabilities, by the effects that the rows have measured.

Around the policies played so far, values are linear in the action probabilities p of each reached decision (h, s):

    v(p) = v_base + sum_{h,s} reach(h,s) sum_a p(a|h,s) (Q(h,s,a) - Q(h,s,base)),     w_n(p) likewise with C_n.

The LP maximises v subject to w >= target. Two things keep it honest while estimates are rough. An action that is not in
use yet pays `enter` standard errors, so that it comes in on evidence, not on noise. And prices may move only within
[low, high] from one epoch to the next: a unit of shortfall costs `high`, a unit of surplus earns `low`. The LP is thus
always feasible. Its solution is a vertex, so at most N actions are in use beyond one per decision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.learners._allocation import allocate
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

MIN_PROBABILITY = 1e-9  # probabilities below this are rounding
MIN_FEE = 1e-7  # price of a newcomer without any noise: ties go to what is in use


class Linear(NamedTuple):
    """The problem around the present policies."""

    reach: FloatArray  # [H, S]: probability of getting there
    X: FloatArray  # [H, S, A, 1+N]: row means, reward first
    base: IntArray  # [H, S]: actions that effects are measured against
    utilities: FloatArray  # [N]: w if every decision took its base action
    target: FloatArray  # [N]
    low: FloatArray  # [N]
    high: FloatArray  # [N]


class Answer(NamedTuple):
    """What the LP says."""

    p: FloatArray  # [H, S, A]; base actions where there was nothing to decide
    lam: FloatArray  # [N]
    short: FloatArray  # [N]: what is missing to the target


def linear(
    start: tuple[FloatArray, FloatArray, FloatArray],
    X: FloatArray,
    base: IntArray,
    goal: tuple[FloatArray, FloatArray, FloatArray],
) -> Linear:
    """The problem around mean utilities [N], reach [H, S] and mean policy [H, S, A] of the episodes played (`start`).

    `goal` is target, low, high.
    """
    utilities, reach, played = start
    at_base = np.take_along_axis(X, base[..., None, None], 2)
    gained = (played[..., None] * (X - at_base)).sum(axis=2)[..., 1:]  # [H, S, N]: by not taking the base action
    return Linear(reach, X, base, utilities - np.einsum("hs,hsn->n", reach, gained), *goal)


def solve_master(problem: Linear, live: BoolArray, used: BoolArray, fee: FloatArray) -> Answer:
    """The best p on the actions `live` [H, S, A]; those not `used` yet pay fee [H, S, A] per unit of reach."""
    reach, X, base, N = problem.reach, problem.X, problem.base, len(problem.target)
    p = np.eye(live.shape[-1])[base]
    open_ = (reach > 0) & (live.sum(axis=-1) > 1)
    h, s, a = np.nonzero(live & open_[..., None])
    effect = reach[h, s, None] * (X[h, s, a] - X[h, s, base[h, s]])
    entry = np.where(used[h, s, a], 0.0, reach[h, s] * (fee[h, s, a] + MIN_FEE))
    decision = np.cumsum(open_.ravel()).reshape(open_.shape)[h, s] - 1
    gap = problem.target - problem.utilities
    if not len(h):
        return Answer(p, np.where(gap > 0, problem.high, problem.low), np.maximum(gap, 0.0))
    q, lam, short = allocate(entry - effect[:, 0], effect[:, 1:], decision, gap, problem.low, problem.high)
    p[h, s, a] = np.where(q < MIN_PROBABILITY, 0.0, q)
    p /= p.sum(axis=-1, keepdims=True)
    return Answer(p, lam, short) if N else Answer(p, np.zeros(0), np.zeros(0))
