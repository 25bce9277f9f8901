"""A stationary constrained problem as arrays, cut to the states that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary.components import Rows, end_components, reachable
from cmdpkit.exact.stationary.kernels import allowed_rows
from cmdpkit.model.compiled import readonly
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import Name
from cmdpkit.tolerances import ROUNDOFF


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
    """The states that the start can reach (without absorbing ones for totals), and their actions as rows.

    A discount is a probability of leaving at every step, so that rows of "discounted" all have the same exits.
    """

    rows: Rows  # of the part, times the discount
    X: FloatArray  # [1 + N, R], reward and utilities
    mu: FloatArray  # [states of the part]
    states: IntArray  # the part's states in the whole model
    whole: Rows  # all rows of the whole model
    kind: str  # "discounted" (or a total whose exits are all the same), "average" or "total"
    shape: tuple[int, int]  # S, A of the whole model
    endless: bool = False  # whether a policy need not be absorbed ("total" only); then every step costs something
    blur: int = 0  # exits are wrong by this many roundings more than usual


def problem_of(arrays: Arrays) -> Problem:
    """The part of the model that matters; CmdpkitError where totals would not be finite."""
    S, A = arrays.allowed.shape
    whole = _rows(arrays)
    signals = np.concatenate((arrays.r.reshape(1, S * A), arrays.g.reshape(len(arrays.g), S * A)))
    keep = reachable(whole, arrays.mu > 0)
    if arrays.kind == "total":
        keep &= ~absorbing(whole, signals[:, whole.pair])
    states = np.flatnonzero(keep)
    if not len(states):
        raise CmdpkitError("the start is an absorbing state, so there is nothing to decide; give another start")
    rows = whole if len(states) == S else whole.part(states)[0]
    X = np.ascontiguousarray(signals if rows.R == S * A else signals[:, rows.pair], dtype=float)
    mu = arrays.mu[states] / arrays.mu.sum()
    problem = Problem(rows, X, mu, states, whole, arrays.kind, (S, A))
    if arrays.kind == "average":
        return problem
    if arrays.kind == "discounted":
        left = replace(rows, data=arrays.discount * rows.data, exits=np.full(rows.R, 1 - arrays.discount))
        return problem._replace(rows=left)
    least, most = float(rows.exits.min()), float(rows.exits.max())
    few = 4 * (int(np.diff(rows.indptr.astype(np.int64)).max(initial=1)) + 4)
    if least > 0 and most <= (1 + few * ROUNDOFF) * least and not (arrays.mu[~keep] > 0).any():
        return problem._replace(rows=replace(rows, exits=np.full(rows.R, least)), kind="discounted", blur=few)
    return problem._replace(endless=_checked_endless(arrays, rows, X, states))


def _rows(arrays: Arrays) -> Rows:
    """All allowed rows of the model. They sum to 1 within the tolerance of the model; here they do up to rounding."""
    S, A = arrays.allowed.shape
    most, entries = S * A, len(arrays.prob)
    first, indptr = np.zeros(S + 1, dtype=np.uint64), np.zeros(most + 1, dtype=np.uint64)
    columns, data = np.empty(entries, dtype=np.uint32), np.empty(entries)
    pair = np.zeros(most, dtype=np.int64)
    given = (
        np.asarray(arrays.indptr).astype(np.int64, copy=False),
        np.asarray(arrays.successors).astype(np.int32, copy=False),
        np.asarray(arrays.prob, dtype=float),
        np.asarray(arrays.allowed),
    )
    R, n = allowed_rows(*map(readonly, given), first, indptr, columns, data, pair)
    return Rows(first, indptr[: R + 1], columns[:n], data[:n], pair[:R], np.zeros(R))


def absorbing(rows: Rows, X: FloatArray) -> BoolArray:
    """[S]: states whose every action stays there and signals nothing: a total is complete there."""
    begin = rows.indptr[:-1].astype(np.int64)
    alone = np.diff(rows.indptr.astype(np.int64)) == 1
    stays = alone & (rows.columns[np.minimum(begin, len(rows.columns) - 1)] == rows.owner) & ~X.any(axis=0)
    moves = np.zeros(rows.S, dtype=bool)
    moves[rows.owner[~stays]] = True
    return ~moves


def _checked_endless(arrays: Arrays, rows: Rows, X: FloatArray, states: IntArray) -> bool:
    """Whether some policy is never absorbed; then every step has to cost something, or CmdpkitError is raised."""
    endless = end_components(rows)
    if not endless:
        return False
    if every_step_costs(X) and _absorbed_somehow(rows):
        return True
    inside_states, inside = min(endless, key=lambda component: len(component[0]))
    S, A = arrays.allowed.shape
    state_names, action_names = arrays.names or (range(1, S + 1), range(1, A + 1))
    here = states[inside_states]
    named = ", ".join(repr(state_names[int(s)]) for s in here[:5]) + (" ..." if len(here) > 5 else "")
    actions = ", ".join(repr(action_names[int(a)]) for a in np.unique(rows.pair[inside] % A)[:5])
    raise CmdpkitError(
        f"criterion is 'total', but a policy can stay for ever in state {named} with action {actions}, so totals need "
        "not be finite; that is allowed only if absorption can be reached from everywhere, every step has a negative "
        "reward, and no step adds to a utility (costs are 0 or more). Make a state absorbing (self-loops without "
        "reward and signals) or use a discount"
    )


def every_step_costs(X: FloatArray) -> bool:
    """Whether all rewards X[0] are negative, and no step adds to a utility."""
    return bool((X[0] < 0).all() and (X[1:] <= 0).all())


def _absorbed_somehow(rows: Rows) -> bool:
    """Whether absorption can be reached from every state."""
    leaving = np.zeros(rows.S, dtype=bool)
    leaving[rows.owner[rows.exits > 0]] = True
    back = rows.graph(np.ones(rows.R, dtype=bool)).T.tocsr()
    return bool(reachable(Rows.of(back, np.arange(rows.S), np.arange(rows.S)), leaving).all())
