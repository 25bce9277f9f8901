"""Contract tests for everybody's learners and environments: what they must promise so that results can be trusted.

    from cmdpkit.testing import check_env, check_learner
    check_learner(MyLearner)          # raises ContractBroken, with one sentence per promise that is broken
    check_env("my_package:clinic")    # a function that returns a CMDP or a Gymnasium environment

The tests of this package hold its own algorithms and environments to the same functions: the `CHECKS` are those of a
learner.
"""

from cmdpkit.testing.environments import ContractBroken, check_env
from cmdpkit.testing.learners import CHECKS, PROBLEMS, Case, check_learner

__all__ = ["CHECKS", "PROBLEMS", "Case", "ContractBroken", "check_env", "check_learner"]
