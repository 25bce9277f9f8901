"""The runs behind the paper's claims, by part: what `cmdpkit reproduce paper --what PART` runs.

Table 1 of the paper lists every algorithm with its published bounds; the rows here add how its regret grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from cmdpkit.experiments.experiment import Experiment
from cmdpkit.results.groups import Group, slope
from cmdpkit.results.statistics import SeedMean
from cmdpkit.results.tables import MISSING, Column, Table

# -- Table 1 of the paper: every algorithm with its published bounds, and how its regret grows here.

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
    title = f"Table 1 of the paper, and the measured b in regret ~ K^b (paper/synthetic, K = {TABLE1_EPISODES:,})"
    return Table(title, (
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
    ), tuple(rows), keys=2)  # fmt: skip


def exponent(b: SeedMean | None) -> str:
    """With half the width of its interval.

    >>> exponent(SeedMean(0.512, 0.48, 0.544, 5)), exponent(SeedMean(1.0, None, None, 1)), exponent(None)
    ('0.51 ± 0.03', '1.00', '–')
    """
    if b is None:
        return MISSING
    half = 0.0 if b.low is None else (b.high - b.low) / 2
    return f"{b.mean:.2f} ± {half:.2f}" if half >= 0.005 else f"{b.mean:.2f}"


SYNTHETIC, GRID = "paper/synthetic", "paper/grid"
READ_AT = {SYNTHETIC: 8_000_000, GRID: 5_800_000}  # episodes after which regret and violation are compared
LENGTHS = (150_000, 1_500_000, 15_000_000)  # runs of different length, from which growth is fitted
THEORY_EPISODES = 2_100_000  # length of runs with preset theory, whose K is a third of it

# Parts that need runs, in the order in which they are shown; "lower-bound" and "departures" need none.
RUNS = ("synthetic", "grid", "growth", "cancellation", "theory", "table1")
PARTS = (*RUNS, "lower-bound", "departures")


def paper_experiments(seeds: int, parts: Sequence[str] = RUNS) -> tuple[Experiment, ...]:
    """One experiment per part that needs runs; the first two are also files, experiments/paper-*.toml.

    >>> [len(experiment.runs()) for experiment in paper_experiments(10)]
    [40, 40, 30, 30, 10, 190]
    """
    makers = {
        "synthetic": _synthetic,
        "grid": _grid,
        "growth": lambda: (SYNTHETIC, [_pri(episodes) for episodes in LENGTHS]),
        "cancellation": lambda: (SYNTHETIC, [_pri(episodes, params={"draw_each": True}) for episodes in LENGTHS]),
        "theory": lambda: (SYNTHETIC, [{"name": "pri", "preset": "theory", "episodes": THEORY_EPISODES}]),
        "table1": _table1,
    }
    made = []
    for part in RUNS:
        if part in parts:
            env, algorithms = makers[part]()
            document = {"environments": [env], "algorithms": algorithms, "episodes": READ_AT[env], "seeds": seeds}
            made.append(Experiment.of({"name": f"paper-{part}", **document}, "reproduce"))
    return tuple(made)


def _pri(episodes: int, **more: Any) -> dict[str, Any]:
    """Preset paper, read after pruning; the longest run, of the synthetic experiment, also where the paper read it."""
    readings = [after_pruning(episodes), *([READ_AT[SYNTHETIC]] if episodes > READ_AT[SYNTHETIC] else [])]
    return {"name": "pri", "preset": "paper", "episodes": episodes, "readings": readings, **more}


def after_pruning(episodes: int) -> int:
    """Episodes of a run with preset paper before its refinement: the run that estimates the slack, and ten others.

    >>> after_pruning(15_000_000)
    1030000
    """
    return episodes // 500 + 10 * (episodes // 150)


def _synthetic() -> tuple[str, list[Any]]:
    return SYNTHETIC, [_pri(LENGTHS[-1]), "cl-pri", {"name": "triple-q", "preset": ["practical", "authors"]}]


def _grid() -> tuple[str, list[Any]]:
    """PRI has a run of 200,000 episodes, comparisons, and 5,000,000 twice; Triple-Q has as many episodes as PRI."""
    pruning = {"runs": 1, "run_episodes": 200_000, "compare": True, "compare_episodes": 200_000}
    whole = {"episodes": 10_800_000, "readings": [READ_AT[GRID]]}
    pri = {"name": "pri", "preset": "paper", **whole, "params": {**pruning, "K": 5_000_000, "eps_rho": 0.001}}
    return GRID, [pri, "cl-pri", {"name": "triple-q", "preset": ["practical", "authors"], **whole}]


def _table1() -> tuple[str, list[Any]]:
    return SYNTHETIC, [
        {"name": row.algo, "preset": list(row.presets), "episodes": TABLE1_EPISODES} for row in TABLE1 if row.algo
    ]
