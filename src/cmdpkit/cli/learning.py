"""Verbs for unknown models: `algos`, `learn`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import BadParameter, Option

from cmdpkit.cli import shared
from cmdpkit.cli.shared import Bounds, Json, Model, Renormalise, Tables, verb


class Noise(StrEnum):
    """`cmdpkit.simulate.simulator.Noise`, which is not imported for --help."""

    none = "none"
    bernoulli = "bernoulli"


def _algorithms(incomplete: str) -> list[str]:
    """The algorithms whose names begin like this, for the completion of a shell."""
    from cmdpkit import learners

    return [name for name in learners.names() if name.startswith(incomplete)]


# How to give what `cmdpkit.running.request` reserves; the rest of it has no place on the command line.
# fmt: off
OPTIONS = {
    **{name: f"--{name}" for name in (
        "algo", "baseline", "bound", "episodes", "more", "noise", "out", "preset", "seeds", "steps", "stop", "threads"
    )},
    "seed": "--first-seed", "first_seed": "--first-seed", "bounds": "--bound", "checkpoint": "--out",
    "env": "the argument MODEL", "model": "the argument MODEL",
}
# fmt: on
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
def algos(table: Tables = None, as_json: Json = False) -> None:
    """List the algorithms: guarantee, needs, presets, paper."""
    from cmdpkit import learners
    from cmdpkit.results import catalogue

    listed = {name: learners.facts(name) for name in [*learners.names(), *learners.installed()]}
    found = catalogue.algorithm_table(listed)
    shared.answer(as_json, table, found.data, [found], lambda: catalogue.algorithms(listed))


@verb("compile", "compile --algo cl-pri --algo triple-q", name="compile")
def compile_(
    algo: Annotated[list[str] | None, Option(help="Only this algorithm; may be repeated. By default all.")] = None,
    as_json: Json = False,
) -> None:
    """Compile everything now, so that no later command has to.

    For images of containers and for clusters: it takes a few minutes, once. The result is kept in the package, or in
    NUMBA_CACHE_DIR.
    """
    from cmdpkit.running.learning import compile_all

    done = compile_all(algo, lambda what: None if as_json else typer.echo(f"compiling: {what}", err=True))
    if as_json:
        shared.say_json({"compiled": done})
    else:
        typer.echo(f"{len(done)} small problems were run; what they needed is compiled and kept.")


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
            help="Instead of --episodes, when to stop: 60s, 10min, 2h, certified, width=0.1, gap=0.05 or gap=1%, or "
            "a number of episodes (of steps without a horizon).",
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
    renormalise: Renormalise = False,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Show the learner's phases and internals.")] = False,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Learn a policy online, without knowing the model.

    Reports regret and violation, weak (signed) and strong (positive parts only), exact and realised, and the returned
    policy with its certificate.
    """
    from cmdpkit.cli.progress import RunWatch

    if as_json and verbose:
        raise BadParameter("--verbose adds text, which JSON cannot hold: leave one of them out", param_hint="--verbose")
    watch = RunWatch(f"learn {model} with {algo}", seeds, name=lambda run: f"seed {run.seed}", quiet=as_json)
    with shared.resumable(out), watch:
        from cmdpkit.io.policies import read_policy  # the watch is shown before anything heavy is imported
        from cmdpkit.results import runs as show
        from cmdpkit.running.learning import learn_many

        records = learn_many(
            _environment(model, constraint, horizon, bound),
            algo,
            **_length(episodes, steps, stop, more),
            seeds=range(first_seed, first_seed + seeds),
            preset=preset,
            bounds=None if constraint is not None or horizon is not None else shared.bounds_of(bound),
            renormalise=renormalise,
            noise=noise.value,
            baseline=None if baseline is None else read_policy(baseline),
            out=out,
            threads=threads,
            progress=watch.report,
            **settings_of(setting),
        )
    tables = [show.run_table(records, len(records))]
    shared.answer(as_json, table, lambda: show.learned_data(records), tables, lambda: show.learned(records))
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


def _environment(model: str, constraint: list[str] | None, horizon: int | None, bound: list[str] | None) -> Any:
    """The environment to learn in: a name, or with a horizon or constraints the recipe of a Gymnasium environment."""
    if constraint is None and horizon is None:
        return model
    from cmdpkit import envs
    from cmdpkit.running.gym.world import GymRecipe

    if model.partition(":")[0] in envs.names():
        option, instead = (
            ("--constraint", "--bound NAME=VALUE") if constraint else ("--horizon", f"{model}:H={horizon}")
        )
        raise BadParameter(
            f"it is for Gymnasium environments, and {model} is a model; give {instead}", param_hint=option
        )
    limits = None if constraint is None else shared.constraints_of(constraint)
    return GymRecipe(model, constraints=limits, bounds=tuple(shared.bounds_of(bound).items()), horizon=horizon)


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
    if name in OPTIONS:
        advice = f"is not a parameter of the algorithm; give {OPTIONS[name]} instead"
        raise BadParameter(f"{name!r} {advice}", param_hint="--set")
    return name, plain_value(value)
