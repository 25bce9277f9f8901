"""Tables of recorded decisions as columns: from CSV as people have it, data frames, dictionaries or tuples."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats import csv_text
from cmdpkit.io.formats.frames import columns_of
from cmdpkit.io.formats.source import Mistakes, read_text, suffix_of
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import is_hashable, nearest

SUFFIXES = (".csv", ".tsv", ".txt")
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class LogTable:
    """The columns that were asked for, and how to name a place in them."""

    where: str  # the file, or "the log"
    columns: Mapping[str, list[Any]]  # by our own name of the column
    place: Callable[[int], str]  # "log.csv:12" or "row 12" for an index
    broken: Mapping[int, str] = field(default_factory=dict)  # rows whose cells do not fit the columns, and why
    text: bool = False  # whether values are texts, and names that are whole numbers may be numbers
    decimal_comma: bool = False  # whether a comma in a number may be a decimal point

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def row(self, i: int) -> list[Any]:
        """The values of a row, in the order of the columns."""
        return [column[i] for column in self.columns.values()]

    def numbers(self, name: str, faults: Mistakes, largest: float) -> FloatArray:
        """A column of finite numbers of a size up to ``largest``; 0 where a cell is none, which is noted."""
        column = self.columns[name]
        if not all(type(x) is float for x in column):
            column = [self._number(value) for value in column]
            column = [np.nan if x is None else x for x in column]
        found: FloatArray = np.array(column, dtype=float)
        for i in np.flatnonzero(~(np.abs(found) <= largest)).tolist():
            value = self.columns[name][i]
            comma = isinstance(value, str) and "," in value
            how = " with a decimal point, without separators between thousands" if comma else ""
            small = "" if np.isnan(found[i]) else f" of at most {largest:g} in size"
            kind = f"{shown(name)} is {'not a number' if np.isnan(found[i]) else 'too large'}"
            faults.add(kind, i, f"{shown(name)} is {quoted(value)}, expected a number{small}{how}", "correct it")
            found[i] = 0.0
        return found

    def _number(self, value: Any) -> float | None:
        """The finite number that a cell holds, or None; in a text also 12 % and, with `decimal_comma`, 0,5."""
        try:
            read = csv_text.number(value, comma=self.decimal_comma) if isinstance(value, str) else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        return read if isinstance(read, float) and abs(read) < float("inf") else None  # NaN fails this too

    def names(self, name: str, faults: Mistakes) -> list[Any]:
        """A column of names: values that can be compared; None where a cell is empty."""
        column = self.columns[name]
        try:
            known = {x: name_of(x) for x in set(column)}
        except TypeError:  # some value cannot be compared: find out where
            for i, value in enumerate(column):
                if not is_hashable(value):
                    expected = "expected a name, a number or a tuple"
                    told = f"{shown(name)} is {quoted(value)}, {expected}"
                    faults.add(f"{shown(name)} is not a name", i, told, "tuple(...) makes one of a list")
            return [None] * len(column)
        if self.text and all(x is None or _WHOLE.fullmatch(x) for x in known.values()):
            known = {x: None if value is None else int(value) for x, value in known.items()}
        return [known[x] for x in column]


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


def read_table(
    source: Any, columns: Sequence[str] | Mapping[str, str] | None, needed: Sequence[str], optional: Sequence[str]
) -> LogTable:
    """The needed and optional columns of a log; ``columns`` names those of tuples, or maps our names to others."""
    renamed = dict(columns) if isinstance(columns, Mapping) else {}
    for ours in renamed:
        if ours not in (*needed, *optional):
            raise CmdpkitError(f"columns names {quoted(ours)}{nearest(ours, (*needed, *optional))}")
    listed = None if columns is None or isinstance(columns, Mapping) else tuple(columns)
    if isinstance(source, (str, os.PathLike)):
        found = _from_file(Path(source))
    elif isinstance(source, Mapping):
        found = _whole(LogTable("the log", {str(key): _listed(x) for key, x in source.items()}, _row))
    elif not isinstance(source, Sequence) and (frame := columns_of(source)) is not None:
        found = LogTable("the log", frame, _row)
    elif isinstance(source, Iterable):
        found = _from_rows(source, listed)
    else:
        raise CmdpkitError(f"the log is {quoted(source)}, expected a file, a data frame, columns, or rows")
    return _asked_for(found, renamed, needed, optional)


def _row(i: int) -> str:
    return f"row {i + 1}"


def _listed(column: Any) -> list[Any]:
    return list(column.tolist()) if hasattr(column, "tolist") else list(column)


def _whole(table: LogTable) -> LogTable:
    sizes = {name: len(column) for name, column in table.columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{shown(name)} {n}" for name, n in sizes.items())
        raise CmdpkitError(f"{table.where}: columns differ in length: {listed}")
    return table


def _asked_for(table: LogTable, renamed: Mapping[str, str], needed: Sequence[str], optional: Sequence[str]) -> LogTable:
    there = {name.strip(): column for name, column in table.columns.items()}
    chosen = {}
    for name in (*needed, *optional):
        theirs = renamed.get(name, name)
        if theirs in there:
            chosen[name] = there[theirs]
        elif name in needed or name in renamed:
            hint = f" (columns={{{name!r}: ...}} says which column it is; on the command line, --column {name}=...)"
            raise CmdpkitError(f"{table.where} has no column {quoted(theirs)}{nearest(theirs, there)}{hint}")
    if not len(next(iter(chosen.values()))):
        raise CmdpkitError(f"{table.where} has no rows, expected one for each transition; give a log with rows")
    return replace(table, columns=chosen)


def _from_rows(rows: Iterable[Any], columns: Sequence[str] | None) -> LogTable:
    """Tuples, whose columns have to be named, or dictionaries."""
    listed = list(rows)
    if listed and isinstance(listed[0], Mapping):
        columns = columns or [str(key) for key in listed[0]]
        listed = [tuple(row.get(key) for key in columns) if isinstance(row, Mapping) else row for row in listed]
    if columns is None:
        raise CmdpkitError("columns is missing: it names the columns of the rows, such as columns=['episode', ...]")
    for i, row in enumerate(listed):
        if not isinstance(row, (Sequence, np.ndarray)) or isinstance(row, str) or len(row) != len(columns):
            raise CmdpkitError(f"row {i + 1} is {quoted(row)}, expected {len(columns)} values: {', '.join(columns)}")
    return LogTable("the log", {name: [row[i] for row in listed] for i, name in enumerate(columns)}, _row)


def _from_file(path: Path) -> LogTable:
    if path.suffix.lower() == ".parquet":
        raise CmdpkitError(
            f"{path}: Parquet files are read by the library of your data frames: "
            "from_log(pandas.read_parquet(path), ...); or write the log as .csv"
        )
    suffix_of(path, SUFFIXES)
    sheet = csv_text.table(path, list(io.StringIO(read_text(path), newline="")))
    return LogTable(str(path), sheet.columns, sheet.place, sheet.broken, text=True, decimal_comma=sheet.comma)
