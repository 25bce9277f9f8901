"""A CMDP as a Gymnasium environment, and wrappers that put costs of other conventions into ``info["cost"]``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from cmdpkit import envs
from cmdpkit.envs.gym._tables import GymTable
from cmdpkit.errors import CmdpkitError
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP, Scale
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.simulator import Noise

Mask = NDArray[np.int8]


def to_gym(cmdp: CMDP, noise: Noise = "none", *, observe_step: bool = False) -> CMDPEnv:
    """An environment whose episodes are those of the model: H steps from its start distribution.

    Observations and actions are indices of states and actions. ``info["costs"]`` [N] holds what the constraints count,
    in the user's units and order, and ``info["cost"]`` the same as a number where there is one constraint, as other
    libraries expect it; ``info["action_mask"]`` says which actions exist now, and ``info["step"]`` how many
    steps were taken. With noise "bernoulli" each signal is drawn with the model's value as its mean: it is 0 or 1 if
    all values in the model lie between these, and else the smallest or the largest value in the model.

    With ``observe_step`` an observation is the pair (steps taken, state), of the space MultiDiscrete([H + 1, S]): an
    optimal policy depends on both, and a library that sees only observations needs both.

    >>> from cmdpkit import envs
    >>> env = to_gym(envs.build("paper/grid"))
    >>> s, info = env.reset(seed=1)
    >>> s, info["action_mask"].tolist(), info["step"]
    (2, [0, 1, 1, 1, 1], 0)
    >>> s, reward, terminated, truncated, info = env.step(1)
    >>> s, round(reward, 3), info["cost"], info["costs"].tolist(), info["step"]
    (7, 0.646, 1.0, [1.0], 1)
    """
    return CMDPEnv(cmdp, noise, observe_step=observe_step)


class CMDPEnv(gymnasium.Env[Any, Any]):
    """A model to act in; see `to_gym`. An episode is truncated after H steps."""

    def __init__(self, cmdp: CMDP, noise: Noise = "none", *, observe_step: bool = False) -> None:
        cmdp.need_horizon("a Gymnasium environment of this package")
        if noise not in ("none", "bernoulli"):
            raise CmdpkitError(f"noise is {noise!r}, expected 'none' or 'bernoulli'")
        self.cmdp, self.noise, self.observe_step = cmdp, noise, observe_step
        self.metadata = {
            "render_modes": [],
            "reward_range": _range(cmdp.reward_scale),
            "cost_ranges": [_range(scale, c) for scale, c in zip(cmdp.utility_scales, cmdp.constraints, strict=True)],
        }
        self.observation_space = MultiDiscrete([cmdp.H + 1, cmdp.S]) if observe_step else Discrete(cmdp.S)
        self.action_space = self._actions = Actions(cmdp)
        self.spec = EnvSpec(
            "cmdpkit/CMDP-v0",
            entry_point=lambda **_: CMDPEnv(cmdp, noise, observe_step=observe_step),
            max_episode_steps=cmdp.H,
        )
        self._h, self._s = cmdp.H, 0  # as after the last step, so that the first call must be reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._h, self._s = 0, _drawn(self.cmdp.mu, self.np_random)
        return self._observed(), self._info()

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step; an action that does not exist raises CmdpkitError."""
        cmdp, h, s = self.cmdp, self._h, self._s
        if h == cmdp.H:
            raise CmdpkitError("there is no episode: call reset() first")
        known = action in self.action_space
        if not known or not self._mask()[int(action)]:
            shown = repr(cmdp.action_names[int(action)]) if known else f"index {action!r}"
            raise CmdpkitError(
                f"step {h + 1}, state {cmdp.states[s]!r}: there is no action {shown}; those that exist have a 1 in "
                "info['action_mask']"
            )
        a = int(action)
        reward, cost = self._signals(h, s, a)
        row = ((h % cmdp.kernel.T) * cmdp.S + s) * cmdp.A + a
        first, last = cmdp.kernel.indptr[row : row + 2]
        self._s = int(cmdp.kernel.successors[first + _drawn(cmdp.kernel.prob[first:last], self.np_random)])
        self._h += 1
        return self._observed(), reward, False, self._h == cmdp.H, {**told_costs(cost), **self._info()}

    def _observed(self) -> Any:
        """The state, or the number of steps taken and the state."""
        return np.array([self._h, self._s]) if self.observe_step else self._s

    def _signals(self, h: int, s: int, a: int) -> tuple[float, FloatArray]:
        """Reward, and what the constraints count [N], in the user's units."""
        r, g = self.cmdp.compact.r, self.cmdp.compact.g
        values = np.array([r[h % len(r), s, a], *g[:, h % g.shape[1], s, a]])
        if self.noise == "bernoulli":
            for n, scale in enumerate((self.cmdp.reward_scale, *self.cmdp.utility_scales)):
                values[n] = scale.low + scale.span * (self.np_random.random() < scale.to_unit(values[n]))
        return float(values[0]), self.cmdp.signs * values[1:] + 0.0  # no negative zeros

    def _info(self) -> dict[str, Any]:
        self._actions.mask = self._mask()
        return {"action_mask": self._mask(), "step": self._h}

    def _mask(self) -> Mask:
        """Which actions exist now; after the last step, those of the last step."""
        allowed = self.cmdp.compact.allowed
        mask: Mask = allowed[min(self._h, self.cmdp.H - 1) % len(allowed), self._s].astype(np.int8)
        return mask


class Actions(Discrete[np.int64]):
    """Discrete(A) whose samples exist in the current state, or after `seed`, in all start states."""

    def __init__(self, cmdp: CMDP) -> None:
        super().__init__(cmdp.A)
        self._first = cmdp.compact.allowed[0, cmdp.mu > 0].all(axis=0).astype(np.int8)
        self.mask: Mask = self._first

    def seed(self, seed: int | None = None) -> Any:
        """Seed the space; the next sample is for the beginning of an episode."""
        self.mask = self._first
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """An action drawn from those that exist, unless other masks or probabilities are given."""
        return super().sample(self.mask if mask is None and probability is None else mask, probability)


def told_costs(costs: FloatArray) -> dict[str, Any]:
    """The entries of info about the costs [N] of a step: "costs", and "cost", which is a number where N is 1."""
    return {"cost": float(costs[0]) if len(costs) == 1 else costs, "costs": costs}


def _drawn(p: FloatArray, rng: np.random.Generator) -> int:
    """An index with probabilities p."""
    cdf = np.cumsum(p)
    return int(np.searchsorted(cdf / cdf[-1], rng.random(), side="right"))  # the last is 1, and draws are below 1


def _range(scale: Scale, constraint: Constraint | None = None) -> tuple[float, float]:
    """Smallest and largest value of a signal in the user's units and sense."""
    ends = (scale.low, scale.low + scale.span)
    return ends if constraint is None or constraint.sign > 0 else (-ends[1] + 0.0, -ends[0] + 0.0)


showing.to_gym.register(CMDP, to_gym)


# -- Wrappers that put costs of other conventions into ``info["cost"]``, and Gymnasium's toy environments with a cost.

Step = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]


class CostFromStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    """For environments whose step returns (obs, reward, cost, terminated, truncated, info), as in Safety-Gymnasium."""

    def step(self, action: Any) -> Step:
        """Take one step, with the cost moved to ``info["cost"]``."""
        obs, reward, cost, terminated, truncated, info = self.env.step(action)  # type: ignore[misc]
        return obs, reward, terminated, truncated, {**info, "cost": cost}


class CostFromReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """For environments with a vector as reward, as in MO-Gymnasium: the first entry is the reward, the rest the cost.

    If the environment declares a ``reward_space``, its limits become the ranges that `GymWorld` needs. The constraints
    say what the rest means: `at_most` for a cost, `at_least` for an objective.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        space = getattr(env.unwrapped, "reward_space", None)
        if space is not None and np.isfinite([space.low, space.high]).all():
            low, *lows = (float(x) for x in space.low)
            high, *highs = (float(x) for x in space.high)
            ranges = {"reward_range": (low, high), "cost_ranges": list(zip(lows, highs, strict=True))}
            self.metadata = {**env.metadata, **ranges}

    def step(self, action: Any) -> Step:
        """Split the vector into reward and costs."""
        obs, rewards, terminated, truncated, info = self.env.step(action)
        first, rest = np.split(np.asarray(rewards, dtype=float), [1])
        return obs, float(first[0]), terminated, truncated, {**info, **told_costs(rest)}


class WithCost(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives an environment a cost, and perhaps another reward: ``outcome(obs, action, next obs, reward)`` returns both.

    >>> from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
    >>> env = WithCost(FrozenLakeEnv(), lambda s, a, s_next, reward: (reward, float(s_next == s)))
    >>> s, _ = env.reset(seed=3)
    >>> s_next, reward, terminated, truncated, info = env.step(0)
    >>> info["cost"] == (s_next == s)
    True
    """

    cmdp: CMDP | None = None  # the exact model, if there is one; `GymWorld` looks here
    name: str | None = None  # name of the environment in records

    def __init__(
        self, env: gymnasium.Env[Any, Any], outcome: Callable[[Any, Any, Any, float], tuple[float, Any]]
    ) -> None:
        super().__init__(env)
        self._outcome, self._obs = outcome, None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; its first observation is kept, because the cost of the next step depends on it."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._obs = obs
        return obs, info

    def step(self, action: Any) -> Step:
        """Take one step, with its cost in ``info["cost"]``."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward, info["cost"] = self._outcome(self._obs, action, obs, float(reward))
        self._obs = obs
        return obs, reward, terminated, truncated, info


def make_env(name: str, **params: object) -> WithCost:
    """One of the environments ``gym/...`` as a Gymnasium environment, with the parameters of its exact model.

    >>> env = make_env("gym/taxi", H=15)
    >>> env.observation_space, env.action_space, env.cmdp
    (Discrete(500), Discrete(6), CMDP(H=15, S=500, A=6, N=1: fuel ≤ 9))
    """
    cmdp = envs.build(name, **params)
    if not name.startswith("gym/"):
        raise CmdpkitError(f"{name!r} is a model, not an environment of Gymnasium; to_gym makes one of it")
    module = importlib.import_module("cmdpkit.envs." + name.replace("/", ".").replace("-", "_"))
    takes = inspect.signature(module.make).parameters
    base = module.make(**{key: value for key, value in params.items() if key in takes})
    table = GymTable.of(base.P, module.outcome)
    env = WithCost(TimeLimit(base, cmdp.H), module.outcome)
    env.cmdp, env.name = cmdp, name
    reward, cost = ((float(x.min()), float(x.max())) for x in (table.reward, table.cost))
    env.metadata = {**base.metadata, "reward_range": reward, "cost_ranges": [cost]}
    return env
