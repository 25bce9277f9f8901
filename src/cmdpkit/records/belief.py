"""What a learner that counts has come to believe: the estimated model, its prices, and what each action is worth in it.

The values are those of the best policy of the estimated model at its prices, so that every action is judged with what
comes after it done well. An interval is for the error of the action's own estimates, where it leads and what it earns;
values of the states that follow are taken as estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.estimate.counts import Counts, signal_means, steps_of, transitions
from cmdpkit.estimate.errors import squared_errors
from cmdpkit.estimate.model import Model
from cmdpkit.exact.comparison import priced_values
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, Scale
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NO_LOSS
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Name, is_int

LEVEL = 0.95  # confidence level of every interval, each on its own
WIDTH = NormalDist().inv_cdf((1 + LEVEL) / 2)  # standard errors from the middle of an interval to its ends
PSEUDO = 5.0  # observations that the average variance of a step counts as, where an action was taken rarely
OVER = "(episode over)"  # the state in which a learner waits where episodes may end early


class Counted(NamedTuple):
    """What a run leaves behind for its belief."""

    counts: Counts  # in unit scale
    allowed: BoolArray  # [H, S, A]: actions that the learner could use
    scales: tuple[Scale, ...]  # [1 + N]: of reward and utilities


class Believed(NamedTuple):
    """What an action is worth in the estimated model, in the user's units."""

    action: Name  # the action
    visits: int  # how often it was taken; over all steps, if these share their counts
    value: float  # reward plus utilities at their prices, from here to the end; NaN if it was never taken
    interval: tuple[float, float]  # ends for the value, at level 0.95; NaN if it was never taken
    loses: float  # value lost against the best action here; NaN if it was never taken
    probability: float  # of the action in the policy that the run handed over


class WhyNot(NamedTuple):
    """Why a policy does not take an action, or that it does."""

    step: int  # counts from 1
    state: Name  # where the action could be taken
    asked: Believed  # the action
    best: Believed  # the action with the largest value here
    difference: tuple[float, float, float]  # value lost: low end, estimate, high end; NaN if it was never taken
    reason: str  # one of "taken", "never tried", "worse", "undecided"
    prices: dict[str, float]  # the price of every constraint, on which the values rest

    def __str__(self) -> str:
        """A sentence."""
        low, lost, high = self.difference
        where = f"Step {self.step}, state {self.state}: {self.asked.action}"
        times = f"{self.asked.visits:,} {'visit' if self.asked.visits == 1 else 'visits'}"
        if self.reason == "never tried":
            p = self.asked.probability
            though = f"; the policy takes it with probability {p:.4g}" if p > 0 else ""
            return f"{where} was never taken here, so that nothing is known about it{though}."
        loses = f"loses {lost:.4g} ({low:.4g} to {high:.4g}) against {self.best.action}"
        if self.reason == "taken":
            rest = "" if lost == 0 else f"; it {loses}"
            return f"{where} is taken with probability {self.asked.probability:.4g}{rest} ({times})."
        if self.reason == "undecided":
            return f"{where} cannot be told apart from {self.best.action} yet: it {loses}, after {times}."
        prices = ", ".join(f"{x:.4g} per unit of {name}" for name, x in self.prices.items())
        return f"{where} {loses}, after {times}" + (f"; prices: {prices}." if prices else ".")


@dataclass(frozen=True, eq=False)
class RunBelief:
    """What a run has come to believe, see `RunRecord.belief`."""

    cmdp: CMDP  # the estimated model, with actions that were never taken left out wherever another one was taken
    policy: Policy  # that the run handed over
    counted: Counted  # what the model rests on

    @cached_property
    def solution(self) -> Solution | None:
        """The optimum of the estimated model; None if no policy of it meets all bounds."""
        try:
            return solve_fully(self.cmdp)
        except Infeasible:
            return None

    @property
    def prices(self) -> dict[str, float]:
        """What one unit of each bound is worth in the estimated model; 0 if no policy of it meets all bounds."""
        found = [0.0] * self.cmdp.N if self.solution is None else self.solution.shadow_prices.tolist()
        return {c.name: x for c, x in zip(self.cmdp.constraints, found, strict=True)}

    def actions(self, step: int, state: Name) -> tuple[Believed, ...]:
        """What every action is worth in a state at a step, counting from 1; the best one first."""
        h, s = self._place(step, state)
        (_, S, A), (Q, error) = self.counted.allowed.shape, self._values
        visits = self.counted.counts.visits.reshape(-1, S, A)[h % steps_of(self.counted.counts, A), s]
        best = float(Q[h, s].max())
        rounding = NO_LOSS * max(abs(best), 1.0)
        rows = []
        for a in np.flatnonzero(self.counted.allowed[h, s]):
            known = visits[a] > 0
            value, wide = (float(Q[h, s, a]), WIDTH * float(error[h, s, a])) if known else (np.nan, np.nan)
            lost = best - value if not best - value <= rounding else 0.0
            p = float(self.policy.row(h, s)[a]) if s < len(self.policy.states) else 0.0
            name = self.cmdp.action_names[int(a)]
            rows.append(Believed(name, int(visits[a]), value, (value - wide, value + wide), lost, p))
        return tuple(sorted(rows, key=lambda x: (np.isnan(x.value), -x.value if x.visits else 0.0)))

    def why_not(self, step: int, state: Name, action: Name) -> WhyNot:
        """Why the policy does not take an action in a state at a step, counting from 1.

        The action may never have been tried, may be taken after all, may be worse than the best one beyond doubt, or
        may not be told apart from it by the data. `print` it for a sentence.
        """
        h, s = self._place(step, state)
        a = self.cmdp.action_index(action)
        if not self.counted.allowed[h, s, a]:
            raise CmdpkitError(f"action {quoted(action)} does not exist in state {quoted(state)} at step {step}")
        rows = self.actions(step, state)
        asked = next(row for row in rows if row.action == self.cmdp.action_names[a])
        best, error = rows[0], self._values[1]
        b = self.cmdp.action_index(best.action)
        wide = WIDTH * float(np.hypot(error[h, s, a], error[h, s, b])) if a != b else 0.0
        difference = (asked.loses - wide, asked.loses, asked.loses + wide)
        if not asked.visits:
            reason = "never tried"
        elif asked.probability > 0:
            reason = "taken"
        else:
            reason = "worse" if difference[0] > 0 else "undecided"
        return WhyNot(step, self.cmdp.states[s], asked, best, difference, reason, self.prices)

    def _place(self, step: int, state: Name) -> tuple[int, int]:
        if not is_int(step) or not 1 <= step <= self.cmdp.H:
            raise CmdpkitError(f"step is {quoted(step)}, expected a whole number from 1 to {self.cmdp.H}")
        return int(step) - 1, self.cmdp.state_index(state)

    @cached_property
    def _values(self) -> tuple[FloatArray, FloatArray]:
        """Q [H, S, A] of the priced reward under the best policy, and the standard error of each entry."""
        lam = np.zeros(self.cmdp.N) if self.solution is None else self.solution.lam
        Q, V = priced_values(self.cmdp, lam)
        spans = np.array([scale.span for scale in self.counted.scales])
        known = np.ones(self.cmdp.actions.shape, dtype=bool)
        model = Model(self.cmdp, self.counted.counts, known, known[..., 0], np.zeros(self.cmdp.N, dtype=bool))
        return Q, np.sqrt(squared_errors(model, V, spans * np.append(1.0, lam), PSEUDO))


def belief_of(counted: Counted, constraints: tuple[Constraint, ...], policy: Policy) -> RunBelief:
    """The belief of a run with these bounds that handed over this policy."""
    counts, allowed, scales = counted
    (H, S, A), M = allowed.shape, len(scales)
    T = steps_of(counts, A)
    means = signal_means(counts, M).reshape(T, S, A, M)
    tried = allowed & np.broadcast_to(counts.visits.reshape(T, S, A) > 0, allowed.shape)
    seen = np.asarray(tried.any(axis=-1, keepdims=True))
    signed = [
        replace(c, signal=c.sign * (means[..., 1 + n] * scale.span + scale.low), steps=None, range=None)
        for n, (c, scale) in enumerate(zip(constraints, scales[1:], strict=True))
    ]
    starts: Any = counts.starts
    cmdp = CMDP(
        transitions(counts, T, A),
        means[..., 0] * scales[0].span + scales[0].low,
        mu=starts / starts.sum() if starts.any() else np.full(S, 1 / S),
        horizon=H,
        actions=np.where(seen, tried, allowed),
        constraints=signed,
        states=[*policy.states, *[OVER] * (S - len(policy.states))],
        action_names=policy.action_names,
        renormalise=True,
    )
    return RunBelief(cmdp, policy, counted)
