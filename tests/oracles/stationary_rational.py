"""Exact answers for small models without a horizon: every deterministic policy, evaluated in fractions.

Whatever a policy may remember, its values (v, w_1 .. w_N) are a mixture of those of the stationary deterministic
policies. For discounted values and for totals this is the occupancy polytope; for long-run averages from a given start
it is a theorem of Derman (see Hordijk and Kallenberg 1984). So the optimum, the largest slack and the range of every
total are linear programs over finitely many points, solved here without rounding. Only the model's arrays are read, and
rows of probabilities are divided by their sums, as the package documents.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

import cmdpkit as ck

ZERO, ONE = Fraction(0), Fraction(1)


class Model:
    """The arrays of a model in fractions."""

    def __init__(self, cmdp: ck.CMDP) -> None:
        self.S, self.A, self.N, self.kind = cmdp.S, cmdp.A, cmdp.N, cmdp.criterion.kind
        self.gamma = Fraction(cmdp.criterion.discount) if cmdp.criterion.discount else ONE
        self.allowed = [[int(a) for a in np.flatnonzero(row)] for row in cmdp.actions[0]]
        self.P = [
            [normalised(cmdp.P[0, s, a]) if cmdp.actions[0, s, a] else None for a in range(self.A)]
            for s in range(self.S)
        ]
        self.X = [fractions(x) for x in (cmdp.r[0], *cmdp.g[:, 0])]  # [1 + N][S][A]
        self.mu = normalised(cmdp.mu)
        self.rho = [Fraction(float(x)) for x in cmdp.rho]
        self.absorbing = [
            all(self.P[s][a][s] == 1 and not any(x[s][a] for x in self.X) for a in self.allowed[s])
            for s in range(self.S)
        ]

    def reachable(self) -> list[int]:
        found = [s for s in range(self.S) if self.mu[s]]
        for s in found:
            for a in self.allowed[s]:
                found += [t for t in range(self.S) if self.P[s][a][t] and t not in found]
        return sorted(found)

    def shares(self, pi: Sequence[Sequence[Fraction]]) -> list[Fraction] | None:
        """Discounted or total visits [S], or long-run shares of time; None where a total is not finite."""
        P = [self._row(s, pi[s]) for s in range(self.S)]
        if self.kind == "average":
            return long_run(P, self.mu)
        if self.kind == "total":
            reached = _reached(P, self.mu)
            going = [s for s in reached if not self.absorbing[s]]
            if any(not any(self.absorbing[t] for t in _reached(P, _unit(s, self.S))) for s in going):
                return None
        else:
            going = list(range(self.S))
        d = [ZERO] * self.S
        rows = [[Fraction(int(i == j)) - self.gamma * P[i][j] for i in going] for j in going]
        for s, x in zip(going, solve(rows, [[self.mu[s]] for s in going]), strict=True):
            d[s] = x[0]
        return d

    def values(self, pi: Sequence[Sequence[Fraction]], *, absolute: bool = False) -> list[Fraction] | None:
        """(v, w_1 .. w_N) of the policy pi [S][A]; with `absolute`, of the absolute signals."""
        d = self.shares(pi)
        if d is None:
            return None
        size = abs if absolute else (lambda y: y)
        return [
            sum((d[s] * pi[s][a] * size(x[s][a]) for s in range(self.S) for a in range(self.A) if pi[s][a]), ZERO)
            for x in self.X
        ]

    def points(self, *, absolute: bool = False) -> list[tuple[Fraction, ...]]:
        """The values of every deterministic policy that is absorbed, without repetitions."""
        reached = self.reachable()
        free = [s for s in reached if not (self.kind == "total" and self.absorbing[s])]
        found = {}
        for choice in itertools.product(*(self.allowed[s] for s in free)):
            pi = [[ZERO] * self.A for _ in range(self.S)]
            for s in range(self.S):
                pi[s][self.allowed[s][0]] = ONE
            for s, a in zip(free, choice, strict=True):
                pi[s] = _unit(a, self.A)
            values = self.values(pi, absolute=absolute)
            if values is not None:
                found[tuple(values)] = None
        return list(found)

    def _row(self, s: int, p: Sequence[Fraction]) -> list[Fraction]:
        whole = sum(p, ZERO)
        rows = [(x / whole, self.P[s][a]) for a, x in enumerate(p) if x]
        return [sum((x * row[t] for x, row in rows), ZERO) for t in range(self.S)]


class Exact:
    """The optimum over mixtures of points (v, w): max v with w_n >= rho_n + t per_n, where t is asked for."""

    def __init__(self, points: Sequence[Sequence[Fraction]], rho: Sequence, per: Sequence) -> None:
        self.points, self.N = points, len(rho)
        self.rho, self.per = [Fraction(x) for x in rho], [Fraction(x) for x in per]
        self.slack = self._slack() if self.N else None

    def _slack(self) -> Fraction:
        """The largest t that some mixture reaches."""
        return maximise([Fraction(0)] * len(self.points), self.points, self.rho, self.per, free=True)

    def best(self, t=0) -> Fraction | None:
        """The largest value with every w_n at least rho_n + t per_n; None if that is impossible."""
        if self.slack is not None and self.slack < t:
            return None
        rho = [x + t * y for x, y in zip(self.rho, self.per, strict=True)]
        return maximise([p[0] for p in self.points], self.points, rho, self.per, free=False)

    def bound(self, prices: Sequence[float]) -> Fraction:
        """max over policies of v + prices . (w - rho): what these prices prove."""
        lam = [Fraction(float(x)) for x in prices]
        return max(
            p[0] + sum((x * (w - r) for x, w, r in zip(lam, p[1:], self.rho, strict=True)), ZERO) for p in self.points
        )


def maximise(costs, points, rho, per, *, free: bool) -> Fraction:
    """With `free`, the largest t such that a mixture has w >= rho + t per; otherwise the largest mixed cost at t >= 0.

    The second needs a feasible problem. Simplex with whole numbers: column j is multiplied by the common denominator of
    its entries, which only rescales its weight. Bland's rule, so that it ends.
    """
    M, N = len(points), len(rho)
    columns, objective = [], []
    for cost, p in zip(costs, points, strict=True):
        scale = math.lcm(cost.denominator, *(x.denominator for x in p[1:]))
        columns.append([scale, *(int(x * scale) for x in p[1:])])
        objective.append(int(cost * scale))
    scales = [math.lcm(r.denominator, y.denominator) for r, y in zip(rho, per, strict=True)]
    # Rows: sum of weights = 1; w_n - slack_n - t per_n = rho_n. Columns: points, slacks, t, right side.
    table = [[c[0] for c in columns] + [0] * (N + 1) + [1]]
    for n in range(N):
        k = scales[n]
        row = [c[1 + n] * k for c in columns] + [0] * (N + 1) + [int(rho[n] * k)]
        row[M + n], row[M + N] = -k, -int(per[n] * k)
        table.append(row)
    lp = _Tableau(table)
    lp.pivot(0, 0)
    for n in range(N):
        lp.pivot(1 + n, M + n)
    if N:
        # Slack n is below zero where point 0 misses its bound: let t fall until the worst of them is at zero.
        ratios = [Fraction(lp.table[1 + n][-1], lp.d) / per[n] for n in range(N)]
        lp.pivot(1 + min(range(N), key=lambda n: ratios[n]), M + N)
        t = lp.maximise([0] * (M + N) + [1], {M + N}, enough=None if free else 0)
        if free:
            return t
        if M + N in lp.basis:  # t is at least 0 now, and becomes a variable like the others that goes to its limit 0
            lp.settle(M + N)
    return lp.maximise(objective + [0] * (N + 1), set(), closed={M + N})


class _Tableau:
    """Rows A x = b with whole numbers over one denominator d; the last column is b."""

    def __init__(self, table: list[list[int]]) -> None:
        self.table, self.d, self.basis = table, 1, [-1] * len(table)

    def pivot(self, r: int, c: int) -> None:
        row, d, p = self.table[r], self.d, self.table[r][c]
        for i, other in enumerate(self.table):
            if i != r:
                factor = other[c]
                if factor:
                    self.table[i] = [(x * p - factor * y) // d for x, y in zip(other, row, strict=True)]
                else:
                    self.table[i] = [x * p // d for x in other]
        self.d = p
        if p < 0:
            self.d, self.table = -p, [[-x for x in other] for other in self.table]
        if r < len(self.basis):
            self.basis[r] = c

    def maximise(self, costs: list[int], unbounded_below: set[int], *, closed=frozenset(), enough=None) -> Fraction:
        """The largest costs . x from the present feasible basis; ends early once it is at least `enough`."""
        objective = [-x * self.d for x in costs] + [0]
        for row, j in zip(self.table, self.basis, strict=True):
            if costs[j]:
                objective = [x + costs[j] * y for x, y in zip(objective, row, strict=True)]
        self.table.append(objective)
        stuck = False
        while enough is None or self.table[-1][-1] < enough * self.d:
            top = self.table[-1]
            better = [j for j, x in enumerate(top[:-1]) if x < 0 and j not in closed]
            if not better:
                break
            c = better[0] if stuck else min(better, key=lambda j: top[j])
            rows = [i for i, j in enumerate(self.basis) if self.table[i][c] > 0 and j not in unbounded_below]
            r = min(rows, key=lambda i: (Fraction(self.table[i][-1], self.table[i][c]), self.basis[i]))
            stuck = self.table[r][-1] == 0
            self.pivot(r, c)
        return Fraction(self.table.pop()[-1], self.d)

    def settle(self, c: int) -> None:
        """Let the basic variable c, which is not negative, fall to zero: a column that lets it fall takes its place."""
        self.maximise([-int(j == c) for j in range(len(self.table[0]) - 1)], set())
        if c in self.basis:  # it is zero, in a basis that is degenerate there
            r = self.basis.index(c)
            other = next((j for j, x in enumerate(self.table[r][:-1]) if x and j != c), None)
            if other is not None:
                self.pivot(r, other)


def long_run(P: Sequence[Sequence[Fraction]], mu: Sequence[Fraction]) -> list[Fraction]:
    """Long-run shares of time [S] of a chain from mu: by recurrent classes and the probability of ending in each."""
    S = len(mu)
    reach = [set(_reached(P, _unit(s, S))) for s in range(S)]
    recurrent = [all(s in reach[t] for t in reach[s]) for s in range(S)]
    going = [s for s in range(S) if not recurrent[s]]
    entered = list(mu)
    if going:
        rows = [[Fraction(int(i == j)) - P[i][j] for i in going] for j in going]
        visits = solve(rows, [[mu[s]] for s in going])
        for s, x in zip(going, visits, strict=True):
            for t in range(S):
                if recurrent[t]:
                    entered[t] += x[0] * P[s][t]
    shares = [ZERO] * S
    for members in {tuple(sorted(reach[s])) for s in range(S) if recurrent[s]}:
        mass = sum((entered[s] for s in members), ZERO)
        if not mass:
            continue
        rows = [[Fraction(int(i == j)) - P[i][j] for i in members] for j in members[1:]] + [[ONE] * len(members)]
        found = solve(rows, [[ZERO]] * (len(members) - 1) + [[mass]])
        for s, x in zip(members, found, strict=True):
            shares[s] = x[0]
    return shares


def solve(rows: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
    """The solution of a square system with several right sides, by elimination without rounding."""
    m = [[*row, *right] for row, right in zip(rows, b, strict=True)]
    n = len(m)
    for i in range(n):
        top = next(k for k in range(i, n) if m[k][i])
        m[i], m[top] = m[top], m[i]
        m[i] = [x / m[i][i] for x in m[i]]
        for k in range(n):
            if k != i and m[k][i]:
                factor = m[k][i]
                m[k] = [x - factor * y for x, y in zip(m[k], m[i], strict=True)]
    return [row[n:] for row in m]


def values_of(model: Model, policy: ck.Policy | ck.Mixture) -> list[Fraction] | None:
    """(v, w_1 .. w_N) of what `solve` returns, with the probabilities it holds."""
    if isinstance(policy, ck.Policy):
        return model.values(shown(policy))
    parts = [model.values(shown(part)) for part in policy.policies]
    weights = normalised(policy.weights)
    if any(part is None for part in parts):
        return None
    return [sum((x * part[n] for x, part in zip(weights, parts, strict=True)), ZERO) for n in range(model.N + 1)]


def shown(policy: ck.Policy) -> list[list[Fraction]]:
    """The table of a stationary policy in fractions, rows divided by their sums."""
    return [normalised(row) for row in policy.pi[0]]


def normalised(row) -> list[Fraction]:
    found = [Fraction(float(x)) for x in row]
    whole = sum(found, ZERO)
    return [x / whole for x in found]


def fractions(x) -> list[list[Fraction]]:
    return [[Fraction(float(y)) for y in row] for row in x]


def _unit(i: int, n: int) -> list[Fraction]:
    return [Fraction(int(j == i)) for j in range(n)]


def _reached(P: Sequence[Sequence[Fraction]], mu: Sequence[Fraction]) -> list[int]:
    found = [s for s in range(len(mu)) if mu[s]]
    for s in found:
        found += [t for t in range(len(mu)) if P[s][t] and t not in found]
    return found
