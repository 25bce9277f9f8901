"""The closed loop: the stochastic decisions are shifted block by block, so that realised totals end within the bounds.

At the right prices every action that the plan uses is worth the same, so its probabilities are free to be used as
controls. What is short by now (the *debt*) is repaid evenly over all episodes that are left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.learners._allocation import allocate
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

SMALL = 1e-6  # relative size of effects that are not steered by
SURPLUS = 0.01  # what a unit of surplus counts beside a unit of shortfall, when both cannot be avoided
PRICED = 1e-6  # prices below this count as none


class Controls(NamedTuple):
    """The m actions that a plan draws, whose probabilities are shifted; they are the same in all of its blocks."""

    place: tuple[IntArray, IntArray, IntArray]  # [m] each: step, state and action
    p: FloatArray  # [m]: their probabilities in the plan
    moved: FloatArray  # [m, N]: what the utilities gain per probability moved to the action
    decision: IntArray  # [m]: the number of the decision that it belongs to
    active: BoolArray  # [N]: utilities that are steered: those with a price, or all if none has one
    system: FloatArray  # [active + decisions, m]: what a shift does to these utilities and to the sum of each decision


def controls_of(pi: FloatArray, effect: FloatArray, prices: FloatArray) -> Controls:
    """The controls of a plan pi [H, S, A] at prices [N].

    effect [N, H, S, A] is what the utilities gain per probability moved to an action.
    """
    used = pi > 0
    drawn = used.sum(axis=-1) > 1
    h, s, a = np.nonzero(used & drawn[..., None])
    decision = np.cumsum(drawn.ravel()).reshape(drawn.shape)[h, s] - 1
    active: BoolArray = prices > PRICED
    if not active.any():
        active = np.ones(len(prices), dtype=bool)
    moved = effect[:, h, s, a].T
    sums = (decision[:, None] == np.arange(drawn.sum())).astype(float)
    system = np.concatenate((moved[:, active], sums), axis=1).T
    return Controls((h, s, a), pi[h, s, a], moved, decision, active, system)


def steered(pi: FloatArray, controls: Controls, wanted: FloatArray) -> FloatArray:
    """pi [H, S, A] shifted so that its utilities change by `wanted` [N], as far as its stochastic decisions allow."""
    p, moved, active = controls.p, controls.moved, controls.active
    if not len(p) or not len(wanted):
        return pi
    shift = _direct_shift(controls, wanted)
    if shift is None:
        gap = wanted + p @ moved
        reward = np.where(active, -SURPLUS, 0.0)
        q, _, _ = allocate(np.zeros(len(p)), moved, controls.decision, gap, reward, np.ones(len(gap)))
        shift = np.maximum(q, 0.0) - p
    changed = pi.copy()
    changed[controls.place] = np.maximum(p + shift, 0.0)
    changed /= changed.sum(axis=-1, keepdims=True)
    return changed


def _direct_shift(controls: Controls, wanted: FloatArray) -> FloatArray | None:
    """The smallest change of the probabilities that has the wanted effect; None if it would leave [0, 1]."""
    right = np.zeros(len(controls.system))
    asked = wanted[controls.active]
    right[: len(asked)] = asked
    shift: FloatArray = np.linalg.lstsq(controls.system, right, rcond=SMALL)[0]  # type: ignore[assignment]
    sums = controls.system[len(asked) :] @ shift
    if np.abs(sums).max() > 1e-9 or (controls.p + shift).min() < 0:
        return None
    return shift


def control(pi: FloatArray, effect: FloatArray) -> FloatArray:
    """[N]: by how much full control could raise each utility of an episode."""
    used = pi > 0
    best = np.where(used, effect, -np.inf).max(axis=-1)
    now = np.where(used, pi * effect, 0.0).sum(axis=-1)
    gain: FloatArray = np.where(used.sum(axis=-1) > 1, best - now, 0.0).sum(axis=(1, 2))
    return gain
