"""Parameters of Triple-Q: what they mean, and the three presets that set them from a `Spec` alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cmdpkit.learners import Params, Spec


@dataclass(frozen=True)
class TripleQParams(Params):
    """Numbers that do not change during a run. Values are in unit scale.

    The thresholds are tightened by what would repay the realised violation and the margin over the next `window`
    episodes, or over those that are left, but by no less than `eps_low` and no more than `eps_high`.
    """

    frame: int  # number of episodes between two updates of the queues
    eta: float  # a queue Z counts as the multiplier Z / eta
    steady: float  # a queue is damped where frames swing around its bound by more than this, in proportion to the swing
    chi: float  # the learning rate at the t-th visit is (chi + 1) / (chi + t)
    keep: float  # share of a visit count that survives the end of a frame
    reward_bonus: float  # reward_bonus / sqrt(bonus_offset + t) is added to the reward at the t-th visit
    utility_bonus: float  # the same for the utilities
    bonus_offset: float  # see reward_bonus
    stepwise: bool  # whether optimistic values at step h are H - h, all that can still be earned; otherwise they are H
    reward_start: float  # Q of an untried action, as a share of the optimistic value
    reward_ceiling: float  # a Q that is lifted above this share of the optimistic value is set back to its start
    reward_lift: float  # what is added to every Q over a run of K episodes, a part of it at the end of each frame
    utility_lift: float  # the same for every C
    lift_power: float  # the share of the lift that was added after k episodes is (k / K) ** lift_power
    realised: bool  # whether realised utilities drive the queues; otherwise the estimates C at the first step do
    eps_low: float  # smallest tightening of the thresholds; it may be negative
    eps_high: float  # largest tightening of the thresholds
    margin: float  # surplus in the total of each utility over the whole run that the tightening aims at
    window: float  # number of episodes over which a violation is repaid
    random_ties: bool  # whether ties between the best actions are broken at random when a frame begins
    explore: float  # probability of a random action
    explore_start: float  # further probability of a random action, which fades
    explore_decay: float  # explore_start is multiplied by this after every episode
    missed: float = 0.005  # a shortfall per episode above this share of H gives a warning after half of the run; ours

    def __post_init__(self) -> None:
        for name in ("frame", "eta", "steady", "window", "lift_power"):
            self._expect(name, getattr(self, name) > 0, "more than 0")
        for name in (
            "chi",
            "reward_bonus",
            "utility_bonus",
            "bonus_offset",
            "reward_lift",
            "utility_lift",
            "margin",
            "missed",
        ):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        for name in ("keep", "explore", "explore_start", "explore_decay"):
            self._expect(name, 0 <= getattr(self, name) <= 1, "from 0 to 1")
        self._expect("eps_high", self.eps_high >= self.eps_low, f"at least eps_low = {self.eps_low:g}")
        self._expect("reward_ceiling", self.reward_ceiling >= self.reward_start > 0, "at least reward_start, above 0")


def practical(spec: Spec) -> TripleQParams:
    """One rule for all instances, chosen on a development set (see docs/algorithms/triple-q.md)."""
    root = math.ceil(math.sqrt(spec.K))
    return TripleQParams(
        frame=root,
        eta=3.0,
        steady=0.5,
        chi=2.0,
        keep=0.85,
        reward_bonus=0.0,
        utility_bonus=0.0,
        bonus_offset=0.0,
        stepwise=True,
        reward_start=1.0,
        reward_ceiling=1.0,
        reward_lift=float(spec.H),
        utility_lift=float(spec.H),
        lift_power=0.5,
        realised=True,
        eps_low=-0.005 * spec.H,
        eps_high=0.005 * spec.H,
        margin=0.5 * spec.H * root,
        window=spec.K / 10,
        random_ties=False,
        explore=0.0,
        explore_start=0.0,
        explore_decay=0.0,
    )


def theory(spec: Spec) -> TripleQParams:
    """The constants of the paper's Theorem 1: full reset at every frame, fixed tightening, queues driven by C."""
    K, chi, eps = spec.K, spec.K**0.2, tightening(spec)
    return TripleQParams(
        frame=math.ceil(K**0.6),
        eta=K**0.2,
        steady=math.inf,
        chi=chi,
        keep=0.0,
        reward_bonus=spec.H / 4 * math.sqrt(iota(spec) * (chi + 1)),
        utility_bonus=spec.H / 4 * math.sqrt(iota(spec) * (chi + 1)),
        bonus_offset=chi,
        stepwise=False,
        reward_start=1.0,
        reward_ceiling=1.0,
        reward_lift=math.inf,
        utility_lift=math.inf,
        lift_power=1.0,
        realised=False,
        eps_low=eps,
        eps_high=eps,
        margin=0.0,
        window=float(K),
        random_ties=True,
        explore=0.0,
        explore_start=0.0,
        explore_decay=0.0,
    )


def authors(spec: Spec) -> TripleQParams:
    """The settings of the published code, whose rewards go up to 100 per step, brought to unit scale (H = 25 there).

    Start values are fixed there, 800 of 2,500. They are optimistic only where no policy earns more than that share.
    """
    H, K, frame = spec.H, spec.K, math.ceil(spec.K**0.6)
    return TripleQParams(
        frame=frame,
        eta=0.01 * K**0.2 * math.sqrt(spec.A * spec.S * H**4),
        steady=math.inf,
        chi=K**0.2,
        keep=0.0,
        reward_bonus=0.002 * math.sqrt(math.log(K)),
        utility_bonus=0.002 * math.sqrt(math.log(K)),
        bonus_offset=0.0,
        stepwise=False,
        reward_start=8 / 25,
        reward_ceiling=8.5 / 25,
        reward_lift=0.03 * H / 25 * K / frame,
        utility_lift=0.0,
        lift_power=1.0,
        realised=False,
        eps_low=0.5 * H / 25,
        eps_high=0.5 * H / 25,
        margin=0.0,
        window=float(K),
        random_ties=True,
        explore=0.03,
        explore_start=1.0,
        explore_decay=0.95 ** (1 / 20),
    )


def notes(spec: Spec, preset: str) -> tuple[str, ...]:
    """What makes the constants of the theory vacuous at this K; where those of the authors stop being optimistic."""
    if preset == "authors":
        start = authors(spec).reward_start
        return (
            f"an untried action begins with a value of {start:g} H, as published for other rewards: wherever more than "
            f"{start:.0%} of the largest total reward can be earned, that is not optimistic any more, and actions that "
            "are better than those tried first may stay untried",
        )
    if preset != "theory":
        return ()
    said = []
    eps, bonus = tightening(spec), spec.H / 4 * math.sqrt(iota(spec))
    if spec.N and eps > spec.H:
        said.append(
            f"the tightening eps is {eps / spec.H:.3g} times the largest total of a utility: the queues grow without "
            "end and the reward counts for nothing"
        )
    if bonus > spec.H:
        said.append(
            f"the bonus of a first visit is {bonus / spec.H:.3g} times the largest total reward: in every frame, "
            "whatever is tried first in a state looks best from then on"
        )
    log_K = 5 * math.log10(16 * math.sqrt(spec.S * spec.A * spec.H**6 * iota(spec) ** 3) / spec.H)
    if log_K > math.log10(spec.K):
        said.append(f"the guarantee needs K of at least 1e{log_K:.0f}, even with the largest possible slack")
    return tuple(said)


def iota(spec: Spec) -> float:
    """The logarithmic factor of the paper."""
    return 128 * math.log(math.sqrt(2 * spec.S * spec.A * spec.H) * spec.K)


def tightening(spec: Spec) -> float:
    """The paper's eps."""
    return 8 * math.sqrt(spec.S * spec.A * spec.H**6 * iota(spec) ** 3) / math.pow(spec.K, 0.2)
