"""Evaluation in an estimated model against NumPy, the exact recursion, and numbers by hand."""

import numpy as np
import pytest
from numba import typeof

from cmdpkit.learners import Spec, load, opdop, opt_dual
from cmdpkit.learners._episodes import play_episodes
from cmdpkit.learners._model_based.iterating import update_values
from cmdpkit.model.compiled import ingredients
from cmdpkit.model.transitions import Kernel, Rows
from instances import tiny

pytestmark = pytest.mark.compiled


def values(p, x, pi, *, truncated):
    """Q and V of a signal under pi [H, S, A] and p [1 or H, S, A, S], from sparse rows."""
    H, S, A = pi.shape
    Q, V, kernel = np.zeros(pi.shape), np.zeros((H + 1, S)), Kernel.from_dense(p)
    rows = Rows.of(kernel.indptr, kernel.successors, kernel.prob, S, A)
    update_values(rows, x, pi, *((0.0, 1.0) if truncated else (-np.inf, np.inf)), 0.0, Q, V)
    return Q, V


def by_numpy(p, x, pi, *, truncated):
    H, S, _ = pi.shape
    Q, V = np.zeros(pi.shape), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        Q[h] = x[h % len(x)] + p[h % len(p)] @ V[h + 1]
        if truncated:
            Q[h] = np.clip(Q[h], 0.0, H - h)
        V[h] = (pi[h] * Q[h]).sum(axis=-1)
    return Q, V


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("T", [1, 5])
def test_values_follow_the_recursion(truncated, T):
    rng = np.random.default_rng(T)
    for mass in (1.0, 0.7):  # rows that sum to less than 1 are legal: some learners shrink their estimates
        p, pi = mass * rng.dirichlet(np.ones(4), (T, 4, 3)), rng.dirichlet(np.ones(3), (5, 4))
        x = rng.normal(scale=2.0, size=(6 - T, 4, 3))
        both = values(p, x, pi, truncated=truncated), by_numpy(p, x, pi, truncated=truncated)
        for found, expected in zip(*both, strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_truncation_cuts_on_both_sides_before_values_are_passed_on():
    p, pi = np.ones((3, 1, 2, 1)), np.full((3, 1, 2), 0.5)
    x = np.array([[[0.0, -9.0]], [[0.5, 7.0]], [[0.25, -3.0]]])
    Q, V = values(p, x, pi, truncated=True)
    assert Q.reshape(3, 2).tolist() == [[1.3125, 0.0], [0.625, 2.0], [0.25, 0.0]]
    assert V.ravel().tolist() == [0.65625, 1.3125, 0.125, 0.0]


def test_learners_that_share_a_loop_have_compiled_code_of_their_own():
    """The loop has a body for what each of them does after an episode, and code on disk is marked with that body."""
    names = {}
    for algo, module in (("opdop", opdop), ("opt-dual", opt_dual)):
        learner = load(algo)(Spec.of(tiny(np.random.default_rng(0), 1, ties=False), 10), slack=0.1)
        made_of = ingredients(play_episodes.plain, (typeof(learner._player()),))
        names[f"{module.__name__}._improve"] = {name for _, name, _ in made_of}
    for own, found in names.items():
        assert own in found and not (set(names) - {own}) & found
