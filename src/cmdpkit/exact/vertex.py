"""From any optimal occupancy to an extreme point: as many extra actions as binding constraints, and no more.

All actions an optimal occupancy q uses are optimal for the Lagrangian r + lam* . g, so shifting flow among them changes
the value only through the utilities. Count as *extra* every used action beyond the first of its (h, s). If there are
more extras than binding constraints, some shift leaves all binding utilities unchanged; following it until an action
runs dry removes an extra. What remains has linearly independent effects on the binding utilities: a vertex.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import action_values, flow
from cmdpkit.model.mixture import from_occupancy
from cmdpkit.model.policy import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

INDEPENDENT = 1e-11  # smallest singular value of the extras' effects that still counts as independent
TIGHT = 1e-9  # a utility within this of its threshold (in scaled totals) is binding


class _Extras(NamedTuple):
    """Used actions beyond the most used one of their (h, s)."""

    h: IntArray
    s: IntArray
    a: IntArray
    base: IntArray  # the most used action there

    def up_to(self, n: int) -> _Extras:
        return _Extras(*(x[:n] for x in self))


def purify(cmdp: CMDP, q: FloatArray, rho: FloatArray, units: FloatArray, default: FloatArray) -> FloatArray:
    """An extreme point with the value of q, still meeting rho, and q itself if it is one.

    q is optimal up to rounding; `units` [N] scale the utilities to totals of order 1; `default` [H, S, A] decides where
    q does not go.
    """
    while True:
        q, pi, extras = _clean(cmdp, q, default)
        if not len(extras.h):
            return q
        w = np.array([float((q * x).sum()) for x in cmdp.compact.g])
        binding = (w - rho) / units <= TIGHT
        effects = _effects(cmdp, pi, extras.up_to(int(binding.sum()) + 1), units)
        shift = _null_vector(effects[binding])
        if shift is None:
            return _hit_bounds(cmdp, q, pi, extras, ((rho - w) / units)[binding], effects[binding])
        change = _follow(cmdp, pi, extras.up_to(len(shift)), shift)
        q = np.maximum(q + _longest_step(q, change, (w - rho) / units, effects @ shift, binding) * change, 0.0)


def _clean(cmdp: CMDP, q: FloatArray, default: FloatArray) -> tuple[FloatArray, FloatArray, _Extras]:
    """q recomputed from its policy without negligible actions, the policy, and its extras."""
    pi = from_occupancy(cmdp, q, default).pi
    pi = np.where(pi > 10 * NEGLIGIBLE, pi, 0.0)
    pi /= pi.sum(axis=-1, keepdims=True)
    q = flow(cmdp, pi, np.zeros(q.shape[:2]), cmdp.mu)
    several = np.argwhere((q > 0).sum(axis=-1) > 1)
    rows = q[several[:, 0], several[:, 1]]  # [several, A]
    base = rows.argmax(axis=-1)
    used = rows > 0
    used[np.arange(len(used)), base] = False
    i, a = np.nonzero(used)
    return q, pi, _Extras(several[i, 0], several[i, 1], a, base[i])


def _effects(cmdp: CMDP, pi: FloatArray, extras: _Extras, units: FloatArray) -> FloatArray:
    """[N, extras]: change of each (scaled) utility per unit of flow moved from the base action to the extra."""
    effects = np.zeros((cmdp.N, len(extras.h)))
    for n, x in enumerate(cmdp.compact.g):
        Q, _ = action_values(cmdp, x, pi)
        effects[n] = Q[extras.h, extras.s, extras.a] - Q[extras.h, extras.s, extras.base]
    return effects / units[:, None]


def _null_vector(effects: FloatArray) -> FloatArray | None:
    """A shift of the extras with no effect on the binding utilities, or None if only the zero shift has none."""
    rows, columns = effects.shape
    if rows == 0:
        first: FloatArray = np.eye(1, columns)[0]
        return first
    _, singular, right = np.linalg.svd(effects)
    rank = int((singular > INDEPENDENT).sum())
    null: FloatArray = right[-1].astype(float)
    return None if rank == columns else null


def _follow(cmdp: CMDP, pi: FloatArray, extras: _Extras, shift: FloatArray) -> FloatArray:
    """Change of q when shift[e] of flow moves from the base action to extra e, and pi is followed afterwards."""
    inflow = np.zeros((cmdp.H, cmdp.S))
    direct = np.zeros(pi.shape)
    kernel = cmdp.kernel
    for h, s, a, base, d in zip(*extras, shift, strict=True):
        for action, mass in ((a, d), (base, -d)):
            direct[h, s, action] += mass
            row = ((h % kernel.T) * cmdp.S + s) * cmdp.A + action
            span = slice(kernel.indptr[row], kernel.indptr[row + 1])
            if h + 1 < cmdp.H:
                np.add.at(inflow[h + 1], kernel.successors[span], mass * kernel.prob[span])
    return direct + flow(cmdp, pi, inflow, np.zeros(cmdp.S))


def _longest_step(q: FloatArray, change: FloatArray, slack: FloatArray, drift: FloatArray, binding: BoolArray) -> float:
    """How far q may move along `change` before an action runs dry or a slack utility reaches its bound."""
    drying = change < 0
    # A flow that is zero up to rounding cannot run dry: it was never there.
    drying &= q > 0
    step = float((q[drying] / -change[drying]).min()) if drying.any() else 0.0
    sinking = ~binding & (drift < 0)
    return min(step, float((slack[sinking] / -drift[sinking]).min())) if sinking.any() else step


def _hit_bounds(
    cmdp: CMDP, q: FloatArray, pi: FloatArray, extras: _Extras, missing: FloatArray, effects: FloatArray
) -> FloatArray:
    """q with the rounding left in its binding utilities taken out: the extras' weights solve a linear system."""
    shift: FloatArray = np.linalg.lstsq(effects, missing, rcond=None)[0].astype(float)
    corrected = q + _follow(cmdp, pi, extras, shift)
    return corrected if corrected.min() >= 0 else q
