"""Gymnasium both ways: a CMDP as an environment, and learning in any environment with `Discrete` spaces.

`CMDPEnv` is an environment made from a model. `GymWorld` makes a world to learn in from an environment whose
``info["cost"]`` holds the quantities that the constraints bound; `cmdpkit.learn` calls it when it is given an
environment. `WithCost` is for environments that report their costs in another way, or have none, and `make_env` returns
Gymnasium's own toy environments with a cost.
"""

from cmdpkit.running.gym.env import CMDPEnv, WithCost, make_env
from cmdpkit.running.gym.world import GymWorld

__all__ = ["CMDPEnv", "GymWorld", "WithCost", "make_env"]

_REMOVED = {
    "probe": "the guide to Gymnasium finds ranges and horizons with a loop of ten lines",
    "to_gym": "cmdp.to_gym() is the environment of a model",
    "CostFromReward": "WithCost(env, lambda s, a, s_next, rewards: (rewards[0], rewards[1:])) splits a vector",
    "CostFromStep": "the reference 'Learners and environments of your own' has a wrapper of four lines",
}  # names of earlier versions, and what replaces them


def __getattr__(name: str) -> object:
    told = f"cmdpkit.gym.{name} was removed: {_REMOVED[name]}" if name in _REMOVED else f"there is no {name!r} here"
    raise AttributeError(told)
