"""The full occupancy LP in HiGHS: the textbook method, and the yardstick for column generation.

maximise   sum q r
subject to sum_a q[0, s, a] = mu[s],   sum_a q[h, s', a] = sum_{s,a} P[h-1, s, a, s'] q[h-1, s, a],
           sum q g_n >= rho_n,   q >= 0 (only where the action exists).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.exact.highs import INFINITY, answer, configured, program, run
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray, IntArray

SIMPLEX_LIMIT = 5_000  # variables: above it an interior point with crossover reaches the vertex sooner


def occupancy_lp(cmdp: CMDP, rho: FloatArray, units: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """A basic optimal q [H, S, A] and the multipliers lam [N], or None if HiGHS finds no optimum.

    Thresholds rho [N] and lam are in the user's units; `units` [1 + N] scale reward and utilities to totals of order 1.
    """
    q_index = np.flatnonzero(cmdp.actions.reshape(-1))
    highs = configured(solver="simplex" if len(q_index) <= SIMPLEX_LIMIT else "ipm")
    highs.passModel(build_lp(cmdp, rho, units, q_index))
    if run(highs) != "optimal":
        return None
    values, duals = answer(highs)
    q = np.zeros(cmdp.H * cmdp.S * cmdp.A)
    q[q_index] = np.maximum(values, 0.0)
    lam = np.maximum(-duals[cmdp.H * cmdp.S :], 0.0)
    return q.reshape(cmdp.H, cmdp.S, cmdp.A), lam * units[0] / units[1:]


def build_lp(cmdp: CMDP, rho: FloatArray, units: FloatArray, q_index: IntArray) -> Any:
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
    flow = np.concatenate((cmdp.mu, np.zeros((H - 1) * S)))
    return program(
        cmdp.r.reshape(-1)[q_index] / units[0],
        (np.zeros(len(q_index)), np.full(len(q_index), INFINITY)),
        (np.concatenate((flow, rho / units[1:])), np.concatenate((flow, np.full(N, INFINITY)))),
        (start.astype(np.int32), index, value),
        maximise=True,
    )
