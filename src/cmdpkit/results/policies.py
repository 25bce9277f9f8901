"""Policies: drawn as a board, a table of decisions or a summary, and compared, explained and played over many episodes.

Of a solution, only what its policy can meet is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from cmdpkit.errors import remedy
from cmdpkit.exact.comparison import Difference, Explanation, Judged, Option, PolicyComparison
from cmdpkit.exact.solver import Solution
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Name, written_name
from cmdpkit.operators.policies import action_uses
from cmdpkit.results.tables import (
    DRAWN,
    EMPTY_LINE,
    QUIET,
    TAKEN,
    Column,
    Table,
    TerminalTable,
    each,
    numbers,
    odds,
    plain_table,
    right,
)
from cmdpkit.results.wording import bounded, counted, drawn, label, number, percent, ranges, short, titled
from cmdpkit.simulate.distribution import Simulation, TotalShare, exact_distribution

MOST_ROWS = 40  # of a table or a board
MOST_DECISIONS = 2_000  # of a policy by itself that is printed
MOST_BOARDS = 12  # different ones; further steps are only counted
MOST_DIFFERENCES = 15  # rows of the table of differences
MOST_STEP_LETTERS = 12  # characters of a list of steps
MOST_NAMED = 2  # actions of a random decision that are named in a table
MOST_UNITS = 100_000  # between the smallest and the largest value of a histogram
OFF_UNIT = 1e-3  # units by which a value may miss a multiple

Decided = tuple[str, ...]  # the actions of a decision, none where it is never met
Cell = tuple[str, Decided, str]  # mark, actions, odds


def view(solution: Solution, width: int = 100) -> RenderableType:
    """The optimal policy, drawn as well as its size allows on ``width`` columns."""
    cmdp = solution.cmdp
    reached = solution.reach > NEGLIGIBLE
    if cmdp.grid is not None and cmdp.grid.rows <= MOST_ROWS and cmdp.grid.columns <= width:
        boards = _boards(solution, cmdp.grid, reached)
        if max(_width(board) for board in boards) <= width:
            return Columns(boards, padding=(1, 2))
    if reached.any(axis=0).sum() > MOST_ROWS:
        return _summary(solution, reached)
    names = [label(a) for a in cmdp.action_names]

    def done(h: int, s: int) -> Decided:
        return _actions(solution, names, h, s) if reached[h, s] else ()

    listed = [int(s) for s in np.flatnonzero(reached.any(axis=0))]
    table, left = _by_state(solution.policy, listed, done), cmdp.S - len(listed)
    note = Text(f"{left:,} of {cmdp.S:,} states are never reached and left out", style=QUIET)
    return Group(table, Text(), note) if left else table


def save_hint() -> str:
    """How to write a policy to a file."""
    return remedy("cmdpkit.write_policy(solution, file)", "--save-policy FILE")


def draws(found: Solution) -> RenderableType:
    """Where the policy randomises; where there are many such decisions, how many."""
    decisions = found.stochastic_decisions()
    if not decisions:
        return Text("The policy is deterministic.")
    at, noun = ("at", "place") if found.cmdp.criterion.has_horizon else ("in", "state")
    places = f"{at} one {noun}" if len(decisions) == 1 else f"{at} {len(decisions):,} {noun}s"
    if len(decisions) > MOST_ROWS:
        return Text(f"The policy randomises {places}.")
    title = Text(f"The policy randomises {places} and is deterministic everywhere else:")
    return Group(title, *(Text(f"  {drawn(d)}", style=DRAWN) for d in decisions))


def _width(renderable: RenderableType) -> int:
    return Console(width=10_000).measure(renderable).maximum


def _actions(solution: Solution, names: Sequence[str], h: int, s: int) -> Decided:
    """What the policy may do at (h, s)."""
    return tuple(names[int(a)] for a in np.flatnonzero(solution.policy.row(h, s) > NEGLIGIBLE))


def _named_steps(steps: Sequence[int]) -> str:
    """Steps, given from 0, as people count them."""
    return f"step{'s' * (len(steps) > 1)} {ranges(h + 1 for h in steps)}"


# -- boards ------------------------------------------------------------------------------------------------------------


def _boards(solution: Solution, grid: Grid, reached: BoolArray) -> list[RenderableType]:
    """One picture per step; neighbouring steps that look the same share one."""
    H, S, _ = solution.policy.shape
    pictures = [
        tuple(_cell(solution, grid, h, s) if reached[h, s] else (grid.marks.get(s, "."), (), "") for s in range(S))
        for h in range(H)
    ]
    size = max(len(mark + "".join(actions)) for picture in pictures for mark, actions, _ in picture)
    runs = [[h for h, _ in run] for _, run in groupby(enumerate(pictures), key=lambda pair: pair[1])]
    titles = map(_named_steps, runs)
    boards = [_board(grid, pictures[run[0]], size, x) for run, x in zip(runs, titles, strict=True)][:MOST_BOARDS]
    if len(runs) > MOST_BOARDS:
        boards.append(Text(f"… and {H - runs[MOST_BOARDS][0]} more steps", style=QUIET))
    return boards


def _cell(solution: Solution, grid: Grid, h: int, s: int) -> Cell:
    """A cell that is reached: its mark, the arrows, and how likely each is if there are several."""
    arrows = grid.arrows or tuple(label(a) for a in solution.cmdp.action_names)
    actions = _actions(solution, arrows, h, s)
    row = solution.policy.row(h, s)
    odds = "  ".join(f"{arrow} {percent(float(p))}" for arrow, p in zip(arrows, row, strict=True) if p > NEGLIGIBLE)
    line = f"{label(solution.cmdp.states[s])}: {odds}" if len(actions) > 1 else ""
    return grid.marks.get(s, ""), actions, line


def _board(grid: Grid, picture: Sequence[Cell], size: int, title: str) -> RenderableType:
    cells = [[Text(" " * size) for _ in range(grid.columns)] for _ in range(grid.rows)]
    for (row, column), (mark, actions, _) in zip(grid.cells, picture, strict=True):
        style = DRAWN if len(actions) > 1 else TAKEN
        cell = Text.assemble((mark, QUIET if mark == "." else ""), ("".join(actions), style))
        cell.align("left", size)
        cells[row][column] = cell
    lines = Text("\n").join(Text(" ").join(row) for row in cells)
    below = [Text(odds, style=DRAWN) for _, _, odds in picture if odds]
    return Group(Panel.fit(lines, title=title, border_style=QUIET), *below)


# -- tables ------------------------------------------------------------------------------------------------------------


def _by_state(policy: Policy, listed: Iterable[int], done: Callable[[int, int], Decided]) -> RichTable:
    """One line per state: what is done, and at which steps. It stays narrow, however many steps there are."""
    table = plain_table("state", "action")
    for s in listed:
        when: dict[Decided, list[int]] = {}
        for h in range(policy.shape[0]):
            when.setdefault(done(h, s), []).append(h)
        when.pop((), None)
        places = {actions: "" if policy.is_stationary else f" ({_named_steps(at)})" for actions, at in when.items()}
        line = [Text.assemble(_decision(actions), (place, QUIET)) for actions, place in places.items()]
        table.add_row(Text(label(policy.states[s])), Text(", ").join(line))
    return table


def _decision(actions: Decided) -> Text:
    return Text(" / ".join(actions), style=DRAWN if len(actions) > 1 else "")


def _summary(solution: Solution, reached: BoolArray) -> RenderableType:
    """How often each action is taken, for policies too large to print."""
    cmdp = solution.cmdp
    uses = action_uses(cmdp, solution.policy)
    size = f"{cmdp.S:,} states x {cmdp.H:,} steps, of which {int(reached.sum()):,} are reached"
    return uses_of_actions(f"The policy ({size}) is too large", cmdp, uses, "uses per episode", "{:.4f}".format)


def uses_of_actions(
    what: str, cmdp: CMDP, uses: FloatArray, heading: str, write: Callable[[float], str]
) -> RenderableType:
    """In place of a policy that is too large to print: how often each action is taken, the most frequent first."""
    table = plain_table("action", right(heading))
    for a in np.argsort(-uses, kind="stable")[:MOST_ROWS]:
        table.add_row(Text(label(cmdp.action_names[int(a)])), write(float(uses[a])))
    return Group(Text(f"{what} to print; {save_hint()} writes it (.csv .json .npz .md .py)."), Text(), table)


# -- a policy by itself ------------------------------------------------------------------------------------------------


def policy_text(policy: Policy) -> RenderableType:
    """Every decision of a policy, whether it is met or not."""
    S, A = len(policy.states), len(policy.action_names)
    length = "Stationary policy" if policy.is_stationary else f"Policy for {counted(policy.horizon, 'step')}"
    title = Text(f"{length}, {counted(S, 'state')}, {counted(A, 'action')}.")
    if policy.choice.size > MOST_DECISIONS:
        return Group(title, Text("It is too large to print; cmdpkit.write_policy writes it to a file.", style=QUIET))

    def done(h: int, s: int) -> Decided:
        row = policy.row(h, s)
        used = [(label(policy.action_names[int(a)]), float(row[a])) for a in np.flatnonzero(row)]
        return tuple(name if len(used) == 1 else f"{percent(p)} {name}" for name, p in used)

    return Group(title, EMPTY_LINE, _by_state(policy, range(S), done))


# -- comparisons -------------------------------------------------------------------------------------------------------


def with_optimum(found: PolicyComparison) -> tuple[Judged, ...]:
    """The policies, and the optimum as the last one."""
    best = found.optimum
    return (*found.policies, Judged("optimum", best.value, best.utilities, (True,) * best.cmdp.N, 0.0, 0.0))


def judged_table(found: PolicyComparison) -> Table[Judged]:
    """One row per policy, and one for the optimum: totals, violated bounds, and the loss."""
    cmdp = found.optimum.cmdp
    return Table("policies beside the optimum", (
        Column("name", "policy", "The policy.", lambda x: x.name, tone=lambda _: "name"),
        numbers("value", "value", "Its expected reward.", lambda x: x.value),
        *(_total(cmdp, n) for n in range(cmdp.N)),
        numbers("below", "below the optimum", "The optimal value less this one.", lambda x: x.below),
        numbers("priced", "at the prices",
                "The same, plus what its other totals fall short of the optimum's, at the prices of the bounds.",
                lambda x: x.priced),
        Column("met", "bounds", "Whether all bounds are met.", lambda x: all(x.met),
               each(lambda met: "met" if met else "violated"), tone=lambda x: "" if all(x.met) else "alert"),
    ), with_optimum(found))  # fmt: skip


def _total(cmdp: CMDP, n: int) -> Column[Judged]:
    c = cmdp.constraints[n]
    heading = f"{label(c.name)} {bounded(c)}"
    return numbers(f"total_{n + 1}", heading, "The expected total of this constraint.", lambda x: float(x.utilities[n]),
                   tone=lambda x: "" if x.met[n] else "alert")  # fmt: skip


def difference_table(rows: Sequence[Difference]) -> Table[Difference]:
    """Where policies decide otherwise than the optimum, and what that costs."""
    return Table("what the differences cost", (
        Column("name", "policy", "The policy.", lambda x: x.name),
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("steps", "steps", "The steps, from 1.", lambda x: list(x.steps), each(_steps)),
        Column("does", "does", "What the policy does there.", lambda x: _texts(x.does), each(_written)),
        Column("optimum", "optimum", "What the optimum does there.", lambda x: _texts(x.optimum), each(_written)),
        numbers("visits", "visits", "How often the policy gets there, per episode.", lambda x: x.visits, each(short)),
        numbers("cost", "costs", "What it costs per episode, at the prices of the bounds.", lambda x: x.cost),
    ), tuple(rows))  # fmt: skip


def _steps(steps: Sequence[int]) -> str:
    """The steps of a difference, or their ends and number where they are scattered."""
    text = ranges(steps)
    return text if len(text) <= MOST_STEP_LETTERS else f"{len(steps)} of {steps[0]}–{steps[-1]}"


def _texts(probabilities: Mapping[Name, float]) -> dict[str | int, float]:
    return {written_name(action): p for action, p in probabilities.items()}


def _written(probabilities: Mapping[Name, float]) -> str:
    if len(probabilities) == 1:
        return label(next(iter(probabilities)))
    if len(probabilities) > MOST_NAMED:
        return f"draws from {len(probabilities)} actions"
    return ", ".join(f"{percent(p)} {label(a)}" for a, p in probabilities.items())


def comparison(found: PolicyComparison) -> RenderableType:
    """Policies and the optimum side by side, and where they differ."""
    parts: list[RenderableType] = [TerminalTable(judged_table(found))]
    rows = found.differences
    if rows:
        total = sum(x.cost for x in rows)
        text = f"{counted(len(rows), 'difference')} cost {number(total)} per episode, at the prices of the bounds:"
        parts += [EMPTY_LINE, Text(text), EMPTY_LINE, TerminalTable(difference_table(rows[:MOST_DIFFERENCES]))]
        if len(rows) > MOST_DIFFERENCES:
            parts.append(Text(f"… and {len(rows) - MOST_DIFFERENCES:,} more", style=QUIET))
    elif not found.optimum.cmdp.criterion.has_horizon:
        parts += [EMPTY_LINE, Text("Without a horizon, differences are not listed decision by decision.", style=QUIET)]
    else:
        parts += [EMPTY_LINE, Text("No decision costs anything at the prices of the bounds.")]
    return Group(*parts)


# -- explanations ------------------------------------------------------------------------------------------------------


def option_table(found: Explanation) -> Table[Option]:
    """The actions in a state, the best first."""
    return Table("actions", (
        Column("action", "action", "The action.", lambda x: written_name(x.action)),
        numbers("probability", "taken", "How often the policy takes it there.", lambda x: x.probability, odds),
        numbers("value", "value", "The reward from here on.", lambda x: x.value),
        *(_ahead(found.cmdp, n) for n in range(found.cmdp.N)),
        numbers("priced", "at the prices", "Value and other totals together, at the prices of the bounds.",
                lambda x: x.priced),
        numbers("loses", "loses", "What it loses against the best action.", lambda x: x.loses),
    ), found.options)  # fmt: skip


def _ahead(cmdp: CMDP, n: int) -> Column[Option]:
    name = label(cmdp.constraints[n].name)
    explained = "The total of this constraint from here on."
    return numbers(f"total_{n + 1}", name, explained, lambda x: float(x.utilities[n]))


def explanation(found: Explanation) -> RenderableType:
    """Why a policy does what it does somewhere."""
    step = "" if found.step is None else f"step {found.step}, "
    where = Text.assemble((f"{step}{titled('state', found.state)}", "bold"))
    where.append(f": {_reached(found)}. {found.why}.")
    prices = ", ".join(
        f"{label(c.name)} {number(float(p))}{' for 1 more per step' * c.per_step}"
        for c, p in zip(found.cmdp.constraints, found.prices, strict=True)
    )
    note = [Text(f"Prices of the bounds: {prices}.", style=QUIET)] if prices else []
    return Group(where, EMPTY_LINE, TerminalTable(option_table(found)), EMPTY_LINE, *note)


def _reached(found: Explanation) -> str:
    if found.step is not None:
        return f"reached in {percent(found.reach)} of the episodes"
    if found.cmdp.criterion.kind == "total":
        return f"visited {number(found.reach)} times"
    return f"{percent(found.reach)} of the time is spent there"


# -- simulations -------------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """How a total is distributed over episodes."""

    plan: str  # what the policy is called, where there are several
    name: str  # of the total
    mean: float  # over the episodes
    quantiles: tuple[float, ...]  # totals that 5, 25, 50, 75 and 95 % of the episodes do not exceed
    limit: Constraint | None  # the bound on the mean
    missed: TotalShare | None  # probability that one episode misses it
    exact: float | None  # the same without chance, where totals are counted in units
    known_by: str  # "outcomes", or "means" where outcomes vary more than this


def spread_table(played: Mapping[str, Simulation]) -> Table[Spread]:
    """One row per total and policy: mean, quantiles, and how often an episode misses the bound."""
    first = next(iter(played.values()))
    totals = zip(first.totals, (None, *first.cmdp.constraints), strict=True)
    rows = [_spread(plan, x, name, c) for name, c in totals for plan, x in played.items()]
    plans = [Column[Spread]("plan", "plan", "Whose episodes these are.", lambda x: x.plan)] if any(played) else []
    at = ("5 %", "25 %", "50 %", "75 %", "95 %")
    return Table("totals of single episodes", (
        Column("name", "total", "The reward or the constraint.", lambda x: x.name),
        *plans,
        numbers("mean", "mean", "The mean over the episodes.", lambda x: x.mean),
        *(_quantile(i, name) for i, name in enumerate(at)),
        numbers("limit", "bound", "The bound on the mean.", lambda x: x.limit, each(bounded),
                data=lambda key, c: {key: None if c is None else c.bound_on_total}),
        Column("missed", "episodes beyond it", "How often an episode misses the bound, with an interval of 95 %.",
               lambda x: x.missed, each(lambda x: f"{percent(x.low)} to {percent(x.high)}"), "right",
               data=lambda key, x: {key: None if x is None else x._asdict()}),
        numbers("exact", "exactly", "The same, exactly.", lambda x: x.exact, odds),
        Column("known_by", "known by", "What the model knows: outcomes, or only means, and then outcomes vary more.",
               lambda x: x.known_by, shown=False),
    ), tuple(rows))  # fmt: skip


def _quantile(i: int, heading: str) -> Column[Any]:
    meaning = f"{heading} of the episodes stay below it."
    return numbers(f"quantile_{heading[:-2]}", heading, meaning, lambda x: x.quantiles[i])


def _spread(plan: str, played: Simulation, name: str, c: Constraint | None) -> Spread:
    totals = played.totals[name]
    mean, quantiles = float(totals.mean()), tuple(np.quantile(totals, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist())
    known_by = "means" if name in played.of_means else "outcomes"
    if c is None:
        return Spread(plan, name, mean, quantiles, None, None, None, known_by)
    counted = None
    if isinstance(played.cmdp, CMDP) and known_by == "outcomes" and played.cmdp.criterion.has_horizon:
        counted = exact_distribution(played.cmdp, played.policy, name) if name in played.cmdp.exact else None
    side = "above" if c.sense == "at_most" else "below"
    exact = None if counted is None else getattr(counted, side)(c.bound_on_total)
    return Spread(plan, name, mean, quantiles, c, getattr(played, side)(name, c.bound_on_total), exact, known_by)


def simulation(name: str, played: Simulation) -> RenderableType:
    """How totals spread over episodes."""
    headline = Text.assemble((label(name), "bold"), f": {_played(played)}")
    note = [Text(means_note(played.of_means), style=QUIET)] if played.of_means else []
    return Group(headline, EMPTY_LINE, TerminalTable(spread_table({"": played})), *note)


def means_note(names: Iterable[str]) -> str:
    """What to say about totals of signals that a model knows by their means alone."""
    return (
        f"{', '.join(map(label, names))}: of the means; outcomes vary more, unless a step earns exactly the mean. Give "
        "the outcomes in the model, or say there that it is exact."
    )


def _played(played: Simulation) -> str:
    """How many episodes were played, and of what kind where there is no horizon."""
    kind = played.cmdp.criterion.kind
    if kind == "finite":
        return counted(played.episodes, "episode")
    runs = f"{counted(played.episodes, 'run')} of {counted(played.steps, 'step')}"
    if kind == "average":
        return f"{runs}; means per step"
    if kind == "discounted":
        return f"{runs}, discounted; all later steps weigh {percent(played.left_out)}"
    return f"{runs}; {percent(played.left_out)} of the runs last longer"


def bars_of(x: FloatArray, most: int) -> FloatArray:
    """Edges of the bars of a histogram.

    Where values are counted in units, every bar holds the same number of possible values, and edges lie between them.

    >>> bars_of(np.array([0.0, 1.0, 3.0]), 12)
    array([-0.5,  0.5,  1.5,  2.5,  3.5])
    """
    values = np.unique(np.round(x, 9))
    unit = float(np.diff(values).min()) if len(values) > 1 else 0.0
    count = round((values[-1] - values[0]) / unit) + 1 if unit else 1
    places = (values - values[0]) / unit if unit else values
    if not unit or count > MOST_UNITS or np.abs(places - np.rint(places)).max() > OFF_UNIT:
        return np.asarray(np.histogram_bin_edges(x, most))
    together = math.ceil(count / most)
    return np.asarray(values[0] - unit / 2 + unit * together * np.arange(math.ceil(count / together) + 1))
