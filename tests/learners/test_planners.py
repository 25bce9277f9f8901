"""Model-based learners: right with infinite data, and on the right side of the truth with finite data."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import cmdpkit as ck
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.random import stream
from instances import synthetic
from told import MODEL_BASED, PLANNERS, SAFE, know, make, played, two_arms, varied

pytestmark = pytest.mark.compiled

VISITS = 10**15  # so many that no radius is left; the few episodes of a test do not change a digit

PROBLEMS = [(synthetic(), False), (varied(), False), (two_arms(), True)]  # with counts of each step, or pooled
NAMES = ["synthetic", "varied", "pooled"]


# -- infinite data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", [*PLANNERS, *SAFE])
@pytest.mark.parametrize(("cmdp", "pooled"), PROBLEMS, ids=NAMES)
def test_with_infinite_data_a_planner_plays_and_hands_over_the_optimum(algo, cmdp, pooled):
    learner = make(algo, cmdp, K=1000, preset="theory")
    assert (1 if pooled else cmdp.H) == learner.T
    know(learner, cmdp, VISITS)
    tally = played(learner, cmdp, 1)
    assert abs(tally.weak.regret) < 1e-4 and (tally.strong.violation < 1e-4).all()
    values, solution = ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.recommend())), ck.solve(cmdp)
    assert values.v == pytest.approx(solution.value, abs=1e-4)
    if algo not in SAFE:  # the prices of rewards with large weights are their own
        span = cmdp.reward_scale.span
        assert learner.multipliers * span == pytest.approx(solution.shadow_prices, abs=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("algo", "changes"),
    [
        ("opt-dual", {}),
        ("opt-primal-dual", {"policy_step": 100.0}),
        ("opdop", {"policy_step": 10.0, "dual_step": 10.0}),
        ("opt-pess-primal-dual", {"tighten": 1e-4}),
        ("reload", {}),
    ],
)
@pytest.mark.parametrize(("cmdp", "pooled"), PROBLEMS, ids=NAMES)
def test_with_infinite_data_the_average_of_the_iterates_is_the_optimum(algo, changes, cmdp, pooled):
    """Regret and violation of K iterates are of order sqrt(K): here at most 1.5% of H an episode."""
    K = 40_000
    learner = make(algo, cmdp, K, preset="theory", **changes)
    know(learner, cmdp, VISITS)
    tally = played(learner, cmdp, K)
    per_episode = np.append(tally.weak.regret / cmdp.reward_scale.span, tally.weak.violation) / K
    assert (np.abs(per_episode) < 0.015 * cmdp.H).all()
    mixture = ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.recommend()))
    assert mixture.v == pytest.approx(ck.solve(cmdp).value, abs=0.03 * cmdp.H * cmdp.reward_scale.span)
    assert mixture.w == pytest.approx(cmdp.rho, abs=0.03 * cmdp.H)


# -- the right side of the truth ---------------------------------------------------------------------------------------


def promises(algo: str, cmdp: ck.CMDP, seed: int, c: float) -> bool:
    """Whether every plan of a short run with random play promised at least the optimum."""
    K = 400
    learner = make(algo, cmdp, K, preset="theory", c=c, delta=0.1)
    source = Source.of(cmdp, noise="bernoulli")
    optimum = ck.solve(cmdp).value
    for _ in range(10):
        learner.run(source, stream(seed, int(learner.counts.starts.sum())), K // 10)
        decided = learner.plan(learner.believed())
        if not decided.feasible or decided.value < optimum - 1e-9:
            return False
    return True


@pytest.mark.long
@pytest.mark.parametrize("algo", PLANNERS)
def test_plans_promise_at_least_the_optimum_with_the_stated_probability(algo):
    """40 runs at delta = 0.1 with 0/1 signals; correct code fails the test with probability 1e-6.

    With a millionth of the logarithm the promises break far more often, or the test could not tell.
    """
    cmdp, runs = two_arms(), 40
    allowed = binom.ppf(1 - 1e-6, runs, 0.1)
    assert sum(not promises(algo, cmdp, seed, 1.0) for seed in range(runs)) <= allowed
    assert sum(not promises(algo, cmdp, seed, 1e-6) for seed in range(runs)) > allowed


@pytest.mark.long
@pytest.mark.parametrize("algo", ["opt-primal-dual", "opdop", "reload", "opt-pess-primal-dual"])
def test_evaluations_are_optimistic_and_not_just_cut(algo):
    """Values of the policy in the estimated model with bonuses exceed the true ones, in 2 runs of theory constants."""
    cmdp, informative = two_arms(), 0
    for seed in range(2):
        learner = make(algo, cmdp, K=200_000, preset="theory")
        source, rng = Source.of(cmdp, noise="bernoulli"), stream(seed)
        learner.run(source, rng, 199_980)
        for _ in range(10):
            pi = learner.behaviour()
            if algo != "opt-pess-primal-dual":  # it evaluates the policy of the episode to come, the others the last
                learner.run(source, rng, 1)
            values = ck.evaluate(cmdp, ck.Policy(pi))
            truth = np.append(values.v, values.w)
            assert (learner.after.parts.values.start >= truth).all()
            informative += bool((learner.after.parts.values.start < cmdp.H).any())
    assert informative > 0, "otherwise cutting at H alone made it optimistic"


def test_the_lagrangian_of_opt_dual_is_optimistic():
    cmdp = two_arms()
    learner, source, rng = (
        make("opt-dual", cmdp, K=20_000, preset="theory"),
        Source.of(cmdp, noise="bernoulli"),
        stream(3),
    )
    learner.run(source, rng, 5000)
    for _ in range(50):
        lam = learner.multipliers
        learner.run(source, rng, 1)
        truth = ck.solve(ck.CMDP(cmdp.P, cmdp.r + lam[0] * cmdp.g[0])).value
        assert truth <= learner.after.parts.pair.totals[0] < (1 + lam[0]) * cmdp.H


@pytest.mark.long
@pytest.mark.parametrize("algo", SAFE)
def test_safe_algorithms_with_theory_constants_are_never_unsafe_in_20_seeds(algo):
    cmdp = synthetic()
    for seed in range(20):
        assert (played(make(algo, cmdp, 2000, preset="theory"), cmdp, 2000, seed).strong.violation == 0).all()


@pytest.mark.long
@pytest.mark.parametrize("algo", SAFE)
def test_where_the_slack_is_large_safe_algorithms_leave_the_baseline_and_stay_safe(algo):
    """Theory constants: each of 20 runs may fail with probability 0.1, in fact none does."""
    cmdp, K = two_arms(), 200_000
    start = {"baseline": np.tile([0.1, 0.9], (2, 2, 1)), "baseline_utility": None}
    start["baseline_utility"] = ck.evaluate(cmdp, ck.Policy(start["baseline"])).w
    always = K * (ck.solve(cmdp).value - ck.evaluate(cmdp, ck.Policy(start["baseline"])).v)
    for seed in range(20):
        learner = make(algo, cmdp, K, preset="theory", **start)
        tally = played(learner, cmdp, K, seed)
        assert (tally.strong.violation == 0).all()
        assert learner.internals()["baseline_episodes"] < K / 2
        assert tally.weak.regret < 0.9 * always


@pytest.mark.long
def test_with_tiny_radii_the_same_algorithms_are_unsafe_so_the_tests_above_can_tell():
    cmdp = synthetic()
    for algo in SAFE:
        changes = {} if algo == "opt-pess-lp" else {"warm_up": 0.0}
        assert played(make(algo, cmdp, 5000, c=1e-7, **changes), cmdp, 5000, 1).strong.violation.max() > 0


# -- constants by hand -------------------------------------------------------------------------------------------------


def test_the_theorys_constants_by_hand():
    spec = {"H": 3, "S": 3, "A": 3, "K": 100_000, "rho": np.array([2.0]), "allowed": np.ones((3, 3, 3), dtype=bool)}
    cmdp_spec = Spec(**spec)

    def learner(algo, **needs):
        return load(algo)(cmdp_spec, preset="theory", **needs)

    primal = learner("opt-primal-dual", slack=0.09).parts
    assert primal.dual_bound == pytest.approx(33.3333, abs=1e-3)
    assert primal.policy_rate == pytest.approx(4.55e-5, abs=1e-7)  # sqrt(2 ln 3 / (9 (1 + 33.33)^2 1e5))
    assert primal.dual_rate == pytest.approx(33.3333 / (3 * math.sqrt(1e5)), rel=1e-4)
    dope = learner("dope", baseline=np.full((3, 3, 3), 1 / 3), baseline_utility=[2.09])
    assert dope.warm_up == pytest.approx(9 * 3 * 81 / 0.09**2, rel=1e-9)
    assert dope.kernel_log == pytest.approx(math.log(2 * 27 * 1e5 / 0.1), rel=1e-12)
    assert dope.weights == pytest.approx([100.0, 100.0], rel=1e-9)  # 3 H / slack and H^2 / slack
    opdop = learner("opdop", slack=0.09).parts
    assert opdop.bonus.beta == pytest.approx(3 * math.sqrt(3 * math.log(27e5 / 0.1)), rel=1e-12)
    assert (opdop.policy_rate, opdop.dual_rate) == pytest.approx((math.sqrt(math.log(3) / 9e5), 1e5**-0.5))
    assert opdop.cap == pytest.approx(6 / 0.09, rel=1e-12)
    pessimistic = learner("opt-pess-lp", baseline=np.full((3, 3, 3), 1 / 3), baseline_utility=[2.09])
    assert pessimistic.log == pytest.approx(math.log(16 * 9 * 3 * 3 * 1e5 / 0.1), rel=1e-12)


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_baseline_that_takes_an_action_which_is_not_allowed_is_refused():
    masked = Spec(3, 3, 3, 100, Spec.of(synthetic(), 100).rho, np.arange(3) < np.full((3, 3, 1), 2))
    with pytest.raises(ValueError, match=r"baseline\[h=0, s=0, a=2\] is .*: the action is not allowed"):
        load("dope")(masked, baseline=np.full((3, 3, 3), 1 / 3), baseline_utility=[2.08])


def test_the_theory_preset_names_vacuous_constants():
    cmdp = synthetic()
    for algo in MODEL_BASED:
        assert make(algo, cmdp, 4000, preset="theory").notes, algo
