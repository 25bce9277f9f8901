"""Probabilities that were rounded before they came here.

A row of probabilities must sum to 1 within 1e-9. Numbers of single precision, or numbers written with few decimals,
cannot do that, so their rows are accepted if rounding alone explains what is missing. Such rows are divided by their
sum, and the largest correction is reported once, as a warning and in the notes of the model.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import RoundingWarning
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray, Kernel

if TYPE_CHECKING:
    from cmdpkit.model.cmdp import CMDP

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
    prob = kernel.prob / divisor[kernel.rows]
    largest = float(miss[rounded].max())
    return Kernel.owning(kernel.T, kernel.S, kernel.A, kernel.indptr, kernel.successors, prob), largest


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
