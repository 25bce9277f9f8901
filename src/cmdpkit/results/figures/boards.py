"""Policies drawn on the grid of their model: arrows for the decisions, or a heat map of where the policy goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.evaluate import reach
from cmdpkit.model.policy import NEGLIGIBLE, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.figures.style import BLACK, CHANCE, GREY, PALE, canvas, plain_axis, styled
from cmdpkit.results.wording import label, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_STEPS = 12  # drawn by default
HEAT = "Blues"  # the colour map of heat maps
STAY = ("·", ".", "•", "∘", "o")  # symbols of an action that stays in place, drawn as a dot
# Where an arrow points, (right, down); every other symbol is written as text.
DIRECTIONS = {
    "→": (1, 0), "←": (-1, 0), "↑": (0, -1), "↓": (0, 1), "↗": (1, -1), "↘": (1, 1), "↖": (-1, -1), "↙": (-1, 1),
}  # fmt: skip

SHADES = {  # what the colour of a cell means, by criterion
    "finite": "probability of being there",
    "discounted": "discounted share of time",
    "average": "share of time",
    "total": "expected visits",
}


@styled
def policy_boards(cmdp: CMDP, policy: Policy, steps: Iterable[int] | None = None) -> Figure:
    """What a policy does on the model's grid, one board per step; stochastic decisions are orange, with probabilities.

    Only cells that the policy reaches at that step carry arrows. ``steps`` count from 1; by default the first 12 steps
    are drawn. Without a horizon there is one board, because the policy does the same at every step.
    """
    grid = _grid(cmdp)
    there = reach(cmdp, policy)
    figure, axes = _boards(cmdp, grid, _steps(cmdp, steps))
    arrows = grid.arrows or tuple(label(name) for name in cmdp.action_names)
    for axis, h in axes:
        _cells(axis, grid)
        for s, (row, column) in enumerate(grid.cells):
            if there[h, s] > NEGLIGIBLE:
                _decision(axis, row, column, arrows, policy.row(h, s))
    return figure


@styled
def occupancy_maps(cmdp: CMDP, policy: Policy, steps: Iterable[int] | None = None) -> Figure:
    """Where a policy goes on the model's grid: the probability of every cell, one board per step (from 1).

    Without a horizon there is one board: the share of time in every cell, or the expected number of visits.
    """
    grid = _grid(cmdp)
    there = reach(cmdp, policy)
    shown = _steps(cmdp, steps)
    figure, axes = _boards(cmdp, grid, shown)
    top = float(there[shown].max())
    for axis, h in axes:
        heat = np.full((grid.rows, grid.columns), np.nan)
        for s, (row, column) in enumerate(grid.cells):
            heat[row, column] = there[h, s]
        axis.imshow(np.ma.masked_invalid(heat), cmap=HEAT, vmin=0, vmax=top)
        _cells(axis, grid, face="none")
        _odds_in_cells(axis, heat, top)
    figure.colorbar(axes[0][0].images[0], ax=[axis for axis, _ in axes], label=SHADES[cmdp.criterion.kind], shrink=0.7)
    return figure


def _grid(cmdp: CMDP) -> Grid:
    if cmdp.grid is None:
        raise CmdpkitError("the model has no grid to draw on; give it one: CMDP(..., grid=Grid(rows, columns, cells))")
    return cmdp.grid


def _steps(cmdp: CMDP, steps: Iterable[int] | None) -> list[int]:
    """Indices of the steps to draw, from numbers that count from 1."""
    if steps is not None:
        cmdp.need_horizon("choosing steps to draw")
    chosen = range(1, min(cmdp.steps, MOST_STEPS) + 1) if steps is None else list(steps)
    for step in chosen:
        if step not in range(1, cmdp.steps + 1):
            raise CmdpkitError(f"there is no step {step}, expected 1..{cmdp.steps}")
    if not chosen:
        raise CmdpkitError(f"steps is empty, expected at least one step from 1 to {cmdp.steps}")
    return [step - 1 for step in chosen]


def _boards(cmdp: CMDP, grid: Grid, shown: Sequence[int]) -> tuple[Figure, list[tuple[Axes, int]]]:
    """One empty board per step, a few of them side by side; places left over in the last row stay empty."""
    across = min(len(shown), 6 if grid.columns <= 8 else 3)
    rows = -(-len(shown) // across)
    size = min(max(0.42 * max(grid.columns, grid.rows), 1.9), 5.0)
    figure, axes = canvas(rows, across, (size, size * grid.rows / grid.columns + 0.35))
    flat = list(axes.flat)
    for axis in flat[len(shown) :]:
        axis.set_axis_off()
    for axis, h in zip(flat, shown, strict=False):
        axis.set_title("every step" if cmdp.criterion.stationary else f"step {h + 1}")
    return figure, list(zip(flat, shown, strict=False))


def _cells(axis: Axes, grid: Grid, face: str = "#FFFFFF") -> None:
    """The board: one square per state, with its mark in the corner; places that are no state stay grey."""
    from matplotlib.patches import Rectangle

    plain_axis(axis)
    axis.set_xlim(-0.54, grid.columns - 0.46)
    axis.set_ylim(grid.rows - 0.46, -0.54)
    if face != "none":
        axis.add_patch(Rectangle((-0.5, -0.5), grid.columns, grid.rows, facecolor=PALE, linewidth=0))
    for s, (row, column) in enumerate(grid.cells):
        axis.add_patch(
            Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=face, edgecolor="#B9B9B9", linewidth=0.6, zorder=1)
        )
        if s in grid.marks:
            axis.text(column - 0.44, row - 0.42, grid.marks[s], fontsize=6.5, color=GREY, ha="left", va="top", zorder=4)


def _decision(axis: Axes, row: int, column: int, arrows: Sequence[str], odds: FloatArray) -> None:
    """The action of one cell; where there are several, orange arrows on a tinted cell, longer the likelier they are."""
    from matplotlib.patches import Rectangle

    taken = [int(a) for a in np.flatnonzero(odds > NEGLIGIBLE)]
    if len(taken) == 1:
        _symbol(axis, (column, row), arrows[taken[0]], 0.3, BLACK, through=True)
        return
    corner = (column - 0.5, row - 0.5)
    axis.add_patch(Rectangle(corner, 1, 1, facecolor="#FCE3D2", edgecolor=CHANCE, linewidth=1.1, zorder=2))
    for a in taken:
        _symbol(axis, (column, row - 0.1), arrows[a], 0.12 + 0.24 * float(odds[a]), CHANCE, through=False)
    likely = max(taken, key=lambda a: odds[a])
    text = f"{arrows[likely]} {percent(round(float(odds[likely]), 3))}"
    axis.text(column, row + 0.47, text, ha="center", va="bottom", fontsize=5.5, color=CHANCE, zorder=6)


def _symbol(axis: Axes, middle: tuple[float, float], symbol: str, length: float, colour: str, *, through: bool) -> None:
    """An arrow from the middle of a cell or through it, a dot for staying, anything else as text."""
    x, y = middle
    if symbol in STAY:
        axis.plot([x], [y], marker="o", markersize=4 * min(1.0, length / 0.3), color=colour, zorder=5)
    elif symbol in DIRECTIONS:
        towards = DIRECTIONS[symbol]
        dx, dy = (length * part / np.hypot(*towards) for part in towards)
        start = (x - dx, y - dy) if through else middle
        look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
        axis.annotate("", (x + dx, y + dy), start, arrowprops=look, zorder=5)
    else:
        axis.text(x, y, symbol, ha="center", va="center", fontsize=7, color=colour, zorder=5)


def _odds_in_cells(axis: Axes, heat: FloatArray, top: float) -> None:
    """Percentages of at least one half per cent, dark on light cells and light on dark ones."""
    for row, column in np.argwhere(np.nan_to_num(heat) >= 0.005):
        share = heat[row, column]
        colour = "#FFFFFF" if share > 0.6 * top else BLACK
        axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=6.5, color=colour, zorder=5)
