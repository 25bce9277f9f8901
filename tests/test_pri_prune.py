"""Pruning as published: its schedules, and the statistics of its decisions, against exact answers."""

import numpy as np
import pytest
from scipy.stats import binom

import cmdpkit as ck
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.params import chosen
from cmdpkit.learners.pri import PRI
from cmdpkit.learners.pri.base import BaseRun, _add_up, means, radius, within
from cmdpkit.learners.pri.prune import (
    ALONE,
    DROP,
    Rule,
    early_verdict,
    kinds,
    next_test,
    reduced,
    survivors,
    underused,
    verdict,
)
from cmdpkit.simulate.random import stream
from pri_instance import easy, support

pytestmark = pytest.mark.compiled


# -- the schedules -----------------------------------------------------------------------------------------------------


def test_the_instance_is_solved_by_hand():
    sol = ck.solve(easy())
    assert sol.value == pytest.approx(1.6) and sol.shadow_prices[0] == pytest.approx(1.0)
    assert sol.policy.pi[0, 0] == pytest.approx([0.5, 0.5, 0.0])


def test_an_action_is_underused_by_share_by_count_or_because_nobody_comes_there():
    spec = Spec.of(easy(), 1000)
    usage = np.array([[[97.0, 3.0, 0.0], [2.0, 0.0, 0.0]], [[98.0, 2.0, 0.0], [0.0, 2.0, 0.0]]])
    by_share = chosen(PRI.presets, spec, "paper", {"use_min": 0.02, "reach_min": 0.05})
    assert underused(usage, by_share).tolist() == [
        [[False, False, True], [True, True, True]],
        [[False, True, True], [True, True, True]],
    ]
    by_count = chosen(PRI.presets, spec, "theory", {"count_min": 2.0})
    assert underused(usage, by_count).tolist() == [
        [[False, False, True], [True, True, True]],
        [[False, True, True], [True, True, True]],
    ]


def test_no_action_set_is_ever_emptied_and_the_most_used_action_stays():
    rng = np.random.default_rng(0)
    for _ in range(50):
        D = rng.random((3, 4, 5)) < 0.6
        D[..., 2] = True
        use = rng.integers(0, 3, D.shape).astype(float)
        left = survivors(D, rng.integers(0, 10, D.shape), int(rng.integers(1, 10)), use)
        assert left.any(axis=-1).all() and not (left & ~D).any()
        none = survivors(D, np.full(D.shape, 9), 9, use)
        assert (none.sum(axis=-1) == 1).all()
        assert (use[none].reshape(3, 4) == np.where(D, use, -1).max(axis=-1)).all()


def test_tests_go_from_the_least_used_action_up_and_skip_decisions_without_a_choice():
    D = np.array([[[True, True, False], [True, False, False]]])
    use = np.array([[[60.0, 40.0, 0.0], [1.0, 0.0, 0.0]]])
    flagged = np.zeros_like(D)
    assert next_test(D, flagged, use) == (0, 0, 1)
    flagged[0, 0, 1] = True
    assert next_test(D, flagged, use) == (0, 0, 0)
    flagged[0, 0, 0] = True
    assert next_test(D, flagged, use) is None
    assert kinds(0.6) == (ALONE, DROP) and kinds(0.4) == (DROP, ALONE)
    assert reduced(D, (0, 0, 1), DROP)[0, 0].tolist() == [True, False, False]
    assert reduced(D, (0, 0, 1), ALONE)[0, 0].tolist() == [False, True, False]


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["triple-q", "dual-q"])
def test_usage_leaves_exactly_the_support_of_an_easy_optimum(base):
    # Of 200 other seeds none failed with either base learner, so one of three does with probability below 0.05.
    cmdp = easy()
    for seed in range(3):
        learner = PRI(Spec.of(cmdp, 300_000), preset="paper", eps_rho=0.0, base=base)
        learner.run(Source.of(cmdp), stream(seed), 25_000)
        assert learner.pruning.done
        assert np.array_equal(learner.pruning.D, support(cmdp))


def test_a_base_learner_that_counts_no_uses_is_judged_by_what_it_recommends():
    cmdp = easy()
    learner = PRI(Spec.of(cmdp, 20_000), preset="paper", eps_rho=0.0, base="opt-cmdp")
    assert learner.pruning.current.usage() is None
    learner.run(Source.of(cmdp), stream(1), 2000)
    assert np.array_equal(learner.pruning.D, support(cmdp))


@pytest.mark.parametrize(("kind", "action", "as_good"), [(DROP, 2, True), (DROP, 0, False), (ALONE, 0, False)])
def test_a_comparison_tells_a_superfluous_action_from_a_needed_one(kind, action, as_good):
    """Without action 3 nothing is lost; without action 1 the value falls by 1/7; with action 1 alone, w is 0.75 < 1.

    The averages of such runs have a standard deviation of 0.017 (measured in 400 trials), so a trial, 4 of them away
    from the tolerance, errs with probability below 1e-4, and two of 40 do with probability below 1e-5.
    """
    cmdp = easy()
    spec, rng, source = Spec.of(cmdp, 2000), stream(3), Source.of(cmdp)
    smaller = reduced(spec.allowed, (0, 0, action), kind)
    rule = Rule(spec.rho, tol_value=0.07, tol_utility=0.05, two_sided=False)
    errors = 0
    for _ in range(40):
        runs = []
        for D in (spec.allowed, smaller):
            runs.append(BaseRun("triple-q", "paper", within(spec, 2000, spec.rho, D), burn_in=1000))
            runs[-1].play(source, rng, np.empty((2, 2000)))
        errors += verdict(runs[0].tally, runs[1].tally, rule) != as_good
    assert errors <= 1


def test_a_comparison_as_printed_refuses_more_value_and_one_sided_does_not():
    better = np.array([[100.0, 100.0], [150.0, 100.0], [1.0, 1.0]])
    reference = np.array([[100.0, 100.0], [100.0, 100.0], [1.0, 1.0]])
    for two_sided in (True, False):
        rule = Rule(np.array([1.0]), 0.3, 0.0, two_sided)
        assert verdict(reference, better, rule) is not two_sided
        assert verdict(better, reference, rule) is False
        assert verdict(reference, reference, rule) is True
    assert verdict(reference, reference, Rule(np.array([1.01]), 0.3, 0.0, False)) is False
    assert verdict(reference, reference, Rule(np.array([1.01]), 0.3, 0.02, False)) is True


def test_the_radius_holds_at_all_times_at_once():
    # A sequence fails with probability at most 0.1: more of 300 than allowed here do with probability below 1e-3.
    rng, failures = np.random.default_rng(5), 0
    for _ in range(300):
        chances = rng.random(400) * np.linspace(0, 1, 400)  # the mean drifts, as a learner's does
        returns = 3.0 * (rng.random(400) < chances)
        tally = np.zeros((3, 1))
        for k in range(400):
            _add_up(returns[None, k : k + 1], 1.5, tally)
            if abs(means(tally)[0] - 3 * chances[: k + 1].mean()) > radius(tally, 3, 0.05)[0]:
                failures += 1
                break
    assert failures <= binom.ppf(0.999, 300, 0.1)
    fair = np.array([[1e6], [1.5e6], [2.25e6]])
    assert radius(fair, 3, 0.05)[0] < 0.01, "a radius that says nothing would never fail"


@pytest.mark.parametrize("gap", [0.02, 0.18])
def test_early_stop_never_contradicts_the_exact_gap(gap):
    """Two fixed policies whose values differ by `gap`, tolerance 0.1: the right answers are yes and no.

    A wrong one has probability at most delta = 0.1; 200 trials show more than 34 of them with probability below 1e-3.
    """
    rng, wrong, decided = np.random.default_rng(7), 0, 0
    rule = Rule(np.array([0.5]), tol_value=0.1, tol_utility=0.1, two_sided=False)
    for _ in range(200):
        reference, tally, answer = np.zeros((3, 2)), np.zeros((3, 2)), None
        _add_up(_returns(rng, 1.0, 20_000), 1.0, reference)
        for _ in range(20):
            _add_up(_returns(rng, 1.0 - gap, 1000), 1.0, tally)
            answer = early_verdict(reference, tally, rule, 2, 0.1)
            if answer is not None:
                break
        wrong += answer is not None and answer != (gap < 0.1)
        decided += answer is not None
    assert wrong <= binom.ppf(0.999, 200, 0.1)
    assert decided > 150, "early stop that never stops is never wrong"


def test_early_stop_sees_a_threshold_that_is_missed():
    rng, tally, reference = np.random.default_rng(8), np.zeros((3, 2)), np.zeros((3, 2))
    _add_up(_returns(rng, 1.0, 20_000), 1.0, reference)
    _add_up(_returns(rng, 1.0, 20_000), 1.0, tally)
    for rho, answer in ((0.9, True), (1.1, False), (1.0, None)):
        assert early_verdict(reference, tally, Rule(np.array([rho]), 0.1, 0.0, False), 2, 0.05) is answer


def _returns(rng, mean, n):
    """Rewards and utilities 0 or 2 with means `mean` and 1."""
    return 2.0 * (rng.random((2, n)) < np.array([[mean], [1.0]]) / 2)
