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
from typing import ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.continuing import Seen, cautious_model, hopeful_model, with_patience
from cmdpkit.estimate.intervals import LEAST_BATCHES, Intervals, batch_intervals
from cmdpkit.estimate.model import error_quantile, stationary_errors
from cmdpkit.learners._closed_loop import LoopParams
from cmdpkit.learners._continuing import ContinuingPlanner, Player, planned
from cmdpkit.learners._note import Note
from cmdpkit.learners.params import above_zero, at_least_zero, ruled
from cmdpkit.learners.spec import Spec
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

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


class Stretch(NamedTuple):
    """Where an unbroken run stands."""

    t: int  # steps taken
    T: int  # steps of the whole run; in a run of unknown length, at the end of the present stage
    hand: int  # the step at which the policy to return is fixed
    totals: FloatArray  # [1+N]: all signals so far added up

    @property
    def block(self) -> int:
        """Steps of a block in the middle of the run, and of those in which the returned policy is tested."""
        return math.isqrt(self.T)

    @property
    def piece(self) -> tuple[int, int]:
        """The number of the block after the final choice, from 0 and negative before, and its age in steps."""
        return divmod(self.t - self.hand, self.block)

    @property
    def tests(self) -> bool:
        """Whether the policy is fixed, and enough blocks to test it fit into the run."""
        return self.t >= self.hand and self.T - self.hand >= 2 * LEAST_BATCHES * self.block


def stretch_of(spec: Spec, p: ContinuingParams, t: int, totals: FloatArray) -> Stretch:
    """Where a run stands after t steps."""
    T = spec.K
    while spec.anytime and t > T:
        T *= 2
    return Stretch(t, T, math.ceil(p.hand_over * T), totals)


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

    def end_block(self, at: Stretch) -> None:
        """Learn from the block that has ended how much blocks vary around the mean of all steps."""
        n, totals = at.t - self.block_start, at.totals[1:]
        if n == 0:
            return
        apart = totals - self.block_totals - n * totals / at.t
        self.variance += (apart**2 - n * self.variance) / (at.t + at.block)
        self.block_start = at.t
        self.block_totals[...] = totals

    def short(self, at: Stretch, rho: FloatArray, reserve: float) -> FloatArray:
        """By how much the realised utilities [N] fall short of the bounds and a reserve for what a block may lack."""
        short: FloatArray = at.t * rho - at.totals[1:] + reserve * np.sqrt(self.variance * at.block)
        return short

    def plan(self, at: Stretch, seen: Seen, rng: Stream, rho: FloatArray, p: ContinuingParams) -> bool:
        """The policies for all combinations of tighter and looser bounds; returns whether the bounds can be met.

        Bounds are tightened and loosened for errors of the model, and to repay.
        """
        model = cautious_model(seen, p.seldom) if at.t >= p.freeze * at.T else None
        if model is None:
            model = hopeful_model(seen, rng, unsure=p.unsure)
        planner, N = ContinuingPlanner(with_patience(model, seen, math.sqrt(at.T))), len(rho)
        repays = p.haste * float(self.short(at, rho, p.reserve).max(initial=0.0)) / max(at.T - at.t, 1)
        by, room = max(p.steering / math.sqrt(at.t + 1), repays), planner.reach(rho) if N else 0.0
        for i in range(len(self.table)):
            tight = (i >> np.arange(N)) & 1 if len(self.table) == 2**N else np.full(N, i)
            bounds = rho + np.where(tight == 1, min(by, max(0.0, p.room * room)), -by)
            self.table[i] = planner.policy(bounds).pi
        self.next_plan = at.t + max(1, min(at.T // 20, (at.T - at.t) // 2))
        return room >= 0

    def choice(self, at: Stretch, rho: FloatArray, p: ContinuingParams) -> tuple[FloatArray, int]:
        """The policy [S, A] to play now, and for how many steps."""
        piece, into = at.piece
        if at.tests and piece % 2 == 0 and at.t - into + 2 * at.block <= at.T:  # the run ends with steering
            return self.handed, at.block - into
        tight = self.short(at, rho, p.reserve) > 0
        combined = len(self.table) == 2 ** len(rho)
        i = int(tight @ (1 << np.arange(len(rho)))) if combined else int(tight.any())
        block = min(at.block, math.ceil(p.growth * min(at.t + 1, at.T - at.t)))
        return self.table[i], min(block, at.block - into if piece >= -1 else at.T)

    def test(self, at: Stretch) -> None:
        """Begin or end a block in which the policy to return is tested."""
        piece, into = at.piece
        if into == 0 and piece % 2 == 1:
            self.batches = np.vstack((self.batches, (at.totals - self.batch_totals) / at.block))
        if into == 0 and piece % 2 == 0:
            self.batch_totals[...] = at.totals


def cautious_policy(seen: Seen, rho: FloatArray, p: ContinuingParams) -> FloatArray | None:
    """The policy [S, A] to return: the best of the cautious mean model with a margin; None if nothing was seen."""
    model = cautious_model(seen, p.seldom)
    if model is None:
        return None
    planner, z = ContinuingPlanner(model), error_quantile(p.delta, len(rho))
    errors = stationary_errors(model, seen, planner.policy(rho).pi)
    room = planner.reach(rho) if len(rho) else 0.0
    pi: FloatArray = planned(model, rho + np.minimum(z * errors, max(0.0, p.room * room))).pi
    return pi


def untested(hand_over: float) -> str:
    """The sentence that a run is too short for a certificate."""
    share = 1 - hand_over
    needed = math.ceil((2 * LEAST_BATCHES / share) ** 2 - 1e-6)
    return (
        f"there is no certificate: the policy is tested in the last {100 * share:.3g} % of a run, for which it needs "
        f"at least {needed:,} steps in all; a run of unknown length has this test at the end of each stage"
    )


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

    @property
    def _stretch(self) -> Stretch:
        """Where the run stands."""
        return stretch_of(self.spec, self.params, self.steps, self.totals)

    def _cautious(self) -> FloatArray:
        """The policy [S, A] that would be returned now; as long as nothing was seen, what is played."""
        found = cautious_policy(self.seen(), self.spec.rho, self.params)
        return found if found is not None else self.pi[0].copy()

    def decide(self, rng: Stream) -> None:
        """Make a plan if it is time to, and choose that one of its policies that steers to the bounds."""
        at, now, p, rho = self._stretch, self.steering, self.params, self.spec.rho
        now.end_block(at)
        if at.t >= now.next_plan or self.doubled:
            self.begin_epoch()
            self.plans += 1
            self.impossible += not now.plan(at, self.seen(), rng, rho, p)
        if at.tests:
            if now.handed_for != at.T:
                now.handed[...], now.handed_for, now.batches = self._cautious(), at.T, now.batches[:0]
            now.test(at)
        self.pi[...], steps = now.choice(at, rho, p)
        self.wait(steps)

    @property
    def _is_fixed(self) -> bool:
        """Whether the policy to return is fixed."""
        return self.steering.handed_for == self._stretch.T

    def recommend(self) -> FloatArray:
        """pi [1, S, A] to return now: the policy that was fixed, or before that what the counts suggest."""
        return (self.steering.handed.copy() if self._is_fixed else self._cautious())[None]

    def certificate(self) -> Intervals | None:
        """Approximate intervals for `recommend()`, in unit scale, from the blocks in which it was tested."""
        if not self._is_fixed:
            return None
        batches = self.steering.batches
        return batch_intervals(batches, len(batches) * self._stretch.block, self.params.delta)

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first steps."""
        at = self._stretch
        frozen = math.ceil(self.params.freeze * at.T)
        return ("exploring and steering", 0), ("steering", frozen), ("testing and steering", at.hand)

    def warnings(self) -> tuple[str | Note, ...]:
        """What the certificate is worth, and what every player says."""
        said = untested(self.params.hand_over) if self.certificate() is None else APPROXIMATE
        return (*super().warnings(), said)
