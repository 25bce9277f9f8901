"""The closed loop of MF-PRI: stochastic decisions are shifted block by block to keep realised totals in bounds.

Inside the right support regret is minus the price times the violation (docs/theory/pri.md), whatever the probabilities
of the stochastic decisions are at the moment. So they are free to be used as controls: what is short by now is repaid
over the next blocks, and the realised violation and the expected regret stay bounded instead of growing like the error
of a fixed policy.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners._allocation import allocate
from cmdpkit.learners.mf_pri.moments import MIN_PRICE
from cmdpkit.learners.mf_pri.play import Samples
from cmdpkit.learners.mf_pri.progress import MfPriProgress, MfPriTask, extra_actions
from cmdpkit.model.transitions import BoolArray, FloatArray

MIN_EFFECT = 1e-6  # relative size of effects that are not steered by
SURPLUS_WEIGHT = 0.01  # breaks ties: a unit of surplus against a unit of shortfall, where one must be accepted


def debt(task: MfPriTask, progress: MfPriProgress, samples: Samples, k: int) -> FloatArray:
    """[N]: realised violation after k episodes, plus the margin that keeps it negative to the end.

    The margin covers how far the loop lets the debt wander while it is repaid, and what the last blocks may bring.
    """
    spec, table, p = task.spec, task.table, task.params
    late = min(1.0, 4 * k / table.K)
    wander = late * p.wander * progress.sd * np.sqrt(p.repay_blocks * table.block(k))
    owed: FloatArray = k * spec.rho - samples.totals[1:] + wander + p.reserve * progress.sd * np.sqrt(table.block(k))
    return owed


def steered(task: MfPriTask, progress: MfPriProgress, samples: Samples, k: int) -> FloatArray:
    """The policy of the epoch, shifted so that the debt is repaid over the next blocks as far as that is possible."""
    extras = np.argwhere(extra_actions(progress))
    if not len(extras) or not task.spec.N:
        return progress.pi
    blocks = task.params.repay_blocks // (
        1 if k < task.table.hand else 2
    )  # then every other block is the certificate's
    wanted = debt(task, progress, samples, k) / (blocks * task.table.block(k))
    h, s, a = extras.T
    active = progress.lam > MIN_PRICE
    active = active if active.any() else np.ones(len(progress.lam), dtype=bool)
    shift = np.linalg.lstsq(progress.effect[h, s, a][:, active].T, wanted[active], rcond=MIN_EFFECT)[0]
    pi, base = progress.pi.copy(), progress.base[h, s]
    if len(shift) == task.spec.N == 1:
        shift = np.clip(shift, -pi[h, s, a], pi[h, s, base])
    np.add.at(pi, (h, s, a), shift)
    np.add.at(pi, (h, s, base), -shift)
    return pi if pi.min() >= 0 else _bounded(progress, wanted, active)


def _bounded(progress: MfPriProgress, wanted: FloatArray, active: BoolArray) -> FloatArray:
    """The shift that leaves the least shortfall when what is wanted would need a probability outside [0, 1]."""
    open_ = np.asarray(extra_actions(progress).any(axis=-1))
    h, s, a = np.nonzero((progress.pi > 0) & open_[..., None])
    decision = np.cumsum(open_.ravel()).reshape(open_.shape)[h, s] - 1
    effect = progress.effect[h, s, a]
    gap = wanted + progress.pi[h, s, a] @ effect
    price = np.where(active, -SURPLUS_WEIGHT, 0.0)
    q, _, _ = allocate(np.zeros(len(h)), effect, decision, gap, price, np.ones(len(gap)))
    pi = progress.pi.copy()
    pi[h, s, a] = np.maximum(q, 0.0)
    pi /= pi.sum(axis=-1, keepdims=True)
    return pi
