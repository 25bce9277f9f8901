"""Radii by hand, boxes by their definition, and coverage on simulated data."""

import math

import numpy as np
import pytest
from box_oracle import Problem, Sides
from scipy.stats import binom

import cmdpkit as ck
from cmdpkit.estimate.counts import Counts
from cmdpkit.estimate.radii import (
    bernstein,
    confidence_box,
    hoeffding,
    kernel_log,
    mean_log,
    mean_radius,
    start_bonus,
    transition_bonus,
)
from cmdpkit.learners._model_based.learner import Belief
from counted import count_move, count_step, dense_moves, no_counts
from instances import synthetic

pytestmark = pytest.mark.compiled


def test_logarithms_by_hand():
    assert kernel_log(2, 3, 4, 1000, 0.1) == pytest.approx(math.log(1_440_000), rel=1e-15)
    assert mean_log(2, 3, 4, 1, 1000, 0.1) == pytest.approx(2 * math.log(2_880_000), rel=1e-15)
    assert mean_log(2, 3, 4, 0, 1000, 0.1) == pytest.approx(2 * math.log(1_440_000), rel=1e-15)
    assert kernel_log(2, 3, 4, 1000, 0.1, c=0.01) == pytest.approx(0.01 * math.log(1_440_000), rel=1e-15)
    assert mean_log(2, 3, 4, 1, 1000, 0.1, c=0.01) == pytest.approx(0.02 * math.log(2_880_000), rel=1e-15)


def test_kernel_radii_by_hand():
    radii = [bernstein(p, 100, 4.0) for p in (0.25, 0.75, 0.0)]
    # 2 sqrt(3/16 * 4/100) + 14/3 * 4/100 = 0.1732051 + 0.1866667, and the second term alone where p_hat = 0
    assert radii == pytest.approx([0.3598717, 0.3598717, 0.1866667], abs=1e-7)
    assert bernstein(0.25, 7, 4.0) == pytest.approx(2 * math.sqrt(0.75 / 7) + 56 / 21, rel=1e-14)


def test_mean_radii_by_hand():
    radius = mean_radius(np.array([0, 1, 4, 900]).reshape(1, 2, 2), 9.0)
    assert radius.ravel() == pytest.approx([3.0, 3.0, 1.5, 0.1], rel=1e-14)
    assert [hoeffding(n, 9.0) for n in (0, 1, 4, 900)] == radius.ravel().tolist()
    assert (hoeffding(0, 0.25), hoeffding(1, 0.25)) == (1.0, 0.5) == tuple(mean_radius(np.array([0, 1]), 0.25))


@pytest.mark.parametrize("c", [0.0, 1e-6, 1.0])
def test_where_nothing_was_seen_everything_is_possible_whatever_the_multiplier(c):
    counts, log = no_counts(3, 4, 2, 1), kernel_log(4, 2, 3, 100, 0.1, c)
    box = box_of(counts, 2, log)
    assert (box.lo[:2] == 0).all() and (box.up[:2] == 1).all()
    assert (box.start_lo == 0).all() and (box.start_up == 1).all()
    assert (transition_bonus(counts, 3, 2, log)[:2] >= 4).all(), "S times a radius of at least 1"
    assert (mean_radius(counts.visits, log) >= 1).all()


def test_with_c_zero_only_unseen_pairs_are_uncertain():
    counts = simulated(synthetic(), np.random.default_rng(0), 3)
    box, moves = box_of(counts, 3, 0.0), dense_moves(counts, 3)
    seen = moves.any(axis=-1)
    assert seen.any() and not seen[:2].all()
    p = moves[seen] / moves[seen].sum(axis=-1, keepdims=True)
    np.testing.assert_array_equal(box.lo[seen], p)
    np.testing.assert_array_equal(box.up[seen], p)
    assert (box.up[:2][~seen[:2]] == 1).all()


def box_of(counts: Counts, A: int, log: float) -> Sides:
    """The box of three steps, written out."""
    return Sides.of(confidence_box(counts, 3, A, log))


def radii(counts: Counts, log: float) -> tuple[np.ndarray, np.ndarray]:
    """p_hat and beta_p, by its formula in NumPy."""
    moves = dense_moves(counts, 3)
    moved = moves.sum(axis=-1, keepdims=True)
    n = np.maximum(moved, 1)
    p = moves / n
    beta = 2 * np.sqrt(p * (1 - p) * log / n) + 14 / 3 * log / n
    return p, np.where(moved == 0, np.maximum(beta, 1.0), beta)


@pytest.mark.parametrize("pooled", [False, True])
def test_a_box_is_the_estimate_and_its_radius_cut_to_probabilities(pooled):
    counts = simulated(synthetic(), np.random.default_rng(1), 30, pooled=pooled)
    log, mu = kernel_log(3, 3, 3, 30, 0.1, 0.05), counts.starts / 30
    (p, radius), box = radii(counts, log), box_of(counts, 3, log)
    np.testing.assert_allclose(box.lo, np.clip(p - radius, 0, 1), atol=1e-15)
    np.testing.assert_allclose(box.up, np.clip(p + radius, 0, 1), atol=1e-15)
    assert (box.lo.sum(axis=-1) <= 1 + 1e-12).all() and (box.up.sum(axis=-1) >= 1 - 1e-12).all()
    assert 0 < (box.lo > 0).mean() < 1 and 0 < (box.up < 1).mean() < 1, "some are cut, some are not"
    spread = 2 * np.sqrt(mu * (1 - mu) * log / 30) + 14 / 3 * log / 30
    np.testing.assert_allclose(box.start_lo, np.clip(mu - spread, 0, 1), atol=1e-15)
    np.testing.assert_allclose(box.start_up, np.clip(mu + spread, 0, 1), atol=1e-15)
    assert start_bonus(counts.starts, log) == pytest.approx(spread.sum(), rel=1e-14)


@pytest.mark.parametrize("pooled", [False, True])
def test_the_bonus_of_a_pair_is_the_sum_of_its_radii_and_none_at_the_last_step(pooled):
    counts = simulated(synthetic(), np.random.default_rng(2), 20, pooled=pooled)
    bonus = transition_bonus(counts, 3, 3, 2.0)
    assert bonus.shape == (3, 3, 3)
    assert not bonus[2].any()
    for h in range(2):
        np.testing.assert_allclose(bonus[h], radii(counts, 2.0)[1][0 if pooled else h].sum(axis=-1), rtol=1e-14)


def test_with_one_step_there_is_no_transition_at_all():
    for pooled in (False, True):
        assert not transition_bonus(no_counts(1, 2, 2, 1, pooled=pooled), 1, 2, 5.0).any()


def simulated(cmdp: ck.CMDP, rng: np.random.Generator, episodes: int, *, pooled: bool = False) -> Counts:
    counts = no_counts(cmdp.H, cmdp.S, cmdp.A, cmdp.N, pooled=pooled)
    for _ in range(episodes):
        play(cmdp, counts, rng)
    return counts


def play(cmdp: ck.CMDP, counts: Counts, rng: np.random.Generator) -> None:
    """One episode of uniformly random actions; rewards and utilities are 0 or 1 with the model's means."""
    s = int(rng.choice(cmdp.S, p=cmdp.mu))
    counts.starts[s] += 1
    for h in range(cmdp.H):
        a = int(rng.integers(cmdp.A))
        means = np.append(cmdp.r[h, s, a], cmdp.g[:, h, s, a])
        count_step(counts, cmdp.A, h, s, a, (rng.random(1 + cmdp.N) < means).astype(float))
        if h + 1 < cmdp.H:
            s, before = int(rng.choice(cmdp.S, p=cmdp.P[h, s, a])), s
            count_move(counts, cmdp.A, h, before, a, s)


def covered(cmdp: ck.CMDP, counts: Counts, K: int, delta: float, c: float) -> bool:
    """Whether kernel, start distribution, rewards and utilities all lie within their radii."""
    box = box_of(counts, cmdp.A, kernel_log(cmdp.S, cmdp.A, cmdp.H, K, delta, c))
    belief = Belief.of(counts, cmdp.A)
    radius = mean_radius(belief.visits, mean_log(cmdp.S, cmdp.A, cmdp.H, cmdp.N, K, delta, c))
    inside = (box.lo - 1e-12 <= cmdp.P) & (box.up + 1e-12 >= cmdp.P)
    start = (cmdp.mu >= box.start_lo - 1e-12) & (cmdp.mu <= box.start_up + 1e-12)
    means_hold = np.abs(belief.signals - np.concatenate((cmdp.r[None], cmdp.g))) <= radius
    return bool(inside[:-1].all() and start.all() and means_hold.all())


@pytest.mark.long
def test_the_truth_is_covered_in_every_episode_with_the_stated_probability():
    """120 runs at delta = 0.3: more failures than the 1 - 1e-6 quantile would happen once in a million correct codes.

    A hundredth of the logarithm must fail far more often than that, or the test could not tell.
    """
    cmdp, runs, K, delta = synthetic(), 120, 40, 0.3
    failures = {1.0: 0, 0.01: 0}
    for run in range(runs):
        rng = np.random.default_rng([9, run])
        counts = no_counts(3, 3, 3, 1)
        holds = dict.fromkeys(failures, True)
        for k in range(K):
            play(cmdp, counts, rng)
            if k % 4 == 3:
                holds = {c: ok and covered(cmdp, counts, K, delta, c) for c, ok in holds.items()}
        failures = {c: n + (not holds[c]) for c, n in failures.items()}
    allowed = binom.ppf(1 - 1e-6, runs, delta)
    assert failures[1.0] <= allowed < failures[0.01]


@pytest.mark.long
def test_a_plan_in_a_box_that_holds_the_truth_is_feasible_and_at_least_as_good_as_the_optimum():
    cmdp = synthetic()
    optimum = ck.solve(cmdp).value
    held = 0
    for run in range(15):
        counts = simulated(cmdp, np.random.default_rng([10, run]), 40 * (run + 1))
        box = box_of(counts, 3, kernel_log(3, 3, 3, 1000, 0.1, 0.1))
        inside = (box.lo <= cmdp.P) & (box.up >= cmdp.P)
        if inside[:2].all() and (cmdp.mu >= box.start_lo).all() and (cmdp.mu <= box.start_up).all():
            held += 1
            found = Problem(box, cmdp.r, cmdp.g, cmdp.rho, cmdp.actions, cmdp.H).plan()
            assert found.feasible and found.value >= optimum - 1e-9
    assert held >= 10
