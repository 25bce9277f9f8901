"""The full occupancy LP in HiGHS: the textbook method, and the yardstick for column generation.

maximise   sum q r
subject to sum_a q[0, s, a] = mu[s],   sum_a q[h, s', a] = sum_{s,a} P[h-1, s, a, s'] q[h-1, s, a],
           sum q g_n >= rho_n,   q >= 0 (only where the action exists).
"""

from __future__ import annotations

import highspy
import numpy as np

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray

SIMPLEX_LIMIT = 5_000  # variables: above it an interior point with crossover reaches the vertex sooner


def occupancy_lp(cmdp: CMDP, units: FloatArray, solver: str | None = None) -> tuple[FloatArray, FloatArray] | None:
    """A basic optimal q [H, S, A] and the multipliers lam [N] in user's units, or None if infeasible.

    `units` [1 + N] scale reward and utilities to totals of order 1. `solver` is "simplex" or "ipm" (with crossover).
    """
    q_index = np.flatnonzero(cmdp.actions.reshape(-1))
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("solver", solver or ("simplex" if len(q_index) <= SIMPLEX_LIMIT else "ipm"))
    highs.setOptionValue("run_crossover", "on")
    highs.setOptionValue("primal_feasibility_tolerance", 1e-10)
    highs.setOptionValue("dual_feasibility_tolerance", 1e-10)
    highs.passModel(build_lp(cmdp, units, q_index))
    highs.run()
    status = highs.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None  # q is bounded by the flow, so "unbounded or infeasible" means infeasible
    if status != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS ended as {highs.modelStatusToString(status)}")
    solution = highs.getSolution()
    q = np.zeros(cmdp.H * cmdp.S * cmdp.A)
    q[q_index] = np.maximum(np.array(solution.col_value), 0.0)
    lam = np.maximum(-np.array(solution.row_dual)[cmdp.H * cmdp.S :], 0.0)
    return q.reshape(cmdp.H, cmdp.S, cmdp.A), lam * units[0] / units[1:]


def build_lp(cmdp: CMDP, units: FloatArray, q_index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> highspy.HighsLp:
    """The LP column by column: +1 in its own flow row, -P in the next step's, the utilities below."""
    H, S, A, N = cmdp.H, cmdp.S, cmdp.A, cmdp.N
    kernel = cmdp.kernel
    h = q_index // (S * A)
    row_of = (h % kernel.T) * S * A + q_index % (S * A)
    first, last = kernel.indptr[row_of], kernel.indptr[row_of + 1]
    inner = np.where(h + 1 < H, last - first, 0)
    start = np.concatenate(([0], np.cumsum(1 + inner + N)))
    index = np.zeros(start[-1], dtype=np.int32)
    value = np.zeros(start[-1])
    index[start[:-1]], value[start[:-1]] = q_index // A, 1.0
    column = np.repeat(np.arange(len(q_index)), inner)
    offset = np.arange(len(column)) - np.repeat(np.cumsum(inner) - inner, inner)
    source, target = first[column] + offset, start[column] + 1 + offset
    index[target] = (h[column] + 1) * S + kernel.successors[source]
    value[target] = -kernel.prob[source]
    for n in range(N):
        index[start[1:] - N + n] = H * S + n
        value[start[1:] - N + n] = cmdp.g[n].reshape(-1)[q_index] / units[1 + n]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(q_index), H * S + N
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = cmdp.r.reshape(-1)[q_index] / units[0]
    lp.col_lower_, lp.col_upper_ = np.zeros(len(q_index)), np.full(len(q_index), highspy.kHighsInf)
    flow = np.concatenate((cmdp.mu, np.zeros((H - 1) * S)))
    lp.row_lower_ = np.concatenate((flow, cmdp.rho / units[1:]))
    lp.row_upper_ = np.concatenate((flow, np.full(N, highspy.kHighsInf)))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start.astype(np.int32), index, value
    return lp
