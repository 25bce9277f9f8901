"""What experiments came to, for the terminal: a summary of the runs, what failed and why, published figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.experiments.execute import Outcome
from cmdpkit.paper.phases import phase_table
from cmdpkit.paper.reproduce import Reproduction
from cmdpkit.results.published import headlines, in_order, numbered, published_tables
from cmdpkit.results.showing import tables_of
from cmdpkit.results.study import Study
from cmdpkit.results.tables import Table
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TerminalTable
from cmdpkit.results.wording import counted, duration, label


def outcome(name: str, done: Outcome, study: Study) -> RenderableType:
    """What an experiment has come to."""
    made = len(done.runs) - done.skipped - len(done.failed)
    headline = Text.assemble((label(name), "bold"), f": {counted(len(done.runs), 'run')}, {made:,} done now")
    headline.append(f", {done.skipped:,} before" if done.skipped else "")
    headline.append(f", {len(done.failed):,} failed" if done.failed else "", style="red")
    failures = _failures(done.failed.values())
    ended = Text(f"{duration(done.seconds)}. Records are in {done.folder}.", style=QUIET)
    return Group(headline, *tables_of(study), EMPTY_LINE, *failures, ended)


def reproduction(found: Reproduction) -> RenderableType:
    """Every published figure beside the measured one, by kind and problem, and the assumptions they rest on."""
    first, *others = headlines(found.rows)
    parts: list[RenderableType] = [Text(first, style="bold"), *map(Text, others), EMPTY_LINE]
    for table in published_tables(found.rows):
        parts += [*_titled(table, heads="algo"), EMPTY_LINE]
    parts += [*_titled(phase_table(found.phases)), EMPTY_LINE] if found.phases else []
    parts += [Text(f"{i}. {assumption}") for assumption, i in numbered(in_order(found.rows)).items()]
    parts += [EMPTY_LINE, *_failures(failure.reason for failure in found.study.failures)]
    said = f"{counted(found.seeds, 'seed')}, {duration(found.seconds)}. The report is {found.report}."
    said += f" The figures are in {found.figures[0].parent}." if found.figures else ""
    return Group(*parts, Text(said, style=QUIET))


def _titled(table: Table[Any], heads: str = "") -> list[RenderableType]:
    return [Text(label(table.title), style="bold"), TerminalTable(table, heads)]


def _failures(reasons: Iterable[str]) -> list[Text]:
    """One line per reason, with how many runs failed for it."""
    return [Text(f"{counted(n, 'run')} failed: {reason}", style="red") for reason, n in Counter(reasons).items()]
