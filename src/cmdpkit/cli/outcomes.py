"""Outcomes of experiments for the terminal: a summary of the runs, failures with their reasons, published figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from cmdpkit.errors import printable
from cmdpkit.experiments.execute import Outcome
from cmdpkit.results.published import Claim, headlines, in_order, numbered, published_tables
from cmdpkit.results.study import Study, tables_of
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Table, TerminalTable
from cmdpkit.results.wording import counted, duration, label

if TYPE_CHECKING:
    from cmdpkit.paper.reproduce import Reproduction  # `bench` needs nothing of the paper


def outcome(name: str, done: Outcome, study: Study) -> RenderableType:
    """The outcome of an experiment."""
    made = len(done.runs) - done.skipped - len(done.failed)
    headline = Text.assemble((label(name), "bold"), f": {counted(len(done.runs), 'run')}, {made:,} done now")
    headline.append(f", {done.skipped:,} before" if done.skipped else "")
    headline.append(f", {len(done.failed):,} failed" if done.failed else "", style="red")
    failures = _failures(done.failed.values())
    ended = Text(f"{duration(done.seconds)}. Records are in {done.folder}.", style=QUIET)
    return Group(headline, *tables_of(study), EMPTY_LINE, *failures, ended)


def reproduction(found: Reproduction) -> RenderableType:
    """The claims first; then every published figure next to the measured one, and the other parts."""
    parts: list[RenderableType] = []
    for env in dict.fromkeys(claim.env for claim in found.claims):
        claims = [claim for claim in found.claims if claim.env == env]
        parts += [Text(f"Claims of the paper: {env}", style="bold"), _claims(claims), EMPTY_LINE]
    parts += [*(Text(line) for line in headlines(found.rows)), EMPTY_LINE] if found.rows else []
    for table in published_tables(found.rows):
        parts += [*_titled(table, heads="algo"), EMPTY_LINE]
    for others in other_tables(found):
        parts += [*_titled(others), EMPTY_LINE]
    parts += [_departures(whole=found.parts == ("departures",)), EMPTY_LINE] if "departures" in found.parts else []
    parts += [Text(f"{i}. {assumption}") for assumption, i in numbered(in_order(found.rows)).items()]
    parts += [EMPTY_LINE] if found.rows else []
    parts += _failures(failure.reason for failure in found.study.failures)
    said = f"{counted(found.seeds, 'seed')}"
    said += f", {duration(found.seconds)}. The report is {found.report}." if found.report else "."
    said += f" The figures are in {found.figures[0].parent}." if found.figures else ""
    return Group(*parts, Text(said, style=QUIET)) if found.report or found.bounds else Group(*parts[:-1])


def _claims(claims: Sequence[Claim]) -> RenderableType:
    """The verdict, and next to it the claim with the figures behind it."""
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for claim in claims:
        tone = "bold red" if claim.verdict.agrees is False else "bold"
        said = Text.assemble(claim.text, "\n", ("published ", QUIET), claim.published, "\n", ("measured  ", QUIET))
        grid.add_row(Text(claim.verdict.text, style=tone), said + Text(f"{claim.measured} [{claim.kind}]"))
    return grid


def _departures(whole: bool) -> RenderableType:
    """Every step of the pseudo-code, or how many there are and how to see them."""
    from cmdpkit.paper.departures import departures_table

    table = departures_table()
    if not whole:
        apart = sum(not line.departure.literal(line.theory) for line in table.rows)
        return Text(
            f"Preset theory departs from the pseudo-code in {apart} of {len(table.rows)} steps, where it cannot be "
            "followed. `cmdpkit reproduce paper --what departures` lists all of them, for both presets."
        )
    lines: list[RenderableType] = [Text(table.title, style="bold")]
    for row in table.data():
        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style=QUIET)
        grid.add_column(overflow="fold")
        for key in ("printed", "theory", "paper", "why"):
            if row[key]:
                grid.add_row(f"  {key}", Text(row[key]))
        lines += [Text(row["step"]), grid]
    return Group(*lines)


def other_data(found: Reproduction) -> dict[str, Any]:
    """The same tables as plain values."""
    from cmdpkit.paper.departures import departures_table
    from cmdpkit.paper.experiments import table1_table
    from cmdpkit.paper.lower_bound import lower_bound_table
    from cmdpkit.paper.reproduce import phase_table

    return {
        "phases": phase_table(found.phases).data(),
        "lower_bound": lower_bound_table(found.bounds).data(),
        "table1": table1_table(found.table1).data(),
        "departures": departures_table().data() if "departures" in found.parts else [],
    }


def other_tables(found: Reproduction) -> list[Table[Any]]:
    """Phases of PRI on the grid, the lower bound and Table 1, as far as they were asked for."""
    from cmdpkit.paper.experiments import table1_table
    from cmdpkit.paper.lower_bound import lower_bound_table
    from cmdpkit.paper.reproduce import phase_table

    tables: list[Table[Any]] = [phase_table(found.phases)] if found.phases else []
    tables += [lower_bound_table(found.bounds)] if found.bounds else []
    return [*tables, table1_table(found.table1)] if found.table1 else tables


def _titled(table: Table[Any], heads: str = "") -> list[RenderableType]:
    return [Text(printable(table.title), style="bold"), TerminalTable(table, heads)]


def _failures(reasons: Iterable[str]) -> list[Text]:
    """One line per reason, with how many runs failed for it."""
    return [Text(f"{counted(n, 'run')} failed: {reason}", style="red") for reason, n in Counter(reasons).items()]
