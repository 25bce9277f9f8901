"""A stationary constrained problem as arrays, cut to what matters and scaled to units of order 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary.components import Rows, end_components, reachable
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import Name


class Arrays(NamedTuple):
    """What defines the problem but for its bounds: maximise the value of r with bounds on those of g, from mu."""

    indptr: Any  # [S*A + 1], sparse rows of one step
    successors: Any  # [nonzeros]
    prob: Any  # [nonzeros]
    r: FloatArray  # [S, A]
    g: FloatArray  # [N, S, A], utilities
    mu: FloatArray  # [S]
    allowed: BoolArray  # [S, A]
    kind: str  # "discounted", "average" or "total"
    discount: float = 1.0  # of "discounted"
    names: tuple[Sequence[Name], Sequence[Name]] | None = None  # of states and actions, for messages


class Problem(NamedTuple):
    """The states that the start can reach (without absorbing ones for totals), and their actions as rows."""

    rows: Rows  # of the part
    X: FloatArray  # [1 + N, R], reward and utilities
    mu: FloatArray  # [states of the part]
    states: IntArray  # the part's states in the whole model
    whole: Rows  # all rows of the whole model
    kind: str  # "discounted", "average" or "total"
    discount: float  # of "discounted", otherwise 1
    shape: tuple[int, int]  # S, A of the whole model


def problem_of(arrays: Arrays) -> Problem:
    """The part of the model that matters; CmdpkitError where totals would not be finite."""
    S, A = arrays.allowed.shape
    pair = np.flatnonzero(arrays.allowed.reshape(-1))
    P = sparse.csr_array((arrays.prob, arrays.successors, arrays.indptr), shape=(S * A, S))[pair]
    P.eliminate_zeros()
    # Rows sum to 1 within the tolerance of the model only; balance needs them to do so up to rounding.
    P = sparse.csr_array(sparse.diags_array(1.0 / np.asarray(P.sum(axis=1)).reshape(-1)) @ P)
    whole = Rows(P, pair // A, pair)
    X = np.concatenate((arrays.r.reshape(1, S * A), arrays.g.reshape(len(arrays.g), S * A)))[:, pair]
    start = arrays.mu > 0
    keep = reachable(whole, start)
    if arrays.kind == "total":
        _refuse_endless(arrays, whole, keep, absorbing(whole, X))
        keep &= ~absorbing(whole, X)
    states = np.flatnonzero(keep)
    if not len(states):
        raise CmdpkitError("the start is an absorbing state, so there is nothing to decide; give another start")
    rows = whole.part(states, np.ones(len(pair), dtype=bool))
    return Problem(
        rows,
        X[:, np.searchsorted(pair, rows.pair)],
        arrays.mu[states] / arrays.mu.sum(),
        states,
        whole,
        arrays.kind,
        arrays.discount,
        (S, A),
    )


def absorbing(rows: Rows, X: FloatArray) -> BoolArray:
    """[S]: states whose every action stays there and signals nothing: a total is complete there."""
    stays = np.zeros(len(rows.owner), dtype=bool)
    entries = rows.P.tocoo()
    alone = np.diff(rows.P.indptr) == 1
    row_of, to = entries.coords
    stays[row_of[(to == rows.owner[row_of]) & alone[row_of]]] = True
    stays &= ~X.any(axis=0)
    moves = np.zeros(rows.S, dtype=bool)
    moves[rows.owner[~stays]] = True
    return ~moves


def _refuse_endless(arrays: Arrays, whole: Rows, reached: BoolArray, absorbed: BoolArray) -> None:
    """Raise unless every policy is absorbed from every state that the start can reach."""
    endless = [c for c in end_components(whole) if reached[c[0]].all() and not absorbed[c[0]].any()]
    if not endless:
        return
    states, inside = min(endless, key=lambda component: len(component[0]))
    S, A = arrays.allowed.shape
    state_names, action_names = arrays.names or (range(1, S + 1), range(1, A + 1))
    named = ", ".join(repr(state_names[int(s)]) for s in states[:5]) + (" ..." if len(states) > 5 else "")
    actions = ", ".join(repr(action_names[int(a)]) for a in np.unique(whole.pair[inside] % A)[:5])
    raise CmdpkitError(
        f"criterion is 'total', but a policy can stay for ever in state {named} with action {actions}, so totals need "
        "not be finite; make a state absorbing (self-loops without reward and signals) or use a discount"
    )
