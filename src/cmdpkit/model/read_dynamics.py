"""Transitions and start distribution as users give them: dense or sparse, in any precision, by index or by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.read_sparse import is_entries, is_sparse, read_entries, read_sparse
from cmdpkit.model.rounding import corrected_start, tolerance_of
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray, Kernel
from cmdpkit.model.validate import Name, is_hashable, is_int, numbers


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
