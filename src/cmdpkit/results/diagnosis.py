"""What bounds cost: a diagnosis, and a trade-off as numbers and as bars.

A diagnosis says where each bound sits between what any policy meets and what none meets, and what actions are worth.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.errors import remedy
from cmdpkit.exact.diagnosis import Diagnosis, Separation, StationaryDiagnosis, TotalRange, Tradeoff, least_sigma
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import Solution
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.showing import line_width
from cmdpkit.model.tolerances import DRAWN_INSIDE
from cmdpkit.model.validate import written_name
from cmdpkit.results import tables
from cmdpkit.results.solution import SYMBOLS, Met, constraint_table
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Cell, Column, Table, TerminalTable, each, numbers, odds, whole
from cmdpkit.results.wording import MOST_LISTED, bounded, counted, label, listed, number, rounded_off, sizes

BAR_WIDTH, LEAST_BAR = 40, 12  # characters of a drawing or the longest bar, and the least that a narrow terminal leaves
TABLE_WIDTH = 40  # characters of a line that the numbers next to bars take
EIGHTHS = " ▏▎▍▌▋▊▉"
MOST_SEPARATIONS = 12  # rows of the table of separations


def range_table(rows: Sequence[TotalRange]) -> Table[TotalRange]:
    """One row per constraint: how far its bound can be moved, from the loosest to the strictest."""
    return Table("how far each bound can be moved", (
        Column("name", "constraint", "The name of the constraint.", lambda r: r.name),
        Column("sense", "", "Whether the total must be at least or at most the bound.", lambda r: r.sense,
               each(SYMBOLS.__getitem__)),
        numbers("bound", "bound", "The bound of the model.", lambda r: r.bound, each(number)),
        Column("per_step", "", "Whether the numbers of the row are per step.", lambda r: r.per_step,
               each(lambda per_step: "per step" if per_step else ""), shown=any(r.per_step for r in rows)),
        numbers("worst", "met by any policy", "A bound this loose is met by every policy.", lambda r: r.worst,
                each(number)),
        numbers("indifferent", "free until", "Up to here the bound costs nothing, given the others.",
                lambda r: r.indifferent, each(number)),
        numbers("strictest", "possible until", "Beyond this no policy meets it together with the others.",
                lambda r: r.strictest, each(number)),
        numbers("best_alone", "possible alone until", "Beyond this no policy meets it at all.", lambda r: r.best_alone,
                each(number)),
    ), tuple(rows))  # fmt: skip


def separation_table(rows: Sequence[Separation]) -> Table[Separation]:
    """One row per action that the optimum uses: what is lost without it."""

    def losses(values: Sequence[Any], narrow: bool) -> list[Cell]:
        cells = tables.in_line(values, narrow)
        return [c if math.isfinite(x) else c._replace(text="infeasible") for c, x in zip(cells, values, strict=True)]

    timed = any(r.step is not None for r in rows)  # without a horizon there are no steps
    return Table("what dropping an action of the optimum costs", (
        numbers("step", "step", "The step, from 1.", lambda r: r.step, whole, shown=timed),
        Column("state", "state", "The state.", lambda r: written_name(r.state)),
        Column("action", "action", "The action that is dropped.", lambda r: written_name(r.action)),
        numbers("probability", "probability", "How often the optimum takes it there.", lambda r: r.probability, odds),
        numbers("use", "use", "How often the optimum takes it, in an episode or by its occupancy.", lambda r: r.use),
        Column("value_loss", "value lost", "By how much the optimal value falls without the action.",
               lambda r: r.value_loss, losses, "right"),
        numbers("sigma", "sigma", "The least by which the value or some bound is missed without the action.",
                lambda r: r.sigma),
    ), tuple(rows))  # fmt: skip


def diagnosis(name: str, cmdp: CMDP, found: Diagnosis) -> RenderableType:
    """Sizes, feasibility, and where every bound sits."""
    bounds: list[RenderableType] = [tables.EMPTY_LINE, _bounds(found), _legend(found.ranges)] if found.ranges else []
    return Group(_sizes(name, cmdp, found), tables.EMPTY_LINE, _verdict(cmdp, found), *bounds)


def _sizes(name: str, cmdp: CMDP, found: Diagnosis) -> Text:
    if isinstance(found, StationaryDiagnosis):
        return _stationary_sizes(name, cmdp, found)
    valid = f" is valid: {', '.join([counted(cmdp.H, 'step'), *sizes(cmdp)])}.\n"
    reached = f"{found.reachable:,} of {found.pairs:,} (step, state) pairs can be reached."
    return Text.assemble((label(name), "bold"), valid, reached)


def _verdict(cmdp: CMDP, found: Diagnosis) -> Text:
    if found.solution is None:
        missed = f": every policy misses some bound by {number(-found.slater_slack)} or more."
        return Text.assemble(("Infeasible", "bold red"), missed)
    value = f"The optimal value is {number(found.solution.value)}."
    if cmdp.N == 0:
        return Text(value)
    bounds = "the bound can be met" if cmdp.N == 1 else "all bounds can be met at once"
    room = f": {bounds} with {number(found.slater_slack)} to spare (Slater slack).\n"
    return Text.assemble(("Feasible", "bold green"), room, value)


def relaxations(found: Infeasible) -> list[str]:
    """For every bound a sentence for the command line that says how far it alone must move."""
    lines = []
    for c, move in zip(found.cmdp.constraints, found.relax.values(), strict=True):
        if move is not None:
            bound = rounded_off(move.bound, -c.sign)
            lines.append(
                f"all bounds can be met with {label(c.name)} {c.symbol} {bound}{c.unit} instead: --bound "
                f"{shlex.quote(f'{label(c.name)}={bound}')}"
            )
    return lines


def _bounds(found: Diagnosis) -> RenderableType:
    """For every bound a headline, the drawing between its ends, and the numbers in words."""
    ends = [(number(r.worst), number(r.best_alone)) for r in found.ranges]
    left = max(len(worst) for worst, _ in ends)
    met = [None] * len(ends) if found.solution is None else constraint_table(found.solution).rows
    parts: list[RenderableType] = []
    for r, (worst, best), at_optimum in zip(found.ranges, ends, met, strict=True):
        bar = Text.assemble(f"  {worst:>{left}} ", drawn_range(r), f" {best}")
        parts += [_headline(r, at_optimum), bar, Text(f"  {_in_words(r)}", style=tables.QUIET), tables.EMPTY_LINE]
    return Group(*parts)


def _headline(r: TotalRange, met: Met | None) -> Text:
    unit = " per step" if r.per_step else ""
    bound = (f"{label(r.name)} {SYMBOLS[r.sense]} {number(r.bound)}{unit}", "bold")
    if met is None:
        return Text.assemble(bound)
    if not met.binding:
        return Text.assemble(bound, (" does not bind", tables.QUIET))
    return Text.assemble(bound, (" binds", tables.DRAWN), f": relaxing it gains {number(met.price)} per unit{unit}")


def _in_words(r: TotalRange) -> str:
    to = "up to" if r.sense == "at_least" else "down to"
    worst, free, strictest, best = map(number, (r.worst, r.indifferent, r.strictest, r.best_alone))
    alone = f" (alone {to} {best})" if best != strictest else ""
    return f"met by any policy {to} {worst}, for free {to} {free}, at a price {to} {strictest}{alone}"


def drawn_range(r: TotalRange, width: int = BAR_WIDTH) -> Text:
    """Where a bound sits between what any policy meets (left) and what none meets (right)."""

    def place(x: float) -> float:
        return (x - r.worst) / (r.best_alone - r.worst) if r.best_alone != r.worst else 0.5

    free = min(max(round(place(r.indifferent) * width), 0), width)
    possible = min(max(round(place(r.strictest) * width), free), width)
    bar = Text.assemble(" ", *_zones(free, possible - free, width - possible), " ")
    at = place(r.bound)
    if at < -DRAWN_INSIDE or at > 1 + DRAWN_INSIDE:  # outside the bar
        cell = 0 if at < 0 else width + 1
    else:
        cell = 1 + min(max(math.floor(at * width), 0), width - 1)
    return bar[:cell] + Text("◆", style="bold") + bar[cell + 1 :]


def _zones(free: int, priced: int, excluded: int) -> tuple[tuple[str, str], ...]:
    return ("─" * free, "green"), ("━" * priced, tables.NOTICE), ("╌" * excluded, "red")


def _legend(ranges: Sequence[TotalRange]) -> Text:
    free, priced, excluded = _zones(1, 1, 1)
    words: list[str | tuple[str, str]] = [free, " changes nothing   ", priced, " costs reward   "]
    if any(number(r.best_alone) != number(r.strictest) for r in ranges):
        words += [excluded, " excluded by the other bounds   "]
    return Text.assemble(*words, ("◆", "bold"), " the bound")


def separation(found: Solution, rows: Sequence[Separation] | None) -> RenderableType:
    """Worth of the optimum's actions, most decisive first, None if unknown; those without a choice are counted."""
    if rows is None:
        used = found.used
        how = "cmdpkit.diagnose(model, separation=True)"
        skipped = f"The optimum uses {used:,} actions; computing what each is worth is slow: {how} does it."
        return Group(tables.EMPTY_LINE, Text(skipped, style=tables.QUIET))
    choices = sorted((r for r in rows if math.isfinite(r.sigma)), key=lambda r: -r.weight)
    if not choices:
        return Group(
            tables.EMPTY_LINE, Text("There is no choice anywhere: every action of the optimum is the only one there.")
        )
    notes = [
        "sigma: the least by which the value or some bound is missed without the action; use: how often it is taken."
    ]
    if len(rows) < found.used:
        notes += [f"Looked at: {len(rows):,} of {found.used:,} actions in use, those drawn or taken most often "
                  "(cmdpkit.diagnose(model, separation=True) looks at all)."]  # fmt: skip
    shown = choices[:MOST_SEPARATIONS]
    if len(shown) < len(rows):
        everything = remedy("diagnosis.separation", "--json")
        notes += [f"Not shown: {len(rows) - len(shown):,} that matter less or have no alternative ({everything})."]
    title = Text("What dropping an action of the optimum costs, the most decisive first (sigma times use):")
    least, at_most = least_sigma(found, rows), "at most " if len(rows) < found.used else ""
    told = "0: the optimum can do without any of these" if least is None else f"{at_most}{number(least)}"
    table, quiet = TerminalTable(separation_table(shown)), (Text(note, style=tables.QUIET) for note in notes)
    blank = tables.EMPTY_LINE
    return Group(blank, title, blank, table, blank, Text(f"sigma_min is {told}."), *quiet)


def _stationary_sizes(name: str, cmdp: CMDP, found: StationaryDiagnosis) -> Text:
    """What a diagnosis says first: sizes, what can be reached, and where one can stay forever."""
    text = Text.assemble((label(name), "bold"), f" is valid: {cmdp.criterion}, {', '.join(sizes(cmdp))}.\n")
    text.append(f"{found.reachable:,} of {found.pairs:,} states can be reached.")
    if cmdp.criterion.kind == "average":
        inside = sum(len(part) for part in found.components)
        parts = counted(len(found.components), "end component")
        text.append(f"\nOne can stay forever in {parts} with {counted(inside, 'state')}")
        passed = found.reachable - inside
        text.append(f"; the other {passed:,} are only passed through." if passed else ".")
        if len(found.components) > 1:
            text.append(" Where one settles decides what is earned, so the optimum may need a draw at the start.")
    return text


def diagnosis_data(name: str, cmdp: CMDP, found: Diagnosis, separated: Sequence[Separation] | None) -> dict[str, Any]:
    """All that `diagnose` found; "separation" is null where it was not computed."""
    return {
        "env": name,
        "steps": cmdp.criterion.horizon,
        "states": cmdp.S,
        "actions": cmdp.A,
        **(_components(found) if isinstance(found, StationaryDiagnosis) else {}),
        "reachable": found.reachable,
        "pairs": found.pairs,
        "feasible": found.feasible,
        "slater_slack": found.slater_slack,
        "ranges": range_table(found.ranges).data(),
        "value": None if found.solution is None else found.solution.value,
        "constraints": None if found.solution is None else constraint_table(found.solution).data(),
        "binding": list(found.binding),
        "conflict": [] if found.infeasible is None else list(found.infeasible.conflict),
        "sigma_min": None if found.solution is None else least_sigma(found.solution, separated or ()),
        "separation": None if separated is None else separation_table(separated).data(),
    }


def _components(found: StationaryDiagnosis) -> dict[str, Any]:
    """Where one can stay; of long lists of states only the beginning, and how many there are."""
    cut = f"lists of states end after {MOST_LISTED:,} names; cmdpkit.diagnose(model) has all of them"
    return {
        "end_components": [listed(part) for part in found.components],
        "end_component_sizes": [len(part) for part in found.components],
        "left_out": cut if any(len(names) > MOST_LISTED for names in found.components) else None,
    }


# -- trade-offs --------------------------------------------------------------------------------------------------------


def tradeoff_table(found: Tradeoff) -> Table[dict[str, Any]]:
    """One row per bound that was tried and can be met: the best value and the price there."""
    c = found.constraint
    rows = [{**row, "utilities": totals} for row, totals in zip(found.rows(), found.utilities.tolist(), strict=True)]
    return Table(f"the best value for every bound on {label(c.name)}", (
        numbers("bound", f"{label(c.name)} {c.symbol}{c.unit}", "The bound, in the unit in which it was given.",
                lambda p: p["bound"]),
        numbers("bound_total", "in all", "The bound on the value by the model's criterion.",
                lambda p: p["bound"] * c.scale, shown=c.scale != 1),
        numbers("value", "value", "The best value within it.", lambda p: p["value"]),
        numbers("price", "price", "What relaxing it by one unit would gain.", lambda p: p["price"]),
        Column("utilities", "", "The totals of all constraints there.", lambda p: p["utilities"], shown=False),
    ), tuple(rows))  # fmt: skip


def tradeoff(name: str, found: Tradeoff) -> RenderableType:
    """The best value for every bound, as numbers and as bars."""
    c = found.constraint
    title = Text.assemble((label(name), "bold"), f": the best value for every bound on {label(c.name)}")
    parts: list[RenderableType] = [title, Text(f"The model itself asks for {bounded(c)}.", style=QUIET)]
    if len(found.values):
        parts += [EMPTY_LINE, TerminalTable(_with_bars(tradeoff_table(found)))]
    if len(found.infeasible):
        unmet = ", ".join(f"{c.symbol} {number(bound)}" for bound in found.infeasible.tolist())
        parts += [EMPTY_LINE, Text(f"No policy meets {unmet}{c.unit}.", style="red")]
    return Group(*parts)


def _with_bars(table: Table[dict[str, Any]]) -> Table[dict[str, Any]]:
    """The table with a bar from 0 to every value."""
    values = [0.0, *(row["value"] for row in table.rows)]
    low, spread = min(values), (max(values) - min(values)) or 1.0
    width = max(LEAST_BAR, min(BAR_WIDTH, line_width() - TABLE_WIDTH))

    def drawn(value: float) -> str:
        return bar((min(value, 0.0) - low) / spread, (max(value, 0.0) - low) / spread, width)

    column: Column[dict[str, Any]] = Column("bar", "", "The value as a bar.", lambda row: row["value"], each(drawn))
    return replace(table, columns=(*table.columns, column))


def bar(first: float, last: float, width: int = BAR_WIDTH) -> str:
    """A bar between two shares of the width; one that begins at 0 is never quite empty, and is as long as
    eighths of a cell allow.

    >>> bar(0.0, 0.5, 4), bar(0.0, 0.0, 4), bar(0.25, 1.0, 4)
    ('██', '▏', ' ███')
    """
    blank = round(width * first)
    whole, eighths = divmod(max(1 if blank == 0 else 0, round(8 * width * last) - 8 * blank), 8)
    return " " * blank + "█" * whole + EIGHTHS[eighths].strip()


def tradeoff_data(name: str, found: Tradeoff) -> dict[str, Any]:
    """The curve, point by point, and the bounds no policy meets."""
    return {
        "env": name,
        "constraint": found.name,
        "points": tradeoff_table(found).data(),
        "infeasible": found.infeasible.tolist(),
    }
