"""How tables look on a terminal: a rule under the headings, numbers to the right, and the colours that texts share."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from cmdpkit.results import tables

TAKEN, DRAWN, QUIET = "bold cyan", "bold yellow", "dim"  # a certain action, one left to chance, what matters less
STYLES: dict[tables.Tone, str] = {"": "", "name": TAKEN, "alert": "yellow", "quiet": QUIET}
NAME_WIDTH = 18  # characters of a name that stay on one line when a table is too wide
EMPTY_LINE = Text()


def plain_table(*headings: str | RichColumn) -> RichTable:
    """A table with a rule under its headings and nothing else drawn."""
    columns = [RichColumn(Text(heading)) if isinstance(heading, str) else heading for heading in headings]
    return RichTable(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def right(heading: str) -> RichColumn:
    """A column of numbers."""
    return RichColumn(Text(heading), justify="right", no_wrap=True)


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich to print; where it is too wide, long headings are written on several lines.

    The parts of a column, such as the violations of several bounds, stand below each other. With ``heads`` the values
    of that column are not repeated in every row but stand above the rows that share them.
    """

    table: tables.Table[Any]  # what is printed
    heads: str = ""  # key of a column, or nothing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = self._laid_out(fold=False)
        fits = console.measure(wide, options=options.update(width=10_000)).maximum <= options.max_width
        yield wide if fits else self._laid_out(fold=True)

    def _laid_out(self, *, fold: bool) -> RichTable:
        shown = [column for column in self.table.shown() if column.key != self.heads]
        stacks = [self._texts(column) for column in shown]
        out = plain_table(*(_headed(c, texts, fold) for c, texts in zip(shown, stacks, strict=True)))
        above = self._above()
        for i, row in enumerate((*self.table.rows, *self.table.totals)):
            if i == len(self.table.rows):
                out.add_section()
            if i in above:
                out.add_row(Text(above[i], style="bold"))
            cells = [Text(texts[i], style=STYLES[c.tone(row)]) for c, texts in zip(shown, stacks, strict=True)]
            out.add_row(Text("  ") + cells[0] if self.heads else cells[0], *cells[1:])
        return out

    def _above(self) -> dict[int, str]:
        """Number of a row, and what stands above it: the value of the column ``heads``, where it changes."""
        names = [cell.text for c in self.table.columns if c.key == self.heads for cell in self.table.cells(c)]
        return {i: name for i, name in enumerate(names) if i == 0 or name != names[i - 1]}

    def _texts(self, column: tables.Column[Any]) -> list[str]:
        """The cells of a column as texts; the parts of a cell are on lines of their own."""
        parts = [self.table.cells(part, narrow=True) for part in column.split()]
        return ["\n".join(f"{cell.text} {cell.note}".strip() for cell in cells) for cells in zip(*parts, strict=True)]


def _headed(column: tables.Column[Any], texts: list[str], fold: bool) -> RichColumn:
    """The head of a column; a folded heading is as wide as the column needs to be anyway."""
    heading = column.heading
    if column.align == "left":
        longest = max((len(line) for text in texts for line in text.splitlines()), default=0)
        return RichColumn(Text(heading), min_width=min(NAME_WIDTH, longest))
    if fold:
        needed = max(len(part) for part in [*heading.split(), *(line for text in texts for line in text.splitlines())])
        heading = "\n".join(textwrap.wrap(heading, needed))
    return right(heading)
