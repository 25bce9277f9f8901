"""The whole paper (arXiv 2309.15395) run again: its claims with verdicts, and every figure next to the measured one.

`reproduce_paper` runs the parts that are asked for (`cmdpkit.paper.experiments.PARTS`), or what a folder lacks of them,
and writes the report and the paper's figures into the folder.

The table of phases says where the regret and violation of the published algorithm arise: what each of its phases has
added to them. Its figures are realised ones, from the learner's own sums of rewards and utilities in each phase. On the
paper's grid nothing is random, so there they are the exact ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solver import solve_fully
from cmdpkit.experiments.backends import Executor
from cmdpkit.experiments.execute import Observer, execute
from cmdpkit.io.atomic import make_folder
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.paper.claims import claims_of
from cmdpkit.paper.comparison import compared, groups_of
from cmdpkit.paper.experiments import GRID, PARTS, SYNTHETIC, Table1Row, paper_experiments, table1_rows
from cmdpkit.paper.lower_bound import LowerBound, measured
from cmdpkit.records.record import RunRecord
from cmdpkit.results.figures.curves import multiplier, overview
from cmdpkit.results.figures.policies import policy_boards
from cmdpkit.results.figures.style import matplotlib, save
from cmdpkit.results.groups import Group
from cmdpkit.results.published import Claim, Row
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.study import Study, model_of, save_settings
from cmdpkit.results.tables import Column, Table, with_ends, with_interval

# -- The figures of the paper, drawn from runs made here, as PNG files with fixed names.

DRAWN_ALGORITHMS = ("pri", "cl-pri")  # whose policies are drawn next to the optimum


def write_figures(study: Study, folder: Path) -> tuple[Path, ...]:
    """Draw regret and violation of every problem, multipliers, and policies on a grid; returns the paths of the files.

    Files of these names are replaced, others in the folder stay as they are.
    """
    by_env: dict[str, list[Group]] = {}
    for group in study.groups():
        by_env.setdefault(group.run.env, []).append(group)
    make_folder(folder)
    return tuple(path for env, found in by_env.items() for path in _of_problem(study, folder, env, found))


def _of_problem(study: Study, folder: Path, env: str, found: list[Group]) -> list[Path]:
    name = env.replace("/", "-")
    written = [
        save(overview(found), folder / f"{name}-regret-violation.png"),
        save(overview(found, scale="symlog"), folder / f"{name}-regret-violation-log.png"),
    ]
    if any(group.has("multiplier") for group in found):
        drawn = multiplier(found, models=study.models, scale="log")
        written.append(save(drawn, folder / f"{name}-multiplier.png"))
    cmdp = model_of(found[0].run, study.models)
    if cmdp is not None and cmdp.grid is not None:
        written.append(_board(cmdp, solve_fully(cmdp).policy, "the optimum", folder / f"{name}-policy-optimum.png"))
        for group in found:
            algo, preset = group.run.algo, group.run.preset
            if algo in DRAWN_ALGORITHMS:
                title = f"{algo} ({preset}), seed {group.run.seed}"
                path = folder / f"{name}-policy-{algo}-{preset}.png"
                written.append(_board(cmdp, group.records[0].policy, title, path))
    return written


def _board(cmdp: CMDP, policy: Policy, title: str, path: Path) -> Path:
    figure = policy_boards(cmdp, policy)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
    return save(figure, path)


# -- Where the regret and violation of the published algorithm arise: what each of its phases has added to them.


class PhaseCost(NamedTuple):
    """What one phase of a group of runs has added, over the seeds that differ."""

    name: str  # of the phase
    episodes: SeedMean  # how long it took
    regret: SeedMean  # what it added to the regret
    violation: SeedMean  # what it added to the violation of the first constraint


def phases_of(group: Group) -> list[PhaseCost]:
    """The phases in their order; one that a run did without has added nothing there."""
    added = [_added(record) for record in group.samples]
    names = dict.fromkeys(name for run in added for name in run)
    found = []
    for name in names:
        figures = np.array([run.get(name, (0.0, 0.0, 0.0)) for run in added])
        found.append(PhaseCost(name, *(seed_mean(column) for column in figures.T)))
    return found


def _added(record: RunRecord) -> dict[str, tuple[float, float, float]]:
    """Episodes, regret and violation of every phase of a run, from what the learner says that it has earned."""
    cmdp = model_of(record.run)
    if cmdp is None or record.optimum is None:
        return {}
    H, bound = cmdp.H, record.constraints[0].sign * record.constraints[0].total
    found = {}
    for earned in record.explanation["returns"]:
        n = earned["episodes"]
        reward = earned["reward"] * cmdp.reward_scale.span + n * H * cmdp.reward_scale.low
        utility = earned["utilities"][0] * cmdp.utility_scales[0].span + n * H * cmdp.utility_scales[0].low
        found[earned["phase"]] = (float(n), n * record.optimum - reward, n * bound - utility)
    return found


def phase_table(phases: Sequence[PhaseCost]) -> Table[PhaseCost]:
    """One row per phase."""
    columns: list[Column[PhaseCost]] = [
        Column("phase", "phase", "What the algorithm was doing.", lambda p: p.name),
        _figure("episodes", "How long it took.", lambda p: p.episodes),
        _figure("regret", "What it added to the regret.", lambda p: p.regret),
        _figure("violation", "What it added to the violation.", lambda p: p.violation),
    ]
    return Table("pri (paper) on paper/grid, by phase", tuple(columns), tuple(phases))


def _figure(key: str, meaning: str, get: Callable[[PhaseCost], SeedMean]) -> Column[PhaseCost]:
    return Column(key, key, meaning, get, with_interval(6), "right", data=with_ends)


TITLE = "The paper, run again"
SEEDS, QUICK_SEEDS = 10, 3  # independent runs of every algorithm, by default and with --quick


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The whole comparison, the runs it rests on, and the report and figures about them."""

    parts: tuple[str, ...]  # what was asked for
    claims: tuple[Claim, ...]  # what the paper claims, with verdicts
    rows: tuple[Row, ...]  # every published figure next to the measured one
    phases: tuple[PhaseCost, ...]  # of the published algorithm on the grid
    bounds: tuple[LowerBound, ...]  # the family of the lower bound
    table1: tuple[Table1Row, ...]  # growth of the algorithms of Table 1
    study: Study  # the runs
    report: Path | None  # the file of the report, if there are runs
    figures: tuple[Path, ...]  # the files of the figures
    hint: str  # why there are no figures, where there are none
    seeds: int  # independent runs of every algorithm
    seconds: float  # how long the runs took


def reproduce_paper(
    out: str | os.PathLike[str],
    *,
    parts: Sequence[str] = PARTS,
    seeds: int = SEEDS,
    executor: Executor = "processes",
    workers: int | None = None,
    address: str | None = None,
    observer: Observer | None = None,
) -> Reproduction:
    """Run the parts, or what the folder lacks of them, compare, and write report.html and figures/ into it."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise CmdpkitError(f"unknown part {unknown[0]!r} of the paper; the parts are {', '.join(PARTS)}")
    experiments = paper_experiments(seeds, parts)
    worlds = {key: world for experiment in experiments for key, world in experiment.worlds.items()}
    runs = {run.key: run for experiment in experiments for run in experiment.runs()}  # parts share some of them
    bounds = measured(seeds) if "lower-bound" in parts else ()
    if not runs:
        claims = claims_of((), bounds)
        return Reproduction(tuple(parts), claims, (), (), bounds, (), Study(()), None, (), "", seeds, 0.0)
    done = execute(
        list(runs.values()),
        worlds,
        out,
        title=TITLE,
        executor=executor,
        workers=workers,
        address=address,
        observer=observer,
    )
    found = done.study()
    groups = found.groups()
    claims, rows = claims_of(groups, bounds), tuple(compared(groups))
    save_settings(out, TITLE, rows, claims)
    study = replace(found, published=rows, claims=claims)
    shown = _published_runs(study)
    report = shown.to_html(Path(out, "report.html"), overwrite=True)
    figures, hint = _figures(shown, Path(out, "figures"))
    table1 = table1_rows(groups) if "table1" in parts else ()
    phases = _grid_phases(groups)
    return Reproduction(
        tuple(parts), claims, rows, phases, bounds, table1, study, report, figures, hint, seeds, done.seconds
    )


def _grid_phases(groups: Iterable[Group]) -> tuple[PhaseCost, ...]:
    found = [group for group in groups_of(groups, GRID) if group.run.algo == "pri"]
    return tuple(phase for group in found for phase in phases_of(group))


def _published_runs(study: Study) -> Study:
    """The runs of the two experiments, whose curves are drawn; all runs if none of these was asked for."""
    found = [group for env in (SYNTHETIC, GRID) for group in groups_of(study.groups(), env)]
    return replace(study, records=tuple(record for group in found for record in group.records)) if found else study


def _figures(study: Study, folder: Path) -> tuple[tuple[Path, ...], str]:
    """The figures, or none and how to get them: the rest does not need matplotlib."""
    try:
        matplotlib()
    except ValueError as error:
        return (), str(error)
    return write_figures(study, folder), ""
