"""A server with rush hours: admit or refuse jobs and set the speed, under an energy and a backlog budget.

Jobs ask for admission, with a higher probability from hour 9 to hour 18 of every day, and the server works on one at a
time. Working fast serves twice as many jobs as working slowly, for three times the energy; an admitted job can be
served from the next hour on. The energy bound slows the server down, the backlog bound makes it refuse.

States: "empty", "1 job", "2 jobs", ... up to the capacity.
Actions: "admit" or "refuse" with "idle", "slow" or "fast". A full server can only refuse, an empty one only idle.
Reward: Expected jobs served in the hour: 0 idle, ``slow`` or ``fast`` otherwise.
Constraints:
    energy: E[sum of 0 idle, 1 slow, 3 fast] <= energy;
    backlog: E[sum over the hours of the jobs in the system] <= backlog.
Start: empty, at hour 1.
Parameters:
    H : number of hours
    capacity : most jobs in the system
    quiet, busy : probability that a job asks for admission, by hour
    slow, fast : probability that a job in service is finished within the hour, by speed
    energy, backlog : the two bounds

Refusing every job costs neither energy nor backlog, so the Slater slack is the smaller of the two bounds.

Reference: Our own.
"""

from __future__ import annotations

from itertools import product

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

BUSY_HOURS = range(8, 18)  # of every 24, counted from 0
POWER = {"idle": 0.0, "slow": 1.0, "fast": 3.0}


def build(
    H: int = 24,
    capacity: int = 8,
    quiet: float = 0.3,
    busy: float = 0.8,
    slow: float = 0.4,
    fast: float = 0.8,
    energy: float = 25.0,
    backlog: float = 20.0,
) -> CMDP:
    """The server over ``H`` hours, with bounds on energy and backlog."""
    H, capacity = whole("H", H, 1), whole("capacity", capacity, 1)
    quiet, busy = real("quiet", quiet, 0, 1), real("busy", busy, 0, 1)
    served = {"idle": 0.0, "slow": real("slow", slow, 0, 1), "fast": real("fast", fast, 0, 1)}
    energy, backlog = real("energy", energy, 0), real("backlog", backlog, 0)
    names = ["empty", "1 job", *(f"{n} jobs" for n in range(2, capacity + 1))]
    jobs = {name: n for n, name in enumerate(names)}

    def actions(state: str) -> list[str]:
        doors = ("admit", "refuse") if jobs[state] < capacity else ("refuse",)
        speeds = POWER if jobs[state] else ("idle",)
        return [f"{door} {speed}" for door in doors for speed in speeds]

    def step(state: str, action: str, h: int) -> list[tuple[float, str]]:
        door, speed = action.split()
        asked = busy if h % 24 in BUSY_HOURS else quiet
        arrives = asked if door == "admit" else 0.0
        finishes = served[speed]
        chances = ((1, arrives), (0, 1 - arrives)), ((1, finishes), (0, 1 - finishes))  # jobs that come, and that go
        moves = [(p * q, i - j) for (i, p), (j, q) in product(*chances)]
        return [(p, names[jobs[state] + move]) for p, move in moves if p > 0]

    return CMDP.from_function(
        states=names,
        start="empty",
        horizon=H,
        actions=actions,
        step=step,
        reward=lambda state, action: served[action.split()[1]],
        constraints=[
            at_most("energy", energy, lambda state, action: POWER[action.split()[1]]),
            at_most("backlog", backlog, lambda state, action: float(jobs[state])),
        ],
        exact=["energy", "backlog"],
    )
