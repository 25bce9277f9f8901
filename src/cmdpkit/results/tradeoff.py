"""A trade-off: the best value for every bound of one constraint, as numbers and as bars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Column, Table, TerminalTable, each, numbers
from cmdpkit.results.wording import bounded, label, number

BAR_WIDTH = 40  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉"


def tradeoff_table(found: Tradeoff) -> Table[dict[str, Any]]:
    """One row per bound that was tried and can be met: the best value and the price there."""
    c = found.constraint
    rows = [{**row, "utilities": totals} for row, totals in zip(found.rows(), found.utilities.tolist(), strict=True)]
    return Table(f"the best value for every bound on {label(c.name)}", (
        numbers("bound", f"{label(c.name)} {c.symbol}{c.unit}", "The bound, in the unit in which it was given.",
                lambda p: p["bound"]),
        numbers("bound_total", "in all", "The bound on the value by the model's criterion.",
                lambda p: p["bound"] * c.scale, shown=c.scale != 1),
        numbers("value", "value", "The best value within it.", lambda p: p["value"]),
        numbers("price", "price", "What relaxing it by one unit would gain.", lambda p: p["price"]),
        Column("utilities", "", "The totals of all constraints there.", lambda p: p["utilities"], shown=False),
    ), tuple(rows))  # fmt: skip


def tradeoff(name: str, found: Tradeoff) -> RenderableType:
    """The best value for every bound, as numbers and as bars from the least value to the greatest."""
    c = found.constraint
    title = Text.assemble((label(name), "bold"), f": the best value for every bound on {label(c.name)}")
    parts: list[RenderableType] = [title, Text(f"The model itself asks for {bounded(c)}.", style=QUIET)]
    if len(found.values):
        parts += [EMPTY_LINE, TerminalTable(_with_bars(tradeoff_table(found)))]
    if len(found.infeasible):
        unmet = ", ".join(f"{c.symbol} {number(bound)}" for bound in found.infeasible.tolist())
        parts += [EMPTY_LINE, Text(f"No policy meets {unmet}{c.unit}.", style="red")]
    return Group(*parts)


def _with_bars(table: Table[dict[str, Any]]) -> Table[dict[str, Any]]:
    """The table with a bar for every value, from the least to the greatest."""
    values = [row["value"] for row in table.rows]
    low, spread = min(values), max(values) - min(values)

    def drawn(value: float) -> str:
        return bar((value - low) / spread if spread > 0 else 1.0)

    column: Column[dict[str, Any]] = Column("bar", "", "The value as a bar.", lambda row: row["value"], each(drawn))
    return replace(table, columns=(*table.columns, column))


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of ``share`` of the width, to an eighth of a character; never quite empty.

    >>> bar(0.5, 4), bar(0.0, 4)
    ('██', '▏')
    """
    whole, eighths = divmod(max(1, round(8 * width * share)), 8)
    return "█" * whole + EIGHTHS[eighths].strip()


def tradeoff_data(name: str, found: Tradeoff) -> dict[str, Any]:
    """The curve, point by point, and the bounds no policy meets."""
    return {
        "env": name,
        "constraint": found.name,
        "points": tradeoff_table(found).data(),
        "infeasible": found.infeasible.tolist(),
    }
