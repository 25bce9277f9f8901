"""Tables about what a log of past decisions says."""

from __future__ import annotations

from typing import Any, NamedTuple

from cmdpkit.exact.logs.coverage import Coverage, Thin, Untried
from cmdpkit.exact.logs.estimate import Estimate, OffPolicyEvaluation
from cmdpkit.exact.logs.promise import NoPromise, Promise, Range, Wanted
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import written_name
from cmdpkit.results.tables import Column, Table, each, in_line, odds, whole
from cmdpkit.results.wording import number


class Promised(NamedTuple):
    """A total of the promised policy."""

    name: str
    constraint: Constraint | None  # None for the reward
    range: Range


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
        Column("bound", "bound", "What is asked for.", lambda x: None if x.constraint is None else x.constraint,
               each(lambda c: f"{c.symbol} {number(c.bound)}"),
               data=lambda key, c: {"sense": None, key: None} if c is None else {"sense": c.sense, key: c.bound}),
    ]  # fmt: skip
    title = "totals of the promised policy" if isinstance(promise, Promise) else "totals of the given policy"
    return Table(title, tuple(columns), tuple(rows))


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


def evaluation_data(given: OffPolicyEvaluation | None) -> dict[str, Any] | None:
    """What `cmdpkit estimate --policy FILE --json` prints about the policy in the file."""
    if given is None:
        return None
    return {"confidence": given.confidence, "totals": promise_table(given).data(), "unknown": given.unknown}


def estimate_data(name: str, estimate: Estimate, answer: Promise | NoPromise) -> dict[str, Any]:
    """What `cmdpkit estimate --json` prints."""
    found: Coverage = estimate.coverage
    told = {
        "log": name,
        "episodes": estimate.episodes,
        "transitions": found.transitions,
        "stationary": estimate.stationary,
        "notes": list(estimate.notes),
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
            "constraint": answer.constraint.name,
            "estimate": answer.total.estimate,
            "low": answer.total.low,
            "high": answer.total.high,
            "episodes_needed": answer.episodes,
            "wanted": wanted_table(answer.wanted).data(),
        }
        return told
    told["promise"] = {
        "confidence": answer.confidence,
        "totals": promise_table(answer).data(),
        "margin": answer.margin,
        "tested": answer.tested,
        "unknown": answer.unknown,
        "episodes": list(answer.episodes),
    }
    return told
