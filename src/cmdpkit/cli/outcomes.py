"""Experiments for the terminal: a row a group of seeds, what failed and why, and the paper's figures beside ours."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from cmdpkit.experiments.execute import Outcome
from cmdpkit.paper.reproduce import Reproduction
from cmdpkit.results.groups import Group as StudyGroup
from cmdpkit.results.published import Row, numbered
from cmdpkit.results.study import Study
from cmdpkit.results.text.answers import GAP
from cmdpkit.results.text.policies import QUIET, plain_table, right
from cmdpkit.results.text.wording import compact, counted, duration, label

NAME = 18  # characters of a name that stay on one line
ODD = "yellow"  # a figure that is not as published


def outcome(name: str, done: Outcome, study: Study) -> RenderableType:
    """What an experiment has come to."""
    made = len(done.runs) - done.skipped - len(done.failed)
    headline = Text.assemble((label(name), "bold"), f": {counted(len(done.runs), 'run')}, {made:,} done now")
    headline.append(f", {done.skipped:,} before" if done.skipped else "")
    headline.append(f", {len(done.failed):,} failed" if done.failed else "", style="red")
    parts: list[RenderableType] = [headline]
    if study.records:
        parts += _tables(study)
    parts += [GAP, *(Text(remark, style="yellow") for remark in study.remarks())]
    for reason, times in Counter(done.failed.values()).items():
        parts.append(Text(f"{counted(times, 'run')} failed: {reason}", style="red"))
    parts.append(Text(f"{duration(done.seconds)}. Records are in {done.folder}.", style=QUIET))
    return Group(*parts)


def _tables(study: Study) -> list[RenderableType]:
    """A table an environment: means over seeds, the first two with half the width of their 95 % intervals."""
    columns = ("regret", "violation", "strong\nregret", "unsafe\nepisodes", "policy below\noptimum", "policies\nwithin")
    observed = ("realised\nreward", "realised\nviolation", "policy\nvalue", "policy\ntotals")
    tables: dict[str, Table] = {}
    for group, row in zip(study.groups(), study.table(), strict=True):
        blind = "realised_reward" in row
        headings = [right(x) for x in (observed if blind else columns)]
        table = tables.setdefault(group.run.problem, plain_table(_names("algorithm", study), *headings))
        if blind:
            table.add_row(group.label, *_observed(group, row))
            continue
        violations = [_spread(row, f"violation_{n + 1}") for n in range(len(group.records[0].constraints))]
        within = row["policies_within_bounds"]
        table.add_row(
            group.label,
            _spread(row, "regret"),
            "\n".join(violations) or "-",
            *(_mean(row, name) for name in ("strong_regret", "unsafe_episodes", "policy_gap")),
            f"- of {row['samples']}" if within is None else f"{within} of {row['samples']}",
        )
    return [part for env, table in tables.items() for part in (GAP, Text(label(env), style="bold"), table)]


def _spread(row: dict[str, Any], name: str) -> str:
    high = row.get(f"{name}_high")
    return _mean(row, name) + ("" if high is None else f" ± {compact(high - row[name], 2)}")


def _observed(group: StudyGroup, row: dict[str, Any]) -> tuple[str, ...]:
    """Figures of a world without a model: what was earned, and what fresh episodes of the final policies gave."""
    names = ("realised_violation", "evaluated_utility")
    each = [[_spread(row, f"{name}_{n + 1}") for n in range(len(group.records[0].constraints))] for name in names]
    violation, totals = ("\n".join(cells) or "-" for cells in each)
    return _spread(row, "realised_reward"), violation, _spread(row, "evaluated_value"), totals


def _mean(row: dict[str, Any], name: str) -> str:
    return "-" if row.get(name) is None else compact(row[name], 3)


def _names(heading: str, study: Study) -> Column:
    """A column for names, which are folded only when they are long."""
    return Column(Text(heading), min_width=min(NAME, max(len(group.label) for group in study.groups())))


def reproduction(found: Reproduction) -> RenderableType:
    """Published | measured | interval | verdict | assumptions, which are spelled out below."""
    numbers = numbered(found.rows)
    parts: list[RenderableType] = []
    for env in dict.fromkeys(row.env for row in found.rows):
        parts += [Text(env, style="bold"), _paper_table([row for row in found.rows if row.env == env], numbers), GAP]
    parts += [Text(f"{i}. {assumption}") for assumption, i in numbers.items()]
    parts.append(GAP)
    for reason, times in Counter(failure.reason for failure in found.study.failures).items():
        parts.append(Text(f"{counted(times, 'run')} failed: {reason}", style="red"))
    said = f"{counted(found.seeds, 'seed')}, {duration(found.seconds)}. The report is {found.report}."
    said += f" The figures are in {found.figures[0].parent}." if found.figures else ""
    return Group(*parts, Text(said, style=QUIET))


def _paper_table(rows: list[Row], numbers: dict[str, int]) -> RenderableType:
    columns = (right("published"), right("measured"), right("95 % interval"), "verdict", "assuming")
    table = plain_table(Column(no_wrap=True), *columns)
    algo = ""
    for row in rows:
        if row.algo != algo:
            algo = row.algo
            table.add_row(Text(algo, style="bold"))
        verdict = Text(row.verdict.text, style="" if row.verdict.agrees else ODD)
        marks = sorted(numbers[text] for text in row.assumptions)
        table.add_row(f"  {row.quantity}", *row.texts(), verdict, " ".join(map(str, marks)))
    return table
