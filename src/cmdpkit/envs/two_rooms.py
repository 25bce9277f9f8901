"""Two rooms with doors both ways: a problem whose optimum no stationary policy attains.

In the first room every step pays, in the second every step is of use, and a step through a door earns nothing. A policy
that changes rooms less and less often comes as near to half the time in each as one likes, without loss; a stationary
one changes rooms at a fixed rate, and pays for it.

States: "room 1", "room 2".
Actions: "stay", "change".
Reward: 1 for staying in room 1.
Constraints: use: share of steps spent staying in room 2, in the long run, >= use.
Start: room 1.
Parameters:
    use : smallest share of steps spent staying in room 2

The supremum over stationary policies is 1 - use. Leaving with probabilities p and q has reward q (1 - p) / (p + q) and
use p (1 - q) / (p + q).

Reference: A textbook example; numbers are ours.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least

OTHER = {"room 1": "room 2", "room 2": "room 1"}


def build(use: float = 0.5) -> CMDP:
    """The two rooms in the long run."""
    use = real("use", use, 0, 1)
    return CMDP.from_function(
        states=["room 1", "room 2"],
        start="room 1",
        criterion="average",
        actions=["stay", "change"],
        step=lambda room, action: {OTHER[room] if action == "change" else room: 1.0},
        reward=lambda room, action: float(room == "room 1" and action == "stay"),
        constraints=[
            at_least("use", use, lambda room, action: float(room == "room 2" and action == "stay"), per_step=True)
        ],
        exact=True,
    )
