"""Transitions and start distribution as users give them: dense or sparse, in any precision, by index or by name.

Large models come as SciPy matrices, one for each action, or as a `Kernel` of entries.

A row of probabilities must sum to 1 within 1e-9. Numbers of single precision, or numbers written with few decimals,
cannot do that, so their rows are accepted if rounding alone explains the difference. Such rows are divided by their
sum, and the largest correction is reported once, as a warning and in the notes of the model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

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
    renormalise: bool = False,
) -> tuple[FloatArray, float]:
    """The start distribution [S], and by how much it was corrected.

    ``start`` is a mapping from states to probabilities, a distribution [S], the name of a state, or its index; None is
    the first state. ``find`` returns the index of a state's name.
    """
    S, precision = len(states), ROW_SUM_TOLERANCE
    if isinstance(start, Mapping):
        spread = np.zeros(S)
        for name, p in start.items():
            spread[find(name)] += float(numbers(f"{what}[{quoted(name)}]", [p])[0])
            precision = max(precision, tolerance_of(np.asarray(p).dtype))
    elif (s := _single_state(start, states, find)) is not None:
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


def _single_state(start: Any, states: Sequence[Name], find: Callable[[Any], int]) -> int | None:
    """The index of the one state that is meant; None if a distribution is meant.

    Names that could be something else, whole numbers and tuples, are refused: the mapping {name: 1.0} is always clear.
    """
    named = not isinstance(states, range)  # by the user; by default names count from 1, and a number is an index
    if start is None:
        return 0
    if named and np.ndim(start) and is_hashable(start) and start in states:
        _refuse_unclear(start, "a distribution")
    if named and is_int(start) and any(map(is_int, states)):
        _refuse_unclear(start, "an index")
    if np.ndim(start):
        return None
    if isinstance(start, str) or (named and not is_int(start)):
        return find(start)
    if not is_int(start) or start not in range(len(states)):
        raise CmdpkitError(
            f"mu is {quoted(start)}: an initial state must be an index in 0..{len(states) - 1}"
            + (" or the name of a state" if named else "")
        )
    return int(start)


def _refuse_unclear(start: Any, other: str) -> NoReturn:
    raise CmdpkitError(
        f"mu is {quoted(start)}, which could be the name of a state and also {other}; write mu={{{start!r}: 1.0}} for "
        "the state, and mu=[...] for a distribution over all states"
    )


# -- sparse matrices --------------------------------------------------------------------------------------------------


def is_sparse(P: Any) -> bool:
    """Whether P is a SciPy matrix, a list of them, or a list of lists of them."""
    while isinstance(P, (list, tuple)) and P:
        P = P[0]
    return hasattr(P, "tocoo")


def read_sparse(P: Any, S: int, A: int) -> tuple[Kernel, float]:
    """The kernel of a sparse matrix [S, S] for each action, and its tolerance."""
    if hasattr(P, "tocoo"):
        raise CmdpkitError(
            f"P is a sparse matrix of shape {P.shape}, expected one {(S, S)} for each action; if its row s * A + a is "
            "state s, action a, pass P=[P[a::A] for a in range(A)]"
        )
    if not hasattr(P[0], "tocoo"):
        raise CmdpkitError(
            "P is a list of lists of sparse matrices, expected one matrix for each action; where transitions depend on "
            "the step h, pass Kernel.from_entries((H, S, A), (h * S + s) * A + a, s_next, p)"
        )
    if len(P) != A:
        raise CmdpkitError(f"P is {len(P)} matrices, expected one sparse matrix {(S, S)} for each of the {A} actions")
    parts, tolerance = [], ROW_SUM_TOLERANCE
    for a, matrix in enumerate(P):
        if not hasattr(matrix, "tocoo") or matrix.shape != (S, S) or matrix.dtype.kind not in "biuf":
            kind = f"{matrix.dtype} of shape {matrix.shape}" if hasattr(matrix, "dtype") else type(matrix).__name__
            raise CmdpkitError(f"P[a={a}] is {kind}, expected a sparse matrix of numbers {(S, S)}")
        part = matrix.tocoo()
        parts.append((part.row.astype(np.int64) * A + a, part.col, part.data))
        tolerance = max(tolerance, tolerance_of(part.dtype))
    rows, successors, prob = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Kernel.from_entries((1, S, A), rows, successors, prob), tolerance
