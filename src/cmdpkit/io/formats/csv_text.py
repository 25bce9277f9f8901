"""CSV with head lines for everything that does not fit in columns.

Above the column names, lines that begin with # are read when they look like ``# key = value`` (values as in TOML) or
``# constraint name <= bound``, perhaps with ``per step`` after it; other comments, and all that begin with ``##``, are
for people. Spreadsheets pad such lines with commas and quote them: both are understood. Below the column names every
line that is not empty is data.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats import toml_text
from cmdpkit.io.formats.decimals import Written
from cmdpkit.io.formats.source import Fields, Table
from cmdpkit.model.validate import nearest

_SETTING = re.compile(r"(\w+)\s*=\s*(.*)")
_CONSTRAINT = re.compile(r'constraint\s+(?P<name>"(?:[^"\\]|\\.)*"|[^"<>=≤≥]+?)\s*(?P<sign><=|>=|≤|≥)\s*(?P<bound>.+)')
_SENSES = {"<=": "at_most", "≤": "at_most", ">=": "at_least", "≥": "at_least"}
_SIGNS = {"at_most": "<=", "at_least": ">="}
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_PER_STEP = " per step"  # after a bound that is one
_PLAIN = re.compile(r"\w+( \w+)*")


class Sheet(NamedTuple):
    """A CSV file taken apart."""

    head: Table  # settings of the head, with their lines
    constraints: list[Table]  # name, sense and bound of each
    columns: Table  # column names, with their line
    rows: list[Table]  # for each row, the text in each column


def parse(path: Path, text: str, known: Sequence[str], count: str) -> Sheet:
    """Head, columns and data; the head may have the ``known`` keys, of which ``count`` announces the number of rows."""
    lines = list(io.StringIO(text, newline=""))
    head, constraints = Table(), []
    start = 0
    while start < len(lines) and (not lines[start].strip(" ,\t\r\n") or lines[start].lstrip('"').startswith("#")):
        here = Fields(path, "head", Table((), start + 1))
        comment = _comment(lines[start], here)
        start += 1
        if re.match(r"constraint\s", comment):
            constraints.append(_constraint(comment, here))
        elif setting := _SETTING.fullmatch(comment):
            _set(head, setting[1], setting[2], known, here)
    columns, rows = _table(path, lines[start:], start)
    if count in head:
        announced = Fields(path, "head", head)
        if announced.whole(count, 0) != len(rows):
            announced.fail(f"{head[count]} {count} are announced, but the file has {len(rows)}", count)
        if not lines[-1].endswith(("\n", "\r")):
            raise CmdpkitError(f"{path}:{len(lines)}: the last line has no line end: is the file complete?")
    return Sheet(head, constraints, columns, rows)


def _comment(line: str, here: Fields) -> str:
    """The text of a head line, without the quotes and commas a spreadsheet puts around it."""
    try:
        cells = next(csv.reader([line], strict=True), []) if line.startswith('"') else [line]
    except csv.Error as error:
        here.fail(f"not valid CSV: {error}")
    return ",".join(cells).strip().rstrip(",").removeprefix("#").strip()


def _set(head: Table, key: str, text: str, known: Sequence[str], here: Fields) -> None:
    if key not in known:
        here.fail(f"unknown key {quoted(key)}{nearest(key, known)} (a comment for people begins with ##)")
    if key in head:
        here.fail(f"{quoted(key)} is given twice; the first is in line {head.lines[key]}")
    head[key] = _value(key, text, here)
    head.lines[key] = here.table.line or 0


def _value(what: str, text: str, here: Fields) -> Any:
    try:
        return tomllib.loads(f"x = {text}", parse_float=Written)["x"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        here.fail(
            f'{quoted(what)} is {shown(text)}, expected a number, a "name" in quotes, a list [...] or a table {{...}}'
        )


def _constraint(comment: str, here: Fields) -> Table:
    match = _CONSTRAINT.fullmatch(comment)
    if match is None:
        here.fail(f"{quoted(comment)} is not of the form 'constraint name <= bound' or 'constraint name >= bound'")
    name = _value("constraint", match["name"], here) if match["name"].startswith('"') else match["name"]
    bound = match["bound"].strip()
    entry = {"name": name, "sense": _SENSES[match["sign"]], "bound": number(bound.removesuffix(_PER_STEP))}
    return Table({**entry, **({"per_step": True} if bound.endswith(_PER_STEP) else {})}, here.table.line)


def _table(path: Path, lines: list[str], before: int) -> tuple[Table, list[Table]]:
    """Column names and rows; ``before`` lines of the file come first."""
    reader = csv.reader(lines, skipinitialspace=True, strict=True)
    columns: Table | None = None
    rows = []
    line = before + 1
    try:
        for cells in reader:
            here = Fields(path, "columns" if columns is None else "row", Table((), line))
            line = before + reader.line_num + 1
            if columns is None:
                columns = _columns(cells, here)
            elif any(x.strip() for x in cells):
                if len(cells) != len(columns):
                    here.fail(f"has {len(cells)} cells, expected {len(columns)}: {', '.join(map(shown, columns))}")
                rows.append(Table(zip(columns, cells, strict=True), here.table.line))
    except csv.Error as error:
        raise CmdpkitError(f"{path}:{before + reader.line_num}: not valid CSV: {error}") from None
    if columns is None:
        raise CmdpkitError(f"{path}: there is no line of column names")
    return columns, rows


def _columns(cells: list[str], here: Fields) -> Table:
    columns = Table(dict.fromkeys(cells), here.table.line)
    if len(cells) == 1 and re.search(r"[;\t]", cells[0]):
        here.fail(f"{quoted(cells[0])} is one column: separate columns by commas")
    for name in columns:
        if cells.count(name) > 1:
            here.fail(f"{quoted(name)} is given twice")
    return columns


def number(text: str, kind: type[float] = float) -> float | str:
    """The number in a cell, or its text if it is none, which the caller then refuses."""
    return kind(text) if _NUMBER.fullmatch(text) else text


def whole(text: str) -> int | str:
    """The whole number in a cell, or its text if it is none, which the caller then refuses."""
    return int(text) if re.fullmatch(r"\s*\d{1,18}\s*", text, re.ASCII) else text


def top(head: Mapping[str, Any], constraints: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The lines above the data: the head and the names of the columns."""
    lines = [f"# {key} = {toml_text.value(x)}" for key, x in head.items()]
    for c in constraints:
        name = c["name"] if _PLAIN.fullmatch(c["name"]) else toml_text.value(c["name"])
        per_step = _PER_STEP if c.get("per_step") else ""
        lines.append(f"# constraint {name} {_SIGNS[c['sense']]} {c['bound']!r}{per_step}")
    return "".join(f"{text}\n" for text in lines) + line(columns)


def line(cells: Iterable[str | float | None]) -> str:
    """One line of data; numbers with as many digits as they need, None as an empty cell."""
    return ",".join(cell(x) for x in cells) + "\n"


def cell(x: str | float | None) -> str:
    """One value as CSV writes it, in quotes where it needs them."""
    if x is None:
        return ""
    text = x if isinstance(x, str) else repr(x)
    if re.search(r'[",\r\n]', text) or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
