"""Triple-Q: model-free learning with a virtual queue per constraint.

Wei, Liu, Ying, "A Provably-Efficient Model-Free Algorithm for Constrained Markov Decision Processes" (AISTATS 2022,
arXiv 2106.01577). Three things are learned: action values Q of the reward, action values C_n of every utility, and
queues Z_n that grow while a constraint is short. Actions maximise Q + sum_n (Z_n / eta) C_n.

Output: the occupancy of the last part of the run. Memory O(H S A (1 + N)).

Symbols: Q, C_n = columns of `TripleQLearned.cells`; t = its last column; Z = `queue`; Z / eta = `weight`;
alpha_t = (chi + 1) / (chi + t); b_t = bonus / sqrt(bonus_offset + t).

Departures from the paper, all behind `TripleQParams` (see docs/algorithms/triple-q.md for why):
- N constraints: one queue and one table C_n each, summed in the argmax, as the paper's conclusion suggests.
- An action set: the learner never uses an action that `Spec.allowed` excludes (its Q is minus infinity).
- Ties are broken at random when a frame begins (not in "practical", nor in the first frame); within a frame they go to
  the action that was best before, else to the first. Optimism resolves them by trying.
- "practical": queues follow realised utilities; counts fade and tables are lifted at a frame's end instead of being
  reset; the tightening is what repays the violation so far plus a margin; queues that swing are damped.
- "authors": each table is cut at its own ceiling (in their code a C above H also resets Q), and the queue reads C
  before the update of its episode, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cmdpkit.learners import Learner, Params, Source, Spec
from cmdpkit.learners._note import Note
from cmdpkit.learners._q_learning import (
    find_best_everywhere,
    greedy_policy,
    new_cells,
    numbers_of,
    played_policy,
    sizes,
)
from cmdpkit.learners.params import above_zero, at_least_zero, share
from cmdpkit.learners.triple_q.updates import TripleQConstants, TripleQLearned, choose, learn, play
from cmdpkit.model.compiled import per_signal
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.policies import conditional
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True, kw_only=True)
class TripleQParams(Params):
    """Numbers that do not change during a run; the defaults are those of "practical". Values are in unit scale.

    The thresholds are tightened by what would repay the realised violation and the margin over the next `window`
    episodes, or over those that are left, but by no less than `eps_low` and no more than `eps_high`.
    """

    frame: int = above_zero()  # number of episodes between two updates of the queues
    eta: float = above_zero(3.0)  # a queue Z counts as the multiplier Z / eta
    steady: float = above_zero(0.5)  # a queue is damped in proportion where frames swing around its bound by more
    chi: float = at_least_zero(2.0)  # the learning rate at the t-th visit is (chi + 1) / (chi + t)
    keep: float = share(0.85)  # share of a visit count that survives the end of a frame
    reward_bonus: float = at_least_zero(0.0)  # the t-th visit adds reward_bonus / sqrt(bonus_offset + t) to the reward
    utility_bonus: float = at_least_zero(0.0)  # the same for the utilities
    bonus_offset: float = at_least_zero(0.0)  # see reward_bonus
    stepwise: bool = True  # whether optimistic values at step h are H - h, what can still be earned; otherwise H
    reward_start: float = 1.0  # Q of an untried action, as a share of the optimistic value
    reward_ceiling: float = 1.0  # a Q that is lifted above this share of the optimistic value is set back to its start
    reward_lift: float = at_least_zero()  # total added to every Q over K episodes, in parts at the ends of frames
    utility_lift: float = at_least_zero()  # the same for every C
    lift_power: float = above_zero(0.5)  # the share of the lift added after k episodes is (k / K) ** lift_power
    realised: bool = True  # whether realised utilities drive the queues; otherwise the estimates C at the first step do
    eps_low: float  # smallest tightening of the thresholds; it may be negative
    eps_high: float  # largest tightening of the thresholds
    margin: float = at_least_zero()  # surplus of each utility over the whole run that the tightening aims at
    window: float = above_zero()  # number of episodes over which a violation is repaid
    random_ties: bool = False  # whether ties between the best actions are broken at random when a frame begins
    explore: float = share(0.0)  # probability of a random action
    explore_start: float = share(0.0)  # further probability of a random action, which fades
    explore_decay: float = share(0.0)  # explore_start is multiplied by this after every episode
    missed: float = at_least_zero(0.005)  # share of H; a larger shortfall per episode is warned of from K / 2 on; ours

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("eps_high", self.eps_high >= self.eps_low, f"at least eps_low = {self.eps_low:g}")
        self._expect("reward_ceiling", self.reward_ceiling >= self.reward_start > 0, "at least reward_start, above 0")


TripleQNumbers = numbers_of(TripleQParams)


def practical(spec: Spec) -> TripleQParams:
    """One rule for all instances, chosen on a development set (see docs/algorithms/triple-q.md)."""
    root = math.ceil(math.sqrt(spec.K))
    return TripleQParams(
        frame=root,
        reward_lift=float(spec.H),
        utility_lift=float(spec.H),
        eps_low=-0.005 * spec.H,
        eps_high=0.005 * spec.H,
        margin=0.5 * spec.H * root,
        window=spec.K / 10,
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
        reward_lift=math.inf,
        utility_lift=math.inf,
        lift_power=1.0,
        realised=False,
        eps_low=eps,
        eps_high=eps,
        margin=0.0,
        window=float(K),
        random_ties=True,
    )


def authors(spec: Spec) -> TripleQParams:
    """The settings of the published code, whose rewards go up to 100 per step, brought to unit scale (H = 25 there).

    What is not here is as in the theory. Start values are fixed there, 800 of 2,500. They are optimistic only where no
    policy earns more than that share.
    """
    H, K, frame = spec.H, spec.K, math.ceil(spec.K**0.6)
    return replace(
        theory(spec),
        eta=0.01 * K**0.2 * math.sqrt(spec.A * spec.S * H**4),
        reward_bonus=0.002 * math.sqrt(math.log(K)),
        utility_bonus=0.002 * math.sqrt(math.log(K)),
        bonus_offset=0.0,
        reward_start=8 / 25,
        reward_ceiling=8.5 / 25,
        reward_lift=0.03 * H / 25 * K / frame,
        utility_lift=0.0,
        eps_low=0.5 * H / 25,
        eps_high=0.5 * H / 25,
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


class TripleQ(Learner):
    """Triple-Q at work; keyword arguments other than the preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = TripleQ(Spec.of(cmdp, K=20_000), eta=4.0)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 20_000)
    >>> bool(abs(returns.utilities.mean() - 2.0) < 0.05)
    True
    """

    title = "Triple-Q: model-free learning with a virtual queue per constraint."
    guarantee = (
        "regret of order (1/slack) H^4 sqrt(S A) K^0.8 and zero violation with preset theory, for K beyond any that "
        "can be run"
    )
    paper = "arXiv 2106.01577"
    source = "text"
    presets = {"practical": practical, "theory": theory, "authors": authors}

    changing: ClassVar[tuple[str, ...]] = ("learned",)
    params: TripleQParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.notes = notes(spec, self.preset)
        self.constants = _constants(spec, self.params)
        self.learned = _nothing_learned(spec, self.params, self.constants)
        find_best_everywhere(self.learned, self.constants)

    def _play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play all episodes in one compiled loop."""
        play(*source, self.learned, self.constants, rng, out)
        return int(out.shape[1])

    def begin(self, rng: Stream) -> None:
        """Begin an episode."""
        super().begin(rng)
        self.learned.changed[0] = False

    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s."""
        if self.constants.explores:
            return int(choose(self.learned, self.constants, h, s, self._rng))
        return int(self.learned.best.item(h * self.spec.S + s))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode."""
        learn(self.learned, self.constants, states, actions, signals, self._rng)

    # -- results

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays: greedy, mixed with random actions."""
        return played_policy(self.spec, self.learned.best, self.learned.explore[0])

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that takes actions as often as they were used in the last part of the run.

        It is better than the policy of any single episode. Where nothing was used in that time, it is greedy.
        """
        return conditional(self.usage(), greedy_policy(self.spec, self.learned.best))

    def usage(self, whole: bool = False) -> FloatArray:
        """How often each (h, s, a) was used, [H, S, A], in the last half to three quarters of the run, or the whole."""
        t, parts = self.learned, 3 if whole else 2
        used: FloatArray = np.rint(t.usage[:parts].sum(axis=0) + t.cells[: len(t.kept), -1] - t.kept)
        return used.reshape(self.spec.allowed.shape)

    @property
    def multipliers(self) -> FloatArray:
        """Z / eta [N], the price in reward that is put on each utility now."""
        return self.learned.weight.copy()

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that are still missed in the second half of the run."""
        spec, episodes = self.spec, self.learned.frames[0] * self.params.frame
        if episodes < spec.K / 2:
            return ()
        return tuple(
            Note("missed on average", n, by=debt / episodes, price=lam, figure=episodes)
            for n, (lam, debt) in enumerate(zip(self.multipliers, self.learned.debt, strict=True))
            if debt > self.params.missed * spec.H * episodes
        )


def _constants(spec: Spec, p: TripleQParams) -> TripleQConstants:
    ahead = spec.H - np.arange(spec.H) if p.stepwise else np.full(spec.H, spec.H)
    shares = np.ones((2, 1 + spec.N))
    shares[:, 0] = p.reward_start, p.reward_ceiling
    bonus = p.reward_bonus > 0 or p.utility_bonus > 0
    explores = p.explore > 0 or p.explore_start > 0
    return TripleQConstants(
        **sizes(spec),
        zero=per_signal([0.0] * (1 + spec.N)),
        chi=p.chi,
        bonus=per_signal([p.reward_bonus] + spec.N * [p.utility_bonus]) if bonus else None,
        lift=per_signal([p.reward_lift] + spec.N * [p.utility_lift]),
        fresh=ahead[:, None] * shares[0],
        ceiling=ahead[:, None] * shares[1],
        K=float(spec.K),
        p=TripleQNumbers(*astuple(p)),
        extras=True if explores or not p.realised else None,
        explores=explores,
        estimated=not p.realised,
    )


def _nothing_learned(spec: Spec, p: TripleQParams, c: TripleQConstants) -> TripleQLearned:
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    explore = 1 - (1 - p.explore) * (1 - p.explore_start)
    return TripleQLearned(
        cells=new_cells(spec, c.fresh),
        best=np.zeros((H + 1) * S, dtype=np.uint64),
        second=np.zeros((H + 1) * S),
        weight=np.zeros(N),
        queue=np.zeros(N),
        short=np.zeros(N),
        swing=np.zeros(N),
        debt=np.zeros(N),
        drive=np.zeros(N),
        earned=np.zeros(1 + N),
        totals=np.zeros(1 + N),
        explore=np.array([explore, p.explore_start]),
        frames=np.zeros(1, dtype=np.int64),
        left=np.array([p.frame]),
        changed=np.ones(1, dtype=bool),
        kept=np.zeros(H * S * A),
        usage=np.zeros((3, H * S * A)),
    )
