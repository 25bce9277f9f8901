"""What a log of past decisions says, for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.estimate.coverage import FEW
from cmdpkit.estimate.from_log import Estimate, OffPolicyEvaluation
from cmdpkit.estimate.promise import Promise
from cmdpkit.model.policy import NEGLIGIBLE
from cmdpkit.results.log_tables import promise_table, thin_table, untried_table
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TerminalTable
from cmdpkit.results.wording import counted, label, percent

MOST_ROWS = 5  # of each list of places


def coverage(name: str, estimate: Estimate) -> RenderableType:
    """Sizes, notes, and what the log does not cover."""
    found, cmdp = estimate.coverage, estimate.cmdp
    sizes = f"{counted(found.transitions, 'transition')} of {counted(found.episodes, 'episode')}, "
    sizes += f"{counted(cmdp.S, 'state')}, {counted(cmdp.A, 'action')}"
    parts: list[RenderableType] = [Text.assemble((label(name), "bold"), f": {sizes}")]
    tried = f"{found.tried:,} of {found.pairs:,} pairs of state and action were tried. "
    tried += (
        f"{percent(found.on_few)} of what the best policy of the plug-in model does rests on fewer than {FEW} visits."
    )
    parts += [Text(tried), *(Text(f"Note: {note}.", style=QUIET) for note in estimate.notes)]
    if found.untried:
        parts += [EMPTY_LINE, TerminalTable(untried_table(found.untried[:MOST_ROWS]))]
    if found.thin:
        parts += [EMPTY_LINE, TerminalTable(thin_table(found.thin[:MOST_ROWS]))]
    return Group(*parts)


def evaluation(found: OffPolicyEvaluation, *, show_notes: bool = True) -> RenderableType:
    """What a given policy would have brought."""
    headline = (
        f"What the given policy would have brought; each range holds with {percent(found.confidence)} confidence."
    )
    parts: list[RenderableType] = [Text(headline), EMPTY_LINE, TerminalTable(promise_table(found))]
    if found.unknown > NEGLIGIBLE:
        note = f"In {percent(found.unknown)} of the episodes it does what the log has never seen; there, the worst and "
        parts += [EMPTY_LINE, Text(f"{note}the best of the log are assumed.", style=QUIET)]
    if show_notes and found.notes:
        parts += [EMPTY_LINE, *(Text(f"Note: {note}.", style=QUIET) for note in found.notes)]
    return Group(*parts)


def promise(found: Promise, *, show_notes: bool = True) -> RenderableType:
    """The promised policy: its totals with their ranges, and the notes on the log."""
    sure = f"{percent(found.confidence)} confidence"
    provided = f", {found.condition}" if found.condition else ""
    headline = (
        f"With {sure}, the policy meets the bounds{provided}. Each range holds with that confidence."
        if found.cmdp.N
        else f"There are no bounds to meet. Each range holds with {sure}."
    )
    chosen, tested = found.episodes
    notes = [Text(f"Note: {note}.", style=QUIET) for note in found.notes] if show_notes else []
    how = f"Chosen on {counted(chosen, 'episode')}, tested on {tested:,} others; {found.tested} policies were tested."
    return Group(Text(headline), EMPTY_LINE, TerminalTable(promise_table(found)), EMPTY_LINE,
                 Text(how, style=QUIET), *notes)  # fmt: skip
