"""What all forms of CL-PRI and MF-PRI share: their timetable, and the debt against the bounds that a block repays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cmdpkit.learners.params import Params, probability, ruled
from cmdpkit.model.tolerances import NO_SPREAD, REPAID
from cmdpkit.model.transitions import FloatArray


@dataclass(frozen=True)
class LoopParams(Params):
    """The parameters that all of them have."""

    delta: float = probability(0.05)  # error probability of the certificate; a convention
    # Share of the run after which nothing new is tried. In the first half of the rest the policy settles, in the second
    # half it is fixed and certified.
    freeze: float = ruled("above 0 and below 1", lambda x: 0 < x < 1)(0.8)

    @property
    def hand_over(self) -> float:
        """Share of the run after which the policy is fixed and certified."""
        return (1 + self.freeze) / 2

    @property
    def growth(self) -> float:
        """Length of a block as a share of the episodes or steps played or left, whichever are fewer.

        It is the share of the run that is left after the hand-over.
        """
        return 1 - self.hand_over


@dataclass(frozen=True)
class Timetable:
    """When what happens in a run of K episodes, or in a stage of a run of unknown length; episodes count from 0.

    The first stage has as many episodes as the spec says, and every later one doubles the length of the run.
    """

    start: int  # first episode of the stage; 0 in a run of known length
    K: int  # episodes at the end of the stage, or of the run
    explore: int  # the episode at which exploration ends at the latest
    freeze: int  # first episode without tries
    hand: int  # first episode of certification
    growth: float  # of the blocks

    def block_end(self, k: int) -> int:
        """The end of a block that begins at k: blocks are short at first and, so that the loop ends well, at last."""
        size = max(1, math.ceil(self.growth * min(k, self.K - k)))
        return min(k + size, *(x for x in (self.freeze, self.hand, self.K) if x > k))

    def sample_size(self, k: int = 0) -> int:
        """How many of the episodes from k on are for the certificate: every other block from the hand-over on."""
        n, chosen = 0, k <= self.hand
        k = max(k, self.hand)
        while k < self.K:
            end = self.block_end(k)
            n += (end - k) * chosen
            k, chosen = end, not chosen
        return n


class Account(NamedTuple):
    """How the realised totals compare with the bounds, and what is left to repay a debt with."""

    short: FloatArray  # [N]: by how much the totals of all episodes fall short of the bounds
    left: float  # episodes left that can repay
    sampled: float  # episodes left that play the policy handed over, for its certificate
    surplus: FloatArray  # [N]: by how much that policy exceeds the bounds; 0 before it is fixed


def owed(account: Account, sd: FloatArray, gain: FloatArray, z: float) -> FloatArray:
    """[N]: by how much an episode must exceed the bounds, to repay the debt and a reserve over all that can repay.

    The reserve covers z standard deviations sd [N] of bad luck in the last m episodes, beyond what half of these can
    make up for by exceeding the bounds by `gain` [N]; m is the number for which that is most.
    """
    lasting = np.maximum(gain + account.surplus, NO_SPREAD) / 2  # at the end, every other block repays
    m = np.minimum((z * sd / (2 * lasting)) ** 2, account.left + account.sampled)
    reserve = np.maximum(z * sd * np.sqrt(1 + m) - lasting * m, 0.0)
    debt = account.short + reserve + REPAID - account.sampled * account.surplus
    rate: FloatArray = debt / max(account.left, 1.0)
    return rate
