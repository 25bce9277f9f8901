"""Parts of a model: its actions as rows, the states that can be reached, and maximal end components.

An *end component* is a set of states with actions that never leave it and connect all of it: a policy can stay there
for ever. Every policy ends in one with probability 1, so the maximal ones, which are disjoint, are where long-run
averages are earned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


class Rows(NamedTuple):
    """The actions of a model or of a part of it, one row each, sorted by state; every state has at least one."""

    P: Any  # sparse [R, S], transition probabilities
    owner: IntArray  # [R], the state that has the action
    pair: IntArray  # [R], s * A + a in the whole model

    @property
    def S(self) -> int:
        """Number of states."""
        return int(self.P.shape[1])

    @property
    def first(self) -> IntArray:
        """[S], the first row of every state."""
        return np.searchsorted(self.owner, np.arange(self.S))

    def chain(self, weights: FloatArray) -> Any:
        """Transition matrix [S, S] of the policy that takes row i with probability weights[i] in its state."""
        used = np.flatnonzero(weights)
        drawn = sparse.csr_array((weights[used], (self.owner[used], used)), shape=(self.S, len(self.owner)))
        chain = sparse.csr_array(drawn @ self.P)
        chain.sum_duplicates()
        return chain

    def graph(self, keep: BoolArray) -> Any:
        """Adjacency [S, S] of the rows kept."""
        part = self.P[keep].tocoo()
        S = self.S
        edges = (np.ones(len(part.data)), (self.owner[keep][part.coords[0]], part.coords[1]))
        graph = sparse.csr_array(edges, shape=(S, S))
        graph.sum_duplicates()
        return graph

    def part(self, states: IntArray, keep: BoolArray) -> Rows:
        """The kept rows of some states, renumbered; transitions to other states are dropped."""
        index = np.full(self.S, -1, dtype=np.int64)
        index[states] = np.arange(len(states))
        rows = np.flatnonzero(keep & (index[self.owner] >= 0))
        rows = rows[np.argsort(index[self.owner[rows]], kind="stable")]
        P = sparse.csr_array(self.P[rows][:, states])
        return Rows(P, index[self.owner[rows]], self.pair[rows])


def reachable(rows: Rows, start: BoolArray) -> BoolArray:
    """[S]: states that some policy reaches from the states in `start`."""
    graph = rows.graph(np.ones(len(rows.owner), dtype=bool))
    order, _ = _search(graph, start)
    reached = np.zeros(rows.S, dtype=bool)
    reached[order] = True
    return reached


def _search(graph: Any, start: BoolArray) -> tuple[IntArray, IntArray]:
    """Breadth-first search from several states at once: the states found, and for each state the one before it.

    States of `start` and states not found have a number outside 0..S-1 as the one before.
    """
    S = len(start)
    entry = sparse.csr_array(start[None, :].astype(float))
    whole = sparse.csr_array(sparse.block_array([[graph, None], [entry, sparse.csr_array((1, 1))]]))
    order, before = breadth_first_order(whole, S, directed=True, return_predecessors=True)
    return order[order < S], before[:S].astype(np.int64)


def end_components(rows: Rows) -> list[tuple[IntArray, BoolArray]]:
    """The maximal end components: (states, rows that stay inside [R]) of each, in the order of their first states."""
    R = len(rows.owner)
    found: list[tuple[IntArray, BoolArray]] = []
    alive = np.ones(R, dtype=bool)
    entries = rows.P.tocoo()
    row_of, to = entries.coords
    while True:
        _, label = connected_components(rows.graph(alive), directed=True, connection="strong")
        leaving = np.zeros(R, dtype=bool)
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
    graph = rows.graph(np.ones(len(rows.owner), dtype=bool)).T.tocsr()
    _, nearer = _search(graph, target)
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
