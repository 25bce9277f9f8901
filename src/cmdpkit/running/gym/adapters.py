"""Wrappers that put costs of other conventions into ``info["cost"]``, and Gymnasium's toy environments with a cost."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from cmdpkit import envs
from cmdpkit.envs.gym._tables import Table
from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.running.gym.env import told_costs

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
    name: str | None = None  # what records call the environment

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
    table = Table.of(base.P, module.outcome)
    env = WithCost(TimeLimit(base, cmdp.H), module.outcome)
    env.cmdp, env.name = cmdp, name
    reward, cost = ((float(x.min()), float(x.max())) for x in (table.reward, table.cost))
    env.metadata = {**base.metadata, "reward_range": reward, "cost_ranges": [cost]}
    return env
