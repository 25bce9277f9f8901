"""A policy as a board with arrows, a table of decisions or a summary; of a solution, only what it can meet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cmdpkit.errors import remedy
from cmdpkit.exact.solver import Solution
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.operators.policies import action_uses
from cmdpkit.results.tables import DRAWN, EMPTY_LINE, QUIET, TAKEN, plain_table, right
from cmdpkit.results.wording import counted, drawn, label, percent, ranges

MOST_ROWS = 40  # of a table or a board
MOST_DECISIONS = 2_000  # of a policy by itself that is printed
MOST_BOARDS = 12  # different ones; further steps are only counted
NEVER = "–"  # in place of a decision that is never met

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
    table, notes = _by_step(solution, done, listed)
    if _width(table) > width:
        table, notes = _by_state(solution.policy, listed, done), []
    if len(listed) < cmdp.S:
        notes.append(f"{cmdp.S - len(listed):,} of {cmdp.S:,} states are never reached and left out")
    return Group(table, Text(), Text("; ".join(notes), style=QUIET)) if notes else table


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


def runs_of_equal(pictures: Sequence[Hashable]) -> list[list[int]]:
    """Neighbouring steps that look the same, together."""
    return [[h for h, _ in run] for _, run in groupby(enumerate(pictures), key=lambda pair: pair[1])]


def heading(run: Sequence[int]) -> str:
    """The title of a column or board for a run of steps."""
    return f"step{'s' * (len(run) > 1)} {ranges(h + 1 for h in run)}"


# -- boards ------------------------------------------------------------------------------------------------------------


def _boards(solution: Solution, grid: Grid, reached: BoolArray) -> list[RenderableType]:
    """One picture per step; neighbouring steps that look the same share one."""
    H, S, _ = solution.policy.shape
    pictures = [
        tuple(_cell(solution, grid, h, s) if reached[h, s] else (grid.marks.get(s, "."), (), "") for s in range(S))
        for h in range(H)
    ]
    size = max(len(mark + "".join(actions)) for picture in pictures for mark, actions, _ in picture)
    runs = runs_of_equal(pictures)
    boards = [_board(grid, pictures[run[0]], size, heading(run)) for run in runs[:MOST_BOARDS]]
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


def _by_step(solution: Solution, done: Callable[[int, int], Decided], listed: Sequence[int]) -> tuple[Table, list[str]]:
    """States x steps, and what to say about it; neighbouring steps with the same decisions share a column."""
    cmdp = solution.cmdp
    columns = [tuple(done(h, s) for s in listed) for h in range(cmdp.H)]
    runs = runs_of_equal(columns)
    table = plain_table("state", *(heading(run) for run in runs))
    for i, s in enumerate(listed):
        table.add_row(Text(label(cmdp.states[s])), *(_decision(columns[run[0]][i]) for run in runs))
    return table, [f"{NEVER} never reached at that step"] * any(() in column for column in columns)


def _by_state(policy: Policy, listed: Iterable[int], done: Callable[[int, int], Decided]) -> Table:
    """One line per state: what is done at which steps. It stays narrow, however many steps there are."""
    table = plain_table("state", "action" if policy.is_stationary else "action (at steps)")
    for s in listed:
        when: dict[Decided, list[int]] = {}
        for h in range(policy.shape[0]):
            when.setdefault(done(h, s), []).append(h + 1)
        when.pop((), None)
        line = [
            Text.assemble(_decision(actions), ("" if policy.is_stationary else f" ({ranges(at)})", QUIET))
            for actions, at in when.items()
        ]
        table.add_row(Text(label(policy.states[s])), Text(", ").join(line))
    return table


def _decision(actions: Decided) -> Text:
    if not actions:
        return Text(NEVER, style=QUIET)
    return Text(" / ".join(actions), style=DRAWN if len(actions) > 1 else "")


def _summary(solution: Solution, reached: BoolArray) -> RenderableType:
    """How often each action is taken, for policies too large to print."""
    cmdp = solution.cmdp
    uses = action_uses(cmdp, solution.policy)
    size = f"{cmdp.S:,} states x {cmdp.H:,} steps, of which {int(reached.sum()):,} are reached"
    columns = {"uses per episode": lambda x: f"{x:.4f}", "share": lambda x: f"{100 * x / cmdp.H:.1f} %"}
    return uses_of_actions(f"The policy ({size}) is too large", cmdp, uses, columns)


def uses_of_actions(
    what: str, cmdp: CMDP, uses: FloatArray, columns: Mapping[str, Callable[[float], str]]
) -> RenderableType:
    """In place of a policy that is too large to print: how often each action is taken, the most frequent first."""
    table = plain_table("action", *map(right, columns))
    for a in np.argsort(-uses, kind="stable")[:MOST_ROWS]:
        table.add_row(Text(label(cmdp.action_names[int(a)])), *(write(float(uses[a])) for write in columns.values()))
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
