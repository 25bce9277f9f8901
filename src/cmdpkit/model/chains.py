"""Markov chains: recurrent classes, long-run shares of time, expected visits and relative values.

A stationary policy turns a model into a chain with transition matrix P [S, S]. Three kinds of linear systems say what
the chain does, and all of them are solved here.

* *Shares of time.* d = gamma P^T d + inflow with a given total mass. With inflow (1 - gamma) mu and mass 1 this is the
  normalised discounted occupancy; with gamma = 1, inflow 0 and a single recurrent class it is the long-run share.
* *Relative values.* h = x - c + gamma P h with h zero at one state. The value of x from the start mu is
  c + (1 - gamma) mu . h, and since constants are split off, nothing grows when gamma comes near 1.
* *Expected visits* of a chain that is absorbed: d = P^T d + mu, where rows of P may sum to less than 1.

Systems are solved by sparse LU factors with one step of iterative refinement, or by repeated multiplication where the
factors would fill up (random graphs with thousands of states).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from cmdpkit.model.compiled import readonly
from cmdpkit.model.elimination import Factors
from cmdpkit.model.sweeps import DAMPING, settle, sparse_rows
from cmdpkit.model.transitions import FloatArray, IntArray

DIRECT_AT_ONCE = 2e7  # work S b^2 of an LU factorisation (b is the bandwidth) below which sweeps are not worth trying
DIRECT_AT_ALL = 5e9  # work beyond which LU factors are not tried
SWEEPS = 2_000  # sweeps before LU factors are tried instead
LAST_SWEEPS = 200_000  # sweeps where LU factors are out of reach
DENSE = 128  # states up to which full matrices are used


def factor_work(P: Any) -> float:
    """Estimated work S b^2 of factorising I - P, where b is the bandwidth in the reverse Cuthill-McKee order.

    Few states count as no work: full matrices are used for them.
    """
    S = P.shape[0]
    if S <= DENSE:
        return 0.0
    pattern = sparse.csr_array(P + P.T)
    place = np.empty(S, dtype=np.int64)
    place[reverse_cuthill_mckee(sparse.csr_matrix(pattern), symmetric_mode=True)] = np.arange(S)
    entries = pattern.tocoo()
    band = int(np.abs(place[entries.coords[0]] - place[entries.coords[1]]).max(initial=0)) + 1
    return float(S) * band**2


def closed_classes(P: Any) -> list[IntArray]:
    """The recurrent classes of a chain: strongly connected sets of states that no transition leaves."""
    count, label = connected_components(P, directed=True, connection="strong")
    if count == 1:
        return [np.arange(P.shape[0])]
    entries = P.tocoo()
    left = np.zeros(count, dtype=bool)
    left[label[entries.coords[0]][label[entries.coords[0]] != label[entries.coords[1]]]] = True
    order = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(count + 1))
    return [order[bounds[c] : bounds[c + 1]] for c in range(count) if not left[c]]


class Chain:
    """Linear systems of one chain; `bordered` chains keep their mass (gamma = 1 stands for no discount).

    P [S, S] is a SciPy sparse matrix. With `bordered`, rows sum to 1, and for gamma = 1 the chain has one recurrent
    class, of which `pivot` is a state. Without it, the chain loses mass and gamma is 1. `work` is what LU factors
    cost, as `factor_work` estimates it; 0 asks for them at once.
    """

    def __init__(
        self, P: Any, gamma: float = 1.0, *, bordered: bool = True, pivot: int = 0, work: float | None = None
    ) -> None:
        self.P, self.gamma, self.bordered, self.pivot = sparse.csr_array(P), gamma, bordered, pivot
        self.S: int = self.P.shape[0]
        self.work = factor_work(self.P) if work is None else work
        self._lu: Any = None
        if self.work < DIRECT_AT_ONCE:
            self._factorise()

    def values(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Constants c [K] and relative values h [S, K] of signals x [S, K]; c is 0 where the chain loses mass."""
        if self._lu is None:
            found = [self._sweep(row, np.zeros(self.S), flows=False) for row in x.T]
            if all(h is not None for h in found):
                h = np.array(found).T
                if not self.bordered:
                    return np.zeros(x.shape[1]), h
                change = x + self.gamma * (self.P @ h) - h
                return (change.max(axis=0) + change.min(axis=0)) / 2, h - h[self.pivot]
            self._factorise()
        if not self.bordered:
            return np.zeros(x.shape[1]), self._solve(x, "N")
        both = self._solve(np.vstack((x, np.zeros((1, x.shape[1])))), "N")
        return both[-1], both[:-1]

    def flow(self, inflow: FloatArray, mass: float = 0.0) -> FloatArray:
        """d [S] with d = gamma P^T d + inflow [S], and with total `mass` where the chain is bordered."""
        if self._lu is None:
            start = np.full(self.S, mass / self.S) if self.gamma == 1 else mass * inflow / (1 - self.gamma)
            found = self._sweep(inflow, start if self.bordered else inflow.copy(), flows=True)
            if found is not None:
                return found
            self._factorise()
        if not self.bordered:
            return self._solve(inflow, "T")
        return self._solve(np.append(inflow, mass), "T")[:-1]

    def _sweep(self, x: FloatArray, y: FloatArray, *, flows: bool) -> FloatArray | None:
        """The limit of y <- x + gamma P y (P^T if `flows`), in place; None where LU factors are the better way."""
        tau = DAMPING if self.bordered and self.gamma == 1 else 1.0
        relative = self.bordered and not flows
        hopeful = self.work < DIRECT_AT_ALL  # that LU factors are within reach
        most = SWEEPS if hopeful else LAST_SWEEPS
        P, change = sparse_rows(self.P), np.empty(self.S)
        settled = settle(P, readonly(x), self.gamma, tau, flows, relative, self.pivot, most, y, change)
        return y if settled or not hopeful else None

    def _factorise(self) -> None:
        if self.S <= DENSE:
            self._factorise_dense()
            return
        inner = sparse.identity(self.S, format="csr") - self.gamma * self.P
        if self.bordered:
            column = sparse.csr_array(np.ones((self.S, 1)))
            row = sparse.csr_array(([1.0], ([0], [self.pivot])), shape=(1, self.S))
            inner = sparse.block_array([[inner, column], [row, None]])
        self._matrix = sparse.csc_array(inner)
        self._lu = splu(self._matrix)

    def _factorise_dense(self) -> None:
        """The same with full matrices, which are faster where there are few states."""
        n = self.S + self.bordered
        matrix = np.zeros((n, n))
        matrix[: self.S, : self.S] = np.eye(self.S) - self.gamma * self.P.toarray()
        if self.bordered:
            matrix[:-1, -1] = 1.0
            matrix[-1, self.pivot] = 1.0
        self._lu = Factors(matrix)

    def _solve(self, b: FloatArray, trans: str) -> FloatArray:
        """One solve and one step of iterative refinement."""
        if isinstance(self._lu, Factors):
            return self._lu.solve(b, trans)
        matrix = self._matrix if trans == "N" else self._matrix.T
        x: FloatArray = self._lu.solve(b, trans)
        refined: FloatArray = x + self._lu.solve(b - matrix @ x, trans)
        return refined


def within(P: Any, members: IntArray) -> Any:
    """The transitions [members, members] between some states of a chain."""
    return P if len(members) == P.shape[0] else P[members][:, members]


def long_run_shares(P: Any, mu: FloatArray) -> tuple[FloatArray, list[tuple[IntArray, float]]]:
    """Share of time [S] that the chain spends in each state when it starts from mu, and (class, probability) pairs.

    Several recurrent classes are entered with the probabilities of absorption into them.
    """
    S = P.shape[0]
    classes = closed_classes(P)
    recurrent = np.zeros(S, dtype=bool)
    for members in classes:
        recurrent[members] = True
    outside = np.flatnonzero(~recurrent)
    entered = np.array(mu, dtype=float)
    if len(outside) and mu[outside].any():
        part = P[outside]
        visits = Chain(part[:, outside], bordered=False).flow(mu[outside])
        entered = entered + part.T @ np.maximum(visits, 0.0)
    shares = np.zeros(S)
    found = []
    for members in classes:
        mass = float(entered[members].sum())
        if mass <= 0:
            continue
        inside = within(P, members)
        shares[members] = mass * np.maximum(Chain(inside).flow(np.zeros(len(members)), 1.0), 0.0)
        found.append((members, mass))
    return shares, found
