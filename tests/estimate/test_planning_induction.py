"""Extended value iteration against linear programs, row by row and as a whole."""

import box_oracle
import numpy as np
import pytest
from box_oracle import Sides
from scipy.optimize import linprog

from cmdpkit.estimate.boxes import BestPair, Box, best_pair, drawn, signals_of, total, visits
from cmdpkit.model.policy import one_hot
from cmdpkit.operators.rows import expect, prepare, push, row_of

pytestmark = pytest.mark.compiled


def best_by_lp(lo: np.ndarray, up: np.ndarray, V: np.ndarray) -> float:
    answer = linprog(-V, A_eq=np.ones((1, len(V))), b_eq=[1.0], bounds=list(zip(lo, up, strict=True)))
    assert answer.status == 0
    return -answer.fun


def found_pair(box: Box, objective, signals, allowed, H: int) -> BestPair:
    """The best pair of a policy and a model for an objective [1 or H, S, A], with signals [M, 1 or H, S, A]."""
    pair = BestPair.empty((H, *allowed.shape[1:]), len(signals))
    best_pair(box, objective, allowed, signals_of(signals), pair)
    return pair


def best_row(lo: np.ndarray, up: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, float]:
    """The best row between two sides for values V, and its expectation."""
    every = np.ones((1, len(V), 1, 1))
    rows = Sides(lo * every, up * every, lo, up).boxed(1).rows
    prepare(rows, 0, V)
    row, out = row_of(rows, 0, len(V) - 1, 0), np.zeros(len(V))
    push(rows, row, 1.0, out)
    return out, expect(rows, row, V, 0.0)


def test_the_best_row_of_a_box_is_the_linear_programs():
    rng = np.random.default_rng(0)
    for _ in range(150):
        S = int(rng.integers(1, 8))
        lo, up = box_oracle.random_box(rng, (S,))
        V = rng.normal(size=S) if rng.random() < 0.7 else rng.integers(-1, 2, S).astype(float)
        row, value = best_row(lo, up, V)
        assert value == pytest.approx(best_by_lp(lo, up, V), abs=1e-9)
        assert value == pytest.approx(row @ V, abs=1e-12)
        assert row.sum() == pytest.approx(1.0, abs=1e-12)
        assert (row >= lo - 1e-15).all() and (row <= up + 1e-15).all()


def test_a_row_by_hand():
    lo, up, V = np.array([0.1, 0.2, 0.0]), np.array([0.5, 0.6, 0.3]), np.array([1.0, 3.0, 2.0])
    # 0.7 is missing: 0.4 to state 1, the 0.3 that is left to state 2, nothing to state 0.
    row, value = best_row(lo, up, V)
    assert row == pytest.approx([0.1, 0.6, 0.3])
    assert value == pytest.approx(0.1 + 1.8 + 0.6)


@pytest.mark.parametrize("seed", range(4))
def test_the_value_is_the_joint_optimum_over_policies_and_kernels(seed):
    rng = np.random.default_rng([2, seed])
    for _ in range(15):
        x = box_oracle.problem(rng, 2)
        weights, box = rng.normal(size=3), x.box.boxed(x.H)
        found = found_pair(box, np.tensordot(weights, x.x, 1), x.x, x.allowed, x.H)
        value, *totals = found.totals
        assert value == pytest.approx(box_oracle.optimum(x, weights, bounded=False), abs=1e-8)
        assert value == pytest.approx(weights @ totals, abs=1e-10)
        pi = one_hot(found.policy.choice, x.r.shape[2])
        p, mu = kernel(x, box)
        assert totals == pytest.approx(box_oracle.start_values(x, pi, p, mu), abs=1e-10)
        assert np.broadcast_to(x.allowed, pi.shape)[pi > 0].all()
        assert p.sum(axis=-1) == pytest.approx(np.ones(pi.shape), abs=1e-12) and mu.sum() == pytest.approx(1.0)
        assert ((p >= x.box.lo - 1e-12) & (p <= x.box.up + 1e-12)).all()
        assert ((mu >= x.box.start_lo - 1e-12) & (mu <= x.box.start_up + 1e-12)).all()
        q, d = visits(box, pi), mu
        for h in range(x.H):
            assert q[h] == pytest.approx(d[:, None] * pi[h], abs=1e-12)
            d = np.einsum("sa,sat->t", q[h], p[h])


def kernel(x: box_oracle.Problem, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """All rows of the kernel that was chosen, [H, S, A, S], and the start distribution [S]."""
    H, (_, S, A) = x.H, x.r.shape
    p, mu = np.zeros((H, S, A, S)), np.zeros(S)
    for h, s, a in np.ndindex(H, S, A):
        push(box.rows, row_of(box.rows, h, s, a), 1.0, p[h, s, a])
    push(box.start, row_of(box.start, 0, 0, 0), 1.0, mu)
    return p, mu


def test_the_largest_total_of_a_fixed_policy_is_the_linear_programs():
    rng = np.random.default_rng(12)
    for _ in range(20):
        x = box_oracle.problem(rng, 1)
        choice = np.array(
            [[rng.choice(np.flatnonzero(row)) for row in x.allowed[h % len(x.allowed)]] for h in range(x.H)]
        )
        pi = one_hot(choice, x.r.shape[2])
        found = total(x.box.boxed(x.H), x.r, drawn(pi), np.zeros((2, x.r.shape[1], 1)))
        best = box_oracle.optimum(x._replace(allowed=pi > 0), np.eye(2)[0], bounded=False)
        assert found == pytest.approx(best, abs=1e-8)


def test_the_whole_simplex_leads_to_the_best_state_at_once():
    c = np.zeros((4, 3, 2))
    c[:, 2, 1] = 1.0
    box = Sides(np.zeros((1, 3, 2, 3)), np.ones((1, 3, 2, 3)), np.eye(3)[0], np.eye(3)[0]).boxed(4)
    found = found_pair(box, c, c[None], np.ones((1, 3, 2), dtype=bool), 4)
    assert found.totals[0] == 3.0, "the start is known, every later step is spent in the best state"


def test_earlier_computations_do_not_matter():
    rng = np.random.default_rng(4)
    sides = Sides(*box_oracle.random_box(rng, (1, 5, 2, 5)), np.full(5, 0.0), np.full(5, 0.5))
    allowed = np.ones((1, 5, 2), dtype=bool)
    ties, other = rng.integers(0, 2, (1, 5, 2)).astype(float), rng.random((1, 5, 2))
    fresh, box = found_pair(sides.boxed(4), ties, other[None], allowed, 4), sides.boxed(4)
    for objective in (other, -other, ties):
        used = found_pair(box, objective, other[None], allowed, 4)
    for a, b in zip((fresh.policy.choice, *fresh[1:]), (used.policy.choice, *used[1:]), strict=True):
        np.testing.assert_array_equal(a, b)
