"""The sums of a run: exact regret and violation of the policies it plays, and the rewards and utilities it realises.

The meter is made from the model by the code that carries out a run. A learner's compiled loop gives it the policy of
each episode (`watch`) and the episode's totals (`collect`), but never reads it. A policy is evaluated only when it has
changed. On models where one evaluation passes through more than `MAX_TRANSITIONS_PER_EPISODE` transitions, this happens
only in every `every`-th episode, and the latest values are used in between. Everything is in the user's units.
Utilities are those of `CMDP.g`, negative for "at most" costs, so that a positive violation always means a missed bound.

A world without episodes is one unbroken run of steps (`Walk`). A long-run average is learned in one run that never
ends, a discounted problem in the same way, with a new start from the start distribution after each step with
probability 1 - discount: means per step of such a run are the discounted totals times 1 - discount. Its meter
(`StepMeter`) evaluates no policy. With the optimum v*, the prices lam and relative values h of the model, every action
has a gap: gap(s, a) = v* + h(s) - r - lam . (g - rho) - sum P h, which is at least 0, and 0 for what the optimum does
(see `cmdpkit.exact.stationary`). Along every run of T steps

    T v* - sum r_t = sum gap(s_t, a_t) - lam . sum (rho - g_t) + h(s_T) - h(s_0) + noise of mean 0,

so the regret is the sum of the gaps that were paid, less the prices times the violation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.cmdp import CMDP, Scale
from cmdpkit.model.compiled import ONE, TWO, compiled, primitive, readonly
from cmdpkit.model.tolerances import BOUND_MET
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Rows
from cmdpkit.operators.rows import push, row_of
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import NO_LAST_STEP, Noise, Simulator, reset, stacked, step, stride

MAX_TRANSITIONS_PER_EPISODE = 2048  # that evaluations may pass through on average, which takes a few microseconds
# The entries of `Meter.clock`: episodes played; policies evaluated; whether the policy must be evaluated again;
# whether the current policy misses a bound; episodes whose policy missed one.
EPISODES, EVALUATIONS, STALE, UNSAFE_NOW, UNSAFE = 0, 1, 2, 3, 4
# The rows of `Meter.sums`: exact values, their positive shortfalls, and realised totals in unit scale.
EXACT, SHORTFALL, REALISED = 0, 1, 2


class Sums(NamedTuple):
    """Regret and violations added up over episodes."""

    regret: float | None  # None if the optimum is not known
    violation: FloatArray  # [N], one per constraint


class Tally(NamedTuple):
    """Totals over the episodes of a run so far."""

    length: int  # episodes so far, or steps where there are none
    weak: Sums | None  # of v* - v(pi_k) and rho_n - w_n(pi_k); None without a model
    strong: Sums | None  # of the positive parts of these differences; None without a model
    realised: Sums  # the same as weak, with the returns of the episodes in place of expected totals
    unsafe: int | None  # episodes whose policy misses a bound in expectation; None without a model
    earned: FloatArray | None = None  # [1+N], realised reward and utilities; None if another process counted them
    gaps: float | None = None  # of a run without episodes: sum of what its actions lose, see `StepMeter`


class Meter(NamedTuple):
    """Arrays that `watch` and `collect` update; build it with `Meter.of` or, without a model, `Meter.blind`.

    Without a model, there are no transitions, and `signals` and `mu` are empty.
    """

    H: np.uint64  # number of steps
    rows: Rows  # transitions
    signals: FloatArray  # [cells, 1+N], mean reward and utilities of cell h * signal_stride + s * A + a
    mu: FloatArray  # [S], start distribution
    signal_stride: np.uint64  # S * A, or 0 if all signals are stationary
    reach: FloatArray  # [2, S], working memory: state probabilities at the current and the next step
    every: int  # a changed policy is evaluated in every so many episodes; 0 without a model
    target: FloatArray  # [1+N], v* and rho
    scale: FloatArray  # [1+N, 2], factor and offset that convert an episode's total from unit scale to the user's units
    values: FloatArray  # [1+N], v and w of the policy that was evaluated last
    sums: FloatArray  # [3, 1+N], see EXACT, SHORTFALL, REALISED
    clock: IntArray  # [5], see EPISODES, EVALUATIONS, STALE, UNSAFE_NOW, UNSAFE

    @classmethod
    def of(cls, cmdp: CMDP, optimum: float | None = None) -> Meter:
        """A meter for a model, with its constrained optimum in the user's units."""
        transitions = cmdp.kernel.nonzeros * cmdp.H // (cmdp.kernel.T * cmdp.A)  # of an average policy
        signals = stacked(cmdp, unit=False)
        blind = cls.blind(cmdp.H, cmdp.rho, (cmdp.reward_scale, *cmdp.utility_scales), optimum)
        return blind._replace(
            rows=cmdp.rows,
            signals=signals,
            mu=readonly(cmdp.mu),
            signal_stride=np.uint64(stride(cmdp, len(signals) // (cmdp.S * cmdp.A))),
            reach=np.zeros((2, cmdp.S)),
            every=1 + transitions // MAX_TRANSITIONS_PER_EPISODE,
        )

    @classmethod
    def blind(cls, H: int, rho: FloatArray, scales: Sequence[Scale], optimum: float | None = None) -> Meter:
        """A meter of realised returns only, for worlds without a model, with the scales of reward and utilities."""
        return cls(
            H=np.uint64(H),
            rows=Rows.of(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), 0, 0),
            signals=np.zeros((0, len(scales))),
            mu=readonly(np.zeros(0)),
            signal_stride=np.uint64(0),
            reach=np.zeros((2, 0)),
            every=0,
            target=np.array([np.nan if optimum is None else optimum, *rho], dtype=float),
            scale=np.array([(scale.span, H * scale.low) for scale in scales], dtype=float),
            values=np.zeros(len(scales)),
            sums=np.zeros((3, len(scales))),
            clock=np.array([0, 0, 1, 0, 0]),
        )

    def hold(self, values: FloatArray) -> None:
        """Use these values for the current policy, until `watch` is given another one."""
        self.values[:] = values
        self.clock[STALE] = 0
        self.clock[UNSAFE_NOW] = _unsafe(self.target, self.values)

    def tally(self) -> Tally:
        """Regret and violations so far."""
        n = int(self.clock[EPISODES])
        known = bool(np.isfinite(self.target[0]))
        earned = self.sums[REALISED] * self.scale[:, 0] + n * self.scale[:, 1]
        weak, strong, realised = (
            Sums(float(x[0]) if known else None, x[1:].copy())
            for x in (n * self.target - self.sums[EXACT], self.sums[SHORTFALL], n * self.target - earned)
        )
        if not self.every:
            return Tally(n, None, None, realised, None, earned)
        return Tally(n, weak, strong, realised, int(self.clock[UNSAFE]), earned)

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes, for a checkpoint."""
        return {name: getattr(self, name).copy() for name in ("values", "sums", "clock")}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        for name in ("values", "sums", "clock"):
            getattr(self, name)[...] = state[name]


class ExploringPolicy(NamedTuple):
    """A policy that takes its best action, or with probability `explore` a usable one, all equally likely."""

    best: NDArray[Any]  # [H*S], the best action
    explore: float
    usable: BoolArray  # [H*S, A]


class PolicyTable(NamedTuple):
    """A policy by its probabilities."""

    pi: FloatArray  # [H*S, A]


@compiled(inline=True)
def watch(meter, changed, policy, every):
    """Count the policy of an episode that begins; one that has `changed` since the last call is to be evaluated.

    Policies that may change after each episode are evaluated in every `every`-th one only, which is `meter.every`;
    policies that are kept for a while always, which is 1.
    """
    if meter.every == 0:
        return
    meter.clock[STALE] |= changed
    if meter.clock[STALE] and meter.clock[EPISODES] % every == 0:
        _evaluate(meter, policy)
    meter.clock[UNSAFE] += meter.clock[UNSAFE_NOW]
    for n in range(len(meter.values)):
        meter.sums[EXACT, n] += meter.values[n]
        meter.sums[SHORTFALL, n] += max(meter.target[n] - meter.values[n], 0.0)


@compiled(inline=True)
def collect(meter, totals):
    """Count the realised totals [1+N], in unit scale, of an episode that has ended."""
    meter.clock[EPISODES] += 1
    for n in range(len(totals)):
        meter.sums[REALISED, n] += totals[n]


@compiled
def _evaluate(meter, policy):
    """Compute v and w of a policy by carrying the state distribution forward from step to step.

    This is `occupy` of the operators for policies that change in place, and with all signals of a cell side by side:
    a quarter of an episode's time depends on it.
    """
    H, S = meter.H, np.uint64(meter.reach.shape[1])
    meter.clock[EVALUATIONS] += 1
    meter.clock[STALE] = 0
    for n in range(len(meter.values)):
        meter.values[n] = 0.0
    for s in range(S):
        meter.reach[0, s] = meter.mu[s]
    for h in range(H):
        here, there = meter.reach[h % TWO], meter.reach[(h + ONE) % TWO]
        for s in range(S):
            there[s] = 0.0
        for s in range(S):
            if here[s] != 0.0:
                _take_actions(policy, meter, h, s, here[s], there, h + ONE == H)
    meter.clock[UNSAFE_NOW] = _unsafe(meter.target, meter.values)


@primitive
def _take_actions(policy, meter, h, s, mass, there, last):
    """Let a mass of probability in state s at step h act by the policy."""


@_take_actions.of(ExploringPolicy)
def _explore(policy, meter, h, s, mass, there, last):
    S, A = np.uint64(len(there)), np.uint64(policy.usable.shape[1])
    i = h * S + s
    _take(meter, h, s, np.uint64(policy.best[i]), mass * (1.0 - policy.explore), there, last)
    if policy.explore > 0.0:
        choices = 0
        for a in range(A):
            choices += policy.usable[i, a]
        for a in range(A):
            if policy.usable[i, a]:
                _take(meter, h, s, a, mass * policy.explore / choices, there, last)


@_take_actions.of(PolicyTable)
def _draw(policy, meter, h, s, mass, there, last):
    i = h * np.uint64(len(there)) + s
    for a in range(np.uint64(policy.pi.shape[1])):
        if policy.pi[i, a] > 0.0:
            _take(meter, h, s, a, mass * policy.pi[i, a], there, last)


@compiled(inline=True)
def _take(meter, h, s, a, mass, there, last):
    """Let a mass of probability take an action: add its signals to the values, and move it to the next states."""
    x = h * meter.signal_stride + s * meter.rows.A + a
    for n in range(len(meter.values)):
        meter.values[n] += mass * meter.signals[x, n]
    if not last:
        push(meter.rows, row_of(meter.rows, h, s, a), mass, there)


@compiled(inline=True)
def _unsafe(target, values):
    """Whether a policy with these values misses a bound."""
    missed = False
    for n in range(1, len(values)):
        missed |= target[n] - values[n] > BOUND_MET * max(1.0, abs(target[n]))
    return missed


# -- a world without episodes ------------------------------------------------------------------------------------------

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
        return cls(Simulator.lasting(cmdp, NO_LAST_STEP, noise), meter, restart, np.full(2, -1, dtype=np.int64))


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
