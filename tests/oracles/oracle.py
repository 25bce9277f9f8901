"""An exact answer by another road: the full occupancy LP in SciPy, written from the definition and nothing else.

Variables q[h, s, a] >= 0: the probability of being in s and doing a at step h. Only the model's arrays are read, so
that a mistake in the package's recursions or solvers cannot hide here.
"""

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
    if not cmdp.criterion.has_horizon:
        return stationary_optimum(cmdp)
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
    if not cmdp.criterion.has_horizon:
        return stationary_slack(cmdp)
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


def stationary_program(cmdp: CMDP) -> tuple[FloatArray, FloatArray, int]:
    """Balance equations A x = b of a model without a horizon; the first S*A variables are the occupancy.

    Averages: long-run frequencies x and visits y of the two-block program. Discounted: frequencies of the chain that
    restarts from mu with probability 1 - discount.
    """
    S, A, P = cmdp.S, cmdp.A, cmdp.P[0]
    out, into = np.kron(np.eye(S), np.ones((1, A))), P.reshape(S * A, S).T
    if cmdp.criterion.kind == "average":
        balance = np.block([[out - into, np.zeros((S, S * A))], [out, out - into]])
        return balance, np.append(np.zeros(S), cmdp.mu), 2
    discount = cmdp.criterion.discount
    restart = discount * into + (1 - discount) * np.outer(cmdp.mu, np.ones(S * A))
    return np.vstack([out - restart, np.ones((1, S * A))]), np.append(np.zeros(S), 1.0), 1


def stationary_optimum(cmdp: CMDP) -> Optimum | None:
    """As `optimum`, for discounted values and long-run averages."""
    balance, source, blocks = stationary_program(cmdp)
    steps = cmdp.criterion.steps_in_value
    nothing = np.zeros(cmdp.S * cmdp.A * (blocks - 1))
    g = np.array([np.append(x[0].ravel(), nothing) for x in cmdp.g]).reshape(cmdp.N, -1) * steps
    bounds = {"A_ub": -g, "b_ub": -cmdp.rho} if cmdp.N else {}
    answer = linprog(
        -np.append(cmdp.r[0].ravel(), nothing) * steps,
        A_eq=balance,
        b_eq=source,
        bounds=_limits(cmdp) * blocks,
        method="highs-ds",
        options=TIGHT,
        **bounds,
    )
    if answer.status == 2:
        return None
    if answer.status != 0:
        raise RuntimeError(f"linprog: {answer.message}")
    prices = -np.asarray(answer.ineqlin.marginals) if cmdp.N else np.zeros(0)
    q = answer.x[: cmdp.S * cmdp.A].reshape(1, cmdp.S, cmdp.A)
    return Optimum(-answer.fun, cmdp.signs * (g @ answer.x), prices, q)


def stationary_slack(cmdp: CMDP) -> float:
    """As `slater_slack`, for discounted values and long-run averages."""
    balance, source, blocks = stationary_program(cmdp)
    nothing = np.zeros(cmdp.S * cmdp.A * (blocks - 1))
    g = np.array([np.append(x[0].ravel(), nothing) for x in cmdp.g]) * cmdp.criterion.steps_in_value
    answer = linprog(
        np.append(np.zeros(g.shape[1]), -1.0),
        A_ub=np.hstack([-g, np.ones((cmdp.N, 1))]),
        b_ub=-cmdp.rho,
        A_eq=np.hstack([balance, np.zeros((len(balance), 1))]),
        b_eq=source,
        bounds=[*(_limits(cmdp) * blocks), (None, None)],
        method="highs-ds",
        options=TIGHT,
    )
    if answer.status != 0:
        raise RuntimeError(f"linprog: {answer.message}")
    return float(-answer.fun)
