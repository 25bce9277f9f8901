"""Learners that estimate the model, plan, and play the plan until they know enough for a better one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.learners import Source
from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners._model_based.counting import (
    BASELINE,
    CHANGED,
    INFEASIBLE,
    ON_BASELINE,
    PLANS,
    REFUSED,
    Counting,
    end_episode,
    play,
)
from cmdpkit.learners._model_based.settings import Planning
from cmdpkit.learners._planning.confidence import point
from cmdpkit.learners._planning.empirical import Estimate, estimate, mark_planned
from cmdpkit.learners._planning.extended import Plan, plan
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream


class Decided(NamedTuple):
    """What a plan says: a policy, prices, whether the bounds can be met, and whether it is the known safe policy."""

    pi: FloatArray  # [H, S, A]
    lam: FloatArray  # [N]
    value: float  # what the plan promises
    feasible: bool = True
    baseline: bool = False

    @classmethod
    def by(cls, found: Plan, start_bonus: float = 0.0) -> Decided:
        """The answer of the extended LP; where it is infeasible, its weights are no prices."""
        lam = found.lam if found.feasible else 0.0 * found.lam
        return cls(found.pi, lam, found.value + start_bonus, found.feasible)


class Planner(Counting):
    """Plans from the counts: whenever one has doubled, or before every episode."""

    params: Planning

    @abstractmethod
    def plan(self, means: Estimate) -> Decided:
        """The policy for what is known: a function of `means` and of nothing that changes."""

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that is best in the estimated model, among the actions that were tried.

        What is handed over explores nothing, so optimism has no place in it: it would only break the bounds.
        """
        spec, means = self.spec, estimate(self.counts)
        tried = spec.allowed & (means.visits > 0)
        usable = np.where(tried.any(axis=-1, keepdims=True), tried, spec.allowed)
        return plan(point(means.p, means.mu), means.r, means.g, spec.rho, usable, spec.H).pi

    def warnings(self) -> tuple[str, ...]:
        """Bounds that the last plan found out of reach."""
        if not self.book.clock[REFUSED]:
            return ()
        return (BoundWarning("in no model that the data allow does a policy meet all bounds"),)

    def explain(self) -> dict[str, Any]:
        """How often it planned, without finding a policy that meets the bounds, and played the known safe policy."""
        plans, infeasible, baseline = (int(self.book.clock[i]) for i in (PLANS, INFEASIBLE, BASELINE))
        return {"plans": plans, "infeasible_plans": infeasible, "baseline_episodes": baseline}

    def _begin(self) -> None:
        if not self.counts.due[0]:
            return
        decided = self.plan(estimate(self.counts))
        mark_planned(self.counts)
        book = self.book
        book.pi[...], book.lam[...] = decided.pi, decided.lam
        book.clock[PLANS] += 1
        book.clock[INFEASIBLE] += not decided.feasible
        book.clock[REFUSED] = not decided.feasible
        book.clock[ON_BASELINE] = decided.baseline
        book.clock[CHANGED] = 1

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        every, done = self.params.replan == "episode", 0
        while done < out.shape[1]:
            self._begin()
            done = _episodes(source.simulator, source.meter, self.counts, self.book, rng, out, done, every)

    def _end(self) -> None:
        end_episode(self.book)
        if self.params.replan == "episode":
            self.counts.due[0] = True


@compiled
def _episodes(sim, meter, counts, book, rng, out, done, every):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill the columns of out from `done` on, until a plan is due; how many are filled then."""
    for k in range(done, out.shape[1]):
        play(sim, meter, counts, book, rng, out, k)
        if every:
            counts.due[0] = True
        if counts.due[0]:
            return k + 1
    return out.shape[1]
