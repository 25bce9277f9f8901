"""Verbs for given policies: `evaluate`, `compare`, `simulate`, `explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cmdpkit.cli.app import Force, Json, Model, Tables, app, examples, figure_file, refuse_existing
from cmdpkit.cli.terminal import busy, say, say_json, say_tables
from cmdpkit.errors import CmdpkitError

PolicyFile = Annotated[Path, typer.Argument(metavar="POLICY", help="A policy file (.csv, .json or .npz).")]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="A policy file; the optimum unless given.")
]


@app.command(epilog=examples("evaluate queue plan.csv", "evaluate queue plan.csv --json"))
def evaluate(model: Model, policy: PolicyFile, table: Tables = None, as_json: Json = False) -> None:
    """What a policy is worth, and which bounds it meets.

    Its totals are exact. What it loses against the optimum is shown in all, and decision by decision.
    """
    _compared(model, [policy], table, as_json)


@app.command(epilog=examples("compare queue plan.csv rule.csv"))
def compare(
    model: Model,
    policies: Annotated[list[Path], typer.Argument(metavar="POLICY...", help="Policy files (.csv, .json or .npz).")],
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Policies beside the optimum, and what each difference costs."""
    _compared(model, policies, table, as_json)


@app.command(epilog=examples("simulate queue", "simulate queue --policy plan.csv --episodes 1000000"))
def simulate(
    model: Model,
    policy: PolicyOption = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes to play.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random numbers.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="How long an episode is, for a model without a horizon.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=figure_file, help="Draw histograms too (.png, .pdf, .svg or .pgf)."),
    ] = None,
    force: Force = False,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """How totals spread over single episodes.

    Shows quantiles, how often an episode misses a bound (exactly where totals are counted in units), and histograms.

    Without a horizon an episode is a run of many steps: its discounted total, or its mean per step.
    """
    import cmdpkit as ck
    from cmdpkit.results.comparison import simulation, spread_table
    from cmdpkit.results.figures.style import save

    refuse_existing(plot, force)
    cmdp = ck.load(model)
    with busy("playing"):
        plan = ck.solve(cmdp).policy if policy is None else ck.read_policy(policy, cmdp)
        if isinstance(plan, ck.Mixture):
            raise CmdpkitError("the optimum is a draw among several policies; give one of your own with --policy")
        played = ck.simulate_policy(cmdp, plan, episodes, seed=seed, steps=steps)
    if plot is not None:
        save(played.plot(), plot)
    if as_json:
        asked = {"env": model, "episodes": episodes, "seed": seed, "steps": played.steps, "left_out": played.left_out}
        say_json({**asked, "totals": spread_table(played).data()})
    elif table is not None:
        say_tables([spread_table(played)], table)
    else:
        say(simulation(model, played))


@app.command(epilog=examples('explain queue "2 jobs" --step 9', 'explain queue "2 jobs" --step 9 --policy plan.csv'))
def explain(
    model: Model,
    state: Annotated[str, typer.Argument(metavar="STATE", help="The name of a state.")],
    step: Annotated[
        int | None, typer.Option(min=1, help="The step; 1 unless given, and none without a horizon.")
    ] = None,
    policy: PolicyOption = None,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Why this action, and what would the others lose?

    Shows what every action in a state is worth at the prices of the bounds, if the optimum is followed afterwards.
    """
    import cmdpkit as ck
    from cmdpkit.model.validate import written_name
    from cmdpkit.results.comparison import explanation, option_table

    cmdp = ck.load(model)
    when = 1 if step is None and not cmdp.criterion.stationary else step
    found = ck.explain(cmdp, state, when, None if policy is None else ck.read_policy(policy, cmdp))
    if as_json:
        facts = {
            "env": model,
            "step": found.step,
            "state": written_name(found.state),
            "reach": found.reach,
            "why": found.why,
        }
        say_json({**facts, "prices": found.prices.tolist(), "actions": option_table(found).data()})
    elif table is not None:
        say_tables([option_table(found)], table)
    else:
        say(explanation(found))


def _compared(model: str, files: list[Path], table: str | None, as_json: bool) -> None:
    import cmdpkit as ck
    from cmdpkit.results.comparison import comparison, difference_table, judged_table

    cmdp = ck.load(model)
    names = [path.stem for path in files]
    called = names if len(set(names)) == len(names) else [str(path) for path in files]
    for i, name in enumerate(called):
        if name in called[:i]:
            raise CmdpkitError(f"the policy file {name} is given twice; give every file once")
    with busy("solving"):
        policies = {name: ck.read_policy(path, cmdp) for name, path in zip(called, files, strict=True)}
        found = ck.compare_policies(cmdp, policies)
    if as_json:
        rows = {"policies": judged_table(found).data(), "differences": difference_table(found.differences).data()}
        say_json({"env": model, "optimum": found.optimum.value, **rows})
    elif table is not None:
        say_tables([judged_table(found), difference_table(found.differences)], table)
    else:
        say(comparison(found))
