"""What model-free learners share: prices that move once a frame, the best action, and random actions.

Dual-Q and the warm-up of MF-PRI keep action values of reward and utilities (`cells`), the weights of the two in
what actions maximise (`weight`, whose entries from 1 on are the prices), the action that is best at these weights
(`best`), and the sum of what every bound missed in the frame (`drive`). The length of their constant `zero` is the
number of values, 1 + N.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import ZERO, compiled, embedded
from cmdpkit.simulate.random import uniform


@embedded
def move_prices(learned, c, k):
    """Take a step of the prices after k episodes, and fade the exploration."""
    for n in range(len(learned.drive)):
        lam = learned.weight[n + 1] + c.eta * learned.drive[n]
        learned.weight[n + 1] = min(max(lam, 0.0), c.lam_max)
        learned.drive[n] = 0.0
    learned.explore[0] = c.explore * min(1.0, np.sqrt(c.explore_for / k))
    learned.changed[0] = True


@compiled
def find_best_everywhere(learned, c):
    """Find the best action of every step and state."""
    for i in range(c.H * c.S):
        find_best(learned, c, np.uint64(i))


@embedded
def find_best(learned, c, i):
    """Find the best action of row i = h*S + s; ties go to the lower action, and optimism resolves them by trying."""
    best, top = ZERO, -np.inf
    for a in range(c.A):
        value = 0.0
        for n in range(len(c.zero)):
            value += learned.weight[n] * learned.cells[i * c.A + a, n]
        if c.usable[i, a] and value > top:
            best, top = np.uint64(a), value
    if learned.best[i] != best:
        learned.best[i] = best
        learned.changed[0] = True


# -- How learners that are otherwise greedy draw random actions.


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
