"""The timetable of MF-PRI: pure functions of what is known before the first episode.

Episodes are divided, by their numbers alone, into a warm-up, epochs that end with an improvement, and certification;
epochs into blocks that play one policy each. So a run can be stopped and resumed anywhere, and the number of looks at
the data, which the error budget of the tests needs, is known in advance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cmdpkit.learners import Spec
from cmdpkit.learners.mf_pri.settings import ModelFreeParams

MAX_BATCHES = 16_384  # rows of returns that are kept for the certificate


class MfPriTimetable(NamedTuple):
    """When what happens; episodes count from 0."""

    K: int  # episodes of the whole run
    cells: int  # number of cells that are learned about in the warm-up: actions by state and, if it matters, by step
    warm: int  # episodes of warm-up
    freeze: int  # first episode without exploration
    hand: int  # first episode of certification
    ends: tuple[int, ...]  # episodes at which epochs end; the last one is `hand`
    longest: int  # episodes of the longest block
    shortest: int = 100  # episodes of the shortest block
    repay: int = 10  # blocks over which the closed loop repays a debt
    batch: int = 1  # episodes of the certificate whose returns are averaged, so that memory does not grow with them
    batches: int = 0  # how many averages that makes; what is left over is not used

    def block(self, k: int) -> int:
        """Length of a block that begins at episode k: short at first and, so that the loop ends well, at last."""
        return max(self.shortest, min(self.longest, k // 50, (self.K - k + self.repay - 1) // self.repay))

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names and first episodes."""
        named = (("warm-up", 0), ("improvement", self.warm), ("settling", self.freeze), ("certification", self.hand))
        return tuple((name, first) for i, (name, first) in enumerate(named) if i == 0 or first > named[i - 1][1])


def timetable(spec: Spec, p: ModelFreeParams) -> MfPriTimetable:
    """The timetable of a run of spec.K episodes."""
    K, pairs = spec.K, int(spec.allowed.sum())
    cells = int(spec.allowed.any(axis=0).sum()) if spec.stationary else pairs
    warm = max(1, min(math.ceil(p.warm_up * cells), K // 4))
    hand = max(warm, math.floor(p.hand_over * K))
    freeze = min(hand, max(warm, math.ceil(p.freeze * K)))
    ends, k, length = [], warm, float(max(p.epoch, 4 * pairs))
    while k < hand:
        n = int(min(length, max(K // 40, 2 * p.epoch)))
        k = hand if hand - k < 1.5 * n else k + n
        ends.append(k)
        length *= p.growth
    table = MfPriTimetable(K, cells, warm, freeze, hand, tuple(ends), max(p.block, K // 2000), p.block, p.repay_blocks)
    certified = _certified(table)
    batch = max(1, math.ceil(certified / MAX_BATCHES))
    return table._replace(batch=batch, batches=certified // batch)


def _certified(table: MfPriTimetable) -> int:
    """Number of episodes of the certificate: those of every other block after the policy is fixed."""
    found, k, certifying = 0, table.hand, True
    while k < table.K:
        size = min(table.block(k), table.K - k)
        found += size * certifying
        k, certifying = k + size, not certifying
    return found
