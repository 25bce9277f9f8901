"""Prices to try in the next round of column generation, where those of the master problem are a poor guess.

Every price gives a valid bound, and a policy that may join the pool: a bad guess costs a round and nothing else. The
prices of the master are where the tangents of the Lagrangian bound intersect. With few policies they are the right
choice. In a model with many states the bound is almost a smooth function of the prices, and its minimum is mostly found
in fewer rounds by methods that are made for smooth functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cmdpkit.model.transitions import FloatArray

MIN_AVERAGED = 3  # constraints from which on averaged prices save rounds
MIN_DIFFERENT = 100  # decisions in which two policies differ, from which on a price in between is interpolated
NEAR = 0.1  # a guess this close to an end of the interval, as a share of its length, is moved away from that end
LEAST = 0.01  # no guess is closer to an end than this
MAX_GAP_LEFT = 0.9  # a round at other prices than the master's that leaves a larger share of the gap has failed


class Column(Protocol):
    """What has to be known of a policy: its values, and the objective for which it is best."""

    @property
    def v(self) -> float:
        """Its value."""

    @property
    def w(self) -> FloatArray:
        """Its utilities, [N]."""

    @property
    def weights(self) -> FloatArray:
        """Of reward and utilities in the objective for which it is best, [1 + N]."""

    def differences(self, other: Any) -> int:
        """Number of decisions in which two policies differ."""


class Trials:
    """The prices of each round of one search: after a failure, those of the master; after N + 1 failures always."""

    def __init__(self) -> None:
        self.guessed = False  # whether the prices of this round are others than the master's
        self.failed, self.failures, self.gap = False, 0, np.inf

    def prices(self, mixed: Sequence[Column], shares: FloatArray, lam: FloatArray, rho: FloatArray) -> FloatArray:
        """Prices [N] of the next round; `trial_prices` describes the arguments."""
        guess = not self.failed and self.failures <= len(lam)
        prices = trial_prices(mixed, shares, lam, rho) if guess else lam
        self.guessed = prices is not lam
        return prices

    def judge(self, fresh: bool, gap: float) -> None:
        """Learn whether the round found a new policy, and the gap that it left."""
        self.failed = self.guessed and (not fresh or gap > MAX_GAP_LEFT * self.gap)
        self.failures += self.failed
        self.gap = gap


def trial_prices(mixed: Sequence[Column], shares: FloatArray, lam: FloatArray, rho: FloatArray) -> FloatArray:
    """Prices [N] to try next: those of the master, lam, unless others are likely to be better.

    The best mixture so far that meets the thresholds rho [N] has the policies ``mixed`` with these shares.
    """
    if not all(column.weights[0] > 0 for column in mixed):
        return lam
    if len(lam) >= MIN_AVERAGED:
        return averaged(mixed, shares, lam)
    if len(lam) != 1 or len(mixed) != 2 or mixed[0].differences(mixed[1]) < MIN_DIFFERENT:
        return lam
    low, high = sorted(Tangent(float(c.weights[1] / c.weights[0]), c.v, float(c.w[0])) for c in mixed)
    return np.array([between(low, high, float(rho[0]))]) if low.price < high.price else lam


def averaged(mixed: Sequence[Column], shares: FloatArray, lam: FloatArray) -> FloatArray:
    """Halfway between the prices lam of the master and those at which the policies of its mixture were found, [N].

    The prices of the master jump while few policies are known. With several constraints this takes many rounds; the
    average of the prices at which the policies of the mixture were found lies closer to the optimal ones.
    """
    mean: FloatArray = sum(share * c.weights[1:] / c.weights[0] for share, c in zip(shares, mixed, strict=True))
    return (lam + mean) / 2


class Tangent(NamedTuple):
    """What a policy says about the Lagrangian bound of a model with one constraint, as a function of the price."""

    price: float  # at which the policy is best
    v: float  # its expected total reward
    w: float  # its expected total of the constraint's signal

    def bound(self, rho: float) -> float:
        """The Lagrangian bound at that price, for the threshold rho."""
        return self.v + self.price * (self.w - rho)


def between(low: Tangent, high: Tangent, rho: float) -> float:
    """The price between those of two policies at which the Lagrangian bound is likely to be smallest.

    ``low`` misses the threshold rho and ``high`` meets it, so the bound falls at the one price and rises at the other.
    The guess is where the cubic polynomial with the same two values and slopes is smallest. If that is close to one of
    the policies, it is moved to twice the distance or to LEAST: then the true minimum is likely to lie between that
    policy and the guess, and the interval becomes short from both sides.
    """
    length = high.price - low.price
    falls, rises = low.w - rho, high.w - rho
    middle = falls + rises + 3 * (low.bound(rho) - high.bound(rho)) / length
    root = math.sqrt(max(0.0, middle * middle - falls * rises))
    share = 1 - (rises + root - middle) / (rises - falls + 2 * root)
    if share < NEAR:
        share = max(2 * share, LEAST)
    elif share > 1 - NEAR:
        share = 1 - max(2 * (1 - share), LEAST)
    return low.price + share * length
