"""Fixed policies: stepping has the law that is known exactly by listing all paths.

Statistical tests run at a fixed seed; a bound of five standard errors fails a right implementation with probability
6e-7, a p-value of 1e-6 with that.
"""

import itertools

import numpy as np
import pytest

from cmdpkit import Policy, envs
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


@pytest.mark.parametrize("noise", ["none", "bernoulli"])
def test_stepping_has_the_exact_mean_and_covariance_of_returns(paper, noise):
    pi = some_policy(paper)
    played = play_episodes(Simulator.of(paper, noise), Policy(pi), stream(1), 100_000)
    samples = np.stack([played.reward, *played.utilities])
    assert_moments(samples, *exact_moments(paper, pi, noisy=noise == "bernoulli"))
