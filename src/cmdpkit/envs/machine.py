"""A machine that wears: run it, service it in time, and repair it slowly or fast, within a bound on availability.

A running machine earns 1 in every step and wears on with probability 0.3; the more it is worn, the more often it fails.
A service takes one step, costs 0.5 and makes up for two degrees of wear. A failed machine comes back as new, sooner if
the repair is the expensive one.

States: "wear 0" .. "wear 4" and "failed".
Actions: "run" and "service" while it works, "slow repair" and "fast repair" when it has failed.
Reward: 1 for running, -0.5 for a service, -3 for a step of slow repair, -8 for a step of fast repair.
Constraints: availability: share of time spent running, in the long run, >= availability.
Start: wear 0.
Parameters:
    availability : smallest share of time that the machine must run
    wears : probability that a running machine wears on by one degree
    slow, fast : probability that a repair is finished within the step
Reference: Our own.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least

FAILS = (0.0, 0.01, 0.03, 0.08, 0.2)  # probability of a failure, by wear
EARNS = {"run": 1.0, "service": -0.5, "slow repair": -3.0, "fast repair": -8.0}


def build(availability: float = 0.88, wears: float = 0.3, slow: float = 0.25, fast: float = 0.6) -> CMDP:
    """The machine in the long run."""
    availability, wears = real("availability", availability, 0, 1), real("wears", wears, 0, 1)
    back = {"slow repair": real("slow", slow, 0.01, 1), "fast repair": real("fast", fast, 0.01, 1)}
    worn = [f"wear {degree}" for degree in range(len(FAILS))]

    def step(state: str, action: str) -> dict[str, float]:
        if state == "failed":
            return {"wear 0": back[action], "failed": 1 - back[action]}
        degree = worn.index(state)
        if action == "service":
            return {worn[max(degree - 2, 0)]: 1.0}
        works = 1 - FAILS[degree]
        if degree == len(worn) - 1:
            return {"failed": FAILS[degree], state: works}
        return {"failed": FAILS[degree], worn[degree + 1]: works * wears, state: works * (1 - wears)}

    return CMDP.from_function(
        states=[*worn, "failed"],
        start="wear 0",
        criterion="average",
        actions=lambda state: ["slow repair", "fast repair"] if state == "failed" else ["run", "service"],
        step=step,
        reward=lambda state, action: EARNS[action],
        constraints=[
            at_least("availability", availability, lambda state, action: float(action == "run"), per_step=True)
        ],
        exact=True,
    )
