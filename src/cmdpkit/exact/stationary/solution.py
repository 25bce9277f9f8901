"""Solutions of models without a horizon, as `solve` returns them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.solver import MIN_BINDING_SHARE, Solution
from cmdpkit.exact.stationary.actions import relative_values
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.exact.stationary.solving import BRIDGE, Answer, Stationary
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.mixture import Mixture, decompose
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import Name

MISSED = 1e-8  # a bound missed by more (relative to its signal's range) is an error, not a solution


@dataclass(frozen=True)
class StationarySolution(Solution):
    """The optimum of a model without a horizon, in the user's units and sense.

    `value` and `utilities` are in the criterion's own unit: discounted totals, long-run averages, or totals.
    """

    policy: Policy | Mixture  # type: ignore[assignment]  # a mixture only where no single policy attains the optimum
    attained: bool = True  # False if stationary policies only come near the optimum
    notes: tuple[str, ...] = ()  # what a user should know about the answer

    @property
    def start(self) -> dict[Name, float]:
        """The start that the optimum is for: states and their probabilities."""
        mu = self.cmdp.mu
        return {self.cmdp.states[int(s)]: float(mu[s]) for s in np.flatnonzero(mu)}

    @property
    def value_per_step(self) -> float | None:
        """The value per step: times 1 - discount, or the average itself; None for totals."""
        steps = self.cmdp.criterion.steps
        return None if steps is None else self.value / steps

    @property
    def utilities_per_step(self) -> FloatArray | None:
        """The utilities per step, [N]; None for totals."""
        steps = self.cmdp.criterion.steps
        return None if steps is None else self.utilities / steps

    @cached_property
    def mixture(self) -> Mixture:
        """At most N + 1 deterministic policies with the same occupancy; for averages the policy or mixture itself."""
        if isinstance(self.policy, Mixture):
            return self.policy
        if self.cmdp.criterion.kind == "average":
            return Mixture((self.policy,), np.ones(1))
        return decompose(self.cmdp, self.policy)

    def stochastic_decisions(self) -> list[Decision]:
        """Where the policy has to draw; the policies of a mixture are deterministic."""
        if isinstance(self.policy, Mixture):
            return []
        return self.policy.stochastic_decisions(reach=self.reach)

    @cached_property
    def bias(self) -> FloatArray:
        """Relative values [1 + N, S] of reward and utilities under the policy: what it is worth to be in a state.

        Zero at one recurrent state; for totals, the expected totals themselves.
        """
        if isinstance(self.policy, Mixture):
            raise CmdpkitError("a mixture of policies has no relative values of its own; ask for those of a part")
        c = self.cmdp.compact
        return relative_values(self.cmdp, self.policy.table(0), np.concatenate((c.r, c.g[:, 0])))[1]


def solve_stationary(cmdp: CMDP, bridge: float | None = None) -> StationarySolution:
    """The optimum of a model without a horizon; `exact.solver.solve` describes the arguments."""
    began = time.perf_counter()
    if bridge is not None and cmdp.criterion.kind != "average":
        raise CmdpkitError(f"bridge is {bridge!r}, but the criterion is {cmdp.criterion}: it is for averages only")
    problem = prepared(cmdp)
    if not problem.feasible(cmdp.rho):
        raise explain(cmdp, problem)
    return told(cmdp, problem, problem.solve(cmdp.rho, BRIDGE if bridge is None else bridge), began)


def prepared(cmdp: CMDP, *, g: FloatArray | None = None, r: FloatArray | None = None) -> Stationary:
    """The model's arrays, with other utilities g [N, S, A] or reward r [S, A] if given, ready to be solved."""
    c = cmdp.compact
    g = c.g[:, 0] if g is None else g
    r = c.r[0] if r is None else r
    kind, discount = cmdp.criterion.kind, cmdp.criterion.discount or 1.0
    names = (cmdp.states, cmdp.action_names)
    return Stationary(Arrays(c.indptr, c.successors, c.prob, r, g, c.mu, c.allowed[0], kind, discount, names))


def told(cmdp: CMDP, problem: Stationary, answer: Answer, began: float) -> StationarySolution:
    """An answer in the user's units and sense; CmdpkitError if its policy misses a bound."""
    units = problem.scaling.unit * problem.scaling.factor
    tolerance = MISSED * units[1:]
    short = cmdp.rho - answer.utilities
    if (short > tolerance).any():
        n = int((short / tolerance).argmax())
        raise CmdpkitError(
            f"not solved: the best policy found misses {cmdp.constraints[n]} by {short[n]:.3g}, and {tolerance[n]:.3g} "
            "would count as met. The numbers of this model are too far apart for double precision: relax that bound a "
            "little, or bring large and small signals and probabilities closer together"
        )
    policies = tuple(Policy.of(cmdp, pi) for pi in answer.policies)
    policy = policies[0] if len(policies) == 1 else Mixture(policies, answer.weights / answer.weights.sum())
    return StationarySolution(
        cmdp=cmdp,
        policy=policy,
        value=answer.value,
        utilities=cmdp.signs * answer.utilities + 0.0,
        shadow_prices=answer.prices * cmdp.bound_scales,
        gap=answer.gap,
        tolerance=tolerance,
        binds=answer.prices * units[1:] > MIN_BINDING_SHARE * units[0],
        method="columns",
        seconds=time.perf_counter() - began,
        attained=answer.attained,
        notes=answer.notes,
    )


def explain(cmdp: CMDP, problem: Stationary) -> Infeasible:
    """What can be had instead: the best compromise, the best of each bound alone, and bounds that clash."""
    thresholds = problem.scaling.thresholds(cmdp.rho)
    t, _, y = problem.pool.reach(thresholds, np.ones(cmdp.N))
    best = np.array([best_alone(cmdp, n) for n in range(cmdp.N)])
    conflict = [n for n in range(cmdp.N) if y[n] > 1e-9]
    for n in list(conflict):  # a bound that is not needed for the clash is left out of it
        rest = [m for m in conflict if m != n]
        if rest and not prepared(cmdp, g=cmdp.compact.g[rest, 0]).feasible(cmdp.rho[rest]):
            conflict = rest
    names = tuple(cmdp.constraints[n].name for n in conflict)
    return Infeasible(cmdp, _compromise(cmdp, problem, t), cmdp.signs * best + 0.0, names)  # type: ignore[arg-type]


def best_alone(cmdp: CMDP, n: int) -> float:
    """The largest value of utility n over all policies, in own units."""
    return prepared(cmdp, r=cmdp.compact.g[n, 0], g=cmdp.compact.g[:0, 0]).supremum(np.zeros(0))


def _compromise(cmdp: CMDP, problem: Stationary, t: float) -> Policy | Mixture:
    """A policy that misses its worst bound by the least, or by a little more where classes have to be bridged."""
    scale = problem.scaling
    for room in (1e-9, 1e-3, 0.1):
        relaxed = (problem.scaling.thresholds(cmdp.rho) + t - room) * scale.unit[1:] + scale.offset[1:]
        if not problem.feasible(relaxed * scale.factor):
            continue
        try:
            answer = problem.solve(relaxed * scale.factor)
        except CmdpkitError:  # no room for a bridge
            continue
        policies = tuple(Policy.of(cmdp, pi) for pi in answer.policies)
        return policies[0] if len(policies) == 1 else Mixture(policies, answer.weights / answer.weights.sum())
    return Policy.uniform(cmdp)
