"""CONRL: plan in the estimated model, with a simple bonus on counts that all steps share.

Brantley, Dudik, Lykouris, Miryoosefi, Simchowitz, Slivkins, Sun, "Constrained episodic reinforcement learning in
concave-convex and knapsack settings" (arXiv 2006.05051), basic setting. Rewards and utilities get the bonus
b_k = H sqrt(2 ln(8 S A H (N+1) k^2 / delta) / n(s, a)), which covers the error of the estimated kernel too, and the
plan is the plain occupancy LP.

Counts are pooled over the steps (`pooled`), which assumes that nothing in the model depends on the step; where
something does, the estimates are wrong. Output: the current policy. Per plan: column generation, each column
O(H S^2 A). Memory O(S^2 A), or O(H S^2 A) with pooled=False.

Symbols: n(s, a) = `Estimate.visits`; k = episodes seen + 1; p_hat, r_hat, g_hat = `Estimate.p`, `.r`, `.g`.

Departures: the constants are the customary ones, quoted from memory; plans when a count has doubled
(`replan="episode"` is the paper's cadence), by an LP (the published code uses a Lagrangian heuristic); the start
distribution is unknown and lowers the thresholds by its own bonus; signals with their bonus are cut at H - h, which
keeps them optimistic; what is handed over is the best policy of the estimated model, without a bonus.
"practical": pooled = False, which is right for all models, and c = 1e-5, the best of 8 values on the development
instances (docs/algorithms/model-based.md).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.notes import even_visits, on_bonus
from cmdpkit.learners._model_based.planner import Decided, Planner
from cmdpkit.learners._model_based.settings import Planning
from cmdpkit.learners._planning.confidence import hoeffding, mean_radius, point
from cmdpkit.learners._planning.empirical import Estimate
from cmdpkit.learners._planning.extended import plan


class CONRL(Planner):
    """CONRL at work; keyword arguments other than the preset change single settings.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("streaming")
    >>> learner = CONRL(Spec.of(cmdp, K=1000), pooled=True)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 1000)
    >>> learner.counts.moves.shape
    (1, 10, 2, 10)
    """

    title = "CONRL: plan in the estimated model, with a simple bonus on counts that all steps share."
    guarantee = (
        "strong regret and strong violation of order H^3 sqrt(S^3 A^2 K), with probability 1 - delta, if "
        "transitions, rewards and utilities do not depend on the step"
    )
    paper = "arXiv 2006.05051"
    presets = {"practical": Planning(c=1e-5), "theory": Planning(pooled=True)}

    params: Planning

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        visits = even_visits(spec) * (spec.H if self.params.pooled else 1)
        self.notes = on_bonus(spec, spec.H * hoeffding(visits, self._log(spec.K)))
        if self.params.pooled:
            self.notes += ("counts are pooled over the steps: right only if nothing in the model depends on the step",)

    def plan(self, means: Estimate) -> Decided:
        """The best policy of the estimated model with optimistic signals."""
        spec, log = self.spec, self._log(int(means.episodes[0]) + 1)
        most = spec.H - np.arange(spec.H, dtype=float)[:, None, None]
        signals = np.minimum(means.signals + spec.H * mean_radius(means.visits, log), most)
        start = spec.H * float(hoeffding(means.episodes[0], log))
        found = plan(point(means.p, means.mu), signals[0], signals[1:], spec.rho - start, spec.allowed, spec.H)
        return Decided.by(found, start)

    def _log(self, k: int) -> float:
        """2 c ln(8 S A H (N+1) k^2 / delta)."""
        spec, p = self.spec, self.params
        return 2 * p.c * math.log(8 * spec.S * spec.A * spec.H * (spec.N + 1) * k * k / p.delta)
