"""Policies of models without a horizon, as probabilities of rows: their values, and their form in the whole model."""

from __future__ import annotations

import numpy as np

from cmdpkit.exact.stationary.engine import EPS, FACTORED, Engine
from cmdpkit.exact.stationary.problem import ComponentRows, StationaryProblem, walk_to
from cmdpkit.model.chains import long_run_shares, within
from cmdpkit.model.transitions import FloatArray

FEW = 100  # states whose next states are looked at one by one
FLOOR = 1e-15  # accuracy of values that counts as exact


def valued(
    problem: StationaryProblem, shift: FloatArray, unit: FloatArray, p: FloatArray, engine: Engine
) -> tuple[FloatArray, FloatArray]:
    """Values of the policy p [R], scaled by shift and unit of single steps, and their proved error, [1 + N] each."""
    taken = np.flatnonzero(p)
    if len(taken) == problem.rows.S and problem.kind != "average":
        engine.take(taken)
        engine.evaluate(FLOOR / 8)
        return engine.values.copy(), engine.half + engine.rounding()
    chain, x = policy_rows(problem.rows, p), (problem.X - shift[:, None]) / unit[:, None]
    X = np.array([np.bincount(problem.rows.owner, p * row, problem.rows.S) for row in x])
    if problem.kind != "average":
        return _certain(chain, X, problem, problem.mu, engine)
    chain.P.sum_duplicates()  # searches for classes do not end where entries are double
    _, classes = long_run_shares(chain.P, problem.mu)
    if len(classes) == 1:
        classes = [(classes[0][0], 1.0)]
    values, error = np.zeros(len(X)), np.zeros(len(X))
    for members, mass in classes:
        part = ComponentRows.of(within(chain.P, members), np.arange(len(members)), np.arange(len(members)))
        part.exits[:] = 0.0
        middle, off = _certain(part, np.ascontiguousarray(X[:, members]), problem, np.zeros(len(members)), engine)
        values += mass * middle
        error += mass * off
    if len(classes) > 1:  # the probabilities of ending in a class are rounded as well
        error += 16 * EPS * problem.rows.S * np.abs(X).max(axis=1)
    return values, error


def _certain(
    rows: ComponentRows, X: FloatArray, problem: StationaryProblem, mu: FloatArray, engine: Engine
) -> tuple[FloatArray, FloatArray]:
    """Values of a chain with one row per state, and their error."""
    own = Engine(rows, X, problem.kind, mu, problem.endless, problem.blur)
    own.take(own.choice)
    if own.S == engine.S and not engine.careful:
        own.Y = engine.Y.copy()
    own.careful = own.careful or engine.careful
    own.direct = own.careful or (engine.direct and own.S <= FACTORED)
    own.evaluate(FLOOR / 8)
    return own.values, own.half + own.rounding()


def policy_rows(rows: ComponentRows, p: FloatArray) -> ComponentRows:
    """The chain of the policy p [R] as rows, one per state."""
    used = np.flatnonzero(p)
    begin, end = (rows.indptr[used].astype(np.int64), rows.indptr[used + 1].astype(np.int64))
    lengths = end - begin
    at = np.arange(int(lengths.sum())) + np.repeat(begin - np.append(0, np.cumsum(lengths)[:-1]), lengths)
    data = rows.data[at] * np.repeat(p[used], lengths)
    owner = rows.owner[used]
    indptr = np.append(0, np.cumsum(np.bincount(owner, lengths, rows.S))).astype(np.uint64)
    states = np.arange(rows.S + 1)
    exits: FloatArray = np.bincount(owner, p[used] * rows.exits[used], rows.S).astype(float)
    if (rows.exits == rows.exits[0]).all():
        exits[:] = rows.exits[0]
    return ComponentRows(states.astype(np.uint64), indptr, rows.columns[at], data, states[:-1], exits)


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
    known = np.zeros(rows.S, dtype=bool)
    known[rows.owner[p > 0]] = True
    if known.all():
        return p
    first = rows.first.astype(np.int64)
    ends = rows.indptr.astype(np.int64)[first]
    beyond = [rows.columns[ends[s] : ends[s + 1]] for s in np.flatnonzero(~known)[:FEW]]
    walk = np.full(rows.S, -1)
    if len(beyond) == FEW or known[np.concatenate(beyond)].any():  # otherwise no path leads back, as from absorption
        walk = np.where(known, -1, walk_to(rows, known))
    walk = np.where(~known & (walk < 0), first[:-1], walk)
    completed = p.copy()
    completed[walk[walk >= 0]] = 1.0
    return completed
