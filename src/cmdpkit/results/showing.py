"""Models, policies, solutions, comparisons, logs and studies as text and HTML: what the command line shows of them."""

from __future__ import annotations

import io
from functools import singledispatch

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.text import Text

from cmdpkit.estimate.from_log import Estimate, OffPolicyEvaluation
from cmdpkit.estimate.promise import Promise
from cmdpkit.exact.comparison import Explanation, PolicyComparison
from cmdpkit.exact.diagnosis import Diagnosis
from cmdpkit.exact.simple.simplified import Simplified
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import table_at
from cmdpkit.model.policy import Policy
from cmdpkit.records.record import RunRecord
from cmdpkit.results.study import Study
from cmdpkit.results.tables import Table
from cmdpkit.results.text.diagnosis import diagnosis, separation, tradeoff
from cmdpkit.results.text.layout import DRAWN, EMPTY_LINE, QUIET, TerminalTable, plain_table
from cmdpkit.results.text.learning import learned
from cmdpkit.results.text.logs import coverage, evaluation, promise
from cmdpkit.results.text.policies import comparison, explanation, simulation
from cmdpkit.results.text.policy import MOST_ROWS, heading, runs_of_equal
from cmdpkit.results.text.simplified import simplified
from cmdpkit.results.text.solution import solution
from cmdpkit.results.wording import bounded, counted, label, odds, percent, sizes
from cmdpkit.simulate.distribution import Simulation

WIDTH = 100  # characters of a line
BRIEF = (  # the columns of a study that fit on a terminal; the report has all of them
    *("algorithm", "regret", "realised_regret", "violation", "realised_violation", "strong_regret"),
    *("realised_reward", "evaluated_value", "evaluated_utility"),
    *("unsafe_episodes", "gaps_paid", "policy_gap", "policies_within_bounds"),
)
PAGE = '<pre style="white-space:pre; overflow-x:auto; line-height:1.25; font-family:monospace">{code}</pre>'
MOST_COLUMNS = 12  # of a table of a policy


def text(thing: object) -> str:
    """An object as plain text of at most 100 columns, without colours."""
    console = Console(width=WIDTH, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(renderable(thing))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def html(thing: object) -> str:
    """An object as a piece of HTML for notebooks; whatever comes from the user is escaped."""
    console = Console(width=WIDTH, file=io.StringIO(), record=True, force_jupyter=False)
    console.print(renderable(thing))
    return console.export_html(inline_styles=True, code_format=PAGE)


@singledispatch
def renderable(thing: object) -> RenderableType:
    """What is shown of an object."""
    return Text(repr(thing))


@renderable.register
def _(cmdp: CMDP) -> RenderableType:
    length = str(cmdp.criterion) if cmdp.criterion.stationary else counted(cmdp.H, "step")
    parts = [Text(f"Constrained problem: {length}, {', '.join(sizes(cmdp))}.")]
    parts += [Text(f"  {label(c.name)} {bounded(c)}") for c in cmdp.constraints]
    starts = [f"{label(cmdp.states[int(s)])} ({percent(float(cmdp.mu[s]))})" for s in np.flatnonzero(cmdp.mu)[:4]]
    more = np.count_nonzero(cmdp.mu) - len(starts)
    parts.append(Text(f"It starts in {', '.join(starts)}" + (f" and {more:,} more states." if more else ".")))
    parts += [Text(note, style=QUIET) for note in cmdp.notes]
    return Group(*parts)


@renderable.register
def _(policy: Policy) -> RenderableType:
    S, A = len(policy.states), len(policy.action_names)
    length = "Stationary policy" if policy.is_stationary else f"Policy for {counted(policy.horizon, 'step')}"
    title = Text(f"{length}, {counted(S, 'state')}, {counted(A, 'action')}.")
    if S > MOST_ROWS:
        return Group(title, Text("It is too large to print; cmdpkit.write_policy writes it to a file.", style=QUIET))
    stored = len(policy.decisions.choice)  # 1 if all steps have the same decisions
    runs = runs_of_equal([table_at(policy.decisions, h).tobytes() for h in range(stored)])
    shown = [range(policy.shape[0])] if stored == 1 else runs[:MOST_COLUMNS]
    heads = ["action"] if policy.is_stationary else [heading(run) for run in shown]
    table = plain_table("state", *heads)
    for s, name in enumerate(policy.states):
        table.add_row(Text(label(name)), *(_decision(policy, run[0], s) for run in shown))
    left = policy.shape[0] - sum(map(len, shown))
    below = [Text(f"… and {left} more steps", style=QUIET)] if left else []
    return Group(title, EMPTY_LINE, table, *below)


def _decision(policy: Policy, h: int, s: int) -> Text:
    row = table_at(policy.decisions, h)[s]
    used = {policy.action_names[int(a)]: float(row[a]) for a in np.flatnonzero(row)}
    return Text(odds(used), style=DRAWN) if len(used) > 1 else Text(label(next(iter(used))))


def tables_of(study: Study) -> list[RenderableType]:
    """The tables of a study as far as a terminal is wide enough for them, and what a reader has to know about them."""
    parts: list[RenderableType] = []
    for table in study.summary():
        parts += [EMPTY_LINE, Text(label(table.title), style="bold"), TerminalTable(table.only(*BRIEF))]
    return [*parts, EMPTY_LINE, *(Text(remark, style="yellow") for remark in study.remarks())]


@renderable.register
def _(study: Study) -> RenderableType:
    parts: list[RenderableType] = [Text(f"Study of {counted(len(study), 'run')}"), *tables_of(study)]
    if study.failures:
        parts.append(Text(f"{counted(len(study.failures), 'run')} failed.", style="red"))
    return Group(*parts)


@renderable.register
def _(found: Diagnosis) -> RenderableType:
    parts: list[RenderableType] = [diagnosis("Model", found.cmdp, found)]
    if found.infeasible is not None:
        parts += [EMPTY_LINE, Text(str(found.infeasible), style="red")]
    elif found.solution is not None and found.solution.used:
        parts.append(separation(found.solution, found.separation or None))
    return Group(*parts)


renderable.register(Tradeoff, lambda found: tradeoff("Trade-off", found))
renderable.register(Table, TerminalTable)
renderable.register(Solution, lambda found: solution("Solution", found, WIDTH))
renderable.register(Simplified, lambda found: simplified("Simple policy", found, WIDTH))
renderable.register(Estimate, lambda estimate: coverage("Log", estimate))
renderable.register(Promise, lambda found: Group(promise(found), EMPTY_LINE, renderable(found.policy)))
renderable.register(OffPolicyEvaluation, evaluation)
renderable.register(PolicyComparison, comparison)
renderable.register(Explanation, explanation)
renderable.register(Simulation, lambda played: simulation("Simulation", played))
renderable.register(RunRecord, lambda record: learned([record]))
