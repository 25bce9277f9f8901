"""ReLOAD: the last iterate settles at the saddle point, where plain ascent and descent circle."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners.reload import reload_plan
from instances import synthetic

pytestmark = pytest.mark.compiled


def flip_flop(H: int = 4) -> ck.CMDP:
    """Action 1 earns the reward, action 2 the utility, and half of the largest utility is asked for.

    Best is any policy that takes either action half of the time; a greedy one flips between the extremes.
    """
    P = np.zeros((2, 2, 2))
    P[:, 0, 1] = P[:, 1, 0] = 1.0
    return ck.CMDP(P, [[1, 0], [1, 0]], [[0, 1], [0, 1]], rho=H / 2, horizon=H)


@pytest.mark.parametrize(
    "cmdp",
    [synthetic(), ck.load("paper/grid"), ck.load("inventory"), ck.load("streaming"), flip_flop()],
    ids=["synthetic", "grid", "inventory", "streaming", "flip-flop"],
)
def test_the_last_iterate_is_the_saddle_point_and_that_of_the_plain_twin_is_not(cmdp):
    exact = ck.solve(cmdp)
    found = reload_plan(cmdp, tol=1e-5, iterations=20_000)
    assert found.value == pytest.approx(exact.value, abs=1e-4)
    assert found.utilities == pytest.approx(exact.utilities, abs=1e-4)
    assert found.prices == pytest.approx(exact.shadow_prices, abs=1e-3)
    assert found.error <= 1e-5
    plain = reload_plan(cmdp, tol=1e-5, iterations=20_000, optimistic=False)
    assert plain.iterations == 20_000 and plain.error > 1e-2


def test_two_constraints_and_their_prices():
    cmdp = ck.load("random", S=6, H=4, seed=1, N=2)
    exact, found = ck.solve(cmdp), reload_plan(cmdp)
    assert found.prices == pytest.approx(exact.shadow_prices, abs=1e-4)
    assert found.value == pytest.approx(exact.value, abs=1e-5)


def test_without_constraints_it_is_policy_iteration_by_small_steps():
    rng = np.random.default_rng(3)
    cmdp = ck.CMDP(rng.dirichlet(np.ones(3), (3, 3)), rng.normal(size=(3, 3)), horizon=4)
    found = reload_plan(cmdp, tol=1e-9)
    assert found.value == pytest.approx(ck.solve(cmdp).value, abs=1e-7)
    assert found.prices.shape == (0,)


def test_costs_and_other_units_come_back_in_the_users_sense():
    rng = np.random.default_rng(4)
    P, r, cost = rng.dirichlet(np.ones(3), (3, 2)), 10 * rng.random((3, 2)) - 3, 5 * rng.random((3, 2))
    free = ck.CMDP(P, r, horizon=3, constraints=[ck.at_most("cost", 1e9, cost)])
    least = ck.CMDP(P, -cost, horizon=3)
    bound = 0.5 * (ck.solve(free).utilities[0] - ck.solve(least).value)
    cmdp = free.with_bounds(cost=float(bound))
    exact, found = ck.solve(cmdp), reload_plan(cmdp, tol=1e-7)
    assert found.value == pytest.approx(exact.value, abs=1e-5)
    assert found.utilities == pytest.approx(exact.utilities, abs=1e-5)
    assert np.abs(found.prices) == pytest.approx(np.abs(exact.shadow_prices), abs=1e-4)


def test_the_error_of_an_unfinished_run_says_how_far_it_is():
    cmdp = synthetic()
    found = reload_plan(cmdp, iterations=500)
    assert found.iterations == 500 and found.error > 1e-4
    short = 2.0 - found.utilities[0]
    assert short <= found.error + 1e-12
    assert ck.solve(cmdp).value <= found.value + found.error + found.prices[0] * max(short, 0.0) + 1e-9
