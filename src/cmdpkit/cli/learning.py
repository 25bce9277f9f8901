"""Verbs for unknown models: `algos`, `learn`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cmdpkit.cli.app import Json, Model, app, bounds_of, examples
from cmdpkit.cli.terminal import resumable, say, say_json


class Noise(StrEnum):
    """`cmdpkit.simulate.simulator.Noise`, which is not imported for --help."""

    none = "none"
    bernoulli = "bernoulli"


# How to give what `cmdpkit.running.parameters` reserves; the rest of it has no place on the command line.
OPTIONS = {name: f"--{name}" for name in ("algo", "episodes", "seeds", "preset", "bound", "noise", "baseline", "out")}
OPTIONS |= {"threads": "--threads", "seed": "--first-seed", "first_seed": "--first-seed", "bounds": "--bound"}
OPTIONS |= {"env": "the argument MODEL", "model": "the argument MODEL", "checkpoint": "--out"}
Episodes = Annotated[str, typer.Option(metavar="K", help="Episodes of the whole run, e.g. 200000 or 8e6.")]


@app.command(epilog=examples("algos", "algos --json"))
def algos(as_json: Json = False) -> None:
    """List the algorithms: guarantee, needs, reference."""
    from cmdpkit import learners
    from cmdpkit.results.text import runs as show_runs

    listed = {name: learners.facts(name) for name in learners.names()}
    if as_json:
        keys = ("description", "reference", "guarantee", "needs")
        say_json([{"name": name, **dict(zip(keys, facts, strict=True))} for name, facts in listed.items()])
    else:
        say(show_runs.algorithms(listed))


@app.command(
    epilog=examples(
        "learn paper/synthetic --algo pri --episodes 8e6 --seeds 10",
        "learn queue --algo triple-q --episodes 1e6 --set eta=4 --json",
        "learn paper/grid --algo pri --episodes 1e6 --out runs/grid     (killed? the same command continues)",
    )
)
def learn(
    model: Model,
    algo: Annotated[str, typer.Option(help="The algorithm; `cmdpkit algos` lists them.")] = "pri",
    episodes: Episodes = "1e6",
    seeds: Annotated[int, typer.Option(min=1, help="How many independent runs.")] = 1,
    first_seed: Annotated[int, typer.Option(min=0, help="Seed of the first run; the others count on.")] = 0,
    preset: Annotated[
        str | None, typer.Option(help="Constants: practical (default), theory, or the algorithm's own.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter; may be repeated.")
    ] = None,
    bound: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change a bound; may be given several times.")
    ] = None,
    noise: Annotated[Noise, typer.Option(help="bernoulli draws rewards and utilities as 0 or 1.")] = Noise.none,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A policy known to be safe, for algorithms that need one; else the safest."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep records here and continue unfinished runs from here.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Runs at once; by default one per core.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the learner's own account.")] = False,
    as_json: Json = False,
) -> None:
    """Learn a policy online, without knowing the model.

    Reports regret and violation, weak (signed) and strong (positive parts only), exact and realised, and the policy
    that is handed over with its certificate.
    """
    from cmdpkit.cli.progress import Watch
    from cmdpkit.io.policies import read_policy
    from cmdpkit.results import plain as answers
    from cmdpkit.results.text import runs as show_runs
    from cmdpkit.running.runs import learn_many

    with resumable(out), Watch(quiet=as_json) as watch:
        records = learn_many(
            model,
            algo,
            episodes=whole("--episodes", episodes),
            seeds=range(first_seed, first_seed + seeds),
            preset=preset,
            bounds=bounds_of(bound or []),
            noise=noise.value,
            baseline=None if baseline is None else read_policy(baseline),
            out=out,
            threads=threads,
            progress=watch,
            **settings_of(setting or []),
        )
    if as_json:
        say_json(answers.learned(records))
        return
    say(show_runs.learned(records))
    for record in records if verbose else []:
        typer.echo(f"\n{record.explain()}")


def whole(option: str, text: str) -> int:
    """A whole number, also as 8e6."""
    try:
        number = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number", param_hint=option) from None
    if not number.is_integer() or number < 1:
        raise typer.BadParameter(f"{text} is not a whole number, at least 1", param_hint=option)
    return int(number)


def settings_of(given: list[str]) -> dict[str, Any]:
    """``NAME=VALUE`` of every --set: numbers, true, false, or text."""
    from cmdpkit.running.parameters import check_parameters

    settings: dict[str, Any] = {}
    for item in given:
        name, found, value = item.partition("=")
        if not found or not name.strip().isidentifier():
            raise typer.BadParameter(f"{item!r} is not NAME=VALUE", param_hint="--set")
        if name.strip() in OPTIONS:
            advice = f"is not a parameter of the algorithm; give {OPTIONS[name.strip()]} instead"
            raise typer.BadParameter(f"{name.strip()!r} {advice}", param_hint="--set")
        settings[name.strip()] = _plain(value.strip())
    check_parameters(settings)
    return settings


def _plain(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
