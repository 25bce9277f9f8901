"""From the tables of a text file to a `CMDP`.

TOML, JSON and CSV all hold the same tables: ``model`` (horizon, start, names), ``constraint`` (a list),
``transition`` (a list: what one action does in one state, at one step or at every step) and perhaps ``grid``. An action
exists exactly where a transition says what it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.sheet import rule_of, sums_of, tolerance_of
from cmdpkit.io.formats.source import Located, LocatedTable, Mistakes
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import Constraint, Sense, checked_discount, checked_name, listed, signal_names
from cmdpkit.model.outcomes import Outcomes, exactly_known
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import DENSE_LIMIT, BoolArray, FloatArray, IntArray, Kernel, expected
from cmdpkit.model.validate import (
    MAX_HORIZON,
    Name,
    Positions,
    corrected_rows,
    corrected_start,
    nearest,
    report_correction,
    written_name,
)

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
    if len(given) != 1:
        there = f"'{given[0]}' and '{given[1]}' are given" if given else "'horizon' is missing"
        fields.fail(f"{there}, expected exactly one of horizon, discount and criterion", given[1] if given else None)
    (key,) = given
    if key == "horizon":
        return {key: fields.at(key).whole(1, MAX_HORIZON)}
    with fields.locating(key):
        given_value = fields.at(key)
        return {key: checked_discount(given_value.number()) if key == "discount" else checked_name(given_value.text())}


def constraint_entry(c: Constraint) -> dict[str, Any]:
    """A bound as it was given: on the whole value, or per step."""
    return {"name": c.name, "sense": c.sense, "bound": c.bound, **({"per_step": True} if c.per_step else {})}


# The keys and columns of every transition; no constraint may have one of these names.
RESERVED = ("state", "action", "step", "next", "next_state", "probability", "reward", "outcomes")
REMEDY = "renormalise = true under [model], or renormalise=True in Python, divides by the sum"
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


@dataclass(frozen=True)
class Transitions:
    """What m transitions of a file say, with n outcomes in their order, and indices in place of names."""

    states: Sequence[Name]
    actions: Sequence[Name]
    place: Callable[[int], Located]  # where a transition is in the file, for messages
    state: IntArray  # [m], index of the state
    action: IntArray  # [m], index of the action
    step: IntArray  # [m], counts from 0; -1 if the transition holds at every step
    owner: IntArray  # [n], rising: the transition that an outcome belongs to
    successors: IntArray  # [n], next state
    prob: FloatArray  # [n], its probability
    written: Callable[[int], float]  # the probability of an outcome as it was written, with its decimals
    signals: FloatArray  # [n, 1 + N], reward and what the constraints count

    def __len__(self) -> int:
        return len(self.state)

    @cached_property
    def first(self) -> IntArray:
        """The first outcome of every transition, and at the end how many outcomes there are, [m + 1]."""
        return np.searchsorted(self.owner, np.arange(len(self) + 1))

    @cached_property
    def varied(self) -> BoolArray:
        """Whether reward or signals differ between the outcomes of a transition, [m]."""
        differ = (self.signals != self.signals[self.first[self.owner]]).any(axis=1)
        return np.bincount(self.owner, differ, len(self)) > 0

    def outcomes(self, t: int) -> range:
        """The outcomes of a transition."""
        return range(self.first[t], self.first[t + 1])

    def parts(self, t: int) -> dict[str, Any]:
        """What may depend on the step, by its name in `PER_STEP`."""
        here = slice(self.first[t], self.first[t + 1])
        prob, signals = self.prob[here].tolist(), self.signals[here].tolist()
        reward, *costs = (expected(prob, x) for x in zip(*signals, strict=True))
        listed = list(zip(self.successors[here].tolist(), prob, signals, strict=True))
        following: dict[int, float] = {}
        for x, p, _ in listed:
            following[x] = following.get(x, 0.0) + p
        outcomes = listed if self.varied[t] else None
        return {"next": following, "reward": reward, "constraints": costs, "outcomes": outcomes}

    def placed(self, T: int) -> IntArray:
        """The transition of every state and action in arrays of T steps, [T, S, A]; -1 where there is none.

        With T = 1 all transitions of a state and action say the same.
        """
        found = np.full((T, len(self.states), len(self.actions)), -1)
        always = self.step < 0
        found[:, self.state[always], self.action[always]] = np.flatnonzero(always)
        found[self.step[~always] % T, self.state[~always], self.action[~always]] = np.flatnonzero(~always)
        return found


Reader = Callable[[Located, Sequence[Constraint], int | None, Mistakes], Transitions]


def model_of(whole: Located, read: Reader, mistakes: Mistakes, *, renormalise: bool = False) -> CMDP:
    """The CMDP of a document, whose transitions are read by ``read``; errors name file and line."""
    model = Located(whole.source, "model", whole.value["model"]).table()
    model.only(("start",), (*KEYS, "states", "actions", "per_step", "exact", "renormalise", "transitions"))
    renormalise = renormalise or ("renormalise" in model and model.at("renormalise").flag())
    judged = read_criterion(model)
    H = judged.get("horizon", 1)
    constraints = constraints_of(whole, RESERVED)
    told = read(model, constraints, judged.get("horizon"), mistakes)
    _refuse_repeats(told, mistakes)
    tolerance = _tolerances(told, mistakes, renormalise=renormalise)
    mistakes.check()
    varying = _per_step(model, told, H)
    states, actions = told.states, told.actions
    if (H if varying else 1) * len(states) * len(actions) > DENSE_LIMIT:
        model.fail(f"{H:,} steps, {len(states):,} states and {len(actions):,} actions are more than memory holds")
    at = {what: told.placed(H if what in varying else 1) for what in PER_STEP}
    state, correction = Positions("state", states), 0.0
    mu, moved = _start(model, state, renormalise)
    if told.varied.any():
        timed = any(what in varying for what in PER_STEP if what != "actions")
        dynamics: dict[str, Any] = {"P": _outcomes(told, H if timed else 1, renormalise)}
    else:
        rows, which = _spread(told, at["next"])
        kernel = Kernel.from_entries(at["next"].shape, rows, told.successors[which], told.prob[which])
        kernel, correction = corrected_rows(kernel, np.where(at["next"] >= 0, tolerance[at["next"]], 0.0))
        sure = told.signals[told.first[:-1]]  # [m, 1 + N]
        r = np.where(at["reward"] >= 0, sure[at["reward"], 0], 0.0)
        g = [np.where(at["constraints"] >= 0, x[at["constraints"]], 0.0) for x in sure[:, 1:].T]
        dynamics = {"P": kernel, "r": r, "g": g}
    cmdp = CMDP(
        **dynamics,
        mu=mu,
        **judged,
        actions=at["actions"] >= 0,
        constraints=constraints,
        states=states,
        action_names=actions,
        exact=exact_of(model, constraints),
        renormalise=renormalise,
        grid=grid_of(whole, state, len(actions)),
    )
    report_correction(cmdp, max(correction, moved), str(whole.source))
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


def _refuse_repeats(told: Transitions, mistakes: Mistakes) -> None:
    """Refuse a second one for the same step; a state and action have one for all steps, or one for each step."""
    seen: dict[tuple[int, int], dict[int, int]] = {}
    for t, (*pair, step) in enumerate(zip(*(x.tolist() for x in (told.state, told.action, told.step)), strict=True)):
        others = seen.setdefault((pair[0], pair[1]), {})
        clash = next(iter(others.values()), None) if step < 0 else others.get(step, others.get(-1))
        if clash is not None:
            first = told.place(clash)
            with mistakes.noting():
                line = f" in line {first.line}" if first.line else ""
                told.place(t).fail(f"given a second time; the first is the {first.name}{line}")
        others[step] = t


def _tolerances(told: Transitions, mistakes: Mistakes, *, renormalise: bool) -> FloatArray:
    """How far from 1 the probabilities of each transition may sum, as rounding explains [m]; others are refused."""
    sums, tolerance = sums_of(told.owner, told.prob, len(told), told.written)
    for t in np.flatnonzero(sums <= 0 if renormalise else np.abs(sums - 1) > tolerance).tolist():
        rule = "expected more than 0" if renormalise else f"{rule_of(tolerance[t])}; {REMEDY}"
        with mistakes.noting():
            told.place(t).fail(f"the probabilities sum to {sums[t]:.12g}, {rule}", "next")
    return np.zeros(len(told)) if renormalise else tolerance


def _per_step(model: Located, told: Transitions, H: int) -> set[str]:
    """Which parts are stored for each step: those that the file lists, or else those that differ between steps."""
    first: dict[int, dict[str, Any]] = {}
    differs: dict[str, int] = {}
    timed, pair = told.step >= 0, told.state * len(told.actions) + told.action
    steps = np.bincount(pair[timed], minlength=len(told.states) * len(told.actions))
    for t in np.flatnonzero(timed).tolist():
        parts = told.parts(t)
        base = first.setdefault(pair[t], parts)
        for what in (*(x for x in parts if parts[x] != base[x]), *["actions"] * bool(steps[pair[t]] < H)):
            differs.setdefault(what, t)
    if "per_step" not in model:
        return set(differs)
    listed = model.at("per_step").list_of(str, "texts")
    for what in listed:
        if what not in PER_STEP:
            model.fail(f"'per_step' lists {quoted(what)}{nearest(what, PER_STEP)}", "per_step")
    for what, t in differs.items():
        if what not in listed:
            told.place(t).fail(f"{what} depends on the step, but 'per_step' of the model does not list {quoted(what)}")
    return set(listed)


def _spread(told: Transitions, placed: IntArray) -> tuple[IntArray, IntArray]:
    """The rows of the arrays in which transitions are placed, once for each outcome, and these outcomes."""
    spread = [(row, i) for row, t in enumerate(placed.reshape(-1).tolist()) if t >= 0 for i in told.outcomes(t)]
    rows, which = np.array(spread, dtype=np.int64).T
    return rows, which


def _outcomes(told: Transitions, T: int, renormalise: bool) -> Outcomes:
    """All outcomes, with rounded probabilities divided by their sum; their sums were checked."""
    sums = np.array([math.fsum(told.prob[slice(*ends)]) for ends in pairwise(told.first)])
    divisor = np.where(renormalise | (np.abs(sums - 1) <= ROW_SUM_TOLERANCE), 1.0, sums)
    rows, which = _spread(told, placed := told.placed(T))
    prob = told.prob[which] / divisor[told.owner[which]]
    return Outcomes.from_entries(placed.shape, rows, told.successors[which], prob, told.signals[which])


def _start(model: Located, state: Positions, renormalise: bool) -> tuple[FloatArray, float]:
    """mu [S] from the name of a state or a table of probabilities, and by how much it was corrected."""
    mu = np.zeros(len(state.names))
    if not isinstance(model.value["start"], dict):
        mu[model.position(state, model.at("start").name_of(), "start")] = 1.0
        return mu, 0.0
    start = model.inner("start")
    for name, p in start.probabilities().items():
        mu[start.position(state, name, name)] = p
    tolerance = tolerance_of(start.value.values())
    if not renormalise and abs(mu.sum() - 1) > tolerance:
        model.fail(f"'start' sums to {mu.sum():.12g}, {rule_of(tolerance)}; {REMEDY}", "start")
    return corrected_start(mu, 0.0 if renormalise else tolerance)


def grid_of(whole: Located, state: Positions, A: int) -> Grid | None:
    """How to draw the model; rows and columns count from 0, cells follow the order of the states."""
    if "grid" not in whole:
        return None
    fields = Located(whole.source, "grid", whole.value["grid"], whole.at("grid").line).table()
    fields.only(("rows", "columns", "cells"), ("marks", "arrows"))
    cells = fields.at("cells").list_of(list, "[row, column]")
    for cell in cells:
        if len(cell) != 2 or not all(type(x) is int for x in cell):
            fields.fail(f"'cells' lists {quoted(cell)}, expected [row, column]", "cells")
    arrows = fields.at("arrows").list_of(str, "texts") if "arrows" in fields else []
    size = fields.at("rows").whole(), fields.at("columns").whole()
    marks = fields.inner("marks") if "marks" in fields else fields
    marked = {marks.position(state, x, x): marks.at(x).text() for x in (marks.value if "marks" in fields else ())}
    with fields.locating("cells"):
        grid = Grid(*size, tuple((row, column) for row, column in cells), marked, tuple(arrows))
        grid.check(len(state.names), A)
    return grid


def without_signals(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Constraints whose signals are columns of a table; one that has a signal of its own is refused."""
    for c in (bounds := tuple(listed(constraints))):
        if c.signal is not None:
            raise CmdpkitError(
                f"constraint {quoted(c.name)} has a signal of its own, expected it in the column {quoted(c.name)}"
            )
    return bounds


# -- The transitions of TOML and JSON: one table for each state and action, or for each step of them -------------------


def model_of_tables(path: Path, document: LocatedTable, mistakes: Mistakes, *, renormalise: bool = False) -> CMDP:
    """The model of a document in TOML or JSON."""
    whole = Located(path, "the file", document)
    whole.only(("model", "transition"), ("constraint", "grid"))
    return model_of(whole, partial(_of_tables, whole), mistakes, renormalise=renormalise)


def _of_tables(
    whole: Located, model: Located, constraints: Sequence[Constraint], horizon: int | None, mistakes: Mistakes
) -> Transitions:
    """The transitions of a document."""
    tables = _checked_tables(whole, model, constraints, mistakes, timed=horizon is not None)
    states, actions = (names_told(model, f"{key}s", [x.value[key] for x in tables]) for key in ("state", "action"))
    state, action = Positions("state", states), Positions("action", actions)
    found: list[list[tuple[int, float, list[float]]]] = []
    indices: list[tuple[int, int, int]] = []
    for fields in tables:
        with mistakes.noting():
            s = fields.position(state, fields.value["state"], "state")
            a = fields.position(action, fields.value["action"], "action")
            step = fields.at("step").whole(1, horizon) - 1 if "step" in fields else -1
            found.append(_told_outcomes(fields, state, constraints))
            indices.append((s, a, step))
    mistakes.check()
    s_of, a_of, steps = map(np.array, zip(*indices, strict=True))
    successors, prob, signals = zip(*(x for listed in found for x in listed), strict=True)
    return Transitions(
        states,
        actions,
        tables.__getitem__,
        s_of,
        a_of,
        steps,
        np.repeat(np.arange(len(found)), [len(x) for x in found]),
        np.array(successors),
        np.array(prob, dtype=float),
        prob.__getitem__,
        np.array(signals, dtype=float),
    )


def _checked_tables(
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
            called = transition_name(table["state"], table["action"], table.get("step"))
        fields = Located(whole.source, called, table).table()
        with mistakes.noting():
            told = ("outcomes",) if "outcomes" in table else ("next", "reward", *(c.name for c in constraints))
            fields.only(("state", "action", *told), ("step",) if timed else ())
            fields.at("state").name_of()
            fields.at("action").name_of()
            entries.append(fields)
    mistakes.check()
    return entries


def transition_name(state: Any, action: Any, step: Any = None) -> str:
    """What messages call a transition."""
    return f"transition from {quoted(state)} under {quoted(action)}{'' if step is None else f' at step {step}'}"


def names_told(model: Located, key: str, found: Iterable[Name]) -> Sequence[Name]:
    """The names that the file lists, or else those that its transitions use, in order of appearance."""
    if key in model:
        return model.at(key).names()
    first: dict[str, Name] = {}
    for name in found:
        first.setdefault(str(name), name)
    return list(first.values())


def _told_outcomes(
    fields: Located, state: Positions, constraints: Sequence[Constraint]
) -> list[tuple[int, float, list[float]]]:
    """Next state, probability as it was written, and reward and signals of all that may happen."""
    names = [c.name for c in constraints]

    def signals(place: Located) -> list[float]:
        return [place.at("reward").number(), *(place.at(name).number() for name in names)]

    if "outcomes" not in fields:
        successors = fields.inner("next")
        successors.probabilities()
        certain = signals(fields)
        return [(successors.position(state, x, x), p, certain) for x, p in successors.value.items()]
    listed = []
    for place in fields.at("outcomes").entries("a list of outcomes"):
        entry = place.table()
        entry.only(("next", "probability", "reward", *names))
        p = entry.at("probability")
        p.expect(p.number() >= 0, "at least 0")
        listed.append((entry.position(state, entry.at("next").name_of(), "next"), p.value, signals(entry)))
    return listed
