"""Parts of Markdown tables: escaped names, and lines of cells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cmdpkit.errors import printable, shown


def escaped(name: object) -> str:
    r"""A name on one line, with the middle left out if it is long, and with all Markdown characters escaped.

    >>> print(escaped("a|b\n<i>"))
    a\|b \<i\>
    """
    return literal(shown(" ".join(str(name).split())))


def literal(text: str) -> str:
    """A text of any length on one line, with all Markdown characters escaped."""
    return re.sub(r"([\\`*_<>\[\]|&~])", r"\\\1", printable(text).replace("\n", "\\n"))


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"
