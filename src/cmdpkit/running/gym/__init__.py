"""Gymnasium both ways: a CMDP as an environment, and learning in any environment with `Discrete` spaces.

`CMDPEnv` is an environment made from a model. `GymWorld` makes a world to learn in from an environment whose
``info["cost"]`` holds the quantities that the constraints bound; `cmdpkit.learn` calls it when it is given an
environment. `WithCost` is for environments that report their costs in another way, or have none, and `make_env` returns
Gymnasium's own toy environments with a cost.
"""

from cmdpkit.running.gym.env import CMDPEnv, WithCost, make_env
from cmdpkit.running.gym.world import GymWorld

__all__ = ["CMDPEnv", "GymWorld", "WithCost", "make_env"]
