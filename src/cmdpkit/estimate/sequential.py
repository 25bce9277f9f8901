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
ITERATES = 60  # of Newton's method, at most; some five are usual
PRECISION = 1e-6  # relative change at which it ends; the last change is then far smaller


@inlined
def ends_of(k, n, log):
    """Both ends of C_n for a sum k of n numbers, with log = ln(1/d); 0 and 1 without any numbers.

    >>> low, high = ends_of(30.0, 100, math.log(20))
    >>> round(low, 4), round(high, 4), ends_of(0.0, 0, 1.0)
    (0.1657, 0.4628, (0.0, 1.0))
    """
    if n == 0:
        return 0.0, 1.0
    log += LGAMMA_ERROR * (n + 1.0) * math.log(n + 3.0) + 1e-13
    level = math.lgamma(k + 0.5) + math.lgamma(n - k + 0.5) - math.lgamma(n + 1.0) - LN_PI - log
    b = (math.log(2.0 * math.sqrt(n)) + log) / n
    return _from_below(k, n, level, b), min(1.0 - _from_below(n - k, n, level, b) + 2.0**-52, 1.0)


@internal
def _from_below(k, n, level, b):
    """The smallest m with k ln m + (n-k) ln(1-m) >= level, or a little less; b bounds n kl(k/n, m) / n."""
    if k <= 0.0:
        return 0.0
    m, p = math.exp(level / k), k / n
    if k >= n:
        return m
    near = p - math.sqrt(2.0 * p * (1.0 - p) * b) - 8.0 / 3.0 * b  # outside of the interval, and often closer
    if near > m and k * math.log(near) + (n - k) * math.log1p(-near) <= level:
        m = near
    for _ in range(ITERATES):
        short = level - k * math.log(m) - (n - k) * math.log1p(-m)
        step = short / (k / m - (n - k) / (1.0 - m))
        if not step > PRECISION * m:
            break
        m += step
    return m
