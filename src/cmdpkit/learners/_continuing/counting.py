"""Where an unbroken run stands, and the compiled loop that plays a policy and counts.

The loop stops when there is something to decide: the visits of a pair (s, a) have doubled since the last plan, or an
appointed step has come. Single steps and the loop call the same functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.estimate.counts import count_move, count_start, count_step
from cmdpkit.learners.spec import Spec
from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.steps import advance
from cmdpkit.simulate.steps import count_step as meter_step

# The entries of `Position.clock`: steps taken; step at which the loop must stop at the latest; whether the visits of a
# pair have doubled since the last plan; step at which the present plan began.
STEPS, APPOINTED, DOUBLED, BEGAN = 0, 1, 2, 3


class Position(NamedTuple):
    """Where a run stands; arrays that the compiled loop updates."""

    before: Any  # [S * A], visits of each pair when the present plan was made
    totals: Any  # [1+N], all signals added up
    clock: Any  # [4], see STEPS, APPOINTED, DOUBLED, BEGAN
    place: Any  # [2], the present state and the action chosen there

    @classmethod
    def of(cls, spec: Spec) -> Position:
        """Before the first step."""
        return cls(
            before=np.zeros(spec.S * spec.A, dtype=np.int64),
            totals=np.zeros(1 + spec.N),
            clock=np.zeros(4, dtype=np.int64),
            place=np.full(2, -1, dtype=np.int64),
        )


@inlined
def observe(counts, at, A, outcomes, x):
    """Count the action that was taken at `at.place`, and the signals outcomes[x] [1+N] that followed."""
    cell = at.place[0] * A + at.place[1]
    at.clock[STEPS] += 1
    count_step(counts, cell, outcomes, x)
    for n in range(len(at.totals)):
        at.totals[n] += outcomes[x, n]
    if counts.visits[cell] >= 2 * max(1, at.before[cell]):
        at.clock[DOUBLED] = 1


@inlined
def arrive(counts, at, A, s_next, restarted):
    """Count where it led to, or where the run began again; the action there is yet to be chosen."""
    if restarted:
        count_start(counts, s_next)
    else:
        count_move(counts, at.place[0] * A + at.place[1], s_next)
    at.place[0] = s_next
    at.place[1] = -1


@inlined
def is_due(at):
    """Whether there is something to decide before the next action is chosen."""
    return at.clock[STEPS] >= at.clock[APPOINTED] or at.clock[DOUBLED] == 1


@inlined
def draw(at, pi, rng):
    """An action for the present state, drawn from the step of pi [L, S, A] that it is time for.

    Step L is followed by the first one again. A certain action is taken without a random number.
    """
    turn, s = (at.clock[STEPS] - at.clock[BEGAN]) % len(pi), at.place[0]
    last = 0
    left = -1.0
    for a in range(pi.shape[2]):
        p = pi[turn, s, a]
        if p >= 1.0:
            return a
        if p > 0.0:
            if left < 0.0:
                left = uniform(rng)
            left -= p
            last = a
            if left < 0.0:
                return a
    return last


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
        at.place[1] = draw(at, pi, rng)
    return last
