"""The package's docstrings as Sphinx wants them.

A line ``name : what it is`` under a heading "Parameters" becomes a parameter. A field with its comment beside it in the
source, ``gap: float  # proved: ...``, becomes an attribute with that comment.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from sphinx.application import Sphinx


def parameters(lines: list[str]) -> list[str]:
    """The docstring with its section "Parameters" as a field list, ``:param name: what it is``."""
    head = next((i for i in range(len(lines) - 1) if lines[i] == "Parameters" and lines[i + 1].startswith("---")), None)
    if head is None:
        return lines
    end = next((i for i in range(head, len(lines)) if not lines[i].strip()), len(lines))
    fields = []
    for line in lines[head + 2 : end]:
        name, colon, text = line.partition(" : ")
        fields.append(f":param {name.replace(', ', ',')}: {text}" if colon and not line.startswith(" ") else line)
    return [*lines[:head], *fields, *lines[end:]]


def fields(cls: type) -> list[str]:
    """``:ivar`` lines for the annotated fields of a class body, with the comments that stand beside them."""
    source = textwrap.dedent(inspect.getsource(cls))
    comments = [line.partition("  # ")[2] for line in source.splitlines()]
    found = []
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = comments[(node.end_lineno or 1) - 1].replace("*", r"\*")
            name, kind = node.target.id, ast.unparse(node.annotation)
            found += [f":ivar {name}: {comment}", f":vartype {name}: {kind}"]
    return found


def _process(_app: Sphinx, what: str, _name: str, obj: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = parameters(lines)
    if what == "class" and (hasattr(obj, "_fields") or hasattr(obj, "__dataclass_fields__")):
        lines += ["", *fields(obj), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
