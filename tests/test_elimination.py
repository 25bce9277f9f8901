"""LU factors of small full matrices: against NumPy, and exact where a pivot is zero."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cmdpkit.model import chains
from cmdpkit.model.chains import Chain
from cmdpkit.model.elimination import Factors


@pytest.mark.compiled
@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("trans", ["N", "T"])
def test_solutions_agree_with_numpy(n, trans):
    rng = np.random.default_rng(n)
    matrix, b = rng.normal(size=(n, n)), rng.normal(size=(n, 3))
    expected = np.linalg.solve(matrix if trans == "N" else matrix.T, b)
    kept = matrix.copy(), b.copy()
    found = Factors(matrix)
    assert found.solve(b, trans) == pytest.approx(expected, abs=1e-11)
    assert found.solve(b[:, 1], trans) == pytest.approx(expected[:, 1], abs=1e-11)
    assert (matrix == kept[0]).all() and (b == kept[1]).all()


@pytest.mark.compiled
def test_rows_change_places_where_a_pivot_is_zero_or_tiny():
    permuted = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 4.0], [8.0, 0.0, 0.0]])
    assert Factors(permuted).solve(np.array([2.0, 4.0, 8.0]), "N").tolist() == [1.0, 1.0, 1.0]
    assert Factors(permuted).solve(np.array([8.0, 2.0, 4.0]), "T").tolist() == [1.0, 1.0, 1.0]
    tiny = np.array([[1e-20, 1.0], [1.0, 1.0]])  # without an exchange the first unknown would come out as 0
    assert Factors(tiny).solve(np.array([1.0, 2.0]), "N") == pytest.approx([1.0, 1.0], abs=1e-15)


@pytest.mark.parametrize("S", [chains.DENSE, chains.DENSE + 1])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_chains_just_below_and_above_the_size_of_full_matrices_keep_their_definitions(S, gamma):
    """Shares d = gamma P^T d + (1 - gamma) mu of mass 1, relative values h = x - c + gamma P h with h zero at 0."""
    rng = np.random.default_rng(S)
    P, x, mu = rng.dirichlet(np.ones(S), S), rng.random((S, 2)), rng.dirichlet(np.ones(S))
    chain = Chain(sparse.csr_array(P), gamma)
    d, (c, h) = chain.flow((1 - gamma) * mu, 1.0), chain.values(x)
    assert isinstance(chain._lu, Factors) == (chains.DENSE >= S)
    assert d == pytest.approx(gamma * P.T @ d + (1 - gamma) * mu, abs=1e-15)
    assert d.sum() == pytest.approx(1.0, abs=1e-14)
    assert h == pytest.approx(x - c + gamma * P @ h, abs=1e-13)
    assert np.abs(h[0]).max() <= 1e-15
