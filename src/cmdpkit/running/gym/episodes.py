"""The loop: a learner's decisions, the environment's steps, and how a run finds its place again.

Random numbers of the environment come from ``reset(seed=...)``, called at the first of every `BLOCK` episodes with a
seed that follows from the run's stream and the number of the block. The actions since then are kept, so that a resumed
run can lead the environment back to where it was.

An environment's step takes a few microseconds, and a call of a compiled function with all of a learner's tables takes
no less. So with a learner that can (`Episodic`) nothing compiled is called before the episode has ended: then its
signals are scaled and checked in one call, and learned from in another. `ByStep` drives the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Episodic, Stepwise
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.compiled import compiled
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.running.gym.reading import Numbers
from cmdpkit.simulate.random import Stream, uniform

BLOCK = 64  # episodes between two calls of reset with a seed


class Problem(NamedTuple):
    """What the loop has to know of an environment."""

    H: int
    states: Numbers
    actions: Numbers
    constraints: Sequence[Constraint]
    scales: Sequence[Scale]  # [1 + N]: of reward and utilities


class Player:
    """Plays the episodes of one run in an environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], problem: Problem, sums: FloatArray) -> None:
        self.env, self.problem = env, problem
        self.sums = sums  # [1 + N]: realised reward and utilities in unit scale, added to
        self.root = np.zeros(4, dtype=np.uint64)
        H, N = problem.H, len(problem.constraints)
        signs = [1.0, *(c.sign for c in problem.constraints)]
        self.affine = np.array([(sign, *scale) for sign, scale in zip(signs, problem.scales, strict=True)])
        self.raw, self.signals = np.zeros((H, 1 + N)), np.zeros((H, 1 + N))  # as received; in unit scale
        self.states, self.actions = np.zeros((2, BLOCK, H), dtype=np.int64)
        self.lengths = np.zeros(BLOCK, dtype=np.int64)
        views = (self.states, self.actions, self.raw.reshape(1, -1))  # quicker than arrays, one number at a time
        states, actions, (self._flat,) = ([cast(Any, memoryview)(row) for row in x] for x in views)
        self._rows = list(zip(states, actions, strict=True))

    def episode(self, k: int, learner: Episodic, rng: Stream) -> None:
        """The k-th episode of the run, counting from 0; after an early end, the rest is spent in state S."""
        H, width = self.raw.shape
        size, first = self.problem.states
        first_action = self.problem.actions.first
        states, actions = self._rows[k % BLOCK]
        flat, step, act = self._flat, self.env.step, learner.act
        s = self._begun(k)
        learner.begin(rng)
        h, over = 0, False
        while not over:
            states[h] = s
            a = actions[h] = act(h, s)
            result = step(a + first_action)
            try:
                obs, flat[h * width], terminated, truncated, info = result
                if width == 2 and type(info["cost"]) is float:
                    flat[h * width + 1] = info["cost"]
                elif width > 1:
                    self.raw[h, 1:] = self._costs(info["cost"])
            except (KeyError, TypeError, ValueError) as error:
                raise CmdpkitError(f"episode {k + 1}, step {h + 1}: {self._complaint(result)}") from error
            h += 1
            over = terminated or truncated or h == H
            s = int(obs) - first
            if not 0 <= s < size:
                raise CmdpkitError(f"episode {k + 1}, step {h}: observation {obs} is not in the observation space")
        self.lengths[k % BLOCK] = h
        self._settle(k, h)
        learner.end(self.states[k % BLOCK], self.actions[k % BLOCK], self.signals)

    def unit(self, k: int, h: int) -> FloatArray:
        """Reward and utilities of step h of the episode that is being played, [1+N] in unit scale."""
        sign, low, span = self.affine.T
        signals: FloatArray = (sign * self.raw[h] - low) / span
        for n, x in enumerate(signals):
            if not 0 <= x <= 1:
                raise CmdpkitError(self._outside(k, h, n))
        return signals

    def state(self) -> dict[str, NDArray[Any]]:
        """What is needed to find the place again."""
        return {name: getattr(self, name).copy() for name in ("root", "states", "actions", "lengths")}

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Lead the environment to the beginning of the k-th episode."""
        for name in ("root", "states", "actions", "lengths"):
            getattr(self, name)[...] = state[name]
        for j in range(k - k % BLOCK, k):
            s = self._begun(j)
            for h in range(self.lengths[j % BLOCK]):
                if s != self.states[j % BLOCK, h]:
                    raise CmdpkitError(
                        f"episode {j + 1}, step {h + 1}: played again with the same seed and actions, the environment "
                        "is in another state than before; a run in it cannot be resumed"
                    )
                obs, *_ = self.env.step(int(self.actions[j % BLOCK, h]) + self.problem.actions.first)
                s = int(obs) - self.problem.states.first

    def _begun(self, k: int) -> int:
        """The first state of the k-th episode."""
        block, i = divmod(k, BLOCK)
        if i:
            obs, _ = self.env.reset()
        else:
            words = np.random.SeedSequence([int(x) for x in self.root], spawn_key=(block,))
            obs, _ = self.env.reset(seed=int(words.generate_state(1)[0]))
        s = int(obs) - self.problem.states.first
        if not 0 <= s < self.problem.states.size:
            raise CmdpkitError(f"episode {k + 1}: first observation {obs} is not in the observation space")
        return s

    def _settle(self, k: int, t: int) -> None:
        """What t steps have brought, in unit scale and in sum, and the rest of the episode."""
        row = k % BLOCK
        bad = _settle(
            self.raw,
            self.affine,
            self.signals,
            self.sums,
            self.states[row],
            self.actions[row],
            t,
            self.problem.states.size,
        )
        if bad >= 0:
            raise CmdpkitError(self._outside(k, *divmod(bad, self.raw.shape[1])))

    def _costs(self, cost: Any) -> NDArray[Any]:
        """Costs of a step as numbers [N]; any error is explained by `_complaint`."""
        costs, N = np.asarray(cost), len(self.problem.constraints)
        if costs.dtype.kind not in "biuf" or (costs.shape != (N,) and not (N == 1 and costs.shape == ())):
            raise ValueError
        return costs

    def _complaint(self, result: Any) -> str:
        """What is wrong with the answer of a step."""
        if not isinstance(result, tuple) or len(result) != 5:
            advice = "; cmdpkit.gym.CostFromStep takes the cost out of six" if len(result) == 6 else ""
            return f"expected (obs, reward, terminated, truncated, info), got {len(result)} values{advice}"
        _, reward, _, _, info = result
        if np.ndim(reward):
            return f"the reward is {reward!r}, expected a number; cmdpkit.gym.CostFromReward splits a vector"
        N = len(self.problem.constraints)
        if "cost" not in info:
            return f'info has no "cost" for {N} constraints; cmdpkit.gym.WithCost adds one'
        return f'reward {reward!r} and info["cost"] = {info["cost"]!r}, expected a number and {N} numbers'

    def _outside(self, k: int, h: int, n: int) -> str:
        """The message about a signal outside its range."""
        sign, low, span = self.affine[n]
        limits = sorted((sign * low + 0.0, sign * (low + span) + 0.0))
        what = "the reward" if n == 0 else f"the cost {self.problem.constraints[n - 1].name!r}"
        remedy = "reward_range=(low, high)" if n == 0 else "cost_ranges=[(low, high), ...]"
        return (
            f"episode {k + 1}, step {h + 1}: {what} is {self.raw[h, n]:g}, outside its range {limits[0]:g} .. "
            f"{limits[1]:g}; give GymWorld the right one, {remedy}"
        )


class ByStep:
    """A learner that is driven step by step, in the manner of an episodic one; k episodes are behind it."""

    def __init__(self, learner: Stepwise, player: Player, k: int) -> None:
        self.learner, self.player, self.k = learner, player, k - 1

    def begin(self, rng: Stream) -> None:
        """A new episode."""
        self.rng, self.k = rng, self.k + 1

    def act(self, h: int, s: int) -> int:
        """Learn from the step before, and choose."""
        if h == 0:
            return self.learner.first(s, self.rng)
        return self.learner.next(self.player.unit(self.k, h - 1), s, self.rng)

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the last step, and from all those after an early end."""
        H = len(actions)
        for h in range(int(self.player.lengths[self.k % BLOCK]), H):
            self.learner.next(signals[h - 1], int(states[h]), self.rng)
        self.learner.last(signals[H - 1])


class FixedPolicy:
    """A policy pi [H, S, A] that is played and learns nothing, in the manner of an episodic learner."""

    def __init__(self, pi: FloatArray) -> None:
        self.cdf = np.cumsum(pi, axis=-1)
        self.cdf /= self.cdf[..., -1:]

    def begin(self, rng: Stream) -> None:
        """A new episode."""
        self.rng = rng

    def act(self, h: int, s: int) -> int:
        """An action drawn from the policy."""
        return int(np.searchsorted(self.cdf[h, s], uniform(self.rng), side="right"))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Nothing is learned."""


@compiled
def _settle(raw, affine, signals, sums, states, actions, t, S):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill signals [H, 1+N] and what comes after step t; the index of the first value out of its range, or -1."""
    H, width = raw.shape
    for h in range(H):
        for n in range(width):
            x = affine[n, 0] * raw[h, n] if h < t else 0.0
            signals[h, n] = (x - affine[n, 1]) / affine[n, 2]
            if not 0.0 <= signals[h, n] <= 1.0:
                return h * width + n
            sums[n] += signals[h, n]
    for h in range(t, H):
        states[h] = S
        actions[h] = 0
    return -1
