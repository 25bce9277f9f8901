"""One description of a table serves every form in which the table is shown.

A `Table` has a title, columns and rows. A `Column` says how to get its value from a row, what it is called for programs
and for people, what it means, and how its values are written. Everything else follows from this: `Table.data` is what
``--json`` prints, `TerminalTable` is the table on a terminal, `Table.cells` feeds the report, and `Table.to_markdown`
and `Table.to_latex` give text for papers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from cmdpkit.errors import CmdpkitError, markdown_escaped, markdown_line, markdown_literal, printable
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.showing import Shown
from cmdpkit.results.groups import SeedMean
from cmdpkit.results.wording import aligned, compact, label, percent, short

R = TypeVar("R")
# An entry like any other, a name to look up, one to notice, one to skip, the best of its row.
Tone = Literal["", "name", "alert", "quiet", "best"]
MISSING = "–"
TAKEN, DRAWN, QUIET = "bold cyan", "bold magenta", "dim"  # a certain action, one left to chance, what matters less
NOTICE = "magenta"  # legible on black and on white
STYLES: dict[Tone, str] = {"": "", "name": TAKEN, "alert": NOTICE, "quiet": QUIET, "best": "bold"}
NAME_WIDTH, WORD_WIDTH = 18, 24  # characters of a name and of a word that are not folded in a table that is too wide
EMPTY_LINE = Text()


class Share(NamedTuple):
    """How many of all have a property."""

    part: int  # how many have it
    total: int  # how many there are


class Cell(NamedTuple):
    """One entry of a table as people see it, and the numbers behind it."""

    text: str  # what is written
    note: str = ""  # next to the text or below it: half the width of an interval
    value: float | str | None = None  # what a column is sorted by; None where there is no value


# -- how values are written --------------------------------------------------------------------------------------------

# From all values of a column (None where there is no value) to its cells. Where little room is left, as on a terminal,
# the second argument is true, and long numbers are written shorter.
Format = Callable[[Sequence[Any], bool], list[Cell]]


def each(write: Callable[[Any], str]) -> Format:
    """Every value is written for itself."""
    return lambda values, _narrow: [Cell(MISSING) if x is None else Cell(write(x), value=_sortable(x)) for x in values]


def _sortable(x: Any) -> float | str:
    if isinstance(x, Share):
        return x.part / x.total
    return x if isinstance(x, (int, float)) else str(x)


def in_line(values: Sequence[Any], _narrow: bool) -> list[Cell]:
    """Numbers that all have the same number of decimals."""
    texts = iter(aligned(x for x in values if x is not None))
    return [Cell(MISSING) if x is None else Cell(next(texts), value=x) for x in values]


def rounded(digits: int = 4) -> Format:
    """Numbers with a few significant digits."""
    return lambda values, narrow: [
        Cell(MISSING) if x is None else Cell(_number(x, digits, narrow), value=x) for x in values
    ]


def with_interval(digits: int = 4) -> Format:
    """Means, each with half the width of its interval where there is one."""

    def cell(x: SeedMean | None, narrow: bool) -> Cell:
        if x is None:
            return Cell(MISSING)
        note = "" if x.high is None else f"± {_number(x.high - x.mean, 2, narrow)}"
        return Cell(_number(x.mean, digits, narrow), note, x.mean)

    return lambda values, narrow: [cell(x, narrow) for x in values]


def _number(x: float, digits: int, narrow: bool) -> str:
    return compact(x, min(digits, 3)) if narrow else short(x, digits)


words = each(label)
sentences = each(printable)  # of ours: nothing is left out
whole = each(lambda x: f"{x:,}")
odds = each(percent)
share = each(lambda x: f"{x.part:,} of {x.total:,}")


# -- what becomes of values in JSON ------------------------------------------------------------------------------------


def as_it_is(key: str, value: Any) -> dict[str, Any]:
    """The value under the key of its column."""
    return {key: value}


def not_at_all(_key: str, _value: Any) -> dict[str, Any]:
    """Nothing: the column only repeats for people what other columns say."""
    return {}


def with_ends(key: str, value: SeedMean | None) -> dict[str, Any]:
    """A mean under the key of its column, and the ends of its interval, null where there are none."""
    mean, low, high = (None, None, None) if value is None else (value.mean, value.low, value.high)
    return {key: mean, f"{key}_low": low, f"{key}_high": high}


def bound_parts(key: str, c: Constraint | None) -> dict[str, Any]:
    """A bound in the unit in which it was given, and on the value by the model's criterion; nulls for no constraint."""
    if c is None:
        return {key: None, "per_step": None, "bound_total": None}
    return {key: c.bound, "per_step": c.per_step, "bound_total": c.bound_on_total}


def part_alone(key: str, value: Share | None) -> dict[str, Any]:
    """How many have the property; another column has the total number."""
    return {key: None if value is None else value.part}


# -- tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column(Generic[R]):
    """What is known about one column of a table."""

    key: str  # its name in JSON
    heading: str  # its name for people
    meaning: str  # a sentence that explains it; the report shows it when the mouse is over the heading
    get: Callable[[R], Any]  # its value in a row; None where there is none
    format: Format = words  # how its values are written
    align: Literal["left", "right"] = "left"  # on which side its entries stand
    parts: tuple[str, ...] = ()  # names of the items, where the value is a sequence, such as a number per constraint
    data: Callable[[str, Any], dict[str, Any]] = as_it_is  # what becomes of its key and a value in JSON
    tone: Callable[[R], Tone] = lambda _row: ""  # how the entry of a row looks
    shown: bool = True  # False: it is for programs only

    def split(self) -> tuple[Column[R], ...]:
        """A column for each part; the column itself where there are no parts."""
        if not self.parts:
            return (self,)
        return tuple(self._part(i, f"{self.heading} of {name}") for i, name in enumerate(self.parts))

    def _part(self, i: int, heading: str) -> Column[R]:
        def get(row: R) -> Any:
            values = self.get(row)
            return None if values is None else values[i]

        return replace(self, key=f"{self.key}_{i + 1}", heading=heading, get=get, parts=())


def numbers(
    key: str, heading: str, meaning: str, get: Callable[[R], Any], format: Format = in_line, **more: Any
) -> Column[R]:
    """A column of numbers, which stand on the right."""
    return Column(key, heading, meaning, get, format, "right", **more)


def means(key: str, heading: str, meaning: str, get: Callable[[R], Any], digits: int = 4, **more: Any) -> Column[R]:
    """A column of means with their intervals, whose ends JSON has too."""
    return numbers(key, heading, meaning, get, with_interval(digits), data=with_ends, **more)


@dataclass(frozen=True, eq=False)
class Table(Shown, Generic[R]):
    """Rows of any kind, and the columns that say how to read them."""

    title: str  # what the table is about
    columns: tuple[Column[R], ...]  # in the order in which they are shown
    rows: tuple[R, ...]  # from top to bottom
    totals: tuple[R, ...] = ()  # rows that sum up the others, such as their mean; they stand last and are not in `data`

    def data(self) -> list[dict[str, Any]]:
        """One dictionary per row, with every digit: keys are those of the columns, in their order."""
        columns = [part for column in self.columns for part in column.split()]
        return [{k: x for c in columns for k, x in c.data(c.key, c.get(row)).items()} for row in self.rows]

    def only(self, *keys: str) -> Table[R]:
        """The same table with these columns alone, in this order; keys of columns it does not have are passed over."""
        found = {column.key: column for column in self.columns}
        return replace(self, columns=tuple(found[key] for key in keys if key in found))

    def shown(self) -> tuple[Column[R], ...]:
        """The columns for people; one that no row has a value for is left out."""
        rows = (*self.rows, *self.totals)
        return tuple(c for c in self.columns if c.shown and any(c.get(row) is not None for row in rows))

    def cells(self, column: Column[R], *, narrow: bool = False) -> list[Cell]:
        """The cells of a column without parts, from top to bottom, those of the totals last."""
        return column.format([column.get(row) for row in (*self.rows, *self.totals)], narrow)

    def by_row(self) -> tuple[tuple[Column[R], ...], list[tuple[Cell, ...]]]:
        """The columns for people, one for each part, and for every row its cells."""
        columns = tuple(part for column in self.shown() for part in column.split())
        return columns, list(zip(*(self.cells(column) for column in columns), strict=True))

    def to_markdown(self) -> str:
        """The table in Markdown, with its title, if it has one, in bold above it."""
        columns, rows = self._written(lambda text: markdown_literal(" ".join(text.split())), "**{}**")
        head = markdown_line(markdown_escaped(c.heading) for c in columns)
        rule = markdown_line("---:" if c.align == "right" else "---" for c in columns)
        title = [f"**{markdown_literal(self.title)}**", ""] if self.title else []
        return "\n".join([*title, head, rule, *map(markdown_line, rows)]) + "\n"

    def to_latex(self) -> str:
        """The table as a LaTeX ``tabular`` that needs the package booktabs; its title is a comment above it."""
        columns, rows = self._written(_latex, r"\textbf{{\boldmath {}}}")
        body = [" & ".join(row) + r" \\" for row in rows]
        names = " & ".join(_latex(c.heading) for c in columns) + r" \\"
        layout = "".join("r" if c.align == "right" else "l" for c in columns)
        if self.totals:
            body.insert(len(self.rows), r"\midrule")
        title = f"% {'; '.join(map(label, self.title.split('; ')))}; needs \\usepackage{{booktabs}}"
        head = [title, rf"\begin{{tabular}}{{{layout}}}", r"\toprule", names, r"\midrule"]
        return "\n".join([*head, *body, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def _written(self, write: Callable[[str], str], best: str) -> tuple[tuple[Column[R], ...], list[list[str]]]:
        """The columns, and the texts of every row; ``best`` is put around the best entry of a row."""
        columns, rows = self.by_row()
        texts = [[write(f"{cell.text} {cell.note}".strip()) for cell in cells] for cells in rows]
        for row, line in zip((*self.rows, *self.totals), texts, strict=True):
            for i, column in enumerate(columns):
                if column.tone(row) == "best":
                    line[i] = best.format(line[i])
        return columns, texts


def joined(tables: Sequence[Table[Any]], form: str) -> str:
    """Several tables one below the other; ``form`` is "markdown" or "latex"."""
    if form not in ("markdown", "latex"):
        raise CmdpkitError(f"the form of a table is {form!r}, expected 'markdown' or 'latex'")
    return "\n".join(table.to_markdown() if form == "markdown" else table.to_latex() for table in tables)


# -- on a terminal -----------------------------------------------------------------------------------------------------


def plain_table(*headings: str | RichColumn) -> RichTable:
    """A table with a rule under its headings and nothing else drawn."""
    columns = [RichColumn(Text(heading)) if isinstance(heading, str) else heading for heading in headings]
    return RichTable(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def right(heading: str) -> RichColumn:
    """A column of numbers."""
    return RichColumn(Text(heading), justify="right", no_wrap=True)


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich to print in the width there is; nothing is cut.

    Where it is too wide, long headings are written on several lines. Where that is not enough, the table is printed in
    blocks below each other, each with the first column, which says what a row is about. The parts of a column, such as
    the violations of several bounds, stand below each other.
    """

    table: Table[Any]  # what is printed

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def widths(table: RichTable) -> Measurement:
            return console.measure(table, options=options.update(width=10_000))

        columns = self.table.shown()
        wide = self._laid_out(columns, fold=False)
        if widths(wide).maximum <= options.max_width:
            yield wide
        else:
            block = columns[:1]
            for column in columns[1:]:
                longer = self._laid_out([*block, column], fold=True)
                if len(block) > 1 and widths(longer).minimum > options.max_width:
                    yield self._laid_out(block, fold=True)
                    yield EMPTY_LINE
                    block = columns[:1]
                block = (*block, column)
            yield self._laid_out(block, fold=True)
        parts = dict.fromkeys(column.parts for column in columns if len(column.parts) > 1)
        yield from (Text(f"Each cell lists {', then '.join(names)}.", style=QUIET) for names in parts)

    def _laid_out(self, shown: Sequence[Column[Any]], *, fold: bool) -> RichTable:
        stacks = [self._texts(column) for column in shown]
        out = plain_table(*(_headed(c, texts, fold) for c, texts in zip(shown, stacks, strict=True)))
        for i, row in enumerate((*self.table.rows, *self.table.totals)):
            if i == len(self.table.rows):
                out.add_section()
            out.add_row(*(Text(texts[i], style=STYLES[c.tone(row)]) for c, texts in zip(shown, stacks, strict=True)))
        return out

    def _texts(self, column: Column[Any]) -> list[str]:
        """The cells of a column as texts; the parts of a cell are on lines of their own."""
        parts = [self.table.cells(part, narrow=True) for part in column.split()]
        return ["\n".join(f"{cell.text} {cell.note}".strip() for cell in cells) for cells in zip(*parts, strict=True)]


def _headed(column: Column[Any], texts: list[str], fold: bool) -> RichColumn:
    """The head of a column; a folded heading is as wide as the column needs to be anyway."""
    lines = [line for text in texts for line in text.splitlines()]
    longest = max(map(len, lines), default=0)
    if column.align == "left":
        word = max((len(word) for line in lines for word in line.split()), default=0)
        return RichColumn(Text(column.heading), min_width=max(min(NAME_WIDTH, longest), min(WORD_WIDTH, word)))
    if not fold:
        return right(column.heading)
    needed = max(longest, *(map(len, column.heading.split() or [""])))
    folded = right("\n".join(textwrap.wrap(column.heading, needed or 1)))
    folded.min_width = needed  # rich would cut numbers otherwise
    return folded


# -- LaTeX -------------------------------------------------------------------------------------------------------------

_LATEX = {
    **{x: rf"\{x}" for x in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "[": "{[}",  # after the end of a row a bracket would be an option
    "]": "{]}",
    "±": r"$\pm$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "∞": r"$\infty$",
    "µ": r"$\mu$",
    "…": r"\ldots{}",
    "–": "--",
    "†": r"$^\dagger$",
}


def _latex(text: str) -> str:
    r"""Text in which LaTeX sees nothing special; the hyphen before a number becomes a minus.

    >>> print(_latex("50 % of a_b, -2 ± 1"), _latex(r"\input{x}"))
    50 \% of a\_b, $-$2 $\pm$ 1 \textbackslash{}input\{x\}
    """
    escaped = "".join(_LATEX.get(x, x) for x in text)
    return re.sub(r"(?<![\w.}-])-(?=[\d.]|\$\\infty)", "$-$", escaped)
