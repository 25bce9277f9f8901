"""The test of "are these the same distribution": seldom wrong where they are, and sure where they are not."""

import numpy as np
import pytest

from cmdpkit.estimate.changes import compared
from cmdpkit.estimate.counts import new_records, several_marks


def records(rng, n, p):
    """Records of cells with 0/1 outcomes: n and p [cells, groups] are how often they were seen and their means."""
    seen = rng.binomial(n, p).astype(float)
    found = new_records(*n.shape, quantities=1)
    found[..., 0], found[..., 1], found[..., 2] = n, seen, seen
    return found


@pytest.mark.parametrize(("cells", "groups", "most", "p"), [(1, 2, 40, 0.5), (12, 8, 200, 0.3), (60, 16, 30, 0.02)])
def test_groups_that_are_alike_are_seldom_told_apart(cells, groups, most, p):
    """P-values below x have a probability of at most x; of 300, more than 30 below 0.05 have one below 0.0005."""
    rng = np.random.default_rng([4, cells])
    found = np.array([
        compared(records(rng, rng.integers(0, most, (cells, groups)), np.full((cells, groups), p))).p
        for _ in range(300)
    ])  # fmt: skip
    assert (found < 0.05).sum() <= 30 and (found < 0.005).sum() <= 7


@pytest.mark.parametrize("split", [1, 3, 7])
def test_one_cell_that_changes_is_found_and_dated(split):
    """One of 12 cells moves from 0.3 to 0.6 with 400 observations in each of 8 groups: over 11 standard errors."""
    rng = np.random.default_rng([5, split])
    p = np.full((12, 8), 0.3)
    p[7, split:] = 0.6
    for _ in range(20):
        found = compared(records(rng, np.full((12, 8), 400), p))
        assert found.contradicted and found.split == split and found.cells[0] == 7


def test_a_small_shift_that_all_cells_share_is_found():
    """0.30 to 0.34 in 100 cells: 1.2 standard errors in each, 12 together."""
    rng = np.random.default_rng(6)
    p = np.full((100, 2), 0.3)
    p[:, 1] = 0.34
    for _ in range(20):
        found = compared(records(rng, np.full((100, 2), 400), p))
        assert found.contradicted


def test_constants_that_differ_are_certain_and_equal_ones_are_no_evidence():
    rng = np.random.default_rng(7)
    n = np.full((3, 2), 50)
    assert compared(records(rng, n, np.ones((3, 2)))).p == 1.0
    assert compared(records(rng, n, np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0]]))).p < 1e-12


@pytest.mark.parametrize("S", [2, 3, 4, 5, 8, 21, 100])
def test_a_shift_towards_any_state_shows_in_the_marks(S):
    """Random marks are 1/2 in the mean over all states, and no state has such a mark: it would hide a shift."""
    order, *drawn = several_marks(S)
    assert order.tolist() == np.linspace(0, 1, S).tolist()
    assert np.abs(np.array(drawn) - 0.5).min() > 1 / 6
    assert len({*drawn[0]}) == S and 0 <= np.min(drawn) <= np.max(drawn) <= 1
    assert [int((x > 0.5).sum()) for x in drawn] == [S // 2] * 2
