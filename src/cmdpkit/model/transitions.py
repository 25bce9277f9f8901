"""Transition kernels P[h, s, a, s'] stored as compressed sparse rows.

One form serves dense and sparse, stationary and time-indexed models alike: row ``(t * S + s) * A + a`` lists the
possible next states and their probabilities, with ``t = h % T`` and T = 1 (stationary) or T = H. Memory grows with the
number of nonzero probabilities; nothing of size S x S is built, except by `Kernel.dense`. Rows are assembled from
entries in any order in time that grows with the number of entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import readonly
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ARRAYS = ("indptr", "successors", "prob")  # the arrays of a kernel
DENSE_LIMIT = 1 << 28  # entries (2 GiB); a larger dense array is refused


@dataclass(frozen=True, eq=False)
class Kernel:
    """Sparse rows of a transition kernel; build it with `from_dense` or `from_entries`."""

    T: int  # steps with transitions of their own: 1 if stationary, or H
    S: int  # number of states
    A: int  # number of actions
    indptr: IntArray  # [T*S*A + 1], row i consists of the entries indptr[i] .. indptr[i+1] - 1 of the arrays below
    successors: NDArray[np.int32]  # [nonzeros], next states, rising within a row
    prob: FloatArray  # [nonzeros], their probabilities

    def __post_init__(self) -> None:
        types: tuple[type[np.generic], ...] = (np.int64, np.int32, np.float64)
        for name, dtype in zip(ARRAYS, types, strict=True):
            object.__setattr__(self, name, _stored(name, getattr(self, name), dtype))

    @classmethod
    def from_dense(cls, P: FloatArray) -> Kernel:
        """Rows of an array [T, S, A, S]; exact zeros are dropped, everything else (NaN too) is kept for `check`."""
        P = np.asarray(P, dtype=float)
        T, S, A, S_next = P.shape
        if S_next != S:
            raise CmdpkitError(f"P has shape {P.shape}: the last axis counts next states, expected {S}")
        flat = P.reshape(-1, S)
        rows, successors = np.nonzero(flat)
        return cls.in_order((T, S, A), rows, successors, flat[rows, successors])

    @classmethod
    def owning(cls, T: int, S: int, A: int, *arrays: NDArray[Any]) -> Kernel:
        """A kernel of arrays that nobody else holds: they are made read-only, and not copied."""
        for x in arrays:
            x.flags.writeable = False
        return cls(T, S, A, *arrays)

    @classmethod
    def in_order(
        cls, shape: tuple[int, int, int], rows: IntArray, successors: NDArray[Any], prob: FloatArray
    ) -> Kernel:
        """Rows from entries that are in the order of their rows already; each entry is kept as it is."""
        return cls.owning(*shape, _indptr(rows, int(np.prod(shape))), successors.astype(np.int32), prob)

    @classmethod
    def from_entries(
        cls, shape: tuple[int, int, int], rows: IntArray, successors: IntArray, prob: FloatArray
    ) -> Kernel:
        """Rows from entries (row, next state, probability) in any order; repeated pairs are added up, zeros dropped."""
        T, S, A = shape
        rows, successors = checked_entries(shape, rows, successors)
        prob = np.ascontiguousarray(prob, dtype=float)
        return cls.owning(T, S, A, *assembled((T * S * A, S), rows, successors, prob))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(T, S, A)."""
        return self.T, self.S, self.A

    @property
    def arrays(self) -> tuple[IntArray, NDArray[np.int32], FloatArray]:
        """The three arrays, in the order of `ARRAYS`."""
        return self.indptr, self.successors, self.prob

    @property
    def nonzeros(self) -> int:
        """How many transitions have a positive probability."""
        return len(self.prob)

    @property
    def rows(self) -> IntArray:
        """The row of every entry, [nonzeros]."""
        return np.repeat(np.arange(len(self.indptr) - 1), self.lengths)

    @property
    def lengths(self) -> IntArray:
        """How many entries each row has, [T*S*A]."""
        return np.diff(self.indptr)

    def entries(self, h: int, s: int, a: int) -> slice:
        """Where the entries of state s and action a at step h (from 0) stand in the arrays."""
        row = ((h % self.T) * self.S + s) * self.A + a
        return slice(int(self.indptr[row]), int(self.indptr[row + 1]))

    def filled(self) -> tuple[IntArray, IntArray]:
        """The rows that have entries, and where each of them begins."""
        rows = np.flatnonzero(self.lengths)
        return rows, self.indptr[rows]

    def sums(self) -> FloatArray:
        """Sum of every row, [T, S, A]; an empty row sums to 0."""
        total = np.zeros(self.T * self.S * self.A)
        rows, starts = self.filled()
        if len(rows):
            with np.errstate(invalid="ignore", over="ignore"):  # `check` refuses what is not finite, with its place
                total[rows] = np.add.reduceat(self.prob, starts)
        return total.reshape(self.shape)

    def with_prob(self, prob: FloatArray) -> Kernel:
        """The same entries with other probabilities."""
        return Kernel.owning(*self.shape, self.indptr, self.successors, prob)

    def once(self) -> Kernel:
        """The rows of the first step as a kernel that holds at every step, if all steps have the same; or else this."""
        size = self.S * self.A
        lengths = self.lengths.reshape(self.T, size)
        if self.T == 1 or (lengths != lengths[0]).any():
            return self
        first = slice(0, int(self.indptr[size]))
        if any((x.reshape(self.T, -1) != x[first]).any() for x in (self.successors, self.prob)):
            return self
        parts = self.indptr[: size + 1].copy(), self.successors[first].copy(), self.prob[first].copy()
        return Kernel.owning(1, self.S, self.A, *parts)

    def masked(self, allowed: BoolArray) -> Kernel:
        """The same kernel with empty rows for actions that `allowed` [1 or H, S, A] excludes at all steps of a row."""
        needed = self._needed(np.asarray(allowed, dtype=bool))
        if not self.lengths[~needed.reshape(-1)].any():
            return self
        rows = self.rows
        keep = needed.reshape(-1)[rows]
        return Kernel.in_order(self.shape, rows[keep], self.successors[keep], self.prob[keep])

    def renormalised(self) -> Kernel:
        """The same kernel with every row divided by its sum; rows without entries stay empty."""
        sums = self.sums().reshape(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.with_prob(self.prob / sums[self.rows])

    def check_structure(self) -> None:
        """Raise CmdpkitError unless the arrays fit together, which is not certain if a user put them together."""
        self.check_rows()
        entries = self.prob.size
        rising = np.diff(self.successors) > 0
        starts = self.indptr[1:-1]
        rising[starts[(starts > 0) & (starts < entries)] - 1] = True  # the first of a row may be smaller
        falling = np.flatnonzero(~rising)
        if len(falling):
            raise CmdpkitError(
                f"kernel: successors[{falling[0] + 1}] does not exceed the one before it in the same row"
            )
        if not self.prob.all():
            raise CmdpkitError(f"kernel: prob[{np.flatnonzero(self.prob == 0)[0]}] is 0: leave such entries out")

    def check_rows(self) -> None:
        """The same for where rows begin and what next states are, in whatever order these stand."""
        rows, entries = self.T * self.S * self.A + 1, self.prob.size
        for name, size in (("indptr", rows), ("successors", entries), ("prob", entries)):
            x = getattr(self, name)
            if x.shape != (size,):
                raise CmdpkitError(
                    f"kernel: {name} is {x.dtype} of shape {x.shape}, expected {x.dtype} of shape ({size},)"
                )
        if self.indptr[0] != 0 or self.indptr[-1] != len(self.prob) or (self.lengths < 0).any():
            raise CmdpkitError(f"kernel: indptr must rise from 0 to the number of entries, {len(self.prob)}")
        outside = np.flatnonzero((self.successors < 0) | (self.successors >= self.S))
        if len(outside):
            i = outside[0]
            raise CmdpkitError(f"kernel: successors[{i}] is {self.successors[i]}, expected a state in 0..{self.S - 1}")

    def check(self, allowed: BoolArray, place: Callable[[int, int, int], str]) -> None:
        """Raise CmdpkitError unless every allowed row is a distribution; `place` puts (t, s, a) into words."""
        bad = np.flatnonzero(~np.isfinite(self.prob) | (self.prob < 0) | (self.prob > 1 + ROW_SUM_TOLERANCE))
        if len(bad):
            row = int(np.searchsorted(self.indptr, bad[0], side="right") - 1)
            where = place(*(int(i) for i in np.unravel_index(row, self.shape)))
            raise CmdpkitError(
                f"P{where} gives next state index {self.successors[bad[0]]} probability {self.prob[bad[0]]}, "
                "expected a number between 0 and 1"
            )
        sums = self.sums()
        needed = self._needed(np.asarray(allowed, dtype=bool))
        wrong = np.argwhere((np.abs(sums - 1) > ROW_SUM_TOLERANCE) & needed)
        if len(wrong):
            t, s, a = (int(i) for i in wrong[0])
            more = f" ({len(wrong)} rows do)" if len(wrong) > 1 else ""
            raise CmdpkitError(
                f"P{place(t, s, a)} sums to {sums[t, s, a]:.12g}, expected 1 within {ROW_SUM_TOLERANCE:g}{more}; "
                "correct the row, mark the action as unavailable, or pass renormalise=True to divide by the sum"
            )

    def _needed(self, allowed: BoolArray) -> BoolArray:
        """Which rows some step can use, [T, S, A]."""
        if len(allowed) > self.T:
            allowed = np.any(allowed, axis=0, keepdims=True)
        return np.broadcast_to(allowed, self.shape)

    def dense(self, H: int) -> FloatArray:
        """P as a read-only array [H, S, A, S]; a stationary kernel is a broadcast view of [S, A, S]."""
        size = self.T * self.S * self.A * self.S
        if size > DENSE_LIMIT:
            raise CmdpkitError(
                f"P written out densely has {size:,} entries (S = {self.S}); use the sparse rows in `cmdp.kernel`"
            )
        P = np.zeros((self.T * self.S * self.A, self.S))
        P[self.rows, self.successors] = self.prob
        return np.broadcast_to(P.reshape(self.T, self.S, self.A, self.S), (H, self.S, self.A, self.S))


class Compact(NamedTuple):
    """The arrays of a model beside its rows, each with its own T (1 if all steps are the same, else H): use h % T."""

    r: FloatArray  # [T, S, A], reward
    g: FloatArray  # [N, T, S, A], utilities
    allowed: BoolArray  # [T, S, A], which actions exist
    mu: FloatArray  # [S], start distribution


class Rows(NamedTuple):
    """Sparse transition rows as compiled code reads them; the rows of a Markov chain are its states, with A = 1.

    Indices are unsigned, because compiled code need not check these for negative ones. All arrays are read-only.
    """

    indptr: NDArray[np.uint64]  # [T*S*A + 1], where each row begins in the two arrays below
    successors: NDArray[np.uint32]  # [entries], next states
    prob: FloatArray  # [entries], their probabilities
    A: np.uint64  # number of actions
    stride: np.uint64  # from the rows of a step to those of the next one: S * A, or 0 if all steps have the same rows

    @classmethod
    def of(cls, indptr: IntArray, successors: NDArray[np.int32], prob: FloatArray, S: int, A: int) -> Rows:
        """The rows (t * S + s) * A + a of a kernel, or those of a chain; the arrays are shared."""
        arrays = readonly(indptr.view(np.uint64)), readonly(successors.view(np.uint32)), readonly(prob)
        return cls(*arrays, np.uint64(A), np.uint64(S * A if len(indptr) - 1 > S * A else 0))


class Signals(NamedTuple):
    """What is collected, as compiled code reads it; each array has 1 or H steps."""

    r: FloatArray  # [T, S, A], reward
    g: FloatArray  # [N, T, S, A], utilities


def checked_entries(shape: tuple[int, int, int], rows: Any, successors: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and next states of entries, which have to be those of a kernel of this shape (T, S, A)."""
    T, S, A = shape
    rows, successors = _indices("rows", rows), _indices("successors", successors)
    if len(rows) and not (rows.min() >= 0 and rows.max() < T * S * A):
        raise CmdpkitError(f"transition rows must lie in 0..{T * S * A - 1}, got {rows.min()}..{rows.max()}")
    if len(successors) and not (successors.min() >= 0 and successors.max() < S):
        worst = successors.min() if successors.min() < 0 else successors.max()
        raise CmdpkitError(f"next states must lie in 0..{S - 1}, got {worst}")
    return rows, successors


def _indices(name: str, x: Any) -> NDArray[Any]:
    """Whole numbers in a form that compiled code reads."""
    given = np.asarray(x)
    if given.dtype.kind not in "iu" and given.size:
        raise CmdpkitError(f"kernel: {name} is an array of {given.dtype}, expected whole numbers")
    return np.ascontiguousarray(given, dtype=given.dtype.newbyteorder("=") if given.size else np.int64)


def _stored(name: str, x: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """An array of a kernel as compiled code reads it: contiguous and read-only; a copy unless it is that already."""
    given = np.asarray(x)
    if given.dtype == dtype and given.flags.c_contiguous and not given.flags.writeable:
        return given
    if given.dtype.kind not in ("iu" if np.issubdtype(dtype, np.integer) else "biuf"):
        raise CmdpkitError(f"kernel: {name} is an array of {given.dtype}, expected {np.dtype(dtype)}")
    stored = np.array(given, dtype=dtype, order="C")
    if stored.dtype.kind == "i" and (stored != given).any():
        i = int(np.flatnonzero((stored != given).reshape(-1))[0])
        raise CmdpkitError(f"kernel: {name}[{i}] is {given.reshape(-1)[i]}, which is too large for {np.dtype(dtype)}")
    stored.flags.writeable = False
    return stored


def expected(probabilities: Sequence[float], values: Sequence[float]) -> float:
    """The mean of a number that depends on the next state; without any rounding if it is the same for all of them."""
    if all(x == values[0] for x in values):
        return float(values[0])
    total = math.fsum(probabilities)
    return math.fsum(p * x for p, x in zip(probabilities, values, strict=True)) / (total or 1.0)


def _indptr(rows: IntArray, n_rows: int) -> IntArray:
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n_rows)))).astype(np.int64)


# -- assembling rows --------------------------------------------------------------------------------------------------


def assembled(
    shape: tuple[int, int], rows: Any, successors: Any, prob: FloatArray
) -> tuple[IntArray, NDArray[np.int32], FloatArray]:
    """Where each row of a matrix of this shape begins, the columns of its entries, rising in a row, and the entries.

    Entries that have row and column in common are added up in the given order, and zeros are left out. Rows and columns
    must lie within their ranges, which is for the caller to check.
    """
    listed = sparse.coo_array((prob, (rows, successors)), shape=shape)
    listed.has_canonical_format = True  # which leaves the adding up to the call below
    made = listed.tocsr()
    if not made.has_sorted_indices:
        made = made.tocsc().tocsr()  # unlike sorting, this keeps equal entries in their order
    made.sum_duplicates()
    made.eliminate_zeros()
    return made.indptr.astype(np.int64), made.indices.astype(np.int32), made.data
