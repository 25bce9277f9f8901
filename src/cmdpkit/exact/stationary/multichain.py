"""Long-run averages where the start can end up in several end components.

Each maximal end component is priced on its own, which gives a bound on what settling there is worth. A smaller problem
then decides where to settle: end components become single states in which one stops or moves on by an action that
leaves. It counts a total and has no end components left (docs/theory/stationary.md, "Several end components").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import sparse

from cmdpkit.exact.stationary.careful import methods_for
from cmdpkit.exact.stationary.parts import ELIMINATION, Methods, PolicyValues, ScaledPart, first_policy, part_of
from cmdpkit.exact.stationary.problem import ComponentRows, marked, walk_to
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chains import Chain, closed_classes, long_run_shares, within

STOP = -1  # in place of a row: settle here


@dataclass(frozen=True, eq=False)
class SeveralParts:
    """A problem with several end components, and what decides where to settle; what `ScaledPart` is for one."""

    rows: ComponentRows
    X: FloatArray  # [K, R], signals
    mu: FloatArray  # [S]
    components: list[tuple[IntArray, BoolArray]]  # states, and rows that stay inside
    kept: tuple[IntArray, ...]  # for each component, which rows it has
    parts: tuple[ScaledPart, ...]  # the components as problems
    quotient: ScaledPart  # every component is one state, which has a row that stops
    origin: IntArray  # the row behind each row of the quotient, or STOP
    index: IntArray  # [S], the state of the quotient to which a state belongs

    omega = 1.0  # the value of the signal 1
    alpha = 0.0  # weight of the start in a value

    def with_signals(self, X: FloatArray) -> SeveralParts:
        """The same components with other signals [K, R]."""
        inside = (np.ascontiguousarray(X[:, kept]) for kept in self.kept)
        parts = tuple(part.with_signals(x) for part, x in zip(self.parts, inside, strict=True))
        return replace(self, X=X, parts=parts)


class SettledValues(NamedTuple):
    """A policy of several parts with its values, like `PolicyValues`."""

    choice: IntArray  # [S], the row taken in every state
    values: FloatArray  # [K]
    error: FloatArray  # [K]
    parts: tuple[PolicyValues, ...]  # the best policy of each component
    quotient: PolicyValues  # where to settle
    method: int = ELIMINATION
    bound: float = np.inf
    pad: float = 0.0

    def in_units(self, unit: FloatArray) -> SettledValues:
        """The same policy, not evaluated yet, for signals that are the old ones divided by unit [K]."""
        values, error = np.zeros(len(unit)), np.full(len(unit), np.inf)
        return self._replace(values=values, error=error, parts=tuple(part.in_units(unit) for part in self.parts))

    def directly(self) -> SettledValues:
        """The same, with policies of components evaluated by elimination from now on."""
        return self._replace(parts=tuple(part._replace(method=ELIMINATION) for part in self.parts))


def several_parts(
    rows: ComponentRows, X: FloatArray, mu: FloatArray, components: list[tuple[IntArray, BoolArray]]
) -> SeveralParts:
    """The problem with signals X [K, R] and these end components."""
    parts, all_kept = [], []
    for states, inside in components:
        part, kept = rows.closed_part(states, inside)
        given = part, np.ascontiguousarray(X[:, kept]), "average", np.zeros(part.S)
        parts.append(part_of(*given, endless=False, blur=0, careful=methods_for(part.S).careful))
        all_kept.append(kept)
    small, origin, index = _quotient(rows, components)
    start = np.bincount(index, mu, small.S).astype(float)
    careful = methods_for(small.S).careful
    quotient = part_of(small, np.zeros((1 + len(X), small.R)), "total", start, endless=False, blur=0, careful=careful)
    return SeveralParts(rows, X, mu, components, tuple(all_kept), tuple(parts), quotient, origin, index)


def first_settled(several: SeveralParts) -> SettledValues:
    """Some policy, not evaluated yet."""
    K, parts = len(several.X), tuple(first_policy(part) for part in several.parts)
    unknown = np.zeros(K), np.full(K, np.inf)
    return SettledValues(several.rows.firsts, *unknown, parts, first_policy(several.quotient))


def _price(
    several: SeveralParts, settled: SettledValues, weights: FloatArray, slack: float, accuracy: float
) -> SettledValues:
    """The best place to settle and the best policy in each component, to within slack, and the bound."""
    K, stops = len(several.X), np.flatnonzero(several.origin == STOP)
    worth, error, pad, priced = np.zeros((1 + K, several.quotient.rows.R)), np.zeros(K), 0.0, []
    for j, part in enumerate(several.parts):
        inside = methods_for(part.S).price(part, settled.parts[j], weights, slack, accuracy)
        worth[0, stops[j]], worth[1:, stops[j]] = inside.bound, inside.values
        error, pad = np.maximum(error, inside.error), max(pad, inside.pad)
        priced.append(inside)
    quotient = several.quotient.with_signals(worth)
    begin = settled.quotient.in_units(np.ones(1 + K))
    where = methods_for(quotient.S).price(quotient, begin, np.eye(1, 1 + K)[0], slack, accuracy)
    choice = _policy(several, tuple(priced), where.choice)
    known = where.values[1:].copy(), where.error[1:] + error, tuple(priced), where
    return SettledValues(choice, *known, ELIMINATION, where.bound, pad + where.pad)


def _evaluate(
    several: SeveralParts, before: SettledValues, choice: IntArray, tol: float, weights: FloatArray
) -> SettledValues:
    """Values of a choice of rows [S], up to rounding."""
    del tol, weights  # values are always as exact as they can be, and there are no classes to choose from
    P, values = several.rows.P[choice], np.zeros(len(several.X))
    for members, mass in long_run_shares(P, several.mu)[1]:
        values += mass * Chain(within(P, members)).values(several.X[:, choice[members]].T)[0]
    return before._replace(choice=choice, values=values, error=np.zeros(len(values)))


def methods_for_several(careful: bool) -> Methods:
    """How policies of several parts are evaluated and improved."""
    return Methods(careful, _evaluate, _price)


def _policy(several: SeveralParts, parts: tuple[PolicyValues, ...], settling: IntArray) -> IntArray:
    """The row of every state [S]: the best policy of components that are settled in, towards the exit of others."""
    rows, chosen = several.rows, several.origin[settling]
    policy = np.zeros(rows.S, dtype=np.int64)
    outside = chosen[len(parts) :]
    policy[rows.owner[outside]] = outside
    for j, (states, _) in enumerate(several.components):
        part, kept = several.parts[j], several.kept[j]
        if chosen[j] == STOP:
            policy[states] = kept[parts[j].choice]
            continue
        door = marked(part.S, np.searchsorted(states, rows.owner[chosen[j]]))
        policy[states] = kept[walk_to(part.rows, door)]
        policy[rows.owner[chosen[j]]] = chosen[j]
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
    return replace(small, exits=(origin[order] == STOP).astype(float)), origin[order], index


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
