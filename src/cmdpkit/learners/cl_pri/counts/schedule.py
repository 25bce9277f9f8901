"""When what happens in a run of CL-PRI with counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmdpkit.learners import Spec
from cmdpkit.learners.cl_pri.settings import CountsParams

SMALLEST_BLOCK = 25  # episodes between two corrections of the closed loop


@dataclass(frozen=True)
class Timetable:
    """When what happens; episodes count from 0."""

    K: int
    explore: int  # episodes of exploration at most
    sweep: int  # episodes of exploration between two sweeps
    freeze: int  # first episode without deviations
    hand: int  # first episode of certification
    growth: float

    @classmethod
    def of(cls, spec: Spec, p: CountsParams, cells: int) -> Timetable:
        """The timetable of a run of spec.K episodes in a world of so many cells."""
        K = spec.K
        explore = max(1, min(math.ceil(p.exploration * cells), int(p.exploration_share * K)))
        hand = max(explore, math.floor(p.hand_over * K))
        freeze = min(hand, max(explore, math.ceil(p.freeze * K)))
        return cls(K, explore, max(1, round(explore ** (1 / 3))), freeze, hand, p.growth)

    def next_check(self, k: int) -> int:
        """The next episode at which exploration looks whether it is still needed."""
        return min(self.explore, max(k + 10, math.ceil(1.3 * k)))

    def next_plan(self, k: int) -> int:
        """The next episode at which a new plan is made."""
        longest = max(self.K // 20, SMALLEST_BLOCK)
        then = k + min(max(math.ceil((self.growth - 1) * k), SMALLEST_BLOCK), longest)
        for stop in (self.freeze, self.hand):
            if k < stop < then + SMALLEST_BLOCK:
                return stop
        return then

    def block(self, k: int) -> int:
        """Length of a block that begins at episode k: short at first and, so that the loop ends well, at last."""
        longest = max(SMALLEST_BLOCK, self.K // 2000)
        return max(SMALLEST_BLOCK, min(longest, k // 50, (self.K - k) // 10))
