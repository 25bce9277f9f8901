"""A rover that goes from start to goal for ever, with a bound on how often it drives into a pit.

Description
-----------
A board with pits, on which the rover moves in four directions; off the map it stays where it is. At the goal any action
brings it back to the start. Every step costs 1 but for the return, so the best long-run average has the shortest round
trips; the bound on pits makes it drive around some of them, or take the short way only now and then.

States
------
The cells, named by row and column.

Actions
-------
up, right, down, left.

Reward
------
-1 for a step, 0 for the return from the goal.

Constraints
-----------
pits: share of steps that enter a pit (staying in one does not count), in the long run, <= pits.

Start
-----
The cell S of the map.

Parameters
----------
board : "small" (4 x 4) or "large" (8 x 8)
pits : largest share of steps that enter a pit
slip : probability that a move is replaced by a random one of the four

Reference
---------
Maps and bounds (0.2 and 0.1) are those of the public code of arXiv 2405.19017; there, slip is 0 by default and
otherwise drawn per state, here it is one number.
"""

from __future__ import annotations

from cmdpkit.envs._check import choice, real
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import at_most

MAPS = {
    "small": ("00G0", "0P0P", "0PPP", "00S0"),
    "large": ("GPP00000", "0PP0PPP0", "0000PP00", "PPPP0P0P", "PPPPP000", "PPPPPP00", "0000P000", "00000S00"),
}
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}


def build(board: str = "small", pits: float = 0.2, slip: float = 0.0) -> CMDP:
    """The rover in the long run."""
    rows = MAPS[choice("board", board, tuple(MAPS))]
    pits, slip = real("pits", pits, 0, 1), real("slip", slip, 0, 1)
    cells = {f"r{i + 1}c{j + 1}": (i, j, mark) for i, row in enumerate(rows) for j, mark in enumerate(row)}
    names = {(i, j): name for name, (i, j, _) in cells.items()}
    start, goal = (next(name for name, cell in cells.items() if cell[2] == mark) for mark in "SG")

    def moved(state: str, action: str) -> str:
        i, j, _ = cells[state]
        di, dj = MOVES[action]
        return names.get((i + di, j + dj), state)

    def step(state: str, action: str) -> dict[str, float]:
        if state == goal:
            return {start: 1.0}
        found: dict[str, float] = {}
        for way in MOVES:
            p = (1 - slip) * (way == action) + slip / len(MOVES)
            if p > 0:
                found[moved(state, way)] = found.get(moved(state, way), 0.0) + p
        return found

    def enters(state: str, action: str) -> float:
        return sum(p for there, p in step(state, action).items() if cells[there][2] == "P" and there != state)

    places = tuple((i, j) for i, j, _ in cells.values())
    marks = {k: cell[2] for k, cell in enumerate(cells.values()) if cell[2] != "0"}
    return CMDP.from_function(
        states=list(cells),
        start=start,
        criterion="average",
        actions=list(MOVES),
        step=step,
        reward=lambda state, action: -float(state != goal),
        constraints=[at_most("pits", pits, enters, per_step=True)],
        grid=Grid(len(rows), len(rows[0]), places, marks, ("↑", "→", "↓", "←")),
    )
