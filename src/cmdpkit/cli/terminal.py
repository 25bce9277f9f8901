"""Talking to the person, or the program, at the other end: results to stdout, errors to stderr, signs of life."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from cmdpkit.errors import CmdpkitError, RoundingWarning, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

PLAIN_WIDTH = 100  # columns where stdout is no terminal


class Verbs(TyperGroup):
    """The verbs, with what went wrong in them said in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; an error that the user can mend becomes a message and an exit code."""
        try:
            with _warnings_as_notes():
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough: typer ends quietly
            raise
        except (CmdpkitError, OSError, MemoryError) as error:
            typer.echo(f"error: {printable(str(error))}", err=True)
            raise typer.Exit(getattr(error, "exit_code", 1)) from None


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Say what was corrected in the input in a line on stderr, once for each file, instead of as a Python warning."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, RoundingWarning):
            usual(message, category, *rest, **more)
        elif str(message) not in said:
            said.add(str(message))
            typer.echo(f"note: {printable(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", RoundingWarning)
        usual, warnings.showwarning = warnings.showwarning, show
        yield


def console() -> Console:
    """Standard output: a terminal in its own width, anything else as plain text."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    return Console(highlight=False, markup=False, emoji=False, width=PLAIN_WIDTH, force_terminal=False)


def say(renderable: RenderableType) -> None:
    """Print a result, without the blanks that fill its lines."""
    out = console()
    with out.capture() as captured:
        out.print(renderable)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def say_json(answer: Any) -> None:
    """Print a result as JSON."""
    from cmdpkit.results.plain import text

    typer.echo(text(answer))


def busy(what: str) -> Status:
    """A sign of life on stderr while something runs; nothing where stderr is no terminal."""
    from rich.console import Console

    return Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False).status(what)
