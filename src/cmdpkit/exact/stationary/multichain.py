"""Long-run averages where the start can end up in several end components.

Each maximal end component is priced on its own, which gives a bound on what settling there is worth. A smaller problem
then decides where to settle: end components become single states in which one stops or moves on by an action that
leaves. It counts a total and has no end components left (docs/theory/stationary.md, "Several end components").
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cmdpkit.exact.stationary.engine import DIRECT_STATES, Engine
from cmdpkit.exact.stationary.problem import ComponentRows, marked, walk_to
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chains import Chain, closed_classes, long_run_shares, within

STOP = -1  # in place of a row: settle here


class Several:
    """Does for several end components, (states, rows that stay inside) each, what `Engine` does for one."""

    omega = 1.0  # the value of the signal 1

    def __init__(
        self, rows: ComponentRows, X: FloatArray, mu: FloatArray, components: list[tuple[IntArray, BoolArray]]
    ) -> None:
        self.rows, self.X, self.mu, self.components = rows, X, mu, components
        self.S, self.K, self.kind, self.direct, self.careful = rows.S, len(X), "average", True, rows.S <= DIRECT_STATES
        self.weights = np.ones(self.K)
        self.kept = []  # for each component, which rows it has
        self.parts = []  # for each component, the engine
        for states, inside in components:
            part, kept = rows.part(states, inside)
            part.exits[:] = 0.0
            self.kept.append(kept)
            self.parts.append(Engine(part, np.ascontiguousarray(X[:, kept]), "average", np.zeros(part.S)))
        small, self.origin, self.index = _quotient(rows, components)
        start = np.bincount(self.index, mu, small.S).astype(float)
        self.quotient = Engine(small, np.zeros((1 + self.K, small.R)), "total", start)
        self.choice = rows.first[:-1].astype(np.int64)
        self.values, self.half, self.pad = np.zeros(self.K), np.full(self.K, np.inf), 0.0

    def begin_with(self, unit: FloatArray, X: FloatArray) -> None:
        """Other signals, see `Engine`."""
        self.X = X
        for part, kept in zip(self.parts, self.kept, strict=True):
            part.begin_with(unit, np.ascontiguousarray(X[:, kept]))

    def other(self, X: FloatArray) -> Several:
        """The same components with other signals X [K, R]."""
        return Several(self.rows, X, self.mu, self.components)

    def be_careful(self) -> None:
        """Bound rounding state by state from now on."""
        self.careful = True
        for part in self.parts:
            part.direct = True

    def take(self, choice: IntArray) -> None:
        """Make a choice of rows [S] the policy at hand."""
        self.choice = choice

    def price(self, weights: FloatArray, slack: float, accuracy: float) -> float:
        """The best place to settle and the best policy in each component, see `Engine`."""
        worth = np.zeros((1 + self.K, self.quotient.rows.R))
        stops = np.flatnonzero(self.origin == STOP)
        error, self.pad = np.zeros(self.K), 0.0
        for j, part in enumerate(self.parts):
            worth[0, stops[j]] = part.price(weights, slack, accuracy)
            worth[1:, stops[j]] = part.values
            error = np.maximum(error, part.half)
            self.pad = max(self.pad, part.pad)
        self.quotient.begin_with(np.ones(1 + self.K), worth)
        upper = self.quotient.price(np.eye(1, 1 + self.K)[0], slack, accuracy)
        self.pad += self.quotient.pad
        self.choice = self._policy()
        self.values, self.half = self.quotient.values[1:].copy(), self.quotient.half[1:] + error
        return upper

    def evaluate(self, tol: float) -> None:
        """Values of the policy at hand, up to rounding."""
        P = self.rows.P[self.choice]
        self.values, self.half = np.zeros(self.K), np.zeros(self.K)
        for members, mass in long_run_shares(P, self.mu)[1]:
            self.values += mass * Chain(within(P, members)).values(self.X[:, self.choice[members]].T)[0]

    def _policy(self) -> IntArray:
        """The row of every state [S]: the best policy of components that are settled in, towards the exit of others."""
        chosen = self.origin[self.quotient.choice]
        policy = np.zeros(self.S, dtype=np.int64)
        outside = chosen[len(self.components) :]
        policy[self.rows.owner[outside]] = outside
        for j, (states, _) in enumerate(self.components):
            part, kept = self.parts[j], self.kept[j]
            if chosen[j] == STOP:
                policy[states] = kept[part.choice]
                continue
            door = marked(part.S, np.searchsorted(states, self.rows.owner[chosen[j]]))
            policy[states] = kept[walk_to(part.rows, door)]
            policy[self.rows.owner[chosen[j]]] = chosen[j]
        return policy


def _quotient(
    rows: ComponentRows, components: list[tuple[IntArray, BoolArray]]
) -> tuple[ComponentRows, IntArray, IntArray]:
    """The model with every component as one state, the row behind each of its rows, and the new number of each state.

    Component j is state j, with the row that stops first; other states follow in their order.
    """
    M, S = len(components), rows.S
    index = np.full(S, -1, dtype=np.int64)
    inside = np.zeros(rows.R, dtype=bool)
    for j, (states, stays) in enumerate(components):
        index[states] = j
        inside |= stays
    transient = np.flatnonzero(index < 0)
    index[transient] = M + np.arange(len(transient))
    Q = M + len(transient)
    collapse = sparse.csr_array((np.ones(S), (np.arange(S), index)), shape=(S, Q))
    leaving = np.flatnonzero(~inside)
    P = sparse.csr_array(sparse.vstack([sparse.csr_array((M, Q)), rows.P[leaving] @ collapse]))
    owner = np.concatenate((np.arange(M), index[rows.owner[leaving]]))
    origin = np.concatenate((np.full(M, STOP), leaving))
    order = np.argsort(owner, kind="stable")
    small = ComponentRows.of(P[order], owner[order], origin[order])
    small.exits[:] = origin[order] == STOP
    return small, origin[order], index


def combined_policy(rows: ComponentRows, mu: FloatArray, parts: list[tuple[float, IntArray]]) -> FloatArray:
    """The usual stationary policy p [R] of a mixture of choices [S]: long-run frequencies, else expected visits.

    It need not have the mixture's frequencies: one policy may pass through a state in which another settles.
    """
    settled, passing = np.zeros(rows.R), np.zeros(rows.R)
    for weight, choice in sorted(parts, key=lambda part: part[0]):
        P = rows.P[choice]
        shares, _ = long_run_shares(P, mu)
        settled[choice] += weight * shares
        states = np.flatnonzero(~marked(rows.S, np.concatenate(closed_classes(P))))
        if len(states):
            visits = Chain(P[states][:, states], bordered=False).flow(mu[states])
            passing[choice[states]] += weight * np.maximum(visits, 0.0)
        last = rows.taking(choice)
    p = np.zeros(rows.R)
    todo = np.ones(rows.S, dtype=bool)
    for flow in (settled, passing, last):
        d = np.bincount(rows.owner, flow, rows.S)
        here = (todo & (d > 0))[rows.owner]
        p[here] = flow[here] / d[rows.owner[here]]
        todo &= d <= 0
    return p
