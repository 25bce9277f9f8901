"""Tables about a simple policy: how simple it is beside the optimum, what to do in which phase, and where it draws."""

from __future__ import annotations

from typing import NamedTuple

from cmdpkit.exact.simple.simplified import Phase, Rule, Simplified
from cmdpkit.model.policy import Decision
from cmdpkit.model.validate import written_name
from cmdpkit.results.tables import Column, Table, each, whole
from cmdpkit.results.wording import label, odds, ranges, titled

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


class Line(NamedTuple):
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


def rule_table(found: Simplified) -> Table[Line]:
    """One row for each phase and group of neighbouring states: what to do there."""
    columns: list[Column[Line]] = [
        Column("steps", "steps", "The steps of the phase, from 1.", lambda x: steps_of(x.phase)),
        Column("states", "states", "Neighbouring states.", lambda x: states_of(x.rule)),
        Column("action", "action", "What to do there.", lambda x: label(written_name(x.rule.action))),
    ]
    rows = tuple(Line(phase, rule) for phase in found.phases for rule in phase.rules)
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


def steps_of(phase: Phase) -> str | None:
    """The steps of a phase, from 1; None without a horizon."""
    if phase.first is None or phase.last is None:
        return None
    return f"{phase.first}–{phase.last}" if phase.last > phase.first else str(phase.first)


def states_of(rule: Rule) -> str:
    """The states of a rule, by their names."""
    first, last = rule.states[0], rule.states[-1]
    if len(rule.states) == 1:
        return titled("state", first)
    numbers = [name for name in rule.states if isinstance(name, int)]
    if len(numbers) == len(rule.states):
        return f"states {ranges(sorted(numbers))}"
    return f"{label(first)} to {label(last)}"
