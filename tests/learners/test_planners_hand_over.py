"""Model-based learners on small problems: what they return, when they plan, and what they say of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.random import stream
from instances import synthetic
from told import MODEL_BASED, SAFE, make, played, told, two_arms, varied

pytestmark = pytest.mark.compiled


@pytest.mark.long
@pytest.mark.parametrize("algo", [x for x in MODEL_BASED if x not in SAFE])
@pytest.mark.parametrize("N", [0, 1, 2])
def test_a_small_problem_is_learned(algo, N):
    """Practical settings, any number of constraints, missing actions: what is returned is near the optimum."""
    cmdp, K = varied(N), 20_000
    learner = make(algo, cmdp, K)
    played(learner, cmdp, K)
    values = ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.recommend()))  # refuses actions that do not exist
    assert values.v > ck.solve(cmdp).value - 0.1 * cmdp.reward_scale.span
    assert (values.w > cmdp.rho - 0.1).all()


@pytest.mark.long
@pytest.mark.parametrize("algo", SAFE)
def test_safe_algorithms_hand_over_a_safe_policy(algo):
    """With a hundredth of the theory's logarithm, pessimism exceeds the estimates' errors; with "practical" not."""
    cmdp, K = two_arms(), 20_000
    learner = make(algo, cmdp, K, c=0.01)
    played(learner, cmdp, K)
    values = ck.evaluate(cmdp, ck.Policy(learner.recommend()))
    assert values.v > ck.evaluate(cmdp, ck.Policy(told(cmdp)["baseline"])).v + 0.1
    assert (values.w >= cmdp.rho).all()


@pytest.mark.long
def test_opt_cmdp_with_theory_constants_hands_over_a_near_optimal_policy():
    """K = 5,000 on the paper's instance, where one visit tells the signals: 20 seeds, the typical error is below 0.005.

    From so few episodes the utility of the optimum itself is known to about 0.003, so single seeds may miss it.
    """
    cmdp, errors = synthetic(), []
    optimum = ck.solve(cmdp)
    for seed in range(20):
        learner = make("opt-cmdp", cmdp, 5000, preset="theory", deterministic=True, margin=0.0)
        played(learner, cmdp, 5000, seed)
        values = ck.evaluate(cmdp, ck.Policy(learner.recommend()))
        errors.append(max(abs(values.v - optimum.value), abs(values.w[0] - 2.0)))
    assert np.median(errors) < 0.005 and np.mean(np.array(errors) < 0.005) >= 0.7 and max(errors) < 0.01


def test_plans_are_made_at_doublings_or_before_every_episode():
    cmdp = synthetic()
    doubling, every = (make("opt-cmdp", cmdp, 500, replan=replan) for replan in ("doubling", "episode"))
    played(doubling, cmdp, 500)
    played(every, cmdp, 500)
    assert every.internals()["plans"] == 500
    assert doubling.internals()["plans"] <= 27 * (1 + math.log2(500))
    assert doubling.internals()["plans"] < 250


def test_impossible_bounds_are_warned_about():
    cmdp = synthetic(rho=2.5)  # at most 2.09 can be had
    learner = make("opt-cmdp", cmdp, 3000, deterministic=True)
    learner.run(Source.of(cmdp), stream(0), 3000)
    assert learner.internals()["infeasible_plans"] > 0
    assert learner.warnings() and "impossible" in str(learner.warnings()[0])
    assert make("opt-cmdp", cmdp, 3000).warnings() == ()


def test_the_margin_of_the_policy_handed_over_covers_its_own_error():
    """40 seeds of 300 episodes with 0/1 signals. The margin of 1.64 standard errors covers 95 % of a normal error.

    If it covers at least 90 %, fewer than 30 policies within the bound have probability 0.002. Without a margin, a
    policy that meets the bound exactly in the estimate misses it in half of all cases: 31 or more within it have
    probability 0.0004.
    """
    cmdp, within = two_arms(), {}
    for margin in (1.0, 0.0):
        met = []
        for seed in range(40):
            learner = make("opt-cmdp", cmdp, 300, replan="doubling", margin=margin)
            learner.run(Source.of(cmdp, noise="bernoulli"), stream(seed), 300)
            met.append(ck.evaluate(cmdp, ck.Policy(learner.recommend())).w[0] >= cmdp.rho[0])
        within[margin] = sum(met)
    assert within[1.0] >= 30 and within[0.0] <= 30, within


def test_a_margin_that_no_policy_clears_is_said():
    cmdp = synthetic(rho=2.089)  # at most 2.0898 can be had
    learner = make("opt-cmdp", cmdp, 500, deterministic=True)
    learner.run(Source.of(cmdp), stream(1), 500)
    assert any("may miss constraint 1 by up to" in str(said) for said in learner.warnings())
    assert learner.internals()["margin of the returned policy"][0] > 0


def test_opsrl_tries_what_its_baseline_never_does():
    """Without a bonus on the reward, an arm that the baseline does not pull looks worthless forever.

    In that world the baseline's arm pays something in both states, so that an arm without worth is never as good.
    """
    K, safe = 3000, np.tile([0.0, 1.0], (2, 2, 1))

    def prepared(cmdp, **changes):
        told = {"baseline": safe, "baseline_utility": ck.evaluate(cmdp, ck.Policy(safe)).w}
        return make("opsrl", cmdp, K, **told, **changes), K * (
            ck.solve(cmdp).value - ck.evaluate(cmdp, ck.Policy(safe)).v
        )

    paid = two_arms().reformulated(r=np.array([[[1.0, 0.2], [0.8, 0.1]]]))
    stays, always = prepared(paid, bonus=0.0)
    assert played(stays, paid, K).weak.regret == pytest.approx(always) and not stays.counts.visits[::2].any()
    explores, always = prepared(two_arms())
    tally = played(explores, two_arms(), K)
    assert explores.counts.visits[::2].sum() > 100
    assert tally.weak.regret < 0.7 * always and tally.strong.violation[0] == 0


@pytest.mark.parametrize("algo", ["opt-cmdp", "reload", "cl-pri"])
def test_a_world_that_is_wrongly_declared_stationary_is_noticed(algo):
    """Data that contradict the declaration; in a world that is stationary the warning has probability 1e-4."""
    warned = []
    for declared in (False, True):
        cmdp = ck.load("random", S=3, A=2, H=6, seed=1, stationary=declared)
        learner = load(algo)(replace(Spec.of(cmdp, 1000), stationary=True))
        learner.run(Source.of(cmdp), stream(0), 1000)
        assert learner.T == 1
        warned.append(any("taken to behave alike" in str(said) for said in learner.warnings()))
    assert warned == [True, False]
