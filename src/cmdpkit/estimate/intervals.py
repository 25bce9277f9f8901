"""Confidence intervals from data alone, and the certificate that tells them to a user.

**Totals of one policy** (`simultaneous`). The episodes must be independent and of a policy that was fixed before the
first of them. Nothing else is assumed but the range of an episode's total, which is from 0 to H in unit scale. Each of
the 1 + N totals has an interval by betting with its part of delta, so that all intervals hold together. What counts say
about any policy is in `certificate`.

**Intervals by betting** (Waudby-Smith and Ramdas, arXiv 2010.09686). For every candidate mean m a gambler bets on each
next return being above m, another one on it being below. If m is the true mean, neither can expect to win, so a capital
beyond 1/delta is unlikely: candidates against which a gambler got rich are excluded. A bet uses only returns that came
before it, and a number of returns that is planned in advance. So the interval holds at any stopping time, and is
narrowest when there are about as many returns as planned. The size of a bet (Voracek and Orabona, arXiv 2505.22422)
depends on what is still missing to the capital that excludes the candidate, and on how many returns are left.

[0, 1] is divided into cells, and all candidates of a cell are bet against as against the end of the cell that is
hardest to exclude. Within a cell the capital then falls steadily from candidate to candidate, and below a cell that is
excluded all others are excluded as well (the proof is in docs/theory/cl-pri.md). So halving finds first the cell and
then the candidate at which the interval begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from cmdpkit.model.cmdp import Scale
from cmdpkit.model.compiled import call, compiled
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.tolerances import CAPITAL_ERROR, SMALLEST_CAPITAL
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import written_name

LEAST_BATCHES = 5  # with fewer, the spread of batches is a guess
HALVINGS = 30  # of the search within a cell
KEPT = 0.1  # share of the capital that a bet could lose which is never risked


class UnknownCell(NamedTuple):
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
    parts: tuple[UnknownCell, ...] = ()  # the largest parts of `best` less the lower end of the value, largest first


@dataclass(frozen=True)
class Certificate:
    """What the data prove about a policy, in the user's units; all of it holds at once.

    >>> found = Certificate(0.95, 100, (1.0, 1.2), ((2.0, 2.4),), (True,), gap=0.038)
    >>> found.sentence
    'at most 0.038 below the optimum and within its bounds, with probability 95 %'
    """

    level: float  # probability that everything stated here holds
    episodes: int  # episodes (or steps) whose data were used
    value: tuple[float, float]  # interval (low, high) of the value of the policy
    utilities: tuple[tuple[float, float], ...]  # [N], intervals of its totals or averages, in the user's sense
    safe: tuple[bool | None, ...]  # [N], True if the bound is proved to be met, False if missed, None if undecided
    approximate: bool = False  # whether the level is only approximate: nothing is proved then
    gap: float | None = None  # the policy is at most this far below the optimum; None if nothing proves how far
    optimum_at_most: float | None = None  # no policy within the bounds has a larger value
    infeasible: bool = False  # whether it is proved that no policy meets all bounds
    assuming: str = ""  # what it rests on although nobody declared it
    since: int | None = None  # the first episode after a change of the environment; nothing is proved then
    # Of the gap, by size: (step, state, action, times taken, share); no step where all steps share their counts.
    least_known: tuple[tuple[int | None, Any, Any, int, float], ...] = ()

    @property
    def within_bounds(self) -> bool:
        """Whether the policy is proved to keep all its bounds."""
        return not self.approximate and all(x is True for x in self.safe)

    @property
    def sentence(self) -> str:
        """How far the policy is from the optimum and whether it meets its bounds, in words; empty if neither is known.

        A policy that is not proved to be within its bounds may also be better than the optimum within them.
        """
        with_level = f"with probability {100 * self.level:g} %"
        if self.assuming:
            with_level += f", assuming that {self.assuming}"
        if self.infeasible:
            return f"no policy meets all bounds, {with_level}"
        if self.gap is None:
            return ""
        kept = " and within its bounds" if self.safe and self.within_bounds else ""
        doubt = "" if self.within_bounds else "; not proved to meet its bounds"
        return f"at most {self.gap:.3g} below the optimum{kept}, {with_level}{doubt}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; "undecided" for None."""
        names = ("step", "state", "action", "times taken", "share")
        plain = {
            **vars(self),
            "value": list(self.value),
            "utilities": [list(x) for x in self.utilities],
            "safe": ["undecided" if x is None else x for x in self.safe],
            "least_known": [dict(zip(names, part, strict=True)) for part in self.least_known],
        }
        for name in ("approximate", "assuming", "infeasible", "least_known", "since"):
            if not plain[name]:
                del plain[name]
        return plain


def stated(
    found: Intervals,
    scales: Sequence[Scale],
    constraints: Sequence[Constraint],
    H: int,
    *,
    steps: float = 1.0,
    names: tuple[Sequence[Any], Sequence[Any]] = ((), ()),
) -> Certificate:
    """What was found in unit scale, in the user's units and sense, and compared with the bounds.

    `steps` is what totals are divided by beforehand, as where they are discounted. `names` are those of states and
    actions, by which what is known least is named.
    """
    totals = [
        tuple(steps * scale.total_from_unit(x, H) for x in ends)
        for scale, ends in zip(scales, found.intervals, strict=True)
    ]
    utilities, safe = [], []
    for c, (low, high) in zip(constraints, totals[1:], strict=True):
        rho = c.sign * c.bound_on_total
        safe.append(True if low >= rho else False if high < rho else None)
        utilities.append((float(low), float(high)) if c.sign > 0 else (float(-high), float(-low)))
    known, (states, actions) = math.isfinite(found.best), names
    gap = max(found.best - found.intervals[0][0], 0.0)
    return Certificate(
        level=found.level,
        episodes=found.episodes,
        value=(float(totals[0][0]), float(totals[0][1])),
        utilities=tuple(utilities),
        safe=tuple(safe),
        approximate=found.approximate,
        gap=float(gap * scales[0].span) if known else None,
        optimum_at_most=float(scales[0].total_from_unit(found.best, H)) if known else None,
        infeasible=found.best == -math.inf,
        least_known=tuple(
            (
                None if x.step is None else x.step + 1,
                written_name(states[x.state]) if x.state < len(states) else "(episode over)",
                written_name(actions[x.action]),
                x.visits,
                min(x.amount / gap, 1.0),
            )
            for x in found.parts
            if known and gap > 0
        ),
    )


def simultaneous(totals: FloatArray, width: float, delta: float, *, planned: int) -> Intervals:
    """Intervals for several expectations that hold together at level 1 - delta; each gets an equal part of delta.

    Row i of totals [n, 1+N] has the totals of an episode, with entries in [0, width]. The intervals
    hold at any stopping time if `planned`, the number of rows that the bets are made for, was fixed before the first.

    >>> import numpy as np
    >>> found = simultaneous(np.full((100, 2), 1.5), 3.0, 0.1, planned=100)
    >>> found.level, found.episodes, [f"{low:.2f} to {high:.2f}" for low, high in found.intervals]
    (0.9, 100, ['1.44 to 1.56', '1.44 to 1.56'])
    """
    n, M = totals.shape
    ends = [betting_interval(totals[:, m] / width, delta / M, planned) for m in range(M)]
    return Intervals(1 - delta, n, tuple((width * low, width * high) for low, high in ends))


def half_width(n: int, variance: float, width: float, delta: float) -> float:
    """About how far an interval by betting reaches to either side, from n >= 2 totals in [0, width] of that variance.

    A bet of b excludes what is L / (n b) + b variance / 2 away from the mean, with L = log(2 / delta). This is the
    figure for the bets that would be made if the variance were known, and it errs on the side of width.
    """
    log, spread = math.log(2 / delta), (0.25 + n * max(variance, 0.0) / width**2) / (n + 1)
    bet = min(math.sqrt(2 * log / (n * spread)), 1 - KEPT)  # no candidate allows a smaller largest bet
    return width * (log / (n * bet) + bet * spread / 2)


def margin_for_certificate(sd: FloatArray, H: int, delta: float, planned: int) -> FloatArray:
    """[N]: how far inside its bounds a policy must be for its certificate to say so, if totals spread by sd [N]."""
    n, part = max(planned, 2), delta / (1 + len(sd))
    return np.array([2 * half_width(n, float(x) ** 2, float(H), part) for x in sd])


def batch_intervals(means: FloatArray, steps: int, delta: float) -> Intervals | None:
    """Intervals per step that hold together at about 1 - delta, from means [B, 1+N] of B blocks of `steps` steps.

    The means of separate blocks are treated as independent and normal with one unknown spread, so that Student's t
    gives the intervals. Nothing proves that a block is much longer than the world remembers where it began, and so they
    are called approximate. Signals are in unit scale. With fewer than LEAST_BATCHES blocks there are no intervals.

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


# -- Betting ----------------------------------------------------------------------------------------------------------


def betting_interval(x: FloatArray, delta: float, planned: int | None = None) -> tuple[float, float]:
    """An interval for the mean of independent x in [0, 1] that misses it with probability at most delta.

    ``planned`` is how many x are expected in the end. It may be left out if their number was fixed before the first.
    """
    n, wanted = max(len(x) if planned is None else planned, 1), math.log(2 / delta)
    cells, spread = math.ceil(20 * math.sqrt(n)), variances_before(x)
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


@compiled
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


@compiled
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
            most = enough  # unknown
            break
    if most >= enough * (1.0 - close):
        log_capital = 0.0
        for t in range(len(x)):
            log_capital += math.log1p(bets[t] * (x[t] - m))
            if log_capital >= wanted:
                return True
    return False
