"""When what happens in a run of CL-PRI with counts.

A run of K episodes has one timetable. A run of unknown length (*anytime*) is divided into stages, each with a timetable
of its own. The first stage has as many episodes as the spec says, and every later one doubles the length of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmdpkit.learners import Spec
from cmdpkit.learners.cl_pri.settings import CountsParams

SMALLEST_BLOCK = 25  # episodes between two corrections of the closed loop


@dataclass(frozen=True)
class Timetable:
    """When what happens; episodes count from 0."""

    start: int  # first episode of the stage; 0 in a run of known length
    K: int  # episodes at the end of the stage, or of the run
    explore: int  # the episode at which exploration ends at the latest
    sweep: int  # episodes of exploration between two sweeps
    freeze: int  # first episode without deviations
    hand: int  # first episode of certification
    growth: float

    @classmethod
    def of(cls, spec: Spec, p: CountsParams, cells: int, stage: int = 0, explored: int = 0) -> Timetable:
        """The timetable of a stage (from 0) in a world of so many cells, of which `explored` episodes came before."""
        start = spec.K << (stage - 1) if stage else 0
        K = spec.K << stage
        budget = max(1, min(math.ceil(p.exploration * cells), int(p.exploration_share * K)))
        explore = start + max(budget - explored, 0)
        if stage:
            explore = max(start, min(explore, math.floor(p.freeze * K)))
        hand = max(explore, math.floor(p.hand_over * K))
        freeze = min(hand, max(explore, math.ceil(p.freeze * K)))
        return cls(start, K, explore, max(1, round(budget ** (1 / 3))), freeze, hand, p.growth)

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

    def block_end(self, k: int, plan_end: int) -> int:
        """The end of a block that begins at k: blocks are short at first and, so that the loop ends well, at last."""
        longest = max(SMALLEST_BLOCK, self.K // 2000)
        size = max(SMALLEST_BLOCK, min(longest, k // 50, (self.K - k) // 10))
        return min(k + size, plan_end, self.K)

    def sample_size(self) -> int:
        """How many episodes the certificate will rest on: those of every other block from the hand-over on."""
        k, plan_end, n, chosen = self.hand, self.next_plan(self.hand), 0, True
        while k < self.K:
            end = self.block_end(k, plan_end)
            n += (end - k) * chosen
            k, chosen = end, not chosen
            if k == plan_end:
                plan_end = self.next_plan(k)
        return n
