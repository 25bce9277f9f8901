"""Confidence bounds: the published inequality, hand-computed, and coverage measured against known expectations."""

import math

import numpy as np
import pytest

from cmdpkit import envs, evaluate
from cmdpkit.learners import Source, Spec, load
from cmdpkit.learners._certificate import empirical_bernstein, half_width, simultaneous
from cmdpkit.model.policy import Policy
from cmdpkit.simulate.random import stream


def test_the_radius_is_that_of_maurer_and_pontil():
    """n = 101, variance 0.25, range 2, delta 0.2 on two sides: ln(4 / 0.2) = ln 20 = 2.9957 is the logarithm."""
    expected = math.sqrt(2 * 0.25 * 2.995732273553991 / 101) + 7 * 2 * 2.995732273553991 / (3 * 100)
    assert half_width(101, 0.25, 2.0, 0.2) == pytest.approx(expected, rel=1e-12)
    low, high = empirical_bernstein(101, 1.0, 0.25, 2.0, 0.2)
    assert (low, high) == pytest.approx((1 - expected, 1 + expected), rel=1e-12)


def test_bounds_stay_in_the_range_and_without_data_are_all_of_it():
    assert empirical_bernstein(0, 0.0, 0.0, 3.0, 0.05) == (0.0, 3.0)
    assert empirical_bernstein(1, 2.9, 0.0, 3.0, 0.05) == (0.0, 3.0)
    low, high = empirical_bernstein(50, 2.9, 0.1, 3.0, 0.05)
    assert low > 0
    assert high == 3.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0])
def test_a_delta_that_is_no_probability_is_refused(delta):
    with pytest.raises(ValueError, match="delta is"):
        empirical_bernstein(10, 0.5, 0.1, 1.0, delta)


def test_intervals_that_hold_together_share_delta_equally():
    found = simultaneous(1000, np.array([1.0, 2.0]), np.array([0.1, 0.4]), 3.0, 0.05)
    assert (found.level, found.episodes) == (0.95, 1000)
    for interval, mean, variance in zip(found.intervals, (1.0, 2.0), (0.1, 0.4), strict=True):
        assert interval == empirical_bernstein(1000, mean, variance, 3.0, 0.025)


def test_coverage_on_the_worst_distributions_is_at_least_what_was_promised():
    """Rare large values make small samples look harmless. 20,000 samples of 60: at a true miss rate of 5 % more than
    1,150 misses (4.9 standard errors) would have probability below 1e-6."""
    rng = np.random.default_rng(1)
    for p in (0.01, 0.05, 0.3):
        x = (rng.random((20_000, 60)) < p).astype(float)
        spread = x.var(axis=1, ddof=1)
        radius = np.sqrt(2 * spread * math.log(4 / 0.05) / 60) + 7 * math.log(4 / 0.05) / (3 * 59)
        assert half_width(60, float(spread[0]), 1.0, 0.05) == pytest.approx(radius[0])
        assert (np.abs(x.mean(axis=1) - p) > radius).sum() <= 1150


@pytest.mark.no_cover
def test_the_certificate_of_a_run_covers_the_true_values_of_the_very_policy_handed_over():
    """200 short runs at 90 %: at a true coverage of 90 % fewer than 163 would have probability below 1e-3.

    Utilities are "at most" costs in [0, 1] here, with random signals, so scales and noise are exercised too.
    """
    cmdp = envs.build("random", S=4, A=3, H=3, N=2, conflict=0.5, seed=3)
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    hits, widths, policies = 0, [], set()
    for seed in range(200):
        learner = load("cl-pri")(Spec.of(cmdp, 1500), delta=0.1)
        learner.run(Source.of(cmdp, noise="bernoulli"), stream(seed), 1500)
        found = learner.certificate()
        assert found.level == 0.9
        pi = learner.recommend()
        v, w = evaluate(cmdp, Policy.of(cmdp, pi))
        truth = [scale.total_to_unit(x, cmdp.H) for scale, x in zip(scales, [v, *w * cmdp.signs], strict=True)]
        hits += all(low <= x <= high for x, (low, high) in zip(truth, found.intervals, strict=True))
        widths += [high - low for low, high in found.intervals]
        policies.add(pi.tobytes())
    assert hits >= 163
    assert len(policies) > 100  # it is a different policy nearly every time
    assert np.mean(widths) < 0.75 * cmdp.H  # not vacuous even with 50 to 100 episodes
