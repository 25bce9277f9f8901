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

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.learners import Episodic, Learner
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.compiled import compiled
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.running.gym.answers import complaint, costs, flag, real, reset_complaint, shown, whole
from cmdpkit.running.gym.reading import Numbers
from cmdpkit.simulate.random import Stream, uniform

BLOCK = 64  # episodes between two calls of reset with a seed
ROUNDING = 1e-9  # of a range's width: a reward or cost outside by no more counts as the end of its range


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
            try:
                result = step(a + first_action)
            except Exception as error:
                raise _raised(k, h, f"env.step({a + first_action})", error) from error
            try:
                obs, reward, terminated, truncated, info = result
                flat[h * width] = reward if type(reward) is float else real(reward)
                if width == 2 and type(info["cost"]) is float:
                    flat[h * width + 1] = info["cost"]
                elif width > 1:
                    self.raw[h, 1:] = costs(info["cost"], width - 1)
                over = terminated if type(terminated) is bool else flag(terminated)
                over |= truncated if type(truncated) is bool else flag(truncated)
                s = (obs if type(obs) is int else whole(obs)) - first
            except Exception as error:  # only what the environment returned is touched here
                raise RunFailed(f"episode {k + 1}, step {h + 1}: {complaint(result, width - 1)}") from error
            h += 1
            over = over or h == H
            if not 0 <= s < size:
                raise RunFailed(f"episode {k + 1}, step {h}: observation {obs} is not in the observation space")
        self.lengths[k % BLOCK] = h
        self._settle(k, h)
        learner.end(self.states[k % BLOCK], self.actions[k % BLOCK], self.signals)

    def unit(self, k: int, h: int) -> FloatArray:
        """Reward and utilities of step h of the episode that is being played, [1+N] in unit scale."""
        sign, low, span = self.affine.T
        signals: FloatArray = (sign * self.raw[h] - low) / span
        for n, x in enumerate(signals):
            if not -ROUNDING <= x <= 1 + ROUNDING:
                raise RunFailed(self._outside(k, h, n))
        return signals.clip(0.0, 1.0)

    def state(self) -> dict[str, NDArray[Any]]:
        """What is needed to find the place again."""
        return {name: getattr(self, name).copy() for name in ("root", "states", "actions", "lengths")}

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Lead the environment to the beginning of the k-th episode."""
        for name in ("root", "states", "actions", "lengths"):
            getattr(self, name)[...] = state[name]
        if ((self.lengths < 0) | (self.lengths > self.problem.H)).any():
            raise CmdpkitError(f"the saved episodes have other lengths than 0 .. {self.problem.H} steps")
        for j in range(k - k % BLOCK, k):
            s = self._begun(j)
            for h in range(self.lengths[j % BLOCK]):
                if s != self.states[j % BLOCK, h]:
                    raise CmdpkitError(
                        f"episode {j + 1}, step {h + 1}: played again with the same seed and actions, the environment "
                        "is in another state than before; a run in it cannot be resumed"
                    )
                s = self._again(j, h)

    def _begun(self, k: int) -> int:
        """The first state of the k-th episode."""
        block, i = divmod(k, BLOCK)
        seed: dict[str, Any] = {}
        if i == 0:
            words = np.random.SeedSequence([int(x) for x in self.root], spawn_key=(block,))
            seed = {"seed": int(words.generate_state(1)[0])}
        try:
            result = self.env.reset(**seed)
        except Exception as error:
            raise _raised(k, None, "env.reset", error) from error
        try:
            obs, _ = result if isinstance(result, tuple | list) else ()
            s = whole(obs) - self.problem.states.first
        except Exception as error:
            raise RunFailed(f"episode {k + 1}: {reset_complaint(result)}") from error
        if not 0 <= s < self.problem.states.size:
            raise RunFailed(f"episode {k + 1}: first observation {obs} is not in the observation space")
        return s

    def _again(self, k: int, h: int) -> int:
        """The state that follows step h of the k-th episode, which is played a second time."""
        a = int(self.actions[k % BLOCK, h]) + self.problem.actions.first
        try:
            result = self.env.step(a)
        except Exception as error:
            raise _raised(k, h, f"env.step({a})", error) from error
        try:
            obs, *_ = result
            return whole(obs) - self.problem.states.first
        except Exception as error:
            said = complaint(result, len(self.problem.constraints))
            raise RunFailed(f"episode {k + 1}, step {h + 1}: {said}") from error

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
            raise RunFailed(self._outside(k, *divmod(bad, self.raw.shape[1])))

    def _outside(self, k: int, h: int, n: int) -> str:
        """The message about a signal outside its range."""
        sign, low, span = self.affine[n]
        limits = sorted((sign * low + 0.0, sign * (low + span) + 0.0))
        what = "the reward" if n == 0 else f"the cost {self.problem.constraints[n - 1].name!r}"
        remedy = "reward_range=(low, high)" if n == 0 else "cost_ranges=[(low, high), ...]"
        return (
            f"episode {k + 1}, step {h + 1}: {what} is {float(self.raw[h, n])!r}, outside its range {limits[0]:g} .. "
            f"{limits[1]:g}; give GymWorld the right one, {remedy}"
        )


def _raised(k: int, h: int | None, call: str, error: Exception) -> RunFailed:
    """The failure of a run whose environment raised an exception."""
    place = f"episode {k + 1}" if h is None else f"episode {k + 1}, step {h + 1}"
    return RunFailed(f"{place}: {call} raised {shown(error)}")


class ByStep:
    """A learner that is driven step by step, in the manner of an episodic one; k episodes are behind it."""

    def __init__(self, learner: Learner, player: Player, k: int) -> None:
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
def _settle(raw, affine, signals, sums, states, actions, t, S):  # type: ignore[no-untyped-def]
    """Fill signals [H, 1+N] and what comes after step t; the index of the first value out of its range, or -1."""
    H, width = raw.shape
    for h in range(H):
        for n in range(width):
            x = affine[n, 0] * raw[h, n] if h < t else 0.0
            x = (x - affine[n, 1]) / affine[n, 2]
            if not -ROUNDING <= x <= 1.0 + ROUNDING:
                return h * width + n
            signals[h, n] = min(max(x, 0.0), 1.0)
            sums[n] += signals[h, n]
    for h in range(t, H):
        states[h] = S
        actions[h] = 0
    return -1
