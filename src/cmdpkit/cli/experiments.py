"""Verbs for many runs: `bench`, `report`, `reproduce`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cmdpkit.cli.app import Json, app, examples, vacant
from cmdpkit.cli.terminal import say, say_json


class Executor(StrEnum):
    """`cmdpkit.experiments.backends.EXECUTORS`, which are not imported for --help."""

    serial = "serial"
    processes = "processes"
    dask = "dask"


class Source(StrEnum):
    """What can be reproduced."""

    paper = "paper"


By = Annotated[Executor, typer.Option(help="This process, processes of this machine, or a dask cluster.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Runs at once; by default one per core.")]
Address = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Scheduler of a dask cluster; by default one is made here.")
]
INTERRUPTED = 130  # exit code after Ctrl-C


@app.command(
    epilog=examples(
        "bench experiments/quickstart.toml     (killed? the same command continues)",
        "bench experiments/paper-grid.toml --executor dask --address tcp://127.0.0.1:8786",
    )
)
def bench(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, a TOML file.")],
    executor: By = Executor.processes,
    workers: Workers = None,
    address: Address = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the records here instead of where the file says.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run algorithms on problems with several seeds, as a file says.

    Runs that are done are skipped, and unfinished ones continue where they were saved last. A run that fails is
    recorded with its reason, does not stop the others, and is tried again next time; the exit code is 1 then.
    """
    from cmdpkit.cli import outcomes
    from cmdpkit.cli.progress import Overview
    from cmdpkit.experiments.execute import execute
    from cmdpkit.experiments.experiment import Experiment

    experiment = Experiment.load(file)
    folder = out or experiment.output
    with _resumable(folder), Overview(quiet=as_json) as watch:
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
    if as_json:
        answer = {"name": experiment.name, **done.to_dict(), "table": study.table()}
        say_json({**answer, "remarks": list(study.remarks())})
    else:
        say(outcomes.outcome(experiment.name, done, study))
    raise typer.Exit(1 if done.failed else 0)


@app.command(
    epilog=examples(
        "report runs/quickstart",
        "report runs/quickstart --out quickstart.html",
        "report runs/quickstart --tensorboard events     (then: tensorboard --logdir events)",
    )
)
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of runs, and those below it.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write here; by default report.html in the folder, replaced.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the curves for TensorBoard as well, into this folder.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that exists; write into a folder that is not empty.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what was learned: one HTML file that needs no network."""
    from cmdpkit.results.study import Study
    from cmdpkit.results.text.wording import counted

    vacant(out, force)
    study = Study.load(folder)
    written = [] if tensorboard is None else study.to_tensorboard(tensorboard, overwrite=force)
    path = study.to_html(out or folder / "report.html", overwrite=force or out is None)
    if as_json:
        answer = {"report": str(path), "runs": len(study.records), "failures": len(study.failures)}
        say_json({**answer, "tensorboard": [str(run) for run in written]})
    else:
        typer.echo(f"{path}: {counted(len(study.records), 'run')}")
        if tensorboard is not None:
            typer.echo(f"{tensorboard}: to look at it, tensorboard --logdir {shlex.quote(str(tensorboard))}")


@app.command(
    epilog=examples("reproduce paper", "reproduce paper --quick", "reproduce paper --seeds 30 --out runs/paper-30")
)
def reproduce(
    what: Annotated[Source, typer.Argument(metavar="WHAT", help="paper: both experiments of arXiv 2309.15395.")],
    seeds: Annotated[int | None, typer.Option(min=1, help="Independent runs of each algorithm; by default 10.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="3 seeds only.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Keep everything here.")] = Path("runs/paper"),
    executor: By = Executor.processes,
    workers: Workers = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments again.

    Prints published figure, ours, 95 % interval, verdict, and what had to be assumed; writes the same and the curves
    into report.html, and the paper's figures as PNG files into figures/.
    """
    from cmdpkit.cli import outcomes
    from cmdpkit.cli.progress import Overview
    from cmdpkit.paper.reproduce import QUICK_SEEDS, SEEDS, reproduce_paper

    if quick and seeds is not None:
        raise typer.BadParameter("--quick stands for a number of seeds; give one of the two", param_hint="--seeds")
    number = QUICK_SEEDS if quick else seeds or SEEDS
    with _resumable(out), Overview(quiet=as_json) as watch:
        found = reproduce_paper(
            out,
            seeds=number,
            executor=executor.value,
            workers=workers,
            address=address,
            observer=watch,
        )
    if as_json:
        written = {"report": str(found.report), "figures": [str(path) for path in found.figures]}
        say_json({what.value: [row.to_dict() for row in found.rows], "seeds": found.seeds, **written})
    else:
        say(outcomes.reproduction(found))
        if quick:
            typer.echo(f"This was --quick: {number} seeds instead of {SEEDS}; every run has its full length.")
    if found.hint:
        typer.echo(found.hint, err=True)
    raise typer.Exit(1 if found.study.failures else 0)


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """After Ctrl-C, say what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join(["cmdpkit", *sys.argv[1:]])
        typer.echo(f"interrupted: what is done is kept in {folder}. Continue with\n  {command}", err=True)
        raise typer.Exit(INTERRUPTED) from None
