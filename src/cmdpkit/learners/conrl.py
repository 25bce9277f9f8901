"""CONRL: plan in the estimated model, with a simple bonus on counts.

Brantley, Dudik, Lykouris, Miryoosefi, Simchowitz, Slivkins, Sun, "Constrained episodic reinforcement learning in
concave-convex and knapsack settings" (arXiv 2006.05051), basic setting. Rewards and utilities get the bonus
b_k = H sqrt(2 ln(8 S A H (N+1) k^2 / delta) / n(s, a)), which covers the error of the estimated kernel too, and the
plan is the plain occupancy LP.

Guarantee of the authors (their poster): *signed* average regret and violation of order S sqrt(A H^3) / sqrt(k) over k
episodes, which is S sqrt(A H^3 K) in total. Table 1 of arXiv 2309.15395 quotes H^3 sqrt(S^3 A^2 K).

The paper assumes that nothing in the model depends on the step, and pools its counts over the steps. Here that is done
where the world is declared stationary; elsewhere every step has counts of its own. Output: the current policy.

Symbols: n(s, a) = `Belief.visits`; k = episodes seen + 1.

Departures: those of all planners (`_model_based`); the order H / sqrt(n) of the bonus is the authors', the inside of
its logarithm is ours; plans by an LP (the published code uses a Lagrangian heuristic); before the last step, n counts
only visits whose next state was seen; the start distribution lowers the thresholds by its own bonus; signals with their
bonus are cut at H - h, which keeps them optimistic. "practical": c = 1e-5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.estimate.radii import hoeffding, mean_radius
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Belief, Decided, OptimisticPlanner
from cmdpkit.learners._model_based.settings import RadiusSettings, WithMargin, even_visits, on_bonus


@dataclass(frozen=True)
class CONRLParams(RadiusSettings, WithMargin):
    """Settings of CONRL."""


class CONRL(OptimisticPlanner):
    """CONRL at work; keyword arguments other than the preset change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("streaming", "conrl", episodes=1000)
    >>> run.internals["counts"]
    'shared by all steps'
    """

    title = "CONRL: plan in the estimated model, with a simple bonus on counts."
    guarantee = (
        "regret and violation of order S sqrt(A H^3 K), with probability 1 - delta, if transitions, rewards and "
        "utilities do not depend on the step"
    )
    paper = "arXiv 2006.05051"
    source = "authors' code"
    presets = {"practical": CONRLParams(replan="need", c=1e-5), "theory": CONRLParams()}
    params: CONRLParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.notes = on_bonus(spec, spec.H * hoeffding(even_visits(spec), self._log(spec.K)))

    def plan(self, belief: Belief) -> Decided:
        """The best policy of the estimated model with optimistic signals."""
        spec, log = self.spec, self._log(belief.episodes + 1)
        most = spec.H - np.arange(spec.H, dtype=float)[:, None, None]
        radius = np.broadcast_to(mean_radius(belief.moved, log), spec.allowed.shape).copy()
        radius[-1] = mean_radius(belief.visits[-1:], log)[0]  # no transition follows the last step
        start = spec.H * hoeffding(belief.episodes, log)
        return self.best(belief.model, np.minimum(belief.signals + spec.H * radius, most), spec.rho - start, start)

    def _log(self, k: int) -> float:
        """2 c ln(8 S A H (N+1) k^2 / delta)."""
        spec, p = self.spec, self.params
        return 2 * p.c * math.log(8 * spec.S * spec.A * spec.H * (spec.N + 1) * k * k / p.delta)
