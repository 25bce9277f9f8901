"""CL-PRI in worlds without episodes: plan in the model that the counts suggest, and steer what is realised.

One unbroken run of T steps. *Plans*: up to the share `freeze` of the run they are made in models drawn from what the
counts leave plausible, which explores, and later in the mean model. A plan is not one policy but several: the best ones
under bounds that are a little tighter and a little looser than asked for, for each combination of bounds. *Blocks*:
after every block of steps the realised utilities are compared with the bounds. A bound that is short of its margin is
steered by the tighter plans, one that has more than its margin by the looser ones. The margin is a few standard
deviations of what a block brings, so that the run ends within its bounds. *Hand-over*: the best policy of the mean
model under bounds that are tighter by about one standard error of its utilities.

Nothing is proved about it. Measured figures are on the page of the algorithm.

Symbols: t `steps`, T `spec.K`, rho `spec.rho` (per step, unit scale), w the utilities of a policy per step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cmdpkit.learners import Params, Spec
from cmdpkit.learners._continuing.errors import standard_errors
from cmdpkit.learners._continuing.models import drawn_model, mean_model
from cmdpkit.learners._continuing.planning import Planner, planned
from cmdpkit.learners._continuing.player import Player
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

MOST_COMBINED = 3  # constraints whose tighter and looser bounds are combined; with more, all are steered together
SHORTEST_BLOCK = 10  # steps
USABLE_ROOM = 0.8  # share of the room above the bounds that tighter bounds may take
REPAY_BLOCKS = 10  # blocks in which a margin can be won
REPAY_HASTE = 3.0  # what is missing can be repaid in the rest of the run divided by this
FORGETTING = 0.05  # weight of a new block in the estimated spread of blocks


@dataclass(frozen=True)
class EndlessParams(Params):
    """Numbers that do not change during a run; one setting for all problems."""

    memory: str = "counts"  # this variant counts transitions
    prior: float = 1.0  # added to the counts of all transitions of a pair that was tried fewer than `few` times
    few: int = 5  # tries after which a pair leads only where some action has led to from the same state
    freeze: float = 0.8  # share of the run after which plans are made in the mean model
    blocks: int = 1000  # of the whole run; after each of them it is decided how to steer
    margin: float = 4.0  # standard deviations of a block by which the realised utilities shall exceed the bounds
    steering: float = 3.0  # bounds are tightened and loosened by steering / sqrt(t), unit scale, or by more if needed
    caution: float = 1.0  # standard errors by which the policy handed over shall exceed its bounds

    def __post_init__(self) -> None:
        for name in ("prior", "steering"):
            self._expect(name, getattr(self, name) > 0, "more than 0")
        for name in ("margin", "caution"):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("few", "blocks"):
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        self._expect("freeze", 0 < self.freeze < 1, "above 0 and below 1")


class Endless(Player, ClosedLoopPRI):
    """CL-PRI at work in a world without episodes; `ClosedLoopPRI` makes one where the spec asks for it."""

    presets = {"practical": EndlessParams()}
    criteria: ClassVar[tuple[str, ...]] = ("average", "discounted")
    params: EndlessParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        combined = 2**spec.N if spec.N <= MOST_COMBINED else 2
        self.table = np.zeros((combined, spec.S, spec.A))  # the policies of the plan, see `_combination`
        self.next_plan = 0  # step of the next plan at the latest; it comes earlier if the visits of a pair double
        self.block_start = 0  # step at which the block began,
        self.block_totals = np.zeros(spec.N)  # and the utilities realised by then
        self.mean = np.zeros(spec.N)  # what a step brings, by recent blocks
        self.variance = np.full(spec.N, 0.25)  # of what a block brings, per step

    # -- deciding ------------------------------------------------------------------------------------------------------

    def decide(self, rng: Stream) -> None:
        """Make a plan if it is time to, and choose that one of its policies that steers to the bounds."""
        self._end_block()
        if self.steps >= self.next_plan or self.doubled:
            self._make_plan(rng)
        self.pi[...] = self.table[self._combination()]
        left = self.spec.K - self.steps
        block = max(SHORTEST_BLOCK, min(self._block, self.steps // 10, left // 10))
        self.wait(min(block, max(left, 1)))

    @property
    def _block(self) -> int:
        """Steps of a block in the middle of the run."""
        return max(SHORTEST_BLOCK, self.spec.K // self.params.blocks)

    def _end_block(self) -> None:
        """Learn from the block that has ended what blocks bring and how much that varies."""
        n = self.steps - self.block_start
        if n == 0:
            return
        gained = self.counts.totals[1:] - self.block_totals
        if 2 * n >= self._block:
            self.variance += FORGETTING * ((gained - n * self.mean) ** 2 / n - self.variance)
            self.mean += FORGETTING * (gained / n - self.mean)
        self.block_start = self.steps
        self.block_totals[...] = self.counts.totals[1:]

    def _margin(self) -> FloatArray:
        """By how much the realised utilities [N] shall exceed the bounds, which is what a block may bring less."""
        margin: FloatArray = self.params.margin * np.sqrt(self.variance * self._block)
        return margin

    def _short(self) -> FloatArray:
        """By how much the realised utilities [N] fall short of the bounds and their margins."""
        short: FloatArray = self.steps * self.spec.rho - self.counts.totals[1:] + self._margin()
        return short

    def _steering(self) -> float:
        """By how much bounds are tightened or loosened: for errors of the model, to win a margin, and to repay."""
        t, left = self.steps, max(self.spec.K - self.steps, 1)
        wins = float(self._margin().max(initial=0.0)) / (REPAY_BLOCKS * self._block)
        repays = REPAY_HASTE * max(0.0, float(self._short().max(initial=0.0))) / left
        return max(self.params.steering / math.sqrt(t + 1), wins, repays)

    def _combination(self) -> int:
        """Which policy of the plan to play: bit n is set where bound n is tightened."""
        tight = self._short() > 0
        if self.spec.N > MOST_COMBINED:
            return int(tight.any())
        return int(tight @ (1 << np.arange(self.spec.N)))

    def _make_plan(self, rng: Stream) -> None:
        """The policies for all combinations of tighter and looser bounds, in a drawn model or in the mean model."""
        self.begin_epoch()
        T, t, p = self.spec.K, self.steps, self.params
        model = mean_model(self.counts, self.spec) if t >= p.freeze * T else None
        if model is None:
            model = drawn_model(self.counts, self.spec, rng, few=p.few, prior=p.prior)
        planner = Planner(model)
        rho, N = self.spec.rho, self.spec.N
        by = self._steering()
        room = planner.reach(rho) if N else 0.0
        self.plans += 1
        self.impossible += room < 0
        for i in range(len(self.table)):
            tight = (i >> np.arange(N)) & 1 if N <= MOST_COMBINED else np.full(N, i)
            bounds = rho + np.where(tight == 1, min(by, max(0.0, USABLE_ROOM * room)), -by)
            self.table[i] = planner.policy(bounds).pi
        self.next_plan = t + max(1, min(T // 20, (T - t) // 2))

    # -- the end -------------------------------------------------------------------------------------------------------

    def recommend(self) -> FloatArray:
        """pi [1, S, A]: the best policy of the mean model, its bounds tightened by what is uncertain about them."""
        model = mean_model(self.counts, self.spec)
        if model is None:
            return self.behaviour()
        planner, rho = Planner(model), self.spec.rho
        errors = standard_errors(model, self.counts, planner.policy(rho).pi)
        room = planner.reach(rho) if self.spec.N else 0.0
        tighter = rho + np.minimum(self.params.caution * errors, max(0.0, USABLE_ROOM * room))
        pi: FloatArray = planned(model, tighter).pi[None]
        return pi

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Plans in drawn models, then in the mean model."""
        return ("exploring and steering", 0), ("steering", int(np.ceil(self.params.freeze * self.spec.K)))
