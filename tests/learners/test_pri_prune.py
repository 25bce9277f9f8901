"""Pruning as published: its schedules, and the statistics of its decisions, against exact answers."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.params import chosen
from cmdpkit.learners.pri import PRI
from cmdpkit.learners.pri.presets import base_learner, within
from cmdpkit.learners.pri.prune import (
    ALONE,
    DROP,
    BaseRun,
    first_kind,
    losses,
    next_test,
    reduced,
    survivors,
    too_large,
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


def test_an_action_is_underused_by_share_by_count_or_in_a_rare_state():
    spec = Spec.of(easy(), 1000)
    usage = np.array([[[97.0, 3.0, 0.0], [2.0, 0.0, 0.0]], [[98.0, 2.0, 0.0], [0.0, 2.0, 0.0]]])
    by_share = chosen(PRI.presets, spec, "printed", {"use_min": 0.02, "reach_min": 0.05})
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
    assert first_kind(0.6) == ALONE and first_kind(0.4) == DROP
    assert reduced(D, (0, 0, 1), DROP)[0, 0].tolist() == [True, False, False]
    assert reduced(D, (0, 0, 1), ALONE)[0, 0].tolist() == [False, True, False]


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("base", ["triple-q", "dual-q"])
def test_usage_leaves_exactly_the_support_of_an_easy_optimum(base):
    # Of 200 other seeds none failed with either base learner, so one of three does with probability below 0.05.
    cmdp = easy()
    for seed in range(3):
        learner = PRI(Spec.of(cmdp, 300_000), preset="printed", eps_rho=0.0, base=base)
        learner.run(Source.of(cmdp), stream(seed), 25_000)
        assert learner.pruning.done
        assert np.array_equal(learner.pruning.D, support(cmdp))


def test_a_base_learner_that_counts_no_uses_is_judged_by_what_it_recommends():
    cmdp = easy()
    learner = PRI(Spec.of(cmdp, 20_000), preset="printed", eps_rho=0.0, base="opt-cmdp")
    assert learner.pruning.current.usage() is None
    learner.run(Source.of(cmdp), stream(1), 2000)
    assert np.array_equal(learner.pruning.D, support(cmdp))


def tolerant(tol_value, tol_utility, two_sided=False):
    """Preset "printed" with these tolerances of a comparison."""
    changes = {"tol_value": tol_value, "tol_utility": tol_utility, "two_sided": two_sided}
    return chosen(PRI.presets, Spec.of(easy(), 2000), "printed", changes)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "action", "as_good"), [(DROP, 2, True), (DROP, 0, False), (ALONE, 0, False)])
def test_a_comparison_tells_a_superfluous_action_from_a_needed_one(kind, action, as_good):
    """Without action 3 nothing is lost; without action 1 the value falls by 1/7; with action 1 alone, w is 0.75 < 1.

    The averages of such runs have a standard deviation of 0.017 (measured in 400 trials), so a trial, 4 of them away
    from the tolerance, errs with probability below 1e-4, and two of 40 do with probability below 1e-5.
    """
    cmdp = easy()
    spec, rng, source = Spec.of(cmdp, 2000), stream(3), Source.of(cmdp)
    smaller, params = reduced(spec.allowed, (0, 0, action), kind), tolerant(0.07, 0.05)
    errors = 0
    for _ in range(40):
        runs = []
        for D in (spec.allowed, smaller):
            learner = base_learner(params, "printed", within(spec, 2000, spec.rho, D))
            runs.append(BaseRun(learner, burn_in=1000))
            runs[-1].play(source, rng, np.empty((2, 2000)))
        errors += verdict(runs[0].tally, runs[1].tally, spec.rho, params) != as_good
    assert errors <= 1


def test_a_comparison_as_printed_refuses_more_value_and_one_sided_does_not():
    better = np.array([[100.0, 100.0], [150.0, 100.0]])
    reference = np.array([[100.0, 100.0], [100.0, 100.0]])
    for two_sided in (True, False):
        met = (np.array([1.0]), tolerant(0.3, 0.0, two_sided))
        assert verdict(reference, better, *met) is not two_sided
        assert verdict(better, reference, *met) is False
        assert verdict(reference, reference, *met) is True
    assert verdict(reference, reference, np.array([1.01]), tolerant(0.3, 0.0)) is False
    assert verdict(reference, reference, np.array([1.01]), tolerant(0.3, 0.02)) is True


def test_a_comparison_ends_when_its_regret_or_violation_is_larger_than_a_passing_one_may_have():
    """By hand: 100 episodes of a run of 1,000, tolerances 0.1 and 0.05, so 100 and 50 may be lost in all.

    The run with all of D earned 1 per episode after burn-in and lost 20 while learning; thresholds are 0.5.
    """
    p, target, learning = tolerant(0.1, 0.05), np.array([1.0, 0.5]), np.array([20.0, -7.0])
    for reward, utility, large in ((-19, 99, False), (-21, 99, True), (100, 1, False), (100, -1, True)):
        lost = losses(target, np.array([[100.0, 100.0], [reward, utility]]))
        assert lost == pytest.approx([100 - reward, 50 - utility])
        assert too_large(lost, learning, p, 1000) is large


def test_early_stop_ends_a_hopeless_comparison_during_burn_in_and_leaves_a_good_one_alone():
    """With action 1 alone at (step 1, state 1) w is 0.75 instead of 1, with action 2 alone v is 1.35 instead of 1.6.

    So the violation exceeds the tolerance 0.02 x 20,000 after some 1,600 episodes, the regret the same after as many,
    while averages begin with episode 10,000. Dropping action 3 loses nothing, and its run has all 20,000.
    """
    cmdp = easy()
    changes = {"compare": True, "compare_episodes": 20_000, "eps_rho": 0.0, "use_min": 0.0, "prune_max": 400_000}
    asked = PRI(Spec.of(cmdp, 1_000_000), preset="printed", run_episodes=2000, runs=1, **changes)
    asked.run(Source.of(cmdp), stream(5), 400_000)
    tests = asked.internals()["tests"]
    assert np.array_equal(asked.pruning.D, support(cmdp))
    lengths = np.diff([2000, *(test["after episode"] for test in tests)]) - 20_000  # without that of the reference
    passed = np.array([test["passed"] for test in tests])
    assert (lengths[passed] == 20_000).all() and passed.any()
    stopped = [
        n
        for n, test in zip(lengths, tests, strict=True)
        if (test["step"], test["state"]) == (1, 0) and not test["passed"]
    ]
    assert stopped and max(stopped) < 5_000
