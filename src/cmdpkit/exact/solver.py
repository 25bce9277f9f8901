"""Exact solutions: the best policy under the bounds, with shadow prices and a proof.

`solve` always returns an extreme point, hence at most N stochastic decisions, and a proved gap: the Lagrangian bound
max_pi v + lam . (w - rho), computed by backward induction, against the policy's own exact value.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import FEASIBLE, Choice, Pool
from cmdpkit.exact.occupancy_lp import occupancy_lp
from cmdpkit.exact.vertex import purify
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import evaluate, occupancy
from cmdpkit.model.mixture import Mixture, decompose, from_occupancy
from cmdpkit.model.policy import Decision, Policy, one_hot
from cmdpkit.model.transitions import FloatArray

METHODS = ("auto", "columns", "lp")
GAP = 1e-9  # relative; beyond it "auto" asks the LP


@dataclass(frozen=True)
class Solution:
    """The optimum of a constrained MDP, in the user's units and sense."""

    cmdp: CMDP
    policy: Policy
    value: float
    utilities: FloatArray  # [N], expected totals of the constraints' signals
    shadow_prices: FloatArray  # [N], value gained per unit by which a bound is relaxed
    gap: float  # proved: no feasible policy has a value above value + gap
    method: str
    seconds: float

    @cached_property
    def occupancy(self) -> FloatArray:
        """q[h, s, a] of the policy."""
        return occupancy(self.cmdp, self.policy)

    @cached_property
    def mixture(self) -> Mixture:
        """At most N + 1 deterministic policies whose mixture has the same occupancy."""
        return decompose(self.cmdp, self.policy)

    def stochastic_decisions(self) -> list[Decision]:
        """Where the policy has to draw: at most N places."""
        return self.policy.stochastic_decisions(reach=self.occupancy.sum(axis=-1))


class Infeasible(CmdpkitError):
    """No policy meets all bounds. Carries the best that can be had and the bounds that exclude each other."""

    __module__ = "cmdpkit"
    exit_code = 3

    def __init__(self, cmdp: CMDP, policy: Policy, best: FloatArray, conflict: tuple[str, ...]) -> None:
        self.cmdp = cmdp
        self.policy = policy  # misses its worst bound (relative to the signal's range) by the least
        self.utilities = evaluate(cmdp, policy).w  # [N], of that policy
        self.best = best  # [N], best of each alone
        self.conflict = conflict
        super().__init__(self._explanation())

    def _explanation(self) -> str:
        bounds = {c.name: c for c in self.cmdp.constraints}
        if len(self.conflict) == 1:
            c = bounds[self.conflict[0]]
            best = self.best[self.cmdp.constraint_index(c.name)]
            return f"infeasible: {c} cannot be met, the best any policy reaches is {best:.6g}"
        clash = " and ".join(str(bounds[name]) for name in self.conflict)
        reached = ", ".join(
            f"{c.name} {u:.6g}"
            for c, u in zip(self.cmdp.constraints, self.utilities, strict=True)
            if c.name in self.conflict
        )
        return f"infeasible: {clash} cannot hold together; the best compromise reaches {reached}"


def solve(cmdp: CMDP, method: str = "auto", *, bridge: float | None = None) -> Solution:
    """The optimal policy of a known model.

    Models without a horizon get one stationary policy and a `StationarySolution`; where the long-run optimum is not
    attained by one, ``bridge`` is the share of time that a policy near it may lose (1e-4 unless given).

    ``method`` is "columns" (column generation: fast, sparse), "lp" (the full occupancy LP in HiGHS) or "auto"
    (columns, with the LP as a safety net). Raises `Infeasible` if no policy meets the bounds.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> sol = solve(cmdp)
    >>> print(f"{sol.value:.6f} {sol.utilities[0]:.6f} {sol.shadow_prices[0]:.6f}")
    0.500000 1.500000 1.000000
    """
    if method not in METHODS:
        raise CmdpkitError(f"method is {method!r}, expected one of {', '.join(METHODS)}")
    if cmdp.criterion.stationary:
        from cmdpkit.exact.stationary.solution import solve_stationary

        if method == "lp":
            raise CmdpkitError("method is 'lp', which is for models with a horizon; use 'auto' or 'columns'")
        return solve_stationary(cmdp, bridge)
    if bridge is not None:
        raise CmdpkitError(f"bridge is {bridge!r}, but the model has a horizon: it is for long-run averages only")
    began = time.perf_counter()
    pool = Pool(cmdp)
    if method == "lp":
        solution = _by_lp(cmdp, pool, began)
    else:
        check_feasible(cmdp, pool)
        solution = solve_in(pool, cmdp, began)
        if method == "auto" and solution.gap > GAP * max(abs(solution.value), pool.units[0] * 1e-3):
            by_lp = _by_lp(cmdp, pool, began)
            solution = min(solution, by_lp, key=lambda s: s.gap)
    return solution


def solve_in(pool: Pool, cmdp: CMDP, began: float) -> Solution:
    """Solve with the columns of a pool made for the same model (bounds may differ); the bounds must be feasible."""
    best = pool.maximise(pool.scaled(cmdp.rho))
    q = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    for weight, column in zip(best.weights, pool.columns, strict=False):
        if weight > 0:
            q += weight * occupancy(cmdp, Policy(one_hot(column.choice, cmdp.A)))
    lam = best.lam * pool.units[0] / pool.units[1:]
    return _finish(cmdp, pool, q, lam, best.greedy, "columns", began)


def _by_lp(cmdp: CMDP, pool: Pool, began: float) -> Solution:
    found = occupancy_lp(cmdp, pool.units)
    if found is None:
        raise explain_infeasible(cmdp, pool)
    q, lam = found
    _, column = pool.price(1.0, lam * pool.units[1:] / pool.units[0])
    return _finish(cmdp, pool, q, lam, column.choice, "lp", began)


def _finish(
    cmdp: CMDP, pool: Pool, q: FloatArray, lam: FloatArray, greedy: Choice, method: str, began: float
) -> Solution:
    """Vertex, policy, exact values and the proved gap."""
    default = one_hot(greedy, cmdp.A)
    q = purify(cmdp, q, cmdp.rho, pool.units[1:], default)
    policy = from_occupancy(cmdp, q, default)
    values = evaluate(cmdp, policy)
    total, _ = pool.price(1.0, lam * pool.units[1:] / pool.units[0])
    bound = total * pool.units[0] - float(lam @ cmdp.rho)
    pool.columns.pop()
    seconds = time.perf_counter() - began
    return Solution(cmdp, policy, values.v, values.w, lam, max(0.0, float(bound - values.v)), method, seconds)


def check_feasible(cmdp: CMDP, pool: Pool) -> None:
    """Raise `Infeasible` unless some mixture meets the bounds; afterwards the pool holds one."""
    if cmdp.N == 0:
        return
    t, _, _ = pool.reach(pool.scaled(cmdp.rho), np.ones(cmdp.N), enough=0.0)
    if t < -FEASIBLE:
        raise explain_infeasible(cmdp, pool)


def explain_infeasible(cmdp: CMDP, pool: Pool) -> Infeasible:
    """What can be had instead: the best compromise, the best of each alone, an irreducible set of clashing bounds."""
    rho = pool.scaled(cmdp.rho)
    _, weights, y = pool.reach(rho, np.ones(cmdp.N))
    compromise = Mixture(
        tuple(
            Policy(one_hot(c.choice, cmdp.A), cmdp.states, cmdp.action_names)
            for c, x in zip(pool.columns, weights, strict=False)
            if x > 0
        ),
        weights[weights > 0] / weights.sum(),
    )
    q = occupancy(cmdp, compromise)
    default = one_hot(pool.columns[-1].choice, cmdp.A)
    best = np.array([pool.price(0.0, row)[0] for row in np.eye(cmdp.N)]) * pool.units[1:] * cmdp.signs + 0.0
    conflict = [n for n in range(cmdp.N) if y[n] > 1e-9]
    for n in list(conflict):  # a bound that is not needed for the clash is left out of it
        rest = [m for m in conflict if m != n]
        if rest and _clash(cmdp, rest):
            conflict = rest
    names = tuple(cmdp.constraints[n].name for n in conflict)
    return Infeasible(cmdp, from_occupancy(cmdp, q, default), best, names)


def _clash(cmdp: CMDP, subset: list[int]) -> bool:
    """Whether these constraints alone are infeasible."""
    part = cmdp.reformulated(g=cmdp.compact.g[subset], constraints=tuple(cmdp.constraints[n] for n in subset))
    pool = Pool(part)
    return pool.reach(pool.scaled(part.rho), np.ones(len(subset)), enough=0.0)[0] < -FEASIBLE
