"""HiGHS set up in one place, the only one that imports `highspy`, and the textbook LP of a model with a horizon."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.row_lists import matrix_of

INFINITY: float = highspy.kHighsInf
Highs = highspy.Highs
SIMPLEX_LIMIT = 5_000  # with more variables, an interior-point method with crossover reaches a vertex sooner


def configured(
    *,
    solver: str = "simplex",
    tolerance: float = 1e-10,
    presolve: bool = True,
    primal: bool = False,
    iterations: int | None = None,
) -> highspy.Highs:
    """A silent HiGHS that ends at a vertex.

    ``solver`` is "simplex" or "ipm" (interior point with crossover). The tolerance holds for primal and dual
    feasibility; HiGHS takes no smaller one than 1e-10. ``primal`` asks for the primal simplex, which keeps an old basis
    when columns are added. After ``iterations`` simplex steps it gives up: on programs whose numbers are far apart the
    simplex method can go round in circles forever.
    """
    options: dict[str, Any] = {"output_flag": False, "solver": solver, "run_crossover": "on"}
    options |= {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
    options |= {} if presolve else {"presolve": "off"}
    options |= {} if iterations is None else {"simplex_iteration_limit": iterations}
    options |= {"simplex_strategy": 4} if primal else {}
    highs = highspy.Highs()
    for name, value in options.items():
        highs.setOptionValue(name, value)
    return highs


def program(
    costs: FloatArray,
    columns: tuple[FloatArray, FloatArray],
    rows: tuple[FloatArray, FloatArray],
    matrix: tuple[Any, Any, Any],
    *,
    maximise: bool = False,
) -> highspy.HighsLp:
    """A linear program: costs, (lower, upper) of columns and rows, the matrix by columns as (start, index, value)."""
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(costs), len(rows[0])
    lp.sense_ = highspy.ObjSense.kMaximize if maximise else highspy.ObjSense.kMinimize
    lp.col_cost_ = costs
    lp.col_lower_, lp.col_upper_ = columns
    lp.row_lower_, lp.row_upper_ = rows
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix
    return lp


def empty_maximisation(highs: highspy.Highs, rows: tuple[FloatArray, FloatArray]) -> None:
    """Begin a maximisation that has rows with these (lower, upper) bounds and no columns yet."""
    highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for lower, upper in zip(*rows, strict=True):
        highs.addRow(float(lower), float(upper), 0, np.zeros(0, dtype=np.int32), np.zeros(0))


def run(highs: highspy.Highs) -> str:
    """Solve the loaded program, and return "optimal", "infeasible" or the name HiGHS has for any other outcome."""
    highs.run()
    status = highs.getModelStatus()
    names = {highspy.HighsModelStatus.kOptimal: "optimal", highspy.HighsModelStatus.kInfeasible: "infeasible"}
    return names.get(status) or str(highs.modelStatusToString(status))


def answer(highs: highspy.Highs) -> tuple[FloatArray, FloatArray]:
    """Values of the columns and dual values of the rows, after `run`."""
    solution = highs.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)


def occupancy_lp(cmdp: CMDP, rho: FloatArray, units: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """A basic optimal q [H, S, A] of the full LP and the multipliers lam [N], or None if HiGHS finds no optimum.

    maximise   sum q r
    subject to sum_a q[0, s, a] = mu[s],   sum_a q[h, s', a] = sum_{s,a} P[h-1, s, a, s'] q[h-1, s, a],
               sum q g_n >= rho_n,   q >= 0 (only where the action exists).

    Thresholds rho [N] and lam are in the user's units; `units` [1 + N] scale reward and utilities to totals of order 1.
    """
    q_index = np.flatnonzero(cmdp.actions.reshape(-1))
    solver = "simplex" if len(q_index) <= SIMPLEX_LIMIT else "ipm"
    highs = configured(solver=solver, iterations=10_000 + 100 * len(q_index))
    highs.passModel(build_lp(cmdp, rho, units, q_index))
    if run(highs) != "optimal":
        return None
    values, duals = answer(highs)
    q = np.zeros(cmdp.H * cmdp.S * cmdp.A)
    q[q_index] = np.maximum(values, 0.0)
    lam = np.maximum(-duals[cmdp.H * cmdp.S :], 0.0)
    return q.reshape(cmdp.H, cmdp.S, cmdp.A), lam * units[0] / units[1:]


def build_lp(cmdp: CMDP, rho: FloatArray, units: FloatArray, q_index: IntArray) -> highspy.HighsLp:
    """The LP by columns: each has +1 in its own flow row, -P in the rows of the next step, and then the utilities."""
    H, S, A, N = cmdp.H, cmdp.S, cmdp.A, cmdp.N
    h, column = q_index // (S * A), np.arange(len(q_index))
    ahead = matrix_of(cmdp.rows, S)[(h % cmdp.kernel.T) * S * A + q_index % (S * A)].tocoo()
    goes = h[ahead.coords[0]] + 1 < H
    source, to, chance = ahead.coords[0][goes], ahead.coords[1][goes], ahead.data[goes]
    g = (cmdp.g.reshape(N, H * S * A)[:, q_index] / units[1:, None]).T
    entries = (np.ones(len(q_index)), -chance, g.reshape(-1))
    rows = (q_index // A, (h[source] + 1) * S + to, np.tile(H * S + np.arange(N), len(q_index)))
    columns = (column, source, np.repeat(column, N))
    value, index, owner = (np.concatenate(x) for x in (entries, rows, columns))
    order = np.lexsort((index, owner))
    start = np.append(0, np.cumsum(np.bincount(owner, minlength=len(q_index))))
    flow = np.concatenate((cmdp.mu, np.zeros((H - 1) * S)))
    return program(
        cmdp.r.reshape(-1)[q_index] / units[0],
        (np.zeros(len(q_index)), np.full(len(q_index), INFINITY)),
        (np.concatenate((flow, rho / units[1:])), np.concatenate((flow, np.full(N, INFINITY)))),
        (start.astype(np.int32), index[order].astype(np.int32), value[order]),
        maximise=True,
    )
