"""Power against delay: set the speed of a server forever, so that the mean backlog stays within a bound.

In every step a job arrives with some probability, unless the buffer is full. The server finishes a job with the
probability of its rate, and higher rates take more than proportionally more power.

States: Number of jobs in the system, 0 .. capacity.
Actions: The rates 0, 0.3, 0.5, 0.7 and 0.9, named "off", "rate 0.3" and so on.
Reward: Minus the power, which is 0, 0.2, 0.5, 1.1 or 2 if a job waits, and 0 in an empty system.
Constraints: backlog: mean number of jobs in the system <= backlog, per step.
Start: The number of jobs that is given as ``start``.
Parameters:
    backlog : largest mean number of jobs in the system
    arrives : probability of an arrival in one step
    capacity : most jobs in the system
    discount : 0 for long-run averages, otherwise the discount; the bound stays per step
    start : number of jobs at the start, which matters with a discount only

With a discount the bound is a promise from the start on, and mostly about early steps: at a discount of 0.95 it can be
met from an empty system at a power of 0.2452 per step, from 5 jobs at 0.9276, and from 10 jobs not at all.

Reference: Our own; the trade-off between power and delay is a textbook one.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

RATES = {"off": 0.0, "rate 0.3": 0.3, "rate 0.5": 0.5, "rate 0.7": 0.7, "rate 0.9": 0.9}
POWER = {"off": 0.0, "rate 0.3": 0.2, "rate 0.5": 0.5, "rate 0.7": 1.1, "rate 0.9": 2.0}


def build(
    backlog: float = 2.0, arrives: float = 0.4, capacity: int = 20, discount: float = 0.0, start: int = 0
) -> CMDP:
    """The server in the long run, or with a discount."""
    backlog, arrives = real("backlog", backlog, 0), real("arrives", arrives, 0, 1)
    capacity, discount = whole("capacity", capacity, 1), real("discount", discount, 0, 1 - 1e-9)
    start = whole("start", start, 0, capacity)

    def step(jobs: int, action: str) -> dict[int, float]:
        served = RATES[action] if jobs else 0.0
        comes = arrives if jobs < capacity else 0.0
        up, down = comes * (1 - served), served * (1 - comes)
        return {jobs + 1: up, jobs: 1 - up - down, jobs - 1: down}

    return CMDP.from_function(
        states=range(capacity + 1),
        start=start,
        discount=discount or None,
        criterion=None if discount else "average",
        actions=list(RATES),
        step=step,
        reward=lambda jobs, action: -POWER[action] * (jobs > 0),
        constraints=[at_most("backlog", backlog, lambda jobs, action: float(jobs), per_step=True)],
        exact=True,
    )
