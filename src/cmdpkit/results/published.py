"""Figures and claims published elsewhere next to those measured here: the rules of judgement, and the tables.

Two things are judged. A `Row` is one published *figure*. It is "as published" only if the whole interval of the
measured one lies within a stated share of it; an interval that lies partly outside is "undecided", so that few or noisy
seeds can never count as agreement. A `Claim` is a published *sentence*, with a verdict and the figures behind it. Both
have a kind that says what agreement can show (see `KINDS`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.tables import MISSING, Cell, Column, Table, each, numbers, sentences
from cmdpkit.results.wording import counted, short, span

ONE_RUN = "one run (deterministic)"  # in place of a number of seeds or an interval, where seeds make no difference

Kind = Literal["exact", "predicted", "fitted", "reconstruction", "ours"]
KINDS: dict[Kind, str] = {  # in the order in which they are shown, with what they mean
    "exact": "computed by a linear program from the problem as printed; no learning is involved",
    "predicted": "on the problem as printed; nothing was chosen by looking at the published figures",
    "fitted": "a setting was chosen by looking at this figure or at one that implies it, so agreement shows little",
    "reconstruction": "on a problem that is not printed and was reconstructed",
    "ours": "another algorithm or tuning, shown for comparison and not judged",
}

Rule = Literal["sum", "value", "count"]
SHARES: dict[Rule, float] = {"sum": 0.05, "value": 0.005, "count": 0.0}  # of the published figure: still the same


class Verdict(NamedTuple):
    """What is said of a published figure or claim."""

    text: str  # a few words
    agrees: bool | None  # whether it is confirmed; None if that is undecided or not judged


AS_PUBLISHED = Verdict("as published", True)
UNDECIDED = Verdict("undecided", None)
NOT_JUDGED = Verdict(MISSING, None)
HOLDS, FAILS = Verdict("holds", True), Verdict("fails", False)


@dataclass(frozen=True)
class Claim:
    """A published sentence in our words, what came out, and how the two relate."""

    env: str  # the problem
    text: str  # what is claimed
    published: str  # the figures behind it in the publication
    measured: str  # the figures behind it here
    verdict: Verdict  # whether it holds
    kind: Kind  # what agreement can show, see `KINDS`

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Claim:
        """The inverse of `to_dict`."""
        verdict = Verdict(table["verdict"], table["agrees"])
        return cls(table["env"], table["claim"], table["published"], table["measured"], verdict, table["kind"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values: how JSON and the folder of a study hold the claim."""
        return {
            "env": self.env,
            "claim": self.text,
            "published": self.published,
            "measured": self.measured,
            "verdict": self.verdict.text,
            "agrees": self.verdict.agrees,
            "kind": self.kind,
        }


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

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Row:
        """The inverse of `to_dict`."""
        low, high = table["interval"] or (None, None)
        kind = table.get("kind", "ours")  # version 0.1 did not tell kinds apart
        return cls(
            env=table["env"],
            algo=table["algo"],
            quantity=table["quantity"],
            published=table["published"],
            measured=SeedMean(table["measured"], low, high, table["seeds"]),
            verdict=Verdict(table["verdict"], table["agrees"]),
            assumptions=tuple(table["assumptions"]),
            kind="reconstruction" if kind == "not the same problem" else kind,  # its name in earlier files
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
        }


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows by kind; otherwise as they were."""
    return sorted(rows, key=lambda row: list(KINDS).index(row.kind))


def numbered(rows: Iterable[Row]) -> dict[str, int]:
    """The assumptions of all rows and their numbers, from 1, in the order in which a reader meets them."""
    return {text: i for i, text in enumerate(dict.fromkeys(x for row in rows for x in row.assumptions), 1)}


def headlines(rows: Sequence[Row]) -> list[str]:
    """How many figures are as published, differ or are undecided: a sentence per kind but "ours", with its meaning."""
    said = []
    for kind, meaning in KINDS.items():
        found = [row.verdict.agrees for row in rows if row.kind == kind]
        if found and kind != "ours":
            same, differ = found.count(True), found.count(False)
            count = f"{same} as published, {differ} differ, {len(found) - same - differ} undecided"
            said.append(f"{kind.capitalize()}: {counted(len(found), 'figure')}, {count} ({meaning}).")
    return said


# -- verdicts ----------------------------------------------------------------------------------------------------------


def judged(rule: Rule, published: float, values: FloatArray, digits: float, *, certain: bool = False) -> Verdict:
    """The verdict on what the runs gave ([seeds]); ``digits`` is half a unit of the last digit that was published.

    The measured figure is the same if its whole interval lies within a share of the published one (`SHARES`) and those
    digits. A single run has no interval: it is undecided unless ``certain`` says that nothing was left to chance.

    >>> import numpy as np
    >>> judged("sum", 100.0, np.array([99.0, 101.0, 100.0]), 0.5).text
    'as published'
    >>> judged("sum", 100.0, np.array([80.0, 120.0, 100.0]), 0.5).text
    'undecided'
    >>> judged("sum", 100.0, np.array([139.0, 141.0, 140.0]), 0.5).text
    '140 % of published'
    """
    measured = seed_mean(values)
    if len(values) == 1 and not certain:
        return UNDECIDED
    room = SHARES[rule] * abs(published) + digits
    low, high = ends(measured)
    if published - room <= low and high <= published + room:
        return AS_PUBLISHED
    if low <= published + room and published - room <= high:
        return UNDECIDED
    if rule != "sum" or measured.mean * published <= 0:
        return Verdict(f"differs by {measured.mean - published:+.2g}", False)
    return Verdict(f"{100 * measured.mean / published:.3g} % of published", False)


def ends(measured: SeedMean) -> tuple[float, float]:
    """The interval; the figure itself where there is none."""
    if measured.low is None or measured.high is None:
        return measured.mean, measured.mean
    return measured.low, measured.high


def below(measured: SeedMean, limit: float, *, certain: bool) -> Verdict:
    """Whether a figure is at most a limit: the whole interval decides, and a single run only if it is certain.

    >>> below(SeedMean(1.0, 0.5, 1.5, 3), 2.0, certain=False).text
    'holds'
    >>> below(SeedMean(1.0, None, None, 1), 2.0, certain=False).text
    'undecided'
    """
    if measured.n == 1 and not certain:
        return UNDECIDED
    low, high = ends(measured)
    return HOLDS if high <= limit else FAILS if low > limit else UNDECIDED


def claims_table(claims: Sequence[Claim]) -> Table[Claim]:
    """One row per claim, with the verdict first."""
    return Table("Claims of the paper", (
        Column("verdict", "verdict", "Whether it holds here.", lambda claim: claim.verdict.text,
               tone=lambda claim: "alert" if claim.verdict.agrees is False else ""),
        Column("claim", "claim of the paper", "What is claimed, in our words.", lambda claim: claim.text, sentences),
        Column("published", "published", "The figures behind it there.", lambda claim: claim.published, sentences),
        Column("measured", "measured", "The figures behind it here.", lambda claim: claim.measured, sentences),
        Column("kind", "kind", "What agreement can show.", lambda claim: claim.kind),
    ), tuple(claims))  # fmt: skip


def _published(title: str, rows: Sequence[Row], places: Mapping[str, int]) -> Table[Row]:
    """One row per published figure, next to the measured one; ``places`` are the numbers of the assumptions."""
    return Table(title, (
        Column("algo", "algorithm", "The algorithm with its preset.", lambda row: row.algo),
        Column("quantity", "quantity", "What was published.", lambda row: row.quantity),
        numbers("published", "published", "The published figure.", lambda row: row.published, each(short)),
        numbers("measured", "measured", "The mean over seeds.", lambda row: row.measured.mean, each(short)),
        Column("interval", "95 % interval", "The interval of the mean over seeds, where they differ.",
               lambda row: ONE_RUN if row.deterministic else row.measured, _interval_cells, "right"),
        Column("verdict", "verdict", "Whether the measured figure is as published.", lambda row: row.verdict.text,
               tone=lambda row: "alert" if row.verdict.agrees is False else ""),
        Column("assumptions", "assuming", "Numbers of the assumptions that the row rests on.",
               lambda row: list(row.assumptions),
               each(lambda texts: " ".join(str(i) for i in sorted(places[text] for text in texts)))),
    ), tuple(rows))  # fmt: skip


def published_tables(rows: Sequence[Row]) -> list[Table[Row]]:
    """One table per kind and problem; all assumptions are numbered together."""
    ordered = in_order(rows)
    places = numbered(ordered)
    pairs = dict.fromkeys((row.kind, row.env) for row in ordered)
    return [
        _published(f"{env}: {kind}", [row for row in ordered if (row.kind, row.env) == (kind, env)], places)
        for kind, env in pairs
    ]


def _interval_cells(values: Sequence[SeedMean | str], _narrow: bool) -> list[Cell]:
    """The ends of intervals; of a single run, that it is one."""

    def cell(x: SeedMean | str) -> Cell:
        if isinstance(x, str) or x.low is None:
            return Cell(x if isinstance(x, str) else MISSING)
        return Cell("no spread" if x.low == x.high else span(x.low, x.high), value=x.low, low=x.low, high=x.high)

    return [cell(x) for x in values]
