"""The compiled part of Triple-Q: tables and constants, and what is done with them in an episode and in a frame.

`play` is the loop over a `Simulator`; `chosen` and `learn` serve loops over other environments with the same functions
`choose`, `update` and `end_episode`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners._exploration import random_action
from cmdpkit.model.compiled import ONE, ZERO, compiled, inlined
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.meter import collect, watch
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step

FRAMES, LEFT, CHANGED = 0, 1, 2  # clock: frames ended, episodes left in this one; policy changed since it was watched
NOTHING = -0.0  # unlike 0.0, it adds to a number without a trace, so the compiler drops the addition
Flag = Literal[True] | None


class Constants(NamedTuple):
    """What the kernels need of spec and parameters.

    The length of `bonus`, 1 + N, and which flags are None is known when compiling: loops over signals are unrolled, and
    what a preset does without costs nothing.
    """

    H: Any  # uint64
    S: Any
    A: Any
    bonus: tuple[float, ...]  # [1+N], reward first
    lift: tuple[float, ...]  # [1+N]
    fresh: FloatArray  # [H, 1+N]
    ceiling: FloatArray  # [H, 1+N]
    usable: NDArray[np.bool_]  # [H*S, A]
    rho: FloatArray  # [N]
    K: float
    frame: int
    eta: float
    steady: float
    chi: float
    keep: float
    bonus_offset: float
    lift_power: float
    eps_low: float
    eps_high: float
    margin: float
    window: float
    explore: float
    explore_decay: float
    has_bonus: Flag  # there is a bonus
    explores: Flag  # some actions are random
    estimated: Flag  # the queues are driven by C at the first step, not by realised utilities
    random_ties: Flag  # ties are broken at random when a frame begins


class Tables(NamedTuple):
    """What one run has learned; the kernels update it. Step H is a row of zeros, so the last step needs no case."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N, visits
    best: NDArray[np.uint64]  # [(H+1)*S]: action of the largest weighted value
    second: FloatArray  # [(H+1)*S]: largest weighted value of the others; while the best is above, no search is needed
    weight: FloatArray  # [N]: Z / eta
    queue: FloatArray  # [N]: Z
    short: FloatArray  # [N]: by how much the last frame fell short, tightening included
    swing: FloatArray  # [N]: half the way between two frames on either side of the bound, the largest of late
    debt: FloatArray  # [N]: realised violation of all frames that have ended
    drive: FloatArray  # [N]: C at the first step, summed over the frame's episodes
    earned: FloatArray  # [1+N]: realised signals, summed over the frame's finished episodes
    totals: FloatArray  # [1+N]: of the running episode
    explore: FloatArray  # [2]: probability of a random action, and its fading part
    clock: NDArray[np.int64]  # [3], see FRAMES, LEFT, CHANGED
    kept: FloatArray  # [H*S*A]: visits that the frame began with
    usage: FloatArray  # [2, H*S*A]: how often a cell was used before and since the number of frames last doubled


@compiled
def play(sim, meter, tables, c, rng, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Algorithm 1, for as many episodes as `out` [1+N, n] has columns."""
    for k in range(out.shape[1]):
        watch(meter, tables.clock[CHANGED], tables.best, tables.explore[0], c.usable)
        tables.clock[CHANGED] = 0
        s = reset(sim, rng)
        a = choose(tables, c, ZERO, s, rng)
        for h in range(c.H):
            s_next, x = step(sim, h, s, a, rng)
            a_next = choose(tables, c, h + ONE, s_next, rng)
            update(tables, c, h, s, a, sim.outcomes, x, s_next, a_next)
            s, a = s_next, a_next
        for n in range(len(c.bonus)):
            out[n, k] = tables.totals[n]
        collect(meter, tables.totals)
        end_episode(tables, c, rng)


@compiled
def chosen(tables, c, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """`choose`, for calls from outside."""
    return choose(tables, c, h, s, rng)


@compiled
def learn(tables, c, states, actions, signals, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What `play` does with an episode, when it was played elsewhere."""
    for h in range(c.H):
        ahead = h + ONE < c.H
        s_next, a_next = (states[h + ONE], actions[h + ONE]) if ahead else (states[h], actions[h])
        update(tables, c, h, states[h], actions[h], signals, h, s_next, a_next)
    end_episode(tables, c, rng)


@inlined
def choose(tables, c, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The action to take at step h in state s: argmax of Q + sum_n Z_n / eta C_n, or a random one."""
    i = np.uint64(h) * c.S + np.uint64(s)
    if c.explores is not None and h < c.H and uniform(rng) < tables.explore[0]:
        return random_action(c.usable, i, rng)
    return tables.best[i]


@inlined
def update(tables, c, h, s, a, outcomes, x, s_next, a_next):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Learn from outcomes[x], received at (h, s, a) on the way to s_next, where a_next follows."""
    i = np.uint64(h) * c.S + np.uint64(s)
    j = i * c.A + np.uint64(a)
    j_next = ((np.uint64(h) + ONE) * c.S + np.uint64(s_next)) * c.A + np.uint64(a_next)
    if c.estimated is not None and h == 0:
        for n in range(len(tables.drive)):
            tables.drive[n] += tables.cells[j, n + 1]
    t = tables.cells[j, len(c.bonus)] + 1.0
    tables.cells[j, len(c.bonus)] = t
    rate = (c.chi + 1.0) / (c.chi + t)
    value = NOTHING
    for n in range(len(c.bonus)):
        old = tables.cells[j, n]
        seen = outcomes[x, n] + tables.cells[j_next, n]
        if c.has_bonus is not None:
            seen += c.bonus[n] / np.sqrt(c.bonus_offset + t)
        new = old + rate * (seen - old)
        tables.cells[j, n] = new
        tables.totals[n] += outcomes[x, n]
        value += new if n == 0 else tables.weight[n - 1] * new
    if value < tables.second[i] or (c.explores is not None and np.uint64(a) != tables.best[i]):
        _search(tables, c, i)


@inlined
def end_episode(tables, c, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Book the episode's totals; at the end of a frame, move the queues."""
    for n in range(len(c.bonus)):
        tables.earned[n] += tables.totals[n]
        tables.totals[n] = 0.0
    if c.explores is not None:
        tables.explore[1] *= c.explore_decay
        explore = 1.0 - (1.0 - c.explore) * (1.0 - tables.explore[1])
        if explore != tables.explore[0]:
            tables.explore[0] = explore
            tables.clock[CHANGED] = 1
    tables.clock[LEFT] -= 1
    if tables.clock[LEFT] == 0:
        _end_frame(tables, c, rng)


@compiled
def _end_frame(tables, c, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Queues first, then lift the tables and let the counts fade, then find the best actions anew."""
    tables.clock[FRAMES] += 1
    tables.clock[LEFT] = c.frame
    frames = tables.clock[FRAMES]
    k = float(frames * c.frame)
    horizon = min(c.window, max(c.K - k, float(c.frame)))
    for n in range(len(tables.queue)):
        tables.debt[n] += c.frame * c.rho[n] - tables.earned[n + 1]
        eps = min(max((tables.debt[n] + c.margin) / horizon, c.eps_low), c.eps_high)
        reached = (tables.earned[n + 1] if c.estimated is None else tables.drive[n]) / c.frame
        push = _damped(tables, c, n, c.rho[n] + eps - reached)
        tables.queue[n] = max(tables.queue[n] + push, 0.0)
        tables.weight[n] = tables.queue[n] / c.eta
        tables.drive[n] = 0.0
    for n in range(len(c.bonus)):
        tables.earned[n] = 0.0
    _count(tables, c, frames & (frames - 1) == 0)
    _lift(tables, c, (k / c.K) ** c.lift_power - ((k - c.frame) / c.K) ** c.lift_power)
    scan(tables, c)
    if c.random_ties is not None:
        _break_ties(tables, c, rng)


@inlined
def _damped(tables, c, n, short):  # type: ignore[no-untyped-def]  # pragma: no cover
    """What a frame that fell short by so much adds to queue n: less, if frames swing widely from side to side.

    A queue that is pushed across the right price and back makes the learner jump between two extremes for ever. The
    damping changes over a whole window only, so that what is above and what is below the bound still weigh the same.
    """
    turn = abs(short - tables.short[n]) / 2.0 if short * tables.short[n] < 0.0 else 0.0
    tables.short[n] = short
    tables.swing[n] = max(turn, tables.swing[n] * max(1.0 - c.frame / c.window, 0.0))
    return short / max(1.0, tables.swing[n] / c.steady)


@inlined
def _lift(tables, c, share):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Raise all values by a share of the run's lift; what gets above the ceiling starts afresh."""
    for h in range(c.H):
        for j in range(h * c.S * c.A, (h + ONE) * c.S * c.A):
            if tables.cells[j, 0] == -np.inf:  # not usable
                continue
            for n in range(len(c.bonus)):
                lifted = tables.cells[j, n]
                if c.lift[n] > 0.0:  # an infinite lift times 0 would be no number
                    lifted += c.lift[n] * share
                tables.cells[j, n] = c.fresh[h, n] if lifted > c.ceiling[h, n] else lifted


@inlined
def _count(tables, c, doubled):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Book the frame's visits as usage, where a doubling of the number of frames retires the older half."""
    for j in range(np.uint64(len(tables.kept))):
        visits = tables.cells[j, len(c.bonus)]
        tables.usage[1, j] += visits - tables.kept[j]
        if doubled:
            tables.usage[0, j] = tables.usage[1, j]
            tables.usage[1, j] = 0.0
        tables.kept[j] = visits * c.keep
        tables.cells[j, len(c.bonus)] = tables.kept[j]


@compiled
def scan(tables, c):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Find the best action everywhere."""
    for i in range(c.H * c.S):
        _search(tables, c, i)


@inlined
def _search(tables, c, i):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Find the best action of row i = h*S + s and the value of the runner-up; ties go to the lower action.

    Written without branches: which action is best is as good as random for the processor to guess.
    """
    best, top, second = ZERO, -np.inf, -np.inf
    for a in range(c.A):
        value = _value(tables, c, i * c.A + a)
        second = max(second, min(value, top))
        best = np.uint64(a) if value > top else best
        top = max(top, value)
    tables.second[i] = second
    if tables.best[i] != best:
        tables.best[i] = best
        tables.clock[CHANGED] = 1


@inlined
def _break_ties(tables, c, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Where several actions are best, take one at random."""
    for i in range(c.H * c.S):
        top, ties = _value(tables, c, i * c.A + tables.best[i]), 0
        for a in range(c.A):
            ties += _value(tables, c, i * c.A + a) == top
        if ties == 1:
            continue
        draw = np.int64(uniform(rng) * ties)
        for a in range(c.A):
            if _value(tables, c, i * c.A + a) == top:
                if draw == 0:
                    tables.best[i] = a
                draw -= 1
        tables.clock[CHANGED] = 1


@inlined
def _value(tables, c, j):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Q + sum_n Z_n / eta C_n of cell j."""
    value = tables.cells[j, 0]
    for n in range(1, len(c.bonus)):
        value += tables.weight[n - 1] * tables.cells[j, n]
    return value
