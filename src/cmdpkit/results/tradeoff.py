"""A trade-off: the best value for every bound of one constraint, as numbers and as bars."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.diagnosis import Tradeoff
from cmdpkit.model.showing import line_width
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Column, Table, TerminalTable, each, numbers
from cmdpkit.results.wording import bounded, label, number

BAR_WIDTH, LEAST_BAR = 40, 12  # characters of the longest bar, and the least that a narrow terminal leaves
TABLE_WIDTH = 40  # characters of a line that the numbers take
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
    """The best value for every bound, as numbers and as bars."""
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
    """The table with a bar from 0 to every value."""
    values = [0.0, *(row["value"] for row in table.rows)]
    low, spread = min(values), (max(values) - min(values)) or 1.0
    width = max(LEAST_BAR, min(BAR_WIDTH, line_width() - TABLE_WIDTH))

    def drawn(value: float) -> str:
        return bar((min(value, 0.0) - low) / spread, (max(value, 0.0) - low) / spread, width)

    column: Column[dict[str, Any]] = Column("bar", "", "The value as a bar.", lambda row: row["value"], each(drawn))
    return replace(table, columns=(*table.columns, column))


def bar(first: float, last: float, width: int = BAR_WIDTH) -> str:
    """A bar between two shares of the width; one that begins at 0 is never quite empty, and is as long as
    eighths of a cell allow.

    >>> bar(0.0, 0.5, 4), bar(0.0, 0.0, 4), bar(0.25, 1.0, 4)
    ('██', '▏', ' ███')
    """
    blank = round(width * first)
    whole, eighths = divmod(max(1 if blank == 0 else 0, round(8 * width * last) - 8 * blank), 8)
    return " " * blank + "█" * whole + EIGHTHS[eighths].strip()


def tradeoff_data(name: str, found: Tradeoff) -> dict[str, Any]:
    """The curve, point by point, and the bounds no policy meets."""
    return {
        "env": name,
        "constraint": found.name,
        "points": tradeoff_table(found).data(),
        "infeasible": found.infeasible.tolist(),
    }
