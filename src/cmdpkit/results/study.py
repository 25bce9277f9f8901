"""A study: finished runs, to be looked at together, and the folder that keeps them.

`cmdpkit.results.groups` computes what can be said of them; tables, figures and the report show it. A folder of runs
holds more than their records: the models, a title, and figures published elsewhere.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from cmdpkit import envs
from cmdpkit.errors import CmdpkitError, printable
from cmdpkit.io.atomic import make_folder, write_text
from cmdpkit.io.formats.source import read_text
from cmdpkit.io.loading import load, parsed
from cmdpkit.io.models import read_model
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.showing import Shown
from cmdpkit.records.manifest import Failure, seal, unseal
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.records.store import columns_of, load_failures, load_records
from cmdpkit.results.groups import Group, groups, remarks
from cmdpkit.results.published import Claim, Row
from cmdpkit.results.study_tables import Pair, comparison_tables, group_table, study_tables
from cmdpkit.results.tables import EMPTY_LINE, Table, TerminalTable, joined
from cmdpkit.results.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Folder = str | os.PathLike[str]

BRIEF = (  # the columns of a study that fit on a terminal; the report has all of them
    *("algorithm", "regret", "realised_regret", "violation", "realised_violation", "strong_regret", "strong_violation"),
    *("realised_reward", "evaluated_value", "evaluated_utility"),
    *("unsafe_episodes", "gaps_paid", "policy_gap", "policies_within_bounds"),
)
MODELS = "models"  # the folder of model files, which are named by their fingerprints
SETTINGS, SETTINGS_FORMAT = "study.json", "cmdpkit study"


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
        return [row for group in self.groups() for row in group_table([group]).data()]

    def summary(self) -> list[Table[Group]]:
        """The same as tables for people, one per problem: `Table.to_markdown`, `Table.to_latex`."""
        return study_tables(self.groups())

    def comparison(self, against: str, name: str = "regret", n: int = 0) -> list[Table[Pair]]:
        """Every group minus the one that is called ``against``, paired by seed, at the end of a curve; one table
        per problem. ``n`` picks the constraint where the curve is a violation.
        """
        return comparison_tables(self.groups(), against, name, n)

    def to_markdown(self) -> str:
        """The summary in Markdown."""
        return joined(self.summary(), "markdown")

    def to_latex(self) -> str:
        """The summary as LaTeX tables, which need the package booktabs."""
        return joined(self.summary(), "latex")

    def plot(self, name: str, **options: Any) -> Figure:
        """A matplotlib figure: "overview", "regret", "violation", "certified_gap", "multiplier", "price" and others.

        The others are boards of the first policy: "policy" and "occupancy".
        """
        return showing.draw(self, name, **options)

    def to_html(
        self, path: str | os.PathLike[str], *, title: str = "", rows: Sequence[Row] = (), overwrite: bool = False
    ) -> Path:
        """Write the report, one file that needs no network; ``rows`` replace the study's published figures."""
        from cmdpkit.results.report import render

        page = render(self, title=title or self.title, rows=rows or self.published)
        return write_text(path, page, overwrite=overwrite)

    def to_tensorboard(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[Path, ...]:
        """Write all curves for TensorBoard, one folder per run; returns the paths of these folders."""
        from cmdpkit.results.tensorboard import write_events

        return write_events(self, folder, overwrite=overwrite)

    def to_pandas(self) -> Any:
        """All curves in one pandas data frame, with one row per checkpoint and the columns of the Parquet files."""
        pd = _optional("pandas")
        frames = [pd.DataFrame(columns_of(record)) for record in self.records]
        return pd.concat(frames, ignore_index=True)

    def to_arrow(self) -> Any:
        """All curves in one Arrow table, with one row per checkpoint and the columns of the Parquet files."""
        pa = _optional("pyarrow")
        tables = [pa.table({k: pa.array(v.tolist()) for k, v in columns_of(r).items()}) for r in self.records]
        return pa.concat_tables(tables, promote_options="default")


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise CmdpkitError(f"this needs {name}, which is not installed: pip install {name}") from None


# -- text --------------------------------------------------------------------------------------------------------------


def tables_of(study: Study) -> list[RenderableType]:
    """The tables of a study as far as a terminal is wide enough for them, and what a reader has to know about them."""
    parts: list[RenderableType] = []
    for table in study.summary():
        parts += [EMPTY_LINE, Text(printable(table.title), style="bold"), TerminalTable(table.only(*BRIEF))]
    return [*parts, EMPTY_LINE, *(Text(remark, style="yellow") for remark in study.remarks())]


def study_text(study: Study) -> RenderableType:
    """The tables of a study, and how many runs failed."""
    parts: list[RenderableType] = [Text(f"Study of {counted(len(study), 'run')}"), *tables_of(study)]
    if study.failures:
        parts.append(Text(f"{counted(len(study.failures), 'run')} failed.", style="red"))
    return Lines(*parts)


# -- the folder of a study ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """How a study is to be shown."""

    title: str = ""  # heading of the report
    published: tuple[Row, ...] = ()  # figures published elsewhere, beside what the runs gave
    claims: tuple[Claim, ...] = ()  # claims published elsewhere, with verdicts


def save_settings(folder: Folder, title: str, published: Iterable[Row] = (), claims: Iterable[Claim] = ()) -> None:
    """Keep what a report needs beside the records; what was kept before is replaced."""
    body: dict[str, Any] = {"title": title, "published": [row.to_dict() for row in published]}
    body["claims"] = [claim.to_dict() for claim in claims]
    make_folder(Path(folder))
    write_text(Path(folder, SETTINGS), seal(SETTINGS_FORMAT, body), overwrite=True)


def load_settings(folder: Folder) -> Settings:
    """What is kept beside the records of a folder; without it, the name of the folder is the title."""
    path = Path(folder, SETTINGS)
    if not path.exists():
        return Settings(Path(folder).resolve().name)
    body = unseal(path, read_text(path), SETTINGS_FORMAT)
    claims = tuple(Claim.of(table) for table in body.get("claims", ()))  # earlier files have none
    return Settings(body["title"], tuple(Row.of(table) for table in body["published"]), claims)


def load_models(folder: Folder, records: Iterable[RunRecord]) -> dict[str, CMDP]:
    """The models of records that a folder and those below it keep, by their fingerprints."""
    kept = {path.stem: path for path in Path(folder).rglob(f"{MODELS}/*.npz")}
    wanted = {record.run.fingerprint for record in records}
    return {fingerprint: read_model(kept[fingerprint]) for fingerprint in sorted(wanted & kept.keys())}


def model_of(run: Run, models: Mapping[str, CMDP] | None = None) -> CMDP | None:
    """The model that a run was made on: one that is given by fingerprint or name, or loaded by its name.

    None unless it is certainly the same. A record is data: code that it names ("package.module:function", or an
    environment of another package) is never imported or called for it.
    """
    if not run.fingerprint:
        return None
    known = models or {}
    cmdp = known.get(run.fingerprint)
    named = parsed(run.env)
    if cmdp is None and run.env not in known and named is not None and not envs.is_built_in(named[0]):
        return None
    try:
        if cmdp is None:
            cmdp = (known[run.env] if run.env in known else load(run.env)).with_bounds(**run.bounds)
    except (ValueError, OSError):  # a file that moved, a name made up for a model in memory
        return None
    return cmdp if cmdp.fingerprint() == run.fingerprint else None
