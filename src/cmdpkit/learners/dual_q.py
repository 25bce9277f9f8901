"""Dual-Q: optimistic Q-learning of reward and utilities, with prices that follow the realised utilities.

The plainest model-free learner for constrained problems. Q-learning keeps action values of the reward and of every
utility; actions maximise Q + sum_n lam_n C_n, and the prices move against what was realised,

    lam_n <- clip(lam_n + eta (rho_n - realised utility n), 0, lam_max).

PRI can use it as a base learner, because it never leaves `Spec.allowed`. It is optimistic only in the values it starts
with (H - h at step h), so a few random actions are mixed in. The prices lag behind the utilities that drive them, so
a violation is left over at the end of a run. Nothing is proved about it.

Output: a policy that takes actions as often as they were the greedy choice in the last part of the run. Memory
O(H S A (1 + N)).

Symbols: Q, C_n = columns of `PricedTables.cells`, t = its last column; the t-th visit moves a cell by (H + 1) / (H + t)
towards what was seen, as in optimistic Q-learning (Jin et al., arXiv 1807.03765). Prices change at the end of a frame,
by the sum over its episodes. The exact value of a policy has to be computed only when the policy changes, so a policy
that stays the same for a few episodes makes the exact regret cheap.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.counts import Episode
from cmdpkit.learners import Learner, Params, Source, Spec
from cmdpkit.learners._episodes import choose, chosen, learn, learned, play_episodes, show
from cmdpkit.learners._note import Note
from cmdpkit.learners._q_learning import (
    PriceConstants,
    PricedTables,
    find_best,
    greedy_policy,
    learn_cell,
    move_prices,
    played_policy,
    random_action,
)
from cmdpkit.learners.params import above_zero, ruled
from cmdpkit.model.compiled import ONE, ZERO
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.policies import conditional
from cmdpkit.simulate.meter import ExploringPolicy, watch
from cmdpkit.simulate.random import Stream, uniform


@dataclass(frozen=True, kw_only=True)
class DualQParams(Params):
    """Numbers that do not change during a run, in unit scale."""

    frame: int = above_zero()  # episodes between two steps of the prices
    eta: float = above_zero()  # step of a price per episode and unit of shortfall
    lam_start: float  # price of every constraint before the first step
    lam_max: float = above_zero()  # largest price
    explore: float = ruled("a probability", lambda x: 0 <= x <= 1)()  # probability of a random action at first
    explore_for: float = above_zero()  # episodes after which it fades like 1/sqrt(k)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("lam_start", 0 <= self.lam_start <= self.lam_max, f"a number from 0 to lam_max = {self.lam_max}")


def practical(spec: Spec) -> DualQParams:
    """One rule for all instances, the best of 12 by the common rule of choice (docs/algorithms/model-based.md)."""
    return DualQParams(
        frame=math.ceil(spec.K ** (1 / 3)),
        eta=2 / (spec.H * math.sqrt(spec.K)),
        lam_start=1.0,
        lam_max=10.0,
        explore=0.03,
        explore_for=10.0 * int(spec.allowed.sum()),
    )


class DualQLearned(NamedTuple):
    """What one run has learned."""

    tables: PricedTables  # action values and prices
    usage: FloatArray  # [3, H*S*A]: greedy choices before and since the number of episodes last doubled, and earlier


class DualQPlayer(NamedTuple):
    """What compiled code plays and learns from."""

    learned: DualQLearned
    c: PriceConstants


@show.of(DualQPlayer)
def _show(player, meter):
    tables = player.learned.tables
    policy = ExploringPolicy(tables.best, tables.explore[0], player.c.usable)
    watch(meter, tables.changed[0], policy, meter.every)


@choose.of(DualQPlayer)
def _choose(player, episode, h, s, rng):
    """The best action at the present prices, or a random one."""
    (tables, usage), c = player
    i = np.uint64(h) * c.S + np.uint64(s)
    if tables.explore[0] > 0.0 and uniform(rng) < tables.explore[0]:
        return random_action(c.usable, i, rng)
    usage[1, i * c.A + tables.best[i]] += 1.0
    return tables.best[i]


@learn.of(DualQPlayer)
def _learn(player, episode, rng):
    """Learn from all steps, let the prices follow the totals, and count the choices as usage."""
    (tables, usage), c = player
    tables.changed[0] = False
    for h in range(c.H):
        i, a = h * c.S + np.uint64(episode.states[h]), np.uint64(episode.actions[h])
        s_next = np.uint64(episode.states[h + ONE]) if h + ONE < c.H else ZERO
        i_next = (h + ONE) * c.S + s_next
        learn_cell(tables, c, i * c.A + a, i_next * c.A + tables.best[i_next], episode.signals, h, None, 0.0)
        find_best(tables, c, i)
    move_prices(tables, c, episode.totals)
    k = tables.episodes[0]
    if k & (k - 1) == 0:
        for j in range(usage.shape[1]):
            usage[2, j] += usage[0, j]
            usage[0, j] = usage[1, j]
            usage[1, j] = 0.0
    return False


class DualQ(Learner):
    """Dual-Q at work; keyword arguments other than the preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = DualQ(Spec.of(cmdp, K=20_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 20_000)
    >>> bool(abs(returns.utilities[:, 10_000:].mean() - 2.0) < 0.05)
    True
    """

    title = "Dual-Q: optimistic Q-learning of reward and utilities, with prices that follow the realised utilities."
    paper = "our own, after arXiv 1807.03765"
    source = "ours"
    presets = {"practical": practical}

    changing: ClassVar[tuple[str, ...]] = ("learned",)
    params: DualQParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        c = PriceConstants.of(spec, average_from=math.inf, **asdict(self.params))
        self.learned = DualQLearned(PricedTables.of(spec, c), np.zeros((3, spec.allowed.size)))
        self.player = DualQPlayer(self.learned, c)

    def _play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play all episodes in one compiled loop."""
        return int(play_episodes(*source, self.player, self._episode, rng, out, first, out.shape[1] - first))

    def act(self, h: int, s: int) -> int:
        """The best action at the present prices, or a random one."""
        return int(chosen(self.player, self._episode, h, s, self._rng))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode."""
        learned(self.player, Episode(states[: self.spec.H], actions, signals, self._episode.totals), self._rng)

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays: greedy, mixed with random actions."""
        return played_policy(self.spec, self.learned.tables.best, self.learned.tables.explore[0])

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that takes actions as often as they were the greedy choice, in the last part of the run."""
        return conditional(self.usage(), greedy_policy(self.spec, self.learned.tables.best))

    def usage(self, whole: bool = False) -> FloatArray:
        """Greedy choices [H, S, A] in the last half to three quarters of the run, or in the whole."""
        used: FloatArray = self.learned.usage[: 3 if whole else 2].sum(axis=0)
        return used.reshape(self.spec.allowed.shape)

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.learned.tables.weight.copy()

    def warnings(self) -> tuple[str | Note, ...]:
        """Prices at their limit: bounds that look out of reach."""
        stuck = np.flatnonzero(self.multipliers >= self.params.lam_max)
        return tuple(Note("price at its limit", int(n), figure=self.params.lam_max) for n in stuck)
