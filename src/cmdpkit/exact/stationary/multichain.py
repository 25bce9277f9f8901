"""Long-run averages where the start can end up in several end components.

What a policy earns in the long run is decided by where it settles and what it does there. So each maximal end component
is priced on its own, which gives a bound u_M on what settling there is worth, and then a smaller problem decides where
to settle: end components become single states in which one stops for u_M or moves on by an action that leaves. That
problem counts a total and has no end components left, so `pricing.Transient` solves and bounds it. This is the
column generation of Derman and Veinott (1972) over deterministic policies, with the multichain problem taken apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from cmdpkit.exact.stationary.components import Rows, walk_to
from cmdpkit.exact.stationary.pricing import Transient
from cmdpkit.exact.stationary.sources import Average, Column
from cmdpkit.model.chains import Chain, closed_classes
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

STOP = -1  # in place of a row: settle here


class Multichain:
    """Columns of a problem with several end components: (states, rows that stay inside) of each."""

    def __init__(self, rows: Rows, X: FloatArray, mu: FloatArray, components: list[tuple[IntArray, BoolArray]]) -> None:
        self.rows, self.X = rows, X
        self.components = components
        self.parts = [Average(rows.part(states, inside), X[:, inside]) for states, inside in components]
        self.quotient, self.origin, self.collapse = _quotient(rows, components)
        self.stops = np.flatnonzero(self.origin == STOP)
        self.mu = np.asarray(self.collapse.T @ mu)
        self.engine = Transient(self.quotient, self.mu)

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, list[Column]]:
        """One column: where to settle, and the best recurrent class of each component settled in."""
        worth = np.zeros(len(self.origin))
        classes: list[Column] = []
        for j, part in enumerate(self.parts):
            worth[self.stops[j]], found = part.price(weights, slack)
            classes.append(found[0])
        upper, choice = self.engine.best(worth, float(np.abs(weights).sum()), slack)
        settled = np.maximum(Chain(self.quotient.P[choice], bordered=False).flow(self.mu), 0.0)
        rows, q = [], []
        v, w = 0.0, np.zeros(len(self.X) - 1)
        for j, column in enumerate(classes):
            if self.origin[choice[j]] == STOP and settled[j] > 0:
                v += settled[j] * column.v
                w += settled[j] * column.w
                rows.append(np.flatnonzero(self.components[j][1])[column.rows])
                q.append(settled[j] * column.q)
        plan = self.origin[choice], classes
        return upper, [Column(float(v), w, np.concatenate(rows), np.concatenate(q), weights, plan)]

    def expand(self, h: FloatArray) -> FloatArray:
        """A value of every state [S] from one of every state of the quotient."""
        expanded: FloatArray = self.collapse @ h
        return expanded

    def policy(self, column: Column) -> IntArray:
        """A column's row for every state [S]: towards the class or the exit in each component, as chosen elsewhere."""
        choice, classes = column.plan
        policy = np.zeros(self.rows.S, dtype=np.int64)
        outside = choice[len(self.components) :]
        policy[self.rows.owner[outside]] = outside
        for j, (states, inside) in enumerate(self.components):
            part = self.parts[j].rows
            numbers = np.flatnonzero(inside)
            target = np.zeros(part.S, dtype=bool)
            if choice[j] == STOP:
                target[part.owner[classes[j].rows]] = True
            else:
                target[np.searchsorted(states, self.rows.owner[choice[j]])] = True
            walk = walk_to(part, target)
            policy[states] = numbers[walk]
            if choice[j] == STOP:
                policy[states[part.owner[classes[j].rows]]] = numbers[classes[j].rows]
            else:
                policy[self.rows.owner[choice[j]]] = choice[j]
        return policy


def _quotient(rows: Rows, components: list[tuple[IntArray, BoolArray]]) -> tuple[Rows, IntArray, Any]:
    """The model with every component as one state, the row behind each of its rows, and the matrix [S, Q] of states.

    Component j is state j, with the row that stops first; other states follow in their order.
    """
    M, S = len(components), rows.S
    index = np.full(S, -1, dtype=np.int64)
    inside = np.zeros(len(rows.owner), dtype=bool)
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
    return Rows(sparse.csr_array(P[order]), owner[order], origin[order]), origin[order], collapse


def combined_policy(
    rows: Rows, mu: FloatArray, parts: list[tuple[float, Column]], choices: list[IntArray]
) -> FloatArray:
    """The usual stationary policy p [R] of a mixture, long-run frequencies where there are any, else expected visits.

    `choices` are the rows of each part. The policy need not have the mixture's frequencies: a state may be passed
    through by one policy and settled in by another.
    """
    R = len(rows.owner)
    settled, passing, last = np.zeros(R), np.zeros(R), np.zeros(R)
    for i in np.argsort([weight for weight, _ in parts]):
        (weight, column), choice = parts[i], choices[i]
        settled[column.rows] += weight * column.q
        P = rows.P[choice]
        outside = np.ones(rows.S, dtype=bool)
        for members in closed_classes(P):
            outside[members] = False
        states = np.flatnonzero(outside)
        if len(states):
            visits = Chain(P[states][:, states], bordered=False).flow(mu[states])
            passing[choice[states]] += weight * np.maximum(visits, 0.0)
        last[:] = 0.0
        last[choice] = 1.0
    p = np.zeros(R)
    todo = np.ones(rows.S, dtype=bool)
    for flow in (settled, passing, last):
        d = np.bincount(rows.owner, flow, rows.S)
        here = (todo & (d > 0))[rows.owner]
        p[here] = flow[here] / d[rows.owner[here]]
        todo &= d <= 0
    return p
