"""CL-PRI in worlds without episodes: plan in the model that the counts suggest, and steer what is realised.

One unbroken run of T steps. *Plans*: up to the share `freeze` of the run they are made in models drawn from what the
counts leave plausible, which explores, and later in a cautious mean model. They look about sqrt(T) steps ahead
(`with_patience` says why). A plan is not one policy but several: the best ones under bounds that are a little tighter
and a little looser than asked for, for each combination of bounds. *Blocks*: after every block of steps the realised
utilities are compared with the bounds. While a utility exceeds its bound by less than the margin, policies that are
tighter in this bound are played, otherwise looser ones. The margin is a few standard deviations of what a block brings,
so that the run ends within its bounds. *Hand-over*: at the share `hand_over` of the run the policy to hand over is
fixed. It is the best policy of the cautious mean model under bounds that are tighter by about one standard error of its
utilities. From then on every other block plays this policy, and the means of these blocks give approximate intervals
for its values.

A run of unknown length has stages, each twice as long as all before it, and each is played as a run that ends with it.

Nothing is proved about it. Measured figures are on the page of the algorithm.

Symbols: t `steps`, T `last_step`, rho `spec.rho` (per step, unit scale), w the utilities of a policy per step.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from cmdpkit.estimate.continuing import cautious_model, hopeful_model, with_patience
from cmdpkit.estimate.errors import stationary_errors
from cmdpkit.estimate.intervals import LEAST_BATCHES, Intervals, batch_intervals
from cmdpkit.learners import Spec
from cmdpkit.learners._continuing.planning import ContinuingPlanner, planned
from cmdpkit.learners._continuing.player import Player
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

MOST_COMBINED = 3  # constraints whose tighter and looser bounds are combined; with more, all are steered together
SHORTEST_BLOCK = 10  # steps
BATCHES = 40  # blocks in which the policy handed over is tested, with as many blocks of steering between them
LEAST_BATCH = 50  # steps of such a block


class Continuing(Player, ClosedLoopPRI):
    """CL-PRI at work in a world without episodes; `ClosedLoopPRI` makes one where the spec asks for it."""

    certifies = False  # its certificate is approximate, and says nothing about the optimum
    criteria: ClassVar[tuple[str, ...]] = ("average", "discounted")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        combined = 2**spec.N if spec.N <= MOST_COMBINED else 2
        self.table = np.zeros((combined, spec.S, spec.A))  # the policies of the plan, see `_combination`
        self.next_plan = 0  # step of the next plan at the latest; it comes earlier if the visits of a pair double
        self.block_start = 0  # step at which the block began,
        self.block_totals = np.zeros(spec.N)  # and the utilities realised by then
        self.mean = np.zeros(spec.N)  # what a step brings, by recent blocks
        self.variance = np.full(spec.N, 0.25)  # of what a block brings, per step
        self.handed = np.zeros((spec.S, spec.A))  # the policy to hand over,
        self.handed_for = 0  # and the last step of the stage that it was fixed for; 0 before
        self.batches = np.zeros((BATCHES, 1 + spec.N))  # mean signals of the blocks in which it is tested,
        self.tested = 0  # how many of them have ended,
        self.batch_totals = np.zeros(1 + spec.N)  # and all signals added up when the present one began

    @property
    def last_step(self) -> int:
        """Length T of the run; in a run of unknown length, the last step of the present stage."""
        T = self.spec.K
        while self.spec.anytime and self.steps > T:
            T *= 2
        return T

    # -- deciding ------------------------------------------------------------------------------------------------------

    def decide(self, rng: Stream) -> None:
        """Make a plan if it is time to, and choose that one of its policies that steers to the bounds."""
        self._end_block()
        if self.steps >= self.next_plan or self.doubled:
            self._make_plan(rng)
        T, t = self.last_step, self.steps
        piece, into = divmod(t - self._hand_over, self._batch)
        if piece >= 0 and self._is_long_enough:
            self._test(piece, into)
            if piece % 2 == 0 and piece < 2 * BATCHES:
                self.pi[...] = self.handed
                self.wait(self._batch - into)
                return
        self.pi[...] = self.table[self._combination()]
        block = max(SHORTEST_BLOCK, min(self._block, t // 10, (T - t) // 10))
        self.wait(min(block, max(T - t, 1), self._batch - into if piece >= -1 else T))

    @property
    def _block(self) -> int:
        """Steps of a block in the middle of the run."""
        return max(SHORTEST_BLOCK, self.last_step // self.params.blocks)

    def _end_block(self) -> None:
        """Learn from the block that has ended what blocks bring and how much that varies."""
        n = self.steps - self.block_start
        if n == 0:
            return
        gained = self.totals[1:] - self.block_totals
        if 2 * n >= self._block:
            self.variance += self.params.forgetting * ((gained - n * self.mean) ** 2 / n - self.variance)
            self.mean += self.params.forgetting * (gained / n - self.mean)
        self.block_start = self.steps
        self.block_totals[...] = self.totals[1:]

    def _margin(self) -> FloatArray:
        """By how much the realised utilities [N] shall exceed the bounds, which is what a block may bring less."""
        margin: FloatArray = self.params.margin * np.sqrt(self.variance * self._block)
        return margin

    def _short(self) -> FloatArray:
        """By how much the realised utilities [N] fall short of the bounds and their margins."""
        short: FloatArray = self.steps * self.spec.rho - self.totals[1:] + self._margin()
        return short

    def _steering(self) -> float:
        """By how much bounds are tightened or loosened: for errors of the model, to win a margin, and to repay."""
        t, left = self.steps, max(self.last_step - self.steps, 1)
        wins = float(self._margin().max(initial=0.0)) / (self.params.winning * self._block)
        repays = self.params.haste * max(0.0, float(self._short().max(initial=0.0))) / left
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
        T, t, p = self.last_step, self.steps, self.params
        model = cautious_model(self.seen(), p.seldom) if t >= p.freeze * T else None
        if model is None:
            model = hopeful_model(self.seen(), rng, unsure=p.unsure, prior=p.prior)
        planner = ContinuingPlanner(with_patience(model, self.seen(), max(p.patience, math.sqrt(T))))
        rho, N = self.spec.rho, self.spec.N
        by = self._steering()
        room = planner.reach(rho) if N else 0.0
        self.plans += 1
        self.impossible += room < 0
        for i in range(len(self.table)):
            tight = (i >> np.arange(N)) & 1 if N <= MOST_COMBINED else np.full(N, i)
            bounds = rho + np.where(tight == 1, min(by, max(0.0, self.params.room * room)), -by)
            self.table[i] = planner.policy(bounds).pi
        self.next_plan = t + max(1, min(T // 20, (T - t) // 2))

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def _hand_over(self) -> int:
        """The step at which the policy is fixed."""
        return math.ceil(self.params.hand_over * self.last_step)

    @property
    def _batch(self) -> int:
        """Steps of a block in which the policy is tested, and of the blocks of steering between them."""
        return max(LEAST_BATCH, (self.last_step - self._hand_over) // (2 * BATCHES))

    @property
    def _is_long_enough(self) -> bool:
        """Whether there is room for enough blocks to test the policy."""
        return self.last_step - self._hand_over >= 2 * LEAST_BATCHES * self._batch

    def _test(self, piece: int, into: int) -> None:
        """Fix the policy, or begin or end a block in which it is tested; the block `piece` began `into` steps ago."""
        if self.handed_for != self.last_step:
            self.handed[...], self.handed_for, self.tested = self._best(), self.last_step, 0
        if into == 0 and piece % 2 == 1 and self.tested < BATCHES:
            self.batches[self.tested] = (self.totals - self.batch_totals) / self._batch
            self.tested += 1
        if into == 0 and piece % 2 == 0:
            self.batch_totals[...] = self.totals

    def recommend(self) -> FloatArray:
        """pi [1, S, A]: the best policy of the mean model, its bounds tightened by what is uncertain about them."""
        pi: FloatArray = (self.handed.copy() if self.handed_for == self.last_step else self._best())[None]
        return pi

    def certificate(self) -> Intervals | None:
        """Approximate intervals for the policy that is handed over, once it was tested for long enough."""
        if self.handed_for != self.last_step:
            return None
        return batch_intervals(self.batches[: self.tested], self.tested * self._batch, self.params.delta)

    def warnings(self) -> tuple[str, ...]:
        """Why there is no certificate, or that it is approximate; and what `Player` warns of."""
        if self.certificate() is not None:
            return (
                *super().warnings(),
                "the certificate is approximate: it treats blocks of steps as independent, because nothing repeats "
                "itself in a world without episodes",
            )
        share = 1 - self.params.hand_over
        needed = math.ceil(2 * LEAST_BATCHES * LEAST_BATCH / share - 1e-6)
        return (
            *super().warnings(),
            f"there is no certificate: the policy is tested in the last {100 * share:.3g} % of a run, for which it "
            f"needs at least {needed:,} steps in all; a run of unknown length has this test at the end of each stage",
        )

    def _best(self) -> FloatArray:
        """The best policy [S, A] of the mean model, with caution."""
        model = cautious_model(self.seen(), self.params.seldom)
        if model is None:
            played: FloatArray = self.pi.copy()
            return played
        planner, rho = ContinuingPlanner(model), self.spec.rho
        errors = stationary_errors(model, self.seen(), planner.policy(rho).pi)
        room = planner.reach(rho) if self.spec.N else 0.0
        tighter = rho + np.minimum(self.params.caution * errors, max(0.0, self.params.room * room))
        pi: FloatArray = planned(model, tighter).pi
        return pi

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Plans in drawn models, then in the mean model, then tests of the policy; of the last stage, if there are."""
        frozen = math.ceil(self.params.freeze * self.last_step)
        return ("exploring and steering", 0), ("steering", frozen), ("testing and steering", self._hand_over)
