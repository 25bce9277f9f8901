"""Transitions and start distribution as users give them: dense or sparse, in any precision, by index or by name.

Large models come as SciPy matrices, one for each action, or as a `Kernel` of entries.

A row of probabilities must sum to 1 within 1e-9. Numbers of single precision, or numbers written with few decimals,
cannot do that, so their rows are accepted if rounding alone explains the difference. Such rows are divided by their
sum, and the largest correction is reported once, as a warning and in the notes of the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError, RoundingWarning, quoted
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray, Kernel
from cmdpkit.model.validate import Name, is_hashable, is_int, numbers

if TYPE_CHECKING:
    from cmdpkit.model.cmdp import CMDP


# -- rounded probabilities --------------------------------------------------------------------------------------------

TOLERANCES = {np.dtype(np.float16): 5e-3, np.dtype(np.float32): 1e-5}  # how far from 1 rows of this type may sum


def tolerance_of(dtype: Any) -> float:
    """How far from 1 a sum of probabilities of this type may be."""
    return TOLERANCES.get(np.dtype(dtype), ROW_SUM_TOLERANCE)


def corrected_rows(kernel: Kernel, tolerance: float | FloatArray) -> tuple[Kernel, float]:
    """The kernel with its rounded rows divided by their sums, and the largest difference of such a sum from 1.

    ``tolerance`` is one number or an array [T, S, A]. Rows within 1e-9 stay as they are to the last bit, and rows
    beyond the tolerance stay as they are for `Kernel.check` to refuse.
    """
    sums = kernel.sums()
    miss = np.abs(sums - 1)
    rounded = (miss > ROW_SUM_TOLERANCE) & (miss <= tolerance)
    if not rounded.any():
        return kernel, 0.0
    divisor = np.where(rounded, sums, 1.0).reshape(-1)
    return kernel.with_prob(kernel.prob / divisor[kernel.rows]), float(miss[rounded].max())


def corrected_start(mu: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
    """The start distribution, divided by its sum if it was rounded, and by how much that sum differed from 1."""
    miss = float(abs(mu.sum() - 1))
    return (mu / mu.sum(), miss) if ROW_SUM_TOLERANCE < miss <= tolerance else (mu, 0.0)


def report_correction(cmdp: CMDP, correction: float, source: str = "") -> None:
    """If probabilities were corrected, warn, and keep the warning in the notes of the model."""
    if correction > 0:
        vars(cmdp).update(notes=(*cmdp.notes, warn(correction, source)))


def warn(correction: float, source: str) -> str:
    """Warn that probabilities were corrected, and by how much; returns the text of the warning."""
    note = (
        f"{source}{': ' if source else ''}probabilities were given with few digits: some did not sum to 1 and were "
        f"divided by their sum, which was off by at most {correction:.3g}"
    )
    warnings.warn(note, RoundingWarning, stacklevel=4)
    return note


def read_transitions(P: Any, S: int, A: int) -> tuple[Kernel, float]:
    """P as a `Kernel`, and how far from 1 its rows may sum, given the precision of the numbers."""
    if isinstance(P, Kernel):
        P.check_structure()
        kernel, tolerance = P, ROW_SUM_TOLERANCE
    elif is_sparse(P):
        kernel, tolerance = read_sparse(P, S, A)
    else:
        if isinstance(P, tuple) and len(P) in (4, 5) and all(np.ndim(x) == 1 for x in P):
            raise CmdpkitError(
                "P is a tuple of columns; pass Kernel.from_entries((T, S, A), (h * S + s) * A + a, s_next, p), with "
                "T = 1 and h = 0 if nothing depends on the step"
            )
        dense = numbers("P", P)
        if dense.ndim not in (3, 4):
            raise CmdpkitError(
                f"P has shape {dense.shape}, expected (S, A, S) or (H, S, A, S); give P[s, a] as the probabilities of "
                "the next states"
            )
        _check_order(dense, S, A)
        kernel = Kernel.from_dense(dense[None] if dense.ndim == 3 else dense)
        tolerance = tolerance_of(np.asarray(P).dtype)
    if (kernel.S, kernel.A) != (S, A):
        raise CmdpkitError(
            f"P is for {kernel.S} states and {kernel.A} actions, r for {S} and {A}; expected P (S, A, S) and r (S, A): "
            "if the axes of r are exchanged, pass np.swapaxes(r, -2, -1)"
        )
    return kernel, tolerance


def _check_order(P: FloatArray, S: int, A: int) -> None:
    """Refuse a P whose shape or sums show that its axes are not in the order (S, A, S)."""
    shape = P.shape[-3:]
    orders = {
        (A, S, S): "this is the order (A, S, S) of older toolboxes, expected (S, A, S); pass np.swapaxes(P, -3, -2)",
        (S, S, A): "this is the order (S, next S, A), expected (S, A, next S); pass np.swapaxes(P, -2, -1)",
        (
            S,
            A,
            A,
        ): "P looks like (A, S, S) and r like (A, S), expected (S, A, S) and (S, A); pass np.swapaxes(P, -3, -2) "
        "and the transpose of r",
    }
    if S != A and shape in orders:
        raise CmdpkitError(f"P has shape {P.shape} and r is for {S} states and {A} actions: {orders[shape]}")
    if shape == (S, A, S) and S == A and not _all_one(P, -1):
        for axis, order in ((-2, "(S, next S, A)"), (-3, "(next S, S, A)")):
            if _all_one(P, axis):
                raise CmdpkitError(
                    f"P sums to 1 over axis {axis} and not over its last axis: this looks like the order {order}, "
                    "expected (S, A, next S), where P[s, a] is the distribution of the next state"
                )


def _all_one(P: FloatArray, axis: int) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused later, with its place
        return bool((np.abs(P.sum(axis=axis) - 1) <= ROW_SUM_TOLERANCE).all())


def read_start(
    start: Any,
    states: Sequence[Name],
    find: Callable[[Any], int],
    *,
    what: str = "mu",
    by_index: bool = True,
    renormalise: bool = False,
) -> tuple[FloatArray, float]:
    """The start distribution [S], and by how much it was corrected.

    ``start`` is a mapping from states to probabilities, a distribution [S], the name of a state, or its index; None is
    the first state. What can be read in two ways that differ is refused. Default names are not read: a state is meant
    by its index where its author gave it no name. ``find`` returns the index of a state's name. Without ``by_index``
    a whole number is always a name.
    """
    S, precision = len(states), ROW_SUM_TOLERANCE
    if isinstance(start, Mapping):
        spread = np.zeros(S)
        for name, p in start.items():
            spread[find(name)] += float(numbers(f"{what}[{quoted(name)}]", [p])[0])
            precision = max(precision, tolerance_of(np.asarray(p).dtype))
    elif (s := _single_state(start, states, find, what, by_index)) is not None:
        return np.eye(1, S, s)[0], 0.0
    else:
        spread = numbers(what, start)
        precision = tolerance_of(np.asarray(start).dtype)
    if spread.shape != (S,):
        raise CmdpkitError(f"{what} has shape {spread.shape}, expected ({S},)")
    bad = np.flatnonzero(~np.isfinite(spread) | (spread < 0))
    if len(bad):
        raise CmdpkitError(f"{what}[s={bad[0]}] is {spread[bad[0]]}, expected a probability")
    total = spread.sum()
    if renormalise and total > 0:
        return spread / total, 0.0
    if abs(total - 1) > precision:
        raise CmdpkitError(f"{what} sums to {total:.12g}, expected 1 within {precision:g}")
    return corrected_start(spread, precision)


def _single_state(
    start: Any, states: Sequence[Name], find: Callable[[Any], int], what: str, by_index: bool
) -> int | None:
    """The index of the one state that is meant; None if a distribution is meant."""
    if start is None:
        return 0
    if isinstance(start, str):
        return find(start)
    named = _named(start, states, find)
    if np.ndim(start) > 0:
        if named is not None and _may_be_distribution(start, len(states)):
            raise CmdpkitError(
                f"{what} is {quoted(start)}, which is the name of a state and also a distribution over the "
                f"{len(states)} states; write {what}={{{start!r}: 1.0}} for the state, or {what}={list(start)!r} for "
                "the distribution"
            )
        return named
    if not by_index:
        return find(start)
    index = int(start) if is_int(start) and 0 <= start < len(states) else None
    if named is not None and index is not None and named != index:
        raise CmdpkitError(
            f"{what} is {quoted(start)}, which is the name of the state with index {named} and also the index of the "
            f"state {quoted(states[index])}; write {what}={{{start!r}: 1.0}} or {what}={{{states[index]!r}: 1.0}}"
        )
    if named is None and index is None:
        raise CmdpkitError(
            f"{what} is {quoted(start)}: an initial state must be an index in 0..{len(states) - 1}"
            + ("" if isinstance(states, range) else " or the name of a state")
        )
    return index if named is None else named


def _named(start: Any, states: Sequence[Name], find: Callable[[Any], int]) -> int | None:
    """The index of the state whose name this is, unless the names are the default ones."""
    if isinstance(states, range) or not is_hashable(start):
        return None
    try:
        s = find(start)
    except CmdpkitError:
        return None
    return s if states[s] == start else None


def _may_be_distribution(x: Any, S: int) -> bool:
    """Whether these are S probabilities that sum to 1."""
    try:
        spread = numbers("", x, copy=False)
    except CmdpkitError:
        return False
    return spread.shape == (S,) and bool((spread >= 0).all()) and abs(float(spread.sum()) - 1) <= ROW_SUM_TOLERANCE


# -- sparse matrices --------------------------------------------------------------------------------------------------


def is_sparse(P: Any) -> bool:
    """Whether P is a SciPy matrix, a list of them, or a list of lists of them."""
    while isinstance(P, (list, tuple)) and P:
        P = P[0]
    return hasattr(P, "tocoo")


def read_sparse(P: Any, S: int, A: int) -> tuple[Kernel, float]:
    """The kernel of a sparse matrix [S, S] for each action, or of a list of those for each step, and its tolerance."""
    if hasattr(P, "tocoo"):
        raise CmdpkitError(
            f"P is a sparse matrix of shape {P.shape}, expected one {(S, S)} for each action; if its row s * A + a is "
            "state s, action a, pass P=[P[a::A] for a in range(A)]"
        )
    steps = [P] if hasattr(P[0], "tocoo") else P
    parts, tolerance = [], ROW_SUM_TOLERANCE
    for t, step in enumerate(steps):
        at = f"P[h={t}]" if steps is P else "P"
        if not isinstance(step, (list, tuple)) or len(step) != A:
            what = f"{len(step)} matrices" if isinstance(step, (list, tuple)) else f"a {type(step).__name__}"
            raise CmdpkitError(f"{at} is {what}, expected one sparse matrix {(S, S)} for each of the {A} actions")
        for a, matrix in enumerate(step):
            if not hasattr(matrix, "tocoo") or matrix.shape != (S, S) or matrix.dtype.kind not in "biuf":
                kind = f"{matrix.dtype} of shape {matrix.shape}" if hasattr(matrix, "dtype") else type(matrix).__name__
                raise CmdpkitError(f"{at}[a={a}] is {kind}, expected a sparse matrix of numbers {(S, S)}")
            part = matrix.tocoo()
            parts.append(((t * S + part.row.astype(np.int64)) * A + a, part.col, part.data))
            tolerance = max(tolerance, tolerance_of(part.dtype))
    rows, successors, prob = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Kernel.from_entries((len(steps), S, A), rows, successors, prob), tolerance
