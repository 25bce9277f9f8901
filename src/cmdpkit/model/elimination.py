"""Elimination without subtraction: linear systems of Markov chains, exact to the last digits however rarely one leaves.

A chain that loses mass has two systems: the values y = x + P y and the visits d = inflow + P^T d. Elimination on I - P
cancels: where a state is left with probability 1e-14, the difference 1 - P[s, s] has two correct digits. Grassmann,
Taksar and Heyman (1985) noticed that nothing needs to be subtracted. The diagonal is the sum of what leaves the state,
D[s] = exit[s] + sum of P[s, t] over t != s, and after a state is eliminated the same is true of the chain that skips
it. All numbers are sums, products and quotients of numbers that are not negative, so nothing cancels: every visit, and
every value of a signal without negative entries, has a small relative error whatever the probabilities are (O'Cinneide
1993; with exits: Alfa, Xue and Ye 2002, where the bound grows with the cube of the number of states; in the tests it
is below 2e-15). For other signals the error is that share of the value of the absolute signal.

The chain is kept as a band around the diagonal, in the reverse Cuthill-McKee order, so that queues and boards take
little memory and time. Compiled, so that it is computed on one thread and in one order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray, IntArray

FULL = 128  # number of states up to which the order does not matter: the whole matrix is the band


def band_order(P: Any) -> tuple[IntArray, int]:
    """The states [S] in an order that keeps neighbours together, and how far apart neighbours are in it."""
    S = P.shape[0]
    if S <= FULL:
        return np.arange(S), max(S - 1, 0)
    pattern = sparse.csr_array(P + P.T)
    order = np.asarray(reverse_cuthill_mckee(sparse.csr_matrix(pattern), symmetric_mode=True), dtype=np.int64)
    place = np.empty(S, dtype=np.int64)
    place[order] = np.arange(S)
    entries = pattern.tocoo()
    return order, int(np.abs(place[entries.coords[0]] - place[entries.coords[1]]).max(initial=0))


class Elimination:
    """The systems of one chain that loses mass.

    P [S, S] is sparse, and its diagonal is not read. `exits` [S] is the probability of leaving from each state, and
    from every state some exit can be reached.
    """

    def __init__(self, P: Any, exits: FloatArray) -> None:
        S = P.shape[0]
        self.order, width = band_order(P)
        place = np.empty(S, dtype=np.int64)
        place[self.order] = np.arange(S)
        self.band = np.zeros((S, 2 * width + 1))  # [i, j - i + width]: probability of going from place i to place j
        entries = P.tocoo()
        rows, columns = place[entries.coords[0]], place[entries.coords[1]]
        np.add.at(self.band, (rows, columns - rows + width), entries.data)
        leaving = np.array(exits, dtype=float)[self.order]
        self.diagonal = np.empty(S)
        _eliminate(self.band, leaving, self.diagonal)

    def values(self, x: FloatArray) -> FloatArray:
        """y [S, K] with y = x + P y for signals x [S, K] or [S]."""
        y = np.ascontiguousarray(x[self.order], dtype=float).reshape(len(x), int(np.prod(x.shape[1:])))
        _values(self.band, self.diagonal, y)
        return self._back(y, x)

    def flow(self, inflow: FloatArray) -> FloatArray:
        """d [S, K] with d = inflow + P^T d for inflows [S, K] or [S]."""
        d = np.ascontiguousarray(inflow[self.order], dtype=float).reshape(len(inflow), int(np.prod(inflow.shape[1:])))
        _flow(self.band, self.diagonal, d)
        return self._back(d, inflow)

    def _back(self, found: FloatArray, like: FloatArray) -> FloatArray:
        whole = np.empty_like(found)
        whole[self.order] = found
        return whole.reshape(like.shape)


@compiled
def _eliminate(band, leaving, diagonal):
    """Eliminate state after state; entries left of the middle become factors, those right of it the chain that skips.

    The middle of a row collects returns of the state to itself, which nobody reads.
    """
    S, width = len(band), band.shape[1] // 2
    for k in range(S):
        last = min(S, k + width + 1)
        total = leaving[k]
        for j in range(k + 1, last):
            total += band[k, j - k + width]
        diagonal[k] = total
        for i in range(k + 1, last):
            factor = band[i, k - i + width]
            if factor == 0.0:
                continue
            factor /= total
            band[i, k - i + width] = factor
            leaving[i] += factor * leaving[k]
            shift = k - i
            for j in range(width + 1, last - k + width):
                band[i, j + shift] += factor * band[k, j]


@compiled
def _values(band, diagonal, y):
    """Solve for values in place, where y [S, K] holds the signals at first."""
    S, K = y.shape
    width = band.shape[1] // 2
    for i in range(S):
        for k in range(max(0, i - width), i):
            factor = band[i, k - i + width]
            if factor != 0.0:
                for m in range(K):
                    y[i, m] += factor * y[k, m]
    for k in range(S - 1, -1, -1):
        for j in range(k + 1, min(S, k + width + 1)):
            p = band[k, j - k + width]
            if p != 0.0:
                for m in range(K):
                    y[k, m] += p * y[j, m]
        for m in range(K):
            y[k, m] /= diagonal[k]


@compiled
def _flow(band, diagonal, d):
    """Solve for visits in place, where d [S, K] holds the inflow at first."""
    S, K = d.shape
    width = band.shape[1] // 2
    for k in range(S):
        for m in range(K):
            d[k, m] /= diagonal[k]
        for j in range(k + 1, min(S, k + width + 1)):
            p = band[k, j - k + width]
            if p != 0.0:
                for m in range(K):
                    d[j, m] += p * d[k, m]
    for i in range(S - 1, -1, -1):
        for k in range(max(0, i - width), i):
            factor = band[i, k - i + width]
            if factor != 0.0:
                for m in range(K):
                    d[k, m] += factor * d[i, m]
