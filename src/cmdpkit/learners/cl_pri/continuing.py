"""CL-PRI in problems without a horizon: plan in the model that the counts suggest, and steer the realised totals.

One unbroken run of T steps. *Plans*, up to `freeze` in models drawn from what the counts leave plausible and later in
a cautious mean model, look sqrt(T) steps ahead (`with_patience` says why). A plan has several policies: the best ones
under bounds that are a little tighter or looser, for each combination of bounds. *Blocks* have sqrt(T) steps. While a
realised utility exceeds its bound by less than the reserve, a few standard deviations of what a block brings, policies
that are tighter in this bound are played, otherwise looser ones. From the *final choice* on every other block plays the
policy that was fixed then, and the means of these blocks give approximate intervals for its values. Nothing is proved
about it; docs/algorithms/continuing.md has measured figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cmdpkit.estimate.continuing import cautious_model, hopeful_model, with_patience
from cmdpkit.estimate.intervals import LEAST_BATCHES, Intervals, batch_intervals
from cmdpkit.estimate.model import error_quantile, stationary_errors
from cmdpkit.learners._closed_loop import LoopParams
from cmdpkit.learners._continuing import ContinuingPlanner, Player, planned
from cmdpkit.learners._note import Note
from cmdpkit.learners.params import Spec, above_zero, at_least_zero, ruled
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

UNTESTED = (
    "there is no certificate: the policy is tested in the last {share:.3g} % of a run, for which it needs at least "
    "{needed:,} steps in all; a run of unknown length has this test at the end of each stage"
)
APPROXIMATE = (
    "the certificate is approximate: it treats blocks of steps as independent, because nothing repeats itself in a "
    "world without episodes"
)


@dataclass(frozen=True)
class ContinuingParams(LoopParams):
    """Numbers that do not change during a run, chosen on the instances of `bench/continuing.py`."""

    unsure: int = at_least_zero(5)  # in drawn models the signals of an action count as 1, the best, up to so many tries
    seldom: int = at_least_zero(100)  # in the cautious model an action may lead where others of its state have, up to
    reserve: float = at_least_zero(3.0)  # standard deviations of what a block brings, kept in reserve
    steering: float = above_zero(3.0)  # bounds are tightened and loosened by steering / sqrt(t), or by more if needed
    # Share of the room above the bounds that tighter bounds may take.
    room: float = ruled("above 0, at most 1", lambda x: 0 < x <= 1)(0.8)
    haste: float = above_zero(3.0)  # a shortfall can be repaid in the rest of the run divided by this


@dataclass
class Steering:
    """What steers an unbroken run to its bounds."""

    table: FloatArray  # [combinations, S, A]: the policies of the plan; bit n says that bound n is tightened
    block_totals: FloatArray  # [N]: utilities realised when the block began
    variance: FloatArray  # [N]: of what a block brings, per step; at first the largest there is
    handed: FloatArray  # [S, A]: the policy to return
    batches: FloatArray  # [blocks, 1+N]: mean signals of the blocks in which it was tested
    batch_totals: FloatArray  # [1+N]: all signals added up when the present one of these began
    next_plan: int = 0  # step of the next plan at the latest; it comes earlier if the visits of a pair double
    block_start: int = 0  # step at which the block began
    handed_for: int = 0  # last step of the stage that the policy to return was fixed for; 0 before

    @classmethod
    def of(cls, spec: Spec) -> Steering:
        """Before the first step."""
        S, A, N = spec.S, spec.A, spec.N
        table = np.zeros((2**N if N <= 3 else 2, S, A))  # with more than 3 bounds, all are steered together
        nothing, all_signals = np.zeros(N), np.zeros(1 + N)
        return cls(table, nothing, np.full(N, 0.25), np.zeros((S, A)), np.zeros((0, 1 + N)), all_signals)


class ContinuingPRI(Player):
    """CL-PRI at work without a horizon; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> run = ck.learn("machine-two", "cl-pri", steps=4000, seed=1)
    >>> [name for name, step in run.phases]
    ['exploring and steering', 'steering', 'testing and steering']
    """

    title = "CL-PRI without a horizon: our own; plans from counts, steers the realised totals to the bounds."
    guarantee = "none; the certificate of the returned policy is approximate"
    paper = "our own, after arXiv 2309.15395"
    source = "ours"
    presets = {"practical": ContinuingParams()}
    anytime = True
    growing: ClassVar[tuple[str, ...]] = ("steering/batches",)
    params: ContinuingParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: float) -> None:
        super().__init__(spec, preset=preset, **params)
        self.steering = Steering.of(spec)

    # -- where the run stands ------------------------------------------------------------------------------------------

    @property
    def _T(self) -> int:
        """Steps of the whole run; in a run of unknown length, at the end of the present stage."""
        T = self.spec.K
        while self.spec.anytime and self.steps > T:
            T *= 2
        return T

    @property
    def _hand(self) -> int:
        """The step at which the policy to return is fixed."""
        return math.ceil(self.params.hand_over * self._T)

    @property
    def _block(self) -> int:
        """Steps of a block in the middle of the run, and of those in which the returned policy is tested."""
        return math.isqrt(self._T)

    @property
    def _piece(self) -> tuple[int, int]:
        """The number of the block after the final choice, from 0 and negative before, and its age in steps."""
        return divmod(self.steps - self._hand, self._block)

    @property
    def _tests(self) -> bool:
        """Whether it is time to fix the policy, and enough blocks to test it fit into the run."""
        return self.steps >= self._hand and self._T - self._hand >= 2 * LEAST_BATCHES * self._block

    @property
    def _is_fixed(self) -> bool:
        """Whether the policy to return is fixed."""
        return self.steering.handed_for == self._T

    # -- plans and blocks ----------------------------------------------------------------------------------------------

    def decide(self, rng: Stream) -> None:
        """Make a plan if it is time to, and choose that one of its policies that steers to the bounds."""
        now = self.steering
        self._end_block()
        if self.steps >= now.next_plan or self.doubled:
            self.begin_epoch()
            self._plan(rng)
        if self._tests:
            if not self._is_fixed:
                now.handed[...], now.handed_for, now.batches = self._cautious(), self._T, now.batches[:0]
            self._test()
        self.pi[...], steps = self._choice()
        self.wait(steps)

    def _end_block(self) -> None:
        """Learn from the block that has ended how much blocks vary around the mean of all steps."""
        now, n, totals = self.steering, self.steps - self.steering.block_start, self.totals[1:]
        if n == 0:
            return
        apart = totals - now.block_totals - n * totals / self.steps
        now.variance += (apart**2 - n * now.variance) / (self.steps + self._block)
        now.block_start = self.steps
        now.block_totals[...] = totals

    def _short(self) -> FloatArray:
        """By how much the realised utilities [N] fall short of the bounds and a reserve for what a block may lack."""
        reserve = self.params.reserve * np.sqrt(self.steering.variance * self._block)
        short: FloatArray = self.steps * self.spec.rho - self.totals[1:] + reserve
        return short

    def _plan(self, rng: Stream) -> None:
        """The policies for all combinations of tighter and looser bounds, which allow for errors and repay."""
        now, p, t, T, rho, seen = self.steering, self.params, self.steps, self._T, self.spec.rho, self.seen()
        model = cautious_model(seen, p.seldom) if t >= p.freeze * T else None
        if model is None:
            model = hopeful_model(seen, rng, unsure=p.unsure)
        planner, N = ContinuingPlanner(with_patience(model, seen, math.sqrt(T))), len(rho)
        repays = p.haste * float(self._short().max(initial=0.0)) / max(T - t, 1)
        by, room = max(p.steering / math.sqrt(t + 1), repays), planner.reach(rho) if N else 0.0
        for i in range(len(now.table)):
            tight = (i >> np.arange(N)) & 1 if len(now.table) == 2**N else np.full(N, i)
            bounds = rho + np.where(tight == 1, min(by, max(0.0, p.room * room)), -by)
            now.table[i] = planner.policy(bounds).pi
        now.next_plan = t + max(1, min(T // 20, (T - t) // 2))
        self.plans += 1
        self.impossible += room < 0

    def _choice(self) -> tuple[FloatArray, int]:
        """The policy [S, A] to play now, and for how many steps."""
        now, (piece, into), left = self.steering, self._piece, self._T - self.steps
        if self._tests and piece % 2 == 0 and 2 * self._block - into <= left:  # the run ends with steering
            return now.handed, self._block - into
        tight = self._short() > 0
        combined = len(now.table) == 2 ** len(tight)
        i = int(tight @ (1 << np.arange(len(tight)))) if combined else int(tight.any())
        block = min(self._block, math.ceil(self.params.growth * min(self.steps + 1, left)))
        return now.table[i], min(block, self._block - into if piece >= -1 else self._T)

    def _test(self) -> None:
        """Begin or end a block in which the policy to return is tested."""
        now, (piece, into) = self.steering, self._piece
        if into == 0 and piece % 2 == 1:
            now.batches = np.vstack((now.batches, (self.totals - now.batch_totals) / self._block))
        if into == 0 and piece % 2 == 0:
            now.batch_totals[...] = self.totals

    # -- results -------------------------------------------------------------------------------------------------------

    def _cautious(self) -> FloatArray:
        """The best policy [S, A] of the cautious mean model with a margin; what is played, if nothing was seen."""
        p, rho, seen = self.params, self.spec.rho, self.seen()
        model = cautious_model(seen, p.seldom)
        if model is None:
            return np.array(self.pi[0])
        planner, z = ContinuingPlanner(model), error_quantile(p.delta, len(rho))
        errors = stationary_errors(model, seen, planner.policy(rho).pi)
        room = planner.reach(rho) if len(rho) else 0.0
        return planned(model, rho + np.minimum(z * errors, max(0.0, p.room * room))).pi

    def recommend(self) -> FloatArray:
        """pi [1, S, A] to return now: the policy that was fixed, or before that what the counts suggest."""
        return (self.steering.handed.copy() if self._is_fixed else self._cautious())[None]

    def certificate(self) -> Intervals | None:
        """Approximate intervals for `recommend()`, in unit scale, from the blocks in which it was tested."""
        if not self._is_fixed:
            return None
        batches = self.steering.batches
        return batch_intervals(batches, len(batches) * self._block, self.params.delta)

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first steps."""
        frozen = math.ceil(self.params.freeze * self._T)
        return ("exploring and steering", 0), ("steering", frozen), ("testing and steering", self._hand)

    def warnings(self) -> tuple[str | Note, ...]:
        """What the certificate is worth, and what every player says."""
        share = 1 - self.params.hand_over
        needed = math.ceil((2 * LEAST_BATCHES / share) ** 2 - 1e-6)
        said = APPROXIMATE if self.certificate() is not None else UNTESTED.format(share=100 * share, needed=needed)
        return (*super().warnings(), said)
