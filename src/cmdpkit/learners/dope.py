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
from typing import Any, NamedTuple

from cmdpkit.estimate.radii import bernstein, confidence_box, mean_radius, start_bonus, transition_bonus
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Belief, Decided, ModelBased
from cmdpkit.learners._model_based.planning import SafePolicy
from cmdpkit.learners._model_based.settings import SafePlanning, logs
from cmdpkit.learners.params import not_negative
from cmdpkit.model.transitions import FloatArray


@dataclass(frozen=True)
class DOPEParams(SafePlanning):
    """Settings of DOPE and OPSRL."""

    warm_up: float = not_negative(1.0)  # the baseline is played in the first warm_up * S^2 A H^4 / slack_b^2 episodes


class Pessimism(NamedTuple):
    """How DOPE and OPSRL plan."""

    baseline: SafePolicy
    kernel_log: float  # L
    mean_log: float  # inside beta_l
    warm_up: float  # K0
    notes: tuple[str, ...]  # where the baseline is played throughout

    @classmethod
    def of(cls, spec: Spec, p: DOPEParams, baseline: SafePolicy) -> Pessimism:
        """By the settings p, with the margin of this baseline."""
        S, A, H, K = spec.S, spec.A, spec.H, spec.K
        kernel_log, mean_log = p.c * math.log(2 * S * A * H * K / p.delta), logs(spec, p)[1]
        warm_up = p.warm_up * S**2 * A * H**4 / baseline.margin**2
        # Of a pair with one successor.
        least = H * (bernstein(1.0, K, kernel_log) + (S - 1) * bernstein(0.0, K, kernel_log))
        notes = baseline.doubt(spec, H * math.sqrt(mean_log / K) + (H - 1) * least, baseline.margin)
        if warm_up >= K and not notes:
            notes = (f"the baseline is played in the first {warm_up:.3g} episodes, hence throughout",)
        return cls(baseline, kernel_log, mean_log, warm_up, notes)

    def plan(self, learner: ModelBased, belief: Belief, weights: tuple[float, float]) -> Decided:
        """The baseline, or the best policy whose pessimistic utilities reach the bounds in some model of the box.

        The reward is raised by the weights times beta_l and B.
        """
        spec, counts = learner.spec, belief.counts
        if belief.episodes < self.warm_up:
            return self.baseline.plan()
        signal = mean_radius(belief.visits, self.mean_log)
        transition = transition_bonus(counts, spec.H, spec.A, self.kernel_log)
        x = belief.signals - signal - spec.H * transition
        x[0] = belief.signals[0] + weights[0] * signal + weights[1] * transition
        box = confidence_box(counts, spec.H, spec.A, self.kernel_log)
        start = spec.H * start_bonus(counts.starts, self.kernel_log)
        return self.baseline.unless(learner.best(box, x, spec.rho + start))


class DOPE(ModelBased):
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
    needs = ("baseline", "baseline_utility")
    params: DOPEParams

    def __init__(self, spec: Spec, *, baseline: Any = None, baseline_utility: Any = None, **params: Any) -> None:
        super().__init__(spec, **params)
        self.pessimism = Pessimism.of(spec, self.params, SafePolicy.of(spec, baseline, baseline_utility))
        self.notes, p, margin = self.pessimism.notes, self.params, self.pessimism.baseline.margin
        self.weights = p.bonus * 3.0 * spec.H / margin, p.bonus * spec.H * spec.H / margin

    def plan(self, belief: Belief) -> Decided:
        """The safe plan whose reward is raised by bonuses for unknown signals and transitions."""
        return self.pessimism.plan(self, belief, self.weights)

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of a plan with everything seen so far: shown to be safe, or the baseline."""
        return self.plan(self.believed()).pi.copy()
