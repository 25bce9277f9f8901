"""An exact answer: the occupancy LP on fractions, written from the definition, and exact evaluation of policies.

The simplex method on whole numbers (Edmonds' pivots: every entry is a determinant over a common denominator), so that
nothing is ever rounded. Only the model's arrays are read. For small models: some thirty variables.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cmdpkit.model.cmdp import CMDP


class Simplex:
    """Rows A x = b with x >= 0, entries table[i][j] / d; the last column is b. `free` variables may be negative."""

    def __init__(self, rows: list[list[Fraction]], free: set[int]) -> None:
        self.table = []
        for row in rows:
            scale = math.lcm(*(x.denominator for x in row))
            self.table.append([int(x * scale) for x in row])
        self.d, self.free = 1, free
        self.basis = [-1] * len(rows)

    def pivot(self, r: int, c: int) -> None:
        row, d = self.table[r], self.d
        p = row[c]
        for i, other in enumerate(self.table):
            if i != r:
                factor = other[c]
                self.table[i] = [(x * p - factor * y) // d for x, y in zip(other, row, strict=True)]
        self.d = p
        if p < 0:
            self.d, self.table = -p, [[-x for x in other] for other in self.table]
        if r < len(self.basis):
            self.basis[r] = c

    def maximise(self, costs: list[Fraction]) -> Fraction:
        """The largest costs . x; the present basis must be feasible, the program bounded."""
        scale = math.lcm(*(x.denominator for x in costs))
        objective = [int(-x * scale) * self.d for x in costs] + [0]
        for row, j in zip(self.table, self.basis, strict=True):
            factor = int(-costs[j] * scale)
            if factor:
                objective = [x - factor * y for x, y in zip(objective, row, strict=True)]
        self.table.append(objective)
        stuck = False
        while True:
            better = [j for j, x in enumerate(self.table[-1][:-1]) if x < 0]
            if not better:
                break
            c = better[0] if stuck else min(better, key=lambda j: self.table[-1][j])  # Bland's rule where it is stuck
            rows = [i for i, j in enumerate(self.basis) if self.table[i][c] > 0 and j not in self.free]
            r = min(rows, key=lambda i: (Fraction(self.table[i][-1], self.table[i][c]), self.basis[i]))
            stuck = self.table[r][-1] == 0
            self.pivot(r, c)
        return Fraction(self.table.pop()[-1], self.d * scale)

    def copy(self) -> Simplex:
        new = object.__new__(Simplex)
        new.table, new.d = [list(row) for row in self.table], self.d
        new.free, new.basis = set(self.free), list(self.basis)
        return new


class Exact:
    """max <q, objective> over flows q with <q, g_n> >= rho_n + t per_n, where t is what is asked for."""

    def __init__(self, cmdp: CMDP, objective, g, rho, per) -> None:
        H, S, A, N = cmdp.H, cmdp.S, cmdp.A, len(g)
        self.places = [(h, s, a) for h in range(H) for s in range(S) for a in range(A) if cmdp.actions[h, s, a]]
        Q = len(self.places)
        self.t = Q + N
        rows = [[Fraction(0)] * (Q + N + 2) for _ in range(H * S + N)]
        for j, (h, s, a) in enumerate(self.places):
            rows[h * S + s][j] += 1
            for s_next in np.flatnonzero(cmdp.P[h, s, a]) if h + 1 < H else ():
                rows[(h + 1) * S + s_next][j] -= Fraction(float(cmdp.P[h, s, a, s_next]))
            for n in range(N):
                rows[H * S + n][j] = Fraction(float(g[n][h, s, a]))
        for s in range(S):
            rows[s][-1] = Fraction(float(cmdp.mu[s]))
        for n in range(N):
            row = rows[H * S + n]
            row[Q + n], row[self.t], row[-1] = Fraction(-1), -Fraction(per[n]), Fraction(rho[n])
        self.lp = Simplex(rows, {self.t})
        self.costs = [Fraction(float(objective[place])) for place in self.places] + [Fraction(0)] * (N + 1)
        for h in range(H):
            for s in range(S):
                self.lp.pivot(h * S + s, next(j for j, place in enumerate(self.places) if place[:2] == (h, s)))
        for n in range(N):
            self.lp.pivot(H * S + n, Q + n)
        if N:
            each = [Fraction(x) for x in per]
            slacks = [Fraction(self.lp.table[H * S + n][-1], self.lp.d) / each[n] for n in range(N)]
            self.lp.pivot(H * S + min(range(N), key=lambda n: slacks[n]), self.t)
            self.slack = self.lp.maximise([Fraction(int(j == self.t)) for j in range(len(self.costs))])

    def best(self, t=0) -> Fraction | None:
        """The largest objective with every <q, g_n> at least rho_n + t per_n; None if that is impossible."""
        lp = self.lp.copy()
        if lp.free and self.t in lp.basis:
            if self.slack < t:
                return None
            # t is counted from what is asked for: a variable like the others, which may stay above it.
            row, shift = lp.table[lp.basis.index(self.t)], Fraction(t)
            lp.table = [[x * shift.denominator for x in other] for other in lp.table]
            lp.d *= shift.denominator
            row = lp.table[lp.basis.index(self.t)]
            row[-1] -= shift.numerator * lp.d // shift.denominator
            lp.free = set()
        return lp.maximise(self.costs)


def ranges(cmdp: CMDP, x) -> tuple[Fraction, Fraction, Fraction]:
    """The least and largest total of a signal over all policies, and the largest of its absolute value."""
    ends = []
    for pick, sign in ((min, lambda y: y), (max, lambda y: y), (max, abs)):
        V = [Fraction(0)] * cmdp.S
        for h in reversed(range(cmdp.H)):
            V = [
                pick(
                    sign(Fraction(float(x[h, s, a])))
                    + sum(
                        (
                            Fraction(float(cmdp.P[h, s, a, s_next])) * V[s_next]
                            for s_next in np.flatnonzero(cmdp.P[h, s, a])
                            if V[s_next]
                        ),
                        Fraction(0),
                    )
                    for a in np.flatnonzero(cmdp.actions[h, s])
                )
                for s in range(cmdp.S)
            ]
        ends.append(sum((Fraction(float(m)) * y for m, y in zip(cmdp.mu, V, strict=True)), Fraction(0)))
    return ends[0], ends[1], ends[2]


def value(cmdp: CMDP, pi, x) -> Fraction:
    """The total of a signal under pi [H, S, A], exactly."""
    V = [Fraction(0)] * cmdp.S
    for h in reversed(range(cmdp.H)):
        V = [
            sum(
                (
                    Fraction(float(pi[h, s, a]))
                    * (
                        Fraction(float(x[h, s, a]))
                        + sum(
                            (
                                Fraction(float(cmdp.P[h, s, a, s_next])) * V[s_next]
                                for s_next in np.flatnonzero(cmdp.P[h, s, a])
                            ),
                            Fraction(0),
                        )
                    )
                    for a in np.flatnonzero(pi[h, s])
                ),
                Fraction(0),
            )
            for s in range(cmdp.S)
        ]
    return sum((Fraction(float(m)) * y for m, y in zip(cmdp.mu, V, strict=True)), Fraction(0))


def tolerance(cmdp: CMDP, n: int) -> Fraction:
    """As documented: 1e-10 of the range of the total, and four times the bound on the rounding of its evaluation."""
    low, high, size = ranges(cmdp, cmdp.g[n])
    width = max(int((cmdp.P > 0).sum(axis=-1).max()), 1)
    operations = cmdp.H * (width + 4) + int((cmdp.mu > 0).sum()) + 4 * cmdp.N + 16
    allowed = Fraction(1e-10) * (high - low) + 4 * operations * Fraction(1, 2**53) * size
    return allowed or Fraction(1e-10)
