"""What the bounds do: the price of each, how far it can be pushed, and how well separated the optimum is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import FEASIBLE, Pool
from cmdpkit.exact.solver import Infeasible, Solution, check_feasible, solve, solve_in
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, Sense, at_least
from cmdpkit.model.policy import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import Name


@dataclass(frozen=True)
class Tradeoff:
    """The optimal value as a function of one bound, in the user's units."""

    name: str
    bounds: FloatArray  # [points]
    values: FloatArray  # [points]
    prices: FloatArray  # [points], shadow price of this bound
    utilities: FloatArray  # [points, N]
    infeasible: FloatArray  # bounds asked for that no policy meets

    def rows(self) -> list[dict[str, float]]:
        """One dictionary a point: bound, value, price."""
        keys = ("bound", "value", "price")
        return [
            dict(zip(keys, map(float, row), strict=True))
            for row in zip(self.bounds, self.values, self.prices, strict=True)
        ]


def tradeoff(cmdp: CMDP, name: str, n: int = 21, *, low: float | None = None, high: float | None = None) -> Tradeoff:
    """Optimal value against the bound of constraint ``name`` at n points from ``low`` to ``high``.

    By default the range goes from where the bound stops mattering to the strictest that can be met given the other
    bounds. The policies found for one bound are reused for the next.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> [(round(row["bound"], 6), round(row["value"], 6)) for row in tradeoff(cmdp, "utility", 3).rows()]
    [(0.0, 2.0), (1.0, 1.0), (2.0, 0.0)]
    """
    k = cmdp.constraint_index(name)
    if n < 1:
        raise CmdpkitError(f"n is {n}, expected at least one point")
    if cmdp.criterion.stationary:
        from cmdpkit.exact.stationary.diagnosis import stationary_tradeoff

        return stationary_tradeoff(cmdp, name, n, low, high)
    if low is None or high is None:
        ends = sorted((_indifferent(cmdp, k), _strictest(cmdp, k)))
        low, high = (ends[0] if low is None else low), (ends[1] if high is None else high)
    for what, end in (("low", low), ("high", high)):
        if not np.isfinite(end):
            raise CmdpkitError(f"{what} is {end}, expected a finite number")
    asked = np.linspace(low, high, n)
    pool = Pool(cmdp)
    met: list[tuple[float, Solution]] = []
    unmet: list[float] = []
    for bound in asked:
        moved = cmdp.with_bounds(**{name: float(bound)})
        try:
            check_feasible(moved, pool)
            met.append((float(bound), solve_in(pool, moved, time.perf_counter())))
        except Infeasible:
            unmet.append(float(bound))
    return Tradeoff(
        name,
        np.array([bound for bound, _ in met]),
        np.array([s.value for _, s in met]),
        np.array([s.shadow_prices[k] for _, s in met]),
        np.array([s.utilities for _, s in met]).reshape(len(met), cmdp.N),
        np.array(unmet),
    )


class Range(NamedTuple):
    """How far one bound can be moved, in the user's units and sense."""

    name: str
    sense: Sense
    bound: float
    worst: float  # any policy satisfies a bound this loose
    indifferent: float  # looser than this, the bound changes nothing (given the others)
    strictest: float  # beyond this, no policy meets it together with the others
    best_alone: float  # beyond this, no policy meets it at all


class Separation(NamedTuple):
    """What is lost by dropping one action of the optimum."""

    step: int | None  # None without a horizon
    state: Name
    action: Name
    probability: float
    value_loss: float  # infinite if the bounds cannot be met without it
    sigma: float  # smallest possible worst shortfall (value or any utility) without it


@dataclass(frozen=True)
class Diagnosis:
    """Answers to "is my problem well posed?", in the user's units."""

    reachable: int  # (h, s) that some policy reaches
    pairs: int  # H * S
    slater_slack: float  # every bound can be exceeded by this much at once; negative if infeasible
    ranges: tuple[Range, ...]
    solution: Solution | None
    infeasible: Infeasible | None
    separation: tuple[Separation, ...]

    @property
    def feasible(self) -> bool:
        """Whether some policy meets all bounds."""
        return self.solution is not None

    @property
    def binding(self) -> tuple[str, ...]:
        """Names of the constraints with a positive price."""
        if self.solution is None:
            return ()
        prices = self.solution.shadow_prices
        return tuple(c.name for c, p in zip(self.solution.cmdp.constraints, prices, strict=True) if p > NEGLIGIBLE)


def diagnose(cmdp: CMDP, *, separation: bool = True) -> Diagnosis:
    """Feasible range of every bound, Slater slack, prices, and how much each action of the optimum matters.

    ``separation`` solves the problem once more per used action; switch it off for large models.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> round(diagnose(cmdp).slater_slack, 6), diagnose(cmdp).binding
    (0.5, ('utility',))
    """
    if cmdp.criterion.stationary:
        from cmdpkit.exact.stationary.diagnosis import diagnose_stationary

        return diagnose_stationary(cmdp, separation=separation)
    solution, infeasible = None, None
    try:
        solution = solve(cmdp)
    except Infeasible as error:
        infeasible = error
    ranges = tuple(_range(cmdp, n) for n in range(cmdp.N))
    rows = tuple(separations(solution)) if separation and solution is not None else ()
    return Diagnosis(
        int(reachable(cmdp).sum()), cmdp.H * cmdp.S, slater_slack(cmdp), ranges, solution, infeasible, rows
    )


def slater_slack(cmdp: CMDP) -> float:
    """max over policies of min_n (w_n - rho_n), in the user's units; infinite without constraints."""
    if cmdp.N == 0:
        return float("inf")
    pool = Pool(cmdp)
    return pool.reach(pool.scaled(cmdp.rho), 1 / pool.units[1:])[0]


def reachable(cmdp: CMDP) -> Any:
    """bool [H, S]: whether some policy reaches the state at that step."""
    reach = np.zeros((cmdp.H, cmdp.S), dtype=bool)
    reach[0] = cmdp.mu > 0
    kernel, rows = cmdp.kernel, cmdp.kernel.rows
    h_row, s_row = rows // (cmdp.S * cmdp.A), rows // cmdp.A % cmdp.S
    allowed = cmdp.actions.reshape(cmdp.H, -1)
    for h in range(cmdp.H - 1):
        open_ = (h_row == h % kernel.T) & reach[h, s_row] & allowed[h, rows % (cmdp.S * cmdp.A)] & (kernel.prob > 0)
        reach[h + 1, kernel.successors[open_]] = True
    return reach


def separations(solution: Solution) -> list[Separation]:
    """Every action the optimum uses: what dropping it costs. Old policies that avoid it warm-start each solve."""
    if solution.cmdp.criterion.stationary:
        from cmdpkit.exact.stationary.diagnosis import stationary_separations
        from cmdpkit.exact.stationary.solution import StationarySolution

        return stationary_separations(cast(StationarySolution, solution))
    cmdp, q = solution.cmdp, solution.occupancy
    pool = Pool(cmdp)
    check_feasible(cmdp, pool)
    pool.maximise(pool.scaled(cmdp.rho))
    everything = cmdp.reformulated(
        g=_stacked(cmdp, cmdp.compact.r[None], cmdp.compact.g),
        constraints=(at_least("\0value", solution.value), *(at_least(f"\0{n}", x) for n, x in enumerate(cmdp.rho))),
    )
    return [_separation(solution, pool, everything, int(h), int(s), int(a)) for h, s, a in np.argwhere(q > NEGLIGIBLE)]


def _stacked(cmdp: CMDP, *signals: FloatArray) -> FloatArray:
    """Signals [n, T, S, A] one under the other, with a common number of steps."""
    T = max(x.shape[1] for x in signals)
    return np.concatenate([np.broadcast_to(x, (len(x), T, cmdp.S, cmdp.A)) for x in signals])


def _separation(solution: Solution, pool: Pool, everything: CMDP, h: int, s: int, a: int) -> Separation:
    cmdp = solution.cmdp
    place = (h + 1, cmdp.states[s], cmdp.action_names[a], float(solution.policy.pi[h, s, a]))
    mask = cmdp.actions.copy()
    mask[h, s, a] = False
    if not mask[h, s].any():
        return Separation(*place, np.inf, np.inf)
    smaller = Pool(cmdp.restrict(mask))
    smaller.columns = [c for c in pool.columns if c.choice[h, s] != a]
    rho = smaller.scaled(cmdp.rho)
    loss = np.inf
    if cmdp.N == 0 or smaller.reach(rho, np.ones(cmdp.N), enough=0.0)[0] >= -FEASIBLE:
        loss = max(0.0, float(solution.value - smaller.maximise(rho).value * smaller.units[0]))
    both = Pool(everything.restrict(mask))
    shortfall = -both.reach(both.scaled(everything.rho), 1 / both.units[1:])[0]
    return Separation(*place, loss, max(0.0, shortfall))


def _range(cmdp: CMDP, n: int) -> Range:
    c = cmdp.constraints[n]
    best = c.sign * solve(_objective(cmdp, cmdp.compact.g[n], ())).value + 0.0
    worst = -c.sign * solve(_objective(cmdp, -cmdp.compact.g[n], ())).value + 0.0
    try:
        indifferent, strictest = _indifferent(cmdp, n), _strictest(cmdp, n)
    except Infeasible:  # the other bounds already exclude each other
        indifferent, strictest = worst, best
    return Range(c.name, c.sense, c.bound, worst, indifferent, strictest, best)


def _strictest(cmdp: CMDP, n: int) -> float:
    """The best total of signal n under the other bounds."""
    others = tuple(m for m in range(cmdp.N) if m != n)
    return float(cmdp.constraints[n].sign * solve(_objective(cmdp, cmdp.compact.g[n], others)).value + 0.0)


def _indifferent(cmdp: CMDP, n: int) -> float:
    """The best total of signal n among the policies that are optimal without bound n."""
    others = [m for m in range(cmdp.N) if m != n]
    free = _objective(cmdp, cmdp.compact.r, tuple(others))
    value = solve(free).value
    signals = _stacked(cmdp, cmdp.compact.r[None], cmdp.compact.g[others])
    bounds = (at_least("\0value", value), *(cmdp.constraints[m] for m in others))
    tied = cmdp.reformulated(r=cmdp.compact.g[n].copy(), g=signals, constraints=bounds)
    return float(cmdp.constraints[n].sign * solve(tied).value + 0.0)


def _objective(cmdp: CMDP, r: FloatArray, others: tuple[int, ...]) -> CMDP:
    """Maximise another signal under some of the bounds."""
    kept: tuple[Constraint, ...] = tuple(cmdp.constraints[m] for m in others)
    return cmdp.reformulated(r=r.copy(), g=cmdp.compact.g[list(others)], constraints=kept)
