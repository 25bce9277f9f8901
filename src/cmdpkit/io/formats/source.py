"""TOML and JSON: read as tables that know their lines, so that an error names the place and the rule, and written.

Numbers are written exactly. `Located` is a value of a document with its place, and `Mistakes` collects what is wrong,
so that a user sees all of it at once.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from cmdpkit.errors import CmdpkitError, printable, quoted
from cmdpkit.model.validate import Name, Positions, is_int, names_of, nearest

MAX_MISTAKES = 20  # mistakes without a kind that one message lists
MAX_OF_A_KIND = 3  # mistakes of one kind that are shown in full
MAX_NAMES = 10_000_000  # a larger number of names is taken for a mistake
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = r"""\s*(?:"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))\s*"""
_HEADER = re.compile(rf"\s*(?P<open>\[\[?){_KEY}\]")
_ASSIGNMENT = re.compile(rf"{_KEY}=")
_PART = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[A-Za-z0-9_-]++)"""
# A dotted key with more parts than any document of ours has. Python's parser takes time in the square of their number.
MAX_KEY_PARTS = 50
_LONG_KEY = re.compile(rf"(?m)(?:^|[{{,])[ \t]*+\[*+[ \t]*+({_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_KEY_PARTS}}})")

# -- numbers that know with how many decimals they were written, to tell rounding from mistakes ------------------------


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


# -- reading files -----------------------------------------------------------------------------------------------------


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


# -- mistakes, and values with their places ----------------------------------------------------------------------------


class Mistakes:
    """The mistakes in a file or a table by their kind, collected so that a user sees all of them at once."""

    def __init__(self, where: Path | str, place: Callable[[int], str] = str) -> None:
        self.where, self.place = where, place
        self.kinds: dict[str, list[str]] = {}  # the messages of every kind
        self.advice: dict[str, str] = {}  # the next step for the user, by kind
        self.rows: set[int] = set()  # the rows with mistakes

    def add(self, kind: str, row: int | None, told: str, advice: str = "") -> None:
        """Keep a mistake for later, with the place of its row; those without a kind are listed one by one."""
        if row is not None:
            self.rows.add(row)
            told = f"{self.place(row)}: {told}"
        self.kinds.setdefault(kind, []).append(told)
        self.advice.setdefault(kind, advice)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an error of this block for later."""
        try:
            yield
        except CmdpkitError as error:
            self.add("", None, str(error))

    def check(self, remedy: str = "") -> None:
        """Raise one error with all mistakes, if there are any; ``remedy`` says what would mend all of them."""
        count = sum(map(len, self.kinds.values()))
        if not count:
            return
        if count == 1:
            ((kind, (only,)),) = self.kinds.items()
            advice = f"; {self.advice[kind]}" * bool(self.advice[kind])
            raise CmdpkitError(only + advice + f". {remedy}" * bool(remedy))
        named = len(self.kinds.keys() - {""})
        kinds = "" if not named else " of one kind" if named == 1 else f" of {named} kinds"
        lines = [f"{self.where} has {count:,} mistakes{kinds}:"]
        for kind, found in sorted(self.kinds.items(), key=lambda item: -len(item[1])):
            most, indent = (MAX_OF_A_KIND, "  ") if kind else (MAX_MISTAKES, "")
            lines += [f"{len(found):,} x {kind} ({self.advice[kind]}):"] * bool(kind)
            lines += [indent + told for told in found[:most]]
            lines += [f"{indent}... and {len(found) - most:,} more"] * (len(found) > most)
        raise CmdpkitError("\n".join([*lines, remedy] if remedy else lines))


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
        self.expect(False, "a finite number")
        raise AssertionError

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
        with self.locating(key):
            return known(name)

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


# -- TOML --------------------------------------------------------------------------------------------------------------


def parse_toml(path: Path, text: str, number: Callable[[str], float] = float) -> LocatedTable:
    """The document, whose top-level tables know their lines; ``number`` converts the text of a fraction."""
    if long := _LONG_KEY.search(text):
        line = text.count("\n", 0, long.start()) + 1
        raise CmdpkitError(f"{path}:{line}: a dotted key has more than {MAX_KEY_PARTS} parts: {quoted(long[1], 60)}")
    try:
        document = tomllib.loads(text, parse_float=number)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        line = int(at[2]) if at else text.count("\n") + 1
        said = f"{at[1]} (column {at[3]})" if at else str(error)
        raise CmdpkitError(f"{path}:{line}: not valid TOML: {said}") from None
    except (RecursionError, ValueError) as error:
        raise CmdpkitError(f"{path}: not valid TOML: {error}") from None
    return _located(document, text)


def _located(document: dict[str, Any], text: str) -> LocatedTable:
    """The document with the lines of its ``[name]`` and ``[[name]]`` headers and keys; other tables have no line."""
    found: dict[str, list[LocatedTable]] = {}
    top = LocatedTable(document, 1)
    current = top
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            current = LocatedTable((), number)
            found.setdefault(_key(header), []).append(current)
        elif assignment := _ASSIGNMENT.match(line):
            current.lines.setdefault(_key(assignment), number)
    for name, places in found.items():
        content = document.get(name)
        if isinstance(content, list) and len(content) == len(places):
            top[name] = [LocatedTable(x, p.line, p.lines) for x, p in zip(content, places, strict=True)]
        elif isinstance(content, dict) and len(places) == 1:
            top[name] = LocatedTable(content, places[0].line, places[0].lines)
        top.lines.setdefault(name, places[0].line or 1)
    return top


def _key(match: re.Match[str]) -> str:
    return next(x for x in (match["double"], match["single"], match["bare"]) if x is not None)


def dump_toml(tables: Mapping[str, Any]) -> str:
    """Tables and lists of tables, each under its header, one key per line."""
    parts = []
    for name, content in tables.items():
        header = f"[[{name}]]" if isinstance(content, list) else f"[{name}]"
        for table in content if isinstance(content, list) else [content]:
            parts.append("\n".join([header, *(f"{toml_key(k)} = {toml_value(x)}" for k, x in table.items())]))
    return "\n\n".join(parts) + "\n"


def toml_key(name: str) -> str:
    """A key, quoted if TOML requires it."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def toml_value(x: Any) -> str:
    """A text, number, truth value, list or table on one line; floats with as many digits as they need."""
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, str):
        return json.dumps(x, ensure_ascii=False).replace("\x7f", "\\u007f")  # what JSON escapes, and one more
    if isinstance(x, Mapping):
        return "{" + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in x.items()) + "}"
    if isinstance(x, list):
        return "[" + ", ".join(toml_value(v) for v in x) + "]"
    return repr(x)


# -- JSON, written for people: one line for each entry of a list -------------------------------------------------------


def parse_json(path: Path, text: str) -> LocatedTable:
    """The document, with fractions as `Written`; no key may be given twice. Its tables do not know their lines."""
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_float=Written)
    except json.JSONDecodeError as error:
        raise CmdpkitError(f"{path}:{error.lineno}: not valid JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number of thousands of digits, a key twice
        raise CmdpkitError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, LocatedTable):
        raise CmdpkitError(f"{path}: expected a JSON object, got a {type(document).__name__}")
    return document


def _object(pairs: list[tuple[str, Any]]) -> LocatedTable:
    table = LocatedTable(pairs)
    if len(table) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {quoted(twice)} is given twice")
    return table


def dump_json(tables: Mapping[str, Any]) -> str:
    """An object with one line per key, and one line per entry where a value is a list of objects."""
    return "".join(json_pieces(tables))


def json_pieces(tables: Mapping[str, Any]) -> Iterator[str]:
    """The same text bit by bit; a value may also be an iterator of objects, of which there is at least one."""
    before = "{\n"
    for name, content in tables.items():
        yield f"{before}  {_line(name)}: "
        before = ",\n"
        if isinstance(content, Iterator) or (isinstance(content, list) and content and isinstance(content[0], dict)):
            for i, x in enumerate(content):
                yield f"{',' if i else '['}\n    {_line(x)}"
            yield "\n  ]"
        else:
            yield _line(content)
    yield "\n}\n"


def _line(x: Any) -> str:
    return json.dumps(x, ensure_ascii=False, allow_nan=False)
