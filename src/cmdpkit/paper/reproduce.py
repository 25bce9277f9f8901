"""The whole paper (arXiv 2309.15395) run again: its claims with verdicts, and every figure next to the measured one.

`reproduce_paper` runs the parts that are asked for (`cmdpkit.paper.experiments.PARTS`), or what a folder lacks of them,
and writes the report and the paper's figures into the folder.

The table of phases says where the regret and violation of the published algorithm arise: what each of its phases has
added to them. Its figures are realised ones, from the learner's own sums of rewards and utilities in each phase. On the
paper's grid nothing is random, so there they are the exact ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from cmdpkit.errors import CmdpkitError, printable
from cmdpkit.exact.solver import solve_fully
from cmdpkit.experiments.backends import Executor
from cmdpkit.experiments.execute import Observer, execute
from cmdpkit.io.atomic import make_folder
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.paper import experiments
from cmdpkit.paper.claims import claims_of
from cmdpkit.paper.departures import DEPARTURES, DepartureCase, departures_table
from cmdpkit.paper.experiments import GRID, PARTS, SYNTHETIC, Table1Row, compared, groups_of, paper_experiments
from cmdpkit.paper.lower_bound import LowerBound, lower_bound_table, measured
from cmdpkit.records.record import RunRecord
from cmdpkit.results.figures.curves import multiplier, overview
from cmdpkit.results.figures.plans import policy_boards
from cmdpkit.results.figures.style import matplotlib, save
from cmdpkit.results.groups import Group
from cmdpkit.results.published import Claim, Row, claims_table, headlines, in_order, numbered, published_tables
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.study import Study, failures_text, model_of, save_settings
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Column, Table, TerminalTable, means
from cmdpkit.results.wording import counted, duration

# -- The figures of the paper, drawn from runs made here, as PNG files with fixed names.

DRAWN_ALGORITHMS = ("pri", "cl-pri")  # whose policies are drawn next to the optimum


def write_figures(study: Study, folder: Path) -> tuple[Path, ...]:
    """Draw regret, violation, multipliers and policies on grids, replacing such files; returns their paths."""
    make_folder(folder)
    groups = study.groups()
    by_env = {env: [x for x in groups if x.run.env == env] for env in dict.fromkeys(x.run.env for x in groups)}
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
    return Table("pri (paper) on paper/grid, by phase", (
        Column("phase", "phase", "What the algorithm was doing.", lambda p: p.name),
        means("episodes", "episodes", "How long it took.", lambda p: p.episodes, 6),
        means("regret", "regret", "What it added to the regret.", lambda p: p.regret, 6),
        means("violation", "violation", "What it added to the violation.", lambda p: p.violation, 6),
    ), tuple(phases))  # fmt: skip


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
    planned = paper_experiments(seeds, parts)
    worlds = {key: world for experiment in planned for key, world in experiment.worlds.items()}
    runs = {run.key: run for experiment in planned for run in experiment.runs()}  # parts share some of them
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
    published = [group for env in (SYNTHETIC, GRID) for group in groups_of(groups, env)]  # whose curves are drawn
    records = tuple(record for group in published for record in group.records)
    shown = replace(study, records=records) if records else study
    report = shown.to_html(Path(out, "report.html"), overwrite=True)
    figures, hint = _figures(shown, Path(out, "figures"))
    table1 = experiments.table1_rows(groups) if "table1" in parts else ()
    on_grid = [group for group in groups_of(groups, GRID) if group.run.algo == "pri"]
    phases = tuple(phase for group in on_grid for phase in phases_of(group))
    return Reproduction(
        tuple(parts), claims, rows, phases, bounds, table1, study, report, figures, hint, seeds, done.seconds
    )


def _figures(study: Study, folder: Path) -> tuple[tuple[Path, ...], str]:
    """The figures, or none and how to get them: the rest does not need matplotlib."""
    try:
        matplotlib()
    except ValueError as error:
        return (), str(error)
    return write_figures(study, folder), ""


# -- what is shown -----------------------------------------------------------------------------------------------------


def reproduction_data(found: Reproduction) -> dict[str, Any]:
    """The whole comparison as plain values."""
    return {
        "claims": [claim.to_dict() for claim in found.claims],
        "headlines": headlines(found.rows),
        "paper": [row.to_dict() for row in in_order(found.rows)],
        "phases": phase_table(found.phases).data(),
        "lower_bound": lower_bound_table(found.bounds).data(),
        "table1": experiments.table1_table(found.table1).data(),
        "departures": departures_table().data() if "departures" in found.parts else [],
        "seeds": found.seeds,
        "report": str(found.report) if found.report else None,
        "figures": [str(path) for path in found.figures],
    }


def reproduction_tables(found: Reproduction) -> list[Table[Any]]:
    """The claims, the published figures, and the other parts, as far as they were asked for."""
    claims = [claims_table(found.claims)] if found.claims else []
    departures = [departures_table()] if "departures" in found.parts else []
    return [*claims, *published_tables(found.rows), *_other_tables(found), *departures]


def _other_tables(found: Reproduction) -> list[Table[Any]]:
    """Phases of PRI on the grid, the lower bound and Table 1, as far as they were asked for."""
    tables: list[Table[Any]] = [phase_table(found.phases)] if found.phases else []
    tables += [lower_bound_table(found.bounds)] if found.bounds else []
    return [*tables, experiments.table1_table(found.table1)] if found.table1 else tables


def reproduction(found: Reproduction) -> RenderableType:
    """The claims first; then every published figure next to the measured one, and the other parts."""
    parts: list[RenderableType] = []
    for env in dict.fromkeys(claim.env for claim in found.claims):
        claims = _side_by_side(_claim(claim) for claim in found.claims if claim.env == env)
        parts += [Text(f"Claims of the paper: {env}", style="bold"), claims, EMPTY_LINE]
    parts += [*(Text(line) for line in headlines(found.rows)), EMPTY_LINE] if found.rows else []
    shown: list[tuple[Table[Any], str]] = [(table, "algo") for table in published_tables(found.rows)]
    for table, heads in [*shown, *((table, "") for table in _other_tables(found))]:
        parts += [Text(printable(table.title), style="bold"), TerminalTable(table, heads), EMPTY_LINE]
    parts += [_departures(whole=found.parts == ("departures",)), EMPTY_LINE] if "departures" in found.parts else []
    parts += [Text(f"{i}. {assumption}") for assumption, i in numbered(in_order(found.rows)).items()]
    parts += [EMPTY_LINE] if found.rows else []
    parts += failures_text(failure.reason for failure in found.study.failures)
    said = f"{counted(found.seeds, 'seed')}"
    said += f", {duration(found.seconds)}. The report is {found.report}." if found.report else "."
    said += f" The figures are in {found.figures[0].parent}." if found.figures else ""
    return Lines(*parts, Text(said, style=QUIET)) if found.report or found.bounds else Lines(*parts[:-1])


def _side_by_side(rows: Iterable[tuple[RenderableType, Text]], quiet: bool = False) -> Grid:
    """Words, and next to each the text about it."""
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style=QUIET if quiet else "")
    grid.add_column(overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def _claim(claim: Claim) -> tuple[Text, Text]:
    """The verdict, and the claim with the figures behind it."""
    tone = "bold red" if claim.verdict.agrees is False else "bold"
    said = Text.assemble(claim.text, "\n", ("published ", QUIET), claim.published, "\n", ("measured  ", QUIET))
    return Text(claim.verdict.text, style=tone), said + Text(f"{claim.measured} [{claim.kind}]")


def _departures(whole: bool) -> RenderableType:
    """Every step of the pseudo-code, or how many there are and how to see them."""
    if not whole:
        theory = DepartureCase.of("theory")
        apart = sum(not departure.literal(theory) for departure in DEPARTURES)
        return Text(
            f"Preset theory departs from the pseudo-code in {apart} of {len(DEPARTURES)} steps, where it cannot be "
            "followed. `cmdpkit reproduce paper --what departures` lists all of them, for both presets."
        )
    table = departures_table()
    lines: list[RenderableType] = [Text(table.title, style="bold")]
    for row in table.data():
        told = [(f"  {key}", Text(row[key])) for key in ("paper", "theory", "printed", "why") if row[key]]
        lines += [Text(row["step"]), _side_by_side(told, quiet=True)]
    return Lines(*lines)
