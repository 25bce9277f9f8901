"""Extended value iteration against linear programs, row by row and as a whole."""

import box_oracle
import numpy as np
import pytest
from scipy.optimize import linprog

from cmdpkit.estimate.boxes import box_of, point
from cmdpkit.estimate.extended import (
    Optimistic,
    extended_induction,
    extended_value_iteration,
    fill_row,
    row_value,
    sort_descending,
)
from cmdpkit.model.policy import one_hot

pytestmark = pytest.mark.compiled


def best_by_lp(lo: np.ndarray, up: np.ndarray, V: np.ndarray) -> float:
    answer = linprog(-V, A_eq=np.ones((1, len(V))), b_eq=[1.0], bounds=list(zip(lo, up, strict=True)))
    assert answer.status == 0
    return -answer.fun


def test_the_best_row_of_a_box_is_the_linear_programs():
    rng = np.random.default_rng(0)
    for _ in range(150):
        S = int(rng.integers(1, 8))
        lo, up = box_oracle.random_box(rng, (S,))
        V = rng.normal(size=S) if rng.random() < 0.7 else rng.integers(-1, 2, S).astype(float)
        order, row = np.arange(S), np.full(S, np.nan)
        sort_descending(V, order)
        fill_row(lo, up, order, row)
        one = np.ones(S) / S
        value = row_value(box_of(lo.reshape(1, 1, 1, S), up.reshape(1, 1, 1, S), one, one), 0, 0, 0, V, order)
        assert value == pytest.approx(best_by_lp(lo, up, V), abs=1e-9)
        assert value == pytest.approx(row @ V, abs=1e-12)
        assert row.sum() == pytest.approx(1.0, abs=1e-12)
        assert (row >= lo - 1e-15).all() and (row <= up + 1e-15).all()


def test_a_row_by_hand():
    lo, up, V = np.array([0.1, 0.2, 0.0]), np.array([0.5, 0.6, 0.3]), np.array([1.0, 3.0, 2.0])
    order, row = np.arange(3), np.zeros(3)
    sort_descending(V, order)
    assert order.tolist() == [1, 2, 0]
    # 0.7 is missing: 0.4 to state 1, the 0.3 that is left to state 2, nothing to state 0.
    fill_row(lo, up, order, row)
    assert row == pytest.approx([0.1, 0.6, 0.3])
    box = box_of(lo.reshape(1, 1, 1, 3), up.reshape(1, 1, 1, 3), lo, up)
    assert (box.needed[0, 0, 0], box.states[0, 0, 0, :2].tolist()) == (2, [0, 1])
    assert box.missing[0, 0, 0] == pytest.approx(0.7)
    assert row_value(box, 0, 0, 0, V, order) == pytest.approx(0.1 + 1.8 + 0.6)


def test_states_are_sorted_by_falling_value_whatever_the_order_before():
    rng = np.random.default_rng(1)
    order = np.arange(50)
    for _ in range(20):
        V = rng.integers(0, 9, 50).astype(float)
        sort_descending(V, order)
        assert sorted(order) == list(range(50))
        assert (np.diff(V[order]) <= 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_value_is_the_joint_optimum_over_policies_and_kernels(seed):
    rng = np.random.default_rng([2, seed])
    for _ in range(15):
        x = box_oracle.problem(rng, 2)
        weights = rng.normal(size=3)
        steps = max(len(x.r), x.g.shape[1])
        signals = np.array([np.broadcast_to(signal, (steps, *x.r.shape[1:])) for signal in (x.r, *x.g)])
        found = extended_value_iteration(x.box, np.tensordot(weights, signals, 1), signals, x.allowed, x.H)
        value, *totals = found.totals
        assert value == pytest.approx(box_oracle.optimum(x, weights, bounded=False), abs=1e-8)
        assert value == pytest.approx(weights @ totals, abs=1e-10)
        pi = one_hot(found.choice, x.r.shape[2])
        p, mu = kernel(x, found)
        assert totals == pytest.approx(box_oracle.start_values(x, pi, p, mu), abs=1e-10)
        assert np.broadcast_to(x.allowed, pi.shape)[pi > 0].all()
        assert p.sum(axis=-1) == pytest.approx(np.ones(pi.shape), abs=1e-12) and mu.sum() == pytest.approx(1.0)
        assert ((p >= x.box.lo - 1e-12) & (p <= x.box.up + 1e-12)).all()
        assert ((mu >= x.box.start_lo - 1e-12) & (mu <= x.box.start_up + 1e-12)).all()


def kernel(x: box_oracle.Problem, found: Optimistic) -> tuple[np.ndarray, np.ndarray]:
    """All rows of the kernel that was chosen, [H, S, A, S], and the start distribution [S]."""
    H, (_, S, A) = x.H, x.r.shape
    p, mu = np.zeros((H, S, A, S)), np.zeros(S)
    for h, s, a in np.ndindex(H, S, A):
        t = h % len(x.box.lo)
        fill_row(x.box.lo[t, s, a], x.box.up[t, s, a], found.order[h], p[h, s, a])
    fill_row(x.box.start_lo, x.box.start_up, found.order[H], mu)
    return p, mu


def test_with_one_kernel_in_the_box_it_is_backward_induction():
    rng = np.random.default_rng(3)
    P, c = rng.dirichlet(np.ones(4), (5, 4, 3)), rng.normal(size=(5, 4, 3))
    V = np.zeros(4)
    for h in reversed(range(5)):
        V = (c[h] + P[h] @ V).max(axis=-1)
    mu = rng.dirichlet(np.ones(4))
    found = extended_value_iteration(point(P, mu), c, c[None], np.ones((1, 4, 3), dtype=bool), 5)
    assert found.totals == pytest.approx([mu @ V, mu @ V], abs=1e-12)


def test_the_whole_simplex_leads_to_the_best_state_at_once():
    c = np.zeros((4, 3, 2))
    c[:, 2, 1] = 1.0
    lo, up = np.zeros((1, 3, 2, 3)), np.ones((1, 3, 2, 3))
    box = box_of(lo, up, np.eye(3)[0], np.eye(3)[0])
    found = extended_value_iteration(box, c, c[None], np.ones((1, 3, 2), dtype=bool), 4)
    assert found.totals[0] == 3.0, "the start is known, every later step is spent in the best state"


def test_compiled_and_plain_python_agree_to_the_bit():
    x = box_oracle.problem(np.random.default_rng(11), 1)
    H, (_, S, _) = x.H, x.r.shape
    outputs = []
    for function in (extended_induction, extended_induction.py_func):
        found = Optimistic.empty(H, S, 1)
        function(x.box, x.r, x.r[None], x.allowed, found)
        outputs.append(found)
    for compiled, plain in zip(*outputs, strict=True):
        np.testing.assert_array_equal(compiled, plain)


def test_earlier_computations_do_not_matter():
    rng = np.random.default_rng(4)
    lo, up = box_oracle.random_box(rng, (1, 5, 2, 5))
    box = box_of(lo, up, np.full(5, 0.0), np.full(5, 0.5))
    allowed = np.ones((1, 5, 2), dtype=bool)
    ties, other = rng.integers(0, 2, (1, 5, 2)).astype(float), rng.random((1, 5, 2))
    fresh, used = Optimistic.empty(4, 5, 1), Optimistic.empty(4, 5, 1)
    extended_induction(box, ties, other[None], allowed, fresh)
    for objective in (other, -other, ties):
        extended_induction(box, objective, other[None], allowed, used)
    for a, b in zip(fresh, used, strict=True):
        np.testing.assert_array_equal(a, b)
