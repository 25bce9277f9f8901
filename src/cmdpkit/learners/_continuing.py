"""What learners in worlds without episodes share: a compiled loop over steps, and plans of an estimated model.

What a learner plays and learns from is a NamedTuple, its *player*. The type of the player chooses, while the loop is
compiled, what is learned from a step (`observe`) and from where it led (`arrive`). Single steps and the loop call the
same functions.

A `Player` plays plans and counts until there is something to decide: the visits of a pair (s, a) have doubled since the
last plan, or an appointed step has come. Plans are found by the exact solver, also where their bounds cannot be met.
Counts, models made of them, boxes and errors are in `cmdpkit.estimate`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.continuing import Model, Seen, chain_of, mean_model, proven_model
from cmdpkit.estimate.counts import Counts, count_move, new_counts, start_of, with_room_for_episodes
from cmdpkit.estimate.counts import count_step as count_signals
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.stationary import Stationary
from cmdpkit.exact.stationary.plans import plans_of
from cmdpkit.exact.stationary.problem import whole_policy
from cmdpkit.learners._note import Note
from cmdpkit.learners.contract import Learner
from cmdpkit.learners.params import NEVER, Returns, Spec, check_walk
from cmdpkit.model.compiled import compiled, primitive
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chains import long_run_shares
from cmdpkit.simulate.meter import Walk, advance, count_step
from cmdpkit.simulate.random import Stream, draw
from cmdpkit.simulate.simulator import reset

# -- Plans.


class Planned(NamedTuple):
    """A policy, and whether it meets the bounds in the model that it was planned in."""

    pi: FloatArray  # [S, A]
    feasible: bool  # whether it meets the bounds there


def planned(model: Model, rho: FloatArray) -> Planned:
    """The best policy under bounds rho [N] per step, or the one that misses the worst bound by least."""
    return ContinuingPlanner(model).policy(rho)


class ContinuingPlanner:
    """One model that is solved for several bounds; what was found for one serves the others."""

    def __init__(self, model: Model) -> None:
        self.source = Stationary(model)
        self.pool = Columns(self.source)
        self.per_step = 1.0 - model.discount if model.kind == "discounted" else 1.0

    def reach(self, rho: FloatArray) -> float:
        """By how much all bounds rho can be exceeded at once, negative if they cannot be met together."""
        return self.pool.slack(rho / self.per_step) * self.per_step

    def policy(self, rho: FloatArray, relaxed: tuple[float, ...] = (1e-9, 1e-4, 1e-2, 0.2)) -> Planned:
        """The best policy under bounds rho [N] per step, or the one that misses the worst bound by least.

        If no policy meets rho, the bounds are lowered to what can be reached, less each number of `relaxed` in turn,
        in unit scale, until a policy is found; the first one nearly always suffices.
        """
        pi = self._solved(rho)
        if pi is not None:
            return Planned(pi, True)
        best = rho + self.reach(rho)
        for room in relaxed:
            pi = self._solved(best - room)
            if pi is not None:
                return Planned(pi, False)
        raise CmdpkitError("not solved: no policy was found in the estimated model, even with relaxed bounds")

    def _solved(self, rho: FloatArray) -> FloatArray | None:
        """The optimum, if the bounds can be met; of a mixture, the part with the largest weight."""
        best = self.pool.optimum(self.pool.scaled(rho / self.per_step))
        if best is None:
            return None
        plans = plans_of(self.source, self.pool.parts(best.weights), best.proof, best.rho)
        return whole_policy(self.source.problem, plans.policies[int(np.argmax(plans.weights))])


# -- The loop over steps.


@primitive
def observe(player, outcomes, x):
    """Learn from the signals outcomes[x] [1+N] that followed the action at `player.place`."""


@primitive
def arrive(player, s, restarted, rng):
    """Learn where it led, or where the run began again, and choose an action there; returns whether that was possible.

    If there is something to decide before, `player.place` has the action -1.
    """


@compiled
def play(walk, player, rng, out, first, last):
    """Fill the columns of out [1+N, n] from `first` on, until `last` or until there is something to decide.

    Returns how many columns of `out` are filled.
    """
    outcomes = walk.simulator.outcomes
    for t in range(first, last):
        s, a = player.place[0], player.place[1]
        s_next, x, restarted = advance(walk, s, a, rng)
        count_step(walk.meter, s, a, outcomes[x])
        for n in range(len(out)):
            out[n, t] = outcomes[x, n]
        observe(player, outcomes, x)
        if not arrive(player, np.int64(s_next), restarted, rng):
            return t + 1
    return last


class StepLearner(Learner):
    """A learner in a world without episodes; a subclass says with `_player` what it plays and learns from."""

    criteria: ClassVar[tuple[str, ...]] = ("average", "discounted")

    @abstractmethod
    def _player(self) -> Any:
        """What compiled code plays and learns from."""

    def _decided(self, rng: Stream) -> None:
        """Decide what to play, and choose an action, where `arrive` could not."""
        raise NotImplementedError

    def _make_room(self, steps: int) -> int:
        """Make room for more steps, if possible for as many as are asked for; returns for how many there is room."""
        return steps

    def first(self, s: int, rng: Stream) -> int:
        """Begin the run, or go on after a new start, in state s."""
        return self._arrive(s, True, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step, and choose the next action."""
        self._make_room(1)
        self.last(signals)
        return self._arrive(s, False, rng)

    def last(self, signals: FloatArray) -> None:
        """Learn from a step that is followed by a new start."""
        observe(self._player(), np.reshape(signals, (1, -1)), 0)

    def _arrive(self, s: int, restarted: bool, rng: Stream) -> int:
        if not arrive(self._player(), s, restarted, rng):
            self._decided(rng)
        return int(self._player().place[1])

    def walk(self, walk: Walk, rng: Stream, n: int) -> Returns:
        """Take n more steps in compiled code."""
        check_walk(walk, self.spec)
        out, done = np.empty((1 + self.spec.N, n)), 0
        if walk.place[0] < 0:
            self.first(int(reset(walk.simulator, rng)), rng)
        while done < n:
            last = done + self._make_room(n - done)
            done = int(play(walk, self._player(), rng, out, done, last))
            if self._player().place[1] < 0:
                self._decided(rng)
        walk.place[...] = self._player().place
        return Returns(out[0], out[1:])


# -- Learners that play plans and count.

# The entries of `Position.clock`: steps taken; step at which the loop must stop at the latest; whether the visits of a
# pair have doubled since the last plan; step at which the present plan began.
STEPS, APPOINTED, DOUBLED, BEGAN = 0, 1, 2, 3


class Position(NamedTuple):
    """Where a run stands; arrays that the compiled loop updates."""

    before: IntArray  # [S * A], visits of each pair when the present plan was made; large where doubling is ignored
    totals: FloatArray  # [1+N], all signals added up
    clock: IntArray  # [4], see STEPS, APPOINTED, DOUBLED, BEGAN
    place: IntArray  # [2], the present state and the action chosen there

    @classmethod
    def of(cls, spec: Spec) -> Position:
        """Before the first step."""
        return cls(
            before=np.full(spec.S * spec.A, NEVER // 2),
            totals=np.zeros(1 + spec.N),
            clock=np.zeros(4, dtype=np.int64),
            place=np.full(2, -1, dtype=np.int64),
        )


class PlanPlayer(NamedTuple):
    """What compiled code plays and learns from; the counts must have room for as many transitions."""

    place: IntArray  # that of `at`
    at: Position
    counts: Counts
    pi: FloatArray  # [L, S, A]: the plan, whose step L is followed by the first one again


@observe.of(PlanPlayer)
def _observe(player, outcomes, x):
    at, counts = player.at, player.counts
    cell = at.place[0] * player.pi.shape[2] + at.place[1]
    at.clock[STEPS] += 1
    count_signals(counts, cell, outcomes, x)
    for n in range(len(at.totals)):
        at.totals[n] += outcomes[x, n]
    if counts.visits[cell] >= 2 * max(1, at.before[cell]):
        at.clock[DOUBLED] = 1


@arrive.of(PlanPlayer)
def _arrive(player, s, restarted, rng):
    at, counts = player.at, player.counts
    if restarted:
        counts.starts[s] += 1
    else:
        count_move(counts, at.place[0] * player.pi.shape[2] + at.place[1], s)
    at.place[0] = s
    at.place[1] = -1
    if at.clock[STEPS] >= at.clock[APPOINTED] or at.clock[DOUBLED] == 1:
        return False
    at.place[1] = chosen(player, rng)
    return True


@compiled(inline=True)
def chosen(player, rng):
    """An action for the present state, drawn from the step of the plan that it is time for.

    A certain action is taken without a random number.
    """
    turn = (player.at.clock[STEPS] - player.at.clock[BEGAN]) % len(player.pi)
    return draw(player.pi[turn], player.at.place[0], rng)


def at_random(spec: Spec) -> FloatArray:
    """pi [S, A] that takes all allowed actions alike."""
    allowed = spec.allowed[0]
    pi: FloatArray = allowed / allowed.sum(axis=1, keepdims=True)
    return pi


class Player(StepLearner):
    """A learner that plays plans; a subclass says which, in `decide`.

    A plan is one policy, or several that are played in turn.
    """

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.counts = new_counts(1, spec.S, spec.A, 1 + spec.N)
        self.position = Position.of(spec)
        self.pi = at_random(spec)[None]  # [L, S, A], what is played; at first at random
        self.plans = 0  # how many were made
        self.impossible = 0  # how many of them could not meet the bounds

    @abstractmethod
    def decide(self, rng: Stream) -> None:
        """Choose what to play from now on, and say with `wait` until when."""

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self.position.clock[STEPS])

    @property
    def doubled(self) -> bool:
        """Whether the visits of a pair have doubled since the last plan."""
        return bool(self.position.clock[DOUBLED])

    @property
    def totals(self) -> FloatArray:
        """[1+N], all signals so far added up."""
        return self.position.totals

    def seen(self) -> Seen:
        """What was seen so far."""
        spec = self.spec
        return Seen(self.counts, int(self.position.place[0]), spec.allowed[0], spec.restart, spec.criterion)

    def begin_epoch(self) -> None:
        """Decide again when the visits of a pair have doubled; without this, doubling is ignored."""
        self.position.before[...] = self.counts.visits
        self.position.clock[DOUBLED] = 0

    def wait(self, steps: int) -> None:
        """Begin the plan, and decide again after `steps` at the latest."""
        self.position.clock[BEGAN] = self.steps
        self.position.clock[APPOINTED] = self.steps + max(1, steps)

    def follow(self, found: Planned) -> None:
        """Play a plan from now on, and note whether it meets the bounds."""
        self.plans += 1
        self.impossible += not found.feasible
        self.pi[...] = found.pi

    def _player(self) -> PlanPlayer:
        return PlanPlayer(self.position.place, self.position, self.counts, self.pi)

    def _decided(self, rng: Stream) -> None:
        self.decide(rng)
        self.position.place[1] = chosen(self._player(), rng)

    def _make_room(self, steps: int) -> int:
        self.counts, room = with_room_for_episodes(self.counts, 1, 1024)
        return min(steps, room)

    # -- results -------------------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [1, S, A] that is played now."""
        now = (self.position.clock[STEPS] - self.position.clock[BEGAN]) % len(self.pi)
        return self.pi[now : now + 1].copy()

    def recommend(self) -> FloatArray:
        """pi [1, S, A], the best policy of the proven model; at random as long as nothing was seen."""
        model = proven_model(self.seen())
        return (at_random(self.spec) if model is None else planned(model, self.spec.rho).pi)[None]

    def internals(self) -> dict[str, Any]:
        """How many plans were made, and how many of them could not meet the bounds."""
        return {"plans": self.plans, "plans that could not meet the bounds": self.impossible}

    def warnings(self) -> tuple[str | Note, ...]:
        """That the returned policy may end in one of several parts of the world, by the transitions seen so far."""
        model = mean_model(self.seen())
        if model is None or model.kind != "average":
            return ()
        _, classes = long_run_shares(chain_of(model, self.recommend()[0]), start_of(self.counts.starts))
        if len(classes) < 2:
            return ()
        return (
            f"by the transitions seen so far, the returned policy ends in one of {len(classes)} sets of states that "
            "it never leaves; its long-run averages are means over these, and a single run has those of one of them",
        )
