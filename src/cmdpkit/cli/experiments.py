"""Verbs for many runs: `bench`, `show`, `report`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, BadParameter, Option

from cmdpkit.cli import shared
from cmdpkit.cli.progress import Busy
from cmdpkit.cli.shared import Force, Json, Tables, verb
from cmdpkit.errors import CmdpkitError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cmdpkit.experiments.execute import Outcome
    from cmdpkit.results.study import Study


class Executor(StrEnum):
    """`cmdpkit.experiments.backends.EXECUTORS`, which are not imported for --help."""

    serial = "serial"
    processes = "processes"
    dask = "dask"


By = Annotated[Executor, Option(help="This process, processes of this machine, or a dask cluster.")]
Workers = Annotated[int | None, Option(min=1, help="Runs at once; by default one per core.")]
Address = Annotated[
    str | None, Option(metavar="HOST:PORT", help="Scheduler of a dask cluster; by default one is made here.")
]


@verb(
    "bench experiments/quickstart.toml     (killed? the same command continues)",
    "bench experiments/paper-grid.toml --executor dask --address tcp://127.0.0.1:8786",
)
def bench(
    file: Annotated[Path, Argument(metavar="FILE", help="The experiment, a TOML file.")],
    executor: By = Executor.processes,
    workers: Workers = None,
    address: Address = None,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Keep the records here, not in the folder that the file names.")
    ] = None,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Run the experiment that a file describes.

    Runs that are done are skipped, and unfinished ones continue where they were saved last. A run that fails is
    recorded with its reason, does not stop the others, and is tried again next time; the exit code is 1 then.
    """
    from cmdpkit.cli.progress import RunWatch
    from cmdpkit.experiments.execute import execute
    from cmdpkit.experiments.experiment import Experiment

    experiment = Experiment.load(file)
    folder = out or experiment.output
    with shared.resumable(folder), RunWatch(f"bench {experiment.name}", quiet=as_json) as watch:
        done = execute(
            experiment.runs(),
            experiment.worlds,
            folder,
            title=experiment.name,
            executor=executor.value,
            workers=workers,
            address=address,
            observer=watch,
        )
    study = done.study()
    shared.answer(
        as_json,
        table,
        lambda: {"name": experiment.name, **done.to_dict(), "table": study.table(), "remarks": list(study.remarks())},
        study.summary(),
        lambda: _outcome(experiment.name, done, study),
    )
    raise typer.Exit(1 if done.failed else 0)


def _outcome(name: str, done: Outcome, study: Study) -> RenderableType:
    """What an experiment has done, its tables, and its failures."""
    from rich.console import Group
    from rich.text import Text

    from cmdpkit.results.study import failures_text, tables_of
    from cmdpkit.results.tables import EMPTY_LINE, QUIET
    from cmdpkit.results.wording import counted, duration, label

    made = len(done.runs) - done.skipped - len(done.failed)
    headline = Text.assemble((label(name), "bold"), f": {counted(len(done.runs), 'run')}, {made:,} done now")
    headline.append(f", {done.skipped:,} before" if done.skipped else "")
    headline.append(f", {len(done.failed):,} failed" if done.failed else "", style="red")
    failures = failures_text(done.failed.values())
    ended = Text(f"{duration(done.seconds)}. Records are in {done.folder}.", style=QUIET)
    return Group(headline, *tables_of(study), EMPTY_LINE, *failures, ended)


Algos = Annotated[
    list[str] | None, Option("--algo", metavar="NAME", help="Only this algorithm or group; may be given several times.")
]
Envs = Annotated[
    list[str] | None,
    Option("--env", metavar="NAME", help="Only this environment or problem; may be given several times."),
]
Labels = Annotated[
    list[str] | None,
    Option("--label", metavar="NAME=TEXT", help="Rename an algorithm or problem; may be given several times."),
]


@verb(
    "show runs/quickstart",
    "show runs/quickstart --algo cl-pri --label cl-pri=CL-PRI",
    "show runs/quickstart --grid --metric strong_violation --table latex",
)
def show(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder of runs, and those below it.")],
    algo: Algos = None,
    env: Envs = None,
    label: Labels = None,
    grid: Annotated[bool, Option("--grid", help="One table of all problems x algorithms.")] = False,
    metric: Annotated[
        str, Option(metavar="NAME", help="A curve that counts by its end, policy_gap, worst_miss or seconds.")
    ] = "strong_regret",
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Show tables of runs, as wide as the terminal.

    By default one table per problem, as `bench` prints them. --grid shows one table of a --metric instead.
    """
    from cmdpkit.results.study import study_text

    study = _study(folder, algo, env, label)
    grids = [study.grid(metric)] if grid else []

    def data() -> dict[str, Any]:
        found = {"grid": grids[0].data()} if grid else {"table": study.table()}
        return {**found, "remarks": list(study.remarks())}

    shared.answer(
        as_json,
        table,
        data,
        grids or study.summary(),
        lambda: study_text(study, grids),
    )


@verb(
    "report runs/quickstart",
    "report runs/quickstart --out quickstart.html",
    "report model.toml --today policy.csv     (the best plan of a model, against what is done today)",
)
def report(
    target: Annotated[
        str, Argument(metavar="DIR|MODEL", help="A folder of runs and those below it, or a model as in `solve`.")
    ],
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            callback=shared.page_file,
            help="Write here. By default the report replaces report.html in the folder; that of a model is NAME.html.",
        ),
    ] = None,
    today: Annotated[
        Path | None, Option(metavar="FILE", help="With a model: the policy of today (.csv, .json or .npz).")
    ] = None,
    force: Force = False,
    algo: Algos = None,
    env: Envs = None,
    label: Labels = None,
    as_json: Json = False,
) -> None:
    """Show runs, or the best plan of a model, on one HTML page.

    The page needs no network. That of a model has its bounds and their prices, the policy of today against the optimum
    and a simple policy, the differences that cost most, and how single episodes spread.
    """
    from cmdpkit.results.wording import counted

    folder = Path(target)
    if not folder.is_dir():
        others = {"--algo": algo, "--env": env, "--label": label}
        _report_plan(target, out, today, force, as_json, [name for name, value in others.items() if value])
        return
    if today is not None:
        raise BadParameter("--today goes with a model, not with a folder of runs", param_hint="--today")
    shared.refuse_existing(out, force)
    study = _study(folder, algo, env, label)
    path = study.to_html(out or folder / "report.html", overwrite=force or out is None)
    if as_json:
        counts = {"runs": len(study.records), "failures": len(study.failures)}
        shared.say_json({"report": str(path), **counts})
    else:
        typer.echo(f"{path}: {counted(len(study.records), 'run')}")


@shared.app.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def reproduce() -> None:
    """Refuse a verb of version 0.2 and name its replacement."""
    raise CmdpkitError(
        "`cmdpkit reproduce` was removed: in a clone of the repository, `make reproduce` runs the paper again, and "
        "`make demo` a quick form of it"
    )


def _report_plan(
    model: str, out: Path | None, today: Path | None, force: bool, as_json: bool, others: list[str]
) -> None:
    """Write the report of a model; ``others`` are options that only a folder of runs has."""
    import cmdpkit as ck
    from cmdpkit.errors import quoted
    from cmdpkit.results.report.plan import EPISODES

    if others:
        raise BadParameter(f"{quoted(model)} is no folder of runs", param_hint=others[0])
    try:
        cmdp = ck.load(model)
    except (CmdpkitError, OSError) as error:
        raise CmdpkitError(f"{quoted(model)} is neither a folder of runs nor a model: {error}") from None
    path = out or Path(re.sub(r"[^\w.-]+", "-", Path(model).stem if Path(model).exists() else model) + ".html")
    shared.refuse_existing(path, force)
    with Busy("solving"):
        policy = None if today is None else ck.read_policy(today, cmdp)
        written = ck.plan_report(cmdp, path, policy, title=f"{model}: the best plan", overwrite=force)
    if as_json:
        shared.say_json({"report": str(written), "episodes": EPISODES, "today": None if today is None else str(today)})
    else:
        typer.echo(f"wrote {written}")


def _study(folder: Path, algo: list[str] | None, env: list[str] | None, label: list[str] | None) -> Study:
    """The runs of a folder that were asked for, with the names that were given."""
    from cmdpkit.results.study import Study

    study = Study.load(folder)
    split = partial(_labelled, known=study.names if label else [])
    labels = shared.pairs(label, "--label", "NAME=TEXT, such as cl-pri=CL-PRI", split)
    return (study.with_labels(labels) if labels else study).only(algo or None, env or None)


def _labelled(item: str, known: Sequence[str]) -> tuple[str, str]:
    """The name and its label; names such as "triple-q (eta=2.0)" and labels such as "δ = 0.1" have a "=" too."""
    ends = [i for i, letter in enumerate(item) if letter == "="]
    end = next((i for i in reversed(ends) if item[:i] in known), ends[0] if ends else -1)
    name, text = item[: max(end, 0)], item[end + 1 :]
    if not name or not text:
        raise ValueError(item)
    return name, text
