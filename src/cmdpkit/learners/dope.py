"""DOPE: never unsafe; optimistic about rewards and the kernel, pessimistic about utilities.

Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "DOPE: Doubly Optimistic and Pessimistic Exploration for Safe
Reinforcement Learning" (NeurIPS 2022, arXiv 2112.00885). The extended LP of OptCMDP with utilities lowered by H B, so
that the bounds hold whatever model of the box is the true one, and rewards raised by (H^2 / slack_b) B, so that the
plan still promises at least the optimum; B = sum_s' beta_p. While the LP is infeasible, the baseline is played.

Needs: a safe policy `baseline` and its utilities `baseline_utility`. Output: the current policy.

Symbols: L = ln(2 S A H K / delta) = `kernel_log`; beta_p = 2 sqrt(p_hat (1 - p_hat) L / n) + (14/3) L / n; beta_l =
radius of unknown signals; slack_b = `margin`; K0 = S^2 A H^4 / slack_b^2 = `warm_up`.

Departures: those of all planners (`_model_based`); slack_b is the least of the baseline's margins; the paper gives K0
up to logarithms; the radius of unknown signals has the weights 3 H / slack_b and 1; the start distribution has its own
box and raises the thresholds by its own term; `bonus` multiplies what the reward is raised by, so that optimism and
pessimism can be scaled apart.
"practical": no warm-up (whether the LP is feasible is test enough); c = 1e-3 and bonus = 0.1. Nothing promises that it
is safe elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cmdpkit.estimate.radii import bernstein, confidence_box, mean_radius, start_bonus, transition_bonus
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Belief, Decided, SafePlanner
from cmdpkit.learners._model_based.settings import SafePlanning, logs
from cmdpkit.learners.params import not_negative


@dataclass(frozen=True)
class DOPEParams(SafePlanning):
    """Settings of DOPE and OPSRL."""

    warm_up: float = not_negative(1.0)  # the baseline is played in the first warm_up * S^2 A H^4 / slack_b^2 episodes


class DOPE(SafePlanner):
    """DOPE at work; keyword arguments other than preset and baseline change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "dope", episodes=500, preset="theory")
    >>> run.internals["baseline_episodes"]
    500
    """

    title = "DOPE: never unsafe; optimistic about rewards and the kernel, pessimistic about utilities."
    guarantee = (
        "with probability 1 - delta no policy played is ever unsafe; regret of order (H^3 / slack_b) S sqrt(A K)"
    )
    paper = "arXiv 2112.00885"
    source = "authors' code"
    presets = {"practical": DOPEParams(replan="need", c=1e-3, bonus=0.1, warm_up=0.0), "theory": DOPEParams()}
    params: DOPEParams

    def __init__(self, spec: Spec, **given: Any) -> None:
        super().__init__(spec, **given)
        p, (S, A, H, K) = self.params, (spec.S, spec.A, spec.H, spec.K)
        self.kernel_log, self.mean_log = p.c * math.log(2 * S * A * H * K / p.delta), logs(spec, p)[1]
        self.warm_up = p.warm_up * S**2 * A * H**4 / self.margin**2
        self.weights = p.bonus * 3.0 * H / self.margin, p.bonus * H * H / self.margin  # of beta_l and B in the reward
        # Of a pair with one successor.
        least = H * (bernstein(1.0, K, self.kernel_log) + (S - 1) * bernstein(0.0, K, self.kernel_log))
        self.notes = self.doubt(H * math.sqrt(self.mean_log / K) + (H - 1) * least, self.margin)
        if self.warm_up >= K and not self.notes:
            self.notes = (f"the baseline is played in the first {self.warm_up:.3g} episodes, hence throughout",)

    def plan(self, belief: Belief) -> Decided:
        """The baseline, or the best policy whose pessimistic utilities reach the bounds in some model of the box."""
        spec, counts = self.spec, belief.counts
        if belief.episodes < self.warm_up:
            return self.to_baseline()
        signal = mean_radius(belief.visits, self.mean_log)
        transition = transition_bonus(counts, spec.H, spec.A, self.kernel_log)
        x = belief.signals - signal - spec.H * transition
        x[0] = belief.signals[0] + self.weights[0] * signal + self.weights[1] * transition
        box = confidence_box(counts, spec.H, spec.A, self.kernel_log)
        start = spec.H * start_bonus(counts.starts, self.kernel_log)
        return self.best_or_baseline(box, x, spec.rho + start)
