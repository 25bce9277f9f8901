"""Pictures of plans: their prices and totals, and policies on the grid of their model or as a map.

On a grid, policies have arrows for the decisions. Without a grid, a map has the states downwards, the steps to the
right, and one colour per action.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.comparison import PolicyComparison
from cmdpkit.exact.diagnosis import Tradeoff
from cmdpkit.exact.solver import Solution
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.decisions import all_rows
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.policies import reach
from cmdpkit.results.figures import style
from cmdpkit.results.figures.style import BLACK, CHANCE, COLOURS, GREY, PALE, Size, legend_below, panels, styled
from cmdpkit.results.policies import bars_of, with_optimum
from cmdpkit.results.wording import bounded, label, number, percent, short
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK = "#5B5B5B"  # of lines that belong to no policy
MOST_BARS = 60  # totals of which each has its own bar
MOST_CELLS = 2_000_000  # of a map; a larger one would be grey dust
MOST_NAMES = 40  # states that are named at the side; of more, every so many
MOST_STEPS = 12  # drawn by default
CELL, LEAST_CELL = 0.52, 0.3  # inches of a cell of a board, and the least where the width is given
NARROW_CELL = 0.45  # inches of a cell below which it has the probability of the likeliest action, but not its arrow
BOARD = 6.0  # inches of a board at most
BOARD_TITLE = 0.3  # inches above a board
ROW = 8.0  # inches of a row of boards where no width is given
STAY = ("·", ".", "•", "∘", "o")  # symbols of an action that stays in place, drawn as a dot
# Where an arrow points, (right, down); every other symbol is written as text.
DIRECTIONS = {
    "→": (1, 0), "←": (-1, 0), "↑": (0, -1), "↓": (0, 1), "↗": (1, -1), "↘": (1, 1), "↖": (-1, -1), "↙": (-1, 1),
}  # fmt: skip


# -- values and totals -------------------------------------------------------------------------------------------------


@styled
def price_curve(found: Tradeoff, *, size: Size = None, ax: Any = None) -> Figure:
    """The best value for every bound, and its slope, the price, with the bound of the model."""
    c = found.constraint
    figure, ((value, price),) = panels([2], size, ax)
    value.plot(found.bounds, found.values, color=DARK)
    value.set_ylabel("optimal value")
    price.step(found.bounds, found.prices, color=DARK, where="mid")
    price.set_ylabel("price of the bound")
    for axis in (value, price):
        axis.set_xlabel(f"bound on {label(found.name)}{c.unit}")
        axis.axvline(c.bound, color=GREY, linestyle=":", linewidth=1.2, label=f"the bound {c.symbol} {number(c.bound)}")
    legend_below(figure, ax)
    return figure


@styled
def comparison_bars(found: PolicyComparison, *, size: Size = None, ax: Any = None) -> Figure:
    """What policies and the optimum are worth, and their totals against every bound; bars that break one are orange."""
    cmdp, rows = found.optimum.cmdp, with_optimum(found)
    figure, (axes,) = panels([1 + cmdp.N], size, ax, tall=0.8 + 0.32 * len(rows))
    for i, axis in enumerate(axes):
        heights = [x.value if i == 0 else float(x.utilities[i - 1]) for x in rows]
        colours = [COLOURS[0] if i == 0 or x.met[i - 1] else CHANCE for x in rows]
        bars = axis.barh(range(len(rows)), heights, color=colours, height=0.62)
        axis.bar_label(bars, [short(x) for x in heights], padding=3, fontsize="small")
        axis.set_yticks(range(len(rows)), [label(x.name) for x in rows])
        axis.invert_yaxis()
        axis.margins(x=0.22)
        axis.grid(visible=False, axis="y")
        style.thousands(axis.xaxis)
        c = None if i == 0 else cmdp.constraints[i - 1]
        axis.set_xlabel("value" if c is None else f"{label(c.name)} {bounded(c)}")
        if c is not None:
            axis.axvline(c.bound_on_total, color=BLACK, linestyle="--", linewidth=1.2)
    return figure


@styled
def totals(played: Simulation, *, size: Size = None, ax: Any = None) -> Figure:
    """A histogram of every total, with its mean and, for a constraint, the bound on the mean."""
    figure, (axes,) = panels([len(played.totals)], size, ax)
    bounds = (None, *(c.bound_on_total for c in played.cmdp.constraints))
    per = " per step" if played.cmdp.criterion.kind == "average" else ""
    for axis, (name, x), bound in zip(axes, played.totals.items(), bounds, strict=True):
        bars, shares = bars_of(x, MOST_BARS).tolist(), np.full(len(x), 1 / len(x))
        axis.hist(x, bins=bars, weights=shares, color=COLOURS[0], alpha=0.75)
        axis.axvline(float(x.mean()), color=BLACK, linewidth=1.4, label="mean")
        if bound is not None:
            axis.axvline(bound, color=CHANCE, linestyle="--", linewidth=1.4, label="bound on the mean")
        known = " (of the means)" if name in played.of_means else ""
        axis.set_xlabel(f"{label(name)}{per}{known}, mean {number(float(x.mean()))}")
    axes[0].set_ylabel("share of the episodes")
    legend_below(figure, ax)
    return figure


# -- on a grid ---------------------------------------------------------------------------------------------------------


@styled
def policy_boards(cmdp: CMDP, policy: Policy, steps: Iterable[int] | None = None, *, size: Size = None) -> Figure:
    """What a policy does on the model's grid, one board per step; stochastic decisions are orange, with probabilities.

    Only cells that the policy reaches at that step carry arrows. ``steps`` count from 1; by default the first 12 steps
    are drawn. Without a horizon there is one board, because the policy does the same at every step.
    """
    grid = _grid(cmdp)
    there = reach(cmdp, policy)
    figure, axes, cell = _boards(cmdp, grid, _steps(cmdp, steps), size)
    arrows = grid.arrows or tuple(label(name) for name in cmdp.action_names)
    for axis, h in axes:
        _cells(axis, grid, cell)
        for s, (row, column) in enumerate(grid.cells):
            if there[h, s] > NEGLIGIBLE:
                _decision(axis, row, column, arrows, policy.row(h, s), cell)
    return figure


def _grid(cmdp: CMDP) -> Grid:
    if cmdp.grid is None:
        raise CmdpkitError("the model has no grid to draw on; give it one: CMDP(..., grid=Grid(rows, columns, cells))")
    return cmdp.grid


def _steps(cmdp: CMDP, steps: Iterable[int] | None) -> list[int]:
    """Indices of the steps to draw, from numbers that count from 1."""
    if steps is not None:
        cmdp.need_horizon("choosing steps to draw")
    chosen = range(1, min(cmdp.n_steps, MOST_STEPS) + 1) if steps is None else list(steps)
    for step in chosen:
        if step not in range(1, cmdp.n_steps + 1):
            raise CmdpkitError(f"there is no step {step}, expected 1..{cmdp.n_steps}")
    if not chosen:
        raise CmdpkitError(f"steps is empty, expected at least one step from 1 to {cmdp.n_steps}")
    return [step - 1 for step in chosen]


def _boards(cmdp: CMDP, grid: Grid, shown: Sequence[int], size: Size) -> tuple[Figure, list[tuple[Axes, int]], float]:
    """One empty board per step, as many side by side as can be read, and the inches of a cell.

    Places left over in the last row stay empty.
    """
    width, height = style.size_of(size)
    least = min((CELL if width is None else LEAST_CELL) * grid.columns, BOARD)
    across = min(len(shown), max(1, int((width or ROW) / least)))
    rows = -(-len(shown) // across)
    wide = least if width is None else width / across
    tall = wide * grid.rows / grid.columns + BOARD_TITLE if height is None else height / rows
    figure, axes = style.canvas(rows, across, (wide, tall))
    figure.set_layout_engine("compressed")  # for panels of a fixed shape
    flat = list(axes.flat)
    for axis in flat[len(shown) :]:
        axis.set_axis_off()
    for axis, h in zip(flat, shown, strict=False):
        axis.set_title(f"step {h + 1}" if cmdp.criterion.has_horizon else "every step")
    cell = 0.92 * min(wide / grid.columns, (tall - BOARD_TITLE) / grid.rows)
    return figure, list(zip(flat, shown, strict=False)), cell


def _cells(axis: Axes, grid: Grid, cell: float) -> None:
    """The board: one square per state, with its mark in the corner; places that are no state stay grey."""
    from matplotlib.patches import Rectangle

    style.plain_axis(axis)
    axis.set_xlim(-0.54, grid.columns - 0.46)
    axis.set_ylim(grid.rows - 0.46, -0.54)
    axis.add_patch(Rectangle((-0.5, -0.5), grid.columns, grid.rows, facecolor=PALE, linewidth=0))
    for s, (row, column) in enumerate(grid.cells):
        corner = (column - 0.5, row - 0.5)
        axis.add_patch(Rectangle(corner, 1, 1, facecolor="#FFFFFF", edgecolor="#B9B9B9", linewidth=0.6, zorder=1))
        if s in grid.marks:
            letters = min(7.5, 0.34 * 72 * cell)
            axis.text(column - 0.45, row - 0.47, grid.marks[s], fontsize=letters, color=GREY, va="top", zorder=4)


def _decision(axis: Axes, row: int, column: int, arrows: Sequence[str], odds: FloatArray, cell: float) -> None:
    """The action of one cell; where there are several, orange arrows on a tinted cell, longer the likelier they are."""
    from matplotlib.patches import Rectangle

    taken = [int(a) for a in np.flatnonzero(odds > NEGLIGIBLE)]
    if len(taken) == 1:
        _symbol(axis, (column, row), arrows[taken[0]], 0.3, BLACK, through=True)
        return
    corner = (column - 0.5, row - 0.5)
    axis.add_patch(Rectangle(corner, 1, 1, facecolor="#FCE3D2", edgecolor=CHANCE, linewidth=1.1, zorder=2))
    narrow = cell < NARROW_CELL
    for a in taken:
        _symbol(axis, (column, row - 0.1), arrows[a], 0.12 + 0.24 * float(odds[a]), CHANCE, through=False, small=narrow)
    likely = max(taken, key=lambda a: odds[a])
    share = percent(round(float(odds[likely]), 2 if narrow else 3))
    text = share if narrow else f"{arrows[likely]} {share}"
    letters = min(7.0, 0.34 * 72 * cell)
    axis.text(column, row + 0.47, text, ha="center", va="bottom", fontsize=letters, color=CHANCE, zorder=6)


def _symbol(
    axis: Axes,
    middle: tuple[float, float],
    symbol: str,
    length: float,
    colour: str,
    *,
    through: bool,
    small: bool = False,
) -> None:
    """An arrow from the middle of a cell or through it, a dot for staying, anything else as text."""
    x, y = middle
    if symbol in STAY:
        axis.plot([x], [y], marker="o", markersize=4 * min(1.0, length / 0.3), color=colour, zorder=5)
    elif symbol in DIRECTIONS:
        towards = DIRECTIONS[symbol]
        dx, dy = (length * part / np.hypot(*towards) for part in towards)
        start = (x - dx, y - dy) if through else middle
        width, head = (1.0, 4.5) if small else (1.4, 9)
        look = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
        axis.annotate("", (x + dx, y + dy), start, arrowprops=look | {"mutation_scale": head}, zorder=5)
    else:
        axis.text(x, y, symbol, ha="center", va="center", fontsize=7, color=colour, zorder=5)


# -- without a grid ----------------------------------------------------------------------------------------------------


def solution_map(found: Solution, **options: Any) -> Figure:
    """The policy of a solution where it goes: boards on a grid, otherwise a map."""
    if not isinstance(found.policy, Policy):
        raise CmdpkitError("the optimum is a draw among several policies; plot each of sol.policy.policies instead")
    if found.cmdp.grid is not None:
        return policy_boards(found.cmdp, found.policy, **options)
    return policy_map(found.policy, found.occupancy.sum(axis=-1), **options)


@styled
def policy_map(policy: Policy, reach: FloatArray | None = None, *, size: Size = None) -> Figure:
    """The likeliest action at every step and state; dots mark draws, and where ``reach`` [H, S] is 0, it is white.

    A few actions have the colours of all figures; of more, every one has a colour of its own in their order.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    H, S, A = policy.shape
    if H * S > MOST_CELLS:
        raise CmdpkitError(
            f"a map of {H:,} steps and {S:,} states is too large to read; draw a part of it, or write the policy to a "
            "file with cmdpkit.write_policy"
        )
    action = np.broadcast_to(policy.decisions.choice, (H, S)).astype(float).T
    h, s, p = all_rows(policy.decisions, H)
    several = (p > NEGLIGIBLE).sum(axis=-1) > 1
    draws = np.zeros((S, H), dtype=bool)
    draws[s[several], h[several]] = True
    if reach is not None:
        action[reach.T <= NEGLIGIBLE] = np.nan
        draws &= reach.T > NEGLIGIBLE
    used = np.unique(action[~np.isnan(action)]).astype(int)
    kinds = list(range(A)) if len(COLOURS) >= A else used.tolist()  # actions that have a look
    looks = dict(zip(kinds, style.areas(len(kinds)), strict=True))
    colours = [looks.get(a, BLACK) for a in range(A)]
    width, height = style.size_of(size)
    figure, axes = style.canvas(1, 1, (width or min(3 + 0.22 * H, 12.0), height or min(1.5 + 0.22 * S, 12.0)))
    axis = axes[0][0]
    axis.imshow(action, aspect="auto", cmap=ListedColormap(colours), vmin=-0.5, vmax=A - 0.5, interpolation="nearest")
    for state, step in np.argwhere(draws):
        axis.plot(step, state, "o", markersize=5, markerfacecolor="white", markeredgecolor=BLACK)
    _name_axes(axis, policy)
    for a in used.tolist():  # empty areas, for the legend
        axis.add_patch(Rectangle((0, 0), 0, 0, facecolor=looks[a], label=label(policy.action_names[a])))
    if draws.any():
        axis.plot([], [], "o", markerfacecolor="white", markeredgecolor=BLACK, linestyle="none", label="randomises")
    legend_below(figure)
    return figure


def _name_axes(axis: Axes, policy: Policy) -> None:
    """Steps below, counted from 1, and as many names of states as there is room for."""
    H, S, _ = policy.shape
    axis.grid(False)
    every = -(-S // MOST_NAMES)
    axis.set_yticks(range(0, S, every), [label(policy.states[s]) for s in range(0, S, every)])
    axis.set_ylabel("state", color=GREY)
    if policy.is_stationary:
        axis.set_xticks([])
        return
    stride = -(-H // 12)
    axis.set_xticks(range(0, H, stride), [str(h + 1) for h in range(0, H, stride)])
    axis.set_xlabel("step", color=GREY)
