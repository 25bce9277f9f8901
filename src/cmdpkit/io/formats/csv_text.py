"""CSV with head lines for everything that does not fit in columns.

Above the column names, lines that begin with # are read when they look like ``# key = value`` (values as in TOML) or
``# constraint name <= bound``, perhaps with ``per step`` after it; other comments, and all that begin with ``##``, are
for people. Spreadsheets pad such lines with separators and quote them: both are understood. Below the column names
every line that is not empty is data.

Columns are separated by commas, by semicolons or by tabs: by whichever the line of column names has most of. In a file
without commas as separators, a comma in a number is a decimal comma. A number may be a percentage.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.json_toml import toml_value
from cmdpkit.io.formats.source import Fields, LocatedTable, Mistakes, Written
from cmdpkit.model.constraints import SENSES
from cmdpkit.model.validate import nearest

_SETTING = re.compile(r"(\w+)\s*=\s*(.*)")
_CONSTRAINT = re.compile(r'constraint\s+(?P<name>"(?:[^"\\]|\\.)*"|[^"<>=≤≥]+?)\s*(?P<sign><=|>=|≤|≥)\s*(?P<bound>.+)')
_SIGNS = {"at_most": "<=", "at_least": ">="}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORBIDDEN = ("-inf", "-infinity", "−inf")  # rewards by which people say that an action is not allowed
SEPARATORS = (",", ";", "\t")
_PER_STEP = " per step"  # after a bound that is one
_PLAIN = re.compile(r"\w+( \w+)*")


class Sheet(NamedTuple):
    """A CSV file taken apart."""

    head: LocatedTable  # settings of the head, with their lines
    constraints: list[LocatedTable]  # name, sense and bound of each
    columns: LocatedTable  # column names, with their line
    rows: list[LocatedTable]  # for each row, the text in each column
    comma: bool = False  # whether a comma in a number is a decimal comma


def parse(path: Path, text: str, known: Sequence[str], count: str, mistakes: Mistakes | None = None) -> Sheet:
    """Head, columns and data; the head may have the ``known`` keys, of which ``count`` announces the number of rows.

    Rows with too few or too many cells are among the ``mistakes``, and marked as damaged; without ``mistakes`` they are
    an error.
    """
    lines = list(io.StringIO(text, newline=""))
    head, constraints = LocatedTable(), []
    start = next((i for i, line in enumerate(lines) if not _is_head(line)), len(lines))
    separator = max(SEPARATORS, key=lines[start].count) if start < len(lines) else ","
    comma = separator != ","
    for i, line in enumerate(lines[:start]):
        here = Fields(path, "head", LocatedTable((), i + 1))
        comment = _comment(line, here, separator)
        if re.match(r"constraint\s", comment):
            constraints.append(_constraint(comment, here, comma=comma))
        elif setting := _SETTING.fullmatch(comment):
            _set(head, setting[1], _with_point(setting[2]) if comma else setting[2], known, here)
    noted = mistakes or Mistakes(path)
    columns, rows = _table(path, lines[start:], start, separator, noted)
    if mistakes is None:
        noted.check()
    if count in head:
        announced = Fields(path, "head", head)
        if announced.whole(count, 0) != len(rows):
            announced.fail(f"{head[count]} {count} are announced, but the file has {len(rows)}", count)
        if not lines[-1].endswith(("\n", "\r")):
            raise CmdpkitError(f"{path}:{len(lines)}: the last line has no line end: is the file complete?")
    return Sheet(head, constraints, columns, rows, comma)


def _is_head(line: str) -> bool:
    """Whether a line above the data is empty or a comment."""
    return not line.strip(" ,;\t\r\n") or line.lstrip('"').startswith("#")


def _comment(line: str, here: Fields, separator: str) -> str:
    """The text of a head line, without the quotes and separators that a spreadsheet puts around it."""
    try:
        quoted_cells = csv.reader([line], delimiter=separator, strict=True)
        cells = next(quoted_cells, []) if line.startswith('"') else [line]
    except csv.Error as error:
        here.fail(f"not valid CSV: {error}")
    return separator.join(cells).strip().rstrip(separator).removeprefix("#").strip()


def _set(head: LocatedTable, key: str, text: str, known: Sequence[str], here: Fields) -> None:
    if key not in known:
        here.fail(f"unknown key {quoted(key)}{nearest(key, known)} (a comment for people begins with ##)")
    if key in head:
        here.fail(f"{quoted(key)} is given twice; the first is in line {head.lines[key]}")
    head[key] = _value(key, text, here)
    head.lines[key] = here.table.line or 0


def _value(what: str, text: str, here: Fields) -> Any:
    try:
        return _texts(text) or tomllib.loads(f"x = {text}", parse_float=Written)["x"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        here.fail(
            f'{quoted(what)} is {shown(text)}, expected a number, a "name" in quotes, a list [...] or a table {{...}}'
        )


def _texts(text: str) -> list[str] | None:
    """A list of texts that JSON and TOML write alike, read much faster than as TOML; None for everything else."""
    if not text.startswith('["') or "\\" in text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if all(type(x) is str for x in found) else None


def _constraint(comment: str, here: Fields, *, comma: bool) -> LocatedTable:
    match = _CONSTRAINT.fullmatch(comment)
    if match is None:
        here.fail(f"{quoted(comment)} is not of the form 'constraint name <= bound' or 'constraint name >= bound'")
    name = _value("constraint", match["name"], here) if match["name"].startswith('"') else match["name"]
    bound = match["bound"].strip()
    total = number(bound.removesuffix(_PER_STEP), comma=comma)
    entry = {"name": name, "sense": SENSES[match["sign"]], "bound": total}
    return LocatedTable({**entry, **({"per_step": True} if bound.endswith(_PER_STEP) else {})}, here.table.line)


def _table(
    path: Path, lines: list[str], before: int, separator: str, mistakes: Mistakes
) -> tuple[LocatedTable, list[LocatedTable]]:
    """Column names and rows; ``before`` lines of the file come first."""
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=separator != "\t", strict=True)
    columns: LocatedTable | None = None
    rows = []
    line = before + 1
    try:
        for cells in reader:
            here = Fields(path, "columns" if columns is None else "row", LocatedTable((), line))
            line = before + reader.line_num + 1
            if columns is None:
                columns = _columns(cells, here)
            elif any(x.strip() for x in cells):
                rows.append(LocatedTable(zip(columns, cells, strict=False), here.table.line))
                if len(cells) != len(columns):
                    rows[-1].damaged = True
                    with mistakes.noting():
                        here.fail(f"has {len(cells)} cells, expected {len(columns)}: {', '.join(map(shown, columns))}")
    except csv.Error as error:
        raise CmdpkitError(f"{path}:{before + reader.line_num}: not valid CSV: {error}") from None
    if columns is None:
        raise CmdpkitError(f"{path}: there is no line of column names, expected one above the rows")
    return columns, rows


def _columns(cells: list[str], here: Fields) -> LocatedTable:
    columns = LocatedTable(dict.fromkeys(cells), here.table.line)
    for name in columns:
        if cells.count(name) > 1:
            here.fail(f"{quoted(name)} is given twice")
    return columns


def number(text: str, kind: type[float] = float, *, comma: bool = False) -> float | str:
    """The number in a cell, or its text if it is none, which the caller then refuses.

    >>> number("0.25"), number("25 %"), number("0,25", comma=True), number("0,25"), number("-inf")
    (0.25, 0.25, 0.25, '0,25', -inf)
    """
    plain = _with_point(text.strip()) if comma else text.strip()
    if plain.lower() in _FORBIDDEN:
        return float("-inf")
    digits = plain.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(digits):
        return text
    return kind(digits if digits == plain else str(Decimal(digits).scaleb(-2)))


def _with_point(text: str) -> str:
    """A number that has a decimal comma, with a point instead; every other text as it is."""
    return text.replace(",", ".") if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?\s*%?", text, re.ASCII) else text


def whole(text: str) -> int | str:
    """The whole number in a cell, or its text if it is none, which the caller then refuses."""
    return int(text) if re.fullmatch(r"\s*\d{1,18}\s*", text, re.ASCII) else text


def top(head: Mapping[str, Any], constraints: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The lines above the data: the head and the names of the columns."""
    lines = [f"# {key} = {toml_value(x)}" for key, x in head.items()]
    for c in constraints:
        name = c["name"] if _PLAIN.fullmatch(c["name"]) else toml_value(c["name"])
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
