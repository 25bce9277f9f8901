"""Transitions of large models as users give them: SciPy matrices per action or per step, or columns of entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.rounding import tolerance_of
from cmdpkit.model.transitions import IntArray, Kernel
from cmdpkit.model.validate import numbers

COLUMNS = ("h", "s", "a", "s_next", "p")


def is_sparse(P: Any) -> bool:
    """Whether P is a SciPy matrix, a list of them, or a list of lists of them."""
    while isinstance(P, (list, tuple)) and P:
        P = P[0]
    return hasattr(P, "tocoo")


def is_entries(P: Any) -> bool:
    """Whether P is a tuple (s, a, s_next, p) or (h, s, a, s_next, p) of columns."""
    return isinstance(P, tuple) and len(P) in (4, 5) and all(np.ndim(x) == 1 for x in P)


def read_sparse(P: Any, S: int, A: int) -> tuple[Kernel, float]:
    """The kernel of sparse matrices, and how far from 1 its rows may sum, given the precision of the numbers."""
    steps = [P] if hasattr(P, "tocoo") else list(P)
    per_action = A > 1 and all(hasattr(m, "tocoo") and m.shape == (S, S) for m in steps)
    if per_action:  # one list for all steps
        steps = [steps]
    if not any(isinstance(step, (list, tuple)) for step in steps):
        return Kernel.from_matrices(steps, S, A), max(tolerance_of(m.dtype) for m in steps)
    parts, precision = [], []
    for t, step in enumerate(steps):
        where = "P" if per_action else f"P[h={t}]"
        if not isinstance(step, (list, tuple)) or len(step) != A:
            what = f"{len(step)} matrices" if isinstance(step, (list, tuple)) else f"a {type(step).__name__}"
            raise CmdpkitError(
                f"{where} is {what}, expected one sparse matrix {(S, S)} for each of the {A} actions, or a single one "
                f"of shape (S*A, S) = {(S * A, S)}"
            )
        for a, matrix in enumerate(step):
            part = _matrix(f"{where}[a={a}]" if not per_action else f"P[a={a}]", matrix, S)
            parts.append(((t * S + part.row.astype(np.int64)) * A + a, part.col, part.data))
            precision.append(tolerance_of(part.dtype))
    rows, successors, prob = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Kernel.from_entries((len(steps), S, A), rows, successors, prob), max(precision)


def _matrix(what: str, matrix: Any, S: int) -> Any:
    if not hasattr(matrix, "tocoo"):
        raise CmdpkitError(f"{what} is a {type(matrix).__name__}, expected a sparse matrix {(S, S)}")
    if matrix.shape != (S, S) or matrix.dtype.kind not in "biuf":
        raise CmdpkitError(f"{what} is {matrix.dtype} of shape {matrix.shape}, expected numbers of shape {(S, S)}")
    return matrix.tocoo()


def read_entries(P: Sequence[Any], S: int, A: int) -> tuple[Kernel, float]:
    """The kernel of columns (s, a, s_next, p), perhaps with the step before them, and its tolerance as above."""
    names = COLUMNS[-len(P) :]
    if len({len(x) for x in P}) > 1 or not len(P[0]):
        sizes = ", ".join(f"{name} {len(x):,}" for name, x in zip(names, P, strict=True))
        raise CmdpkitError(f"P has columns of these lengths: {sizes}; expected one entry in each for every transition")
    s, a, s_next = (_indices(f"P: {name}", x, n) for name, x, n in zip(names[-4:-1], P[-4:-1], (S, A, S), strict=True))
    h = _indices("P: h", P[0], None) if len(P) == 5 else np.zeros(1, dtype=np.int64)
    prob = numbers("P: p", P[-1], copy=False)
    T = int(h.max()) + 1
    return Kernel.from_entries((T, S, A), (h * S + s) * A + a, s_next, prob), tolerance_of(np.asarray(P[-1]).dtype)


def _indices(what: str, x: Any, n: int | None) -> IntArray:
    """A column of indices, which have to be smaller than n."""
    column = np.asarray(x)
    if column.dtype.kind not in "iu":
        raise CmdpkitError(f"{what} is an array of {column.dtype}, expected indices, which are whole numbers from 0")
    outside = np.flatnonzero((column < 0) | (column >= (np.iinfo(np.int64).max if n is None else n)))
    if len(outside):
        i = int(outside[0])
        rule = "at least 0" if n is None else f"in 0..{n - 1}"
        raise CmdpkitError(f"{what}[{i}] is {column[i]}, expected an index {rule}; indices count from 0")
    return column.astype(np.int64, copy=False)
