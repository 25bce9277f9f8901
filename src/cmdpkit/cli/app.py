"""The application and the options its verbs share; nothing heavy is imported, so that ``--help`` answers at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from cmdpkit import __version__
from cmdpkit.cli.terminal import Verbs
from cmdpkit.errors import CmdpkitError

T = TypeVar("T")

app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
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


class TableForm(StrEnum):
    """The forms of tables that `cmdpkit.results.tables.joined` writes."""

    markdown = "markdown"
    latex = "latex"


def one_form(context: typer.Context, value: Any) -> Any:
    """Refuse --json together with --table, whichever of the two is read second."""
    if value and (context.params.get("as_json") or context.params.get("table")):
        raise typer.BadParameter("--json and --table exclude each other; give one of the two")
    return value


def _environments(incomplete: str) -> list[str]:
    """The environments whose names begin like this, for the completion of a shell."""
    from cmdpkit import envs

    return [name for name in envs.names() if name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="An environment, as name or name:parameter=value,..., a model file, or your own package.module:function.",
        autocompletion=_environments,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.", callback=one_form)]
Tables = Annotated[
    TableForm | None, typer.Option("--table", help="Print only the tables, as Markdown or LaTeX.", callback=one_form)
]
Renormalise = Annotated[
    bool, typer.Option("--renormalise", help="Divide the probabilities in a model file by their sum, whatever it is.")
]
Discount = Annotated[
    float | None, typer.Option(help="Judge by discounted totals instead; all bounds must be per step.")
]
Average = Annotated[
    bool, typer.Option("--average", help="Judge by long-run averages instead; all bounds must be per step.")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="How many threads to use for a large model with a horizon; all cores unless given."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
Bounds = Annotated[
    list[str] | None,
    typer.Option(
        "--bound",
        metavar="NAME=VALUE",
        help="Change a bound, in its unit; may be given several times.",
    ),
]


def examples(*lines: str) -> str:
    """The last lines of a verb's help: commands that can be typed as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  cmdpkit {line}" for line in lines)


def once(pairs: Iterable[tuple[str, T]], option: str) -> dict[str, T]:
    """Names and values of an option that may be given several times, but not twice for one name."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint=option)
        found[name] = value
    return found


def bounds_of(given: list[str]) -> dict[str, float]:
    """``NAME=VALUE`` of every --bound."""
    return once(map(_bound, given), "--bound")


def _bound(item: str) -> tuple[str, float]:
    name, _, value = item.rpartition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        hint = "is not NAME=VALUE with a number as the value"
        raise typer.BadParameter(f"{item!r} {hint}", param_hint="--bound") from None


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
        raise typer.BadParameter(f"{given!r} is not a share such as 1% or 0.01", param_hint="--simple")
    return share


def constraints_of(given: list[str]) -> list[tuple[str, Literal["at_most", "at_least"], float]]:
    """Name, sense and bound of every --constraint, ``NAME<=BOUND`` or ``NAME>=BOUND``."""
    found: list[tuple[str, Literal["at_most", "at_least"], float]] = []
    for item in given:
        match = re.fullmatch(r"(.+?)\s*(<=|>=|≤|≥)\s*(\S+)", item.strip())
        try:
            name, sign, bound = match.groups() if match else ("", "", "")
            found.append((name, "at_most" if sign in ("<=", "≤") else "at_least", float(bound)))
        except ValueError:
            hint = "is not NAME<=BOUND or NAME>=BOUND with a number as the bound"
            raise typer.BadParameter(f"{item!r} {hint}", param_hint="--constraint") from None
    return found


def policy_file(path: Path | None) -> Path | None:
    """Refuse a suffix that is no format of policies, before any work is done."""
    if path is not None and path.suffix.lower().removeprefix(".") not in list(PolicyFormat):
        raise typer.BadParameter(f"{str(path)!r} must end in {', '.join(f'.{x}' for x in PolicyFormat)}")
    return path


def figure_file(path: Path | None) -> Path | None:
    """Refuse a suffix that is no format of figures, before any work is done."""
    if path is not None and path.suffix.lower() not in (".png", ".pdf", ".svg", ".pgf"):
        raise typer.BadParameter(f"{str(path)!r} must end in .png, .pdf, .svg or .pgf")
    return path


def refuse_existing(path: Path | None, force: bool) -> None:
    """Refuse a file that exists already, before any work is done."""
    if path is not None and not force and path.exists():
        raise CmdpkitError(f"{path} exists already; --force replaces it")


SavePolicy = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=policy_file, help="Write the policy (.csv, .json, .npz, .md or .py)."),
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
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Constrained Markov decision processes: solve them exactly, learn them online, see what every bound costs."""
