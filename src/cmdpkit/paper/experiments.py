"""The published experiments: the runs behind every part of the reproduction, and every published figure next to ours.

`paper_experiments` is what `cmdpkit reproduce paper --what PART` runs; `compared` holds the figures of the paper
against these runs, with the assumptions behind each. Table 1 of the paper lists every algorithm with its published
bounds; its rows here add how its regret grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.experiments.experiment import Experiment
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import RunRecord
from cmdpkit.results.groups import Group, slope
from cmdpkit.results.published import NOT_JUDGED, Kind, Row, Rule, judged
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.tables import MISSING, Column, Table

Measure = Callable[[RunRecord], float]

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
    whole = {"episodes": 10_800_000, "readings": [READ_AT[GRID]]}  # Triple-Q has as many episodes as PRI
    pruning = {"runs": 1, "run_episodes": 200_000, "compare": True, "compare_episodes": 200_000}
    # Pruning, comparisons, and 5,000,000 episodes twice. The band of the print would take the cost beyond its bound.
    on_grid = {**pruning, "K": 5_000_000, "eps_rho": 0.001, "band": False}
    triple_q = {"name": "triple-q", "preset": ["practical", "authors"]}
    algorithms: dict[str, list[Any]] = {
        "synthetic": [_pri(LENGTHS[-1]), "cl-pri", triple_q],
        "grid": [{"name": "pri", "preset": "printed", **whole, "params": on_grid}, "cl-pri", {**triple_q, **whole}],
        "growth": [_pri(episodes) for episodes in LENGTHS],
        "cancellation": [_pri(episodes, params={"draw_each": True}) for episodes in LENGTHS],
        "theory": [{"name": "pri", "preset": "theory", "episodes": THEORY_EPISODES}],
        "table1": [{"name": x.algo, "preset": list(x.presets), "episodes": TABLE1_EPISODES} for x in TABLE1],
    }
    made = []
    for part in RUNS:
        if part in parts:
            env = GRID if part == "grid" else SYNTHETIC
            asked = {"environments": [env], "algorithms": algorithms[part], "episodes": READ_AT[env], "seeds": seeds}
            made.append(Experiment.of({"name": f"paper-{part}", **asked}, "reproduce"))
    return tuple(made)


def _pri(episodes: int, **more: Any) -> dict[str, Any]:
    """Preset printed, read after pruning; the longest run is also read where the paper read it."""
    readings = [after_pruning(episodes), *([READ_AT[SYNTHETIC]] if episodes > READ_AT[SYNTHETIC] else [])]
    return {"name": "pri", "preset": "printed", "episodes": episodes, "readings": readings, **more}


def after_pruning(episodes: int) -> int:
    """Episodes of a run with preset printed before its refinement.

    >>> after_pruning(15_000_000)
    1000000
    """
    return 10 * (episodes // 150)


# -- published figures ------------------------------------------------------------------------------------------------

ASSUMPTIONS = {
    "start": "The text fixes the initial state, but the experiment cannot have: with state 1, 2 or 3 the optimum is "
    "1.480, 2.045 or 1.232, never the printed 1.573. The start distribution used is the next draw of the random stream "
    "that the printed tables are from; with it the optimum and the value and utility of the printed policy come out to "
    "their last digit. One printed reward, 0.20724388, is 0.20724288 in that stream: a digit was copied wrongly.",
    "board": "The board of the grid is shown in a figure only, and its rewards are described in one sentence that can "
    "be read in several ways. Both are reconstructions, chosen to have the printed reward and cost.",
    "tightening": "Refinement on the synthetic problem is tightened by (log K)^2 / sqrt K, as printed; pruning is not, "
    "because that exceeds the slack. On the grid 0.001 is used, from the printed cost 0.499, without the printed band. "
    "Values of the policy, regret and violation follow from it.",
    "pruning": "Pruning on the synthetic problem is by usage alone, as printed. Its threshold and the constants of its "
    "base learner are not printed; ours were chosen so that usage leaves the actions of the optimum. On the grid it is "
    "one run of 200,000 episodes and comparisons that end early; their thresholds are not printed.",
    "length": "It is not said after how many episodes of the grid the figures are. They are read after 5,800,000 and "
    "at the end.",
    "constants": "The constants of the paper's Triple-Q are not printed. Shown are those of the published Triple-Q "
    "experiment (authors), which is what is judged, and ours (practical).",
    "ours": "cl-pri is not the paper's algorithm but our own. It keeps the violation that is realised at or below "
    "zero; the one in expectation differs from that by sampling noise.",
}


class Figure(NamedTuple):
    """A published figure."""

    rule: Rule
    quantity: str
    published: float
    digits: float  # half a unit of the last published digit
    measure: Measure
    kind: Kind


def compared(groups: Iterable[Group]) -> list[Row]:
    """Every published figure next to that of the groups of runs."""
    rows: list[Row] = []
    for env, base in ((SYNTHETIC, ("start",)), (GRID, ("board", "length"))):
        for group in groups_of(groups, env):
            algo = group.run.algo
            about = {"triple-q": ("constants",), "pri": ("tightening", "pruning")}.get(algo, ("ours",))
            assumed = tuple(ASSUMPTIONS[name] for name in (*base, *about))
            for figure in _FIGURES[env][algo, group.run.preset]:
                rows.append(_row(group, figure, assumed))
    return rows


def groups_of(groups: Iterable[Group], env: str) -> list[Group]:
    """The groups of one of the two published experiments, without those of other parts of the reproduction."""
    return [
        group
        for group in groups
        if group.run.env == env
        and (group.run.algo, group.run.preset) in _FIGURES[env]
        and group.run.episodes >= READ_AT[env]
        and "draw_each" not in group.run.params
    ]


def _row(group: Group, figure: Figure, assumed: tuple[str, ...]) -> Row:
    values = over_seeds(group, figure.measure)
    verdict = NOT_JUDGED
    if figure.kind != "ours":
        verdict = judged(figure.rule, figure.published, values, figure.digits, certain=group.deterministic)
    return Row(
        env=group.run.env,
        algo=f"{group.run.algo} ({group.run.preset})",
        quantity=figure.quantity,
        published=figure.published,
        measured=seed_mean(values),
        verdict=verdict,
        assumptions=assumed,
        kind=figure.kind,
        deterministic=group.deterministic,
    )


def over_seeds(group: Group, measure: Measure) -> FloatArray:
    """[seeds]"""
    return np.array([measure(record) for record in group.samples], dtype=float)


# -- what is measured --------------------------------------------------------------------------------------------------


def read(name: str, env: str) -> Measure:
    """A curve after the episodes at which it is compared, where it was read."""

    def measure(record: RunRecord) -> float:
        (i,) = np.flatnonzero(record.curves["episode"] == READ_AT[env])
        return float(np.atleast_2d(record.curves[name])[0, i])

    return measure


def end(name: str) -> Measure:
    """A curve at the end of the run."""
    return lambda record: float(np.atleast_2d(record.curves[name])[0, -1])


def value(record: RunRecord) -> float:
    """The exact value of the policy handed over."""
    return float(record.policy_value or 0.0)


def utility(record: RunRecord) -> float:
    """The exact utility or cost of the policy handed over."""
    return float(np.asarray(record.policy_utilities)[0])


def optimum(record: RunRecord) -> float:
    """The exact optimum."""
    return float(record.optimum or 0.0)


def draws(record: RunRecord) -> float:
    """The number of stochastic decisions of the policy handed over."""
    return float(len(record.decisions))


def second_action(record: RunRecord) -> float:
    """How often the policy takes action 2 at step 1 in state 1, the only stochastic decision of the optimum."""
    return float(record.policy.pi[0, 0, 1])


def actions_left(when: str) -> Measure:
    """How many actions are left at some point of a run of PRI."""
    return lambda record: float(record.explanation["actions"][when])


def checked(record: RunRecord) -> float:
    """Triples (step, state, action) that comparisons tested, but for those of stochastic decisions of the policy."""
    tested = {(test["step"] - 1, test["state"], test["action"]) for test in record.explanation.get("tests", ())}
    pi = record.policy.pi
    return float(sum(pi[triple] in (0.0, 1.0) for triple in tested))


def _sums(env: str, regret: float, violation: float, digits: tuple[float, float], kind: Kind) -> tuple[Figure, ...]:
    return (
        Figure("sum", "regret", regret, digits[0], read("regret", env), kind),
        Figure("sum", "violation", violation, digits[1], read("violation", env), kind),
    )


def _at_the_end(figures: Sequence[Figure], kind: Kind) -> tuple[Figure, ...]:
    return tuple(
        figure._replace(quantity=f"{figure.quantity} at the end", measure=end(figure.quantity), kind=kind)
        for figure in figures
    )


_PRI_SYNTHETIC = _sums(SYNTHETIC, 6.89e4, -8e4, (50.0, 5e3), "fitted")
_PRI_GRID = _sums(GRID, 1.69e5, -6.51e3, (500.0, 5.0), "reconstruction")
_TQ_SYNTHETIC = _sums(SYNTHETIC, 1.57e6, -4.17e5, (5e3, 500.0), "predicted")
_TQ_GRID = _sums(GRID, 3.19e6, -5.27e5, (5e3, 500.0), "reconstruction")


def _ours(figures: Sequence[Figure]) -> tuple[Figure, ...]:
    return tuple(figure._replace(kind="ours") for figure in figures)


_FIGURES: Mapping[str, Mapping[tuple[str, str], Sequence[Figure]]] = {
    SYNTHETIC: {
        ("pri", "printed"): (
            Figure("value", "optimum", 1.573, 5e-4, optimum, "exact"),
            *_PRI_SYNTHETIC,
            Figure("value", "reward of the policy", 1.561, 5e-4, value, "fitted"),
            Figure("value", "utility of the policy", 2.016, 5e-4, utility, "fitted"),
            Figure("value", "action 2 at (1, 1)", 0.059305, 5e-7, second_action, "fitted"),
            Figure("count", "stochastic decisions", 1, 0, draws, "fitted"),
        ),
        ("cl-pri", "practical"): (
            *_ours(_PRI_SYNTHETIC),
            Figure("sum", "realised violation", -8e4, 5e3, read("realised_violation", SYNTHETIC), "ours"),
        ),
        ("triple-q", "authors"): _TQ_SYNTHETIC,
        ("triple-q", "practical"): _ours(_TQ_SYNTHETIC),
    },
    GRID: {
        ("pri", "printed"): (
            *_PRI_GRID,
            *_at_the_end(_PRI_GRID, "reconstruction"),
            Figure("value", "reward of the policy", 5.000, 5e-4, value, "reconstruction"),
            Figure("value", "cost of the policy", 0.499, 5e-4, utility, "reconstruction"),
            Figure("sum", "actions left by usage, about", 200, 0, actions_left("after usage"), "reconstruction"),
            Figure("count", "actions left, printed as 155", 151, 0, actions_left("now"), "reconstruction"),
            Figure("count", "other triples checked", 2, 0, checked, "reconstruction"),
            Figure("count", "stochastic decisions", 1, 0, draws, "reconstruction"),
        ),
        ("cl-pri", "practical"): (
            *_ours(_PRI_GRID),
            Figure("sum", "realised violation", -6.51e3, 5.0, read("realised_violation", GRID), "ours"),
        ),
        ("triple-q", "authors"): (*_TQ_GRID, *_at_the_end(_TQ_GRID, "reconstruction")),
        ("triple-q", "practical"): _ours(_TQ_GRID),
    },
}


# -- Table 1 -----------------------------------------------------------------------------------------------------------

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
    Published("PRI", "H sqrt(K)", "0", True, "pri", ("printed", "theory")),
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
