"""CliffWalking of Gymnasium with a bound on walking along the edge: the short way, or the long and quiet one.

A 4 x 12 board. The shortest way from S to G takes 13 steps, of which 12 end on the row beside the cliff. One row higher
up it takes 15 steps, and only the first step and the last but one end beside the cliff. A step off the cliff leads back
to the start. An episode ends at the goal::

    . . . . . . . . . . . .
    . . . . . . . . . . . .        S start, G goal, # cliff;
    . . . . . . . . . . . .        this row is the edge
    S # # # # # # # # # # G

States: The 48 cells, named by row and column: r4c1 is the start, r4c12 the goal. Index = Gymnasium's observation.
Actions: up, right, down, left, in Gymnasium's order.
Reward: -1 for every step until the goal is reached. (Gymnasium has -100 for a fall: here it is a step like any other,
    as being back at the start is punishment enough.)
Constraints: edge: E[number of steps that end beside the cliff, on the third row] <= edge.
Start: r4c1.
Parameters:
    H : number of steps
    edge : largest expected number of steps on the edge; a walker who stays at the start has none, so the slack equals
        it
    slippery : moves go to either side of where they were meant to with probability 1/3 each, as on the frozen lake
Reference: CliffWalking of Gymnasium, after example 6.6 of Sutton and Barto, "Reinforcement Learning"; the cost is ours.
    ``cmdpkit.gym.make_env("gym/cliff-walking")`` is the environment itself.
"""

from __future__ import annotations

from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from cmdpkit.envs._shared import board_of, flag, real, whole
from cmdpkit.envs.gym import GymTable
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

BOARD = ("............", "............", "............", "S##########G")
EDGE = range(24, 36)  # observations of the third row


def make(slippery: bool = False) -> CliffWalkingEnv:
    """Gymnasium's environment, without the cost."""
    return CliffWalkingEnv(is_slippery=slippery)


def outcome(s: int, a: int, s_next: int, reward: float) -> tuple[float, float]:
    """Reward and cost of a transition."""
    return max(reward, -1.0), float(s_next in EDGE)


def build(H: int = 20, edge: float = 5.0, slippery: bool = False) -> CMDP:
    """The exact model over ``H`` steps."""
    H, edge, slippery = whole("H", H, 1), real("edge", edge, 0), flag("slippery", slippery)
    env = make(slippery)
    names, grid = board_of(BOARD, "↑→↓←")
    named = {"states": names, "action_names": ("up", "right", "down", "left"), "grid": grid}
    return GymTable.of(env.P, outcome).model(env.initial_state_distrib, H, at_most("edge", edge), **named)
