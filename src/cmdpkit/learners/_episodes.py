"""The base class of learners that learn when an episode has ended: Triple-Q, Dual-Q, CL-PRI and MF-PRI."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from cmdpkit.learners.contract import Episodic, Learner
from cmdpkit.learners.spec import Returns, Source, Spec
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream


class EpisodeLearner(Learner):
    """A learner that chooses actions with `act`, learns in `end`, and plays several episodes in compiled code.

    No choice within an episode depends on the signals of that episode, so learning can wait until it has ended.
    """

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        # The running episode, when it is driven step by step: states and actions [H], signals [H, 1+N], steps so far.
        self._states, self._actions = np.zeros((2, spec.H), dtype=np.int64)
        self._signals, self._steps = np.zeros((spec.H, 1 + spec.N)), 0
        self._rng: Stream = np.zeros(4, dtype=np.uint64)

    @abstractmethod
    def play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play episodes, with returns in the columns of out [1+N, n] from `first` on; returns how many, at least 1."""

    @abstractmethod
    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s."""

    @abstractmethod
    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode: states [H or more], actions [H], reward and utilities [H, 1+N] in unit scale."""

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops."""
        source.check(self.spec)
        out, done = np.empty((1 + self.spec.N, n)), 0
        while done < n:
            done += self.play(source, rng, out, done)
        return Returns(out[0], out[1:])

    def begin(self, rng: Stream) -> None:
        """Begin an episode."""
        self._rng = rng

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self.begin(rng)
        self._steps = 0
        return self._act(s)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self._signals[self._steps] = signals
        self._steps += 1
        return self._act(s)

    def last(self, signals: FloatArray) -> None:
        """Note the last step's reward and utilities [1+N], and learn from the episode."""
        self._signals[self._steps] = signals
        self.end(self._states, self._actions, self._signals)

    def _act(self, s: int) -> int:
        h = self._steps
        a = self.act(h, s)
        self._states[h], self._actions[h] = s, a
        return a

    def episodic(self) -> Episodic:
        """The learner itself, which has the methods for it."""
        return self
