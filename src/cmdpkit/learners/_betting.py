"""Confidence intervals by betting, for the mean of returns in [0, 1] (Waudby-Smith and Ramdas, arXiv 2010.09686).

For every candidate mean m a gambler bets on each next return being above m, another one on it being below. If m is the
true mean, neither can expect to win, so a capital beyond 1/delta is unlikely: candidates against which a gambler got
rich are excluded. A bet uses only returns that came before it, and a number of returns that is planned in advance. So
the interval holds at any stopping time, also if there are fewer or more returns than planned when it is computed: it is
narrowest when there are about as many. It would not hold if the bets were made for the number of returns at a stop that
the returns themselves have decided about.
"""

from __future__ import annotations

import math

import numpy as np

from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray

HALVINGS = 60  # of the search for an end of the interval


def betting_interval(x: FloatArray, delta: float, planned: int | None = None) -> tuple[float, float]:
    """An interval for the mean of independent x in [0, 1] that misses it with probability at most delta.

    ``planned`` is how many x are expected in the end. It may be left out if their number was fixed before the first.
    """
    bets = _bets(x, delta, planned or len(x))
    threshold = math.log(2 / delta)
    low = _end(x, bets, threshold, above=True)
    high = _end(x, bets, threshold, above=False)
    return low, high


def _bets(x: FloatArray, delta: float, planned: int) -> FloatArray:
    """lam_t = sqrt(2 log(2/delta) / (n s2_{t-1})) for n planned x; running means and variances begin at 1/2, 1/4."""
    n = np.arange(1, len(x) + 1)
    means = (0.5 + np.cumsum(x)) / (n + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2)) / (n + 1)
    before = np.concatenate(([0.25], variances[:-1]))
    bets: FloatArray = np.sqrt(2 * math.log(2 / delta) / (planned * before))
    return bets


def _end(x: FloatArray, bets: FloatArray, threshold: float, *, above: bool) -> float:
    """The last candidate that a gambler has got rich against, between the end of [0, 1] and the sample's mean."""
    inside, outside = float(x.mean()), 0.0 if above else 1.0
    if _log_capital(x, bets, outside, above) < threshold:
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if _log_capital(x, bets, middle, above) < threshold:
            inside = middle
        else:
            outside = middle
    return outside


@compiled
def _log_capital(x, bets, m, above):
    """Logarithm of the capital of the gambler on "above m" or "below m"; both keep half of what they could lose."""
    total = 0.0
    for t in range(len(x)):
        if above:
            bet = bets[t] if m == 0.0 else min(bets[t], 0.5 / m)
            total += np.log1p(bet * (x[t] - m))
        else:
            bet = bets[t] if m == 1.0 else min(bets[t], 0.5 / (1.0 - m))
            total += np.log1p(-bet * (x[t] - m))
    return total
