"""What later rooms do for the objects of earlier ones: print them, draw them, act in them, read them from a file.

A room imports only rooms before it. So methods such as ``__str__`` and ``plot`` call a `Task`, which is declared here
and chooses a function by the type of its first argument. The room that does the work registers its functions with the
task, and the ``__init__`` of the package says which module has to be imported for that.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cmdpkit.errors import CmdpkitError, quoted

if TYPE_CHECKING:
    import gymnasium
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from cmdpkit.model.policy import Policy

T = TypeVar("T")

WIDTH = 100  # characters of a line where there is no terminal
LEAST_WIDTH = 40  # characters of a line, whatever the variable COLUMNS says
PAGE = '<pre style="white-space:pre; overflow-x:auto; line-height:1.25; font-family:monospace">{code}</pre>'


class Task(Generic[T]):
    """A function of objects of many types, which a later room provides.

    >>> double: Task[int] = Task("double")
    >>> double.register(int, lambda x: 2 * x)
    >>> double(4)
    8
    """

    def __init__(self, name: str) -> None:
        def unknown(thing: object, *_args: Any, **_options: Any) -> Any:
            raise TypeError(f"nothing is registered to {name} an object of type {type(thing).__name__}")

        self.module = ""  # imported before the first call: it registers the functions
        self._by_type = singledispatch(unknown)

    def register(self, kind: type, function: Callable[..., T]) -> None:
        """Use this function for objects of a type and of the types derived from it."""
        self._by_type.register(kind, function)

    def __call__(self, thing: object, *args: Any, **options: Any) -> T:
        """Do it."""
        if self.module:
            importlib.import_module(self.module)
        done: T = self._by_type(thing, *args, **options)
        return done


render: Task[RenderableType] = Task("print")
draw: Task[Figure] = Task("draw")
to_gym: Task[gymnasium.Env[Any, Any]] = Task("make a Gymnasium environment of")
read_policy: Task[Policy] = Task("read a policy from")


def line_width() -> int:
    """Columns of a line: the variable COLUMNS, or the width of the terminal, or 100 where there is none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return max(int(given), LEAST_WIDTH)
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout is not None and sys.stdout.isatty() else WIDTH


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


class Shown:
    """An object whose text, and whose picture in a notebook, are what the command line shows of it."""

    def __str__(self) -> str:
        """Plain text without colours, as wide as the terminal."""
        from rich.console import Console

        console = Console(width=line_width(), file=io.StringIO(), color_system=None)
        with console.capture() as captured:
            console.print(render(self))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _repr_html_(self) -> str:
        """A piece of HTML for notebooks; whatever comes from the user is escaped."""
        from rich.console import Console

        console = Console(width=WIDTH, file=io.StringIO(), record=True, force_jupyter=False)
        console.print(render(self))
        return console.export_html(inline_styles=True, code_format=PAGE)
