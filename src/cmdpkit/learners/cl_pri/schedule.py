"""Parameters of CL-PRI, and its timetable: pure functions of what is known before the first episode.

Episodes are divided, by their numbers alone, into a warm-up, epochs that end with an improvement, and certification;
epochs into blocks that play one policy each. So a run can be stopped and resumed anywhere, and the number of looks at
the data, which the error budget of the tests needs, is known in advance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from cmdpkit.learners import Params, Spec
from cmdpkit.model.validate import MIN_DELTA

SMALLEST_BLOCK = 100
SHORTEST_EPOCH = 500
REPAY_BLOCKS = 10  # blocks over which the closed loop repays a debt
CANCELLATION = 1e-9  # an error probability below this loses too many digits in 1 - error


@dataclass(frozen=True)
class CLPRIParams(Params):
    """Numbers that do not change during a run; one setting for all instances. Prices and returns are in unit scale."""

    delta: float = 0.05  # error budget: of all tests of actions together, and of the certificate
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    warm_up: float = 10.0  # episodes of warm-up per (h, s, a), at most K/20 in all
    enter: float = 2.0  # standard errors by which an action must be better to come into use
    explore: float = 0.6  # deviations per episode: explore * (noise / loss) * sqrt(HSA / k), at most 1/2
    known: float = 30.0  # samples after which the value of a state is trusted
    growth: float = 1.3  # of the epochs' length
    trust: float = 1.5  # a price may change by this factor (and 0.05) from one epoch to the next
    lam_max: float = 100.0  # largest price
    keep: float = 0.9  # weight that samples of actions and values keep when a later decision changes
    keep_start: float = 0.5  # weight that whole episodes keep when the support changes
    share: float = 0.25  # a row is worth samples if its own noise makes up this share of its squared error
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified

    def __post_init__(self) -> None:
        for name in ("warm_up", "known", "lam_max"):
            self._expect(name, getattr(self, name) > 0, "more than 0")
        for name in ("enter", "explore"):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("keep", "share"):
            self._expect(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        for name in ("growth", "trust"):
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, f"above 0, at most hand_over = {self.hand_over}")
        self._expect("hand_over", self.hand_over < 1, "less than 1")


class Timetable(NamedTuple):
    """When what happens; episodes count from 0."""

    K: int
    warm: int  # episodes of warm-up
    freeze: int  # first episode without exploration
    hand: int  # first episode of certification
    ends: tuple[int, ...]  # episodes at which epochs end; the last one is `hand`
    longest: int  # block

    def block(self, k: int) -> int:
        """Length of a block that begins at episode k: short at first and, so that the loop ends well, at last."""
        return max(SMALLEST_BLOCK, min(self.longest, k // 50, (self.K - k + REPAY_BLOCKS - 1) // REPAY_BLOCKS))

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names and first episodes."""
        named = (("warm-up", 0), ("improvement", self.warm), ("settling", self.freeze), ("certification", self.hand))
        return tuple((name, first) for i, (name, first) in enumerate(named) if i == 0 or first > named[i - 1][1])


def timetable(spec: Spec, p: CLPRIParams) -> Timetable:
    """The timetable of a run of spec.K episodes."""
    K, pairs = spec.K, int(spec.allowed.sum())
    warm = max(1, min(math.ceil(p.warm_up * pairs), K // 20))
    hand = max(warm, math.floor(p.hand_over * K))
    freeze = min(hand, max(warm, math.ceil(p.freeze * K)))
    ends, k, length = [], warm, float(max(SHORTEST_EPOCH, 4 * pairs))
    while k < hand:
        n = int(min(length, max(K // 40, 2 * SHORTEST_EPOCH)))
        k = hand if hand - k < 1.5 * n else k + n
        ends.append(k)
        length *= p.growth
    return Timetable(K, warm, freeze, hand, tuple(ends), max(SMALLEST_BLOCK, K // 2000))


def error_quantile(delta: float, tests: int) -> float:
    """Standard errors beyond which one of so many normal tests errs with probability at most delta, one-sided.

    >>> round(error_quantile(0.05, 27 * 40), 2)
    3.91
    """
    error = delta / max(tests, 1)
    if error < CANCELLATION:
        return -NormalDist().inv_cdf(error)
    return NormalDist().inv_cdf(1 - error)
