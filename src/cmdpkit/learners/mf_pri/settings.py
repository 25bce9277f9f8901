"""Parameters of MF-PRI: numbers that do not change during a run, one setting for all problems.

Prices and returns are in unit scale. The first group was chosen on the two instances of the paper and on thirty random
ones, in about forty settings; what is new since version 0.1 on the development problems of `bench`, in about ten. The
second group was set once, by reasoning or on single runs that had failed, and was not searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from cmdpkit.learners import Params
from cmdpkit.model.validate import MIN_DELTA


@dataclass(frozen=True)
class ModelFreeParams(Params):
    """Numbers that do not change during a run; one setting for all instances."""

    delta: float = 0.05  # error budget: of all tests of actions together, and of the certificate
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    warm_up: float = 10.0  # episodes of warm-up per (h, s, a), at most K/4 in all
    enter: float = 2.0  # standard errors by which an action must be better to come into use
    explore: float = 0.6  # deviations per episode: explore * (noise / loss) * sqrt(HSA / k), at most max_deviations
    known: float = 30.0  # samples after which the value of a state is trusted
    growth: float = 1.3  # growth of the length of epochs
    trust: float = 1.5  # a price may change by this factor (and price_step) from one epoch to the next
    lam_max: float = 100.0  # largest price
    keep_values: float = 50.0  # samples that values and actions in use keep in any case when a later decision changes
    keep_rows: float = 4.0  # the same for actions that are not in use
    keep_start: float = 0.5  # weight that whole episodes keep when the support changes
    share: float = 0.25  # a row is worth samples if its own noise makes up this share of its squared error
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified

    first_price: float = 1.0  # price of every constraint when the warm-up begins
    warm_price: float = 10.0  # largest price in the warm-up
    random_actions: float = 0.1  # share of random actions when the warm-up begins
    max_deviations: float = 0.5  # largest number of deviations per episode, on average
    cheap: float = 20.0  # largest factor noise / loss by which deviations are more frequent where they cost little
    least_loss: float = 0.02  # smallest loss of a deviation, as a share of the noise
    block: int = 100  # fewest episodes between two corrections of the closed loop
    epoch: int = 500  # fewest episodes of an epoch
    repay_blocks: int = 10  # blocks over which the closed loop repays a debt
    repayment: float = 0.02  # largest utility asked for beyond the bound to repay a debt, as a share of H
    wander: float = 2.0  # reserve against a wandering debt, in standard deviations over the blocks that repay it
    reserve: float = 8.0  # reserve against the last block, in standard deviations of an episode times its square root
    least_episodes: int = 50  # episodes of the policy itself without which nothing is concluded
    price_step: float = 0.05  # by which a price may change besides the factor `trust`
    ceiling: float = 3.0  # largest price for more than the bounds, as a multiple of the recent prices of the bounds
    ceiling_step: float = 0.1  # by which that price may exceed the multiple
    recent: int = 5  # epochs whose prices count as recent
    proven: float = 3.0  # standard errors by which a gain of utility must exceed 0 to count at the hand-over
    margin_error: float = 1 / 8  # share of delta for the margin of the policy handed over
    least_margin: float = 0.2  # share of that margin below which it is given up
    tolerance: float = 1.0  # standard errors of the policy's utilities: a smaller shortfall does not move the prices
    rule_out: float = 5.0  # samples without which no action is ruled out
    precise: float = 10.0  # samples below which a row is always worth more
    least_samples: float = 3.0  # samples a row needs before it says anything
    pooled: float = 5.0  # samples of the pooled variance of a step that the variance of every row is mixed with
    pooled_range: float = 0.005  # samples of the largest possible variance that are mixed in as well
    hope: float = 0.02  # share of the largest total by which the warm-up may hope for more before a warning is given

    def __post_init__(self) -> None:
        positive = ("warm_up", "known", "lam_max", "first_price", "warm_price", "cheap", "margin_error", "pooled")
        for name in positive:
            self._expect(name, getattr(self, name) > 0, "more than 0")
        for name in (
            *("enter", "explore", "keep_values", "keep_rows", "least_loss", "repayment", "wander", "reserve"),
            *("price_step", "ceiling", "ceiling_step", "recent", "proven", "tolerance", "rule_out"),
            *("precise", "least_samples", "pooled_range", "hope"),
        ):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("keep_start", "share", "random_actions", "max_deviations", "least_margin"):
            self._expect(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        for name in ("growth", "trust", "block", "epoch", "least_episodes"):
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        self._expect("repay_blocks", self.repay_blocks >= 2, "at least 2")
        self._expect("margin_error", self.margin_error <= 1, "at most 1")
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, f"above 0, at most hand_over = {self.hand_over}")
        self._expect("hand_over", self.hand_over < 1, "less than 1")
