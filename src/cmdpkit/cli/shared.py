"""The application, the options that its verbs share, and how these speak to the user.

Results go to stdout, errors to stderr. Nothing heavy is imported, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer import Argument, BadParameter, Option
from typer.core import TyperGroup

from cmdpkit import __version__
from cmdpkit.errors import IN_SHELL, INTERRUPTED, CmdpkitError, InputWarning, printable
from cmdpkit.model.showing import line_width

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from cmdpkit.model.constraints import Constraint

T = TypeVar("T")
Command = TypeVar("Command", bound="Callable[..., Any]")


UsageError: Any = BadParameter.__base__  # which typer does not export


class Verbs(TyperGroup):
    """The commands; an error in one of them is reported in one sentence."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line, and report a wrong command like any other error."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except UsageError as error:
            help_is_asked_for = error.ctx is not None and error.format_message() == error.ctx.get_help()
            typer.echo(printable(f"{'' if help_is_asked_for else 'error: '}{error.format_message()}"), err=True)
            if error.ctx is not None and not help_is_asked_for:
                usage = " ".join(error.ctx.get_usage().split()).removeprefix("Usage: ")
                typer.echo(f"usage: {usage}; `{error.ctx.command_path} -h` explains it", err=True)
            code = error.exit_code
        sys.exit(code)

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


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


# Choices of options. Names of other rooms are written again here, because these are not imported for --help.
PolicyFormat = StrEnum("PolicyFormat", ["csv", "npz", "py", "json"])  # of policy files


def _environments(incomplete: str) -> list[str]:
    """The environments whose names begin like this, for the completion of a shell."""
    from cmdpkit import envs

    return [name for name in envs.names() if name.startswith(incomplete)]


Model = Annotated[
    str,
    Argument(
        metavar="MODEL",
        help="An environment, as name or name:parameter=value,..., a model file, or your own package.module:function.",
        autocompletion=_environments,
    ),
]
Json = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Discount = Annotated[float | None, Option(help="Judge by discounted totals instead; all bounds must be per step.")]
Average = Annotated[bool, Option("--average", help="Judge by long-run averages instead; all bounds must be per step.")]
Force = Annotated[bool, Option("--force", help="Replace a file that exists.")]
Bounds = Annotated[
    list[str] | None,
    Option("--bound", metavar="NAME=VALUE", help="Change a bound, in its unit; may be given several times."),
]


def examples(*lines: str) -> str:
    """The last lines of a verb's help: commands that can be typed as they are, each with its remark below it.

    >>> examples("bench study.toml     (killed? the same command continues)").splitlines()[2:]
    ['  cmdpkit bench study.toml', '      (killed? the same command continues)']
    """
    return "\b\nExamples:\n" + "\n".join(f"  cmdpkit {line}" for line in lines).replace("     (", "\n      (")


def verb(*lines: str, name: str | None = None) -> Callable[[Command], Command]:
    """A decorator that makes a function a command; ``lines`` are the examples at the end of its help."""
    return app.command(name, epilog=examples(*lines))


def pairs(given: list[str] | None, option: str, expected: str, split: Callable[[str], tuple[str, T]]) -> dict[str, T]:
    """Names and values of an option that may be given several times, but not twice for one name.

    ``split`` makes a name and a value of a text, and raises ValueError where the text is not as ``expected``.
    """
    found: dict[str, T] = {}
    for item in given or ():
        try:
            name, value = split(item)
        except ValueError:
            raise BadParameter(f"{item!r} is not {expected}", param_hint=option) from None
        if name in found:
            raise BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found


def bounds_of(given: list[str] | None) -> dict[str, float]:
    """``NAME=VALUE`` of every --bound."""

    def split(item: str) -> tuple[str, float]:
        name, _, value = item.rpartition("=")
        return name.strip(), float(value)

    return pairs(given, "--bound", "NAME=VALUE with a number as the value", split)


def share_of(given: str | None) -> float | None:
    """The share of --simple, ``1%`` or ``0.01``."""
    if given is None:
        return None
    text = given.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise BadParameter(f"{given!r} is not a share such as 1% or 0.01", param_hint="--simple")
    return share


def constraints_of(given: list[str] | None) -> tuple[Constraint, ...]:
    """The constraint of every --constraint, ``NAME<=BOUND`` or ``NAME>=BOUND``."""
    from cmdpkit.model.constraints import SENSES, Constraint

    found = []
    for item in given or ():
        match = re.fullmatch(r"(.+?)\s*(<=|>=|≤|≥)\s*(\S+)", item.strip())
        try:
            name, sign, bound = match.groups() if match else ("", "", "")
            number = float(bound)
        except ValueError:
            hint = "is not NAME<=BOUND or NAME>=BOUND with a number as the bound"
            raise BadParameter(f"{item!r} {hint}", param_hint="--constraint") from None
        found.append(Constraint(name, SENSES[sign], number))
    return tuple(found)


def _ends_in(suffixes: Sequence[str], listed: str) -> Callable[[Path | None], Path | None]:
    """A callback that refuses a file with any other suffix, before any work is done."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.suffix.lower() not in suffixes:
            raise BadParameter(f"{str(path)!r} must end in {listed}")
        return path

    return check


policy_file = _ends_in([f".{x}" for x in PolicyFormat], ", ".join(f".{x}" for x in PolicyFormat))
page_file = _ends_in((".html", ".htm"), ".html")
Plot = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        callback=_ends_in((".png", ".pdf", ".svg"), ".png, .pdf or .svg"),
        help="Draw a figure too (.png, .pdf or .svg).",
    ),
]


def all_ranks() -> Any:
    """The communicator of all ranks of mpiexec, after rank 0 has said which process each of them is."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise CmdpkitError(f"--ranks needs MPI ({error}): pip install 'cmdpkit[mpi]'") from None
    comm = MPI.COMM_WORLD
    places = comm.gather(f"process {os.getpid()} on {MPI.Get_processor_name()}")
    if comm.rank == 0:
        listed = ", ".join(f"{i} is {place}" for i, place in enumerate(places or ()))
        typer.echo(f"{comm.size} ranks: {listed}", err=True)
    return comm


def refuse_existing(path: Path | None, force: bool) -> None:
    """Refuse a file that exists already, before any work is done."""
    if path is not None and not force and path.exists():
        raise CmdpkitError(f"{path} exists already; --force replaces it")


SavePolicy = Annotated[
    Path | None, Option(metavar="FILE", callback=policy_file, help="Write the policy (.csv, .json, .npz or .py).")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cmdpkit {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "envs", "solve paper/grid", "tradeoff treatment spending", "learn paper/synthetic --algo cl-pri --episodes 1e6"
    )
)
def root(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Constrained Markov decision processes: solve them exactly, learn them online, see what every bound costs."""


# -- while a command runs, and what it prints --------------------------------------------------------------------------


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, for work that has something to keep.

    Shells start background jobs with SIGINT ignored; it is restored, so that ``kill -INT`` always works.
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
    """Standard output: a terminal, or anything else as plain text."""
    from rich.console import Console

    terminal = None if sys.stdout.isatty() else False
    return Console(highlight=False, markup=False, emoji=False, width=line_width(), force_terminal=terminal)


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


def answer(as_json: bool, data: Callable[[], Any], text: Callable[[], RenderableType]) -> None:
    """Print a result as JSON or as text, whichever was asked for."""
    if as_json:
        say_json(data())
    else:
        say(text())


def wrote(path: Path, as_json: bool) -> None:
    """Say which file was written."""
    if as_json:
        say_json({"wrote": str(path)})
    else:
        typer.echo(f"wrote {path}")
