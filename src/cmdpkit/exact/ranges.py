"""How far every bound can be moved: from where any policy meets it to where none does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.progress import Watch
from cmdpkit.exact.solver import Solution, solve_fully, solve_in
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.steps import Threads
from cmdpkit.exact.units import Units
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, Sense, at_least
from cmdpkit.model.transitions import FloatArray
from cmdpkit.tolerances import FEASIBLE

# A solution may miss its bounds by a little less than the tolerance. Where its totals become the bounds of another
# problem, this band makes sure that the solution counts as feasible there too.
REACHED_BOUND_BAND = 0.55 * FEASIBLE


class Range(NamedTuple):
    """How far one bound can be moved, in the unit it was given in and the user's sense."""

    name: str  # of the constraint
    sense: Sense  # "at_least" or "at_most"
    bound: float  # as it is now
    worst: float  # every policy satisfies a bound as loose as this
    indifferent: float  # a bound that is looser than this does not change the optimum, given the other bounds
    strictest: float  # a stricter bound than this cannot be met together with the others
    best_alone: float  # a stricter bound than this cannot be met at all
    per_step: bool = False  # whether all of these numbers are per step

    @classmethod
    def of(cls, c: Constraint, worst: float, indifferent: float, strictest: float, best_alone: float) -> Range:
        """The range of a constraint whose ends are given as totals, in the user's sense."""
        ends = (x / c.scale + 0.0 for x in (worst, indifferent, strictest, best_alone))
        return cls(c.name, c.sense, c.bound, next(ends), next(ends), next(ends), next(ends), c.per_step)


def ranges_of(cmdp: CMDP, alone: Units, threads: Threads = None) -> tuple[Range, ...]:
    """One range per constraint; ``alone`` says what policies can collect of every signal."""
    return tuple(_range(cmdp, n, alone, threads) for n in range(cmdp.N))


def _range(cmdp: CMDP, n: int, alone: Units, threads: Threads) -> Range:
    """The range of constraint n."""
    c = cmdp.constraints[n]
    worst, best = (c.sign * float(x) + 0.0 for x in (alone.worst[1 + n], alone.best[1 + n]))
    if cmdp.criterion.stationary:  # there the range is known approximately
        g = cmdp.compact.g[n]
        try:
            worst = -c.sign * solve_fully(_objective(cmdp, -g, ())).value + 0.0
            best = c.sign * solve_fully(_objective(cmdp, g, ())).value + 0.0
        except CmdpkitError:  # a total that policies can collect for ever has no worst
            worst = -c.sign * np.inf
    try:
        free = indifferent(cmdp, n, threads)
        last = strictest(cmdp, n, threads) if cmdp.N > 1 else best
    except CmdpkitError:  # the other bounds already exclude each other, or totals need not be finite
        free, last = worst, best
    return Range.of(c, worst, free, last, best)


def strictest(cmdp: CMDP, n: int, threads: Threads = None) -> float:
    """The best total of signal n under the other bounds."""
    others = tuple(m for m in range(cmdp.N) if m != n)
    best = solve_fully(_objective(cmdp, cmdp.compact.g[n], others), threads=threads)
    return float(cmdp.constraints[n].sign * best.value + 0.0)


def indifferent(cmdp: CMDP, n: int, threads: Threads = None) -> float:
    """The best total of signal n among the policies that are optimal without bound n."""
    others = [m for m in range(cmdp.N) if m != n]
    free = _objective(cmdp, cmdp.compact.r, tuple(others))
    value = solve_fully(free, threads=threads).value
    signals = stacked(cmdp, cmdp.compact.r[None], cmdp.compact.g[others])
    bounds = (at_least("\0value", value), *(cmdp.constraints[m] for m in others))
    tied = cmdp.reformulated(r=cmdp.compact.g[n].copy(), g=signals, constraints=bounds)
    best = solve_in(columns_of(tied, REACHED_BOUND_BAND, threads=threads), tied, "auto", Watch())
    return float(cmdp.constraints[n].sign * best.value + 0.0)


def stacked(cmdp: CMDP, *signals: FloatArray) -> FloatArray:
    """Signals [n, T, S, A] one under the other, with a common number of steps."""
    T = max(x.shape[1] for x in signals)
    return np.concatenate([np.broadcast_to(x, (len(x), T, cmdp.S, cmdp.A)) for x in signals])


def _objective(cmdp: CMDP, r: FloatArray, others: tuple[int, ...]) -> CMDP:
    """The problem of maximising another signal under some of the bounds."""
    kept: tuple[Constraint, ...] = tuple(cmdp.constraints[m] for m in others)
    return cmdp.reformulated(r=r.copy(), g=cmdp.compact.g[list(others)], constraints=kept)


class Relaxation(NamedTuple):
    """How far one bound must move while the others stay, in the unit it was given in."""

    name: str  # of the constraint
    bound: float  # with this bound all bounds can be met
    by: float  # how far that is from the bound of the model
    at_least: float  # proved: no smaller move is enough
    solution: Solution  # the optimum with the moved bound


def relaxations(cmdp: CMDP) -> dict[str, Relaxation | None]:
    """For every bound of an infeasible model how far it alone must move; None if the other bounds clash without it.

    The best total under the other bounds is found with a proved gap. The bound is moved to this total and a tolerance
    beyond it, and the problem is solved with it, so that a user can take the number as it is.
    """
    return {c.name: _relaxation(cmdp, n) for n, c in enumerate(cmdp.constraints)}


def _relaxation(cmdp: CMDP, n: int) -> Relaxation | None:
    c, others = cmdp.constraints[n], tuple(m for m in range(cmdp.N) if m != n)
    try:
        best = solve_fully(_objective(cmdp, cmdp.compact.g[n], others))
    except Infeasible:
        return None
    short = float(cmdp.rho[n] - best.value)
    far = _with_total(cmdp, n, best.value - abs(short))  # certainly feasible: it knows the tolerance of this bound
    for tolerances in (1, 2, 4, 8):
        total = best.value - tolerances * float(far.tolerance[n])
        try:
            moved = _with_total(cmdp, n, total)
        except Infeasible:  # the policy that reaches the best total uses the tolerances of the other bounds
            continue
        bound = moved.cmdp.constraints[n].bound
        least = max(0.0, short - best.gap) / c.scale
        return Relaxation(c.name, bound, abs(bound - c.bound), least, moved)
    return Relaxation(c.name, far.cmdp.constraints[n].bound, 2 * short / c.scale, (short - best.gap) / c.scale, far)


def _with_total(cmdp: CMDP, n: int, rho: float) -> Solution:
    """The optimum if utility n must reach rho."""
    c = cmdp.constraints[n]
    return solve_fully(cmdp.with_totals({c.name: c.sign * rho + 0.0}))
