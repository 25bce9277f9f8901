"""How far from zero an estimate must be before one of many tests may call it significant."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from cmdpkit.model.transitions import FloatArray

CANCELLATION = 1e-9  # an error probability below this loses too many digits in 1 - error


def error_quantile(delta: float, tests: int) -> float:
    """Standard errors beyond which one of so many normal tests errs with probability at most delta, one-sided.

    >>> round(error_quantile(0.05, 27 * 40), 2)
    3.91
    """
    error = delta / max(tests, 1)
    if error < CANCELLATION:
        return -NormalDist().inv_cdf(error)
    return NormalDist().inv_cdf(1 - error)


def different_columns(seen: FloatArray) -> int:
    """How many columns of [cells, N] differ: copies of one utility err together, so they count as one test.

    >>> different_columns(np.array([[0.1, 0.1, 0.2], [0.5, 0.5, 0.5]]))
    2
    """
    return int(np.unique(seen, axis=1).shape[1])
