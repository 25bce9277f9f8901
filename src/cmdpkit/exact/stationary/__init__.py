"""Discounted, long-run average and total problems: sources of columns for which one stationary policy is the answer.

`problem` cuts a model to the states that matter, with actions as rows. `parts` has the problem in units of its own and
the values of a policy. `pricing` finds the best policy for one objective and evaluates policies, with bounds that hold
whatever the rounding; `careful` does the same with proved errors where numbers of very different size meet, and has the
choice between the two. `plans` puts several end components together. `Stationary`, below, turns policies into
columns, and `plans`, with `vertex`, mixtures of columns into policies. `gap_table` says what single
actions are worth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import CONVERGED_GAP, Found, Parts, PolicyColumn, Units
from cmdpkit.exact.stationary import plans
from cmdpkit.exact.stationary.careful import CAREFUL, methods_for, profiled
from cmdpkit.exact.stationary.parts import (
    DENSE,
    ELIMINATION,
    EPS,
    EXACT,
    PolicyValues,
    ScaledPart,
    TooLong,
    first_policy,
    part_of,
    unevaluated,
)
from cmdpkit.exact.stationary.plans import (
    SeveralParts,
    first_settled,
    methods_for_several,
    several_parts,
)
from cmdpkit.exact.stationary.pricing import FACTORED, QUICK
from cmdpkit.exact.stationary.problem import (
    Arrays,
    ComponentRows,
    absorbed_somehow,
    end_components,
    every_step_costs,
    policy_rows,
    problem_of,
)
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.tolerances import FEASIBLE, ROUNDOFF
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

BRIDGE = 1e-4  # share of time that a bridged policy spends on keeping its classes connected
PRECISE = 1e-12  # rounding beyond this share of a signal's range asks for careful evaluation
ALLOWED = (100, 20)  # roundings that a tolerance makes room for: so many, and so many more for every state
UNKNOWN = 1e-6  # rounding beyond this share of the largest values means that they are not known
WIDER = 8  # up to so many times as much room for rounding where a signal has hardly any range
KNOWN = 0.02  # share of a signal's range up to which the range is known
LEAN = (1e-8, 1e-13)  # weights of the reward where only utilities are asked for, if a policy need not be absorbed
FEW = 100  # policies that are evaluated for a range, if a policy need not be absorbed
BEYOND = 10.0  # policies are left out whose reward is this many times worse than the best known, if it is not


class SignalUnits(NamedTuple):
    """Signals of a step are scaled as (own - shift) / unit."""

    shift: FloatArray  # [1 + N]
    unit: FloatArray  # [1 + N]
    base: FloatArray  # [1 + N], what the least value of a policy is in these units
    factor: float  # a value of a discounted problem counts this many times the value per step

    def signals(self, X: FloatArray) -> FloatArray:
        """Signals [1 + N, R] of single steps in these units."""
        return np.ascontiguousarray((X - self.shift[:, None]) / self.unit[:, None])

    def own(self, values: FloatArray) -> FloatArray:
        """Scaled values in the criterion's own units."""
        return np.asarray((values * self.unit + self.shift) * self.factor)


class _Top(NamedTuple):
    """The policy that has the most of one signal."""

    policy: Any  # PolicyValues or SettledValues
    pad: float  # rounding in the bound


class _Ranges(NamedTuple):
    """The least and the most that policies have of each signal, in scaled values."""

    worst: FloatArray  # [1 + N]
    best: FloatArray  # [1 + N]
    pad: FloatArray  # [1 + N], rounding in these
    tops: list[_Top]  # for each signal


class Stationary:
    """Columns of discounted values, totals until absorption or averages; with a model also policies for the user."""

    exact = False

    def __init__(self, arrays: Arrays, cmdp: CMDP | None = None) -> None:
        self.problem, self.cmdp, self.bridge = problem_of(arrays), cmdp, BRIDGE
        self.component: IntArray | None = None  # the rows of the part that make up the only end component
        rows, self.raw, mu = self.problem.rows, self.problem.X, self.problem.mu
        components = self.components if arrays.kind == "average" else []
        if len(components) == 1:
            rows, self.component = rows.closed_part(*components[0])
            self.raw, mu = self.raw[:, self.component], np.zeros(rows.S)
        try:
            self._prepare(rows, mu, components)
        except TooLong:
            if self.kind != "total" or not every_step_costs(self.raw):
                raise
            self.problem = self.problem._replace(endless=True)  # then no longest time is needed
            self._prepare(rows, mu, [])

    def _prepare(self, rows: ComponentRows, mu: FloatArray, components: list[tuple[IntArray, BoolArray]]) -> None:
        """The problem in units of its own, and what policies can collect in it."""
        problem = self.problem
        self.scale = _coarse(self.raw, self.kind, 1 / float(rows.exits[0]) if self.kind == "discounted" else 1.0)
        self.methods, X = methods_for(rows.S), self.scale.signals(self.raw)
        self.part: ScaledPart | SeveralParts
        self.now: Any  # the policy with which the next search begins: PolicyValues or SettledValues
        if len(components) > 1:
            self.methods, self.part = methods_for_several(self.methods.careful), several_parts(rows, X, mu, components)
            self.now = first_settled(self.part)
        else:
            given, careful = (rows, X, self.kind, mu), self.methods.careful
            self.part = part_of(*given, endless=problem.endless, blur=problem.blur, careful=careful)
            self.now = first_policy(self.part)
        self.ranges, self.first = self._survey()

    @cached_property
    def components(self) -> list[tuple[IntArray, BoolArray]]:
        """The maximal end components that the start can reach, (states, rows that stay inside) each."""
        rows = self.problem.rows
        return [] if self.problem.ends else end_components(replace(rows, exits=np.zeros(rows.R)))

    @property
    def N(self) -> int:
        """Number of utilities."""
        return len(self.problem.X) - 1

    @property
    def kind(self) -> str:
        """The criterion; a total whose exits are all the same counts as discounted."""
        return self.problem.kind

    @property
    def rows(self) -> ComponentRows:
        """The rows of the part."""
        return self.part.rows

    @property
    def units(self) -> FloatArray:
        """[1 + N], of scaled values."""
        return self.ranges.unit

    @property
    def offsets(self) -> FloatArray:
        """[1 + N], what a scaled value of 0 stands for."""
        return self.ranges.worst

    @property
    def noise(self) -> FloatArray:
        """[1 + N], the rounding error that scaled values may have."""
        return 2 * self.ranges.rounding / self.units

    @property
    def best(self) -> FloatArray:
        """[N], the largest scaled utilities, which are not known."""
        return np.full(self.N, np.inf)

    @property
    def direct(self) -> bool:
        """Whether policies are evaluated by elimination."""
        return self.methods.careful or self.now.method == ELIMINATION

    # -- what policies can collect

    def _survey(self) -> tuple[Units, list[PolicyColumn]]:
        """What policies can collect of every signal, as the unit of it, and the policies that collect the most."""
        own = self.scale.own
        if not self.N:
            size = np.full(1, self.part.omega if not self.problem.endless else 1.0)
            worst, best = own(-size), own(size)
            magnitude = np.maximum(np.abs(worst), np.abs(best))
            return Units(worst, best, 8 * EPS * magnitude, magnitude), []
        found = self._extremes()
        if not self.methods.careful and self._needs_care(found):
            self.take_care(-np.eye(1 + self.N)[-1])
            found = self._extremes()
        low, high = own(found.worst), own(found.best)
        magnitude = np.maximum(np.abs(low), np.abs(high))
        rounding = np.maximum(found.pad * self.scale.unit * self.scale.factor, 8 * EPS * magnitude)
        if self.methods.careful:
            magnitude = self._magnitude()
            rounding = (ALLOWED[0] + ALLOWED[1] * min(self.rows.S, DENSE)) * ROUNDOFF * magnitude
        error = np.max([policy.error for policy, _ in found.tops], axis=0) * self.scale.unit * self.scale.factor / 2
        narrow = FEASIBLE * (high - low) < 4 * rounding  # only the room for rounding counts
        rounding = np.where(narrow, np.clip(error, rounding, WIDER * rounding), rounding)
        ranges = Units(low, high, rounding, magnitude)
        columns = []
        for k, (policy, _) in enumerate(found.tops):
            v, *w = (own(policy.values) - low) / ranges.unit
            off = float((policy.error * self.scale.unit * self.scale.factor / ranges.unit).max())
            weights, top = np.eye(1, 1 + self.N, k)[0], float(high[k] / ranges.unit[k])
            columns.append(PolicyColumn(policy.choice, float(v), np.array(w), weights, top, off))
        self._use(ranges)
        return ranges, columns

    def _magnitude(self) -> FloatArray:
        """The largest values of the absolute signals over all policies, in own units."""
        X, found = np.abs(self.raw) / self.scale.unit[:, None], np.zeros(1 + self.N)
        if isinstance(self.part, SeveralParts):
            other: Any = several_parts(self.rows, X, self.part.mu, self.part.components)
            policy: Any = first_settled(other)
        else:
            other = self.part.with_signals(X)
            policy = unevaluated(other, self.now.choice, self.now.method, self.now.pivot)
        if self.problem.endless:  # the absolute signals are costs, of which there is no most
            found = self.methods.evaluate(other, policy, policy.choice, EXACT, np.ones(1 + self.N)).values
        else:
            for k in range(1 + self.N):
                policy = self.methods.price(other, policy, np.eye(1, 1 + self.N, k)[0], 0.0, EXACT)
                found[k] = policy.values[k]
        return np.asarray(np.abs(found) * self.scale.unit * self.scale.factor)

    def _needs_care(self, found: _Ranges) -> bool:
        """Whether rounding matters, and a careful evaluation is within reach."""
        span = found.best - found.worst
        matters = bool((found.pad > PRECISE * span).any())
        size = np.maximum(1.0, np.maximum(np.abs(found.worst), np.abs(found.best)))
        pays = bool((span > 4 * found.pad).all() or (found.pad > UNKNOWN * size).any())
        return matters and (self.rows.S <= DENSE or (self.rows.S <= FACTORED and pays))

    def take_care(self, weights: FloatArray) -> None:
        """Evaluate policies carefully from now on; of several classes, the best at the weights [1 + N] counts."""
        if isinstance(self.part, SeveralParts):
            self.methods, self.now = methods_for_several(True), self.now.directly()
        else:
            self.methods, self.now = CAREFUL, profiled(self.part, self.now, weights)

    def _use(self, ranges: Units) -> None:
        """Change to the units that were found."""
        factor, before, total = self.scale.factor, self.scale.unit, self.kind == "total"
        shift = np.zeros(1 + self.N) if total else ranges.worst / factor
        base = ranges.worst / ranges.unit if total else np.zeros(1 + self.N)
        self.scale = SignalUnits(shift, ranges.unit / factor, base, factor)
        self.part = self.part.with_signals(self.scale.signals(self.raw))
        self.now = self.now.in_units(self.scale.unit / before)

    def _extremes(self) -> _Ranges:
        """The ranges of policies' values, each of which is that of two policies.

        It is at least 1 - 2 KNOWN of what all policies have.
        """
        K, endless = 1 + self.N, self.problem.endless
        worst, best, pads, tops = np.zeros(K), np.zeros(K), np.zeros(K), []
        seen = self._some_policies() if endless else []
        for k in range(K):
            weights, other = np.eye(1, K, k)[0], 0.0
            slack = 0.0 if self.direct else KNOWN * (self.part.omega if not endless else 1.0)
            while True:
                top = self._most(weights, slack)
                best[k] = top.policy.values[k]
                if not endless:
                    bottom = self._most(-weights, slack)
                    worst[k], other = bottom.policy.values[k], bottom.pad
                pads[k], span = max(top.pad, other), best[k] - worst[k]
                if endless or slack <= KNOWN * span or slack <= 8 * pads[k] or not self.part.X[k].any():
                    break
                slack = max(KNOWN / 2 * span, 0.01 * slack, 4 * pads[k])
            tops.append(top)
        if endless:
            worst = np.min([*seen, *(top.policy.values for top in tops)], axis=0)
        return _Ranges(np.minimum(worst, best), best, pads, tops)

    def _some_policies(self) -> list[FloatArray]:
        """Values of some policies that are absorbed, where others are not: without absorption there is no worst.

        They are the one at hand and, for signals of which it has nothing, those with one row that has something.
        """
        rows, base = self.rows, self.now.choice.copy()
        seen = [self.evaluate(base).values]
        for i in np.flatnonzero(self.part.X[seen[0] == 0].any(axis=0))[:FEW]:
            choice = base.copy()
            choice[rows.owner[i]] = i
            if absorbed_somehow(policy_rows(rows, rows.taking(choice))):
                seen.append(self.evaluate(choice).values)
        self.evaluate(base)
        return seen

    def _most(self, weights: FloatArray, slack: float) -> _Top:
        """A policy that has within slack the most of one signal."""
        self._upper(weights, slack, slack / 4)
        return _Top(self.now, self.now.pad)

    # -- the source

    def evaluate(self, choice: IntArray, tol: float = EXACT, weights: FloatArray | None = None) -> Any:
        """The values of a choice of rows [S], with which the next search begins.

        For averages, the class counts that is best at the weights [1 + N], if the policy has several.
        """
        self.now = self.methods.evaluate(
            self.part, self.now, choice, tol, np.ones(1 + self.N) if weights is None else weights
        )
        return self.now

    def best_policy(self, weights: FloatArray, slack: float, accuracy: float) -> Any:
        """A policy within slack of the largest weights . values, values to within accuracy, and the bound."""
        self.now = self.methods.price(self.part, self.now, weights, slack, accuracy)
        return self.now

    def _upper(self, weights: FloatArray, slack: float, accuracy: float) -> float:
        """The bound on weights . values."""
        size = float(np.abs(weights).sum())
        if not self.problem.endless or weights[0] >= LEAN[0] * size:
            return float(self.best_policy(weights, slack, accuracy).bound)
        upper, lean = np.inf, weights.copy()
        for share in LEAN:  # the first keeps policies that are absorbed apart from others, the second hardly counts
            lean[0] = share * size
            upper = float(self.best_policy(lean, slack, accuracy).bound)
        return upper + float(lean[0]) * BEYOND * abs(float(self.now.values[0]))

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The bound, and the policy that comes within slack of it as one column."""
        if not self.N:
            slack = max(slack, CONVERGED_GAP)
            upper = self._upper(weights, slack, slack)
            if self._is_wide(upper):
                upper = min(upper, self._upper(weights, 0.0, EXACT))
            if self._is_wide(upper) and not self.methods.careful and self.rows.S <= FACTORED:
                self.take_care(weights)
                upper = min(upper, self._upper(weights, 0.0, EXACT))
                if self._is_wide(upper) and isinstance(self.part, ScaledPart):  # its profile is of an old policy
                    self.methods, self.now = QUICK, self.now._replace(profile=None)
                    upper = min(upper, self._upper(weights, 0.0, EXACT))
        else:
            upper = self._upper(weights, slack, max(EXACT, 0.01 * slack))
        return upper - float(weights @ self.scale.base), [self._column(weights, upper)]

    def _is_wide(self, upper: float) -> bool:
        """Whether a bound on the only signal is further from the policy at hand than rounding usually leaves it."""
        values, error = self.now.values, float(self.now.error[0])
        return upper - float(values[0]) + error > 1e-10 * abs(float(self.scale.own(values)[0])) / float(self.units[0])

    def _column(self, weights: FloatArray, upper: float) -> PolicyColumn:
        """The policy at hand as a column."""
        policy, base = self.now, self.scale.base
        v, *w = policy.values - base
        if self.N:
            total = upper + float(weights @ ((self.offsets / self.units) - base))
        else:
            total = float(weights @ self.scale.own(np.array([upper]))) / float(self.units[0])
        return PolicyColumn(policy.choice, float(v), np.array(w), weights, total, float(policy.error.max()))

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """The values of a column's policy up to rounding."""
        policy = self.evaluate(column.choice, weights=column.weights)
        v, *w = policy.values - self.scale.base
        return column._replace(choice=policy.choice, v=float(v), w=np.array(w), error=float(policy.error.max()))

    # -- from mixtures to policies

    def policy(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Found:
        """A stationary policy as good as the mixture `parts`, which meets rho (scaled), or whatever comes near it."""
        return plans.policy_of(self, parts, proof, rho)


def _coarse(X: FloatArray, kind: str, factor: float) -> SignalUnits:
    """A shift and a unit of every signal, from the signals of single steps."""
    none = np.zeros(len(X))
    if kind == "total":
        unit = np.abs(X).max(axis=1)
        return SignalUnits(none, np.where(unit > 0, unit, 1.0), none, factor)
    low, high = X.min(axis=1), X.max(axis=1)
    unit = (high - low) / 2
    return SignalUnits(low + unit, np.where(unit > 0, unit, 1.0), none, factor)


def gap_table(cmdp: CMDP, prices: FloatArray) -> FloatArray:
    """Losses [S, A] per step at the optimal prices, 0 where nothing can occur; averages need a single end component.

    Let lam be the optimal prices, o = r + lam . g, and c, h a solution of c + h(s) = max_a o(s, a) + gamma sum P h.
    Then

        gap(s, a) = c + h(s) - o(s, a) - gamma sum_s' P(s'|s, a) h(s') >= 0,

    and for every stationary policy with occupancy q, value v and utilities w (per step, from the same start)

        v* - v = <q, gap> + lam . (w - rho).

    Proof: <q, o> = sum_s d(s) (c + h(s)) - <q, gap> - gamma sum q P h = c + (1 - gamma) mu . h - <q, gap> by the
    balance of q. The optimum has gap 0 wherever q > 0, and lam . (w* - rho) = 0, so c + (1 - gamma) mu . h = v* + lam .
    rho.
    """
    c = cmdp.compact
    if cmdp.criterion.kind == "total":
        raise CmdpkitError("the criterion is 'total', which has no means per step; use a discount to learn in it")
    priced, none = c.r[0] + np.einsum("n,nsa->sa", prices, c.g[:, 0]), np.zeros((0, cmdp.S, cmdp.A))
    model = (cmdp.rows, priced, none, c.mu, c.allowed[0], cmdp.criterion.kind)
    source = Stationary(Arrays(*model, cmdp.criterion.discount or 1.0))
    source.best_policy(np.ones(1), 0.0, EXACT)
    if isinstance(source.part, SeveralParts):
        raise CmdpkitError(
            "learning a long-run average needs a model in which every place can be left again, but in this one a run "
            "settles in one of several parts that it never leaves, and cannot learn about the others then; use a "
            "discount, or solve the model with cmdpkit.solve"
        )
    rows = source.problem.rows
    x = source.scale.signals(source.problem.X)[0]
    h = _relative_values(source, x)
    lost = h[rows.owner] - x - rows.P @ h
    best = -float(lost.min())  # the c of the formula
    gaps = np.zeros(cmdp.S * cmdp.A)
    gaps[rows.pair] = best + lost
    return np.maximum(gaps, 0.0).reshape(cmdp.S, cmdp.A) * float(source.scale.unit[0])


def _relative_values(source: Stationary, x: FloatArray) -> FloatArray:
    """h [states of the part] of the signal x [R], also of states that are only passed through."""
    rows, policy = source.problem.rows, source.now
    if source.component is None:
        return np.array(policy.Y[:, 0])
    h = np.zeros(rows.S)
    inside = np.unique(rows.owner[source.component])
    h[inside] = policy.Y[:, 0]
    outside = np.setdiff1d(np.arange(rows.S), inside)
    if len(outside):
        passing, used = rows.part(outside)
        ahead = x[used] - float(policy.values[0]) + rows.P[used] @ h
        h[outside] = _best_total(passing, np.ascontiguousarray(ahead)).Y[:, 0]
    return h


def _best_total(rows: ComponentRows, x: FloatArray) -> PolicyValues:
    """The policy with the largest total of a signal x [R] until it leaves these rows, from a uniform start."""
    methods = methods_for(rows.S)
    start = np.full(rows.S, 1.0 / rows.S)
    part = part_of(rows, x[None], "total", start, endless=False, blur=0, careful=methods.careful)
    best: PolicyValues = methods.price(part, first_policy(part), np.ones(1), 0.0, EXACT)
    return best
