"""Does the world depend on the step after all? Counts may be pooled over the steps only where it does not.

Every cell keeps apart what it saw in the first and in the second half of the steps. Where their means differ by far
more than chance allows, the declaration that the world is stationary contradicts the data.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.estimate.quantiles import error_quantile
from cmdpkit.model.compiled import inlined
from cmdpkit.model.transitions import FloatArray
from cmdpkit.tolerances import EQUAL_SUMS

ENOUGH = 30  # observations that both halves of a cell need
ERROR = 1e-4  # probability of a warning in a world that is stationary, all comparisons together


def new_halves(cells: int, M: int) -> FloatArray:
    """Room for what cells with M signals saw in the first and in the second half of the steps."""
    return np.zeros((cells, 2, 3 + 2 * M))


def marks_of(S: int) -> FloatArray:
    """[S]: a fixed random number per state, by which next states are told apart."""
    return np.random.default_rng(S).random(S)


@inlined
def count_half(record, mark, signals):
    """Add a step to a record: number, sum and squares of the marks of next states, sums and squares of the signals."""
    record[0] += 1.0
    record[1] += mark
    record[2] += mark * mark
    for m in range(len(signals)):
        record[3 + 2 * m] += signals[m]
        record[4 + 2 * m] += signals[m] * signals[m]


def contradictions(halves: FloatArray) -> int:
    """The number of cells [cells, 2, 3 + 2 M] whose halves differ more than chance allows.

    How far means of numbers between 0 and 1 can be apart by chance is as in Bernstein's inequality: where outcomes are
    rare, the normal approximation alone would warn too often.
    """
    counts = halves[:, :, 0]
    compared = (counts >= ENOUGH).all(axis=1)
    if not compared.any():
        return 0
    n = counts[compared][:, :, None]
    sums, squares = halves[compared][:, :, 1::2], halves[compared][:, :, 2::2]
    apart = np.abs(np.diff(sums / n, axis=1)[:, 0])
    both = n.sum(axis=1)
    variance = np.maximum(squares.sum(axis=1) / both - (sums.sum(axis=1) / both) ** 2, 0.0)
    inverses = (1 / n).sum(axis=1)
    limit = error_quantile(ERROR / 2, apart.size)
    allowed = limit * np.sqrt(variance * inverses) + limit**2 / 6 * inverses * (variance > EQUAL_SUMS)
    return int((apart > allowed + EQUAL_SUMS).any(axis=1).sum())


def warning(halves: FloatArray) -> tuple[str, ...]:
    """What a user is told where the data contradict the declaration that the world is stationary."""
    changing = contradictions(halves)
    if not changing:
        return ()
    return (
        f"the world was declared not to depend on the step, but in {changing} (state, action) pairs the first and "
        "the second half of the steps differ: declare it as depending on the step",
    )
