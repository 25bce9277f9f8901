"""Tables of recorded decisions as columns: from CSV as people have it, data frames, dictionaries or tuples."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats import csv_text
from cmdpkit.io.formats.sheet import Sheet, columns_of
from cmdpkit.io.formats.source import read_text, suffix_of
from cmdpkit.model.validate import nearest

SUFFIXES = (".csv", ".tsv", ".txt")


def read_table(
    source: Any, columns: Sequence[str] | Mapping[str, str] | None, needed: Sequence[str], optional: Sequence[str]
) -> Sheet:
    """The needed and optional columns of a log; ``columns`` names those of tuples, or maps our names to others."""
    renamed = dict(columns) if isinstance(columns, Mapping) else {}
    for ours in renamed:
        if ours not in (*needed, *optional):
            raise CmdpkitError(f"columns names {quoted(ours)}{nearest(ours, (*needed, *optional))}")
    listed = None if columns is None or isinstance(columns, Mapping) else tuple(columns)
    if isinstance(source, (str, os.PathLike)):
        found = _from_file(Path(source))
    elif isinstance(source, Mapping):
        found = _whole(Sheet("the log", {str(key): _listed(x) for key, x in source.items()}))
    elif not isinstance(source, Sequence) and (frame := columns_of(source)) is not None:
        found = Sheet("the log", frame)
    elif isinstance(source, Iterable):
        found = _from_rows(source, listed)
    else:
        raise CmdpkitError(f"the log is {quoted(source)}, expected a file, a data frame, columns, or rows")
    return _asked_for(found, renamed, needed, optional)


def _listed(column: Any) -> list[Any]:
    return list(column.tolist()) if hasattr(column, "tolist") else list(column)


def _whole(table: Sheet) -> Sheet:
    sizes = {name: len(column) for name, column in table.columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{shown(name)} {n}" for name, n in sizes.items())
        raise CmdpkitError(f"{table.where}: columns differ in length: {listed}")
    return table


def _asked_for(table: Sheet, renamed: Mapping[str, str], needed: Sequence[str], optional: Sequence[str]) -> Sheet:
    there = {name.strip(): column for name, column in table.columns.items()}
    chosen = {}
    for name in (*needed, *optional):
        theirs = renamed.get(name, name)
        if theirs in there:
            chosen[name] = there[theirs]
        elif name in needed or name in renamed:
            hint = f" (columns={{{name!r}: ...}} says which column it is; on the command line, --column {name}=...)"
            raise CmdpkitError(f"{table.where} has no column {quoted(theirs)}{nearest(theirs, there)}{hint}")
    if not len(next(iter(chosen.values()))):
        raise CmdpkitError(f"{table.where} has no rows, expected one for each transition; give a log with rows")
    return replace(table, columns=chosen)


def _from_rows(rows: Iterable[Any], columns: Sequence[str] | None) -> Sheet:
    """Tuples, whose columns have to be named, or dictionaries."""
    listed = list(rows)
    if listed and isinstance(listed[0], Mapping):
        columns = columns or [str(key) for key in listed[0]]
        listed = [tuple(row.get(key) for key in columns) if isinstance(row, Mapping) else row for row in listed]
    if columns is None:
        raise CmdpkitError("columns is missing: it names the columns of the rows, such as columns=['episode', ...]")
    for i, row in enumerate(listed):
        if not isinstance(row, (Sequence, np.ndarray)) or isinstance(row, str) or len(row) != len(columns):
            raise CmdpkitError(f"row {i + 1} is {quoted(row)}, expected {len(columns)} values: {', '.join(columns)}")
    return Sheet("the log", {name: [row[i] for row in listed] for i, name in enumerate(columns)})


def _from_file(path: Path) -> Sheet:
    if path.suffix.lower() == ".parquet":
        raise CmdpkitError(
            f"{path}: Parquet files are read by the library of your data frames: "
            "from_log(pandas.read_parquet(path), ...); or write the log as .csv"
        )
    suffix_of(path, SUFFIXES)
    return csv_text.table(path, list(io.StringIO(read_text(path), newline="")))
