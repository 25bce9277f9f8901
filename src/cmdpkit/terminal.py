"""Talking to the person, or the program, at the other end: results to stdout, errors to stderr, signs of life."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

PLAIN_WIDTH = 100  # columns where stdout is no terminal


class Verbs(TyperGroup):
    """The verbs, with what went wrong in them said in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; a ValueError or OSError becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough: typer ends quietly
            raise
        except (ValueError, OSError, MemoryError) as error:
            typer.echo(f"error: {error}", err=True)
            solver = sys.modules.get("cmdpkit.solver")  # not loaded means that nothing was solved
            raise typer.Exit(3 if solver and isinstance(error, solver.Infeasible) else 1) from None


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
    from cmdpkit.answers import text

    typer.echo(text(answer))


def busy(what: str) -> Status:
    """A sign of life on stderr while something runs; nothing where stderr is no terminal."""
    from rich.console import Console

    return Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False).status(what)
