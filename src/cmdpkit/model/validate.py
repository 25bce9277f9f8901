"""The arguments of a model, read and checked: arrays, masks, transitions, the start, and names.

Transitions are dense or sparse, in any precision; large ones come as SciPy matrices, one for each action, or as a
`Kernel` of entries. A row of probabilities must sum to 1 within 1e-9. Numbers of single precision, or numbers written
with few decimals, cannot do that, so their rows are accepted if rounding alone explains the difference. Such rows are
divided by their sum, and the largest correction is reported once, as a warning and in the notes of the model.
`Positions` finds names, also among millions of them.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cmdpkit.errors import CmdpkitError, RoundingWarning, quoted, shown
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel

if TYPE_CHECKING:
    from cmdpkit.model.cmdp import CMDP

Name: TypeAlias = Hashable  # what a user calls a state or an action: text, a number, a tuple, a date, anything hashable
MAX_HORIZON = 1_000_000_000  # number of steps; a larger one is taken for a mistake
MAX_COMPARED = 200  # characters; a longer word takes long to compare, and is rarely a misspelt name
MAX_EPISODES = 10**15  # episodes or steps of a run; counts stay exact as floats, and no run ever ends beyond
MAX_SEED = 2**63 - 1  # the largest whole number that a column of the results can hold
MIN_DELTA = 1e-12  # with a smaller probability of error, 1 - delta would be rounded too much


def numbers(what: str, x: Any, *, copy: bool = True) -> FloatArray:
    """A float array in C order, or an error that names `what`; without ``copy`` it may be the one given."""
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "biufO":  # texts, dates and complex numbers would be converted silently
            raise CmdpkitError(f"got an array of {array.dtype}")
        return np.array(array, dtype=float, order="C") if copy else np.asarray(array, dtype=float, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise CmdpkitError(f"{what} must be an array of numbers: {error}") from None


def frozen(x: Any) -> Any:
    """Make the array read-only, and return it."""
    x.flags.writeable = False
    return x


def table(what: str, x: Any) -> FloatArray:
    """An array [S, A] or [H, S, A] as [1 or H, S, A]."""
    array = numbers(what, x)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise CmdpkitError(f"{what} has shape {array.shape}, expected (S, A) or (H, S, A) with nothing empty")
    return array[None] if array.ndim == 2 else array


def action_mask(x: Any, S: int, A: int) -> BoolArray:
    """Which actions exist, bool [S, A] or [H, S, A], as [1 or H, S, A]."""
    try:
        mask = np.array(x, order="C")
    except ValueError as error:
        raise CmdpkitError(f"actions must be an array of truth values: {error}") from None
    if mask.dtype != bool:
        raise CmdpkitError(f"actions has dtype {mask.dtype}, expected bool (True where the action exists)")
    if mask.ndim not in (2, 3) or mask.shape[-2:] != (S, A) or 0 in mask.shape:
        raise CmdpkitError(f"actions has shape {mask.shape}, expected {(S, A)} or (H, {S}, {A})")
    return mask[None] if mask.ndim == 2 else mask


def read_signal(
    what: str, x: FloatArray, allowed: BoolArray, steps: float, place: Callable[[int, int, int, int], str]
) -> FloatArray:
    """x with zeros where no action exists; entries that are not finite are refused. A total counts ``steps`` steps."""
    largest = np.finfo(float).max / (4 * steps)  # totals, and their differences, must be finite too
    bad = np.argwhere(~(np.abs(x) <= largest) & allowed)
    if len(bad):
        h, s, a = (int(i) for i in bad[0])
        value = x[h % len(x), s, a]
        rule = f"at most {largest:.3g}, so that totals are finite" if np.isfinite(value) else "a finite number"
        rule += "; for an action that is not allowed, give actions=np.isfinite(r)" if np.isneginf(value) else ""
        raise CmdpkitError(f"{what}{place(h, s, a, max(len(x), len(allowed)))} is {value}, expected {rule}")
    return masked(x, allowed)


def masked(x: FloatArray, allowed: BoolArray) -> FloatArray:
    """x [1 or H, S, A] with zeros where no step has the action, and no negative zeros."""
    usable = allowed if len(allowed) <= len(x) else np.any(allowed, axis=0, keepdims=True)
    zeroed: FloatArray = np.where(usable, x, 0.0) + 0.0
    return zeroed


def horizon_of(horizon: int | None, **steps: int) -> int:
    """The horizon H: the one given, or else the number of steps of the arrays, all of which must have 1 or H steps."""
    if horizon is not None:
        check_horizon(horizon)
    H = int(horizon) if horizon is not None else max(steps.values())
    if horizon is None and H == 1 and steps["P"] == 1:
        raise CmdpkitError("horizon is missing: nothing given depends on the step (or give a discount or a criterion)")
    for what, T in steps.items():
        if T not in (1, H):
            raise CmdpkitError(f"{what} has {T} steps, expected 1 (stationary) or horizon = {H}")
    return H


def check_horizon(horizon: Any) -> None:
    """Raise CmdpkitError unless the horizon is a possible number of steps."""
    if not is_int(horizon) or not 1 <= horizon <= MAX_HORIZON:
        rule = f"at least 1 (and at most {MAX_HORIZON:,})"
        raise CmdpkitError(f"horizon is {quoted(horizon)}, expected a whole number of steps, {rule}")


def names_of(what: str, names: Iterable[Any] | None, n: int) -> Sequence[Name]:
    """Names as the user's objects (texts if unhashable), by default 1..n; their texts, shown in files, must differ."""
    if names is None:
        return range(1, n + 1)
    if isinstance(names, range) and names == range(1, n + 1):
        return names
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise CmdpkitError(f"{what} is {quoted(names)}, expected a list of names")
    listed = tuple(_name(x) for x in names)
    if len(listed) != n:
        raise CmdpkitError(f"{what} has {len(listed)} names, expected {n}")
    if len(set(listed)) == n and all(isinstance(x, str) and x.strip() for x in listed):
        return listed  # the usual case, at once
    seen: set[str] = set()
    objects: set[Any] = set()
    for i, name in enumerate(listed):
        if str(name) in seen or name in objects:
            raise CmdpkitError(f"{what}[{i}] is {quoted(name)} again: names must differ")
        if not str(name).strip():
            raise CmdpkitError(f"{what}[{i}] is empty")
        seen.add(str(name))
        objects.add(name)
    return listed


def _name(x: Any) -> Name:
    if isinstance(x, str):
        return x
    if is_int(x):
        return int(x)
    if isinstance(x, np.generic) and not isinstance(x, np.datetime64):
        x = x.item()  # a float or a truth value
    return x if is_hashable(x) else str(x)


def is_hashable(x: Any) -> bool:
    """Whether x can be compared with other names; a list, for example, cannot."""
    try:
        hash(x)
    except TypeError:
        return False
    return True


def written_name(name: Name) -> str | int:
    """A name as files, records and --json write it: text, or a whole number."""
    return int(name) if is_int(name) else str(name)  # type: ignore[call-overload]


def check_seed(seed: Any) -> None:
    """Raise CmdpkitError unless this is a seed that can be used and recorded."""
    if not is_int(seed) or not 0 <= seed <= MAX_SEED:
        raise CmdpkitError(f"seed is {seed!r}, expected a whole number from 0 to 2**63 - 1")


def check_length(what: str, n: Any, most: int = MAX_EPISODES) -> int:
    """A number of episodes or steps as an int; raises CmdpkitError unless it is whole and lies in 1..most."""
    if not is_int(n) or n < 1:
        raise CmdpkitError(f"{what} is {quoted(n)}, expected a whole number, at least 1")
    if n > most:
        raise CmdpkitError(f"{what} is {quoted(n)}, expected at most {most:,}")
    return int(n)


def is_int(x: Any) -> bool:
    """Whether x is a whole number and not a truth value."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def index_of(what: str, names: Sequence[Name], name: Any) -> int:
    """Position of a name, or an error that suggests the nearest one."""
    return Positions(what, names)(name)


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one most like it, or the first few."""
    listed = [x for x in known if len(x) <= MAX_COMPARED]
    near = difflib.get_close_matches(word, listed, 1) if len(word) <= MAX_COMPARED else []
    if near:
        return f"; did you mean {quoted(near[0])}?"
    return f"; known are {', '.join(map(shown, listed[:8]))}{' ...' if len(listed) > 8 else ''}"


class Renamed:
    """An attribute of earlier versions, refused with the name that replaced it."""

    words = "is now called"

    def __init__(self, now: str) -> None:
        self.now = now

    def __set_name__(self, owner: type, name: str) -> None:
        self.told = f"{owner.__name__}.{name} {self.words} {self.now}"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        raise AttributeError(self.told)


class Removed(Renamed):
    """An attribute of earlier versions, refused with what to do without it."""

    words = "was removed:"


# -- positions of names -----------------------------------------------------------------------------------------------


class Positions:
    """The positions of names, counted from 0; a name is found by itself or by its text, as files write it.

    >>> position = Positions("state", ("low", (1, 2)))
    >>> position((1, 2)), position("(1, 2)"), position.many(["low", "low"]).tolist()
    (1, 1, [0, 0])
    """

    def __init__(self, what: str, names: Sequence[Name]) -> None:
        self.what, self.names = what, names

    @cached_property
    def _by_name(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {str(name): i for i, name in enumerate(self.names)}

    def __call__(self, name: Any) -> int:
        """The position of a name, or an error that suggests the nearest one."""
        if isinstance(self.names, range) and is_int(name) and name in self.names:
            return self.names.index(int(name))
        try:
            if (found := self._by_name.get(name)) is not None:
                return found
        except TypeError:  # not hashable, such as a list
            pass
        if (found := self._by_text.get(str(name))) is not None:
            return found
        raise CmdpkitError(f"unknown {self.what} {quoted(name)}{nearest(str(name), self._by_text)}")

    def many(self, names: Any) -> IntArray:
        """The positions of many names."""
        if isinstance(names, str) or not hasattr(names, "__len__"):
            raise CmdpkitError(f"{self.what}s is {quoted(names)}, expected a list or array of names")
        listed = names.tolist() if isinstance(names, np.ndarray) else names
        try:
            return np.fromiter(map(self._by_name.__getitem__, listed), dtype=np.int64, count=len(listed))
        except (KeyError, TypeError):
            return np.array([self(name) for name in listed], dtype=np.int64)


# -- transitions and start, as users give them ------------------------------------------------------------------------

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
        if (P.S, P.A) != (S, A):
            raise CmdpkitError(f"P is for {P.S} states and {P.A} actions, r for {S} and {A}; expected the same")
        return P, ROW_SUM_TOLERANCE
    if hasattr(P, "tocoo") or (isinstance(P, (list, tuple)) and any(hasattr(x, "tocoo") for x in P)):
        return _read_sparse(P, S, A)
    dense = numbers("P", P)
    if dense.ndim not in (3, 4) or dense.shape[-3:] != (S, A, S):
        raise CmdpkitError(
            f"P has shape {dense.shape}, expected (S, A, S) or (H, S, A, S) with S = {S} and A = {A} as in r; P[s, a] "
            "is the distribution of the next state. Where actions come first in P, pass np.swapaxes(P, -3, -2), where "
            "they come last, np.swapaxes(P, -2, -1), and where they come first in r, np.swapaxes(r, -2, -1)"
        )
    if S == A and not _all_one(dense, -1):
        for axis in (-2, -3):
            if _all_one(dense, axis):
                raise CmdpkitError(
                    f"P sums to 1 over axis {axis} and not over its last axis, expected (S, A, next S), where P[s, a] "
                    "is the distribution of the next state"
                )
    return Kernel.from_dense(dense[None] if dense.ndim == 3 else dense), tolerance_of(np.asarray(P).dtype)


def _all_one(P: FloatArray, axis: int) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused later, with its place
        return bool((np.abs(P.sum(axis=axis) - 1) <= ROW_SUM_TOLERANCE).all())


def _read_sparse(P: Any, S: int, A: int) -> tuple[Kernel, float]:
    """The kernel of a sparse matrix [S, S] for each action, and its tolerance."""
    if hasattr(P, "tocoo") or len(P) != A:
        found = f"a sparse matrix of shape {P.shape}" if hasattr(P, "tocoo") else f"{len(P)} matrices"
        raise CmdpkitError(
            f"P is {found}, expected a list with one sparse matrix {(S, S)} for each of the {A} actions; where row s * "
            "A + a of one matrix is state s, action a, pass P=[P[a::A] for a in range(A)]"
        )
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
    is_name = named and np.ndim(start) and is_hashable(start) and start in states
    if is_name or (named and is_int(start) and any(map(is_int, states))):
        raise CmdpkitError(
            f"mu is {quoted(start)}, which could be the name of a state and also an index or a distribution; write "
            f"mu={{{start!r}: 1.0}} for the state, and mu=[...] for a distribution over all states"
        )
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
