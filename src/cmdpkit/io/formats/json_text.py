"""JSON with line numbers when read, and written for people: one line for each entry of a list."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator, Mapping
from json import decoder, scanner
from pathlib import Path
from typing import Any

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.decimals import Written
from cmdpkit.io.formats.source import Table


def parse(path: Path, text: str) -> Table:
    """The document, in which every object is a `Table` that knows its line and every fraction is a `Written` number.

    A key that is given twice is refused.
    """
    try:
        document = _Decoder(text).decode(text)
    except json.JSONDecodeError as error:
        raise CmdpkitError(f"{path}:{error.lineno}: not valid JSON: {error.msg} (column {error.colno})") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number of thousands of digits
        raise CmdpkitError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, Table):
        raise CmdpkitError(f"{path}:1: expected a JSON object, got a {type(document).__name__}")
    return document


class _Decoder(json.JSONDecoder):
    """A decoder that records the line of each object, which only the scanner written in Python makes possible."""

    def __init__(self, text: str) -> None:
        super().__init__(object_pairs_hook=lambda pairs: pairs, parse_float=Written)
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.parse_object = self._object
        self.scan_once = scanner.py_make_scanner(self)  # type: ignore[attr-defined]

    def _object(self, text_and_start: tuple[str, int], *rest: Any) -> tuple[Table, int]:
        line = bisect.bisect_left(self.newlines, text_and_start[1]) + 1
        pairs, end = decoder.JSONObject(text_and_start, *rest)  # type: ignore[attr-defined]
        table = Table(pairs, line)
        if len(table) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise json.JSONDecodeError(f"key {quoted(twice)} is given twice", *text_and_start)
        return table, end


def dump(tables: Mapping[str, Any]) -> str:
    """An object with one line per key, and one line per entry where a value is a list of objects."""
    return "".join(pieces(tables))


def pieces(tables: Mapping[str, Any]) -> Iterator[str]:
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
