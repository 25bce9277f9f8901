"""A base learner in the hands of whatever owns the environment, whether it learns from steps or from whole episodes."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Episodic, Learner, Stepwise
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream


class Driven:
    """One learner, step by step; `last` returns what the episode has brought."""

    def __init__(self, learner: Learner) -> None:
        spec = learner.spec
        self.states, self.actions = np.zeros((2, spec.H), dtype=np.int64)
        self.signals = np.zeros((spec.H, 1 + spec.N))
        self.h = 0
        self.episodic: Episodic | None = None
        if hasattr(learner, "episodic"):
            self.episodic = cast("Any", learner).episodic()
        elif not hasattr(learner, "next"):
            name = type(learner).__module__.rpartition(".")[2].replace("_", "-")
            raise CmdpkitError(f"base {name!r} learns only in models, it cannot be driven step by step")
        self.stepwise = cast("Stepwise", learner)

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self.h = 0
        if self.episodic is not None:
            self.episodic.begin(rng)
            return self._act(s)
        return self.stepwise.first(s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self.signals[self.h] = signals
        self.h += 1
        return self._act(s) if self.episodic is not None else self.stepwise.next(signals, s, rng)

    def last(self, signals: FloatArray) -> FloatArray:
        """Note the last step and end the episode: its totals [1+N]."""
        self.signals[self.h] = signals
        if self.episodic is not None:
            self.episodic.end(self.states, self.actions, self.signals)
        else:
            self.stepwise.last(signals)
        return total(self.signals)

    def _act(self, s: int) -> int:
        self.states[self.h] = s
        self.actions[self.h] = action = cast("Episodic", self.episodic).act(self.h, s)
        return action


def total(signals: FloatArray) -> FloatArray:
    """Sum of the steps' signals [H, 1+N], in the order in which compiled loops add them."""
    summed = np.zeros(signals.shape[1])
    for earned in signals:
        summed += earned
    return summed
