"""A study: finished runs, to be looked at together, and their folder with models and a title."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from cmdpkit import envs
from cmdpkit.errors import CmdpkitError, printable
from cmdpkit.io.atomic import make_folder, write_text
from cmdpkit.io.loading import load, parsed
from cmdpkit.io.models import read_model
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.showing import Shown
from cmdpkit.model.validate import Removed
from cmdpkit.records.record import Run, RunRecord, Scalar
from cmdpkit.records.store import Failure, document, load_failures, load_records, opened
from cmdpkit.results.groups import Group, group_key, groups, remarks
from cmdpkit.results.runs import GridRow, grid_table, group_table, study_tables
from cmdpkit.results.tables import EMPTY_LINE, NOTICE, Table, TerminalTable, joined
from cmdpkit.results.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Folder = str | os.PathLike[str]

BRIEF = (  # the columns of a study that fit on a terminal; the report has all of them
    *("algorithm", "regret", "realised_regret", "violation", "realised_violation", "strong_regret", "strong_violation"),
    *("realised_reward", "evaluated_value", "evaluated_utility"),
    *("unsafe_episodes", "gaps_paid", "policy_gap", "policies_within_bounds"),
)
# The columns of a data frame that say what was asked.
IDENTITY = ("run", "env", "bounds", "noise", "algo", "preset", "params", "baseline", "code", "seed")
MODELS = "models"  # the folder of model files, which are named by their fingerprints
SETTINGS, SETTINGS_KIND = "study.json", "study"


@dataclass(frozen=True, eq=False)
class Study(Shown):
    """Finished runs, to be looked at together.

    ``models`` maps names of environments, or fingerprints, to models, for what a record alone cannot show (boards,
    prices); those that cmdpkit can load by name need not be given.
    """

    records: tuple[RunRecord, ...]  # the finished runs
    models: Mapping[str, CMDP] | None = None  # models by the name of their environment, or by fingerprint
    failures: tuple[Failure, ...] = ()  # runs that did not finish
    title: str = ""  # heading of the report
    labels: Mapping[str, str] | None = None  # what algorithms and problems are called, see `with_labels`

    aggregate = Removed("study.grid(metric) has the means of which aggregates are made")
    ranks = Removed("pandas.DataFrame(study.grid(metric).data()) has the means, and its method rank their ranks")
    comparison = Removed("give the last values of curves to SciPy, such as to scipy.stats.ttest_rel")
    sweep = Removed("study.to_pandas() has every parameter as a column to group by")
    to_tensorboard = Removed("the page on learning shows how progress= hands the same numbers to TensorBoard or W&B")
    to_arrow = Removed("pyarrow.Table.from_pandas(study.to_pandas()) is the same table")

    @classmethod
    def load(cls, folder: str | os.PathLike[str], models: Mapping[str, CMDP] | None = None) -> Study:
        """Every finished run in a folder and those below it, with the models and the title there.

        Runs are in the order of the experiment that made them; others follow by environment, algorithm and seed.
        """
        records, failures = load_records(folder), load_failures(folder)
        if not records and not failures:
            raise CmdpkitError(f"there is no finished run in {os.fspath(folder)}; `cmdpkit bench FILE` makes some")
        settings = load_settings(folder)
        known = {**load_models(folder, records), **(models or {})}
        orders = [load_settings(path.parent).order for path in sorted(Path(folder).rglob(SETTINGS))]
        place = {key: i for i, key in enumerate(dict.fromkeys(key for order in orders for key in order))}
        records = tuple(sorted(records, key=lambda record: place.get(group_key(record.run), len(place))))
        return cls(records, known, failures, settings.title)

    def __len__(self) -> int:
        return len(self.records)

    def groups(self) -> tuple[Group, ...]:
        """Runs that differ in the seed alone, together."""
        return groups(self.records, self.labels)

    def only(self, algos: str | Iterable[str] | None = None, envs: str | Iterable[str] | None = None) -> Study:
        """The runs of some algorithms, on some environments, in the order in which these are named.

        Algorithms are given by name ("triple-q") or by the label of a group ("triple-q (eta=2.0)"); environments by
        name ("queue", with any parameters and bounds), in full ("queue:S=5"), or as the problem is called in tables
        ("queue with energy = 20").

        >>> import cmdpkit as ck
        >>> study = ck.bench(["queue"], ["dual-q", "triple-q"], episodes=20, seeds=2, executor="serial")
        >>> study.only(algos="dual-q").groups()[0].label, len(study.only(envs=["queue"]))
        ('dual-q', 4)
        """
        of_algo: dict[str, set[str]] = {}
        of_env: dict[str, set[str]] = {}
        for group in self.groups():
            run, model = group.run, parsed(group.run.env) or (group.run.env, {})
            for record in group.records:
                of_algo[record.run.key] = {group.label, group.request, group.algo, run.algo}
                of_env[record.run.key] = {group.problem, group.env, run.problem, run.env, model[0]}
        by_algo, by_env = _places(of_algo, algos, "algorithm"), _places(of_env, envs, "environment")
        places = {key: (by_env[key], by_algo[key]) for key in by_algo.keys() & by_env.keys()}
        kept = (record for record in self.records if record.run.key in places)
        records = tuple(sorted(kept, key=lambda record: places[record.run.key]))
        runs = {(record.run.env, record.run.algo) for record in records}
        failures = tuple(x for x in self.failures if (x.run.env, x.run.algo) in runs)
        return replace(self, records=records, failures=failures)

    @property
    def names(self) -> list[str]:
        """What can be given another name: groups, algorithms, problems and environments."""
        plain = groups(self.records)
        return list(dict.fromkeys(x for g in plain for x in (g.request, g.run.algo, g.problem, g.run.env)))

    def with_labels(self, labels: Mapping[str, str]) -> Study:
        """The same study with other names for algorithms and problems, in tables, figures and the report alike.

        What is renamed is an algorithm ("triple-q"), a group ("triple-q (eta=2.0)"), an environment ("queue"), or a
        problem ("queue with energy = 20"). JSON and data frames keep the names of the records.

        >>> import cmdpkit as ck
        >>> study = ck.bench(["queue"], ["triple-q"], episodes=20, seeds=2, executor="serial")
        >>> group, = study.with_labels({"triple-q": "Triple-Q", "queue": "Rush hours"}).groups()
        >>> group.label, group.problem
        ('Triple-Q', 'Rush hours')
        """
        known = self.names
        for name, text in labels.items():
            if name not in known:
                raise CmdpkitError(f"there is nothing called {name!r} to label; there are {', '.join(known)}")
            if not isinstance(text, str) or not text.strip():
                raise CmdpkitError(f"the label of {name!r} is {text!r}, expected a text")
        relabelled = replace(self, labels={**(self.labels or {}), **labels})
        taken: dict[tuple[str, str, str], Group] = {}
        for group in relabelled.groups():
            other = taken.setdefault((group.problem, group.run.fingerprint, group.label), group)
            if other is not group:
                raise CmdpkitError(f"two groups on {group.problem} would be called {group.label!r}; label them apart")
        return relabelled

    def remarks(self) -> tuple[str, ...]:
        """What a reader of the table has to know: code that differs or is unknown, seeds that make no difference."""
        return remarks(self.groups())

    def table(self) -> list[dict[str, Any]]:
        """One dictionary per group: what was asked, final regret and violation with intervals, and the policies."""
        return [row for group in self.groups() for row in group_table([group]).data()]

    def summary(self) -> list[Table[Group]]:
        """The same as tables for people, one per problem: `Table.to_markdown`, `Table.to_latex`."""
        return study_tables(self.groups())

    def grid(self, metric: str = "strong_regret", *, n: int | None = None) -> Table[GridRow]:
        """One table of all problems x algorithms: means over seeds, and half the width of their 95 % intervals.

        The best mean of every row is bold, which need not mean that it is truly better. Regret, reward and the value of
        the final policy are better the more a bound is missed. So there a dagger stands beside algorithms that miss a
        bound: the whole interval of its violation over the seeds is above 0, in the totals of their runs or by their
        final policies. The caption says what is marked.

        Parameters
        ----------
        metric : a curve, of which the end counts ("regret", "strong_violation", "unsafe_episodes" and so on), or
            "policy_value", "policy_gap", "worst_miss" or "seconds"
        n : the constraint, from 0, where there is a number for each; by default the largest of them counts

        >>> import cmdpkit as ck
        >>> study = ck.bench(["queue"], ["dual-q", "triple-q"], episodes=20, seeds=2, executor="serial")
        >>> [column.heading for column in study.grid("strong_regret").shown()]
        ['problem', 'dual-q', 'triple-q']
        """
        return grid_table(self.groups(), metric, n)

    def to_markdown(self) -> str:
        """The summary in Markdown."""
        return joined(self.summary(), "markdown")

    def to_latex(self) -> str:
        """The summary as LaTeX tables, which need the package booktabs."""
        return joined(self.summary(), "latex")

    def plot(self, name: str, **options: Any) -> Figure:
        """A matplotlib figure; ``figure.savefig("name.pdf")`` writes it. `only` and `with_labels` choose and rename.

        Parameters
        ----------
        name : "overview", "regret", "violation", "certified_gap", "multiplier", or "policy", the first policy on the
            board of its model
        size : the width in inches, such as 3.3 for a column and 7 for a page, or width and height
        ax : matplotlib axes to draw into, one for each panel
        options : those of the figure, as the guide lists them: ``kind``, ``scale`` and so on

        >>> import cmdpkit as ck
        >>> study = ck.bench(["queue"], ["dual-q", "triple-q"], episodes=20, seeds=2, executor="serial")
        >>> named = study.only(algos=["triple-q", "dual-q"]).with_labels({"triple-q": "Triple-Q"})
        >>> figure = named.plot("regret", size=3.3)
        >>> [text.get_text() for text in figure.legends[0].get_texts()], float(figure.get_figwidth())
        (['Triple-Q', 'dual-q'], 3.3)
        """
        return showing.draw(self, name, **options)

    def to_html(self, path: str | os.PathLike[str], *, title: str = "", overwrite: bool = False) -> Path:
        """Write the report, one file that needs no network."""
        from cmdpkit.results.report import render

        page = render(self, title=title or self.title)
        return write_text(path, page, overwrite=overwrite)

    def to_pandas(self) -> Any:
        """All curves in one pandas data frame, with one row per checkpoint, after columns that say what was asked.

        A curve with a number per constraint becomes the columns "violation_1", "violation_2" and so on. Parameters that
        were set have columns of their own: "env.S", "bound.energy", "algo.eta".
        """
        try:
            import pandas as pd
        except ImportError:
            raise CmdpkitError(
                "a data frame needs pandas, which is not installed: pip install 'cmdpkit[frames]'"
            ) from None
        return pd.concat([pd.DataFrame(_columns(record)) for record in self.records], ignore_index=True)


def _columns(record: RunRecord) -> dict[str, Any]:
    """What was asked of a run, and its curves, as columns of a table with one row per checkpoint."""
    run = record.run
    asked = {"run": run.key, **run.to_dict()}
    asked |= {name: json.dumps(asked[name], sort_keys=True) for name in ("bounds", "params")}
    identity = {**{name: asked[name] for name in IDENTITY}, **parameters_of(run)}
    columns: dict[str, Any] = {name: np.full(np.size(record.read_at), x) for name, x in identity.items()}
    for name, x in record.curves.items():
        parts = {name: x} if np.ndim(x) == 1 else {f"{name}_{n + 1}": row for n, row in enumerate(x)}
        if taken := parts.keys() & columns.keys():
            raise CmdpkitError(f"curve {name!r} needs the column {min(taken)!r}, which is taken; rename it")
        columns |= parts
    return columns


def parameters_of(run: Run) -> dict[str, Scalar]:
    """What was set, by name: "env.S" for a parameter of the environment, "bound.energy", "algo.eta".

    >>> parameters_of(Run("queue:S=5", "pri", 100, 0, "paper", params={"eta": 2.0}, bounds={"energy": 20.0}))
    {'env.S': 5, 'bound.energy': 20.0, 'algo.eta': 2.0}
    """
    named = parsed(run.env)
    of_env = {f"env.{name}": value for name, value in (named[1] if named else {}).items()}
    of_bounds = {f"bound.{name}": value for name, value in run.bounds.items()}
    of_algo = {f"algo.{name}": value for name, value in run.params.items()}
    return {**of_env, **of_bounds, **of_algo}


def _places(names: Mapping[str, set[str]], wanted: str | Iterable[str] | None, what: str) -> dict[str, int]:
    """The runs one of whose names is wanted, and the place of that name; a wanted name that no run has is an error."""
    if wanted is None:
        return dict.fromkeys(names, 0)
    asked = [wanted] if isinstance(wanted, str) else list(wanted)
    known = sorted({name for mine in names.values() for name in mine})
    if unknown := set(asked).difference(known):
        raise CmdpkitError(f"no run is of {what} {min(unknown)!r}; there are {', '.join(known)}")
    return {key: min(i for i, x in enumerate(asked) if x in mine) for key, mine in names.items() if mine & set(asked)}


def tables_of(study: Study, tables: Iterable[Table[Any]] | None = None) -> list[RenderableType]:
    """Tables of a study with their titles, and what a reader has to know about its runs.

    Without other ``tables`` they are those of the groups, as far as a terminal is wide enough for them.
    """
    parts: list[RenderableType] = []
    for table in tables or [table.only(*BRIEF) for table in study.summary()]:
        parts += [EMPTY_LINE, Text(printable(table.title), style="bold"), TerminalTable(table)]
    return [*parts, EMPTY_LINE, *(Text(remark, style=NOTICE) for remark in study.remarks())]


def study_text(study: Study, tables: Iterable[Table[Any]] | None = None) -> RenderableType:
    """The tables of a study, and how many runs failed."""
    parts: list[RenderableType] = [Text(f"Study of {counted(len(study), 'run')}"), *tables_of(study, tables)]
    if study.failures:
        parts.append(Text(f"{counted(len(study.failures), 'run')} failed.", style="red"))
    return Lines(*parts)


def failures_text(reasons: Iterable[str]) -> list[Text]:
    """One line per reason, with how many runs failed for it."""
    return [Text(f"{counted(n, 'run')} failed: {reason}", style="red") for reason, n in Counter(reasons).items()]


# -- the folder of a study ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """How a study is to be shown."""

    title: str = ""  # heading of the report
    order: tuple[str, ...] = ()  # `group_key` of every group, in the order of the experiment


def save_order(folder: Folder, runs: Iterable[Run], title: str) -> None:
    """Keep the order of an experiment's runs, before those of earlier ones in the same folder, and its title."""
    kept = load_settings(folder)
    order = tuple(dict.fromkeys([*map(group_key, runs), *kept.order]))
    if order != kept.order or (title and title != kept.title):
        body: dict[str, Any] = {"title": title or kept.title, "order": list(order)}
        make_folder(Path(folder))
        write_text(Path(folder, SETTINGS), document(SETTINGS_KIND, body), overwrite=True)


def load_settings(folder: Folder) -> Settings:
    """The settings next to the records of a folder; without them, the name of the folder is the title."""
    path = Path(folder, SETTINGS)
    if not path.exists():
        return Settings(Path(folder).resolve().name)
    body = opened(path, SETTINGS_KIND)
    return Settings(body["title"], tuple(body.get("order", ())))


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
