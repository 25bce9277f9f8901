"""Exact solutions: the best policy under the bounds, with shadow prices and a proof.

`solve` always returns an extreme point, hence at most N stochastic decisions, and a proved gap: the Lagrangian bound
max_pi v + lam . (w - rho), computed by backward induction, against the policy's own exact value, plus what rounding may
have done to both. No solution is returned whose evaluated totals miss a bound by more than its tolerance.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import Optimum, Pool
from cmdpkit.exact.drawn import Drawn, blend, read_off, totals
from cmdpkit.exact.infeasible import explain_infeasible
from cmdpkit.exact.occupancy_lp import occupancy_lp
from cmdpkit.exact.vertex import purify
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import occupancy
from cmdpkit.model.mixture import Mixture, decompose
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import BoolArray, FloatArray

METHODS = ("auto", "columns", "lp")
GAP = 1e-9  # relative; beyond it "auto" asks the LP
BINDING = 1e-9  # a bound binds if moving it by its whole range is worth more than this share of the value's range


@dataclass(frozen=True)
class Solution:
    """The optimum of a constrained MDP, in the user's units and sense."""

    cmdp: CMDP
    policy: Policy
    value: float
    utilities: FloatArray  # [N], expected totals of the constraints' signals
    shadow_prices: FloatArray  # [N], value gained per unit by which a bound is relaxed
    gap: float  # proved, rounding included: no feasible policy has a value above value + gap
    tolerance: FloatArray  # [N]: no total misses its bound by more than this
    binds: BoolArray  # [N]: whether the bound has a price
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
    return solve_in(Pool(cmdp), cmdp, method, began)


def solve_in(pool: Pool, cmdp: CMDP, method: str, began: float) -> Solution:
    """Solve with the columns of a pool made for the same model (bounds may differ)."""
    rho = pool.thresholds(pool.scaled(cmdp.rho))
    if rho is None:
        raise explain_infeasible(cmdp, pool)
    candidates: list[_Candidate] = []
    if method != "lp":
        candidates.append(_by_columns(cmdp, pool, pool.maximise(rho)))
    if method == "lp" or (method == "auto" and not candidates[0].good(pool)):
        by_lp = _by_lp(cmdp, pool, rho)
        candidates += [] if by_lp is None else [by_lp]
    if not candidates:
        raise CmdpkitError('the LP solver gave up on this model; method="columns" does not depend on it')
    best = min(candidates, key=lambda x: (max(x.excess, 0.0), x.gap))
    if best.excess > 0:
        raise _missed(cmdp, pool, best)
    return best.solution(cmdp, pool, time.perf_counter() - began)


@dataclass(frozen=True)
class _Candidate:
    """A policy with its evaluated totals, prices and proof."""

    drawn: Drawn
    totals: FloatArray  # [1 + N], as computed
    lam: FloatArray  # [N], in the user's units
    gap: float  # bound less value, as computed
    rounding: float  # by how much that may be too small
    excess: float  # the largest amount, in tolerances, by which a bound is missed beyond its tolerance
    method: str

    def good(self, pool: Pool) -> bool:
        """Whether nothing better can be expected from another method."""
        size = max(abs(float(self.totals[0])), float(pool.units[0]) * 1e-3)
        return self.excess <= 0 and self.gap <= GAP * size + self.rounding

    def solution(self, cmdp: CMDP, pool: Pool, seconds: float) -> Solution:
        """The answer for the user."""
        return Solution(
            cmdp=cmdp,
            policy=self.drawn.policy(cmdp),
            value=float(self.totals[0]),
            utilities=cmdp.signs * self.totals[1:] + 0.0,
            shadow_prices=self.lam,
            gap=max(0.0, self.gap) + self.rounding,
            tolerance=pool.ranges.tolerance[1:],
            binds=self.lam * pool.units[1:] > BINDING * pool.units[0],
            method=self.method,
            seconds=seconds,
        )


def _by_columns(cmdp: CMDP, pool: Pool, best: Optimum) -> _Candidate:
    used = np.flatnonzero(best.weights)
    mixed = blend(cmdp, [pool.columns[j].choice for j in used], best.weights[used], best.greedy)
    lam = best.lam * pool.units[0] / pool.units[1:]
    return _candidate(cmdp, pool, mixed, lam, best.rho, "columns")


def _by_lp(cmdp: CMDP, pool: Pool, rho: FloatArray) -> _Candidate | None:
    """The LP's answer; None where its solver gives up."""
    found = occupancy_lp(cmdp, rho * pool.units[1:] + pool.offsets[1:], pool.units)
    if found is None:
        return None
    q, lam = found
    _, greedy, _ = pool.greedy(np.concatenate(([1.0], lam)))
    return _candidate(cmdp, pool, read_off(q, greedy), lam, rho, "lp")


def _candidate(cmdp: CMDP, pool: Pool, mixed: Drawn, lam: FloatArray, rho: FloatArray, method: str) -> _Candidate:
    """Vertex, exact values and the proved gap; rho [N] are the scaled thresholds that were aimed at."""
    ranges = pool.ranges
    drawn = purify(cmdp, mixed, rho * pool.units[1:] + pool.offsets[1:], pool.units[1:])
    values = totals(cmdp, drawn)
    bound = pool.greedy(np.concatenate(([1.0], lam)))[0] - float(lam @ cmdp.rho)
    # What is computed and what is true differ by the rounding, so less than the tolerance may be seen.
    seen = (cmdp.rho - values[1:]) - (ranges.tolerance - ranges.rounding)[1:]
    excess = float((seen / ranges.tolerance[1:]).max(initial=-np.inf))
    rounding = ranges.gap_rounding(lam, cmdp.rho)
    return _Candidate(drawn, values, lam, bound - float(values[0]), rounding, excess, method)


def _missed(cmdp: CMDP, pool: Pool, best: _Candidate) -> CmdpkitError:
    """The error for a problem that is feasible as far as one can tell, but whose policy misses a bound."""
    tolerance = pool.ranges.tolerance[1:]
    short = cmdp.rho - best.totals[1:]
    n = int((short / tolerance).argmax())
    return CmdpkitError(
        f"not solved: the best policy found misses {cmdp.constraints[n]} by {short[n]:.3g}, and {tolerance[n]:.3g} "
        "would count as met. The numbers of this model are too far apart for double precision: relax that bound a "
        "little, or bring large and small signals and probabilities closer together"
    )
