"""Episodes of a policy with deviations, and what is written down about them: the compiled part of practical PRI.

A block of episodes plays one policy pi. At every step a coin, independent of everything else, may ask for a
*deviation*: a random one of the actions still in question there, if there are any, instead of an action of pi. What
follows a deviation is pi again, until the next coin. Three kinds of samples come of it, each a vector (reward,
utilities):

- a row (h, s, a): what the step earned plus what the rest of the episode is worth under pi, which is read off a table
  of values at the first later state whose value is well known; up to there the sample runs on, and it is dropped if a
  coin falls on the way. Bootstrapping from values of pi, not from rows, keeps the noise of rare actions out.
- a value (h, s): the return from there on, if no coin falls at h or later.
- a start: the return of a whole episode without coins, with its visits.

Coins are thrown whether or not a state has anything to try, so "no coin" says nothing about the path: samples are fair.
All samples go into records of moments (`moments`), n, sums and products, side by side in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.compiled import ONE, ZERO, compiled, inlined
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.meter import collect, watch_policy
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step


class Plan(NamedTuple):
    """What is played in a block. The length of `zero`, 1 + N, is known when compiling."""

    H: Any  # uint64
    S: Any
    A: Any
    zero: tuple[float, ...]  # [1+N]
    coin: float  # chance of a deviation per step
    learn: bool  # write down rows, values and starts
    certify: bool  # write down returns as the sample of a fixed policy
    pi: FloatArray  # [H*S, A], deviations included: what is played, for the meter
    cdf: FloatArray  # [H*S, A], of the policy without deviations
    sure: NDArray[np.uint64]  # [H*S]: its action where it has only one, else A
    options: NDArray[np.uint64]  # [H*S, A]: actions to deviate to come first
    choices: NDArray[np.int64]  # [H*S]: how many those are
    ahead: FloatArray  # [(H+1)*S, 1+N]: value estimates; row H stays 0
    known: BoolArray  # [(H+1)*S]: where they are good enough; row H is


class Tables(NamedTuple):
    """Moments of all samples; a record holds n, 1+N sums and the lower triangle of products."""

    rows: FloatArray  # [H*S*A, record]
    values: FloatArray  # [H*S, record]
    start: FloatArray  # [record]
    sample: FloatArray  # [record]: returns of a fixed policy, see Plan.certify
    visits: FloatArray  # [H*S], by the episodes of `start`
    totals: FloatArray  # [1+N], of all episodes


class Tape(NamedTuple):
    """The running episode."""

    states: NDArray[np.uint64]  # [H+1]
    actions: NDArray[np.uint64]  # [H]
    coins: BoolArray  # [H]
    signals: FloatArray  # [H, 1+N]
    total: FloatArray  # [1+N], scratch: returns-to-go, then the return of the episode
    target: FloatArray  # [1+N], scratch


@compiled
def episodes(sim, meter, plan, tables, tape, rng, changed, out, first, n):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Play n episodes, whose returns go to `out` [1+N, :] from column `first` on; `changed`: is the policy new?"""
    for k in range(first, first + n):
        watch_policy(meter, changed and k == first, plan.pi)
        s = reset(sim, rng)
        for h in range(plan.H):
            a = _act(plan, tape, h, s, rng)
            s_next, x = step(sim, h, s, a, rng)
            for m in range(len(plan.zero)):
                tape.signals[h, m] = sim.outcomes[x, m]
            s = s_next
        _finish(plan, tables, tape)
        for m in range(len(plan.zero)):
            out[m, k] = tape.total[m]
        collect(meter, tape.total)


@compiled
def act(plan, tape, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The action to take at step h in state s; one step of `episodes`, for whoever drives the environment."""
    return _act(plan, tape, h, s, rng)


@compiled
def finish(plan, tables, tape):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Learn from an episode whose tape is full."""
    _finish(plan, tables, tape)


@inlined
def _act(plan, tape, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Throw the coin, choose, and write both down."""
    i = np.uint64(h) * plan.S + np.uint64(s)
    coin = plan.coin > 0.0 and uniform(rng) < plan.coin
    if coin and plan.choices[i] > 0:
        a = plan.options[i, np.int64(uniform(rng) * plan.choices[i])]
    elif plan.sure[i] < plan.A:
        a = plan.sure[i]
    else:
        u = uniform(rng)
        a = ZERO
        while u >= plan.cdf[i, a]:
            a += ONE
    tape.states[h], tape.actions[h], tape.coins[h] = s, a, coin
    return a


@inlined
def _finish(plan, tables, tape):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Samples of an episode, from its end to its start; tape.total holds the return-to-go, in the end the return."""
    tape.states[plan.H] = ZERO
    for n in range(len(plan.zero)):
        tape.total[n] = 0.0
    free = True  # no coin at this step or later
    for back in range(plan.H):
        h = plan.H - ONE - back
        i = h * plan.S + tape.states[h]
        free = free and not tape.coins[h]
        for n in range(len(plan.zero)):
            tape.total[n] += tape.signals[h, n]
        if not plan.learn:
            continue
        if free:
            _add(plan, tables.values[i], tape.total)
        if _look_ahead(plan, tape, h):
            _add(plan, tables.rows[i * plan.A + tape.actions[h]], tape.target)
    for n in range(len(plan.zero)):
        tables.totals[n] += tape.total[n]
    if plan.certify:
        _add(plan, tables.sample, tape.total)
    if plan.learn and free:
        _add(plan, tables.start, tape.total)
        for h in range(plan.H):
            tables.visits[h * plan.S + tape.states[h]] += 1.0


@inlined
def _look_ahead(plan, tape, h):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill tape.target with step h's signals and what follows, up to the first known state; False if a coin falls."""
    for n in range(len(plan.zero)):
        tape.target[n] = tape.signals[h, n]
    j = h + ONE
    while not plan.known[j * plan.S + tape.states[j]]:
        if tape.coins[j]:
            return False
        for n in range(len(plan.zero)):
            tape.target[n] += tape.signals[j, n]
        j += ONE
    for n in range(len(plan.zero)):
        tape.target[n] += plan.ahead[j * plan.S + tape.states[j], n]
    return True


@inlined
def _add(plan, record, x):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One more sample x [1+N] in a record of moments."""
    record[0] += 1.0
    i = 1 + len(plan.zero)
    for m in range(len(plan.zero)):
        record[1 + m] += x[m]
        for n in range(m + 1):
            record[i] += x[m] * x[n]
            i += 1
