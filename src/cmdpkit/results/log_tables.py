"""Tables about what a log of past decisions says."""

from __future__ import annotations

from typing import Any, NamedTuple

from cmdpkit.estimate.coverage import Thin, Untried
from cmdpkit.estimate.from_log import OffPolicyEvaluation
from cmdpkit.estimate.promise import Promise, Range, Wanted
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import written_name
from cmdpkit.results.tables import Column, Table, each, in_line, odds, whole
from cmdpkit.results.wording import bounded


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
    columns: list[Column[Promised]] = [
        Column("name", "total", "The reward or the constraint.", lambda x: x.name),
        Column("estimate", "estimate", "The estimated total.", lambda x: x.range.estimate, in_line, "right"),
        Column("low", "from", "The lower end of its range.", lambda x: x.range.low, in_line, "right"),
        Column("high", "to", "The upper end of its range.", lambda x: x.range.high, in_line, "right"),
        Column("bound", "bound", "What is asked for.", lambda x: x.constraint,
               each(bounded),
               data=_bound),
    ]  # fmt: skip
    title = "totals of the promised policy" if isinstance(promise, Promise) else "totals of the given policy"
    return Table(title, tuple(columns), tuple(rows))


def _bound(key: str, c: Constraint | None) -> dict[str, Any]:
    if c is None:
        return {"sense": None, key: None, "per_step": None, "bound_total": None}
    return {"sense": c.sense, key: c.bound, "per_step": c.per_step, "bound_total": c.total}


def thin_table(rows: tuple[Thin, ...]) -> Table[Thin]:
    """Decisions of the best policy that rest on few visits."""
    columns: list[Column[Thin]] = [
        *_place(),
        Column("visits", "visits", "How often it is in the log.", lambda x: x.visits, whole, "right"),
        Column("uses", "uses", "How often the best policy of the plug-in model does it.", lambda x: x.uses, in_line,
               "right"),
    ]  # fmt: skip
    return Table("decisions that rest on few visits", tuple(columns), rows)


def untried_table(rows: tuple[Untried, ...]) -> Table[Untried]:
    """Actions that were never tried."""
    columns: list[Column[Untried]] = [
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("action", "never tried", "The action.", lambda x: written_name(x.action)),
        Column("visits", "visits of the state", "How often the state was seen.", lambda x: x.visits, whole, "right"),
    ]  # fmt: skip
    return Table("actions that were never tried", tuple(columns), rows)


def wanted_table(rows: list[Wanted]) -> Table[Wanted]:
    """Where more data would help."""
    columns: list[Column[Wanted]] = [
        *_place(),
        Column("visits", "visits", "How often it is in the log.", lambda x: x.visits, whole, "right"),
        Column("share", "share of the error", "What it contributes to the squared error.", lambda x: x.share, odds,
               "right"),
    ]  # fmt: skip
    return Table("where more data would help most", tuple(columns), tuple(rows))


def _place() -> list[Column[Any]]:
    return [
        Column("step", "step", "The step, from 1.", lambda x: x.step, whole, "right"),
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("action", "action", "The action.", lambda x: written_name(x.action)),
    ]
