"""LU factors of small full matrices, compiled, so that they are computed on one thread and in one order.

A library of linear algebra may use several threads even for twenty unknowns. They wait for each other for longer than
they work, and the last digits then depend on their number. Zeros below the diagonal are skipped, so that matrices of
queues and boards take little more time than sparse ones.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray


class Factors:
    """LU factors of a full matrix [n, n] with row exchanges."""

    def __init__(self, matrix: FloatArray) -> None:
        self.matrix = matrix
        self.lu = np.array(matrix, dtype=float)
        self.order = np.arange(len(matrix))
        _factorise(self.lu, self.order)

    def solve(self, b: FloatArray, trans: str) -> FloatArray:
        """The solution of A x = b, or of A^T x = b if trans is "T", with one step of iterative refinement."""
        right = np.array(b, dtype=float).reshape(len(b), -1)
        x = self._once(right, trans == "T")
        _subtract(self.matrix, trans == "T", x, right)
        return (x + self._once(right, trans == "T")).reshape(b.shape)

    def _once(self, b: FloatArray, transposed: bool) -> FloatArray:
        if not transposed:
            x: FloatArray = b[self.order]
            _substitute(self.lu, x)
            return x
        y = b.copy()
        _substitute_transposed(self.lu, y)
        x = np.empty_like(y)
        x[self.order] = y
        return x


@compiled
def _factorise(lu, order):
    """Replace lu [n, n] by its factors, and order [n] by the row of the matrix that each of their rows comes from."""
    n = len(lu)
    for k in range(n):
        top = k
        for i in range(k + 1, n):
            if abs(lu[i, k]) > abs(lu[top, k]):
                top = i
        if top != k:
            order[k], order[top] = order[top], order[k]
            for j in range(n):
                lu[k, j], lu[top, j] = lu[top, j], lu[k, j]
        for i in range(k + 1, n):
            if lu[i, k] != 0.0:
                factor = lu[i, k] / lu[k, k]
                lu[i, k] = factor
                for j in range(k + 1, n):
                    lu[i, j] -= factor * lu[k, j]


@compiled
def _substitute(lu, x):
    """Solve L U x = b in place, where x [n, K] is b at first."""
    n, K = x.shape
    for i in range(n):
        for j in range(i):
            if lu[i, j] != 0.0:
                for k in range(K):
                    x[i, k] -= lu[i, j] * x[j, k]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            if lu[i, j] != 0.0:
                for k in range(K):
                    x[i, k] -= lu[i, j] * x[j, k]
        for k in range(K):
            x[i, k] /= lu[i, i]


@compiled
def _substitute_transposed(lu, x):
    """Solve (L U)^T x = b in place, where x [n, K] is b at first."""
    n, K = x.shape
    for i in range(n):
        for k in range(K):
            x[i, k] /= lu[i, i]
        for j in range(i + 1, n):
            if lu[i, j] != 0.0:
                for k in range(K):
                    x[j, k] -= lu[i, j] * x[i, k]
    for i in range(n - 1, -1, -1):
        for j in range(i):
            if lu[i, j] != 0.0:
                for k in range(K):
                    x[j, k] -= lu[i, j] * x[i, k]


@compiled
def _subtract(matrix, transposed, x, b):
    """Subtract A x, or A^T x, from b [n, K] in place."""
    n, K = x.shape
    for i in range(n):
        for j in range(n):
            if matrix[i, j] != 0.0:
                for k in range(K):
                    if transposed:
                        b[j, k] -= matrix[i, j] * x[i, k]
                    else:
                        b[i, k] -= matrix[i, j] * x[j, k]
