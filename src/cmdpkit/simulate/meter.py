"""The sums of a run: exact regret and violation of the policies it plays, and the rewards and utilities it realises.

The meter is made from the model by the code that carries out a run. A learner's compiled loop gives it the policy of
each episode (`watch`) and the episode's totals (`collect`), but never reads it. A policy is evaluated only when it has
changed. On models where one evaluation passes through more than `MAX_TRANSITIONS_PER_EPISODE` transitions, this happens
only in every `every`-th episode, and the latest values are used in between. Everything is in the user's units.
Utilities are those of `CMDP.g`, negative for "at most" costs, so that a positive violation always means a missed bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.cmdp import CMDP, Scale
from cmdpkit.model.compiled import ONE, compiled
from cmdpkit.model.tolerances import BOUND_MET
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.simulator import stacked, stride

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

    episodes: int  # played so far; steps where there are no episodes
    weak: Sums | None  # of v* - v(pi_k) and rho_n - w_n(pi_k); None without a model
    strong: Sums | None  # of the positive parts of these differences; None without a model
    realised: Sums  # the same as weak, with the returns of the episodes in place of expected totals
    unsafe: int | None  # episodes whose policy misses a bound in expectation; None without a model
    earned: FloatArray | None = None  # [1+N], realised reward and utilities; None if another process counted them
    gaps: float | None = None  # of a run without episodes: sum of what its actions lose, see `cmdpkit.simulate.steps`


class Meter(NamedTuple):
    """Arrays that `watch` and `collect` update; build it with `Meter.of` or, without a model, `Meter.blind`.

    Without a model, all arrays up to `mu` are empty.
    """

    indptr: NDArray[np.uint64]  # where each sparse row of the kernel begins
    successors: NDArray[np.uint32]  # next states
    prob: FloatArray  # their probabilities
    signals: FloatArray  # [cells, 1+N], mean reward and utilities of cell h * signal_stride + s * A + a
    mu: FloatArray  # [S], start distribution
    kernel_stride: np.uint64  # S * A, or 0 if the kernel is stationary
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
            indptr=_writeable(cmdp.kernel.indptr).view(np.uint64),
            successors=_writeable(cmdp.kernel.successors).view(np.uint32),
            prob=_writeable(cmdp.kernel.prob),
            signals=signals,
            mu=_writeable(cmdp.mu),
            kernel_stride=np.uint64(stride(cmdp, cmdp.kernel.T)),
            signal_stride=np.uint64(stride(cmdp, len(signals) // (cmdp.S * cmdp.A))),
            reach=np.zeros((2, cmdp.S)),
            every=1 + transitions // MAX_TRANSITIONS_PER_EPISODE,
        )

    @classmethod
    def blind(cls, H: int, rho: FloatArray, scales: Sequence[Scale], optimum: float | None = None) -> Meter:
        """A meter of realised returns only, for worlds without a model, with the scales of reward and utilities."""
        return cls(
            indptr=np.zeros(1, dtype=np.uint64),
            successors=np.zeros(0, dtype=np.uint32),
            prob=np.zeros(0),
            signals=np.zeros((0, len(scales))),
            mu=np.zeros(0),
            kernel_stride=np.uint64(0),
            signal_stride=np.uint64(0),
            reach=np.zeros((2, 0)),
            every=0,
            target=np.array([np.nan if optimum is None else optimum, *rho], dtype=float),
            scale=np.array([(scale.span, H * scale.low) for scale in scales], dtype=float),
            values=np.zeros(len(scales)),
            sums=np.zeros((3, len(scales))),
            clock=np.array([0, 0, 1, 0, 0]),
        )

    def add(self, n: int, values: FloatArray, totals: FloatArray) -> None:
        """Count n episodes of one policy: its v, w [1+N] in the user's units, and the realised totals in unit scale."""
        self.clock[EPISODES] += n
        self.clock[EVALUATIONS] += 1
        self.clock[STALE] = 1
        self.clock[UNSAFE] += n * _unsafe(self.target, values)
        self.sums[EXACT] += n * values
        self.sums[SHORTFALL] += n * np.maximum(self.target - values, 0.0)
        self.sums[REALISED] += totals

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


def _writeable(x: NDArray[Any]) -> NDArray[Any]:
    """The array, or a copy of a read-only one: compiled code treats the two as different types."""
    return x if x.flags.writeable else x.copy()


@compiled(inline=True)
def watch(meter, changed, best, explore, usable):
    """Count the policy of an episode that begins. `changed` says whether it differs from that of the last call.

    The policy takes best[h*S + s], or with probability `explore` an action of usable[h*S + s], all equally likely.
    """
    if meter.every == 0:
        return
    meter.clock[STALE] |= changed
    if meter.clock[STALE] and meter.clock[EPISODES] % meter.every == 0:
        _evaluate(meter, best, explore, usable)
        meter.clock[STALE] = 0
    _count(meter)


@compiled(inline=True)
def watch_policy(meter, changed, pi):
    """Count the policy of an episode that begins, as `watch` does, if it is given by its probabilities pi [H*S, A].

    Learners that play such policies keep each of them for a while, so every policy is evaluated.
    """
    if meter.every == 0:
        return
    if meter.clock[STALE] or changed:
        _evaluate_policy(meter, pi)
        meter.clock[STALE] = 0
    _count(meter)


@compiled(inline=True)
def _count(meter):
    """Add the values of the current policy to the sums."""
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
def _evaluate(meter, best, explore, usable):
    """Compute v and w of a policy by carrying the state distribution forward from step to step."""
    S, A = np.uint64(meter.reach.shape[1]), np.uint64(usable.shape[1])
    H = np.uint64(len(usable)) // S
    _start(meter)
    for h in range(H):
        now, then = h % 2, (h + ONE) % 2
        _clear(meter, then)
        for s in range(S):
            mass = meter.reach[now, s]
            if mass == 0.0:
                continue
            i = h * S + s
            _push(meter, h, s * A + best[i], mass * (1.0 - explore), then, h + ONE == H)
            if explore > 0.0:
                choices = 0
                for a in range(A):
                    choices += usable[i, a]
                for a in range(A):
                    if usable[i, a]:
                        _push(meter, h, s * A + a, mass * explore / choices, then, h + ONE == H)
    meter.clock[UNSAFE_NOW] = _unsafe(meter.target, meter.values)


@compiled
def _evaluate_policy(meter, pi):
    """Compute v and w of a policy pi [H*S, A], as `_evaluate` does for greedy ones."""
    S, A = np.uint64(meter.reach.shape[1]), np.uint64(pi.shape[1])
    H = np.uint64(len(pi)) // S
    _start(meter)
    for h in range(H):
        now, then = h % 2, (h + ONE) % 2
        _clear(meter, then)
        for s in range(S):
            if meter.reach[now, s] == 0.0:
                continue
            for a in range(A):
                if pi[h * S + s, a] > 0.0:
                    _push(meter, h, s * A + a, meter.reach[now, s] * pi[h * S + s, a], then, h + ONE == H)
    meter.clock[UNSAFE_NOW] = _unsafe(meter.target, meter.values)


@compiled(inline=True)
def _start(meter):
    """Begin an evaluation: set the values to zero and the reach of the first step to the start distribution."""
    meter.clock[EVALUATIONS] += 1
    for n in range(len(meter.values)):
        meter.values[n] = 0.0
    for s in range(len(meter.mu)):
        meter.reach[0, s] = meter.mu[s]


@compiled(inline=True)
def _clear(meter, then):
    """Set the reach of the next step to zero."""
    for s in range(meter.reach.shape[1]):
        meter.reach[then, s] = 0.0


@compiled(inline=True)
def _unsafe(target, values):
    """Whether a policy with these values misses a bound."""
    missed = False
    for n in range(1, len(values)):
        missed |= target[n] - values[n] > BOUND_MET * max(1.0, abs(target[n]))
    return missed


@compiled(inline=True)
def _push(meter, h, cell, mass, then, last):
    """Let a mass of probability take an action: add its signals to the values, and move it to the next states."""
    x = h * meter.signal_stride + cell
    for n in range(len(meter.values)):
        meter.values[n] += mass * meter.signals[x, n]
    if last:
        return
    row = h * meter.kernel_stride + cell
    for i in range(meter.indptr[row], meter.indptr[row + ONE]):
        meter.reach[then, meter.successors[i]] += mass * meter.prob[i]
