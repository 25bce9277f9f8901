"""Gymnasium both ways: a CMDP as an environment, and learning in any environment with `Discrete` spaces.

`to_gym` makes an environment from a model. `GymWorld` makes a world to learn in from an environment whose
``info["cost"]`` holds the quantities that the constraints bound; `cmdpkit.learn` calls it when it is given an
environment. `make_env` returns Gymnasium's own toy environments with a cost. The adapters are for environments that
report their costs in another way.
"""

from cmdpkit.running.gym.env import CMDPEnv, CostFromReward, CostFromStep, WithCost, make_env, to_gym
from cmdpkit.running.gym.probe import Probe, probe
from cmdpkit.running.gym.world import GymWorld

__all__ = ["CMDPEnv", "CostFromReward", "CostFromStep", "GymWorld", "Probe", "WithCost", "make_env", "probe", "to_gym"]
