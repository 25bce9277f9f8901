"""Preset `theory` of PRI against a line-by-line transcription of Algorithms 1 to 5: the same in every episode."""

import math

import numpy as np
import pytest
from pri_transcription import Constants, World, pri

import cmdpkit as ck
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.pri import PRI
from cmdpkit.simulate.random import stream
from instances import synthetic
from pri_instance import easy

pytestmark = pytest.mark.compiled


def two_bounds():
    rng = np.random.default_rng(8)
    r, g = rng.random((2, 3, 2)), rng.random((2, 2, 3, 2))
    P = rng.dirichlet(np.ones(3), size=(2, 3, 2))
    return ck.CMDP(P, r, g, [0.7, 0.8], [0.2, 0.5, 0.3])


def both(cmdp, seed, K, T, learner_changes, constants):
    """The learner's returns and the learner, and the same of the transcription."""
    learner, source, rng = PRI(Spec.of(cmdp, T), preset="theory", **learner_changes), Source.of(cmdp), stream(seed)
    returns = learner.run(source, rng, T)
    c = Constants(K)
    vars(c).update(constants)
    other = stream(seed)
    world = World(source.simulator, other, cmdp.H, cmdp.S, cmdp.A, cmdp.rho, T)
    return np.vstack([returns.reward, returns.utilities]).T, learner, pri(world, c), world


@pytest.mark.parametrize(("cmdp", "K"), [(synthetic(), 300), (easy(), 500), (two_bounds(), 120)])
def test_with_the_printed_constants_every_episode_is_that_of_the_transcription(cmdp, K):
    """No parameter is changed. Usage leaves one policy, and K is a third of the run."""
    played, learner, (D, _, policy), world = both(cmdp, 3, K, 3 * K, {}, {})
    assert learner.params.K == K
    assert np.array_equal(played, np.array(world.returns))
    assert np.array_equal(learner.pruning.D, D) and D.sum() == cmdp.H * cmdp.S
    assert np.array_equal(learner.recommend(), policy)


SHORT = {"runs": 5, "quorum": 3, "run_episodes": 14, "compare_episodes": 14, "votes": 4, "trials": 3}
SHORT_CONSTANTS = {"rounds": 5, "z_min": 3, "base": 14, "calls": 4, "calls_min": 2, "trials": 3, "trials_min": 1.5}


CASES = [
    (synthetic(), -0.5, 0.0, 0.1),
    (synthetic(), -0.5, 1.0, 0.1),
    (easy(), -0.5, 0.0, 0.3),
    (two_bounds(), -0.05, 0.0, 0.3),
    (two_bounds(), -0.05, 1.0, 0.3),
]


def test_all_branches_of_the_algorithms_are_those_of_the_transcription():
    """Loops are shorter, the tightening can be met and the tolerance missed: tests pass and fail, and policies mix.

    Returns are sums of table entries, so equal returns in every episode mean the same states and actions, unless two
    different ways earn the same to the last bit.
    """
    K, T = 900, 12_000
    sizes, kinds, votes = set(), set(), set()
    for cmdp, eps_rho, count_min, tol in CASES:
        changes = {**SHORT, "eps_rho": eps_rho, "eps_prune": eps_rho, "count_min": count_min, "tol_value": tol}
        changes |= {"K": K, "floor": 1 / math.log(K), "prune_max": T}
        constants = {**SHORT_CONSTANTS, "eps_rho": eps_rho, "N_min": count_min, "tolerance": tol}
        played, learner, (D, alpha, policy), world = both(cmdp, 5, K, T, changes, constants)
        assert np.array_equal(played, np.array(world.returns))
        assert np.array_equal(learner.pruning.D, D)
        assert learner.refinement.alpha == pytest.approx(alpha, abs=1e-9)
        assert learner.recommend() == pytest.approx(policy, abs=1e-12)
        tests = learner.internals()["tests"]
        sizes.add(len(alpha))
        kinds |= {(test["test"], test["passed"]) for test in tests}
        votes |= {test["votes"] for test in tests}
    # Both kinds of test with both outcomes, a vote of exactly half, one policy and several.
    assert kinds == {("drop", True), ("drop", False), ("alone", True), ("alone", False)}
    assert "2 yes, 2 no" in votes and sizes == {1, 2, 4}
