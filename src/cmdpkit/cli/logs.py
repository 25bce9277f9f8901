"""The verb for logs of past decisions: `estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cmdpkit.cli.app import Force, Json, SavePolicy, Tables, app, constraints_of, examples, once, refuse_existing
from cmdpkit.cli.terminal import busy, say, say_json, say_tables
from cmdpkit.errors import CmdpkitError


@app.command(
    epilog=examples(
        'estimate log.csv --horizon 20 --constraint "failures<=0.45"',
        'estimate log.csv --horizon 20 --constraint "uptime>=12" --stationary -o model.npz --save-policy plan.csv',
        'estimate log.csv --horizon 20 --constraint "failures<=0.45" --policy my-rule.csv',
        'estimate log.csv --horizon 20 --constraint "cost<=5" --range cost=0:100 --drop-bad-episodes',
        "estimate log.parquet --average --column state=stock --column action=order",
    )
)
def estimate(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The log (.csv, .tsv, .txt or .parquet).")],
    horizon: Annotated[int | None, typer.Option(min=1, help="Number of steps of an episode.")] = None,
    discount: Annotated[float | None, typer.Option(help="Judge by discounted totals instead.")] = None,
    average: Annotated[bool, typer.Option("--average", help="Judge by long-run averages instead.")] = False,
    constraint: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME<=BOUND", help="A bound on the total of a column; may be given several times."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="OURS=THEIRS", help="What the log calls a column; may be given several times."),
    ] = None,
    stationary: Annotated[
        bool | None, typer.Option("--stationary/--by-step", help="Do all steps behave alike and share their counts?")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=LOW:HIGH", help="Smallest and largest value of a signal in a step."),
    ] = None,
    drop_bad_episodes: Annotated[
        bool, typer.Option("--drop-bad-episodes", help="Leave episodes with mistakes out, and say how many.")
    ] = False,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Count a row once that stands there twice.")
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Say too what this policy would have brought (.csv, .json or .npz)."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability with which the policy meets the bounds.")] = 0.95,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the plug-in model (.toml, .json, .npz or .csv)."),
    ] = None,
    save_policy: SavePolicy = None,
    force: Force = False,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """From a log of past decisions to a policy that can be promised.

    Every row of the log is one transition: episode, step, state, action, reward, next_state and one column for each
    constraint.

    Ends with exit code 3 if no policy can be promised to meet the bounds; the message says which data would help most.
    """
    from rich.console import Group

    import cmdpkit as ck
    from cmdpkit.estimate.from_log import check_confidence
    from cmdpkit.results import log as show
    from cmdpkit.results.tables import EMPTY_LINE

    check_confidence(confidence)
    for path in (out, save_policy):
        refuse_existing(path, force)
    found = ck.from_log(
        log,
        columns=once(map(_pair, column or []), "--column"),
        horizon=horizon,
        discount=discount,
        criterion="average" if average else None,
        constraints=[ck.Constraint(*c) for c in constraints_of(constraint or [])],
        stationary=stationary,
        ranges=once(map(_range, ranges or []), "--range"),
        bad="drop episodes" if drop_bad_episodes else "error",
        duplicates="drop" if drop_duplicates else "error",
    )
    if out is not None:
        ck.write_model(found.cmdp, out, overwrite=force)
    given = None if policy is None else found.evaluate(policy, confidence)
    if not as_json and table is None:
        say(show.coverage(str(log), found))
        if given is not None:
            say(Group(EMPTY_LINE, show.evaluation(given, show_notes=False)))
    elif table is not None and given is not None:
        say_tables([show.promise_table(given)], table)
    answer: ck.Promise | ck.NoPromise
    try:
        with busy("choosing and testing policies"):
            answer = found.solve(confidence)
    except ck.NoPromise as declined:
        answer = declined
    if isinstance(answer, ck.Promise) and save_policy is not None:
        ck.write_policy(answer.policy, save_policy, overwrite=force)
    if as_json:
        say_json({**show.estimate_data(str(log), found, answer), "policy": show.off_policy_data(given)})
    elif isinstance(answer, ck.Promise):
        if table is not None:
            say_tables([show.promise_table(answer)], table)
        else:
            say(Group(EMPTY_LINE, show.promise(answer, show_notes=False)))
    if isinstance(answer, CmdpkitError):
        raise answer


def _pair(item: str) -> tuple[str, str]:
    ours, equals, theirs = item.partition("=")
    if not equals:
        raise typer.BadParameter(f"{item!r} is not OURS=THEIRS, such as state=stock", param_hint="--column")
    return ours.strip(), theirs.strip()


def _range(item: str) -> tuple[str, tuple[float, float]]:
    name, equals, pair = item.partition("=")
    try:
        low, high = (float(x) for x in pair.split(":"))
    except ValueError:
        equals = ""
    if not equals:
        raise typer.BadParameter(f"{item!r} is not NAME=LOW:HIGH, such as cost=0:100", param_hint="--range")
    return name.strip(), (low, high)
