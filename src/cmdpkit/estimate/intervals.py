"""Confidence intervals from data alone, and the certificate that tells them to a user.

What a number of episodes of one policy says about its value and utilities is in `simultaneous`. The episodes must be
independent and of a policy that was fixed before the first of them. Nothing else is assumed but the range of an
episode's total, which is from 0 to H in unit scale. Each of the 1 + N totals has an interval by betting (`betting`)
with its part of delta, so that all intervals hold together. What counts say about any policy is in `certificate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.betting import LEAST_BET_LIMIT, betting_interval
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import written_name

LEAST_BATCHES = 5  # with fewer, the spread of batches is a guess


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
    infeasible: bool = False  # whether it is proved that no policy keeps all bounds
    since: int | None = None  # the first episode after a change of the environment; nothing is proved then
    # Of the gap, by size: (step, state, action, times taken, share); no step where all steps share their counts.
    least_known: tuple[tuple[int | None, Any, Any, int, float], ...] = ()

    @property
    def within_bounds(self) -> bool:
        """Whether the policy is proved to keep all its bounds."""
        return not self.approximate and all(x is True for x in self.safe)

    @property
    def sentence(self) -> str:
        """How far the policy is from the optimum and whether it keeps its bounds, in words; empty if neither is known.

        A policy that is not proved to be within its bounds may also be better than the optimum within them.
        """
        with_level = f"with probability {100 * self.level:g} %"
        if self.infeasible:
            return f"no policy keeps all bounds, {with_level}"
        if self.gap is None:
            return ""
        kept = " and within its bounds" if self.safe and self.within_bounds else ""
        doubt = "" if self.within_bounds else "; it is not proved that it keeps its bounds"
        return f"at most {self.gap:.3g} below the optimum{kept}, {with_level}{doubt}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; "undecided" for None."""
        safe = ["undecided" if x is None else x for x in self.safe]
        names = ("step", "state", "action", "times taken", "share")
        plain = {
            **vars(self),
            "value": list(self.value),
            "utilities": [list(x) for x in self.utilities],
            "safe": safe,
            "least_known": [dict(zip(names, part, strict=True)) for part in self.least_known],
        }
        for name in ("approximate", "infeasible", "least_known", "since"):
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
        rho = c.sign * c.total
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
