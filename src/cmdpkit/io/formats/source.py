"""Tables read from text files, with their lines, so that an error names the file, the line, the key and the rule."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from cmdpkit.errors import CmdpkitError, printable, quoted
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.validate import Name, is_int, names_of, nearest

# -- Numbers that know with how many decimals they were written, to distinguish rounding from mistakes.


class Written(float):
    """A number with the text it was read from.

    >>> Written("0.330").decimals, Written("2.5e-3").decimals, Written("1e3").decimals
    (3, 4, 0)
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def decimals(self) -> int:
        """Digits after the point."""
        exponent = Decimal(self.text).as_tuple().exponent
        return max(0, -exponent) if isinstance(exponent, int) else 0


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
    decimals = [x.decimals for x in values if isinstance(x, Written) and x != 0.0 and x.decimals > 0]
    if not decimals:
        return ROW_SUM_TOLERANCE
    just_below = 1 - 1e-9  # a row that is off by the full amount was not rounded to nearest
    return max(ROW_SUM_TOLERANCE, just_below * len(decimals) * 0.5 * 10.0 ** -max(decimals))


MAX_MISTAKES = 20  # mistakes that one message lists
MAX_NAMES = 10_000_000  # a larger number of names is taken for a mistake


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark."""
    try:
        data = path.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise CmdpkitError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CmdpkitError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8 text ({error.reason})"
        ) from None


def suffix_of(path: Path, known: tuple[str, ...]) -> str:
    """The suffix in small letters, if it is one of the known ones."""
    suffix = path.suffix.lower()
    if suffix not in known:
        raise CmdpkitError(f"{path}: unknown suffix {quoted(path.suffix)}, expected one of {', '.join(known)}")
    return suffix


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every ValueError and MemoryError in this block into a CmdpkitError that names the file."""
    try:
        yield
    except MemoryError:
        raise CmdpkitError(f"{path}: what the file describes does not fit in memory") from None
    except ValueError as error:
        raise CmdpkitError(str(error) if printable(str(path)) in str(error) else f"{path}: {error}") from None


class LocatedTable(dict[str, Any]):
    """A table of a file, with the line where it begins and the lines of its keys, as far as they are known."""

    def __init__(
        self, content: Any = (), line: int | None = None, lines: Mapping[str, int | None] | None = None
    ) -> None:
        super().__init__(content)
        self.line = line
        self.lines = dict(lines or {})
        self.damaged = False  # whether a mistake was found in it already


class Mistakes:
    """The mistakes in a file or a table, collected so that a user sees all of them at once."""

    def __init__(self, where: Path | str) -> None:
        self.where, self.count = where, 0
        self.found: list[str] = []  # the first `MAX_MISTAKES` of them

    def add(self, message: str) -> None:
        """Keep a mistake for later."""
        self.count += 1
        if self.count <= MAX_MISTAKES:
            self.found.append(message)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an error of this block for later."""
        try:
            yield
        except CmdpkitError as error:
            self.add(str(error))

    def check(self) -> None:
        """Raise one error with all mistakes, if there are any."""
        if self.count > 1:
            more = [f"... and {self.count - MAX_MISTAKES:,} more"] if self.count > MAX_MISTAKES else []
            raise CmdpkitError("\n".join([f"{self.where} has {self.count:,} mistakes:", *self.found, *more]))
        if self.found:
            raise CmdpkitError(self.found[0])


class Fields:
    """Checked access to one table of a file, which messages call ``what``."""

    def __init__(self, path: Path, what: str, table: Any) -> None:
        self.path, self.what = path, what
        self.table = (
            table if isinstance(table, LocatedTable) else LocatedTable(table if isinstance(table, Mapping) else ())
        )
        if not isinstance(table, Mapping):
            self.fail(f"expected a table, got {quoted(table)}")

    def fail(self, message: str, key: str | None = None) -> NoReturn:
        """Raise CmdpkitError("file:line: what: message")."""
        line = self.table.lines.get(key or "", self.table.line)
        where = f"{self.path}:{line}" if line else str(self.path)
        raise CmdpkitError(f"{where}: {self.what}: {message}")

    @contextmanager
    def locating(self, key: str | None = None) -> Iterator[None]:
        """Add file and line of this table to a ValueError that is raised in the block."""
        try:
            yield
        except ValueError as error:
            self.fail(str(error), key)

    def only(self, required: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Refuse missing and unknown keys."""
        for key in self.table:
            if key not in required and key not in optional:
                self.fail(f"unknown key {quoted(key)}{nearest(key, (*required, *optional))}", key)
        for key in required:
            if key not in self.table:
                head = self.path.suffix.lower() == ".csv" and self.what in ("model", "head", "policy")
                self.fail(f"{quoted(key)} is missing{f'; add a line # {key} = ... above the columns' * head}")

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.table[key]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            return float(value)
        grouped = isinstance(value, str) and "." in value and "," in value
        hint = ", without separators between thousands" if grouped else ""
        self.fail(f"{quoted(key)} is {quoted(value)}, expected a finite number{hint}", key)

    def reward(self) -> float:
        """The finite number under "reward", or -inf, by which people mean that the action is not allowed."""
        return -math.inf if self.table["reward"] == -math.inf else self.number("reward")

    def whole(self, key: str, low: int = 1, high: int | None = None) -> int:
        """A whole number from low to high."""
        value = self.table[key]
        if not is_int(value) or value < low or (high is not None and value > high):
            limits = f"at least {low}" if high is None else f"from {low} to {high}"
            self.fail(f"{quoted(key)} is {quoted(value)}, expected a whole number, {limits}", key)
        return int(value)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.table[key]
        if not isinstance(value, bool):
            self.fail(f"{quoted(key)} is {quoted(value)}, expected true or false", key)
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self.table[key]
        if not isinstance(value, str):
            self.fail(f"{quoted(key)} is {quoted(value)}, expected text", key)
        return value

    def name(self, key: str) -> Name:
        """A name: text or a whole number."""
        return self._name(key, repr(key), self.table[key])

    def names(self, key: str) -> Sequence[Name]:
        """A list of different names, or a number n for the default names 1..n."""
        value = self.table[key]
        if is_int(value):
            return range(1, self.whole(key, 1, MAX_NAMES) + 1)
        if not isinstance(value, list) or not value:
            self.fail(f"{quoted(key)} is {quoted(value)}, expected a list of names or how many there are", key)
        listed = value
        if not all(type(x) is str and x.strip() for x in value):  # millions of texts need no closer look
            listed = [self._name(key, f"{quoted(key)} entry {i}", x) for i, x in enumerate(value, 1)]
        with self.locating(key):
            return names_of(key, listed, len(listed))

    def list_of(self, key: str, kind: type, what: str) -> list[Any]:
        """A list of texts, tables, ..."""
        value = self.table[key]
        if not isinstance(value, list) or not all(isinstance(x, kind) for x in value):
            self.fail(f"{quoted(key)} is {quoted(value)}, expected a list of {what}", key)
        return value

    def inner(self, key: str) -> Fields:
        """The table under a key; unless its own line is known, it has the line of the key."""
        value = self.table[key]
        if not isinstance(value, Mapping) or not value:
            self.fail(f"{quoted(key)} is {quoted(value)}, expected a table that is not empty", key)
        line = getattr(value, "line", None) or self.table.lines.get(key, self.table.line)
        return Fields(self.path, f"{self.what}: {key}", LocatedTable(value, line, getattr(value, "lines", None)))

    def probabilities(self) -> dict[str, float]:
        """The whole table, checked to consist of numbers that are at least 0."""
        for key in self.table:
            if self.number(key) < 0:
                self.fail(f"{quoted(key)} has probability {quoted(self.table[key])}, expected at least 0", key)
        return {key: float(p) for key, p in self.table.items()}

    def tolerance(self) -> float:
        """How far from 1 the probabilities may sum, given the decimals they are written with."""
        if abs(sum(self.table.values()) - 1) <= ROW_SUM_TOLERANCE:
            return ROW_SUM_TOLERANCE  # no need to count decimals, which takes long
        return tolerance_of(self.table.values())

    def _name(self, key: str, what: str, value: Any) -> Name:
        if isinstance(value, str) and value.strip():
            return value
        if is_int(value):
            return int(value)
        self.fail(f"{what} is {quoted(value)}, expected a name", key)


class Index:
    """Positions of names. They are found by their text, because a file writes a name 1 as "1" if it is a key."""

    def __init__(self, what: str, names: Iterable[Name]) -> None:
        self.what = what
        self.position = {str(x): i for i, x in enumerate(names)}

    def find(self, name: Name, fields: Fields, key: str) -> int:
        """The position of a name, or an error that suggests the most similar one."""
        if str(name) not in self.position:
            fields.fail(f"unknown {self.what} {quoted(name)}{nearest(str(name), self.position)}", key)
        return self.position[str(name)]
