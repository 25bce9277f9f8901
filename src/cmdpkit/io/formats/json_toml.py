"""TOML with line numbers when read, JSON, and both written with every number exact."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.source import LocatedTable, Written

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = r"""\s*(?:"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|(?P<bare>[A-Za-z0-9_-]+))\s*"""
_HEADER = re.compile(rf"\s*(?P<open>\[\[?){_KEY}\]")
_ASSIGNMENT = re.compile(rf"{_KEY}=")
_PART = r"""(?:"[^"\n]*+"|'[^'\n]*+'|[A-Za-z0-9_-]++)"""
# A dotted key with more parts than any document of ours has. Python's parser takes time in the square of their number.
MAX_KEY_PARTS = 50
_LONG_KEY = re.compile(rf"(?m)(?:^|[{{,])[ \t]*+\[*+[ \t]*+({_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_KEY_PARTS}}})")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


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
        return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(c)) for c in x) + '"'
    if isinstance(x, Mapping):
        return "{" + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in x.items()) + "}"
    if isinstance(x, list):
        return "[" + ", ".join(toml_value(v) for v in x) + "]"
    return repr(x)


def _escape(c: str) -> str:
    surrogate = "\ud800" <= c <= "\udfff"  # half a character, which the encoder will refuse
    return c if surrogate else f"\\U{ord(c):08x}" if ord(c) > 0xFFFF else f"\\u{ord(c):04x}"


# -- JSON, written for people: one line for each entry of a list.


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
