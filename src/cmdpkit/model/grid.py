"""How to draw a model whose states are cells of a board."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cmdpkit.errors import CmdpkitError, quoted


@dataclass(frozen=True)
class Grid:
    """How to draw a model whose states are cells of a board: used for pictures only, never for solving."""

    rows: int  # number of rows of the board
    columns: int  # number of columns
    cells: tuple[tuple[int, int], ...]  # (row, column) of every state
    marks: Mapping[int, str] = field(default_factory=dict)  # state index -> symbol, e.g. goal or obstacle
    arrows: tuple[str, ...] = ()  # symbol of every action

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple((int(row), int(column)) for row, column in self.cells))
        for s, (row, column) in enumerate(self.cells):
            if not (0 <= row < self.rows and 0 <= column < self.columns):
                raise CmdpkitError(
                    f"grid cell of state index {s} is {(row, column)}, outside {self.rows} x {self.columns}"
                )

    def check(self, S: int, A: int) -> None:
        """Raise CmdpkitError unless this draws a model of S states and A actions."""
        if len(self.cells) != S:
            raise CmdpkitError(f"grid has {len(self.cells)} cells, expected one per state: {S}")
        if len(self.arrows) not in (0, A):
            raise CmdpkitError(f"grid has {len(self.arrows)} arrows, expected one per action: {A}")
        for s in self.marks:
            if s not in range(S):
                raise CmdpkitError(f"grid marks state index {quoted(s)}, expected 0..{S - 1}")
