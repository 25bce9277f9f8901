"""A machine that is up or down: care keeps it up at a price, and a share of the time it must be up.

While the machine is up it can be run as it is, which costs nothing but lets it fail often, or with care, which costs
something in every step. While it is down it costs more, and a repair succeeds with some probability.

States: "up", "down".
Actions: "run" and "care" while it is up; "repair" while it is down.
Reward: Minus the cost: 0 for running, 1 for care, 2 for a step that the machine is down.
Constraints: availability: share of time up, in the long run, >= availability.
Start: up.
Parameters:
    availability : smallest share of time that the machine must be up
    run_fails, care_fails : probability of a failure in one step, without and with care
    repaired : probability that a repair is finished within the step

By hand: running alone is available 5/7 of the time at cost 4/7, care alone 10/11 at cost 12/11. A share of
(17/20 - 5/7) / (10/11 - 5/7) = 209/300 of the second makes 17/20, at a cost of 14/15; the price is 8/3.

Reference: Our own.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least

COST = {"run": 0.0, "care": 1.0, "repair": 2.0}


def build(availability: float = 0.85, run_fails: float = 0.2, care_fails: float = 0.05, repaired: float = 0.5) -> CMDP:
    """The machine in the long run."""
    availability = real("availability", availability, 0, 1)
    fails = {"run": real("run_fails", run_fails, 0, 1), "care": real("care_fails", care_fails, 0, 1)}
    repaired = real("repaired", repaired, 0.01, 1)

    def step(state: str, action: str) -> dict[str, float]:
        if state == "up":
            return {"up": 1 - fails[action], "down": fails[action]}
        return {"up": repaired, "down": 1 - repaired}

    return CMDP.from_function(
        states=["up", "down"],
        start="up",
        criterion="average",
        actions=lambda state: ["run", "care"] if state == "up" else ["repair"],
        step=step,
        reward=lambda state, action: -COST[action],
        constraints=[at_least("availability", availability, lambda state, action: float(state == "up"), per_step=True)],
        exact=True,
    )
