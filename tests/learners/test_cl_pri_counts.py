"""CL-PRI with counts: what it remembers, what it concludes from that, and what it returns."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit import CMDP, envs, evaluate
from cmdpkit.estimate.changes import compared
from cmdpkit.estimate.model import model_of, plan_errors
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.learners.cl_pri.play import new_block
from cmdpkit.simulate.random import stream

pytestmark = pytest.mark.compiled


@pytest.mark.long
@pytest.mark.parametrize("stationary", [True, False])
def test_the_error_of_a_plan_is_the_spread_of_its_prediction_over_repetitions(stationary):
    """60 memories of 300 uniform episodes: the mean of the claimed variances is within a factor of the observed one.

    The observed variance of 60 values has a relative standard error of 0.18; 0.55 to 1.8 is beyond 3 of them.
    """
    rng = np.random.default_rng(5)
    lead = () if stationary else (4,)
    P = rng.dirichlet(np.full(3, 3.0), (*lead, 3, 2))  # every state is reached often
    cmdp = CMDP(P, rng.random((*lead, 3, 2)), rng.random((*lead, 3, 2)), 1.0, horizon=4, renormalise=True)
    pi = ck.Policy.uniform(cmdp).pi
    predictions, claims = [], []
    for seed in range(60):
        learner = ClosedLoopPRI(Spec.of(cmdp, 10**6))
        learner.clock.explored, learner.clock.block_end = 0, 10**6
        learner.block = new_block(pi, np.zeros(pi.shape, dtype=np.int64), learner.counts.visits)
        learner.run(Source.of(cmdp), stream(seed), 300)
        model = model_of(learner.counts, learner.spec.rho, learner.spec.allowed, 1)
        predictions.append(evaluate(model.cmdp, ck.Policy(pi)).w[0])
        claims.append(plan_errors(model, pi)[0] ** 2)
    assert 0.55 < np.mean(claims) / np.var(predictions, ddof=1) < 1.8


def test_a_half_that_misses_an_outcome_by_chance_is_no_contradiction_and_halves_that_differ_are_one():
    """Cells with an outcome of probability 0.15 that were seen 33 times in one half and 588 times in the other.

    All 33 are alike in one of 200 cells, and with a variance of its own for each half, that looks like certainty: one
    in eleven tables of 20 cells would be a false alarm. One in 200 is promised, so that more than 12 alarms in 1,000
    tables have a probability of 0.002.
    """
    rng, steps = np.random.default_rng(7), np.array([33, 588])

    def table(p):
        seen, zeros = rng.binomial(steps, p, (20, 2)).astype(float), np.zeros((20, 2))
        return np.stack((np.broadcast_to(steps, (20, 2)), seen, seen, zeros, zeros), axis=-1)

    assert sum(compared(table(0.15)).contradicted for _ in range(1000)) <= 12
    assert compared(table([0.1, 0.9])).p < 1e-100


def test_counts_are_shared_where_the_model_is_stationary_and_only_there():
    assert ClosedLoopPRI(Spec.of(envs.build("inventory"), 100)).T == 1
    assert ClosedLoopPRI(Spec.of(envs.build("paper/synthetic"), 100)).T == 3


@pytest.mark.long
def test_three_thousand_episodes_suffice_for_a_good_policy_within_its_bounds():
    """Four problems, two seeds: all policies keep their bounds, lack at most 2 %, and what was realised does too."""
    for env in ("paper/synthetic", "paper/grid", "inventory", "streaming"):
        cmdp = envs.build(env)
        span = ck.solve(CMDP(cmdp.kernel, cmdp.compact.r, horizon=cmdp.H, mu=cmdp.mu, actions=cmdp.actions)).value
        for seed in range(2):
            run = ck.learn(cmdp, "cl-pri", episodes=3000, seed=seed)
            met = [c.sign * (w - c.bound) >= -1e-9 for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
            assert all(met), (env, seed)
            assert run.optimum - run.policy_value <= 0.02 * abs(span), (env, seed)
            assert run.final("realised_violation").max() <= 0, (env, seed)
            assert len(run.decisions) <= cmdp.N


def test_a_bound_that_cannot_be_met_is_said_to_be_missed():
    cmdp = envs.build("paper/synthetic").with_bounds(utility=2.5)  # at most 2.09 can be had
    run = ck.learn(cmdp, "cl-pri", episodes=2000, seed=1)
    assert any("no policy meets all bounds" in note for note in run.notes)
    assert any("was missed by" in note and "utility" in note for note in run.notes)


@pytest.mark.long
def test_a_certificate_that_is_asked_for_says_that_the_bounds_are_kept():
    run = ck.learn("paper/synthetic", "cl-pri", episodes=40_000, seed=3, certified=True)
    assert run.certificate.safe == (True,) and run.policy_utilities[0] > 2
