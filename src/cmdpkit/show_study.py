"""Experiments for the terminal: a row a group of seeds, what failed and why, and the paper's figures beside ours."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from cmdpkit.analyse import Study
from cmdpkit.execute import Outcome
from cmdpkit.policy_view import QUIET, plain_table, right
from cmdpkit.reproduce import ASSUMPTIONS, Reproduction, Row
from cmdpkit.show import GAP
from cmdpkit.wording import counted, duration, label

NAME = 18  # characters of a name that stay on one line
WHOLE = 1e4  # from here on numbers are written in thousands


def outcome(name: str, done: Outcome, study: Study) -> RenderableType:
    """What an experiment has come to."""
    made = len(done.runs) - done.skipped - len(done.failed)
    headline = Text.assemble((label(name), "bold"), f": {counted(len(done.runs), 'run')}, {made:,} done now")
    headline.append(f", {done.skipped:,} before" if done.skipped else "")
    headline.append(f", {len(done.failed):,} failed" if done.failed else "", style="red")
    parts: list[RenderableType] = [headline]
    if study.records:
        parts += _tables(study)
    parts.append(GAP)
    for reason, times in Counter(done.failed.values()).items():
        parts.append(Text(f"{counted(times, 'run')} failed: {reason}", style="red"))
    parts.append(Text(f"{duration(done.seconds)}. Records are in {done.folder}.", style=QUIET))
    return Group(*parts)


def _tables(study: Study) -> list[RenderableType]:
    """A table an environment: means over seeds, the first two with half the width of their 95 % intervals."""
    columns = ("regret", "violation", "strong\nregret", "unsafe\nepisodes", "policy below\noptimum", "policies\nwithin")
    tables: dict[str, Table] = {}
    for group, row in zip(study.groups(), study.table(), strict=True):
        table = tables.setdefault(row["env"], plain_table(_names("algorithm", study), *(right(x) for x in columns)))
        violations = [_spread(row, f"violation_{n + 1}") for n in range(len(group.records[0].constraints))]
        within = row["policies_within_bounds"]
        table.add_row(
            group.label,
            _spread(row, "regret"),
            "\n".join(violations) or "-",
            *(_mean(row, name) for name in ("strong_regret", "unsafe_episodes", "policy_gap")),
            f"- of {row['seeds']}" if within is None else f"{within} of {row['seeds']}",
        )
    return [part for env, table in tables.items() for part in (GAP, Text(label(env), style="bold"), table)]


def _spread(row: dict[str, Any], name: str) -> str:
    high = row.get(f"{name}_high")
    return _mean(row, name) + ("" if high is None else f" ± {_compact(high - row[name], 2)}")


def _mean(row: dict[str, Any], name: str) -> str:
    return "-" if row.get(name) is None else _compact(row[name], 3)


def _names(heading: str, study: Study) -> Column:
    """A column for names, which are folded only when they are long."""
    return Column(Text(heading), min_width=min(NAME, max(len(group.label) for group in study.groups())))


def _compact(x: float, digits: int) -> str:
    """So many significant digits; thousands and millions by their letter, as a row has many numbers.

    >>> [_compact(x, 3) for x in (0.01234, 271.8, -62420.0, 1234567.0)]
    ['0.0123', '272', '-62.4k', '1.23M']
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= max(unit, WHOLE):
            return _short(x / unit, digits) + letter
    return _short(x, digits)


def _short(x: float, digits: int) -> str:
    """So many significant digits, without an exponent where people would not write one."""
    if x == 0 or not 1e-4 <= abs(x) < 1e9:
        return f"{x:.{digits}g}"
    decimals = digits - 1 - math.floor(math.log10(abs(x)))
    return f"{round(x, decimals):,.{max(decimals, 0)}f}"


def reproduction(found: Reproduction) -> RenderableType:
    """Published | measured | interval | verdict | assumptions, which are spelled out below."""
    numbers = {name: i + 1 for i, name in enumerate(_used(found.rows))}
    parts: list[RenderableType] = []
    for env in dict.fromkeys(row.env for row in found.rows):
        parts += [Text(env, style="bold"), _paper_table([row for row in found.rows if row.env == env], numbers), GAP]
    parts += [Text(f"{i}. {ASSUMPTIONS[name]}") for name, i in numbers.items()]
    parts.append(GAP)
    for reason, times in Counter(failure.reason for failure in found.study.failures).items():
        parts.append(Text(f"{counted(times, 'run')} failed: {reason}", style="red"))
    said = f"{counted(found.seeds, 'seed')}, {duration(found.seconds)}. The report is {found.report}."
    return Group(*parts, Text(said, style=QUIET))


def _used(rows: tuple[Row, ...]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.assumptions))


def _paper_table(rows: list[Row], numbers: dict[str, int]) -> RenderableType:
    columns = (right("published"), right("measured"), right("95 % interval"), "verdict", "assuming")
    table = plain_table(Column(no_wrap=True), *columns)
    algo = ""
    for row in rows:
        if row.algo != algo:
            algo = row.algo
            table.add_row(Text(algo, style="bold"))
        marks = " ".join(str(numbers[name]) for name in row.assumptions)
        published, measured = (_figure(row, x) for x in (row.published, row.measured.mean))
        table.add_row(f"  {row.quantity}", published, measured, _interval(row), row.verdict, marks)
    return table


def _figure(row: Row, x: float) -> str:
    return f"{x:g}" if row.kind == "count" else _short(x, 4)


def _interval(row: Row) -> str:
    low, high = row.measured.low, row.measured.high
    return "-" if low is None else "no spread" if low == high else f"{_figure(row, low)} … {_figure(row, high)}"
