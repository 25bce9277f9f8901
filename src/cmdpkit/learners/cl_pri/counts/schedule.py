"""Parameters of closed-loop PRI with counts, and when what happens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmdpkit.learners import Params, Spec
from cmdpkit.model.validate import MIN_DELTA

SMALLEST_BLOCK = 25  # episodes between two corrections of the closed loop


@dataclass(frozen=True)
class CountsParams(Params):
    """Numbers that do not change during a run; one setting for all problems."""

    memory: str = "counts"  # this variant counts transitions
    delta: float = 0.05  # error budget: of all tests of actions together, and of the certificate
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    exploration: float = 10.0  # episodes of exploration per cell, at most
    exploration_share: float = 0.3  # of the run that exploration may take
    deviations: float = 0.6  # per episode: deviations * (noise / loss) * sqrt(cells / k), at most 1/2
    growth: float = 1.2  # of the number of episodes from one plan to the next
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified

    def __post_init__(self) -> None:
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        self._expect("exploration", self.exploration > 0, "more than 0")
        self._expect("exploration_share", 0 < self.exploration_share <= self.freeze, "above 0, at most freeze")
        self._expect("deviations", self.deviations >= 0, "at least 0")
        self._expect("growth", self.growth > 1, "more than 1")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, "above 0, at most hand_over")
        self._expect("hand_over", self.hand_over < 1, "less than 1")


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
