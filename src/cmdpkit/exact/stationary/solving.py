"""Discounted, long-run and total problems solved: from arrays to one stationary policy, prices and a proof."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary.components import Rows, end_components, walk_to
from cmdpkit.exact.stationary.multichain import Multichain, combined_policy
from cmdpkit.exact.stationary.pool import Optimum, Pool, feasible
from cmdpkit.exact.stationary.pricing import EPS, Transient
from cmdpkit.exact.stationary.problem import Arrays, problem_of
from cmdpkit.exact.stationary.scaling import scaling_of
from cmdpkit.exact.stationary.sources import Average, Discounted, Total
from cmdpkit.exact.stationary.values import Certified, certified, evaluate_rows
from cmdpkit.exact.stationary.vertex import Flows, Vertex, vertex
from cmdpkit.model.transitions import FloatArray, IntArray

BRIDGE = 1e-4  # share of time that a bridged policy spends on keeping its classes connected
APART = 1e-9  # share of an occupancy that may get lost when its columns become one policy
AGREES = 1e-9  # a stationary policy that comes this near (scaled) to a mixture takes its place


@dataclass(frozen=True)
class Answer:
    """The optimum of a stationary problem, in the criterion's own units."""

    policies: tuple[FloatArray, ...]  # each [S, A]; one, or several of which one is drawn at the start
    weights: FloatArray  # [policies], probabilities of the draw
    value: float  # of the reward
    utilities: FloatArray  # [N]
    prices: FloatArray  # [N]
    gap: float  # proved, rounding included: no policy within the bounds has more than value + gap
    attained: bool  # False if stationary policies only come near the optimum
    notes: tuple[str, ...] = field(default=())  # what a user should know about the answer


class Stationary:
    """One problem with the columns found so far: bounds may change, and what was found is used again."""

    def __init__(self, arrays: Arrays) -> None:
        self.problem = problem_of(arrays)
        self.N = len(arrays.g)
        problem = self.problem
        self.component: IntArray | None = None  # positions in the part's rows that make up the only end component
        self.longest = 1.0  # for totals, no policy takes more steps in expectation
        if problem.kind == "total":
            self.longest = float(problem.mu @ Transient(problem.rows, problem.mu).longest)
        self.scaling = scaling_of(problem, self.longest)
        self.X = (problem.X - self.scaling.offset[:, None]) / self.scaling.unit[:, None]
        self.source = self._source()
        self.pool = Pool(self.source)

    def _source(self) -> Discounted | Total | Average | Multichain:
        problem = self.problem
        if problem.kind == "discounted":
            return Discounted(problem.rows, self.X, problem.discount, problem.mu)
        if problem.kind == "total":
            return Total(problem.rows, self.X, problem.mu)
        components = end_components(problem.rows)
        if len(components) > 1:
            return Multichain(problem.rows, self.X, problem.mu, components)
        states, inside = components[0]
        self.component = np.flatnonzero(inside)
        return Average(problem.rows.part(states, inside), self.X[:, self.component])

    def reach(self, rho: FloatArray, per: FloatArray | None = None, enough: float = np.inf) -> float:
        """How far all bounds rho (own units) can be exceeded at once, in multiples of `per` [N] or of the units."""
        if self.N == 0:
            return np.inf
        step = np.ones(self.N) if per is None else per / self.scaling.factor / self.scaling.unit[1:]
        return self.pool.reach(self.scaling.thresholds(rho), step, enough)[0]

    def feasible(self, rho: FloatArray) -> bool:
        """Whether some policy meets the bounds; afterwards the pool holds a mixture that does."""
        return feasible(self.reach(rho, enough=0.0))

    def solve(self, rho: FloatArray, bridge: float = BRIDGE) -> Answer:
        """The optimum under bounds rho (own units), which must be feasible."""
        best = self.pool.maximise(self.scaling.thresholds(rho))
        return self._answered(self.pool.with_looser_price(best), rho, bridge)

    def plan(self, rho: FloatArray) -> Answer:
        """The same for those who need its policies only: at a kink of the trade-off, prices may be any right ones."""
        return self._answered(self.pool.maximise(self.scaling.thresholds(rho)), rho, BRIDGE)

    def _answered(self, best: Optimum, rho: FloatArray, bridge: float) -> Answer:
        if isinstance(self.source, Multichain):
            return self._several(self.source, best)
        found = vertex(self._flows(), best.parts, self.source.X[1:], best.rho, best.lam)
        if len(found.classes) > 1 or found.kept < 1 - APART:
            return self._bridged(best, rho, bridge)
        return self._answer(best, self._spread(found))

    def supremum(self, rho: FloatArray) -> float:
        """The optimal value under bounds rho (own units), attained by a policy or not; minus infinity if infeasible."""
        if not self.feasible(rho):
            return -np.inf
        best = self.pool.maximise(self.scaling.thresholds(rho))
        values = np.append(sum(weight * column.v for weight, column in best.parts), np.zeros(self.N))
        return float(self.scaling.own(values)[0])

    def _flows(self) -> Flows:
        problem, rows = self.problem, self.source.rows
        mu = problem.mu if problem.kind != "average" else np.zeros(rows.S)
        return Flows(rows, problem.kind, problem.discount, mu, self.source.engine.chain_work)

    def _spread(self, found: Vertex) -> FloatArray:
        """The vertex as a policy on all rows of the part: states it never visits get a sensible action too."""
        rows = self.source.rows
        p = found.p.copy()
        d = np.bincount(rows.owner, found.q, rows.S)
        if self.component is None:
            unseen = d[rows.owner] <= 0
            p[unseen] = 0.0
            greedy = self.source.engine.choice
            p[greedy[d <= 0]] = 1.0
            return p
        whole = np.zeros(len(self.problem.rows.owner))
        whole[self.component] = p
        return _walking(self.problem.rows, whole)

    def _answer(self, best: Optimum, p: FloatArray, attained: bool = True, notes: tuple[str, ...] = ()) -> Answer:
        """The answer whose policy is p [R] on the part, evaluated exactly."""
        values = certified(self.problem, self.X, p, self.longest)
        return self._told(best, (self._whole(p),), np.ones(1), values, attained, notes)

    def _told(
        self,
        best: Optimum,
        policies: tuple[FloatArray, ...],
        weights: FloatArray,
        values: Certified,
        attained: bool,
        notes: tuple[str, ...],
    ) -> Answer:
        scale = self.scaling
        own = scale.own(values.middle)
        rounding = 8 * EPS * (abs(float(scale.offset[0])) + float(scale.unit[0])) * scale.factor
        gap = (best.bound - values.low) * float(scale.unit[0]) * scale.factor + rounding
        return Answer(policies, weights, float(own[0]), own[1:], scale.prices(best.lam), max(0.0, gap), attained, notes)

    def _bridged(self, best: Optimum, rho: FloatArray, bridge: float) -> Answer:
        """A stationary policy that moves between the classes of the optimum just often enough to meet the bounds."""
        if not 0 < bridge < 1:
            raise CmdpkitError(f"bridge is {bridge}, expected a share of time between 0 and 1")
        rows = self.source.rows
        uniform = 1.0 / np.bincount(rows.owner, minlength=rows.S)[rows.owner]
        u = evaluate_rows(rows, uniform, "average", 1.0, np.full(rows.S, 1.0 / rows.S))
        tightened = (self.scaling.thresholds(rho) - bridge * (self.source.X[1:] @ u)) / (1 - bridge)
        if not feasible(self.pool.reach(tightened, np.ones(self.N), enough=0.0)[0]):
            raise CmdpkitError(
                "the optimum keeps several classes of states apart, and the bounds leave no room for a stationary "
                f"policy that moves between them with bridge = {bridge:g}; loosen a bound or choose a smaller bridge"
            )
        q = bridge * u
        for weight, column in self.pool.maximise(tightened).parts:
            q[column.rows] += (1 - bridge) * weight * column.q
        p = np.zeros(len(self.problem.rows.owner))
        p[self.component] = q / np.bincount(rows.owner, q, rows.S)[rows.owner]
        note = (
            "No stationary policy attains the optimum: it divides its time between classes of states that it never "
            f"leaves. This policy spends a share of {bridge:g} of its time on moving between them."
        )
        return self._answer(best, _walking(self.problem.rows, p), False, (note,))

    def _several(self, source: Multichain, best: Optimum) -> Answer:
        """Several end components: one stationary policy if that attains the optimum, else a mixture."""
        problem = self.problem
        parts = best.parts
        choices = [source.policy(column) for _, column in parts]
        one = combined_policy(problem.rows, problem.mu, parts, choices)
        values = certified(problem, self.X, one, self.longest)
        if values.low >= best.bound - AGREES and (values.middle[1:] >= best.rho - AGREES).all():
            return self._told(best, (self._whole(one),), np.ones(1), values, True, ())
        policies, weights, each = [], np.array([weight for weight, _ in parts]), []
        for choice in choices:
            p = np.zeros(len(problem.rows.owner))
            p[choice] = 1.0
            policies.append(self._whole(p))
            each.append(certified(problem, self.X, p, self.longest))
        middle = weights @ np.array([x.middle for x in each])
        values = Certified(middle, float(weights @ [x.low for x in each]))
        note = (
            "Once some parts of this model are entered they are never left, and no single stationary policy attains "
            "the optimum: one of several policies is drawn at the start. The bounds hold on average over that draw, "
            "not along each run."
        )
        several = len(policies) > 1
        return self._told(best, tuple(policies), weights, values, not several, (note,) if several else ())

    def _whole(self, p: FloatArray) -> FloatArray:
        """p [R] of the part as pi [S, A]; states that cannot be reached walk to it, or take their first action."""
        problem = self.problem
        S, A = problem.shape
        whole = np.zeros(len(problem.whole.owner))
        whole[np.searchsorted(problem.whole.pair, problem.rows.pair)] = p
        whole = _walking(problem.whole, whole)
        pi = np.zeros(S * A)
        pi[problem.whole.pair] = whole
        return pi.reshape(S, A)


def _walking(rows: Rows, p: FloatArray) -> FloatArray:
    """p [R] completed: states without an action walk to those that have one, or take their first action."""
    known = np.zeros(rows.S, dtype=bool)
    known[rows.owner[p > 0]] = True
    if known.all():
        return p
    walk = np.where(known, -1, walk_to(rows, known))
    walk = np.where(~known & (walk < 0), rows.first, walk)
    completed = p.copy()
    completed[walk[walk >= 0]] = 1.0
    return completed
