"""Parameters of CL-PRI in worlds with episodes: one setting for all problems."""

from __future__ import annotations

from dataclasses import dataclass

from cmdpkit.learners import Params
from cmdpkit.model.validate import MIN_DELTA


@dataclass(frozen=True)
class CountsParams(Params):
    """Numbers that do not change during a run; one setting for all problems."""

    delta: float = 0.05  # error budget: of all tests of actions together, and of the certificate
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    exploration: float = 10.0  # episodes of exploration per cell, at most
    exploration_share: float = 0.3  # of the run that exploration may take
    deviations: float = 0.6  # per episode: deviations * (noise / loss) * sqrt(cells / k), at most 1/2
    growth: float = 1.2  # of the number of episodes from one plan to the next
    repay_price: float = 100.0  # debts are repaid up to this price: units of reward per unit of utility, in unit scale
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified

    def __post_init__(self) -> None:
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        self._expect("exploration", self.exploration > 0, "more than 0")
        self._expect("exploration_share", 0 < self.exploration_share <= self.freeze, "above 0, at most freeze")
        self._expect("deviations", self.deviations >= 0, "at least 0")
        self._expect("growth", self.growth > 1, "more than 1")
        self._expect("repay_price", self.repay_price >= 0, "at least 0")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, "above 0, at most hand_over")
        self._expect("hand_over", self.hand_over < 1, "less than 1")
