"""Planners that are optimistic while they play, and hand over a policy with a margin for their own error.

Optimism is for exploring. The policy that is handed over is the best one of the estimated model among actions that were
tried, and it clears the bounds by a margin for the standard error of its own prediction: an optimum of an estimated
model meets a bound exactly there, and hence misses it in truth in about half of all cases. How the margin comes about
is shared with CL-PRI (`cmdpkit.estimate.margins`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.estimate.margins import HandOver, error_quantile, handed_over
from cmdpkit.estimate.model import model_of
from cmdpkit.learners import State
from cmdpkit.learners._model_based.planner import Planner
from cmdpkit.learners._model_based.settings import WithMargin
from cmdpkit.learners._note import Note
from cmdpkit.model.transitions import BoolArray, FloatArray


class OptimisticPlanner(Planner):
    """A planner whose plans are too good to be true, so that it hands over another policy."""

    params: WithMargin
    _found: tuple[int, BoolArray, HandOver] | None = None  # number of episodes, and the policy handed over after them

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that is best in the estimated model and clears the bounds there by a margin for its own error.

        It uses actions that were tried a few times; in states that were never seen it is the policy played last.
        """
        known, found = self._hand_over()
        pi: FloatArray = np.where(known[..., None], found.plan.pi, self.behaviour())
        return pi

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that the last plan found out of reach, or that the policy to hand over may miss."""
        said = super().warnings()
        if self.plan_log.last_infeasible:
            said += (Note("no plan"),)
        if not self.plan_log.plans or not self.params.margin:
            return said
        short = self._hand_over()[1].uncovered
        return (*said, *(Note("not cleared", int(n), by=float(short[n])) for n in np.flatnonzero(short)))

    def explain(self) -> dict[str, Any]:
        """How planning went, and the margin of the policy that would be handed over now, in unit scale."""
        if not self.plan_log.plans:
            return super().explain()
        _, found = self._hand_over()
        tried = int((self.counts.visits > 0).sum())
        return {
            **super().explain(),
            "cells never tried": f"{self._cells() - tried} of {self._cells()}",
            "margin of the policy handed over, unit scale": found.margin.round(6).tolist(),
        }

    def _cells(self) -> int:
        """Number of allowed (step, state, action), or of (state, action) where the steps share their counts."""
        allowed = self.spec.allowed
        return int(allowed.any(axis=0).sum() if self.T < self.spec.H else allowed.sum())

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same arguments; one that does not fit changes nothing."""
        super().restore(state)
        self._found = None

    def _hand_over(self) -> tuple[BoolArray, HandOver]:
        """Where the estimated model knows an action [H, S], and the plan in it with its margin."""
        episodes = int(self.counts.starts.sum())
        if self._found is None or self._found[0] != episodes:
            self._found = episodes, *self._covering_plan()
        return self._found[1:]

    def _covering_plan(self) -> tuple[BoolArray, HandOver]:
        spec = self.spec
        z = self.params.margin * error_quantile(self.params.delta / 2, spec.N) if spec.N else 0.0
        for least in (self.params.tried, 1):
            model = model_of(self.counts, spec.rho, spec.allowed, least)
            found = handed_over(model, spec.rho, np.zeros(spec.N), z)
            if found.plan.feasible:
                break
        return model.known, found
