"""From a mixture of columns to one stationary policy at an extreme point: few states draw, and there are few classes.

Let q be an optimal occupancy, E the number of used actions beyond one per visited state, k the number of connected
classes of its support, and B the number of binding constraints. Balance determines the directions in which q can move:
one per extra action, and for long-run averages one per additional class, whose mass may move. If E + k - 1 > B, some
combination leaves all binding utilities unchanged; following it until an action or a class runs dry removes it. What
remains is an extreme point: E <= B, and E + k - 1 <= B for averages. The value stays, because everything an optimal
occupancy uses is optimal for the Lagrangian.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.stationary.components import Rows
from cmdpkit.exact.stationary.sources import Column
from cmdpkit.exact.vertex import null_vector
from cmdpkit.model.chains import Chain, closed_classes
from cmdpkit.model.policy import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray, IntArray

TIGHT = 1e-9  # a utility within this of its threshold (scaled) is binding
DEPENDENT = 1e-11  # directions are dependent if a singular value of their effects is at most this
ROUNDS = 10_000  # moves at most; each ends one extra action or class, so that fewer are enough


class _Class(NamedTuple):
    """States that carry a part of the occupancy: all of them, or for averages one recurrent class."""

    states: IntArray  # their numbers in the model
    chain: Chain  # the Markov chain of the policy on them
    inflow: FloatArray  # [states], what the start adds to their occupancy
    mass: float  # share of the occupancy that the class has


@dataclass(frozen=True)
class Flows:
    """How occupancies flow: the rows of a model with criterion and start. kind "average" has gamma = 1."""

    rows: Rows  # actions of all states, one row each
    kind: str  # "discounted", "average" or "total"
    gamma: float  # the discount; 1 for averages and totals
    mu: FloatArray  # [S], the start distribution
    work: float  # what LU factors of its chains cost, as `factor_work` estimates it

    def classes(self, p: FloatArray, q: FloatArray) -> tuple[list[_Class], float]:
        """The classes of the policy p [R], with the masses that q [R] gives them, and the share of q in them."""
        P = self.rows.chain(p)
        if self.kind != "average":
            everywhere = np.arange(self.rows.S)
            bordered = self.kind == "discounted"
            chain = Chain(P, self.gamma, bordered=bordered, work=self.work)
            return [_Class(everywhere, chain, (1 - self.gamma) * self.mu if bordered else self.mu, 1.0)], 1.0
        inside = np.zeros(self.rows.S, dtype=bool)
        inside[self.rows.owner[p > 0]] = True
        states = np.flatnonzero(inside)
        part = P[states][:, states]
        d = np.bincount(self.rows.owner, q, self.rows.S)
        found = []
        for members in closed_classes(part):
            mass = float(d[states[members]].sum())
            if mass > NEGLIGIBLE:
                chain = Chain(part[members][:, members], work=self.work)
                found.append(_Class(states[members], chain, np.zeros(len(members)), mass))
        if not found:
            return [], 0.0
        whole = sum(c.mass for c in found)
        return [c._replace(mass=c.mass / whole) for c in found], whole / float(d.sum())

    def occupancy(self, p: FloatArray, c: _Class) -> FloatArray:
        """q [R] of one class, exactly for the policy p."""
        return self._spread(p, c, np.maximum(c.chain.flow(c.inflow, c.mass), 0.0))

    def shift(self, p: FloatArray, c: _Class, extra: int, base: int) -> FloatArray:
        """Change of q [R] when one unit moves from row `base` to row `extra` of a state, and p is followed after."""
        step = self.gamma * (self.rows.P[[extra]] - self.rows.P[[base]]).toarray()[0]
        change = self._spread(p, c, c.chain.flow(step[c.states], 0.0))
        change[extra] += 1.0
        change[base] -= 1.0
        return change

    def _spread(self, p: FloatArray, c: _Class, d: FloatArray) -> FloatArray:
        whole = np.zeros(self.rows.S)
        whole[c.states] = d
        spread: FloatArray = whole[self.rows.owner] * p
        return spread


class Vertex(NamedTuple):
    """A policy p [R], zero at states that it never visits (averages only), its occupancy q [R] and its classes.

    `kept` is the share of the mixture's occupancy that lies in these classes. It is less than 1 where classes of
    different columns meet only in states that are hardly ever left: there one policy cannot stand for the mixture.
    """

    p: FloatArray  # [R], probability of each row's action in its state
    q: FloatArray  # [R], occupancy
    classes: list[IntArray]  # states of each class
    kept: float


def vertex(flows: Flows, parts: list[tuple[float, Column]], g: FloatArray, rho: FloatArray, lam: FloatArray) -> Vertex:
    """An extreme point as good as the mixture `parts`, which meets the scaled thresholds rho for utilities g [N, R].

    lam [N] are the prices of the thresholds. What has a price is binding, whatever rounding says: where a state is left
    once in a million steps, utilities are only known to a few digits less than usual.
    """
    q = np.zeros(len(flows.rows.owner))
    p = np.zeros(len(q))
    for weight, column in sorted(parts, key=lambda part: part[0]):
        q[column.rows] += weight * column.q
        p[np.isin(flows.rows.owner, flows.rows.owner[column.rows])] = 0.0
        p[column.rows] = 1.0
    kept = 1.0
    for _ in range(ROUNDS):
        p = _policy(flows.rows, q, p)
        classes, share = flows.classes(p, q)
        if not classes:
            return Vertex(p, q, [], 0.0)
        kept = min(kept, share)
        visited = np.zeros(flows.rows.S, dtype=bool)
        for c in classes:
            visited[c.states] = True
        p = np.where(visited[flows.rows.owner], p, 0.0)
        by_class = [flows.occupancy(p, c) for c in classes]
        q = np.sum(by_class, axis=0)
        binding = (g @ q - rho <= TIGHT) | (lam > TIGHT)
        directions = _directions(flows, p, q, classes, by_class, int(binding.sum()) + 1)
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
    q = np.sum([flows.occupancy(p, c) for c in classes], axis=0)
    return Vertex(p, q, [c.states for c in classes], min(kept, share))


def _policy(rows: Rows, q: FloatArray, p: FloatArray) -> FloatArray:
    """The policy of q where it is visited; elsewhere the most likely row of p alone."""
    d = np.bincount(rows.owner, q, rows.S)[rows.owner]
    clear = d > NEGLIGIBLE
    first = rows.first
    top = np.maximum.reduceat(p, first)[rows.owner]
    chosen = np.flatnonzero((p == top) & (p > 0))
    chosen = chosen[np.diff(rows.owner[chosen], prepend=-1) > 0]
    alone = np.zeros(len(p))
    alone[chosen] = 1.0
    fresh = np.where(clear, q / np.where(clear, d, 1.0), alone)
    fresh = np.where(fresh > 10 * NEGLIGIBLE, fresh, 0.0)
    total = np.bincount(rows.owner, fresh, rows.S)[rows.owner]
    result: FloatArray = fresh / np.where(total > 0, total, 1.0)
    return result


def _directions(
    flows: Flows, p: FloatArray, q: FloatArray, classes: list[_Class], by_class: list[FloatArray], most: int
) -> FloatArray:
    """At most `most` directions [., R] in which q may move: mass between classes, and extra actions."""
    found = [
        by_class[i] / classes[i].mass - by_class[0] / classes[0].mass for i in range(1, min(len(classes), most + 1))
    ]
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
