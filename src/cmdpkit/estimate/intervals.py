"""Confidence intervals from data alone: what a number of episodes of one policy says about its value and utilities.

The episodes must be independent and of a policy that was fixed before the first of them. Nothing else is assumed but
the range of an episode's total, which is from 0 to H in unit scale. Each of the 1 + N totals has an interval by betting
(`betting`) with its part of delta, so that all intervals hold together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.betting import LEAST_BET_LIMIT, betting_interval
from cmdpkit.model.transitions import FloatArray

LEAST_BATCHES = 10  # with fewer, the spread of batches is a guess


class Part(NamedTuple):
    """How much of a gap is due to what is not known about one cell."""

    step: int | None  # counting from 0; None where all steps share their counts
    state: int  # its index
    action: int  # its index
    visits: int  # how often the action was taken
    amount: float  # in unit scale


class Intervals(NamedTuple):
    """Simultaneous confidence intervals for the expected totals of one policy, in unit scale."""

    level: float  # all of them hold with at least this probability
    episodes: int  # how many episodes they rest on; without episodes, how many steps
    intervals: tuple[tuple[float, float], ...]  # [1+N]: lower and upper end for the value and for each utility
    approximate: bool = False  # whether the level is only approximate; without episodes, the intervals are per step
    best: float = math.inf  # no policy within the bounds has a larger value; minus infinity if none keeps them
    parts: tuple[Part, ...] = ()  # the largest parts of `best` less the lower end of the value, largest first


def simultaneous(totals: FloatArray, width: float, delta: float, *, planned: int, each: int = 1) -> Intervals:
    """Intervals for several expectations that hold together at level 1 - delta; each gets an equal part of delta.

    Row i of totals [n, 1+N] is the mean of the totals of `each` episodes, with entries in [0, width]. The intervals
    hold at any stopping time if `planned`, the number of rows that the bets are made for, was fixed before the first.

    >>> import numpy as np
    >>> found = simultaneous(np.full((100, 2), 1.5), 3.0, 0.1, planned=100)
    >>> found.level, found.episodes, [f"{low:.2f} to {high:.2f}" for low, high in found.intervals]
    (0.9, 100, ['1.44 to 1.56', '1.44 to 1.56'])
    """
    if not 0 < delta < 1:
        raise CmdpkitError(f"delta is {delta!r}, expected a number between 0 and 1")
    n, M = totals.shape
    ends = [betting_interval(totals[:, m] / width, delta / M, planned) for m in range(M)]
    return Intervals(1 - delta, each * n, tuple((width * low, width * high) for low, high in ends))


def half_width(n: int, variance: float, width: float, delta: float) -> float:
    """About how far an interval by betting reaches to either side, from n >= 2 totals in [0, width] of that variance.

    A bet of b excludes what is L / (n b) + b variance / 2 away from the mean, with L = log(2 / delta). This is the
    figure for the bets that would be made if the variance were known, and it errs on the side of width.
    """
    log, spread = math.log(2 / delta), (0.25 + n * max(variance, 0.0) / width**2) / (n + 1)
    bet = min(math.sqrt(2 * log / (n * spread)), LEAST_BET_LIMIT)
    return width * (log / (n * bet) + bet * spread / 2)


def margin_for_certificate(sd: FloatArray, H: int, delta: float, planned: int) -> FloatArray:
    """[N]: how far inside its bounds a policy must be for its certificate to say so, if totals spread by sd [N]."""
    n, part = max(planned, 2), delta / (1 + len(sd))
    return np.array([2 * half_width(n, float(x) ** 2, float(H), part) for x in sd])


def batch_intervals(means: FloatArray, steps: int, delta: float) -> Intervals | None:
    """Intervals per step that hold together at about 1 - delta, from means [B, 1+N] of B blocks of `steps` steps.

    The means of separate blocks are treated as independent and normal with one unknown spread, so that Student's t
    gives the intervals. They come near that if a block is much longer than the world remembers where it began. Nothing
    here proves that it is, and so the intervals are called approximate. Signals are in unit scale. With fewer than
    LEAST_BATCHES blocks there are no intervals.

    >>> import numpy as np
    >>> found = batch_intervals(np.tile([[0.4], [0.6]], (10, 1)), 2000, 0.05)
    >>> [f"{low:.3f} to {high:.3f}" for low, high in found.intervals]
    ['0.452 to 0.548']
    """
    B, M = means.shape
    if B < LEAST_BATCHES:
        return None
    middle = means.mean(axis=0)
    half = stdtrit(B - 1, 1 - delta / (2 * M)) * means.std(axis=0, ddof=1) / np.sqrt(B)
    low, high = np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
    ends = tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))
    return Intervals(1 - delta, steps, ends, approximate=True)
