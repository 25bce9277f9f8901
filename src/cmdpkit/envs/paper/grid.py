"""The paper's grid world (reconstructed): reach the goal past an obstacle that may be crossed only half of the time.

A 5 x 5 board and six steps. The paper shows its layout in a figure only, and describes its reward in one sentence that
can be read in several ways. Both are *reconstructions*: a reading of the reward, and a board found by searching for
layouts that then give the published reward 5.000 at cost 0.499. The direct way crosses an obstacle and earns
5.646447 at cost 1; the detour earns 4.355877 at cost 0; the optimum takes either with probability one half::

    . . S . .
    . . # # .        S start, G goal, # obstacle
    . . G . .
    . # . . .
    . . . . .

States: The 25 cells, named by row and column: r1c3 is the start, r3c3 the goal.
Actions: up, down, left, right, stay; a move off the board does not exist. Moves are deterministic.
Reward: 1 - d / D on arrival, d being the Euclidean distance from the cell arrived at to the goal and D the longest such
    distance on the board; so 1 for every step that ends at the goal. (The paper speaks of the normalised distance
    itself "after six steps". A distance rewards staying away, and what is paid once cannot come to 5.)
Constraints: cost: E[number of steps that end on an obstacle] <= bound. (The paper counts the utility 1 - cost: 5.5 of
    6.)
Start: r1c3.
Parameters:
    bound : largest expected cost, 0.5 in the paper; the Slater slack equals it, as the detour costs nothing
Reference: Experiments of arXiv 2309.15395; layout and reward reconstructed.
"""

from __future__ import annotations

import math

import numpy as np

from cmdpkit.envs._shared import board_of, real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

H = 6  # number of steps
BOARD = ("..S..", "..##.", "..G..", ".#...", ".....")
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1), "stay": (0, 0)}
ARROWS = ("↑", "↓", "←", "→", "·")


def build(bound: float = 0.5) -> CMDP:
    """The board with its expected cost bounded by ``bound``."""
    bound = real("bound", bound, 0)
    marks = {(i, j): mark for i, row in enumerate(BOARD) for j, mark in enumerate(row)}
    names, grid = board_of(BOARD, ARROWS)
    cells, S, A = grid.cells, len(names), len(MOVES)
    start, goal = (next(cell for cell in cells if marks[cell] == mark) for mark in "SG")
    longest = max(math.dist(cell, goal) for cell in cells)

    P = np.zeros((S, A, S))
    r, cost = np.zeros((S, A)), np.zeros((S, A))
    for s, (i, j) in enumerate(cells):
        for a, (down, right) in enumerate(MOVES.values()):
            target = (i + down, j + right)
            if target in marks:
                P[s, a, cells.index(target)] = 1.0
                r[s, a] = 1 - math.dist(target, goal) / longest
                cost[s, a] = marks[target] == "#"
    return CMDP(
        P,
        r,
        mu=cells.index(start),
        horizon=H,
        actions=P.any(axis=-1),
        constraints=[at_most("cost", bound, cost)],
        exact=True,
        states=names,
        action_names=MOVES,
        grid=grid,
    )
