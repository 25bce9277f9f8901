"""Results for the terminal: pure functions from a Solution, Diagnosis or Tradeoff to something rich can print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cmdpkit.exact.diagnosis import Diagnosis, Range, Separation, Tradeoff
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.stationary.diagnosis import StationaryDiagnosis
from cmdpkit.exact.stationary.solution import StationarySolution
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import NEGLIGIBLE
from cmdpkit.results.text import stationary
from cmdpkit.results.text.policies import DRAWN, QUIET, TAKEN, plain_table, right, view
from cmdpkit.results.text.wording import aligned, counted, duration, label, number, odds, percent, titled

BAR = 40  # characters of a drawing
MOST_ROWS = 12  # of the separation table
ROUNDING = 1e-9  # relative to the bound; a smaller slack is shown as 0
EIGHTHS = " ▏▎▍▌▋▊▉"
GAP = Text()  # an empty line


# -- environments ------------------------------------------------------------------------------------------------------


def environments(described: Mapping[str, str]) -> RenderableType:
    """Names and what they are."""
    hint = "`cmdpkit envs NAME` shows what can be changed, `cmdpkit solve NAME:parameter=value,...` changes it."
    return Group(_pairs(described), GAP, Text(hint, style=QUIET))


def parameters(name: str, line: str, defaults: Mapping[str, object]) -> RenderableType:
    """One environment and what can be changed about it."""
    table = _pairs({f"  {parameter}": str(default) for parameter, default in defaults.items()})
    return Group(Text.assemble((name, "bold"), f": {line}"), GAP, Text("Parameters and their defaults:"), table)


def _pairs(rows: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, line in rows.items():
        table.add_row(Text(name, style=TAKEN), Text(line))
    return table


# -- solutions ---------------------------------------------------------------------------------------------------------


def solution(name: str, found: Solution, width: int = 100) -> RenderableType:
    """Optimum, constraints, stochastic decisions, policy and the proof."""
    if isinstance(found, StationarySolution):
        return stationary.solution(name, found)
    headline = Text.assemble((label(name), "bold"), ": optimal value ", (number(found.value), "bold green"))
    bounds: list[RenderableType] = [GAP, _constraints(found)] if found.cmdp.N else []
    return Group(headline, *bounds, GAP, _chances(found), GAP, view(found, width), GAP, _certificate(found))


def _constraints(found: Solution) -> Table:
    cs = found.cmdp.constraints
    table = plain_table("constraint", right("total"), "bound", right("slack"), right("price"), "")
    slacks = [_slack(c.sign * (u - c.bound), c.bound) for c, u in zip(cs, found.utilities.tolist(), strict=True)]
    columns = (aligned(found.utilities), aligned(slacks), aligned(found.shadow_prices), found.shadow_prices)
    for c, total, slack, price, lam in zip(cs, *columns, strict=True):
        binds = Text("binding", style=DRAWN) if lam > NEGLIGIBLE else Text("not binding", style=QUIET)
        table.add_row(Text(label(c.name)), total, f"{c.symbol} {number(c.bound)}", slack, price, binds)
    return table


def _slack(left: float, bound: float) -> float:
    return 0.0 if abs(left) <= ROUNDING * max(1.0, abs(bound)) else left


def _chances(found: Solution) -> RenderableType:
    decisions = found.stochastic_decisions()
    if not decisions:
        return Text("The policy is deterministic.")
    places = "one place" if len(decisions) == 1 else f"{len(decisions)} places"
    lines = [f"  step {d.step}, {titled('state', d.state)}: {odds(d.probabilities)}" for d in decisions]
    title = Text(f"The policy draws at {places} and is deterministic everywhere else:")
    return Group(title, *(Text(line, style=DRAWN) for line in lines))


def _certificate(found: Solution) -> Text:
    method = {"columns": "column generation", "lp": "occupancy LP"}[found.method]
    return Text(f"Proved optimal to within {found.gap:.2g} ({method}, {duration(found.seconds)}).", style=QUIET)


# -- diagnoses ---------------------------------------------------------------------------------------------------------


def diagnosis(name: str, cmdp: CMDP, found: Diagnosis) -> RenderableType:
    """Sizes, feasibility, and where every bound sits."""
    bounds: list[RenderableType] = [GAP, _bounds(found), _legend(found.ranges)] if found.ranges else []
    return Group(_sizes(name, cmdp, found), GAP, _verdict(cmdp, found), *bounds)


def _sizes(name: str, cmdp: CMDP, found: Diagnosis) -> Text:
    if isinstance(found, StationaryDiagnosis):
        return stationary.sizes(name, cmdp, found)
    sizes = [counted(n, noun) for n, noun in ((cmdp.H, "step"), (cmdp.S, "state"), (cmdp.A, "action"))]
    if not cmdp.compact.allowed.all():
        sizes[2] += " (not all of them everywhere)"
    return Text.assemble(
        (label(name), "bold"),
        f" is valid: {', '.join(sizes)}, {counted(cmdp.N, 'constraint')}.\n",
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


def _bounds(found: Diagnosis) -> RenderableType:
    """For every bound a headline, the drawing between its ends, and the numbers in words."""
    ends = [(number(r.worst), number(r.best_alone)) for r in found.ranges]
    left = max(len(worst) for worst, _ in ends)
    prices = [None] * len(ends) if found.solution is None else found.solution.shadow_prices.tolist()
    parts: list[RenderableType] = []
    for r, (worst, best), price in zip(found.ranges, ends, prices, strict=True):
        bar = Text.assemble(f"  {worst:>{left}} ", drawn_range(r), f" {best}")
        parts += [_headline(r, price), bar, Text(f"  {_in_words(r)}", style=QUIET), GAP]
    return Group(*parts)


def _headline(r: Range, price: float | None) -> Text:
    bound = (f"{label(r.name)} {'≥' if r.sense == 'at_least' else '≤'} {number(r.bound)}", "bold")
    if price is None:
        return Text.assemble(bound)
    if price <= NEGLIGIBLE:
        return Text.assemble(bound, (" does not bind", QUIET))
    return Text.assemble(bound, (" binds", DRAWN), f": relaxing it gains {number(price)} per unit")


def _in_words(r: Range) -> str:
    to = "up to" if r.sense == "at_least" else "down to"
    worst, free, strictest, best = map(number, (r.worst, r.indifferent, r.strictest, r.best_alone))
    alone = f" (alone {to} {best})" if best != strictest else ""
    return f"met by any policy {to} {worst}, for free {to} {free}, at a price {to} {strictest}{alone}"


def drawn_range(r: Range, width: int = BAR) -> Text:
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
        used = int((found.occupancy > NEGLIGIBLE).sum())
        skipped = f"The optimum uses {used:,} actions; what each is worth takes long to find out (--separation)."
        return Group(GAP, Text(skipped, style=QUIET))
    choices = sorted((r for r in rows if math.isfinite(r.sigma)), key=lambda r: (r.sigma, r.value_loss))
    if not choices:
        return Group(GAP, Text("There is no choice anywhere: every action of the optimum is the only one there."))
    hidden, forced = max(0, len(choices) - MOST_ROWS), len(rows) - len(choices)
    notes = ["sigma: the least by which the value or some bound is missed without the action."]
    notes += [f"Not shown: {hidden:,} that are needed more (--json lists all)."] * (hidden > 0)
    notes += [f"Not shown: {forced:,} without an alternative."] * (forced > 0)
    title = Text("What dropping an action of the optimum costs, the least needed first:")
    return Group(GAP, title, GAP, _losses(choices[:MOST_ROWS]), GAP, *(Text(note, style=QUIET) for note in notes))


def _losses(rows: Sequence[Separation]) -> Table:
    timed = any(r.step is not None for r in rows)
    table = plain_table(
        *[right("step")] * timed, "state", "action", right("probability"), right("value lost"), right("sigma")
    )
    columns = (aligned(r.value_loss for r in rows), aligned(r.sigma for r in rows))
    for r, loss, sigma in zip(rows, *columns, strict=True):
        loss = loss if math.isfinite(r.value_loss) else "infeasible"
        table.add_row(
            *[str(r.step)] * timed, Text(label(r.state)), Text(label(r.action)), percent(r.probability), loss, sigma
        )
    return table


# -- trade-offs --------------------------------------------------------------------------------------------------------


def tradeoff(name: str, cmdp: CMDP, found: Tradeoff) -> RenderableType:
    """The best value for every bound, as numbers and as bars from the least value to the greatest."""
    c = cmdp.constraints[cmdp.constraint_index(found.name)]
    title = Text.assemble((label(name), "bold"), f": the best value for every bound on {label(c.name)}")
    parts: list[RenderableType] = [title, Text(f"The model itself asks for {c.symbol} {number(c.bound)}.", style=QUIET)]
    if len(found.values):
        parts += [GAP, _curve(found, f"{label(c.name)} {c.symbol}")]
    if len(found.infeasible):
        unmet = ", ".join(f"{c.symbol} {number(bound)}" for bound in found.infeasible.tolist())
        parts += [GAP, Text(f"No policy meets {unmet}.", style="red")]
    return Group(*parts)


def _curve(found: Tradeoff, heading: str) -> Table:
    table = plain_table(right(heading), right("value"), right("price"), "")
    low = float(found.values.min())
    span = float(found.values.max()) - low
    columns = (aligned(found.bounds), aligned(found.values), aligned(found.prices), found.values.tolist())
    for bound, value, price, v in zip(*columns, strict=True):
        table.add_row(bound, value, price, Text(bar((v - low) / span if span > 0 else 1.0), style="cyan"))
    return table


def bar(share: float, width: int = BAR) -> str:
    """A bar of ``share`` of the width, to an eighth of a character; never quite empty.

    >>> bar(0.5, 4), bar(0.0, 4)
    ('██', '▏')
    """
    whole, eighths = divmod(max(1, round(8 * width * share)), 8)
    return "█" * whole + EIGHTHS[eighths].strip()
