"""The tables of docs/algorithms/which.md: every algorithm on the same problems (experiments/table1.toml).

python -m bench which_algorithm          some minutes; what is finished in runs/table1 is not run again

Writes docs/algorithms/measured/*.inc. Totals are over all K episodes, exact, in the problem's units; where there are
several bounds, the worst of them counts. The summary has averages per episode, in percent of what there is between the
smallest and the largest total of a signal, and of these the median over problems.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench._ranges import total_range
from cmdpkit import CMDP, learn
from cmdpkit.experiments.execute import execute
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.learners import facts
from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.statistics import estimate
from cmdpkit.results.study import Group, finals, policy_gaps, policy_misses, slope

EXPERIMENT, FOLDER = Path("experiments/table1.toml"), Path("docs/algorithms/measured")
PRESETS = ("practical", "theory")
EXPONENTS = {"triple-q": "0.8", "reload": "–"}  # of K in the published bound, where it is not a half
HEADINGS = (
    *("algorithm", "K", "regret", "strong regret", "violation", "strong violation", "unsafe episodes"),
    *("policy below optimum", "policies within bounds", "µs an episode", "kB"),
)


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
    done = execute(experiment.runs(), experiment.worlds, experiment.output, title=experiment.name)
    groups = done.study().groups()
    models = {problem.env: problem.world for problem in experiment.problems}
    FOLDER.mkdir(exist_ok=True)
    write("summary", summary([group for group in groups if group.run.preset == "practical"], models))
    write("growth", growth(groups))
    for preset in PRESETS:
        lines = []
        for env, cmdp in models.items():
            mine = [group for group in groups if (group.run.env, group.run.preset) == (env, preset)]
            lines += [f"### `{env}`", "", described(cmdp, mine[0]), "", *table(mine, cmdp), ""]
        write(preset, lines)
    print(f"{done.seconds:.0f} s of learning now, {len(done.failed)} runs failed; the tables are in {FOLDER}")


def write(name: str, lines: Sequence[str]) -> None:
    Path(FOLDER, f"{name}.inc").write_text("\n".join(lines) + "\n", encoding="utf-8")


def rows_of(cells: Iterable[Sequence[str]], numbers: int) -> list[str]:
    """A Markdown table whose first row is its head; all but the first columns hold so many numbers."""
    head, *body = cells
    rule = [*["---"] * (len(head) - numbers), *["---:"] * numbers]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


# -- a problem ---------------------------------------------------------------------------------------------------------


def described(cmdp: CMDP, group: Group) -> str:
    """What a reader needs to judge the figures of a problem."""
    bounds = ", ".join(str(c) for c in cmdp.constraints)
    return f"H = {cmdp.H}, S = {cmdp.S}, A = {cmdp.A}; optimum {group.records[0].optimum:.4g} with {bounds}."


def table(groups: Iterable[Group], cmdp: CMDP) -> list[str]:
    cells: list[Sequence[str]] = [HEADINGS]
    for group in groups:
        x = Figures.of(group)
        totals = [spread(total) for total in (x.regret, x.strong_regret, x.violation, x.strong_violation)]
        policies = [spread(x.gap), f"{x.within} of {len(group.seeds)}"]
        spent = [number(1e6 * x.seconds, 2), kilobytes(group, cmdp)]
        name, K = f"`{group.run.algo}`", f"{group.run.episodes:,}"
        cells.append([name, K, *totals, f"{number(100 * x.unsafe.mean())} %", *policies, *spent])
    return rows_of(cells, len(HEADINGS) - 1)


def spread(values: FloatArray) -> str:
    """Mean over seeds and half of its 95 % interval."""
    over = estimate(values)
    half = 0.0 if over.high is None else over.high - over.mean
    return number(over.mean) + (f" ± {number(half, 2)}" if half > 1e-9 else "")


def number(x: float, digits: int = 3) -> str:
    """A few digits, thousands apart, nothing that is rounding."""
    rounded = 0.0 if abs(x) < 1e-9 else float(f"{x:.{digits}g}")
    if 0 < abs(rounded) < 1e-4:
        return f"{rounded:.0e}".replace("e-0", "e-")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def kilobytes(group: Group, cmdp: CMDP) -> str:
    """Size of the arrays that the learner keeps, as a checkpoint has them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.npz")
        learn(cmdp, group.run.algo, preset=group.run.preset, episodes=1000, checkpoint=path)
        with np.load(path, allow_pickle=False) as saved:
            size = sum(saved[name].nbytes for name in saved.files if name.startswith("learner/"))
    return number(size / 1e3, 2)


# -- all problems ------------------------------------------------------------------------------------------------------


def summary(groups: Iterable[Group], models: dict[str, CMDP]) -> list[str]:
    """A row an algorithm and length: medians over problems."""
    together: dict[tuple[str, int], list[Group]] = {}
    for group in groups:
        together.setdefault((group.run.algo, group.run.episodes), []).append(group)
    units = {name: f"{name}, %" for name in (*HEADINGS[2:7], "policy below optimum")}
    cells: list[Sequence[str]] = [[units.get(x, x) for x in HEADINGS if x != "kB"]]
    ranges = {name: [total_range(cmdp, x) for x in (cmdp.r, *cmdp.g)] for name, cmdp in models.items()}
    for (algo, K), mine in together.items():
        found = [Figures.of(group, *ranges[group.run.env]) for group in mine]
        percent = np.median([[100 * part.mean() for part in x[:6]] for x in found], axis=0) / [K, K, K, K, 1, 1]
        within = f"{sum(x.within for x in found)} of {sum(len(group.seeds) for group in mine)}"
        spent = number(1e6 * float(np.median([x.seconds for x in found])), 2)
        cells.append([f"`{algo}`", f"{K:,}", *(number(x, 2) for x in percent), within, spent])
    return rows_of(cells, len(cells[0]) - 1)


def growth(groups: Iterable[Group]) -> list[str]:
    """Published bounds beside b in regret ~ K^b over the last nine tenths of each run, lowest to highest problem."""
    by_algo: dict[str, list[Group]] = {}
    for group in groups:
        by_algo.setdefault(group.run.algo, []).append(group)
    cells: list[Sequence[str]] = [
        ("algorithm", "published, up to logarithms", "exponent of K", "`practical`", "`theory`"),
    ]
    for algo, mine in by_algo.items():
        guarantee = facts(algo).guarantee
        order = re.search(r"order (.+?)(?:,|;| and | as |[.]?$)", guarantee)
        kind = "strong" if guarantee.startswith("strong") else "weak"
        longest = max(group.run.episodes for group in mine)
        found = [
            exponents([g for g in mine if g.run.preset == preset and g.run.episodes == longest], kind)
            for preset in PRESETS
        ]
        published = f"{kind}, {order[1]}" if order else "nothing about regret"
        cells.append([f"`{algo}`", published, EXPONENTS.get(algo, "0.5"), *found])
    return rows_of(cells, 3)


def exponents(groups: Sequence[Group], kind: str) -> str:
    """Lowest and highest, of the problems where regret is positive throughout; the others are counted."""
    fits = [slope(group, "strong_regret" if kind == "strong" else "regret") for group in groups]
    found = sorted(round(x.mean, 2) + 0.0 for x in fits if x is not None)
    ends = " … ".join(f"{x:.2f}" for x in dict.fromkeys((found[0], found[-1]))) if found else ""
    rest = f"{len(fits) - len(found)} not positive" if len(found) < len(fits) else ""
    return "; ".join(text for text in (ends, rest) if text) or "–"


if __name__ == "__main__":
    main()
