"""Posterior sampling in episodes: what is drawn has the right distribution, and plans are optima of what was drawn."""

import numpy as np
import pytest
from oracle import optimum

import cmdpkit as ck
from cmdpkit.learners import Source, Spec, load
from cmdpkit.operators.row_lists import matrix_of
from cmdpkit.simulate.random import generator, stream
from told import know

pytestmark = pytest.mark.compiled


def learner_of(cmdp, K=1000, **settings):
    return load("ps-cmdp")(Spec.of(cmdp, K), **settings)


def drawn(learner, times, seed=0):
    """Draws one after the other, as dense arrays [times, ...] of transitions, starts and signals."""
    draw = generator(stream(seed))
    found = [learner.draw(learner.believed(), draw) for _ in range(times)]
    return tuple(np.array(x) for x in zip(*((*dense(learner, x.model), x.signals) for x in found), strict=True))


def dense(learner, model):
    """Transitions [T, S, A, S] and the start distribution [S] of a model."""
    S = learner.spec.S
    return matrix_of(model.rows, S).toarray().reshape(-1, S, learner.spec.A, S), matrix_of(model.start, S).toarray()[0]


def test_without_data_rows_are_uniform_on_the_simplex_and_signals_on_the_interval():
    """Mean 1/S and variance (S-1) / (S^2 (S+1)); 60,000 rows, limits of 5 standard errors: wrong alarm below 1e-5."""
    cmdp = ck.load("random", S=4, A=3, H=3, N=2, seed=3)
    P, mu, signals = drawn(learner_of(cmdp, preset="theory"), 2500)
    rows, S = P[:, :2].reshape(-1, 4), 4
    variance = (S - 1) / (S * S * (S + 1))
    assert abs(rows[:, 0].mean() - 1 / S) < 5 * np.sqrt(variance / len(rows))
    assert abs(rows[:, 0].var() - variance) < 5 * np.sqrt(0.01 / len(rows))
    np.testing.assert_allclose(P.sum(axis=-1), 1.0, atol=1e-12)
    np.testing.assert_allclose(mu.sum(axis=-1), 1.0, atol=1e-12)
    assert abs(signals.mean() - 0.5) < 5 * np.sqrt(1 / 12 / signals.size)
    assert np.unique(signals).size == signals.size  # rewards and utilities are drawn apart


def test_draws_have_the_mean_and_the_spread_of_the_posterior():
    """Dirichlet and Beta by their formulas; 4,000 draws of two rows, limits of 5 standard errors."""
    cmdp = ck.load("random", S=4, A=3, H=3, N=1, seed=3)
    learner = learner_of(cmdp, preset="theory", prior=2.0, weight=3.0)
    moves, signals = know(learner, cmdp, 20)
    P, _, found = drawn(learner, 4000)
    alpha = moves[0, 1, 2] + 2.0
    mean = alpha / alpha.sum()
    spread = np.sqrt(mean * (1 - mean) / (alpha.sum() + 1))
    assert (np.abs(P[:, 0, 1, 2].mean(axis=0) - mean) < 5 * spread / np.sqrt(4000)).all()
    np.testing.assert_allclose(P[:, 0, 1, 2].std(axis=0), spread, rtol=0.08)
    a, b = 1 + 3 * 20 * signals[1, 2, 0, 1], 1 + 3 * 20 * (1 - signals[1, 2, 0, 1])
    assert abs(found[:, 1, 2, 0, 1].mean() - a / (a + b)) < 5 * np.sqrt(a * b / (a + b + 1)) / (a + b) / np.sqrt(4000)
    np.testing.assert_allclose(found[:, 1, 2, 0, 1].std(), np.sqrt(a * b / (a + b + 1)) / (a + b), rtol=0.08)


@pytest.mark.parametrize("preset", ["practical", "theory"])
def test_with_data_without_end_the_plan_is_the_optimum(preset):
    cmdp = ck.load("paper/synthetic")
    learner = learner_of(cmdp, preset=preset)
    know(learner, cmdp, 10**13)
    learner.begin(stream(1))
    found = ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.behaviour()))
    assert found.v == pytest.approx(ck.solve(cmdp).value, abs=1e-5) and found.w[0] == pytest.approx(2.0, abs=1e-5)
    assert learner.multipliers == pytest.approx(ck.solve(cmdp).shadow_prices, abs=1e-4)


def test_a_plan_is_the_optimum_of_the_drawn_model_under_the_tightened_bounds():
    cmdp, rng = ck.load("random", S=5, A=3, H=4, N=2, conflict=0.5, seed=3), stream(4)
    learner = learner_of(cmdp, tighten=0.05)
    learner.run(Source.of(cmdp), rng, 200)
    learner.after.due[0], again = True, generator(rng.copy())
    learner.begin(rng)
    found = learner.draw(learner.believed(), again)  # with the same random numbers
    (P, mu), signals = dense(learner, found.model), found.signals
    k = 201
    rho = learner.spec.rho + 0.05 * np.sqrt(np.log(k) / k)
    model = ck.CMDP(P, signals[0], signals[1:], rho, mu, horizon=4, actions=cmdp.actions)
    best, played = optimum(model), ck.evaluate(model, ck.Policy.of(model, learner.behaviour()))
    assert best is not None and played.v == pytest.approx(best.value, abs=1e-8) and (played.w >= rho - 1e-8).all()


def test_where_no_policy_of_the_draw_meets_the_bounds_the_plan_misses_them_least():
    cmdp = ck.load("paper/synthetic").with_bounds(utility=2.9)
    learner = learner_of(cmdp)
    know(learner, cmdp, 10**13)
    learner.begin(stream(1))
    assert learner.plan_log.infeasible == 1 and (learner.multipliers == 0).all()
    most = ck.diagnose(cmdp).ranges[0].best_alone
    assert ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.behaviour())).w[0] == pytest.approx(most, abs=1e-5)


def test_the_prior_moves_to_states_seen_from_the_same_state():
    """Once an action was taken `few` times it can lead where any action has led; before that it can lead everywhere."""
    cmdp = ck.load("random", S=5, A=2, H=3, N=1, successors=1, seed=6)
    learner = learner_of(cmdp, preset="practical", few=5)
    know(learner, cmdp, 4)
    assert (drawn(learner, 1)[0][0][:2] > 0).all()
    moves, _ = know(learner, cmdp, 5)
    led = moves.any(axis=2, keepdims=True)[:2] & np.ones((2, 5, 2, 5), dtype=bool)
    assert ((drawn(learner, 1)[0][0][:2] > 0) == led).all() and 0 < led.mean() < 0.5


def test_a_model_is_drawn_only_when_a_plan_is_made():
    cmdp, rng = ck.load("paper/synthetic"), stream(2)
    learner = learner_of(cmdp, preset="theory")
    learner.run(Source.of(cmdp), rng, 300)
    plans, words = learner.plan_log.plans, rng.copy()
    assert 5 < plans < 100
    learner.after.due[0] = False
    learner.begin(rng)
    learner.behaviour()
    learner.recommend()
    assert (rng == words).all() and learner.plan_log.plans == plans


def test_a_setting_of_radii_is_refused_because_there_are_none():
    with pytest.raises(ck.CmdpkitError, match="unknown parameter 'c'"):
        ck.learn("paper/synthetic", "ps-cmdp", episodes=10, c=0.1)
