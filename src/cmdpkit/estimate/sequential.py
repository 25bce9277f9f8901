"""An interval for the mean of numbers in [0, 1] that holds at all times at once, however the numbers came about.

Let x_1, x_2, ... in [0, 1] have conditional mean m given what came before, and k = x_1 + .. + x_n. With probability at
least 1 - d, for all n at once, m lies in

    C_n = { m : k ln m + (n-k) ln(1-m) >= ln B(k+1/2, n-k+1/2) - ln pi - ln(1/d) }.

The proof is Lemma A of docs/theory/guarantees.md. C_n is an interval around k/n, because the left side is concave.
Newton's method from a point outside of the interval never enters it, for the same reason: a tangent lies above a
concave function. So every iterate is an end that holds, and rounding is met by a little more than ln(1/d).
"""

from __future__ import annotations

import math

from cmdpkit.model.compiled import inlined, internal
from cmdpkit.model.tolerances import LGAMMA_ERROR

LN_PI = math.log(math.pi)  # of B(1/2, 1/2)
ITERATES = 60  # iterations of Newton's method, at most; two are usual
PRECISION = 0.01  # a step of this part of the width is the last; the error is then less than a thousandth of the width
SERIES_FROM = 16.0  # Stirling's series is used from here on; its error is below 2e-12
SERIES_ERROR = 1e-11  # added to ln(1/d) for three of these errors


@inlined
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


@internal
def terms_of(n, log):
    """The terms of `allowed_of` that depend on n alone, without and with Stirling's series, for n > 0."""
    log += LGAMMA_ERROR * (n + 1.0) * math.log(n + 3.0) + SERIES_ERROR
    return log + LN_PI + _lgamma(n + 1.0), log + 0.5 * math.log(0.5 * math.pi * n) + 1.0 / (12.0 * n)


@internal
def allowed_of(k, n, terms):
    """The largest kl(k/n, m) of any m in C_n."""
    rest = n - k
    if min(k, rest) >= SERIES_FROM:  # the entropy of k/n cancels in Stirling's series
        return (terms[1] + (1.0 / k + 1.0 / rest) / 24.0) / n
    beyond = terms[0] - _lgamma(k + 0.5) - _lgamma(rest + 0.5)
    if k > 0.0:
        beyond += k * math.log(k / n)
    return (beyond + rest * math.log(rest / n) if rest > 0.0 else beyond) / n


@internal
def upper_end(p, b):
    """The largest m with kl(p, m) <= b, or a little more."""
    return min(1.0 - lower_end(1.0 - p, b) + 2.0**-52, 1.0)


@internal
def _lgamma(x):
    """The logarithm of the gamma function, by Stirling's series where that is exact enough."""
    if x < SERIES_FROM:
        return math.lgamma(x)
    y = 1.0 / (x * x)
    return (x - 0.5) * math.log(x) - x + 0.9189385332046727 + (1.0 / 12.0 - y * (1.0 / 360.0 - y / 1260.0)) / x


@internal
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
    for _ in range(ITERATES):
        beyond = -p * math.log(m / p) - q * math.log((1.0 - m) / q) - b
        step = beyond / (p / m - q / (1.0 - m))
        if not step > 0.0:
            break
        m += step
        if step <= PRECISION * (p - m):
            break
    return m
