"""Tables read from text files, with their lines, so that an error names the file, the line, the key and the rule."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cmdpkit.errors import CmdpkitError, printable, quoted
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Name, Positions, is_int, names_of, nearest

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


MAX_MISTAKES = 20  # mistakes without a kind that one message lists
MAX_OF_A_KIND = 3  # mistakes of one kind that are shown in full
MAX_NAMES = 10_000_000  # a larger number of names is taken for a mistake


def check_regular(path: Path) -> None:
    """Refuse a pipe or a device, from which reading may never end; whether there is a file shows when it is opened."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise CmdpkitError(f"cannot read {path}: it is a pipe or a device; write its content to a file")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark."""
    check_regular(path)
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


NO_FORMATS = {  # suffixes that users may expect, and what to do instead
    ".umb": "use model.tra, which PRISM converts from and to .umb",
    ".md": "write .csv, which spreadsheets and data frames read",
    ".parquet": "give the data frame that your library makes of the file, such as pandas.read_parquet(path)",
}


def suffix_of(path: Path, known: tuple[str, ...]) -> str:
    """The suffix in small letters, if it is one of the known ones."""
    suffix = path.suffix.lower()
    if suffix in NO_FORMATS:
        raise CmdpkitError(f"{path}: {suffix} is not read or written; {NO_FORMATS[suffix]}")
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


class Mistake(NamedTuple):
    """One mistake in a file or a table."""

    row: int | None  # index of its row, if the message still needs the place
    told: str  # the mistake, and the rule
    advice: str  # the next step for the user, if it is not part of the message


class Mistakes:
    """The mistakes in a file or a table by their kind, collected so that a user sees all of them at once."""

    def __init__(self, where: Path | str, place: Callable[[int], str] = str) -> None:
        self.where, self.place = where, place
        self.kinds: dict[str, list[Mistake]] = {}

    def add(self, kind: str, row: int | None, told: str, advice: str = "") -> None:
        """Keep a mistake for later; those without a kind are listed one by one."""
        self.kinds.setdefault(kind, []).append(Mistake(row, told, advice))

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an error of this block for later."""
        try:
            yield
        except CmdpkitError as error:
            self.add("", None, str(error))

    @property
    def rows(self) -> set[int]:
        """The rows with mistakes."""
        return {x.row for found in self.kinds.values() for x in found if x.row is not None}

    def check(self, remedy: str = "") -> None:
        """Raise one error with all mistakes, if there are any; ``remedy`` says what would mend all of them."""
        count = sum(map(len, self.kinds.values()))
        if not count:
            return
        if count == 1:
            ((only,),) = self.kinds.values()
            rest = f"; {only.advice}" * bool(only.advice) + f". {remedy}" * bool(remedy)
            raise CmdpkitError(self._line(only) + rest)
        named = len(self.kinds.keys() - {""})
        kinds = "" if not named else " of one kind" if named == 1 else f" of {named} kinds"
        lines = [f"{self.where} has {count:,} mistakes{kinds}:"]
        for kind, found in sorted(self.kinds.items(), key=lambda item: -len(item[1])):
            most, indent = (MAX_OF_A_KIND, "  ") if kind else (MAX_MISTAKES, "")
            lines += [f"{len(found):,} x {kind} ({found[0].advice}):"] * bool(kind)
            lines += [indent + self._line(x) for x in found[:most]]
            lines += [f"{indent}... and {len(found) - most:,} more"] * (len(found) > most)
        raise CmdpkitError("\n".join([*lines, remedy] if remedy else lines))

    def _line(self, mistake: Mistake) -> str:
        return mistake.told if mistake.row is None else f"{self.place(mistake.row)}: {mistake.told}"


class LocatedTable(dict[str, Any]):
    """A table of a file, with the line where it begins and the lines of its keys, as far as they are known."""

    def __init__(
        self, content: Any = (), line: int | None = None, lines: Mapping[str, int | None] | None = None
    ) -> None:
        super().__init__(content)
        self.line = line
        self.lines = dict(lines or {})


class Located:
    """One value of a document, where it stands, and its checked forms: what every reader of text begins with."""

    __slots__ = ("_key", "_what", "line", "source", "value")

    def __init__(
        self, source: Path | str, what: str, value: Any, line: int | None = None, *, key: str | None = None
    ) -> None:
        self.source = source  # the file, or what else messages begin with
        self._what, self._key = what, key
        self.value = value
        # The line of the value itself, or else of the table that holds it.
        self.line = (value.line if isinstance(value, LocatedTable) else None) or line

    @property
    def name(self) -> str:
        """What messages call the value."""
        if self._key is None:
            return self._what
        return f"{self._what}: {quoted(self._key)}" if self._what else self._key

    def fail(self, message: str, key: str | None = None) -> NoReturn:
        """Raise CmdpkitError("file:line: name: message"), with the line of a ``key`` of this table if one is given."""
        line = self.line if key is None else self._line_of(key)
        name = f"{self.name}: " if self.name else ""
        raise CmdpkitError(f"{_place(self.source, line)}: {name}{message}")

    def expect(self, true: bool, rule: str) -> None:
        """Raise CmdpkitError("file:line: name is value, expected rule") unless something is true."""
        if not true:
            place = _place(self.source, self.line)
            raise CmdpkitError(f"{place}: {self.name} is {quoted(self.value)}, expected {rule}")

    @contextmanager
    def locating(self, key: str | None = None) -> Iterator[None]:
        """Add the place to a ValueError that is raised in the block."""
        try:
            yield
        except ValueError as error:
            self.fail(str(error), key)

    # -- tables and lists

    def table(self) -> Located:
        """The same place with its table, which knows its lines."""
        if isinstance(self.value, LocatedTable):
            return self
        if not isinstance(self.value, Mapping):
            self.fail(f"expected a table, got {quoted(self.value)}")
        return Located(self.source, self.name, LocatedTable(self.value, self.line))

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def at(self, key: str) -> Located:
        """The value under a key of this table."""
        return Located(self.source, self.name, self.value[key], self._line_of(key), key=key)

    def _line_of(self, key: str) -> int | None:
        line: int | None = getattr(self.value, "lines", {}).get(key)
        return line or self.line

    def inner(self, key: str) -> Located:
        """The table under a key, which must not be empty."""
        found = self.at(key)
        found.expect(isinstance(found.value, Mapping) and bool(found.value), "a table that is not empty")
        return Located(self.source, f"{self.name}: {key}", found.value, found.line).table()

    def only(self, required: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Refuse missing and unknown keys."""
        for key in self.value:
            if key not in required and key not in optional:
                self.fail(f"unknown key {quoted(key)}{nearest(key, (*required, *optional))}", key)
        for key in required:
            if key not in self.value:
                head = str(self.source).lower().endswith(".csv") and self.name in ("model", "head", "policy")
                self.fail(f"{quoted(key)} is missing{f'; add a line # {key} = ... above the columns' * head}")

    def entries(self, rule: str = "a list with at least 1 item") -> list[Located]:
        """The values of this list, which must not be empty."""
        value = self.value
        self.expect(isinstance(value, Iterable) and not isinstance(value, (str, Mapping)), rule)
        found = [Located(self.source, f"{self.name}[{i}]", x, self.line) for i, x in enumerate(value)]
        self.expect(bool(found), rule)
        return found

    def list_of(self, kind: type, what: str) -> list[Any]:
        """A list of texts, tables, ..."""
        fits = isinstance(self.value, list) and all(isinstance(x, kind) for x in self.value)
        self.expect(fits, f"a list of {what}")
        found: list[Any] = self.value
        return found

    # -- single values

    def number(self) -> float:
        """A finite number."""
        value = self.value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
            return float(value)
        grouped = isinstance(value, str) and "." in value and "," in value
        self.expect(False, f"a finite number{', without separators between thousands' * grouped}")
        raise AssertionError

    def reward(self) -> float:
        """A finite number, or -inf, by which people mean that the action is not allowed."""
        return -math.inf if self.value == -math.inf else self.number()

    def whole(self, low: int = 1, high: int | None = None) -> int:
        """A whole number from low to high."""
        limits = f"at least {low}" if high is None else f"from {low} to {high:,}"
        fits = is_int(self.value) and self.value >= low and (high is None or self.value <= high)
        self.expect(fits, f"a whole number, {limits}")
        return int(self.value)

    def flag(self) -> bool:
        """True or false."""
        self.expect(isinstance(self.value, bool), "true or false")
        return bool(self.value)

    def text(self) -> str:
        """A string."""
        self.expect(isinstance(self.value, str), "text")
        return str(self.value)

    def position(self, known: Positions, name: Name, key: str | None = None) -> int:
        """The position of a name, or an error that suggests the most similar one."""
        try:
            return known(name)
        except CmdpkitError as error:
            self.fail(str(error), key)

    def name_of(self) -> Name:
        """A name: text or a whole number."""
        self.expect(is_name(self.value), "a name")
        found: Name = self.value
        return found

    def names(self) -> Sequence[Name]:
        """A list of different names, or a number n for the default names 1..n."""
        value = self.value
        if is_int(value):
            return range(1, self.whole(1, MAX_NAMES) + 1)
        self.expect(isinstance(value, list) and bool(value), "a list of names or how many there are")
        for i, x in enumerate(value, 1):
            if not is_name(x):
                self.fail(f"entry {i} is {quoted(x)}, expected a name")
        with self.locating():
            return names_of(str(self._key), value, len(value))

    def probabilities(self) -> dict[str, float]:
        """The whole table, checked to consist of numbers that are at least 0."""
        for key in self.value:
            p = self.at(key)
            if p.number() < 0:
                self.fail(f"{quoted(key)} has probability {quoted(p.value)}, expected at least 0", key)
        return {key: float(p) for key, p in self.value.items()}


def _place(source: Path | str, line: int | None) -> str:
    return f"{source}:{line}" if line else str(source)


def is_name(value: Any) -> bool:
    """Whether a value of a file can be a name."""
    return bool(value.strip()) if isinstance(value, str) else is_int(value)
