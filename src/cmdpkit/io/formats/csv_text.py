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
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.json_toml import toml_value
from cmdpkit.io.formats.sheet import Sheet, number, with_point
from cmdpkit.io.formats.source import Located, LocatedTable, Written
from cmdpkit.model.constraints import SENSES
from cmdpkit.model.validate import nearest

_SETTING = re.compile(r"(\w+)\s*=\s*(.*)")
_CONSTRAINT = re.compile(r'constraint\s+(?P<name>"(?:[^"\\]|\\.)*"|[^"<>=≤≥]+?)\s*(?P<sign><=|>=|≤|≥)\s*(?P<bound>.+)')
_SIGNS = {"at_most": "<=", "at_least": ">="}
SEPARATORS = (",", ";", "\t")
_PER_STEP = " per step"  # after a bound that is one
# How a cell begins that a spreadsheet takes for a formula, perhaps after apostrophes; a negative number is none.
_FORMULA = re.compile(r"'*(?:[=+@]|-(?![\d.]+(?:[eE][+-]?\d+)?\s*%?$|inf))", re.ASCII)
_PLAIN = re.compile(r"\w+( \w+)*")


def parse(path: Path, text: str, known: Sequence[str], count: str) -> Sheet:
    """Head, columns and data; the head may have the ``known`` keys, of which ``count`` announces the number of rows."""
    lines = list(io.StringIO(text, newline=""))
    head, constraints = LocatedTable(), []
    above = (not line.strip(" ,;\t\r\n") or line.lstrip('"').startswith("#") for line in lines)  # empty, or a comment
    start = next((i for i, is_head in enumerate(above) if not is_head), len(lines))
    separator = separator_of(lines[start] if start < len(lines) else "")
    comma = separator != ","
    for i, line in enumerate(lines[:start]):
        here = Located(path, "head", None, i + 1)
        comment = _comment(line, here, separator)
        if re.match(r"constraint\s", comment):
            constraints.append(_constraint(comment, here, comma=comma))
        elif setting := _SETTING.fullmatch(comment):
            _set(head, setting[1], with_point(setting[2]) if comma else setting[2], known, here)
    sheet = replace(table(path, lines, start), head=head, constraints=constraints)
    if count in head:
        announced = Located(path, "head", head)
        if announced.at(count).whole(0) != len(sheet.lines):
            announced.fail(f"{head[count]} {count} are announced, but the file has {len(sheet.lines)}", count)
        if not lines[-1].endswith(("\n", "\r")):
            raise CmdpkitError(f"{path}:{len(lines)}: the last line has no line end: is the file complete?")
    return sheet


def separator_of(line: str) -> str:
    """What separates the cells of a line of column names."""
    return max(SEPARATORS, key=line.count)


def _comment(line: str, here: Located, separator: str) -> str:
    """The text of a head line, without the quotes and separators that a spreadsheet puts around it."""
    try:
        quoted_cells = csv.reader([line], delimiter=separator, strict=True)
        cells = next(quoted_cells, []) if line.startswith('"') else [line]
    except csv.Error as error:
        here.fail(f"not valid CSV: {error}")
    return separator.join(cells).strip().rstrip(separator).removeprefix("#").strip()


def _set(head: LocatedTable, key: str, text: str, known: Sequence[str], here: Located) -> None:
    if key not in known:
        here.fail(f"unknown key {quoted(key)}{nearest(key, known)} (a comment for people begins with ##)")
    if key in head:
        here.fail(f"{quoted(key)} is given twice; the first is in line {head.lines[key]}")
    head[key] = _value(key, text, here)
    head.lines[key] = here.line or 0


def _value(what: str, text: str, here: Located) -> Any:
    if text.startswith('["') and "\\" not in text:
        with suppress(ValueError, RecursionError):  # names are the same in JSON, which is read a hundred times as fast
            return json.loads(text)
    try:
        return tomllib.loads(f"x = {text}", parse_float=Written)["x"]
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        here.fail(
            f'{quoted(what)} is {shown(text)}, expected a number, a "name" in quotes, a list [...] or a table {{...}}'
        )


def _constraint(comment: str, here: Located, *, comma: bool) -> LocatedTable:
    match = _CONSTRAINT.fullmatch(comment)
    if match is None:
        here.fail(f"{quoted(comment)} is not of the form 'constraint name <= bound' or 'constraint name >= bound'")
    name = _value("constraint", match["name"], here) if match["name"].startswith('"') else match["name"]
    bound = match["bound"].strip()
    total = number(bound.removesuffix(_PER_STEP), comma=comma)
    entry = {"name": name, "sense": SENSES[match["sign"]], "bound": total}
    return LocatedTable({**entry, **({"per_step": True} if bound.endswith(_PER_STEP) else {})}, here.line)


def table(path: Path, lines: list[str], before: int = 0) -> Sheet:
    """The column names and the rows of a file, of which the first lines, ``before`` of them, are something else."""
    start = next((i for i in range(before, len(lines)) if lines[i].strip()), len(lines))
    separator = separator_of(lines[start] if start < len(lines) else "")
    reader = csv.reader(lines[start:], delimiter=separator, skipinitialspace=separator != "\t", strict=True)
    rows: list[list[str]] = []
    places: list[int] = []
    broken = {}
    try:
        names = next(reader, None)
        if names is None:
            raise CmdpkitError(f"{path}: there is no line of column names, expected one above the rows")
        line = start + reader.line_num + 1
        for cells in reader:
            if any(map(str.strip, cells)):
                if len(cells) != len(names):
                    expected = f"expected {len(names)}: {', '.join(map(shown, names))}"
                    broken[len(rows)] = f"has {len(cells)} cells, {expected}"
                    cells = (cells + [""] * len(names))[: len(names)]
                rows.append(cells)
                places.append(line)
            line = start + reader.line_num + 1
    except csv.Error as error:
        raise CmdpkitError(f"{path}:{start + reader.line_num}: not valid CSV: {error}") from None
    for name in names:
        if names.count(name) > 1:
            raise CmdpkitError(f"{path}:{start + 1}: columns: {quoted(name)} is given twice")
    if any("'" in x for x in lines):
        names, rows = _as_meant(names), [_as_meant(row) for row in rows]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    return Sheet(path, columns, places, broken, start + 1, text=True, comma=separator != ",")


def _as_meant(cells: list[str]) -> list[str]:
    """Cells without the apostrophes that keep spreadsheets from taking them for formulas."""
    return [x[1:] if x.startswith("'") and _FORMULA.match(x) else x for x in cells]


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
    """One value as CSV writes it, in quotes where it needs them.

    A text that a spreadsheet would take for a formula is written after an apostrophe, which `table` takes away.

    >>> cell("=1+1"), cell("'=1"), cell("it's"), cell(-1.0)
    ("'=1+1", "''=1", "it's", '-1.0')
    """
    if x is None:
        return ""
    text = x if isinstance(x, str) else repr(x)
    if _FORMULA.match(text):
        text = f"'{text}"
    if re.search(r'[",\r\n]', text) or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
