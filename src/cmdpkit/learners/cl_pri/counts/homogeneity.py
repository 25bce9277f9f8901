"""Does the world depend on the step after all? Counts may be pooled over the steps only where it does not.

Every cell keeps apart what it saw in the first and in the second half of the steps. Where their means differ by far
more than chance allows, the declaration that the world is stationary contradicts the data.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners.cl_pri.quantiles import error_quantile
from cmdpkit.model.transitions import FloatArray

ENOUGH = 30  # observations that both halves of a cell need
ERROR = 1e-4  # probability of a warning in a world that is stationary, all comparisons together
ROUNDING = 1e-9  # differences that a sum of equal numbers may show


def contradictions(halves: FloatArray) -> int:
    """The number of cells [cells, 2, 3 + 2 M] whose halves differ more than chance allows."""
    counts = halves[:, :, 0]
    compared = (counts >= ENOUGH).all(axis=1)
    if not compared.any():
        return 0
    n = counts[compared][:, :, None]
    means = halves[compared][:, :, 1::2] / n
    variances = np.maximum(halves[compared][:, :, 2::2] / n - means**2, 0.0)
    spread = np.sqrt((variances / n).sum(axis=1))
    apart = np.abs(means[:, 0] - means[:, 1])
    limit = error_quantile(ERROR / 2, apart.size)
    return int((apart > limit * spread + ROUNDING).any(axis=1).sum())
