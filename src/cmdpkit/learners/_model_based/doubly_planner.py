"""What OPSRL and DOPE share: they plan in the best model of a box with pessimistic utilities.

While no policy meets the bounds that way, they play the baseline.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.planner import Decided
from cmdpkit.learners._model_based.safe_planner import SafePlanner
from cmdpkit.learners._model_based.settings import Radii
from cmdpkit.learners._planning.belief import Belief
from cmdpkit.learners._planning.confidence import mean_log, mean_radius, start_bonus, total_radius
from cmdpkit.learners._planning.extended import plan


@dataclass(frozen=True)
class Doubly(Radii):
    """Settings of OPSRL and DOPE."""

    bonus: float = 1.0  # times the theory's bonus on the reward
    warm_up: float = 1.0  # the baseline is played in the first warm_up * S^2 A H^4 / slack_b^2 episodes

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("bonus", 0 <= self.bonus < math.inf, "a finite number, at least 0")
        self._expect("warm_up", 0 <= self.warm_up < math.inf, "a finite number, at least 0")


class DoublyPlanner(SafePlanner):
    """Plans in a box of kernels with utilities lowered by H sum beta_p; the algorithm says what the reward gains."""

    params: Doubly
    boxed = True

    def __init__(self, spec: Spec, *, preset: str | None = None, **given: Any) -> None:
        super().__init__(spec, preset=preset, **given)
        p, (S, A, H, K) = self.params, (spec.S, spec.A, spec.H, spec.K)
        self.kernel_log = p.c * math.log(2 * S * A * H * K / p.delta)
        self.mean_log = 0.0 if p.deterministic else mean_log(S, A, H, spec.N, K, p.delta, p.c)
        self.warm_up = p.warm_up * S**2 * A * H**4 / self.margin**2
        self.reward_weights = [p.bonus * weight * H / self.margin for weight in self.reward_bonus()]
        least = H * float(total_radius(np.eye(1, S)[0], K, self.kernel_log))  # of a pair with one successor
        pessimism = H * math.sqrt(self.mean_log / K) + (H - 1) * least
        self.notes = self._doubt(pessimism, self.margin)
        if self.warm_up >= K and not self.notes:
            self.notes = (f"the baseline is played in the first {self.warm_up:.3g} episodes, hence throughout",)

    @abstractmethod
    def reward_bonus(self) -> tuple[float, float]:
        """Weights of beta_l and of sum beta_p in the bonus of the reward, both times H / slack_b."""

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
