"""Verbs for what one brings: policies (`evaluate`, `compare`, `simulate`, `explain`) and logs (`estimate`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from cmdpkit.cli import shared
from cmdpkit.cli.progress import Busy
from cmdpkit.cli.shared import Force, Json, Model, Plot, SavePolicy, verb
from cmdpkit.errors import CmdpkitError

PolicyFile = Annotated[Path, Argument(metavar="POLICY", help="A policy file (.csv, .json or .npz).")]
PolicyOption = Annotated[
    Path | None, Option("--policy", metavar="FILE", help="A policy file; the optimum unless given.")
]


@verb(
    'estimate log.csv --horizon 20 --constraint "failures<=0.45"',
    'estimate log.csv --horizon 20 --constraint "uptime>=12" --stationary -o model.npz --save-policy plan.csv',
    'estimate log.csv --horizon 20 --constraint "failures<=0.45" --policy my-rule.csv',
    'estimate log.csv --horizon 20 --constraint "cost<=5" --range cost=0:100 --drop-bad-episodes',
    "estimate log.csv --average --column state=stock --column action=order",
)
def estimate(
    log: Annotated[Path, Argument(metavar="LOG", help="The log (.csv, .tsv or .txt).")],
    horizon: Annotated[int | None, Option(min=1, help="Number of steps of an episode.")] = None,
    discount: Annotated[float | None, Option(help="Discounted totals in place of a horizon.")] = None,
    average: Annotated[bool, Option("--average", help="Long-run averages in place of a horizon.")] = False,
    constraint: Annotated[
        list[str] | None,
        Option(metavar="NAME<=BOUND", help="A bound on the total of a column; may be given several times."),
    ] = None,
    column: Annotated[
        list[str] | None,
        Option(metavar="OURS=THEIRS", help="The name of a column in the log; may be given several times."),
    ] = None,
    stationary: Annotated[
        bool | None, Option("--stationary/--by-step", help="Do all steps behave alike and share their counts?")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        Option("--range", metavar="NAME=LOW:HIGH", help="Smallest and largest value of a signal in a step."),
    ] = None,
    states_complete: Annotated[
        bool, Option("--states-complete", help="Declare that no other states can occur than those of the log.")
    ] = False,
    drop_bad_episodes: Annotated[
        bool, Option("--drop-bad-episodes", help="Leave out episodes with mistakes, and count them.")
    ] = False,
    policy: Annotated[
        Path | None, Option(metavar="FILE", help="Evaluate this policy as well (.csv, .json or .npz).")
    ] = None,
    confidence: Annotated[float, Option(help="Probability with which the policy meets the bounds.")] = 0.95,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="Write the plug-in model (.toml, .json, .npz or .csv).")
    ] = None,
    save_policy: SavePolicy = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """From a log of past decisions to a certified policy.

    Every row of the log is one transition: episode, step, state, action, reward, next_state and one column for each
    constraint.

    Ends with exit code 3 if no policy can be certified; the message names the data that would help most.
    """
    from rich.console import Group

    import cmdpkit as ck
    from cmdpkit.estimate.from_log import check_confidence
    from cmdpkit.results import log as show
    from cmdpkit.results.tables import EMPTY_LINE

    check_confidence(confidence)
    for path in (out, save_policy):
        shared.refuse_existing(path, force)
    found = ck.from_log(
        log,
        columns=shared.pairs(column, "--column", "OURS=THEIRS, such as state=stock", _pair),
        horizon=horizon,
        discount=discount,
        criterion="average" if average else None,
        constraints=shared.constraints_of(constraint),
        stationary=stationary,
        ranges=shared.pairs(ranges, "--range", "NAME=LOW:HIGH, such as cost=0:100", _range),
        states="complete" if states_complete else None,
        bad="drop episodes" if drop_bad_episodes else "error",
    )
    if out is not None:
        ck.write_model(found.cmdp, out, overwrite=force)
    given = None if policy is None else found.evaluate(policy, confidence)
    if not as_json:
        shared.say(show.coverage(str(log), found))
        if given is not None:
            shared.say(Group(EMPTY_LINE, show.evaluation(given, show_notes=False)))
    told: ck.Promise | ck.NoPromise
    try:
        with Busy("choosing and testing policies"):
            told = found.solve(confidence)
    except ck.NoPromise as declined:
        told = declined
    if isinstance(told, ck.Promise) and save_policy is not None:
        ck.write_policy(told.policy, save_policy, overwrite=force)
    if as_json:
        shared.say_json(show.estimate_data(str(log), found, told, given))
    elif isinstance(told, ck.Promise):
        shared.say(Group(EMPTY_LINE, show.promise(told, show_notes=False)))
    if isinstance(told, CmdpkitError):
        raise told


def _pair(item: str) -> tuple[str, str]:
    ours, theirs = item.split("=", 1)
    return ours.strip(), theirs.strip()


def _range(item: str) -> tuple[str, tuple[float, float]]:
    name, ends = item.split("=", 1)
    low, high = map(float, ends.split(":"))
    return name.strip(), (low, high)


@verb("evaluate queue plan.csv", "evaluate queue plan.csv --json")
def evaluate(model: Model, policy: PolicyFile, as_json: Json = False) -> None:
    """Evaluate a policy: its totals, and the bounds that it meets.

    Its totals are exact. Its loss against the optimum is shown as a total and decision by decision.
    """
    _compared(model, [policy], as_json)


@verb("compare queue plan.csv rule.csv")
def compare(
    model: Model,
    policies: Annotated[list[Path], Argument(metavar="POLICY...", help="Policy files (.csv, .json or .npz).")],
    as_json: Json = False,
) -> None:
    """Compare policies with the optimum, and price each difference."""
    _compared(model, policies, as_json)


@verb("simulate queue", "simulate queue --policy plan.csv --episodes 1000000")
def simulate(
    model: Model,
    policy: PolicyOption = None,
    episodes: Annotated[int, Option(min=1, help="How many episodes to play.")] = 100_000,
    seed: Annotated[int, Option(min=0, help="The seed of the random numbers.")] = 0,
    steps: Annotated[int | None, Option(min=1, help="How long an episode is, for a model without a horizon.")] = None,
    plot: Plot = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Simulate single episodes, and show the spread of their totals.

    Shows quantiles, and how often an episode misses a bound (exactly where totals are counted in units).

    Without a horizon an episode is a run of many steps: its discounted total, or its mean per step.
    """
    import cmdpkit as ck
    from cmdpkit.results.figures.style import save
    from cmdpkit.results.policies import simulation, spread_table

    shared.refuse_existing(plot, force)
    cmdp = ck.load(model)
    with Busy("playing"):
        plan = ck.solve(cmdp).policy if policy is None else ck.read_policy(policy, cmdp)
        if isinstance(plan, ck.Mixture):
            raise CmdpkitError("the optimum is a draw among several policies; give one of your own with --policy")
        played = ck.simulate_policy(cmdp, plan, episodes, seed=seed, steps=steps)
    if plot is not None:
        save(played.plot(), plot)
    totals = spread_table({"": played}).data
    asked = {"env": model, "episodes": episodes, "seed": seed, "steps": played.steps, "left_out": played.left_out}
    shared.answer(as_json, lambda: {**asked, "totals": totals()}, lambda: simulation(model, played))


@verb('explain queue "2 jobs" --step 9', 'explain queue "2 jobs" --step 9 --policy plan.csv')
def explain(
    model: Model,
    state: Annotated[str, Argument(metavar="STATE", help="The name of a state.")],
    step: Annotated[int | None, Option(min=1, help="The step; 1 unless given, and none without a horizon.")] = None,
    policy: PolicyOption = None,
    as_json: Json = False,
) -> None:
    """Explain an action, and what the others would lose.

    Shows what every action in a state is worth at the prices of the bounds, if the optimum is followed afterwards.
    """
    import cmdpkit as ck
    from cmdpkit.model.validate import written_name
    from cmdpkit.results.policies import explanation, option_table

    cmdp = ck.load(model)
    when = 1 if step is None and cmdp.criterion.has_horizon else step
    found = ck.explain(cmdp, state, when, None if policy is None else ck.read_policy(policy, cmdp))
    where = {"env": model, "step": found.step, "state": written_name(found.state), "reach": found.reach}
    facts = {**where, "why": found.why, "prices": found.prices.tolist()}
    shared.answer(as_json, lambda: {**facts, "actions": option_table(found).data()}, lambda: explanation(found))


def _compared(model: str, files: list[Path], as_json: bool) -> None:
    import cmdpkit as ck
    from cmdpkit.results.policies import comparison, difference_table, judged_table

    cmdp = ck.load(model)
    names = [path.stem for path in files]
    called = names if len(set(names)) == len(names) else [str(path) for path in files]
    for i, name in enumerate(called):
        if name in called[:i]:
            raise CmdpkitError(f"the policy file {name} is given twice; give every file once")
    with Busy("solving"):
        policies = {name: ck.read_policy(path, cmdp) for name, path in zip(called, files, strict=True)}
        found = ck.compare_policies(cmdp, policies)

    def data() -> dict[str, Any]:
        rows = {"policies": judged_table(found).data(), "differences": difference_table(found.differences).data()}
        return {"env": model, "optimum": found.optimum.value, **rows}

    shared.answer(as_json, data, lambda: comparison(found))
