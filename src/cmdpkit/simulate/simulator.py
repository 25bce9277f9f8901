"""A world to learn in: compiled `reset` and `step` of a CMDP, with rewards and utilities scaled to [0, 1].

A transition is drawn in constant time from the alias table of its row. No random number is used for a row with only one
successor, nor for the last step, which has none. Tables have the form of the kernel's sparse rows, so memory grows with
the number of possible transitions, and a stationary model is stored once, not once per step.

A learner calls `reset` and `step` and reads the row of `Simulator.outcomes` that `step` names. That is all it may see.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import ONE, ZERO, call, compiled
from cmdpkit.model.outcomes import Outcomes
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import next_u64, uniform

Noise = Literal["none", "bernoulli"]

HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
NO_LAST_STEP = 2**63  # stands for H where there is no horizon: no step is the last
MAX_BERNOULLI = 16  # signals; a table holds all of their 2^(1+N) joint outcomes


class Simulator(NamedTuple):
    """Arrays that `reset` and `step` read; build it with `Simulator.of`. Read-only, so threads may share it."""

    # [rows]. Row h * kernel_stride + s * A + a holds the position of its first entry << 32 | number of entries.
    # A row with only one successor holds that state << 32 | 1. Where outcomes are drawn, they take the place of states.
    rows: NDArray[np.uint64]
    entries: NDArray[np.uint64]  # [transitions, 2]: chance of this entry's own state, and alias state << 32 | own state
    signals: FloatArray  # [cells, 1 + N]: reward and utilities in [0, 1] of cell h * signal_stride + s * A + a, or
    # where outcomes are drawn [outcomes, 1 + N], those of every outcome
    outcomes: FloatArray  # [x, 1 + N]: all rewards and utilities that an index returned by `step` can stand for
    start: NDArray[np.uint64]  # [starts, 2], alias table of the start distribution, in the form of `entries`
    H: np.uint64  # number of steps, or NO_LAST_STEP
    S: np.uint64  # number of states
    A: np.uint64  # number of actions
    kernel_stride: np.uint64  # S * A, or 0 if the kernel is stationary
    signal_stride: np.uint64  # S * A, or 0 if all signals are stationary
    coins: Literal[True] | None  # whether signals are drawn as 0 or 1; for None the compiler leaves the drawing out
    drawn: Literal[True] | None  # whether outcomes are drawn, of which next state and signals come together; as `coins`
    follows: NDArray[np.uint64]  # [outcomes], the next state of each, or empty

    @classmethod
    def of(cls, cmdp: CMDP, noise: Noise = "none") -> Simulator:
        """The simulator of a model. With noise "bernoulli" each signal is 0 or 1 with the model's value as its mean.

        >>> from cmdpkit import envs
        >>> from cmdpkit.simulate.random import stream
        >>> sim, rng = Simulator.of(envs.build("paper/grid")), stream(1)
        >>> s = reset(sim, rng)
        >>> s_next, x = step(sim, 0, s, 1, rng)
        >>> sim.outcomes[x].round(3).tolist()
        [0.646, 0.0]
        """
        cmdp.need_horizon("simulating episodes")
        return cls.lasting(cmdp, cmdp.H, noise)

    @classmethod
    def lasting(cls, cmdp: CMDP, steps: int, noise: Noise = "none") -> Simulator:
        """The simulator of runs with this number of steps, which is that of the horizon if there is one.

        With `NO_LAST_STEP` steps a run never ends, and all steps count as step 0.
        """
        if noise not in ("none", "bernoulli"):
            raise CmdpkitError(f"noise is {noise!r}, expected 'none' or 'bernoulli'")
        if noise == "bernoulli" and cmdp.N >= MAX_BERNOULLI:
            raise CmdpkitError(
                f"noise 'bernoulli' takes fewer than {MAX_BERNOULLI} constraints, the model has {cmdp.N}"
            )
        drawn = cmdp.outcomes
        kernel = cmdp.kernel if drawn is None else drawn.entries
        signals = np.clip(stacked(cmdp, unit=True) if drawn is None else outcomes_in_unit(cmdp, drawn), 0.0, 1.0)
        steps_apart = len(signals) // (cmdp.S * cmdp.A) if drawn is None else 1
        numbers = kernel.successors if drawn is None else np.arange(kernel.nonzeros, dtype=np.int32)  # what is drawn
        starts = np.flatnonzero(cmdp.mu).astype(np.int32)
        word = np.uint64
        return cls(
            rows=_rows(kernel.indptr, numbers),
            entries=_entries(kernel.indptr, numbers, kernel.prob),
            signals=signals,
            outcomes=_bits(1 + cmdp.N) if noise == "bernoulli" else signals,
            start=_entries(np.array([0, len(starts)]), starts, cmdp.mu[starts]),
            H=word(steps),
            S=word(cmdp.S),
            A=word(cmdp.A),
            kernel_stride=word(stride(cmdp, kernel.T)),
            signal_stride=word(stride(cmdp, steps_apart)),
            coins=True if noise == "bernoulli" else None,
            drawn=None if drawn is None else True,
            follows=np.zeros(0, word) if drawn is None else kernel.successors.astype(word),
        )


def stacked(cmdp: CMDP, unit: bool) -> FloatArray:
    """Reward and utilities side by side, [T*S*A, 1+N], scaled to [0, 1] or in the user's units."""
    signals = [cmdp.compact.r, *cmdp.compact.g]
    if unit:
        scales = [cmdp.reward_scale, *cmdp.utility_scales]
        signals = [scale.to_unit(x) for scale, x in zip(scales, signals, strict=True)]
    T = max(len(x) for x in signals)
    wide = [np.broadcast_to(x, (T, cmdp.S, cmdp.A)) for x in signals]
    return np.ascontiguousarray(np.stack(wide, axis=-1).reshape(-1, len(wide)))


def outcomes_in_unit(cmdp: CMDP, drawn: Outcomes) -> FloatArray:
    """Reward and utilities of every outcome, [outcomes, 1+N], scaled to [0, 1]."""
    scales = [cmdp.reward_scale, *cmdp.utility_scales]
    utilities = drawn.signals * np.array([1.0, *cmdp.signs])
    return np.stack([scale.to_unit(x) for scale, x in zip(scales, utilities.T, strict=True)], axis=-1)


def stride(cmdp: CMDP, T: int) -> int:
    """The distance from the rows of one step to those of the next; 0 if all steps have the same rows."""
    return cmdp.S * cmdp.A if T > 1 else 0


@compiled(inline=True)
def reset(sim, rng):
    """Draw the state in which an episode starts."""
    if len(sim.start) == 1:
        return sim.start[0, 1] & LOW
    return _pick(sim.start, ZERO, np.uint64(len(sim.start)), rng)


@compiled(inline=True)
def step(sim, h, s, a, rng):
    """The next state (after the last step: the same state), and the row of `sim.outcomes` with what was earned."""
    h, s, a = np.uint64(h), np.uint64(s), np.uint64(a)
    cell, ended = s * sim.A + a, h + ONE == sim.H
    if sim.drawn is not None:
        row = sim.rows[h * sim.kernel_stride + cell]
        x = row >> HALF if row & LOW == ONE else _pick(sim.entries, row >> HALF, row & LOW, rng)
        s_next = s if ended else sim.follows[x]
        return s_next, _coins(sim, x, rng)
    x = _coins(sim, h * sim.signal_stride + cell, rng)
    if ended:
        return s, x
    row = sim.rows[h * sim.kernel_stride + cell]
    if row & LOW == ONE:
        return row >> HALF, x
    return _pick(sim.entries, row >> HALF, row & LOW, rng), x


@compiled(inline=True)
def _pick(entries, first, width, rng):
    """A state from the alias table entries[first : first + width].

    One draw u is used twice: the integer part of u * width / 2^64 selects the entry, and its fraction decides between
    own and alias state. The error of a probability is at most width / 2^64.
    """
    u = next_u64(rng)
    i = first + (((u >> HALF) * width + (((u & LOW) * width) >> HALF)) >> HALF)
    states = entries[i, 1]
    return states & LOW if u * width < entries[i, 0] else states >> HALF


@compiled(inline=True)
def _coins(sim, x, rng):
    """Draw 0/1 signals with the means in row x; the number that has them as its bits is their row in the outcomes.

    Without such noise it is x.
    """
    if sim.coins is None:
        return x
    bits = ZERO
    for n in range(np.uint64(sim.signals.shape[1])):
        if uniform(rng) < sim.signals[x, n]:
            bits |= ONE << n
    return bits


def _bits(n: int) -> FloatArray:
    """Row i holds the n lowest bits of i."""
    return ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1).astype(float)


def _rows(indptr: IntArray, successors: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Position and number of each row's entries, or its only successor, packed as `Simulator` describes."""
    width = np.diff(indptr)
    place = indptr[:-1].copy()
    single = width == 1
    place[single] = successors[place[single]]
    return (place.astype(np.uint64) << HALF) | width.astype(np.uint64)


def _entries(indptr: IntArray, successors: NDArray[np.int32], prob: FloatArray) -> NDArray[np.uint64]:
    """The alias tables of sparse rows, as `Simulator` describes them."""
    chance, alias = np.ones(len(prob)), np.arange(len(prob))
    work = np.empty((2, max(int(np.diff(indptr).max()), 1)), dtype=np.int64)
    call(_fill, 4 * len(prob) + len(indptr), indptr, prob, chance, alias, work)
    entries = np.empty((len(prob), 2), dtype=np.uint64)
    entries[:, 0] = np.where(chance < 1, np.ldexp(np.minimum(chance, 1 - 2.0**-53), 64).astype(np.uint64), ~ZERO)
    entries[:, 1] = (successors[alias].astype(np.uint64) << HALF) | successors.astype(np.uint64)
    return entries


@compiled
def _fill(indptr, prob, chance, alias, work):
    """Vose's alias method, row by row: an entry with less than 1/width is filled up by one that has more."""
    small, large = work
    for row in range(len(indptr) - 1):
        first, last = indptr[row], indptr[row + 1]
        total = 0.0
        for i in range(last - 1, first - 1, -1):
            total += prob[i]
        n_small, n_large = 0, 0
        for i in range(first, last):
            chance[i] = prob[i] * (last - first) / total
            if chance[i] < 1.0:
                small[n_small] = i
                n_small += 1
            else:
                large[n_large] = i
                n_large += 1
        while n_small > 0 and n_large > 0:
            n_small -= 1
            poor, rich = small[n_small], large[n_large - 1]
            alias[poor] = rich
            chance[rich] -= 1.0 - chance[poor]
            if chance[rich] < 1.0:
                n_large -= 1
                small[n_small] = rich
                n_small += 1
        for k in range(n_small):  # these differ from 1 by rounding only
            chance[small[k]] = 1.0
