"""What CL-PRI and MF-PRI share: their timetable, and the debt against the bounds that every block repays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cmdpkit.model.tolerances import NO_SPREAD, REPAID
from cmdpkit.model.transitions import FloatArray


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

    def sample_size(self) -> int:
        """How many episodes the certificate will rest on: those of every other block from the hand-over on."""
        k, n, chosen = self.hand, 0, True
        while k < self.K:
            end = self.block_end(k)
            n += (end - k) * chosen
            k, chosen = end, not chosen
        return n


class Account(NamedTuple):
    """How what was realised compares with the bounds."""

    short: FloatArray  # [N]: by how much the totals of all episodes fall short of the bounds
    left: int  # episodes that are left
    final: FloatArray | None  # [N]: by how much the policy of every other block exceeds the bounds, if there is one


def owed(account: Account, sd: FloatArray, gain: FloatArray, z: float) -> FloatArray:
    """[N]: by how much an episode must exceed the bounds, to repay the debt and a reserve over all that are left.

    The reserve covers z standard deviations sd [N] of bad luck in the last m episodes, beyond what half of these can
    make up for by exceeding the bounds by `gain` [N]; m is the number for which that is most.
    """
    left, final = float(account.left), account.final
    lasting = np.maximum(gain if final is None else gain + final, NO_SPREAD) / 2  # at the end, every other block repays
    m = np.minimum((z * sd / (2 * lasting)) ** 2, left)
    debt = account.short + np.maximum(z * sd * np.sqrt(1 + m) - lasting * m, 0.0) + REPAID
    if final is not None:  # only every other block repays
        left = left / 2
        debt = debt - left * final
    rate: FloatArray = debt / max(left, 1.0)
    return rate
