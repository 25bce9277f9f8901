"""The loop of a learner's decisions and an environment's steps, and how a resumed run continues where it was.

The environment gets its random numbers by ``reset(seed=...)``, called at the first of every `EPISODES_PER_SEED`
episodes. The seed follows from the run's stream and the number of this block of episodes. All actions of a block are
kept, so that a resumed run can play them again and bring the environment back to where it was.

A step of an environment takes a few microseconds, and so does a call of a compiled function with all tables of a
learner. If a learner can wait (`Episodic`), compiled code is therefore called only at the end of an episode: one call
scales and checks its signals, and another one learns from them. `ByStep` is for learners that cannot wait.

Everything that an environment returns is converted strictly. Gymnasium promises a whole number as the observation of a
`Discrete` space, a number as the reward and truth values for the end of an episode. Python would silently convert much
more: 1.7 or "1" to state 1, and the text "False" to true. The functions here refuse that with a TypeError, and
`state_in` explains to the user what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, RunFailed, quoted
from cmdpkit.learners import Episodic, Learner
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.compiled import compiled
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.tolerances import OUT_OF_RANGE
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import is_int
from cmdpkit.running.gym.env import Numbers
from cmdpkit.simulate.random import Stream, uniform

Converted = TypeVar("Converted")

# -- Strict conversion of what an environment returns.


def whole(x: Any) -> int:
    """A whole number: an int, a NumPy integer, or a float or array without axes that is exactly whole.

    >>> whole(np.int64(3)), whole(2.0), whole(np.array(4))
    (3, 2, 4)
    >>> whole("1")
    Traceback (most recent call last):
    TypeError: not a whole number
    """
    if is_int(x):
        return int(x)
    array = np.asarray(x)
    if array.shape != () or array.dtype.kind not in "iuf" or array != np.floor(array) or not np.isfinite(array):
        raise TypeError("not a whole number")
    return int(array)


def real(x: Any) -> float:
    """A single number; a text that looks like one is refused."""
    array = np.asarray(x)
    if array.shape != () or array.dtype.kind not in "biuf":
        raise TypeError("not a number")
    return float(array)


def flag(x: Any) -> bool:
    """A truth value, or 0 or 1; everything else is refused, because Python would take almost all of it as true."""
    if isinstance(x, bool | np.bool_):
        return bool(x)
    array = np.asarray(x)
    if array.shape != () or array.dtype.kind not in "biu" or array not in (0, 1):
        raise TypeError("not a truth value")
    return bool(array)


def costs(x: Any, N: int) -> NDArray[Any]:
    """The costs of N constraints, as numbers [N]; for one constraint, a single number is accepted too."""
    array = np.asarray(x)
    if array.dtype.kind not in "biuf" or (array.shape != (N,) and not (N == 1 and array.shape == ())):
        raise TypeError("not the costs")
    return array.reshape(N)


def _key(info: Mapping[str, Any], N: int) -> str:
    """Where the costs of N constraints are: under "cost", or for several under "costs" if that is there."""
    return "costs" if N > 1 and "costs" in info else "cost"


def state_in(place: str, result: Any, states: Numbers, N: int) -> int:
    """The state, counting from 0, in what a step has returned for N constraints; RunFailed says what is wrong."""
    expected = "(obs, reward, terminated, truncated, info)"
    if not isinstance(result, tuple | list):
        raise RunFailed(f"{place}: env.step returned {quoted(result)}, expected {expected}")
    if len(result) != 5:
        advice = '; let a wrapper move the cost into info["cost"]' if len(result) == 6 else ""
        raise RunFailed(f"{place}: expected {expected}, got {len(result)} values{advice}: {quoted(result)}")
    obs, reward, terminated, truncated, info = result
    advice = "; cmdpkit.gym.WithCost can split a vector" if isinstance(reward, np.ndarray | tuple | list) else ""
    _strict(place, "the reward", real, reward, f"a number{advice}")
    for name, x in (("terminated", terminated), ("truncated", truncated)):
        _strict(place, name, flag, x, "True or False")
    state = _state(place, "observation", obs, states)
    if not isinstance(info, Mapping):
        raise RunFailed(f'{place}: info is {quoted(info)}, expected a dict with a "cost"')
    if N:
        key = _key(info, N)
        if key not in info:
            raise RunFailed(f'{place}: info has no "cost" for {N} constraints; cmdpkit.gym.WithCost adds one')
        rule = "a number" if N == 1 else f"{N} numbers"
        _strict(place, f'info["{key}"]', partial(costs, N=N), info[key], rule)
    return state


def _state(place: str, what: str, obs: Any, states: Numbers) -> int:
    s = _strict(place, f"the {what}", whole, obs, "a whole number, as the observation space is Discrete") - states.first
    if not 0 <= s < states.size:
        raise RunFailed(f"{place}: {what} {obs} is not in the observation space")
    return s


def _strict(place: str, what: str, convert: Callable[[Any], Converted], x: Any, rule: str) -> Converted:
    try:
        return convert(x)
    except Exception as error:  # a user's class may raise anything
        raise RunFailed(f"{place}: {what} is {quoted(x)}, expected {rule}") from error


EPISODES_PER_SEED = 64  # episodes from one call of reset with a seed to the next
FAILURES = (Exception, SystemExit)  # of an environment; one that exits must not end the program as if all was well
MAX_EXCEPTION = 200  # characters of an exception of an environment that a message shows


class GymProblem(NamedTuple):
    """What the loop has to know of an environment."""

    H: int  # steps of an episode
    states: Numbers  # the observations
    actions: Numbers  # the actions
    constraints: Sequence[Constraint]  # [N]
    scales: Sequence[Scale]  # [1 + N], of reward and utilities


class GymPlayer:
    """Plays the episodes of one run in an environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], problem: GymProblem, sums: FloatArray) -> None:
        self.env, self.problem = env, problem
        self.sums = sums  # [1 + N], to which realised reward and utilities in unit scale are added
        self.root = np.zeros(4, dtype=np.uint64)  # the run's stream at its beginning, from which seeds follow
        H, N = problem.H, len(problem.constraints)
        signs = [1.0, *(c.sign for c in problem.constraints)]
        self.affine = np.array([(sign, *scale) for sign, scale in zip(signs, problem.scales, strict=True)])
        self.raw = np.zeros((H, 1 + N))  # reward and costs of the episode as received
        self.signals = np.zeros((EPISODES_PER_SEED, H, 1 + N))  # signals of the block, in unit scale
        self.states, self.actions = np.zeros((2, EPISODES_PER_SEED, H), dtype=np.int64)
        self.lengths = np.zeros(EPISODES_PER_SEED, dtype=np.int64)
        # Single numbers are read and written faster through a memoryview than through an array.
        views = (self.states, self.actions, self.raw.reshape(1, -1))
        states, actions, (self._flat,) = ([cast(Any, memoryview)(row) for row in x] for x in views)
        self._rows = list(zip(states, actions, strict=True))
        self._arrays = list(zip(self.states, self.actions, self.signals, strict=True))

    def episode(self, k: int, learner: Episodic, rng: Stream) -> None:
        """Play episode k of the run, counting from 0; after an early end, the remaining steps are spent in state S."""
        H, width = self.raw.shape
        size, first = self.problem.states
        first_action = self.problem.actions.first
        states, actions = self._rows[k % EPISODES_PER_SEED]
        flat, step, act = self._flat, self.env.step, learner.act
        s = self._reset(k)
        learner.begin(rng)
        h, over = 0, False
        while not over:
            states[h] = s
            a = actions[h] = act(h, s)
            try:
                result = step(a + first_action)
            except FAILURES as error:
                raise _env_raised(_at(k, h), f"env.step({a + first_action})", error) from error
            try:
                obs, reward, terminated, truncated, info = result
                flat[h * width] = reward if type(reward) is float else real(reward)
                if width == 2 and type(info["cost"]) is float:
                    flat[h * width + 1] = info["cost"]
                elif width > 1:
                    self.raw[h, 1:] = costs(info[_key(info, width - 1)], width - 1)
                over = terminated if type(terminated) is bool else flag(terminated)
                over |= truncated if type(truncated) is bool else flag(truncated)
                s = (obs if type(obs) is int else whole(obs)) - first
                if not 0 <= s < size:
                    raise ValueError("not in the observation space")
            except Exception as error:  # only what the environment returned is touched here
                state_in(_at(k, h), result, self.problem.states, width - 1)  # says what is wrong
                raise _env_raised(_at(k, h), "what env.step returned", error) from error  # only if it looks right now
            h += 1
            over = over or h == H
        self.lengths[k % EPISODES_PER_SEED] = h
        self._settle(k, h)
        learner.end(*self._arrays[k % EPISODES_PER_SEED])

    def unit(self, k: int, h: int) -> FloatArray:
        """Reward and utilities of step h of the episode that is being played, [1+N] in unit scale."""
        sign, low, span = self.affine.T
        signals: FloatArray = (sign * self.raw[h] - low) / span
        for n, x in enumerate(signals):
            if not -OUT_OF_RANGE <= x <= 1 + OUT_OF_RANGE:
                raise RunFailed(self._outside(k, h, n))
        return signals.clip(0.0, 1.0)

    def state(self) -> dict[str, NDArray[Any]]:
        """What is needed to bring the environment back to its current state."""
        return {name: getattr(self, name).copy() for name in ("root", "states", "actions", "lengths")}

    def restore(self, state: Mapping[str, NDArray[Any]], k: int) -> None:
        """Bring the environment to the beginning of episode k, by playing the episodes of its block again."""
        for name in ("root", "states", "actions", "lengths"):
            getattr(self, name)[...] = state[name]
        if ((self.lengths < 0) | (self.lengths > self.problem.H)).any():
            raise CmdpkitError(f"the saved episodes have other lengths than 0 .. {self.problem.H} steps")
        for j in range(k - k % EPISODES_PER_SEED, k):
            s = self._reset(j)
            for h in range(self.lengths[j % EPISODES_PER_SEED]):
                if s != self.states[j % EPISODES_PER_SEED, h]:
                    raise CmdpkitError(
                        f"{_at(j, h)}: played again with the same seed and actions, the environment "
                        "is in another state than before; a run in it cannot be resumed"
                    )
                action = int(self.actions[j % EPISODES_PER_SEED, h]) + self.problem.actions.first
                result = _called(_at(j, h), f"env.step({action})", partial(self.env.step, action))
                s = state_in(_at(j, h), result, self.problem.states, len(self.problem.constraints))

    def _reset(self, k: int) -> int:
        """Reset the environment for episode k, and return the first state."""
        block, i = divmod(k, EPISODES_PER_SEED)
        seed: dict[str, Any] = {}
        if i == 0:
            words = np.random.SeedSequence([int(x) for x in self.root], spawn_key=(block,))
            seed = {"seed": int(words.generate_state(1)[0])}
        place = f"episode {k + 1}"
        result = _called(place, "env.reset", partial(self.env.reset, **seed))
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise RunFailed(f"{place}: env.reset returned {quoted(result)}, expected (obs, info)")
        return _state(place, "first observation", result[0], self.problem.states)

    def _settle(self, k: int, t: int) -> None:
        """Scale, check and add up the signals of the t steps played, and fill in the rest of the episode."""
        states, actions, signals = self._arrays[k % EPISODES_PER_SEED]
        bad = _settle(self.raw, self.affine, signals, self.sums, states, actions, t, self.problem.states.size)
        if bad >= 0:
            raise RunFailed(self._outside(k, *divmod(bad, self.raw.shape[1])))

    def _outside(self, k: int, h: int, n: int) -> str:
        """The message about a signal outside its range."""
        sign, low, span = self.affine[n]
        limits = sorted((sign * low + 0.0, sign * (low + span) + 0.0))
        what = "the reward" if n == 0 else f"the cost {self.problem.constraints[n - 1].name!r}"
        remedy = "reward_range=(low, high)" if n == 0 else "cost_ranges=[(low, high), ...]"
        return (
            f"{_at(k, h)}: {what} is {float(self.raw[h, n])!r}, outside its range {limits[0]:g} .. "
            f"{limits[1]:g}; give GymWorld the right one, {remedy}"
        )


def _at(k: int, h: int) -> str:
    """A step in words, which counts from 1."""
    return f"episode {k + 1}, step {h + 1}"


def _called(place: str, what: str, call: Callable[[], Any]) -> Any:
    """What an environment answers to a call; an exception of it is told with its place."""
    try:
        return call()
    except FAILURES as error:
        raise _env_raised(place, what, error) from error


def _env_raised(place: str, what: str, error: BaseException) -> RunFailed:
    """The failure of a run whose environment raised an exception."""
    return RunFailed(f"{place}: {what} raised {quoted(error, MAX_EXCEPTION)}")


class ByStep:
    """Lets a learner that learns step by step look like an `Episodic` one; k episodes were played before."""

    def __init__(self, learner: Learner, player: GymPlayer, k: int) -> None:
        self.learner, self.player, self.k = learner, player, k - 1

    def begin(self, rng: Stream) -> None:
        """Begin an episode."""
        self.rng, self.k = rng, self.k + 1
        self.learner.begin(rng)

    def act(self, h: int, s: int) -> int:
        """Let the learner learn from the last step and choose an action."""
        if h == 0:
            return self.learner.first(s, self.rng)
        return self.learner.next(self.player.unit(self.k, h - 1), s, self.rng)

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Let the learner learn from the last step, and from all steps after an early end."""
        H = len(actions)
        for h in range(int(self.player.lengths[self.k % EPISODES_PER_SEED]), H):
            self.learner.next(signals[h - 1], int(states[h]), self.rng)
        self.learner.last(signals[H - 1])


class FixedPolicy:
    """Lets a fixed policy pi [H, S, A] look like an `Episodic` learner, which learns nothing."""

    def __init__(self, pi: FloatArray) -> None:
        self.cdf = np.cumsum(pi, axis=-1)
        self.cdf /= self.cdf[..., -1:]

    def begin(self, rng: Stream) -> None:
        """Begin an episode."""
        self.rng = rng

    def act(self, h: int, s: int) -> int:
        """Draw an action from the policy."""
        return int(np.searchsorted(self.cdf[h, s], uniform(self.rng), side="right"))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Do nothing, because a fixed policy learns nothing."""


@compiled
def _settle(raw, affine, signals, sums, states, actions, t, S):
    """Fill signals [H, 1+N], states and actions after t steps; return the index of a value out of its range, or -1."""
    H, width = raw.shape
    for h in range(H):
        for n in range(width):
            x = affine[n, 0] * raw[h, n] if h < t else 0.0
            x = (x - affine[n, 1]) / affine[n, 2]
            if not -OUT_OF_RANGE <= x <= 1.0 + OUT_OF_RANGE:
                return h * width + n
            signals[h, n] = min(max(x, 0.0), 1.0)
            sums[n] += signals[h, n]
    for h in range(t, H):
        states[h] = S
        actions[h] = 0
    return -1
