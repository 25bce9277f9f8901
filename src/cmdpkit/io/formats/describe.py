"""From a `CMDP` to the tables of a text file: the inverse of `cmdpkit.io.formats.document`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.document import PER_STEP, RESERVED, constraint_entry, criterion_entry
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.validate import Name, written_name

Tables = dict[str, Any]


def tables_of(cmdp: CMDP) -> Tables:
    """Everything that defines a model but its `transitions`, as plain tables of texts and numbers."""
    for c in cmdp.constraints:
        if c.name in RESERVED:
            raise CmdpkitError(
                f"constraint {quoted(c.name)} is called like a key or column of every transition, so text cannot hold "
                "it; rename it or write .npz"
            )
    constraints = [constraint_entry(c) for c in cmdp.constraints]
    return {
        "model": _model(cmdp),
        **({"constraint": constraints} if constraints else {}),
        **({"grid": grid_table(cmdp.grid, cmdp.states)} if cmdp.grid else {}),
    }


def names_entry(names: Sequence[Name]) -> Any:
    """A list of the names, or how many there are if they are the default names."""
    return len(names) if isinstance(names, range) else [written_name(name) for name in names]


def grid_table(grid: Grid, states: Sequence[Name]) -> Tables:
    """The drawing of a board, with marks by state name."""
    return {
        "rows": int(grid.rows),
        "columns": int(grid.columns),
        "cells": [[int(x) for x in cell] for cell in grid.cells],
        **({"marks": {str(states[s]): mark for s, mark in grid.marks.items()}} if grid.marks else {}),
        **({"arrows": list(grid.arrows)} if grid.arrows else {}),
    }


def _model(cmdp: CMDP) -> Tables:
    reached = np.flatnonzero(cmdp.mu).tolist()
    certain = len(reached) == 1 and cmdp.mu[reached[0]] == 1.0
    spread = {str(cmdp.states[s]): float(cmdp.mu[s]) for s in reached}
    per_step = [what for what, T in zip(PER_STEP, _steps(cmdp), strict=True) if T > 1]
    return {
        **criterion_entry(cmdp),
        "start": written_name(cmdp.states[reached[0]]) if certain else spread,
        "states": names_entry(cmdp.states),
        "actions": names_entry(cmdp.action_names),
        **({"per_step": per_step} if per_step else {}),
    }


def _steps(cmdp: CMDP) -> tuple[int, int, int, int]:
    """For each part of `PER_STEP`, how many steps are stored: 1 or H."""
    c = cmdp.compact
    return cmdp.kernel.T, len(c.r), c.g.shape[1], len(c.allowed)


def transitions(cmdp: CMDP) -> Iterator[Tables]:
    """One table per state and action where nothing depends on the step, one per step where something does.

    They come in the order of the states, one at a time, because those of a large model would fill the memory.
    """
    T = max(_steps(cmdp))
    allowed = cmdp.compact.allowed
    for s in range(cmdp.S):
        for a in range(cmdp.A):
            head = {"state": written_name(cmdp.states[s]), "action": written_name(cmdp.action_names[a])}
            steps = [h for h in range(T) if allowed[h % len(allowed), s, a]]
            rows = [_row(cmdp, h, s, a) for h in steps]
            if len(rows) == T and all(row == rows[0] for row in rows):
                yield {**head, **rows[0]}
            else:
                yield from ({**head, "step": h + 1, **row} for h, row in zip(steps, rows, strict=True))


def _row(cmdp: CMDP, h: int, s: int, a: int) -> Tables:
    kernel, c = cmdp.kernel, cmdp.compact
    i = ((h % kernel.T) * cmdp.S + s) * cmdp.A + a
    entries = range(kernel.indptr[i], kernel.indptr[i + 1])
    signals = (cmdp.constraints[n].sign * c.g[n, h % c.g.shape[1], s, a] for n in range(cmdp.N))
    return {
        "reward": float(c.r[h % len(c.r), s, a]),
        **{constraint.name: float(x) for constraint, x in zip(cmdp.constraints, signals, strict=True)},
        # This is the last entry, because a file that ends within it is not valid and therefore noticed.
        "next": {str(cmdp.states[kernel.successors[j]]): float(kernel.prob[j]) for j in entries},
    }
