"""FrozenLake of Gymnasium with a bound on falling in: cross slippery ice to the goal, mostly alive.

The 4 x 4 lake. A move goes where it was meant to with probability 1/3, and to either side with 1/3 each; against the
border the walker stays. An episode ends in a hole or at the goal. A walker who only wants to reach the goal falls in
with probability 0.094 at least; the bound makes the walker turn round, or wait, where the ice is dangerous::

    S . . .
    . H . H        S start, G goal, H hole
    . . . H
    H . . G

States: The 16 cells, named by row and column: r1c1 is the start, r4c4 the goal. Index = Gymnasium's observation.
Actions: left, down, right, up, in Gymnasium's order.
Reward: 1 for arriving at the goal (in the model its probability).
Constraints: falls: P(an episode ends in a hole) <= falls.
Start: r1c1.
Parameters:
    H : number of steps
    falls : largest probability of falling in; a walker who waits in the corner never does, so the Slater slack equals
        it
Reference: FrozenLake-v1 of Gymnasium; the cost is ours. ``cmdpkit.gym.make_env("gym/frozen-lake")`` is the environment
    itself.
"""

from __future__ import annotations

from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from cmdpkit.envs._shared import board_of, real, whole
from cmdpkit.envs.gym import GymTable
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

LAKE = ("S...", ".H.H", "...H", "H..G")
HOLES = frozenset(s for s, mark in enumerate("".join(LAKE)) if mark == "H")


def make() -> FrozenLakeEnv:
    """Gymnasium's environment, without the cost."""
    return FrozenLakeEnv()


def outcome(s: int, a: int, s_next: int, reward: float) -> tuple[float, float]:
    """Reward and cost of a transition."""
    return reward, float(s_next in HOLES)


def build(H: int = 20, falls: float = 0.05) -> CMDP:
    """The exact model over ``H`` steps."""
    H, falls = whole("H", H, 1), real("falls", falls, 0)
    env = make()
    names, grid = board_of(LAKE, "←↓→↑")
    named = {"states": names, "action_names": ("left", "down", "right", "up"), "grid": grid}
    return GymTable.of(env.P, outcome).model(env.initial_state_distrib, H, at_most("falls", falls), **named)
