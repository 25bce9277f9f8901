"""The warm-up of MF-PRI: optimistic Q-learning of reward and utilities, with prices that follow.

It is `dual_q` with two changes that make the most of few episodes: an episode is learned from in reverse order, when it
has ended, and in a world that does not depend on the step every step learns from what was seen at any of them
(`backups`). No transition is counted, and the memory is that of the action values.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Source, Spec
from cmdpkit.learners._frame_prices import find_best_everywhere
from cmdpkit.learners.mf_pri.backups import MfPriConstants, MfPriLearned, choose, end_episode, play
from cmdpkit.learners.mf_pri.play import MfPriEpisode
from cmdpkit.learners.mf_pri.settings import ModelFreeParams
from cmdpkit.learners.state import Saved
from cmdpkit.model.compiled import per_signal
from cmdpkit.model.policy import one_hot
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream


class WarmUp(Saved):
    """A first policy and first prices, from `episodes` episodes."""

    changing: ClassVar[tuple[str, ...]] = ("learned",)

    def __init__(self, spec: Spec, p: ModelFreeParams, episodes: int, cells: int) -> None:
        self.spec = spec
        self.constants = _constants(spec, p, episodes, cells)
        self.learned = _nothing_learned(spec, p)
        find_best_everywhere(self.learned, self.constants)

    def run(self, source: Source, episode: MfPriEpisode, rng: Stream, out: FloatArray, first: int, n: int) -> None:
        """Play n more episodes in the compiled loop; their returns go to out [1+N, :] from column `first` on."""
        play(source.simulator, source.meter, self.learned, self.constants, episode, rng, out, first, n)

    def act(self, episode: MfPriEpisode, h: int, s: int, rng: Stream) -> int:
        """The action to take at step h in state s."""
        if h == 0:
            self.learned.changed[0] = False
        return int(choose(self.learned, self.constants, episode, h, s, rng))

    def finish(self, episode: MfPriEpisode) -> None:
        """Learn from an episode that has ended."""
        end_episode(self.learned, self.constants, episode)

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays: greedy, mixed with random actions."""
        spec, explore = self.spec, self.learned.explore[0]
        greedy = one_hot(self.learned.best[: spec.H * spec.S].reshape(spec.H, spec.S), spec.A)
        evenly = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        mixed: FloatArray = (1 - explore) * greedy + explore * evenly
        return mixed

    def greedy_at(self, lam: FloatArray) -> NDArray[np.int64]:
        """Best action [H, S] at prices lam [N], by the values learned."""
        best: NDArray[np.int64] = self._values_at(lam).argmax(axis=-1)
        return best

    def hopes(self, lam: FloatArray) -> FloatArray:
        """[S]: what an episode that begins there could be worth at prices lam, by values that began optimistic."""
        most: FloatArray = self._values_at(lam)[0].max(axis=-1)
        return most

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.learned.weight[1:].copy()

    @property
    def mean_multipliers(self) -> FloatArray:
        """Average of the prices over the second half; before that, the prices now."""
        frames, sums = self.learned.lam_sum[0], self.learned.lam_sum[1:]
        mean: FloatArray = sums / frames if frames else self.multipliers
        return mean

    def _values_at(self, lam: FloatArray) -> FloatArray:
        """[H, S, A]: the learned values of actions at prices lam [N], -inf where an action does not exist."""
        spec = self.spec
        values = self.learned.cells.reshape(spec.H + 1, spec.S, spec.A, -1)[: spec.H, :, :, : 1 + spec.N]
        return np.where(spec.allowed, values[..., 0] + values[..., 1:] @ lam, -np.inf)


def _constants(spec: Spec, p: ModelFreeParams, episodes: int, cells: int) -> MfPriConstants:
    word = np.uint64
    return MfPriConstants(
        H=word(spec.H),
        S=word(spec.S),
        A=word(spec.A),
        zero=per_signal([0.0] * (1 + spec.N)),
        shared=bool(spec.stationary),
        usable=np.array(spec.allowed).reshape(-1, spec.A),
        rho=spec.rho,
        half=episodes / 2,
        frame=math.ceil(episodes ** (1 / 3)),
        eta=2 / (spec.H * math.sqrt(episodes)),
        lam_max=p.warm_price,
        explore=p.random_actions,
        explore_for=10.0 * cells,
        memory=float(spec.H),
    )


def _nothing_learned(spec: Spec, p: ModelFreeParams) -> MfPriLearned:
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    cells = np.zeros((H + 1, S, A, N + 2))
    cells[:H, :, :, :-1] = np.arange(H, 0, -1.0)[:, None, None, None]
    return MfPriLearned(
        cells=cells.reshape(-1, N + 2),
        best=np.zeros((H + 1) * S, dtype=np.uint64),
        weight=np.append(1.0, np.full(N, p.first_price)),
        drive=np.zeros(N),
        lam_sum=np.zeros(1 + N),
        explore=np.array([p.random_actions]),
        episodes=np.zeros(1, dtype=np.int64),
        changed=np.ones(1, dtype=bool),
    )
