"""Markdown tables: names that Markdown does not interpret, and lines of cells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cmdpkit.errors import printable, shown


def escaped(name: object) -> str:
    r"""A name on one line, cut in the middle where it is long, in which Markdown sees nothing special.

    >>> print(escaped("a|b\n<i>"))
    a\|b \<i\>
    """
    return literal(shown(" ".join(str(name).split())))


def literal(text: str) -> str:
    """A text of any length, on one line, in which Markdown sees nothing special."""
    return re.sub(r"([\\`*_<>\[\]|&~])", r"\\\1", printable(text).replace("\n", "\\n"))


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"
