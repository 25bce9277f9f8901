"""Planners that play a known safe policy, the baseline, until they can prove another one safe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cmdpkit.estimate.belief import Belief
from cmdpkit.estimate.boxes import mean_radius, start_bonus, total_radius
from cmdpkit.estimate.extended import plan
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.baseline import policy_of, utilities_of
from cmdpkit.learners._model_based.planner import Decided, Planner
from cmdpkit.learners._model_based.settings import SafePlanning, logs
from cmdpkit.model.transitions import FloatArray


class SafePlanner(Planner):
    """A planner that knows a safe policy, the baseline pi [H, S, A], and its utilities.

    `margin` is the least amount by which the baseline exceeds a bound.
    """

    needs: ClassVar[tuple[str, ...]] = ("baseline", "baseline_utility")
    params: SafePlanning

    def __init__(
        self,
        spec: Spec,
        *,
        preset: str | None = None,
        baseline: Any = None,
        baseline_utility: Any = None,
        **params: Any,
    ) -> None:
        super().__init__(spec, preset=preset, **params)
        self.baseline = policy_of(spec, baseline)
        self.baseline_utility = utilities_of(spec, baseline_utility)
        self.margin = float((self.baseline_utility - spec.rho).min(initial=np.inf))

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of a plan with everything seen so far: shown to be safe, or the baseline."""
        return self.plan(self.believed()).pi.copy()

    def fall_back(self) -> Decided:
        """The baseline."""
        return Decided(self.baseline, np.zeros(self.spec.N), np.nan, baseline=True)

    def _doubt(self, pessimism: float, needed: float) -> tuple[str, ...]:
        """A note where even K visits of every pair leave more pessimism than the baseline's margin allows."""
        if pessimism < needed:
            return ()
        H = self.spec.H
        return (
            f"even after K = {self.spec.K} visits of a pair the utilities of an episode are lowered by "
            f"{pessimism / H:.1%} of their largest possible range, and only {needed / H:.1%} would let it leave the "
            "baseline: it will be played throughout",
        )


@dataclass(frozen=True)
class SafeBoxPlanning(SafePlanning):
    """Settings of OPSRL and DOPE."""

    warm_up: float = 1.0  # the baseline is played in the first warm_up * S^2 A H^4 / slack_b^2 episodes

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("warm_up", 0 <= self.warm_up < math.inf, "a finite number, at least 0")


class SafeBoxPlanner(SafePlanner):
    """What OPSRL and DOPE share: they plan in the best model of a box, with utilities lowered by H sum beta_p.

    While no policy meets the bounds that way, they play the baseline.
    """

    params: SafeBoxPlanning
    boxed = True
    raises_by_transitions: ClassVar[bool]  # whether the reward is raised by (H^2 / slack_b) sum beta_p as well

    def __init__(self, spec: Spec, *, preset: str | None = None, **given: Any) -> None:
        super().__init__(spec, preset=preset, **given)
        p, (S, A, H, K) = self.params, (spec.S, spec.A, spec.H, spec.K)
        self.kernel_log = p.c * math.log(2 * S * A * H * K / p.delta)
        self.mean_log = logs(spec, p)[1]
        self.warm_up = p.warm_up * S**2 * A * H**4 / self.margin**2
        self.reward_weights = [p.bonus * x * H / self.margin for x in (3.0, H * self.raises_by_transitions)]
        least = H * float(total_radius(np.eye(1, S)[0], K, self.kernel_log))  # of a pair with one successor
        pessimism = H * math.sqrt(self.mean_log / K) + (H - 1) * least
        self.notes = self._doubt(pessimism, self.margin)
        if self.warm_up >= K and not self.notes:
            self.notes = (f"the baseline is played in the first {self.warm_up:.3g} episodes, hence throughout",)

    def plan(self, belief: Belief) -> Decided:
        """The baseline, or the best policy whose pessimistic utilities reach the bounds in some model of the box."""
        spec, means = self.spec, belief.means
        if means.episodes[0] < self.warm_up:
            return self.fall_back()
        signal = mean_radius(means.visits, self.mean_log)
        transition = belief.transition_bonus(spec.H)
        r = means.r + self.reward_weights[0] * signal + self.reward_weights[1] * transition
        g = means.g - signal - spec.H * transition
        rho = spec.rho + spec.H * start_bonus(means, self.kernel_log)
        found = plan(belief.box, r, g, rho, spec.allowed, spec.H, guess=self.playing.lam)
        return Decided.by(found) if found.feasible else self.fall_back()
