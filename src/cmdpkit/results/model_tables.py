"""The tables about models and what solves them, and the lists of environments and algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cmdpkit.exact.diagnosis import Separation
from cmdpkit.exact.ranges import Range
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.learners import Facts
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import written_name
from cmdpkit.results.tables import Cell, Column, Table, each, in_line, odds, whole
from cmdpkit.results.wording import bounded, label, number

SYMBOLS = {"at_least": "≥", "at_most": "≤"}
VALUES = {  # by criterion: what the column with a constraint's value is called, and what it is
    "finite": ("total", "expected total"),
    "discounted": ("value", "expected discounted total"),
    "average": ("value", "long-run average"),
    "total": ("total", "expected total until absorption"),
}


# -- constraints of a solution -----------------------------------------------------------------------------------------


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
               lambda m: m.constraint.total / steps, lambda values, _: _bounds(constraints, values),
               shown=not all(c.per_step for c in constraints)),
    ]  # fmt: skip


def _visible(slack: float, met: Met) -> float:
    """What counts as met is shown as met."""
    return 0.0 if abs(slack) <= met.tolerance else slack


def _bounds(rows: Iterable[Constraint | Range], values: Sequence[float]) -> list[Cell]:
    return [Cell(f"{SYMBOLS[row.sense]} {number(x)}", value=x) for row, x in zip(rows, values, strict=True)]


# -- diagnoses ---------------------------------------------------------------------------------------------------------


def range_table(rows: Sequence[Range]) -> Table[Range]:
    """One row per constraint: how far its bound can be moved, from the loosest to the strictest."""
    columns: list[Column[Range]] = [
        Column("name", "constraint", "The name of the constraint.", lambda r: r.name),
        Column("sense", "", "Whether the total must be at least or at most the bound.", lambda r: r.sense, shown=False),
        Column("bound", "bound", "The bound of the model.", lambda r: r.bound, lambda values, _: _bounds(rows, values)),
        Column("per_step", "", "Whether the numbers of the row are per step.", lambda r: r.per_step,
               each(lambda per_step: "per step" if per_step else ""), shown=any(r.per_step for r in rows)),
        Column("worst", "met by any policy", "A bound this loose is met by every policy.", lambda r: r.worst,
               each(number), "right"),
        Column("indifferent", "free until", "Up to here the bound costs nothing, given the others.",
               lambda r: r.indifferent, each(number), "right"),
        Column("strictest", "possible until", "Beyond this no policy meets it together with the others.",
               lambda r: r.strictest, each(number), "right"),
        Column("best_alone", "possible alone until", "Beyond this no policy meets it at all.",
               lambda r: r.best_alone, each(number), "right"),
    ]  # fmt: skip
    return Table("how far each bound can be moved", tuple(columns), tuple(rows))


def separation_table(rows: Sequence[Separation]) -> Table[Separation]:
    """One row per action that the optimum uses: what is lost without it."""

    def losses(values: Sequence[Any], narrow: bool) -> list[Cell]:
        cells = in_line(values, narrow)
        return [c if math.isfinite(x) else c._replace(text="infeasible") for c, x in zip(cells, values, strict=True)]

    timed = any(r.step is not None for r in rows)  # without a horizon there are no steps
    columns: list[Column[Separation]] = [
        Column("step", "step", "The step, from 1.", lambda r: r.step, whole, "right", shown=timed),
        Column("state", "state", "The state.", lambda r: written_name(r.state)),
        Column("action", "action", "The action that is dropped.", lambda r: written_name(r.action)),
        Column("probability", "probability", "How often the optimum takes it there.", lambda r: r.probability, odds,
               "right"),
        Column("value_loss", "value lost", "By how much the optimal value falls without the action.",
               lambda r: r.value_loss, losses, "right"),
        Column("sigma", "sigma", "The least by which the value or some bound is missed without the action.",
               lambda r: r.sigma, in_line, "right"),
    ]  # fmt: skip
    return Table("what dropping an action of the optimum costs", tuple(columns), tuple(rows))


# -- trade-offs --------------------------------------------------------------------------------------------------------


def tradeoff_table(found: Tradeoff) -> Table[dict[str, Any]]:
    """One row per bound that was tried and can be met: the best value and the price there."""
    c = found.constraint
    columns: list[Column[dict[str, Any]]] = [
        Column("bound", f"{label(c.name)} {c.symbol}{c.unit}", "The bound, in the unit in which it was given.",
               lambda p: p["bound"], in_line, "right"),
        Column("bound_total", "in all", "The bound on the value by the model's criterion.",
               lambda p: p["bound"] * c.scale, in_line, "right", shown=c.scale != 1),
        Column("value", "value", "The best value within it.", lambda p: p["value"], in_line, "right"),
        Column("price", "price", "What relaxing it by one unit would gain.", lambda p: p["price"], in_line, "right"),
        Column("utilities", "", "The totals of all constraints there.", lambda p: p["utilities"], shown=False),
    ]  # fmt: skip
    rows = [{**row, "utilities": totals} for row, totals in zip(found.rows(), found.utilities.tolist(), strict=True)]
    return Table(f"the best value for every bound on {label(c.name)}", tuple(columns), tuple(rows))


# -- lists -------------------------------------------------------------------------------------------------------------


class Environment(NamedTuple):
    """An environment in a list."""

    name: str  # what to call it
    description: str  # what it is, in one line
    parameters: Mapping[str, object]  # what can be changed, with defaults


def environment_table(rows: Sequence[Environment]) -> Table[Environment]:
    """One row per environment."""
    columns: list[Column[Environment]] = [
        Column("name", "environment", "What to call it.", lambda e: e.name, tone=lambda _: "name"),
        Column("description", "what it is", "The problem in a line.", lambda e: e.description),
        Column("parameters", "", "What can be changed, and its default.", lambda e: dict(e.parameters), shown=False),
    ]
    return Table("environments", tuple(columns), tuple(rows))


def algorithm_table(listed: Mapping[str, Facts]) -> Table[tuple[str, Facts]]:
    """One row per learning algorithm."""
    columns: list[Column[tuple[str, Facts]]] = [
        Column("name", "algorithm", "What to call it.", lambda x: x[0], tone=lambda _: "name"),
        Column("description", "what it is", "The algorithm in a line.", lambda x: x[1].title),
        Column("reference", "reference", "Where it was published.", lambda x: x[1].paper),
        Column("source", "source", "What its constants were taken from.", lambda x: x[1].source),
        Column("guarantee", "guarantee", "What is proved about it.", lambda x: x[1].guarantee),
        Column("needs", "needs", "What it has to be given.", lambda x: list(x[1].needs), each(", ".join)),
        Column("presets", "presets", "The settings that come with it.", lambda x: list(x[1].presets), each(", ".join)),
        Column("criteria", "", "Kinds of problems it can learn.", lambda x: list(x[1].criteria), shown=False),
    ]
    return Table("algorithms", tuple(columns), tuple(listed.items()))
