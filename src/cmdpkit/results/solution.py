"""An optimum: its constraints, where the policy draws, the policy and the proof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.simple.simplified import Simplified
from cmdpkit.exact.solution import StationarySolution
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.tradeoff import TotalRange
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.evaluate import occupancy
from cmdpkit.model.mixture import Mixture
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.validate import written_name
from cmdpkit.results.policy import MOST_ROWS, draws, save_hint, view
from cmdpkit.results.tables import (
    DRAWN,
    EMPTY_LINE,
    QUIET,
    Cell,
    Column,
    Table,
    TerminalTable,
    each,
    in_line,
    plain_table,
    right,
)
from cmdpkit.results.wording import bounded, duration, label, number, percent, titled

SYMBOLS = {"at_least": "≥", "at_most": "≤"}
VALUES = {  # by criterion: what the column with a constraint's value is called, and what it is
    "finite": ("total", "expected total"),
    "discounted": ("value", "expected discounted total"),
    "average": ("value", "long-run average"),
    "total": ("total", "expected total until absorption"),
}
WITHOUT_HORIZON = {"discounted": "discounted value", "average": "long-run average", "total": "total until absorption"}
MOST_STARTS = 3  # start states that are named


# -- the table of constraints ------------------------------------------------------------------------------------------


class Met(NamedTuple):
    """How an optimum meets one constraint."""

    constraint: Constraint  # name, sense and bound
    total: float  # what the optimal policy collects
    price: float  # what the value gains per unit by which the bound is relaxed
    binding: bool  # whether the bound costs something
    tolerance: float  # a total that misses its bound by no more than this counts as meeting it

    @property
    def slack(self) -> float:
        """What is left of the bound; positive inside it, whatever its sense."""
        return self.constraint.sign * (self.total - self.constraint.total)


def constraint_table(found: Solution) -> Table[Met]:
    """One row per constraint: its total at the optimum, how much room is left, and what it costs."""
    totals, prices = found.utilities.tolist(), found.shadow_prices.tolist()
    columns_of = (found.cmdp.constraints, totals, prices, found.binds.tolist(), found.tolerance.tolist())
    rows = tuple(Met(*row) for row in zip(*columns_of, strict=True))
    heading, explained = VALUES[found.cmdp.criterion.kind]
    columns: list[Column[Met]] = [
        Column("name", "constraint", "The name of the constraint.", lambda m: m.constraint.name),
        Column("sense", "", "Whether the total must be at least or at most the bound.", lambda m: m.constraint.sense,
               shown=False),
        Column("value", heading, f"The {explained} at the optimum.", lambda m: m.total, in_line, "right"),
        Column("bound", "bound", f"What the {heading} may not fall below (≥) or exceed (≤).",
               lambda m: m.constraint, lambda values, _: [Cell(bounded(c), value=c.total) for c in values],
               data=lambda key, c: {key: c.bound, "per_step": c.per_step, "bound_total": c.total}),
        *_per_step(found, [m.constraint for m in rows]),
        Column("slack", "slack", "What is left of the bound; positive inside it.", lambda m: m.slack,
               lambda values, narrow: in_line([_visible(x, m) for x, m in zip(values, rows, strict=True)], narrow),
               "right"),
        Column("price", "price", "What the value gains per unit by which the bound is relaxed, in the unit in which it "
               "was given.", lambda m: m.price, in_line, "right"),
        Column("binding", "", "Whether the bound costs something.", lambda m: m.binding,
               each(lambda binds: "binding" if binds else "not binding"),
               tone=lambda m: "alert" if m.binding else "quiet"),
    ]  # fmt: skip
    return Table("constraints", tuple(columns), rows)


def price_note(found: Solution) -> str:
    """What the prices of bounds per step are for; empty where there are none, or where a value counts one step."""
    names = [label(c.name) for c in found.cmdp.constraints if c.scale != 1]
    return f"The price of {' and '.join(names)} is for 1 more per step." if names else ""


def _per_step(found: Solution, constraints: Sequence[Constraint]) -> list[Column[Met]]:
    """Discounted values are hard to read, so they are also shown per step."""
    if found.cmdp.criterion.kind != "discounted":
        return []
    steps = found.cmdp.criterion.steps or 1.0
    return [
        Column("value_per_step", "per step", "The value times 1 - discount.", lambda m: m.total / steps, in_line,
               "right"),
        Column("bound_per_step", "bound per step", "The bound times 1 - discount.",
               lambda m: m.constraint.total / steps, lambda values, _: with_symbols(constraints, values),
               shown=not all(c.per_step for c in constraints)),
    ]  # fmt: skip


def _visible(slack: float, met: Met) -> float:
    """What counts as met is shown as met."""
    return 0.0 if abs(slack) <= met.tolerance else slack


def with_symbols(rows: Iterable[Constraint | TotalRange], values: Sequence[float]) -> list[Cell]:
    """Bounds of constraints with the symbol of their sense."""
    return [Cell(f"{SYMBOLS[row.sense]} {number(x)}", value=x) for row, x in zip(rows, values, strict=True)]


# -- text --------------------------------------------------------------------------------------------------------------


def solution(name: str, found: Solution, width: int = 100) -> RenderableType:
    """Everything that is known about an optimum, for a terminal of `width` columns."""
    if isinstance(found, StationarySolution):
        return _stationary(name, found)
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


def _stationary(name: str, found: StationarySolution) -> RenderableType:
    """Optimum, start, constraints, stochastic states, policy and the proof."""
    kind = found.cmdp.criterion.kind
    what = "one recurrent class," if found.one_class is not None else "optimal"
    headline = Text.assemble(
        (label(name), "bold"), f": {what} {WITHOUT_HORIZON[kind]} ", (number(found.value), "bold green")
    )
    if kind == "discounted" and found.value_per_step is not None:
        headline.append(
            f" (times {1 - (found.cmdp.criterion.discount or 0):g}: {number(found.value_per_step)} per step)"
        )
    parts: list[RenderableType] = [headline, Text(_start(found), style=QUIET)]
    if found.cmdp.N:
        note = price_note(found)
        parts += [EMPTY_LINE, TerminalTable(constraint_table(found)), *([Text(note, style=QUIET)] if note else [])]
    parts += [part for note in found.notes for part in (EMPTY_LINE, Text(note, style=DRAWN))]
    return Group(*parts, EMPTY_LINE, *_policies(found), EMPTY_LINE, _stationary_proof(found))


def _start(found: StationarySolution) -> str:
    states = [f"{titled('state', s)}" + ("" if p == 1 else f" ({percent(p)})") for s, p in found.start.items()]
    more = len(states) - MOST_STARTS
    shown = ", ".join(states[:MOST_STARTS]) + (f" and {more:,} more" if more > 0 else "")
    if found.cmdp.criterion.kind == "discounted":
        return f"From {shown}. Bounds are promises from this start on: other starts are other problems."
    return f"From {shown}."


def _policies(found: StationarySolution) -> list[RenderableType]:
    """The policy, or each policy of a mixture with its probability."""
    if isinstance(found.policy, Policy):
        return [draws(found), EMPTY_LINE, _policy_table(found.cmdp, found.policy, found.occupancy[0])]
    parts: list[RenderableType] = []
    for weight, policy in zip(found.policy.weights.tolist(), found.policy.policies, strict=True):
        title = Text(f"Drawn at the start with probability {percent(weight)}, and kept for ever:")
        parts += [title, _policy_table(found.cmdp, policy, occupancy(found.cmdp, policy)[0]), EMPTY_LINE]
    return parts[:-1]


def _policy_table(cmdp: CMDP, policy: Policy, q: np.ndarray) -> RenderableType:
    """One row per state: what is done there, and how much time is spent there; how often each action if it is long."""
    time = "visits" if cmdp.criterion.kind == "total" else "share of time"
    if cmdp.S > MOST_ROWS:
        table = plain_table("action", right(time))
        for a in np.argsort(-q.sum(axis=0), kind="stable")[:MOST_ROWS]:
            table.add_row(Text(label(cmdp.action_names[int(a)])), _share(cmdp, float(q[:, a].sum())))
        hint = f"too many to print; {save_hint()} writes it (.csv .json .npz .md .py)."
        return Group(Text(f"The policy has {cmdp.S:,} states, {hint}"), Text(), table)
    table = plain_table("state", "action", right(time))
    for s in range(cmdp.S):
        used = np.flatnonzero(policy.row(0, s) > NEGLIGIBLE)
        names = " / ".join(label(cmdp.action_names[int(a)]) for a in used)
        table.add_row(
            Text(label(cmdp.states[s])),
            Text(names, style=DRAWN if len(used) > 1 else ""),
            _share(cmdp, float(q[s].sum())),
        )
    return table


def _share(cmdp: CMDP, x: float) -> str:
    return f"{x:.4f}" if cmdp.criterion.kind == "total" else f"{100 * x:.2f} %"


def _stationary_proof(found: StationarySolution) -> Text:
    what = "optimal" if found.attained or isinstance(found.policy, Mixture) else "within the bounds, and optimal"
    return Text(f"Proved {what} to within {found.gap:.2g} (column generation, {duration(found.seconds)}).", style=QUIET)


# -- JSON --------------------------------------------------------------------------------------------------------------


def solution_data(name: str, found: Solution, **more: Any) -> dict[str, Any]:
    """The optimum, its constraints and where the policy draws; ``more`` entries are those of a simple policy."""
    return {
        **(_stationary_data(found) if found.cmdp.criterion.stationary else {}),
        **more,
        "env": name,
        "method": found.method,
        "value": found.value,
        "utilities": found.utilities.tolist(),
        "shadow_prices": found.shadow_prices.tolist(),
        "gap": found.gap,
        "ended": found.ended,
        "constraints": constraint_table(found).data(),
        "stochastic_decisions": [{**d._asdict(), "state": written_name(d.state)} for d in found.stochastic_decisions()],
        "seconds": found.seconds,
    }


def _stationary_data(found: Solution) -> dict[str, Any]:
    """What else is known without a horizon: the criterion, values per step, and whether the optimum is attained."""
    optimum = found.optimum if isinstance(found, Simplified) else found
    steps = found.cmdp.criterion.steps  # None for totals
    return {
        "criterion": found.cmdp.criterion.kind,
        "discount": found.cmdp.criterion.discount,
        "start": optimum.start if isinstance(optimum, StationarySolution) else None,
        "value_per_step": None if steps is None else found.value / steps,
        "utilities_per_step": None if steps is None else (found.utilities / steps).tolist(),
        "attained": getattr(optimum, "attained", True),
        "notes": list(getattr(optimum, "notes", ())),
        "mixture": found.policy.weights.tolist() if isinstance(found.policy, Mixture) else None,
        "one_class": one_class._asdict() if (one_class := getattr(optimum, "one_class", None)) else None,
    }
