"""Settings of the presets `practical`: the same budget and the same rule of choice for every algorithm.

python -m bench settings                 some minutes; writes docs/algorithms/measured/settings.inc
python -m bench.settings opt-cmdp dope   these algorithms alone; their rows replace those of the table, or join it

Every algorithm is given twelve settings and runs with each of them on the same development problems, which are not
those of the comparison table, for the same number of episodes. The score of a setting is the average over all runs of

    strong regret + strong violation + what the policy handed over lacks, in value and at its worst bound,

each per episode and in percent of what lies between the smallest and the largest total that any policy reaches. The
setting with the smallest score is chosen. Algorithms that promise never to be unsafe are given the second smallest c,
which scales their pessimism, of those without an unsafe episode: ten runs without one prove little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from bench import _suite
from bench._ranges import total_range
from cmdpkit import CMDP, RunRecord, evaluate, learn

FILE = Path("docs/algorithms/measured/settings.inc")
FAMILIES = ("dense", "queue", "inventory", "several", "step_dependent")  # four of five do not depend on the step
EPISODES, SEEDS = 5_000, (1, 2)
SAFE = ("dope", "opsrl", "opt-pess-lp")

Setting = Mapping[str, float | str]


def grid(**values: tuple[float | str, ...]) -> list[Setting]:
    """All combinations of the values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


SETTINGS: dict[str, list[Setting]] = {
    "opt-cmdp": grid(c=(1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 5e-4, 1e-3, 2e-3, 3e-3, 1e-2, 1e-1)),
    "opt-cmdp-bonus": grid(c=(1e-9, 1e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)),
    "conrl": grid(c=(1e-8, 1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 2e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)),
    "opt-dual": grid(c=(1e-5, 1e-4, 1e-3), dual_step=(0.3, 1.0, 3.0, 10.0)),
    "opt-primal-dual": grid(c=(1e-7, 1e-6, 1e-5), policy_step=(100.0, 300.0, 1000.0, 3000.0)),
    "opdop": grid(c=(1e-7, 1e-6, 1e-5), policy_step=(1.0, 3.0, 10.0, 30.0)),
    "opt-pess-primal-dual": grid(c=(1e-7, 1e-6, 1e-5), eta=(0.1, 0.3, 1.0, 3.0)),
    "opt-pess-lp": grid(c=(1e-6, 3e-6, 1e-5, 1e-4), bonus=(0.01, 0.1, 1.0)),
    "dope": grid(c=(1e-5, 3e-5, 1e-4, 1e-3), bonus=(0.01, 0.1, 1.0)),
    "opsrl": grid(c=(1e-5, 3e-5, 1e-4, 1e-3), bonus=(1.0, 3.0, 10.0)),  # a smaller one stops it from exploring
    "reload": grid(c=(1e-8, 1e-7, 1e-6), step=(0.1, 0.3, 1.0, 3.0)),
    "reg-primal-dual": grid(preset=("uopt", "muller", "flexdome"), step=(1.0, 3.0), tau=(0.1, 0.3)),
    "ps-cmdp": grid(prior=(0.1, 0.3, 1.0), weight=(1.0, 10.0, 100.0, 1000.0)),
    "triple-q": grid(eta=(0.3, 1.0, 3.0, 10.0), chi=(1.0, 2.0, 4.0)),
    "dual-q": grid(explore=(0.01, 0.03, 0.1, 0.3), lam_start=(0.3, 1.0, 3.0)),
    "cl-pri": grid(bonus=(0.18, 0.35, 0.7, 1.4), new_cells=(0.01, 0.03, 0.1)),
}
# What all settings of an algorithm have in common, where it is not what the preset has: the bonus that "muller" and
# "flexdome" share with opt-primal-dual has the c of that algorithm.
FIXED: dict[str, Mapping[str, Setting]] = {"reg-primal-dual": {"muller": {"c": 1e-6}, "flexdome": {"c": 1e-6}}}


class Tried(NamedTuple):
    """One setting of an algorithm, tried on all problems."""

    algo: str
    setting: Setting
    score: float  # in percent, the smaller the better
    unsafe: int  # unsafe episodes in all runs
    missed: float  # share of the policies handed over that miss a bound
    chosen: bool = False


def main() -> None:
    asked = [name for name in sys.argv[1:] if name in SETTINGS] or list(SETTINGS)
    worlds = development()
    tried: list[Tried] = []
    for algo in asked:
        start = time.process_time()
        mine = [scored(algo, setting, worlds) for setting in SETTINGS[algo]]
        best = choice(algo, mine)
        tried += [x._replace(chosen=x is best) for x in mine]
        print(f"{algo}: {len(mine)} settings in {time.process_time() - start:.0f} s of CPU time", flush=True)
        for x in sorted(mine, key=lambda x: x.score):
            mark = "<- chosen" if x is best else ""
            print(
                f"  {said(x.setting):32s} {x.score:8.3f} %  unsafe {x.unsafe:7d}  missed {x.missed:4.0%} {mark}",
                flush=True,
            )
    new = table(tried).splitlines()
    if len(asked) < len(SETTINGS):
        kept = {row.split("`")[1]: row for row in FILE.read_text(encoding="utf-8").splitlines()[2:]}
        kept |= {row.split("`")[1]: row for row in new[2:]}
        new[2:] = [kept[algo] for algo in SETTINGS if algo in kept]
    FILE.write_text("\n".join(new) + "\n", encoding="utf-8")


def development() -> list[tuple[CMDP, list[float]]]:
    """The first development problem of every family, with the ranges of totals of its reward and utilities."""
    found: dict[str, CMDP] = {}
    for name, cmdp in _suite.problems("development", copies=1):
        family = name.split()[0]
        if family in FAMILIES:
            found.setdefault(family, cmdp)
    return [(cmdp, [total_range(cmdp, x) for x in (cmdp.r, *cmdp.g)]) for cmdp in found.values()]


def scored(algo: str, setting: Setting, worlds: list[tuple[CMDP, list[float]]]) -> Tried:
    """The setting on all problems, with every seed."""
    scores, unsafe, missed = [], 0, []
    for (cmdp, ranges), seed in product(worlds, SEEDS):
        fixed = FIXED.get(algo, {}).get(str(setting.get("preset")), {})
        record = learn(cmdp, algo, episodes=EPISODES, seed=seed, **setting, **fixed)
        score, miss = judged(record, cmdp, ranges)
        scores.append(score)
        unsafe += int(record.final("unsafe_episodes"))
        missed.append(miss > 0)
    return Tried(algo, setting, mean(scores), unsafe, mean(missed))


def judged(record: RunRecord, cmdp: CMDP, ranges: list[float]) -> tuple[float, float]:
    """The score of one run in percent, and by how much its policy misses a bound, at worst."""
    reward, *utilities = ranges
    K = record.run.episodes
    strong = np.atleast_1d(record.final("strong_violation")) / utilities / K
    values = evaluate(cmdp, record.policy)
    miss = float(((cmdp.rho - cmdp.signs * values.w) / utilities).max())
    gap = (record.optimum - values.v) / reward
    regret = record.final("strong_regret") / reward / K
    return 100 * (regret + float(strong.max()) + max(gap, 0.0) + max(miss, 0.0)), miss


def choice(algo: str, tried: list[Tried]) -> Tried:
    """The setting with the smallest score; of a safe algorithm, with a c a step above the boldest that stayed safe."""
    possible = tried
    if algo in SAFE:
        used = {float(x.setting["c"]): x for x in sorted(tried, key=lambda x: bool(x.unsafe))}  # an unsafe run counts
        unsafe = max((c for c, x in used.items() if x.unsafe), default=0.0)
        _, careful, *_ = sorted(c for c in used if c > unsafe)
        possible = [x for x in tried if x.setting["c"] == careful]
    return min(possible, key=lambda x: x.score)


def said(setting: Setting) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in setting.items())


def shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def table(tried: list[Tried]) -> str:
    """Per algorithm the chosen setting, its score and those of the others, and what was tried."""
    lines = ["| algorithm | best setting | its score, % | other scores, % | settings tried |", "|---|---|---:|---|---|"]
    for algo in dict.fromkeys(x.algo for x in tried):
        mine = [x for x in tried if x.algo == algo]
        best = next(x for x in mine if x.chosen)
        others = sorted(x.score for x in mine if not x.chosen)
        scores = f"{best.score:.2f} | {others[0]:.2f} … {others[-1]:.2f}"
        lines.append(f"| `{algo}` | {said(best.setting)} | {scores} | {listed(algo)} |")
    return "\n".join(lines) + "\n"


def listed(algo: str) -> str:
    """All settings of an algorithm: the values of each parameter, which are combined."""
    names = SETTINGS[algo][0]
    values = {name: list(dict.fromkeys(shown(x[name]) for x in SETTINGS[algo])) for name in names}
    return f"{len(SETTINGS[algo])}: " + " × ".join(f"{name} {', '.join(x)}" for name, x in values.items())


if __name__ == "__main__":
    main()
