"""The simplest policy that is nearly as good as the optimum, for people who have to follow it.

`few_phases` says what simple means, and searches.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.solver import Solution
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import Name
from cmdpkit.results.few_phases import PhaseSearch, Shape, counted, phases_of, runs_of, simplest

MOST_NUMBERS = 100_000_000  # steps times states times actions; several tables of this size are needed


class Rule(NamedTuple):
    """Neighbouring states in which the same is done."""

    states: tuple[Name, ...]  # those that are reached and leave a choice, in the model's order
    action: Name  # what is done in all of them


class Phase(NamedTuple):
    """Consecutive steps at which the same is done in every state."""

    first: int | None  # step, from 1; None without a horizon
    last: int | None  # step, likewise
    rules: tuple[Rule, ...]  # in the order of the states


@dataclass(frozen=True, kw_only=True)
class Simplified(Solution):
    """A simple policy that meets all bounds and is nearly as good as the optimum; see `simplify`.

    It can be used wherever a `Solution` can: ``value``, ``utilities`` and ``policy`` are those of the simple policy,
    the prices are those of the optimum, and no policy within the bounds has a value above ``value + gap``.
    """

    optimum: Solution  # what was simplified
    least: float  # the value that was asked for
    before: Shape  # phases, stochastic decisions, changes over states and over steps at the optimum
    after: Shape  # the same of the simple policy
    changed: float  # share of the optimum's decisions that the simple policy takes otherwise

    @property
    def lost(self) -> float:
        """What the simple policy earns less than the optimum, in the units of the reward."""
        return max(0.0, self.optimum.value - self.value)

    @property
    def share(self) -> float:
        """What is lost, as a share of the optimum; inf if the optimum is 0 and something is lost."""
        if self.lost == 0:
            return 0.0
        return self.lost / abs(self.optimum.value) if self.optimum.value else math.inf

    @property
    def slack(self) -> FloatArray:
        """What is left of every bound, [N]; negative only by less than the tolerance."""
        return np.asarray(self.cmdp.signs * self.utilities - self.cmdp.rho)

    @property
    def simpler(self) -> bool:
        """False if nothing simpler was found: then the policy is the optimum, perhaps with small draws made larger."""
        return self.after < self.before

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """What to do, phase by phase and state by state, without the `stochastic_decisions`."""
        cmdp, found = self.cmdp, []
        edges, chosen = phases_of(self.policy.choice.astype(np.int64), counted(self.policy, self.reach, cmdp.actions))
        for (first, last), here in zip(pairwise(edges), chosen, strict=True):
            names = ((tuple(cmdp.states[int(s)] for s in x), int(here[x[0]])) for x in runs_of(here))
            rules = tuple(Rule(states, cmdp.action_names[a]) for states, a in names)
            found.append(Phase(first + 1, last, rules) if cmdp.criterion.has_horizon else Phase(None, None, rules))
        return tuple(found)


def simplify(solution: Solution, within: float = 0.01, *, at_least: float | None = None) -> Simplified:
    """The simplest policy found that meets all bounds and whose value is within a share of the optimum.

    Simpler means, in this order: fewer phases (runs of steps at which every state has one action), fewer stochastic
    decisions, and fewer changes of the action between neighbouring states, in the order of the model's states. Without
    a horizon there is one phase. Only decisions count that are ever met and that leave a choice; elsewhere the policy
    does what it does in the nearest state.

    To find the very simplest is hard in general, so this is a search. Every candidate is evaluated exactly before it is
    accepted: no bound is broken, and no more is given up than is allowed. If nothing simpler is found, the policy is
    the optimum, and ``simpler`` is False. An action that is drawn with a probability below 1 % is left out, or drawn
    with 1 %, if bounds and allowance leave room for it.

    Parameters
    ----------
    solution : what `solve` returned
    within : the share of the optimum's absolute value that may be given up: 0.01 for 1 %
    at_least : instead of a share, the value that must be reached, in the units of the reward; use it where the optimum
        is near 0, so that a share of it is next to nothing

    >>> import cmdpkit as ck
    >>> found = simplify(ck.solve(ck.load("queue")), within=0.02)
    >>> found.before.phases > found.after.phases, found.share <= 0.02, bool((found.slack >= -found.tolerance).all())
    (True, True, True)
    """
    began = time.perf_counter()
    least = _least(solution, within, at_least)
    search = PhaseSearch(solution, least)
    before = search.shape
    chosen = simplest(search)
    value, utilities = float(chosen.totals[0]), chosen.totals[1:]
    taken = zip(solution.reach, range(len(solution.reach)), strict=True)
    alike = sum(d @ np.minimum(solution.policy.table(h), chosen.policy.table(h)).sum(axis=-1) for d, h in taken)
    return Simplified(
        cmdp=solution.cmdp,
        policy=chosen.policy,
        value=value,
        utilities=solution.cmdp.signs * utilities + 0.0,
        shadow_prices=solution.shadow_prices,
        gap=max(0.0, solution.value - value) + solution.gap,
        tolerance=solution.tolerance,
        binds=solution.binds & (utilities - solution.cmdp.rho <= solution.tolerance),
        method=solution.method,
        seconds=time.perf_counter() - began,
        ended=solution.ended,
        optimum=solution,
        least=least,
        before=before,
        after=min(search.shape, search.shape_of(chosen)),
        changed=max(0.0, 1.0 - float(alike / solution.reach.sum())),
    )


def _least(solution: Solution, within: float, at_least: float | None) -> float:
    """The value that must be reached; CmdpkitError if something is wrong with what was asked."""
    if not isinstance(solution, Solution):
        raise CmdpkitError(f"solution is a {type(solution).__name__}, expected what cmdpkit.solve(model) returns")
    if not isinstance(solution.policy, Policy):
        raise CmdpkitError(
            "the optimum is a draw among several policies, of which none can be simplified for itself; "
            "cmdpkit.evaluate says what each of solution.policy.policies is worth"
        )
    if getattr(solution, "one_class", None) is not None:
        raise CmdpkitError(
            "the solution was asked for one recurrent class, and a simpler policy may have several; "
            "simplify what solve(model) returns without one_class"
        )
    cmdp = solution.cmdp
    numbers = cmdp.n_steps * cmdp.S * cmdp.A
    if numbers > MOST_NUMBERS:
        raise CmdpkitError(
            f"the model has {cmdp.n_steps:,} steps x {cmdp.S:,} states x {cmdp.A:,} actions = {numbers:,} decisions to "
            f"compare, and simplify takes at most {MOST_NUMBERS:,}; use fewer states or steps"
        )
    if at_least is not None:
        if not isinstance(at_least, (int, float)) or not at_least <= solution.value:
            raise CmdpkitError(
                f"at_least is {quoted(at_least)}, expected a value of at most the optimum, {solution.value:.6g}"
            )
        return float(at_least)
    if isinstance(within, bool) or not isinstance(within, (int, float)) or not 0 <= within < 1:
        raise CmdpkitError(f"within is {quoted(within)}, expected a share of the optimum such as 0.01 for 1 %")
    return solution.value - within * abs(solution.value)
