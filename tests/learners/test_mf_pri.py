"""MF-PRI as a whole: the identity it rests on, bits, bounds, certificates, decisions and accounts."""

import json

import numpy as np
import pytest
from oracle import optimum

from cmdpkit import CMDP, Infeasible, Policy, at_most, envs, evaluate, occupancy, solve
from cmdpkit.estimate.intervals import betting_interval
from cmdpkit.learners import Learner, Source, Spec
from cmdpkit.learners.mf_pri import ModelFreePRI
from cmdpkit.simulate.random import stream
from instances import synthetic, tiny, with_rho

PRI = ModelFreePRI


def finished(cmdp, K, seed=1, noise="none", best=None, **params):
    """A run to the end: the learner and its source."""
    learner, source = PRI(Spec.of(cmdp, K), **params), Source.of(cmdp, best, noise)
    learner.run(source, stream(seed), K)
    return learner, source


# -- the identity everything rests on ----------------------------------------------------------------------------------


def in_support(rng, q, allowed):
    """A random policy that uses actions of q where q gets, and any actions elsewhere."""
    usable = np.where(q.sum(axis=-1, keepdims=True) > 1e-9, q > 1e-9, allowed)
    pi = usable * rng.dirichlet(np.full(q.shape[-1], 0.3), q.shape[:2]) + 1e-300 * usable
    pi *= rng.random(pi.shape) < 0.7
    pi += usable * (pi.sum(axis=-1, keepdims=True) == 0)
    return pi / pi.sum(axis=-1, keepdims=True)


def gaps(cmdp, prices):
    """[H, S, A]: what an action loses at these prices if all that follows is best, by plain backward induction."""
    priced = cmdp.r + np.tensordot(prices, cmdp.g, 1)
    V, gap = np.zeros(cmdp.S), np.zeros(priced.shape)
    for h in reversed(range(cmdp.H)):
        Q = np.where(cmdp.actions[h], priced[h] + cmdp.P[h] @ V, -np.inf)
        V = Q.max(axis=-1)
        gap[h] = np.where(cmdp.actions[h], V[:, None] - Q, 0.0)
    return gap


@pytest.mark.parametrize("N", [1, 2, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_regret_is_the_gaps_paid_minus_prices_times_violation_and_inside_an_optimal_support_no_gap_is_paid(N, ties):
    """For any policies whatever, with prices from an LP oracle that shares no code with the package."""
    rng = np.random.default_rng(10 * N + ties)
    binding = 0
    for _ in range(60):
        cmdp = tiny(rng, N, ties=ties)
        values = [evaluate(cmdp, Policy.uniform(cmdp)).w]
        cmdp = with_rho(cmdp, values[0] + rng.uniform(0, 0.3, N))
        best = optimum(cmdp)
        if best is None:
            continue
        binding += best.prices.max() > 1e-6
        gap = gaps(cmdp, best.prices)
        for support, paid in ((best.q, False), (np.zeros(best.q.shape), True)):
            policies = [Policy.of(cmdp, in_support(rng, support, cmdp.actions)) for _ in range(5)]
            played = [evaluate(cmdp, policy) for policy in policies]
            regret = sum(best.value - x.v for x in played)
            violation = sum(cmdp.rho - x.w for x in played)
            deviated = sum((occupancy(cmdp, policy) * gap).sum() for policy in policies)
            assert regret == pytest.approx(deviated - best.prices @ violation, abs=1e-7)
            assert paid or deviated == pytest.approx(0.0, abs=1e-7)
    assert binding > 10


# -- bits --------------------------------------------------------------------------------------------------------------

K = 6_000
CUTS = (1, 269, 270, 300, 320, 360, 770, 2000, 4799, 4800, 5400, 5450, 5750, 6000)  # in, at and off all kinds of ends


def everything(learner, source):
    return learner.state() | {f"meter.{name}": x for name, x in source.meter.state().items()}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)


@pytest.mark.compiled
@pytest.mark.parametrize("env", ["paper/synthetic", "random", "stationary"])
def test_a_run_cut_inside_blocks_epochs_and_phases_is_the_whole_run_to_the_bit_meter_included(env):
    cmdp = _model(env)
    whole, source = finished(cmdp, K, best=1.5)
    pieces, other, rng, done = PRI(Spec.of(cmdp, K)), Source.of(cmdp, 1.5), stream(1), 0
    for cut in CUTS:
        pieces.run(other, rng, cut - done)
        done = cut
    assert_same(everything(whole, source), everything(pieces, other))
    np.testing.assert_array_equal(whole.recommend(), pieces.recommend())


def _model(env):
    if env == "paper/synthetic":
        return envs.build(env)
    return envs.build("random", S=4, A=3, H=3, N=2, conflict=0.5, stationary=env == "stationary", seed=3)


@pytest.mark.parametrize("cut", CUTS[:-1])
def test_a_run_resumed_from_its_arrays_is_the_whole_run_to_the_bit(cut):
    cmdp = _model("random")
    whole, source = finished(cmdp, K, best=1.5)
    first, here, rng = PRI(Spec.of(cmdp, K)), Source.of(cmdp, 1.5), stream(1)
    first.run(here, rng, cut)
    saved, meter = first.state(), here.meter.state()
    second, there = PRI(Spec.of(cmdp, K)), Source.of(cmdp, 1.5)
    second.restore(saved)
    there.meter.restore(meter)
    second.run(there, rng, K - cut)
    assert_same(everything(whole, source), everything(second, there))


@pytest.mark.compiled
@pytest.mark.parametrize("env", ["paper/synthetic", "stationary"])
def test_driven_step_by_step_it_does_what_the_compiled_loop_does_to_the_bit(env):
    cmdp = _model(env)
    whole, _ = finished(cmdp, 2000)
    learner = PRI(Spec.of(cmdp, 2000))
    Learner.run(learner, Source.of(cmdp), stream(1), 2000)
    assert_same(whole.state(), learner.state())


def test_the_meter_is_shown_exactly_the_policy_of_every_episode_deviations_included():
    cmdp, n = _model("random"), 1500
    source, learner, rng = Source.of(cmdp, 2.0), PRI(Spec.of(cmdp, n)), stream(3)
    values = []
    for _ in range(n):
        v, w = evaluate(cmdp, Policy.of(cmdp, learner.behaviour()))
        values.append([v, *w * cmdp.signs])
        learner.run(source, rng, 1)
    gaps = np.array([2.0, *cmdp.rho]) - values
    tally = source.meter.tally()
    assert tally.weak.regret == pytest.approx(gaps[:, 0].sum(), abs=1e-8)
    np.testing.assert_allclose(tally.weak.violation, gaps[:, 1:].sum(axis=0), atol=1e-8)
    np.testing.assert_allclose(tally.strong.violation, np.maximum(gaps[:, 1:], 0).sum(axis=0), atol=1e-8)
    assert 0 < tally.unsafe == (gaps[:, 1:] > 1e-9).any(axis=1).sum() < n
    assert len(np.unique(np.array(values)[:, 0])) > 8


# -- the whole ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_optimum_of_the_synthetic_instance_and_stays_within_its_bound(seed):
    cmdp = envs.build("paper/synthetic")
    best = solve(cmdp)
    learner, source = finished(cmdp, 400_000, seed, best=best.value)
    policy = Policy.of(cmdp, learner.recommend())
    values = evaluate(cmdp, policy)
    assert values.w[0] >= 2.0
    assert best.value - values.v < 0.004
    decisions = policy.stochastic_decisions(reach=occupancy(cmdp, policy).sum(axis=-1))
    assert [(d.step, d.state, sorted(d.probabilities)) for d in decisions] == [(1, 1, [2, 3])]
    tally = source.meter.tally()
    assert tally.realised.violation[0] <= 0
    assert tally.weak.regret < 1500  # Triple-Q: tens of thousands
    assert learner.multipliers[0] == pytest.approx(best.shadow_prices[0], abs=0.05)


def test_two_binding_bounds_are_met_by_realised_totals_and_by_the_policy_handed_over():
    for seed in range(2):
        cmdp = envs.build("random", S=6, A=3, H=4, N=2, conflict=0.5, slack=0.05, seed=11)
        best = solve(cmdp)
        assert (best.shadow_prices > 0.01).all()
        learner, source = finished(cmdp, 400_000, seed, best=best.value)
        values = evaluate(cmdp, Policy.of(cmdp, learner.recommend()))
        assert (values.w >= cmdp.rho).all()
        assert best.value - values.v < 0.02
        assert (source.meter.tally().realised.violation <= 0).all()


def test_costs_in_odd_units_and_random_signals_change_nothing_of_that():
    plain = synthetic()
    cost = CMDP(plain.P, 50 * plain.r - 20, constraints=[at_most("c", 400 * 1.0, 400 * (1 - plain.g[0]))], mu=plain.mu)
    learner, source = finished(cost, 200_000, noise="bernoulli")
    values = evaluate(cost, Policy.of(cost, learner.recommend()))
    assert values.w[0] <= 400.0
    assert values.v > solve(cost).value - 50 * 0.02
    assert source.meter.tally().realised.violation[0] <= 0


def test_without_constraints_it_is_policy_iteration():
    cmdp = envs.build("random", S=5, A=3, H=4, N=0, seed=2)
    learner, _ = finished(cmdp, 100_000)
    assert evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v > solve(cmdp).value - 1e-3
    assert learner.certificate().intervals[0][0] < solve(cmdp).value < learner.certificate().intervals[0][1]


def test_a_bound_that_is_met_anyway_costs_nothing():
    cmdp = envs.build("paper/synthetic", rho=1.0)
    learner, _ = finished(cmdp, 200_000)
    assert learner.multipliers[0] == 0.0
    assert evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v == pytest.approx(solve(cmdp).value, abs=1e-9)


def test_an_impossible_bound_is_reported_with_its_shortfall_and_the_best_policy_handed_over():
    cmdp = envs.build("paper/synthetic", rho=2.2)
    with pytest.raises(Infeasible) as nothing:
        solve(cmdp)
    learner, _ = finished(cmdp, 200_000)
    reached = evaluate(cmdp, Policy.of(cmdp, learner.recommend())).w[0]
    assert reached == pytest.approx(nothing.value.utilities[0], abs=0.003)
    assert any("constraint 1 is missed by 0.1" in str(text) for text in learner.warnings())


@pytest.mark.parametrize("K", [1, 2, 19, 50, 300])
def test_very_short_runs_end_with_a_policy_and_say_that_they_are_short(K):
    cmdp = envs.build("paper/grid")
    learner, _ = finished(cmdp, K)
    Policy.of(cmdp, learner.recommend())
    assert "are few for 105 (state, action) pairs" in learner.notes[0]
    json.dumps(learner.internals())


def test_it_may_be_run_beyond_the_episodes_it_was_made_for():
    cmdp = envs.build("paper/synthetic")
    learner, source = finished(cmdp, 2000)
    handed = learner.recommend()
    learner.run(source, stream(2), 3000)
    np.testing.assert_array_equal(handed, learner.recommend())


def test_the_certificate_rests_on_episodes_of_the_policy_handed_over_and_on_no_others():
    cmdp, K = envs.build("paper/synthetic"), 4000
    learner, source, rng = PRI(Spec.of(cmdp, K)), Source.of(cmdp), stream(4)
    learner.run(source, rng, 3600)
    assert learner.certificate() is None
    handed, returns, steered = learner.recommend(), [], 0
    for _ in range(400):
        before, same = int(learner.ledger.size[0]), np.array_equal(learner.behaviour(), handed)
        earned = learner.run(source, rng, 1)
        if learner.ledger.size[0] > before:
            assert same
            returns.append([earned.reward[0], earned.utilities[0, 0]])
        steered += not same
    assert len(returns) == learner.certificate().episodes == learner.table.sample_size()
    assert steered == 400 - len(returns) > 100
    expected = [betting_interval(x / 3, 0.025, len(returns)) for x in np.array(returns).T]
    np.testing.assert_allclose(learner.certificate().intervals, 3 * np.array(expected), rtol=1e-9)
    np.testing.assert_array_equal(learner.recommend(), handed)


def test_the_policy_handed_over_clears_its_bounds_by_the_margin_that_its_own_data_need():
    """20 runs that differ in what they saw. Half would miss the bound without the margin: 2 or fewer with p = 2e-4."""
    cmdp = envs.build("paper/synthetic")
    missed = 0
    for seed in range(20):
        learner, _ = finished(cmdp, 20_000, seed)
        missed += evaluate(cmdp, Policy.of(cmdp, learner.recommend())).w[0] < 2.0
    assert missed <= 2


# -- accounts --------------------------------------------------------------------------------------------


def test_the_account_is_plain_bounded_and_tells_phases_decisions_and_doubts():
    cmdp = envs.build("random", S=12, A=4, H=5, N=2, conflict=0.5, seed=1)
    learner, _ = finished(cmdp, 60_000)
    told, pi = learner.internals(), learner.recommend()
    text = json.dumps(told)
    assert len(text) < 100_000
    assert json.loads(text) == told
    names = [name for name, _ in learner.phases()]
    assert names == ["warm-up", "improvement", "settling", "certification"]
    reach = occupancy(cmdp, Policy.of(cmdp, pi)).sum(axis=-1)
    several = {(h + 1, s) for h, s in np.argwhere(((pi > 0).sum(axis=-1) > 1) & (reach > 0.01)).tolist()}
    assert several <= {(x["step"], x["state"]) for x in told["stochastic decisions"]}
    for x in told["stochastic decisions"]:
        assert x["probability"] == pi[x["step"] - 1, x["state"], x["action"]] < 1
    assert 0 < told["actions undecided"] < cmdp.actions.sum()
    counted = [x["times tried"] for x in told["actions in use that were tried least"]]
    assert counted == sorted(counted) and len(counted) == 5


def test_the_timetable_covers_all_episodes_and_blocks_shrink_towards_the_end():
    learner = PRI(Spec.of(envs.build("paper/synthetic"), 1_000_000))
    table = learner.table
    assert (table.explore, table.freeze, table.hand, table.K) == (270, 800_000, 900_000, 1_000_000)
    assert table.block_end(400_000) == 440_000
    assert table.block_end(999_900) == 999_910


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delta": 1.0}, "delta is 1.0, expected a probability of at least 1e-12 and below 1"),
        ({"freeze": 1.0}, "freeze is 1.0, expected above 0 and below 1"),
        ({"keep": 1.5}, "keep is 1.5, expected from 0 to 1"),
        ({"price": 0.0}, "price is 0.0, expected more than 0"),
    ],
)
def test_bad_parameters_are_refused_by_name(params, message):
    with pytest.raises(ValueError, match=message):
        PRI(Spec.of(envs.build("paper/synthetic"), 100), **params)
