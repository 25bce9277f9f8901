"""The application and the options its verbs share; nothing heavy is imported, so that ``--help`` answers at once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cmdpkit import __version__
from cmdpkit.cli.terminal import Verbs
from cmdpkit.errors import CmdpkitError

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Method(StrEnum):
    """`cmdpkit.exact.solver.METHODS`, which are not imported for --help."""

    auto = "auto"
    columns = "columns"
    lp = "lp"


class PolicyFormat(StrEnum):
    """The formats of policy files."""

    csv = "csv"
    npz = "npz"
    py = "py"
    md = "md"
    json = "json"


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="An environment, as name or name:parameter=value,..., or a model file.")
]
Discount = Annotated[
    float | None, typer.Option(help="Judge by discounted totals instead; all bounds must be per step.")
]
Average = Annotated[
    bool, typer.Option("--average", help="Judge by long-run averages instead; all bounds must be per step.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]


def examples(*lines: str) -> str:
    """The last lines of a verb's help."""
    return "\b\nExamples:\n" + "\n".join(f"  cmdpkit {line}" for line in lines)


def bounds_of(given: list[str]) -> dict[str, float]:
    """``NAME=VALUE`` of every --bound."""
    bounds: dict[str, float] = {}
    for item in given:
        name, _, value = item.rpartition("=")
        try:
            bounds[name.strip()] = float(value)
        except ValueError:
            raise typer.BadParameter(
                f"{item!r} is not NAME=VALUE with a number as the value", param_hint="--bound"
            ) from None
    return bounds


def policy_file(path: Path | None) -> Path | None:
    """Refuse a suffix no policy can be written with, before any work is done for it."""
    if path is not None and path.suffix.lower().removeprefix(".") not in list(PolicyFormat):
        raise typer.BadParameter(f"{str(path)!r} must end in {', '.join(f'.{x}' for x in PolicyFormat)}")
    return path


def vacant(path: Path | None, force: bool) -> None:
    """Refuse a file that exists before any work is done for it."""
    if path is not None and not force and path.exists():
        raise CmdpkitError(f"{path} exists already; --force replaces it")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cmdpkit {__version__}")
        raise typer.Exit


@app.callback(
    epilog=examples(
        "envs", "solve paper/grid", "tradeoff treatment spending", "learn paper/synthetic --algo pri --episodes 1e6"
    )
)
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Constrained Markov decision processes: solve them exactly, learn them online, see what every bound costs."""
