"""The learner that plays a plan and counts, until it is time for the next plan."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from cmdpkit.learners._continuing.counting import (
    APPOINTED,
    BEGAN,
    DOUBLED,
    STEPS,
    Counts,
    arrive,
    draw,
    is_due,
    observe,
    play,
)
from cmdpkit.learners._continuing.models import chain_of, mean_model, proven_model
from cmdpkit.learners._continuing.planning import Planned, planned
from cmdpkit.learners.contract import Learner
from cmdpkit.learners.spec import Returns, Spec, check_walk
from cmdpkit.model.chains import long_run_shares
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import reset
from cmdpkit.simulate.steps import Walk

NEVER = 2**61  # visits that no pair has, so that they never double


def at_random(spec: Spec) -> FloatArray:
    """pi [S, A] that takes all allowed actions alike."""
    allowed = spec.allowed[0]
    pi: FloatArray = allowed / allowed.sum(axis=1, keepdims=True)
    return pi


class Player(Learner):
    """A learner in a world without episodes that plays plans; a subclass says which, in `decide`.

    A plan is one policy, or `length` policies that are played in turn.
    """

    criteria: ClassVar[tuple[str, ...]] = ("average", "discounted")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.counts = Counts.of(spec)
        self.pi = np.tile(at_random(spec), (self.length, 1, 1))  # [length, S, A], what is played; at first at random
        self.plans = 0  # how many were made
        self.impossible = 0  # how many of them could not meet the bounds

    @abstractmethod
    def decide(self, rng: Stream) -> None:
        """Choose what to play from now on, and say with `wait` until when."""

    @property
    def length(self) -> int:
        """Number of policies of a plan, which are played in turn."""
        return 1

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self.counts.clock[STEPS])

    @property
    def doubled(self) -> bool:
        """Whether the visits of a pair have doubled since the last plan."""
        return bool(self.counts.clock[DOUBLED])

    def wait(self, steps: int) -> None:
        """Begin the plan, and decide again after so many steps, or when the visits of a pair have doubled."""
        self.counts.clock[BEGAN] = self.steps
        self.counts.clock[APPOINTED] = self.steps + max(1, steps)

    def begin_epoch(self) -> None:
        """Remember the visits, which have to double before the next plan."""
        self.counts.before[...] = self.counts.visits
        self.counts.clock[DOUBLED] = 0

    def ignore_doubling(self) -> None:
        """From now on decide at the appointed steps only."""
        self.counts.before[...] = NEVER

    def follow(self, found: Planned) -> None:
        """Play a plan from now on, and note whether it meets the bounds."""
        self.plans += 1
        self.impossible += not found.feasible
        self.pi[...] = found.pi

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
        self.counts.place[1] = draw(self.counts, self.pi, rng)
        return int(self.counts.place[1])

    def behaviour(self) -> FloatArray:
        """pi [1, S, A] that is played now."""
        now = (self.counts.clock[STEPS] - self.counts.clock[BEGAN]) % self.length
        pi: FloatArray = self.pi[now : now + 1].copy()
        return pi

    def recommend(self) -> FloatArray:
        """pi [1, S, A], the best policy of the proven model; at random as long as nothing was seen."""
        return self.best_guess(self.spec.rho)[None]

    def best_guess(self, rho: FloatArray) -> FloatArray:
        """The best policy [S, A] of the proven model under bounds rho."""
        model = proven_model(self.counts, self.spec)
        return at_random(self.spec) if model is None else planned(model, rho).pi

    def explain(self) -> dict[str, Any]:
        """How many plans were made, and how many of them could not meet the bounds."""
        return {"plans": self.plans, "plans that could not meet the bounds": self.impossible}

    def warnings(self) -> tuple[str, ...]:
        """That the policy handed over may end in one of several parts of the world, by the transitions seen so far."""
        model = mean_model(self.counts, self.spec)
        if model is None or model.kind != "average":
            return ()
        starts = self.counts.starts / self.counts.starts.sum()
        _, classes = long_run_shares(chain_of(model, self.recommend()[0]), starts)
        if len(classes) < 2:
            return ()
        return (
            f"by the transitions seen so far, the policy handed over ends in one of {len(classes)} sets of states that "
            "it never leaves; its long-run averages are means over these, and a single run has those of one of them",
        )
