"""Diagnoses and trade-offs for the terminal: where every bound sits, what each action is worth, what a bound buys."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.errors import remedy
from cmdpkit.exact.diagnosis import Diagnosis, Separation, StationaryDiagnosis
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.ranges import Range
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model.cmdp import CMDP
from cmdpkit.results.model_tables import SYMBOLS, Met, constraint_table, separation_table, tradeoff_table
from cmdpkit.results.tables import Column, Table, each
from cmdpkit.results.text import stationary
from cmdpkit.results.text.layout import DRAWN, EMPTY_LINE, QUIET, TerminalTable
from cmdpkit.results.wording import bounded, counted, label, number, rounded_off, sizes

ROUNDING = 1e-9  # of the width of a drawing: a bound this little outside is drawn inside
BAR_WIDTH = 40  # characters of a drawing
MOST_SEPARATIONS = 12  # rows of the table of separations
EIGHTHS = " ▏▎▍▌▋▊▉"


# -- diagnoses ---------------------------------------------------------------------------------------------------------


def diagnosis(name: str, cmdp: CMDP, found: Diagnosis) -> RenderableType:
    """Sizes, feasibility, and where every bound sits."""
    bounds: list[RenderableType] = [EMPTY_LINE, _bounds(found), _legend(found.ranges)] if found.ranges else []
    return Group(_sizes(name, cmdp, found), EMPTY_LINE, _verdict(cmdp, found), *bounds)


def _sizes(name: str, cmdp: CMDP, found: Diagnosis) -> Text:
    if isinstance(found, StationaryDiagnosis):
        return stationary.sizes(name, cmdp, found)
    return Text.assemble(
        (label(name), "bold"),
        f" is valid: {', '.join([counted(cmdp.H, 'step'), *sizes(cmdp)])}.\n",
        f"{found.reachable:,} of {found.pairs:,} (step, state) pairs can be reached.",
    )


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
        parts += [_headline(r, at_optimum), bar, Text(f"  {_in_words(r)}", style=QUIET), EMPTY_LINE]
    return Group(*parts)


def _headline(r: Range, met: Met | None) -> Text:
    unit = " per step" if r.per_step else ""
    bound = (f"{label(r.name)} {SYMBOLS[r.sense]} {number(r.bound)}{unit}", "bold")
    if met is None:
        return Text.assemble(bound)
    if not met.binding:
        return Text.assemble(bound, (" does not bind", QUIET))
    return Text.assemble(bound, (" binds", DRAWN), f": relaxing it gains {number(met.price)} per unit{unit}")


def _in_words(r: Range) -> str:
    to = "up to" if r.sense == "at_least" else "down to"
    worst, free, strictest, best = map(number, (r.worst, r.indifferent, r.strictest, r.best_alone))
    alone = f" (alone {to} {best})" if best != strictest else ""
    return f"met by any policy {to} {worst}, for free {to} {free}, at a price {to} {strictest}{alone}"


def drawn_range(r: Range, width: int = BAR_WIDTH) -> Text:
    """Where a bound sits between what any policy meets (left) and what none meets (right)."""

    def place(x: float) -> float:
        return (x - r.worst) / (r.best_alone - r.worst) if r.best_alone != r.worst else 0.5

    free = min(max(round(place(r.indifferent) * width), 0), width)
    possible = min(max(round(place(r.strictest) * width), free), width)
    bar = Text.assemble(" ", *_zones(free, possible - free, width - possible), " ")
    at = place(r.bound)
    if at < -ROUNDING or at > 1 + ROUNDING:  # outside: beside the bar
        cell = 0 if at < 0 else width + 1
    else:
        cell = 1 + min(max(math.floor(at * width), 0), width - 1)
    return bar[:cell] + Text("◆", style="bold") + bar[cell + 1 :]


def _zones(free: int, priced: int, excluded: int) -> tuple[tuple[str, str], ...]:
    return ("─" * free, "green"), ("━" * priced, "yellow"), ("╌" * excluded, "red")


def _legend(ranges: Sequence[Range]) -> Text:
    free, priced, excluded = _zones(1, 1, 1)
    words: list[str | tuple[str, str]] = [free, " changes nothing   ", priced, " costs reward   "]
    if any(number(r.best_alone) != number(r.strictest) for r in ranges):
        words += [excluded, " excluded by the other bounds   "]
    return Text.assemble(*words, ("◆", "bold"), " the bound")


def separation(found: Solution, rows: Sequence[Separation] | None) -> RenderableType:
    """What each action of the optimum is worth, the least needed first; None stands for not computed.

    Where a state has one action only, there is nothing to tell apart, and its row is only counted.
    """
    if rows is None:
        used = found.used
        how = remedy("cmdpkit.diagnose(model, separation=True)", "--separation")
        skipped = f"The optimum uses {used:,} actions; computing what each is worth is slow: {how}."
        return Group(EMPTY_LINE, Text(skipped, style=QUIET))
    choices = sorted((r for r in rows if math.isfinite(r.sigma)), key=lambda r: (r.sigma, r.value_loss))
    if not choices:
        return Group(
            EMPTY_LINE, Text("There is no choice anywhere: every action of the optimum is the only one there.")
        )
    hidden, forced = max(0, len(choices) - MOST_SEPARATIONS), len(rows) - len(choices)
    notes = ["sigma: the least by which the value or some bound is missed without the action."]
    if len(rows) < found.used:
        notes += [f"Looked at: {len(rows):,} of {found.used:,} actions in use, those drawn or taken most often "
                  f"({remedy('separation=True', '--separation')} looks at all)."]  # fmt: skip
    everything = remedy("diagnosis.separation", "--json")
    notes += [f"Not shown: {hidden:,} that are needed more ({everything} lists all)."] * (hidden > 0)
    notes += [f"Not shown: {forced:,} without an alternative."] * (forced > 0)
    title = Text("What dropping an action of the optimum costs, the least needed first:")
    table = TerminalTable(separation_table(choices[:MOST_SEPARATIONS]))
    return Group(EMPTY_LINE, title, EMPTY_LINE, table, EMPTY_LINE, *(Text(note, style=QUIET) for note in notes))


# -- trade-offs --------------------------------------------------------------------------------------------------------


def tradeoff(name: str, found: Tradeoff) -> RenderableType:
    """The best value for every bound, as numbers and as bars from the least value to the greatest."""
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
    """The table with a bar for every value, from the least to the greatest."""
    values = [row["value"] for row in table.rows]
    low, spread = min(values), max(values) - min(values)

    def drawn(value: float) -> str:
        return bar((value - low) / spread if spread > 0 else 1.0)

    column: Column[dict[str, Any]] = Column("bar", "", "The value as a bar.", lambda row: row["value"], each(drawn))
    return replace(table, columns=(*table.columns, column))


def bar(share: float, width: int = BAR_WIDTH) -> str:
    """A bar of ``share`` of the width, to an eighth of a character; never quite empty.

    >>> bar(0.5, 4), bar(0.0, 4)
    ('██', '▏')
    """
    whole, eighths = divmod(max(1, round(8 * width * share)), 8)
    return "█" * whole + EIGHTHS[eighths].strip()
