"""The lower-bound instance: one early choice between reward and utility, between two problems hard to tell apart.

The only decision that matters is the first. Action u leads to reward forever, action v to utility forever: a lot
of it with probability p, half as much otherwise. How often v must be played depends on p, so instances with p = 1/2
and p = 1/2 + 1/sqrt(K) have optima a constant times 1/sqrt(K) apart, and K episodes cannot tell which one they see.

States: 0 (the start), 1 (reward), 2 (utility), 3 (half utility); 1, 2 and 3 are never left.
Actions: u, v; they differ in state 0 only.
Reward: 1 per step in state 1, else 0. The first step pays nothing.
Constraints: utility: E[sum] >= (H - 1) / 3, paying 1 per step in state 2 and 1/2 in state 3.
Start: State 0.
Parameters:
    p : probability that v leads to state 2, from 0 to 1
    H : number of steps, at least 2

The optimum plays v with probability 2 / (3 (1 + p)) =: x at the start; its value is (1 - x)(H - 1), its shadow price
2 / (1 + p), and the Slater slack is (H - 1)(1 + 3 p) / 6.

Reference: The lower bound of arXiv 2309.15395.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least


def build(p: float = 0.5, H: int = 6) -> CMDP:
    """The instance with success probability ``p`` and ``H`` steps."""
    p, H = real("p", p, 0, 1), whole("H", H, 2)
    P = np.zeros((4, 2, 4))
    P[0, 0, 1] = 1.0
    P[0, 1, 2:] = p, 1 - p
    P[[1, 2, 3], :, [1, 2, 3]] = 1.0
    r = np.repeat([[0.0], [1.0], [0.0], [0.0]], 2, axis=1)  # [s, a]
    g = np.repeat([[0.0], [0.0], [1.0], [0.5]], 2, axis=1)
    return CMDP(
        P,
        r,
        horizon=H,
        states=range(4),
        action_names=["u", "v"],
        constraints=[at_least("utility", (H - 1) / 3, g)],
        exact=True,
    )
