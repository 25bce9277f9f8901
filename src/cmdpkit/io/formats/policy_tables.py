"""Policies as tables: CSV for large ones, where neither writing nor reading makes an object for every line at once, and
Markdown for people.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import markdown_escaped, markdown_line
from cmdpkit.io.formats import csv_text
from cmdpkit.io.formats.parquet_model import database
from cmdpkit.model.decisions import Decisions, of_rows, rows_at
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE

TOGETHER = 1 << 16  # lines that are written at once
PROBABILITY = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
SHORTEST_LINE = 6  # bytes, as in "s,a,1" with its line end


def lines(policy: Policy) -> Iterator[str]:
    """Lines 'step,state,action,probability' (no step if stationary), several thousand at a time."""
    states, actions = ([csv_text.cell(str(x)) for x in names] for names in (policy.states, policy.action_names))
    sure = [f",{a},1.0\n" for a in actions]
    for h in range(policy.shape[0]):
        step = "" if policy.is_stationary else f"{h + 1},"
        drawn = {int(s): row for s, row in zip(*rows_at(policy.decisions, h), strict=True)}
        choice = policy.choice[h]
        for first in range(0, len(choice), TOGETHER):
            part = slice(first, first + TOGETHER)
            block = [f"{step}{s}{sure[a]}" for s, a in zip(states[part], choice[part].tolist(), strict=True)]
            for s in drawn.keys() & range(first, first + len(block)) if drawn else ():
                used = np.flatnonzero(drawn[s]).tolist()
                block[s - first] = "".join(f"{step}{states[s]},{actions[a]},{float(drawn[s][a])!r}\n" for a in used)
            yield "".join(block)


def count(policy: Policy) -> int:
    """How many lines these are."""
    H, S, _ = policy.shape
    T, m = len(policy.decisions.choice), len(policy.decisions.s)
    return (T * S - m + int(np.count_nonzero(policy.decisions.p))) * H // T


def read_body(
    path: Path, begin: int, columns: Sequence[str], states: Sequence[Any], actions: Sequence[Any], H: int, rows: int
) -> Decisions | None:
    """The decisions from byte ``begin`` of a file on, or None if anything there is unusual.

    What is unusual is for the caller to find out, who reads slowly and says what is wrong and where. ``rows`` is how
    many lines are announced.
    """
    S, A = len(states), len(actions)
    if path.stat().st_size < H * S * SHORTEST_LINE or not _ends_with_a_line(path):
        return None
    found = _read_columns(path, begin, columns, {"step": range(1, H + 1), "state": states, "action": actions})
    if found is None or len(found["p"]) != rows:
        return None
    place = (found["step"].astype(np.int64) if "step" in columns else 0) * S + found["state"]
    return _decisions(np.full((H, S), -1, dtype=np.int32), A, place, found["action"], found["p"])


def _read_columns(
    path: Path, begin: int, columns: Sequence[str], names: dict[str, Sequence[Any]]
) -> dict[str, NDArray[Any]] | None:
    """Where the names of every line stand in their lists, and "p", its probability; None if a line has others.

    DuckDB reads a copy without the head, because it takes [ and * in a path for patterns, and quotes in the head for
    the beginning of a cell.
    """
    import duckdb

    types = ", ".join(f"'{column}': 'VARCHAR'" for column in columns)
    known = [column for column in columns if column != "probability"]
    listed = ", ".join(f"{column}s.i AS {column}" for column in known)
    joins = " ".join(f"LEFT JOIN {column}s ON file.{column} = {column}s.name" for column in known)
    try:
        with tempfile.TemporaryDirectory(prefix="cmdpkit-") as folder, database() as connection:
            copy = Path(folder, "body.csv")
            with open(path, "rb") as file:
                file.seek(begin)
                body = file.read()
            if b",\n" in body or b",\r" in body:  # an empty cell at the end of a line would be passed over
                return None
            copy.write_bytes(body)
            for column in known:
                texts = np.array([*map(str, names[column]), None], dtype=object)[:-1]
                connection.register(f"{column}s", {"name": texts, "i": np.arange(len(texts), dtype=np.int32)})
            found: dict[str, NDArray[Any]] = connection.execute(
                f"SELECT {listed}, CASE WHEN regexp_full_match(probability, '{PROBABILITY}') "
                f"THEN TRY_CAST(probability AS DOUBLE) END AS p FROM read_csv('{copy}', header = false, "
                f"auto_detect = false, delim = ',', quote = '\"', escape = '\"', columns = {{{types}}}) AS file {joins}"
            ).fetchnumpy()
    except (OSError, duckdb.Error):
        return None
    return None if any(np.ma.is_masked(x) for x in found.values()) else found


def _decisions(
    choice: NDArray[np.int32], A: int, place: NDArray[Any], a: NDArray[Any], p: NDArray[Any]
) -> Decisions | None:
    """The policy of lines with their places h * S + s, actions and probabilities; it is written into ``choice`` [H, S].

    None unless every place has exactly one distribution.
    """
    flat, sure = choice.reshape(-1), p == 1.0
    flat[place[sure]] = a[sure]
    taken = int((flat >= 0).sum())
    place, a, p = place[~sure], a[~sure], p[~sure]
    drawn, row = np.unique(place, return_inverse=True)
    table = np.zeros((len(drawn), A))
    table[row, a] = p
    twice = len(np.unique(row * np.int64(A) + a)) < len(p)
    if twice or taken != sure.sum() or (flat[drawn] >= 0).any() or taken + len(drawn) != len(flat):
        return None
    if (p > 1).any() or (np.abs(table.sum(axis=1) - 1) > ROW_SUM_TOLERANCE).any():
        return None
    flat[drawn] = 0
    return of_rows(choice, np.stack(np.divmod(drawn, choice.shape[1]), axis=1), table)


def _ends_with_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() in (b"\n", b"\r")


# -- Markdown: escaped names, lines of a table, and a policy as a table for people to read.


def policy_table(policy: Policy) -> Iterator[str]:
    """A table with one row per state and one column per step; consecutive steps with equal decisions share a column."""
    H, S, A = policy.shape
    phases = phases_of(policy)
    heads = ["state", *(f"step {a}" if a == b else f"steps {a}–{b}" for a, b in phases)]
    title = f"# Policy for {H} steps, {S} states, {A} actions"
    if policy.is_stationary:
        heads, title = ["state", "action"], f"# Stationary policy for {S} states, {A} actions"
    yield f"{title}\n\n"
    if policy.made_for is not None:
        bounds = "; ".join(markdown_escaped(bound) for bound in policy.made_for.bounds) or "none"
        yield f"Made for the model {policy.made_for.fingerprint[:12]} with the bounds: {bounds}.\n\n"
    yield f"{markdown_line(heads)}\n{markdown_line(['---'] * len(heads))}\n"
    names = [markdown_escaped(name) for name in policy.action_names]
    drawn = [
        dict(zip(rows_at(policy.decisions, a - 1)[0].tolist(), rows_at(policy.decisions, a - 1)[1], strict=True))
        for a, _ in phases
    ]
    chosen = policy.choice[[a - 1 for a, _ in phases]]
    for s, name in enumerate(policy.states):
        cells = [_odds(names, rows[s]) if s in rows else names[a] for rows, a in zip(drawn, chosen[:, s], strict=True)]
        yield markdown_line([markdown_escaped(name), *cells]) + "\n"


def phases_of(policy: Policy) -> list[tuple[int, int]]:
    """First and last step, counted from 1, of each longest sequence of steps with equal decisions."""
    starts = [1]
    for h in range(1, len(policy.decisions.choice)):
        one, other = ((policy.choice[i], *rows_at(policy.decisions, i)) for i in (h - 1, h))
        if not all(np.array_equal(x, y) for x, y in zip(one, other, strict=True)):
            starts.append(h + 1)
    return list(zip(starts, [*(h - 1 for h in starts[1:]), policy.shape[0]], strict=True))


def _odds(names: list[str], row: np.ndarray) -> str:
    used = np.flatnonzero(row).tolist()
    if len(used) == 1:
        return names[used[0]]
    return " / ".join(f"{names[a]} {100 * row[a]:.4g} %" for a in used)
