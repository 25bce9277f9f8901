"""Transitions and start distribution as users give them: dense or sparse, in any precision, by index or by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.read_sparse import is_entries, is_sparse, read_entries, read_sparse
from cmdpkit.model.rounding import corrected_start, tolerance_of
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray, Kernel
from cmdpkit.model.validate import is_int, numbers


def read_transitions(P: Any, S: int, A: int) -> tuple[Kernel, float]:
    """P as a `Kernel`, and how far from 1 its rows may sum, given the precision of the numbers."""
    if isinstance(P, Kernel):
        P.check_structure()
        kernel, tolerance = P, ROW_SUM_TOLERANCE
    elif is_sparse(P):
        kernel, tolerance = read_sparse(P, S, A)
    elif is_entries(P):
        kernel, tolerance = read_entries(P, S, A)
    else:
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
    head = f"P has shape {P.shape} and r is for {S} states and {A} actions"
    if S != A and shape == (A, S, S):
        raise CmdpkitError(
            f"{head}: this is the order (A, S, S) of older toolboxes, expected (S, A, S); pass np.swapaxes(P, -3, -2)"
        )
    if S != A and shape == (S, S, A):
        raise CmdpkitError(
            f"{head}: this is the order (S, next S, A), expected (S, A, next S); pass np.swapaxes(P, -2, -1)"
        )
    if S != A and shape == (S, A, A):
        raise CmdpkitError(
            f"{head}: P looks like (A, S, S) and r like (A, S), expected (S, A, S) and (S, A); "
            "pass np.swapaxes(P, -3, -2) and the transpose of r"
        )
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


def read_start(mu: Any, S: int, find: Callable[[Any], int], *, renormalise: bool = False) -> tuple[FloatArray, float]:
    """The start distribution [S], and by how much it was corrected; ``find`` returns the index of a state's name."""
    precision = ROW_SUM_TOLERANCE
    if isinstance(mu, Mapping):
        spread = np.zeros(S)
        for name, p in mu.items():
            spread[find(name)] += float(numbers(f"mu[{quoted(name)}]", [p])[0])
            precision = max(precision, tolerance_of(np.asarray(p).dtype))
    elif isinstance(mu, str):
        spread = np.eye(1, S, find(mu))[0]
    elif np.ndim(mu) == 0:
        if not is_int(mu) or not 0 <= mu < S:
            raise CmdpkitError(f"mu is {quoted(mu)}: an initial state must be an index in 0..{S - 1}")
        spread = np.eye(1, S, int(mu))[0]
    else:
        spread = numbers("mu", mu)
        precision = tolerance_of(np.asarray(mu).dtype)
    if spread.shape != (S,):
        raise CmdpkitError(f"mu has shape {spread.shape}, expected ({S},)")
    bad = np.flatnonzero(~np.isfinite(spread) | (spread < 0))
    if len(bad):
        raise CmdpkitError(f"mu[s={bad[0]}] is {spread[bad[0]]}, expected a probability")
    total = spread.sum()
    if renormalise and total > 0:
        return spread / total, 0.0
    if abs(total - 1) > precision:
        raise CmdpkitError(f"mu sums to {total:.12g}, expected 1 within {precision:g}")
    return corrected_start(spread, precision)
