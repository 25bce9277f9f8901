"""Where the columns of problems without a horizon come from, and what becomes of their mixtures."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.exact.columns import Columns, Found, Parts, PolicyColumn, Units
from cmdpkit.exact.stationary.engine import DENSE, EPS, EXACT, FACTORED, Engine, TooLong
from cmdpkit.exact.stationary.multichain import Several, combined_policy
from cmdpkit.exact.stationary.problem import (
    Arrays,
    ComponentRows,
    absorbed_somehow,
    end_components,
    every_step_costs,
    policy_rows,
    problem_of,
    walking,
    whole_policy,
)
from cmdpkit.exact.stationary.vertex import Flows, Vertex, by_values, vertex
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.mixture import Mixture
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import FEASIBLE, ROUNDOFF
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chains import long_run_shares, within

BRIDGE = 1e-4  # share of time that a bridged policy spends on keeping its classes connected
TIGHTENINGS = 5  # times that bounds are tightened where a bridged policy misses them by rounding
AGREES = FEASIBLE / 4  # a stationary policy that comes this near (scaled) to a mixture takes its place
APART = 1e-9  # share of an occupancy that may get lost when its columns become one policy
PRECISE = 1e-12  # rounding beyond this share of a signal's range asks for careful evaluation
ALLOWED = (100, 20)  # roundings that a tolerance makes room for: so many, and so many more for every state
KNOWN = 0.02  # share of a signal's range up to which the range is known
ALONE = 1e-12  # slack of pricing where there are no bounds
LEAN = (1e-8, 1e-13)  # weights of the reward where only utilities are asked for, if a policy need not be absorbed
FEW = 100  # policies that are evaluated for a range, if a policy need not be absorbed
BEYOND = 10.0  # policies are left out whose reward is this many times worse than the best known, if it is not


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


class Stationary:
    """Columns of discounted values, totals until absorption or averages; with a model also policies for the user."""

    exact = False

    def __init__(self, arrays: Arrays, cmdp: CMDP | None = None) -> None:
        problem = problem_of(arrays)
        self.problem, self.cmdp, self.N = problem, cmdp, len(problem.X) - 1
        self.kind, self.bridge = problem.kind, BRIDGE
        self.component: IntArray | None = None  # the rows of the part that make up the only end component
        rows, X, mu = problem.rows, problem.X, problem.mu
        self._ends = arrays.kind == "total"
        components = self.components if self.kind == "average" else []
        if len(components) == 1:
            rows, self.component = rows.part(*components[0])
            rows.exits[:] = 0.0
            X, mu = X[:, self.component], np.zeros(rows.S)
        self.rows, self._raw = rows, X
        self.factor = 1 / float(rows.exits[0]) if self.kind == "discounted" else 1.0
        try:
            self._prepare(mu, components)
        except TooLong:
            if self.kind != "total" or not every_step_costs(X):
                raise
            self.problem = problem._replace(endless=True)  # then no longest time is needed
            self._prepare(mu, [])
        self.units, self.offsets = self.ranges.unit, self.ranges.worst
        self.noise = 2 * self.ranges.rounding / self.units
        self.best = np.full(self.N, np.inf)

    def _prepare(self, mu: FloatArray, components: list[tuple[IntArray, BoolArray]]) -> None:
        """The engine, and what it finds about the ranges of values."""
        rows, X, problem = self.rows, self._raw, self.problem
        self._scale(*_coarse(X, self.kind))
        self.engine: Any = (
            Several(rows, self._signals(X), mu, components)
            if len(components) > 1
            else Engine(rows, self._signals(X), self.kind, mu, problem.endless, problem.blur)
        )
        self.ranges, self.first = self._survey()

    @cached_property
    def components(self) -> list[tuple[IntArray, BoolArray]]:
        """The maximal end components that the start can reach, (states, rows that stay inside) each."""
        rows = self.problem.rows
        return [] if self._ends else end_components(replace(rows, exits=np.zeros(rows.R)))

    # -- units

    def _scale(self, shift: FloatArray, unit: FloatArray) -> None:
        """From now on signals of a step are (own - shift) / unit; `base` is what the shift of a value is in it."""
        self.shift, self.unit = shift, unit
        self.base = np.zeros(len(shift))

    def _signals(self, X: FloatArray) -> FloatArray:
        return np.ascontiguousarray((X - self.shift[:, None]) / self.unit[:, None])

    def _own(self, values: FloatArray) -> FloatArray:
        """Values of the engine in the criterion's own units."""
        return np.asarray((values * self.unit + self.shift) * self.factor)

    def _survey(self) -> tuple[Units, list[PolicyColumn]]:
        """What policies can collect of every signal, as the unit of it, and the policies that collect the most."""
        if not self.N:
            size = np.full(1, self.engine.omega if not self.problem.endless else 1.0)
            worst, best = self._own(-size), self._own(size)
            magnitude = np.maximum(np.abs(worst), np.abs(best))
            return Units(worst, best, 8 * EPS * magnitude, magnitude), []
        found = self._extremes()
        if not self.engine.careful and self._needs_care(found):
            self.engine.be_careful()
            found = self._extremes()
        worst, best, pad, tops = found
        low, high = self._own(worst), self._own(best)
        magnitude = np.maximum(np.abs(low), np.abs(high))
        rounding = np.maximum(pad * self.unit * self.factor, 8 * EPS * magnitude)
        if self.engine.careful:
            magnitude = self._magnitude()
            rounding = (ALLOWED[0] + ALLOWED[1] * min(self.rows.S, DENSE)) * ROUNDOFF * magnitude
        ranges = Units(low, high, rounding, magnitude)
        columns = []
        for k, (choice, values, error) in enumerate(tops):
            v, *w = (self._own(values) - low) / ranges.unit
            off = float((error * self.unit * self.factor / ranges.unit).max())
            weights = np.eye(1, 1 + self.N, k)[0]
            columns.append(PolicyColumn(choice, float(v), np.array(w), weights, float(high[k] / ranges.unit[k]), off))
        self._use(ranges)
        return ranges, columns

    def _magnitude(self) -> FloatArray:
        """The largest values of the absolute signals over all policies, in own units."""
        found, other = np.zeros(1 + self.N), self.engine.other(np.abs(self._raw) / self.unit[:, None])
        if self.problem.endless:  # the absolute signals are costs, of which there is no most
            other.evaluate(EXACT)
            found = other.values
        else:
            for k in range(1 + self.N):
                other.price(np.eye(1, 1 + self.N, k)[0], 0.0, EXACT)
                found[k] = other.values[k]
        return np.asarray(np.abs(found) * self.unit * self.factor)

    def _needs_care(self, found: tuple[Any, ...]) -> bool:
        """Whether rounding matters, and a careful evaluation is within reach."""
        worst, best, pad, _ = found
        matters = bool((pad > PRECISE * (best - worst)).any())
        return matters and (self.rows.S <= DENSE or (self.rows.S <= FACTORED and bool((best - worst > 4 * pad).all())))

    def _use(self, ranges: Units) -> None:
        """Let the engine work in the units that were found."""
        before = self.unit
        shift = np.zeros(1 + self.N) if self.kind == "total" else ranges.worst / self.factor
        self._scale(shift, ranges.unit / self.factor)
        self.base = ranges.worst / ranges.unit if self.kind == "total" else self.base
        self.engine.begin_with(self.unit / before, self._signals(self._raw))

    def _extremes(self) -> tuple[FloatArray, FloatArray, FloatArray, list[tuple[IntArray, FloatArray, FloatArray]]]:
        """The least and the most that policies have of each signal, rounding in that, and the policies with the most.

        The range is that of two policies, and at least 1 - 2 KNOWN of what all policies have. Engine's units.
        """
        engine, K = self.engine, 1 + self.N
        worst, best, pads, tops = np.zeros(K), np.zeros(K), np.zeros(K), []
        seen = [] if not self.problem.endless else self._some_policies()
        for k in range(K):
            weights, other = np.eye(1, K, k)[0], 0.0
            slack = 0.0 if engine.direct else KNOWN * (engine.omega if not self.problem.endless else 1.0)
            while True:
                top, pad = self._most(weights, slack)
                best[k] = top[1][k]
                if not self.problem.endless:
                    bottom, other = self._most(-weights, slack)
                    worst[k] = bottom[1][k]
                pads[k], span = max(pad, other), best[k] - worst[k]
                if self.problem.endless or slack <= KNOWN * span or slack <= 8 * pads[k] or not engine.X[k].any():
                    break
                slack = max(KNOWN / 2 * span, 0.01 * slack, 4 * pads[k])
            tops.append(top)
        if self.problem.endless:
            worst = np.min([*seen, *(values for _, values, _ in tops)], axis=0)
        return np.minimum(worst, best), best, pads, tops

    def _some_policies(self) -> list[FloatArray]:
        """Values of some policies that are absorbed, where others are not: without absorption there is no worst.

        They are the one at hand and, for signals of which it has nothing, those with one row that has something.
        """
        engine, rows, base = self.engine, self.rows, self.engine.choice.copy()
        seen = [engine.valued(base)]
        for i in np.flatnonzero(engine.X[seen[0] == 0].any(axis=0))[:FEW]:
            choice = base.copy()
            choice[rows.owner[i]] = i
            if absorbed_somehow(policy_rows(rows, rows.taking(choice))):
                seen.append(engine.valued(choice))
        engine.valued(base)
        return seen

    def _most(self, weights: FloatArray, slack: float) -> tuple[tuple[IntArray, FloatArray, FloatArray], float]:
        """A policy that has within slack the most of one signal, with its values, and the rounding in the bound."""
        engine = self.engine
        self._upper(weights, slack, slack / 4)
        return (engine.choice.copy(), engine.values.copy(), engine.half.copy()), engine.pad

    # -- the source

    def _upper(self, weights: FloatArray, slack: float, accuracy: float) -> float:
        """The engine's bound on weights . values."""
        size = float(np.abs(weights).sum())
        if not self.problem.endless or weights[0] >= LEAN[0] * size:
            return float(self.engine.price(weights, slack, accuracy))
        upper, lean = np.inf, weights.copy()
        for share in LEAN:  # the first keeps policies that are absorbed apart from others, the second hardly counts
            lean[0] = share * size
            upper = float(self.engine.price(lean, slack, accuracy))
        return upper + float(lean[0]) * BEYOND * abs(float(self.engine.values[0]))

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The bound, and the policy that comes within slack of it as one column."""
        engine = self.engine
        if not self.N:
            upper = self._upper(weights, max(slack, ALONE), max(slack, ALONE))
            if upper - float(engine.values[0]) > 1e-10 * abs(float(self._own(engine.values)[0])) / self.units[0]:
                upper = min(upper, self._upper(weights, 0.0, EXACT))
        else:
            upper = self._upper(weights, slack, max(EXACT, 0.01 * slack))
        return upper - float(weights @ self.base), [self._column(weights, upper)]

    def _column(self, weights: FloatArray, upper: float) -> PolicyColumn:
        """The policy at hand as a column."""
        engine = self.engine
        v, *w = engine.values - self.base
        if self.N:
            total = upper + float(weights @ ((self.offsets / self.units) - self.base))
        else:
            total = float(weights @ self._own(np.array([upper]))) / float(self.units[0])
        return PolicyColumn(engine.choice.copy(), float(v), np.array(w), weights, total, float(engine.half.max()))

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """The values of a column's policy up to rounding."""
        engine = self.engine
        engine.weights = column.weights
        engine.take(column.choice.copy())
        engine.evaluate(EXACT)
        v, *w = engine.values - self.base
        return column._replace(choice=engine.choice.copy(), v=float(v), w=np.array(w), error=float(engine.half.max()))

    # -- from mixtures to policies

    def policy(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Found:
        """A stationary policy as good as the mixture `parts`, which meets rho (scaled), or whatever comes near it.

        A policy that is not as good as the mixture is not what was looked for. Then a slower way is tried, and at last
        the mixture itself, of which one policy is drawn at the start.
        """
        best = self._found(self.plans(parts, proof, rho))
        if len(parts) > 1 and best.attained:
            for at_last in (False, True):
                if self._lacks(best, parts, rho) <= 0:
                    break
                plans = self._drawn(parts, DRAWN) if at_last else self.plans(parts, proof, rho, fast=False)
                other = self._found(plans)
                best = other if self._lacks(other, parts, rho) < self._lacks(best, parts, rho) else best
        return best

    def _lacks(self, found: Found, parts: Parts, rho: FloatArray) -> float:
        """By how much a policy is worse than the mixture, or misses rho, beyond what rounding explains."""
        mixed = np.append(sum(x * c.v for x, c in parts), rho)
        short = mixed - (found.totals - self.offsets) / self.units - AGREES - self.noise
        return float(short.max())

    def _found(self, plans: Plans) -> Found:
        """Plans as a policy of the model, evaluated."""
        assert self.cmdp is not None
        each = [self._valued(p) for p in plans.policies]
        values = plans.weights @ np.array([x for x, _ in each])
        error = plans.weights @ np.array([x for _, x in each])
        policies = tuple(Policy.of(self.cmdp, whole_policy(self.problem, p)) for p in plans.policies)
        policy = policies[0] if len(policies) == 1 else Mixture(policies, plans.weights / plans.weights.sum())
        totals = self._own(values)
        least = self._own(values - error) - 4 * EPS * (np.abs(totals) + np.abs(self.shift * self.factor))
        return Found(policy, totals, least, plans.attained, plans.notes)

    def _valued(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values of the policy p [rows of the problem] in the engine's units, and their proved error, [1 + N] each."""
        rows, mu, engine = self.problem.rows, self.problem.mu, self.engine
        taken = np.flatnonzero(p)
        if len(taken) == rows.S and self.kind != "average":
            engine.take(taken)
            engine.evaluate(EXACT / 8)
            return engine.values.copy(), engine.half + engine.rounding()
        chain, x = policy_rows(rows, p), (self.problem.X - self.shift[:, None]) / self.unit[:, None]
        X = np.array([np.bincount(rows.owner, p * row, rows.S) for row in x])
        if self.kind != "average":
            return self._certain(chain, X, mu)
        chain.P.sum_duplicates()  # searches for classes do not end where entries are double
        _, classes = long_run_shares(chain.P, mu)
        if len(classes) == 1:
            classes = [(classes[0][0], 1.0)]
        values, error = np.zeros(len(X)), np.zeros(len(X))
        for members, mass in classes:
            part = ComponentRows.of(within(chain.P, members), np.arange(len(members)), np.arange(len(members)))
            part.exits[:] = 0.0
            middle, off = self._certain(part, np.ascontiguousarray(X[:, members]), np.zeros(len(members)))
            values += mass * middle
            error += mass * off
        if len(classes) > 1:  # the probabilities of ending in a class are rounded as well
            error += 16 * EPS * rows.S * np.abs(X).max(axis=1)
        return values, error

    def _certain(self, rows: ComponentRows, X: FloatArray, mu: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values of a chain with one row per state, and their error."""
        own, engine = Engine(rows, X, self.kind, mu, self.problem.endless, self.problem.blur), self.engine
        own.take(own.choice)
        if own.S == engine.S and not engine.careful:
            own.Y = engine.Y.copy()
        own.careful = own.careful or engine.careful
        own.direct = own.careful or (engine.direct and own.S <= FACTORED)
        own.evaluate(EXACT / 8)
        return own.values, own.half + own.rounding()

    def plans(self, parts: Parts, proof: PolicyColumn, rho: FloatArray, fast: bool = True) -> Plans:
        """One policy of an extreme point, or what comes near it where no stationary policy attains the optimum."""
        if isinstance(self.engine, Several):
            return self._settled(parts, rho)
        p = self.spread(parts, proof, rho, fast)
        if p is not None:
            return Plans([p], np.ones(1))
        return self._bridged(rho) or self._drawn(parts, DRAWN)

    def spread(self, parts: Parts, proof: PolicyColumn, rho: FloatArray, fast: bool) -> FloatArray | None:
        """The same as probabilities p of the problem's rows; None if the optimum keeps several classes apart."""
        if fast and not (self.kind == "average" and self.engine.direct):
            p = self._by_values(parts, proof, rho)
            if p is not None:
                return p
        found = self.extreme_point(parts, proof, rho)
        if len(found.classes) > 1 or found.kept < 1 - APART:
            return self._hardly_connected(parts, proof, rho)
        unseen = np.bincount(self.rows.owner, found.q, self.rows.S) <= 0
        p = np.where(unseen[self.rows.owner], 0.0, found.p)
        if self.kind != "average":
            p[proof.choice[unseen]] = 1.0
        return self._everywhere(p)

    def _hardly_connected(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> FloatArray | None:
        """The same where a class is left so seldom that occupancies do not tell it from one that is never left."""
        if self.rows.S > DENSE:
            return None
        if not self.engine.careful:
            self.engine.be_careful()
        p = self._by_values(parts, proof, rho)
        return p if p is not None and self._attains(p, parts, rho) else None

    def _by_values(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> FloatArray | None:
        p = by_values(self.engine, [(x, c.choice) for x, c in parts], rho + self.base[1:], proof.weights[1:])
        return None if p is None else self._everywhere(p)

    def extreme_point(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Vertex:
        """An extreme point as good as the mixture `parts`, which meets rho (scaled), perhaps with several classes."""
        flows = self._flows()
        with_flows = [(x, *flows.column(c.choice)) for x, c in parts]
        return vertex(flows, with_flows, self.engine.X[1:], rho + self.base[1:], proof.weights[1:])

    def _flows(self) -> Flows:
        return Flows(self.rows, self.kind == "average", self.engine.alpha * self.engine.mu)

    def _everywhere(self, p: FloatArray) -> FloatArray:
        """p [rows of the component] on all rows of the problem: states outside walk there."""
        if self.component is None:
            return p
        whole = np.zeros(self.problem.rows.R)
        whole[self.component] = p
        return walking(self.problem.rows, whole)

    def _bridged(self, rho: FloatArray) -> Plans | None:
        """A stationary policy that moves between the classes of the optimum just often enough; None without room."""
        bridge, rows = self.bridge, self.rows
        if bridge == 0:
            return None
        uniform = 1.0 / np.bincount(rows.owner, minlength=rows.S)[rows.owner]
        d, _ = long_run_shares(rows.chain(uniform), np.full(rows.S, 1.0 / rows.S))
        u = np.maximum(d, 0.0)[rows.owner] * uniform
        pool, flows = Columns(self), self._flows()
        tightened = (rho - bridge * (self.engine.X[1:] @ u)) / (1 - bridge)
        for _ in range(TIGHTENINGS):
            if pool.reach(tightened, np.ones(self.N), enough=0.0)[0] < 0:
                return None
            q = bridge * u
            for weight, column in pool.parts(pool.maximise(tightened).weights):
                taken, shares = flows.column(column.choice)
                q[taken] += (1 - bridge) * weight * shares
            p = self._everywhere(q / np.bincount(rows.owner, q, rows.S)[rows.owner])
            values, error = self._valued(p)
            short = rho - (self._own(values - error)[1:] - self.offsets[1:]) / self.units[1:]
            if (short <= AGREES).all():  # classes are left so seldom that rounding of q moves mass between them
                break
            tightened = tightened + np.maximum(short, 0.0)
        note = (
            "No stationary policy attains the optimum: it divides its time between classes of states that it never "
            f"leaves. This policy spends a share of {bridge:g} of its time on moving between them."
        )
        return Plans([p], np.ones(1), False, (note,))

    def _settled(self, parts: Parts, rho: FloatArray) -> Plans:
        """Several end components: one stationary policy if that attains the optimum, else a mixture."""
        problem = self.problem
        one = combined_policy(problem.rows, problem.mu, [(x, c.choice) for x, c in parts])
        drawn = np.bincount(problem.rows.owner, one > 0, problem.rows.S) > 1
        if int(drawn.sum()) <= self.N and self._attains(one, parts, rho):
            return Plans([one], np.ones(1))
        return self._drawn(
            parts,
            "Once some parts of this model are entered they are never left, and no stationary policy with few random "
            "decisions attains the optimum: one of several policies is drawn at the start. The bounds hold on "
            "average over that draw, not along each run.",
        )

    def _attains(self, p: FloatArray, parts: Parts, rho: FloatArray) -> bool:
        """Whether the policy p [R] is as good as the mixture and is proved to meet rho (scaled); averages only."""
        values, error = self._valued(p)
        mixed = sum(x * c.v for x, c in parts)
        return bool(values[0] >= mixed - AGREES and (values[1:] - error[1:] >= rho - AGREES).all())

    def _drawn(self, parts: Parts, note: str) -> Plans:
        """One of the deterministic policies of a mixture is drawn at the start."""
        policies = [self._everywhere(self.rows.taking(column.choice)) for _, column in parts]
        several = len(parts) > 1
        return Plans(policies, np.array([x for x, _ in parts]), not several, (note,) if several else ())


def _coarse(X: FloatArray, kind: str) -> tuple[FloatArray, FloatArray]:
    """A shift and a unit of every signal, from the signals of single steps."""
    if kind == "total":
        unit = np.abs(X).max(axis=1)
        return np.zeros(len(X)), np.where(unit > 0, unit, 1.0)
    low, high = X.min(axis=1), X.max(axis=1)
    unit = (high - low) / 2
    return low + unit, np.where(unit > 0, unit, 1.0)
