"""Bounds on utilities that nothing changes: told from others by analysis of variance, and not chased by plans."""

import numpy as np
import pytest
from bench.cl_pri import constant
from scipy.stats import f_oneway

from cmdpkit import Policy, evaluate, solve
from cmdpkit.estimate.counts import new_counts
from cmdpkit.estimate.model import indifferent
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.random import stream


def seen(cells, T=1):
    """A memory of reward 0 and one utility, whose cells saw the samples given; none where there are none."""
    memory = new_counts(T, len(cells) // T, 1, 2)
    for i, x in enumerate(cells):
        memory.visits[i] = len(x)
        memory.moments[i] = [0.0, np.sum(x), 0.0, 0.0, np.sum(np.square(x))]
    return memory


def test_whether_means_differ_is_decided_as_by_another_analysis_of_variance():
    """100 data sets, half of them without any difference. An error of 0.2 lets both answers occur often."""
    rng, answers = np.random.default_rng(1), []
    for i in range(100):
        shift = 0.3 * (i % 2) * rng.random(6)
        cells = [rng.random(rng.integers(2, 30)) * 0.5 + d for d in shift]
        p = f_oneway(*cells).pvalue
        [found] = indifferent(seen([*cells, []]), 1, 4, np.array([4 * np.concatenate(cells).mean()]), error=0.2)
        assert found == (p >= 0.2)
        answers.append(found)
    assert 25 < sum(answers) < 75


def test_steps_may_differ_from_each_other_but_cells_of_a_step_may_not():
    rng = np.random.default_rng(2)
    low, high = ([rng.random(200) * 0.2 + x for _ in range(3)] for x in (0.1, 0.7))
    middle = np.array([0.2 + 0.8])  # the total of both steps
    assert indifferent(seen([*low, *high], T=2), 2, 2, middle).tolist() == [True]
    assert indifferent(seen([*low, *high], T=1), 1, 2, middle).tolist() == [False]


def test_a_total_that_is_not_at_its_bound_and_signals_without_noise_are_planned_for():
    rng = np.random.default_rng(3)
    noisy = [(rng.random(400) < 0.5).astype(float) for _ in range(4)]
    total = 4 * np.concatenate(noisy).mean()
    error = 4 * 0.5 / np.sqrt(1600)
    for away, expected in ((0.0, True), (2.8, True), (-2.8, True), (3.2, False), (-3.2, False)):
        assert indifferent(seen(noisy), 1, 4, np.array([total + away * error])).tolist() == [expected]
    exact = [np.full(50, 0.5), np.full(50, 0.501)]
    assert indifferent(seen(exact), 1, 4, np.array([2.002])).tolist() == [False]
    assert indifferent(seen([[1.0], [0.0], [1.0, 1.0]]), 1, 4, np.array([2.0])).tolist() == [False]  # too few to tell


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [0, 1])
def test_a_bound_that_all_policies_meet_exactly_is_not_chased_though_noise_hides_it(seed):
    """Without the rule the policies lack 0.3 and more: they buy what looks short with actions that were lucky."""
    cmdp, K = constant(0), 20_000
    learner = load("cl-pri")(Spec.of(cmdp, K))
    learner.run(Source.of(cmdp, noise="bernoulli"), stream(seed), K)
    assert solve(cmdp).value - evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v < 0.02
    assert learner.multipliers.tolist() == [0.0]
