"""From records to what can be said about them: groups, curves with intervals, slopes, paired comparisons.

Runs that differ in the seed alone are a `Group`, and the seed is the unit: every interval is over seeds, and a single
seed has none. Where all seeds give the same numbers, they count as one. The functions here only compute; a `Study` also
loads records from disk, and hands them to the modules that make tables, figures and pages of them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.atomic import write_text
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.manifest import Failure
from cmdpkit.records.record import RunRecord
from cmdpkit.results.folder import load_models, load_settings
from cmdpkit.results.groups import Group as Group
from cmdpkit.results.groups import groups as groups
from cmdpkit.results.groups import remarks
from cmdpkit.results.published import Claim, Row
from cmdpkit.results.statistics import LEVEL, Method, SeedMean, seed_mean, sign_flip_p, t_p
from cmdpkit.results.tables import Table, joined
from cmdpkit.results.wording import counted, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cmdpkit.results.run_tables import Pair

KINDS = ("weak", "strong", "realised")
SLOPE_POINTS = 24  # at which a curve is read to fit its growth

Kind = Literal["weak", "strong", "realised"]


def curve_name(what: str, kind: str = "weak") -> str:
    """The name in a record of the weak, strong or realised form of "regret" or "violation".

    >>> curve_name("regret"), curve_name("violation", "strong")
    ('regret', 'strong_violation')
    """
    if kind not in KINDS:
        raise CmdpkitError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    return what if kind == "weak" else f"{kind}_{what}"


# -- curves ------------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """One curve of a group on a common grid of episodes; all arrays but ``raw`` are [C]."""

    episode: FloatArray  # where the curve is read
    mean: FloatArray  # over the seeds
    low: FloatArray | None  # lower end of the interval; None with one seed
    high: FloatArray | None  # upper end of the interval; None with one seed
    raw: FloatArray  # [samples, C], the curve of every run


def curve(group: Group, name: str, n: int = 0, *, method: Method = "t", level: float = LEVEL, seed: int = 0) -> Curve:
    """A curve of every run of a group and their mean with an interval; ``n`` picks the constraint of a [N, C] curve.

    Where the runs have different checkpoints, all of them are used, with straight lines between, from where the last
    run begins to where the first one ends.
    """
    lines = [(np.asarray(r.read_at, dtype=float), _row(r, name, n)) for r in group.samples]
    grid = lines[0][0]
    if any(not np.array_equal(episode, grid) for episode, _ in lines):
        grid = np.unique(np.concatenate([episode for episode, _ in lines]))
        first, last = max(e[0] for e, _ in lines), min(e[-1] for e, _ in lines)
        grid = grid[(grid >= first) & (grid <= last)]
        lines = [(grid, np.interp(grid, episode, line)) for episode, line in lines]
    raw = np.array([line for _, line in lines])
    over = seed_mean(raw, method=method, level=level, seed=seed)
    return Curve(grid, over.mean, over.low, over.high, raw)


def _row(record: RunRecord, name: str, n: int) -> FloatArray:
    values = np.atleast_2d(np.asarray(record.curve(name), dtype=float))
    if not 0 <= n < len(values):
        raise CmdpkitError(f"curve {name!r} of {record.run.algo} has {len(values)} rows, there is no row {n}")
    line: FloatArray = values[n]
    return line


def finals(group: Group, name: str, n: int = 0) -> FloatArray:
    """[samples]: where the curve of each run ends."""
    return np.array([_row(record, name, n)[-1] for record in group.samples])


def slope(group: Group, name: str, n: int = 0, *, since: float = 0.1) -> SeedMean | None:
    """Exponent b of "curve grows like episode**b" over the last part of the run, from ``since`` of its length on.

    Least squares of log on log for each seed, at points that are even in the log; None where a curve is not positive
    there or has too few checkpoints to tell.
    """
    found = []
    for record in group.samples:
        episode, line = np.asarray(record.read_at, dtype=float), _row(record, name, n)
        tail = episode >= since * episode[-1]
        if tail.sum() < 3 or not (line[tail] > 0).all():
            return None
        x, y = np.log(episode[tail]), np.log(line[tail])
        even = np.linspace(x[0], x[-1], SLOPE_POINTS)
        found.append(np.polyfit(even, np.interp(even, x, y), 1)[0])
    return seed_mean(np.array(found))


# -- comparisons -------------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """The final values of one group minus those of another, seed by seed."""

    seeds: tuple[int, ...]  # those both have
    difference: SeedMean  # mean difference with its interval
    p: float | None  # of "no difference"; absent with one seed

    def __str__(self) -> str:
        low, high = self.difference.low, self.difference.high
        interval = "" if low is None or high is None else f" ({number(low)} to {number(high)})"
        p = "" if self.p is None else f", p = {self.p:.2g}"
        return f"mean difference {number(self.difference.mean)}{interval}, {counted(len(self.seeds), 'seed')}{p}"


def compare(
    a: Group, b: Group, name: str = "regret", n: int = 0, *, test: Literal["sign-flip", "t"] = "sign-flip"
) -> Comparison:
    """``a`` minus ``b``, paired by seed, with an interval and the p of a sign-flip (exact) or a t test.

    Runs with the same seed share the problem and the sequence of random numbers, but use that sequence differently once
    their actions differ. So pairing is valid, and removes hardly any noise.
    """
    if test not in ("sign-flip", "t"):
        raise CmdpkitError(f"test is {test!r}, expected 'sign-flip' or 't'")
    ends = [{record.run.seed: _row(record, name, n)[-1] for record in group.records} for group in (a, b)]
    seeds = tuple(seed for seed in a.seeds if seed in ends[1])
    if not seeds:
        raise CmdpkitError(f"{a.label} and {b.label} have no seed in common: {list(a.seeds)} and {list(b.seeds)}")
    if a.deterministic and b.deterministic:
        seeds = seeds[:1]
    d = np.array([ends[0][seed] - ends[1][seed] for seed in seeds])
    p = None if len(d) < 2 else sign_flip_p(d) if test == "sign-flip" else t_p(d)
    return Comparison(seeds, seed_mean(d), p)


# -- policies ----------------------------------------------------------------------------------------------------------


def policy_gaps(group: Group) -> FloatArray | None:
    """[samples]: by how much each run's final policy stays below the optimum, where there is a model."""
    pairs = [(r.optimum, r.policy_value) for r in group.samples]
    if any(optimum is None or value is None for optimum, value in pairs):
        return None
    return np.array(pairs, dtype=float) @ [1.0, -1.0]


def policy_misses(group: Group, tolerance: float = 1e-9) -> FloatArray | None:
    """[samples, N]: by how much each final policy misses each bound; 0 within ``tolerance`` of it, negative inside."""
    utilities = [record.policy_utilities for record in group.samples]
    if any(w is None for w in utilities):
        return None
    constraints = group.records[0].constraints
    signs, bounds = (
        np.array([float(x) for x in column])
        for column in ([c.sign for c in constraints], [c.total for c in constraints])
    )
    misses = signs * (bounds - np.array(utilities, dtype=float).reshape(len(utilities), len(constraints)))
    return np.where(np.abs(misses) <= tolerance * np.maximum(1.0, np.abs(bounds)), 0.0, misses)


# -- studies -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Study(Shown):
    """Finished runs, to be looked at together.

    ``models`` maps names of environments, or fingerprints, to models, for what a record alone cannot show (boards,
    prices); those that cmdpkit can load by name need not be given. ``published`` are figures from elsewhere to show
    beside those of the runs.
    """

    records: tuple[RunRecord, ...]  # the finished runs
    models: Mapping[str, CMDP] | None = None  # models by the name of their environment, or by fingerprint
    failures: tuple[Failure, ...] = ()  # runs that did not finish
    published: tuple[Row, ...] = ()  # figures published elsewhere
    title: str = ""  # heading of the report
    claims: tuple[Claim, ...] = ()  # claims published elsewhere, with verdicts

    @classmethod
    def load(cls, folder: str | os.PathLike[str], models: Mapping[str, CMDP] | None = None) -> Study:
        """Every finished run in a folder and those below it, with the models, title and published figures there."""
        from cmdpkit.records.store import load_failures, load_records

        records, failures = load_records(folder), load_failures(folder)
        if not records and not failures:
            raise CmdpkitError(f"there is no finished run in {os.fspath(folder)}; `cmdpkit bench FILE` makes some")
        settings = load_settings(folder)
        known = {**load_models(folder, records), **(models or {})}
        return cls(records, known, failures, settings.published, settings.title, settings.claims)

    def __len__(self) -> int:
        return len(self.records)

    def groups(self) -> tuple[Group, ...]:
        """Runs that differ in the seed alone, together."""
        return groups(self.records)

    def remarks(self) -> tuple[str, ...]:
        """What a reader of the table has to know: code that differs or is unknown, seeds that make no difference."""
        return remarks(self.groups())

    def table(self) -> list[dict[str, Any]]:
        """One dictionary per group: what was asked, final regret and violation with intervals, and the policies."""
        from cmdpkit.results.run_tables import group_table

        return [row for group in self.groups() for row in group_table([group]).data()]

    def summary(self) -> list[Table[Group]]:
        """The same as tables for people, one per problem: `Table.to_markdown`, `Table.to_latex`."""
        from cmdpkit.results.run_tables import study_tables

        return study_tables(self.groups())

    def comparison(self, against: str, name: str = "regret", n: int = 0) -> list[Table[Pair]]:
        """Every group minus the one that is called ``against``, paired by seed, at the end of a curve; one table
        per problem. ``n`` picks the constraint where the curve is a violation.
        """
        from cmdpkit.results.run_tables import comparison_tables

        return comparison_tables(self.groups(), against, name, n)

    def to_markdown(self) -> str:
        """The summary in Markdown."""
        return joined(self.summary(), "markdown")

    def to_latex(self) -> str:
        """The summary as LaTeX tables, which need the package booktabs."""
        return joined(self.summary(), "latex")

    def plot(self, name: str, **options: Any) -> Figure:
        """A matplotlib figure: "overview", "regret", "violation", "multiplier", "policy", "occupancy" or "price"."""
        from cmdpkit.results.figures.draw import draw

        return draw(self, name, **options)

    def to_html(
        self, path: str | os.PathLike[str], *, title: str = "", rows: Sequence[Row] = (), overwrite: bool = False
    ) -> Path:
        """Write the report, one file that needs no network; ``rows`` replace the study's published figures."""
        from cmdpkit.results.report.page import render

        page = render(self, title=title or self.title, rows=rows or self.published)
        return write_text(path, page, overwrite=overwrite)

    def to_tensorboard(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[Path, ...]:
        """Write all curves for TensorBoard, one folder per run; returns the paths of these folders."""
        from cmdpkit.results.tensorboard import write_events

        return write_events(self, folder, overwrite=overwrite)

    def to_pandas(self) -> Any:
        """All curves in one pandas data frame, with one row per checkpoint and the columns of the Parquet files."""
        pd = _optional("pandas")
        from cmdpkit.records.store import columns_of

        frames = [pd.DataFrame(columns_of(record)) for record in self.records]
        return pd.concat(frames, ignore_index=True)

    def to_arrow(self) -> Any:
        """All curves in one Arrow table, with one row per checkpoint and the columns of the Parquet files."""
        pa = _optional("pyarrow")
        from cmdpkit.records.store import columns_of

        tables = [pa.table({k: pa.array(v.tolist()) for k, v in columns_of(r).items()}) for r in self.records]
        return pa.concat_tables(tables, promote_options="default")


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CmdpkitError(f"this needs {name}, which is not installed: pip install {name}") from None
