"""Models as CSV: one line per state, action and next state; horizon, start and bounds in the head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cmdpkit.errors import quoted
from cmdpkit.io.formats import csv_text
from cmdpkit.io.formats.document import KEYS, RESERVED, constraints_of
from cmdpkit.io.formats.source import Fields, LocatedTable, Mistakes, Written
from cmdpkit.model.transitions import expected
from cmdpkit.model.validate import nearest

HEAD = (*KEYS, "start", "states", "actions", "per_step", "renormalise", "transitions", "grid")
COLUMNS = ("state", "action", "next_state", "probability", "reward")


def parse(path: Path, text: str, overrides: Mapping[str, Any], mistakes: Mistakes) -> LocatedTable:
    """The document in the file, with ``overrides`` in place of the horizon, start or constraints of its head.

    What is wrong in a line goes to ``mistakes``, and the transition that the line belongs to is marked as damaged.
    """
    sheet = csv_text.parse(path, text, HEAD, "transitions", mistakes)
    head = {**sheet.head, **{key: x for key, x in overrides.items() if key in HEAD}}
    model = LocatedTable(
        {key: x for key, x in head.items() if key not in ("transitions", "grid")}, None, sheet.head.lines
    )
    constraints = overrides.get("constraints", sheet.constraints)
    names = [c.name for c in constraints_of(Fields(path, "head", LocatedTable({"constraint": constraints})), RESERVED)]
    _check_columns(path, sheet.columns, names)
    document = LocatedTable(
        {"model": model, "constraint": constraints, "transition": _grouped(path, sheet, names, mistakes)}
    )
    if "grid" in head:
        document["grid"] = Fields(path, "head", sheet.head).inner("grid").table
    return document


def _check_columns(path: Path, columns: LocatedTable, constraints: list[str]) -> None:
    here = Fields(path, "columns", columns)
    expected = (*COLUMNS, *constraints)
    for name in columns:
        if name not in expected and name != "step":
            here.fail(
                f"unknown column {quoted(name)}{nearest(name, (*expected, 'step'))} (a constraint is declared by a "
                f"line '# constraint {name} <= bound' above)"
            )
    for name in expected:
        if name not in columns:
            here.fail(f"{quoted(name)} is missing")


def _grouped(path: Path, sheet: csv_text.Sheet, constraints: list[str], mistakes: Mistakes) -> list[LocatedTable]:
    """One transition per step, state and action, collected from its lines, which may be anywhere in the file."""
    groups: dict[tuple[str, str, str], dict[str, LocatedTable]] = {}
    for row in sheet.rows:
        if "state" not in row or "action" not in row:
            continue  # a line with too few cells, which is among the mistakes
        group = groups.setdefault((row.get("step", "").strip(), row["state"], row["action"]), {})
        if not row.damaged:
            row.damaged = True
            with mistakes.noting():
                _check_row(Fields(path, "row", row), constraints, group, comma=sheet.comma)
                row.damaged = False
        group.setdefault(row.get("next_state", ""), row).damaged |= row.damaged
    return [_transition(list(group.values()), constraints) for group in groups.values()]


def _check_row(fields: Fields, constraints: list[str], group: dict[str, LocatedTable], *, comma: bool) -> None:
    """Turn the numbers of a line into numbers, and refuse what cannot be right."""
    row = fields.table
    for key in ("probability", "reward", *constraints):
        row[key] = csv_text.number(row[key], Written if key == "probability" else float, comma=comma)
        fields.reward() if key == "reward" else fields.number(key)
    for key in ("state", "action", "next_state"):
        fields.name(key)
    if row["probability"] < 0:
        fields.fail(f"'probability' is {quoted(row['probability'])}, expected at least 0")
    if row["next_state"] in group:
        fields.fail(f"step, state, action and next_state are those of line {group[row['next_state']].line}")


def _transition(rows: list[LocatedTable], constraints: list[str]) -> LocatedTable:
    first = rows[0]
    step = first.get("step", "").strip()
    if any(row.damaged for row in rows):
        passed_over = LocatedTable(dict.fromkeys(("reward", "next", *constraints), 0), first.line)
        passed_over.update(state=first["state"], action=first["action"])
        passed_over.damaged = True
        return passed_over
    return LocatedTable(
        {
            "state": first["state"],
            "action": first["action"],
            **({"step": csv_text.whole(step)} if step else {}),
            "reward": _mean(rows, "reward"),
            **{name: _mean(rows, name) for name in constraints},
            "next": LocatedTable(
                {row["next_state"]: row["probability"] for row in rows},
                first.line,
                {row["next_state"]: row.line for row in rows},
            ),
        },
        first.line,
    )


def _mean(rows: list[LocatedTable], key: str) -> float:
    """The expected value of a number that may depend on the next state."""
    return expected([row["probability"] for row in rows], [row[key] for row in rows])


def pieces(tables: Mapping[str, Any], transitions: Callable[[], Iterator[Mapping[str, Any]]]) -> Iterator[str]:
    """The text of a model, line by line; ``transitions`` is called twice, as their number comes first."""
    constraints = tables.get("constraint", [])
    names = [c["name"] for c in constraints]
    timed, rows = False, 0
    for table in transitions():
        timed, rows = timed or "step" in table, rows + len(table["next"])
    head = {**tables["model"], **{key: tables[key] for key in ("grid",) if key in tables}, "transitions": rows}
    yield csv_text.top(head, constraints, [*COLUMNS, *names, *["step"] * timed])
    for table in transitions():
        yield "".join(csv_text.line(cells) for cells in _lines(table, names, timed))


def _lines(table: Mapping[str, Any], constraints: list[str], timed: bool) -> Iterator[list[Any]]:
    for name, p in table["next"].items():
        cells = [table["state"], table["action"], name, p, table["reward"], *(table[c] for c in constraints)]
        yield [*cells, table.get("step")] if timed else cells
