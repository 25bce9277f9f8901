"""Markdown tables: names that Markdown does not interpret, and lines of cells."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cmdpkit.errors import shown


def escaped(name: object) -> str:
    r"""A name on one line in which Markdown sees nothing special.

    >>> print(escaped("a|b\n<i>"))
    a\|b \<i\>
    """
    return re.sub(r"([\\`*_<>\[\]|&~])", r"\\\1", shown(" ".join(str(name).split())))


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"
