"""The master problem of column generation: the best mixture of the policies found so far, and which prices to try next.

The problem is a small LP, which is solved in one of three ways. With one constraint it is the upper hull of points in
the plane. With several constraints HiGHS solves it, and keeps the program between rounds. Where HiGHS fails or misses
a threshold, the same program is solved by the simplex method on fractions. The given numbers are taken as they are, so
the answer is exact for them, and there always is one; it takes milliseconds where HiGHS takes microseconds.

Every price gives a valid bound, and a policy that may join the pool: a bad guess costs a round and nothing else. The
prices of the master are where the tangents of the Lagrangian bound intersect. In a model with many states the bound is
almost a smooth function of the prices, and methods for smooth functions mostly find its minimum in fewer rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cmdpkit.model.tolerances import FEASIBLE
from cmdpkit.model.transitions import FloatArray

if TYPE_CHECKING:
    from cmdpkit.exact.columns import PolicyColumn  # which itself needs the master from here


import highspy

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import IntArray
from cmdpkit.operators.row_lists import matrix_of

Table = Any  # object array of fractions

CLEARLY = 1e-6  # a point that misses the bound by less, scaled, does not tell the slope
STEPS = 2_000  # of the simplex method, in one round; a program with so few rows takes a few dozen
MIN_AVERAGED = 3  # constraints from which on averaged prices save rounds
MIN_DIFFERENT = 100  # decisions in which two policies differ, from which on a price in between is interpolated
NEAR = 0.1  # a guess this close to an end of the interval, as a share of its length, is moved away from that end
LEAST = 0.01  # no guess is closer to an end than this
MAX_GAP_LEFT = 0.9  # a round at other prices than the master's that leaves a larger share of the gap has failed


def hull(w: FloatArray, v: FloatArray, rho: float, band: float) -> tuple[FloatArray, FloatArray, float]:
    """Weights, multiplier and value with one constraint: the upper hull of the points (w, v) with w >= rho - `band`."""
    weights = np.zeros(len(w))
    met = w >= rho - band
    top = np.flatnonzero(met)[v[met].argmax()]
    weights[top] = 1.0
    below = np.flatnonzero(~met & (v > v[top]))
    if not len(below):
        return weights, np.zeros(1), float(v[top])
    above = np.flatnonzero(met)
    slopes = (v[below, None] - v[None, above]) / (w[None, above] - w[below, None])
    reached = v[above] + np.maximum(slopes, 0.0).max(axis=0) * np.maximum(w[above] - rho, 0.0)
    j = int(reached.argmax())
    # Take the steepest line from the chosen policy. If w[hi] = rho, all lines reach the same value at rho, but only the
    # slope of the steepest one gives an upper bound of v*.
    i = int(slopes[:, j].argmax())
    lo, hi = below[i], above[j]
    share = min(1.0, max(0.0, (rho - w[lo]) / (w[hi] - w[lo])))
    weights[top] = 0.0
    weights[lo], weights[hi] = 1 - share, share
    return weights, np.array([max(0.0, float(slopes[i, j]))]), float(weights @ v)


def looser_price(w: FloatArray, v: FloatArray, rho: float, value: float) -> float:
    """The smallest price of one constraint that proves `value` at rho; at a kink, the slope towards looser bounds."""
    below = w < rho - CLEARLY
    slopes = (v[below] - value) / (rho - w[below])
    return max(0.0, float(slopes.max(initial=0.0)))


class Master:
    """The master LP in HiGHS, kept between rounds: new columns are added, the basis is reused.

    Rows 0..N-1: sum_j alpha_j w_jn - per_n t >= rho_n; row N: sum_j alpha_j = 1. Column 0 is t, fixed at 0 while the
    value is maximised. Numbers are multiplied by `MAGNIFICATION`, because the smallest absolute tolerance of HiGHS is
    1e-10. With ``exactly`` HiGHS is not asked, and the program is solved in fractions.
    """

    MAGNIFICATION = 1e3

    def __init__(self, N: int) -> None:
        self.N, self.size = N, 0
        self.highs = configured(presolve=False, primal=True, iterations=STEPS)
        empty_maximisation(self.highs, (np.append(np.zeros(N), 1.0), np.append(np.full(N, INFINITY), 1.0)))
        self.rows = np.arange(N + 1, dtype=np.int32)
        self.highs.addCol(0.0, 0.0, 0.0, N, self.rows[:N], -np.ones(N))

    def maximise(
        self, v: FloatArray, w: FloatArray, rho: FloatArray, *, exactly: bool
    ) -> tuple[FloatArray, FloatArray, float]:
        """Weights, lam, value of the best mixture with utilities at least rho; v [M], w [M, N]."""
        found = None
        if not exactly:
            self._update(w, rho)
            self.highs.changeColBounds(0, 0.0, 0.0)
            self._set_costs(np.concatenate(([0.0], self.MAGNIFICATION * v)))
            found = self._run()
        if found is None or (found[0] @ w - rho).min() < -FEASIBLE / 4:
            found = best_mixture(v, w, rho)
        weights, lam = found
        return weights, lam, float(weights @ v)

    def exceed(
        self, w: FloatArray, rho: FloatArray, per: FloatArray, *, exactly: bool
    ) -> tuple[FloatArray, FloatArray, float]:
        """Weights, y and t of the mixture with the largest t such that its utilities are at least rho + t per."""
        found = None
        if not exactly:
            self._update(w, rho)
            for n in range(self.N):
                self.highs.changeCoeff(n, 0, -self.MAGNIFICATION * float(per[n]))
            self.highs.changeColBounds(0, -INFINITY, INFINITY)
            self._set_costs(np.concatenate(([self.MAGNIFICATION], np.zeros(self.size))))
            found = self._run()
        if found is None or not found[1] @ per > 0:
            return farthest_mixture(w, rho, per)
        weights, duals = found
        y = duals / max(float(duals @ per), 1e-300)
        return weights, y, float(((weights @ w - rho) / per).min())

    def _update(self, w: FloatArray, rho: FloatArray) -> None:
        for row in w[self.size :]:
            values = np.append(self.MAGNIFICATION * row, 1.0)
            self.highs.addCol(0.0, 0.0, INFINITY, self.N + 1, self.rows, values)
        self.size = len(w)
        for n in range(self.N):
            self.highs.changeRowBounds(n, self.MAGNIFICATION * float(rho[n]), INFINITY)

    def _set_costs(self, costs: FloatArray) -> None:
        self.highs.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)

    def _run(self) -> tuple[FloatArray, FloatArray] | None:
        """Weights and multipliers [N]; None if HiGHS finds no optimum, neither from the old basis nor from scratch."""
        if run(self.highs) != "optimal":
            self.highs.clearSolver()
            if run(self.highs) != "optimal":
                return None
        values, duals = answer(self.highs)
        weights = np.maximum(values[1:], 0.0)
        total = weights.sum()
        if not (total > 0 and np.isfinite(duals).all()):
            return None
        return weights / total, np.maximum(-duals[: self.N], 0.0)


def best_mixture(v: FloatArray, w: FloatArray, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights and multipliers lam [N] of the mixture with the largest value whose utilities are at least rho.

    The columns have values v [M] and utilities w [M, N]. If no mixture reaches rho, all thresholds are lowered by the
    smallest common amount that makes one reach them.
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

    Its columns are the M weights, then N surpluses, then those that `add_column` adds. The policy with index 0 in these
    formulas is the one whose largest shortfall is smallest; its weight starts in the basis.
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
        """Add a variable, given in terms of the starting basis, and return its number."""
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
        """Take simplex steps until no column improves the objective, and return the reduced costs of all columns."""
        reduced: Table = np.array([costs.get(j, Fraction(0)) for j in range(self.table.shape[1])], dtype=object)
        for row, j in enumerate(self.basis):
            if j in costs:
                reduced = reduced - costs[j] * self.table[row]
        stuck = False
        while True:
            better = [j for j in np.flatnonzero(reduced > 0) if j not in self.closed]
            if not better:
                return reduced
            # After a step of length zero the first column enters (Bland's rule), so that the search cannot cycle.
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
        """The weights of the policies, [M]."""
        return np.array([float(self.value_of(j)) for j in range(self.M)])

    def multipliers(self, reduced: Table) -> FloatArray:
        """The objective lost per unit by which each threshold is raised, [N]."""
        return np.array([float(-x) for x in reduced[self.M : self.M + self.N]])


class Trials:
    """The prices of each round of one search: after a failure, those of the master; after N + 1 failures always."""

    def __init__(self) -> None:
        self.guessed = False  # whether the prices of this round are others than the master's
        self.failed, self.failures, self.gap = False, 0, np.inf

    def prices(self, mixed: Sequence[PolicyColumn], shares: FloatArray, lam: FloatArray, rho: FloatArray) -> FloatArray:
        """Prices [N] of the next round; `trial_prices` describes the arguments."""
        guess = not self.failed and self.failures <= len(lam)
        prices = trial_prices(mixed, shares, lam, rho) if guess else lam
        self.guessed = prices is not lam
        return prices

    def judge(self, fresh: bool, gap: float) -> None:
        """Learn whether the round found a new policy, and the gap that it left."""
        self.failed = self.guessed and (not fresh or gap > MAX_GAP_LEFT * self.gap)
        self.failures += self.failed
        self.gap = gap


def trial_prices(mixed: Sequence[PolicyColumn], shares: FloatArray, lam: FloatArray, rho: FloatArray) -> FloatArray:
    """Prices [N] to try next: those of the master, lam, unless others are likely to be better.

    The best mixture so far that meets the thresholds rho [N] has the policies ``mixed`` with these shares.
    """
    if not all(column.weights[0] > 0 for column in mixed):
        return lam
    if len(lam) >= MIN_AVERAGED:
        # The prices of the master jump while few policies are known; those at which the policies of its mixture were
        # found lie closer to the optimal ones. The middle of both saves rounds.
        mean: FloatArray = sum(share * c.weights[1:] / c.weights[0] for share, c in zip(shares, mixed, strict=True))
        return (lam + mean) / 2
    if len(lam) != 1 or len(mixed) != 2 or differences(mixed[0].choice, mixed[1].choice) < MIN_DIFFERENT:
        return lam
    low, high = sorted(Tangent(float(c.weights[1] / c.weights[0]), c.v, float(c.w[0])) for c in mixed)
    return np.array([between(low, high, float(rho[0]))]) if low.price < high.price else lam


def differences(one: Any, other: Any) -> int:
    """In how many decisions two policies differ; those that are no arrays are kept by their source, which knows."""
    return int(np.count_nonzero(one != other)) if isinstance(one, np.ndarray) else int(one.differences(other))


class Tangent(NamedTuple):
    """What a policy says about the Lagrangian bound of a model with one constraint, as a function of the price."""

    price: float  # at which the policy is best
    v: float  # its expected total reward
    w: float  # its expected total of the constraint's signal

    def bound(self, rho: float) -> float:
        """The Lagrangian bound at that price, for the threshold rho."""
        return self.v + self.price * (self.w - rho)


def between(low: Tangent, high: Tangent, rho: float) -> float:
    """The price between those of two policies at which the Lagrangian bound is likely to be smallest.

    ``low`` misses the threshold rho and ``high`` meets it, so the bound falls at the one price and rises at the other.
    The guess is where the cubic polynomial with the same two values and slopes is smallest. If that is close to one of
    the policies, it is moved to twice the distance or to LEAST: then the true minimum is likely to lie between that
    policy and the guess, and the interval becomes short from both sides.
    """
    length = high.price - low.price
    falls, rises = low.w - rho, high.w - rho
    middle = falls + rises + 3 * (low.bound(rho) - high.bound(rho)) / length
    root = math.sqrt(max(0.0, middle * middle - falls * rises))
    share = 1 - (rises + root - middle) / (rises - falls + 2 * root)
    if share < NEAR:
        share = max(2 * share, LEAST)
    elif share > 1 - NEAR:
        share = 1 - max(2 * (1 - share), LEAST)
    return low.price + share * length


# -- HiGHS, set up in one place ----------------------------------------------------------------------------------------

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
