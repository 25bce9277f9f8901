"""Prices of Q-learning with constraints, moved once a frame: what Dual-Q and the warm-up of CL-PRI share.

Both keep the sum of what every bound missed in the frame (`drive`), the weights of reward and utilities in what actions
maximise (`weight`, whose entries from 1 on are the prices), and the sum of the prices over the second half of the run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.learners.spec import Spec
from cmdpkit.model.compiled import inlined
from cmdpkit.model.transitions import FloatArray


@inlined
def move_prices(learned, c, k):
    """Take a step of the prices after k episodes, add them to their mean, and fade the exploration."""
    for n in range(len(learned.drive)):
        lam = learned.weight[n + 1] + c.eta * learned.drive[n]
        learned.weight[n + 1] = min(max(lam, 0.0), c.lam_max)
        learned.drive[n] = 0.0
    if k >= c.half:
        learned.lam_sum[0] += 1.0
        for n in range(len(learned.drive)):
            learned.lam_sum[n + 1] += learned.weight[n + 1]
    learned.explore[0] = c.explore * min(1.0, np.sqrt(c.explore_for / k))
    learned.changed[0] = True


def mean_prices(learned: Any) -> FloatArray:
    """[N]: the mean of the prices over the second half of the run; before that, the prices now."""
    n, sums = learned.lam_sum[0], learned.lam_sum[1:]
    mean: FloatArray = sums / n if n else learned.weight[1:].copy()
    return mean


def values_at(learned: Any, spec: Spec, lam: FloatArray) -> FloatArray:
    """[H, S, A]: the learned values of actions at prices lam [N], -inf where an action does not exist."""
    values = learned.cells.reshape(spec.H + 1, spec.S, spec.A, -1)[: spec.H, :, :, : 1 + spec.N]
    return np.where(spec.allowed, values[..., 0] + values[..., 1:] @ lam, -np.inf)
