"""What an environment declares about itself: sizes, horizon and ranges; with clear errors if something is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TimeLimit

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import check_horizon

Range = tuple[float, float]


class Numbers(NamedTuple):
    """A `Discrete` space: the numbers first, first + 1, ..., first + size - 1."""

    size: int  # how many there are
    first: int  # the smallest

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], what: str) -> Numbers:
        """The observation or action space of an environment."""
        space = getattr(env, f"{what}_space", None)
        if isinstance(space, Discrete):
            return cls(int(space.n), int(space.start))
        wrapper = {"observation": "ObservationWrapper", "action": "ActionWrapper"}[what]
        raise CmdpkitError(
            f"{what}_space is {space}, expected Discrete: what is learned is a table. Number the {what}s from 0 on "
            f"with a gymnasium.{wrapper} (continuous ones cut into cells first)"
        )


def steps(env: gymnasium.Env[Any, Any], horizon: int | None) -> int:
    """The horizon H: the one given, which may not exceed the time limit of the environment, or else that limit."""
    declared = limits(env)
    if horizon is None:
        if not declared:
            raise CmdpkitError(
                "the environment has no time limit: give a horizon, GymWorld(env, constraints, horizon=...), or wrap "
                "it in gymnasium.wrappers.TimeLimit(env, max_episode_steps=...); cmdpkit.gym.probe(env) proposes one"
            )
        return min(declared)
    check_horizon(horizon)
    if declared and horizon > min(declared):
        raise CmdpkitError(f"horizon is {horizon}, but the time limit of the environment is {min(declared)} steps")
    return int(horizon)


def limits(env: gymnasium.Env[Any, Any]) -> list[int]:
    """All time limits that an environment and its wrappers have."""
    found = [env.spec.max_episode_steps] if env.spec is not None and env.spec.max_episode_steps is not None else []
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            found.append(layer._max_episode_steps)
        layer = layer.env
    return found


def reward_scale(env: gymnasium.Env[Any, Any], given: Any) -> Scale:
    """The map of the reward to [0, 1], from the range that was given or that the environment declares."""
    declared = _metadata(env).get("reward_range", getattr(env.unwrapped, "reward_range", None))
    if given is None and not _is_finite(declared):
        raise CmdpkitError(
            "the range of the reward is not known: give it, GymWorld(env, constraints, reward_range=(low, high)), or "
            'declare it in env.metadata["reward_range"]; cmdpkit.gym.probe(env) proposes one'
        )
    low, high = _ordered("reward_range", declared if given is None else given)
    return Scale(low, high - low or 1.0)


def cost_scales(env: gymnasium.Env[Any, Any], given: Any, constraints: Sequence[Constraint]) -> tuple[Scale, ...]:
    """Maps of the utilities ("at most" costs, negated) to [0, 1]; costs lie between 0 and 1 unless declared."""
    usual = [(0.0, 1.0) if c.range is None else c.range for c in constraints]
    ranges = _metadata(env).get("cost_ranges", usual) if given is None else given
    if not isinstance(ranges, Sequence) or len(ranges) != len(constraints):
        raise CmdpkitError(
            f"cost_ranges is {ranges!r}, expected a pair (low, high) for each of {len(constraints)} constraints"
        )
    scales = []
    for c, pair in zip(constraints, ranges, strict=True):
        low, high = _ordered(f"cost range of {c.name!r}", pair)
        scales.append(Scale(low if c.sign > 0 else -high, high - low or 1.0))
    return tuple(scales)


def declared_ranges(env: gymnasium.Env[Any, Any], N: int) -> list[Range | None]:
    """The ranges of the reward and of N costs that an environment declares, or None for each that it does not."""
    found = _metadata(env)
    costs = found.get("cost_ranges")
    listed = [found.get("reward_range"), *(costs if isinstance(costs, Sequence) and len(costs) == N else [None] * N)]
    return [(float(x[0]), float(x[1])) if x is not None and _is_finite(x) and np.size(x) == 2 else None for x in listed]


def _metadata(env: gymnasium.Env[Any, Any]) -> Mapping[str, Any]:
    """The metadata of the environment; empty if they are not a mapping."""
    metadata = getattr(env, "metadata", None)
    return metadata if isinstance(metadata, Mapping) else {}


def _is_finite(declared: Any) -> bool:
    """Whether a declared range, which may be anything, consists of finite numbers."""
    try:
        return bool(np.isfinite(np.asarray(declared, dtype=float)).all())
    except (TypeError, ValueError):
        return False


def _ordered(what: str, pair: Any) -> Range:
    """Two finite numbers in order, extended to include 0, which is the reward and cost after an early end."""
    try:
        low, high = (float(x) for x in pair)
    except (TypeError, ValueError):
        raise CmdpkitError(f"{what} is {pair!r}, expected a pair (low, high)") from None
    if not (np.isfinite([low, high]).all() and low <= high):
        raise CmdpkitError(f"{what} is {pair!r}, expected two finite numbers, the smaller one first")
    return min(low, 0.0), max(high, 0.0)
