"""What learners in worlds without episodes share: plans of an estimated model, and the learner that plays them.

A plan is found by the exact solver, also where its bounds cannot be met. The learner plays it and counts, in a compiled
loop, until there is something to decide: the visits of a pair (s, a) have doubled since the last plan, or an appointed
step has come. Single steps and the loop call the same functions. Counts, models made of them, boxes and errors are in
`cmdpkit.estimate`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.continuing import Model, Seen, chain_of, mean_model, proven_model
from cmdpkit.estimate.counts import count_move, count_step, new_counts, with_room
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.stationary import Stationary
from cmdpkit.exact.stationary.plans import plans_of
from cmdpkit.exact.stationary.problem import whole_policy
from cmdpkit.learners._note import Note
from cmdpkit.learners.contract import Learner
from cmdpkit.learners.params import NEVER
from cmdpkit.learners.spec import Returns, Spec, check_walk
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chains import long_run_shares
from cmdpkit.simulate.random import Stream, draw
from cmdpkit.simulate.simulator import reset
from cmdpkit.simulate.steps import Walk, advance
from cmdpkit.simulate.steps import count_step as meter_step

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


# -- Where an unbroken run stands, and the compiled loop that plays a policy and counts.

# The entries of `Position.clock`: steps taken; step at which the loop must stop at the latest; whether the visits of a
# pair have doubled since the last plan; step at which the present plan began.
STEPS, APPOINTED, DOUBLED, BEGAN = 0, 1, 2, 3


class Position(NamedTuple):
    """Where a run stands; arrays that the compiled loop updates."""

    before: IntArray  # [S * A], visits of each pair when the present plan was made
    totals: FloatArray  # [1+N], all signals added up
    clock: IntArray  # [4], see STEPS, APPOINTED, DOUBLED, BEGAN
    place: IntArray  # [2], the present state and the action chosen there

    @classmethod
    def of(cls, spec: Spec) -> Position:
        """Before the first step."""
        return cls(
            before=np.zeros(spec.S * spec.A, dtype=np.int64),
            totals=np.zeros(1 + spec.N),
            clock=np.zeros(4, dtype=np.int64),
            place=np.full(2, -1, dtype=np.int64),
        )


@compiled(inline=True)
def observe(counts, at, A, outcomes, x):
    """Count the action that was taken at `at.place`, and the signals outcomes[x] [1+N] that followed."""
    cell = at.place[0] * A + at.place[1]
    at.clock[STEPS] += 1
    count_step(counts, cell, outcomes, x)
    for n in range(len(at.totals)):
        at.totals[n] += outcomes[x, n]
    if counts.visits[cell] >= 2 * max(1, at.before[cell]):
        at.clock[DOUBLED] = 1


@compiled(inline=True)
def arrive(counts, at, A, s_next, restarted):
    """Count where it led to, or where the run began again; the action there is yet to be chosen."""
    if restarted:
        counts.starts[s_next] += 1
    else:
        count_move(counts, at.place[0] * A + at.place[1], s_next)
    at.place[0] = s_next
    at.place[1] = -1


@compiled(inline=True)
def is_due(at):
    """Whether there is something to decide before the next action is chosen."""
    return at.clock[STEPS] >= at.clock[APPOINTED] or at.clock[DOUBLED] == 1


@compiled(inline=True)
def choose(at, pi, rng):
    """An action for the present state, drawn from the step of pi [L, S, A] that it is time for.

    Step L is followed by the first one again. A certain action is taken without a random number.
    """
    turn = (at.clock[STEPS] - at.clock[BEGAN]) % len(pi)
    return draw(pi[turn], at.place[0], rng)


@compiled
def play(walk, counts, at, pi, rng, out, first, last):
    """Play pi [L, S, A] and fill the columns of out [1+N, n] from `first` on, until `last` or until a decision is due.

    Returns how many columns of `out` are filled. The action in the state that was reached is drawn, unless there is
    something to decide before; then it is -1. The counts must have room for as many transitions.
    """
    outcomes, A = walk.simulator.outcomes, pi.shape[2]
    for t in range(first, last):
        s, a = at.place[0], at.place[1]
        s_next, x, restarted = advance(walk, s, a, rng)
        meter_step(walk.meter, s, a, outcomes[x])
        for n in range(len(at.totals)):
            out[n, t] = outcomes[x, n]
        observe(counts, at, A, outcomes, x)
        arrive(counts, at, A, np.int64(s_next), restarted)
        if is_due(at):
            return t + 1
        at.place[1] = choose(at, pi, rng)
    return last


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
    room: ClassVar[int] = 1024  # transitions that room is made for at a time, at least

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.counts = new_counts(1, spec.S, spec.A, 1 + spec.N)
        self.position = Position.of(spec)
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

    def wait(self, steps: int) -> None:
        """Begin the plan, and decide again after `steps`, or when the visits of a pair have doubled."""
        self.position.clock[BEGAN] = self.steps
        self.position.clock[APPOINTED] = self.steps + max(1, steps)

    def begin_epoch(self) -> None:
        """Remember the visits, which have to double before the next plan."""
        self.position.before[...] = self.counts.visits
        self.position.clock[DOUBLED] = 0

    def ignore_doubling(self) -> None:
        """From now on decide at the appointed steps only."""
        self.position.before[...] = NEVER // 2

    def follow(self, found: Planned) -> None:
        """Play a plan from now on, and note whether it meets the bounds."""
        self.plans += 1
        self.impossible += not found.feasible
        self.pi[...] = found.pi

    # -- the contract --------------------------------------------------------------------------------------------------

    def first(self, s: int, rng: Stream) -> int:
        """Begin the run, or go on after a new start, in state s."""
        arrive(self.counts, self.position, self.spec.A, s, True)
        return self._chosen(rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Count a step, and choose the next action."""
        self._observe(signals)
        self.counts = with_room(self.counts, 1)
        arrive(self.counts, self.position, self.spec.A, s, False)
        return self._chosen(rng)

    def last(self, signals: FloatArray) -> None:
        """Count a step that is followed by a new start."""
        self._observe(signals)

    def _observe(self, signals: FloatArray) -> None:
        observe(self.counts, self.position, self.spec.A, np.reshape(signals, (1, -1)), 0)

    def walk(self, walk: Walk, rng: Stream, n: int) -> Returns:
        """Take n more steps in compiled code."""
        check_walk(walk, self.spec)
        out = np.empty((1 + self.spec.N, n))
        if walk.place[0] < 0:
            self.first(int(reset(walk.simulator, rng)), rng)
        done = 0
        while done < n:
            used = int(self.counts.used[0])
            self.counts = with_room(self.counts, max(used, self.room))
            last = min(n, done + len(self.counts.link) - used)
            done = int(play(walk, self.counts, self.position, self.pi, rng, out, done, last))
            if self.position.place[1] < 0:
                self._chosen(rng)
        walk.place[...] = self.position.place
        return Returns(out[0], out[1:])

    def _chosen(self, rng: Stream) -> int:
        """The next action; before it is drawn, decide what to play if it is time to."""
        if is_due(self.position):
            self.decide(rng)
        self.position.place[1] = choose(self.position, self.pi, rng)
        return int(self.position.place[1])

    def behaviour(self) -> FloatArray:
        """pi [1, S, A] that is played now."""
        now = (self.position.clock[STEPS] - self.position.clock[BEGAN]) % self.length
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
        starts = self.counts.starts / self.counts.starts.sum()
        _, classes = long_run_shares(chain_of(model, self.recommend()[0]), starts)
        if len(classes) < 2:
            return ()
        return (
            f"by the transitions seen so far, the returned policy ends in one of {len(classes)} sets of states that "
            "it never leaves; its long-run averages are means over these, and a single run has those of one of them",
        )
