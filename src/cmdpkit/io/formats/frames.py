"""Data frames of every library that narwhals knows (pandas, polars, Arrow, DuckDB and others), and models in them.

A model in a frame has one row per state, action and next state, with the columns of the CSV form: ``state``,
``action``, ``next_state``, ``probability``, ``reward``, one for each constraint, and perhaps ``step``, counted from 1.
A frame has no head, so the caller gives the rest. A Parquet file is read by the library of the frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.csv_text import MODEL_COLUMNS
from cmdpkit.io.formats.source import is_name
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, listed
from cmdpkit.model.outcomes import Outcomes
from cmdpkit.model.transitions import DENSE_LIMIT, FloatArray, IntArray
from cmdpkit.model.validate import Name, nearest

Columns = dict[str, list[Any]]


def columns_of(source: Any) -> Columns | None:
    """The columns of a data frame as lists of Python objects; None if ``source`` is no data frame.

    >>> import pandas
    >>> columns_of(pandas.DataFrame({"state": ["on", "off"], "reward": [1, 0]})), columns_of([1, 2])
    ({'state': ['on', 'off'], 'reward': [1, 0]}, None)
    """
    import narwhals

    if any(name is not None for name in getattr(getattr(source, "index", None), "names", ())):
        source = source.reset_index()  # the named index of a pandas frame holds columns too
    try:
        frame = narwhals.from_native(source, pass_through=True)
        if isinstance(frame, narwhals.LazyFrame):
            frame = frame.collect()
        if not isinstance(frame, narwhals.DataFrame):
            return None
        return {str(name): frame[name].to_list() for name in frame.columns}
    except narwhals.exceptions.NarwhalsError as error:  # such as two columns of the same name
        raise CmdpkitError(f"the data frame cannot be read: {' '.join(str(error).split())}") from None


def model_of_columns(
    columns: Columns,
    judged: Mapping[str, Any],
    start: Name | Mapping[Any, float] | None,
    constraints: Iterable[Constraint] | None,
    *,
    renormalise: bool = False,
) -> CMDP:
    """The model in the columns of a frame; ``judged`` is its horizon, discount or criterion."""
    if start is None or not judged:
        raise CmdpkitError(
            "a data frame holds transitions only; give start= and one of horizon=, discount= and criterion= too"
        )
    bounds = without_signals(constraints or ())
    signals = ["reward", *(c.name for c in bounds)]
    _check_columns(columns, signals)
    states, (s, s_next) = _positions(columns, "state", "next_state")
    actions, (a,) = _positions(columns, "action")
    p, *x = (_numbers(columns, name) for name in ("probability", *signals))
    step = [_steps(columns, judged.get("horizon"))] if "step" in columns else []
    shape = int(step[0].max()) + 1 if step else 1, len(states), len(actions)
    if math.prod(shape) > DENSE_LIMIT:
        raise CmdpkitError(
            f"{shape[0]:,} steps, {len(states):,} states and {len(actions):,} actions are more than memory holds"
        )
    row = np.ravel_multi_index((step[0] if step else np.zeros_like(s), s, a), shape)
    allowed = np.bincount(row, minlength=np.prod(shape)).reshape(shape) > 0
    return CMDP(
        Outcomes.from_entries(shape, row, s_next, p, np.stack(x, axis=-1)),
        mu=start if isinstance(start, Mapping) else {start: 1.0},
        **judged,
        actions=allowed,
        constraints=bounds,
        states=states,
        action_names=actions,
        renormalise=renormalise,
    )


def without_signals(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Constraints whose signals are columns of a table; one that has a signal of its own is refused."""
    for c in (bounds := tuple(listed(constraints))):
        if c.signal is not None:
            raise CmdpkitError(
                f"constraint {quoted(c.name)} has a signal of its own, expected it in the column {quoted(c.name)}"
            )
    return bounds


def _check_columns(columns: Columns, signals: list[str]) -> None:
    needed = [*MODEL_COLUMNS[:4], *signals]
    for name in columns:
        if name not in (*needed, "step"):
            raise CmdpkitError(f"the data frame has an unknown column {quoted(name)}{nearest(name, [*needed, 'step'])}")
    for name in needed:
        if name not in columns:
            raise CmdpkitError(f"the data frame has no column {quoted(name)}; add it")
    if not columns["state"]:
        raise CmdpkitError("the data frame has no rows, expected one for each transition")


def _positions(columns: Columns, *names: str) -> tuple[list[Name], list[IntArray]]:
    """The different names in some columns in their order, and for each column their positions [rows]."""
    rule = "a name: text, or whole numbers throughout"
    if not all(is_name(x) for name in names for x in columns[name]):
        _refuse(columns, names, is_name, rule)
    found = set().union(*(columns[name] for name in names))
    if len({isinstance(x, str) for x in found}) > 1:
        _refuse(columns, names, is_name, rule)
    order = sorted(found)
    position = {x: i for i, x in enumerate(order)}
    return order, [np.array([position[x] for x in columns[name]], dtype=np.int64) for name in names]


def _numbers(columns: Columns, name: str) -> FloatArray:
    """A column of numbers, none of which is missing."""
    try:
        found: FloatArray = np.array(columns[name], dtype=float)
    except (TypeError, ValueError):
        found = np.array([np.nan])
    if np.isnan(found).any():
        _refuse(columns, (name,), lambda x: isinstance(x, int | float) and x == x, "a number")
    return found


def _steps(columns: Columns, horizon: int | None) -> IntArray:
    """The steps of a model with a horizon, from 0."""
    if horizon is None:
        raise CmdpkitError("the data frame has a column 'step', but the model has no horizon; give horizon=")
    found = _numbers(columns, "step")
    if not ((found == np.round(found)) & (found >= 1) & (found <= horizon)).all():
        _refuse(columns, ("step",), lambda x: x in range(1, horizon + 1), f"a whole number from 1 to {horizon:,}")
    return found.astype(np.int64) - 1


def _refuse(columns: Columns, names: Iterable[str], fits: Any, rule: str) -> None:
    """Name the first value of some columns that does not fit."""
    for name in names:
        for i, x in enumerate(columns[name]):
            if not fits(x):
                raise CmdpkitError(f"row {i + 1} of the data frame: {quoted(name)} is {quoted(x)}, expected {rule}")
    raise CmdpkitError(f"the data frame: {' and '.join(map(quoted, names))} do not fit together, expected {rule}")
