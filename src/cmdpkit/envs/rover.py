"""A rover that goes from start to goal forever, with a bound on how often it drives into a pit.

A board with pits, on which the rover moves in four directions; off the map it stays where it is. At the goal any action
brings it back to the start. Every step costs 1 but for the return, so the best long-run average has the shortest round
trips; the bound on pits makes it drive around some of them, or take the short way only now and then.

States: The cells, named by row and column.
Actions: up, right, down, left.
Reward: -1 for a step, 0 for the return from the goal.
Constraints: pits: share of steps that enter a pit (staying in one does not count), in the long run, <= pits.
Start: The cell S of the map.
Parameters:
    board : "small" (4 x 4) or "large" (8 x 8)
    pits : largest share of steps that enter a pit
    slip : probability that a move is replaced by a random one of the four
Reference: Maps and bounds (0.2 and 0.1) are those of the public code of arXiv 2405.19017; there, slip is 0 by default
    and otherwise drawn per state, here it is one number.
"""

from __future__ import annotations

from cmdpkit.envs._shared import ARROWS, MOVES, board_of, choice, real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

MAPS = {
    "small": ("..G.", ".P.P", ".PPP", "..S."),
    "large": ("GPP.....", ".PP.PPP.", "....PP..", "PPPP.P.P", "PPPPP...", "PPPPPP..", "....P...", ".....S.."),
}


def build(board: str = "small", pits: float = 0.2, slip: float = 0.0) -> CMDP:
    """The rover in the long run."""
    rows = MAPS[choice("board", board, tuple(MAPS))]
    pits, slip = real("pits", pits, 0, 1), real("slip", slip, 0, 1)
    names, grid = board_of(rows, ARROWS)
    cells, name_of = dict(zip(names, grid.cells, strict=True)), dict(zip(grid.cells, names, strict=True))
    marks = {names[s]: mark for s, mark in grid.marks.items()}
    start, goal = (next(name for name in marks if marks[name] == mark) for mark in "SG")

    def step(state: str, action: str) -> list[tuple[float, str]]:
        if state == goal:
            return [(1.0, start)]
        i, j = cells[state]
        return [
            ((1 - slip) * (way == action) + slip / len(MOVES), name_of.get((i + down, j + right), state))
            for way, (down, right) in MOVES.items()
        ]

    def enters(state: str, action: str, s_next: str) -> float:
        return float(marks.get(s_next) == "P" and s_next != state)

    return CMDP.from_function(
        states=names,
        start=start,
        criterion="average",
        actions=list(MOVES),
        step=step,
        reward=lambda state, action: -float(state != goal),
        constraints=[at_most("pits", pits, enters, per_step=True)],
        exact=["reward"],
        grid=grid,
    )
