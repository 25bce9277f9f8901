"""What a log of past decisions says: what it covers, and the certified policy."""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.estimate.from_log import FEW, Estimate, OffPolicyEvaluation, Thin, Untried
from cmdpkit.estimate.promise import NoPromise, Promise, Range
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.validate import written_name
from cmdpkit.results import tables
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Column, Table, TerminalTable, each, numbers, whole
from cmdpkit.results.wording import bounded, counted, label, percent

MOST_ROWS = 5  # of each list of places


class Promised(NamedTuple):
    """A total of the promised policy."""

    name: str  # of the total
    constraint: Constraint | None  # None for the reward
    range: Range  # its estimate and the ends of its range


def promise_table(promise: Promise | OffPolicyEvaluation) -> Table[Promised]:
    """One row for the reward and for each constraint: estimate, range and bound."""
    rows = [Promised("value", None, promise.value)]
    for c, found in zip(promise.cmdp.constraints, promise.utilities, strict=True):
        rows.append(Promised(c.name, c, found))
    title = "totals of the promised policy" if isinstance(promise, Promise) else "totals of the given policy"
    return Table(title, (
        Column("name", "total", "The reward or the constraint.", lambda x: x.name),
        numbers("estimate", "estimate", "The estimated total.", lambda x: x.range.estimate),
        numbers("low", "from", "The lower end of its range.", lambda x: x.range.low),
        numbers("high", "to", "The upper end of its range.", lambda x: x.range.high),
        Column("bound", "bound", "What is asked for.", lambda x: x.constraint, each(bounded),
               data=lambda key, c: {"sense": None if c is None else c.sense, **tables.bound_parts(key, c)}),
    ), tuple(rows))  # fmt: skip


def thin_table(rows: tuple[Thin, ...]) -> Table[Thin]:
    """Decisions of the best policy that rest on few visits."""
    return Table("decisions that rest on few visits", (
        *_place(),
        numbers("visits", "visits", "How often it is in the log.", lambda x: x.visits, whole),
        numbers("uses", "uses", "How often the best policy of the plug-in model does it.", lambda x: x.uses),
    ), rows)  # fmt: skip


def untried_table(rows: tuple[Untried, ...]) -> Table[Untried]:
    """Actions that were never tried."""
    return Table("actions that were never tried", (
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("action", "never tried", "The action.", lambda x: written_name(x.action)),
        numbers("visits", "visits of the state", "How often the state was seen.", lambda x: x.visits, whole),
    ), rows)  # fmt: skip


def _place() -> list[Column[Any]]:
    return [
        numbers("step", "step", "The step, from 1.", lambda x: x.step, whole),
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("action", "action", "The action.", lambda x: written_name(x.action)),
    ]


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
    """Estimated totals of a given policy."""
    provided = f", {found.condition}" if found.condition else ""
    sure = f"each range holds with {percent(found.confidence)} confidence{provided}"
    headline = f"Estimated totals of the given policy; {sure}."
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


def estimate_data(
    name: str, estimate: Estimate, answer: Promise | NoPromise, given: OffPolicyEvaluation | None
) -> dict[str, Any]:
    """What a log covers, the promise, or why there is none, and the estimated totals of a given policy."""
    found = estimate.coverage
    told = {
        "log": name,
        "episodes": estimate.episodes,
        "transitions": found.transitions,
        "stationary": estimate.stationary,
        "notes": list(estimate.notes),
        "left_out": {
            "episodes": estimate.cleaned.episodes,
            "rows": estimate.cleaned.rows,
            "last_rows": estimate.cleaned.unfinished,
            "reasons": dict(estimate.cleaned.reasons),
        },
        "coverage": {
            "pairs": found.pairs,
            "tried": found.tried,
            "untried": untried_table(found.untried).data(),
            "share_on_few_visits": found.on_few,
            "thin": thin_table(found.thin).data(),
        },
        "plug_in_feasible": found.feasible,
    }
    if isinstance(answer, NoPromise):
        told["promise"] = None
        told["declined"] = {
            "reason": str(answer),
            "contradicted": answer.contradicted,
            "constraint": None if answer.constraint is None else answer.constraint.name,
            "estimate": None if answer.total is None else answer.total.estimate,
            "limit": answer.limit,
            "level": answer.level,
            "episodes_needed": answer.episodes,
            "wanted": [
                {**x._asdict(), "state": written_name(x.state), "action": written_name(x.action)} for x in answer.wanted
            ],
        }
    else:
        told["promise"] = {
            "confidence": answer.confidence,
            "totals": promise_table(answer).data(),
            "condition": answer.condition,
            "margins": list(answer.margins),
            "tested": answer.tested,
            "unknown": answer.unknown,
            "episodes": list(answer.episodes),
        }
    if given is not None:
        totals = promise_table(given).data()
        return {**told, "policy": {"confidence": given.confidence, "totals": totals, "unknown": given.unknown}}
    return {**told, "policy": None}
