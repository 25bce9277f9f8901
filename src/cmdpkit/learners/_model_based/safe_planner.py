"""Planners that play a known safe policy until they can prove another one safe."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.baseline import policy_of, utilities_of
from cmdpkit.learners._model_based.planner import Decided, Planner
from cmdpkit.model.transitions import FloatArray


class SafePlanner(Planner):
    """A planner that knows a safe policy, the baseline pi [H, S, A], and its utilities.

    `margin` is the least amount by which the baseline exceeds a bound.
    """

    needs: ClassVar[tuple[str, ...]] = ("baseline", "baseline_utility")

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
