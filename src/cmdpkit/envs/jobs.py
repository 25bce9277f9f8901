"""Jobs to finish before the evening: working costs little reward in quiet hours and most of it in busy ones.

Some jobs wait. Working finishes two of them with probability 0.8, one with 0.1 and none with 0.1, never more than there
are; resting finishes none. Working in busy hours costs nearly all of the reward of the hour, in the others a fifth.

States: Number of jobs that wait, 0 .. 9.
Actions: rest, work.
Reward: 1 for resting; for working 0.1 in the steps 3 to 6 (counting from 0), and 0.8 in all others.
Constraints: finished: expected number of jobs finished, divided by 2, >= finished.
Start: 9 jobs.
Parameters:
    finished : half the number of jobs that must be finished
    H : number of steps of an episode
Reference: Appendix K.1 of Ghosh, Zhou and Shroff, "Towards Achieving Sub-linear Regret and Hard Constraint Violation in
    Model-free RL" (AISTATS 2024). With the defaults the optimum is 156/17 = 9.176471 at a price of 4/17; both are ours,
    by the LP. There, with 300,000 episodes, the authors' algorithm meets the bound from 150,000 on, and
    OptPess-PrimalDual misses it all along.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least

JOBS = 9  # at the start
DONE = ((2, 0.8), (1, 0.1), (0, 0.1))  # jobs that a step of work finishes, with their probabilities
BUSY = range(3, 7)  # steps


def build(finished: float = 3.5, H: int = 10) -> CMDP:
    """The jobs over ``H`` steps."""
    finished, H = real("finished", finished, 0), whole("H", H, 1)

    def step(jobs: int, action: str) -> list[tuple[float, int]]:
        return [(1.0, jobs)] if action == "rest" else [(p, max(jobs - done, 0)) for done, p in DONE]

    def reward(jobs: int, action: str, h: int) -> float:
        return 1.0 if action == "rest" else 0.1 if h in BUSY else 0.8

    def half_finished(jobs: int, action: str) -> float:
        return sum(p * (jobs - there) for p, there in step(jobs, action)) / 2

    return CMDP.from_function(
        states=range(JOBS + 1),
        start=JOBS,
        horizon=H,
        actions=["rest", "work"],
        step=step,
        reward=reward,
        constraints=[at_least("finished", finished, half_finished)],
        exact=["reward"],
    )
