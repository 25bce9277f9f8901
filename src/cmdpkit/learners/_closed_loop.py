"""What CL-PRI and MF-PRI share: timetable, debts, the sample of the returned policy, and how blocks are played."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.intervals import Intervals, simultaneous
from cmdpkit.learners import Learner, Source
from cmdpkit.learners._episodes import chosen, learned, play_episodes
from cmdpkit.learners.params import Params, probability, ruled
from cmdpkit.model.compiled import compiled
from cmdpkit.model.tolerances import NO_SPREAD, REPAID, SAME_REWARD
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream

BLIND = (
    "all {episodes:,} episodes earned the same reward at every step; if rewards can differ, the rewarding states were "
    "never reached, and the problem is unsolved; more episodes may reach them"
)

FEW = (
    "{episodes:,} episodes are few for {cells:,} {kind}: they cannot all be tried, and the policy may be far from the "
    "best; at least {enough:,} episodes would help"
)


def few_episodes(episodes: int, cells: int, enough: int, *, pooled: bool) -> str:
    """The sentence that a run is short for its problem; `pooled` says that all steps share what was seen."""
    kind = "(state, action) pairs" if pooled else "(step, state, action) triples"
    return FEW.format(episodes=episodes, cells=cells, kind=kind, enough=enough)


@dataclass(frozen=True)
class LoopParams(Params):
    """The parameters that all of them have."""

    delta: float = probability(0.05)  # error probability of the certificate; a convention
    # Share of the run after which nothing new is tried. In the first half of the rest the policy settles, in the second
    # half it is fixed and certified.
    freeze: float = ruled("above 0 and below 1", lambda x: 0 < x < 1)(0.8)

    @property
    def hand_over(self) -> float:
        """Share of the run after which the policy is fixed and certified."""
        return (1 + self.freeze) / 2

    @property
    def growth(self) -> float:
        """Length of a block as a share of the episodes or steps played or left, whichever are fewer.

        It is the share of the run that is left after the final choice.
        """
        return 1 - self.hand_over


@dataclass(frozen=True)
class Timetable:
    """Phase boundaries of a run of K episodes, or of a stage of a run of unknown length; episodes count from 0.

    The first stage has as many episodes as the spec says, and every later one doubles the length of the run.
    """

    start: int  # first episode of the stage; 0 in a run of known length
    K: int  # episodes at the end of the stage, or of the run
    explore: int  # the episode at which exploration ends at the latest
    freeze: int  # first episode without tries
    hand: int  # first episode of certification
    growth: float  # of the blocks

    @classmethod
    def of(cls, start: int, K: int, explore: int, p: LoopParams) -> Timetable:
        """The timetable of a run or stage whose exploration ends at `explore`."""
        hand = max(explore, math.floor(p.hand_over * K))
        return cls(start, K, explore, min(hand, max(explore, math.ceil(p.freeze * K))), hand, p.growth)

    def block_end(self, k: int) -> int:
        """The end of a block that begins at k: blocks are short at first and, so that the loop ends well, at last."""
        size = max(1, math.ceil(self.growth * min(k, self.K - k)))
        return min(k + size, *(x for x in (self.freeze, self.hand, self.K) if x > k))

    def sample_size(self, k: int = 0) -> int:
        """How many of the episodes from k on are for the certificate: every other block from the final choice on."""
        n, chosen = 0, k <= self.hand
        k = max(k, self.hand)
        while k < self.K:
            end = self.block_end(k)
            n += (end - k) * chosen
            k, chosen = end, not chosen
        return n


class Account(NamedTuple):
    """How the realised totals compare with the bounds, and how many episodes are left to repay a debt."""

    short: FloatArray  # [N]: shortfall of the totals of all episodes from the bounds
    left: float  # episodes left that can repay
    sampled: float  # episodes left that play the returned policy, for its certificate
    surplus: FloatArray  # [N]: by how much that policy exceeds the bounds; 0 before it is fixed


def owed(account: Account, sd: FloatArray, gain: FloatArray, z: float) -> FloatArray:
    """[N]: by how much an episode must exceed the bounds, to repay the debt and a reserve over all that can repay.

    The reserve is z standard deviations sd [N] of bad luck in the last m episodes, less what these repay if every other
    block gains `gain` [N]. m is the number of episodes, at most those left, for which this is largest.
    """
    repaid = np.maximum((gain + account.surplus) / 2, NO_SPREAD / 2)
    m = np.minimum((z * sd / (2 * repaid)) ** 2, account.left + account.sampled)
    reserve = np.maximum(z * sd * np.sqrt(1 + m) - repaid * m, 0.0)
    needed = account.short + reserve + REPAID
    rate: FloatArray = (needed - account.sampled * account.surplus) / max(account.left, 1.0)
    return rate


# -- what episodes earned ----------------------------------------------------------------------------------------------


class Ledger(NamedTuple):
    """What episodes earned; compiled code changes the arrays in place."""

    totals: FloatArray  # [M]: of all episodes, exploration included
    sample: FloatArray  # [capacity, M]: totals of the returned policy, for its certificate
    size: IntArray  # [1]: episodes in that sample
    range: FloatArray  # [2]: smallest and largest reward of a step so far

    @classmethod
    def of(cls, M: int) -> Ledger:
        """Before the first episode."""
        return cls(np.zeros(M), np.zeros((0, M)), np.zeros(1, dtype=np.int64), np.array([np.inf, -np.inf]))

    @property
    def is_blind(self) -> bool:
        """Whether all steps so far earned the same reward: other rewards may be deeper in the world."""
        return bool(0 <= self.range[1] - self.range[0] < SAME_REWARD)

    def with_room(self, episodes: int) -> Ledger:
        """The same with room for more episodes in the sample."""
        missing = int(self.size[0]) + episodes - len(self.sample)
        if missing <= 0:
            return self
        return self._replace(sample=np.concatenate((self.sample, np.zeros((missing, len(self.totals))))))

    def intervals(self, H: int, delta: float, planned: int) -> Intervals | None:
        """Intervals from the sample, of which `planned` episodes were planned; None before there are two.

        The policy is fixed before its sample, the numbers of the episodes alone decide which are in it, and bets are
        made for a number of them that is known in advance: so the intervals hold whenever the run is stopped.
        """
        n = int(self.size[0])
        return simultaneous(self.sample[:n], float(H), delta, planned=planned) if n > 1 else None


class BlockLearner(Learner):
    """A learner that plays blocks of episodes in a compiled loop."""

    guarantee = "the certificate of the returned policy holds with probability 1 - delta; no proved rate of regret"
    paper = "our own, after arXiv 2309.15395"
    source = "ours"
    growing: ClassVar[tuple[str, ...]] = ("ledger/sample",)
    ledger: Ledger
    table: Timetable

    @abstractmethod
    def _player(self) -> Any:
        """What compiled code plays and learns from."""

    @abstractmethod
    def _make_room(self) -> int:
        """Make room for the rest of the block; returns for how many of its episodes there is room."""

    @abstractmethod
    def _count(self, played: int) -> None:
        """Episodes were played; at the end of a block, begin what comes next."""

    def _play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play to the end of the block at most."""
        n = min(self._make_room(), out.shape[1] - first)
        played = int(play_episodes(*source, self._player(), self._episode, rng, out, first, n))
        self._count(played)
        return played

    def _account(self, k: int, surplus: FloatArray) -> Account:
        """The account after k episodes; surplus [N] is that of the returned policy."""
        sampled = self.table.sample_size(k)
        return Account(k * self.spec.rho - self.ledger.totals[1:], self.table.K - k - sampled, sampled, surplus)

    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s."""
        return int(chosen(self._player(), self._episode, h, s, self._rng))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode."""
        self._make_room()
        episode = self._episode._replace(states=states[: self.spec.H], actions=actions, signals=signals)
        learned(self._player(), episode, self._rng)
        self._count(1)


@compiled(inline=True)
def book(ledger, episode, certify):
    """Add up what an episode earned; `certify` says that it is in the sample of the returned policy."""
    H, M = episode.signals.shape
    for h in range(H):
        ledger.range[0] = min(ledger.range[0], episode.signals[h, 0])
        ledger.range[1] = max(ledger.range[1], episode.signals[h, 0])
    for m in range(M):
        ledger.totals[m] += episode.totals[m]
        if certify:
            ledger.sample[ledger.size[0], m] = episode.totals[m]
    if certify:
        ledger.size[0] += 1
