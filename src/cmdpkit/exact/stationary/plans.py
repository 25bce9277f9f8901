"""From a mixture of columns to one stationary policy, or to several of which one is drawn at the start.

Where the start can end up in several end components, each maximal one is priced on its own, which gives a bound on
what settling there is worth. A smaller problem then decides where to settle: end components become single states in
which one stops or moves on by an action that leaves. It counts a total and has no end components left
(docs/theory/stationary.md, "Several end components").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cmdpkit.exact.columns import Columns, Found, Parts, PolicyColumn
from cmdpkit.exact.stationary.careful import CAREFUL, methods_for
from cmdpkit.exact.stationary.parts import (
    DENSE,
    ELIMINATION,
    EPS,
    EXACT,
    Methods,
    PolicyValues,
    ScaledPart,
    first_policy,
    part_of,
)
from cmdpkit.exact.stationary.pricing import FACTORED, rounding
from cmdpkit.exact.stationary.problem import ComponentRows, policy_rows, walking, whole_policy
from cmdpkit.exact.stationary.vertex import AGREES, Flows, Search, Vertex, by_values, vertex
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.chains import long_run_shares, within

if TYPE_CHECKING:
    from cmdpkit.exact.stationary import Stationary


from dataclasses import dataclass, replace

from scipy import sparse

from cmdpkit.exact.stationary.problem import marked, walk_to
from cmdpkit.model.transitions import BoolArray, IntArray
from cmdpkit.operators.chains import Chain, closed_classes

TIGHTENINGS = 5  # times that bounds are tightened where a bridged policy misses them by rounding
APART = 1e-9  # share of an occupancy that may get lost when its columns become one policy

DRAWN = (
    "No stationary policy was found that attains the optimum within the bounds: one of several policies is drawn at "
    "the start. The bounds hold on average over that draw, not along each run."
)


class Plans(NamedTuple):
    """What becomes of a mixture: one stationary policy, or several of which one is drawn at the start."""

    policies: list[FloatArray]  # p [R] of the problem's rows each
    weights: FloatArray  # [policies], probabilities of the draw
    attained: bool = True  # False if no stationary policy attains the optimum
    notes: tuple[str, ...] = ()  # what a user should know about it


def policy_of(source: Stationary, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Found:
    """A stationary policy as good as the mixture `parts`, which meets rho (scaled), or whatever comes near it.

    A policy that is not as good as the mixture is not what was looked for. Then a slower way is tried, and at last
    the mixture itself, of which one policy is drawn at the start.
    """
    best = found_of(source, plans_of(source, parts, proof, rho))
    if len(parts) > 1 and best.attained:
        for at_last in (False, True):
            if _lacks(source, best, parts, rho) <= 0:
                break
            plans = _drawn(source, parts, DRAWN) if at_last else plans_of(source, parts, proof, rho, fast=False)
            other = found_of(source, plans)
            best = other if _lacks(source, other, parts, rho) < _lacks(source, best, parts, rho) else best
    return best


def _lacks(source: Stationary, found: Found, parts: Parts, rho: FloatArray) -> float:
    """By how much a policy is worse than the mixture, or misses rho, beyond what rounding explains."""
    mixed = np.append(sum(x * c.v for x, c in parts), rho)
    short = mixed - (found.totals - source.offsets) / source.units - AGREES - source.noise
    return float(short.max())


def found_of(source: Stationary, plans: Plans) -> Found:
    """Plans as a policy of the model, evaluated."""
    assert source.cmdp is not None
    each = [_valued(source, p) for p in plans.policies]
    values = plans.weights @ np.array([x for x, _ in each])
    error = plans.weights @ np.array([x for _, x in each])
    policies = tuple(Policy.of(source.cmdp, whole_policy(source.problem, p)) for p in plans.policies)
    policy = policies[0] if len(policies) == 1 else Mixture(policies, plans.weights / plans.weights.sum())
    totals, shift = source.scale.own(values), np.abs(source.scale.shift * source.scale.factor)
    least = source.scale.own(values - error) - 4 * EPS * (np.abs(totals) + shift)
    return Found(policy, totals, least, plans.attained, plans.notes)


def plans_of(source: Stationary, parts: Parts, proof: PolicyColumn, rho: FloatArray, fast: bool = True) -> Plans:
    """One policy of an extreme point, or what comes near it where no stationary policy attains the optimum."""
    if isinstance(source.part, SeveralParts):
        return _settled(source, parts, rho)
    p = _spread(source, parts, proof, rho, fast)
    if p is not None:
        return Plans([p], np.ones(1))
    return _bridged(source, rho) or _drawn(source, parts, DRAWN)


# -- the values of a policy


def _valued(source: Stationary, p: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values of the policy p [rows of the problem] in the part's units, and their proved error, [1 + N] each."""
    rows, mu, average = source.problem.rows, source.problem.mu, source.kind == "average"
    taken = np.flatnonzero(p)
    if len(taken) == rows.S and not average:
        assert isinstance(source.part, ScaledPart)
        return _known(source.part, source.methods, source.evaluate(taken, EXACT / 8))
    chain, x = policy_rows(rows, p), source.scale.signals(source.problem.X)
    X = np.array([np.bincount(rows.owner, p * row, rows.S) for row in x])
    if not average:
        return _certain(source, chain, X, mu)
    P = chain.P.copy()
    P.sum_duplicates()  # searches for classes do not end where entries are double
    _, classes = long_run_shares(P, mu)
    if len(classes) == 1:
        classes = [(classes[0][0], 1.0)]
    values, error, size = np.zeros(len(X)), np.zeros(len(X)), np.zeros(len(X))
    for members, mass in classes:
        closed = ComponentRows.of(within(P, members), np.arange(len(members)), np.arange(len(members)))
        closed.exits[:] = 0.0
        middle, off = _certain(source, closed, np.ascontiguousarray(X[:, members]), np.zeros(len(members)))
        values += mass * middle
        error += mass * off
        size += mass * np.abs(middle)
    if len(classes) > 1:  # the probabilities of ending in a class are rounded as well
        # Elimination finds each of them up to a share of itself, sweeps only up to a share of the largest.
        error += 16 * EPS * rows.S * (size if rows.S <= DENSE else np.abs(X).max(axis=1))
    return values, error


def _certain(source: Stationary, rows: ComponentRows, X: FloatArray, mu: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values of a chain with one row per state, and their error."""
    methods = CAREFUL if source.methods.careful else methods_for(rows.S)
    values, error = _evaluated(source, methods, rows, X, mu)
    if not methods.careful and rows.S <= FACTORED and error.max() > AGREES:
        values, error = min((values, error), _evaluated(source, CAREFUL, rows, X, mu), key=lambda x: x[1].max())
    return values, error


def _evaluated(
    source: Stationary, methods: Methods, rows: ComponentRows, X: FloatArray, mu: FloatArray
) -> tuple[FloatArray, FloatArray]:
    problem, ones = source.problem, np.ones(len(X))
    part = part_of(rows, X, source.kind, mu, endless=problem.endless, blur=problem.blur, careful=methods.careful)
    policy = first_policy(part)
    if rows.S == source.rows.S and not methods.careful:
        policy = policy._replace(Y=source.now.Y)
    if source.direct and rows.S <= FACTORED:
        policy = policy._replace(method=ELIMINATION)
    policy = methods.evaluate(part, policy, policy.choice, EXACT / 8, ones)
    return _known(part, methods, policy)


def _known(part: ScaledPart, methods: Methods, policy: PolicyValues) -> tuple[FloatArray, FloatArray]:
    """The values of a policy, and their error with rounding, [1 + N] each."""
    return policy.values, policy.error if methods.careful else policy.error + rounding(part, policy)


# -- an extreme point


def _spread(source: Stationary, parts: Parts, proof: PolicyColumn, rho: FloatArray, fast: bool) -> FloatArray | None:
    """One policy as probabilities p of the problem's rows; None if the optimum keeps several classes apart."""
    average, rows = source.kind == "average", source.rows
    if fast and not (average and source.direct):
        p = _by_values(source, parts, proof, rho)
        if p is not None:
            return p
    found = extreme_point(source, parts, proof, rho)
    if len(found.classes) > 1 or found.kept < 1 - APART:
        return _hardly_connected(source, parts, proof, rho)
    unseen = np.bincount(rows.owner, found.q, rows.S) <= 0
    p = np.where(unseen[rows.owner], 0.0, found.p)
    if not average:
        p[proof.choice[unseen]] = 1.0
    return _everywhere(source, p)


def _hardly_connected(source: Stationary, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> FloatArray | None:
    """The same where a class is left so seldom that occupancies do not tell it from one that is never left."""
    if source.rows.S > DENSE:
        return None
    if not source.methods.careful:
        source.take_care(proof.weights)
    p = _by_values(source, parts, proof, rho)
    return p if p is not None and _attains(source, p, parts, rho) else None


def _by_values(source: Stationary, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> FloatArray | None:
    assert not isinstance(source.part, SeveralParts)
    search = Search(source.part, source.methods, source.evaluate)
    scaled = rho + source.scale.base[1:]
    p = by_values(search, [(x, c.choice) for x, c in parts], scaled, proof.weights[1:])
    return None if p is None else _everywhere(source, p)


def extreme_point(source: Stationary, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Vertex:
    """An extreme point as good as the mixture `parts`, which meets rho (scaled), perhaps with several classes."""
    flows = _flows(source)
    with_flows = [(x, *flows.column(c.choice)) for x, c in parts]
    return vertex(flows, with_flows, source.part.X[1:], rho + source.scale.base[1:], proof.weights[1:])


def _flows(source: Stationary) -> Flows:
    return Flows(source.rows, source.kind == "average", source.part.alpha * source.part.mu)


def _everywhere(source: Stationary, p: FloatArray) -> FloatArray:
    """p [rows of the component] on all rows of the problem: states outside walk there."""
    if source.component is None:
        return p
    whole = np.zeros(source.problem.rows.R)
    whole[source.component] = p
    return walking(source.problem.rows, whole)


# -- where no stationary policy is as good as the mixture


def _bridged(source: Stationary, rho: FloatArray) -> Plans | None:
    """A stationary policy that moves between the classes of the optimum just often enough; None without room."""
    bridge, rows, X = source.bridge, source.rows, source.part.X
    if bridge == 0:
        return None
    uniform = 1.0 / np.bincount(rows.owner, minlength=rows.S)[rows.owner]
    d, _ = long_run_shares(rows.chain(uniform), np.full(rows.S, 1.0 / rows.S))
    u = np.maximum(d, 0.0)[rows.owner] * uniform
    pool, flows = Columns(source), _flows(source)
    tightened = (rho - bridge * (X[1:] @ u)) / (1 - bridge)
    for _ in range(TIGHTENINGS):
        if pool.reach(tightened, np.ones(source.N), enough=0.0)[0] < 0:
            return None
        q = bridge * u
        for weight, column in pool.parts(pool.maximise(tightened).weights):
            taken, shares = flows.column(column.choice)
            q[taken] += (1 - bridge) * weight * shares
        p = _everywhere(source, q / np.bincount(rows.owner, q, rows.S)[rows.owner])
        values, error = _valued(source, p)
        short = rho - (source.scale.own(values - error)[1:] - source.offsets[1:]) / source.units[1:]
        if (short <= AGREES).all():  # classes are left so seldom that rounding of q moves mass between them
            break
        tightened = tightened + np.maximum(short, 0.0)
    note = (
        "No stationary policy attains the optimum: it divides its time between classes of states that it never "
        f"leaves. This policy spends a share of {bridge:g} of its time on moving between them."
    )
    return Plans([p], np.ones(1), False, (note,))


def _settled(source: Stationary, parts: Parts, rho: FloatArray) -> Plans:
    """Several end components: one stationary policy if that attains the optimum, else a mixture."""
    problem = source.problem
    one = combined_policy(problem.rows, problem.mu, [(x, c.choice) for x, c in parts])
    drawn = np.bincount(problem.rows.owner, one > 0, problem.rows.S) > 1
    if int(drawn.sum()) <= source.N and _attains(source, one, parts, rho):
        return Plans([one], np.ones(1))
    return _drawn(
        source,
        parts,
        "Once some parts of this model are entered they are never left, and no stationary policy with few random "
        "decisions attains the optimum: one of several policies is drawn at the start. The bounds hold on "
        "average over that draw, not along each run.",
    )


def _attains(source: Stationary, p: FloatArray, parts: Parts, rho: FloatArray) -> bool:
    """Whether the policy p [R] is as good as the mixture and is proved to meet rho (scaled); averages only."""
    values, error = _valued(source, p)
    mixed = sum(x * c.v for x, c in parts)
    return bool(values[0] >= mixed - AGREES and (values[1:] - error[1:] >= rho - AGREES).all())


def _drawn(source: Stationary, parts: Parts, note: str) -> Plans:
    """One of the deterministic policies of a mixture is drawn at the start."""
    policies = [_everywhere(source, source.rows.taking(column.choice)) for _, column in parts]
    several = len(parts) > 1
    return Plans(policies, np.array([x for x, _ in parts]), not several, (note,) if several else ())


# -- Several end components --------------------------------------------------------------------------------------------

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
