"""The master LP in exact arithmetic: the last resort where rounding defeats a floating-point solver.

A few rows and some hundred columns are solved by the simplex method on fractions. Numbers are taken as they are, so the
answer is exact for them, and the program below always has one. It takes milliseconds where HiGHS takes microseconds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from cmdpkit.model.transitions import FloatArray

Table = Any  # object array of fractions


def best_mixture(v: FloatArray, w: FloatArray, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights of the columns and multipliers lam [N]: the largest value sum_j alpha_j v_j with utilities at least rho.

    v [M], w [M, N]. Where no mixture reaches rho, all thresholds are lowered by the least amount that helps.
    """
    tableau = _Tableau(w, rho)
    N = len(rho)
    short = tableau.add_column([Fraction(-1)] * N + [Fraction(0)])
    worst = min(range(N), key=lambda n: tableau.rhs[n])
    if tableau.rhs[worst] < 0:
        tableau.pivot(worst, short)
        tableau.maximise({short: Fraction(-1)})
    tableau.fix(short)
    reduced = tableau.maximise({j: Fraction(float(x)) for j, x in enumerate(v)})
    return tableau.weights(), tableau.multipliers(reduced)


def farthest_mixture(w: FloatArray, rho: FloatArray, per: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Weights, multipliers y [N] and t: the largest t with utilities at least rho + t per."""
    tableau = _Tableau(w, rho)
    each = [Fraction(float(x)) for x in per]
    least = min(b / x for b, x in zip(tableau.rhs, each, strict=False))
    for n, x in enumerate(each):  # t is counted from what the first column reaches, which makes it nonnegative
        tableau.rhs[n] -= least * x
    more = tableau.add_column([*each, Fraction(0)])
    reduced = tableau.maximise({more: Fraction(1)})
    return tableau.weights(), tableau.multipliers(reduced), float(least + tableau.value_of(more))


class _Tableau:
    """Rows sum_j alpha_j (w_0n - w_jn) + surplus_n = w_0n - rho_n, and sum_j alpha_j = 1, solved for a basis.

    Columns: the M weights, then N surpluses, then what is added. Column 0 of the weights is the one that misses its
    worst threshold by least: it starts in the basis.
    """

    def __init__(self, w: FloatArray, rho: FloatArray) -> None:
        self.M, self.N = w.shape
        exact: Table = np.array([[Fraction(float(x)) for x in row] for row in w], dtype=object)
        target: Table = np.array([Fraction(float(x)) for x in rho], dtype=object)
        first = int((w - rho).min(axis=1).argmax())
        self.table: Table = np.full((self.N + 1, self.M + self.N), Fraction(0), dtype=object)
        self.table[:-1, : self.M] = (exact[first] - exact).T
        self.table[-1, : self.M] = Fraction(1)
        for n in range(self.N):
            self.table[n, self.M + n] = Fraction(1)
        self.rhs: Table = np.array([*(exact[first] - target), Fraction(1)], dtype=object)
        self.basis = [*range(self.M, self.M + self.N), first]
        self.closed: set[int] = set()  # columns that may not enter

    def add_column(self, entries: list[Fraction]) -> int:
        """Another variable, written in the starting basis; its number."""
        column: Table = np.array(entries, dtype=object)
        self.table = np.column_stack((self.table, column))
        return int(self.table.shape[1]) - 1

    def pivot(self, row: int, column: int) -> None:
        """Let `column` replace the basic variable of `row`."""
        scale = self.table[row, column]
        self.table[row] = self.table[row] / scale
        self.rhs[row] = self.rhs[row] / scale
        for i in range(self.N + 1):
            factor = self.table[i, column]
            if i != row and factor:
                self.table[i] = self.table[i] - factor * self.table[row]
                self.rhs[i] = self.rhs[i] - factor * self.rhs[row]
        self.basis[row] = column

    def fix(self, column: int) -> None:
        """Keep a variable at its present value from now on."""
        self.closed.add(column)
        if column in self.basis:
            row = self.basis.index(column)
            self.rhs[row] = Fraction(0)  # the thresholds move by its value
            others = [j for j in np.flatnonzero(self.table[row] != 0) if j not in self.closed]
            if others:
                self.pivot(row, int(others[0]))

    def maximise(self, costs: dict[int, Fraction]) -> Table:
        """Simplex steps until no column improves; the reduced costs of all columns."""
        reduced: Table = np.array([costs.get(j, Fraction(0)) for j in range(self.table.shape[1])], dtype=object)
        for row, j in enumerate(self.basis):
            if j in costs:
                reduced = reduced - costs[j] * self.table[row]
        stuck = False
        while True:
            better = [j for j in np.flatnonzero(reduced > 0) if j not in self.closed]
            if not better:
                return reduced
            # After a step of length zero the first column enters (Bland's rule), so that no basis comes back.
            entering = int(better[0] if stuck else max(better, key=lambda j: reduced[j]))
            row = self._leaving(entering)
            stuck = self.rhs[row] == 0
            self.pivot(row, entering)
            reduced = reduced - reduced[entering] * self.table[row]

    def _leaving(self, entering: int) -> int:
        """The row whose variable reaches zero first; all programs here are bounded, so there is one."""
        rows = [i for i in range(self.N + 1) if self.table[i, entering] > 0]
        return min(rows, key=lambda i: (self.rhs[i] / self.table[i, entering], self.basis[i]))

    def value_of(self, column: int) -> Fraction:
        return Fraction(self.rhs[self.basis.index(column)]) if column in self.basis else Fraction(0)

    def weights(self) -> FloatArray:
        """[M], of the columns."""
        return np.array([float(self.value_of(j)) for j in range(self.M)])

    def multipliers(self, reduced: Table) -> FloatArray:
        """[N], what a unit more of each threshold costs."""
        return np.array([float(-x) for x in reduced[self.M : self.M + self.N]])
