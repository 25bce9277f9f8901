"""How learners that are otherwise greedy draw random actions."""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import ZERO, embedded
from cmdpkit.simulate.random import uniform


@embedded
def random_action(usable, i, rng):
    """One of the usable [H*S, A] actions of row i = h*S + s, each equally likely."""
    A, left = np.uint64(usable.shape[1]), 0
    for a in range(A):
        left += usable[i, a]
    draw = np.int64(uniform(rng) * left)
    for a in range(A):
        if usable[i, a]:
            if draw == 0:
                return a
            draw -= 1
    return ZERO
