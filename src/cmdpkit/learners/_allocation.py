"""A small linear program: probabilities at a few decisions that come as near as possible to a wanted effect."""

from __future__ import annotations

import numpy as np

from cmdpkit.exact.highs import INFINITY, answer, configured, program, run
from cmdpkit.model.transitions import FloatArray, IntArray


def allocate(
    cost: FloatArray, effect: FloatArray, decision: IntArray, gap: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Minimise cost . q + high . short - low . surplus, where each decision's q sum to 1 and effects make up the gap.

    cost and decision [m], effect [m, N]: variables in order of their decisions. Returns q, the prices and short.
    """
    m, N = effect.shape
    n = int(decision[-1]) + 1
    own = np.column_stack((decision, np.broadcast_to(n + np.arange(N), (m, N))))
    start = np.concatenate(((1 + N) * np.arange(m), (1 + N) * m + np.arange(2 * N + 1)))
    index = np.concatenate((own.ravel(), n + np.arange(N), n + np.arange(N)))
    value = np.concatenate((np.column_stack((np.ones(m), effect)).ravel(), np.ones(N), -np.ones(N)))
    equal = np.concatenate((np.ones(n), gap))
    limits = np.zeros(m + 2 * N), np.full(m + 2 * N, INFINITY)
    highs = configured()
    highs.passModel(program(np.concatenate((cost, high, -low)), limits, (equal, equal), (start, index, value)))
    ended = run(highs)
    if ended != "optimal":
        raise RuntimeError(f"the master LP ended as {ended}")
    found, duals = answer(highs)
    return found[:m], np.clip(duals[n:], low, high), np.maximum(found[m : m + N], 0.0)
