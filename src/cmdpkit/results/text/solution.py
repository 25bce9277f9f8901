"""An optimum for the terminal: its value, its constraints, where the policy draws, the policy and the proof."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.solution import StationarySolution
from cmdpkit.exact.solver import Solution
from cmdpkit.results.model_tables import constraint_table, price_note
from cmdpkit.results.text import stationary
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TerminalTable
from cmdpkit.results.text.policy import draws, view
from cmdpkit.results.wording import duration, label, number


def solution(name: str, found: Solution, width: int = 100) -> RenderableType:
    """Everything that is known about an optimum, on a terminal of so many columns."""
    if isinstance(found, StationarySolution):
        return stationary.solution(name, found)
    word = {"optimal": "optimal value", "gap": "value", "interrupted": "interrupted, the best value found is"}[
        found.ended
    ]
    headline = Text.assemble((label(name), "bold"), f": {word} ", (number(found.value), "bold green"))
    parts: list[RenderableType] = [headline, EMPTY_LINE]
    if found.cmdp.N:
        note = price_note(found)
        parts += [TerminalTable(constraint_table(found)), *([Text(note, style=QUIET)] if note else []), EMPTY_LINE]
    return Group(*parts, draws(found), EMPTY_LINE, view(found, width), EMPTY_LINE, _proof(found))


def _proof(found: Solution) -> Text:
    method = {"columns": "column generation", "lp": "occupancy LP"}[found.method]
    how = f"({method}, {duration(found.seconds)})"
    if found.ended == "optimal":
        return Text(f"Proved optimal to within {found.gap:.2g} {how}.", style=QUIET)
    share = f" ({100 * found.gap / abs(found.value):.2g} % of this value)" if found.value else ""
    ended = "The search was stopped when this was proved" if found.ended == "gap" else "The search was interrupted"
    return Text(f"{ended}: no policy within the bounds is better by more than {found.gap:.2g}{share} {how}.")
