"""Utilities that are the same whatever is done, as far as the data can tell.

Where such a utility lies exactly at its bound and its signals are noisy, the estimated model says by chance that it
misses the bound, or meets it with nothing to spare. A plan would then give up any amount of reward for actions that
were merely lucky so far. Nothing is bought by that, so no plan asks for such a bound.
"""

from __future__ import annotations

import numpy as np
from scipy.special import fdtrc

from cmdpkit.estimate.counts import Counts
from cmdpkit.model.tolerances import EQUAL_SUMS
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

ERROR = 1e-4  # probability with which a utility that nothing changes is taken for one that something changes
NEAR = 3.0  # standard errors within which a total cannot be told from its bound


def indifferent(counts: Counts, T: int, H: int, rho: FloatArray) -> BoolArray:
    """[N]: utilities that no state and no action is seen to change, and whose total cannot be told from the bound.

    T is 1 where all steps share their counts, else H.
    """
    M, visits = 1 + len(rho), counts.visits.reshape(T, -1)
    found = np.zeros(len(rho), dtype=bool)
    for n, bound in enumerate(rho):
        m = n + 1
        sums = counts.moments[:, m].reshape(visits.shape)
        squares = counts.moments[:, M + (m + 1) * (m + 2) // 2 - 1].reshape(visits.shape)
        variance = _common_variance(visits, sums, squares)
        if variance is None:
            continue
        seen = np.maximum(visits.sum(axis=1), 1)
        total = H / T * (sums.sum(axis=1) / seen).sum()
        error = H / T * np.sqrt((variance / seen).sum())
        found[n] = abs(total - bound) <= NEAR * error + EQUAL_SUMS
    return found


def _common_variance(visits: IntArray, sums: FloatArray, squares: FloatArray) -> float | None:
    """The variance of a signal around the mean of its step, or None if the means of a step's cells differ.

    visits, sums and squares [T, cells] are what each cell saw. Whether the means differ is decided by the F-test of the
    analysis of variance, which compares their spread with the spread within the cells.
    """
    cells = np.maximum(visits, 1)
    around_cells = max(float((squares - sums**2 / cells).sum()), 0.0)
    steps = np.maximum(visits.sum(axis=1), 1)
    around_steps = max(float((squares.sum(axis=1) - sums.sum(axis=1) ** 2 / steps).sum()), 0.0)
    between = int((visits > 0).sum()) - int((visits.sum(axis=1) > 0).sum())
    within = int(np.maximum(visits - 1, 0).sum())
    if within < between or not between:  # too few visits to tell
        return None
    apart = around_steps - around_cells
    if apart > EQUAL_SUMS * float(squares.sum()):
        ratio = apart / between / max(around_cells / within, 1e-300)
        if fdtrc(between, within, ratio) < ERROR:
            return None
    return around_steps / (between + within)
