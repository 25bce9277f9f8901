"""Fixed policies: stepping and counting have the same law, which is known exactly by listing all paths.

Statistical tests run at a fixed seed; a bound of five standard errors fails a right implementation with probability
6e-7, a p-value of 1e-6 with that.
"""

import itertools
from functools import cache

import numpy as np
import pytest
from bench._counts import counts
from scipy import stats

from cmdpkit import CMDP, Policy, envs, evaluate, occupancy, simulate_policy
from cmdpkit.simulate.distribution import play_episodes
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Simulator

pytestmark = pytest.mark.compiled

UNLIKELY, SIGMAS = 1e-6, 5.0


def some_policy(cmdp, seed=0):
    """Stochastic, with some deterministic rows and zero probabilities first, last and between."""
    pi = np.random.default_rng(seed).dirichlet(np.full(cmdp.A, 0.5), (cmdp.H, cmdp.S)) * cmdp.actions
    pi[pi < 0.1] = 0
    return pi / pi.sum(axis=-1, keepdims=True)


def all_paths(cmdp, pi):
    """(probability, states, actions) of every path of an episode."""
    for states in itertools.product(range(cmdp.S), repeat=cmdp.H):
        for actions in itertools.product(range(cmdp.A), repeat=cmdp.H):
            p = cmdp.mu[states[0]]
            for h in range(cmdp.H):
                p *= pi[h, states[h], actions[h]]
                if h + 1 < cmdp.H:
                    p *= cmdp.P[h, states[h], actions[h], states[h + 1]]
            if p > 0:
                yield p, states, actions


def exact_moments(cmdp, pi, noisy=False):
    """Mean and covariance of (reward, utilities) of an episode."""
    mean, second = np.zeros(1 + cmdp.N), np.zeros((1 + cmdp.N, 1 + cmdp.N))
    signals = np.array([cmdp.r, *cmdp.g])
    for p, states, actions in all_paths(cmdp, pi):
        earned = signals[:, range(cmdp.H), states, actions]
        total = earned.sum(axis=1)
        mean += p * total
        second += p * np.outer(total, total)
        if noisy:  # given the path, coins are independent
            second += p * np.diag((earned * (1 - earned)).sum(axis=1))
    return mean, second - np.outer(mean, mean)


def assert_moments(samples, mean, covariance):
    """Sample mean and covariance [m, n] within five standard errors of the truth."""
    n = samples.shape[1]
    assert np.all(np.abs(samples.mean(axis=1) - mean) <= SIGMAS * np.sqrt(np.diag(covariance) / n))
    centred = samples - mean[:, None]
    for i, j in np.ndindex(covariance.shape):
        products = centred[i] * centred[j]
        assert abs(products.mean() - covariance[i, j]) <= SIGMAS * products.std() / np.sqrt(n)


@pytest.fixture(scope="module")
def paper():
    return envs.build("paper/synthetic")


@cache  # several tests look at the same counts, each from another side
def counted(noise, n, repetitions):
    """What `counts` says of n episodes of some policy on the paper's instance, again and again."""
    cmdp, rng = envs.build("paper/synthetic"), stream(2)
    pi = some_policy(cmdp)
    return [counts(cmdp, pi, rng, n, noise) for _ in range(repetitions)]


def test_the_exact_moments_of_this_file_agree_with_evaluate(paper):
    pi = some_policy(paper)
    values = evaluate(paper, Policy(pi))
    np.testing.assert_allclose(exact_moments(paper, pi)[0], [values.v, *values.w], rtol=0, atol=1e-12)


@pytest.mark.parametrize("noise", ["none", "bernoulli"])
def test_stepping_has_the_exact_mean_and_covariance_of_returns(paper, noise):
    pi = some_policy(paper)
    played = play_episodes(Simulator.of(paper, noise), Policy(pi), stream(1), 100_000)
    samples = np.stack([played.reward, *played.utilities])
    assert_moments(samples, *exact_moments(paper, pi, noisy=noise == "bernoulli"))


@pytest.mark.long
@pytest.mark.parametrize("noise", ["none", "bernoulli"])
def test_counting_has_the_exact_mean_and_covariance_of_total_returns(paper, noise):
    pi, n = some_policy(paper), 20
    totals = np.array([[c.reward, *c.utilities] for c in counted(noise, n, 1000)]).T
    mean, covariance = exact_moments(paper, pi, noisy=noise == "bernoulli")
    assert_moments(totals, n * mean, n * covariance)


@pytest.mark.long
@pytest.mark.parametrize(("n", "repetitions"), [(1, 1000), (3, 1000), (20, 1000)])
def test_counting_and_stepping_have_the_same_distribution_of_total_reward(paper, n, repetitions):
    played = play_episodes(Simulator.of(paper), Policy(some_policy(paper)), stream(3), n * repetitions)
    stepped = played.reward.reshape(repetitions, n).sum(axis=1)
    assert stats.ks_2samp(stepped, [c.reward for c in counted("none", n, repetitions)]).pvalue > UNLIKELY


@pytest.mark.long
def test_visits_of_counting_have_the_exact_mean_and_covariance(paper):
    pi, n = some_policy(paper), 20
    drawn = np.array([c.visits.ravel() for c in counted("none", n, 1000)]).T
    q = occupancy(paper, Policy(pi)).ravel()
    together = np.zeros((27, 27))  # probability that one episode uses both cells
    for p, states, actions in all_paths(paper, pi):
        used = np.zeros((3, 3, 3))
        used[range(3), states, actions] = 1
        together += p * np.outer(used, used)
    assert_moments(drawn.astype(float), n * q, n * (together - np.outer(q, q)))


def test_one_counted_episode_is_a_possible_path(paper):
    pi, rng = some_policy(paper), stream(7)
    possible = {(states, actions) for _, states, actions in all_paths(paper, pi)}
    for _ in range(200):
        visits = counts(paper, pi, rng, 1).visits
        used = np.argwhere(visits)
        assert used[:, 0].tolist() == [0, 1, 2]
        assert (tuple(used[:, 1].tolist()), tuple(used[:, 2].tolist())) in possible


@pytest.mark.parametrize("name", ["paper/grid", "random", "streaming"])
def test_counts_of_a_huge_number_of_episodes_approach_the_occupancy(name):
    cmdp = envs.build(name)
    pi = Policy.uniform(cmdp).pi
    n = 10**12
    played = counts(cmdp, pi, stream(8), n)
    assert played.visits.sum(axis=(1, 2)).tolist() == [n] * cmdp.H
    q = occupancy(cmdp, Policy(pi))
    assert np.all(np.abs(played.visits - n * q) <= SIGMAS * np.sqrt(n * q * (1 - q)) + 1e-3)
    unit = (cmdp.reward_scale.total_to_unit(evaluate(cmdp, Policy(pi)).v, cmdp.H), played.reward / n)
    assert unit[0] == pytest.approx(unit[1], abs=1e-4)


def test_the_same_stream_counts_the_same_and_moves_on():
    cmdp = envs.build("random", S=9, A=3, H=4, successors=3)
    pi, rng = Policy.uniform(cmdp).pi, stream(9)
    first, second = counts(cmdp, pi, rng, 1000), counts(cmdp, pi, rng, 1000)
    np.testing.assert_array_equal(first.visits, counts(cmdp, pi, stream(9), 1000).visits)
    assert not np.array_equal(first.visits, second.visits)


def test_rows_that_sum_to_one_only_nearly_never_lose_an_episode():
    cmdp = CMDP(np.full((3, 1, 3), 1 / 3), np.zeros((3, 1)), horizon=4)
    pi = np.ones((4, 3, 1)) - 5e-10  # within the tolerance for rows of a policy
    assert counts(cmdp, pi, stream(1), 10**15).visits.sum() == 4 * 10**15


def test_a_policy_of_another_shape_is_refused(paper):
    with pytest.raises(ValueError, match=r"shape \(3, 3, 2\), the model \(H, S, A\) = \(3, 3, 3\)"):
        simulate_policy(paper, Policy(np.full((3, 3, 2), 0.5)), 5)
    with pytest.raises(ValueError, match="the policy is a ndarray, expected a Policy"):
        simulate_policy(paper, np.full((3, 3, 3), 1 / 3), 5)
