"""Lists of transition rows against dense arrays, and the change of values over a row against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from cmdpkit.model.transitions import Rows
from cmdpkit.operators.row_lists import (
    differences,
    followed,
    joined,
    lengths,
    matrix_of,
    reached_from,
    rows_of,
    selected,
)

pytestmark = pytest.mark.compiled
S = 5


def listed(seed: int) -> tuple[np.ndarray, Rows, np.ndarray]:
    """Dense rows [R, S] of multiples of 1/8, the same as a list, and the first row of every state, of one to three."""
    rng = np.random.default_rng(seed)
    first = np.append(0, np.cumsum(rng.integers(1, 4, S))).astype(np.uint64)
    P = rng.multinomial(8, np.full(S, 1 / S), int(first[-1])) / 8
    return P, rows_of(P), first


@pytest.mark.parametrize("seed", range(5))
def test_rows_become_matrices_and_come_back(seed):
    P, rows, _ = listed(seed)
    assert (matrix_of(rows, S).toarray() == P).all()
    assert (lengths(rows) == (P > 0).sum(axis=1)).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_selection_has_the_rows_asked_for_and_what_they_lose(seed):
    P, rows, first = listed(seed)
    rng = np.random.default_rng([1, seed])
    states, wanted = np.flatnonzero(rng.random(S) < 0.6), rng.random(len(P)) < 0.7
    owner = np.repeat(np.arange(S), np.diff(first).astype(int))
    found = selected(rows, first, states, wanted)
    kept = np.flatnonzero(wanted & np.isin(owner, states))
    assert found.kept.tolist() == kept.tolist()
    assert (matrix_of(found.rows, len(states)).toarray() == P[kept][:, states]).all()
    assert (found.lost == 1 - P[kept][:, states].sum(axis=1)).all()
    assert np.diff(found.first).tolist() == [(owner[kept] == s).sum() for s in states]
    left = P[kept][:, states]
    whole = matrix_of(selected(rows, first, states, wanted, normalised=True).rows, len(states)).toarray()
    assert (whole == left / np.where(left.any(axis=1), left.sum(axis=1), 1.0)[:, None]).all()


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_policy_are_those_it_takes(seed):
    P, rows, first = listed(seed)
    rng = np.random.default_rng([2, seed])
    choice, X = (first[:-1] + rng.integers(0, np.diff(first))).astype(np.int64), rng.random((2, len(P)))
    chain = followed(rows, X, choice, int(lengths(rows)[choice].sum()))
    assert (matrix_of(chain.rows, S).toarray() == P[choice]).all()
    assert (chain.x == X[:, choice].T).all()
    p = rng.integers(0, 3, len(P)) / 4
    used, owner = np.flatnonzero(p), np.repeat(np.arange(S), np.diff(first).astype(int))
    mixed = joined(rows, used, p[used], owner[used], S)
    assert (matrix_of(mixed, S).toarray() == np.array([(p[owner == s] @ P[owner == s]) for s in range(S)])).all()


def test_states_are_reached_along_rows_with_a_probability():
    P = np.array([[0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1], [1, 0, 0, 0, 0]], dtype=float)
    start = np.array([True, False, False, False, False])
    reached = reached_from(rows_of(P), np.arange(S + 1, dtype=np.uint64), start)
    assert reached.tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("seed", range(5))
def test_a_change_subtracts_no_large_numbers_and_knows_the_size_of_its_terms(seed):
    """V is 2^52 and some: sum_i p_i V_i - V_s would lose the differences, of which none is lost here."""
    P, rows, _ = listed(seed)
    V = 2.0**52 + np.random.default_rng(seed).integers(0, 8, S)
    owner, none = np.zeros(len(P), dtype=np.int64), np.zeros(len(P))
    delta, size = np.empty((1, len(P))), np.empty((1, len(P)))
    differences(rows, owner, none, none[None], V[None], delta, size)
    for i, p in enumerate(P):
        terms = [Fraction(x) * (Fraction(y) - Fraction(V[0])) for x, y in zip(p, V, strict=True)]
        assert (delta[0, i], size[0, i]) == (sum(terms), sum(abs(x) for x in terms))
