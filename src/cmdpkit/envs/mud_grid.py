"""A board with a belt of mud: reach the far corner soon, but spend little (discounted) time in the mud.

Description
-----------
On a 6 x 6 board, from the top left to the bottom right corner. A move goes where it should with probability 0.8 and to
either side with 0.1 each; walls keep one where one is. A belt of mud crosses the board, with dry ground only on
the border. Reaching the corner earns 1, once; after that nothing happens.

States
------
The 36 cells, named by row and column: r1c1 is the start, r6c6 the goal.

Actions
-------
up, right, down, left.

Reward
------
The probability of entering the goal in this step.

Constraints
-----------
mud: expected discounted number of steps that begin in the mud <= mud.

Start
-----
r1c1.

Parameters
----------
mud : bound on the discounted time in the mud
discount : weight of a step relative to the one before
slip : probability of moving to either side of where one wants to go, each

The bound is slack from 1.18412341 on.

Reference
---------
Our own.
"""

from __future__ import annotations

from cmdpkit.envs._check import real
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import at_most

SIZE = 6  # rows and columns of the board
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
DRY = {(0, 4), (0, 5), (4, 0), (5, 0)}  # cells of the belt that are dry ground
GOAL = (SIZE - 1, SIZE - 1)
CELLS = tuple((row, column) for row in range(SIZE) for column in range(SIZE))
MUD = {cell for cell in CELLS if sum(cell) in (4, 5)} - DRY  # the rest of the belt


def build(mud: float = 1.0, discount: float = 0.95, slip: float = 0.1) -> CMDP:
    """The board, discounted."""
    mud, discount = real("mud", mud, 0), real("discount", discount, 1e-3, 1 - 1e-9)
    slip = real("slip", slip, 0, 0.5)
    names = {cell: f"r{cell[0] + 1}c{cell[1] + 1}" for cell in CELLS}
    cells = {name: cell for cell, name in names.items()}

    def step(state: str, action: str) -> dict[str, float]:
        cell = cells[state]
        if cell == GOAL:
            return {state: 1.0}
        order = list(MOVES)
        turn = order.index(action)
        found: dict[str, float] = {}
        for way, p in ((turn, 1 - 2 * slip), (turn - 1, slip), (turn + 1, slip)):
            there = names[_moved(cell, MOVES[order[way % 4]])]
            found[there] = found.get(there, 0.0) + p
        return found

    marks = {i: "G" if cell == GOAL else "~" for i, cell in enumerate(CELLS) if cell == GOAL or cell in MUD}
    return CMDP.from_function(
        states=list(cells),
        start="r1c1",
        discount=discount,
        actions=list(MOVES),
        step=step,
        reward=lambda state, action: 0.0 if cells[state] == GOAL else step(state, action).get(names[GOAL], 0.0),
        constraints=[at_most("mud", mud, lambda state, action: float(cells[state] in MUD))],
        grid=Grid(SIZE, SIZE, CELLS, marks, ("↑", "→", "↓", "←")),
    )


def _moved(cell: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
    """Where a move leads; walls keep one where one is."""
    there = cell[0] + move[0], cell[1] + move[1]
    return there if all(0 <= x < SIZE for x in there) else cell
