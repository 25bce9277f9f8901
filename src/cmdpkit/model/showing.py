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
from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
