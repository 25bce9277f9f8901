"""A cycle of three states with one choice: the smallest periodic problem.

The states follow each other forever. At the first one may work or rest. No policy ever forgets where it started, so
methods that wait for the distribution of the state to settle never end.

States: 1, 2, 3.
Actions: "work" and "rest" at 1; "go on" elsewhere.
Reward: 1 for working.
Constraints: effort: share of steps spent working, in the long run, <= effort.
Start: 1.
Parameters:
    effort : largest share of steps spent working

Working every time is a third of all steps, so the default of 1/6 means every second time.

Reference: Our own.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most


def build(effort: float = 1 / 6) -> CMDP:
    """The cycle in the long run."""
    effort = real("effort", effort, 0, 1)
    return CMDP.from_function(
        states=[1, 2, 3],
        start=1,
        criterion="average",
        actions=lambda state: ["work", "rest"] if state == 1 else ["go on"],
        step=lambda state, action: {state % 3 + 1: 1.0},
        reward=lambda state, action: float(action == "work"),
        constraints=[at_most("effort", effort, lambda state, action: float(action == "work"), per_step=True)],
        exact=True,
    )
