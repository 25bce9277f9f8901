"""CL-PRI with counts: what is short of the bounds, what can be repaid, and what is given up for that."""

import math

import numpy as np
import pytest

from cmdpkit import CMDP, envs
from cmdpkit.estimate.errors import Evidence, _surprise
from cmdpkit.estimate.model import Model, surplus_at
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.cl_pri.counts import WithCounts
from cmdpkit.learners.cl_pri.counts.debts import _gain, owed, repayment, repayment_rate, reserve_quantile
from cmdpkit.learners.cl_pri.counts.deviations import _restrain, deviation_chance
from cmdpkit.learners.cl_pri.counts.plans import repaying_plan, worth_trying
from cmdpkit.model.constraints import at_least
from cmdpkit.simulate.random import stream

pytestmark = pytest.mark.compiled


def one_decision(actions, bound):
    """The model of a single decision between actions (reward, utility)."""
    r, u = np.array(actions).T
    cmdp = CMDP(
        np.ones((1, 1, len(r), 1)), r[None, None], u[None, None, None], constraints=[at_least("utility 0", bound)]
    )
    known = np.ones((1, 1), bool)
    return Model(cmdp, None, np.ones((1, 1, len(r)), bool), known, np.zeros(1, bool))


CHEAP_THEN_DEAR = [(1.0, 0.5), (0.9, 0.6), (0.0, 0.61)]  # more utility costs 1 per unit up to 0.6, and 90 beyond


@pytest.mark.parametrize(
    ("repay", "most", "settled", "utility", "surplus"),
    [
        (0.05, 100.0, False, 0.50, 0.0),  # with a price of 0 so far, a price of 1 is dear while things are tried
        (0.05, 100.0, True, 0.55, 0.11),  # and is paid afterwards; at a price of 100 there is 0.11 in all
        (0.20, 100.0, True, 0.599, 0.11),  # nine tenths of the 0.11
        (0.20, 50.0, True, 0.59, 0.1),  # at most 50: only 0.1 can be had
        (0.05, 0.5, True, 0.50, 0.0),  # a price of 1 is more than is allowed
        (0.00, 100.0, True, 0.50, 0.11),
    ],
)
def test_a_plan_repays_what_can_be_had_at_prices_that_are_allowed(repay, most, settled, utility, surplus):
    model = one_decision(CHEAP_THEN_DEAR, 0.5)
    found = repaying_plan(model, np.array([0.5]), np.array([repay]), most, settled=settled)
    assert found.surplus[0] == pytest.approx(surplus, abs=1e-9)
    assert found.plan.utilities[0] == pytest.approx(utility, abs=1e-9)


def test_the_surplus_at_a_price_is_that_of_the_action_which_is_best_at_that_price():
    model = one_decision(CHEAP_THEN_DEAR, 0.5)
    for price, utility in [(0.0, 0.5), (0.99, 0.5), (1.01, 0.6), (89.0, 0.6), (91.0, 0.61)]:
        assert surplus_at(model, np.array([0.45]), np.array([price]))[0] == pytest.approx(utility - 0.45)


@pytest.mark.parametrize("z", [3.0, 4.0])
@pytest.mark.parametrize("left", [40, 400, 4000])
def test_what_is_owed_covers_bad_luck_in_every_stretch_that_full_control_cannot_make_up_for(left, z):
    sd, gain = 0.5, 0.03
    stretches = np.arange(left + 1)
    largest = (z * sd * np.sqrt(stretches) - gain * stretches).max()
    found = owed(np.array([7.0]), np.array([sd]), np.array([gain]), left, 1.0, z)
    assert found[0] == pytest.approx(7.0 + z * sd * math.sqrt(50) + largest, rel=1e-3)


def learner_after(episodes, K):
    cmdp = envs.build("paper/synthetic")
    learner = WithCounts(Spec.of(cmdp, K))
    learner.run(Source.of(cmdp), stream(2), episodes)
    return learner


def test_the_reserve_for_the_end_does_not_depend_on_what_the_running_block_plays():
    """It would vanish when control is used up, because a block under full control has nothing left to gain."""
    learner = learner_after(30_000, 40_000)
    before = repayment_rate(learner)
    learner.playing[...] = np.where(learner.effect[0] == learner.effect[0].max(axis=-1, keepdims=True), 1.0, 0.0)
    np.testing.assert_array_equal(repayment_rate(learner), before)


def test_half_of_the_control_is_left_once_every_other_block_plays_the_policy_handed_over():
    learner = learner_after(38_000, 40_000)
    learner.predicted[...] = learner.final_utilities[...] = learner.spec.rho
    half = _gain(learner)
    learner.clock.episode = learner.table.hand - 1
    whole = _gain(learner)
    np.testing.assert_allclose(half, whole / 2)
    assert whole[0] > 0


def test_the_plan_at_the_hand_over_counts_on_what_the_policy_handed_over_brings():
    """Half of the episodes left play that policy; without it, they would all seem to earn nothing."""
    learner = learner_after(36_000, 40_000)
    assert learner.clock.episode == learner.table.hand
    assert (learner.final_utilities >= learner.spec.rho).all()
    assert learner.predicted[0] - learner.spec.rho[0] <= 1.1 * repayment(learner)[0]


def test_a_few_tries_that_were_alike_do_not_rule_out_an_action_in_a_long_run():
    """Four tries that all failed say little of an action that may lead to states worth 1; a hundred say enough."""
    cmdp = CMDP(np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2)), np.zeros((0, 1, 1, 2)), [])
    model = Model(cmdp, None, np.ones((1, 1, 2), bool), np.ones((1, 1), bool), np.zeros(0, bool))
    advantage, error = np.array([[[0.0, -0.3]]]), np.array([[[0.001, 0.001]]])
    for surprise, tries, expected in [(1.0, 4.0, True), (1.0, 100.0, False), (0.0, 4.0, False)]:
        found = Evidence(advantage, error, np.ones((1, 1)), np.zeros((0, 1, 1, 2)), np.full((1, 1, 1), surprise))
        seen = np.array([[[1e5, tries]]])
        chosen = worth_trying(model, found, seen, np.ones((1, 1)), 10**6, noise=1.0, z=4.0, long=True)
        assert chosen.worth[0, 0, 1] == expected


def test_steering_makes_up_for_what_deviations_are_expected_to_cost():
    """To first order, the policy of a block with its deviations has the utilities that the loop asks for."""
    cmdp = envs.build("paper/synthetic")
    learner, source, rng = WithCounts(Spec.of(cmdp, 40_000)), Source.of(cmdp), stream(2)
    learner.run(source, rng, 2000)
    learner.run(source, rng, learner.clock.block_end - learner.clock.episode)  # a block begins
    wanted = learner.spec.rho + repayment_rate(learner)
    steered, deviating = learner.playing, learner._running().pi.reshape(learner.pi.shape)
    without, found = (learner.predicted + (learner.effect * (pi - learner.pi)).sum() for pi in (steered, deviating))
    assert without > wanted + 0.01
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_bound_with_slack_to_spare_can_be_exceeded_by_it_whatever_other_bounds_cost():
    """Two utilities that exclude each other: the first has slack 0.5 at no price, the second is paid for with it."""
    r, u = np.array([1.0, 0.8]), np.array([[1.0, 0.0], [0.0, 1.0]])
    bounds = [at_least("utility 0", 0.3), at_least("utility 1", 0.2)]
    cmdp = CMDP(np.ones((1, 1, 2, 1)), r[None, None], u[:, None, None], constraints=bounds)
    model = Model(cmdp, None, np.ones((1, 1, 2), bool), np.ones((1, 1), bool), np.zeros(2, bool))
    found = repaying_plan(model, np.array([0.3, 0.2]), np.zeros(2), 100.0, settled=False)
    np.testing.assert_allclose(found.plan.utilities, [0.8, 0.2], atol=1e-9)
    np.testing.assert_allclose(found.surplus, [0.5, 0.5], atol=1e-9)  # the second costs 0.2, and twice that is allowed


def test_tries_cost_no_more_than_half_of_what_plans_can_make_up_for_and_never_end_altogether():
    learner = learner_after(2000, 400_000)
    urge, most = learner.urge.copy(), learner.most.copy()
    cost = -np.tensordot(learner._tilt, deviation_chance(learner), 2)[0]
    assert cost > 0 and repayment(learner)[0] < 0.1 * cost
    for surplus, factor in [(100.0, 1.0), (0.5 * cost, None), (0.0, 0.02)]:
        learner.urge[...], learner.most[...], learner.surplus = urge, most, np.array([surplus])
        _restrain(learner)
        spared = 0.5 * surplus - repayment(learner)[0]
        np.testing.assert_allclose(learner.urge, urge * (spared / cost if factor is None else factor))
        np.testing.assert_allclose(learner.most, most * (spared / cost if factor is None else factor))


def test_bounds_that_have_a_price_share_the_control():
    learner = learner_after(30_000, 40_000)
    learner.predicted[...] = learner.spec.rho
    alone = _gain(learner)
    learner.prices = np.ones(2)
    np.testing.assert_allclose(_gain(learner), alone / 2)


def test_reserves_cover_three_standard_deviations_up_to_ten_thousand_episodes_and_four_at_a_million():
    assert [reserve_quantile(K) for K in (100, 10_000, 10**6)] == [3.0, 3.0, 4.0]


def test_the_surprise_of_a_step_is_how_far_values_of_known_states_are_apart_at_the_next_one():
    """Two steps: the first leads to either state; at the second they are worth 0.2 and 0.9, and nothing follows."""
    r = np.array([[[0.0], [0.0]], [[0.2], [0.9]]])
    cmdp = CMDP(np.full((2, 2, 1, 2), 0.5), r, np.zeros((0, 2, 2, 1)), [])
    for known, expected in [([True, True], 0.7), ([True, False], 0.0), ([False, False], 0.0)]:
        model = Model(cmdp, None, np.ones((2, 2, 1), bool), np.array([[True, True], known]), np.zeros(0, bool))
        V = np.array([[0.55, 0.55], [0.2, 0.9], [0.0, 0.0]])
        np.testing.assert_allclose(_surprise(model, V).ravel(), [expected, 0.0])
