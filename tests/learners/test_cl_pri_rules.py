"""The rules of CL-PRI: what a plan repays, what is worth a try, which margin a policy gets, when exploration ends."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from cmdpkit import CMDP, Policy, envs, evaluate, solve
from cmdpkit.estimate.counts import count_episode, new_counts, new_episode
from cmdpkit.estimate.model import best_plan, handed_over, model_of, plan_errors, spread
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.sources import Horizon
from cmdpkit.learners import Source, Spec
from cmdpkit.learners._closed_loop import Account, owed
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.learners.cl_pri.rules import ClosedLoopParams, dear, gains, repaying_plan, tries
from cmdpkit.simulate.random import stream

pytestmark = pytest.mark.compiled

PARAMS = ClosedLoopParams()
CHEAP_THEN_DEAR = [(1.0, 0.5), (0.9, 0.6), (0.0, 0.61)]  # more utility costs 1 per unit up to 0.6, and 90 beyond


def one_decision(actions, bound, times=5, noise=0.0, unknown=0):
    """The model of a single decision between actions (reward, utility), each seen so often; some were never tried.

    With noise, half of the signals lie above their mean by it and half below, reward and utility together.
    """
    A = len(actions) + unknown
    counts, episode = new_counts(1, 1, A, 2), new_episode(1, 2)
    for a, signals in enumerate(actions):
        for i in range(times):
            episode.actions[0], episode.signals[0] = a, np.array(signals) + noise * (-1) ** i
            count_episode(counts, episode, A)
    return model_of(counts, np.array([bound]), np.ones((1, 1, A), dtype=bool), 1)


def in_debt(short, left):
    """The account of a run that fell short, before a policy is returned; all episodes left can repay."""
    return Account(np.array(short), left, 0, np.zeros(len(short)))


@pytest.mark.parametrize(
    ("debt", "price", "settled", "utility"),
    [
        (0.05, 100.0, False, 0.50),  # with a price of 0 so far, a price of 1 is dear while things are tried
        (0.05, 100.0, True, 0.55),  # and is paid afterwards
        (0.20, 100.0, True, 0.61),  # at a price of 100 there is 0.11 in all
        (0.20, 50.0, True, 0.60),  # at most 50: only 0.1 can be had
        (0.05, 0.5, True, 0.50),  # a price of 1 is more than is allowed
        (-0.05, 100.0, True, 0.50),  # a surplus is given back, but nothing is better than the first action
    ],
)
def test_a_plan_repays_what_can_be_had_at_prices_that_are_allowed(debt, price, settled, utility):
    model, p = one_decision(CHEAP_THEN_DEAR, 0.5), replace(PARAMS, repay_price=price, reserve=0.0)
    plan, spare = repaying_plan(model, np.array([0.5]), in_debt([100 * debt], 100), p, settled=settled)
    assert plan.utilities[0] == pytest.approx(utility, abs=1e-6)
    if not settled:  # nothing can be had at the price of 0, so tries may not even cost what is owed already
        assert spare[0] == pytest.approx(-100 * debt, abs=1e-4)


CHEAP_RESERVE = [(1.0, 0.2), (0.7, 0.8), (0.0, 0.9)]  # a unit costs 0.5 up to 0.8, where 0.3 are left, and 7 beyond


@pytest.mark.parametrize("debt", [0.0, 20.0, 300.0])
def test_a_large_reserve_is_bought_cheaply_and_only_the_rest_of_a_debt_dearly(debt):
    """At the cheap price bounds can be exceeded by 0.3, and by 0.4 at the dear one, which needs a smaller reserve."""
    model, rho = one_decision(CHEAP_RESERVE, 0.5, times=400, noise=0.1), np.array([0.5])
    account, doubt = in_debt([debt], 1000), 3 * 0.1 / 400**0.5
    sd = spread(model, np.array([[[0.5, 0.5, 0.0]]]))
    cheap, dear = (owed(account, sd, np.array([gain - doubt]), 3.0)[0] for gain in (0.3, 0.4))
    assert cheap > dear
    plan, _ = repaying_plan(model, rho, account, PARAMS, settled=True)
    assert plan.utilities[0] - 0.5 == pytest.approx(cheap if cheap < 0.3 else max(0.3, dear), rel=1e-6)
    assert (plan.prices[0] > 1) == (debt == 300)


@pytest.mark.parametrize(("left", "given"), [(1, 0.0), (1000, 0.3)])
def test_a_surplus_is_given_back_only_with_a_reserve_for_the_spread_of_doing_so(left, given):
    """To give back 0.3 of 0.5 one draws between 0.5 and 0, which varies by 0.245: too much for one episode."""
    model, rho = one_decision([(0.5, 0.5), (1.0, 0.0)], 0.5), np.array([0.5])
    plan, _ = repaying_plan(model, rho, in_debt([-0.3 * left], left), PARAMS, settled=True)
    assert 0.5 - plan.utilities[0] == pytest.approx(given, abs=0.03)


def two_utilities_that_exclude_each_other():
    """One decision between two actions, each of which earns one of two utilities; and the bounds of 0.3."""
    counts, episode = new_counts(1, 1, 2, 3), new_episode(1, 3)
    for a, signals in enumerate([(0.5, 1.0, 0.0), (0.5, 0.0, 1.0)]):
        episode.actions[0], episode.signals[0] = a, signals
        for _ in range(5):
            count_episode(counts, episode, 2)
    rho = np.array([0.3, 0.3])
    model = model_of(counts, rho, np.ones((1, 1, 2), dtype=bool), 1)
    return model, rho


def test_bounds_that_cannot_all_be_exceeded_at_once_are_exceeded_together_as_far_as_possible():
    """Two utilities that exclude each other: either can be 1, both together 1/2. They owe the same."""
    model, rho = two_utilities_that_exclude_each_other()
    account = in_debt([50.0, 50.0], 100)
    plan, _ = repaying_plan(model, rho, account, replace(PARAMS, reserve=0.0), settled=True)
    np.testing.assert_allclose(plan.utilities, 0.5, atol=0.005)


@pytest.mark.parametrize("times", [36, 3600])
def test_the_reserve_counts_on_what_can_be_bought_less_three_standard_errors(times):
    """Utilities of 0.5 and 0.7 with signals that vary by 0.1: the mean of n tries has the error 0.1 / sqrt(n)."""
    model = one_decision([(1.0, 0.5), (0.5, 0.7)], 0.5, times=times, noise=0.1)
    account = in_debt([20.0], 1000)
    plan, _ = repaying_plan(model, np.array([0.5]), account, PARAMS, settled=True)
    sure = 0.2 - 3 * 0.1 / times**0.5
    wanted = owed(account, np.array([0.1]), np.array([sure]), 3.0)[0]
    assert plan.utilities[0] == pytest.approx(0.5 + wanted, rel=1e-6)


def test_the_reserve_counts_on_what_all_bounds_allow_together():
    """Either of two utilities can be exceeded by 0.7, both together by 0.2, less 1 %."""
    model, rho = two_utilities_that_exclude_each_other()
    pool = Columns(Horizon(model.cmdp))
    gain, sure = gains(pool, model, rho, best_plan(model, rho, pool), np.full(2, 0.05), 0.0)
    np.testing.assert_allclose(gain, 0.7, rtol=1e-9)
    np.testing.assert_allclose(sure, 0.2 * 0.99, rtol=1e-4)


def test_a_price_is_dear_from_a_multiple_of_the_bound_s_own_and_in_the_end_only_beyond_what_is_allowed():
    prices, p = np.array([0.0, 3.0, 80.0]), replace(PARAMS, steep=2.0, repay_price=100.0)
    (cheap,) = dear(prices, p, settled=False)
    assert cheap.tolist() == [0.0, 6.0, 100.0]
    assert [x.tolist() for x in dear(prices, p, settled=True)] == [[100.0] * 3, [0.0, 6.0, 100.0]]


@pytest.mark.parametrize("z", [2.0, 3.0])
@pytest.mark.parametrize("left", [40, 400, 40_000])
def test_the_reserve_covers_bad_luck_in_every_stretch_at_the_end(left, z):
    sd, gain = 0.5, 0.06  # of which half is counted on, because every other block repays in the end
    stretches = np.arange(left + 1)
    largest = (z * sd * np.sqrt(stretches) - gain / 2 * stretches).max()
    kept = left * owed(in_debt([7.0], left), np.array([sd]), np.array([gain]), z)[0] - 7.0
    assert largest <= kept <= largest + z * sd


def test_half_of_the_episodes_repay_once_every_other_block_plays_the_policy_handed_over():
    """Without luck: the other half brings what that policy exceeds the bounds by."""
    found = owed(Account(np.array([20.0]), 500, 500, np.array([0.01])), np.zeros(1), np.array([0.1]), 3.0)
    assert found[0] == pytest.approx((20.0 - 500 * 0.01) / 500, rel=1e-5)


def test_the_spread_of_an_episode_is_that_of_played_episodes():
    """20,000 episodes of a random policy in a model made of its own counts; a standard deviation is known to 1 %."""
    cmdp = envs.build("random", S=4, A=3, H=5, N=2, stationary=True, seed=4)
    learner = ClosedLoopPRI(Spec.of(cmdp, 10**6))
    learner.run(Source.of(cmdp, noise="bernoulli"), stream(1), 20_000)
    model = model_of(learner.counts, learner.spec.rho, np.asarray(learner.spec.allowed), 1)
    pi = np.where(model.known[..., None], model.cmdp.actions / model.cmdp.actions.sum(axis=-1, keepdims=True), 1 / 3)
    other = ClosedLoopPRI(Spec.of(cmdp, 10**6))
    other.clock.explored, other.clock.block_end = 0, 10**6
    other.block.pi[...] = other.block.plan[...] = pi.reshape(-1, 3)
    played = other.run(Source.of(cmdp, noise="bernoulli"), stream(2), 20_000)
    np.testing.assert_allclose(spread(model, pi), played.utilities.std(axis=1), rtol=0.04)


def index_allows(mean, sd, visits, n, bonus=0.35):
    freedom = n + PARAMS.pseudo
    t = np.sqrt(freedom * (np.exp((bonus * np.log1p(visits / n)) ** 2 / freedom) - 1))
    return mean + t * sd / np.sqrt(n) > 1e-5


def test_the_quantile_for_few_tries_is_close_to_that_of_student():
    """For 5 to 100 degrees of freedom and errors down to one in 10,000, within an eighth."""
    for freedom in (5, 10, 100):
        for z in (1.0, 2.0, 3.0, 3.7):
            quantile = student.isf(norm.sf(z), freedom)
            assert np.sqrt(freedom * np.expm1(z**2 / freedom)) == pytest.approx(quantile, rel=0.125)


@pytest.mark.parametrize("ahead", [100, 10_000, 10**6])
def test_an_action_is_tried_until_its_index_falls_below_the_plan(ahead):
    """The number of tries is found by counting up, for two actions that are worse than the plan by 0.05 and 0.25.

    Their mean is -0.15 with a variance of 0.01, which is that of one try, so that this mean counts as one try.
    """
    model = one_decision([(0.5, 0.5), (0.45, 0.5), (0.25, 0.5)], 0.0, times=40, noise=0.1)
    beside = (np.array([[[1.0, 0.0, 0.0]]]), np.zeros(1), np.full(1, np.inf)), ahead
    found = tries(model, np.ones((1, 1, 3), dtype=bool), *beside, PARAMS)[0, 0]
    assert found[0] == 0
    for quota, worse in zip(found[1:], (0.05, 0.25), strict=True):
        n = np.arange(1, 10**5)
        last = n[index_allows(-(40 * worse + 0.15) / 41, 0.1, ahead, n)].max(initial=0) - 1
        expected = min(last, 81) if last > 40 else 0
        assert abs(quota - expected) <= 1
    assert (found[1] > 0) == (ahead == 10**6)


def test_the_index_follows_that_of_gittins():
    """The approximation of Brezzi and Lai (2002) for normal arms, for 1 to 1e6 pulls to come per pull so far."""
    s = np.logspace(0, 6, 50)
    small = np.where(s <= 5, 0.63 - 0.26 / np.sqrt(s), 0.77 - 0.58 / np.sqrt(s))
    large = np.sqrt(np.maximum(2 * np.log(s) - np.log(np.log(s + 2)) - np.log(16 * np.pi), 0))
    ratio = PARAMS.bonus * np.log1p(s) / np.where(s <= 15, small, large)
    assert 0.6 < ratio.min() < 1 < ratio.max() < 1.6


def test_an_action_that_was_never_tried_is_tried_and_tries_that_cannot_be_repaid_are_not_made():
    model = one_decision([(0.5, 0.5), (0.5, 0.3), (0.49, 0.6)], 0.0, times=40, noise=0.1, unknown=1)
    pi, allowed = np.array([[[1.0, 0.0, 0.0, 0.0]]]), np.ones((1, 1, 4), dtype=bool)
    freely = tries(model, allowed, (pi, np.zeros(1), np.full(1, np.inf)), 10**5, PARAMS)[0, 0]
    assert freely.tolist() == [0, 81, 81, 1]
    tightly = tries(model, allowed, (pi, np.zeros(1), np.array([2.05])), 10**5, PARAMS)[0, 0]
    assert tightly.tolist() == [0, 50, 81, 1]  # each try of the second action costs 0.2 of the utility
    in_debt = tries(model, allowed, (pi, np.zeros(1), np.array([-9.0])), 10**5, PARAMS)[0, 0]
    assert in_debt.tolist() == [0, 0, 81, 1]
    forbidden = tries(model, allowed & (np.arange(4) < 3), (pi, np.zeros(1), np.zeros(1)), 10**5, PARAMS)
    assert forbidden[0, 0, 3] == 0


def test_a_tie_without_noise_is_not_searched_for_ever():
    model = one_decision([(0.5, 0.5), (0.4, 0.6), (0.3, 0.2)], 0.0, times=3)
    beside = (np.array([[[1.0, 0.0, 0.0]]]), np.ones(1), np.full(1, np.inf)), 10**6
    assert not tries(model, np.ones((1, 1, 3), dtype=bool), *beside, PARAMS).any()


def test_the_policy_clears_its_bound_by_z_standard_errors():
    """A mixture of two actions that were tried alike: the bound asks for half of each, and one can be had for 0.5."""
    for z, seen in ((1.0, 400), (2.5, 400), (2.5, 4000)):
        model, rho = one_decision([(1.0, 0.2), (0.7, 0.8)], 0.5, times=seen, noise=0.15), np.array([0.5])
        found = handed_over(model, rho, np.zeros(1), z)
        error = 0.15 * np.sqrt(2 * 0.5**2 / seen)
        assert found.margin[0] == pytest.approx(z * error, rel=1e-6)
        assert found.plan.utilities[0] == pytest.approx(0.5 + z * error, rel=1e-6)
        assert found.uncovered[0] <= 0.01 * error  # the other mixture has a slightly larger error


@pytest.mark.parametrize("cost", [0.3, 3.0, 9.0])
def test_the_margin_is_the_one_that_is_worth_most(cost):
    """A mixture of two actions: a unit of utility costs so much, and missing the bound 0.05 of values from 0 to 10.

    The cost of z standard errors less what they save has its minimum where the density of z is cost * error / penalty.
    """
    actions, seen = [(10.0, 0.2), (10.0 - 0.6 * cost, 0.8), (0.0, 0.0)], 4000
    model, rho = one_decision(actions, 0.5, times=seen, noise=0.15), np.array([0.5])
    found = handed_over(model, rho, np.zeros(1), 1.0, 0.05)
    error = 0.15 * np.sqrt(2 * 0.5**2 / seen)
    best = np.sqrt(-2 * np.log(error * cost * np.sqrt(2 * np.pi) / (0.05 * 10.0)))
    assert found.margin[0] / error == pytest.approx(best, abs=0.2)  # margins differ by a third
    assert handed_over(model, rho, np.zeros(1), 4.0, 0.05).margin[0] == pytest.approx(4 * error, rel=1e-6)


def test_a_further_margin_is_kept_in_full_or_as_far_as_it_can_be():
    model, rho = one_decision([(1.0, 0.2), (0.4, 0.8)], 0.5, times=4000), np.array([0.5])
    kept = [handed_over(model, rho, np.array([x]), 1.645).plan.utilities[0] for x in (0.2, 0.5)]
    np.testing.assert_allclose(kept, [0.7, 0.5 + 0.99 * 0.3], atol=1e-6)


def test_where_no_policy_has_the_whole_margin_the_largest_part_of_it_is_kept():
    """At most 0.52 can be had of the utility, and the standard error is 0.15 / sqrt(16): two of them are too many."""
    model, rho = one_decision([(1.0, 0.2), (0.4, 0.52)], 0.5, times=16, noise=0.15), np.array([0.5])
    found = handed_over(model, rho, np.zeros(1), 2.0)
    assert found.plan.utilities[0] == pytest.approx(0.5 + 0.99 * 0.02, abs=1e-6)
    error = plan_errors(model, found.plan.pi)[0]
    assert found.uncovered[0] == pytest.approx(0.5 + 2 * error - found.plan.utilities[0], abs=1e-9)


def test_exploration_does_not_end_while_every_reward_is_the_same():
    """A row of 8 states whose end pays: with a wrong action one begins again, and nothing else pays at all."""
    n, A = 8, 3
    P, r = np.zeros((n + 1, A, n + 1)), np.zeros((n + 1, A))
    key = np.random.default_rng(3).integers(A, size=n)
    P[:n, :, 0] = 1.0
    P[np.arange(n), key] = 0.2 * np.eye(n + 1)[0] + 0.8 * np.eye(n + 1)[np.arange(n) + 1]
    P[n, :, n], r[n] = 1.0, 1.0
    cmdp = CMDP(P, r, horizon=n + 2)
    learner = ClosedLoopPRI(Spec.of(cmdp, 3000))
    while learner.exploring:
        learner.run(Source.of(cmdp), stream(1), 10)
    reached = learner.counts.visits.reshape(n + 1, A)[n].any()
    assert reached or learner.clock.episode == learner.table.explore
    learner.run(Source.of(cmdp), stream(1), 3000 - learner.clock.episode)
    assert evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v >= 0.99 * solve(cmdp).value


def test_an_action_gets_the_tries_it_was_promised_and_few_more():
    """Where all steps share their counts, a try that is used up at one step may be made once more at every other."""
    cmdp = envs.build("random", S=5, A=3, H=4, N=1, stationary=True, seed=2)
    learner = ClosedLoopPRI(Spec.of(cmdp, 5000))
    learner.run(Source.of(cmdp), stream(1), 600)
    quota, before = learner.block.quota.reshape(4, 5, 3).copy(), learner.counts.visits.reshape(5, 3).copy()
    assert (quota > 0).any()
    learner.run(Source.of(cmdp), stream(1), learner.clock.block_end - learner.clock.episode - 1)
    after = learner.counts.visits.reshape(5, 3)
    tried = (quota.max(axis=0) > before) & (learner.block.plan.reshape(4, 5, 3) == 0).all(axis=0)
    assert tried.any() and np.all(after[tried] <= quota.max(axis=0)[tried] + 4 * 4)
