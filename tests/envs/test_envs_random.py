"""Random instances: the slack asked for, and draws from the distributions asked for."""

from itertools import combinations

import numpy as np
import pytest
from oracle import optimum, slater_slack

from cmdpkit import envs

KINDS = [
    {},
    {"N": 2, "A": 4, "slack": 0.1},
    {"N": 3, "successors": 3, "S": 12},
    {"N": 2, "rewards": "bernoulli", "stationary": True, "H": 8},
    {"N": 3, "conflict": 0.5, "slack": 0.15, "concentration": 1.0},
    {"N": 1, "slack": 0.0},
]


@pytest.mark.parametrize("params", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_instance_has_exactly_the_slack_asked_for(params, seed):
    cmdp = envs.build("random", seed=seed, **params)
    wanted = params.get("slack", 0.05) * cmdp.H
    assert slater_slack(cmdp) == pytest.approx(wanted, abs=1e-7)  # HiGHS drops probabilities below 1e-9


@pytest.mark.parametrize("N", [1, 3])
def test_negative_slack_makes_a_random_instance_infeasible(N):
    cmdp = envs.build("random", N=N, slack=-0.01)
    assert optimum(cmdp) is None
    assert slater_slack(cmdp) == pytest.approx(-0.05, abs=1e-7)


def test_the_bound_of_a_random_instance_binds_by_default():
    prices = [optimum(envs.build("random", seed=seed)).prices[0] for seed in range(10)]
    assert min(prices) > 1e-3


def test_several_bounds_exclude_the_policy_that_looks_at_reward_alone():
    for seed in range(10):
        cmdp = envs.build("random", N=3, A=5, conflict=0.5, slack=0.1, seed=seed)
        free = optimum(cmdp.with_bounds(**{c.name: -cmdp.H for c in cmdp.constraints}))
        assert (free.utilities < cmdp.rho).all()


@pytest.mark.parametrize(("N", "names"), [(0, []), (1, ["utility"]), (2, ["utility 1", "utility 2"])])
def test_a_random_instance_has_as_many_constraints_as_asked(N, names):
    assert [c.name for c in envs.build("random", N=N).constraints] == names


def test_another_seed_is_another_instance():
    assert len({envs.build("random", seed=seed).fingerprint() for seed in range(5)}) == 5


def test_a_stationary_instance_stores_one_step():
    assert envs.build("random", stationary=True).kernel.T == 1
    assert envs.build("random").kernel.T == 5


def test_sparse_rows_have_that_many_different_successors():
    kernel = envs.build("random", S=30, successors=4, concentration=1.0).kernel
    assert (np.diff(kernel.indptr) == 4).all()


def test_every_set_of_successors_is_equally_likely():
    kernel = envs.build("random", S=4, A=600, H=1, successors=2, concentration=1.0, seed=1).kernel
    drawn = [tuple(pair) for pair in kernel.successors.reshape(-1, 2).tolist()]
    observed = np.array([drawn.count(pair) for pair in combinations(range(4), 2)])
    assert observed.sum() == 2400
    assert ((observed - 400) ** 2 / 400).sum() < 25.7  # chi-square, 5 degrees of freedom: fails with probability 1e-4


@pytest.mark.parametrize("successors", [None, 5])
@pytest.mark.parametrize("concentration", [0.1, 1.0])
def test_rows_have_the_spread_of_a_dirichlet_distribution(successors, concentration):
    """E[sum p^2] = (1 + c) / (1 + k c); five standard errors, so each fails with probability below 1e-6."""
    P = envs.build("random", S=10, A=40, H=5, successors=successors, concentration=concentration, seed=2).P
    squares = (P**2).sum(axis=-1).ravel()
    k = successors or 10
    error = squares.std() / np.sqrt(squares.size)
    assert squares.mean() == pytest.approx((1 + concentration) / (1 + k * concentration), abs=5 * error)


def test_random_signals_are_of_the_kind_asked_for():
    """Means over 20,000 entries within five standard errors."""
    size = {"S": 100, "A": 20, "H": 10, "successors": 2}
    uniform, coins = (envs.build("random", rewards=kind, **size) for kind in ("uniform", "bernoulli"))
    for x in (uniform.r, uniform.g):
        assert 0 <= x.min() < 0.01 and 0.99 < x.max() <= 1
        assert x.mean() == pytest.approx(0.5, abs=5 * np.sqrt(1 / 12 / x.size))
    for x in (coins.r, coins.g):
        assert set(np.unique(x)) == {0.0, 1.0}
        assert x.mean() == pytest.approx(0.1, abs=5 * np.sqrt(0.09 / x.size))


@pytest.mark.parametrize("conflict", [0.0, 0.3, 1.0])
def test_conflict_is_the_share_of_utilities_opposed_to_the_reward(conflict):
    cmdp = envs.build("random", S=100, A=20, H=10, successors=2, conflict=conflict)
    opposed = (cmdp.g[0] == 1 - cmdp.r).mean()
    assert opposed == pytest.approx(conflict, abs=5 * np.sqrt(conflict * (1 - conflict) / cmdp.r.size))


def test_dense_rows_too_large_for_memory_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match="do not fit in memory; give successors"):
        envs.build("random", S=100_000)


@pytest.mark.parametrize("params", [{"successors": 11}, {"successors": 0}, {"S": 0}, {"N": -1}, {"concentration": 0.0}])
def test_a_random_instance_out_of_range_is_refused(params):
    ((name, value),) = params.items()
    with pytest.raises(ValueError, match=f"^{name} is {value}, expected"):
        envs.build("random", **params)
