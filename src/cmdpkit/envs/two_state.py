"""Stay where it pays, or leave: the smallest problem in which reward and cost come together.

In the first state every step earns 1 and costs 1. One may stay there or try to leave, which succeeds with some
probability; from the second state one comes back at once.

States: "inside", "outside".
Actions: "stay" and "leave" inside; "return" outside.
Reward: 1 inside, 0 outside.
Constraints: cost: share of time spent inside, in the long run, <= cost.
Start: inside.
Parameters:
    cost : largest share of time inside
    leaves : probability that leaving succeeds

Leaving always spends 1 / (1 + leaves) of the time inside, 10/19 by default: no policy has less.

Reference: An example of arXiv 2405.19017, with the bound of its public code.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most


def build(cost: float = 0.5275, leaves: float = 0.9) -> CMDP:
    """The two states in the long run."""
    cost, leaves = real("cost", cost, 0, 1), real("leaves", leaves, 0.01, 1)
    stays = {"inside": 1.0}
    ways = {"stay": stays, "leave": {"inside": 1 - leaves, "outside": leaves}, "return": stays}
    return CMDP.from_function(
        states=["inside", "outside"],
        start="inside",
        criterion="average",
        actions=lambda state: ["stay", "leave"] if state == "inside" else ["return"],
        step=lambda state, action: ways[action],
        reward=lambda state, action: float(state == "inside"),
        constraints=[at_most("cost", cost, lambda state, action: float(state == "inside"), per_step=True)],
        exact=True,
    )
