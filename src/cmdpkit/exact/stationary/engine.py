"""The best policy for one objective, and the values of policies, with bounds that hold whatever the rounding.

All state is a table of relative values Y [S, K] of the policy at hand, for all signals at once. An objective is a
weighted sum of the signals, so h = Y @ weights is exact for the policy at hand whatever the weights: a search at new
prices begins where the last one ended, and improving a policy and evaluating it are sweeps over the same table.

The bound is Lemma U of docs/theory/stationary.md: with delta_i = o_i + P_i h - h_s for every row i of a state s, and
any profile d [S] > 0, delta_i <= b + kappa d_s for all rows means that

    value of every policy <= alpha mu.h + b + kappa Omega    (totals: b = 0),

where Omega is at least the value of the signal d under every policy, and alpha is 1 - discount, 0 for averages and 1
for totals. A discount counts as a probability of leaving at every step. With d = 1, Omega is 1, or the longest expected
time until absorption. If a policy need not be absorbed (`endless`), every step costs at least c > 0 of the objective. A
policy that is better than one of value v takes at most -v / c steps, so Omega = -v / c will do.

Where numbers of very different size meet (a large signal in a state that is seldom visited, or states that are seldom
left), the engine is *careful*: d is in proportion to the rounding in each state, delta is computed from differences of
h, policies are evaluated by elimination without subtraction, and the error of their values is proved as in the section
"How wrong a value can be" of the same page.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary import kernels
from cmdpkit.exact.stationary.problem import ComponentRows, marked, walk_to
from cmdpkit.model.tolerances import ROUNDOFF
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chain_systems import DAMPING
from cmdpkit.operators.chains import Chain, closed_classes, within

EPS = float(np.finfo(float).eps)
EXACT = 1e-15  # accuracy of values that counts as exact
DIRECT_STATES = 64  # up to so many states, policies are evaluated by elimination at once
DENSE = 400  # up to so many states, elimination works on a full matrix
FACTORED = 20_000  # states up to which LU factors are tried where sweeps and Krylov methods are too slow
TRY, SLOW = 5, 0.7  # after TRY sweeps a Krylov method takes over if the error falls by less than SLOW in each
FAR = 20  # sweeps of that kind that would still be made
PRODUCTS = 400  # matrix products of one Krylov solve
RARE = 4  # a pivot is visited seldom if it takes this many times the number of states to come back to it
SWEEPS = 200_000  # of one policy, at most
IMPROVEMENTS = 1_000  # of the policy in one pricing, at most
COARSE = 1e-13  # a profile by which rounding counts for more is made again
LONGEST = 1e12  # steps in expectation until absorption, beyond which a bound would say nothing
STUBBORN = 50  # improvements beyond the number of states after which policies only follow each other in a circle
WILD = 1e-6  # error of values (of order 1) beyond which only the largest improvements of a policy are believed
FAINT = 1e-12  # a profile is at least this share of the total of it that may follow
BLOCK = 25  # sweeps between two looks at the rounding
ROUND_UP = 1 + 1e-9  # factor of errors that are computed with rounding themselves


class TooLong(CmdpkitError):
    """The longest time until absorption cannot be bounded."""

    def __init__(self) -> None:
        super().__init__(
            "not solved: some policy takes so long until absorption that double precision cannot tell how long; use a "
            "discount or make absorption more likely where a run may stay for very long"
        )


class Engine:
    """Policies of a `StationaryProblem`, on rows whose signals X [K, R] are scaled such that values are of order 1."""

    def __init__(
        self, rows: ComponentRows, X: FloatArray, kind: str, mu: FloatArray, endless: bool = False, blur: int = 0
    ) -> None:
        self.rows, self.kind, self.mu, self.endless, self.S = rows, kind, mu, endless, rows.S
        entries = int(np.diff(rows.indptr.astype(np.int64)).max(initial=1))
        self._start = np.flatnonzero(mu)  # sums over few states: a library of linear algebra would start threads
        self.count, self.starts = entries + 8 + blur, len(self._start) + 4 + blur  # roundings of a row, and of a start
        self.choice = rows.first[:-1].astype(np.int64)  # [S], the row that the policy at hand takes in every state
        self.pad, self.sweeps = 0.0, 0  # rounding in the last bound; sweeps so far
        self.direct = self.careful = self.S <= DIRECT_STATES  # evaluate by elimination; bound rounding by states
        self._ends = np.zeros(self.S + 1, dtype=np.uint64)  # the compact matrix of the policy at hand
        self._to, self._weight = np.zeros(self.S * entries, dtype=np.uint32), np.zeros(self.S * entries)
        self._taken, self._pivot = False, int(mu.argmax())  # a state that is visited
        self._room(X)
        self.uniform, self.tau = kind != "total", DAMPING if kind == "average" else 1.0
        self.alpha = {"discounted": float(rows.exits[0]), "average": 0.0, "total": 1.0}[kind]
        self.omega, self._e = 1.0, np.zeros(0)
        self.u = np.zeros(0)  # [S], longest expected times, where exits differ
        if endless:
            self._be_absorbed()
        elif not self.uniform and not self.careful:
            self.u, self.omega = self._longest(np.ones(self.S))
            if not self.omega < LONGEST:
                raise TooLong
            delta, _ = self._changes(np.zeros((1, rows.R)), self.u[None])
            self._e = np.maximum(-delta[0], 0.0)

    def _room(self, X: FloatArray) -> None:
        """All that belongs to the signals X [K, R]."""
        self.X, self.K, self._top = X, len(X), np.abs(X).max(axis=1)
        self.Y, self.Z = np.zeros((self.S, self.K)), np.zeros((self.S, self.K))  # values at hand; room for a sweep
        self.x = np.zeros((self.S, self.K))  # signals of the policy at hand
        self.values, self.half = np.zeros(self.K), np.full(self.K, np.inf)  # of that policy; their proved error
        self.level = np.zeros(self.K)  # T Y - Y of the policy, the b of the bound
        self.weights = np.ones(self.K)  # of the present objective
        self.profile: FloatArray | None = None  # d [S] of careful bounds; None stands for 1

    def _be_absorbed(self) -> None:
        """Begin with a policy that is absorbed: policies that are better are, too."""
        rows, out = self.rows, np.flatnonzero(self.rows.exits > 0)
        leaving = marked(self.S, rows.owner[out])
        self.choice = np.where(leaving, 0, walk_to(rows, leaving))
        self.choice[rows.owner[out]] = out
        self.take(self.choice)

    def begin_with(self, unit: FloatArray, X: FloatArray) -> None:
        """Other signals, which are the old ones divided by unit [K], and perhaps shifted by a constant."""
        Y = self.Y / unit
        self._room(X)
        self.Y = Y
        if self._taken:
            self.take(self.choice)

    def other(self, X: FloatArray) -> Engine:
        """The same policy at hand for other signals X [K, R]."""
        other = copy(self)
        other._ends, other._to, other._weight = self._ends.copy(), self._to.copy(), self._weight.copy()
        other._room(X)
        other.take(self.choice.copy())
        return other

    # -- the policy at hand

    def valued(self, choice: IntArray) -> FloatArray:
        """Values [K] of a choice of rows [S], which becomes the policy at hand, as exact as they can be."""
        self.take(choice)
        self.evaluate(EXACT)
        return self.values.copy()

    def take(self, choice: IntArray) -> None:
        """Make a choice of rows [S] the policy at hand."""
        rows = self.rows
        compact = (self._ends, self._to, self._weight, self.x)
        kernels.gather(rows.indptr, rows.columns, rows.data, self.X, choice, *compact)
        self.choice, self._taken = choice, True

    def matrix(self) -> Any:
        """Transition matrix [S, S] of the policy at hand."""
        n = int(self._ends[-1])
        return sparse.csr_array(
            (self._weight[:n], self._to[:n].astype(np.int32), self._ends.astype(np.int64)), (self.S, self.S)
        )

    def evaluate(self, tol: float) -> None:
        """Y, values and half become those of the policy at hand, to within tol if rounding allows it."""
        if self.direct:
            if self.careful and self.profile is None:
                self.be_careful()
            self._solve()
            self._certify() if self.careful else self._sweep(1, 0.0)
            return
        done, last, top = 0, np.inf, float(np.abs(self.x).max())
        while True:
            floor = 4 * EPS * (float(np.abs(self.Y).max()) + top) * self._omega()
            goal = max(tol, floor)
            width, ratio, swept = self._sweep(TRY if done < TRY else BLOCK, goal)
            done += swept
            if width <= goal or (width < 64 * floor and width > 0.9 * last) or done > SWEEPS:
                return
            self.Y, self.Z, last = self.Z, self.Y, width
            if (done == TRY and ratio >= SLOW and ratio**FAR * width > tol) or done // 100 > (done - swept) // 100:
                solved = self._krylov(goal / self._omega())
                if not solved and self.S <= FACTORED and self._sweep(1, 0.0)[0] > 64 * floor:
                    self.direct = True
                    return self.evaluate(tol)

    def _sweep(self, most: int, goal: float) -> tuple[float, float, int]:
        """Sweeps until the values of the policy at hand have an error of `goal`, by the bound with d = 1.

        Afterwards Y is what the last sweep began with, and Z the table after it. Returns the error, the factor by which
        it fell per sweep, and the number of sweeps.
        """
        low, high, widths = np.zeros(self.K), np.zeros(self.K), np.zeros(most)
        e = self._e[self.choice] if len(self._e) else self._e
        compact = (self._ends, self._to, self._weight, self.x, self.Y, self.Z)
        goal /= max(self._omega(), 1e-300)
        swept = kernels.sweeps(*compact, self.tau, self.uniform, e, self.u - e, goal, widths, low, high)
        self.sweeps += swept
        if swept % 2 == 0:
            self.Y, self.Z = self.Z, self.Y
        ratio = (widths[swept - 1] / widths[0]) ** (1 / (swept - 1)) if swept > 1 and widths[0] > 0 else 0.0
        start = self.alpha * self._from_start(self.Y)
        if self.uniform:
            self.level = (low + high) / 2
            self.values, self.half = start + self.level, (high - low) / 2
        else:
            self.level, error = np.zeros(self.K), np.maximum(np.abs(low), np.abs(high))
            self.values, self.half = start, error * self._omega(float(error[0]))
        return float(self.half.max()), ratio, swept

    def rounding(self) -> FloatArray:
        """What rounding adds to the error of the values at hand, [K]."""
        if self.careful:
            return np.zeros(self.K)
        noise = self.count * EPS * (np.abs(self.x).max(axis=0) + 2 * np.abs(self.Y).max(axis=0))
        start = self.starts * EPS * (self.alpha * np.abs(self.Y).max(axis=0) + np.abs(self.level))
        return np.asarray(noise * self._omega() + start)

    def _from_start(self, y: FloatArray) -> FloatArray:
        """mu . y for y [S] or [S, K]."""
        return np.asarray(self.mu[self._start] @ y[self._start])

    def advantages(self, taken: IntArray) -> FloatArray:
        """What each of some rows [n] gains if it is taken once instead of the row at hand, [n, K]."""
        return np.asarray((self._changes(self.X, self.Y.T)[0][:, taken]).T - self.level)

    def _omega(self, error: float = 0.0) -> float:
        """Omega of d = 1 for the policy at hand; `error` is that of T Y - Y for the reward."""
        if not self.endless:
            return self.omega
        least = float(-self.X[0].max())  # the cost of a step
        return float(-self._from_start(self.Y)[0] / (least - error)) if error < least else np.inf

    def _krylov(self, tol: float) -> bool:
        """Solve for Y with residuals of at most tol; False if that fails."""
        matrix, work, ref = (self._ends, self._to, self._weight), np.zeros((6, self.S)), 0 if self.uniform else -1
        solved = True
        for k in range(self.K):
            y, x = np.ascontiguousarray(self.Y[:, k]), np.ascontiguousarray(self.x[:, k])
            if self.uniform:
                y -= y[0]
            least = 4 * EPS * (float(np.abs(y).max()) + float(np.abs(x).max()))
            solved &= bool(kernels.krylov(*matrix, x, ref, y, work, max(0.5 * tol, least), PRODUCTS))
            if np.isfinite(y).all():
                self.Y[:, k] = y - y[0] if self.uniform else y
        return solved

    def _solve(self) -> None:
        """Y and level of the policy at hand by elimination."""
        if self.kind == "average":
            self._connect()
        level, Y = self._solved(self.x)
        if np.isfinite(Y).all():
            self.Y, self.level = Y, level

    def _solved(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """level and Y of the policy at hand for signals x [S, n], by elimination."""
        P, loss = self.matrix(), self.rows.exits[self.choice]
        if self.S > DENSE:
            gamma = 1 - self.alpha if self.uniform else 1.0
            exits = None if self.uniform else loss
            chain = Chain(P / gamma, gamma, bordered=self.uniform, pivot=self._pivot, exits=exits, work=0.0)
            level, Y = chain.values(x)
            return np.asarray(level, dtype=float), np.ascontiguousarray(Y)
        dense, level, Y, values = P.toarray(), np.zeros(x.shape[1]), np.zeros(x.shape), np.zeros(x.shape)
        for _ in range(2):  # a second time if the pivot turns out to be visited seldom
            order = np.arange(self.S)
            order[0], order[self._pivot] = self._pivot, 0
            permuted = (dense[np.ix_(order, order)], loss[order], x[order])
            back, most = kernels.eliminate(*permuted, np.zeros(self.S), values, level, self.uniform)
            Y[order] = values
            if not self.uniform or back <= RARE * self.S:
                break
            self._pivot = int(order[most])
        return level, Y

    def _connect(self) -> None:
        """For averages: let all states walk to the best recurrent class of the policy at hand; the pivot is in it."""
        P = self.matrix()
        classes = closed_classes(P)
        if len(classes) == 1:
            if not (classes[0] == self._pivot).any():
                self._pivot = int(classes[0][0])
            return
        gains = [float(Chain(within(P, x)).values(self.x[x])[0] @ self.weights) for x in classes]
        target = marked(self.S, classes[int(np.argmax(gains))])
        lost = marked(self.S, np.concatenate([c for c in classes if not target[c[0]]]))
        chosen = ComponentRows.of(P, np.arange(self.S), self.choice)
        astray = lost | (walk_to(chosen, lost) >= 0)  # states that may end in another class
        self.take(np.where(astray, walk_to(self.rows, target), self.choice))
        self._pivot = int(np.flatnonzero(target)[0])

    # -- the careful mode

    def be_careful(self) -> None:
        """Bound rounding state by state from now on, by a profile made for the policy at hand and those before it."""
        if not self._taken:
            self.take(self.choice)
        self.direct = self.careful = True
        if self.endless:
            self.profile = np.ones(self.S)
            return
        self._solve()
        size = np.abs(self.X) + self._changes(self.X, self.Y.T)[1] + np.abs(self.level)[:, None]
        profile = np.maximum.reduceat(size.sum(axis=0), self.rows.first[:-1].astype(np.int64)) + 1e-30
        if not self.uniform:  # a profile that is small against what follows it could not be checked
            profile += FAINT * self._longest(profile)[0]
        if self.profile is not None:
            profile = np.maximum(profile, self.profile)
        self.omega = self._longest(profile)[1]
        if not np.isfinite(self.omega):
            raise TooLong
        self.profile = profile

    def _changes(self, o: FloatArray, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """o + P h - h of every row from differences of h, and the size of what is added up, [n, R] each; h [n, S]."""
        rows, delta, size = self.rows, np.empty((len(o), self.rows.R)), np.empty((len(o), self.rows.R))
        h = np.ascontiguousarray(h)
        kernels.differences(rows.indptr, rows.columns, rows.data, rows.owner, rows.exits, o, h, delta, size)
        return delta, size

    def _certify(self) -> None:
        """Values of the policy at hand and their error, which is the value of what is wrong in every state.

        Totals are counted from that of one state, which counts as if it were paid at the exit. Otherwise the rounding
        of a large total would hide what is wrong in a single step.
        """
        x, Y, offset, lost = self.x, self.Y, np.zeros(self.K), self.rows.exits[self.choice][:, None]
        if not self.uniform:
            offset = self.Y[self._pivot].copy()
            x = self.x - lost * offset
            Y = self._solved(x)[1]
        wrong = self._residual(x, Y, self.level) + 2 * EPS * (np.abs(self.x) + lost * np.abs(offset)) + 1e-40
        if not self.uniform:  # what is small against what follows it could not be checked
            wrong += FAINT * self._solved(wrong)[1]
        level, W = self._solved(np.hstack((wrong, np.abs(self.x))))
        wide, size, level, W = level[self.K :], W[:, self.K :], level[: self.K], W[:, : self.K]
        left = self._residual(wrong, W, level, signed=True)
        error = self.alpha * self._from_start(W)
        if self.uniform:
            error = error + level + left.max(axis=0)
        else:  # if W lacks at most a share theta of what is wrong anywhere, W / (1 - theta) lacks nothing
            theta = np.minimum((left / wrong).max(axis=0), 1.0)
            error = np.divide(error, 1 - theta, out=np.full(self.K, np.inf), where=theta < 1)
        mass = float(self.mu.sum())
        paid = self.level + offset * mass
        self.values = self.alpha * self._from_start(Y) + paid
        error = np.where(np.isfinite(error), np.abs(error), np.inf)
        if self.S <= DENSE:  # values count from those of the pivot, with two subtractions
            whole = self.alpha * self._from_start(np.abs(size)) + 3 * wide + 2 * self.alpha * mass * size[self._pivot]
            error = np.minimum(error, roundings(self.S) * ROUNDOFF * whole)
        rounding = self.starts * EPS * (self.alpha * self._from_start(np.abs(Y)) + np.abs(paid))
        self.half = error * ROUND_UP + rounding

    def _residual(self, x: FloatArray, Y: FloatArray, level: FloatArray, signed: bool = False) -> FloatArray:
        """At most how much x + P Y - Y of the policy at hand differs from the level, rounding included, [S, K]."""
        n = int(self._ends[-1])
        delta, size = np.empty((x.shape[1], self.S)), np.empty((x.shape[1], self.S))
        given = np.ascontiguousarray(x.T), np.ascontiguousarray(Y.T)
        compact = (self._ends, self._to[:n], self._weight[:n], np.arange(self.S), self.rows.exits[self.choice])
        kernels.differences(*compact, *given, delta, size)
        off = delta.T - level
        noise = self.count * EPS * (size.T + np.abs(x) + np.abs(level))
        return np.asarray((off if signed else np.abs(off)) + noise)

    def _longest(self, d: FloatArray) -> tuple[FloatArray, float]:
        """Largest values W [S] of the signal d [S] > 0 over all policies, and a bound on that from the start.

        The bound is infinite if rounding leaves none.
        """
        x = d[self.rows.owner]
        other = self.other(x[None])
        for rounds in range(IMPROVEMENTS):
            other.take(other.choice)
            if other.direct or not other._krylov(0.1):
                other._solve()
            W = other.Y[:, 0].copy()
            (delta,), (size,) = other._changes(x[None], W[None])
            noise = self.count * EPS * (size + x + abs(other.level[0]))
            start = self.alpha * float(self._from_start(W))
            if self.uniform:
                found = start + float((delta + noise).max())
            else:  # if W lacks at most a share theta of d anywhere, W / (1 - theta) lacks nothing
                theta = float(((delta + noise) / x).max())
                found = start / (1 - theta) if theta < 1 else np.inf
            over = delta - other.level[0]
            more = over > np.maximum(4 * noise, 0.0 if self.uniform else 0.1 * x)
            if not more.any() or rounds > STUBBORN + self.S:
                break
            better = np.where(more, over, -np.inf)
            better[other.choice] = 0.0
            other.choice = _best_rows(better, self.rows)
        return W, found

    # -- pricing

    def greedy(self, weights: FloatArray, o: FloatArray) -> tuple[float, IntArray, int]:
        """The bound on o = weights . X that Y proves for all policies, a better choice, and how many states move."""
        h, rows = combined(weights, self.Y.T), self.rows
        start = self.alpha * float(self._from_start(h))
        omega = self._time(weights, o) if self.endless else self.omega
        if self.careful:
            return self._greedy_careful(weights, o, h, start, omega)
        top, choice = float(np.abs(h).max()), self.choice.copy()
        noise = (self.count + self.K) * EPS * (float(np.abs(weights) @ self._top) + 2 * top)
        high, moved = kernels.improve(rows.first, rows.indptr, rows.columns, rows.data, o, h, noise, choice)
        over = high if self.uniform else max(0.0, high)
        self.pad = noise * omega + self.starts * EPS * (self.alpha * top + (abs(high) if self.uniform else 0.0))
        return start + over * omega + self.pad, choice, moved

    def _time(self, weights: FloatArray, o: FloatArray) -> float:
        """How many steps a policy takes at most that has more of o than the policy at hand, if every step costs."""
        least = float(-o.max())
        worth = float(weights @ self.values) - float(np.abs(weights) @ self.half)
        return max(-worth, 0.0) / least if least > 0 else np.inf

    def _greedy_careful(
        self, weights: FloatArray, o: FloatArray, h: FloatArray, start: float, omega: float
    ) -> tuple[float, IntArray, int]:
        b, owner = float(self.level @ weights), self.rows.owner
        (delta,), (size,) = self._changes(o[None], h[None])
        size += np.abs(weights) @ np.abs(self.X) + float(np.abs(self.level) @ np.abs(weights))
        noise = (self.count + self.K) * EPS * size
        d = np.ones(len(owner)) if self.profile is None else self.profile[owner]
        kappa = max(0.0, float(((delta - b + noise) / d).max()))
        rounding = self.starts * EPS * (self.alpha * float(self._from_start(np.abs(h))) + abs(b))
        self.pad = float((noise / d).max()) * omega + rounding
        here = delta[self.choice]
        off = np.abs(here - b)  # where the values at hand are not exact, only what is clearly better is taken
        error = float(((off + noise[self.choice]) / d[self.choice]).max()) * omega
        if np.isfinite(error) and error > WILD:
            off += min(10 * error, 1e-3 * float((delta - here[owner]).max()))
        better = np.where(delta > (np.maximum(here, b) + off)[owner] + 2 * noise, delta, -np.inf)
        better[self.choice] = delta[self.choice]
        choice = _best_rows(better, self.rows)
        return start + b + kappa * omega + rounding, choice, int((choice != self.choice).sum())

    def price(self, weights: FloatArray, slack: float, accuracy: float) -> float:
        """An upper bound on weights . values over all policies; the policy at hand is then within `slack` of it.

        Its values are known to within `accuracy`. Both are reached as far as rounding allows.
        """
        self.weights = weights
        o, upper, scale = combined(weights, self.X), np.inf, float(np.abs(weights).sum())
        if not self._taken:
            self.take(self.choice if self.direct else self.greedy(weights, o)[1])
        if not np.isfinite(self.half).all():
            self.evaluate(0.05)
        last = np.inf
        for rounds in range(IMPROVEMENTS):
            if self.careful and rounds > STUBBORN + self.S:
                break
            error = float(np.abs(weights) @ self.half)
            bound, choice, moved = self.greedy(weights, o)
            upper = min(upper, bound)
            lack = upper - float(weights @ self.values) + error
            if lack <= slack + (0.0 if self.careful else 4 * self.pad):
                break
            if moved == 0:
                if self.direct or error <= self.pad or (lack >= 0.5 * last and error <= 16 * self.pad):
                    break
                tol = min(0.05 * lack, 0.1 * error) / scale
            else:
                self.take(choice)
                part = 0.1 if moved > self.S / 20 else 0.01 if moved > self.S / 200 else 0.001
                tol = max(part * lack, 0.2 * slack) / scale
            last = lack
            self.evaluate(max(tol, self.pad / (8 * scale)))
        if self.careful and self.pad > COARSE * scale and not self.endless:  # the profile was made for other policies
            self.be_careful()
            self.evaluate(accuracy)
            upper = min(upper, self.greedy(weights, o)[0])
        elif float(self.half.max()) > accuracy and not self.careful:
            self.evaluate(accuracy)
        return upper


def roundings(S: int) -> int:
    """By how many roundings elimination without subtraction may change a value of a chain with S states."""
    return sum((2 * n + 2) * (n + 3) for n in range(1, S + 1))


def combined(weights: FloatArray, signals: FloatArray) -> FloatArray:
    """weights . signals for signals [K, n]."""
    total: FloatArray = weights[0] * signals[0]
    for weight, signal in zip(weights[1:], signals[1:], strict=True):
        if weight:
            total += weight * signal
    return total


def _best_rows(worth: FloatArray, rows: ComponentRows) -> IntArray:
    """[S], the row of every state for which `worth` [R] is largest."""
    top = np.maximum.reduceat(worth, rows.first[:-1].astype(np.int64))
    best = np.flatnonzero(worth == top[rows.owner])
    _, position = np.unique(rows.owner[best], return_index=True)
    return np.asarray(best[position])
