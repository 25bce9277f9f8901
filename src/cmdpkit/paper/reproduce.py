"""The whole paper (arXiv 2309.15395) run again: its claims with verdicts, and every figure beside the measured one.

`reproduce_paper` runs the parts that are asked for (`cmdpkit.paper.experiments.PARTS`), or what a folder lacks of them,
and writes the report and the paper's figures into the folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cmdpkit.errors import CmdpkitError
from cmdpkit.experiments.backends import Executor
from cmdpkit.experiments.execute import Observer, execute
from cmdpkit.paper.claims import claims_of
from cmdpkit.paper.comparison import compared, groups_of
from cmdpkit.paper.experiments import GRID, PARTS, SYNTHETIC, paper_experiments
from cmdpkit.paper.figures import write_figures
from cmdpkit.paper.lower_bound import LowerBound, measured
from cmdpkit.paper.phases import Phase, phases_of
from cmdpkit.paper.table1 import Table1Row, table1_rows
from cmdpkit.results.figures.style import matplotlib
from cmdpkit.results.groups import Group
from cmdpkit.results.published import Claim, Row
from cmdpkit.results.study import Study, save_settings

TITLE = "The paper, run again"
SEEDS, QUICK_SEEDS = 10, 3  # independent runs of every algorithm, by default and with --quick


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The whole comparison, the runs it rests on, and the report and figures about them."""

    parts: tuple[str, ...]  # what was asked for
    claims: tuple[Claim, ...]  # what the paper claims, with verdicts
    rows: tuple[Row, ...]  # every published figure beside the measured one
    phases: tuple[Phase, ...]  # of the published algorithm on the grid
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


def _grid_phases(groups: Iterable[Group]) -> tuple[Phase, ...]:
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
