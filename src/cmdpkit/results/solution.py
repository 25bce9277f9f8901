"""An optimum, or a simple policy next to it: its constraints, where the policy randomises, the policy and the proof."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.diagnosis import TotalRange
from cmdpkit.exact.large.policy import LargeSolution
from cmdpkit.exact.solution import StationarySolution
from cmdpkit.exact.solver import Solution
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Decision, Mixture, Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.validate import written_name
from cmdpkit.operators.policies import occupancy
from cmdpkit.results import tables
from cmdpkit.results.policy import MOST_ROWS, draws, save_hint, uses_of_actions, view
from cmdpkit.results.simplify import Phase, Rule, Simplified
from cmdpkit.results.tables import EMPTY_LINE, QUIET, TAKEN, Cell, Column, Table, TerminalTable, each, numbers, whole
from cmdpkit.results.wording import bounded, counted, duration, label, listed, number, odds, percent, ranges, titled

SYMBOLS = {"at_least": "≥", "at_most": "≤"}
VALUES = {  # by criterion: what the column with a constraint's value is called, and what it is
    "finite": ("total", "expected total"),
    "discounted": ("value", "expected discounted total"),
    "average": ("value", "long-run average"),
    "total": ("total", "expected total until absorption"),
}
WITHOUT_HORIZON = {"discounted": "discounted value", "average": "long-run average", "total": "total until absorption"}
ENDED = {
    "optimal": "optimal value",
    "gap": "value",
    "precision": "value",
    "interrupted": "interrupted, the best value found is",
}
HOW_ENDED = {
    "gap": "The search was stopped when this was proved",
    "precision": "Double precision proves no more for the numbers of this model",
    "interrupted": "The search was interrupted",
}
MOST_STARTS = 3  # start states that are named
MOST_LINES = 60  # about a simple policy
COUNTED = {  # fields of the shape of a policy, as people call them
    "phases": "phases",
    "draws": "stochastic decisions",
    "over_states": "changes over states",
    "over_steps": "changes over steps",
}


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
        """What is left of the bound, in the unit in which it was given; positive inside it, whatever its sense."""
        return self.constraint.sign * (self.total - self.constraint.bound_on_total) / self.constraint.scale

    @property
    def judgement(self) -> str:
        """Whether the bound costs something, in words."""
        return "binding" if self.binding else "not binding" if self.visible_slack else "met exactly, costs nothing"

    @property
    def visible_slack(self) -> float:
        """The same, but 0 within the tolerance: what counts as met is shown as met."""
        return 0.0 if abs(self.slack) * self.constraint.scale <= self.tolerance else self.slack


def constraint_table(found: Solution | LargeSolution) -> Table[Met]:
    """One row per constraint: its total at the optimum, how much room is left, and what it costs."""
    totals, prices = found.utilities.tolist(), found.shadow_prices.tolist()
    columns_of = (found.cmdp.constraints, totals, prices, found.binds.tolist(), found.tolerance.tolist())
    rows = tuple(Met(*row) for row in zip(*columns_of, strict=True))
    heading, explained = VALUES[found.cmdp.criterion.kind]
    return Table("constraints", (
        Column("name", "constraint", "The name of the constraint.", lambda m: m.constraint.name),
        Column("sense", "", "Whether the total must be at least or at most the bound.", lambda m: m.constraint.sense,
               shown=False),
        numbers("value", heading, f"The {explained} at the optimum.", lambda m: m.total),
        Column("bound", "bound", f"What the {heading} may not fall below (≥) or exceed (≤).",
               lambda m: m.constraint, lambda values, _: [Cell(bounded(c), value=c.bound_on_total) for c in values],
               data=tables.bound_parts),
        *_per_step(found, [m.constraint for m in rows]),
        numbers("slack", "slack", "What is left of the bound, in the unit in which it was given; positive inside it.",
                lambda m: m.slack,
                lambda _, narrow: tables.in_line([m.visible_slack for m in rows], narrow)),
        numbers("price", "price", "What the value gains per unit by which the bound is relaxed, in the unit in which "
                "it was given.", lambda m: m.price),
        Column("binding", "", "Whether the bound costs something.", lambda m: m.binding,
               lambda values, _: [Cell(m.judgement) for m in rows],
               tone=lambda m: "alert" if m.binding else "quiet"),
    ), rows)  # fmt: skip


def price_note(found: Solution | LargeSolution) -> str:
    """The unit of slack and price of bounds per step; empty where there are none, or where a value counts one step."""
    names = [label(c.name) for c in found.cmdp.constraints if c.scale != 1]
    return f"Slack and price of {' and '.join(names)} are per step, as the bound is." if names else ""


def _per_step(found: Solution | LargeSolution, constraints: Sequence[Constraint]) -> list[Column[Met]]:
    """Discounted values are hard to read, so they are also shown per step."""
    if found.cmdp.criterion.kind != "discounted":
        return []
    steps = found.cmdp.criterion.steps_in_value or 1.0
    return [
        numbers("value_per_step", "per step", "The value times 1 - discount.", lambda m: m.total / steps),
        Column("bound_per_step", "bound per step", "The bound times 1 - discount.",
               lambda m: m.constraint.bound_on_total / steps, lambda values, _: with_symbols(constraints, values),
               shown=not all(c.per_step for c in constraints)),
    ]  # fmt: skip


def with_symbols(rows: Iterable[Constraint | TotalRange], values: Sequence[float]) -> list[Cell]:
    """Bounds of constraints with the symbol of their sense."""
    return [Cell(f"{SYMBOLS[row.sense]} {number(x)}", value=x) for row, x in zip(rows, values, strict=True)]


# -- the tables of a simple policy -------------------------------------------------------------------------------------


class SimpleLine(NamedTuple):
    """What to do in some states during a phase."""

    phase: Phase  # when the rule holds
    rule: Rule  # states, and what to do in them


def shape_table(found: Simplified) -> Table[str]:
    """How simple the optimum is, and the simple policy; without a horizon there are no steps."""
    timed = found.cmdp.criterion.has_horizon
    return Table("how simple both are", (
        Column("what", "", "What makes a policy hard to follow.", lambda key: COUNTED[key]),
        numbers("optimum", "optimum", "How much of it the optimum has.", lambda key: getattr(found.before, key), whole),
        numbers("simple", "simple", "How much of it the simple policy has.", lambda key: getattr(found.after, key),
                whole),
    ), tuple(COUNTED) if timed else ("draws", "over_states"))  # fmt: skip


def rule_table(found: Simplified) -> Table[SimpleLine]:
    """One row for each phase and group of neighbouring states: what to do there."""
    return Table("what to do", (
        Column("steps", "steps", "The steps of the phase, from 1.", lambda x: _steps_of(x.phase)),
        Column("states", "states", "Neighbouring states.", lambda x: _states_of(x.rule)),
        Column("action", "action", "What to do there.", lambda x: label(written_name(x.rule.action))),
    ), tuple(SimpleLine(phase, rule) for phase in found.phases for rule in phase.rules))  # fmt: skip


def draw_table(found: Simplified) -> Table[Decision]:
    """Where the simple policy randomises."""
    return Table("where it draws", (
        numbers("step", "step", "The step, from 1.", lambda x: x.step, whole),
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("probabilities", "draws from", "The actions and their probabilities.", lambda x: dict(x.probabilities),
               each(odds)),
    ), tuple(found.stochastic_decisions()))  # fmt: skip


def solution_tables(found: Solution | LargeSolution) -> list[Table[Any]]:
    """The constraints; of a simple policy also how simple it is, what to do, and where it draws, if it does."""
    if not isinstance(found, Simplified):
        return [constraint_table(found)]
    draws = [draw_table(found)] if found.after.draws else []
    return [constraint_table(found), shape_table(found), rule_table(found), *draws]


def _steps_of(phase: Phase) -> str | None:
    """The steps of a phase, from 1; None without a horizon."""
    if phase.first is None or phase.last is None:
        return None
    return f"{phase.first}–{phase.last}" if phase.last > phase.first else str(phase.first)


def _states_of(rule: Rule) -> str:
    """The states of a rule, by their names."""
    first, last = rule.states[0], rule.states[-1]
    if len(rule.states) == 1:
        return titled("state", first)
    numbers = [name for name in rule.states if isinstance(name, int)]
    if len(numbers) == len(rule.states):
        return f"states {ranges(sorted(numbers))}"
    return f"{label(first)} to {label(last)}"


def solution(name: str, found: Solution | LargeSolution, width: int = 100) -> RenderableType:
    """Everything that is known about an optimum, for a terminal of `width` columns."""
    if isinstance(found, LargeSolution):
        return _large(name, found)
    if isinstance(found, Simplified):
        return _simplified(name, found, width)
    if isinstance(found, StationarySolution):
        return _stationary(name, found)
    head = _headline(name, ENDED[found.ended], found)
    return Group(
        head, EMPTY_LINE, *_bounds(found), draws(found), EMPTY_LINE, view(found, width), EMPTY_LINE, _proof(found)
    )


def _large(name: str, found: LargeSolution) -> RenderableType:
    """The optimum of a model by functions: its bounds, what is done at the start, where it draws, and the proof."""
    policy, notes = found.policy, [Text(note, style=tables.DRAWN) for note in found.notes]
    lines = []
    if len(policy.parts) == 1:
        lines.append(Text("One policy, which is deterministic." if not policy.parts[0].draws else "One policy."))
    elif policy.parts:
        shares = " and ".join(percent(float(weight)) for weight in policy.weights)
        lines.append(Text(f"A mixture of {len(policy.parts)} policies: one is drawn at the start ({shares}) and kept."))
    for h, x, odds_there in policy.stochastic_decisions()[:MOST_STARTS]:
        at = f"Step {h + 1}, " if found.cmdp.criterion.horizon else ""
        lines.append(Text(f"{at}{found.cmdp.named(x)}: {_listed_odds(odds_there)}"))
    for x in list(found.cmdp.start)[:MOST_STARTS] if policy.parts else ():
        lines.append(Text(f"At the start, {found.cmdp.named(x)}: {_listed_odds(policy(x))}", style=QUIET))
    share = f", {found.gap / abs(found.value):.2g} of this value" if found.value else ""
    what = "The search was interrupted" if not found.complete else "Proved"
    proof = (
        f"{what}: no policy within the bounds is better by more than {found.gap:.2g}{share} "
        f"({counted(found.sweeps, 'sweep')}, {duration(found.seconds)})."
    )
    head = _headline(name, ENDED[found.ended], found)
    return Group(head, EMPTY_LINE, *_bounds(found), *notes, *lines, EMPTY_LINE, Text(proof, style=QUIET))


def _listed_odds(decision: Sequence[tuple[Any, float]]) -> str:
    """Actions with their probabilities."""
    return ", ".join(f"{label(a)}" if p == 1 else f"{percent(p)} {label(a)}" for a, p in decision)


def _headline(name: str, what: str, found: Solution | LargeSolution) -> Text:
    return Text.assemble((label(name), "bold"), f": {what} ", (number(found.value), "bold green"))


def _bounds(found: Solution | LargeSolution) -> list[RenderableType]:
    """The table of constraints, and what the prices in it are for."""
    note = price_note(found)
    notes = [Text(note, style=QUIET)] if note else []
    return [TerminalTable(constraint_table(found)), *notes, EMPTY_LINE] if found.cmdp.N else []


def _proof(found: Solution) -> Text:
    method = {"columns": "column generation", "lp": "occupancy LP"}[found.method]
    how = f"({method}, {duration(found.seconds)})"
    if found.ended == "optimal":
        single = isinstance(found, StationarySolution) and isinstance(found.policy, Policy) and not found.attained
        what = "within the bounds, and optimal" if single else "optimal"
        return Text(f"Proved {what} to within {found.gap:.2g} {how}.", style=QUIET)
    share = f" ({100 * found.gap / abs(found.value):.2g} % of this value)" if found.value else ""
    return Text(
        f"{HOW_ENDED[found.ended]}: no policy within the bounds is better by more than {found.gap:.2g}{share} {how}."
    )


def _stationary(name: str, found: StationarySolution) -> RenderableType:
    """Optimum, start, constraints, stochastic states, policy and the proof."""
    kind = found.cmdp.criterion.kind
    what = ENDED[found.ended].replace("value", WITHOUT_HORIZON[kind])
    headline = _headline(
        name, what if found.one_class is None else f"one recurrent class, {WITHOUT_HORIZON[kind]}", found
    )
    if kind == "discounted" and found.value_per_step is not None:
        headline.append(
            f" (times {1 - (found.cmdp.criterion.discount or 0):g}: {number(found.value_per_step)} per step)"
        )
    notes = [part for note in found.notes for part in (Text(note, style=tables.DRAWN), EMPTY_LINE)]
    said = [headline, Text(_start(found), style=QUIET), EMPTY_LINE, *_bounds(found), *notes, *_policies(found)]
    return Group(*said, EMPTY_LINE, _proof(found))


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
        title = Text(f"Drawn at the start with probability {percent(weight)}, and kept forever:")
        parts += [title, _policy_table(found.cmdp, policy, occupancy(found.cmdp, policy)[0]), EMPTY_LINE]
    return parts[:-1]


def _policy_table(cmdp: CMDP, policy: Policy, q: np.ndarray) -> RenderableType:
    """One row per state: what is done there, and how much time is spent there; how often each action if it is long."""
    time = "visits" if cmdp.criterion.kind == "total" else "share of time"
    if cmdp.S > MOST_ROWS:
        size = f"The policy has {cmdp.S:,} states, too many"
        return uses_of_actions(size, cmdp, q.sum(axis=0), {time: partial(_share, cmdp)})
    table = tables.plain_table("state", "action", tables.right(time))
    for s in range(cmdp.S):
        used = np.flatnonzero(policy.row(0, s) > NEGLIGIBLE)
        names = " / ".join(label(cmdp.action_names[int(a)]) for a in used)
        table.add_row(
            Text(label(cmdp.states[s])),
            Text(names, style=tables.DRAWN if len(used) > 1 else ""),
            _share(cmdp, float(q[s].sum())),
        )
    return table


def _share(cmdp: CMDP, x: float) -> str:
    return f"{x:.4f}" if cmdp.criterion.kind == "total" else f"{100 * x:.2f} %"


def _simplified(name: str, found: Simplified, width: int) -> RenderableType:
    """Its cost, how simple it is next to the optimum, what to do in which phase, where it draws."""
    headline = _headline(name, "value", found).append(f", {_paid(found)}")
    parts: list[RenderableType] = [headline, EMPTY_LINE, TerminalTable(shape_table(found)), EMPTY_LINE]
    if found.cmdp.N:
        parts += [TerminalTable(constraint_table(found)), EMPTY_LINE]
    plan = view(found, width) if found.cmdp.grid is not None else Group(*_plan(found))
    if found.after.draws:
        parts += [draws(found), EMPTY_LINE, Text("Apart from that:")]
    note = f"No policy within the bounds is better by more than {found.gap:.3g} ({duration(found.seconds)})."
    return Group(*parts, plan, EMPTY_LINE, Text(note, style=QUIET))


def _paid(found: Simplified) -> str:
    nothing = found.lost <= 1e-9 * max(1.0, abs(found.optimum.value))
    if nothing and not found.simpler:
        return "the optimum itself: nothing simpler was found within what may be given up"
    if nothing:
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
        shown = _steps_of(phase)
        steps = "Always" if shown is None else f"Step{'s' * (phase.first != phase.last)} {shown}"
        if len(phase.rules) < 2:
            what = label(phase.rules[0].action) if phase.rules else "nothing is left to decide"
            lines.append(Text.assemble((f"{steps}: ", "bold"), (what, TAKEN), " everywhere" * bool(phase.rules)))
            continue
        lines.append(Text(f"{steps}:", style="bold"))
        named = [_states_of(rule) for rule in phase.rules]
        space = max(map(len, named))
        for states, rule in zip(named, phase.rules, strict=True):
            lines.append(Text.assemble(f"  {states:<{space}}  ", (label(rule.action), TAKEN)))
    if len(lines) > MOST_LINES:
        left = f"… and {counted(len(lines) - MOST_LINES, 'more line')}; {save_hint()} writes the whole policy"
        lines = [*lines[:MOST_LINES], Text(left, style=QUIET)]
    return list(lines)


def _large_data(found: LargeSolution) -> dict[str, Any]:
    """What is known of a model by functions alone: the mixture, where it randomises, and the work that was done."""
    return {
        "errors": found.errors.tolist(),
        "weights": found.policy.weights.tolist(),
        "stochastic_decisions": [
            {"step": h + 1, "state": found.cmdp.named(x), "probabilities": {str(a): p for a, p in there}}
            for h, x, there in found.policy.stochastic_decisions()
        ],
        "columns": found.columns,
        "sweeps": found.sweeps,
        "notes": list(found.notes),
    }


def solution_data(name: str, found: Solution | LargeSolution) -> dict[str, Any]:
    """The optimum, its constraints and where the policy randomises; a simple policy has its own entry."""
    return {
        "env": name,
        **({"method": found.method} if isinstance(found, Solution) else {}),
        "value": found.value,
        "utilities": found.utilities.tolist(),
        "shadow_prices": found.shadow_prices.tolist(),
        "gap": found.gap,
        "ended": found.ended,
        "constraints": constraint_table(found).data(),
        **(_large_data(found) if isinstance(found, LargeSolution) else _listed_data(found)),
        "seconds": found.seconds,
    }


def _listed_data(found: Solution) -> dict[str, Any]:
    """What is known of a model with arrays alone: the method, and where the policy randomises."""
    return {
        "stochastic_decisions": [{**d._asdict(), "state": written_name(d.state)} for d in found.stochastic_decisions()],
        **({} if found.cmdp.criterion.has_horizon else _stationary_data(found)),
        **({"simple": _simple_data(found)} if isinstance(found, Simplified) else {}),
    }


def _stationary_data(found: Solution) -> dict[str, Any]:
    """What else is known without a horizon: the criterion, values per step, and whether the optimum is attained."""
    optimum = found.optimum if isinstance(found, Simplified) else found
    steps = found.cmdp.criterion.steps_in_value  # None for totals
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


def _simple_data(found: Simplified) -> dict[str, Any]:
    """The optimum, what is given up, how simple both are, what to do when."""
    return {
        "optimum": found.optimum.value,
        "lost": found.lost,
        "share": found.share,
        "least": found.least,
        "slack": found.slack.tolist(),
        "changed": found.changed,
        "before": found.before._asdict(),
        "after": found.after._asdict(),
        "phases": [
            {
                "first": phase.first,
                "last": phase.last,
                "rule": [{"states": listed(rule.states), "action": written_name(rule.action)} for rule in phase.rules],
            }
            for phase in found.phases
        ],
    }
