"""The best policy for one objective, and the values of policies, with bounds that hold whatever the rounding.

All state is a table of relative values Y [S, K] of the policy at hand, for all signals at once. An objective is a
weighted sum of the signals, so h = Y @ weights is exact for the policy at hand whatever the weights: a search at new
prices begins where the last one ended, and improving a policy and evaluating it are sweeps over the same table.

**The bound.** Let o be the objective, h any vector, and delta_i = o_i + P_i h - h_s for every row i of a state s (P is
multiplied by the discount, if any). Let d [S] > 0 be any profile. If delta_i <= b + kappa d_s for all rows, then

    value of every policy <= alpha mu.h + beta b + kappa Omega,

where Omega is at least the value of the signal d under every policy, and beta that of the signal 1:

    criterion                    alpha       beta
    discounted (normalised)      1 - gamma   1
    average                      0           1
    total, same exit e           1           1 / e
    total                        1           not needed, b = 0

Proof: o_i <= b + kappa d_s + h_s - P_i h; summed over a policy's occupancy, the terms with h leave alpha mu.h. For the
rows of one policy the same holds from below. With d = 1 this is MacQueen's bound, and Omega = beta; for totals Omega is
then the longest expected time until absorption. Where numbers of very different size meet (a large signal in a state
that is seldom visited, or states that are seldom left), d is in proportion to the rounding in each state, delta is
computed from differences of h, and policies are evaluated by elimination without subtraction: the *careful* mode.

If a policy need not be absorbed (`endless`), every step costs at least c > 0 of the objective. A policy that is
better than one of value v takes at most -v / c steps, so Omega = -v / c will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary import kernels
from cmdpkit.exact.stationary.components import Rows, walk_to
from cmdpkit.model.chain_systems import DAMPING
from cmdpkit.model.chains import Chain, closed_classes, within
from cmdpkit.model.transitions import FloatArray, IntArray

EPS = float(np.finfo(float).eps)
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
UNIFORM = 1e-12  # exits whose relative spread is below this are the same


class TooLong(CmdpkitError):
    """The longest time until absorption cannot be bounded."""

    def __init__(self) -> None:
        super().__init__(
            "not solved: some policy takes so long until absorption that double precision cannot tell how long; use a "
            "discount or make absorption more likely where a run may stay for very long"
        )


class Engine:
    """Policies of one criterion, on rows whose signals X [K, R] are scaled such that values are of order 1."""

    def __init__(
        self, rows: Rows, X: FloatArray, kind: str, gamma: float, mu: FloatArray, endless: bool = False
    ) -> None:
        self.rows, self.X, self.kind, self.gamma, self.mu, self.endless = rows, X, kind, gamma, mu, endless
        self.S, self.K = rows.S, len(X)
        self.data = rows.data if gamma == 1 else gamma * rows.data
        self.loss = np.full(rows.R, 1 - gamma) if kind == "discounted" else rows.exits
        self.entries = int(np.diff(rows.indptr.astype(np.int64)).max(initial=1))
        self._start = np.flatnonzero(mu)  # sums over few states: a library of linear algebra would start threads
        self.starts = len(self._start) + 4
        self.Y, self.Z = np.zeros((self.S, self.K)), np.zeros((self.S, self.K))  # values at hand; room for a sweep
        self.choice = rows.first[:-1].astype(np.int64)  # [S], the row that the policy at hand takes in every state
        self.values, self.half = np.zeros(self.K), np.full(self.K, np.inf)  # of that policy; their proved error
        self.level = np.zeros(self.K)  # T Y - Y of the policy, the b of the bound
        self.weights = np.ones(self.K)  # of the present objective
        self.pad = 0.0  # rounding in the last bound
        self.direct = self.careful = self.S <= DIRECT_STATES  # evaluate by elimination; bound rounding by states
        self.profile: FloatArray | None = None  # d [S] of careful bounds; None stands for 1
        self.u: FloatArray | None = None  # [S], longest expected times, where exits differ
        self.sweeps = 0  # so far
        self._low, self._high = np.zeros(self.K), np.zeros(self.K)
        self._ends = np.zeros(self.S + 1, dtype=np.uint64)  # the compact matrix of the policy at hand
        self._to = np.zeros(self.S * self.entries, dtype=np.uint32)
        self._weight = np.zeros(self.S * self.entries)
        self.x = np.zeros((self.S, self.K))  # its signals
        self._work: FloatArray | None = None
        self._taken, self._pivot = False, 0
        self._top = np.abs(X).max(axis=1)  # [K], the largest signals
        self._criterion()

    def _criterion(self) -> None:
        """alpha, beta, Omega and the way of sweeping of this criterion."""
        self.tau = DAMPING if self.kind == "average" else 1.0
        self.alpha = {"discounted": 1 - self.gamma, "average": 0.0, "total": 1.0}[self.kind]
        self.beta, self.slop, self.uniform = 1.0, 0.0, True
        if self.kind == "total":
            least, most = float(self.loss.min()), float(self.loss.max())
            self.uniform = not self.endless and least > 0 and most <= (1 + UNIFORM) * least
            if self.uniform:
                self.beta, self.slop = 1 / least, most / least - 1 + (self.entries + 4) * EPS
        self.omega = self.beta
        if self.endless:
            self._be_absorbed()
        elif not self.uniform and not self.careful:
            self.u, self.omega = self._longest(np.ones(self.S))
            if not self.omega < LONGEST:
                raise TooLong
            self._e = np.maximum(self.u[self.rows.owner] - self._products(self.u), 0.0)

    def _products(self, h: FloatArray) -> FloatArray:
        """P h [R]."""
        delta, _ = self._changes(np.zeros(self.rows.R), h)
        return np.asarray(delta + h[self.rows.owner])

    def _be_absorbed(self) -> None:
        """Begin with a policy that is absorbed: policies that are better are, too."""
        rows, leaving = self.rows, np.zeros(self.S, dtype=bool)
        out = np.flatnonzero(rows.exits > 0)
        leaving[rows.owner[out]] = True
        self.choice = np.where(leaving, 0, walk_to(rows, leaving))
        self.choice[rows.owner[out]] = out
        self.take(self.choice)

    def begin_with(self, unit: FloatArray, X: FloatArray) -> None:
        """Other signals, which are the old ones divided by unit [K], and perhaps shifted by a constant."""
        self.X, self._top = X, np.abs(X).max(axis=1)
        self.profile = None
        self.Y /= unit
        self.half[:] = np.inf
        if self._taken:
            self.take(self.choice)

    def other(self, X: FloatArray) -> Engine:
        """The same policy at hand for other signals X [K, R]."""
        other, K = Engine.__new__(Engine), len(X)
        other.__dict__.update(self.__dict__)
        other.X, other.K, other.x, other._top = X, K, np.zeros((self.S, K)), np.abs(X).max(axis=1)
        other.Y, other.Z, other.weights = np.zeros((self.S, K)), np.zeros((self.S, K)), np.ones(K)
        other._low, other._high, other.choice = np.zeros(K), np.zeros(K), self.choice.copy()
        other._ends, other._to, other._weight = self._ends.copy(), self._to.copy(), self._weight.copy()
        other.values, other.half, other.level = np.zeros(K), np.full(K, np.inf), np.zeros(K)
        other.profile = None
        other.take(other.choice)
        return other

    # -- the policy at hand

    def take(self, choice: IntArray) -> None:
        """Make a choice of rows [S] the policy at hand."""
        rows = self.rows
        compact = (self._ends, self._to, self._weight, self.x)
        kernels.gather(rows.indptr, rows.columns, self.data, self.X, choice, *compact)
        self.choice, self._taken = choice, True

    def matrix(self) -> Any:
        """Transition matrix [S, S] of the policy at hand, without the discount."""
        n = int(self._ends[-1])
        data = self._weight[:n] if self.gamma == 1 else self._weight[:n] / self.gamma
        return sparse.csr_array((data, self._to[:n].astype(np.int32), self._ends.astype(np.int64)), (self.S, self.S))

    def evaluate(self, tol: float) -> None:
        """Y, values and half become those of the policy at hand, to within tol if rounding allows it."""
        if self.direct:
            if self.careful and self.profile is None:
                self.be_careful()
            self._solve()
            self._judge_careful() if self.careful else self._judge()
            return
        ones, rounds, best, waited, began = np.ones(1), 0, np.inf, 0, np.inf
        floor = 0.0
        while True:
            width = self._judge()
            if rounds % 10 == 0:
                floor = 4 * EPS * (float(np.abs(self.Y).max()) + float(np.abs(self.x).max())) * self._omega()
            if width <= max(tol, floor) or (waited > 8 and width < 64 * floor) or rounds > SWEEPS:
                return
            if self.uniform:
                shift = -(self.Y[0] + self.tau * (self.Z[0] - self.Y[0]))
                kernels.move(self.Y, self.Z, self.tau, shift, ones)
            elif self.u is not None:  # the least residual along u; the middle of the range would not converge
                e = self._e[self.choice] if self._taken else self._e
                shift = (e[:, None] * (self.Z - self.Y)).sum(axis=0) / float((e * e).sum())
                kernels.move(self.Y, self.Z, 1.0, shift, self.u - e)
            else:
                self.Y[:] = self.Z
            rounds += 1
            began = width if rounds == 1 else began
            waited = 0 if width < 0.9 * best else waited + 1
            best = min(best, width)
            slow = rounds == TRY and (width / began) ** (1 / (TRY - 1)) >= SLOW
            slow = slow and (width / began) ** (FAR / (TRY - 1)) * width > tol
            if slow or rounds % 100 == 0:
                solved = self._krylov(max(tol, floor) / self._omega())
                if not solved and self._judge() > 64 * floor and self.S <= FACTORED:
                    self.direct = True
                    return self.evaluate(tol)

    def _judge(self) -> float:
        """One sweep from Y to Z: values of the policy at hand, and their error by the bound with d = 1."""
        low, high = self._low, self._high
        kernels.sweep(self._ends, self._to, self._weight, self.x, self.Y, self.Z, low, high)
        self.sweeps += 1
        start = self.alpha * self._from_start(self.Y)
        if self.uniform:
            self.level = (low + high) / 2
            self.values, self.half = start + self.beta * self.level, self.beta * (high - low) / 2
        else:
            self.level = np.zeros(self.K)
            error = np.maximum(np.abs(low), np.abs(high))
            self.values = start
            self.half = error * self._omega(float(error[0]))
        return float(self.half.max())

    def rounding(self) -> FloatArray:
        """What rounding adds to the error of the values at hand, [K]."""
        if self.careful:
            return np.zeros(self.K)
        noise = (self.entries + 8) * EPS * (np.abs(self.x).max(axis=0) + 2 * np.abs(self.Y).max(axis=0))
        start = self.starts * EPS * (self.alpha * np.abs(self.Y).max(axis=0) + self.beta * np.abs(self.level))
        slop = self.beta * self.slop * np.abs(self.level)
        return np.asarray(noise * self._omega() + start + slop)

    def _from_start(self, y: FloatArray) -> FloatArray:
        """mu . y for y [S] or [S, K]."""
        return np.asarray(self.mu[self._start] @ y[self._start])

    def advantages(self, taken: IntArray) -> FloatArray:
        """What each of some rows [n] gains if it is taken once instead of the row at hand, [n, K]."""
        gains = np.zeros((len(taken), self.K))
        for k in range(self.K):
            delta, _ = self._changes(self.X[k], np.ascontiguousarray(self.Y[:, k]))
            gains[:, k] = delta[taken] - self.level[k]
        return gains

    def _omega(self, error: float = 0.0) -> float:
        """Omega of d = 1 for the policy at hand; `error` is that of T Y - Y for the reward."""
        if not self.endless:
            return self.omega
        least = float(-self.X[0].max())  # the cost of a step
        return float(-self._from_start(self.Y)[0] / (least - error)) if error < least else np.inf

    def _krylov(self, tol: float) -> bool:
        """Solve for Y with residuals of at most tol; False if that fails."""
        if self._work is None:
            self._work = np.zeros((6, self.S))
        ref = 0 if self.uniform else -1
        matrix = (self._ends, self._to, self._weight)
        solved = True
        for k in range(self.K):
            y, x = np.ascontiguousarray(self.Y[:, k]), np.ascontiguousarray(self.x[:, k])
            if self.uniform:
                y -= y[0]
            least = 4 * EPS * (float(np.abs(y).max()) + float(np.abs(x).max()))
            solved &= bool(kernels.krylov(*matrix, x, ref, y, self._work, max(0.5 * tol, least), PRODUCTS))
            if np.isfinite(y).all():
                self.Y[:, k] = y - y[0] if self.uniform else y
        return solved

    def _solve(self) -> None:
        """Y and level of the policy at hand by elimination."""
        pivot = self._connect() if self.kind == "average" else self._pivot
        P = self.matrix()
        loss = np.full(self.S, 1 - self.gamma) if self.kind == "discounted" else self._lost()
        if self.S > DENSE:
            keeps = self.kind != "total"
            more = {} if keeps else {"exits": loss}
            chain = Chain(P, self.gamma, bordered=keeps, pivot=pivot, work=0.0, **more)
            level, Y = chain.values(self.x)
        else:
            dense, order, level = self.gamma * P.toarray(), np.arange(self.S), np.zeros(self.K)
            Y, values = np.zeros((self.S, self.K)), np.zeros((self.S, self.K))
            for _ in range(2):  # a second time if the pivot turns out to be visited seldom
                order[:] = np.arange(self.S)
                order[0], order[pivot] = pivot, 0
                permuted = (dense[np.ix_(order, order)], loss[order], self.x[order])
                back, most = kernels.eliminate(*permuted, np.zeros(self.S), values, level, self.uniform)
                Y[order] = values
                if not self.uniform or back <= RARE * self.S:
                    break
                pivot = int(order[most])
            self._pivot = pivot
        if np.isfinite(Y).all():
            self.Y, self.level = np.ascontiguousarray(Y), np.asarray(level, dtype=float)

    def _lost(self) -> FloatArray:
        """What the policy at hand loses in every state, [S]."""
        return np.array(self.loss[self.choice])

    def _connect(self) -> int:
        """For averages: let all states walk to the best recurrent class of the policy at hand; a state of it."""
        P = self.matrix()
        classes = closed_classes(P)
        if len(classes) == 1:
            return self._pivot if (classes[0] == self._pivot).any() else int(classes[0][0])
        gains = []
        for members in classes:
            level = Chain(within(P, members)).values(self.x[members])[0]
            gains.append(float(level @ self.weights))
        target, lost = np.zeros(self.S, dtype=bool), np.zeros(self.S, dtype=bool)
        target[classes[int(np.argmax(gains))]] = True
        lost[np.concatenate([c for c in classes if not target[c[0]]])] = True
        chosen = Rows.of(P, np.arange(self.S), self.choice)
        astray = lost | (walk_to(chosen, lost) >= 0)  # states that may end in another class
        self.take(np.where(astray, walk_to(self.rows, target), self.choice))
        return int(np.flatnonzero(target)[0])

    # -- the careful mode

    def be_careful(self) -> None:
        """Bound rounding state by state from now on, and evaluate policies by elimination.

        The profile is in proportion to the rounding of the policy at hand, and of those for which it was made before.
        """
        if not self._taken:
            self.take(self.choice)
        self.direct = self.careful = True
        if self.endless:
            self.profile = np.ones(self.S)
            return
        self._solve()
        size = np.abs(self.X)
        for k in range(self.K):
            size[k] += self._changes(self.X[k], np.ascontiguousarray(self.Y[:, k]))[1] + abs(float(self.level[k]))
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
        """o + P h - h of every row from differences of h, and the size of what is added up, [R] each."""
        rows, delta, size = self.rows, np.empty(self.rows.R), np.empty(self.rows.R)
        kernels.differences(rows.indptr, rows.columns, self.data, rows.owner, self.loss, o, h, delta, size)
        return delta, size

    def _judge_careful(self) -> None:
        """Values of the policy at hand and their error by the bound with the profile."""
        h = np.ascontiguousarray(self.Y.T)
        n = int(self._ends[-1])
        compact = (self._ends, self._to[:n], self._weight[:n], np.arange(self.S), self._lost())
        delta, size = np.empty(self.S), np.empty(self.S)
        d = np.ones(self.S) if self.profile is None else self.profile
        omega = self._omega() if self.endless else self.omega
        for k in range(self.K):
            kernels.differences(*compact, np.ascontiguousarray(self.x[:, k]), h[k], delta, size)
            noise = (self.entries + 8) * EPS * (size + np.abs(self.x[:, k]) + abs(self.level[k]))
            off = float(((np.abs(delta - self.level[k]) + noise) / d).max())
            start = self.alpha * (self.mu * h[k])
            self.values[k] = start.sum() + self.beta * self.level[k]
            rounding = self.starts * EPS * (float(np.abs(start).sum()) + self.beta * abs(self.level[k]))
            self.half[k] = off * omega + rounding

    def _longest(self, d: FloatArray) -> tuple[FloatArray, float]:
        """Largest values W [S] of the signal d [S] > 0 over all policies, and a bound on that from the start.

        The bound is infinite if rounding leaves none.
        """
        x = d[self.rows.owner][None]
        other = self.other(x)
        for rounds in range(IMPROVEMENTS):
            other.take(other.choice)
            if other.direct or not other._krylov(0.1):
                other._solve()
            W = other.Y[:, 0].copy()
            delta, size = other._changes(x[0], W)
            over = delta - other.level[0] * (1.0 if self.uniform else 0.0)
            noise = (self.entries + 8) * EPS * (size + x[0] + abs(other.level[0]))
            if self.uniform:
                b = float((delta + noise).max())
                found = self.alpha * float(self._from_start(W)) + self.beta * b
            else:  # if W lacks at most a share theta of d anywhere, W / (1 - theta) lacks nothing
                theta = float(((delta + noise) / x[0]).max())
                found = float(self._from_start(W)) / (1 - theta) if theta < 1 else np.inf
            if rounds > STUBBORN + self.S:
                break
            more = over > np.maximum(4 * noise, 0.0 if self.uniform else 0.1 * x[0])
            if not more.any():
                break
            better = np.where(more, over, -np.inf)
            better[other.choice] = 0.0
            other.choice = _best_rows(better, self.rows)
        return W, found

    # -- pricing

    def greedy(self, weights: FloatArray, o: FloatArray) -> tuple[float, IntArray, int]:
        """The bound on o = weights . X that Y proves for all policies, a better choice, and how many states move."""
        h = combined(weights, self.Y.T)
        start = self.alpha * float(self._from_start(h))
        if self.careful:
            return self._greedy_careful(weights, o, h, start)
        top = float(np.abs(h).max())
        noise = (self.entries + 8 + self.K) * EPS * (float(np.abs(weights) @ self._top) + 2 * top)
        choice, rows = self.choice.copy(), self.rows
        _, high, moved = kernels.improve(rows.first, rows.indptr, rows.columns, self.data, o, h, noise, choice)
        rounding = self.starts * EPS * self.alpha * top
        if self.uniform:
            self.pad = self.beta * (noise + self.slop * abs(high)) + rounding
            return start + self.beta * high + self.pad, choice, moved
        omega = self._time(weights, o) if self.endless else self.omega
        self.pad = noise * omega + rounding
        return start + max(0.0, high) * omega + self.pad, choice, moved

    def _time(self, weights: FloatArray, o: FloatArray) -> float:
        """How many steps a policy takes at most that has more of o than the policy at hand, if every step costs."""
        least = float(-o.max())
        worth = float(weights @ self.values) - float(np.abs(weights) @ self.half)
        return max(-worth, 0.0) / least if least > 0 else np.inf

    def _greedy_careful(
        self, weights: FloatArray, o: FloatArray, h: FloatArray, start: float
    ) -> tuple[float, IntArray, int]:
        b = float(self.level @ weights)
        delta, size = self._changes(o, h)
        size += np.abs(weights) @ np.abs(self.X) + float(np.abs(self.level) @ np.abs(weights))
        noise = (self.entries + 8 + self.K) * EPS * size
        d = np.ones(self.S) if self.profile is None else self.profile
        kappa = max(0.0, float(((delta - b + noise) / d[self.rows.owner]).max()))
        omega = self._time(weights, o) if self.endless else self.omega
        scale = self.alpha * float(self._from_start(np.abs(h))) + self.beta * abs(b)
        self.pad = float((noise / d[self.rows.owner]).max()) * omega + self.starts * EPS * scale
        here = delta[self.choice]
        off = np.abs(here - b)  # where the values at hand are not exact, only what is clearly better is taken
        error = float(np.abs(weights) @ self.half)
        if np.isfinite(error) and error > WILD:
            off += min(10 * error, 1e-3 * float((delta - here[self.rows.owner]).max()))
        better = np.where(delta > (np.maximum(here, b) + off)[self.rows.owner] + 2 * noise, delta, -np.inf)
        better[self.choice] = delta[self.choice]
        choice = _best_rows(better, self.rows)
        bound = start + self.beta * b + kappa * omega + self.starts * EPS * scale
        return bound, choice, int((choice != self.choice).sum())

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


def combined(weights: FloatArray, signals: FloatArray) -> FloatArray:
    """weights . signals for signals [K, n]."""
    total: FloatArray = weights[0] * signals[0]
    for weight, signal in zip(weights[1:], signals[1:], strict=True):
        if weight:
            total += weight * signal
    return total


def _best_rows(worth: FloatArray, rows: Rows) -> IntArray:
    """[S], the row of every state for which `worth` [R] is largest."""
    top = np.maximum.reduceat(worth, rows.first[:-1].astype(np.int64))
    best = np.flatnonzero(worth == top[rows.owner])
    _, position = np.unique(rows.owner[best], return_index=True)
    return np.asarray(best[position])
