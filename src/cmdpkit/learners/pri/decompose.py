"""Decomposition-Opt: the weights with which the deterministic policies of an action set are played.

    maximise    sum_m alpha_m v_m
    subject to  sum_m alpha_m = 1,  alpha_m >= e',
                | sum_m alpha_m w_mn - rho_n | <= rad   for all n     (as printed), or
                sum_m alpha_m w_mn >= rho_n             for all n     (one-sided, without relaxation)

over *estimated* values v_m, w_mn. Where no weights satisfy the constraints, the smallest margin
min_n sum_m alpha_m w_mn - rho_n is maximised instead, and the answer is marked as infeasible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.highs import INFINITY, Basis, answer, basis_of, configured, program, run, start_from
from cmdpkit.model.tolerances import LP_TOLERANCE, WHOLE_PLAYS
from cmdpkit.model.transitions import FloatArray, IntArray

COLD = -1  # in place of the status of a variable when there is no basis to start from


class Weights(NamedTuple):
    """A solution, and the basis to start the next one from."""

    alpha: FloatArray  # [M]: the weight of each policy
    feasible: bool  # whether the weights meet the thresholds, by the estimates
    basis: Basis  # [1 + M + N + 1]: the status of t, of the weights and of the rows


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
        self.highs = configured(tolerance=LP_TOLERANCE, presolve=False)
        self.start = np.arange(0, (1 + M) * (N + 1) + 1, 1 + M, dtype=np.int32)
        self.index = np.tile(np.arange(1 + M, dtype=np.int32), N + 1)

    def solve(
        self, v: FloatArray, w: FloatArray, rho: FloatArray, floor: float, rad: float | None, basis: Basis
    ) -> Weights:
        """Weights for estimates v [M], w [M, N]; one-sided if `rad` is None. `basis` is the last one, or `cold`."""
        rows = np.ones((self.N + 1, 1 + self.M))
        rows[:-1, 0], rows[:-1, 1:], rows[-1, 0] = -1.0, w.T, 0.0
        unbounded = np.full(self.N, INFINITY)
        lower, upper = (rho, unbounded) if rad is None else (rho - rad, rho + rad)
        found = self._run(rows, np.append(0.0, v), 0.0, floor, (lower, upper), basis)
        if found is not None:
            return Weights(found, True, basis_of(self.highs))
        margin = np.append(1.0, np.zeros(self.M))
        found = self._run(rows, margin, INFINITY, floor, (rho, unbounded), self.cold)
        if found is None:
            raise RuntimeError(f"Decomposition-Opt found no weights for floor {floor} and {self.M} policies")
        return Weights(found, False, self.cold.copy())

    def _run(
        self,
        rows: FloatArray,
        costs: FloatArray,
        t_max: float,
        floor: float,
        utilities: tuple[FloatArray, FloatArray],
        basis: Basis,
    ) -> FloatArray | None:
        """The weights of an optimal basic solution; None where there is no feasible one."""
        limits = np.append(-t_max, np.full(self.M, floor)), np.append(t_max, np.ones(self.M))
        lower, upper = (np.append(x, 1.0) for x in utilities)
        matrix = self.start, self.index, rows.ravel()
        # A new model forgets everything that the basis does not say; changing the old one would not.
        self.highs.passModel(program(costs, limits, (lower, upper), matrix, maximise=True, by_rows=True))
        if basis[0] != COLD:
            start_from(self.highs, basis, 1 + self.M)
        ended = run(self.highs)
        if ended == "infeasible":
            return None
        if ended != "optimal":
            raise RuntimeError(f"Decomposition-Opt ended as {ended}")
        alpha = np.maximum(answer(self.highs)[0][1:], 0.0)
        normal: FloatArray = alpha / alpha.sum()
        return normal


def whole_plays(exact: FloatArray) -> IntArray:
    """Plays [M] that sum to a whole number, as whole numbers with the same sum: rounded down, largest remainders up.

    >>> whole_plays(np.array([2.5, 1.25, 1.25])).tolist()
    [3, 1, 1]
    """
    plays = round(float(exact.sum()))
    counts = np.maximum(np.floor(exact + WHOLE_PLAYS), 0.0).astype(np.int64)
    while counts.sum() != plays:  # too many only if some of the exact plays are negative
        step = 1 if counts.sum() < plays else -1
        counts[np.argmax(step * (exact - counts) - (counts + step < 0) * plays)] += step
    return counts
