"""The base classes of model-based learners: play a policy, count what happens, find the next policy from the counts.

A learner *plans*: it writes `plan`, a function of what the counts say, and a `Cadence` says when a plan is due. Or it
*improves* policy and prices a little after every episode, in compiled code (`iterating`). What follows an episode is
kept in `after`, a `Cadence` or `PolicySteps`, and the type chooses what compiled code does.

Plans of optimistic planners are too good to be true, so that they return another policy. It is the best of the
estimated model among actions that were tried, and clears the bounds by a margin for the standard error of its own
prediction: an optimum of an estimated model meets a bound exactly there, and hence misses it in truth in about half of
all cases. The margin is that of CL-PRI (`cmdpkit.estimate.model`). Safe planners play a known safe policy, the
baseline, until they can prove another one safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from cmdpkit.estimate.boxes import Known, Models, plan
from cmdpkit.estimate.certificate import Certifier
from cmdpkit.estimate.changes import steps_warning
from cmdpkit.estimate.counts import (
    Counts,
    Episode,
    count_episode,
    estimated,
    new_counts,
    with_room,
    with_room_for_episodes,
)
from cmdpkit.estimate.intervals import Intervals
from cmdpkit.estimate.model import HandOver, error_quantile, handed_over, model_of
from cmdpkit.learners import Learner, Source, Spec, State
from cmdpkit.learners._episodes import choose, chosen, learn, learned, play_episodes, show
from cmdpkit.learners._model_based.settings import (
    Cadence,
    PlannerSettings,
    Planning,
    SafePlanning,
    WithMargin,
    mark_planned,
    new_cadence,
    note_episode,
    policy_of,
    utilities_of,
)
from cmdpkit.learners._note import Note, UnitTotals, notes_above
from cmdpkit.model.compiled import primitive
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.simulate.meter import PolicyTable, watch
from cmdpkit.simulate.random import Stream, uniform

Found = TypeVar("Found")


class Playing(NamedTuple):
    """The policy in use, and its prices."""

    pi: FloatArray  # [H, S, A]: the policy
    rows: FloatArray  # [H*S, A]: the same memory, in the shape that the meter reads
    lam: FloatArray  # [N]: the price in reward that is put on each utility
    episodes: IntArray  # [1]: how many episodes were played
    changed: BoolArray  # [1]: whether pi has changed since the last episode began


class CountingPlayer(NamedTuple):
    """What compiled code plays and learns from."""

    counts: Counts
    playing: Playing
    after: Any  # `Cadence` or `PolicySteps`: what is done after an episode


@primitive
def follow_up(after, counts, playing, episode):
    """What is done after an episode that was counted; returns whether a plan is due."""


@follow_up.of(Cadence)
def _look_whether_due(cadence, counts, playing, episode):
    note_episode(cadence, counts.visits, episode.states, episode.actions)
    return cadence.due[0]


@show.of(CountingPlayer)
def _show(player, meter):
    watch(meter, player.playing.changed[0], PolicyTable(player.playing.rows), 1)


@choose.of(CountingPlayer)
def _draw(player, episode, h, s, rng):
    """An action drawn from pi[h, s]; where rounding leaves the sum below 1, the last possible action gets the rest."""
    pi, u, taken = player.playing.pi, uniform(rng), 0
    for a in range(pi.shape[2]):
        if pi[h, s, a] > 0.0:
            taken = a
            u -= pi[h, s, a]
            if u < 0.0:
                break
    return taken


@learn.of(CountingPlayer)
def _learn(player, episode, rng):
    player.playing.changed[0] = False
    count_episode(player.counts, episode, player.playing.pi.shape[2])
    player.playing.episodes[0] += 1
    return follow_up(player.after, player.counts, player.playing, episode)


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
        found = estimated(counts, A)
        visits, moved = (x.reshape(found.kernel.shape) for x in (counts.visits, counts.moves))
        model = Known.of(found.kernel, found.mu)
        return cls(counts, model, found.signals, visits, moved, int(counts.starts.sum()))


class Decided(NamedTuple):
    """What a plan says."""

    pi: FloatArray  # [H, S, A]: the policy to play
    lam: FloatArray  # [N]: the price of each constraint
    value: float  # the expected total reward that the plan promises
    feasible: bool = True  # whether the plan meets the bounds
    baseline: bool = False  # whether the policy is a known safe one


@dataclass
class PlanLog:
    """How planning went so far."""

    plans: int = 0  # plans made
    infeasible: int = 0  # plans that found no policy within the bounds
    last_infeasible: bool = False  # whether the last plan was one of these
    on_baseline: bool = False  # whether the policy in use is the known safe one
    baseline_episodes: int = 0  # episodes that played the known safe policy


class ModelBased(Learner):
    """A learner that plays a policy pi [H, S, A] and counts, over all steps together where the world is stationary.

    A planner writes `plan`; a learner that improves its policy after every episode inherits from `iterating.Improving`.
    """

    params: PlannerSettings
    certifies = True
    changing: ClassVar[tuple[str, ...]] = ("playing", "counts", "after", "plan_log")
    derived: tuple[IntArray, ...] = ()  # visits that working memory was found from; -1 asks for it again
    _found: tuple[int, Any] = (-1, None)  # number of episodes, and what `once` has found after them

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.T = 1 if spec.stationary else spec.H  # steps with counts of their own
        self.counts = new_counts(self.T, spec.S, spec.A, 1 + spec.N)
        pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        episodes, changed = np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool)
        self.playing = Playing(pi, pi.reshape(-1, spec.A), np.zeros(spec.N), episodes, changed)
        self.after: Any = None
        if isinstance(self.params, Planning):
            self.after = new_cadence(self.T, spec.S, spec.A, self.params.replan, self.params.progress)
        self.plan_log = PlanLog()
        self.certifier = certifier_of(spec, self.params.delta)
        self._acted = 0  # steps of the running episode with an action, if it is driven step by step

    # -- playing -------------------------------------------------------------------------------------------------------

    def begin(self, rng: Stream) -> None:
        """Plan, if a plan is due."""
        super().begin(rng)
        if isinstance(self.after, Cadence) and self.after.due[0]:
            self._replan(self.after)
            self.plan_log.plans += 1
            self.playing.changed[0] = True

    def act(self, h: int, s: int) -> int:
        """An action drawn from the policy in use."""
        self._acted = h + 1
        return int(chosen(self._player(), self._episode, h, s, self._rng))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode; after an early end, actions are drawn for the other steps as well."""
        self.counts, actions = with_room(self.counts, self.spec.H), actions.copy()
        for h in range(self._acted, self.spec.H):
            actions[h] = self.act(h, int(states[h]))
        episode = Episode(states[: self.spec.H], actions, signals, self._episode.totals)
        learned(self._player(), episode, self._rng)
        self._count(1)

    def _play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play until a plan is due, in a compiled loop."""
        self.begin(rng)
        self.counts, room = with_room_for_episodes(self.counts, self.spec.H)
        n = min(room, out.shape[1] - first)
        played = int(play_episodes(*source, self._player(), self._episode, rng, out, first, n))
        self._count(played)
        return played

    def _player(self) -> CountingPlayer:
        return CountingPlayer(self.counts, self.playing, self.after)

    def _count(self, episodes: int) -> None:
        """Note episodes of the policy in use."""
        self.plan_log.baseline_episodes += episodes if self.plan_log.on_baseline else 0

    # -- planning ------------------------------------------------------------------------------------------------------

    def plan(self, belief: Belief) -> Decided:
        """The policy to play, given what the counts say; of what changes, it may also look at `playing.lam`."""
        raise NotImplementedError

    def best(self, models: Models, x: FloatArray, rho: FloatArray, start_bonus: float = 0.0) -> Decided:
        """The best pair of a policy and a model for signals x [1 + N]; where none meets the bounds, prices are 0."""
        found = plan(models, x, rho, self.spec.allowed, self.spec.H, guess=self.playing.lam)
        lam = found.lam if found.feasible else 0.0 * found.lam
        return Decided(found.pi, lam, found.value + start_bonus, found.feasible)

    def believed(self) -> Belief:
        """What the counts say by now."""
        return Belief.of(self.counts, self.spec.A)

    def _replan(self, cadence: Cadence) -> None:
        """Make a plan, and note when the next one is due."""
        belief, log = self.believed(), self.plan_log
        decided = self.plan(belief)
        log.infeasible += not decided.feasible
        log.last_infeasible, log.on_baseline = not decided.feasible, decided.baseline
        self.playing.pi[...], self.playing.lam[...] = decided.pi, decided.lam
        mark_planned(cadence, self.counts, belief.model, self.playing.pi)

    def once(self, find: Callable[[], Found]) -> Found:
        """The result of a search that need not be repeated before the next episode."""
        episodes = int(self.counts.starts.sum())
        if self._found[0] != episodes:
            self._found = episodes, find()
        found: Found = self._found[1]
        return found

    # -- results -------------------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays."""
        return self.playing.pi.copy()

    def counted(self) -> Counts:
        """What was counted so far."""
        return self.counts

    def warnings(self) -> tuple[str | Note, ...]:
        """Data that contradict what was declared about the world."""
        return self.certifier.contradictions(self.counts)

    def internals(self) -> dict[str, Any]:
        """How counts are kept, and how planning went; nothing where there is no planning."""
        if not isinstance(self.after, Cadence):
            return {}
        log = self.plan_log
        return {
            "counts": "shared by all steps" if self.T < self.spec.H else "kept per step",
            "plans": log.plans,
            "infeasible_plans": log.infeasible,
            "baseline_episodes": log.baseline_episodes,
        }

    def certificate(self) -> Intervals | None:
        """What the counts prove about `recommend()`, in unit scale, with probability 1 - delta at all times at once."""
        return proved(self.certifier, self.counts, self.recommend())

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same arguments; one that does not fit changes nothing."""
        super().restore(state)
        self._found = (-1, None)
        for visits in self.derived:
            visits[...] = -1

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.playing.lam.copy()


class OptimisticPlanner(ModelBased):
    """A planner that returns another policy than it plays: the best of the estimate, with a margin for its error."""

    params: WithMargin

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that is best in the estimated model and clears the bounds there by a margin for its own error.

        It uses actions that were tried a few times; in states that were never seen it is the policy played last.
        """
        known, found = self.once(self._covering_plan)
        pi: FloatArray = np.where(known[..., None], found.plan.pi, self.playing.pi)
        return pi

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that the last plan found out of reach, or that the policy to return may miss."""
        said, log = super().warnings(), self.plan_log
        if log.last_infeasible:
            said += (Note("no plan"),)
        if not log.plans or not self.params.margin:
            return said
        return (*said, *notes_above("not cleared", self.once(self._covering_plan)[1].uncovered, 0.0))

    def internals(self) -> dict[str, Any]:
        """How planning went, and the margin of the policy that would be returned now, in unit scale."""
        said = super().internals()
        if not self.plan_log.plans:
            return said
        cells = int(self.spec.allowed.any(axis=0).sum() if self.T < self.spec.H else self.spec.allowed.sum())
        tried = int((self.counts.visits > 0).sum())
        margin = self.once(self._covering_plan)[1].margin
        return {
            **said,
            "cells never tried": f"{cells - tried} of {cells}",
            "margin of the returned policy": UnitTotals(margin.round(6).tolist()),
        }

    def _covering_plan(self) -> tuple[BoolArray, HandOver]:
        """Where the estimated model knows an action [H, S], and the plan in it with its margin."""
        spec, p = self.spec, self.params
        z = p.margin * error_quantile(p.delta / 2, spec.N) if spec.N else 0.0
        for least in (p.tried, 1):
            model = model_of(self.counts, spec.rho, spec.allowed, least)
            found = handed_over(model, spec.rho, np.zeros(spec.N), z)
            if found.plan.feasible:
                break
        return model.known, found


class SafePlanner(ModelBased):
    """A planner that plays a policy which is known to be safe, until it can prove another one safe."""

    needs = ("baseline", "baseline_utility")
    params: SafePlanning

    def __init__(self, spec: Spec, *, baseline: Any = None, baseline_utility: Any = None, **params: Any) -> None:
        super().__init__(spec, **params)
        self.baseline = policy_of(spec, baseline)  # [H, S, A]
        self.baseline_utilities = utilities_of(spec, baseline_utility)  # [N], strictly above the bounds
        self.margin = float((self.baseline_utilities - spec.rho).min(initial=np.inf))  # least amount above a bound

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of a plan with everything seen so far: shown to be safe, or the baseline."""
        return self.plan(self.believed()).pi.copy()

    def to_baseline(self) -> Decided:
        """The decision to play the baseline."""
        return Decided(self.baseline, np.zeros(self.spec.N), np.nan, baseline=True)

    def best_or_baseline(self, models: Models, x: FloatArray, rho: FloatArray) -> Decided:
        """The best plan for signals x [1 + N], or the baseline where none meets the bounds."""
        decided = self.best(models, x, rho)
        return decided if decided.feasible else self.to_baseline()

    def doubt(self, pessimism: float, needed: float) -> tuple[str, ...]:
        """A note where even K visits of every pair leave more pessimism than the baseline's margin allows."""
        H, K = self.spec.H, self.spec.K
        if pessimism < needed:
            return ()
        return (
            f"even after K = {K} visits of a pair the utilities of an episode are lowered by {pessimism / H:.1%} of "
            f"their largest possible range, and only {needed / H:.1%} would let it leave the baseline: it will be "
            "played throughout",
        )


def certifier_of(spec: Spec, delta: float) -> Certifier:
    """What proves statements from the counts of a run that may be wrong with probability delta."""
    T = 1 if spec.stationary else spec.H
    return Certifier(np.asarray(spec.allowed), spec.rho, T, delta, noiseless=spec.noiseless)


def proved(certifier: Certifier, counts: Counts, pi: FloatArray, sample: Intervals | None = None) -> Intervals | None:
    """What the counts, and a `sample` of intervals from episodes of pi itself, prove about pi; None if nothing.

    Counts that contradict the declaration that the world is stationary prove nothing: the sample is left.
    """
    if not counts.starts.any() or steps_warning(counts.parts, counts.part_moves):
        return sample
    certifier.look(counts)
    return certifier.prove(pi, sample)
