"""An exact answer by another road: the full occupancy LP in SciPy, written from the definition and nothing else.

Variables q[h, s, a] >= 0: the probability of being in s and doing a at step h. Only the model's arrays are read, so
that a mistake in the package's recursions or solvers cannot hide here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Optimum(NamedTuple):
    """A vertex of the occupancy LP, in the user's units and sense."""

    value: float
    utilities: FloatArray  # [N]
    prices: FloatArray  # [N], >= 0: value gained per unit by which the bound is relaxed
    q: FloatArray  # [H, S, A]


def optimum(cmdp: CMDP) -> Optimum | None:
    """Maximise <q, r> over flows q with <q, g_n> >= rho_n; None where no flow meets the bounds."""
    g = cmdp.g.reshape(cmdp.N, -1)
    bounds = {"A_ub": -g, "b_ub": -cmdp.rho} if cmdp.N else {}
    flow, source = flow_equations(cmdp)
    answer = linprog(
        -cmdp.r.ravel(), A_eq=flow, b_eq=source, bounds=_limits(cmdp), method="highs-ds", options=TIGHT, **bounds
    )
    if answer.status == 2:
        return None
    if answer.status != 0:
        raise RuntimeError(f"linprog: {answer.message}")
    prices = -np.asarray(answer.ineqlin.marginals) if cmdp.N else np.zeros(0)
    return Optimum(-answer.fun, cmdp.signs * (g @ answer.x), prices, answer.x.reshape(cmdp.H, cmdp.S, cmdp.A))


def slater_slack(cmdp: CMDP) -> float:
    """The largest t such that one policy has <q, g_n> >= rho_n + t for every n (negative: infeasible)."""
    g = cmdp.g.reshape(cmdp.N, -1)
    flow, source = flow_equations(cmdp)
    no_t = sparse.csr_array((flow.shape[0], 1))
    answer = linprog(
        np.append(np.zeros(g.shape[1]), -1.0),
        A_ub=np.hstack([-g, np.ones((cmdp.N, 1))]),
        b_ub=-cmdp.rho,
        A_eq=sparse.hstack([flow, no_t]),
        b_eq=source,
        bounds=[*_limits(cmdp), (None, None)],
        method="highs-ds",
        options=TIGHT,
    )
    if answer.status != 0:
        raise RuntimeError(f"linprog: {answer.message}")
    return float(-answer.fun)


def flow_equations(cmdp: CMDP) -> tuple[sparse.csr_array, FloatArray]:
    """sum_a q[h, s, a] - sum_{s', a'} P[h-1, s', a', s] q[h-1, s', a'] = mu[s] at the first step, 0 later."""
    H, S, A = cmdp.H, cmdp.S, cmdp.A
    out = sparse.kron(sparse.identity(S), np.ones((1, A)))  # [S, S*A]: sum over the actions of each state
    blocks = [[None] * H for _ in range(H)]
    for h in range(H):
        blocks[h][h] = out
        if h:
            blocks[h][h - 1] = -sparse.csr_array(cmdp.P[h - 1].reshape(S * A, S)).T
    return sparse.csr_array(sparse.block_array(blocks)), np.append(cmdp.mu, np.zeros((H - 1) * S))


def _limits(cmdp: CMDP) -> list[tuple[float, float | None]]:
    return [(0.0, None) if allowed else (0.0, 0.0) for allowed in cmdp.actions.ravel()]
