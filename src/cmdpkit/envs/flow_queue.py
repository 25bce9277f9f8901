"""A small queue with two costs: the rates of service and of admission are chosen together, under a bound on each.

In every step the server works at one of four rates and lets jobs in at one of four rates. Fast service costs money,
slow admission loses customers, and both costs are bounded in the long run. Reward is earned for a short queue.

States: Number of jobs, 0 .. 5.
Actions: Service rate a in 0.2, 0.4, 0.6, 0.8 and admission rate b in 0.4, 0.5, 0.6, 0.7, named "a=0.2 b=0.4" and so on.
Reward: 5 minus the number of jobs.
Constraints:
    service: mean of 10 a - 6 <= service;
    admission: mean of 8 (1 - b)^2 - 2 <= admission.
Start: An empty queue.
Parameters:
    service : bound on the mean cost of service
    admission : bound on the mean cost of turning customers away

The queue grows by one with probability b (1 - a) unless it is full, and shrinks by one with (1 - b) a unless it is
empty. A full queue admits nobody, so it shrinks with probability a.

Reference: Section 6 of Agarwal, Bai and Aggarwal (UAI 2022), after the flow control problem in chapter 5 of Altman,
    "Constrained Markov Decision Processes" (1999). They print an optimum of 4.47; here it is 4.473738.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

BUFFER = 5  # largest number of jobs
RATES = {f"a={a} b={b}": (a, b) for a in (0.2, 0.4, 0.6, 0.8) for b in (0.4, 0.5, 0.6, 0.7)}


def build(service: float = 0.0, admission: float = 0.0) -> CMDP:
    """The queue in the long run."""
    service, admission = real("service", service), real("admission", admission)

    def step(jobs: int, action: str) -> dict[int, float]:
        a, b = RATES[action]
        up = b * (1 - a) if jobs < BUFFER else 0.0
        down = 0.0 if jobs == 0 else a if jobs == BUFFER else (1 - b) * a
        return {jobs + 1: up, jobs: 1 - up - down, jobs - 1: down}

    return CMDP.from_function(
        states=range(BUFFER + 1),
        start=0,
        criterion="average",
        actions=list(RATES),
        step=step,
        reward=lambda jobs, action: float(BUFFER - jobs),
        constraints=[
            at_most("service", service, lambda jobs, action: 10 * RATES[action][0] - 6, per_step=True),
            at_most("admission", admission, lambda jobs, action: 8 * (1 - RATES[action][1]) ** 2 - 2, per_step=True),
        ],
        exact=True,
    )
