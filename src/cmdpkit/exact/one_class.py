"""Long-run averages by one policy that can be run forever: a single recurrent class, and few draws.

The optimum under bounds may divide its time between several classes of states that it never leaves, or settle in one of
them by chance. The long-run averages of a run then depend on luck. The averages of a policy with one recurrent class do
not. Its class lies within one maximal end component, so the best value in a component that is reached with probability
1 is a proved limit for all such policies. Policies that move between two classes ever more seldom come as near to it as
one likes.

`one_class_of` takes the component with the largest limit, and connects the classes of its optimum by *doors*: actions
that lead out of a class, from the state that is nearest to another class. Between the classes the policy walks, with a
draw where two ways cross. The probabilities of the doors are scaled until every class has its share of time and the
moves take the share that was allowed; the bounds are tightened by what the moves cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import Optimum, Pool
from cmdpkit.exact.solution import OneClass, StationarySolution
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.stationary import Stationary
from cmdpkit.exact.stationary.plans import extreme_point
from cmdpkit.exact.stationary.problem import marked
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chains import chain_of, long_run_shares
from cmdpkit.operators.policies import evaluate
from cmdpkit.operators.row_lists import entries_of

MOST_DOOR = 0.5  # largest probability of leaving a class from a state
TIGHTENINGS = 20  # times that bounds are tightened
SCALINGS = 60  # times that the probabilities of doors are scaled
SETTLED = 1e-12  # relative change of these probabilities that counts as none
SMALLER = (1.0, 0.03, 0.001)  # parts of the allowed time for moves that are tried, if the bounds leave no room for more


class _Part(NamedTuple):
    """An end component that is reached with probability 1."""

    limit: float  # no policy that settles in it has a larger value
    cmdp: CMDP  # the model without the actions that leave it
    pool: Pool  # deterministic policies in it
    best: Optimum  # the best mixture of them


class _Classes(NamedTuple):
    """An optimum that divides its time between classes."""

    pi: FloatArray  # [S, A], zero outside the classes
    members: list[BoolArray]  # [S] each
    shares: FloatArray  # [classes], of the time; they sum to 1


class _Doors(NamedTuple):
    """How to come from class to class."""

    exits: list[tuple[int, int, float]]  # class, pair s * A + a that leads out of it, and how often it is used
    way: FloatArray  # [S, A], the policy on the way, zero at states that are not on it


def one_class_of(cmdp: CMDP, optimum: StationarySolution, bridge: float) -> StationarySolution:
    """The best policy that was found with one recurrent class, and its cost compared with the optimum."""
    count = _count(cmdp, optimum)
    if count == 1 and optimum.attained:
        assert isinstance(optimum.policy, Policy)
        cost = OneClass(optimum.value, optimum.value + optimum.gap, 0.0, 0.0, len(optimum.stochastic_decisions()), None)
        return replace(optimum, one_class=cost)
    best: StationarySolution | None = None
    limit = -np.inf
    for part in sorted(_parts(cmdp), key=lambda part: -part.limit):
        limit = max(limit, part.limit)
        if best is not None and best.value >= part.limit:
            break
        connected = _connected(cmdp, part, bridge)
        if connected is not None and (best is None or evaluate(cmdp, connected[0]).v > best.value):
            best = _answer(cmdp, optimum, *connected, limit, count)
    if best is None:
        raise CmdpkitError(
            "no policy with one recurrent class was found that meets all bounds: they leave no room for moving between "
            f"the {count} classes of the optimum. Relax a bound a little, or leave out one_class"
        )
    return best


def _count(cmdp: CMDP, optimum: StationarySolution) -> int:
    """In how many classes the optimum may settle."""
    policies = optimum.policy.policies if isinstance(optimum.policy, Mixture) else (optimum.policy,)
    found = (long_run_shares(chain_of(cmdp, policy.table(0)), cmdp.mu)[1] for policy in policies)
    return len({tuple(members.tolist()) for classes in found for members, _ in classes})


def _answer(
    cmdp: CMDP, optimum: StationarySolution, policy: Policy, stay: float | None, limit: float, count: int
) -> StationarySolution:
    """The policy as a solution, with its cost."""
    value, utilities = evaluate(cmdp, policy)
    lost = max(0.0, optimum.value - value)
    share = lost / abs(optimum.value) if optimum.value else np.inf
    drawn = long_run_shares(chain_of(cmdp, policy.table(0)), cmdp.mu)[0] * ((policy.table(0) > 0).sum(axis=1) > 1)
    cost = OneClass(optimum.value, float(limit), float(lost), float(share), int((drawn > 0).sum()), stay)
    by = f"{lost:.4g} ({100 * share:.3g} %)" if np.isfinite(share) else f"{lost:.4g}"
    note = (
        f"This policy has one recurrent class. It is {by} below the optimum of {optimum.value:.6g}, which has {count} "
        "classes."
    )
    if limit < optimum.value - optimum.gap - 1e-9 * abs(optimum.value):
        note += f" No policy with one class has more than {limit:.6g}."
    if stay is not None:
        note += f" It moves on after {stay:,.0f} steps on average; with a larger bridge it does so more often."
    return replace(
        optimum,
        policy=policy,
        value=float(value),
        utilities=np.asarray(utilities, dtype=float),
        gap=float(lost) + optimum.gap,
        binds=optimum.binds & (cmdp.signs * utilities - cmdp.rho <= optimum.tolerance),
        attained=False,
        notes=(note,),
        one_class=cost,
    )


# -- where to settle ---------------------------------------------------------------------------------------------------


def _parts(cmdp: CMDP) -> Iterator[_Part]:
    """The end components in which a policy can settle for certain and meet all bounds."""
    source = columns_of(cmdp).source
    assert isinstance(source, Stationary)
    for states, rows in source.components:
        members = marked(cmdp.S, source.problem.states[states])
        inside = marked(cmdp.S * cmdp.A, source.problem.rows.pair[rows])
        if not _sure(cmdp, members)[0][cmdp.mu > 0].all():
            continue
        allowed = np.where(members[:, None], inside.reshape(cmdp.S, cmdp.A), cmdp.actions[0])
        g, rho = (cmdp.compact.g[:, 0], cmdp.rho) if cmdp.N else (None, None)
        start = np.eye(cmdp.S)[int(members.argmax())]
        part = CMDP(cmdp.kernel, cmdp.compact.r[0], g, rho, start, actions=allowed, criterion="average")
        pool = columns_of(part)
        scaled = pool.thresholds(pool.scaled(part.rho))
        if scaled is not None:
            best = pool.maximise(scaled)
            yield _Part(pool.value(best) + pool.proved(best), part, pool, best)


def _entries(cmdp: CMDP) -> tuple[IntArray, IntArray, FloatArray]:
    """Pair s * A + a, next state and probability of all transitions of allowed actions."""
    pair, to, chance = entries_of(cmdp.rows)
    use = cmdp.actions[0].reshape(-1)[pair] & (chance > 0)
    return pair[use], to[use].astype(np.int64), chance[use]


def _sure(cmdp: CMDP, target: BoolArray) -> tuple[BoolArray, IntArray]:
    """States [S] from which the target can be reached with probability 1, and the pair [S] to take there."""
    pair, to, _ = _entries(cmdp)
    size, sure = cmdp.S * cmdp.A, np.ones(cmdp.S, dtype=bool)
    while True:
        stays = np.bincount(pair, ~sure[to], size) == 0
        there, take = target.copy(), np.full(cmdp.S, -1)
        while True:
            near = ((np.bincount(pair, there[to], size) > 0) & stays).reshape(cmdp.S, cmdp.A)
            new = near.any(axis=1) & ~there & sure
            if not new.any():
                break
            take[new] = np.flatnonzero(new) * cmdp.A + near[new].argmax(axis=1)
            there |= new
        if (there == sure).all():
            return sure, take
        sure = there


def _settling(cmdp: CMDP, pi: FloatArray) -> Policy:
    """The policy pi [S, A] where it is not zero; elsewhere one that goes there for certain, if one does."""
    target: BoolArray = pi.sum(axis=1) > 0
    _, take = _sure(cmdp, target)
    whole, going = pi.copy().reshape(-1), ~target & (take >= 0)
    whole[take[going]] = 1.0
    return Policy.of(cmdp, _filled(cmdp, whole.reshape(cmdp.S, cmdp.A)))


# -- from class to class -----------------------------------------------------------------------------------------------


def _connected(cmdp: CMDP, part: _Part, bridge: float) -> tuple[Policy, float | None] | None:
    """A policy with one class in an end component that meets the bounds, and how long it stays in a class."""
    pool = part.pool
    least = cmdp.rho - pool.source.ranges.tolerance[1:] / 2
    for smaller in SMALLER:
        best, tightened = part.best, cmdp.rho
        for _ in range(TIGHTENINGS):
            classes = _classes(part.cmdp, pool, best)
            pi, stay = _moving(part.cmdp, classes, smaller * bridge)
            policy = _settling(cmdp, pi)
            utilities = cmdp.signs * evaluate(cmdp, policy).w
            if (utilities >= least).all():
                return policy, stay
            tightened = np.maximum(cmdp.rho, tightened + cmdp.rho - utilities)
            rho = pool.scaled(tightened)
            if pool.reach(rho, np.ones(cmdp.N), enough=0.0)[0] < 0:
                break
            best = pool.maximise(rho)
    return None


def _classes(cmdp: CMDP, pool: Pool, best: Optimum) -> _Classes:
    """The classes of an extreme point as good as the best mixture."""
    source = pool.source
    assert isinstance(source, Stationary)
    rows = source.rows
    found = extreme_point(source, pool.parts(best.weights), best.proof, best.rho)
    q = np.zeros(cmdp.S * cmdp.A)
    q[rows.pair] = found.q
    d = q.reshape(cmdp.S, cmdp.A).sum(axis=1)
    names = rows.pair[rows.first[:-1].astype(np.int64)] // cmdp.A
    members = [np.isin(np.arange(cmdp.S), names[states]) for states in found.classes]
    pi = np.zeros(cmdp.S * cmdp.A)
    pi[rows.pair] = np.where(np.any(members, axis=0)[rows.pair // cmdp.A], found.p, 0.0)
    shares = np.array([d[x].sum() for x in members])
    return _Classes(pi.reshape(cmdp.S, cmdp.A), members, shares / shares.sum())


def _moving(cmdp: CMDP, classes: _Classes, bridge: float) -> tuple[FloatArray, float | None]:
    """A policy [S, A] that moves between the classes in a share ``bridge`` of its time, and its mean stay in one."""
    if len(classes.members) == 1:
        return classes.pi, None
    S, A = cmdp.S, cmdp.A
    doors = _doors(cmdp, classes.members)
    inside = classes.pi.any(axis=1)
    start = inside / inside.sum()
    alone = long_run_shares(chain_of(cmdp, _filled(cmdp, classes.pi)), start)[0]
    k, pair, often = (np.array(x) for x in zip(*doors.exits, strict=True))
    here = np.array([alone[s] / alone[classes.members[i]].sum() for i, s in zip(k, pair // A, strict=True)])
    flow, speed = bridge, np.ones(len(classes.members))
    for _ in range(SCALINGS):
        chance = flow * speed[k] * often / (classes.shares[k] * here)
        flow *= min(1.0, MOST_DOOR / float(np.bincount(pair // A, chance).max()))
        chance = flow * speed[k] * often / (classes.shares[k] * here)
        leaving = np.bincount(pair // A, chance, S)
        pi = classes.pi * (1 - leaving)[:, None] + doors.way
        np.add.at(pi.reshape(-1), pair, chance)
        shares = long_run_shares(chain_of(cmdp, _filled(cmdp, pi)), start)[0]
        each = np.array([shares[x].sum() for x in classes.members])
        moves = float(1 - each.sum() + shares[pair // A] @ chance)
        new_speed, new_flow = speed * each / each.sum() / classes.shares, flow * bridge / moves
        change = max(float(np.abs(new_speed / speed - 1).max()), abs(min(new_flow / flow, 1.0) - 1))
        if change <= SETTLED:
            break
        speed, flow = new_speed, new_flow
    return pi, float(each.sum() / (shares[pair // A] @ chance))


def _filled(cmdp: CMDP, pi: FloatArray) -> FloatArray:
    """pi [S, A] with the first action where it is zero."""
    first = np.eye(cmdp.A)[cmdp.actions[0].argmax(axis=1)]
    return np.asarray(np.where(pi.any(axis=1, keepdims=True), pi, first))


def _doors(cmdp: CMDP, classes: list[BoolArray]) -> _Doors:
    """Doors from the first class to every other one and back, perhaps by way of others."""
    S, A, K = cmdp.S, cmdp.A, len(classes)
    pair, to, chance = _entries(cmdp)
    owner, taken = pair // A, np.any(classes, axis=0)
    lengths, nearest, walks = np.full((K, K), np.inf), np.zeros((K, K), dtype=np.int64), np.zeros((K + 1, S), np.int64)
    for j, target in reversed(list(enumerate([*classes, taken]))):  # the last walk leads to any class
        free = ~taken[to] | target[to]
        back = sparse.csr_array((np.ones(int(free.sum())), (to[free], owner[free])), shape=(S, S))
        far = dijkstra(back, indices=np.flatnonzero(target), unweighted=True, min_only=True)
        nearer = free & (far[to] < far[owner])
        best = np.bincount(pair[nearer], chance[nearer], S * A).reshape(S, A).argmax(axis=1)
        walks[j] = np.where(np.isfinite(far), np.arange(S) * A + best, walks[K])
        if j == K:
            continue
        for i in range(K):
            inside = np.flatnonzero(classes[i])
            nearest[i, j] = inside[far[inside].argmin()]
            lengths[i, j] = np.inf if i == j else far[nearest[i, j]]
    used: dict[tuple[int, int], int] = {}  # how many of the ways there and back use a door
    for matrix, away in ((lengths, True), (lengths.T, False)):
        before = dijkstra(matrix, indices=0, return_predecessors=True)[1]
        for j in range(1, K):
            while j != 0:
                door = (int(before[j]), j) if away else (j, int(before[j]))
                used[door] = used.get(door, 0) + 1
                j = int(before[j])
    successors = sparse.csr_array((chance, (pair, to)), shape=(S * A, S))
    way = np.zeros(S * A)
    for i, j in used:
        todo, seen = [int(walks[j][nearest[i, j]])], taken.copy()
        while todo:
            step = todo.pop()
            reached = successors[[step]].indices
            new = reached[~seen[reached]]
            seen[reached] = True
            way[walks[j][new]] += used[i, j]
            todo += walks[j][new].tolist()
    table = way.reshape(S, A)
    exits = [(i, int(walks[j][nearest[i, j]]), float(n)) for (i, j), n in used.items()]
    return _Doors(exits, table / np.maximum(table.sum(axis=1, keepdims=True), 1.0))
