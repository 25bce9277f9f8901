"""Where a stationary policy goes and what it is worth, where there is no horizon.

The occupancy q[s, a] is the discounted share of time (the shares of step t weigh (1 - discount) discount^t), the
long-run share of time from the start, or for totals the expected number of visits before absorption.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.chains import Chain, closed_classes, long_run_shares
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import BoolArray, FloatArray


def stationary_occupancy(cmdp: CMDP, pi: FloatArray) -> FloatArray:
    """q [S, A] of the policy pi [S, A]."""
    P = chain_of(cmdp, pi)
    discount = cmdp.criterion.discount
    if cmdp.criterion.kind == "average":
        d = long_run_shares(P, cmdp.mu)[0]
    elif discount is not None:
        d = Chain(P, discount).flow((1 - discount) * cmdp.mu, 1.0)
    else:
        d = _visits(cmdp, P)
    q: FloatArray = np.maximum(d, 0.0)[:, None] * pi
    return q


def stationary_values(cmdp: CMDP, pi: FloatArray) -> tuple[float, FloatArray]:
    """v and the utilities w [N] (not the user's sense) of pi [S, A], in the criterion's own unit."""
    q = stationary_occupancy(cmdp, pi)
    steps = cmdp.criterion.steps or 1.0
    w = np.array([float((q * x[0]).sum()) * steps for x in cmdp.compact.g])
    return float((q * cmdp.compact.r[0]).sum()) * steps, w


def chain_of(cmdp: CMDP, pi: FloatArray) -> sparse.csr_array:
    """Transition matrix [S, S] of the policy pi [S, A], its rows divided by their sums."""
    S, A, kernel = cmdp.S, cmdp.A, cmdp.kernel
    rows = sparse.csr_array((kernel.prob, kernel.successors, kernel.indptr), shape=(S * A, S))
    s, a = np.nonzero(pi)
    drawn = sparse.csr_array((pi[s, a], (s, s * A + a)), shape=(S, S * A))
    P = sparse.csr_array(drawn @ rows)
    P.sum_duplicates()
    return sparse.csr_array(sparse.diags_array(1.0 / np.asarray(P.sum(axis=1)).reshape(-1)) @ P)


def absorbing_states(cmdp: CMDP) -> BoolArray:
    """[S]: states whose every action stays there and signals nothing: a total is complete there."""
    kernel, c = cmdp.kernel, cmdp.compact
    row = kernel.rows
    leaves = np.zeros(cmdp.S * cmdp.A, dtype=bool)
    leaves[row[kernel.successors != row // cmdp.A]] = True
    busy = leaves.reshape(cmdp.S, cmdp.A) | (c.r[0] != 0) | (c.g[:, 0] != 0).any(axis=0)
    quiet: BoolArray = ~(busy & c.allowed[0]).any(axis=1)
    return quiet


def _visits(cmdp: CMDP, P: sparse.csr_array) -> FloatArray:
    """Expected visits [S] before absorption; CmdpkitError if the policy need not be absorbed."""
    absorbed = absorbing_states(cmdp)
    _, classes = long_run_shares(P, cmdp.mu)
    for members, mass in classes:
        if not absorbed[members].any() and mass > 0:
            raise CmdpkitError(
                f"this policy stays for ever in state {cmdp.states[int(members[0])]!r} with probability {mass:.6g}, so "
                "its total is not finite; choose another policy, or a discount instead of the criterion 'total'"
            )
    recurrent = np.zeros(cmdp.S, dtype=bool)
    for members in closed_classes(P):
        recurrent[members] = True
    going = np.flatnonzero(~recurrent)
    d = np.zeros(cmdp.S)
    if len(going):
        part = P[going]
        exits = np.asarray(part[:, np.flatnonzero(recurrent)].sum(axis=1)).reshape(-1)
        d[going] = Chain(part[:, going], bordered=False, exits=exits).flow(cmdp.mu[going])
    return d
