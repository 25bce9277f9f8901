"""The best policy for one objective, with a certified upper bound: the pricing step of column generation.

Let o be the objective, h any vector and (Th)(s) = max_a o(s, a) + gamma sum P h. Then

    optimum of o <= max_s (Th - h)(s) + (1 - gamma) mu . h        (discounted, normalised; gamma = 1: long-run average)
    optimum of o <= mu . h + max(0, max_s (Th - h)(s)) mu . m     (total until absorption)

where m(s) is the largest expected number of steps until absorption. Proof of the first line: with c = max(Th - h), the
occupancy q of any policy, with d(s) = sum_a q(s, a), has <q, o> <= sum_s d(s) (h(s) + c) - gamma sum q P h
= c + sum_s h(s) (d(s) - gamma sum q P) = c + (1 - gamma) mu . h. The second line: h + max(0, c) m is not improved by T,
because m >= 1 + P m for every action, so it lies above every policy's total. The bounds hold for *any* h; the better
h solves its equation, the tighter they are. They are raised by a bound on the rounding of their own evaluation.

Policies are improved until the bound is closed: either each policy is evaluated by LU factors (policy iteration), or by
some sweeps h <- o + gamma P h (modified policy iteration), whichever suits the graph; see `chains`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.exact.stationary.components import Rows, walk_to
from cmdpkit.exact.stationary.improving import follow, improve
from cmdpkit.model import chains
from cmdpkit.model.chains import Chain, closed_classes
from cmdpkit.model.compiled import readonly
from cmdpkit.model.sweeps import DAMPING, sparse_rows
from cmdpkit.model.transitions import FloatArray, IntArray

EPS = float(np.finfo(float).eps)
CLOSED = 1e-13  # remaining span of Th - h, relative to the scale of the objective, at which pricing stops
ROUNDS = 200  # improvements of a policy in one pricing with LU factors
STALLED = 500  # rounds without a smaller span after which no better bound is expected
TIE = 2.0  # an action must be better by this many times the rounding to replace another in policy iteration
POLICY_SWEEPS = 50  # sweeps of one policy between two improvements


class Best(NamedTuple):
    """The outcome of one pricing."""

    upper: float  # proved: no policy has more of the objective
    choice: IntArray  # [S], the row of each state in the policy found


class _Improver:
    """What both kinds of pricing share: greedy choices on rows and the decision between LU factors and sweeps."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.first = rows.first
        self._P, self._ends = sparse_rows(rows.P), readonly(np.append(self.first, len(rows.owner)))
        self.h = np.zeros(rows.S)
        self._change = np.zeros(rows.S)  # T h - h with the T of the choice
        self.choice = self.first.copy()
        self.entries = int(np.diff(rows.P.indptr).max(initial=0))
        self.work = chains.factor_work(rows.graph(np.ones(len(rows.owner), dtype=bool)))
        self.direct = self.work < chains.DIRECT_AT_ONCE

    def rounding(self, o: FloatArray, h: FloatArray) -> float:
        """Bound on the rounding in o + P h - h of one row."""
        return (self.entries + 8) * EPS * (float(np.abs(o).max()) + 2 * float(np.abs(h).max()))

    def improve(self, o: FloatArray, gamma: float, tie: float) -> tuple[float, float]:
        """Move `choice` where it is beaten by more than `tie`; the smallest and the largest entry of Th - h."""
        low, high = improve(self._P, self._ends, readonly(o), gamma, tie, self.h, self.choice, self._change)
        return float(low), float(high)

    @property
    def chain_work(self) -> float:
        """What to tell a `Chain` of this model about the work of its LU factors."""
        return 0.0 if self.direct else self.work

    def slow(self, sweeps: int) -> bool:
        """Whether sweeps have taken long enough to switch to LU factors."""
        return not self.direct and sweeps > chains.SWEEPS and self.work < chains.DIRECT_AT_ALL


class Recurrent(_Improver):
    """Pricing of discounted values, or of long-run averages in one end component (gamma = 1)."""

    def __init__(self, rows: Rows, gamma: float, mu: FloatArray) -> None:
        super().__init__(rows)
        self.gamma, self.mu = gamma, mu
        self.starts = int(np.count_nonzero(mu))
        self.sweeps = 0  # max-sweeps and policy sweeps so far

    def best(self, o: FloatArray, scale: float, slack: float = 0.0) -> Best:
        """The best policy for o [R], whose entries could be as large as `scale`, or one within `slack` of it."""
        upper, began = np.inf, self.sweeps
        smallest, waited, rounds = np.inf, 0, 0
        last = self.choice
        self.choice, self.h = self.choice.copy(), self.h.copy()  # the last ones may be kept elsewhere
        while True:
            noise = self.rounding(o, self.h)
            low, high = self.improve(o, self.gamma, TIE * noise if self.direct else EPS * scale)
            self.sweeps += 1
            span = high - low
            upper = min(upper, self._bound(high, noise))
            if span <= max(CLOSED * scale, noise, slack):
                break
            waited = 0 if span < 0.99 * smallest else waited + 1
            smallest = min(smallest, span)
            if waited > STALLED or self.sweeps - began > chains.LAST_SWEEPS:
                break
            if self.direct and rounds < ROUNDS:
                rounds += 1
                before = self.choice.copy()
                self._evaluate(o)
                if rounds > 1 and (before == last).all():  # nothing left to improve but rounding
                    rounds = ROUNDS
                last = before
            else:
                self._sweep(o)
                self.direct = self.direct or self.slow(self.sweeps - began)
        return Best(upper, self.choice)

    def bound(self, o: FloatArray, h: FloatArray) -> float:
        """The upper bound on o [R] that any vector h [S] proves."""
        Q = o + self.gamma * (self.rows.P @ h)
        self.h = h
        return self._bound(float((np.maximum.reduceat(Q, self.first) - h).max()), self.rounding(o, h))

    def _bound(self, excess: float, noise: float) -> float:
        """The largest `excess` of Th - h plus (1 - gamma) mu . h, both rounded up."""
        shift = (1 - self.gamma) * float(self.mu @ self.h)
        rounded = (self.starts + 4) * EPS * (1 - self.gamma) * float(np.abs(self.h).max())
        return excess + shift + noise + rounded

    def _evaluate(self, o: FloatArray) -> None:
        """h becomes the relative value of the choice, which is first made to have one recurrent class."""
        P, pivot = self.rows.P[self.choice], 0
        if self.gamma == 1:
            P, pivot = self._connect(P, o)
        _, h = Chain(P, self.gamma, pivot=pivot, work=0.0).values(o[self.choice][:, None])
        self.h = h[:, 0] - h[0, 0]

    def _connect(self, P: Any, o: FloatArray) -> tuple[Any, int]:
        """Let all states walk to the best class of the choice, whose chain is P; its new chain and a state of it."""
        classes = closed_classes(P)
        if len(classes) > 1:
            gains = [Chain(P[c][:, c]).flow(np.zeros(len(c)), 1.0) @ o[self.choice[c]] for c in classes]
            target = np.zeros(self.rows.S, dtype=bool)
            target[classes[int(np.argmax(gains))]] = True
            lost = np.zeros(self.rows.S, dtype=bool)
            lost[np.concatenate([c for c in classes if not target[c[0]]])] = True
            chosen = Rows(P, np.arange(self.rows.S), self.choice)
            astray = lost | (walk_to(chosen, lost) >= 0)  # may end in another class
            self.choice = np.where(astray, walk_to(self.rows, target), self.choice)
            return self.rows.P[self.choice], int(np.flatnonzero(target)[0])
        return P, int(classes[0][0])

    def _sweep(self, o: FloatArray) -> None:
        """Some sweeps of the choice, until the span of their change has fallen tenfold."""
        tau = DAMPING if self.gamma == 1 else 1.0
        aim = 0.1 * float(np.ptp(self._change))
        rule = (self.gamma, tau, POLICY_SWEEPS, aim)
        self.sweeps += follow(self._P, readonly(o), self.choice, *rule, self.h, self._change)
        self.h = self.h + tau * self._change
        self.h -= self.h[0]


class Transient(_Improver):
    """Pricing of totals until absorption; rows of P may sum to less than 1, and every policy is absorbed."""

    def __init__(self, rows: Rows, mu: FloatArray) -> None:
        super().__init__(rows)
        self.mu = mu
        self.longest = np.zeros(rows.S)
        self.longest = self._longest()

    def best(self, o: FloatArray, scale: float, slack: float = 0.0) -> Best:
        """The best policy for o [R], whose entries could be as large as `scale`, or one within `slack` of it."""
        upper, began = np.inf, 0
        steps = max(float(self.mu @ self.longest), 1.0)
        last = np.inf
        self.choice, self.h = self.choice.copy(), self.h.copy()  # the last ones may be kept elsewhere
        for sweeps in range(chains.LAST_SWEEPS):
            noise = self.rounding(o, self.h)
            low, high = self.improve(o, 1.0, noise / (self.entries + 8))
            over = max(abs(low), abs(high))
            bound = float(self.mu @ self.h) + max(0.0, high + noise) * float(self.mu @ self.longest)
            bound += self.rounding(o, self.h)
            upper = min(upper, bound)
            if over <= max(CLOSED * scale, noise, slack / steps) or (
                self.direct and over >= last and sweeps - began > 20
            ):
                break
            if self.direct:
                last = min(last, over)
                chain = Chain(self.rows.P[self.choice], bordered=False, work=0.0)
                self.h = chain.values(o[self.choice][:, None])[1][:, 0]
            else:
                P, x = self.rows.P[self.choice], o[self.choice]
                for _ in range(POLICY_SWEEPS):
                    self.h = x + P @ self.h
                if self.slow(sweeps * POLICY_SWEEPS):
                    self.direct, began = True, sweeps
        return Best(upper, self.choice)

    def _longest(self) -> FloatArray:
        """m [S] with m >= 1 + P m for every row: no policy takes more steps, in expectation, from any state."""
        ones = np.ones(len(self.rows.owner))
        self.best(ones, 1.0)
        m = self.h
        missing = float((1 + self.rows.P @ m - m[self.rows.owner]).max()) + self.rounding(ones, m)
        self.h = np.zeros(self.rows.S)
        # If m lacks at most `missing` < 1 anywhere, m / (1 - missing) lacks nothing.
        return m / (1 - missing) if 0 < missing < 1 else m
