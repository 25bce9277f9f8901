"""The closed loop: the stochastic decisions are shifted block by block, so that realised totals end within the bounds.

At the right prices every action that the plan uses is worth the same, so its probabilities are free to be used as
controls. What is short by now (the *debt*) is repaid evenly over all episodes that are left.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners.cl_pri.allocation import allocate
from cmdpkit.model.transitions import BoolArray, FloatArray

SMALL = 1e-6  # relative size of effects that are not steered by
SURPLUS = 0.01  # what a unit of surplus counts beside a unit of shortfall, when both cannot be avoided
PRICED = 1e-6  # prices below this count as none


def steered(pi: FloatArray, effect: FloatArray, prices: FloatArray, wanted: FloatArray) -> FloatArray:
    """pi [H, S, A] shifted so that its utilities change by `wanted` [N], as far as its stochastic decisions allow.

    effect [N, H, S, A] is what the utilities gain per probability moved to an action.
    """
    drawn = (pi > 0).sum(axis=-1) > 1
    if not drawn.any() or not len(prices):
        return pi
    h, s, a = np.nonzero((pi > 0) & drawn[..., None])
    decision = np.cumsum(drawn.ravel()).reshape(drawn.shape)[h, s] - 1
    moved = effect[:, h, s, a].T  # [m, N]
    active: BoolArray = prices > PRICED
    if not active.any():
        active = np.ones(len(prices), dtype=bool)
    shift = _direct_shift(pi[h, s, a], moved[:, active], decision, wanted[active])
    if shift is None:
        gap = wanted + pi[h, s, a] @ moved
        reward = np.where(active, -SURPLUS, 0.0)
        q, _, _ = allocate(np.zeros(len(h)), moved, decision, gap, reward, np.ones(len(gap)))
        shift = np.maximum(q, 0.0) - pi[h, s, a]
    changed = pi.copy()
    changed[h, s, a] = np.maximum(pi[h, s, a] + shift, 0.0)
    changed /= changed.sum(axis=-1, keepdims=True)
    return changed


def _direct_shift(p: FloatArray, moved: FloatArray, decision: FloatArray, wanted: FloatArray) -> FloatArray | None:
    """The smallest change of the probabilities p that has the wanted effect; None if it would leave [0, 1]."""
    sums = (decision[:, None] == np.arange(decision[-1] + 1)).astype(float)
    system = np.concatenate((moved, sums), axis=1).T
    right = np.concatenate((wanted, np.zeros(sums.shape[1])))
    shift: FloatArray = np.linalg.lstsq(system, right, rcond=SMALL)[0]
    if np.abs(sums.T @ shift).max() > 1e-9 or (p + shift).min() < 0:
        return None
    return shift


def control(pi: FloatArray, effect: FloatArray) -> FloatArray:
    """[N]: by how much full control could raise each utility of an episode."""
    best = np.where(pi > 0, effect, -np.inf).max(axis=-1)
    now = np.where(pi > 0, pi * np.where(pi > 0, effect, 0.0), 0.0).sum(axis=-1)
    reached = (pi > 0).sum(axis=-1) > 1
    gain: FloatArray = np.where(reached, best - now, 0.0).sum(axis=(1, 2))
    return gain
