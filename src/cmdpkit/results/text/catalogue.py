"""The lists of environments and of algorithms, for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from cmdpkit.learners import Facts
from cmdpkit.results.model_tables import Environment, algorithm_table, environment_table
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TAKEN, TerminalTable

RUNS_ONE = (
    "`cmdpkit learn MODEL --algo NAME --episodes K` runs one. Models without a horizon take --steps T in place of "
    "episodes."
)


def environments(listed: Sequence[Environment]) -> RenderableType:
    """Names and what they are."""
    hint = "`cmdpkit envs NAME` shows what can be changed, `cmdpkit solve NAME:parameter=value,...` changes it."
    return Group(TerminalTable(environment_table(listed)), EMPTY_LINE, Text(hint, style=QUIET))


def parameters(found: Environment) -> RenderableType:
    """One environment and what can be changed about it."""
    pairs = _pairs({f"  {parameter}": str(default) for parameter, default in found.parameters.items()})
    title = Text.assemble((found.name, "bold"), f": {found.description}")
    return Group(title, EMPTY_LINE, Text("Parameters and their defaults:"), pairs)


def algorithms(listed: Mapping[str, Facts]) -> RenderableType:
    """What each is, what is proved about it, what it has to be given, and where it comes from."""
    told = {}
    for row in algorithm_table(listed).data():
        needs = f"needs {', '.join(row['needs'])}" if row["needs"] else ""
        presets = f"presets: {', '.join(row['presets'])}"
        known = row["source"] not in ("", "ours")
        source = row["reference"] + (f" (constants from: {row['source']})" if known else "")
        lines = [row["description"], f"guarantee: {row['guarantee']}", needs, presets, source]
        told[row["name"]] = "\n".join(line for line in lines if line) + "\n"
    return Group(_pairs(told), Text(RUNS_ONE, style=QUIET))


def _pairs(rows: Mapping[str, str]) -> RichTable:
    table = RichTable.grid(padding=(0, 2))
    for name, text in rows.items():
        table.add_row(Text(name, style=TAKEN), Text(text))
    return table
