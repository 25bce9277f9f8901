"""Gymnasium both ways: a CMDP as an environment, and learning in any environment with `Discrete` spaces.

`to_gym` makes an environment of a model. `GymWorld` makes a world to learn in of an environment whose ``info["cost"]``
holds what the constraints bound; `cmdpkit.learn` does so by itself. `make_env` gives Gymnasium's own toy environments a
cost, and the adapters bring other conventions to this one.
"""

from cmdpkit.running.gym.adapters import CostFromReward, CostFromStep, WithCost, make_env
from cmdpkit.running.gym.env import CMDPEnv, to_gym
from cmdpkit.running.gym.world import GymWorld

__all__ = ["CMDPEnv", "CostFromReward", "CostFromStep", "GymWorld", "WithCost", "make_env", "to_gym"]
