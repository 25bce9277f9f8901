"""Exact solutions: the best policy under the bounds, with shadow prices and a proof of how good it is.

`solve` always returns an extreme point, which has at most N stochastic decisions, and a proved gap: the Lagrangian
bound max_pi v + lam . (w - rho) less the exact value of the policy, plus the largest error that rounding can have
caused in both. No solution is returned whose evaluated values miss a bound by more than its tolerance. All criteria are
solved by the same column generation; they differ in their source of columns.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.columns import Found, Optimum, Pool
from cmdpkit.exact.master import occupancy_lp
from cmdpkit.exact.solution import Solution as Solution
from cmdpkit.exact.solution import StationarySolution, explain_infeasible
from cmdpkit.exact.sources import Horizon, columns_of, read_off
from cmdpkit.exact.stationary import BRIDGE
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import COMPILE_METER
from cmdpkit.model.fits import check_model
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Policy
from cmdpkit.model.showing import ProgressLine
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.policies import evaluate
from cmdpkit.operators.steps import Threads

METHODS = ("auto", "columns", "lp")
MAX_EVALUATED = 64  # states of models without a horizon whose answer is evaluated once more, to the last digits
MAX_RELATIVE_GAP = 1e-9  # with a larger gap, relative to the value, the method "auto" also solves the full LP
MAX_OPTIMAL_GAP = 1e-6  # an answer is called optimal up to this gap, relative to its value or to the range of values
PULSE = 0.1  # seconds between two reports that a round goes on
MIN_BINDING_SHARE = 1e-9  # a bound binds if its price times its range exceeds this share of the value's range


if TYPE_CHECKING:
    from cmdpkit.exact.large.policy import LargeSolution  # which needs constants from here


class Round(NamedTuple):
    """How far a solve is, in the user's units."""

    number: int  # rounds so far, from 1; each finds one more policy. 0 while a model by functions has none
    value: float  # of the best policy within the bounds that is known
    gap: float  # proved: no policy within the bounds has a value above value + gap
    seconds: float  # since the solve began, without those of compilation
    left: float | None = None  # seconds left if the gap goes on falling as it did; None where that is not known
    sweeps: int = 0  # for models by functions, passes over all states so far

    def __str__(self) -> str:
        found = f"round {self.number}: value {self.value:.6g}, proved to within {self.gap:.2g}"
        known = found if self.number else "first policies"
        sweeps = f", {self.sweeps:,} sweeps" if self.sweeps else ""
        left = "" if self.left is None else f", about {self.left:.3g} s left"
        return f"{known}{sweeps}, {self.seconds:.1f} s{left}"


Report = Callable[[Round], None]


class Watch(ProgressLine):
    """Counts rounds, reports each to ``progress`` (True: on stderr), and ends the search at a relative gap."""

    def __init__(self, gap: float | None = None, progress: Report | bool = False) -> None:
        if gap is not None and not (isinstance(gap, (int, float)) and 0 <= gap < math.inf):
            raise CmdpkitError(f"gap is {quoted(gap)}, expected a number of 0 or more, such as 0.001 for 0.1 %")
        super().__init__(progress, "a Round")
        self.gap = 0.0 if gap is None else float(gap)
        self._began, self._compiled = time.perf_counter(), COMPILE_METER.seconds
        self.now = self._first = Round(0, math.nan, math.inf, 0.0)

    def enough(self, value: float, gap: float, sweeps: int = 0) -> bool:
        """Report one more round; whether the gap is as small as was asked for."""
        goal, left, first = self.gap * abs(value), None, self._first
        if 0 < goal < gap < first.gap < math.inf:
            left = (self.seconds - first.seconds) * math.log(gap / goal) / math.log(first.gap / gap)
        self.now = Round(self.now.number + 1, value, gap, self.seconds, left, sweeps)
        self._first = first if first.number else self.now
        self.tell(self.now)
        return gap <= goal

    def pulse(self, sweeps: int) -> None:
        """Show that a round goes on."""
        if self.seconds - self.now.seconds >= PULSE:
            self.now = self.now._replace(sweeps=sweeps, seconds=self.seconds)
            self.tell(self.now)

    @property
    def seconds(self) -> float:
        """How long the solve has taken so far, without the time of compilation."""
        return time.perf_counter() - self._began - (COMPILE_METER.seconds - self._compiled)


@overload
def solve(
    cmdp: FunctionModel,
    *,
    threads: Threads = None,
    gap: float | None = None,
    progress: Report | bool = False,
    policy: str = "mixture",
    folder: str | os.PathLike[str] | None = None,
    comm: Any = None,
) -> LargeSolution: ...


@overload
def solve(
    cmdp: CMDP,
    method: str = "auto",
    *,
    bridge: float | None = None,
    one_class: bool = False,
    threads: Threads = None,
    gap: float | None = None,
    progress: Report | bool = False,
) -> Solution: ...


def solve(
    cmdp: CMDP | FunctionModel,
    method: str = "auto",
    *,
    bridge: float | None = None,
    one_class: bool = False,
    threads: Threads = None,
    gap: float | None = None,
    progress: Report | bool = False,
    policy: str = "mixture",
    folder: str | os.PathLike[str] | None = None,
    comm: Any = None,
) -> Any:
    """The optimal policy of a known model.

    Parameters
    ----------
    cmdp : the model, a `CMDP`, or an `EventModel` or a `FactoredModel`, which are solved without storing them
    method : "columns" (column generation, which is fast and uses little memory), "lp" (the full occupancy LP in HiGHS)
        or "auto" (column generation, and the LP as well where that leaves a gap)
    bridge : for long-run averages whose optimum no single policy attains, the share of time that a policy near it may
        lose (1e-4 unless given)
    one_class : for long-run averages, True for a policy with one recurrent class that draws in few states. It can be
        run forever, and its averages do not depend on luck. ``one_class`` of the solution is its cost. If the policy
        has to move between several classes of the optimum, it does so in a share ``bridge`` of its time
    threads : how many threads column generation uses for large models with a horizon; all cores unless given. The
        solution does not depend on it
    gap : stop as soon as the policy is proved to be this close to the optimum, relative to its value (0.001 for 0.1 %)
    progress : True for a line on stderr that shows how far the solve is, or a function that is called after every round
        of column generation with its ``number``, ``value``, proved ``gap`` and ``seconds``
    policy : for models by functions, "mixture" (of at most N + 1 policies, drawn at the start) or "one" (a single
        policy with at most N draws, which takes a few more evaluations). All other parameters but ``gap`` (1e-6
        unless given), ``threads`` and ``progress`` are not for such models
    folder : for models by functions, where policies and tables are kept, so that a solve that was killed continues
    comm : for models by functions, a communicator of mpi4py whose ranks share the states; rank 0 gets the policy

    Returns
    -------
    The `Solution`: a policy, its value and totals, shadow prices and a proved gap; for a model without a horizon a
    `StationarySolution` with one stationary policy, and for a model by functions a `LargeSolution`. `Infeasible`, a
    `CmdpkitError`, is raised if no policy meets all bounds. After Ctrl-C the best policy found so far is returned, with
    its proved gap and ``ended="interrupted"``. If there is none yet, KeyboardInterrupt is raised.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> sol = solve(cmdp)
    >>> print(f"{sol.value:.6f} {sol.utilities[0]:.6f} {sol.shadow_prices[0]:.6f}")
    0.500000 1.500000 1.000000
    """
    if isinstance(cmdp, FunctionModel):
        from cmdpkit.exact.large import solve_large

        if method != "auto" or bridge is not None or one_class:
            raise CmdpkitError("method, bridge and one_class are not for models by functions; leave them out")
        return solve_large(cmdp, gap, threads, policy, folder, comm, progress)
    _check(cmdp, method)
    if policy != "mixture" or folder is not None or comm is not None:
        raise CmdpkitError("policy, folder and comm are for models by functions (EventModel, FactoredModel)")
    watch = Watch(gap, progress)
    refuse_threads(cmdp, threads)
    for name, given in (("bridge", bridge), ("one_class", one_class or None)):
        if given is not None and cmdp.criterion.kind != "average":
            what = "the model has a horizon" if cmdp.criterion.has_horizon else f"the criterion is {cmdp.criterion}"
            raise CmdpkitError(
                f"{name} is {given!r}, but {what}: it is for long-run averages only. Leave it out, or judge the model "
                'by long-run averages (criterion="average"; on the command line --average)'
            )
    if bridge is not None and not 0 < bridge < 1:
        raise CmdpkitError(f"bridge is {bridge}, expected a share of time between 0 and 1")
    try:
        share = BRIDGE if bridge is None else bridge
        found = solve_fully(cmdp, method, threads=threads, watch=watch, bridge=0.0 if one_class else share)
        if not one_class or not found.complete:
            return found
        assert isinstance(found, StationarySolution)
        from cmdpkit.exact.one_class import one_class_of

        return replace(one_class_of(cmdp, found, share), seconds=watch.seconds)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("no policy that meets all bounds had been found yet") from None
    finally:
        watch.close()


def refuse_threads(cmdp: CMDP, threads: Threads) -> None:
    """Threads are only for models with a horizon: an error if they are given for another."""
    if threads is not None and not cmdp.criterion.has_horizon:
        raise CmdpkitError(f"threads is {threads!r}, which is for models with a horizon; leave it out for this model")


def solve_fully(
    cmdp: CMDP, method: str = "auto", *, threads: Threads = None, watch: Watch | None = None, bridge: float = BRIDGE
) -> Solution:
    """The same as `solve` for callers that need the optimum: Ctrl-C is not caught unless there is a ``watch``."""
    _check(cmdp, method)
    pool = columns_of(cmdp, threads=threads, bridge=bridge)
    return solve_in(pool, cmdp, method, Watch() if watch is None else watch, interruptible=watch is not None)


def _check(cmdp: CMDP, method: str) -> None:
    check_model(cmdp)
    if method not in METHODS:
        raise CmdpkitError(f"method is {method!r}, expected one of {', '.join(METHODS)}")
    if method == "lp" and not cmdp.criterion.has_horizon:
        raise CmdpkitError("method is 'lp', which is for models with a horizon; use 'auto' or 'columns'")


def solve_in(pool: Pool, cmdp: CMDP, method: str, watch: Watch, *, interruptible: bool = False) -> Solution:
    """Solve a model with a pool made for it, perhaps with other bounds; if ``interruptible``, Ctrl-C ends it early."""
    rho = pool.thresholds(pool.scaled(cmdp.rho))
    if rho is None:
        raise explain_infeasible(cmdp, pool)
    candidates: list[_Candidate] = []
    complete, source = True, pool.source
    if method != "lp":
        found, complete = _by_columns(cmdp, pool, rho, watch, interruptible=interruptible)
        candidates.append(found)
    if isinstance(source, Horizon) and (
        method == "lp" or (method == "auto" and complete and not candidates[0].good(watch.gap))
    ):
        by_lp = _by_lp(cmdp, pool, source, rho)
        candidates += [] if by_lp is None else [by_lp]
    if not candidates:
        raise CmdpkitError('the LP solver gave up on this model; method="columns" does not depend on it')
    best = min(candidates, key=lambda x: (max(x.excess, 0.0), x.gap))
    if best.excess > 0:
        raise best.missed() if complete else KeyboardInterrupt
    solution = best.solution(watch.seconds)
    size = max(abs(solution.value), float(pool.units[0]))
    if not complete:
        return replace(solution, ended="interrupted")
    if watch.gap > 0 and not best.good() and best.good(watch.gap):
        return replace(solution, ended="gap")
    return solution if solution.gap <= MAX_OPTIMAL_GAP * size else replace(solution, ended="precision")


@dataclass(frozen=True)
class _Candidate:
    """What one method found: a policy with its evaluated totals, and prices that prove how good it is."""

    cmdp: CMDP  # the model
    pool: Pool  # the units and tolerances
    found: Found  # the policy and its values
    lam: FloatArray  # [N], the price of each bound, in the user's units
    bound: float  # the Lagrangian bound at these prices, as computed
    method: str  # "columns" or "lp"

    @property
    def gap(self) -> float:
        """The Lagrangian bound less the policy's value, as computed."""
        return self.bound - float(self.found.totals[0])

    @property
    def rounding(self) -> float:
        """Rounding may have made the gap too small by this much."""
        totals, least = self.found.totals, self.found.least
        return self.pool.source.ranges.gap_rounding(self.lam, self.cmdp.rho) + float(totals[0] - least[0])

    @property
    def excess(self) -> float:
        """Largest shortfall, with rounding, beyond a bound's tolerance and in units of it; 0 or less if all are met."""
        tolerance = self.pool.source.ranges.tolerance[1:]
        return float(((self.cmdp.rho - self.found.least[1:] - tolerance) / tolerance).max(initial=-np.inf))

    def good(self, relative_gap: float = 0.0) -> bool:
        """Whether the gap is as small as was asked for, or nothing better can be expected from another method."""
        size = max(abs(float(self.found.totals[0])), float(self.pool.units[0]) * 1e-3)
        return self.excess <= 0 and self.gap <= max(MAX_RELATIVE_GAP, relative_gap) * size + self.rounding

    def solution(self, seconds: float) -> Solution:
        """The answer for the user."""
        cmdp, units, found = self.cmdp, self.pool.units, self.found
        value = float(found.totals[0])  # its rounding is counted in the gap; in small models it is computed once more
        if not cmdp.criterion.has_horizon and cmdp.S <= MAX_EVALUATED and isinstance(found.policy, Policy):
            value = float(evaluate(cmdp, found.policy).v)
        answer = {
            "cmdp": cmdp,
            "policy": found.policy,
            "value": value,
            "utilities": cmdp.signs * found.totals[1:] + 0.0,
            "shadow_prices": self.lam * cmdp.bound_scales,
            "gap": max(0.0, self.gap + float(found.totals[0]) - value) + self.rounding,
            "tolerance": self.pool.source.ranges.tolerance[1:],
            "binds": self.lam * units[1:] > MIN_BINDING_SHARE * units[0],
            "method": self.method,
            "seconds": seconds,
        }
        if not cmdp.criterion.has_horizon:
            return StationarySolution(**answer, attained=found.attained, notes=found.notes)
        return Solution(**answer)

    def missed(self) -> CmdpkitError:
        """The error for a problem that seems feasible, although the best policy found misses one of its bounds."""
        tolerance = self.pool.source.ranges.tolerance[1:]
        short = self.cmdp.rho - self.found.least[1:]
        n = int((short / tolerance).argmax())
        return CmdpkitError(
            f"not solved: the best policy found misses {self.cmdp.constraints[n]} by {short[n]:.3g}, and "
            f"{tolerance[n]:.3g} would count as met. The numbers of this model are too far apart for double precision: "
            "relax that bound a little, or bring large and small signals and probabilities closer together"
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
    found = pool.source.policy(pool.parts(best.weights), best.proof, best.rho)
    return _Candidate(cmdp, pool, found, pool.prices(best.lam), pool.bound(best.proof, cmdp.rho), "columns")


def _by_lp(cmdp: CMDP, pool: Pool, source: Horizon, rho: FloatArray) -> _Candidate | None:
    """The candidate of the full LP, or None if HiGHS finds no optimum."""
    found = occupancy_lp(cmdp, rho * pool.units[1:] + pool.offsets[1:], pool.units)
    if found is None:
        return None
    q, lam = found
    total, greedy, _ = source.greedy(np.concatenate(([1.0], lam)))
    policy = source.purified(read_off(q, greedy), rho)
    return _Candidate(cmdp, pool, policy, lam, total - float(lam @ cmdp.rho), "lp")
