"""OptCMDP: plan in the best model the data allow, with the extended LP.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm "OptCMDP". Among
all models of a confidence box around the estimated one, with optimistic rewards and utilities, look for the best policy
that meets the bounds: one LP over pairs of a policy and a kernel. With probability 1 - delta the true model is in the
box. Then the plan promises at least the optimum, so the regret is at most the difference between what plans promise and
what their policies earn.

Output: the current policy, with at most N stochastic decisions in the planned model.

Departures: those of all planners (`_model_based`); optimistic signals are cut at 1, which keeps them optimistic; should
no model of the box reach the bounds, the policy and model that miss them least are taken. "practical": c = 1e-3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.estimate.radii import confidence_box, hoeffding, mean_radius
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Belief, Decided, OptimisticPlanner
from cmdpkit.learners._model_based.settings import MarginWithRadii, even_visits, logs, on_bonus


class OptCMDP(OptimisticPlanner):
    """OptCMDP at work; keyword arguments other than the preset change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opt-cmdp", episodes=2000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 2000) < 0.05)
    True
    """

    title = "OptCMDP: plan in the best model the data allow, with the extended LP."
    guarantee = "strong regret and strong violation of order sqrt(S^2 A H^4 K), each with probability 1 - delta"
    paper = "arXiv 2003.02189"
    source = "restatement"
    presets = {"practical": MarginWithRadii(replan="need", c=1e-3), "theory": MarginWithRadii()}
    params: MarginWithRadii

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.kernel_log, self.mean_log = logs(spec, self.params)
        self.notes = on_bonus(spec, float(hoeffding(even_visits(spec), self.mean_log)), 0.1)

    def plan(self, belief: Belief) -> Decided:
        """The best pair of a policy and a model of the box."""
        spec, signals = self.spec, np.minimum(belief.signals + mean_radius(belief.visits, self.mean_log), 1.0)
        return self.best(confidence_box(belief.counts, spec.H, spec.A, self.kernel_log), signals, spec.rho)
