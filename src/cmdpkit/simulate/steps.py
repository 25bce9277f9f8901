"""A world without episodes: one unbroken run of steps, and the sums that are kept of it.

A long-run average is learned in one run that never ends. A discounted problem is learned in the same way, with a new
start from the start distribution after each step with probability 1 - discount: means per step of such a run are the
discounted totals times 1 - discount.

The meter evaluates no policy. With the optimum v*, the prices lam and relative values h of the model, every action has
a gap: gap(s, a) = v* + h(s) - r - lam . (g - rho) - sum P h, which is at least 0, and 0 for what the optimum does (see
`cmdpkit.exact.stationary`). Along every run of T steps

    T v* - sum r_t = sum gap(s_t, a_t) - lam . sum (rho - g_t) + h(s_T) - h(s_0) + noise of mean 0,

so the regret is the sum of the gaps that were paid, less the prices times the violation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.meter import Sums, Tally
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import Noise, Simulator, reset, stacked, step

SAVED = ("steps", "missed", "largest", "realised")  # what changes in a meter


class StepOptimum(NamedTuple):
    """What the meter of a model must know to measure regret, per step and in the user's units."""

    value: float  # v*
    prices: FloatArray  # [N], lam
    gaps: FloatArray  # [S, A], what each action loses


class StepMeter(NamedTuple):
    """Arrays that `count_step` updates; all but `realised` in the user's units."""

    gaps: FloatArray  # [S*A], what each action loses; zeros where the optimum is not known
    signals: FloatArray  # [S*A, 1+N], mean reward and utilities
    target: FloatArray  # [1+N], v* per step (NaN where it is not known) and rho per step
    prices: FloatArray  # [N], lam
    actions: int  # A, number of actions
    scale: FloatArray  # [1+N, 2], factor and offset that convert a step's signal from unit scale to the user's units
    steps: IntArray  # [1], steps taken
    missed: FloatArray  # [1+N], sum of the gaps, and of rho - g of every bound, with expected signals
    largest: FloatArray  # [N], the largest sum of rho - g at any time so far
    realised: FloatArray  # [1+N], sums of the signals observed, in unit scale

    @classmethod
    def of(cls, cmdp: CMDP, optimum: StepOptimum | None) -> StepMeter:
        """A meter of a model in which nothing has been counted yet."""
        N, cells = cmdp.N, cmdp.S * cmdp.A
        scales = (cmdp.reward_scale, *cmdp.utility_scales)
        value = np.nan if optimum is None else optimum.value
        return cls(
            gaps=np.zeros(cells) if optimum is None else np.array(optimum.gaps, dtype=float).reshape(cells),
            signals=stacked(cmdp, unit=False),
            target=np.array([value, *(cmdp.rho / (cmdp.criterion.steps_in_value or 1.0))], dtype=float),
            prices=np.zeros(N) if optimum is None else np.array(optimum.prices, dtype=float),
            actions=cmdp.A,
            scale=np.array([(scale.span, scale.low) for scale in scales], dtype=float),
            steps=np.zeros(1, dtype=np.int64),
            missed=np.zeros(1 + N),
            largest=np.full(N, -np.inf),
            realised=np.zeros(1 + N),
        )

    def tally(self) -> Tally:
        """Regret and violation so far; "strong" violation is the largest that there was at any time."""
        n, known = int(self.steps[0]), bool(np.isfinite(self.target[0]))
        earned = self.realised * self.scale[:, 0] + n * self.scale[:, 1]
        short = n * self.target - earned
        regret = float(self.missed[0] - self.prices @ self.missed[1:]) if known else None
        return Tally(
            n,
            weak=Sums(regret, self.missed[1:].copy()),
            strong=Sums(None, np.where(n > 0, self.largest, 0.0)),
            realised=Sums(float(short[0]) if known else None, short[1:].copy()),
            unsafe=None,
            earned=earned,
            gaps=float(self.missed[0]) if known else None,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes, for a checkpoint."""
        return {name: getattr(self, name).copy() for name in SAVED}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        for name in SAVED:
            getattr(self, name)[...] = state[name]


class Walk(NamedTuple):
    """A model without a horizon, and where a run in it has come to."""

    simulator: Simulator  # the model
    meter: StepMeter  # the sums of the run
    restart: float  # probability that a step is followed by a new start
    place: IntArray  # [2], the present state and the action chosen there; -1 before the first step

    @classmethod
    def of(cls, cmdp: CMDP, optimum: StepOptimum | None = None, noise: Noise = "none") -> Walk:
        """A run in a model that has not begun; without an optimum there is no regret."""
        restart = 0.0 if cmdp.criterion.discount is None else 1.0 - cmdp.criterion.discount
        meter = StepMeter.of(cmdp, optimum)
        return cls(Simulator.endless(cmdp, noise), meter, restart, np.full(2, -1, dtype=np.int64))


@compiled(inline=True)
def advance(walk, s, a, rng):
    """The next state, the row of `simulator.outcomes` with what was earned, and whether the next state is a new start.

    The state that would have been next is drawn before a new start too, so that it does not change later draws.
    """
    s_next, x = step(walk.simulator, 0, s, a, rng)
    if walk.restart > 0.0 and uniform(rng) < walk.restart:
        return reset(walk.simulator, rng), x, True
    return s_next, x, False


@compiled(inline=True)
def count_step(meter, s, a, signals):
    """Count a step: action a in state s, and the signals [1+N] observed, in unit scale."""
    meter.steps[0] += 1
    cell = s * meter.actions + a
    meter.missed[0] += meter.gaps[cell]
    for n in range(len(signals)):
        meter.realised[n] += signals[n]
        if n > 0:
            meter.missed[n] += meter.target[n] - meter.signals[cell, n]
            meter.largest[n - 1] = max(meter.largest[n - 1], meter.missed[n])
