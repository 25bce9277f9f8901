"""How much there is to gain or lose in a problem, by which figures of different problems become comparable."""

from __future__ import annotations

import numpy as np

from cmdpkit import CMDP
from cmdpkit.model.transitions import FloatArray


def total_range(cmdp: CMDP, signal: FloatArray) -> float:
    """Largest minus smallest expected total of signal [H, S, A] over all policies, by backward induction."""
    most, least = np.zeros(cmdp.S), np.zeros(cmdp.S)
    for h in range(cmdp.H - 1, -1, -1):
        most = np.where(cmdp.actions[h], signal[h] + cmdp.P[h] @ most, -np.inf).max(axis=1)
        least = np.where(cmdp.actions[h], signal[h] + cmdp.P[h] @ least, np.inf).min(axis=1)
    return float(cmdp.mu @ (most - least))
