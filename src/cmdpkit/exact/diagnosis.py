"""Is the problem well posed? How far each bound can be moved, what it costs, and how unique the optimum is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.columns import Pool, Units
from cmdpkit.exact.solution import Infeasible, subject_to
from cmdpkit.exact.solver import Solution, Watch, refuse_threads, solve_fully, solve_in
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.stationary import Stationary
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, Sense, at_least
from cmdpkit.model.fits import check_model
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Mixture
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import FEASIBLE, NEGLIGIBLE, NO_SEPARATION
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Name, is_int
from cmdpkit.operators.steps import Threads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cmdpkit.exact.large.policy import LargeSolution

# A solution may miss its bounds by a little less than the tolerance. Where its totals become the bounds of another
# problem, this band makes sure that the solution counts as feasible there too.
REACHED_BOUND_BAND = 0.55 * FEASIBLE
CURVE_END_BAND = 0.6 * FEASIBLE  # the ends of a curve are found with that band, so a curve needs a slightly wider one
MOST_POINTS = 1_000_000  # of a curve; more are taken for a mistake


class TotalRange(NamedTuple):
    """How far one bound can be moved, in the unit it was given in and the user's sense."""

    name: str  # of the constraint
    sense: Sense  # "at_least" or "at_most"
    bound: float  # as it is now
    worst: float  # every policy satisfies a bound as loose as this
    indifferent: float  # a bound that is looser than this does not change the optimum, given the other bounds
    strictest: float  # a stricter bound than this cannot be met together with the others
    best_alone: float  # a stricter bound than this cannot be met at all
    per_step: bool = False  # whether all of these numbers are per step


def ranges_of(cmdp: CMDP, alone: Units, threads: Threads = None) -> tuple[TotalRange, ...]:
    """One range per constraint; ``alone`` says what policies can collect of every signal."""
    return tuple(_range(cmdp, n, alone, threads) for n in range(cmdp.N))


def _range(cmdp: CMDP, n: int, alone: Units, threads: Threads) -> TotalRange:
    """The range of constraint n."""
    c = cmdp.constraints[n]
    worst, best = (c.sign * float(x) + 0.0 for x in (alone.worst[1 + n], alone.best[1 + n]))
    if not cmdp.criterion.has_horizon:  # there the range is known approximately
        g = cmdp.compact.g[n]
        try:
            worst = -c.sign * solve_fully(subject_to(cmdp, [], -g)).value + 0.0
            best = c.sign * solve_fully(subject_to(cmdp, [], g.copy())).value + 0.0
        except CmdpkitError:  # a total that policies can collect forever has no worst
            worst = -c.sign * np.inf
    try:
        free = indifferent(cmdp, n, threads)
        last = strictest(cmdp, n, threads) if cmdp.N > 1 else best
    except CmdpkitError:  # the other bounds already conflict, or totals need not be finite
        free, last = worst, best
    worst, free, last, best = (x / c.scale + 0.0 for x in (worst, free, last, best))
    return TotalRange(c.name, c.sense, c.bound, worst, free, last, best, c.per_step)


def _best(cmdp: CMDP, n: int, threads: Threads = None) -> Solution:
    """The policy with the best total of signal n under the other bounds."""
    return solve_fully(subject_to(cmdp, _others(cmdp, n), cmdp.compact.g[n].copy()), threads=threads)


def strictest(cmdp: CMDP, n: int, threads: Threads = None) -> float:
    """The best total of signal n under the other bounds."""
    return float(cmdp.constraints[n].sign * _best(cmdp, n, threads).value + 0.0)


def indifferent(cmdp: CMDP, n: int, threads: Threads = None) -> float:
    """The best total of signal n among the policies that are optimal without bound n."""
    free = subject_to(cmdp, _others(cmdp, n))
    tied = with_value(free, solve_fully(free, threads=threads).value).reformulated(r=cmdp.compact.g[n].copy())
    best = solve_in(columns_of(tied, REACHED_BOUND_BAND, threads=threads), tied, "auto", Watch())
    return float(cmdp.constraints[n].sign * best.value + 0.0)


def with_value(cmdp: CMDP, value: float) -> CMDP:
    """The model with one more bound, the first: a value that must be reached."""
    signals = (cmdp.compact.r[None], cmdp.compact.g)
    T = max(x.shape[1] for x in signals)
    stacked = np.concatenate([np.broadcast_to(x, (len(x), T, cmdp.S, cmdp.A)) for x in signals])
    return cmdp.reformulated(g=stacked, constraints=(at_least("\0value", value), *cmdp.constraints))


def _others(cmdp: CMDP, n: int) -> list[int]:
    return [m for m in range(cmdp.N) if m != n]


class Relaxation(NamedTuple):
    """How far one bound must move while the others stay, in the unit it was given in."""

    name: str  # of the constraint
    bound: float  # with this bound all bounds can be met
    by: float  # how far that is from the bound of the model
    at_least: float  # proved: no smaller move is enough
    solution: Solution  # the optimum with the moved bound

    def __repr__(self) -> str:
        numbers = f"bound={self.bound:g}, by={self.by:g}, at_least={self.at_least:g}"
        return f"Relaxation(name={self.name!r}, {numbers}, solution=<optimal value {self.solution.value:g}>)"


def relaxations(cmdp: CMDP) -> dict[str, Relaxation | None]:
    """For every bound of an infeasible model how far it alone must move; None if the other bounds clash without it.

    The best total under the other bounds is found with a proved gap. The bound is moved to this total and a tolerance
    beyond it, and the problem is solved with it, so that a user can take the number as it is.
    """
    check_model(cmdp)
    return {c.name: _relaxation(cmdp, n) for n, c in enumerate(cmdp.constraints)}


def _relaxation(cmdp: CMDP, n: int) -> Relaxation | None:
    c = cmdp.constraints[n]
    try:
        best = _best(cmdp, n)
    except Infeasible:
        return None
    short = float(cmdp.rho[n] - best.value)
    moved = far = _with_total(cmdp, n, best.value - abs(short))  # certainly feasible: it knows this bound's tolerance
    for tolerances in (1, 2, 4, 8):
        with suppress(Infeasible):  # the policy that reaches the best total uses the tolerances of the other bounds
            moved = _with_total(cmdp, n, best.value - tolerances * float(far.tolerance[n]))
            break
    bound = moved.cmdp.constraints[n].bound
    return Relaxation(c.name, bound, abs(bound - c.bound), max(0.0, short - best.gap) / c.scale, moved)


def _with_total(cmdp: CMDP, n: int, rho: float) -> Solution:
    """The optimum if utility n must reach rho."""
    c = cmdp.constraints[n]
    return solve_fully(cmdp.with_totals({c.name: c.sign * rho + 0.0}))


@dataclass(frozen=True)
class Tradeoff(Shown):
    """The optimal value as a function of one bound, in the unit in which that bound was given."""

    constraint: Constraint  # whose bound is moved, with the bound of the model
    bounds: FloatArray  # [points], the bounds that can be met
    values: FloatArray  # [points], the optimal value under each
    prices: FloatArray  # [points], the shadow price of this bound
    utilities: FloatArray  # [points, N], expected totals of the constraints' signals
    infeasible: FloatArray  # the bounds asked for that no policy meets
    cmdp: CMDP | FunctionModel  # the model, with its own bound

    @property
    def name(self) -> str:
        """The name of the constraint."""
        return self.constraint.name

    def plot(self, *, size: float | tuple[float, float] | None = None, ax: Any = None) -> Figure:
        """A matplotlib figure: the value and the price for every bound, with the bound of the model.

        ``size`` is the width in inches, or width and height, and ``ax`` two matplotlib axes to draw into.
        """
        return showing.draw(self, size=size, ax=ax)

    def rows(self) -> list[dict[str, float]]:
        """One dictionary per point, with the keys bound, value and price."""
        points = zip(self.bounds.tolist(), self.values.tolist(), self.prices.tolist(), strict=True)
        return [{"bound": bound, "value": value, "price": price} for bound, value, price in points]


def tradeoff(
    cmdp: CMDP | FunctionModel,
    name: str,
    n: int = 21,
    *,
    low: float | None = None,
    high: float | None = None,
    threads: Threads = None,
) -> Tradeoff:
    """The optimal value for ``n`` different bounds of one constraint, evenly spaced from ``low`` to ``high``.

    Parameters
    ----------
    cmdp : the model; its other bounds stay as they are
    name : of the constraint whose bound is moved
    n : how many bounds are tried
    low, high : the smallest and the largest of them, per step if the bound is. By default they go from where the bound
        no longer changes the optimum to the strictest bound that can be met together with the others; for models by
        functions, from what the largest reward collects to the most that any policy collects, whatever the other bounds
    threads : how many threads to use for large models with a horizon; all cores unless given

    Returns
    -------
    The `Tradeoff`, which lists the bounds that no policy meets separately.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> [(round(row["bound"], 6), round(row["value"], 6)) for row in tradeoff(cmdp, "utility", 3).rows()]
    [(0.0, 2.0), (1.0, 1.0), (2.0, 0.0)]
    """
    if not isinstance(cmdp, FunctionModel):
        check_model(cmdp)
        refuse_threads(cmdp, threads)
    k = cmdp.constraint_index(name)
    if not is_int(n) or not 1 <= n <= MOST_POINTS:
        raise CmdpkitError(
            f"n is {quoted(n)}, expected a whole number of points, at least 1 and at most {MOST_POINTS:,}"
        )
    for end in (low, high):
        if end is not None:
            cmdp.with_bounds(**{name: end})  # which refuses what is no bound
    solve_one: Callable[[Any], Solution | LargeSolution]
    ends: list[float]
    if isinstance(cmdp, FunctionModel):
        from cmdpkit.exact.large import search_of

        search = search_of(cmdp, threads)
        solve_one, ends = lambda model: search.solution(model), search.ends(k)
    else:
        ends = [0.0, 0.0] if low is not None and high is not None else _ends(cmdp, k, threads)
        pool = columns_of(cmdp, CURVE_END_BAND, threads=threads)
        solve_one = lambda model: solve_in(pool, model, "auto", Watch())  # noqa: E731
    low, high = (ends[0] if low is None else low), (ends[1] if high is None else high)
    met: list[tuple[float, Solution | LargeSolution]] = []
    unmet: list[float] = []
    for bound in np.linspace(low, high, n).tolist():
        try:
            met.append((bound, solve_one(cmdp.with_bounds(**{name: bound}))))
        except Infeasible:
            unmet.append(bound)
    return Tradeoff(
        constraint=cmdp.constraints[k],
        bounds=np.array([bound for bound, _ in met]),
        values=np.array([s.value for _, s in met]),
        prices=np.array([s.shadow_prices[k] for _, s in met]),
        utilities=np.array([s.utilities for _, s in met]).reshape(len(met), cmdp.N),
        infeasible=np.array(unmet),
        cmdp=cmdp,
    )


def _ends(cmdp: CMDP, k: int, threads: Threads) -> list[float]:
    """Where bound k stops to change the optimum and where it can no longer be met, in ascending order."""
    c = cmdp.constraints[k]
    try:
        return sorted(x / c.scale for x in (indifferent(cmdp, k, threads), strictest(cmdp, k, threads)))
    except Infeasible:
        raise
    except CmdpkitError as error:  # a total of this signal alone need not be finite
        raise CmdpkitError(
            f"the range of bounds of {quoted(c.name)} is not known: {error}. Give low= and high="
        ) from None


MOST_SEPARATED = 20  # actions that are dropped one at a time, unless all are asked for
MOST_WORK = 100_000_000  # such actions times transitions, which is about 20 seconds


class Separation(NamedTuple):
    """What is lost by forbidding one action that the optimal policy uses."""

    step: int | None  # counts from 1; None without a horizon
    state: Name  # where the action is used
    action: Name  # that is forbidden in this state at this step
    probability: float  # of the action in the optimal policy
    value_loss: float  # by how much the optimal value drops; infinite if the bounds cannot be met any more
    sigma: float  # the smallest t such that some policy misses neither the old optimum nor any bound by more than t
    use: float  # how often the optimum takes the action: expected times in an episode, or by its occupancy without one

    @property
    def weight(self) -> float:
        """How decisive the action is: sigma times use; 0 for an action that the optimum can do without."""
        return self.sigma * self.use


@dataclass(frozen=True)
class Diagnosis(Shown):
    """Answers to "is my problem well posed?", in the user's units."""

    reachable: int  # how many pairs of a step and a state some policy reaches
    pairs: int  # how many such pairs there are, H * S
    slater_slack: float  # the margin with which all bounds can be met at once; negative if infeasible
    ranges: tuple[TotalRange, ...]  # [N], how far each bound can be moved
    solution: Solution | None  # None if the problem is infeasible
    infeasible: Infeasible | None  # why it is infeasible, if it is
    separation: tuple[Separation, ...]  # one entry per action of the optimum that was looked at, see `diagnose`

    @property
    def cmdp(self) -> CMDP:
        """The model."""
        return self.solution.cmdp if self.solution is not None else cast(Infeasible, self.infeasible).cmdp

    @property
    def sigma_min(self) -> float | None:
        """The smallest sigma above 0 among the actions of `separation`; None if there is none.

        In the sense of arXiv 2309.15395 where the optimum is unique and all of its actions were looked at
        (``separation=True``): so far a policy without one of them stays below the optimum or misses a bound. Of fewer
        actions it is an upper limit.
        """
        return None if self.solution is None else least_sigma(self.solution, self.separation)

    @property
    def feasible(self) -> bool:
        """Whether some policy meets all bounds."""
        return self.solution is not None

    @property
    def binding(self) -> tuple[str, ...]:
        """Names of the constraints with a positive price."""
        if self.solution is None:
            return ()
        return tuple(c.name for c, b in zip(self.solution.cmdp.constraints, self.solution.binds, strict=True) if b)


@dataclass(frozen=True)
class StationaryDiagnosis(Diagnosis):
    """What `diagnose` finds about a model without a horizon; `reachable` and `pairs` count states."""

    components: tuple[tuple[Name, ...], ...] = ()  # the maximal end components that the start can reach


def diagnose(cmdp: CMDP, *, separation: bool | int = MOST_SEPARATED, threads: Threads = None) -> Diagnosis:
    """Feasible range of every bound, Slater slack, prices, and how much each action of the optimum matters.

    Parameters
    ----------
    cmdp : the model, feasible or not
    separation : of how many actions of the optimum to find out what they are worth. Each of them takes two more solves.
        By default these are the 20 that matter most where there is a choice: those of stochastic decisions, then
        those that the optimum takes most often. In a model so large that this would take long there are fewer, or none.
        True looks at every action that the optimum uses, False at none.
    threads : how many threads to use for large models with a horizon; all cores unless given

    Returns
    -------
    The `Diagnosis`. An infeasible problem raises no error here: its explanation is in the result.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> round(diagnose(cmdp).slater_slack, 6), diagnose(cmdp).binding
    (0.5, ('utility',))
    """
    check_model(cmdp)
    refuse_threads(cmdp, threads)
    solution, infeasible = None, None
    try:
        solution = solve_fully(cmdp, threads=threads)
    except Infeasible as error:
        infeasible = error
    rows = () if solution is None else tuple(separations(solution, separation, threads))
    pool = columns_of(cmdp, threads=threads)
    source = pool.source
    answers = (pool.slack(cmdp.rho), ranges_of(cmdp, source.ranges, threads), solution, infeasible, rows)
    if not isinstance(source, Stationary):
        return Diagnosis(int(reachable(cmdp).sum()), cmdp.H * cmdp.S, *answers)
    states = source.problem.states
    parts = tuple(tuple(cmdp.states[int(s)] for s in states[members]) for members, _ in source.components)
    return StationaryDiagnosis(len(states), cmdp.S, *answers, parts)


def least_sigma(solution: Solution, rows: Iterable[Separation]) -> float | None:
    """The smallest sigma above rounding; None if there is none."""
    rounding = NO_SEPARATION * max(1.0, abs(solution.value))
    return min((row.sigma for row in rows if rounding < row.sigma < np.inf), default=None)


def reachable(cmdp: CMDP) -> BoolArray:
    """Whether some policy reaches the state at that step, bool [H, S]."""
    reach = np.zeros((cmdp.H, cmdp.S), dtype=bool)
    reach[0] = cmdp.mu > 0
    kernel, rows = cmdp.kernel, cmdp.kernel.rows
    h_row, s_row = rows // (cmdp.S * cmdp.A), rows // cmdp.A % cmdp.S
    allowed = cmdp.actions.reshape(cmdp.H, -1)
    for h in range(cmdp.H - 1):
        open_ = (h_row == h % kernel.T) & reach[h, s_row] & allowed[h, rows % (cmdp.S * cmdp.A)] & (kernel.prob > 0)
        reach[h + 1, kernel.successors[open_]] = True
    return reach


def separations(solution: Solution, most: bool | int = MOST_SEPARATED, threads: Threads = None) -> list[Separation]:
    """What forbidding an action of the optimum costs, for the actions that `diagnose` describes, in their order."""
    if not looked_at(solution, most):
        return []
    cmdp = solution.cmdp
    pool = columns_of(cmdp, threads=threads)
    pool.optimum(pool.scaled(cmdp.rho))
    everything = with_value(cmdp, solution.value)
    rows = (_separation(solution, pool, everything, used, threads) for used in used_most(solution, most))
    return [row for row in rows if row is not None]


def looked_at(solution: Solution, most: bool | int = MOST_SEPARATED) -> int:
    """How many actions `separations` may look at: fewer than asked for where each of them takes long."""
    if isinstance(most, bool):
        return solution.used if most else 0
    kernel = solution.cmdp.kernel
    transitions = len(kernel.prob) * solution.cmdp.n_steps // kernel.T
    return min(most, MOST_WORK // max(transitions, 1))


def used_most(solution: Solution, most: bool | int) -> list[tuple[int, int, int]]:
    """Step, state and action, from 0, of actions that the optimum uses, in this order.

    Where not all are asked for, these are actions that have an alternative: first those of stochastic
    decisions, then those that the optimum takes most often, as counted by the occupancy.
    """
    q = solution.occupancy
    used = np.argwhere(q > NEGLIGIBLE)
    if most is not True:
        h, s, a = used.T
        choices = solution.cmdp.actions[h, s].sum(axis=-1) > 1
        drawn = (q > NEGLIGIBLE).sum(axis=-1)[h, s] > 1
        first = np.lexsort((-q[h, s, a], ~drawn, ~choices))[: min(looked_at(solution, most), int(choices.sum()))]
        used = used[np.sort(first)]
    return [(int(h), int(s), int(a)) for h, s, a in used]


def _separation(
    solution: Solution, pool: Pool, everything: CMDP, used: tuple[int, int, int], threads: Threads
) -> Separation | None:
    """What forbidding one action costs; None where totals need not be finite without it."""
    cmdp, (h, s, a), endless = solution.cmdp, used, not solution.cmdp.criterion.has_horizon
    policy = solution.policy.policies[0] if isinstance(solution.policy, Mixture) else solution.policy
    place = (None if endless else h + 1, cmdp.states[s], cmdp.action_names[a], float(policy.row(h, s)[a]))
    mask = cmdp.actions.copy()
    mask[h, s, a] = False
    use = float(solution.occupancy[h, s, a])
    if not mask[h, s].any():
        return Separation(*place, np.inf, np.inf, use)
    ranges = pool.source.ranges
    try:
        smaller = columns_of(cmdp.restrict(mask), ranges=ranges, threads=threads)
        both = columns_of(everything.restrict(mask), ranges=ranges.of([-1, *range(cmdp.N)]), threads=threads)
    except CmdpkitError:  # without this action, absorption cannot be reached from everywhere any more
        return None
    if not endless:
        smaller.columns = [c for c in pool.columns if c.choice[h, s] != a]
    best = smaller.optimum(smaller.scaled(cmdp.rho))
    loss = np.inf if best is None else max(0.0, solution.value - smaller.value(best))
    return Separation(*place, loss, max(0.0, -both.slack(everything.rho)), use)
