"""The paper's synthetic CMDP: three states, three actions, three steps, one utility to keep at 2 or more.

A small dense problem whose optimum needs exactly one stochastic decision. The paper prints its tables to eight digits;
they are the NumPy legacy stream with seed 3, drawn in the order of `build`, and the start distribution, which the
paper does not print, is the next draw: with it the published policy has the published value and utility. Two printed
numbers differ from the stream in one digit and are taken from the stream (docs/environments/paper-synthetic.md).

States: 1, 2, 3.
Actions: 1, 2, 3, everywhere.
Reward: r[h, s, a], uniform on [0, 1], different at every step.
Constraints: utility: E[sum of g[h, s, a]] >= rho, with g uniform on [0, 1].
Start: Random: (0.1409, 0.3745, 0.4846).
Parameters:
    rho : threshold of the utility, 2 in the paper; the Slater slack there is 0.0898
Reference: Experiments of arXiv 2309.15395.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.envs._shared import real
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least

SEED = 3  # of the stream that the printed tables are from


def build(rho: float = 2.0) -> CMDP:
    """The instance with its utility threshold at ``rho``."""
    rho = real("rho", rho)
    stream = np.random.RandomState(SEED)  # the legacy stream: NumPy promises that it never changes
    r = stream.rand(3, 3, 3)  # [h, s, a]
    g = stream.rand(3, 3, 3)
    P = stream.rand(3, 3, 3, 3)  # [h, s, a, s']
    mu = stream.rand(3)
    P /= P.sum(axis=-1, keepdims=True)
    return CMDP(P, r, mu=mu / mu.sum(), constraints=[at_least("utility", rho, g)], exact=True)
