"""What planners share beside their base class: what optimistic ones return, and what safe ones are told.

Plans of optimistic planners are too good to be true, so that they return another policy. It is the best of the
estimated model among actions that were tried, and clears the bounds by a margin for the standard error of its own
prediction: an optimum of an estimated model meets a bound exactly there, and hence misses it in truth in about half of
all cases. The margin is that of CL-PRI (`cmdpkit.estimate.model`). Safe planners play a known safe policy, the
baseline, until they can prove another one safe.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.estimate.model import HandOver, error_quantile, handed_over, model_of
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Decided, ModelBased
from cmdpkit.learners._model_based.settings import WithMargin, policy_of, utilities_of
from cmdpkit.learners._note import Note, UnitTotals
from cmdpkit.model.transitions import BoolArray, FloatArray

# -- Optimistic planners: these functions are their methods.


def best_with_margin(learner: ModelBased) -> FloatArray:
    """pi [H, S, A] that is best in the estimated model and clears the bounds there by a margin for its own error.

    It uses actions that were tried a few times; in states that were never seen it is the policy played last.
    """
    known, found = learner.once(lambda: _covering_plan(learner))
    pi: FloatArray = np.where(known[..., None], found.plan.pi, learner.playing.pi)
    return pi


def warnings_of_margin(learner: ModelBased) -> tuple[str | Note, ...]:
    """Bounds that the last plan found out of reach, or that the policy to return may miss."""
    said, log, p = ModelBased.warnings(learner), learner.plan_log, _settings(learner)
    if log.last_infeasible:
        said += (Note("no plan"),)
    if not log.plans or not p.margin:
        return said
    short = learner.once(lambda: _covering_plan(learner))[1].uncovered
    return (*said, *(Note("not cleared", int(n), by=float(short[n])) for n in np.flatnonzero(short)))


def internals_with_margin(learner: ModelBased) -> dict[str, Any]:
    """How planning went, and the margin of the policy that would be returned now, in unit scale."""
    said = ModelBased.internals(learner)
    if not learner.plan_log.plans:
        return said
    allowed = learner.spec.allowed
    cells = int(allowed.any(axis=0).sum() if learner.T < learner.spec.H else allowed.sum())
    tried = int((learner.counts.visits > 0).sum())
    margin = learner.once(lambda: _covering_plan(learner))[1].margin
    return {
        **said,
        "cells never tried": f"{cells - tried} of {cells}",
        "margin of the returned policy": UnitTotals(margin.round(6).tolist()),
    }


def _settings(learner: ModelBased) -> WithMargin:
    assert isinstance(learner.params, WithMargin)
    return learner.params


def _covering_plan(learner: ModelBased) -> tuple[BoolArray, HandOver]:
    """Where the estimated model knows an action [H, S], and the plan in it with its margin."""
    spec, p = learner.spec, _settings(learner)
    z = p.margin * error_quantile(p.delta / 2, spec.N) if spec.N else 0.0
    for least in (p.tried, 1):
        model = model_of(learner.counts, spec.rho, spec.allowed, least)
        found = handed_over(model, spec.rho, np.zeros(spec.N), z)
        if found.plan.feasible:
            break
    return model.known, found


# -- Safe planners.


class SafePolicy(NamedTuple):
    """A policy that is known to be safe."""

    pi: FloatArray  # [H, S, A]
    utilities: FloatArray  # [N], strictly above the bounds
    margin: float  # the least amount by which it exceeds a bound

    @classmethod
    def of(cls, spec: Spec, pi: Any, utilities: Any) -> SafePolicy:
        """The policy and its utilities as they were told."""
        pi, w = policy_of(spec, pi), utilities_of(spec, utilities)
        return cls(pi, w, float((w - spec.rho).min(initial=np.inf)))

    def plan(self) -> Decided:
        """To play the baseline."""
        return Decided(self.pi, np.zeros(len(self.utilities)), np.nan, baseline=True)

    def unless(self, decided: Decided) -> Decided:
        """A plan, or the baseline where it does not meet the bounds."""
        return decided if decided.feasible else self.plan()

    def doubt(self, spec: Spec, pessimism: float, needed: float) -> tuple[str, ...]:
        """A note where even K visits of every pair leave more pessimism than the baseline's margin allows."""
        if pessimism < needed:
            return ()
        return (
            f"even after K = {spec.K} visits of a pair the utilities of an episode are lowered by "
            f"{pessimism / spec.H:.1%} of their largest possible range, and only {needed / spec.H:.1%} would let it "
            "leave the baseline: it will be played throughout",
        )
