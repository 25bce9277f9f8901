"""Verbs for unknown models: `algos` and `learn`, and for many runs `bench`, `show` and `report`."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, BadParameter, Option

from cmdpkit.cli import shared
from cmdpkit.cli.progress import Busy, RunWatch
from cmdpkit.cli.shared import Bounds, Force, Json, Model, verb
from cmdpkit.errors import CmdpkitError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cmdpkit.experiments.execute import Outcome
    from cmdpkit.results.study import Study


class Noise(StrEnum):
    """`cmdpkit.simulate.simulator.Noise`, which is not imported for --help."""

    none = "none"
    bernoulli = "bernoulli"


def _algorithms(incomplete: str) -> list[str]:
    """The algorithms whose names begin like this, for the completion of a shell."""
    from cmdpkit import learners

    return [name for name in learners.names() if name.startswith(incomplete)]


Algorithm = Annotated[
    str,
    Option(
        "--algo",
        help="The algorithm; `cmdpkit algos` lists them. Or your own package.module:Class.",
        autocompletion=_algorithms,
    ),
]
MAX_SEEDS = 1_000_000  # a larger number is taken for a mistake
EPISODES = "1e6"  # unless something else is said
Episodes = Annotated[
    str | None,
    Option(metavar="K", help=f"Episodes of the whole run, e.g. 200000 or 8e6; {EPISODES} unless --stop is given."),
]


@verb("algos", "algos --json")
def algos(as_json: Json = False) -> None:
    """List the algorithms: guarantee, needs, presets, paper."""
    from cmdpkit import learners
    from cmdpkit.results import catalogue

    listed = {name: learners.facts(name) for name in [*learners.names(), *learners.installed()]}
    shared.answer(as_json, catalogue.algorithm_table(listed).data, lambda: catalogue.algorithms(listed))


@verb(
    "learn paper/synthetic --algo cl-pri --episodes 8e6 --seeds 10",
    "learn queue --algo triple-q --episodes 1e6 --set eta=4 --json",
    "learn paper/grid --algo cl-pri --episodes 1e6 --out runs/grid     (killed? the same command continues)",
    "learn queue --stop certified --out runs/queue     (ends when the policy is proved to meet every bound)",
    "learn paper/synthetic --stop gap=0.05     (ends when the policy is proved that close to the optimum)",
    "learn queue --out runs/queue --more 1e5     (and goes on from there)",
    "learn power-queue --steps 1e6     (a model without a horizon: one run of single steps)",
    "learn paper/grid --algo mine:Mine --episodes 1e5     (the class Mine in mine.py)",
    'learn mine:make --constraint "falls<=0.02" --horizon 20     (a Gymnasium environment)',
)
def learn(
    model: Model,
    algo: Algorithm = "cl-pri",
    episodes: Episodes = None,
    steps: Annotated[
        str | None, Option(metavar="T", help="Instead of --episodes, steps of the run in a model without a horizon.")
    ] = None,
    stop: Annotated[
        str | None,
        Option(
            metavar="RULE",
            help="Instead of --episodes, when to stop: 60s, 10min, 2h, certified, gap=0.05 or gap=1%, or a number of "
            "episodes (of steps without a horizon).",
        ),
    ] = None,
    more: Annotated[
        str | None, Option(metavar="N", help="Continue the runs in --out that --stop has ended by N episodes or steps.")
    ] = None,
    seeds: Annotated[int, Option(min=1, max=MAX_SEEDS, help="How many independent runs.")] = 1,
    first_seed: Annotated[
        int,
        Option("--first-seed", "--seed", min=0, help="Seed of the first run; later runs use the following integers."),
    ] = 0,
    preset: Annotated[
        str | None, Option(help="Constants, see `cmdpkit algos`; by default the algorithm's first preset.")
    ] = None,
    setting: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="Change one parameter; may be repeated.")
    ] = None,
    bound: Bounds = None,
    constraint: Annotated[
        list[str] | None,
        Option(metavar="NAME<=BOUND", help="A bound on a cost of a Gymnasium environment; may be repeated."),
    ] = None,
    horizon: Annotated[
        int | None, Option(min=1, help="Steps per episode of a Gymnasium environment; else its time limit.")
    ] = None,
    noise: Annotated[Noise, Option(help="bernoulli makes rewards and utilities 0 or 1 at random.")] = Noise.none,
    baseline: Annotated[
        Path | None,
        Option(metavar="FILE", help="A policy known to be safe, for algorithms that need one; else the safest."),
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Keep records here and continue unfinished runs from here.")
    ] = None,
    threads: Annotated[int | None, Option(min=1, help="Runs at once; by default one per core.")] = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Show the learner's phases and internals.")] = False,
    as_json: Json = False,
) -> None:
    """Learn a policy online, without knowing the model.

    Reports regret and violation, weak (signed) and strong (positive parts only), exact and realised, and the returned
    policy with its certificate.
    """
    if as_json and verbose:
        raise BadParameter("--verbose adds text, which JSON cannot hold: leave one of them out", param_hint="--verbose")
    watch = RunWatch(f"learn {model} with {algo}", seeds, name=lambda run: f"seed {run.seed}", quiet=as_json)
    with shared.resumable(out), watch:
        from cmdpkit.io.policies import read_policy  # the watch is shown before anything heavy is imported
        from cmdpkit.results import runs as show
        from cmdpkit.running.learning import learn_many

        records = learn_many(
            _environment(model, constraint, horizon),
            algo,
            **_length(episodes, steps, stop, more),
            seeds=range(first_seed, first_seed + seeds),
            preset=preset,
            bounds=shared.bounds_of(bound),
            noise=noise.value,
            baseline=None if baseline is None else read_policy(baseline),
            out=out,
            threads=threads,
            progress=watch.report,
            **settings_of(setting),
        )
    shared.answer(as_json, lambda: show.learned_data(records), lambda: show.learned(records))
    for record in records if verbose else []:
        typer.echo(f"\n{record.internals_text()}")


def _length(episodes: str | None, steps: str | None, stop: str | None, more: str | None) -> dict[str, Any]:
    """How long to learn, as `learn_many` wants it."""
    options = {"episodes": episodes, "steps": steps, "stop": stop, "more": more}
    given = {name: text for name, text in options.items() if text is not None} or {"episodes": EPISODES}
    if len(given) > 1:
        names = [f"--{name}" for name in given]
        raise BadParameter(f"only one of {' and '.join(names)} can be given", param_hint=names[0])
    return {name: text if name == "stop" else whole(f"--{name}", text) for name, text in given.items()}


def _environment(model: str, constraint: list[str] | None, horizon: int | None) -> Any:
    """The environment to learn in: a name, or with a horizon or constraints the recipe of a Gymnasium environment."""
    if constraint is None and horizon is None:
        return model
    from cmdpkit.running.gym.world import GymRecipe

    limits = None if constraint is None else shared.constraints_of(constraint)
    return GymRecipe(model, constraints=limits, horizon=horizon)


def whole(option: str, text: str) -> int:
    """A whole number, also as 8e6."""
    try:
        number = float(text)
    except ValueError:
        raise BadParameter(f"{text!r} is not a number", param_hint=option) from None
    if not number.is_integer() or number < 1:
        raise BadParameter(f"{text} is not a whole number, at least 1", param_hint=option)
    return int(number)


def settings_of(given: list[str] | None) -> dict[str, Any]:
    """``NAME=VALUE`` of every --set: numbers, true, false, or text."""
    from cmdpkit.running.request import check_parameters

    settings = shared.pairs(given, "--set", "NAME=VALUE", _setting)
    check_parameters(settings)
    return settings


def _setting(item: str) -> tuple[str, Any]:
    from cmdpkit.envs import plain_value

    name, value = (part.strip() for part in item.split("=", 1))
    if not name.isidentifier():
        raise ValueError(name)
    return name, plain_value(value)


# -- Many runs: experiments, their tables and their report.


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
    as_json: Json = False,
) -> None:
    """Run the experiment that a file describes.

    Runs that are done are skipped, and unfinished ones continue where they were saved last. A run that fails is
    recorded with its reason, does not stop the others, and is tried again next time; the exit code is 1 then.
    """
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
        lambda: {"name": experiment.name, **done.to_dict(), "table": study.table(), "remarks": list(study.remarks())},
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
TableForm = StrEnum("TableForm", ["markdown", "latex"])  # what `cmdpkit.results.tables.joined` writes


@verb(
    "show runs/quickstart",
    "show runs/quickstart --grid --metric strong_violation --table latex",
)
def show(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder of runs, and those below it.")],
    algo: Algos = None,
    env: Envs = None,
    grid: Annotated[bool, Option("--grid", help="One table of all problems x algorithms.")] = False,
    metric: Annotated[
        str, Option(metavar="NAME", help="A curve that counts by its end, policy_gap, worst_miss or seconds.")
    ] = "strong_regret",
    table: Annotated[TableForm | None, Option(help="Print only the tables, as Markdown or LaTeX.")] = None,
    as_json: Json = False,
) -> None:
    """Show tables of runs, as wide as the terminal.

    By default one table per problem, as `bench` prints them. --grid shows one table of a --metric instead.
    """
    from cmdpkit.results.study import study_text
    from cmdpkit.results.tables import joined

    if table is not None and as_json:
        raise BadParameter("--json and --table cannot be combined; give one of the two")
    study = _study(folder, algo, env)
    grids = [study.grid(metric)] if grid else []

    def data() -> dict[str, Any]:
        found = {"grid": grids[0].data()} if grid else {"table": study.table()}
        return {**found, "remarks": list(study.remarks())}

    if table is not None:
        typer.echo(joined(grids or study.summary(), table), nl=False)
    else:
        shared.answer(as_json, data, lambda: study_text(study, grids))


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
    as_json: Json = False,
) -> None:
    """Show runs, or the best plan of a model, on one HTML page.

    The page needs no network. That of a model has its bounds and their prices, the policy of today against the optimum
    and a simple policy, the differences that cost most, and how single episodes spread.
    """
    from cmdpkit.results.wording import counted

    folder = Path(target)
    if not folder.is_dir():
        others = {"--algo": algo, "--env": env}
        _report_plan(target, out, today, force, as_json, [name for name, value in others.items() if value])
        return
    if today is not None:
        raise BadParameter("--today goes with a model, not with a folder of runs", param_hint="--today")
    shared.refuse_existing(out, force)
    study = _study(folder, algo, env)
    path = study.to_html(out or folder / "report.html", overwrite=force or out is None)
    if as_json:
        counts = {"runs": len(study.records), "failures": len(study.failures)}
        shared.say_json({"report": str(path), **counts})
    else:
        typer.echo(f"{path}: {counted(len(study.records), 'run')}")


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


def _study(folder: Path, algo: list[str] | None, env: list[str] | None) -> Study:
    """The runs of a folder that were asked for."""
    from cmdpkit.results.study import Study

    return Study.load(folder).only(algo or None, env or None)
