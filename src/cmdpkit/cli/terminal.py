"""How commands speak to the user: results on stdout, errors on stderr, and a sign that something is under way."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from cmdpkit.errors import IN_SHELL, INTERRUPTED, CmdpkitError, InputWarning, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

    from cmdpkit.results.tables import Table

PLAIN_WIDTH = 100  # columns of text where stdout is no terminal


class Verbs(TyperGroup):
    """The commands; an error in one of them is reported in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error that the user can mend becomes a message and an exit code."""
        in_shell = IN_SHELL.set(True)
        try:
            with _warnings_as_notes():
                return super().invoke(ctx)
        except BrokenPipeError:  # the program that reads our output has closed it: typer ends quietly
            raise
        except KeyboardInterrupt as stop:
            typer.echo(": ".join(["interrupted", *map(str, stop.args)]), err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (CmdpkitError, OSError, MemoryError) as error:
            said = str(error) or "there is not enough memory for this; ask for less, or for a smaller model"
            typer.echo(f"error: {printable(said)}", err=True)
            for note in getattr(error, "__notes__", ()):
                typer.echo(f"note: {printable(note)}", err=True)
            raise typer.Exit(getattr(error, "exit_code", 1)) from None
        finally:
            IN_SHELL.reset(in_shell)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Say what was corrected in the input in a line on stderr, once for each file, instead of as a Python warning."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if not issubclass(category, InputWarning):
            usual(message, category, *rest, **more)
        elif str(message) not in said:
            said.add(str(message))
            typer.echo(f"note: {printable(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        usual, warnings.showwarning = warnings.showwarning, show
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, for work that has something to keep.

    Scripts of a shell start background commands deaf to Ctrl-C. Such work listens all the same, so that ``kill -INT``
    always works.
    """
    before = signal.getsignal(signal.SIGINT)
    listens = threading.current_thread() is threading.main_thread()
    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if listens:
            signal.signal(signal.SIGINT, before)


@contextmanager
def resumable(folder: Path | None) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, so that runs save themselves; then say what is kept and how to go on."""
    try:
        with interruptible():
            yield
    except KeyboardInterrupt:
        kept = "nothing is kept, as no folder was given with --out"
        if folder is not None:
            kept = f"what is done is kept in {folder}. Continue with\n  {shlex.join(['cmdpkit', *sys.argv[1:]])}"
        typer.echo(f"interrupted: {kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None


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
    from cmdpkit.results.showing import json_text

    typer.echo(json_text(answer))


def say_tables(tables: Sequence[Table[Any]], form: str) -> None:
    """Print tables in a form for papers: "markdown" or "latex"."""
    from cmdpkit.results.tables import joined

    typer.echo(joined(tables, form), nl=False)


def busy(what: str) -> Status:
    """A moving sign on stderr while something runs; nothing where stderr is no terminal."""
    from rich.console import Console

    return Console(stderr=True, force_terminal=None if sys.stderr.isatty() else False).status(what)
