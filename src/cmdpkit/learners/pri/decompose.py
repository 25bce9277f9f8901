"""Decomposition-Opt: the weights with which the deterministic policies of an action set are played.

    maximise    sum_m alpha_m v_m
    subject to  sum_m alpha_m = 1,  alpha_m >= e',
                | sum_m alpha_m w_mn - rho_n | <= rad   for all n     (as printed), or
                sum_m alpha_m w_mn >= rho_n             for all n     (one-sided, without relaxation)

over *estimated* values v_m, w_mn. Where no weights satisfy that, the smallest margin min_n sum_m alpha_m w_mn - rho_n
is maximised instead, and the weights say so.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.transitions import FloatArray, IntArray

TOLERANCE = 1e-9
ROUNDING = 1e-9  # plays this far below a whole number are one
COLD = -1  # basis status of a variable when there is no basis to start from

Basis = NDArray[np.int64]  # [1 + M + N + 1]: HiGHS's status of t, the weights, the rows


class Weights(NamedTuple):
    """A solution, and the basis to start the next one from."""

    alpha: FloatArray  # [M]
    feasible: bool
    basis: Basis


class DecompositionOpt:
    """The LP, kept between rounds; its answer depends on the arguments alone, to the bit, warm start included.

    Column 0 is t, then the M weights. Row n: sum_m alpha_m w_mn - t, row N: sum_m alpha_m. The weights are found with t
    fixed at 0; the smallest margin is t.

    >>> lp = DecompositionOpt(M=2, N=1)
    >>> lp.solve(np.array([2.0, 1.0]), np.array([[0.0], [1.0]]), np.array([0.25]), 0.01, None, lp.cold).alpha.tolist()
    [0.75, 0.25]
    """

    def __init__(self, M: int, N: int) -> None:
        self.M, self.N = M, N
        self.cold: Basis = np.full(2 + M + N, COLD, dtype=np.int64)
        self.highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("presolve", "off"),
            ("solver", "simplex"),
            ("primal_feasibility_tolerance", TOLERANCE),
            ("dual_feasibility_tolerance", TOLERANCE),
        ):
            self.highs.setOptionValue(option, value)
        self.lp = lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_, lp.sense_ = 1 + M, N + 1, highspy.ObjSense.kMaximize
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.arange(0, (1 + M) * (N + 1) + 1, 1 + M, dtype=np.int32)
        lp.a_matrix_.index_ = np.tile(np.arange(1 + M, dtype=np.int32), N + 1)

    def solve(
        self, v: FloatArray, w: FloatArray, rho: FloatArray, floor: float, rad: float | None, basis: Basis
    ) -> Weights:
        """Weights for estimates v [M], w [M, N]; one-sided if `rad` is None. `basis` is the last one, or `cold`."""
        rows = np.ones((self.N + 1, 1 + self.M))
        rows[:-1, 0], rows[:-1, 1:], rows[-1, 0] = -1.0, w.T, 0.0
        self.lp.a_matrix_.value_ = rows.ravel()
        unbounded = np.full(self.N, highspy.kHighsInf)
        lower, upper = (rho, unbounded) if rad is None else (rho - rad, rho + rad)
        found = self._run(np.append(0.0, v), 0.0, floor, lower, upper, basis)
        if found is not None:
            return Weights(found, True, self._basis())
        margin = np.append(1.0, np.zeros(self.M))
        found = self._run(margin, highspy.kHighsInf, floor, rho, unbounded, self.cold)
        if found is None:
            raise RuntimeError(f"Decomposition-Opt found no weights for floor {floor} and {self.M} policies")
        return Weights(found, False, self.cold.copy())

    def _run(
        self, costs: FloatArray, t_max: float, floor: float, lower: FloatArray, upper: FloatArray, basis: Basis
    ) -> FloatArray | None:
        """The weights of an optimal basic solution; None where there is no feasible one."""
        lp, highs = self.lp, self.highs
        lp.col_cost_ = costs
        lp.col_lower_ = np.append(-t_max, np.full(self.M, floor))
        lp.col_upper_ = np.append(t_max, np.ones(self.M))
        lp.row_lower_, lp.row_upper_ = np.append(lower, 1.0), np.append(upper, 1.0)
        highs.passModel(lp)  # forgets everything that the basis does not say; changing the old model would not
        if basis[0] != COLD:
            highs.setBasis(_highs_basis(basis, 1 + self.M))
        highs.run()
        status = highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"Decomposition-Opt ended as {highs.modelStatusToString(status)}")
        alpha = np.maximum(np.array(highs.getSolution().col_value)[1:], 0.0)
        normal: FloatArray = alpha / alpha.sum()
        return normal

    def _basis(self) -> Basis:
        basis = self.highs.getBasis()
        return np.array([int(x) for x in (*basis.col_status, *basis.row_status)], dtype=np.int64)


def _highs_basis(statuses: Basis, columns: int) -> highspy.HighsBasis:
    basis = highspy.HighsBasis()
    listed = [highspy.HighsBasisStatus(int(x)) for x in statuses]
    basis.col_status, basis.row_status, basis.valid = listed[:columns], listed[columns:], True
    return basis


def whole_plays(exact: FloatArray) -> IntArray:
    """Plays [M] that sum to a whole number, as whole numbers with the same sum: rounded down, largest remainders up.

    >>> whole_plays(np.array([2.5, 1.25, 1.25])).tolist()
    [3, 1, 1]
    """
    plays = round(float(exact.sum()))
    counts = np.maximum(np.floor(exact + ROUNDING), 0.0).astype(np.int64)
    while counts.sum() != plays:  # too many only if some of the exact plays are negative
        step = 1 if counts.sum() < plays else -1
        counts[np.argmax(step * (exact - counts) - (counts + step < 0) * plays)] += step
    return counts
