"""From a mixture of columns to one stationary policy at an extreme point: few states draw, and there are few classes.

`vertex` follows the proof of Lemma S in docs/theory/stationary.md: while there are more extra actions and classes than
binding constraints, some combination of directions leaves all binding utilities unchanged, and is followed until an
action or a class runs dry. Where the policies of the mixture differ in few states, `by_values` mostly finds the extreme
point from the values of policies alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.exact.stationary.parts import Methods, PolicyValues, ScaledPart, advantages, with_values
from cmdpkit.exact.stationary.problem import ComponentRows, marked
from cmdpkit.model.tolerances import FEASIBLE, NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chains import Chain, closed_classes, within

TIGHT = 1e-9  # a utility within this of its threshold (scaled) is binding
DEPENDENT = 1e-11  # directions are dependent if a singular value of their effects is at most this
AGREES = FEASIBLE / 4  # a policy that comes this near (scaled) to a mixture takes its place


class _Class(NamedTuple):
    """States that carry a part of the occupancy: all of them, or for averages one recurrent class."""

    states: IntArray  # their numbers in the model
    chain: Chain  # the Markov chain of the policy on them
    mass: float  # share of the occupancy that the class has
    q: FloatArray  # [R], its occupancy, exactly for the policy


@dataclass(frozen=True)
class Flows:
    """How occupancies flow."""

    rows: ComponentRows  # actions of all states, one row each
    average: bool  # whether it is shares of time that flow, without end, and not visits until the exit
    inflow: FloatArray  # [S], what the start adds to visits

    def classes(self, p: FloatArray, q: FloatArray) -> tuple[list[_Class], float]:
        """The classes of the policy p [R], with the masses that q [R] gives them, and the share of q in them."""
        P = self.rows.chain(p)
        if not self.average:
            exits = np.bincount(self.rows.owner, p * self.rows.exits, self.rows.S).astype(float)
            chain = Chain(P, bordered=False, exits=exits)
            return [self._class(p, np.arange(self.rows.S), chain, self.inflow, 1.0)], 1.0
        states = np.flatnonzero(marked(self.rows.S, self.rows.owner[p > 0]))
        part = P[states][:, states]
        d = np.bincount(self.rows.owner, q, self.rows.S)
        masses = [(x, float(d[states[x]].sum())) for x in closed_classes(part)]
        found = [(x, mass) for x, mass in masses if mass > NEGLIGIBLE]
        if not found:
            return [], 0.0
        whole, still = sum(mass for _, mass in found), np.zeros(len(states))
        classes = [self._class(p, states[x], Chain(part[x][:, x]), still[x], mass / whole) for x, mass in found]
        return classes, whole / float(d.sum())

    def _class(self, p: FloatArray, states: IntArray, chain: Chain, inflow: FloatArray, mass: float) -> _Class:
        return _Class(states, chain, mass, self._spread(p, states, np.maximum(chain.flow(inflow, mass), 0.0)))

    def column(self, choice: IntArray) -> tuple[IntArray, FloatArray]:
        """The rows that a choice [S] ever takes, and their occupancy; for averages those of its best-fed class."""
        P = self.rows.P[choice]
        if self.average:
            members = closed_classes(P)[0]
            q = Chain(within(P, members)).flow(np.zeros(len(members)), 1.0)
            return choice[members], np.maximum(q, 0.0)
        chain = Chain(P, bordered=False, exits=self.rows.exits[choice])
        return choice, np.maximum(chain.flow(self.inflow), 0.0)

    def shift(self, p: FloatArray, c: _Class, extra: int, base: int) -> FloatArray:
        """Change of q [R] when one unit moves from row `base` to row `extra` of a state, and p is followed after."""
        step = (self.rows.P[[extra]] - self.rows.P[[base]]).toarray()[0]
        change = self._spread(p, c.states, c.chain.flow(step[c.states], 0.0))
        change[extra] += 1.0
        change[base] -= 1.0
        return change

    def _spread(self, p: FloatArray, states: IntArray, d: FloatArray) -> FloatArray:
        whole = np.zeros(self.rows.S)
        whole[states] = d
        return np.asarray(whole[self.rows.owner] * p)


class Vertex(NamedTuple):
    """A policy p [R], zero at states that it never visits (averages only), its occupancy q [R] and its classes.

    `kept` is the share of the mixture's occupancy that lies in these classes. It is less than 1 where classes of
    different columns meet only in states that are hardly ever left: there one policy cannot stand for the mixture.
    """

    p: FloatArray  # [R], probability of each row's action in its state
    q: FloatArray  # [R], occupancy
    classes: list[IntArray]  # states of each class
    kept: float


Parts = list[tuple[float, IntArray, FloatArray]]  # shares of a mixture, the rows of each part and their occupancies


def vertex(flows: Flows, parts: Parts, g: FloatArray, rho: FloatArray, lam: FloatArray) -> Vertex:
    """An extreme point as good as the mixture `parts`, which meets the scaled thresholds rho for utilities g [N, R].

    lam [N] are the prices of the thresholds. What has a price is binding, whatever rounding says.
    """
    q = np.zeros(len(flows.rows.owner))
    p = np.zeros(len(q))
    for weight, rows, occupancy in sorted(parts, key=lambda part: part[0]):
        q[rows] += weight * occupancy
        p[np.isin(flows.rows.owner, flows.rows.owner[rows])] = 0.0
        p[rows] = 1.0
    kept = 1.0
    for _ in range(len(q) + len(rho)):  # each move ends an extra action or class, or makes a constraint binding
        p = _policy(flows.rows, q, p)
        classes, share = flows.classes(p, q)
        if not classes:
            return Vertex(p, q, [], 0.0)
        kept = min(kept, share)
        visited = marked(flows.rows.S, np.concatenate([c.states for c in classes]))
        p = np.where(visited[flows.rows.owner], p, 0.0)
        q = np.sum([c.q for c in classes], axis=0)
        binding = (g @ q - rho <= TIGHT) | (lam > TIGHT)
        directions = _directions(flows, p, q, classes, int(binding.sum()) + 1)
        if not len(directions):
            break
        effects = directions @ g.T  # [directions, N]
        null = null_vector(effects[:, binding].T, DEPENDENT)
        if null is None:
            q = _hit_bounds(q, directions, (rho - g @ q)[binding], effects[:, binding])
            p = _policy(flows.rows, q, p)
            break
        change = null @ directions
        q = _follow(q, change, (g @ q - rho)[~binding], (g @ change)[~binding])
    classes, share = flows.classes(p, q)
    if not classes:
        return Vertex(p, q, [], 0.0)
    q = np.sum([c.q for c in classes], axis=0)
    return Vertex(p, q, [c.states for c in classes], min(kept, share))


def _policy(rows: ComponentRows, q: FloatArray, p: FloatArray) -> FloatArray:
    """The policy of q where it is visited; elsewhere the most likely row of p alone."""
    d = np.bincount(rows.owner, q, rows.S)[rows.owner]
    clear = d > NEGLIGIBLE
    top = np.maximum.reduceat(p, rows.firsts)[rows.owner]
    chosen = np.flatnonzero((p == top) & (p > 0))
    chosen = chosen[np.diff(rows.owner[chosen], prepend=-1) > 0]
    fresh = np.where(clear, q / np.where(clear, d, 1.0), rows.taking(chosen))
    fresh = np.where(fresh > 10 * NEGLIGIBLE, fresh, 0.0)
    total = np.bincount(rows.owner, fresh, rows.S)[rows.owner]
    return np.asarray(fresh / np.where(total > 0, total, 1.0))


def _directions(flows: Flows, p: FloatArray, q: FloatArray, classes: list[_Class], most: int) -> FloatArray:
    """At most `most` directions [., R] in which q may move: mass between classes, and extra actions."""
    found = [c.q / c.mass - classes[0].q / classes[0].mass for c in classes[1 : most + 1]]
    class_of = np.full(flows.rows.S, -1)
    for i, c in enumerate(classes):
        class_of[c.states] = i
    used = np.flatnonzero(q > 0)
    owner = flows.rows.owner[used]
    several = used[np.isin(owner, owner[1:][np.diff(owner) == 0])]
    for s in np.unique(flows.rows.owner[several]):
        here = several[flows.rows.owner[several] == s]
        base = int(here[q[here].argmax()])
        for extra in here[here != base]:
            if len(found) >= most:
                return np.array(found)
            found.append(flows.shift(p, classes[class_of[s]], int(extra), base))
    return np.array(found)


def _follow(q: FloatArray, change: FloatArray, slack: FloatArray, drift: FloatArray) -> FloatArray:
    """q moved along `change` until an action or a class runs dry or a slack utility reaches its threshold."""
    # A null vector is only a null vector up to its sign; either way the value stays, and this way something dries.
    drying = (change < 0) & (q > 0)
    steps = np.full(len(q), np.inf)
    steps[drying] = q[drying] / -change[drying]
    step = float(steps.min())
    sinking = drift < 0
    limit = float((slack[sinking] / -drift[sinking]).min()) if sinking.any() else np.inf
    moved = np.maximum(q + min(step, limit) * change, 0.0)
    if step <= limit:
        moved[steps <= step * (1 + 1e-9)] = 0.0
    return moved


def _hit_bounds(q: FloatArray, directions: FloatArray, missing: FloatArray, effects: FloatArray) -> FloatArray:
    """q with the rounding left in its binding utilities taken out; directions [n, R], effects [n, binding]."""
    shift = np.linalg.lstsq(effects.T, missing, rcond=None)[0]
    corrected: FloatArray = q + shift @ directions
    return corrected if corrected.min() >= 0 else q


class Search(NamedTuple):
    """What the search for a policy from values needs."""

    part: ScaledPart
    methods: Methods
    evaluate: Callable[[IntArray], PolicyValues]  # the values of a choice of rows [S], as exact as they can be


def by_values(
    search: Search, parts: list[tuple[float, IntArray]], rho: FloatArray, lam: FloatArray
) -> FloatArray | None:
    """The policy p [R] of a mixture of choices [S] from values of policies, or None; rho [N] in the part's units."""
    parts = sorted(parts, key=lambda part: -part[0])
    if len(parts) == 1:
        return search.part.rows.taking(parts[0][1])
    try:
        if len(rho) == 1 and len(parts) == 2:
            return _between(search, parts[0][1], parts[1][1], float(rho[0]))
        return _shifted(search, parts, rho, lam > TIGHT)
    except _SeveralClasses:
        return None


class _SeveralClasses(Exception):
    """A policy on the way has several recurrent classes, so that its values depend on the state."""


def _valued(search: Search, choice: IntArray) -> PolicyValues:
    policy = search.evaluate(choice)
    if policy.choice is not choice:  # one class was made of several
        raise _SeveralClasses
    return policy


def _between(search: Search, one: IntArray, other: IntArray, rho: float) -> FloatArray | None:
    """On the walk from one choice to the other, state by state, the policy that meets one threshold exactly.

    Both are optimal at the same prices, so all policies on the way are. Bisection finds two neighbours on both sides of
    the threshold. They differ in one state s. What taking the other row there once gains, A, is the difference of their
    values per visit, so the ratio of their visits to s is that of their gains.
    """
    first, last = _valued(search, one).values, _valued(search, other).values
    if first[1] > last[1]:
        one, other, first, last = other, one, last, first
    if not first[1] < rho <= last[1]:
        return None
    where = np.flatnonzero(one != other)
    low, high = 0, len(where)
    while high - low > 1:
        middle = (low + high) // 2
        choice = one.copy()
        choice[where[:middle]] = other[where[:middle]]
        if _valued(search, choice).values[1] < rho:
            low = middle
        else:
            high = middle
    below, s = one.copy(), int(where[low])
    below[where[:low]] = other[where[:low]]
    above = below.copy()
    above[s] = other[s]
    under = _valued(search, below)
    gain = advantages(search.part, under, np.array([above[s]]))[0]
    over = _valued(search, above)
    loss = advantages(search.part, over, np.array([below[s]]))[0]
    share = (rho - under.values[1]) / (over.values[1] - under.values[1])
    mixed = (rho - first[1]) / (last[1] - first[1])
    lacks = first[0] + mixed * (last[0] - first[0]) - under.values[0] - share * (over.values[0] - under.values[0])
    ratio = -loss[1] / gain[1] if gain[1] != 0 else -1.0
    if not (ratio > 0 and 0 <= share <= 1 and lacks <= AGREES):
        return None
    probability = share * ratio / (1 - share + share * ratio)
    p = search.part.rows.taking(below)
    p[below[s]], p[above[s]] = 1 - probability, probability
    return p


def _shifted(
    search: Search, parts: list[tuple[float, IntArray]], rho: FloatArray, binding: NDArray[np.bool_]
) -> FloatArray | None:
    """The base policy with some of its visits moved to the rows in which the others differ, such that rho is met."""
    base = parts[0][1]
    extra = np.unique(np.concatenate([choice[choice != base] for _, choice in parts[1:]]))
    if len(extra) != int(binding.sum()):
        return None
    shares = np.array([x for x, _ in parts])
    mixed = float(shares @ [_valued(search, choice).values[0] for _, choice in parts]) / float(shares.sum())
    policy = _valued(search, base)
    effects = advantages(search.part, policy, extra)  # [extra, 1 + N], per visit
    owner = search.part.rows.owner
    spots, spot = np.unique(owner[extra], return_inverse=True)
    indicators = np.array([(owner == s).astype(float) for s in spots])
    indicator, there = with_values(search.part, search.methods, policy, indicators)
    try:
        moved = np.linalg.solve(effects[:, 1:][:, binding].T, (rho - policy.values[1:])[binding])
    except np.linalg.LinAlgError:
        return None
    reached = policy.values + moved @ effects
    visits = there.values + moved @ advantages(indicator, there, extra)
    p = search.part.rows.taking(base)
    p[extra] = moved / visits[spot]
    np.subtract.at(p, base[owner[extra]], p[extra])
    good = (p >= 0).all() and reached[0] >= mixed - AGREES and (reached[1:] >= rho - AGREES).all()
    return p if good else None


def null_vector(effects: FloatArray, least: float) -> FloatArray | None:
    """A combination of the columns of effects [binding, directions] that is zero up to `least`, if there is one."""
    rows, columns = effects.shape
    if rows == 0:
        return np.asarray(np.eye(1, columns)[0])
    _, singular, right = np.linalg.svd(effects)
    return None if int((singular > least).sum()) == columns else np.asarray(right[-1], dtype=float)
