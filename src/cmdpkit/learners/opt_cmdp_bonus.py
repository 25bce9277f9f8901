"""OptCMDP-bonus: plan in the estimated model, with a bonus for what is little known.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm "OptCMDP-bonus".
Optimism sits in the rewards and utilities instead of the kernel: r_hat + b and g_hat + b with
b = beta_l + H sum_s' beta_p, and the plan is the plain occupancy LP on p_hat.
Output: the current policy.

Departures: those of all planners (`_model_based`); the unknown start distribution lowers the thresholds by its own
bonus; r_hat + b is cut at H - h, all that can be earned from step h on, which keeps it optimistic; should no policy
reach the bounds, that which misses them least is taken. "practical": c = 1e-7.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.estimate.radii import mean_radius, start_bonus, transition_bonus
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Belief, Decided, OptimisticPlanner
from cmdpkit.learners._model_based.settings import MarginWithRadii, logs, on_bernstein_bonus


class OptCMDPBonus(OptimisticPlanner):
    """OptCMDP-bonus at work; keyword arguments other than the preset change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opt-cmdp-bonus", episodes=2000, seed=1)
    >>> run.internals["plans"] > 27
    True
    """

    title = "OptCMDP-bonus: plan in the estimated model, with a bonus for what is little known."
    guarantee = "strong regret and strong violation of order sqrt(S^3 A H^4 K), each with probability 1 - delta"
    paper = "arXiv 2003.02189"
    source = "restatement"
    presets = {"practical": MarginWithRadii(replan="need", c=1e-7), "theory": MarginWithRadii()}
    params: MarginWithRadii

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.kernel_log, self.mean_log = logs(spec, self.params)
        self.notes = on_bernstein_bonus(spec, self.kernel_log, self.mean_log)

    def plan(self, belief: Belief) -> Decided:
        """The best policy of the estimated model with optimistic signals."""
        spec = self.spec
        transitions = transition_bonus(belief.counts, spec.H, spec.A, self.kernel_log)
        bonus = mean_radius(belief.visits, self.mean_log) + spec.H * transitions
        most = spec.H - np.arange(spec.H, dtype=float)[:, None, None]
        start = spec.H * start_bonus(belief.counts.starts, self.kernel_log)
        return self.best(belief.model, np.minimum(belief.signals + bonus, most), spec.rho - start, start)
