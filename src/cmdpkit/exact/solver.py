"""Exact solutions: the best policy under the bounds, with shadow prices and a proof of how good it is.

`solve` always returns an extreme point, which has at most N stochastic decisions, and a proved gap. The gap is the
Lagrangian bound max_pi v + lam . (w - rho), computed by backward induction, less the exact value of the policy, plus
the largest error that rounding can have caused in both. No solution is returned whose evaluated totals miss a bound by
more than its tolerance. A search that is ended early, by `gap` or by Ctrl-C, still returns an extreme point with a
proved gap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import Optimum, Pool
from cmdpkit.exact.infeasible import explain_infeasible
from cmdpkit.exact.occupancy_lp import occupancy_lp
from cmdpkit.exact.progress import Report, Watch
from cmdpkit.exact.sparse_policy import SparsePolicy, blend, read_off
from cmdpkit.exact.steps import Threads
from cmdpkit.exact.vertex import purify
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import occupancy, reach
from cmdpkit.model.fits import check_model
from cmdpkit.model.mixture import Mixture, decompose
from cmdpkit.model.policy import NEGLIGIBLE, Decision, Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("auto", "columns", "lp")
MAX_RELATIVE_GAP = 1e-9  # with a larger gap, relative to the value, the method "auto" also solves the full LP
MIN_BINDING_SHARE = 1e-9  # a bound binds if its price times its range exceeds this share of the value's range


@dataclass(frozen=True)
class Solution(Shown):
    """The optimum of a constrained MDP, in the user's units and sense."""

    cmdp: CMDP  # the model that was solved
    policy: Policy  # an optimal policy with at most N stochastic decisions
    value: float  # expected total reward of the policy
    utilities: FloatArray  # [N], expected totals of the constraints' signals
    shadow_prices: FloatArray  # [N], value gained per unit by which a bound is relaxed, in the unit it was given in
    gap: float  # proved, with rounding included: no feasible policy has a value above value + gap
    tolerance: FloatArray  # [N], no total misses its bound by more than this
    binds: BoolArray  # [N], whether the bound has a price above 0
    method: str  # "columns" or "lp", whichever found the policy
    seconds: float  # how long solving took
    ended: Literal["optimal", "gap", "interrupted"] = "optimal"  # or as close as was asked for, or by Ctrl-C

    @property
    def complete(self) -> bool:
        """False if Ctrl-C ended the search: then policy and gap are the best that had been found."""
        return self.ended != "interrupted"

    @property
    def lam(self) -> FloatArray:
        """[N], value gained per unit of a total: the prices of bounds per step, divided by the number of steps."""
        return self.shadow_prices / self.cmdp.bound_scales

    @cached_property
    def occupancy(self) -> FloatArray:
        """The occupancy q[h, s, a] of the policy: the probability of being in s at step h and taking a."""
        return occupancy(self.cmdp, self.policy)

    @cached_property
    def reach(self) -> FloatArray:
        """The probability [H, S] of being in a state at a step: the occupancy, summed over the actions."""
        return reach(self.cmdp, self.policy)

    @cached_property
    def used(self) -> int:
        """How many triples of step, state and action the policy ever uses."""
        if not isinstance(self.policy, Policy):  # a mixture, which only a stationary solution can be
            return int((self.occupancy > NEGLIGIBLE).sum())
        where, p = self.policy.rows
        drawn = self.reach[where[:, 0], where[:, 1]]
        extra = (drawn[:, None] * p > NEGLIGIBLE).sum() - (drawn > NEGLIGIBLE).sum()
        return int((self.reach > NEGLIGIBLE).sum() + extra)

    @cached_property
    def mixture(self) -> Mixture:
        """At most N + 1 deterministic policies whose mixture has the same occupancy."""
        return decompose(self.cmdp, self.policy)

    def plot(self) -> Figure:
        """A matplotlib figure of the policy: boards where the model has a grid, otherwise a map of states and steps."""
        from cmdpkit.results.figures.maps import solution_map

        return solution_map(self)

    def stochastic_decisions(self) -> list[Decision]:
        """The steps and states where the policy draws its action at random: at most N of them."""
        return self.policy.stochastic_decisions(reach=self.reach)


def solve(
    cmdp: CMDP,
    method: str = "auto",
    *,
    bridge: float | None = None,
    threads: Threads = None,
    gap: float | None = None,
    progress: Report | bool = False,
) -> Solution:
    """The optimal policy of a known model.

    Parameters
    ----------
    cmdp : the model
    method : "columns" (column generation, which is fast and uses little memory), "lp" (the full occupancy LP in HiGHS)
        or "auto" (column generation, and the LP as well where that leaves a gap)
    bridge : for long-run averages whose optimum no single policy attains, the share of time that a policy near it may
        lose (1e-4 unless given)
    threads : how many threads column generation uses for large models with a horizon; all cores unless given. The
        solution does not depend on it
    gap : stop as soon as the policy is proved to be this close to the optimum, relative to its value (0.001 for 0.1 %)
    progress : True for a line on stderr that shows how far the solve is, or a function that is called after every round
        of column generation with its ``number``, ``value``, proved ``gap`` and ``seconds``

    Returns
    -------
    The `Solution`: a policy, its value and totals, shadow prices and a proved gap; for a model without a horizon a
    `StationarySolution` with one stationary policy. `Infeasible`, a `CmdpkitError`, is raised if no policy meets all
    bounds. After Ctrl-C the best policy found so far is returned, with its proved gap and ``ended="interrupted"``. If
    there is none yet, or after another Ctrl-C, KeyboardInterrupt is raised.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> sol = solve(cmdp)
    >>> print(f"{sol.value:.6f} {sol.utilities[0]:.6f} {sol.shadow_prices[0]:.6f}")
    0.500000 1.500000 1.000000
    """
    _check(cmdp, method)
    watch = Watch(gap, progress)
    if cmdp.criterion.stationary:
        from cmdpkit.exact.stationary.solution import solve_stationary

        if method == "lp":
            raise CmdpkitError("method is 'lp', which is for models with a horizon; use 'auto' or 'columns'")
        need_horizon(cmdp, threads=threads, gap=gap, progress=progress or None)
        return solve_stationary(cmdp, bridge)
    if bridge is not None:
        raise CmdpkitError(f"bridge is {bridge!r}, but the model has a horizon: it is for long-run averages only")
    try:
        return solve_fully(cmdp, method, threads=threads, watch=watch)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("no policy that meets all bounds had been found yet") from None
    finally:
        watch.close()


def need_horizon(cmdp: CMDP, **options: object) -> None:
    """Refuse options (None if not given) that are only for models with a horizon, if the model has none."""
    for name, given in options.items():
        if given is not None and cmdp.criterion.stationary:
            raise CmdpkitError(f"{name} is {given!r}, which is for models with a horizon; leave it out for this model")


def solve_fully(cmdp: CMDP, method: str = "auto", *, threads: Threads = None, watch: Watch | None = None) -> Solution:
    """The same as `solve` for callers that need the optimum: Ctrl-C is not caught unless there is a ``watch``."""
    _check(cmdp, method)
    if cmdp.criterion.stationary:
        return solve(cmdp, method)
    watch_ = Watch() if watch is None else watch
    return solve_in(Pool(cmdp, threads=threads), cmdp, method, watch_, interruptible=watch is not None)


def _check(cmdp: CMDP, method: str) -> None:
    check_model(cmdp)
    if method not in METHODS:
        raise CmdpkitError(f"method is {method!r}, expected one of {', '.join(METHODS)}")


def solve_in(pool: Pool, cmdp: CMDP, method: str, watch: Watch, *, interruptible: bool = False) -> Solution:
    """Solve a model with a pool of policies made for it, perhaps with other bounds.

    With ``interruptible``, the first Ctrl-C makes the best policy found so far the answer.
    """
    rho = pool.thresholds(pool.scaled(cmdp.rho))
    if rho is None:
        raise explain_infeasible(cmdp, pool)
    candidates: list[_Candidate] = []
    complete = True
    if method != "lp":
        found, complete = _by_columns(cmdp, pool, rho, watch, interruptible=interruptible)
        candidates.append(found)
    if method == "lp" or (method == "auto" and complete and not candidates[0].good(pool, watch.gap)):
        by_lp = _by_lp(cmdp, pool, rho)
        candidates += [] if by_lp is None else [by_lp]
    if not candidates:
        raise CmdpkitError('the LP solver gave up on this model; method="columns" does not depend on it')
    best = min(candidates, key=lambda x: (max(x.excess, 0.0), x.gap))
    if best.excess > 0:
        raise _missed(cmdp, pool, best) if complete else KeyboardInterrupt
    solution = best.solution(cmdp, pool, watch.seconds)
    if not complete:
        return replace(solution, ended="interrupted")
    return solution if watch.gap == 0 or best.good(pool) else replace(solution, ended="gap")


@dataclass(frozen=True)
class _Candidate:
    """What one method found: a policy with its evaluated totals, and prices that prove how good it is."""

    sparse: SparsePolicy  # the policy
    totals: FloatArray  # [1 + N], its expected reward and utilities, as computed
    lam: FloatArray  # [N], the price of each bound, in the user's units
    gap: float  # the Lagrangian bound less the policy's value, as computed
    rounding: float  # rounding may have made the gap too small by this much
    excess: float  # largest shortfall beyond a bound's tolerance, in units of that tolerance; 0 or less if all are met
    method: str  # "columns" or "lp"

    def good(self, pool: Pool, relative_gap: float = 0.0) -> bool:
        """Whether the gap is as small as was asked for, or nothing better can be expected from another method."""
        size = max(abs(float(self.totals[0])), float(pool.units[0]) * 1e-3)
        return self.excess <= 0 and self.gap <= max(MAX_RELATIVE_GAP, relative_gap) * size + self.rounding

    def solution(self, cmdp: CMDP, pool: Pool, seconds: float) -> Solution:
        """The answer for the user."""
        return Solution(
            cmdp=cmdp,
            policy=self.sparse.policy(cmdp),
            value=float(self.totals[0]),
            utilities=cmdp.signs * self.totals[1:] + 0.0,
            shadow_prices=self.lam * cmdp.bound_scales,
            gap=max(0.0, self.gap) + self.rounding,
            tolerance=pool.ranges.tolerance[1:],
            binds=self.lam * pool.units[1:] > MIN_BINDING_SHARE * pool.units[0],
            method=self.method,
            seconds=seconds,
        )


def _by_columns(
    cmdp: CMDP, pool: Pool, rho: FloatArray, watch: Watch, *, interruptible: bool
) -> tuple[_Candidate, bool]:
    """The candidate of column generation, and whether the search for it was completed."""
    complete = True
    try:
        best = pool.maximise(rho, lambda best: watch.enough(pool.value(best), pool.proved(best)))
        best = pool.with_looser_price(best)
    except KeyboardInterrupt:
        if not interruptible or pool.so_far is None:
            raise
        best, complete = pool.so_far, False
    try:
        return _read_off(cmdp, pool, best), complete
    except KeyboardInterrupt:
        if not interruptible or not complete:
            raise
        return _read_off(cmdp, pool, best), True  # only this was left to do, so the answer is complete all the same


def _read_off(cmdp: CMDP, pool: Pool, best: Optimum) -> _Candidate:
    """The policy of the best mixture."""
    used = np.flatnonzero(best.weights)
    mixed = blend(cmdp, [pool.columns[j].choice for j in used], best.weights[used], best.proof.choice)
    lam = best.lam * pool.units[0] / pool.units[1:]
    return _candidate(cmdp, pool, mixed, lam, pool.bound(best.proof, cmdp.rho), best.rho, "columns")


def _by_lp(cmdp: CMDP, pool: Pool, rho: FloatArray) -> _Candidate | None:
    """The candidate of the full LP, or None if HiGHS finds no optimum."""
    found = occupancy_lp(cmdp, rho * pool.units[1:] + pool.offsets[1:], pool.units)
    if found is None:
        return None
    q, lam = found
    total, greedy, _ = pool.greedy(np.concatenate(([1.0], lam)))
    return _candidate(cmdp, pool, read_off(q, greedy), lam, total - float(lam @ cmdp.rho), rho, "lp")


def _candidate(
    cmdp: CMDP, pool: Pool, mixed: SparsePolicy, lam: FloatArray, bound: float, rho: FloatArray, method: str
) -> _Candidate:
    """An extreme point found from ``mixed``, with exact totals and gap; rho [N] are the scaled thresholds used.

    ``bound`` is the Lagrangian bound at the prices lam [N], in the user's units.
    """
    ranges = pool.ranges
    sparse = purify(pool.induction, mixed, rho * pool.units[1:] + pool.offsets[1:], pool.units[1:])
    values = pool.induction.evaluate(sparse.choice, sparse.draws)
    # True totals may be lower than the computed ones by the rounding error, so that much of the tolerance is not used.
    seen = (cmdp.rho - values[1:]) - (ranges.tolerance - ranges.rounding)[1:]
    excess = float((seen / ranges.tolerance[1:]).max(initial=-np.inf))
    rounding = ranges.gap_rounding(lam, cmdp.rho)
    return _Candidate(sparse, values, lam, bound - float(values[0]), rounding, excess, method)


def _missed(cmdp: CMDP, pool: Pool, best: _Candidate) -> CmdpkitError:
    """The error for a problem that seems feasible, although the best policy found misses one of its bounds."""
    tolerance = pool.ranges.tolerance[1:]
    short = cmdp.rho - best.totals[1:]
    n = int((short / tolerance).argmax())
    return CmdpkitError(
        f"not solved: the best policy found misses {cmdp.constraints[n]} by {short[n]:.3g}, and {tolerance[n]:.3g} "
        "would count as met. The numbers of this model are too far apart for double precision: relax that bound a "
        "little, or bring large and small signals and probabilities closer together"
    )
