"""Models in files: TOML and JSON to write by hand, CSV for spreadsheets, npz for large ones.

What `write_model` writes, `read_model` reads back as an equal `CMDP`, to the last bit. If anything is wrong with a
file, a CmdpkitError names the file, the line or the transition, what is written there and what was expected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.atomic import write_pieces, write_text, writing
from cmdpkit.io.formats import document
from cmdpkit.io.formats.npz import read_npz_model, write_npz_model
from cmdpkit.io.formats.sheet import LARGEST, Sheet, columns_of, csv_line, csv_top, parse_csv
from cmdpkit.io.formats.source import (
    Located,
    LocatedTable,
    Mistakes,
    Written,
    dump_toml,
    is_name,
    json_pieces,
    parse_json,
    parse_toml,
    read_text,
    reading,
    suffix_of,
)
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.outcomes import Outcomes
from cmdpkit.model.transitions import IntArray
from cmdpkit.model.validate import Name, Positions, written_name

SUFFIXES = (".toml", ".json", ".csv", ".npz")
MODEL_HEAD = (*document.KEYS, "start", "states", "actions", "per_step", "exact", "renormalise", "transitions", "grid")
MODEL_COLUMNS = ("state", "action", "next_state", "probability", "reward")
PathLike = str | os.PathLike[str]


def read_model(
    path: PathLike | Any,
    *,
    horizon: int | None = None,
    start: Name | Mapping[Any, float] | None = None,
    constraints: Iterable[Constraint] | None = None,
    discount: float | None = None,
    criterion: str | None = None,
    renormalise: bool = False,
) -> CMDP:
    """The model in a .toml, .json, .csv or .npz file, or in a data frame.

    Parameters
    ----------
    path : the file, or a data frame of pandas, polars, Arrow or another library that narwhals knows
    horizon, start, constraints, discount, criterion : for .csv files, in place of what the head of the file says, and
        for data frames, which have no head. ``start`` is the name of a state or a mapping from names to
        probabilities. Constraints have no signals here: their signals are the columns with their names.
    renormalise : divide every row of probabilities by its sum, as ``renormalise = true`` in the file does. By default
        a row is divided by its sum only if the rounding of its decimals explains why that is not 1, with a
        `RoundingWarning`.

    >>> import tempfile
    >>> from cmdpkit.model.constraints import at_most
    >>> cmdp = CMDP([[[1.0]]], [[2.0]], constraints=[at_most("cost", 5, [[1.0]])], horizon=3, states=["on"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_model(cmdp, Path(folder, "model.csv"))
    ...     print(path.read_text())
    ...     read_model(path) == cmdp
    # horizon = 3
    # start = "on"
    # states = ["on"]
    # actions = 1
    # transitions = 1
    # constraint cost <= 5.0
    state,action,next_state,probability,reward,cost
    on,1,on,1.0,2.0,1.0
    <BLANKLINE>
    True
    """
    judged = {"horizon": horizon, "discount": discount, "criterion": criterion}
    given = {key: x for key, x in judged.items() if x is not None}
    overrides = {**given, **_overrides(start, constraints)}
    if not isinstance(path, str | os.PathLike):
        columns = columns_of(path)
        if columns is None:
            raise CmdpkitError(f"the model is {quoted(path)}, expected a file or a data frame")
        if start is None or not given:
            raise CmdpkitError(
                "a data frame holds transitions only; give start= and one of horizon=, discount= and criterion= too"
            )
        sheet = Sheet("the data frame", columns)
        named = {"states": _sorted(columns, "state", "next_state"), "actions": _sorted(columns, "action")}
        return model_of_rows(sheet, overrides | named, Mistakes(sheet.where, sheet.place), renormalise=renormalise)
    path = Path(path)
    suffix = suffix_of(path, SUFFIXES)
    if overrides and suffix != ".csv":
        only = ".csv files and data frames only"
        raise CmdpkitError(f"{path}: {', '.join(overrides)} can be given for {only}; change the file instead")
    with reading(path):
        if suffix == ".npz":
            return read_npz_model(path, renormalise=renormalise)
        text = read_text(path)
        if suffix == ".csv":
            sheet = parse_csv(path, text, MODEL_HEAD, "transitions")
            return model_of_rows(sheet, overrides, Mistakes(path, sheet.place), renormalise=renormalise)
        parsed = parse_toml(path, text, Written) if suffix == ".toml" else parse_json(path, text)
        return document.model_of_tables(path, parsed, Mistakes(path), renormalise=renormalise)


def _sorted(columns: Mapping[str, Sequence[Any]], *keys: str) -> list[Any]:
    """The different names in some columns: whole numbers by size, then texts."""
    found = {x for key in keys for x in columns.get(key, ()) if is_name(x)}
    return sorted(found, key=lambda x: (isinstance(x, str), x))


def write_model(cmdp: CMDP, path: PathLike, *, overwrite: bool = False) -> Path:
    """Write a model to a .toml, .json, .csv or .npz file; a file that exists is kept unless ``overwrite`` is true."""
    path = Path(path)
    suffix = suffix_of(path, SUFFIXES)
    if not isinstance(cmdp, CMDP):
        raise CmdpkitError(f"write_model writes a CMDP, got {type(cmdp).__name__}")
    if suffix == ".npz":
        with writing(path, overwrite=overwrite) as file:
            write_npz_model(file, cmdp)
        return path
    tables = tables_of(cmdp)
    if suffix == ".csv":
        return write_pieces(path, model_pieces(tables, lambda: transitions(cmdp)), overwrite=overwrite)
    if suffix == ".json":
        return write_pieces(path, json_pieces({**tables, "transition": transitions(cmdp)}), overwrite=overwrite)
    listed = list(transitions(cmdp))
    model = {**tables["model"], "transitions": len(listed)}  # so that a file cut short between two of them is noticed
    return write_text(path, dump_toml({**tables, "model": model, "transition": listed}), overwrite=overwrite)


def _overrides(start: Name | Mapping[Any, float] | None, constraints: Iterable[Constraint] | None) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if isinstance(start, Mapping):
        given["start"] = {str(x): p for x, p in start.items()}
    elif start is not None:  # what can be no name is left for the reader to refuse
        given["start"] = written_name(start) if isinstance(start, Hashable) else start
    if constraints is not None:
        given["constraints"] = [document.constraint_entry(c) for c in document.without_signals(constraints)]
    return given


# -- a model as the tables of a text file ------------------------------------------------------------------------------


def tables_of(cmdp: CMDP) -> document.Tables:
    """Everything that defines a model but its `transitions`, as plain tables of texts and numbers."""
    for c in cmdp.constraints:
        if c.name in document.RESERVED:
            raise CmdpkitError(
                f"constraint {quoted(c.name)} is called like a key or column of every transition, so text cannot hold "
                "it; rename it or write .npz"
            )
    reached = np.flatnonzero(cmdp.mu).tolist()
    certain = len(reached) == 1 and cmdp.mu[reached[0]] == 1.0
    spread = {str(cmdp.states[s]): float(cmdp.mu[s]) for s in reached}
    per_step = [what for what, T in zip(document.PER_STEP, _steps(cmdp), strict=True) if T > 1]
    model = {
        **document.criterion_entry(cmdp),
        "start": written_name(cmdp.states[reached[0]]) if certain else spread,
        "states": document.names_entry(cmdp.states),
        "actions": document.names_entry(cmdp.action_names),
        **({"per_step": per_step} if per_step else {}),
        **document.exact_entry(cmdp),
    }
    constraints = [document.constraint_entry(c) for c in cmdp.constraints]
    return {
        "model": model,
        **({"constraint": constraints} if constraints else {}),
        **({"grid": document.grid_table(cmdp.grid, cmdp.states)} if cmdp.grid else {}),
    }


def _steps(cmdp: CMDP) -> tuple[int, ...]:
    """For each part of `PER_STEP`, how many steps are stored: 1 or H."""
    c = cmdp.compact
    return cmdp.kernel.T, len(c.r), c.g.shape[1], len(c.allowed), 1 if cmdp.outcomes is None else cmdp.outcomes.T


def transitions(cmdp: CMDP) -> Iterator[document.Tables]:
    """A table per state, action (and step, if anything depends on it), one at a time: all would fill the memory."""
    T = max(_steps(cmdp))
    allowed = cmdp.compact.allowed
    for s in range(cmdp.S):
        for a in range(cmdp.A):
            head = {"state": written_name(cmdp.states[s]), "action": written_name(cmdp.action_names[a])}
            steps = [h for h in range(T) if allowed[h % len(allowed), s, a]]
            rows = [_transition(cmdp, h, s, a) for h in steps]
            if len(rows) == T and all(row == rows[0] for row in rows):
                yield {**head, **rows[0]}
            else:
                yield from ({**head, "step": h + 1, **row} for h, row in zip(steps, rows, strict=True))


def _transition(cmdp: CMDP, h: int, s: int, a: int) -> document.Tables:
    kernel, c = cmdp.kernel, cmdp.compact
    if cmdp.outcomes is not None and (listed := _outcomes_of(cmdp, cmdp.outcomes, h, s, a)):
        return {"outcomes": listed}
    entries = kernel.entries(h, s, a)
    reached = zip(kernel.successors[entries].tolist(), kernel.prob[entries].tolist(), strict=True)
    signals = (cmdp.constraints[n].sign * c.g[n, h % c.g.shape[1], s, a] for n in range(cmdp.N))
    return {
        "reward": float(c.r[h % len(c.r), s, a]),
        **{constraint.name: float(x) for constraint, x in zip(cmdp.constraints, signals, strict=True)},
        # This is the last entry, because a file that ends within it is not valid and therefore noticed.
        "next": {str(cmdp.states[x]): p for x, p in reached},
    }


def _outcomes_of(cmdp: CMDP, drawn: Outcomes, h: int, s: int, a: int) -> list[document.Tables]:
    """What an action may bring at a step, one table for each outcome; none where reward and signals are certain."""
    here, entries = drawn.entries.entries(h, s, a), drawn.entries
    names = ("reward", *(c.name for c in cmdp.constraints))
    signals = drawn.signals[here].tolist()
    if all(x == signals[0] for x in signals):
        return []
    listed = zip(entries.successors[here].tolist(), entries.prob[here].tolist(), signals, strict=True)
    return [
        {"next": written_name(cmdp.states[x]), "probability": p, **dict(zip(names, told, strict=True))}
        for x, p, told in listed
    ]


# -- one row for each state, action and next state: CSV files, and data frames, which have no head ---------------------


def model_of_rows(sheet: Sheet, overrides: Mapping[str, Any], mistakes: Mistakes, *, renormalise: bool = False) -> CMDP:
    """The model in the rows of a sheet, with ``overrides`` of its head."""
    head = {**sheet.head, **{key: x for key, x in overrides.items() if key in MODEL_HEAD}}
    model = {key: x for key, x in head.items() if key not in ("transitions", "grid")}
    tables = {
        "model": LocatedTable(model, None, sheet.head.lines),
        "constraint": overrides.get("constraints", list(sheet.constraints)),
        **({"grid": head["grid"]} if "grid" in head else {}),
    }
    whole = Located(sheet.where, "the file", LocatedTable(tables, None, sheet.head.lines))
    return document.model_of(whole, partial(_of_rows, sheet), mistakes, renormalise=renormalise)


def _of_rows(
    sheet: Sheet, model: Located, constraints: Sequence[Constraint], horizon: int | None, mistakes: Mistakes
) -> document.Transitions:
    """The transitions of a sheet, collected from their rows."""
    signals = ["reward", *(c.name for c in constraints)]
    columns = sheet.names_of_columns()
    columns.only([*MODEL_COLUMNS[:4], *signals], ["step"])
    if horizon is None and "step" in columns:
        columns.fail("there is a column 'step', but the model has no horizon")
    if not len(sheet):
        columns.fail("there are no rows below them, expected one for each transition")
    sheet.note_broken(mistakes)
    told = {x: filter(is_name, sheet.columns[x]) for x in ("state", "action")}
    states, actions = (document.names_told(model, f"{x}s", names) for x, names in told.items())
    state, action = Positions("state", states), Positions("action", actions)
    s, s_next = (sheet.positions(name, state, mistakes) for name in ("state", "next_state"))
    a = sheet.positions("action", action, mistakes)
    step = np.full(len(s), -1)
    if horizon is not None and "step" in columns:
        step = sheet.steps(horizon, mistakes, every=True)
    prob = sheet.probabilities(mistakes)
    x = np.stack([sheet.numbers(y, mistakes, LARGEST) for y in signals], axis=-1)
    mistakes.check()
    key = ((step + 1) * len(states) + s) * len(actions) + a
    _, begins, owner = np.unique(key, return_index=True, return_inverse=True)
    owner = np.argsort(np.argsort(begins))[owner]  # transitions are numbered as they begin in the file
    kept, first = np.argsort(owner, kind="stable"), np.sort(begins)
    owner = np.sort(owner)
    said = zip(owner.tolist(), s_next[kept].tolist(), map(tuple, x[kept].tolist()), strict=True)
    _refuse_repeats(sheet, kept, said, mistakes)

    def place(t: int) -> Located:
        i = int(first[t])
        return sheet.at(i, document.transition_name(states[s[i]], actions[a[i]], step[i] + 1 if step[i] >= 0 else None))

    indices = s[first], a[first], step[first]
    written = sheet.written(kept)
    return document.Transitions(states, actions, place, *indices, owner, s_next[kept], prob[kept], written, x[kept])


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
    yield csv_top(head, constraints, [*MODEL_COLUMNS, *names, *["step"] * timed])
    for table in transitions():
        yield "".join(csv_line(cells) for cells in _lines(table, names, timed))


def _lines(table: Mapping[str, Any], constraints: list[str], timed: bool) -> Iterator[list[Any]]:
    plain = [{**table, "next": x, "probability": p} for x, p in table.get("next", {}).items()]
    for x in table.get("outcomes", plain):
        signals = (x["reward"], *(x[c] for c in constraints))
        cells = [table["state"], table["action"], x["next"], x["probability"], *signals]
        yield [*cells, table.get("step")] if timed else cells
