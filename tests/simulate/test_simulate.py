"""The simulator draws what the model says. Chi-square tests have an error probability of 1e-6 each, at a fixed seed."""

import numpy as np
import pytest
from numba import njit
from scipy import sparse, stats

from cmdpkit import CMDP, at_least, at_most, envs
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import HALF, LOW, Simulator, reset, step

pytestmark = pytest.mark.compiled

UNLIKELY = 1e-6
DRAW_ZERO = np.array([0, 1, 1, 0], dtype=np.uint64)  # the next 64 bits are all 0
DRAW_LARGEST = np.array([0, 1, 1, 2**64 - 1], dtype=np.uint64)  # all 1


@njit
def many_steps(sim, h, s, a, rng, n, S):
    arrived = np.zeros(S, dtype=np.int64)
    for _ in range(n):
        s_next, _ = step(sim, h, s, a, rng)
        arrived[s_next] += 1
    return arrived


@njit
def many_resets(sim, rng, n, S):
    begun = np.zeros(S, dtype=np.int64)
    for _ in range(n):
        begun[reset(sim, rng)] += 1
    return begun


def chi_square(counts, prob):
    """p-value of counts against probabilities; what is impossible must not have happened."""
    assert counts[prob == 0].sum() == 0
    possible = prob > 0
    expected = counts.sum() * prob[possible]
    if possible.sum() == 1:
        return 1.0
    return stats.chisquare(counts[possible], expected * counts.sum() / expected.sum()).pvalue


def uneven(seed=0, S=6, A=2, H=3, stationary=False):
    """A sparse model whose rows have 1 to S successors, some of them very unlikely."""
    rng = np.random.default_rng(seed)
    T = 1 if stationary else H
    P = np.zeros((T, S, A, S))
    for row in P.reshape(-1, S):
        k = rng.integers(1, S + 1)
        row[rng.choice(S, k, replace=False)] = rng.dirichlet(np.full(k, 0.5))
    mu = np.array([0.2, 0.0, 0.5, 0.0, 0.3, 0.0])
    return CMDP(P if T > 1 else P[0], rng.random((S, A)), mu=mu, horizon=H, renormalise=True)


def alias_probabilities(sim, row, S):
    """What `step` draws from a row, worked out from the table without drawing."""
    prob = np.zeros(S)
    packed = sim.rows[row]
    place, width = int(packed >> HALF), int(packed & LOW)
    if width == 1:
        prob[place] = 1.0
        return prob
    for chance, states in sim.entries[place : place + width]:
        own = int(chance) / 2**64
        prob[int(states & LOW)] += own / width
        prob[int(states >> HALF)] += (1 - own) / width
    return prob


@pytest.mark.parametrize("cmdp", [envs.build("paper/synthetic"), uneven(), uneven(1, stationary=True)])
def test_every_alias_table_holds_exactly_the_probabilities_of_its_row(cmdp):
    sim = Simulator.of(cmdp)
    for h in range(cmdp.H):
        for s in range(cmdp.S):
            for a in range(cmdp.A):
                row = h * int(sim.kernel_stride) + s * cmdp.A + a
                np.testing.assert_allclose(alias_probabilities(sim, row, cmdp.S), cmdp.P[h, s, a], rtol=0, atol=4e-16)


def test_a_probability_of_1e_12_is_kept():
    cmdp = CMDP([[[1e-12, 0.25, 0.75 - 1e-12]]] * 3, np.zeros((3, 1)), horizon=2)
    assert alias_probabilities(Simulator.of(cmdp), 0, 3)[0] == pytest.approx(1e-12, rel=1e-6)


@pytest.mark.parametrize("cmdp", [envs.build("paper/synthetic"), uneven(), uneven(1, stationary=True)])
def test_steps_arrive_as_often_as_the_model_says(cmdp):
    sim, rng = Simulator.of(cmdp), stream(11)
    for h, s, a in np.ndindex(cmdp.H - 1, cmdp.S, cmdp.A):
        counts = many_steps(sim, h, s, a, rng, 20_000, cmdp.S)
        assert chi_square(counts, cmdp.P[h, s, a]) > UNLIKELY


def test_two_steps_in_a_row_are_independent():
    cmdp = CMDP([[[0.5, 0.5]], [[0.5, 0.5]]], np.zeros((2, 1)), horizon=50)
    sim, rng = Simulator.of(cmdp), stream(3)
    pairs = np.zeros((2, 2), dtype=int)
    for _ in range(20_000):
        first, _ = step(sim, 0, 0, 0, rng)
        second, _ = step(sim, 1, first, 0, rng)
        pairs[first, second] += 1
    assert stats.chi2_contingency(pairs).pvalue > UNLIKELY


def test_episodes_begin_as_often_in_a_state_as_the_model_says():
    cmdp = uneven()
    assert chi_square(many_resets(Simulator.of(cmdp), stream(2), 50_000, cmdp.S), cmdp.mu) > UNLIKELY


@pytest.mark.parametrize("draw", [DRAW_ZERO, DRAW_LARGEST])
def test_the_smallest_and_the_largest_draw_lead_to_possible_states(draw):
    cmdp = uneven()
    sim = Simulator.of(cmdp)
    assert cmdp.mu[reset(sim, draw.copy())] > 0
    for h, s, a in np.ndindex(cmdp.H - 1, cmdp.S, cmdp.A):
        s_next, _ = step(sim, h, s, a, draw.copy())
        assert cmdp.P[h, s, a, s_next] > 0


def test_the_smallest_draw_takes_the_first_entry_and_the_largest_the_last():
    sim = Simulator.of(CMDP([[[0.25, 0.25, 0.25, 0.25]]] * 4, np.zeros((4, 1)), horizon=2))
    assert step(sim, 0, 0, 0, DRAW_ZERO.copy())[0] == 0
    assert step(sim, 0, 0, 0, DRAW_LARGEST.copy())[0] == 3


def test_one_successor_draws_nothing():
    cmdp = envs.build("paper/grid")
    sim, rng = Simulator.of(cmdp), stream(1)
    s = reset(sim, rng)
    for h in range(cmdp.H):
        s, _ = step(sim, h, s, int(np.flatnonzero(cmdp.actions[h, s])[0]), rng)
    np.testing.assert_array_equal(rng, stream(1))


def test_the_last_step_has_no_successor_and_draws_nothing():
    cmdp = envs.build("paper/synthetic")
    rng = stream(1)
    assert step(Simulator.of(cmdp), 2, 1, 0, rng)[0] == 1
    np.testing.assert_array_equal(rng, stream(1))


def test_a_stationary_model_is_stored_once_whatever_its_horizon():
    sim = Simulator.of(uneven(stationary=True, H=1000))
    assert len(sim.rows) == len(sim.signals) == 12
    assert sim.entries.shape[0] <= 12 * 6


def test_a_stationary_kernel_stays_so_under_rewards_that_depend_on_the_step():
    P = np.full((2, 2, 2), 0.5)
    cmdp = CMDP(P, np.arange(20.0).reshape(5, 2, 2) / 20, horizon=5)
    sim = Simulator.of(cmdp)
    assert len(sim.rows) == 4
    for h, s, a in np.ndindex(5, 2, 2):
        _, x = step(sim, h, s, a, stream(1))
        assert sim.outcomes[x, 0] == cmdp.r[h, s, a]


def test_signals_are_scaled_to_the_unit_interval_and_costs_become_utilities():
    r = np.array([[-3.0, 5.0], [1.0, 0.0]])
    cost = np.array([[0.0, 10.0], [4.0, 2.0]])
    served = np.array([[0.5, 1.0], [0.0, 0.25]])
    constraints = [at_most("cost", 3, cost), at_least("served", 1, served)]
    sim = Simulator.of(CMDP(np.full((2, 2, 2), 0.5), r, constraints=constraints, horizon=3))
    for s, a in np.ndindex(2, 2):
        _, x = step(sim, 0, s, a, stream(1))
        expected = [(r[s, a] + 3) / 8, 1 - cost[s, a] / 10, served[s, a]]  # served lies in [0, 1] already
        np.testing.assert_allclose(sim.outcomes[x], expected, rtol=0, atol=1e-15)


def test_more_than_65536_states_keep_their_numbers():
    S = 100_000
    matrix = sparse.csr_array((np.full(2 * S, 0.5), (np.repeat(np.arange(S), 2), _neighbours(S))), shape=(S, S))
    sim = Simulator.of(CMDP([matrix], np.zeros((S, 1)), mu=S - 1, horizon=10))
    rng = stream(4)
    s = reset(sim, rng)
    assert s == S - 1
    for h in range(9):
        s_next, _ = step(sim, h, s, 0, rng)
        assert s_next in ((s + 1) % S, (s + 70_000) % S)
        s = s_next


def _neighbours(S):
    return np.stack([(np.arange(S) + 1) % S, (np.arange(S) + 70_000) % S], axis=1).ravel()


def test_bernoulli_noise_draws_0_or_1_with_the_model_s_value_as_mean_each_signal_by_itself():
    P = np.ones((1, 1, 1))
    cmdp = CMDP(P, [[0.3]], [[[0.8]], [[1.0]], [[0.0]]], [0, 0, 0], horizon=2)
    sim, rng = Simulator.of(cmdp, noise="bernoulli"), stream(8)
    seen = np.array([sim.outcomes[step(sim, 0, 0, 0, rng)[1]] for _ in range(40_000)])
    assert set(np.unique(seen)) == {0.0, 1.0}
    assert np.all(seen[:, 2] == 1)
    assert np.all(seen[:, 3] == 0)
    for column, mean in ((0, 0.3), (1, 0.8)):
        assert stats.binomtest(int(seen[:, column].sum()), len(seen), mean).pvalue > UNLIKELY
    table = np.histogram2d(seen[:, 0], seen[:, 1], bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > UNLIKELY


def test_an_unknown_noise_is_refused():
    with pytest.raises(ValueError, match="noise is 'gauss', expected 'none' or 'bernoulli'"):
        Simulator.of(uneven(), noise="gauss")


def test_too_many_constraints_for_bernoulli_noise_are_refused():
    cmdp = CMDP(np.ones((1, 1, 1)), [[0.5]], np.full((16, 1, 1), 0.5), np.zeros(16), horizon=2)
    with pytest.raises(ValueError, match="fewer than 16 constraints, the model has 16"):
        Simulator.of(cmdp, noise="bernoulli")
