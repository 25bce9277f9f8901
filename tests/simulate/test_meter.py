"""The meter adds up what a slow loop over `evaluate` would: exact values of the policy of every single episode."""

import numpy as np
import pytest
from numba import njit

from cmdpkit import CMDP, Policy, at_least, at_most, envs, evaluate, solve
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.meter import (
    EVALUATIONS,
    MAX_TRANSITIONS_PER_EPISODE,
    ExploringPolicy,
    Meter,
    collect,
    watch,
)
from cmdpkit.simulate.random import stream

pytestmark = pytest.mark.compiled

TripleQ = load("triple-q")


def awkward():
    """Signals in odd units, one bound of each sense, actions that do not exist, two start states."""
    rng = np.random.default_rng(5)
    S, A, H = 4, 3, 3
    P = rng.dirichlet(np.ones(S), (S, A))
    allowed = np.ones((S, A), dtype=bool)
    allowed[1, 0] = allowed[3, 2] = False
    bounds = [at_most("cost", 12.0, 10 * rng.random((H, S, A)) - 2), at_least("use", 1.0, rng.random((S, A)))]
    mu = [0.5, 0.0, 0.5, 0.0]
    return CMDP(P, 50 * rng.random((S, A)) - 25, constraints=bounds, mu=mu, horizon=H, actions=allowed)


def by_hand(cmdp, learner, source, rng, n):
    """Play one episode at a time and evaluate the learner's policy before each, in the user's units."""
    values = []
    for _ in range(n):
        v, w = evaluate(cmdp, Policy.of(cmdp, learner.behaviour()))
        values.append([v, *(cmdp.signs * w)])
        learner.run(source, rng, 1)
    return np.array(values)


@pytest.mark.parametrize(
    ("cmdp", "preset"),
    [
        *((cmdp, "practical") for cmdp in (envs.build("paper/synthetic"), envs.build("paper/grid"), awkward())),
        pytest.param(envs.build("paper/grid"), "authors", marks=pytest.mark.long),
    ],
    ids=repr,
)
def test_weak_and_strong_sums_are_those_of_a_loop_over_evaluate(cmdp, preset):
    n, optimum = 300, solve(cmdp).value
    spec = Spec.of(cmdp, n)
    values = by_hand(cmdp, TripleQ(spec, preset=preset), Source.of(cmdp), stream(1), n)
    source = Source.of(cmdp, optimum)
    TripleQ(spec, preset=preset).run(source, stream(1), n)
    gaps = np.array([optimum, *cmdp.rho]) - values
    tally = source.meter.tally()
    assert tally.length == n
    assert tally.weak.regret == pytest.approx(gaps[:, 0].sum(), abs=1e-8)
    assert tally.strong.regret == pytest.approx(np.maximum(gaps[:, 0], 0).sum(), abs=1e-8)
    np.testing.assert_allclose(tally.weak.violation, gaps[:, 1:].sum(axis=0), rtol=0, atol=1e-8)
    np.testing.assert_allclose(tally.strong.violation, np.maximum(gaps[:, 1:], 0).sum(axis=0), rtol=0, atol=1e-8)
    assert tally.unsafe == (gaps[:, 1:] > 1e-9).any(axis=1).sum() > 0
    assert tally.unsafe < n or preset == "authors"


def test_realised_sums_are_the_returns_in_the_user_s_units_and_violations_are_positive_when_bad():
    cmdp, n = awkward(), 500
    source = Source.of(cmdp, 100.0)
    returns = TripleQ(Spec.of(cmdp, n)).run(source, stream(2), n)
    reward = cmdp.reward_scale.total_from_unit(returns.reward, cmdp.H).sum()
    cost = -cmdp.utility_scales[0].total_from_unit(returns.utilities[0], cmdp.H).sum()
    use = cmdp.utility_scales[1].total_from_unit(returns.utilities[1], cmdp.H).sum()
    realised = source.meter.tally().realised
    assert realised.regret == pytest.approx(100.0 * n - reward)
    np.testing.assert_allclose(realised.violation, [cost - 12.0 * n, 1.0 * n - use])


def test_exact_and_realised_sums_agree_within_sampling_error():
    cmdp, n = envs.build("paper/synthetic"), 40_000
    source = Source.of(cmdp, solve(cmdp).value)
    TripleQ(Spec.of(cmdp, n)).run(source, stream(3), n)
    tally = source.meter.tally()
    weak, realised = tally.weak, tally.realised
    bound = 5 * cmdp.H / 2 * np.sqrt(n)  # five standard deviations at least: returns lie in [0, H]
    assert abs(weak.regret - realised.regret) < bound
    assert abs(weak.violation[0] - realised.violation[0]) < bound


def test_a_policy_is_evaluated_only_when_it_has_changed():
    cmdp, n = envs.build("paper/synthetic"), 20_000
    source = Source.of(cmdp, 1.0)
    TripleQ(Spec.of(cmdp, n)).run(source, stream(1), n)
    assert 10 < source.meter.clock[EVALUATIONS] < n / 3


def test_on_a_large_model_every_nth_episode_is_evaluated_and_its_values_held():
    cmdp = envs.build("random", S=60, A=3, H=4, concentration=1.0)
    meter = Meter.of(cmdp, 0.0)
    every = 1 + 4 * 60 * 60 // MAX_TRANSITIONS_PER_EPISODE
    assert meter.every == every > 1
    spec, n = Spec.of(cmdp, 100), 10 * every
    values = by_hand(cmdp, TripleQ(spec), Source.of(cmdp), stream(1), n)
    source = Source.of(cmdp, 0.0)
    TripleQ(spec).run(source, stream(1), n)
    assert source.meter.clock[EVALUATIONS] <= 10
    assert source.meter.tally().weak.regret == pytest.approx(-every * values[::every, 0].sum())


def test_a_change_between_two_evaluations_is_not_forgotten():
    cmdp = awkward()
    meter = Meter.of(cmdp, 0.0)._replace(every=4)
    usable = cmdp.actions.reshape(-1, cmdp.A).copy()
    first, second = (np.full(cmdp.H * cmdp.S, a, dtype=np.uint64) for a in (1, 1))
    second[0] = 2
    seen = []
    for k in range(9):
        show(meter, k == 2, first if k < 2 else second, usable)
        seen.append(meter.values[0])
    before, after = (evaluate(cmdp, Policy.deterministic(x.reshape(cmdp.H, cmdp.S), cmdp.A)).v for x in (first, second))
    np.testing.assert_allclose(seen, 4 * [before] + 5 * [after])
    assert before != after
    assert meter.clock[EVALUATIONS] == 2


@njit
def show(meter, changed, best, usable):
    """An episode of a greedy policy that earns nothing."""
    watch(meter, changed, ExploringPolicy(best, 0.0, usable), meter.every)
    collect(meter, np.zeros(3))


def test_without_a_model_only_realised_totals_are_known():
    cmdp, n = awkward(), 50
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    source = Source.of(cmdp)._replace(meter=Meter.blind(cmdp.H, cmdp.rho, scales))
    returns = TripleQ(Spec.of(cmdp, n)).run(source, stream(2), n)
    tally = source.meter.tally()
    assert tally.weak is None
    assert tally.strong is None
    assert tally.unsafe is None
    assert tally.realised.regret is None
    use = cmdp.utility_scales[1].total_from_unit(returns.utilities[1], cmdp.H).sum()
    assert tally.realised.violation[1] == pytest.approx(n - use)


@pytest.mark.parametrize(("miss", "unsafe"), [(0.5, 1), (1e-6, 1), (1e-12, 0), (0.0, 0), (-0.5, 0)])
def test_a_policy_whose_values_are_known_is_unsafe_if_any_bound_is_missed_by_more_than_rounding(miss, unsafe):
    cmdp = awkward()
    usable = cmdp.actions.reshape(-1, cmdp.A).copy()
    for n in range(cmdp.N):
        meter = Meter.of(cmdp, 0.0)
        meter.hold(np.array([1.0, *(cmdp.rho + 1.0)]) - (1.0 + miss) * np.eye(3)[1 + n])
        for _ in range(4):
            show(meter, False, np.full(cmdp.H * cmdp.S, 1, dtype=np.uint64), usable)
        assert meter.tally().unsafe == 4 * unsafe
        show(meter, True, np.full(cmdp.H * cmdp.S, 1, dtype=np.uint64), usable)  # another policy: evaluated anew
        w = cmdp.signs * evaluate(cmdp, Policy.deterministic(np.full((cmdp.H, cmdp.S), 1), cmdp.A)).w
        assert meter.tally().unsafe == 4 * unsafe + (w < cmdp.rho).any()


def test_a_meter_continues_from_its_state_to_the_bit():
    cmdp, n = envs.build("paper/grid"), 400
    whole, first = Source.of(cmdp, 5.0), Source.of(cmdp, 5.0)
    learner, rng = TripleQ(Spec.of(cmdp, n)), stream(1)
    learner.run(first, rng, 150)
    second = Source.of(cmdp, 5.0)
    second.meter.restore(first.meter.state())
    learner.run(second, rng, n - 150)
    TripleQ(Spec.of(cmdp, n)).run(whole, stream(1), n)
    for name, array in whole.meter.state().items():
        np.testing.assert_array_equal(array, second.meter.state()[name])
