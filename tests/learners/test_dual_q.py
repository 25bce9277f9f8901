"""Dual-Q: prices find their level, values are learned, and driving it step by step changes nothing."""

import numpy as np
import pytest

from cmdpkit import Policy, envs, evaluate, solve
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.dual_q import DualQ
from cmdpkit.simulate.random import stream


def played(cmdp, K, seed=1, **params):
    learner = DualQ(Spec.of(cmdp, K), **params)
    returns = learner.run(Source.of(cmdp), stream(seed), K)
    return learner, returns


def test_it_learns_price_and_policy_of_the_synthetic_instance():
    cmdp, K = envs.build("paper/synthetic"), 200_000
    best = solve(cmdp)
    for seed in (1, 2, 3):
        learner, source, rng = DualQ(Spec.of(cmdp, K)), Source.of(cmdp), stream(seed)
        learner.run(source, rng, K // 2)
        utilities, prices = [], []
        for _ in range(50):  # the second half, in pieces
            utilities.append(learner.run(source, rng, K // 100).utilities[0])
            prices.append(learner.multipliers[0])
        assert np.mean(prices) == pytest.approx(best.shadow_prices[0], abs=0.25)
        assert np.mean(utilities) == pytest.approx(2.0, abs=0.02)
        values = evaluate(cmdp, Policy.of(cmdp, learner.recommend()))
        assert values.v == pytest.approx(best.value, abs=0.05)
        assert values.w[0] == pytest.approx(2.0, abs=0.05)


def test_a_bound_that_is_met_anyway_has_no_price():
    learner, _ = played(envs.build("paper/synthetic", rho=1.0), 50_000)
    assert learner.multipliers[0] == 0.0
    assert learner.warnings() == ()


def test_an_impossible_bound_drives_the_price_to_its_limit_and_is_reported():
    learner, _ = played(envs.build("paper/synthetic", rho=2.5), 50_000, lam_max=3.0)
    assert learner.multipliers[0] == 3.0
    assert "constraint 1 is at its limit lam_max = 3" in str(learner.warnings()[0])


def test_without_constraints_it_is_plain_q_learning():
    cmdp = envs.build("random", S=5, A=3, H=3, N=0, seed=4)
    learner, _ = played(cmdp, 50_000)
    values = evaluate(cmdp, Policy.of(cmdp, learner.recommend()))
    assert values.v > solve(cmdp).value - 0.02


def test_random_actions_fade_like_one_over_sqrt_k():
    cmdp = envs.build("paper/synthetic")
    learner, _ = played(cmdp, 100_000)
    k = 100_000 // learner.params.frame * learner.params.frame
    assert learner.learned.tables.explore[0] == pytest.approx(0.03 * np.sqrt(270 / k))
