"""Parameters of Dual-Q: what they mean, and the rule that sets them from a `Spec` alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmdpkit.learners import Params, Spec


@dataclass(frozen=True)
class DualQParams(Params):
    """Numbers that do not change during a run, in unit scale."""

    frame: int  # episodes between two steps of the prices
    eta: float  # step of a price per episode and unit of shortfall
    lam_start: float  # price of every constraint before the first step
    lam_max: float  # largest price
    explore: float  # probability of a random action at first
    explore_for: float  # episodes after which it fades like 1/sqrt(k)

    def __post_init__(self) -> None:
        for name in ("frame", "eta", "lam_max", "explore_for"):
            self._expect(name, getattr(self, name) > 0, "more than 0")
        self._expect("lam_start", 0 <= self.lam_start <= self.lam_max, f"a number from 0 to lam_max = {self.lam_max}")
        self._expect("explore", 0 <= self.explore <= 1, "a probability")


def practical(spec: Spec) -> DualQParams:
    """One rule for all instances, the best of 12 by the common rule of choice (docs/algorithms/model-based.md)."""
    return DualQParams(
        frame=math.ceil(spec.K ** (1 / 3)),
        eta=2 / (spec.H * math.sqrt(spec.K)),
        lam_start=1.0,
        lam_max=10.0,
        explore=0.03,
        explore_for=10.0 * int(spec.allowed.sum()),
    )
