"""Learners that estimate the model, plan, and play the plan until they know enough for a better one."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from cmdpkit.estimate.belief import Belief, forget, new_belief, refresh
from cmdpkit.estimate.extended import ExtendedPlan
from cmdpkit.learners import Source, Spec, State
from cmdpkit.learners._model_based.cadence import CADENCES, PlanRule, mark_planned, new_cadence, note_episode
from cmdpkit.learners._model_based.counting import Counting, play
from cmdpkit.learners._model_based.settings import Planning
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
    def by(cls, found: ExtendedPlan, start_bonus: float = 0.0) -> Decided:
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
    """Plans from the counts, at the times that the setting `replan` asks for (`cadence`)."""

    params: Planning
    changing: ClassVar[tuple[str, ...]] = (*Counting.changing, "plan_log", "cadence")
    boxed: ClassVar[bool] = False  # whether it plans with all kernels within their radii, or with the estimate alone
    kernel_log = 0.0  # the logarithm inside the radii of transitions

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.plan_log, self.cadence = PlanLog(), new_cadence(self.T, spec.S, spec.A)
        self.belief = new_belief(self.counts, spec.A, boxed=self.boxed)
        self.rule = PlanRule(CADENCES.index(self.params.replan), float(self.params.progress))

    @abstractmethod
    def plan(self, belief: Belief) -> Decided:
        """The policy to play, given what the counts say; of what changes, it may also look at `playing.lam`."""

    def begin(self, rng: Stream) -> None:
        """Plan before an episode, if a plan is due; one that draws random numbers does it here."""
        self._begin()

    def believed(self) -> Belief:
        """What the counts say by now."""
        refresh(self.counts, self.belief, self.kernel_log, self.spec.H, self.boxed)
        return self.belief

    def explain(self) -> dict[str, Any]:
        """The number of plans, of plans without a policy that meets the bounds, and of episodes of the safe policy."""
        log = self.plan_log
        return {
            "counts": "shared by all steps" if self.T < self.spec.H else "kept per step",
            "plans": log.plans,
            "infeasible_plans": log.infeasible,
            "baseline_episodes": log.baseline_episodes,
        }

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same arguments; one that does not fit changes nothing."""
        super().restore(state)
        forget(self.belief)

    def _begin(self) -> None:
        if not self.cadence.due[0]:
            return
        belief = self.believed()
        decided = self.plan(belief)
        self.plan_log.planned(decided)
        self.playing.pi[...], self.playing.lam[...] = decided.pi, decided.lam
        self.playing.changed[0] = True
        mark_planned(self.cadence, belief.means, self.playing.pi)

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        done = 0
        while done < out.shape[1]:
            self.begin(rng)
            before = done
            parts = (self.counts, self.playing, self.cadence)
            done = episodes_until_due(source.simulator, source.meter, parts, rng, out, done, self.rule)
            self.plan_log.played(done - before)

    def _end(self) -> None:
        self.playing.episodes[0] += 1
        self.plan_log.played(1)
        note_episode(self.cadence, self.counts.visits, self.playing.path, self.playing.actions, self.rule)


@compiled
def episodes_until_due(sim, meter, parts, rng, out, done, rule):
    """Fill the columns of out from `done` on until a plan is due; returns how many columns are filled then."""
    counts, playing, cadence = parts
    for k in range(done, out.shape[1]):
        play(sim, meter, counts, playing, rng, out, k)
        note_episode(cadence, counts.visits, playing.path, playing.actions, rule)
        if cadence.due[0]:
            return k + 1
    return out.shape[1]
