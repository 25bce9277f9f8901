"""Models with one row per state, action and next state: CSV files, and data frames, which have no head.

The columns are ``state``, ``action``, ``next_state``, ``probability``, ``reward``, one for each constraint, and perhaps
``step``, counted from 1. Every row is an outcome: rows of one state and action may differ in reward and signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cmdpkit.errors import quoted
from cmdpkit.io.formats import csv_text
from cmdpkit.io.formats.document import KEYS, Transitions, model_of, names_told, transition_name
from cmdpkit.io.formats.sheet import LARGEST, Sheet
from cmdpkit.io.formats.source import Located, LocatedTable, Mistakes, is_name
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import IntArray
from cmdpkit.model.validate import Positions, nearest

MODEL_HEAD = (*KEYS, "start", "states", "actions", "per_step", "exact", "renormalise", "transitions", "grid")
MODEL_COLUMNS = ("state", "action", "next_state", "probability", "reward")


def model_of_rows(sheet: Sheet, overrides: Mapping[str, Any], mistakes: Mistakes, *, renormalise: bool = False) -> CMDP:
    """The model in the rows of a sheet, with ``overrides`` of its head."""
    head = {**sheet.head, **{key: x for key, x in overrides.items() if key in MODEL_HEAD}}
    model = {key: x for key, x in head.items() if key not in ("transitions", "grid")}
    document = {
        "model": LocatedTable(model, None, sheet.head.lines),
        "constraint": overrides.get("constraints", list(sheet.constraints)),
        **({"grid": head["grid"]} if "grid" in head else {}),
    }
    whole = Located(sheet.where, "the file", LocatedTable(document, None, sheet.head.lines))
    return model_of(whole, partial(_of_rows, sheet), mistakes, renormalise=renormalise)


def _of_rows(
    sheet: Sheet, model: Located, constraints: Sequence[Constraint], horizon: int | None, mistakes: Mistakes
) -> Transitions:
    """The transitions of a sheet, collected from their rows, without those in which a mistake was found."""
    signals = ["reward", *(c.name for c in constraints)]
    _check_columns(sheet.names_of_columns(), signals, timed=horizon is not None)
    if not len(sheet):
        sheet.names_of_columns().fail("there are no rows below them, expected one for each transition")
    sheet.note_broken(mistakes)
    states, actions = (names_told(model, f"{x}s", filter(is_name, sheet.columns[x])) for x in ("state", "action"))
    state, action = Positions("state", states), Positions("action", actions)
    s, s_next = (sheet.positions(name, state, mistakes) for name in ("state", "next_state"))
    a = sheet.positions("action", action, mistakes)
    step = np.full(len(s), -1)
    if horizon is not None and "step" in sheet.columns:
        step = sheet.steps(horizon, mistakes, every=True)
    prob = sheet.probabilities(mistakes)
    x = np.stack([sheet.numbers(y, mistakes, LARGEST) for y in signals], axis=-1)
    key = ((step + 1) * (len(states) + 1) + s + 1) * (len(actions) + 1) + a + 1
    fine = np.flatnonzero(~np.isin(key, key[list(mistakes.rows)]))
    _, begins, owner = np.unique(key[fine], return_index=True, return_inverse=True)
    owner = np.argsort(np.argsort(begins))[owner]  # transitions are numbered as they begin in the file
    kept, first = fine[np.argsort(owner, kind="stable")], fine[np.sort(begins)]
    owner = np.sort(owner)
    told = zip(owner.tolist(), s_next[kept].tolist(), map(tuple, x[kept].tolist()), strict=True)
    _refuse_repeats(sheet, kept, told, mistakes)
    if not len(kept):
        mistakes.check()

    def place(t: int) -> Located:
        i = int(first[t])
        return sheet.at(i, transition_name(states[s[i]], actions[a[i]], step[i] + 1 if step[i] >= 0 else None))

    indices = s[first], a[first], step[first]
    written = sheet.written(kept)
    return Transitions(states, actions, place, *indices, owner, s_next[kept], prob[kept], written, x[kept])


def _check_columns(columns: Located, signals: list[str], *, timed: bool) -> None:
    needed = [*MODEL_COLUMNS[:4], *signals]
    for name in columns.value:
        if name == "step" and not timed:
            columns.fail("there is a column 'step', but the model has no horizon")
        if name not in (*needed, "step"):
            columns.fail(
                f"unknown column {quoted(name)}{nearest(name, (*needed, 'step'))} (a constraint is declared by a line "
                f"'# constraint {name} <= bound' above, or by constraints=)"
            )
    for name in needed:
        if name not in columns:
            columns.fail(f"{quoted(name)} is missing; add it")


def _refuse_repeats(sheet: Sheet, rows: IntArray, said: Iterable[Any], mistakes: Mistakes) -> None:
    """Refuse a second row that says the same of a transition; ``said`` is what each of these rows says."""
    seen: dict[Any, int] = {}
    for i, what in zip(rows.tolist(), said, strict=True):
        if (first := seen.setdefault(what, i)) != i:
            told = f"step, state, action and next_state are those of {sheet.name(first)}, and so are reward and signals"
            mistakes.add("the same row twice", i, told, "leave one of them out")


def model_pieces(tables: Mapping[str, Any], transitions: Callable[[], Iterator[Mapping[str, Any]]]) -> Iterator[str]:
    """The text of a model, line by line; ``transitions`` is called twice, as their number comes first."""
    constraints = tables.get("constraint", [])
    names = [c["name"] for c in constraints]
    timed, rows = False, 0
    for table in transitions():
        timed, rows = timed or "step" in table, rows + len(table.get("outcomes", table.get("next", ())))
    head = {**tables["model"], **{key: tables[key] for key in ("grid",) if key in tables}, "transitions": rows}
    yield csv_text.top(head, constraints, [*MODEL_COLUMNS, *names, *["step"] * timed])
    for table in transitions():
        yield "".join(csv_text.line(cells) for cells in _lines(table, names, timed))


def _lines(table: Mapping[str, Any], constraints: list[str], timed: bool) -> Iterator[list[Any]]:
    plain = [{**table, "next": x, "probability": p} for x, p in table.get("next", {}).items()]
    for x in table.get("outcomes", plain):
        signals = (x["reward"], *(x[c] for c in constraints))
        cells = [table["state"], table["action"], x["next"], x["probability"], *signals]
        yield [*cells, table.get("step")] if timed else cells
