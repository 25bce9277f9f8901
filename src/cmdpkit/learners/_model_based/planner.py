"""Learners that estimate the model, plan, and play the plan until they know enough for a better one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.learners import Source, Spec
from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners._model_based.counting import Counting, play
from cmdpkit.learners._model_based.settings import Planning
from cmdpkit.learners._planning.confidence import point
from cmdpkit.learners._planning.empirical import Estimate, estimate, mark_planned
from cmdpkit.learners._planning.extended import Plan, plan
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream


class Decided(NamedTuple):
    """What a plan says: a policy, prices, whether the bounds can be met, and whether it is the known safe policy."""

    pi: FloatArray  # [H, S, A]: the policy to play
    lam: FloatArray  # [N]: the price of each constraint
    value: float  # the expected total reward that the plan promises
    feasible: bool = True  # whether the plan meets the bounds
    baseline: bool = False  # whether the policy is the known safe one

    @classmethod
    def by(cls, found: Plan, start_bonus: float = 0.0) -> Decided:
        """The answer of the extended LP. Where it is infeasible, its multipliers are not prices, so prices are 0."""
        lam = found.lam if found.feasible else 0.0 * found.lam
        return cls(found.pi, lam, found.value + start_bonus, found.feasible)


@dataclass
class PlanLog:
    """How planning went so far."""

    plans: int = 0  # plans made
    infeasible: int = 0  # plans that found no policy within the bounds
    last_infeasible: bool = False  # whether the last plan was one of these
    on_baseline: bool = False  # whether the policy in use is the known safe one
    baseline_episodes: int = 0  # episodes that played the known safe policy

    def planned(self, decided: Decided) -> None:
        """Note a plan."""
        self.plans += 1
        self.infeasible += not decided.feasible
        self.last_infeasible, self.on_baseline = not decided.feasible, decided.baseline

    def played(self, episodes: int) -> None:
        """Note episodes of the policy in use."""
        self.baseline_episodes += episodes if self.on_baseline else 0


class Planner(Counting):
    """Plans from the counts: whenever one has doubled, or before every episode."""

    params: Planning
    changing: ClassVar[tuple[str, ...]] = (*Counting.changing, "plan_log")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.plan_log = PlanLog()

    @abstractmethod
    def plan(self, means: Estimate) -> Decided:
        """The policy to play, given the estimates; it must depend on nothing else that changes during a run."""

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that is best in the estimated model, among the actions that were tried.

        The policy that is handed over does not explore, so it needs no optimism, which would only break the bounds.
        """
        spec, means = self.spec, estimate(self.counts)
        tried = spec.allowed & (means.visits > 0)
        usable = np.where(tried.any(axis=-1, keepdims=True), tried, spec.allowed)
        return plan(point(means.p, means.mu), means.r, means.g, spec.rho, usable, spec.H).pi

    def warnings(self) -> tuple[str, ...]:
        """Bounds that the last plan found out of reach."""
        if not self.plan_log.last_infeasible:
            return ()
        return (BoundWarning("in no model that the data allow does a policy meet all bounds"),)

    def explain(self) -> dict[str, Any]:
        """The number of plans, of plans without a policy that meets the bounds, and of episodes of the safe policy."""
        log = self.plan_log
        return {
            "plans": log.plans,
            "infeasible_plans": log.infeasible,
            "baseline_episodes": log.baseline_episodes,
        }

    def _begin(self) -> None:
        if not self.counts.due[0]:
            return
        decided = self.plan(estimate(self.counts))
        mark_planned(self.counts)
        self.plan_log.planned(decided)
        self.playing.pi[...], self.playing.lam[...] = decided.pi, decided.lam
        self.playing.changed[0] = True

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        every, done = self.params.replan == "episode", 0
        while done < out.shape[1]:
            self._begin()
            before = done
            done = _episodes(source.simulator, source.meter, self.counts, self.playing, rng, out, done, every)
            self.plan_log.played(done - before)

    def _end(self) -> None:
        self.playing.episodes[0] += 1
        self.plan_log.played(1)
        if self.params.replan == "episode":
            self.counts.due[0] = True


@compiled
def _episodes(sim, meter, counts, playing, rng, out, done, every):
    """Fill the columns of out from `done` on until a plan is due; returns how many columns are filled then."""
    for k in range(done, out.shape[1]):
        play(sim, meter, counts, playing, rng, out, k)
        if every:
            counts.due[0] = True
        if counts.due[0]:
            return k + 1
    return out.shape[1]
