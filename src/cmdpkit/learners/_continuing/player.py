"""The learner that plays a plan and counts, until it is time for the next plan."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from cmdpkit.learners._continuing.counting import (
    APPOINTED,
    DOUBLED,
    STEPS,
    Counts,
    arrive,
    draw,
    is_due,
    observe,
    play,
)
from cmdpkit.learners._continuing.models import Model, mean_model
from cmdpkit.learners._continuing.planning import planned
from cmdpkit.learners.contract import Learner
from cmdpkit.learners.spec import Returns, Spec, check_walk
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import reset
from cmdpkit.simulate.steps import Walk


class Player(Learner):
    """A learner in a world without episodes that plays stationary policies; a subclass says which, in `decide`."""

    criteria: ClassVar[tuple[str, ...]] = ("average", "discounted")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.counts = Counts.of(spec)
        allowed = spec.allowed[0]
        self.pi = allowed / allowed.sum(axis=1, keepdims=True)  # [S, A], what is played; at first at random
        self.plans = 0  # how many were made
        self.impossible = 0  # how many of them could not meet the bounds

    @abstractmethod
    def decide(self, rng: Stream) -> None:
        """Choose what to play from now on, and say with `wait` until when."""

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self.counts.clock[STEPS])

    @property
    def doubled(self) -> bool:
        """Whether the visits of a pair have doubled since the last plan."""
        return bool(self.counts.clock[DOUBLED])

    def wait(self, steps: int) -> None:
        """Decide again after so many steps, or when the visits of a pair have doubled."""
        self.counts.clock[APPOINTED] = self.steps + max(1, steps)

    def begin_epoch(self) -> None:
        """Remember the visits, which have to double before the next plan."""
        self.counts.before[...] = self.counts.visits
        self.counts.clock[DOUBLED] = 0

    def plan(self, model: Model, rho: FloatArray) -> FloatArray:
        """The best policy [S, A] of a model under bounds rho per step, and note whether it meets them."""
        found = planned(model, rho)
        self.plans += 1
        self.impossible += not found.feasible
        return found.pi

    # -- the contract --------------------------------------------------------------------------------------------------

    def first(self, s: int, rng: Stream) -> int:
        """Begin the run, or go on after a new start, in state s."""
        arrive(self.counts, s, True)
        return self._chosen(rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Count a step, and choose the next action."""
        observe(self.counts, signals)
        arrive(self.counts, s, False)
        return self._chosen(rng)

    def last(self, signals: FloatArray) -> None:
        """Count a step that is followed by a new start."""
        observe(self.counts, signals)

    def walk(self, walk: Walk, rng: Stream, n: int) -> Returns:
        """Take n more steps in compiled code."""
        check_walk(walk, self.spec)
        out = np.empty((1 + self.spec.N, n))
        if walk.place[0] < 0:
            self.first(int(reset(walk.simulator, rng)), rng)
        done = 0
        while done < n:
            done = int(play(walk, self.counts, self.pi, rng, out, done))
            if self.counts.place[1] < 0:
                self._chosen(rng)
        walk.place[...] = self.counts.place
        return Returns(out[0], out[1:])

    def _chosen(self, rng: Stream) -> int:
        """The next action; before it is drawn, decide what to play if it is time to."""
        if is_due(self.counts):
            self.decide(rng)
        self.counts.place[1] = draw(self.pi, self.counts.place[0], rng)
        return int(self.counts.place[1])

    def behaviour(self) -> FloatArray:
        """pi [1, S, A] that is played now."""
        pi: FloatArray = self.pi[None].copy()
        return pi

    def recommend(self) -> FloatArray:
        """pi [1, S, A], the best policy of the mean model; at random as long as nothing was seen."""
        return self.best_guess(self.spec.rho)[None]

    def best_guess(self, rho: FloatArray) -> FloatArray:
        """The best policy [S, A] of the mean model under bounds rho."""
        model = mean_model(self.counts, self.spec)
        pi: FloatArray = self.pi.copy() if model is None else planned(model, rho).pi
        return pi

    def explain(self) -> dict[str, Any]:
        """How many plans were made, and how many of them could not meet the bounds."""
        return {"plans": self.plans, "plans that could not meet the bounds": self.impossible}
