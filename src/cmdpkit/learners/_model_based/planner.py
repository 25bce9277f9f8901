"""Learners that estimate the model, plan, and play the plan until they know enough for a better one.

Optimistic planners explore by optimism. The policy that they return is another one: the best of the estimated model
among actions that were tried, which clears the bounds by a margin for the standard error of its own prediction. An
optimum of an estimated model meets a bound exactly there, and hence misses it in truth in about half of all cases. The
margin is that of CL-PRI (`cmdpkit.estimate.errors`). Safe planners play a known safe policy, the baseline, until they
can prove another one safe.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cmdpkit.estimate.boxes import Known, Models, estimated, plan
from cmdpkit.estimate.counts import Counts, signal_means, signals_of
from cmdpkit.estimate.errors import HandOver, error_quantile, handed_over
from cmdpkit.estimate.model import model_of
from cmdpkit.learners import Source, Spec, State
from cmdpkit.learners._account import UnitTotals
from cmdpkit.learners._model_based.cadence import CADENCES, PlanRule, mark_planned, new_cadence, note_episode
from cmdpkit.learners._model_based.counting import Counting, play
from cmdpkit.learners._model_based.settings import Planning, SafePlanning, WithMargin, policy_of, utilities_of
from cmdpkit.learners._note import Note
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.simulate.random import Stream

Found = TypeVar("Found")


class Belief(NamedTuple):
    """What the counts say: the estimated model, and how many observations it rests on."""

    counts: Counts
    model: Known  # observed frequencies
    signals: FloatArray  # [1+N, T, S, A]: mean reward and utilities; 0 where the action was never taken
    visits: IntArray  # [T, S, A]: number of visits that the mean signals rest on
    moved: IntArray  # [T, S, A]: number of transitions that each row of the model rests on
    episodes: int  # number of episodes that the start distribution rests on

    @classmethod
    def of(cls, counts: Counts, A: int) -> Belief:
        """What these counts say."""
        shape, M = (-1, len(counts.starts), A), signals_of(counts)
        signals = signal_means(counts, M).T.reshape(M, *counts.visits.reshape(shape).shape)
        visits, moved = counts.visits.reshape(shape), counts.moves.reshape(shape)
        return cls(counts, estimated(counts, A), signals, visits, moved, int(counts.starts.sum()))


class Decided(NamedTuple):
    """What a plan says."""

    pi: FloatArray  # [H, S, A]: the policy to play
    lam: FloatArray  # [N]: the price of each constraint
    value: float  # the expected total reward that the plan promises
    feasible: bool = True  # whether the plan meets the bounds
    baseline: bool = False  # whether the policy is the known safe one


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


class Replanning(Counting):
    """Changes its policy at the times that the setting `replan` asks for (`cadence`)."""

    params: Planning
    changing: ClassVar[tuple[str, ...]] = (*Counting.changing, "plan_log", "cadence")
    _found: tuple[int, Any] = (-1, None)  # number of episodes, and what `once` has found after them

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.plan_log, self.cadence = PlanLog(), new_cadence(self.T, spec.S, spec.A)
        self.rule = PlanRule(CADENCES.index(self.params.replan), float(self.params.progress))

    @abstractmethod
    def _replan(self) -> None:
        """Change the policy, and note in `plan_log` and `cadence` that this was done."""

    def begin(self, rng: Stream) -> None:
        """Plan before an episode, if a plan is due; one that draws random numbers does it here."""
        self._begin()

    def explain(self) -> dict[str, Any]:
        """How counts are kept, and the number of plans."""
        pooled = self.T < self.spec.H
        return {"counts": "shared by all steps" if pooled else "kept per step", "plans": self.plan_log.plans}

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same arguments; one that does not fit changes nothing."""
        super().restore(state)
        self._found = (-1, None)

    def once(self, find: Callable[[], Found]) -> Found:
        """The result of a search that need not be repeated before the next episode."""
        episodes = int(self.counts.starts.sum())
        if self._found[0] != episodes:
            self._found = episodes, find()
        found: Found = self._found[1]
        return found

    def _begin(self) -> None:
        if self.cadence.due[0]:
            self._replan()
            self.playing.changed[0] = True

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        done = 0
        while done < out.shape[1]:
            self.begin(rng)
            before = done
            parts = (self.counts, self.playing, self.cadence)
            done = _episodes_until_due(source.simulator, source.meter, parts, rng, out, done, self.rule)
            self.plan_log.played(done - before)

    def _end(self) -> None:
        self.playing.episodes[0] += 1
        self.plan_log.played(1)
        note_episode(self.cadence, self.counts.visits, self.playing.path, self.playing.actions, self.rule)


@compiled
def _episodes_until_due(sim, meter, parts, rng, out, done, rule):
    """Fill the columns of out from `done` on until a plan is due; returns how many columns are filled then."""
    counts, playing, cadence = parts
    for k in range(done, out.shape[1]):
        play(sim, meter, counts, playing, rng, out, k)
        note_episode(cadence, counts.visits, playing.path, playing.actions, rule)
        if cadence.due[0]:
            return k + 1
    return out.shape[1]


class Planner(Replanning):
    """Plans in the model that the counts suggest."""

    @abstractmethod
    def plan(self, belief: Belief) -> Decided:
        """The policy to play, given what the counts say; of what changes, it may also look at `playing.lam`."""

    def best(self, models: Models, x: FloatArray, rho: FloatArray, start_bonus: float = 0.0) -> Decided:
        """The best pair of a policy and a model for signals x [1 + N]; where none meets the bounds, prices are 0."""
        found = plan(models, x, rho, self.spec.allowed, self.spec.H, guess=self.playing.lam)
        lam = found.lam if found.feasible else 0.0 * found.lam
        return Decided(found.pi, lam, found.value + start_bonus, found.feasible)

    def believed(self) -> Belief:
        """What the counts say by now."""
        return Belief.of(self.counts, self.spec.A)

    def explain(self) -> dict[str, Any]:
        """The number of plans, of plans without a policy that meets the bounds, and of episodes of the safe policy."""
        log = self.plan_log
        found = {"infeasible_plans": log.infeasible, "baseline_episodes": log.baseline_episodes}
        return super().explain() | found

    def _replan(self) -> None:
        belief = self.believed()
        decided = self.plan(belief)
        self.plan_log.planned(decided)
        self.playing.pi[...], self.playing.lam[...] = decided.pi, decided.lam
        mark_planned(self.cadence, self.counts, belief.model, self.playing.pi)


class OptimisticPlanner(Planner):
    """A planner with optimistic plans, which therefore recommends a different policy."""

    params: WithMargin

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that is best in the estimated model and clears the bounds there by a margin for its own error.

        It uses actions that were tried a few times; in states that were never seen it is the policy played last.
        """
        known, found = self.once(self._covering_plan)
        pi: FloatArray = np.where(known[..., None], found.plan.pi, self.behaviour())
        return pi

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that the last plan found out of reach, or that the policy to return may miss."""
        said = super().warnings()
        if self.plan_log.last_infeasible:
            said += (Note("no plan"),)
        if not self.plan_log.plans or not self.params.margin:
            return said
        short = self.once(self._covering_plan)[1].uncovered
        return (*said, *(Note("not cleared", int(n), by=float(short[n])) for n in np.flatnonzero(short)))

    def explain(self) -> dict[str, Any]:
        """How planning went, and the margin of the policy that would be returned now, in unit scale."""
        if not self.plan_log.plans:
            return super().explain()
        allowed = self.spec.allowed
        cells = int(allowed.any(axis=0).sum() if self.T < self.spec.H else allowed.sum())
        tried = int((self.counts.visits > 0).sum())
        margin = self.once(self._covering_plan)[1].margin
        return {
            **super().explain(),
            "cells never tried": f"{cells - tried} of {cells}",
            "margin of the returned policy": UnitTotals(margin.round(6).tolist()),
        }

    def _covering_plan(self) -> tuple[BoolArray, HandOver]:
        """Where the estimated model knows an action [H, S], and the plan in it with its margin."""
        spec = self.spec
        z = self.params.margin * error_quantile(self.params.delta / 2, spec.N) if spec.N else 0.0
        for least in (self.params.tried, 1):
            model = model_of(self.counts, spec.rho, spec.allowed, least)
            found = handed_over(model, spec.rho, np.zeros(spec.N), z)
            if found.plan.feasible:
                break
        return model.known, found


class SafePlanner(Planner):
    """A planner that knows a safe policy, the baseline pi [H, S, A], and its utilities.

    `margin` is the least amount by which the baseline exceeds a bound.
    """

    needs: ClassVar[tuple[str, ...]] = ("baseline", "baseline_utility")
    params: SafePlanning

    def __init__(self, spec: Spec, *, baseline: Any = None, baseline_utility: Any = None, **params: Any) -> None:
        super().__init__(spec, **params)
        self.baseline = policy_of(spec, baseline)
        self.baseline_utility = utilities_of(spec, baseline_utility)
        self.margin = float((self.baseline_utility - spec.rho).min(initial=np.inf))

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of a plan with everything seen so far: shown to be safe, or the baseline."""
        return self.plan(self.believed()).pi.copy()

    def best(self, models: Models, x: FloatArray, rho: FloatArray, start_bonus: float = 0.0) -> Decided:
        """The best pair of a policy and a model, or the baseline where none meets the bounds."""
        decided = super().best(models, x, rho, start_bonus)
        return decided if decided.feasible else self.fall_back()

    def fall_back(self) -> Decided:
        """The baseline."""
        return Decided(self.baseline, np.zeros(self.spec.N), np.nan, baseline=True)

    def _doubt(self, pessimism: float, needed: float) -> tuple[str, ...]:
        """A note where even K visits of every pair leave more pessimism than the baseline's margin allows."""
        if pessimism < needed:
            return ()
        H = self.spec.H
        return (
            f"even after K = {self.spec.K} visits of a pair the utilities of an episode are lowered by "
            f"{pessimism / H:.1%} of their largest possible range, and only {needed / H:.1%} would let it leave the "
            "baseline: it will be played throughout",
        )
