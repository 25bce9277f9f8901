"""Given policies for the terminal: beside the optimum, in a single decision, and over many episodes."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.comparison import Explanation, PolicyComparison
from cmdpkit.results.policy_tables import difference_table, judged_table, option_table, spread_table
from cmdpkit.results.statistics import bars_of
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TerminalTable
from cmdpkit.results.wording import counted, label, number, percent, titled
from cmdpkit.simulate.distribution import Simulation

MOST_DIFFERENCES = 15  # rows of the table of differences
BINS, BAR_WIDTH = 12, 40  # of a histogram: its rows, and characters of the longest bar


def comparison(found: PolicyComparison) -> RenderableType:
    """Policies and the optimum side by side, and where they differ."""
    parts: list[RenderableType] = [TerminalTable(judged_table(found))]
    rows = found.differences
    if rows:
        total = sum(x.cost for x in rows)
        text = f"{counted(len(rows), 'difference')} cost {number(total)} per episode, at the prices of the bounds:"
        parts += [EMPTY_LINE, Text(text), EMPTY_LINE, TerminalTable(difference_table(rows[:MOST_DIFFERENCES]))]
        if len(rows) > MOST_DIFFERENCES:
            parts.append(Text(f"… and {len(rows) - MOST_DIFFERENCES:,} more", style=QUIET))
    elif not found.optimum.cmdp.criterion.stationary:
        parts += [EMPTY_LINE, Text("No decision costs anything at the prices of the bounds.")]
    return Group(*parts)


def explanation(found: Explanation) -> RenderableType:
    """Why a policy does what it does somewhere."""
    step = "" if found.step is None else f"step {found.step}, "
    where = Text.assemble((f"{step}{titled('state', found.state)}", "bold"))
    where.append(f": {_reached(found)}. {found.why}.")
    prices = ", ".join(
        f"{label(c.name)} {number(float(p))}{' for 1 more per step' * c.per_step}"
        for c, p in zip(found.cmdp.constraints, found.prices, strict=True)
    )
    note = [Text(f"Prices of the bounds: {prices}.", style=QUIET)] if prices else []
    return Group(where, EMPTY_LINE, TerminalTable(option_table(found)), EMPTY_LINE, *note)


def _reached(found: Explanation) -> str:
    if found.step is not None:
        return f"reached in {percent(found.reach)} of the episodes"
    if found.cmdp.criterion.kind == "total":
        return f"visited {number(found.reach)} times"
    return f"{percent(found.reach)} of the time is spent there"


def simulation(name: str, played: Simulation) -> RenderableType:
    """How totals spread over episodes, as a table and as bars."""
    headline = Text.assemble((label(name), "bold"), f": {_played(played)}")
    bars = [part for total, x in played.totals.items() for part in (EMPTY_LINE, _histogram(total, x))]
    return Group(headline, EMPTY_LINE, TerminalTable(spread_table(played)), *bars)


def _played(played: Simulation) -> str:
    """How many episodes were played, and of what kind where there is no horizon."""
    kind = played.cmdp.criterion.kind
    if kind == "finite":
        return counted(played.episodes, "episode")
    runs = f"{counted(played.episodes, 'run')} of {counted(played.steps, 'step')}"
    if kind == "average":
        return f"{runs}; means per step"
    if kind == "discounted":
        return f"{runs}, discounted; all later steps weigh {percent(played.left_out)}"
    return f"{runs}; {percent(played.left_out)} of the runs last longer"


def _histogram(name: str, totals: np.ndarray) -> Text:
    """How many episodes have which total."""
    lines = [label(name)]
    if np.ptp(totals) <= 1e-9 * max(1.0, float(np.abs(totals).max())):
        return Text(f"{lines[0]}: {number(float(totals[0]))} in every episode")
    edges, unit = bars_of(totals, BINS)
    counts, _ = np.histogram(totals, edges)
    for i, n in enumerate(counts):
        bar = "█" * round(BAR_WIDTH * n / counts.max())
        first, last = edges[i] + unit / 2, edges[i + 1] - unit / 2  # where totals are counted, the smallest and largest
        place = f"{first:.4g}".rjust(12) + ("" if last - first < unit / 2 else f" to {last:.4g}")
        lines.append(f"{place:<26} {bar} {percent(n / len(totals))}")
    return Text("\n".join(lines))
