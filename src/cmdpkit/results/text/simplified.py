"""A simple policy for the terminal: what it costs, how much simpler it is, and what to do in which phase."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.simple.simplified import Phase, Rule, Simplified
from cmdpkit.results.model_tables import constraint_table
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TAKEN, TerminalTable, plain_table, right
from cmdpkit.results.text.policy import view
from cmdpkit.results.text.solution import draws
from cmdpkit.results.wording import counted, duration, label, number, percent, ranges, titled

MOST_LINES = 60  # about the policy
COUNTED = {  # fields of a shape, as people call them
    "phases": "phases",
    "draws": "stochastic decisions",
    "over_states": "changes over states",
    "over_steps": "changes over steps",
}


def simplified(name: str, found: Simplified, width: int = 100) -> RenderableType:
    """Everything about a simple policy, on a terminal of so many columns."""
    headline = Text.assemble(
        (label(name), "bold"), ": value ", (number(found.value), "bold green"), f", {_paid(found)}"
    )
    parts: list[RenderableType] = [headline, EMPTY_LINE, _shapes(found), EMPTY_LINE]
    if found.cmdp.N:
        parts += [TerminalTable(constraint_table(found)), EMPTY_LINE]
    plan = view(found, width) if found.cmdp.grid is not None else Group(*_plan(found))
    if found.after.draws:
        parts += [draws(found), EMPTY_LINE, Text("Apart from that:")]
    note = f"No policy within the bounds is better by more than {found.gap:.3g} ({duration(found.seconds)})."
    return Group(*parts, plan, EMPTY_LINE, Text(note, style=QUIET))


def _paid(found: Simplified) -> str:
    if not found.simpler:
        return "the optimum itself: nothing simpler was found within what may be given up"
    if found.lost <= 1e-9 * max(1.0, abs(found.optimum.value)):
        return "as good as the optimum"
    allowed = number(found.optimum.value - found.least)
    return (
        f"{number(found.lost)} ({percent(found.share)}) below the optimum of {number(found.optimum.value)}; "
        f"{allowed} may be given up"
    )


def _shapes(found: Simplified) -> RenderableType:
    """How simple the optimum is, and the simple policy; without a horizon there are no steps."""
    table = plain_table("", right("optimum"), right("simple"))
    for key, name in COUNTED.items():
        if key in ("phases", "over_steps") and found.cmdp.criterion.stationary:
            continue
        table.add_row(name, f"{getattr(found.before, key):,}", f"{getattr(found.after, key):,}")
    return table


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
        named = [_states(rule) for rule in phase.rules]
        space = max(map(len, named))
        for states, rule in zip(named, phase.rules, strict=True):
            lines.append(Text.assemble(f"  {states:<{space}}  ", (label(rule.action), TAKEN)))
    if len(lines) > MOST_LINES:
        left = f"… and {counted(len(lines) - MOST_LINES, 'more line')}; --save-policy FILE writes the whole policy"
        lines = [*lines[:MOST_LINES], Text(left, style=QUIET)]
    return list(lines)


def _steps(phase: Phase) -> str:
    if phase.first is None or phase.last is None:
        return "Always"
    several = phase.last > phase.first
    return f"Steps {phase.first}–{phase.last}" if several else f"Step {phase.first}"


def _states(rule: Rule) -> str:
    """The states of a rule, by their names."""
    first, last = rule.states[0], rule.states[-1]
    if len(rule.states) == 1:
        return titled("state", first)
    whole = [name for name in rule.states if isinstance(name, int)]
    if len(whole) == len(rule.states):
        return f"states {ranges(sorted(whole))}"
    return f"{label(first)} to {label(last)}"
