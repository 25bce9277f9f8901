"""Parameters of MF-PRI: numbers that do not change during a run, one setting for all problems."""

from __future__ import annotations

from dataclasses import dataclass

from cmdpkit.learners import Params
from cmdpkit.model.validate import MIN_DELTA


@dataclass(frozen=True)
class ModelFreeParams(Params):
    """Numbers that do not change during a run; one setting for all instances. Prices and returns are in unit scale."""

    delta: float = 0.05  # error budget: of all tests of actions together, and of the certificate
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    warm_up: float = 10.0  # episodes of warm-up per (h, s, a), at most K/4 in all
    enter: float = 2.0  # standard errors by which an action must be better to come into use
    explore: float = 0.6  # deviations per episode: explore * (noise / loss) * sqrt(HSA / k), at most 1/2
    known: float = 30.0  # samples after which the value of a state is trusted
    growth: float = 1.3  # of the epochs' length
    trust: float = 1.5  # a price may change by this factor (and 0.05) from one epoch to the next
    lam_max: float = 100.0  # largest price
    keep_values: float = 50.0  # samples that values and actions in use keep in any case when a later decision changes
    keep_rows: float = 4.0  # the same for actions that are not in use
    keep_start: float = 0.5  # weight that whole episodes keep when the support changes
    share: float = 0.25  # a row is worth samples if its own noise makes up this share of its squared error
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified

    def __post_init__(self) -> None:
        for name in ("warm_up", "known", "lam_max"):
            self._expect(name, getattr(self, name) > 0, "more than 0")
        for name in ("enter", "explore", "keep_values", "keep_rows"):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("keep_start", "share"):
            self._expect(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        for name in ("growth", "trust"):
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, f"above 0, at most hand_over = {self.hand_over}")
        self._expect("hand_over", self.hand_over < 1, "less than 1")
