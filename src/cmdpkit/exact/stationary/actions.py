"""What an action is worth where there is no horizon, if a stationary policy is followed afterwards."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.chains import Chain, absorbing_states, chain_of, closed_classes
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray


def relative_values(
    cmdp: CMDP, pi: FloatArray, signals: FloatArray, stand_in: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Means per step c [K] and relative values h [K, S] of signals [K, S, A] under the policy pi [S, A].

    h is what it is worth to be in a state, and zero at one recurrent state; for totals, c is 0 and h are the totals.
    Averages are refused where the policy has several recurrent classes, unless a discount is given to ``stand_in``.
    """
    P = chain_of(cmdp, pi)
    x = np.array([(pi * signal).sum(axis=1) for signal in signals]).T  # [S, K]
    if cmdp.criterion.kind == "total":
        absorbed = absorbing_states(cmdp)
        going = np.flatnonzero(~absorbed)
        h, part = np.zeros(x.shape), P[going]
        exits = np.asarray(part[:, np.flatnonzero(absorbed)].sum(axis=1)).reshape(-1)
        h[going] = Chain(part[:, going], bordered=False, exits=exits).values(x[going])[1]
        return np.zeros(len(signals)), h.T
    pivot = 0
    if cmdp.criterion.kind == "average" and stand_in is None:
        classes = closed_classes(P)
        if len(classes) > 1:
            raise CmdpkitError(
                f"the policy has {len(classes)} recurrent classes, so its relative values are not unique"
            )
        pivot = int(classes[0][0])
    c, h = Chain(P, stand_in or cmdp.criterion.discount or 1.0, pivot=pivot).values(x)
    return c, h.T


def stationary_action_values(
    cmdp: CMDP, pi: FloatArray, signals: FloatArray, stand_in: float | None = None
) -> FloatArray:
    """[K, S, A]: what signals [K, S, A] add up to if an action is taken once and pi [S, A] is followed afterwards.

    Discounted totals, and totals until absorption; for averages, what is gained in all on a run that starts by pi.
    """
    kernel = cmdp.kernel
    c, h = relative_values(cmdp, pi, signals, stand_in)
    gamma = stand_in or cmdp.criterion.discount or 1.0
    if cmdp.criterion.kind == "discounted":
        h, c = h + c[:, None] / (1 - gamma), np.zeros_like(c)
    rows = sparse.csr_array((kernel.prob, kernel.successors, kernel.indptr), shape=(cmdp.S * cmdp.A, cmdp.S))
    ahead = np.array([(rows @ each).reshape(cmdp.S, cmdp.A) for each in h])
    values: FloatArray = signals - c[:, None, None] + gamma * ahead
    if cmdp.criterion.kind == "average":
        values -= h[:, :, None]
    return values
