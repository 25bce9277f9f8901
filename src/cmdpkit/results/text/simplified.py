"""A simple policy for the terminal: what it costs, how much simpler it is, and what to do in which phase."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.simple.simplified import Phase, Simplified
from cmdpkit.results.model_tables import constraint_table
from cmdpkit.results.simple_tables import shape_table, states_of, steps_of
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TAKEN, TerminalTable
from cmdpkit.results.text.policy import draws, save_hint, view
from cmdpkit.results.wording import counted, duration, label, number, percent

MOST_LINES = 60  # about the policy


def simplified(name: str, found: Simplified, width: int = 100) -> RenderableType:
    """Everything about a simple policy, on a terminal of so many columns."""
    headline = Text.assemble(
        (label(name), "bold"), ": value ", (number(found.value), "bold green"), f", {_paid(found)}"
    )
    parts: list[RenderableType] = [headline, EMPTY_LINE, TerminalTable(shape_table(found)), EMPTY_LINE]
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
        named = [states_of(rule) for rule in phase.rules]
        space = max(map(len, named))
        for states, rule in zip(named, phase.rules, strict=True):
            lines.append(Text.assemble(f"  {states:<{space}}  ", (label(rule.action), TAKEN)))
    if len(lines) > MOST_LINES:
        left = f"… and {counted(len(lines) - MOST_LINES, 'more line')}; {save_hint()} writes the whole policy"
        lines = [*lines[:MOST_LINES], Text(left, style=QUIET)]
    return list(lines)


def _steps(phase: Phase) -> str:
    steps = steps_of(phase)
    return "Always" if steps is None else f"Step{'s' * (phase.first != phase.last)} {steps}"
