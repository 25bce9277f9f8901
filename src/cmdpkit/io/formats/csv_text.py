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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.document import KEYS, RESERVED, constraints_of
from cmdpkit.io.formats.json_toml import toml_value
from cmdpkit.io.formats.source import Located, LocatedTable, Mistakes, Written
from cmdpkit.model.constraints import SENSES
from cmdpkit.model.validate import nearest

_SETTING = re.compile(r"(\w+)\s*=\s*(.*)")
_CONSTRAINT = re.compile(r'constraint\s+(?P<name>"(?:[^"\\]|\\.)*"|[^"<>=≤≥]+?)\s*(?P<sign><=|>=|≤|≥)\s*(?P<bound>.+)')
_SIGNS = {"at_most": "<=", "at_least": ">="}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORBIDDEN = ("-inf", "-infinity", "−inf")  # rewards by which people say that an action is not allowed
SEPARATORS = (",", ";", "\t")
_PER_STEP = " per step"  # after a bound that is one
# How a cell begins that a spreadsheet takes for a formula, perhaps after apostrophes; a negative number is none.
_FORMULA = re.compile(r"'*(?:[=+@]|-(?![\d.]+(?:[eE][+-]?\d+)?\s*%?$|inf))", re.ASCII)
_PLAIN = re.compile(r"\w+( \w+)*")

Read = TypeVar("Read")


@dataclass(frozen=True)
class Sheet:
    """A table of texts, column by column, and where its rows stand."""

    path: Path
    columns: Mapping[str, list[str]]  # by name, the text in every row
    lines: Sequence[int]  # the line in which each row begins
    broken: Mapping[int, str]  # rows whose cells do not fit the columns, and why
    title: int  # the line of the column names
    comma: bool  # whether a comma in a number is a decimal comma
    head: LocatedTable = field(default_factory=LocatedTable)  # settings above the data, with their lines
    constraints: Sequence[LocatedTable] = ()  # name, sense and bound of each

    def place(self, row: int) -> str:
        """What messages call a row."""
        return f"{self.path}:{self.lines[row]}"

    def row(self, i: int) -> Located:
        """A row as a table."""
        return Located(
            self.path, "row", LocatedTable({name: texts[i] for name, texts in self.columns.items()}, self.lines[i])
        )

    def names_of_columns(self) -> Located:
        """The columns as a table whose keys can be checked."""
        return Located(self.path, "columns", LocatedTable(dict.fromkeys(self.columns), self.title))

    def read(self, name: str, reader: Callable[[Located], Read]) -> list[Read]:
        """A column, each different text of which is read once; an error names the first line that has it."""
        known: dict[str, Read] = {}
        for i, text in enumerate(self.columns[name]):
            if text not in known:
                known[text] = reader(Located(self.path, "row", text, self.lines[i], key=name))
        return [known[text] for text in self.columns[name]]


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
            _set(head, setting[1], _with_point(setting[2]) if comma else setting[2], known, here)
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
    return Sheet(path, columns, places, broken, start + 1, separator != ",")


def _as_meant(cells: list[str]) -> list[str]:
    """Cells without the apostrophes that keep spreadsheets from taking them for formulas."""
    return [x[1:] if x.startswith("'") and _FORMULA.match(x) else x for x in cells]


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


# -- Models: one line per state, action and next state; horizon, start and bounds in the head --------------------------

MODEL_HEAD = (*KEYS, "start", "states", "actions", "per_step", "exact", "renormalise", "transitions", "grid")
MODEL_COLUMNS = ("state", "action", "next_state", "probability", "reward")


def parse_model(path: Path, text: str, overrides: Mapping[str, Any], mistakes: Mistakes) -> LocatedTable:
    """The document in the file, with ``overrides`` of its head; transitions with ``mistakes`` are marked as damaged."""
    sheet = parse(path, text, MODEL_HEAD, "transitions")
    for i, told in sheet.broken.items():
        mistakes.add("", None, f"{sheet.place(i)}: row: {told}")
    head = {**sheet.head, **{key: x for key, x in overrides.items() if key in MODEL_HEAD}}
    model = LocatedTable(
        {key: x for key, x in head.items() if key not in ("transitions", "grid")}, None, sheet.head.lines
    )
    constraints = overrides.get("constraints", list(sheet.constraints))
    names = [c.name for c in constraints_of(Located(path, "head", LocatedTable({"constraint": constraints})), RESERVED)]
    _check_columns(sheet.names_of_columns(), names)
    document = LocatedTable({"model": model, "constraint": constraints, "transition": _grouped(sheet, names, mistakes)})
    if "grid" in head:
        document["grid"] = Located(path, "head", sheet.head).inner("grid").value
    return document


def _check_columns(columns: Located, constraints: list[str]) -> None:
    expected = (*MODEL_COLUMNS, *constraints)
    for name in columns.value:
        if name not in expected and name != "step":
            columns.fail(
                f"unknown column {quoted(name)}{nearest(name, (*expected, 'step'))} (a constraint is declared by a "
                f"line '# constraint {name} <= bound' above)"
            )
    for name in expected:
        if name not in columns:
            columns.fail(f"{quoted(name)} is missing")


def _grouped(sheet: Sheet, constraints: list[str], mistakes: Mistakes) -> list[LocatedTable]:
    """One transition per step, state and action, collected from its lines, which may be anywhere in the file."""
    groups: dict[tuple[str, str, str], dict[Any, LocatedTable]] = {}
    for i in range(len(sheet.lines)):
        row = sheet.row(i)
        texts: LocatedTable = row.value
        if i in sheet.broken and not (texts["state"] and texts["action"]):
            continue
        group = groups.setdefault((texts.get("step", "").strip(), texts["state"], texts["action"]), {})
        texts.damaged = i in sheet.broken
        if not texts.damaged:
            texts.damaged = True
            with mistakes.noting():
                _check_row(row, constraints, group, comma=sheet.comma)
                texts.damaged = False
        group.setdefault(i if texts.damaged else _outcome(texts, constraints), texts)
    return [_transition(list(group.values()), constraints) for group in groups.values()]


def _outcome(cells: Mapping[str, Any], constraints: list[str]) -> tuple[Any, ...]:
    """What a line says may happen: next state, reward and signals."""
    return cells["next_state"], cells["reward"], *(cells[name] for name in constraints)


def _check_row(row: Located, constraints: list[str], group: dict[Any, LocatedTable], *, comma: bool) -> None:
    """Turn the numbers of a line into numbers, and refuse what cannot be right."""
    cells = row.value
    for key in ("probability", "reward", *constraints):
        cells[key] = number(cells[key], Written if key == "probability" else float, comma=comma)
        row.at(key).reward() if key == "reward" else row.at(key).number()
    for key in ("state", "action", "next_state"):
        row.at(key).name_of()
    if cells["probability"] < 0:
        row.at("probability").expect(False, "at least 0")
    if (first := group.get(_outcome(cells, constraints))) is not None:
        row.fail(f"step, state, action and next_state are those of line {first.line}, and so are reward and signals")


def _transition(rows: list[LocatedTable], constraints: list[str]) -> LocatedTable:
    first = rows[0]
    step = first.get("step", "").strip()
    if any(row.damaged for row in rows):
        nothing = dict.fromkeys(("reward", "next", *constraints), 0)
        passed_over = LocatedTable({"state": first["state"], "action": first["action"], **nothing}, first.line)
        passed_over.damaged = True
        return passed_over
    place = {"state": first["state"], "action": first["action"], **({"step": whole(step)} if step else {})}
    signals = ("reward", *constraints)
    if any(row[name] != first[name] for row in rows for name in signals):
        told = ("next_state", "probability", *signals)
        listed = [LocatedTable({name.removesuffix("_state"): row[name] for name in told}, row.line) for row in rows]
        return LocatedTable({**place, "outcomes": listed}, first.line)
    lines = {row["next_state"]: row.line for row in rows}
    following = LocatedTable({row["next_state"]: row["probability"] for row in rows}, first.line, lines)
    return LocatedTable({**place, **{name: first[name] for name in signals}, "next": following}, first.line)


def model_pieces(tables: Mapping[str, Any], transitions: Callable[[], Iterator[Mapping[str, Any]]]) -> Iterator[str]:
    """The text of a model, line by line; ``transitions`` is called twice, as their number comes first."""
    constraints = tables.get("constraint", [])
    names = [c["name"] for c in constraints]
    timed, rows = False, 0
    for table in transitions():
        timed, rows = timed or "step" in table, rows + len(table.get("outcomes", table.get("next", ())))
    head = {**tables["model"], **{key: tables[key] for key in ("grid",) if key in tables}, "transitions": rows}
    yield top(head, constraints, [*MODEL_COLUMNS, *names, *["step"] * timed])
    for table in transitions():
        yield "".join(line(cells) for cells in _lines(table, names, timed))


def _lines(table: Mapping[str, Any], constraints: list[str], timed: bool) -> Iterator[list[Any]]:
    plain = [{**table, "next": x, "probability": p} for x, p in table.get("next", {}).items()]
    for x in table.get("outcomes", plain):
        signals = (x["reward"], *(x[c] for c in constraints))
        cells = [table["state"], table["action"], x["next"], x["probability"], *signals]
        yield [*cells, table.get("step")] if timed else cells
