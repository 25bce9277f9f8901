"""Is the problem well posed? The price of each bound, how far it can be moved, and how unique the optimum is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import Pool
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import Solution, refuse_threads, solve_fully
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.stationary.actions import best_from_everywhere
from cmdpkit.exact.stationary.sources import Stationary
from cmdpkit.exact.tradeoff import TotalRange, ranges_of, with_value
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.fits import check_model
from cmdpkit.model.policy import Mixture
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE, NO_SEPARATION
from cmdpkit.model.transitions import BoolArray
from cmdpkit.model.validate import Name
from cmdpkit.operators.steps import Threads

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
    feasible_starts: tuple[Name, ...] = ()  # single states from which each bound can be met by itself
    starts_exact: bool = True  # with one bound these are the feasible starts; with more, no others can be feasible


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
    starts = tuple(cmdp.states[int(s)] for s in np.flatnonzero(feasible_starts(cmdp, pool)))
    return StationaryDiagnosis(len(states), cmdp.S, *answers, parts, starts, cmdp.N <= 1)


def least_sigma(solution: Solution, rows: Iterable[Separation]) -> float | None:
    """The smallest sigma above rounding; None if there is none."""
    rounding = NO_SEPARATION * max(1.0, abs(solution.value))
    return min((row.sigma for row in rows if rounding < row.sigma < np.inf), default=None)


def feasible_starts(cmdp: CMDP, pool: Pool) -> BoolArray:
    """[S]: single start states from which every bound can be met by itself; exact for one bound."""
    met = np.ones(cmdp.S, dtype=bool)
    for n in range(cmdp.N):
        try:
            best = best_from_everywhere(cmdp, cmdp.compact.g[n, 0])
        except CmdpkitError:  # totals need not be finite from everywhere; no state is excluded then
            continue
        met &= best >= cmdp.rho[n] - 10 * pool.source.ranges.tolerance[1 + n]
    return met


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
