"""Confidence bounds from data alone: what a number of episodes of one policy says about its value and utilities.

The episodes must be independent and of a policy that was fixed before the first of them; then nothing is assumed but
the range of an episode's total. The bound is the empirical Bernstein inequality of Maurer and Pontil (COLT 2009,
theorem 4): for n independent numbers in [0, width] with mean m and unbiased sample variance V, with probability at
least 1 - d

    E <= m + sqrt(2 V ln(2/d) / n) + 7 width ln(2/d) / (3 (n - 1)).

Applied to both sides and to all 1 + N totals, each with its part of delta, all intervals hold together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import FloatArray


class Intervals(NamedTuple):
    """Simultaneous confidence intervals for the expected totals of one policy, in unit scale."""

    level: float  # all of them hold with at least this probability
    episodes: int  # how many episodes they rest on
    intervals: tuple[tuple[float, float], ...]  # [1+N]: lower and upper end for the value and for each utility


def empirical_bernstein(n: int, mean: float, variance: float, width: float, delta: float) -> tuple[float, float]:
    """Interval for the expectation of numbers in [0, width], from n of them, at level 1 - delta.

    >>> low, high = empirical_bernstein(10_000, mean=1.5, variance=0.2, width=3.0, delta=0.05)
    >>> print(f"{low:.4f} {high:.4f}")
    1.4837 1.5163
    >>> empirical_bernstein(1, mean=1.5, variance=0.0, width=3.0, delta=0.05)
    (0.0, 3.0)
    """
    if not 0 < delta < 1:
        raise CmdpkitError(f"delta is {delta!r}, expected a number between 0 and 1")
    if n < 2:
        return 0.0, width
    radius = half_width(n, variance, width, delta)
    return max(0.0, mean - radius), min(width, mean + radius)


def half_width(n: int, variance: float, width: float, delta: float) -> float:
    """How far the empirical Bernstein interval of n >= 2 numbers in [0, width] reaches to either side of their mean."""
    log = math.log(4 / delta)
    return math.sqrt(2 * max(variance, 0.0) * log / n) + 7 * width * log / (3 * (n - 1))


def simultaneous(n: int, means: FloatArray, variances: FloatArray, width: float, delta: float) -> Intervals:
    """Intervals for several expectations that hold together at level 1 - delta: each gets an equal part of delta."""
    part = delta / len(means)
    each = (empirical_bernstein(n, float(m), float(v), width, part) for m, v in zip(means, variances, strict=True))
    return Intervals(1 - delta, n, tuple(each))
