"""Sheets of values, column by column, and the CSV files that hold them.

Models, policies and logs are read from the same `Sheet`, which CSV files, data frames, dictionaries and rows of a user
become. Its readers note every cell that breaks a rule, with its row, so that a user sees all mistakes at once.

A CSV file has a head for everything that does not fit in columns. Above the column names, lines that begin with # are
read when they look like ``# key = value`` (values as in TOML) or ``# constraint name <= bound``, perhaps with
``per step`` after it; other comments, and all that begin with ``##``, are for people. Spreadsheets pad such lines with
separators and quote them: both are understood. Below the column names every line that is not empty is data.

Columns are separated by commas, by semicolons or by tabs: by whichever the line of column names has most of. In a file
without commas as separators, a comma in a number is a decimal comma. A number may be a percentage.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.source import Located, LocatedTable, Mistakes, Written, is_name, toml_value
from cmdpkit.model.constraints import SENSES
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Positions, is_hashable, is_int, nearest

LARGEST = sys.float_info.max  # the largest number in size
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SETTING = re.compile(r"(\w+)\s*=\s*(.*)")
_CONSTRAINT = re.compile(r'constraint\s+(?P<name>"(?:[^"\\]|\\.)*"|[^"<>=≤≥]+?)\s*(?P<sign><=|>=|≤|≥)\s*(?P<bound>.+)')
_SIGNS = {"at_most": "<=", "at_least": ">="}
SEPARATORS = (",", ";", "\t")
_PER_STEP = " per step"  # after a bound that is one
# How a cell begins that a spreadsheet takes for a formula, perhaps after apostrophes; a negative number is none.
_FORMULA = re.compile(r"'*(?:[=+@]|-(?![\d.]+(?:[eE][+-]?\d+)?\s*%?$|inf))", re.ASCII)
_PLAIN = re.compile(r"\w+( \w+)*")


@dataclass(frozen=True)
class Sheet:
    """Columns by name, and how to name a place in them."""

    where: Path | str  # the file, or "the log"
    columns: Mapping[str, list[Any]]
    lines: Sequence[int] = ()  # the line in which each row begins; empty where rows are counted, from 1
    broken: Mapping[int, str] = field(default_factory=dict)  # rows whose cells do not fit the columns, and why
    title: int | None = None  # the line of the column names
    text: bool = False  # whether values are texts, and names that are whole numbers may be numbers
    comma: bool = False  # whether a comma in a number may be a decimal comma
    head: LocatedTable = field(default_factory=LocatedTable)  # settings above the data, with their lines
    constraints: Sequence[LocatedTable] = ()  # name, sense and bound of each, from above the data
    called: Sequence[str] = ()  # names of the rows, where they are neither lines nor counted

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def name(self, i: int) -> str:
        """What messages call a row of a sheet that was named already."""
        return f"line {self.lines[i]}" if self.lines else self.called[i] if self.called else f"row {i + 1}"

    def place(self, i: int) -> str:
        """What messages call a row."""
        return f"{self.where}:{self.lines[i]}" if self.lines else self.name(i)

    def at(self, i: int, what: str) -> Located:
        """Something that is told in a row, for messages."""
        return Located(self.where, what, None, self.lines[i]) if self.lines else Located(self.place(i), what, None)

    def names_of_columns(self) -> Located:
        """The columns as a table whose keys can be checked."""
        return Located(self.where, "columns", LocatedTable(dict.fromkeys(self.columns), self.title))

    def note_broken(self, faults: Mistakes) -> None:
        """Note the rows whose cells do not fit the columns."""
        for i, told in self.broken.items():
            faults.add("the cells of a row do not fit the columns", i, told, "correct the line")

    def read(
        self, name: str, reader: Callable[[Any], int | None], told: Callable[[Any], str], faults: Mistakes
    ) -> IntArray:
        """A column of whole numbers that ``reader`` makes of its values; -1 where it makes none.

        This is noted in the words of ``told``, unless the whole row is broken.
        """
        column = self.columns[name]
        known = {x: reader(x) for x in set(filter(is_hashable, column))}
        found = [known[x] if is_hashable(x) else None for x in column]
        for i, value in enumerate(found):
            if value is None and i not in self.broken:
                faults.add("", i, told(column[i]))
        return np.array([-1 if x is None else x for x in found], dtype=np.int64)

    def positions(self, name: str, known: Positions, faults: Mistakes) -> IntArray:
        """A column of names as their positions among the known ones."""
        texts = {str(x): i for i, x in enumerate(known.names)}

        def told(value: Any) -> str:
            if is_name(value):
                return f"unknown {known.what} {quoted(value)}{nearest(str(value), texts)}"
            return f"{name} is {quoted(value)}, expected a name"

        return self.read(name, lambda x: texts.get(str(x)) if is_name(x) else None, told, faults)

    def steps(self, horizon: int, faults: Mistakes, *, every: bool) -> IntArray:
        """The column "step", counted from 0; with ``every``, an empty cell is -1 and means every step."""

        def step(value: Any) -> int | None:
            if every and name_of(value) is None:
                return -1
            told = name_of(value)
            found = int(told) if is_int(told) or (isinstance(told, str) and _WHOLE.fullmatch(told)) else 0
            return found - 1 if 1 <= found <= horizon else None

        rule = f"expected a whole number, from 1 to {horizon:,}"
        return self.read("step", step, lambda x: f"step is {quoted(x)}, {rule}", faults)

    def probabilities(self, faults: Mistakes) -> FloatArray:
        """The column "probability"."""
        prob = self.numbers("probability", faults, LARGEST)
        for i in np.flatnonzero(prob < 0).tolist():
            faults.add("probability is negative", i, f"probability is {prob[i]:g}, expected at least 0", "correct it")
        return prob

    def written(self, rows: IntArray) -> Callable[[int], float]:
        """Of some rows, the probability as it was written, with its decimals."""
        column = self.columns.get("probability", ())

        def written(i: int) -> float:
            value = column[rows[i]]
            return value if not self.text else cast(float, number(value, Written, comma=self.comma))

        return written

    def numbers(self, name: str, faults: Mistakes, largest: float) -> FloatArray:
        """A column of finite numbers of a size up to ``largest``; 0 where a cell is none, which is noted."""
        column = self.columns[name]
        if not all(type(x) is float for x in column):
            column = [self._number(value) for value in column]
        found: FloatArray = np.array(column, dtype=float)
        for i in np.flatnonzero(~(np.abs(found) <= largest)).tolist():
            value = self.columns[name][i]
            such = " such as 1000.5" if np.isnan(found[i]) else f" of at most {largest:.3g} in size"
            kind = f"{shown(name)} is {'not a number' if np.isnan(found[i]) else 'too large'}"
            if i not in self.broken:
                faults.add(kind, i, f"{shown(name)} is {quoted(value)}, expected a number{such}", "correct it")
            found[i] = 0.0
        return found

    def _number(self, value: Any) -> float:
        """The number that a cell holds, in a text also 12 % and, with `comma`, 0,5; NaN if it holds none."""
        try:
            read = number(value, comma=self.comma) if isinstance(value, str) else float(value)
        except (TypeError, ValueError, OverflowError):
            return np.nan
        return read if isinstance(read, float) else np.nan

    def names(self, name: str, faults: Mistakes) -> list[Any]:
        """A column of names: values that can be compared; None where a cell is empty."""
        column = self.columns[name]
        known = {x: name_of(x) for x in set(filter(is_hashable, column))}
        for i in (i for i, x in enumerate(column) if not is_hashable(x)):
            told = f"{shown(name)} is {quoted(column[i])}, expected a name, a number or a tuple"
            faults.add(f"{shown(name)} is not a name", i, told, "tuple(...) makes one of a list")
        if self.text and all(x is None or _WHOLE.fullmatch(x) for x in known.values()):
            known = {x: None if value is None else int(value) for x, value in known.items()}
        return [known[x] if is_hashable(x) else None for x in column]


def name_of(value: Any) -> Any:
    """A value as a name: texts without the blanks around them, whole floats as whole numbers, None if it is missing."""
    if isinstance(value, str):
        return value.strip() or None
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()
    if _missing(value):
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _missing(value: Any) -> bool:
    """Whether a value stands for none: None, or as NaN, NaT and NA of data frames, not equal to itself."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # a comparison with NA is neither true nor false
        return True


def number(text: str, kind: type[float] = float, *, comma: bool = False) -> float | str:
    """The number in a cell, or its text if it is none, which the caller then refuses.

    >>> number("0.25"), number("25 %"), number("0,25", comma=True), number("0,25")
    (0.25, 0.25, 0.25, '0,25')
    """
    plain = with_point(text.strip()) if comma else text.strip()
    digits = plain.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(digits):
        return text
    return kind(digits if digits == plain else str(Decimal(digits).scaleb(-2)))


def with_point(text: str) -> str:
    """A number that has a decimal comma, with a point instead; every other text as it is."""
    return text.replace(",", ".") if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?\s*%?", text, re.ASCII) else text


def columns_of(source: Any) -> dict[str, list[Any]] | None:
    """The columns of a data frame as lists of Python objects; None if ``source`` is no data frame.

    >>> import pandas
    >>> columns_of(pandas.DataFrame({"state": ["on", "off"], "reward": [1, 0]})), columns_of([1, 2])
    ({'state': ['on', 'off'], 'reward': [1, 0]}, None)
    """
    import narwhals

    if any(name is not None for name in getattr(getattr(source, "index", None), "names", ())):
        source = source.reset_index()  # the named index of a pandas frame holds columns too
    try:
        frame = narwhals.from_native(source, pass_through=True)
        if isinstance(frame, narwhals.LazyFrame):
            frame = frame.collect()
        if not isinstance(frame, narwhals.DataFrame):
            return None
        return {str(name): frame[name].to_list() for name in frame.columns}
    except narwhals.exceptions.NarwhalsError as error:  # such as two columns of the same name
        raise CmdpkitError(f"the data frame cannot be read: {' '.join(str(error).split())}") from None


# -- Sums of probabilities that were written with few decimals ---------------------------------------------------------


def rule_of(tolerance: float) -> str:
    """The rule for a sum of probabilities, in words for a message."""
    more = f" (or off by less than {tolerance:.3g}, as rounding explains)" if tolerance > ROW_SUM_TOLERANCE else ""
    return f"expected 1 within {ROW_SUM_TOLERANCE:g}{more}"


def tolerance_of(values: Iterable[Any]) -> float:
    """How far from 1 the sum of probabilities may be, if each was rounded to the decimals of the most precise one.

    That is less than half a unit in the last place for each of them. Zeros and whole numbers count as exact, and so do
    numbers that were not read from text.

    >>> [round(tolerance_of(map(Written, row)), 6) for row in (["0.33"] * 3, ["0.5", "0.4"], ["1", "0"])]
    [0.015, 0.1, 0.0]
    """
    listed = list(values)
    if abs(sum(listed) - 1) <= ROW_SUM_TOLERANCE:
        return ROW_SUM_TOLERANCE  # no need to count decimals, which takes long
    decimals = [x.decimals for x in listed if isinstance(x, Written) and x != 0.0 and x.decimals > 0]
    if not decimals:
        return ROW_SUM_TOLERANCE
    just_below = 1 - 1e-9  # a row that is off by the full amount was not rounded to nearest
    return max(ROW_SUM_TOLERANCE, just_below * len(decimals) * 0.5 * 10.0 ** -max(decimals))


def sums_of(
    owner: IntArray, prob: FloatArray, n: int, written: Callable[[int], float]
) -> tuple[FloatArray, FloatArray]:
    """The sum of the probabilities of each of n owners, and how far from 1 each may be; see `tolerance_of`."""
    sums: FloatArray = np.bincount(owner, prob, n).astype(float)
    tolerance: FloatArray = np.full(n, ROW_SUM_TOLERANCE)
    parts: dict[int, list[float]] = {}
    for i in np.flatnonzero(np.abs(sums - 1)[owner] > ROW_SUM_TOLERANCE).tolist():
        parts.setdefault(int(owner[i]), []).append(written(i))
    for k, listed in parts.items():
        tolerance[k] = tolerance_of(listed)
    return sums, tolerance


# -- CSV files with a head ---------------------------------------------------------------------------------------------


def parse_csv(path: Path, text: str, known: Sequence[str], count: str) -> Sheet:
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
    sheet = replace(csv_table(path, lines, start), head=head, constraints=constraints)
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


def csv_table(path: Path, lines: list[str], before: int = 0) -> Sheet:
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


def csv_top(head: Mapping[str, Any], constraints: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """The lines above the data: the head and the names of the columns."""
    lines = [f"# {key} = {toml_value(x)}" for key, x in head.items()]
    for c in constraints:
        name = c["name"] if _PLAIN.fullmatch(c["name"]) else toml_value(c["name"])
        per_step = _PER_STEP if c.get("per_step") else ""
        lines.append(f"# constraint {name} {_SIGNS[c['sense']]} {c['bound']!r}{per_step}")
    return "".join(f"{text}\n" for text in lines) + csv_line(columns)


def csv_line(cells: Iterable[str | float | None]) -> str:
    """One line of data; numbers with as many digits as they need, None as an empty cell."""
    return ",".join(csv_cell(x) for x in cells) + "\n"


def csv_cell(x: str | float | None) -> str:
    """One value as CSV writes it, in quotes where it needs them.

    A text that a spreadsheet would take for a formula is written after an apostrophe, which `csv_table` takes away.

    >>> csv_cell("=1+1"), csv_cell("'=1"), csv_cell("it's"), csv_cell(-1.0)
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
