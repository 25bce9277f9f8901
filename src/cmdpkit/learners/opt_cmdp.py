"""OptCMDP: plan in the best model the data allow, with the extended LP.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm "OptCMDP". Among
all models of a confidence box around the estimated one, with optimistic rewards and utilities, look for the best policy
that meets the bounds: one LP over pairs of a policy and a kernel. With probability 1 - delta the true model is in the
box. Then the plan promises at least the optimum, so the regret is at most the difference between what plans promise and
what their policies earn.

Output: the current policy, with at most N stochastic decisions in the planned model. Per plan: column generation, each
column at most O(H S^2 A). Memory O(H S^2 A), or O(S^2 A) where the world is declared stationary.

Symbols: p_hat, r_hat, g_hat = `Means.p`, `.r`, `.g`; beta_p, beta_l = radii of
`cmdpkit.estimate.boxes`.

Departures: does not plan before every episode, as the paper does, but when a count has doubled, or by need in
"practical" (`cmdpkit.learners._model_based.cadence`); utilities instead of costs, N of them; the start distribution is
unknown too and has its own box; optimistic signals are cut at 1, which keeps them optimistic; should no model of the
box reach the bounds, the policy and model that miss them least are taken. What is handed over is the best policy of the
estimated model, without optimism and with a margin for its own error.
"practical": c = 1e-3, the best of 12 values by the common rule of choice (docs/algorithms/model-based.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.estimate.belief import Belief
from cmdpkit.estimate.boxes import hoeffding, mean_radius
from cmdpkit.estimate.extended import plan
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.optimistic_planner import OptimisticPlanner
from cmdpkit.learners._model_based.planner import Decided
from cmdpkit.learners._model_based.settings import MarginWithRadii, even_visits, logs, on_radius


class OptCMDP(OptimisticPlanner):
    """OptCMDP at work; keyword arguments other than the preset change single settings.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = OptCMDP(Spec.of(cmdp, K=2000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 2000)
    >>> bool(abs(returns.utilities.mean() - 2.0) < 0.05)
    True
    """

    title = "OptCMDP: plan in the best model the data allow, with the extended LP."
    guarantee = "strong regret and strong violation of order sqrt(S^2 A H^4 K), each with probability 1 - delta"
    paper = "arXiv 2003.02189"
    source = "restatement"
    presets = {"practical": MarginWithRadii(replan="need", c=1e-3), "theory": MarginWithRadii()}
    boxed = True

    params: MarginWithRadii

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.kernel_log, self.mean_log = logs(spec, self.params)
        self.notes = on_radius(spec, hoeffding(even_visits(spec), self.mean_log))

    def plan(self, belief: Belief) -> Decided:
        """The best pair of a policy and a model of the box."""
        spec, means = self.spec, belief.means
        signals = np.minimum(means.signals + mean_radius(means.visits, self.mean_log), 1.0)
        return Decided.by(
            plan(belief.box, signals[0], signals[1:], spec.rho, spec.allowed, spec.H, guess=self.playing.lam)
        )
