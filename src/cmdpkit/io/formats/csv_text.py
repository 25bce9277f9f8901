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
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.document import KEYS, RESERVED, constraints_of
from cmdpkit.io.formats.json_toml import toml_value
from cmdpkit.io.formats.source import Fields, LocatedTable, Mistakes, Written
from cmdpkit.model.constraints import SENSES
from cmdpkit.model.transitions import expected
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
    above = (not line.strip(" ,;\t\r\n") or line.lstrip('"').startswith("#") for line in lines)  # empty, or a comment
    start = next((i for i, is_head in enumerate(above) if not is_head), len(lines))
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
                columns = LocatedTable(dict.fromkeys(cells), here.table.line)
                for name in columns:
                    if cells.count(name) > 1:
                        here.fail(f"{quoted(name)} is given twice")
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


# -- Models: one line per state, action and next state; horizon, start and bounds in the head --------------------------

MODEL_HEAD = (*KEYS, "start", "states", "actions", "per_step", "renormalise", "transitions", "grid")
MODEL_COLUMNS = ("state", "action", "next_state", "probability", "reward")


def parse_model(path: Path, text: str, overrides: Mapping[str, Any], mistakes: Mistakes) -> LocatedTable:
    """The document in the file, with ``overrides`` of its head; transitions with ``mistakes`` are marked as damaged."""
    sheet = parse(path, text, MODEL_HEAD, "transitions", mistakes)
    head = {**sheet.head, **{key: x for key, x in overrides.items() if key in MODEL_HEAD}}
    model = LocatedTable(
        {key: x for key, x in head.items() if key not in ("transitions", "grid")}, None, sheet.head.lines
    )
    constraints = overrides.get("constraints", sheet.constraints)
    names = [c.name for c in constraints_of(Fields(path, "head", LocatedTable({"constraint": constraints})), RESERVED)]
    _check_columns(path, sheet.columns, names)
    document = LocatedTable(
        {"model": model, "constraint": constraints, "transition": _grouped(path, sheet, names, mistakes)}
    )
    if "grid" in head:
        document["grid"] = Fields(path, "head", sheet.head).inner("grid").table
    return document


def _check_columns(path: Path, columns: LocatedTable, constraints: list[str]) -> None:
    here = Fields(path, "columns", columns)
    expected = (*MODEL_COLUMNS, *constraints)
    for name in columns:
        if name not in expected and name != "step":
            here.fail(
                f"unknown column {quoted(name)}{nearest(name, (*expected, 'step'))} (a constraint is declared by a "
                f"line '# constraint {name} <= bound' above)"
            )
    for name in expected:
        if name not in columns:
            here.fail(f"{quoted(name)} is missing")


def _grouped(path: Path, sheet: Sheet, constraints: list[str], mistakes: Mistakes) -> list[LocatedTable]:
    """One transition per step, state and action, collected from its lines, which may be anywhere in the file."""
    groups: dict[tuple[str, str, str], dict[str, LocatedTable]] = {}
    for row in sheet.rows:
        if "state" not in row or "action" not in row:
            continue  # a line with too few cells, which is among the mistakes
        group = groups.setdefault((row.get("step", "").strip(), row["state"], row["action"]), {})
        if not row.damaged:
            row.damaged = True
            with mistakes.noting():
                _check_row(Fields(path, "row", row), constraints, group, comma=sheet.comma)
                row.damaged = False
        group.setdefault(row.get("next_state", ""), row).damaged |= row.damaged
    return [_transition(list(group.values()), constraints) for group in groups.values()]


def _check_row(fields: Fields, constraints: list[str], group: dict[str, LocatedTable], *, comma: bool) -> None:
    """Turn the numbers of a line into numbers, and refuse what cannot be right."""
    row = fields.table
    for key in ("probability", "reward", *constraints):
        row[key] = number(row[key], Written if key == "probability" else float, comma=comma)
        fields.reward() if key == "reward" else fields.number(key)
    for key in ("state", "action", "next_state"):
        fields.name(key)
    if row["probability"] < 0:
        fields.fail(f"'probability' is {quoted(row['probability'])}, expected at least 0")
    if row["next_state"] in group:
        fields.fail(f"step, state, action and next_state are those of line {group[row['next_state']].line}")


def _transition(rows: list[LocatedTable], constraints: list[str]) -> LocatedTable:
    first = rows[0]
    step = first.get("step", "").strip()
    if any(row.damaged for row in rows):
        passed_over = LocatedTable(dict.fromkeys(("reward", "next", *constraints), 0), first.line)
        passed_over.update(state=first["state"], action=first["action"])
        passed_over.damaged = True
        return passed_over
    return LocatedTable(
        {
            "state": first["state"],
            "action": first["action"],
            **({"step": whole(step)} if step else {}),
            "reward": _mean(rows, "reward"),
            **{name: _mean(rows, name) for name in constraints},
            "next": LocatedTable(
                {row["next_state"]: row["probability"] for row in rows},
                first.line,
                {row["next_state"]: row.line for row in rows},
            ),
        },
        first.line,
    )


def _mean(rows: list[LocatedTable], key: str) -> float:
    """The expected value of a number that may depend on the next state."""
    return expected([row["probability"] for row in rows], [row[key] for row in rows])


def model_pieces(tables: Mapping[str, Any], transitions: Callable[[], Iterator[Mapping[str, Any]]]) -> Iterator[str]:
    """The text of a model, line by line; ``transitions`` is called twice, as their number comes first."""
    constraints = tables.get("constraint", [])
    names = [c["name"] for c in constraints]
    timed, rows = False, 0
    for table in transitions():
        timed, rows = timed or "step" in table, rows + len(table["next"])
    head = {**tables["model"], **{key: tables[key] for key in ("grid",) if key in tables}, "transitions": rows}
    yield top(head, constraints, [*MODEL_COLUMNS, *names, *["step"] * timed])
    for table in transitions():
        yield "".join(line(cells) for cells in _lines(table, names, timed))


def _lines(table: Mapping[str, Any], constraints: list[str], timed: bool) -> Iterator[list[Any]]:
    for name, p in table["next"].items():
        cells = [table["state"], table["action"], name, p, table["reward"], *(table[c] for c in constraints)]
        yield [*cells, table.get("step")] if timed else cells
