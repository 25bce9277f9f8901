"""The tables of docs/algorithms/which.md: every algorithm on the same problems (experiments/table1.toml).

python -m bench which_algorithm          over an hour; what is finished in runs/table1 is not run again

The experiment is run as it stands, with other numbers of episodes (`FEW` for all algorithms, `MANY` for those that take
microseconds per episode), and with more seeds for the algorithms that promise never to be unsafe. Writes
docs/algorithms/measured/*.inc. Totals are over all K episodes, exact, in the problem's units; where there are several
bounds, the worst of them counts. The summary has averages per episode, in percent of what there is between the smallest
and the largest total of a signal, and of these the median over problems.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from bench._suite import total_range
from cmdpkit import CMDP, learn
from cmdpkit.experiments.execute import execute
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.learners import facts
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Run
from cmdpkit.results.groups import Group, SeedMean, curve, finals, policy_gaps, policy_misses, seed_mean, slope
from cmdpkit.results.tables import Column, Format, Share, Table, rounded, share, whole, with_interval

EXPERIMENT, FOLDER = Path("experiments/table1.toml"), Path("docs/algorithms/measured")
PRESETS = ("practical", "theory")
SHOWN_AS = {
    "printed": "practical",  # `pri` has its published settings in place of practical ones
    "uopt": "theory",  # `reg-primal-dual` has three published settings in place of one theory
    "muller": "theory",
    "flexdome": "theory",
}
FEW, MANY = (3_000, 10_000), 2_000_000
QUICK = (
    "opt-cmdp", "opt-cmdp-bonus", "conrl", "opt-pess-lp", "dope", "opsrl", "triple-q", "dual-q", "cl-pri",
    "mf-pri", "pri", "ps-cmdp",
)  # fmt: skip
SAFE, SAFETY_SEEDS = ("opt-pess-lp", "dope", "opsrl"), 20  # with theory constants, at the smallest number of episodes
AWAKE = 0.02  # of the range of a signal: an algorithm that loses no more than this per episode has woken up
EXPONENTS = {
    "triple-q": "0.8",
    "reload": "–",
    "cl-pri": "–",
    "mf-pri": "–",
    "dual-q": "–",
    "pac": "–",
    "ps-cmdp": "–",
    "reg-primal-dual": "–",
}  # of K in the published bound, where it is not a half


class Figures(NamedTuple):
    """What a group of runs comes to; arrays are [seeds]."""

    regret: FloatArray
    strong_regret: FloatArray
    violation: FloatArray  # of the bound that is missed most
    strong_violation: FloatArray
    unsafe: FloatArray  # share of the episodes
    gap: FloatArray
    within: int  # policies that meet all bounds
    seconds: float  # an episode

    @classmethod
    def of(cls, group: Group, reward: float = 1.0, *utilities: float) -> Figures:
        """In the problem's units, or in those given for the reward and every utility."""
        gaps, misses = policy_gaps(group), policy_misses(group)
        assert gaps is not None
        assert misses is not None
        K, units = group.run.episodes, utilities or (1.0,) * misses.shape[1]
        weak, strong = (
            np.max([finals(group, name, n) / unit for n, unit in enumerate(units)], axis=0)
            for name in ("violation", "strong_violation")
        )
        return cls(
            regret=finals(group, "regret") / reward,
            strong_regret=finals(group, "strong_regret") / reward,
            violation=weak,
            strong_violation=strong,
            unsafe=finals(group, "unsafe_episodes") / K,
            gap=gaps / reward,
            within=int((misses <= 0).all(axis=1).sum()),
            seconds=float(np.median([record.seconds for record in group.records])) / K,  # the first may compile
        )


def main() -> None:
    experiment = Experiment.load(EXPERIMENT)
    done = execute(all_runs(experiment.runs()), experiment.worlds, experiment.output, title=experiment.name)
    groups = done.study().groups()
    models = {problem.name: problem.world for problem in experiment.problems}
    practical = [group for group in groups if shown_as(group.run) == "practical"]
    FOLDER.mkdir(exist_ok=True)
    write("summary", summary(practical, models))
    write("waking", waking(practical, models))
    promised = [group for group in groups if group.run.algo in SAFE and group.run.episodes == FEW[0]]
    write("safety", safety(promised))
    long = [group for group in groups if group.run.episodes not in FEW]
    write("growth", growth(long))
    for preset in PRESETS:
        lines = []
        for env, cmdp in models.items():
            mine = [group for group in long if (group.run.env, shown_as(group.run)) == (env, preset)]
            if mine:
                lines += [f"### `{env}`", "", described(cmdp, mine[0]), "", *table(mine, cmdp), ""]
        write(preset, lines)
    print(f"{done.seconds:.0f} s of learning now, {len(done.failed)} runs failed; the tables are in {FOLDER}")


def shown_as(run: Run) -> str:
    """The preset under which a run is listed."""
    return SHOWN_AS.get(run.preset, run.preset)


def label(run: Run) -> str:
    """The algorithm, with its preset if the name of that says more than the table."""
    return f"{run.algo} {run.preset}" if shown_as(run) == "theory" != run.preset else run.algo


def all_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs of the experiment, those of preset `theory` with one seed, and runs of other lengths and more seeds."""
    practical = [run for run in runs if shown_as(run) == "practical"]
    theory = [run for run in runs if shown_as(run) == "theory" and run.seed == 0]  # nearly nothing happens in them
    few = [replace(run, length=K) for K in FEW for run in practical]
    many = [replace(run, length=MANY) for run in practical if run.algo in QUICK]
    promised = [run for run in theory if run.algo in SAFE]
    safe = [replace(run, length=FEW[0], seed=seed) for seed in range(SAFETY_SEEDS) for run in promised]
    return list({run.key: run for run in (*few, *practical, *theory, *many, *safe)}.values())


def write(name: str, lines: Sequence[str]) -> None:
    """Write a table."""
    Path(FOLDER, f"{name}.inc").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Line(NamedTuple):
    """One row of a table: figures of a group of runs, or their medians over several problems."""

    algo: str
    episodes: int
    figures: Mapping[str, SeedMean | float]
    within: Share
    microseconds: float  # of an episode
    kilobytes: float | None


STRONG = {"strong_regret": "strong regret", "strong_violation": "strong violation"}
WEAK = {"regret": "regret", "violation": "violation"}
TOTALS = STRONG | WEAK


def as_table(lines: Iterable[Line], write: Format, unit: str = "") -> list[str]:
    """The lines in Markdown; ``unit`` is that of the totals and of what policies stay below the optimum."""

    def figure(key: str, heading: str) -> Column[Line]:
        return Column(key, heading, "A figure of the runs.", lambda line: line.figures[key], write, "right")

    columns: list[Column[Line]] = [
        Column("algo", "algorithm", "The algorithm.", lambda line: line.algo),
        Column("episodes", "K", "Episodes of every run.", lambda line: line.episodes, whole, "right"),
        *(figure(key, heading + unit) for key, heading in STRONG.items()),
        figure("unsafe", "unsafe episodes, %"),
        figure("gap", "policy below optimum" + unit),
        Column("within", "policies within bounds", "Final policies that meet all bounds.", lambda line: line.within,
               share, "right"),
        *(figure(key, heading + unit) for key, heading in WEAK.items()),
        Column("microseconds", "µs an episode", "The median time.", lambda line: line.microseconds, rounded(2),
               "right"),
        Column("kilobytes", "kB", "The size of what the learner keeps.", lambda line: line.kilobytes, rounded(2),
               "right"),
    ]  # fmt: skip
    return Table("", tuple(columns), tuple(lines)).to_markdown().splitlines()


# -- a problem ---------------------------------------------------------------------------------------------------------


def described(cmdp: CMDP, group: Group) -> str:
    """What a reader needs to judge the figures of a problem."""
    bounds = ", ".join(str(c) for c in cmdp.constraints)
    return f"H = {cmdp.H}, S = {cmdp.S}, A = {cmdp.A}; optimum {group.records[0].optimum:.4g} with {bounds}."


def table(groups: Iterable[Group], cmdp: CMDP) -> list[str]:
    lines = []
    for group in groups:
        x = Figures.of(group)
        figures = {key: seed_mean(getattr(x, key)) for key in (*TOTALS, "gap")}
        figures["unsafe"] = seed_mean(100 * x.unsafe)
        within, micro = Share(x.within, len(x.gap)), 1e6 * x.seconds
        lines.append(
            Line(
                label(group.run),
                group.run.episodes,
                figures,
                within,
                micro,
                kilobytes(group.run.algo, group.run.preset, cmdp),
            )
        )
    return as_table(lines, with_interval(3))


@cache
def kilobytes(algo: str, preset: str, cmdp: CMDP) -> float:
    """Size of the arrays that the learner keeps, as a checkpoint has them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.npz")
        learn(cmdp, algo, preset=preset, episodes=1000, checkpoint=path)
        with np.load(path, allow_pickle=False) as saved:
            size = sum(saved[name].nbytes for name in saved.files if name.startswith("learner/"))
    return size / 1e3


# -- all problems ------------------------------------------------------------------------------------------------------


def summary(groups: Iterable[Group], models: dict[str, CMDP]) -> list[str]:
    """One row per algorithm and length: medians over problems, per episode and in percent of each signal's range."""
    together: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        together.setdefault((group.run.algo, group.run.episodes), []).append(group)
    ranges = {name: [total_range(cmdp, x) for x in (cmdp.r, *cmdp.g)] for name, cmdp in models.items()}
    lines = []
    for (algo, K), mine in together.items():
        found = [Figures.of(group, *ranges[group.run.env]) for group in mine]
        figures = {key: 100 * median(getattr(x, key).mean() for x in found) for key in (*TOTALS, "unsafe", "gap")}
        figures |= {key: figures[key] / K for key in TOTALS}
        within = Share(sum(x.within for x in found), sum(len(x.gap) for x in found))
        lines.append(Line(algo, K, figures, within, 1e6 * median(x.seconds for x in found), None))
    return as_table(lines, rounded(2), unit=", %")


class Waking(NamedTuple):
    """One row of the table that says from how many episodes on an algorithm is of use."""

    algo: str
    found: Sequence[float]  # K / (H S A) at which it wakes up, of the problems where it does
    problems: int


def waking(groups: Iterable[Group], models: dict[str, CMDP]) -> list[str]:
    """From which k / (H S A) on the longest run loses at most AWAKE per episode, over all problems."""
    longest: dict[tuple[str, str], Group] = {}
    for group in sorted(groups, key=lambda group: group.run.episodes):
        longest[group.run.algo, group.run.env] = group
    algos = list(dict.fromkeys(algo for algo, _ in longest))
    rows = []
    for algo in algos:
        mine = {env: group for (name, env), group in longest.items() if name == algo}
        found = [(woken(group, models[env]), models[env]) for env, group in mine.items()]
        ratios = sorted(k / (cmdp.H * cmdp.S * cmdp.A) for k, cmdp in found if k is not None)
        rows.append(Waking(algo, ratios, len(found)))
    columns: list[Column[Waking]] = [
        Column("algo", "algorithm", "The algorithm.", lambda row: row.algo),
        Column("first", "first problem", "Smallest K / (H S A).", lambda row: min(row.found, default=None), rounded(2),
               "right"),
        Column("median", "median", "Median K / (H S A).", lambda row: median(row.found) if row.found else None,
               rounded(2), "right"),
        Column("last", "last problem", "Largest K / (H S A).", lambda row: max(row.found, default=None), rounded(2),
               "right"),
        Column("awake", "problems", "Where it wakes up at all.", lambda row: Share(len(row.found), row.problems),
               share, "right"),
    ]  # fmt: skip
    return Table("", tuple(columns), tuple(rows)).to_markdown().splitlines()


def woken(group: Group, cmdp: CMDP) -> float | None:
    """The first episode k from which on strong regret and violation stay at most AWAKE, averaged from j / 2 to j."""
    reward, *utilities = (total_range(cmdp, x) for x in (cmdp.r, *cmdp.g))
    regret = curve(group, "strong_regret")
    violation = np.max([curve(group, "strong_violation", n).mean / x for n, x in enumerate(utilities)], axis=0)
    k, lost = np.append(0.0, regret.episode), np.append(0.0, regret.mean / reward + violation)
    rate = (lost[1:] - np.interp(k[1:] / 2, k, lost)) / (k[1:] / 2)
    asleep = np.flatnonzero(rate > AWAKE)
    first = int(asleep[-1]) + 1 if len(asleep) else 0
    return float(k[1 + first]) if first < len(rate) else None


def safety(groups: Iterable[Group]) -> list[str]:
    """Unsafe episodes of the algorithms that promise to have none, over all problems and seeds."""
    together: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        together.setdefault((group.run.algo, group.run.preset), []).append(group)
    Row = tuple[tuple[str, str], list[Group]]
    columns: list[Column[Row]] = [
        Column("algo", "algorithm", "The algorithm.", lambda row: row[0][0]),
        Column("preset", "preset", "The preset.", lambda row: row[0][1]),
        Column("runs", "runs with an unsafe episode", "Runs.", lambda row: unsafe_runs(row[1]), share, "right"),
        Column("episodes", "unsafe episodes", "Of all episodes.", lambda row: unsafe_episodes(row[1]), share, "right"),
        Column("within", "policies within bounds", "Handed over.", lambda row: safe_policies(row[1]), share, "right"),
    ]
    return Table("", tuple(columns), tuple(together.items())).to_markdown().splitlines()


def unsafe_runs(groups: Sequence[Group]) -> Share:
    counts = np.concatenate([finals(group, "unsafe_episodes") for group in groups])
    return Share(int((counts > 0).sum()), len(counts))


def unsafe_episodes(groups: Sequence[Group]) -> Share:
    counts = np.concatenate([finals(group, "unsafe_episodes") for group in groups])
    return Share(int(counts.sum()), FEW[0] * len(counts))


def safe_policies(groups: Sequence[Group]) -> Share:
    found = [Figures.of(group) for group in groups]
    return Share(sum(x.within for x in found), sum(len(x.gap) for x in found))


class Growth(NamedTuple):
    """One row of the table of growth."""

    algo: str
    published: str
    exponent: str
    measured: Mapping[str, str]  # by preset


def growth(groups: Iterable[Group]) -> list[str]:
    """Published bounds beside b in regret ~ K^b over the last nine tenths of each run, lowest to highest problem."""
    by_algo: dict[str, list[Group]] = {}
    for group in groups:
        by_algo.setdefault(group.run.algo, []).append(group)
    columns: list[Column[Growth]] = [
        Column("algo", "algorithm", "The algorithm.", lambda row: row.algo),
        Column("published", "published, up to logarithms", "The published bound.", lambda row: row.published),
        Column("exponent", "exponent of K", "Of the published bound.", lambda row: row.exponent, align="right"),
        *(
            Column(preset, preset, "Measured.", lambda row, preset=preset: row.measured[preset], align="right")
            for preset in PRESETS
        ),
    ]
    rows = []
    for algo, mine in by_algo.items():
        guarantee = facts(algo).guarantee
        order = re.search(r"order (.+?)(?:,|;| and | as |[.]?$)", guarantee)
        kind = "strong" if guarantee.startswith("strong") else "weak"
        found = {preset: exponents(longest([g for g in mine if shown_as(g.run) == preset]), kind) for preset in PRESETS}
        published = f"{kind}, {order[1]}" if order else "nothing about regret"
        rows.append(Growth(algo, published, EXPONENTS.get(algo, "0.5"), found))
    return Table("", tuple(columns), tuple(rows)).to_markdown().splitlines()


def longest(groups: Sequence[Group]) -> list[Group]:
    """Those with the largest number of episodes."""
    most = max((group.run.episodes for group in groups), default=0)
    return [group for group in groups if group.run.episodes == most]


def exponents(groups: Sequence[Group], kind: str) -> str:
    """Lowest and highest, of the problems where regret is positive throughout; the others are counted."""
    fits = [slope(group, "strong_regret" if kind == "strong" else "regret") for group in groups]
    found = sorted(round(x.mean, 2) + 0.0 for x in fits if x is not None)
    ends = " … ".join(f"{x:.2f}" for x in dict.fromkeys((found[0], found[-1]))) if found else ""
    rest = f"{len(fits) - len(found)} not positive" if len(found) < len(fits) else ""
    return "; ".join(text for text in (ends, rest) if text) or "–"


if __name__ == "__main__":
    main()
