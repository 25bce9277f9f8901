"""Pictures of plans: prices of bounds, policies against bounds, totals of episodes, courses over steps, and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.from_log import Estimate
from cmdpkit.exact.comparison import PolicyComparison
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.solver import solve_fully
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model.evaluate import TimeCourse, evaluate
from cmdpkit.results.figures.style import (
    BLACK,
    CHANCE,
    COLOURS,
    GREY,
    PALE,
    Size,
    bend,
    canvas,
    flattens,
    legend_below,
    panels,
    size_of,
    styled,
    thousands,
)
from cmdpkit.results.statistics import bars_of
from cmdpkit.results.wording import bounded, compact, label, number, percent, short
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK = "#5B5B5B"  # of lines that belong to no policy
MOST_BARS = 60  # totals of which each has its own bar
MOST_COUNTED = 40  # states of a log whose counts are written into the map
MOST_PAIRS = 200_000  # pairs of state and action of a map; a larger one would be grey dust


@styled
def price_curve(
    found: Tradeoff,
    bound: float | None = None,
    title: str = "",
    *,
    policies: Mapping[str, Any] | None = None,
    size: Size = None,
    ax: Any = None,
) -> Figure:
    """The best value for every bound, and its slope, the price; with the bound of the model, and policies as dots.

    The price has a symmetric logarithmic axis where one large price would flatten the others.
    """
    c, cmdp = found.constraint, found.cmdp
    figure, ((value, price),) = panels([2], size, ax)
    value.plot(found.bounds, found.values, color=DARK)
    value.set_ylabel("optimal value")
    price.step(found.bounds, found.prices, color=DARK, where="mid")
    price.set_ylabel("price of the bound")
    if flattens([found.prices]):
        bend(price)
    marked = c.bound if bound is None else bound
    for axis in (value, price):
        axis.set_xlabel(f"bound on {label(found.name)}{c.unit}")
        axis.axvline(marked, color=GREY, linestyle=":", linewidth=1.2, label=f"the bound {c.symbol} {number(marked)}")
    try:
        now = solve_fully(cmdp.with_bounds(**{c.name: marked}))
    except Infeasible:
        now = None
    if now is not None:
        n = cmdp.constraint_index(c.name)
        for axis, height in ((value, now.value), (price, float(now.shadow_prices[n]))):
            axis.plot([marked], [height], "o", color=BLACK, markersize=5, label="optimum", zorder=4)
    for i, (name, policy) in enumerate((policies or {}).items()):
        worth, colour = evaluate(cmdp, policy), COLOURS[i % len(COLOURS)]
        place = float(worth.w[cmdp.constraint_index(c.name)]) / c.scale
        value.plot([place], [worth.v], "D", color=colour, markersize=5, label=label(name), zorder=4)
    value.set_title(title, loc="left", fontweight="bold")
    legend_below(figure, ax)
    return figure


@styled
def comparison_bars(found: PolicyComparison, *, size: Size = None, ax: Any = None) -> Figure:
    """What policies and the optimum are worth, and their totals against every bound; bars that break one are orange."""
    cmdp, best = found.optimum.cmdp, found.optimum
    rows = [(x.name, x.value, x.utilities, x.met) for x in found.policies]
    rows.append(("optimum", best.value, best.utilities, (True,) * cmdp.N))
    figure, (axes,) = panels([1 + cmdp.N], size, ax, tall=0.8 + 0.32 * len(rows))
    for i, axis in enumerate(axes):
        heights = [value if i == 0 else float(totals[i - 1]) for _, value, totals, _ in rows]
        colours = [COLOURS[0] if i == 0 or met[i - 1] else CHANCE for *_, met in rows]
        bars = axis.barh(range(len(rows)), heights, color=colours, height=0.62)
        axis.bar_label(bars, [short(x) for x in heights], padding=3, fontsize="small")
        axis.set_yticks(range(len(rows)), [label(name) for name, *_ in rows])
        axis.invert_yaxis()
        axis.margins(x=0.22)
        axis.grid(visible=False, axis="y")
        thousands(axis.xaxis)
        c = None if i == 0 else cmdp.constraints[i - 1]
        axis.set_xlabel("value" if c is None else f"{label(c.name)} {bounded(c)}")
        if c is not None:
            axis.axvline(c.total, color=BLACK, linestyle="--", linewidth=1.2)
    return figure


@styled
def totals(played: Simulation, *, size: Size = None, ax: Any = None) -> Figure:
    """A histogram of every total, with its mean and, for a constraint, the bound on the mean."""
    figure, (axes,) = panels([len(played.totals)], size, ax)
    bounds = (None, *(c.total for c in played.cmdp.constraints))
    per = " per step" if played.cmdp.criterion.kind == "average" else ""
    for axis, (name, x), bound in zip(axes, played.totals.items(), bounds, strict=True):
        axis.hist(
            x, bins=bars_of(x, MOST_BARS)[0].tolist(), weights=np.full(len(x), 1 / len(x)), color=COLOURS[0], alpha=0.75
        )
        axis.axvline(float(x.mean()), color=BLACK, linewidth=1.4, label="mean")
        if bound is not None:
            axis.axvline(bound, color=CHANCE, linestyle="--", linewidth=1.4, label="bound on the mean")
        axis.set_xlabel(f"{label(name)}{per}, mean {number(float(x.mean()))}")
    axes[0].set_ylabel("share of the episodes")
    legend_below(figure, ax)
    return figure


@styled
def course(found: TimeCourse, *, name: str = "", size: Size = None, ax: Any = None) -> Figure:
    """A signal step by step: what is expected, and the range of most episodes; several fit into the same ``ax``."""
    figure, ((axis,),) = panels([1], size, ax)
    colour = COLOURS[
        len([line for line in axis.get_lines() if not str(line.get_label()).startswith("_")]) % len(COLOURS)
    ]
    ends = (f"{percent((1 + sign * found.share) / 2)}" for sign in (-1, 1))
    band = f"from {next(ends)} to {next(ends)}"
    axis.fill_between(found.step, found.low, found.high, step="mid", color=colour, alpha=0.18, linewidth=0,
                      label=f"{name}: {band}" if name else band)  # fmt: skip
    axis.plot(found.step, found.mean, color=colour, marker=".", label=label(name) if name else "expected")
    axis.set_xlabel("step")
    axis.set_ylabel(label(found.signal))
    legend_below(figure, ax)
    return figure


@styled
def coverage_map(found: Estimate, *, size: Size = None) -> Figure:
    """How often every action was recorded in every state of a log, over all steps; white pairs were never tried."""
    from matplotlib.colors import LogNorm

    visits, log = found.visits.sum(axis=0), found.log
    S, A = visits.shape
    if S * A > MOST_PAIRS:
        raise CmdpkitError(f"a map of {S:,} states and {A:,} actions is too large to read; look at estimate.coverage")
    width, height = size_of(size)
    room = (width or min(2.4 + 0.55 * A, 12.0), height or min(1.2 + 0.24 * S, 12.0))
    figure, axes = canvas(1, 1, room)
    axis = axes[0][0]
    shown = np.ma.masked_equal(visits, 0)
    image = axis.imshow(shown, aspect="auto", cmap="Blues", norm=LogNorm(1, max(int(visits.max()), 2)))
    axis.set_facecolor("white")
    axis.grid(visible=False)
    every = -(-S // MOST_COUNTED)
    axis.set_yticks(range(0, S, every), [label(log.states[s]) for s in range(0, S, every)])
    turned = sum(len(str(name)) for name in log.action_names) * 0.09 > 0.7 * room[0]
    axis.set_xticks(range(A), [label(name) for name in log.action_names], rotation=90 if turned else 0)
    axis.set_ylabel("state")
    axis.set_xlabel("action")
    if S <= MOST_COUNTED:
        dark = visits.max() ** 0.6
        for s, a in np.ndindex(S, A):
            text, colour = (compact(float(visits[s, a]), 3), "white" if visits[s, a] > dark else BLACK)
            axis.text(a, s, text, ha="center", va="center", fontsize=7, color=GREY if not visits[s, a] else colour)
    axis.set_xticks(np.arange(-0.5, A), minor=True)
    axis.set_yticks(np.arange(-0.5, S), minor=True)
    axis.grid(visible=S <= MOST_COUNTED, which="minor", color=PALE, linewidth=0.6)
    axis.tick_params(which="minor", length=0)
    figure.colorbar(image, ax=axis, label="times recorded", shrink=0.8)
    return figure
