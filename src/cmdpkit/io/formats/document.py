"""From the tables of a text file to a `CMDP`.

TOML, JSON and CSV all hold the same tables: ``model`` (horizon, start, names), ``constraint`` (a list),
``transition`` (a list: what one action does in one state, at one step or at every step) and perhaps ``grid``. An action
exists exactly where a transition says what it does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from cmdpkit.errors import quoted
from cmdpkit.io.formats.source import Index, Located, LocatedTable, Mistakes, rule_of, tolerance_of
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import Constraint, Sense, signal_names
from cmdpkit.model.criterion import checked_discount, checked_name
from cmdpkit.model.outcomes import Outcomes, exactly_known
from cmdpkit.model.read_dynamics import corrected_rows, corrected_start, report_correction
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import DENSE_LIMIT, FloatArray, Kernel, expected
from cmdpkit.model.validate import MAX_HORIZON, Name, nearest, written_name

# -- The criterion of a model and its bounds as entries of a file: exactly one of horizon, discount and criterion.

KEYS = ("horizon", "discount", "criterion")


def criterion_entry(cmdp: CMDP) -> dict[str, Any]:
    """The one key that says how a model is judged."""
    judged = cmdp.criterion
    if judged.kind == "finite":
        return {"horizon": judged.horizon}
    return {"discount": judged.discount} if judged.kind == "discounted" else {"criterion": judged.kind}


def read_criterion(fields: Located) -> dict[str, Any]:
    """The same key with its value checked, as an argument of `CMDP`; an error if there is none or more than one."""
    given = [key for key in KEYS if key in fields]
    if not given:
        fields.fail("'horizon' is missing (or 'discount' or 'criterion')")
    if len(given) > 1:
        both = " and ".join(repr(key) for key in given)
        fields.fail(f"{both} are given, expected exactly one of horizon, discount and criterion", given[1])
    (key,) = given
    if key == "horizon":
        return {key: fields.at(key).whole(1, MAX_HORIZON)}
    with fields.locating(key):
        given_value = fields.at(key)
        return {key: checked_discount(given_value.number()) if key == "discount" else checked_name(given_value.text())}


def constraint_entry(c: Constraint) -> dict[str, Any]:
    """A bound as it was given: on the whole value, or per step."""
    if c.per_step:
        return {"name": c.name, "sense": c.sense, "bound": c.bound, "per_step": True}
    return {"name": c.name, "sense": c.sense, "bound": c.bound}


# The keys and columns of every transition; no constraint may have one of these names.
RESERVED = ("state", "action", "step", "next", "next_state", "probability", "reward", "outcomes")
REMEDY = "renormalise = true under [model], --renormalise or renormalise=True divide by the sum"
PER_STEP = ("next", "reward", "constraints", "actions", "outcomes")  # the parts that may depend on the step


Tables = dict[str, Any]


def names_entry(names: Sequence[Name]) -> Any:
    """A list of the names, or how many there are if they are the default names."""
    return len(names) if isinstance(names, range) else [written_name(name) for name in names]


def exact_entry(cmdp: CMDP) -> dict[str, Any]:
    """The key that says of which signals single steps are known, and not only means."""
    if not cmdp.exact:
        return {}
    return {"exact": list(cmdp.exact) if cmdp.of_means else True}


def grid_table(grid: Grid, states: Sequence[Name]) -> Tables:
    """The drawing of a board, with marks by state name."""
    return {
        "rows": int(grid.rows),
        "columns": int(grid.columns),
        "cells": [[int(x) for x in cell] for cell in grid.cells],
        **({"marks": {str(states[s]): mark for s, mark in grid.marks.items()}} if grid.marks else {}),
        **({"arrows": list(grid.arrows)} if grid.arrows else {}),
    }


# -- From tables to a model ------------------------------------------------------------------------------------------


Outcome = tuple[int, float, tuple[float, ...]]  # next state, probability, and reward and signals


@dataclass(frozen=True)
class TransitionRow:
    """One transition of a file, with names replaced by indices."""

    fields: Located  # where it is in the file, for messages
    state: int  # index of the state
    action: int  # index of the action
    step: int | None  # counts from 0; None if it holds for every step
    next: dict[int, float]  # next state -> probability
    tolerance: float  # how far from 1 the probabilities may sum
    reward: float  # the reward of the action
    signals: tuple[float, ...]  # [N], what the constraints count
    outcomes: tuple[Outcome, ...] = ()  # all that may happen, where reward or signals are not the same for all of it

    def drawn(self) -> Iterator[Outcome]:
        """All that may happen."""
        certain = (self.reward, *self.signals)
        return iter(self.outcomes or ((x, p, certain) for x, p in self.next.items()))


def model_of(path: Path, document: LocatedTable, mistakes: Mistakes, *, renormalise: bool = False) -> CMDP:
    """The CMDP of a document; errors name file and line. ``mistakes`` are earlier ones, of tables marked as damaged."""
    whole = Located(path, "the file", document)
    whole.only(("model", "transition"), ("constraint", "grid"))
    model = Located(path, "model", document["model"]).table()
    model.only(("start",), (*KEYS, "states", "actions", "per_step", "exact", "renormalise", "transitions"))
    renormalise = renormalise or ("renormalise" in model and model.at("renormalise").flag())
    judged = read_criterion(model)
    H = judged.get("horizon", 1)
    constraints = constraints_of(whole, RESERVED)
    entries = _entries(whole, model, constraints, mistakes, timed="horizon" in judged)
    states = _names(model, "states", [x.at("state").name_of() for x in entries])
    actions = _names(model, "actions", [x.at("action").name_of() for x in entries])
    state, action = Index("state", states), Index("action", actions)
    rows = _rows(entries, state, action, constraints, H, mistakes)
    _refuse_repeats(rows, mistakes)
    if not renormalise:
        _refuse_sums(rows, mistakes)
    mistakes.check()
    _refuse_gaps(model, rows, H, states)
    varying = _per_step(model, rows, H)

    def shape(what: str) -> tuple[int, int, int]:
        return H if what in varying else 1, len(states), len(actions)

    if (H if varying else 1) * len(states) * len(actions) > DENSE_LIMIT:
        model.fail(f"{H} steps, {len(states)} states and {len(actions)} actions are more than memory holds")
    kernel, correction = _kernel(rows, shape("next"), renormalise)
    mu, moved = _start(model, state, renormalise)
    signals = zip(*(row.signals for row in rows), strict=True)
    dynamics: dict[str, Any] = {
        "P": kernel,
        "r": _filled(rows, shape("reward"), [row.reward for row in rows]),
        "g": [_filled(rows, shape("constraints"), list(values)) for values in signals],
    }
    if any(row.outcomes for row in rows):
        timed = any(what in varying for what in PER_STEP if what != "actions")
        dynamics = {"P": _outcomes(rows, (H if timed else 1, len(states), len(actions)), renormalise)}
    cmdp = CMDP(
        **dynamics,
        mu=mu,
        **judged,
        actions=_filled(rows, shape("actions"), [1.0] * len(rows)) > 0,
        constraints=constraints,
        states=states,
        action_names=actions,
        exact=exact_of(model, constraints),
        renormalise=renormalise,
        grid=grid_of(whole, state, len(actions)),
    )
    report_correction(cmdp, max(correction, moved), str(path))
    return cmdp


def exact_of(fields: Located, constraints: Sequence[Constraint]) -> tuple[str, ...]:
    """The signals of which a file says that single steps are known."""
    if "exact" not in fields:
        return ()
    with fields.locating("exact"):
        return exactly_known(fields.value["exact"], signal_names(constraints))


def constraints_of(whole: Located, reserved: Sequence[str] = ()) -> list[Constraint]:
    """The constraints that a file declares; none of them may have a ``reserved`` name."""
    made: dict[str, Constraint] = {}
    if "constraint" not in whole:
        return []
    for i, table in enumerate(whole.at("constraint").list_of(dict, "tables (in TOML: [[constraint]])"), 1):
        fields = Located(whole.source, f"constraint {i}", table).table()
        fields.only(("name", "sense", "bound"), ("per_step",))
        name, sense, bound = fields.at("name").text(), fields.at("sense").text(), fields.at("bound").number()
        if name in reserved:
            fields.fail(
                f"{quoted(name)} is a key or column of every transition, so it cannot be a constraint's name", "name"
            )
        if name in made:
            fields.fail(f"two constraints are called {quoted(name)}", "name")
        per_step = "per_step" in table and fields.at("per_step").flag()
        with fields.locating():
            made[name] = Constraint(name, cast(Sense, sense), bound, per_step=per_step)
    return list(made.values())


def _entries(
    whole: Located, model: Located, constraints: Sequence[Constraint], mistakes: Mistakes, *, timed: bool
) -> list[Located]:
    """Every transition of the file, with the keys it must have; a step only where there is a horizon."""
    tables = whole.at("transition").list_of(dict, "tables (in TOML: [[transition]])")
    if not tables:
        whole.fail("there are no transitions", "transition")
    if "transitions" in model and model.at("transitions").whole() != len(tables):
        expected = model.value["transitions"]
        model.fail(f"{expected} transitions are announced, but the file has {len(tables)}", "transitions")
    entries = []
    for i, table in enumerate(tables, 1):
        called = f"transition {i}"
        if "state" in table and "action" in table:
            at = f" at step {table['step']}" if "step" in table else ""
            called = f"transition from {quoted(table['state'])} under {quoted(table['action'])}{at}"
        fields = Located(whole.source, called, table).table()
        with mistakes.noting():
            told = ("outcomes",) if "outcomes" in table else ("next", "reward", *(c.name for c in constraints))
            fields.only(("state", "action", *told), ("step",) if timed else ())
            fields.at("state").name_of()
            fields.at("action").name_of()
            entries.append(fields)
    if not entries:
        mistakes.check()
    return entries


def _names(model: Located, key: str, found: list[Name]) -> Sequence[Name]:
    """The names that the file lists, or else those that its transitions use, in order of appearance."""
    if key in model:
        return model.at(key).names()
    first: dict[str, Name] = {}
    for name in found:
        first.setdefault(str(name), name)
    return list(first.values())


def _rows(
    entries: list[Located], state: Index, action: Index, constraints: Sequence[Constraint], H: int, mistakes: Mistakes
) -> list[TransitionRow]:
    """All transitions with indices in place of names, except those with a mistake."""
    rows = []
    for fields in entries:
        if fields.value.damaged:
            continue
        with mistakes.noting():
            place = (
                fields,
                state.find(fields.value["state"], fields, "state"),
                action.find(fields.value["action"], fields, "action"),
                fields.at("step").whole(1, H) - 1 if "step" in fields else None,
            )
            if "outcomes" in fields:
                rows.append(TransitionRow(*place, *_told_outcomes(fields.at("outcomes"), state, constraints)))
                continue
            successors = fields.inner("next")
            row = TransitionRow(
                *place,
                {state.find(x, successors, x): p for x, p in successors.probabilities().items()},
                tolerance_of(successors.value.values()),
                fields.at("reward").reward(),
                tuple(fields.at(c.name).number() for c in constraints),
            )
            rows.append(row)
    return rows


def _told_outcomes(listed: Located, state: Index, constraints: Sequence[Constraint]) -> tuple[Any, ...]:
    """The last fields of a `TransitionRow`, from a list of outcomes."""
    found: list[Outcome] = []
    written = []
    for entry in listed.entries("a list of outcomes"):
        fields = entry.table()
        fields.only(("next", "probability", "reward", *(c.name for c in constraints)))
        p = fields.at("probability")
        p.expect(p.number() >= 0, "at least 0")
        written.append(p.value)
        signals = fields.at("reward").reward(), *(fields.at(c.name).number() for c in constraints)
        found.append((state.find(fields.at("next").name_of(), fields, "next"), float(p.value), signals))
    following: dict[int, float] = {}
    for s, share, _ in found:
        following[s] = following.get(s, 0.0) + share
    reward, *means = (
        expected([p for _, p, _ in found], x) for x in zip(*(signals for *_, signals in found), strict=True)
    )
    return following, tolerance_of(written), reward, tuple(means), tuple(found)


def _refuse_repeats(rows: list[TransitionRow], mistakes: Mistakes) -> None:
    """Refuse a second row for the same step; a state and action have one row for all steps, or one for each step."""
    seen: dict[tuple[int, int], dict[int | None, TransitionRow]] = {}
    for row in rows:
        others = seen.setdefault((row.state, row.action), {})
        clash = next(iter(others.values()), None) if row.step is None else others.get(row.step) or others.get(None)
        if clash is not None:
            line = clash.fields.line
            first = f"{clash.fields.name} in line {line}" if line else clash.fields.name
            with mistakes.noting():
                row.fields.fail(f"given a second time; the first is the {first}")
        others[row.step] = row


def _refuse_sums(rows: list[TransitionRow], mistakes: Mistakes) -> None:
    """Refuse probabilities that do not sum to 1, unless rounding explains it."""
    for row in rows:
        total = sum(row.next.values())
        if abs(total - 1) > row.tolerance:
            with mistakes.noting():
                row.fields.fail(f"the probabilities sum to {total:.12g}, {rule_of(row.tolerance)}; {REMEDY}", "next")


def _refuse_gaps(model: Located, rows: list[TransitionRow], H: int, states: Sequence[Name]) -> None:
    """Refuse a model in which some state has no action at some step."""
    always = {row.state for row in rows if row.step is None}
    steps: dict[int, set[int | None]] = {}
    for row in rows:
        steps.setdefault(row.state, set()).add(row.step)
    for s, name in enumerate(states):
        covered = steps.get(s, set())
        if s not in always and len(covered) < H:
            missing = next(h for h in range(H) if h not in covered)
            when = f" at step {missing + 1}" if covered else ""
            model.fail(
                f"state {quoted(name)} has no transition{when}: every state needs at least one action at every step"
            )


def _per_step(model: Located, rows: list[TransitionRow], H: int) -> set[str]:
    """Which parts are stored for each step: those that the file lists, or else those that differ between steps."""
    first: dict[tuple[int, int], TransitionRow] = {}
    differs: dict[str, TransitionRow] = {}
    for row in rows:
        base = first.setdefault((row.state, row.action), row)
        for what in ("next", "reward", "signals", "outcomes"):
            if getattr(row, what) != getattr(base, what):
                differs.setdefault("constraints" if what == "signals" else what, row)
    times = Counter((row.state, row.action) for row in rows if row.step is not None)
    for pair, n in times.items():
        if n < H:
            differs.setdefault("actions", first[pair])
    if "per_step" not in model:
        return set(differs)
    listed = model.at("per_step").list_of(str, "texts")
    for what in listed:
        if what not in PER_STEP:
            model.fail(f"'per_step' lists {quoted(what)}{nearest(what, PER_STEP)}", "per_step")
    for what, row in differs.items():
        if what not in listed:
            row.fields.fail(f"{what} depends on the step, but 'per_step' of the model does not list {quoted(what)}")
    return set(listed)


def _placed(rows: list[TransitionRow], T: int) -> Iterator[tuple[int, int]]:
    """Yield (i, t) if row i belongs to step t of an array of T steps; with T = 1, all rows of an action are equal."""
    for i, row in enumerate(rows):
        if T == 1 or row.step is not None:
            yield i, (row.step or 0) % T
        else:
            yield from ((i, t) for t in range(T))


def _filled(rows: list[TransitionRow], shape: tuple[int, int, int], values: list[float]) -> FloatArray:
    """An array [T, S, A] of the rows' values, 0 where there is no row."""
    array = np.zeros(shape)
    for i, t in _placed(rows, shape[0]):
        array[t, rows[i].state, rows[i].action] = values[i]
    return array


def _kernel(rows: list[TransitionRow], shape: tuple[int, int, int], renormalise: bool) -> tuple[Kernel, float]:
    """The probabilities of all rows, checked with their lines, and the largest correction of a row."""
    T, S, A = shape
    at = {((t * S + rows[i].state) * A + rows[i].action): rows[i] for i, t in _placed(rows, T)}
    placed = [(index, x, p) for index, row in at.items() for x, p in row.next.items()]
    index, successors, prob = (np.array(column) for column in zip(*placed, strict=True))
    kernel = Kernel.from_entries(shape, index, successors, prob)
    sums = kernel.sums().reshape(-1)
    for i, row in at.items():
        if renormalise and sums[i] <= 0:
            row.fields.fail(f"the probabilities sum to {sums[i]:.12g}, expected more than 0", "next")
    tolerance = np.zeros(T * S * A)
    tolerance[list(at)] = 0.0 if renormalise else [row.tolerance for row in at.values()]
    return corrected_rows(kernel, tolerance.reshape(shape))


def _outcomes(rows: list[TransitionRow], shape: tuple[int, int, int], renormalise: bool) -> Outcomes:
    """All outcomes, with rounded probabilities divided by their sum; their sums were checked."""
    T, S, A = shape
    entries = []
    for index, row in {((t * S + rows[i].state) * A + rows[i].action): rows[i] for i, t in _placed(rows, T)}.items():
        total = math.fsum(row.next.values())
        divisor = 1.0 if renormalise or abs(total - 1) <= ROW_SUM_TOLERANCE else total
        entries += [(index, x, p / divisor, signals) for x, p, signals in row.drawn()]
    where, successors, prob, signals = (np.array(column) for column in zip(*entries, strict=True))
    return Outcomes.from_entries(shape, where, successors, prob, signals)


def _start(model: Located, state: Index, renormalise: bool) -> tuple[FloatArray, float]:
    """mu [S] from the name of a state or a table of probabilities, and by how much it was corrected."""
    mu = np.zeros(len(state))
    if not isinstance(model.value["start"], dict):
        mu[state.find(model.at("start").name_of(), model, "start")] = 1.0
        return mu, 0.0
    start = model.inner("start")
    for name, p in start.probabilities().items():
        mu[state.find(name, start, name)] = p
    tolerance = tolerance_of(start.value.values())
    if not renormalise and abs(mu.sum() - 1) > tolerance:
        model.fail(f"'start' sums to {mu.sum():.12g}, {rule_of(tolerance)}; {REMEDY}", "start")
    return corrected_start(mu, 0.0 if renormalise else tolerance)


def grid_of(whole: Located, state: Index, A: int) -> Grid | None:
    """How to draw the model; rows and columns count from 0, cells follow the order of the states."""
    if "grid" not in whole:
        return None
    fields = Located(whole.source, "grid", whole.value["grid"]).table()
    fields.only(("rows", "columns", "cells"), ("marks", "arrows"))
    cells = fields.at("cells").list_of(list, "[row, column]")
    for cell in cells:
        if len(cell) != 2 or not all(type(x) is int for x in cell):
            fields.fail(f"'cells' lists {quoted(cell)}, expected [row, column]", "cells")
    if len(cells) != len(state):
        fields.fail(f"'cells' has {len(cells)} entries, expected one per state: {len(state)}", "cells")
    arrows = fields.at("arrows").list_of(str, "texts") if "arrows" in fields else []
    if arrows and len(arrows) != A:
        fields.fail(f"'arrows' has {len(arrows)} entries, expected one per action: {A}", "arrows")
    size = fields.at("rows").whole(), fields.at("columns").whole()
    marks = fields.inner("marks") if "marks" in fields else fields
    marked = {state.find(x, marks, x): marks.at(x).text() for x in (marks.value if "marks" in fields else ())}
    with fields.locating("cells"):
        return Grid(*size, tuple((row, column) for row, column in cells), marked, tuple(arrows))
