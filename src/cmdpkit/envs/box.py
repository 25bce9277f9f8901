"""Push a box out of the way to reach the goal, forever, and seldom push it where it cannot be moved from.

An agent walks through a small room with walls. In its way stands a box, which it pushes if the cell behind is free;
otherwise, and before a wall, it stays. At the goal everything is put back. Some ways of pushing leave the box in a
corner, from which it cannot be fetched until then.

States: Positions of agent and box, by row and column, as in "a1c3 b2c3"; those that can be reached from the start.
Actions: up, right, down, left.
Reward: -1 for a step, 0 for the step that puts everything back.
Constraints: corner: share of steps after which the box has walls on at least two sides, in the long run, <= corner.
Start: The map: agent S, box X.
Parameters:
    corner : largest share of steps after which the box has walls on two sides or more
Reference: Map and bound are those of the public code of arXiv 2405.19017.
"""

from __future__ import annotations

from cmdpkit.envs._shared import MOVES, real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

MAP = ("W0SWWW", "W0X00W", "WW000W", "WWW0GW")
Cell = tuple[int, int]


def build(corner: float = 0.6) -> CMDP:
    """The room in the long run."""
    corner = real("corner", corner, 0, 1)
    free = {(i, j) for i, row in enumerate(MAP) for j, mark in enumerate(row) if mark != "W"}
    first, box, goal = (next((i, row.index(m)) for i, row in enumerate(MAP) if m in row) for m in "SXG")
    start = _name(first, box)

    def moved(state: str, action: str) -> str:
        agent, stands = _cells(state)
        if agent == goal:
            return start
        there = _shifted(agent, action)
        if there == stands:
            pushed = _shifted(stands, action)
            return _name(there, pushed) if pushed in free else state
        return _name(there, stands) if there in free else state

    def cornered(state: str, action: str) -> float:
        _, stands = _cells(moved(state, action))
        return float(sum(_shifted(stands, way) not in free for way in MOVES) >= 2)

    return CMDP.from_function(
        start=start,
        criterion="average",
        actions=list(MOVES),
        step=lambda state, action: {moved(state, action): 1.0},
        reward=lambda state, action: -float(_cells(state)[0] != goal),
        constraints=[at_most("corner", corner, cornered, per_step=True)],
        exact=True,
    )


def _name(agent: Cell, box: Cell) -> str:
    return f"a{agent[0] + 1}c{agent[1] + 1} b{box[0] + 1}c{box[1] + 1}"


def _cells(state: str) -> tuple[Cell, Cell]:
    """Positions of agent and box."""
    agent, box = ((int(part[1]) - 1, int(part[3]) - 1) for part in state.split())
    return agent, box


def _shifted(cell: Cell, action: str) -> Cell:
    return cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
