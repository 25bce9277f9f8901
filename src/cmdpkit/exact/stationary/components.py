"""Parts of a model: its actions as rows, the states that can be reached, and maximal end components.

An *end component* is a set of states with actions that never leave it and connect all of it: a policy can stay there
for ever. Every policy ends in one with probability 1, so the maximal ones, which are disjoint, are where long-run
averages are earned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from cmdpkit.exact.stationary.kernels import part_rows, search
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Rows:
    """The actions of a model or of a part of it, one row each, sorted by state; every state has at least one."""

    first: NDArray[np.uint64]  # [S + 1], the first row of every state
    indptr: NDArray[np.uint64]  # [R + 1], the first entry of every row
    columns: NDArray[np.uint32]  # [entries], next states
    data: FloatArray  # [entries], their probabilities
    pair: IntArray  # [R], s * A + a in the whole model
    exits: FloatArray  # [R], the probability of leaving the part; with it, the probabilities of a row sum to 1

    @classmethod
    def of(cls, P: Any, owner: IntArray, pair: IntArray) -> Rows:
        """Rows from a SciPy matrix [R, S] and the state of each of them; what P lacks of 1 is lost."""
        P = sparse.csr_array(P)
        first = np.searchsorted(owner, np.arange(P.shape[1] + 1)).astype(np.uint64)
        lost = np.maximum(1.0 - np.asarray(P.sum(axis=1)).reshape(-1), 0.0)
        indptr, columns = P.indptr.astype(np.uint64), P.indices.astype(np.uint32)
        return cls(first, indptr, columns, P.data.astype(float), pair, lost)

    @property
    def S(self) -> int:
        """Number of states."""
        return len(self.first) - 1

    @property
    def R(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @cached_property
    def owner(self) -> IntArray:
        """[R], the state that has the row."""
        return np.repeat(np.arange(self.S), np.diff(self.first).astype(np.int64))

    @cached_property
    def P(self) -> Any:
        """Transition probabilities as a SciPy matrix [R, S]."""
        entries = (self.data, self.columns.astype(np.int32), self.indptr.astype(np.int64))
        return sparse.csr_array(entries, shape=(self.R, self.S))

    def chain(self, weights: FloatArray) -> Any:
        """Transition matrix [S, S] of the policy that takes row i with probability weights[i] in its state."""
        used = np.flatnonzero(weights)
        drawn = sparse.csr_array((weights[used], (self.owner[used], used)), shape=(self.S, self.R))
        chain = sparse.csr_array(drawn @ self.P)
        chain.sum_duplicates()
        return chain

    def graph(self, keep: BoolArray) -> Any:
        """Adjacency [S, S] of the rows kept."""
        part = self.P[keep].tocoo()
        edges = (np.ones(len(part.data)), (self.owner[keep][part.coords[0]], part.coords[1]))
        graph = sparse.csr_array(edges, shape=(self.S, self.S))
        graph.sum_duplicates()
        return graph

    def part(self, states: IntArray, keep: BoolArray | None = None) -> tuple[Rows, IntArray]:
        """The kept rows of some states (in rising order), renumbered, and which rows of this object they are."""
        number = np.full(self.S, -1, dtype=np.int64)
        number[states] = np.arange(len(states))
        first, indptr = np.zeros(len(states) + 1, dtype=np.uint64), np.zeros(self.R + 1, dtype=np.uint64)
        columns, data = np.empty(len(self.columns), dtype=np.uint32), np.empty(len(self.data))
        kept, exits = np.zeros(self.R, dtype=np.int64), np.zeros(self.R)
        source = (self.first, self.indptr, self.columns, self.data, number)
        R, n = part_rows(*source, first, indptr, columns, data, kept, exits)
        rows = Rows(
            first, indptr[: R + 1], columns[:n], data[:n], self.pair[kept[:R]], exits[:R] + self.exits[kept[:R]]
        )
        if keep is None:
            return rows, kept[:R]
        chosen = np.flatnonzero(keep[kept[:R]])
        P = rows.P[chosen]
        owner, pair = rows.owner[chosen], rows.pair[chosen]
        smaller = Rows.of(P, owner, pair)
        smaller.exits[:] = rows.exits[chosen]
        return smaller, kept[:R][chosen]


def reachable(rows: Rows, start: BoolArray) -> BoolArray:
    """[S]: states that some policy reaches from the states in `start`."""
    found = start.copy()
    search(rows.first, rows.indptr, rows.columns, rows.data, found, np.zeros(rows.S, dtype=np.uint64))
    return found


def _search(graph: Any, start: BoolArray) -> IntArray:
    """Breadth-first search from several states at once: for each state the one before it.

    States of `start` and states not found have a number outside 0..S-1.
    """
    S = len(start)
    entry = sparse.csr_array(start[None, :].astype(float))
    whole = sparse.csr_array(sparse.block_array([[graph, None], [entry, sparse.csr_array((1, 1))]]))
    _, before = breadth_first_order(whole, S, directed=True, return_predecessors=True)
    return np.asarray(before[:S].astype(np.int64))


def end_components(rows: Rows) -> list[tuple[IntArray, BoolArray]]:
    """The maximal end components: (states, rows that stay inside [R]) of each, in the order of their first states."""
    found: list[tuple[IntArray, BoolArray]] = []
    alive = rows.exits <= 0.0
    if not alive.any():
        return found
    entries = rows.P.tocoo()
    row_of, to = entries.coords
    while True:
        _, label = connected_components(rows.graph(alive), directed=True, connection="strong")
        leaving = np.zeros(rows.R, dtype=bool)
        leaving[row_of[label[rows.owner[row_of]] != label[to]]] = True
        if not (alive & leaving).any():
            break
        alive &= ~leaving
    for c in np.unique(label[rows.owner[alive]]):
        states = np.flatnonzero(label == c)
        found.append((states, alive & (label[rows.owner] == c)))
    return sorted(found, key=lambda component: int(component[0][0]))


def walk_to(rows: Rows, target: BoolArray) -> IntArray:
    """[S], for each state a row that may lead nearer to the target; -1 in the target and where no path leads to it.

    A policy that takes these rows reaches the target with probability 1 from all states if all of them have a path:
    each step has a positive probability of coming nearer. Of several rows it is the one with the largest probability,
    because a walk over probabilities that are estimated to be tiny may never end.
    """
    nearer = _search(rows.graph(np.ones(rows.R, dtype=bool)).T.tocsr(), target)
    nearer = np.where((nearer >= 0) & (nearer < rows.S), nearer, -1)
    entries = rows.P.tocoo()
    row_of, to = entries.coords
    useful = to == nearer[rows.owner[row_of]]
    row_of, probability = row_of[useful], entries.data[useful]
    order = np.lexsort((row_of, -probability, rows.owner[row_of]))
    choice = np.full(rows.S, -1, dtype=np.int64)
    states, position = np.unique(rows.owner[row_of[order]], return_index=True)
    choice[states] = row_of[order][position]
    return choice
