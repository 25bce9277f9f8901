"""How far frequencies and means can be from the truth: radii of papers, bonuses, and intervals for all times.

**Radii of papers on optimism.**

    beta_p[h, s, a, s'] = 2 sqrt(p_hat (1 - p_hat) L_p / n) + (14/3) L_p / n,   L_p = c ln(6 S A H K / delta)
    beta_l[h, s, a]     = sqrt(L_l / n),                                        L_l = 2 c ln(6 S A H (N+1) K / delta)

(empirical Bernstein and Hoeffding; Efroni, Mannor, Pirotta 2020, arXiv 2003.02189). c = 1 is the theory: with
probability 1 - delta the true kernel lies in the box p_hat +- beta_p, and the true means within beta_l, in all K
episodes. Presets make the radii smaller by this number c alone; the formulas stay as they are.

In a world that is declared stationary, one count serves all steps, and the same formulas hold with the same logarithms:
each of the S A pairs has up to H K observations instead of each of the H S A triples up to K, so the union bound is
over as many events. The observations of a pair are independent draws from one distribution, whatever steps they were
made at. A plan may choose another kernel of the box at every step, which only makes it more optimistic.

Where nothing was seen a radius is at least 1, whatever c is: any distribution is possible and any mean in [0, 1]. The
last step has no transition, hence no radius. The start distribution is a row like any other: an unknown one has a box,
which takes the place of a row of the last step in the union bound.

**Intervals that hold at all times at once.** Let x_1, x_2, ... in [0, 1] have conditional mean m given what came
before, and k = x_1 + .. + x_n. With probability at least 1 - d, for all n at once, m lies in

    C_n = { m : k ln m + (n-k) ln(1-m) >= ln B(k+1/2, n-k+1/2) - ln pi - ln(1/d) }.

The proof is Lemma A of docs/theory/guarantees.md. C_n is an interval around k/n, because the left side is concave.
Newton's method from a point outside of the interval never enters it, for the same reason: a tangent lies above a
concave function. So every iterate is an end that holds, and rounding is met by a little more than ln(1/d). `AllTimes`
fills boxes of models with such intervals, and `update_ranges` those of the mean signals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import Box, ends, new_box, update_box
from cmdpkit.estimate.counts import Counts
from cmdpkit.model.compiled import call, compiled
from cmdpkit.model.tolerances import LGAMMA_ERROR, ROUNDOFF, STIRLING_ERROR
from cmdpkit.model.transitions import FloatArray, IntArray


def kernel_log(S: int, A: int, H: int, K: int, delta: float, c: float = 1.0) -> float:
    """L_p = c ln(6 S A H K / delta).

    >>> round(kernel_log(3, 3, 3, 5000, 0.1), 4)
    15.9074
    """
    return c * math.log(6 * S * A * H * K / delta)


def mean_log(S: int, A: int, H: int, N: int, K: int, delta: float, c: float = 1.0) -> float:
    """L_l = 2 c ln(6 S A H (N + 1) K / delta)."""
    return 2 * (c * math.log(6 * S * A * H * (N + 1) * K / delta))


@compiled(inline=True)
def hoeffding(n, log):
    """Radius of a mean of n observations in [0, 1]; at least 1 without any."""
    radius = math.sqrt(log / max(n, 1))
    return max(1.0, radius) if n == 0 else radius


def mean_radius(n: IntArray, log: float) -> FloatArray:
    """`hoeffding` of every number of observations."""
    radius: FloatArray = np.sqrt(log / np.maximum(n, 1))
    return np.where(n == 0, np.maximum(radius, 1.0), radius)


@compiled(inline=True)
def bernstein(p, n, log):
    """Radius of a frequency p among n observations; at least 1 without any."""
    x = log / max(n, 1)
    radius = 2.0 * math.sqrt(p * (1.0 - p) * x) + 14.0 / 3.0 * x
    return max(1.0, radius) if n == 0 else radius


class Bernstein(NamedTuple):
    """The intervals p_hat +- beta_p, for `boxes.update_box`."""

    log: float  # L_p


@ends.of(Bernstein)
def _within_radius(interval, k, n):
    p = k / max(n, 1)
    radius = bernstein(p, n, interval.log)
    return max(p - radius, 0.0), min(p + radius, 1.0)


def confidence_box(counts: Counts, H: int, A: int, log: float) -> Box:
    """The kernels and the start distributions within beta_p of their estimates."""
    box = new_box(counts, H, A)
    call(update_box, len(counts.head) + int(counts.used[0]), counts, box, Bernstein(log))
    return box


@compiled
def row_radius(counts, row, log):
    """The sum over all next states of beta_p."""
    n, j, seen, total = counts.moves[row], counts.head[row], 0, 0.0
    while j >= 0:
        seen, total, j = seen + 1, total + bernstein(counts.times[j] / n, n, log), counts.link[j]
    return total + (len(counts.starts) - seen) * bernstein(0.0, n, log)


def transition_bonus(counts: Counts, H: int, A: int, log: float) -> FloatArray:
    """[H, S, A]: the sum over all next states of beta_p; 0 at the last step, which no transition follows.

    H times this bonus covers what the error of the kernel can do to values of signals in [0, 1]: values are optimistic
    if it is added to the signal, and pessimistic if it is subtracted. Where the start distribution is estimated too,
    H times `start_bonus` does the same for the expected totals from the start.
    """
    radii, S = np.zeros(len(counts.head)), len(counts.starts)
    call(_row_radii, len(radii) + int(counts.used[0]), counts, log, radii)
    bonus = np.broadcast_to(radii.reshape(-1, S, A), (H, S, A)).copy()
    bonus[H - 1] = 0.0
    return bonus


@compiled
def _row_radii(counts, log, radii):
    for row in range(len(radii)):
        radii[row] = row_radius(counts, row, log)


@compiled
def start_bonus(starts, log):
    """The sum over all states of beta_p of the start distribution, which was seen starts [S] times."""
    episodes, total = starts.sum(), 0.0
    for s in range(len(starts)):
        total += bernstein(starts[s] / max(episodes, 1), episodes, log)
    return total


# -- Intervals that hold at all times at once -------------------------------------------------------------------------

STIRLING_FROM = 16.0  # the logarithm of the gamma function is taken from Stirling's series from here on


@compiled
def allowed_of(k, n, log):
    """The largest kl(k/n, m) of any m in C_n, for n > 0."""
    rest = n - k
    log += LGAMMA_ERROR * (n + 1.0) * math.log(n + 3.0) + STIRLING_ERROR
    if min(k, rest) >= STIRLING_FROM:  # the entropy of k/n cancels in Stirling's series
        whole = log + 0.5 * math.log(0.5 * math.pi * n) + 1.0 / (12.0 * n)
        return (whole + (1.0 / k + 1.0 / rest) / 24.0) / n
    beyond = log + math.log(math.pi) + _lgamma(n + 1.0) - _lgamma(k + 0.5) - _lgamma(rest + 0.5)
    if k > 0.0:
        beyond += k * math.log(k / n)
    return (beyond + rest * math.log(rest / n) if rest > 0.0 else beyond) / n


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


@compiled
def interval_of(low, high, n, log):
    """C_n, a little wider, for a sum x_1 + .. + x_n between low and high, for n > 0."""
    allowed = allowed_of(low, n, log)
    above = allowed if high == low else allowed_of(high, n, log)
    return lower_end(low / n, allowed), min(1.0 - lower_end(1.0 - high / n, above) + 2.0**-52, 1.0)


class AllTimes(NamedTuple):
    """The intervals C_n, for `boxes.update_box`.

    >>> low, high = ends(AllTimes(math.log(20)), 30, 100)
    >>> round(low, 3), round(high, 3), ends(AllTimes(1.0), 0, 0)
    (0.166, 0.463, (0.0, 1.0))
    """

    log: float  # ln(1/d)


@ends.of(AllTimes)
def _at_all_times(interval, k, n):
    if n == 0:
        return 0.0, 1.0
    return interval_of(float(k), float(k), n, interval.log)


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
        for m in range(len(ranges.least)):
            error = n * ROUNDOFF  # of a sum of n numbers, relative to it
            low, high = counts.moments[cell, m] * (1.0 - error), counts.moments[cell, m] * (1.0 + error)
            if n == 0:
                ranges.least[m, cell], ranges.most[m, cell] = 0.0, 1.0
            elif noiseless:
                ranges.least[m, cell], ranges.most[m, cell] = max(low / n, 0.0), min(high / n, 1.0)
            else:
                ranges.least[m, cell], ranges.most[m, cell] = interval_of(low, min(high, float(n)), n, log)
