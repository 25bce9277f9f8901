"""Figures published elsewhere beside those measured here: the rules by which each pair is judged, and their tables.

Only one kind of row can show that a result was reproduced: a figure that the algorithm as printed was left to produce
on the problem as printed. A row whose constant was chosen by looking at the figure, another algorithm or tuning, or
another problem may be worth seeing beside the published figure, but does not count, whatever its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.tables import MISSING, Cell, Column, Table, each
from cmdpkit.results.wording import counted, short, span

NEGLIGIBLE_DIFFERENCE = 0.05  # of a regret, relative to the published one
ONE_RUN = "one run (deterministic)"  # in place of a number of seeds or an interval, where seeds make no difference

Kind = Literal["predicted", "fitted", "not the same problem", "ours"]
KINDS: dict[Kind, str] = {  # in the order in which they are shown, with what they mean
    "predicted": "the algorithm as printed, on the problem as printed; nothing was chosen to meet the figure",
    "fitted": "a constant was chosen from the printed figure, so that agreement shows nothing",
    "not the same problem": "the algorithm as printed, on a reconstruction of a problem that was not printed",
    "ours": "another algorithm, or another tuning, beside the published figure",
}

Rule = Literal["regret", "violation", "realised violation", "value", "count"]


class Verdict(NamedTuple):
    """What is said of a pair of figures, and whether the measured one is as published or better."""

    text: str  # a few words
    agrees: bool  # whether the measured figure is as published or better

    @property
    def same(self) -> bool:
        """Whether the measured figure is the published one, not merely better."""
        return self in (AS_PUBLISHED, WITHIN_INTERVAL)


@dataclass(frozen=True)
class Row:
    """One figure: what was published, what came out, of which kind the pair is, and on which assumptions."""

    env: str  # the problem
    algo: str  # with its preset
    quantity: str  # what was published
    published: float  # the published figure
    measured: SeedMean  # what came out, over seeds
    verdict: Verdict  # what is said of the pair
    assumptions: tuple[str, ...]  # sentences
    kind: Kind = "ours"  # what the pair can show, see `KINDS`
    deterministic: bool = False  # whether all seeds gave the same numbers, so that there is one run

    @property
    def reproduced(self) -> bool:
        """Whether the published figure came out, and was left to come out."""
        return self.kind == "predicted" and self.verdict.same

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Row:
        """The inverse of `to_dict`."""
        low, high = table["interval"] or (None, None)
        return cls(
            env=table["env"],
            algo=table["algo"],
            quantity=table["quantity"],
            published=table["published"],
            measured=SeedMean(table["measured"], low, high, table["seeds"]),
            verdict=Verdict(table["verdict"], table["agrees"]),
            assumptions=tuple(table["assumptions"]),
            kind=table.get("kind", "ours"),  # version 0.1 did not tell kinds apart
            deterministic=table.get("deterministic", False),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values: how JSON and the folder of a study hold the row."""
        return {
            "env": self.env,
            "algo": self.algo,
            "quantity": self.quantity,
            "published": self.published,
            "measured": self.measured.mean,
            "interval": None if self.measured.low is None else [self.measured.low, self.measured.high],
            "seeds": self.measured.n,
            "verdict": self.verdict.text,
            "agrees": self.verdict.agrees,
            "assumptions": list(self.assumptions),
            "kind": self.kind,
            "deterministic": self.deterministic,
            "reproduced": self.reproduced,
        }


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows by kind, those that can be reproduced first; otherwise as they were."""
    return sorted(rows, key=lambda row: list(KINDS).index(row.kind))


def numbered(rows: Iterable[Row]) -> dict[str, int]:
    """The assumptions of all rows and their numbers, from 1, in the order in which a reader meets them."""
    return {text: i for i, text in enumerate(dict.fromkeys(x for row in rows for x in row.assumptions), 1)}


def headlines(rows: Sequence[Row]) -> list[str]:
    """How many figures were reproduced, and what is to be thought of the others: one sentence per kind that occurs."""
    said = []
    for kind, meaning in KINDS.items():
        found = [row for row in rows if row.kind == kind]
        same, agreeing = sum(row.verdict.same for row in found), sum(row.verdict.agrees for row in found)
        if kind == "predicted":
            said.append(f"Reproduced: {same} of {counted(len(found), 'predicted figure')} ({meaning}).")
        elif found:
            count = f"{same} of {counted(len(found), 'figure')} as published, {agreeing - same} better"
            said.append(f"Not counted, {kind}: {count} ({meaning}).")
    return said


# -- verdicts ----------------------------------------------------------------------------------------------------------

AS_PUBLISHED = Verdict("as published", True)
WITHIN_INTERVAL = Verdict("as published (interval)", True)


def judged(
    rule: Rule, published: float, values: FloatArray, digits: float, violation: FloatArray | None = None
) -> Verdict:
    """The verdict on what the runs gave ([seeds]); ``digits`` is half a unit of the last digit that was published.

    A regret is judged beside the ``violation`` of the same runs ([seeds]); without one, no bound was missed.
    """
    if rule == "regret":
        return _regret(published, values, digits, np.zeros(1) if violation is None else violation)
    return _RULES[rule](published, values, digits)


def _regret(published: float, values: FloatArray, digits: float, violation: FloatArray) -> Verdict:
    """Who misses a bound can earn more than the optimum that keeps it: less regret is better only if it was kept."""
    measured = seed_mean(values)
    share = measured.mean / published
    if _covers(measured, published, digits) or abs(share - 1) <= NEGLIGIBLE_DIFFERENCE:
        return AS_PUBLISHED
    size = "negative" if share < 0 else "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"
    if share > 1:
        return Verdict(f"worse: {size}", False)
    low, high = _ends(seed_mean(violation))
    if high <= 0:
        return Verdict(f"better: {size}", True)
    return Verdict(f"less: {size}, bound {'missed' if low > 0 else 'undecided'}", False)


def _violation(published: float, values: FloatArray, digits: float) -> Verdict:
    measured = seed_mean(values)
    low, high = _ends(measured)
    if high <= 0:
        return AS_PUBLISHED if _covers(measured, published, digits) else Verdict("bound kept", True)
    return Verdict("bound missed" if low > 0 else "undecided", False)


def _realised(_published: float, values: FloatArray, _digits: float) -> Verdict:
    """What was realised is certain, so there is no interval: every run has kept the bound or missed it."""
    kept = int((values <= 0).sum())
    return Verdict(f"kept in {kept} of {counted(len(values), 'run')}", kept == len(values))


def _value(published: float, values: FloatArray, digits: float) -> Verdict:
    measured = seed_mean(values)
    if abs(measured.mean - published) <= digits:
        return AS_PUBLISHED
    if _covers(measured, published, digits):
        return WITHIN_INTERVAL
    return Verdict(f"differs by {measured.mean - published:+.2g}", False)


def _count(published: float, values: FloatArray, _digits: float) -> Verdict:
    difference = float(values.mean()) - published
    return AS_PUBLISHED if difference == 0 else Verdict(f"differs by {difference:+.4g}", False)


def _ends(measured: SeedMean) -> tuple[float, float]:
    """The interval; the figure itself where there is none."""
    if measured.low is None or measured.high is None:
        return measured.mean, measured.mean
    return measured.low, measured.high


def _covers(measured: SeedMean, published: float, digits: float) -> bool:
    low, high = _ends(measured)
    return bool(low - digits <= published <= high + digits)


_RULES: dict[Rule, Callable[[float, FloatArray, float], Verdict]] = {
    "violation": _violation,
    "realised violation": _realised,
    "value": _value,
    "count": _count,
}


# -- tables ------------------------------------------------------------------------------------------------------------


def _published(title: str, rows: Sequence[Row], numbers: Mapping[str, int]) -> Table[Row]:
    """One row per published figure beside the measured one; ``numbers`` are those of the assumptions."""
    columns: list[Column[Row]] = [
        Column("algo", "algorithm", "The algorithm with its preset.", lambda row: row.algo),
        Column("quantity", "quantity", "What was published.", lambda row: row.quantity),
        Column("published", "published", "The published figure.", lambda row: row.published, each(short), "right"),
        Column("measured", "measured", "The mean over seeds.", lambda row: row.measured.mean, each(short), "right"),
        Column("interval", "95 % interval", "The interval of the mean over seeds, where they differ.",
               lambda row: ONE_RUN if row.deterministic else row.measured, _interval_cells, "right"),
        Column("verdict", "verdict", "Whether the measured figure is as published.", lambda row: row.verdict.text,
               tone=lambda row: "" if row.verdict.agrees else "alert"),
        Column("assumptions", "assuming", "Numbers of the assumptions that the row rests on.",
               lambda row: list(row.assumptions),
               each(lambda texts: " ".join(str(i) for i in sorted(numbers[text] for text in texts)))),
    ]  # fmt: skip
    return Table(title, tuple(columns), tuple(rows))


def published_tables(rows: Sequence[Row]) -> list[Table[Row]]:
    """One table per kind and problem, what can be reproduced first; all assumptions are numbered together."""
    ordered = in_order(rows)
    numbers = numbered(ordered)
    pairs = dict.fromkeys((row.kind, row.env) for row in ordered)
    return [
        _published(f"{env}: {kind}", [row for row in ordered if (row.kind, row.env) == (kind, env)], numbers)
        for kind, env in pairs
    ]


def _interval_cells(values: Sequence[SeedMean | str], _narrow: bool) -> list[Cell]:
    """From where to where intervals go; of a single run, that it is one."""

    def cell(x: SeedMean | str) -> Cell:
        if isinstance(x, str) or x.low is None:
            return Cell(x if isinstance(x, str) else MISSING)
        return Cell("no spread" if x.low == x.high else span(x.low, x.high), value=x.low, low=x.low, high=x.high)

    return [cell(x) for x in values]
