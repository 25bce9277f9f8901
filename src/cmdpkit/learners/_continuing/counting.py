"""Counts of one unbroken run, and the compiled loop that plays a policy and counts.

The loop stops when there is something to decide: the visits of a pair (s, a) have doubled since the last plan, or an
appointed step has come. Single steps and the loop call the same functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.learners.spec import Spec
from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.steps import advance, count_step

# The entries of `Counts.clock`: steps taken; step at which the loop must stop at the latest; whether the visits of a
# pair have doubled since the last plan; step at which the present plan began.
STEPS, APPOINTED, DOUBLED, BEGAN = 0, 1, 2, 3


class Counts(NamedTuple):
    """What was seen so far; arrays that the compiled loop updates."""

    visits: Any  # [S, A], how often an action was taken
    before: Any  # [S, A], the same when the present plan was made
    moves: Any  # [S, A, S], where it led to; a new start is not counted
    sums: Any  # [1+N, S, A], signals added up
    squares: Any  # [1+N, S, A], their squares added up
    starts: Any  # [S], how often the run began in a state
    totals: Any  # [1+N], all signals added up
    clock: Any  # [4], see STEPS, APPOINTED, DOUBLED, BEGAN
    place: Any  # [2], the present state and the action chosen there

    @classmethod
    def of(cls, spec: Spec) -> Counts:
        """Nothing seen yet."""
        S, A, N = spec.S, spec.A, spec.N
        return cls(
            visits=np.zeros((S, A), dtype=np.int64),
            before=np.zeros((S, A), dtype=np.int64),
            moves=np.zeros((S, A, S), dtype=np.int32),
            sums=np.zeros((1 + N, S, A)),
            squares=np.zeros((1 + N, S, A)),
            starts=np.zeros(S, dtype=np.int64),
            totals=np.zeros(1 + N),
            clock=np.zeros(4, dtype=np.int64),
            place=np.full(2, -1, dtype=np.int64),
        )


@inlined
def observe(counts, signals):
    """Count the action that was taken at `counts.place`, and the signals [1+N] that followed."""
    s, a = counts.place[0], counts.place[1]
    counts.clock[STEPS] += 1
    counts.visits[s, a] += 1
    for n in range(len(signals)):
        counts.sums[n, s, a] += signals[n]
        counts.squares[n, s, a] += signals[n] * signals[n]
        counts.totals[n] += signals[n]
    if counts.visits[s, a] >= 2 * max(1, counts.before[s, a]):
        counts.clock[DOUBLED] = 1


@inlined
def arrive(counts, s_next, restarted):
    """Count where it led to, or where the run began anew; the action there is yet to be chosen."""
    if restarted:
        counts.starts[s_next] += 1
    else:
        counts.moves[counts.place[0], counts.place[1], s_next] += 1
    counts.place[0] = s_next
    counts.place[1] = -1


@inlined
def is_due(counts):
    """Whether there is something to decide before the next action is chosen."""
    return counts.clock[STEPS] >= counts.clock[APPOINTED] or counts.clock[DOUBLED] == 1


@inlined
def draw(counts, pi, rng):
    """An action for the present state, drawn from the step of pi [L, S, A] that it is time for.

    Step L is followed by the first one again. A certain action is taken without a random number.
    """
    turn, s = (counts.clock[STEPS] - counts.clock[BEGAN]) % len(pi), counts.place[0]
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
def play(walk, counts, pi, rng, out, first):
    """Play pi [L, S, A] from step `first` of out [1+N, n] on, until its end or until there is something to decide.

    Returns how many columns of `out` are filled. The action in the state that was reached is drawn, unless there is
    something to decide before; then it is -1.
    """
    outcomes = walk.simulator.outcomes
    for t in range(first, out.shape[1]):
        s, a = counts.place[0], counts.place[1]
        s_next, x, restarted = advance(walk, s, a, rng)
        signals = outcomes[x]
        count_step(walk.meter, s, a, signals)
        for n in range(len(signals)):
            out[n, t] = signals[n]
        observe(counts, signals)
        arrive(counts, np.int64(s_next), restarted)
        if is_due(counts):
            return t + 1
        counts.place[1] = draw(counts, pi, rng)
    return out.shape[1]
