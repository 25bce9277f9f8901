"""Models from Parquet: one line per state, action and next state, read by duckdb, for tables of millions of lines.

The columns are those of the CSV form: ``state``, ``action``, ``next_state``, ``probability``, ``reward``, one for each
constraint, and perhaps ``step``, counted from 1. A Parquet file has no head, so the caller gives the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.csv_text import MODEL_COLUMNS
from cmdpkit.io.formats.source import reading
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, listed
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Name, nearest

if TYPE_CHECKING:
    import duckdb

TEXT, WHOLE = "VARCHAR", ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")


def read(
    path: Path,
    judged: Mapping[str, Any],
    start: Name | Mapping[Any, float] | None,
    constraints: Iterable[Constraint] | None,
    *,
    renormalise: bool = False,
) -> CMDP:
    """The model in a file; ``judged`` is its horizon, discount or criterion."""
    if start is None or not judged:
        raise CmdpkitError(
            f"{path}: a .parquet file holds transitions only; read it with cmdpkit.read_model, and give start= and one "
            "of horizon=, discount= and criterion= too"
        )
    bounds = without_signals(constraints or ())
    with reading(path):
        source = _ParquetSource(path)
        (s, a, s_next, p, *rest), states, actions = source.columns([c.name for c in bounds])
    S, A = len(states), len(actions)
    signals, step = rest[: 1 + len(bounds)], rest[1 + len(bounds) :]
    T = int(step[0].max()) + 1 if step else 1
    row = ((step[0] if step else 0) * S + s) * A + a
    allowed = np.bincount(row, minlength=T * S * A).reshape(T, S, A) > 0
    reward, *others = (_mean(row, p, x, T * S * A).reshape(T, S, A) for x in signals)
    return CMDP(
        (*step, s, a, s_next, p),
        reward,
        mu=start if isinstance(start, Mapping) else {start: 1.0},
        **judged,
        actions=allowed,
        constraints=[replace(c, signal=x) for c, x in zip(bounds, others, strict=True)],
        states=states,
        action_names=actions,
        renormalise=renormalise,
    )


def without_signals(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Constraints whose signals are columns of a file; one that brings a signal of its own is refused."""
    for c in (bounds := tuple(listed(constraints))):
        if c.signal is not None:
            raise CmdpkitError(
                f"constraint {quoted(c.name)} has a signal of its own, expected it in the column {quoted(c.name)}"
            )
    return bounds


class _ParquetSource:
    """A Parquet file, seen through duckdb."""

    def __init__(self, path: Path) -> None:
        import duckdb

        self.path, self.db = path, database()
        try:
            self.db.execute(f"CREATE VIEW lines AS SELECT * FROM read_parquet({literal(path)})")
        except duckdb.Error as error:
            raise CmdpkitError(f"cannot read {path}: {str(error).splitlines()[0]}") from None
        self.types = {name: kind for name, kind, *_ in self.db.execute("DESCRIBE lines").fetchall()}

    def columns(self, constraints: list[str]) -> tuple[list[Any], list[Any], list[Any]]:
        """State, action, next state, probability, reward, constraints and perhaps step of every line; and the names.

        States and actions are given by their indices in the two lists of names.
        """
        self._check([*MODEL_COLUMNS, *constraints])
        states = self._names("states", ("state", "next_state"))
        actions = self._names("actions", ("action",))
        signals = [_quoted(name, '"') for name in ("reward", *constraints)]
        picked = ["s.i", "a.i", "n.i", "probability", *signals, *["step - 1"] * ("step" in self.types)]
        numbered = ", ".join(f"{column} AS c{i}" for i, column in enumerate(picked))
        found = self.db.execute(
            f"SELECT {numbered} FROM lines JOIN states s ON lines.state = s.name "
            "JOIN states n ON lines.next_state = n.name JOIN actions a ON lines.action = a.name"
        ).fetchnumpy()
        return [np.ma.getdata(found[f"c{i}"]) for i in range(len(picked))], states, actions

    def _check(self, needed: list[str]) -> None:
        """Refuse missing and unknown columns, columns of another type, and cells that are empty."""
        for name in self.types:
            if name not in needed and name != "step":
                raise CmdpkitError(f"{self.path}: unknown column {quoted(name)}{nearest(name, [*needed, 'step'])}")
        for name in needed:
            if name not in self.types:
                raise CmdpkitError(f"{self.path}: column {quoted(name)} is missing")
        for name, kind in self.types.items():
            of_names = name in ("state", "action", "next_state")
            fits = kind in (TEXT, *WHOLE) if of_names else kind in WHOLE if name == "step" else _is_number(kind)
            if not fits:
                rule = "text or whole numbers" if of_names else "whole numbers" if name == "step" else "numbers"
                raise CmdpkitError(f"{self.path}: column {quoted(name)} holds {kind}, expected {rule}")
            empty = self._one(f"SELECT count(*) FROM lines WHERE {_quoted(name, chr(34))} IS NULL")
            if empty:
                raise CmdpkitError(f"{self.path}: column {quoted(name)} is empty in {empty:,} lines, expected none")
        if self.types["state"] != self.types["next_state"] and TEXT in (self.types["state"], self.types["next_state"]):
            raise CmdpkitError(f"{self.path}: one of 'state' and 'next_state' holds text and the other numbers")
        if not self._one("SELECT count(*) FROM lines"):
            raise CmdpkitError(f"{self.path}: there are no transitions")
        if "step" in self.types and self._one("SELECT min(step) FROM lines") < 1:
            raise CmdpkitError(f"{self.path}: 'step' is below 1 in some line; steps count from 1")

    def _names(self, table: str, columns: tuple[str, ...]) -> list[Any]:
        """The names in these columns in their order, also as a table of names and indices."""
        listed_names = " UNION ".join(f"SELECT {column} AS name FROM lines" for column in columns)
        self.db.execute(
            f"CREATE TEMP TABLE {table} AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS i "
            f"FROM (SELECT DISTINCT name FROM ({listed_names}))"
        )
        return [name for (name,) in self.db.execute(f"SELECT name FROM {table} ORDER BY i").fetchall()]

    def _one(self, query: str) -> int:
        row = self.db.execute(query).fetchone()
        return int(row[0]) if row is not None else 0


def _is_number(kind: str) -> bool:
    return kind in (*WHOLE, "FLOAT", "DOUBLE", "HUGEINT", "UBIGINT") or kind.startswith("DECIMAL")


def database(**config: Any) -> duckdb.DuckDBPyConnection:
    """An empty DuckDB in memory that loads no extensions and never fetches one from a network."""
    import duckdb

    offline = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    return duckdb.connect(":memory:", config={**offline, **config})


def literal(path: Path) -> str:
    """A path in SQL. DuckDB takes *, ? and [ in it for patterns; each of them in brackets stands for itself."""
    return _quoted(re.sub(r"([*?\[])", r"[\1]", str(path)), "'")


def _quoted(text: str, mark: str) -> str:
    """A text or a name as SQL writes it."""
    return mark + text.replace(mark, 2 * mark) + mark


def _mean(row: IntArray, p: FloatArray, x: FloatArray, n: int) -> FloatArray:
    """The mean [n] of a number over the next states of every row, without any rounding where it is always the same."""
    lowest, highest = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(lowest, row, x)
    np.maximum.at(highest, row, x)
    weight = np.bincount(row, weights=p, minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(row, weights=p * x, minlength=n) / weight
    same: FloatArray = np.where(lowest == highest, lowest, np.where(weight > 0, mean, 0.0))
    return same
