"""Is a problem without a horizon well posed: what can be reached, how far can bounds be moved, from which starts?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cmdpkit.exact.diagnosis import Diagnosis, Separation, separations
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.ranges import Range
from cmdpkit.exact.stationary.components import end_components
from cmdpkit.exact.stationary.multichain import Multichain
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.exact.stationary.solution import StationarySolution, best_alone, prepared, solve_stationary, told
from cmdpkit.exact.stationary.solving import Stationary
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.mixture import Mixture
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Name

START = 1e-9  # a start state counts as feasible if it misses a bound by less, relative to the signal's range


@dataclass(frozen=True)
class StationaryDiagnosis(Diagnosis):
    """What `diagnose` finds about a model without a horizon; `reachable` and `pairs` count states."""

    components: tuple[tuple[Name, ...], ...] = ()  # the maximal end components that the start can reach
    feasible_starts: tuple[Name, ...] = ()  # single states from which each bound can be met by itself
    starts_exact: bool = True  # with one bound these are the feasible starts; with more, no others can be feasible


def diagnose_stationary(cmdp: CMDP, *, separation: bool | int) -> StationaryDiagnosis:
    """Ranges of the bounds, Slater slack, end components, feasible starts, and what each action is worth."""
    solution, infeasible = None, None
    try:
        solution = solve_stationary(cmdp)
    except Infeasible as error:
        infeasible = error
    problem = prepared(cmdp)
    rows = () if solution is None else tuple(separations(solution, separation))
    parts = end_components(problem.problem.rows) if cmdp.criterion.kind != "total" else []
    names = tuple(tuple(cmdp.states[int(problem.problem.states[s])] for s in states) for states, _ in parts)
    starts = np.flatnonzero(feasible_starts(cmdp))
    return StationaryDiagnosis(
        reachable=len(problem.problem.states),
        pairs=cmdp.S,
        slater_slack=problem.reach(cmdp.rho, np.ones(cmdp.N)),
        ranges=tuple(_range(cmdp, n) for n in range(cmdp.N)),
        solution=solution,
        infeasible=infeasible,
        separation=rows,
        components=names,
        feasible_starts=tuple(cmdp.states[int(s)] for s in starts),
        starts_exact=cmdp.N <= 1,
    )


def feasible_starts(cmdp: CMDP) -> BoolArray:
    """[S]: single start states from which every bound can be met by itself; exact for one bound."""
    met = np.ones(cmdp.S, dtype=bool)
    for n in range(cmdp.N):
        best = best_from_everywhere(cmdp, cmdp.compact.g[n, 0])
        span = float(np.ptp(cmdp.compact.g[n, 0][cmdp.compact.allowed[0]])) * (cmdp.criterion.steps or 1.0)
        met &= best >= cmdp.rho[n] - START * max(span, abs(float(cmdp.rho[n])) * 1e-6)
    return met


def best_from_everywhere(cmdp: CMDP, signal: FloatArray) -> FloatArray:
    """[S]: the largest value of a signal [S, A] from each state, in own units, by one unconstrained solve."""
    c = cmdp.compact
    everywhere = np.full(cmdp.S, 1.0 / cmdp.S)
    kind, discount = cmdp.criterion.kind, cmdp.criterion.discount or 1.0
    nothing = np.zeros((0, cmdp.S, cmdp.A))
    problem = Stationary(
        Arrays(c.indptr, c.successors, c.prob, signal, nothing, everywhere, c.allowed[0], kind, discount)
    )
    upper, _ = problem.source.price(np.ones(1))
    engine, scale = problem.source.engine, problem.scaling
    if kind == "average":
        values = np.full(cmdp.S, upper)
        if isinstance(problem.source, Multichain):
            values[problem.problem.states] = problem.source.expand(engine.h)
        scaled = values
    elif kind == "discounted":
        scaled = upper + (1 - discount) * (engine.h - float(problem.problem.mu @ engine.h))
    else:
        scaled = np.zeros(cmdp.S)
        scaled[problem.problem.states] = engine.h
    own: FloatArray = (scaled * scale.unit[0] + scale.offset[0]) * scale.factor
    return own


def _range(cmdp: CMDP, n: int) -> Range:
    c, g = cmdp.constraints[n], cmdp.compact.g[:, 0]
    best = best_alone(cmdp, n)
    worst = -prepared(cmdp, r=-g[n], g=g[:0]).supremum(np.zeros(0))
    others = [m for m in range(cmdp.N) if m != n]
    if others and not prepared(cmdp, g=g[others]).feasible(cmdp.rho[others]):
        indifferent, strictest = worst, best  # the other bounds already exclude each other
    else:
        indifferent, strictest = _indifferent(cmdp, n), _strictest(cmdp, n)
    return Range.of(c, c.sign * worst, c.sign * indifferent, c.sign * strictest, c.sign * best)


def _strictest(cmdp: CMDP, n: int) -> float:
    """The best value of utility n under the other bounds."""
    others = [m for m in range(cmdp.N) if m != n]
    return prepared(cmdp, r=cmdp.compact.g[n, 0], g=cmdp.compact.g[others, 0]).supremum(cmdp.rho[others])


def _indifferent(cmdp: CMDP, n: int) -> float:
    """The best value of utility n among the policies that are optimal without bound n."""
    g = cmdp.compact.g[:, 0]
    others = [m for m in range(cmdp.N) if m != n]
    value = prepared(cmdp, g=g[others]).supremum(cmdp.rho[others])
    signals = np.concatenate((cmdp.compact.r[:1, :, :].reshape(1, cmdp.S, cmdp.A), g[others]))
    return prepared(cmdp, r=g[n], g=signals).supremum(np.append(value, cmdp.rho[others]))


def stationary_separations(solution: StationarySolution, used: Sequence[tuple[int, int, int]]) -> list[Separation]:
    """What dropping each of some actions (0, state, action) that the optimum uses costs."""
    cmdp = solution.cmdp
    signals = np.concatenate((cmdp.compact.r[:1], cmdp.compact.g[:, 0]))
    goal = np.append(solution.value, cmdp.rho)
    rows = []
    for _, s, a in used:
        first = solution.policy.policies[0] if isinstance(solution.policy, Mixture) else solution.policy
        place = (None, cmdp.states[int(s)], cmdp.action_names[int(a)], float(first.row(0, int(s))[a]))
        mask = cmdp.actions[0].copy()
        mask[s, a] = False
        if not mask[s].any():
            rows.append(Separation(*place, np.inf, np.inf))
            continue
        smaller = cmdp.restrict(mask)
        problem = prepared(smaller)
        loss = max(0.0, solution.value - problem.supremum(cmdp.rho)) if problem.feasible(cmdp.rho) else np.inf
        missed = -prepared(smaller, g=signals).reach(goal, np.ones(len(goal)))
        rows.append(Separation(*place, loss, max(0.0, missed)))
    return rows


def stationary_tradeoff(cmdp: CMDP, name: str, n: int, low: float | None, high: float | None) -> Tradeoff:
    """Optimal value against the bound of one constraint; columns found for one bound are used for the next."""
    k = cmdp.constraint_index(name)
    if low is None or high is None:
        c = cmdp.constraints[k]
        ends = sorted(c.sign * x / c.scale + 0.0 for x in (_indifferent(cmdp, k), _strictest(cmdp, k)))
        low, high = (ends[0] if low is None else low), (ends[1] if high is None else high)
    problem = prepared(cmdp)
    met: list[tuple[float, StationarySolution]] = []
    unmet: list[float] = []
    for bound in np.linspace(low, high, n).tolist():
        moved = cmdp.with_bounds(**{name: bound})
        if problem.feasible(moved.rho):
            met.append((bound, told(moved, problem, problem.solve(moved.rho), time.perf_counter())))
        else:
            unmet.append(bound)
    return Tradeoff.of(cmdp, name, met, unmet)
