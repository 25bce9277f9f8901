"""Talking to the person, or the program, at the other end: results to stdout, errors to stderr, signs of life."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from cmdpkit.errors import INTERRUPTED, CmdpkitError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

PLAIN_WIDTH = 100  # columns where stdout is no terminal


class Verbs(TyperGroup):
    """The verbs, with what went wrong in them said in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; an error that the user can mend becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough: typer ends quietly
            raise
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (CmdpkitError, OSError, MemoryError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(getattr(error, "exit_code", 1)) from None


@contextmanager
def resumable(folder: Path | None) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, so that runs save themselves; then say what is kept and how to go on.

    Scripts of a shell start background commands deaf to Ctrl-C. Runs that save themselves listen all the same, so that
    ``kill -INT`` always works.
    """
    before = signal.getsignal(signal.SIGINT)
    listens = threading.current_thread() is threading.main_thread()
    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        kept = "nothing is kept, as no folder was given with --out"
        if folder is not None:
            kept = f"what is done is kept in {folder}. Continue with\n  {shlex.join(['cmdpkit', *sys.argv[1:]])}"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if listens:
            signal.signal(signal.SIGINT, before)


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
