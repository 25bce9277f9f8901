"""A board with a belt of mud: reach the far corner soon, but spend little (discounted) time in the mud.

On a 6 x 6 board, from the top left to the bottom right corner. A move goes where it should with probability 0.8 and to
either side with 0.1 each; walls keep one where one is. A belt of mud crosses the board, with dry ground only on
the border. Reaching the corner earns 1, once; after that nothing happens.

States: The 36 cells, named by row and column: r1c1 is the start, r6c6 the goal.
Actions: up, right, down, left.
Reward: 1 for entering the goal.
Constraints: mud: expected discounted number of steps that begin in the mud <= mud.
Start: r1c1.
Parameters:
    mud : bound on the discounted time in the mud
    discount : weight of a step relative to the one before
    slip : probability of moving to either side of where one wants to go, each

The bound is slack from 1.18412341 on.

Reference: Our own.
"""

from __future__ import annotations

from cmdpkit.envs._shared import ARROWS, MOVES, board_of, real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

BOARD = ("......", "...~~.", "..~~..", ".~~...", ".~....", ".....G")  # mud and the goal


def build(mud: float = 1.0, discount: float = 0.95, slip: float = 0.1) -> CMDP:
    """The board, discounted."""
    mud, discount = real("mud", mud, 0), real("discount", discount, 1e-3, 1 - 1e-9)
    slip = real("slip", slip, 0, 0.5)
    names, grid = board_of(BOARD, ARROWS)
    cells, name_of = dict(zip(names, grid.cells, strict=True)), dict(zip(grid.cells, names, strict=True))
    goal, muddy = names[-1], {names[s] for s, mark in grid.marks.items() if mark == "~"}

    def step(state: str, action: str) -> list[tuple[float, str]]:
        if state == goal:
            return [(1.0, state)]
        (i, j), ways = cells[state], list(MOVES.values())
        turn = list(MOVES).index(action)
        moves = [(p, ways[way % 4]) for way, p in ((turn, 1 - 2 * slip), (turn - 1, slip), (turn + 1, slip))]
        return [(p, name_of.get((i + down, j + right), state)) for p, (down, right) in moves]

    return CMDP.from_function(
        states=names,
        start="r1c1",
        discount=discount,
        actions=list(MOVES),
        step=step,
        reward=lambda state, action, s_next: float(s_next == goal != state),
        constraints=[at_most("mud", mud, lambda state, action: float(state in muddy))],
        exact=["mud"],
        grid=grid,
    )
