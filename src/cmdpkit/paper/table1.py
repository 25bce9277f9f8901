"""Table 1 of the paper: every algorithm with its published bounds, and how its regret grows here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cmdpkit.results.groups import Group, slope
from cmdpkit.results.statistics import SeedMean
from cmdpkit.results.tables import MISSING, Column, Table

TABLE1_EPISODES = 100_000


class Published(NamedTuple):
    """A row of the paper's Table 1; bounds are up to logarithms, S, A, H as everywhere, slack = Slater's constant."""

    name: str  # in the paper
    regret: str  # bound
    violation: str  # bound
    identifies: bool  # whether the best policy is identified (BPI)
    algo: str  # its name here
    presets: tuple[str, ...] = ("practical", "theory")  # with which it is run


TABLE1 = (
    Published("OPDOP", "H^3 sqrt(S^2 A K)", "H^3 sqrt(S^2 A K)", False, "opdop"),
    Published("OptDual-CMDP", "H^2 sqrt(S^3 A K)", "H^2 sqrt(S^3 A K)", False, "opt-dual"),
    Published("OptPrimalDual-CMDP", "H^2 sqrt(S^3 A K)", "H^2 sqrt(S^3 A K)", False, "opt-primal-dual"),
    Published("CONRL", "H^3 sqrt(S^3 A^2 K)", "H^3 sqrt(S^3 A^2 K)", False, "conrl"),
    Published("OptPess-LP", "H^3 sqrt(S^3 A K)", "0", False, "opt-pess-lp"),
    Published("OptPess-PrimalDual", "H^3 sqrt(S^3 A K)", "1", False, "opt-pess-primal-dual"),
    Published("OPSRL", "sqrt(S^4 H^7 A K)", "0", False, "opsrl"),
    Published("Triple-Q", "(1/slack) H^4 sqrt(S A) K^0.8", "0", False, "triple-q", ("practical", "theory", "authors")),
    Published("PRI", "H sqrt(K)", "0", True, "pri", ("paper", "theory")),
)  # fmt: skip


class Table1Row(NamedTuple):
    """A published row and one preset of ours."""

    published: Published
    preset: str
    regret: SeedMean | None  # exponent of K in the regret, None where the regret is not positive throughout
    strong: SeedMean | None  # exponent of K in the strong regret
    violation: SeedMean | None  # exponent of K in the strong violation, None where there is none throughout


def table1_rows(groups: Iterable[Group]) -> tuple[Table1Row, ...]:
    """Growth over the last nine tenths of the runs of this table."""
    found = {(group.run.algo, group.run.preset): group for group in groups if group.run.episodes == TABLE1_EPISODES}
    rows = []
    for published in TABLE1:
        for preset in published.presets:
            group = found.get((published.algo, preset))
            if group is not None:
                growth = (slope(group, name) for name in ("regret", "strong_regret", "strong_violation"))
                rows.append(Table1Row(published, preset, *growth))
    return tuple(rows)


def table1_table(rows: Sequence[Table1Row]) -> Table[Table1Row]:
    """One row per algorithm and preset."""
    columns: list[Column[Table1Row]] = [
        Column("name", "algorithm", "Its name in the paper, and here.",
               lambda row: f"{row.published.name} ({row.published.algo})"),
        Column("preset", "preset", "The preset here.", lambda row: row.preset),
        Column("regret", "regret", "Published bound, up to logarithms.", lambda row: row.published.regret),
        Column("violation", "violation", "Published bound.", lambda row: row.published.violation),
        Column("bpi", "BPI", "Best policy identified.", lambda row: "yes" if row.published.identifies else "no"),
        Column("growth", "b: regret", "Measured exponent.", lambda row: exponent(row.regret), align="right"),
        Column("strong", "b: strong", "Of strong regret.", lambda row: exponent(row.strong), align="right"),
        Column("strong_violation", "b: violation", "Of strong violation.", lambda row: exponent(row.violation),
               align="right"),
    ]  # fmt: skip
    title = f"Table 1 of the paper; regret ~ K^b on paper/synthetic, K = {TABLE1_EPISODES:,}"
    return Table(title, tuple(columns), tuple(rows))


def exponent(b: SeedMean | None) -> str:
    """With half the width of its interval.

    >>> exponent(SeedMean(0.512, 0.48, 0.544, 5)), exponent(SeedMean(1.0, None, None, 1)), exponent(None)
    ('0.51 ± 0.03', '1.00', '–')
    """
    if b is None:
        return MISSING
    half = 0.0 if b.low is None else (b.high - b.low) / 2
    return f"{b.mean:.2f} ± {half:.2f}" if half >= 0.005 else f"{b.mean:.2f}"
