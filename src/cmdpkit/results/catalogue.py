"""The lists of environments and of algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from cmdpkit import envs
from cmdpkit.learners import Facts
from cmdpkit.results.tables import EMPTY_LINE, QUIET, TAKEN, Column, Table, TerminalTable, each, sentences

RUNS_ONE = "`cmdpkit learn MODEL --algo NAME --episodes K` runs one, or --steps T where there is no horizon."


def environment_table(names: Sequence[str]) -> Table[str]:
    """One row per environment."""
    return Table("environments", (
        Column("name", "environment", "What to call it.", lambda name: name, tone=lambda _: "name"),
        Column("description", "what it is", "The problem in a line.", envs.describe, sentences),
        Column("parameters", "", "What can be changed, and its default.", envs.parameters, shown=False),
    ), tuple(names))  # fmt: skip


def algorithm_table(listed: Mapping[str, Facts]) -> Table[tuple[str, Facts]]:
    """One row per learning algorithm."""
    return Table("algorithms", (
        Column("name", "algorithm", "What to call it.", lambda x: x[0], tone=lambda _: "name"),
        Column("description", "what it is", "The algorithm in a line.", lambda x: x[1].title, sentences),
        Column("reference", "reference", "Where it was published.", lambda x: x[1].paper, sentences),
        Column("source", "source", "What its constants were taken from.", lambda x: x[1].source),
        Column("guarantee", "guarantee", "What is proved about it.", lambda x: x[1].guarantee, sentences),
        Column("needs", "needs", "What it has to be given.", lambda x: list(x[1].needs), each(", ".join)),
        Column("presets", "presets", "The settings that come with it.", lambda x: list(x[1].presets), each(", ".join)),
        Column("criteria", "", "Kinds of problems it can learn.", lambda x: list(x[1].criteria), shown=False),
    ), tuple(listed.items()))  # fmt: skip


def environments(names: Sequence[str]) -> RenderableType:
    """Names and what they are."""
    hint = "`cmdpkit envs NAME` shows what can be changed, `cmdpkit solve NAME:parameter=value,...` changes it."
    return Group(TerminalTable(environment_table(names)), EMPTY_LINE, Text(hint, style=QUIET))


def parameters(name: str) -> RenderableType:
    """One environment and what can be changed about it."""
    pairs = _pairs({f"  {parameter}": str(default) for parameter, default in envs.parameters(name).items()})
    title = Text.assemble((name, "bold"), f": {envs.describe(name)}")
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
