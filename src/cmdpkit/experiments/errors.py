"""What is wrong with an experiment: one line per mistake, with the file, its line if known, the key and the rule."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from cmdpkit.io.formats.source import Table

Place = tuple[int | str, ...]


def explained(error: ValidationError, kind: type[BaseModel], source: str, document: Mapping[str, Any]) -> str:
    """All mistakes that a validation found, in the order of the document."""
    lines = []
    for found in error.errors(include_url=False):
        place = found["loc"]
        line = _line(document, place)
        where = source if line is None else f"{source}:{line}"
        lines.append(f"{where}: {_said(dict(found), place, kind)}")
    return "\n".join(dict.fromkeys(lines))


def _said(found: dict[str, Any], place: Place, kind: type[BaseModel]) -> str:
    path = _path(place)
    if found["type"] == "extra_forbidden":
        known = _keys(kind, place[:-1])
        near = difflib.get_close_matches(str(place[-1]), known, 1)
        return f"{path}: unknown key; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}")
    if found["type"] == "missing":
        return f"{path} is missing"
    message = str(found["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should be", "expected").replace("List should have", "expected")
    if found["type"] == "value_error":
        return path + (" " if message.startswith("is ") else ": ") + message if path else message
    return f"{path} is {found['input']!r}, {message}"


def _path(place: Place) -> str:
    """The place of a key as text, such as algorithms[1].params.eta."""
    return "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in place).removeprefix(".")


def _keys(kind: type[BaseModel], place: Place) -> list[str]:
    """The keys of the table at a place."""
    for part in place:
        if isinstance(part, str):
            annotation = kind.model_fields[part].annotation
            inner = [x for x in getattr(annotation, "__args__", ()) if isinstance(x, type) and issubclass(x, BaseModel)]
            kind = inner[0] if inner else kind
    return [name for name in kind.model_fields if name != "folder"]


def _line(document: Mapping[str, Any], place: Place) -> int | None:
    """The line of the innermost key on the way to a place, as far as lines are known."""
    node: Any = document
    line = None
    for part in place:
        if isinstance(node, Table):
            line = node.lines.get(str(part)) or (line if node is document else node.line) or line
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            break
    return line
