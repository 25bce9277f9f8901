"""Confidence intervals by betting, for the mean of returns in [0, 1].

The method is that of Waudby-Smith and Ramdas (arXiv 2010.09686). For every candidate mean m a gambler bets on each next
return being above m, another one on it being below. If m is the true mean, neither can expect to win, so a capital
beyond 1/delta is unlikely: candidates against which a gambler got rich are excluded. A bet uses only returns that came
before it, and a number of returns that is planned in advance. So the interval holds at any stopping time, also if there
are fewer or more returns than planned when it is computed: it is narrowest when there are about as many. It would not
hold if the bets were made for the number of returns at a stop that the returns themselves have decided about.

How much is bet follows Voracek and Orabona (arXiv 2505.22422): what is still missing to the capital that excludes the
candidate, and how many returns are left to win it. A gambler who is ahead of this plan bets less from then on, and one
who is behind bets more.

[0, 1] is divided into cells, and all candidates of a cell are bet against in the same way, namely as against the end of
the cell that is hardest to exclude. Within a cell the capital then falls steadily from candidate to candidate. From
cell to cell the bets differ, but below a cell that is excluded all others are excluded as well (the proof is in
docs/theory/cl-pri.md). So halving finds first the cell and then the candidate at which the interval begins.
"""

from __future__ import annotations

import math

import numpy as np

from cmdpkit.model.compiled import call, compiled, internal
from cmdpkit.model.tolerances import CAPITAL_ERROR, SMALLEST_CAPITAL
from cmdpkit.model.transitions import FloatArray

CELLS = 20  # times the square root of the planned number: into so many cells [0, 1] is divided
HALVINGS = 30  # of the search within a cell
KEPT = 0.1  # share of the capital that a bet could lose which is never risked
LEAST_BET_LIMIT = 1 - KEPT  # the largest bet that is allowed against every candidate


def betting_interval(x: FloatArray, delta: float, planned: int | None = None) -> tuple[float, float]:
    """An interval for the mean of independent x in [0, 1] that misses it with probability at most delta.

    ``planned`` is how many x are expected in the end. It may be left out if their number was fixed before the first.
    """
    n, wanted = max(len(x) if planned is None else planned, 1), math.log(2 / delta)
    cells, spread = math.ceil(CELLS * math.sqrt(n)), variances_before(x)
    bets = np.zeros(len(x))
    work = len(x) * (HALVINGS + int(math.log2(cells)))
    low = call(_low_end, work, np.ascontiguousarray(x), spread, bets, n, wanted, cells)
    high = 1.0 - call(_low_end, work, 1.0 - x, spread, bets, n, wanted, cells)
    return float(low), float(high)


def variances_before(x: FloatArray) -> FloatArray:
    """The variance that is expected of each x by those before it; running means and variances begin at 1/2 and 1/4."""
    n = np.arange(1, len(x) + 1)
    means = (0.5 + np.cumsum(x)) / (n + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2)) / (n + 1)
    before: FloatArray = np.concatenate(([0.25], variances[:-1]))
    return before


@compiled
def _low_end(x, spread, bets, planned, wanted, cells):
    """The largest candidate below which all are excluded by the gambler who bets on "above"."""
    excluded, kept = 0, cells  # the last cell is always kept, because no x is above 1
    cell, reach = max(int(x.sum() / max(len(x), 1) * cells), 1), 1  # what is looked for is near the mean
    while kept - excluded > 1:
        if bet_against(x, spread, bets, cell / cells, planned, wanted):
            excluded = cell
        else:
            kept = cell
        cell = max((excluded + kept) // 2, kept - reach)
        reach *= 2
    bet_against(x, spread, bets, kept / cells, planned, wanted)
    outside, inside = excluded / cells, kept / cells
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if _gets_rich(x, bets, middle, wanted):
            outside = middle
        else:
            inside = middle
    return outside


@internal
def bet_against(x, spread, bets, m, planned, wanted):
    """Fill bets [n] as against candidate m, until it is excluded; returns whether it ever is.

    bet = sqrt(2 missing / (left variance)), where `missing` is the logarithm of the factor by which the capital must
    still grow and `left` the number of x to come. If there are more than planned, twice as many are planned.
    """
    log_capital, end = 0.0, planned
    for t in range(len(x)):
        if t == end:
            end *= 2
        bets[t] = min(math.sqrt(2.0 * (wanted - log_capital) / ((end - t) * spread[t])), (1.0 - KEPT) / m)
        log_capital += math.log1p(bets[t] * (x[t] - m))
        if log_capital >= wanted:
            return True
    return False


@internal
def _gets_rich(x, bets, m, wanted):
    """Whether these bets ever bring the wanted capital against m.

    The chance of that is at most delta if m is the mean (Ville's inequality), at whatever time one looks. The capital
    is multiplied up, which is quicker than adding logarithms. They decide where its rounding errors could matter.
    """
    capital, most, enough, close = 1.0, 0.0, math.exp(wanted), CAPITAL_ERROR * len(x)
    for t in range(len(x)):
        capital *= 1.0 + bets[t] * (x[t] - m)
        most = max(most, capital)
        if most > enough * (1.0 + close):
            return True
        if capital < SMALLEST_CAPITAL:
            return _gets_rich_by_logarithms(x, bets, m, wanted)
    return most >= enough * (1.0 - close) and _gets_rich_by_logarithms(x, bets, m, wanted)


@internal
def _gets_rich_by_logarithms(x, bets, m, wanted):
    """What `_gets_rich` says, from sums of logarithms: slower, but nothing is lost when the capital is tiny."""
    log_capital = 0.0
    for t in range(len(x)):
        log_capital += math.log1p(bets[t] * (x[t] - m))
        if log_capital >= wanted:
            return True
    return False
