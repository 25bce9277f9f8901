"""The package's docstrings as Sphinx wants them.

A line ``name : what it is`` under a heading "Parameters" becomes a parameter. A field with its comment beside it in the
source, ``gap: float  # proved: ...``, becomes a parameter with that comment. autodoc adds the types.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from sphinx.application import Sphinx


def parameters(lines: list[str]) -> list[str]:
    """The docstring with its sections "Parameters" and "Returns" as fields, ``:param name: what it is``.

    >>> lines = ["Parameters", "---", "a, b : two numbers", "", "Returns", "---", "Their sum,", "exactly."]
    >>> parameters(lines)
    [':param a: two numbers', ':param b: see ``a``', '', ':returns: Their sum,', '    exactly.']
    """
    shown: list[str] = []
    waiting: list[str] = []  # the other names of the parameter at hand, which follow its text
    section = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        starts = bool(section) and " : " in line and not line.startswith(" ")
        if starts or not line.strip():
            shown += waiting
            waiting = []
        if line in ("Parameters", "Returns") and after.startswith("---"):
            section = line
        elif not line.strip():
            section = ""
            shown.append(line)
        elif section == "Returns" and not line.startswith("---"):
            shown.append(f"    {line}" if shown[-1].startswith((":returns:", "    ")) else f":returns: {line}")
        elif starts:
            names, _, text = line.partition(" : ")
            first, *others = names.split(", ")
            shown.append(f":param {first}: {text}")
            waiting = [f":param {name}: see ``{first}``" for name in others]
        elif not section or not line.startswith("---"):
            shown.append(line)
    return shown + waiting


def fields(cls: type) -> list[str]:
    """``:param`` lines for the annotated fields of a class body, with the comments that stand beside them."""
    source = textwrap.dedent(inspect.getsource(cls))
    comments = [line.partition("  # ")[2] for line in source.splitlines()]
    found = []
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = comments[(node.end_lineno or 1) - 1].replace("*", r"\*")
            found.append(f":param {node.target.id}: {comment}")
    return found


def bars(line: str) -> str:
    r"""The line with its bars as plain signs: P(s'|s,a) is a formula, and Sphinx would look for a substitution.

    >>> bars("|x| and ``|y|``")
    '\\|x\\| and ``|y|``'
    """
    parts = re.split(r"(``.*?``|`.*?`)", line)
    return "".join(part if k % 2 else part.replace("|", r"\|") for k, part in enumerate(parts))


def _process(_app: Sphinx, what: str, _name: str, obj: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else bars(line) for line in parameters(lines)]
    if what == "class" and (hasattr(obj, "_fields") or hasattr(obj, "__dataclass_fields__")):
        lines += ["", *fields(obj), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
