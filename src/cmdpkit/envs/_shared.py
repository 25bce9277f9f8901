"""What environments share: checks of their parameters, and boards to move on.

A check returns the value, or raises a CmdpkitError that says what was expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import Grid

Number = (int, float, np.integer, np.floating)
MOVES = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}  # by rows and columns
ARROWS = "↑→↓←"  # the same in a picture


def whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """A whole number from low to high."""
    top = math.inf if high is None else high
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and low <= value <= top:
        return int(value)
    limits = f"at least {low}" if high is None else f"from {low} to {high}"
    raise CmdpkitError(f"{name} is {quoted(value)}, expected a whole number {limits}")


def real(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number from low to high, both included."""
    if isinstance(value, Number) and not isinstance(value, bool) and math.isfinite(value) and low <= value <= high:
        return float(value)
    if math.isinf(low):
        raise CmdpkitError(f"{name} is {quoted(value)}, expected a finite number")
    limits = f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
    raise CmdpkitError(f"{name} is {quoted(value)}, expected a number {limits}")


def flag(name: str, value: object) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    raise CmdpkitError(f"{name} is {quoted(value)}, expected true or false")


def choice(name: str, value: object, options: tuple[str, ...]) -> str:
    """One of the options."""
    if isinstance(value, str) and value in options:
        return value
    raise CmdpkitError(f"{name} is {quoted(value)}, expected one of {', '.join(options)}")


def board_of(lines: Sequence[str], arrows: Sequence[str]) -> tuple[list[str], Grid]:
    """Names r1c1, r1c2, ... of the cells of a board, and how to draw it; every letter but the dot is a mark."""
    cells = [(i, j) for i, line in enumerate(lines) for j in range(len(line))]
    marks = {s: lines[i][j] for s, (i, j) in enumerate(cells) if lines[i][j] != "."}
    names = [f"r{i + 1}c{j + 1}" for i, j in cells]
    return names, Grid(len(lines), len(lines[0]), cells=tuple(cells), marks=marks, arrows=tuple(arrows))
