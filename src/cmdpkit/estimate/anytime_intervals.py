"""Intervals for the mean of numbers in [0, 1] that hold at all times at once, however the numbers came about.

Let x_1, x_2, ... in [0, 1] have conditional mean m given what came before, and k = x_1 + .. + x_n. With probability at
least 1 - d, for all n at once, m lies in

    C_n = { m : k ln m + (n-k) ln(1-m) >= ln B(k+1/2, n-k+1/2) - ln pi - ln(1/d) }.

The proof is Lemma A of docs/theory/guarantees.md. C_n is an interval around k/n, because the left side is concave.
Newton's method from a point outside of the interval never enters it, for the same reason: a tangent lies above a
concave function. So every iterate is an end that holds, and rounding is met by a little more than ln(1/d).

`AllTimes` fills boxes of models with such intervals (`estimate.boxes`), and `update_ranges` those of the mean signals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import ends, of_count
from cmdpkit.model.compiled import compiled
from cmdpkit.model.tolerances import LGAMMA_ERROR, ROUNDOFF, STIRLING_ERROR
from cmdpkit.model.transitions import FloatArray, IntArray

STIRLING_FROM = 16.0  # the logarithm of the gamma function is taken from Stirling's series from here on


@compiled(inline=True)
def ends_of(k, n, log):
    """Both ends of C_n for a sum k of n numbers, with log = ln(1/d); 0 and 1 without any numbers.

    >>> low, high = ends_of(30.0, 100, math.log(20))
    >>> round(low, 3), round(high, 3), ends_of(0.0, 0, 1.0)
    (0.166, 0.463, (0.0, 1.0))
    """
    if n == 0:
        return 0.0, 1.0
    b = allowed_of(k, n, terms_of(n, log))
    return lower_end(k / n, b), upper_end(k / n, b)


@compiled
def terms_of(n, log):
    """The terms of `allowed_of` that depend on n alone, without and with Stirling's series, for n > 0."""
    log += LGAMMA_ERROR * (n + 1.0) * math.log(n + 3.0) + STIRLING_ERROR
    return log + math.log(math.pi) + _lgamma(n + 1.0), log + 0.5 * math.log(0.5 * math.pi * n) + 1.0 / (12.0 * n)


@compiled
def allowed_of(k, n, terms):
    """The largest kl(k/n, m) of any m in C_n."""
    rest = n - k
    if min(k, rest) >= STIRLING_FROM:  # the entropy of k/n cancels in Stirling's series
        return (terms[1] + (1.0 / k + 1.0 / rest) / 24.0) / n
    beyond = terms[0] - _lgamma(k + 0.5) - _lgamma(rest + 0.5)
    if k > 0.0:
        beyond += k * math.log(k / n)
    return (beyond + rest * math.log(rest / n) if rest > 0.0 else beyond) / n


@compiled
def upper_end(p, b):
    """The largest m with kl(p, m) <= b, or a little more."""
    return min(1.0 - lower_end(1.0 - p, b) + 2.0**-52, 1.0)


@compiled
def _lgamma(x):
    """The logarithm of the gamma function, by Stirling's series for x + i and the product x (x + 1) .. (x + i - 1).

    `math.lgamma` has other last bits in compiled code than in Python.
    """
    product = 1.0
    while x < STIRLING_FROM:
        product *= x
        x += 1.0
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    return (x - 0.5) * math.log(x) - x + 0.9189385332046727 + series - math.log(product)


@compiled
def lower_end(p, b):
    """The smallest m with kl(p, m) <= b, or a little less.

    Newton's method begins outside of the interval: kl(p, m) is the integral of (p-x) / (x(1-x)) from m to p, and x(1-x)
    is at most p(1-m) and at most 1/4, so that kl(p, m) is at least (p-m)^2 / (2p(1-m)) and at least 2 (p-m)^2. Where
    both would begin below 0, it begins where p ln(p/m) + (1-p) ln(1-p), which is less than kl(p, m), has reached b.
    """
    if p <= 0.0:
        return 0.0
    if p >= 1.0:
        return math.exp(-b)
    q, pb = 1.0 - p, p * b
    m = p - min(pb + math.sqrt(pb * (pb + 2.0 * q)), math.sqrt(0.5 * b))
    if m <= 0.0:
        m = p * math.exp((q * math.log(q) - b) / p)
        if m < 1e-290:
            return 0.0
    for _ in range(60):  # two are usual
        beyond = -p * math.log(m / p) - q * math.log((1.0 - m) / q) - b
        step = beyond / (p / m - q / (1.0 - m))
        if not step > 0.0:
            break
        m += step
        if step <= 0.01 * (p - m):  # the error is then less than a thousandth of the width
            break
    return m


class AllTimes(NamedTuple):
    """The intervals C_n, for `boxes.update_box`."""

    log: float  # ln(1/d)


@of_count.of(AllTimes)
def _of_count(interval, n):
    return terms_of(max(n, 1), interval.log)


@ends.of(AllTimes)
def _ends(interval, k, n, terms):
    if n == 0:
        return 0.0, 1.0
    b = allowed_of(float(k), n, terms)
    return lower_end(k / n, b), upper_end(k / n, b)


class Ranges(NamedTuple):
    """Intervals for the mean signals of all cells, with the numbers of observations that they rest on."""

    least: FloatArray  # [M, cells]: smallest mean of each signal
    most: FloatArray  # [M, cells]: the largest
    visits: IntArray  # [cells]: visits that these rest on; -1 before the first

    @classmethod
    def unknown(cls, M: int, cells: int) -> Ranges:
        """Nothing known yet."""
        return cls(np.zeros((M, cells)), np.ones((M, cells)), np.full(cells, -1))


@compiled
def update_ranges(counts, ranges, log, noiseless):
    """Fill `ranges` for all cells that were visited since. Without noise, one visit tells the signals."""
    for cell in range(len(ranges.visits)):
        n = counts.visits[cell]
        if n == ranges.visits[cell]:
            continue
        ranges.visits[cell] = n
        terms = terms_of(max(n, 1), log)
        for m in range(len(ranges.least)):
            error = n * ROUNDOFF  # of a sum of n numbers, relative to it
            low, high = counts.moments[cell, m] * (1.0 - error), counts.moments[cell, m] * (1.0 + error)
            if n == 0:
                ranges.least[m, cell], ranges.most[m, cell] = 0.0, 1.0
            elif noiseless:
                ranges.least[m, cell], ranges.most[m, cell] = max(low / n, 0.0), min(high / n, 1.0)
            else:
                high = min(high, float(n))
                ranges.least[m, cell] = lower_end(low / n, allowed_of(low, n, terms))
                ranges.most[m, cell] = upper_end(high / n, allowed_of(high, n, terms))
