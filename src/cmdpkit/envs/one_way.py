"""A door that opens one way: a problem whose optimum needs a draw between two policies at the start.

In the first room every step pays, in the second every step is of use. One may leave the first room, never the second.
In the long run a stationary policy stays or leaves, whatever it draws: with any chance of leaving it leaves some day.
Only a draw at the start, between a policy that stays and one that leaves, has some of both on average.

States: "room 1", "room 2".
Actions: "stay" and, in room 1, "leave".
Reward: 1 for staying in room 1.
Constraints: use: share of steps spent in room 2, in the long run, >= use.
Start: room 1.
Parameters:
    use : smallest share of steps spent in room 2

The optimum is 1 - use by a mixture; every stationary policy that meets a positive bound has value 0.

Reference: A textbook example of a model with several recurrent classes; numbers are ours.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least


def build(use: float = 0.5) -> CMDP:
    """The two rooms in the long run."""
    use = real("use", use, 0, 1)
    return CMDP.from_function(
        states=["room 1", "room 2"],
        start="room 1",
        criterion="average",
        actions=lambda room: ["stay", "leave"] if room == "room 1" else ["stay"],
        step=lambda room, action: {"room 2" if action == "leave" else room: 1.0},
        reward=lambda room, action: float(room == "room 1" and action == "stay"),
        constraints=[at_least("use", use, lambda room, action: float(room == "room 2"), per_step=True)],
        exact=True,
    )
