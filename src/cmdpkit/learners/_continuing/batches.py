"""What a policy is worth per step, from blocks of steps in which it alone was played: approximate intervals.

The means of separate blocks are treated as independent and normal with one unknown spread, so that Student's t gives
the intervals. They come near that if a block is much longer than the world remembers where it began. Nothing here
proves that it is, and so the intervals are called approximate.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from cmdpkit.learners._certificate import Intervals
from cmdpkit.model.transitions import FloatArray

LEAST_BATCHES = 10  # with fewer, their spread is a guess


def batch_intervals(means: FloatArray, steps: int, delta: float) -> Intervals | None:
    """Intervals that hold together at about 1 - delta, from means [B, 1+N] of B blocks of `steps` steps in all.

    Signals are in unit scale. With fewer than LEAST_BATCHES blocks there are none.

    >>> import numpy as np
    >>> found = batch_intervals(np.tile([[0.4], [0.6]], (10, 1)), 2000, 0.05)
    >>> [f"{low:.3f} to {high:.3f}" for low, high in found.intervals]
    ['0.452 to 0.548']
    """
    B, M = means.shape
    if B < LEAST_BATCHES:
        return None
    middle = means.mean(axis=0)
    half = stdtrit(B - 1, 1 - delta / (2 * M)) * means.std(axis=0, ddof=1) / np.sqrt(B)
    low, high = np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
    ends = tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))
    return Intervals(1 - delta, steps, ends, approximate=True)
