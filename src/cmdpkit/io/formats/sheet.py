"""Sheets of values, column by column: what CSV files, data frames, dictionaries and rows of a user become.

Models, policies and logs are read from the same `Sheet`. Its readers note every cell that breaks a rule, with its row,
so that a user sees all mistakes at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.source import Located, LocatedTable, Mistakes, Written, is_name
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Positions, is_hashable, is_int, nearest

LARGEST = sys.float_info.max  # the largest number in size
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


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

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def name(self, i: int) -> str:
        """What messages call a row of a sheet that was named already."""
        return f"line {self.lines[i]}" if self.lines else f"row {i + 1}"

    def place(self, i: int) -> str:
        """What messages call a row."""
        return f"{self.where}:{self.lines[i]}" if self.lines else self.name(i)

    def at(self, i: int, what: str) -> Located:
        """Something that is told in a row, for messages."""
        return Located(self.where, what, None, self.lines[i]) if self.lines else Located(self.place(i), what, None)

    def row(self, i: int) -> list[Any]:
        """The values of a row, in the order of the columns."""
        return [column[i] for column in self.columns.values()]

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
            told = whole(value) if isinstance(value, str) else name_of(value)
            return int(told) - 1 if is_int(told) and told in range(1, horizon + 1) else None

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
            comma = isinstance(value, str) and "," in value
            how = " with a decimal point, without separators between thousands" if comma else ""
            small = "" if np.isnan(found[i]) else f" of at most {largest:.3g} in size"
            kind = f"{shown(name)} is {'not a number' if np.isnan(found[i]) else 'too large'}"
            if i not in self.broken:
                faults.add(kind, i, f"{shown(name)} is {quoted(value)}, expected a number{small}{how}", "correct it")
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


def number(text: str, kind: type[float] = float, *, comma: bool = False) -> float | str:
    """The number in a cell, or its text if it is none, which the caller then refuses.

    >>> number("0.25"), number("25 %"), number("0,25", comma=True), number("0,25"), number("-inf")
    (0.25, 0.25, 0.25, '0,25', '-inf')
    """
    plain = with_point(text.strip()) if comma else text.strip()
    digits = plain.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(digits):
        return text
    return kind(digits if digits == plain else str(Decimal(digits).scaleb(-2)))


def with_point(text: str) -> str:
    """A number that has a decimal comma, with a point instead; every other text as it is."""
    return text.replace(",", ".") if re.fullmatch(r"[+-]?\d*,\d+([eE][+-]?\d+)?\s*%?", text, re.ASCII) else text


def whole(text: str) -> int | str:
    """The whole number in a cell, or its text if it is none, which the caller then refuses."""
    return int(text) if re.fullmatch(r"\s*\d{1,18}\s*", text, re.ASCII) else text


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
