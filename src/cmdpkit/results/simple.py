"""A simple policy: its cost, how simple it is next to the optimum, what to do in which phase, where it draws."""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.simple.simplified import Phase, Rule, Simplified
from cmdpkit.model.policy import Decision
from cmdpkit.model.validate import written_name
from cmdpkit.results.policy import draws, save_hint, view
from cmdpkit.results.solution import constraint_table, solution_data
from cmdpkit.results.tables import EMPTY_LINE, QUIET, TAKEN, Column, Table, TerminalTable, each, whole
from cmdpkit.results.wording import counted, duration, label, listed, number, odds, percent, ranges, titled

MOST_LINES = 60  # about the policy
COUNTED = {  # fields of a shape, as people call them
    "phases": "phases",
    "draws": "stochastic decisions",
    "over_states": "changes over states",
    "over_steps": "changes over steps",
}


class Count(NamedTuple):
    """How often something that makes a policy hard to follow occurs."""

    what: str  # the thing that is counted
    optimum: int  # how often in the optimum
    simple: int  # how often in the simple policy


class SimpleLine(NamedTuple):
    """What to do in some states during a phase."""

    phase: Phase  # when the rule holds
    rule: Rule  # states, and what to do in them


def shape_table(found: Simplified) -> Table[Count]:
    """How simple the optimum is, and the simple policy; without a horizon there are no steps."""
    timed = not found.cmdp.criterion.stationary
    rows = [
        Count(name, getattr(found.before, key), getattr(found.after, key))
        for key, name in COUNTED.items()
        if timed or key not in ("phases", "over_steps")
    ]
    columns: list[Column[Count]] = [
        Column("what", "", "What makes a policy hard to follow.", lambda x: x.what),
        Column("optimum", "optimum", "How much of it the optimum has.", lambda x: x.optimum, whole, "right"),
        Column("simple", "simple", "How much of it the simple policy has.", lambda x: x.simple, whole, "right"),
    ]
    return Table("how simple both are", tuple(columns), tuple(rows))


def rule_table(found: Simplified) -> Table[SimpleLine]:
    """One row for each phase and group of neighbouring states: what to do there."""
    columns: list[Column[SimpleLine]] = [
        Column("steps", "steps", "The steps of the phase, from 1.", lambda x: _steps_of(x.phase)),
        Column("states", "states", "Neighbouring states.", lambda x: _states_of(x.rule)),
        Column("action", "action", "What to do there.", lambda x: label(written_name(x.rule.action))),
    ]
    rows = tuple(SimpleLine(phase, rule) for phase in found.phases for rule in phase.rules)
    return Table("what to do", tuple(columns), rows)


def draw_table(found: Simplified) -> Table[Decision]:
    """Where the simple policy draws."""
    columns: list[Column[Decision]] = [
        Column("step", "step", "The step, from 1.", lambda x: x.step, whole, "right"),
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("probabilities", "draws from", "The actions and their probabilities.", lambda x: dict(x.probabilities),
               each(odds)),
    ]  # fmt: skip
    return Table("where it draws", tuple(columns), tuple(found.stochastic_decisions()))


def simple_tables(found: Simplified) -> list[Table[Any]]:
    """All of these; where it draws only if it does."""
    return [shape_table(found), rule_table(found), *([draw_table(found)] if found.after.draws else [])]


def _steps_of(phase: Phase) -> str | None:
    """The steps of a phase, from 1; None without a horizon."""
    if phase.first is None or phase.last is None:
        return None
    return f"{phase.first}–{phase.last}" if phase.last > phase.first else str(phase.first)


def _states_of(rule: Rule) -> str:
    """The states of a rule, by their names."""
    first, last = rule.states[0], rule.states[-1]
    if len(rule.states) == 1:
        return titled("state", first)
    numbers = [name for name in rule.states if isinstance(name, int)]
    if len(numbers) == len(rule.states):
        return f"states {ranges(sorted(numbers))}"
    return f"{label(first)} to {label(last)}"


# -- text --------------------------------------------------------------------------------------------------------------


def simplified(name: str, found: Simplified, width: int = 100) -> RenderableType:
    """Everything about a simple policy, for a terminal of `width` columns."""
    headline = Text.assemble(
        (label(name), "bold"), ": value ", (number(found.value), "bold green"), f", {_paid(found)}"
    )
    parts: list[RenderableType] = [headline, EMPTY_LINE, TerminalTable(shape_table(found)), EMPTY_LINE]
    if found.cmdp.N:
        parts += [TerminalTable(constraint_table(found)), EMPTY_LINE]
    plan = view(found, width) if found.cmdp.grid is not None else Group(*_plan(found))
    if found.after.draws:
        parts += [draws(found), *(Text(str(draw), style=QUIET) for draw in found.small_draws)]
        parts += [EMPTY_LINE, Text("Apart from that:")]
    note = f"No policy within the bounds is better by more than {found.gap:.3g} ({duration(found.seconds)})."
    return Group(*parts, plan, EMPTY_LINE, Text(note, style=QUIET))


def _paid(found: Simplified) -> str:
    nothing = found.lost <= 1e-9 * max(1.0, abs(found.optimum.value))
    if nothing and not found.simpler:
        return "the optimum itself: nothing simpler was found within what may be given up"
    if nothing:
        return "as good as the optimum"
    allowed = number(found.optimum.value - found.least)
    return (
        f"{number(found.lost)} ({percent(found.share)}) below the optimum of {number(found.optimum.value)}; "
        f"{allowed} may be given up"
    )


def _plan(found: Simplified) -> list[RenderableType]:
    """What to do, phase by phase, one line for each rule."""
    lines: list[Text] = []
    for phase in found.phases:
        steps = _steps(phase)
        if len(phase.rules) < 2:
            what = label(phase.rules[0].action) if phase.rules else "nothing is left to decide"
            lines.append(Text.assemble((f"{steps}: ", "bold"), (what, TAKEN), " everywhere" * bool(phase.rules)))
            continue
        lines.append(Text(f"{steps}:", style="bold"))
        named = [_states_of(rule) for rule in phase.rules]
        space = max(map(len, named))
        for states, rule in zip(named, phase.rules, strict=True):
            lines.append(Text.assemble(f"  {states:<{space}}  ", (label(rule.action), TAKEN)))
    if len(lines) > MOST_LINES:
        left = f"… and {counted(len(lines) - MOST_LINES, 'more line')}; {save_hint()} writes the whole policy"
        lines = [*lines[:MOST_LINES], Text(left, style=QUIET)]
    return list(lines)


def _steps(phase: Phase) -> str:
    steps = _steps_of(phase)
    return "Always" if steps is None else f"Step{'s' * (phase.first != phase.last)} {steps}"


# -- JSON --------------------------------------------------------------------------------------------------------------


def simple_data(name: str, found: Simplified) -> dict[str, Any]:
    """The policy as a solution, and in "simple" the optimum, what is given up, how simple both are, what to do when."""
    simple = {
        "optimum": found.optimum.value,
        "lost": found.lost,
        "share": found.share,
        "least": found.least,
        "slack": found.slack.tolist(),
        "changed": found.changed,
        "before": found.before._asdict(),
        "after": found.after._asdict(),
        "small_draws": [
            {**draw._asdict(), "state": written_name(draw.state), "action": written_name(draw.action)}
            for draw in found.small_draws
        ],
        "phases": [
            {
                "first": phase.first,
                "last": phase.last,
                "rule": [{"states": listed(rule.states), "action": written_name(rule.action)} for rule in phase.rules],
            }
            for phase in found.phases
        ],
    }
    return solution_data(name, found, simple=simple)
