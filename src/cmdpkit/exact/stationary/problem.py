"""A stationary constrained problem as arrays: its actions as rows, cut to the states that matter.

An *end component* is a set of states with actions that never leave it and connect all of it: a policy can stay there
forever. Every policy ends in one with probability 1, so the maximal ones, which are disjoint, are where long-run
averages are earned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import readonly
from cmdpkit.model.tolerances import ROUNDOFF
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Rows
from cmdpkit.model.validate import Name
from cmdpkit.operators.row_lists import (
    entries_of,
    joined,
    lengths,
    matrix_of,
    reached_from,
    rows_of,
    selected,
)


def marked(n: int, places: Any) -> BoolArray:
    """[n], True at these places."""
    found = np.zeros(n, dtype=bool)
    found[places] = True
    return found


@dataclass(frozen=True, eq=False)
class ComponentRows:
    """The actions of a model or of a part of it, one row each, sorted by state; every state has at least one."""

    first: NDArray[np.uint64]  # [S + 1], the first row of every state
    rows: Rows  # where each of them leads
    pair: IntArray  # [R], s * A + a in the whole model
    exits: FloatArray  # [R], the probability of leaving the part; with it, the probabilities of a row sum to 1

    @classmethod
    def of(cls, P: Any, owner: IntArray, pair: IntArray) -> ComponentRows:
        """Rows from a SciPy matrix [R, S] and the state of each of them; what P lacks of 1 is lost."""
        P = sparse.csr_array(P)
        first = np.searchsorted(owner, np.arange(P.shape[1] + 1)).astype(np.uint64)
        lost = np.maximum(1.0 - np.asarray(P.sum(axis=1)).reshape(-1), 0.0)
        return cls(first, rows_of(P), pair, lost)

    @property
    def S(self) -> int:
        """Number of states."""
        return len(self.first) - 1

    @property
    def R(self) -> int:
        """Number of rows."""
        return len(self.exits)

    @cached_property
    def owner(self) -> IntArray:
        """[R], the state that has the row."""
        return np.repeat(np.arange(self.S), np.diff(self.first).astype(np.int64))

    @cached_property
    def lengths(self) -> IntArray:
        """[R], the number of entries of every row."""
        return lengths(self.rows)

    @property
    def widest(self) -> int:
        """The most entries of a row."""
        return int(self.lengths.max(initial=1))

    @property
    def firsts(self) -> IntArray:
        """[S], the first row of every state."""
        return self.first[:-1].astype(np.int64)

    @cached_property
    def P(self) -> Any:
        """Transition probabilities as a SciPy matrix [R, S]."""
        return matrix_of(self.rows, self.S)

    def taking(self, choice: IntArray) -> FloatArray:
        """p [R] of the policy that takes these rows."""
        return marked(self.R, choice).astype(float)

    def best(self, worth: FloatArray) -> IntArray:
        """[S], the first row of every state for which `worth` [R] is largest."""
        top = np.maximum.reduceat(worth, self.firsts)
        best = np.flatnonzero(worth == top[self.owner])
        _, position = np.unique(self.owner[best], return_index=True)
        return np.asarray(best[position])

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

    def part(self, states: IntArray, keep: BoolArray | None = None) -> tuple[ComponentRows, IntArray]:
        """The kept rows of some states (in rising order), renumbered, and which rows of this object they are."""
        found = selected(self.rows, self.first, states, np.ones(self.R, dtype=bool) if keep is None else keep)
        kept = found.kept
        return ComponentRows(found.first, found.rows, self.pair[kept], found.lost + self.exits[kept]), kept

    def closed_part(self, states: IntArray, inside: BoolArray) -> tuple[ComponentRows, IntArray]:
        """The same for rows that stay in these states, whatever rounding says."""
        part, kept = self.part(states, inside)
        return replace(part, exits=np.zeros(part.R)), kept


def end_components(rows: ComponentRows) -> list[tuple[IntArray, BoolArray]]:
    """The maximal end components: (states, rows that stay inside [R]) of each, in the order of their first states."""
    found: list[tuple[IntArray, BoolArray]] = []
    alive = rows.exits <= 0.0
    if not alive.any():
        return found
    row_of, to, _ = entries_of(rows.rows)
    while True:
        _, label = connected_components(rows.graph(alive), directed=True, connection="strong")
        leaving = marked(rows.R, row_of[label[rows.owner[row_of]] != label[to]])
        if not (alive & leaving).any():
            break
        alive &= ~leaving
    for c in np.unique(label[rows.owner[alive]]):
        states = np.flatnonzero(label == c)
        found.append((states, alive & (label[rows.owner] == c)))
    return sorted(found, key=lambda component: int(component[0][0]))


def walk_to(rows: ComponentRows, target: BoolArray) -> IntArray:
    """[S], for each state a row that may lead nearer to the target; -1 in the target and where no path leads to it.

    If all states have a path, a policy that takes these rows reaches the target with probability 1. Of several rows it
    is the one with the largest probability, because a walk over tiny estimated probabilities may never end.
    """
    back = rows.graph(np.ones(rows.R, dtype=bool)).T  # with one more state, from which the search begins
    entry = sparse.csr_array(target[None, :].astype(float))
    graph = sparse.csr_array(sparse.block_array([[back, None], [entry, sparse.csr_array((1, 1))]]))
    nearer = breadth_first_order(graph, rows.S, directed=True, return_predecessors=True)[1][: rows.S].astype(np.int64)
    nearer = np.where((nearer >= 0) & (nearer < rows.S), nearer, -1)
    row_of, to, probability = entries_of(rows.rows)
    useful = to == nearer[rows.owner[row_of]]
    row_of, probability = row_of[useful], probability[useful]
    order = np.lexsort((row_of, -probability, rows.owner[row_of]))
    choice = np.full(rows.S, -1, dtype=np.int64)
    states, position = np.unique(rows.owner[row_of[order]], return_index=True)
    choice[states] = row_of[order][position]
    return choice


def policy_rows(rows: ComponentRows, p: FloatArray) -> ComponentRows:
    """The chain of the policy p [R] as rows, one per state."""
    used = np.flatnonzero(p)
    owner, states = rows.owner[used], np.arange(rows.S + 1)
    exits: FloatArray = np.bincount(owner, p[used] * rows.exits[used], rows.S).astype(float)
    if (rows.exits == rows.exits[0]).all():
        exits[:] = rows.exits[0]
    chain = joined(rows.rows, used, p[used], owner, rows.S)
    return ComponentRows(states.astype(np.uint64), chain, states[:-1], exits)


def whole_policy(problem: StationaryProblem, p: FloatArray) -> FloatArray:
    """p [R] of the part as pi [S, A]; states that cannot be reached walk to it, or take their first action."""
    S, A = problem.shape
    whole = p
    if problem.rows.R < problem.whole.R:
        whole = np.zeros(problem.whole.R)
        whole[np.searchsorted(problem.whole.pair, problem.rows.pair)] = p
        whole = walking(problem.whole, whole)
    pi = np.zeros(S * A)
    pi[problem.whole.pair] = whole
    return pi.reshape(S, A)


def walking(rows: ComponentRows, p: FloatArray) -> FloatArray:
    """p [R] completed: states without an action walk to those that have one, or take their first action."""
    known = marked(rows.S, rows.owner[p > 0])
    if known.all():
        return p
    walk = walk_to(rows, known)
    completed = p.copy()
    completed[np.where(walk < 0, rows.firsts, walk)[~known]] = 1.0
    return completed


class Arrays(NamedTuple):
    """What defines the problem but for its bounds: maximise the value of r with bounds on those of g, from mu."""

    rows: Rows  # of one step, s * A + a
    r: FloatArray  # [S, A]
    g: FloatArray  # [N, S, A], utilities
    mu: FloatArray  # [S]
    allowed: BoolArray  # [S, A]
    kind: str  # "discounted", "average" or "total"
    discount: float = 1.0  # of "discounted"
    names: tuple[Sequence[Name], Sequence[Name]] | None = None  # of states and actions, for messages


class StationaryProblem(NamedTuple):
    """The states that the start can reach (for totals not absorbing ones), actions as rows; discounts are exits."""

    rows: ComponentRows  # of the part, times the discount
    X: FloatArray  # [1 + N, R], reward and utilities
    mu: FloatArray  # [states of the part]
    states: IntArray  # the part's states in the whole model
    whole: ComponentRows  # all rows of the whole model
    kind: str  # "discounted" (or a total whose exits are all the same), "average" or "total"
    shape: tuple[int, int]  # S, A of the whole model
    endless: bool = False  # whether a policy need not be absorbed ("total" only); then every step costs something
    blur: int = 0  # exits are wrong by this many roundings more than usual
    ends: bool = False  # whether the criterion is a total, so that no run stays anywhere forever


def problem_of(arrays: Arrays) -> StationaryProblem:
    """The part of the model that matters; CmdpkitError where totals would not be finite."""
    S, A = arrays.allowed.shape
    whole = _rows(arrays)
    signals = np.concatenate((arrays.r.reshape(1, S * A), arrays.g.reshape(len(arrays.g), S * A)))
    keep = reached_from(whole.rows, whole.first, arrays.mu > 0)
    if arrays.kind == "total":
        keep &= ~absorbing(whole, signals[:, whole.pair])
    states = np.flatnonzero(keep)
    if not len(states):
        raise CmdpkitError("the start is an absorbing state, so there is nothing to decide; give another start")
    rows = whole if len(states) == S else whole.part(states)[0]
    X = np.ascontiguousarray(signals if rows.R == S * A else signals[:, rows.pair], dtype=float)
    mu = arrays.mu[states] / arrays.mu.sum()
    problem = StationaryProblem(rows, X, mu, states, whole, arrays.kind, (S, A))
    if arrays.kind == "average":
        return problem
    if arrays.kind == "discounted":
        discounted = rows.rows._replace(prob=readonly(arrays.discount * rows.rows.prob))
        left = replace(rows, rows=discounted, exits=np.full(rows.R, 1 - arrays.discount))
        return problem._replace(rows=left)
    problem = problem._replace(ends=True)
    least, most = float(rows.exits.min()), float(rows.exits.max())
    few = 4 * (rows.widest + 4)
    if least > 0 and most <= (1 + few * ROUNDOFF) * least and not (arrays.mu[~keep] > 0).any():
        return problem._replace(rows=replace(rows, exits=np.full(rows.R, least)), kind="discounted", blur=few)
    return problem._replace(endless=_checked_endless(arrays, rows, X, states))


def _rows(arrays: Arrays) -> ComponentRows:
    """All allowed rows of the model. They sum to 1 within the tolerance of the model; here they do up to rounding."""
    S, A = arrays.allowed.shape
    first = A * np.arange(S + 1, dtype=np.uint64)
    found = selected(arrays.rows, first, np.arange(S), arrays.allowed.reshape(-1), normalised=True)
    return ComponentRows(found.first, found.rows, found.kept, np.zeros(len(found.kept)))


def absorbing(rows: ComponentRows, X: FloatArray) -> BoolArray:
    """[S]: states whose every action stays there and signals nothing: a total is complete there."""
    row_of, to, _ = entries_of(rows.rows)
    busy = X.any(axis=0) | marked(rows.R, row_of[to != rows.owner[row_of]])
    return ~marked(rows.S, rows.owner[busy])


def _checked_endless(arrays: Arrays, rows: ComponentRows, X: FloatArray, states: IntArray) -> bool:
    """Whether some policy is never absorbed; then every step has to cost something, or CmdpkitError is raised."""
    endless = end_components(rows)
    if not endless:
        return False
    if every_step_costs(X) and absorbed_somehow(rows):
        return True
    inside_states, inside = min(endless, key=lambda component: len(component[0]))
    S, A = arrays.allowed.shape
    state_names, action_names = arrays.names or (range(1, S + 1), range(1, A + 1))
    here = states[inside_states]
    named = ", ".join(repr(state_names[int(s)]) for s in here[:5]) + (" ..." if len(here) > 5 else "")
    actions = ", ".join(repr(action_names[int(a)]) for a in np.unique(rows.pair[inside] % A)[:5])
    raise CmdpkitError(
        f"criterion is 'total', but a policy can stay forever in state {named} with action {actions}, so totals need "
        "not be finite; that is allowed only if absorption can be reached from everywhere, every step has a negative "
        "reward, and no step adds to a utility (costs are 0 or more). Make a state absorbing (self-loops without "
        "reward and signals) or use a discount"
    )


def every_step_costs(X: FloatArray) -> bool:
    """Whether all rewards X[0] are negative, and no step adds to a utility."""
    return bool((X[0] < 0).all() and (X[1:] <= 0).all())


def absorbed_somehow(rows: ComponentRows) -> bool:
    """Whether absorption can be reached from every state."""
    leaving = marked(rows.S, rows.owner[rows.exits > 0])
    return bool((leaving | (walk_to(rows, leaving) >= 0)).all())
