"""The paper's PRI: every phase against exact answers, its notes, and runs that can be cut anywhere."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

import cmdpkit as ck
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.pri.paper import PaperPRI
from cmdpkit.learners.pri.paper.base import BaseRun, _book, means, radius, within
from cmdpkit.learners.pri.paper.decompose import DecompositionOpt, whole_plays
from cmdpkit.learners.pri.paper.presets import params, pruning_episodes, rad
from cmdpkit.learners.pri.paper.prune import (
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
from cmdpkit.learners.pri.paper.refine import IDENTIFY, REFINE, Refinement, likeliest, policies_in
from cmdpkit.meter import Meter
from cmdpkit.policy import one_hot
from cmdpkit.stream import stream
from instances import synthetic

pytestmark = pytest.mark.compiled


def easy(copies=1, rho=1.0):
    """Solved by hand. States are drawn anew, whatever is done, so decisions do not interact.

    At (step 1, state 1) the choice is between reward and utility, elsewhere action 2 is best for both; action 3 is
    always worst. With rho = 1 the optimum mixes actions 1 and 2 there half and half: v = 1.6, multiplier 1. With
    copies = 2, every action exists twice.
    """
    r = np.tile([0.2, 0.9, 0.1], (2, 2, 1))
    g = np.tile([0.2, 0.5, 0.1], (2, 2, 1))
    r[0, 0], g[0, 0] = [1.0, 0.0, 0.3], [0.0, 1.0, 0.3]
    r, g = np.tile(r, copies), np.tile(g, copies)
    return ck.CMDP(np.full((2, 2, 3 * copies, 2), 0.5), r, g, rho, [0.5, 0.5])


def support(cmdp):
    """Actions of the optimum, [H, S, A]."""
    return ck.solve(cmdp).policy.pi > 1e-9


# -- pruning: the schedules --------------------------------------------------------------------------------------------


def test_the_instance_is_solved_by_hand():
    sol = ck.solve(easy())
    assert sol.value == pytest.approx(1.6) and sol.shadow_prices[0] == pytest.approx(1.0)
    assert sol.policy.pi[0, 0] == pytest.approx([0.5, 0.5, 0.0])


def test_an_action_is_underused_by_share_by_count_or_because_nobody_comes_there():
    spec = Spec.of(easy(), 1000)
    usage = np.array([[[97.0, 3.0, 0.0], [2.0, 0.0, 0.0]], [[98.0, 2.0, 0.0], [0.0, 2.0, 0.0]]])
    by_share = params(spec, "paper", {"use_min": 0.02, "reach_min": 0.05})
    assert underused(usage, by_share).tolist() == [
        [[False, False, True], [True, True, True]],
        [[False, True, True], [True, True, True]],
    ]
    by_count = params(spec, "theory", {"count_min": 2.0})
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


# -- pruning: statistics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["triple-q", "dual-q"])
def test_usage_leaves_exactly_the_support_of_an_easy_optimum(base):
    # Of 200 other seeds none failed with either base learner, so one of three does with probability below 0.05.
    cmdp = easy()
    for seed in range(3):
        learner = PaperPRI(Spec.of(cmdp, 300_000), "paper", eps_rho=0.0, base=base)
        learner.run(Source.of(cmdp), stream(seed), 25_000)
        assert learner.pruning.done
        assert np.array_equal(learner.pruning.D, support(cmdp))


def test_a_base_learner_that_counts_no_uses_is_judged_by_what_it_recommends():
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, 20_000), "paper", eps_rho=0.0, base="opt-cmdp")
    assert not hasattr(learner.pruning.current, "usage")
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
            _book(returns[None, k : k + 1], 1.5, tally)
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
        _book(_returns(rng, 1.0, 20_000), 1.0, reference)
        for _ in range(20):
            _book(_returns(rng, 1.0 - gap, 1000), 1.0, tally)
            answer = early_verdict(reference, tally, rule, 2, 0.1)
            if answer is not None:
                break
        wrong += answer is not None and answer != (gap < 0.1)
        decided += answer is not None
    assert wrong <= binom.ppf(0.999, 200, 0.1)
    assert decided > 150, "early stop that never stops is never wrong"


def test_early_stop_sees_a_threshold_that_is_missed():
    rng, tally, reference = np.random.default_rng(8), np.zeros((3, 2)), np.zeros((3, 2))
    _book(_returns(rng, 1.0, 20_000), 1.0, reference)
    _book(_returns(rng, 1.0, 20_000), 1.0, tally)
    for rho, answer in ((0.9, True), (1.1, False), (1.0, None)):
        assert early_verdict(reference, tally, Rule(np.array([rho]), 0.1, 0.0, False), 2, 0.05) is answer


def _returns(rng, mean, n):
    """Rewards and utilities 0 or 2 with means `mean` and 1."""
    return 2.0 * (rng.random((2, n)) < np.array([[mean], [1.0]]) / 2)


# -- refinement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rad_t", [None, 0.05])
@pytest.mark.parametrize(("M", "N"), [(2, 1), (4, 1), (4, 2), (8, 3), (5, 0)])
def test_decomposition_opt_agrees_with_another_solver(M, N, rad_t):
    rng = np.random.default_rng(M + 10 * N)
    lp, basis, infeasible = DecompositionOpt(M, N), None, 0
    for _ in range(40):
        v, w, rho, floor = rng.random(M), rng.random((M, N)), 0.3 + 0.4 * rng.random(N), 0.2 / M
        found = lp.solve(v, w, rho, floor, rad_t, lp.cold if basis is None else basis)
        basis = found.basis
        rows = [-w.T] if rad_t is None else [-w.T, w.T]
        sides = [-rho] if rad_t is None else [rad_t - rho, rad_t + rho]
        bounds, one = [(floor, 1.0)] * M, {"A_eq": np.ones((1, M)), "b_eq": [1.0]}
        limits = {"A_ub": np.vstack(rows), "b_ub": np.concatenate(sides)} if N else {}
        oracle = linprog(-v, **limits, **one, bounds=bounds)
        assert found.alpha.sum() == pytest.approx(1.0) and found.alpha.min() >= floor - 1e-9
        assert found.feasible == (oracle.status == 0)
        if found.feasible:
            assert found.alpha @ v == pytest.approx(-oracle.fun, abs=1e-8)
            slack = 0.0 if rad_t is None else rad_t
            assert (found.alpha @ w >= rho - slack - 1e-8).all()
            assert rad_t is None or (found.alpha @ w <= rho + slack + 1e-8).all()
        else:
            infeasible += 1
            margin = linprog(
                np.append(np.zeros(M), -1.0),
                A_ub=np.hstack([-w.T, np.ones((N, 1))]),
                b_ub=-rho,
                A_eq=np.append(np.ones(M), 0.0)[None],
                b_eq=[1.0],
                bounds=[*bounds, (None, None)],
            )
            assert (found.alpha @ w - rho).min() == pytest.approx(-margin.fun, abs=1e-8)
    assert N == 0 or infeasible > 0, "the fallback was not tried"


def test_decomposition_opt_answers_to_the_bit_whatever_it_solved_before():
    rng = np.random.default_rng(2)
    used = DecompositionOpt(6, 2)
    basis = used.cold
    for _ in range(200):
        problem = (rng.random(6), rng.random((6, 2)), np.array([0.45, 0.4]), 0.01, None, basis)
        again, fresh = used.solve(*problem), DecompositionOpt(6, 2).solve(*problem)
        assert again.alpha.tobytes() == fresh.alpha.tobytes() and np.array_equal(again.basis, fresh.basis)
        basis = again.basis


def test_plays_are_whole_sum_to_the_round_and_are_off_by_less_than_one():
    rng = np.random.default_rng(4)
    for _ in range(300):
        alpha, plays = rng.dirichlet(np.ones(rng.integers(1, 9))), int(rng.integers(1, 3000))
        counts = whole_plays(alpha * plays)
        assert counts.sum() == plays and (np.abs(counts - alpha * plays) < 1).all()
    assert whole_plays(np.array([10 / 3, 10 / 3, 10 / 3])).tolist() == [4, 3, 3]
    assert whole_plays(100 * np.array([0.99, 0.01])).tolist() == [99, 1]
    assert whole_plays(np.array([-0.6, 2.3, 1.3])).tolist() == [0, 2, 1]


def test_rounding_does_not_add_up_over_rounds():
    cmdp = easy()
    phase = refinement(cmdp, support(cmdp), 121)
    phase.phase, phase.alpha = IDENTIFY, np.array([0.3, 0.7])
    phase.carry[:] = 0
    phase._size_blocks()
    play(phase, cmdp, 11 * 100)
    assert phase.plays[IDENTIFY].tolist() == [330, 770], "11 plays a round, 3.3 of them of the first policy"


def test_the_policies_of_an_action_set_come_in_order_of_use_however_many_there_are():
    rng = np.random.default_rng(6)
    D = rng.random((2, 3, 3)) < 0.7
    D[..., 0] = True
    use = rng.random(D.shape) * D
    share = use / use.sum(axis=-1, keepdims=True)
    rows = [np.flatnonzero(row) for row in D.reshape(-1, 3)]
    every = sorted(
        itertools.product(*rows), key=lambda c: -math.prod(share.reshape(-1, 3)[i, a] for i, a in enumerate(c))
    )
    assert policies_in(D) == len(every) > 8
    assert likeliest(D, use, 10**6).tolist() == [list(c) for c in every]
    assert likeliest(D, use, 5).tolist() == [list(c) for c in every[:5]]
    huge = np.ones((20, 50, 4), dtype=bool)
    assert policies_in(huge) == 4**1000 and likeliest(huge, rng.random(huge.shape), 7).shape == (7, 1000)


def refinement(cmdp, D, K, **changes):
    """The phases of refinement inside D, for the thresholds as they are."""
    spec = Spec.of(cmdp, 4 * K)
    p = params(spec, "paper", {"K": K, "eps_rho": 0.0, **changes})
    return Refinement(spec, p, D, D.astype(float), spec.rho)


def play(phase, cmdp, n, seed=1):
    source, rng, done = Source.of(cmdp, ck.solve(cmdp).value), stream(seed), 0
    out = np.empty((1 + cmdp.N, n))
    while done < n:
        done += phase.play(source, rng, out[:, done:])
    return out, source


def test_refinement_finds_the_weights_of_the_optimum():
    """sd of an estimated utility is 0.5 / sqrt(plays): with some 2e4 plays of each policy alpha errs by 0.01, 4 sd."""
    cmdp = easy()
    phase = refinement(cmdp, support(cmdp), 40_000)
    play(phase, cmdp, 41_000)
    assert phase.phase == IDENTIFY and phase.M == 2
    toward = phase.alpha[phase.choices[:, 0] == 1]
    assert toward == pytest.approx([0.5], abs=0.03)
    assert phase.history[-1, 0] == phase.rounds == 200


@pytest.mark.parametrize("draw_each", [False, True])
def test_the_identified_policy_is_the_markov_policy_of_the_mixture(draw_each):
    """Two open decisions, the first of which changes the way to the second; 5 sd of the visits.

    Averaging the policies' action probabilities without their occupancies would be wrong here by 0.05.
    """
    P = np.full((2, 2, 3, 2), 0.5)
    P[0, :, 0], P[0, :, 1] = [0.9, 0.1], [0.2, 0.8]
    cmdp = easy()
    cmdp = ck.CMDP(P, cmdp.r, cmdp.g[0], 0.2, cmdp.mu)
    D = one_hot(np.ones((2, 2)), 3) > 0
    D[0, :, 0] = D[1, 0, 0] = True
    phase = refinement(cmdp, D, 100, draw_each=draw_each, max_policies=5)
    play(phase, cmdp, 150, seed=2)
    assert phase.phase == IDENTIFY
    phase.alpha = np.array([0.3, 0.1, 0.2, 0.25, 0.15])
    phase.plays_per_round = 1000
    phase.plays[:], phase.reached[:] = 0, 0
    phase._size_blocks()
    _, source = play(phase, cmdp, 200_000, seed=3)
    parts = tuple(ck.Policy(one_hot(c.reshape(2, 2), 3)) for c in phase.choices)
    mixture = ck.Mixture(parts, phase.alpha)
    exact, q = ck.markov(cmdp, mixture).pi, ck.occupancy(cmdp, mixture).sum(axis=-1, keepdims=True)
    error = np.abs(phase.recommend() - exact)
    assert (error <= 5 * np.sqrt(0.25 / (200_000 * q))).all()
    naive = sum(w * p.pi for w, p in zip(phase.alpha, parts, strict=True))
    assert np.abs(naive - exact).max() > 0.05, "the instance does not tell right from wrong"
    assert source.meter.tally().weak.violation == pytest.approx(
        200_000 * (0.2 - ck.evaluate(cmdp, mixture).w), rel=1e-6
    )


def test_drawn_policies_are_drawn_independently_and_metered_as_the_mixture():
    """Plays are binomial: 5 sd. Strong violation is that of the mixture, where playing in turn pays for every part."""
    cmdp = easy()
    tallies = {}
    for draw_each in (True, False):
        phase = refinement(cmdp, support(cmdp), 10_000, draw_each=draw_each, floor=0.0, release=False)
        phase.phase, phase.alpha = IDENTIFY, np.array([0.4, 0.6])
        phase._size_blocks()
        _, source = play(phase, cmdp, 90_050, seed=4)
        sd = math.sqrt(90_050 * 0.24)
        assert abs(phase.plays[IDENTIFY, 0] - 0.4 * 90_050) < (5 * sd if draw_each else 60)
        tallies[draw_each] = source.meter.tally()
    parts = tuple(ck.Policy(one_hot(c.reshape(2, 2), 3)) for c in phase.choices)
    w = ck.evaluate(cmdp, ck.Mixture(parts, np.array([0.4, 0.6]))).w
    assert tallies[True].strong.violation == pytest.approx(90_050 * np.maximum(1.0 - w, 0.0), abs=1e-6)
    assert tallies[False].strong.violation[0] > 5000


def test_only_the_first_plays_of_a_round_count_where_the_paper_says_so():
    cmdp = easy()
    literal = refinement(cmdp, support(cmdp), 10_000, first_block=True, floor=0.1)
    play(literal, cmdp, 5 * 100)
    assert literal.sums[:, 0].tolist() == [5 * 10, 5 * 10]
    full = refinement(cmdp, support(cmdp), 10_000, floor=0.1)
    play(full, cmdp, 5 * 100)
    assert full.sums[:, 0].sum() == 500 and np.array_equal(full.sums[:, 0], full.plays[REFINE])


def test_the_printed_band_is_used_to_miss_the_threshold_and_the_one_sided_form_is_not():
    cmdp = easy()
    w = {}
    for band in (True, False):
        phase = refinement(cmdp, support(cmdp), 90_000, band=band, floor=0.05)
        play(phase, cmdp, 90_001)
        w[band] = float(phase.alpha @ phase.estimates()[1][:, 0])
    assert w[False] == pytest.approx(1.0, abs=1e-6)
    assert w[True] == pytest.approx(1.0 - rad(2, 90_000, 0.05, 300), abs=1e-6)


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_the_published_run_is_reproduced():
    """Published: regret 6.89e4 at 8e6 episodes, no violation, policy (1.561, 2.016), one stochastic decision."""
    cmdp = synthetic()
    source, rng = Source.of(cmdp, ck.solve(cmdp).value), stream(0)
    learner = PaperPRI(Spec.of(cmdp, 15_000_000), "paper")
    learner.run(source, rng, 8_000_000)
    weak = source.meter.tally().weak
    assert weak.regret < 2 * 6.89e4 and weak.violation[0] < 0
    learner.run(source, rng, 7_000_000)
    policy = ck.Policy.of(cmdp, learner.recommend())
    values = ck.evaluate(cmdp, policy)
    assert values.v == pytest.approx(1.561, abs=0.003) and values.w[0] == pytest.approx(2.016, abs=0.003)
    (decision,) = policy.stochastic_decisions()
    assert (decision.step, decision.state, sorted(decision.probabilities)) == (1, 1, [2, 3])
    assert np.array_equal(policy.pi > 0, support(cmdp))
    assert learner.warnings() == () and learner.notes == ()
    begins = dict(learner.phases())
    assert begins["slack"] == 0 and begins["refinement"] - begins["pruning by usage"] == 1_000_000
    assert begins["identification"] - begins["refinement"] == pytest.approx(7_000_000, rel=0.001)


def test_the_theory_says_what_its_constants_amount_to():
    cmdp, K = synthetic(), 7_000_000
    spec = Spec.of(cmdp, 1)
    spec = Spec.of(cmdp, 2 * K + pruning_episodes(spec, K))
    learner = PaperPRI(spec, "theory")
    assert learner.params.K == K
    said = " ".join(learner.notes)
    for number in ("4 / K^0.03 = 2.49 ", "sqrt K = 0.0939", "1 / ln K = 0.0634", "K^0.25 = 52", "K^0.2 = 23.4"):
        assert number in said
    assert "0.039 on average and 0.021 in its last round" in said and "more than 15 policies" in said
    assert "1e71" in said, "4 / K^0.03 = 0.03 at K = (4 / 0.03)^(1 / 0.03) = 1e70.8"
    tiny = Spec(1, 1, 2, 10**5, np.array([0.99] * 4), np.ones((1, 1, 2), dtype=bool))
    said = " ".join(PaperPRI(tiny, "theory").notes)
    assert "above every possible gap (H = 1)" in said and "constraint 1 is infeasible so tightened" in said
    assert "2^N = 16" in said
    assert PaperPRI(Spec.of(cmdp, 1000), "paper").notes == ()


def test_the_theory_runs_on_what_is_infeasible_for_it():
    # At this size eps_rho = 1.2: nothing meets rho + eps_rho. The sets stay non-empty, the best margin is played.
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, 30_000), "theory", votes=3)
    learner.run(Source.of(cmdp), stream(1), 30_000)
    assert learner.pruning.D.any(axis=-1).all()
    assert learner.refinement.phase == IDENTIFY
    pi = learner.recommend()
    assert pi.sum(axis=-1) == pytest.approx(1.0) and not (pi[~learner.pruning.D] > 0).any()


def test_comparison_spares_one_of_two_equal_actions():
    """Every action exists twice, so there are many optima. Usage is switched off: comparison alone has to choose.

    Without actions 1 the value falls by 1/7, without actions 2 the utility misses 1 by 0.1: at least 3.5 standard
    deviations from the tolerances (as in the test of a comparison above), in each of some 30 trials.
    """
    cmdp = easy(copies=2)
    changes = {
        "use_min": 0.0,
        "reach_min": 0.0,
        "compare": True,
        "tol_value": 0.07,
        "tol_utility": 0.05,
        "eps_rho": 0.0,
    }
    spec = Spec.of(cmdp, 400_000)
    learner = PaperPRI(spec, "paper", runs=2, run_episodes=2000, compare_episodes=2000, prune_max=300_000, **changes)
    learner.run(Source.of(cmdp), stream(2), 400_000)
    D, tests = learner.pruning.D, learner.explain()["tests"]
    assert learner.warnings() == () and not learner.pruning.untested.any()
    assert D.sum(axis=-1).tolist() == [[2, 1], [1, 1]]
    assert D[0, 0].reshape(2, 3).any(axis=0).tolist() == [True, True, False]
    assert all(D[h, s, 1] or D[h, s, 4] for h, s in ((0, 1), (1, 0), (1, 1)))
    assert sum(test["passed"] for test in tests) >= 6
    values = ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.recommend()))
    assert values.v == pytest.approx(ck.solve(cmdp).value, abs=0.01)


def test_votes_are_counted_until_the_majority_is_certain():
    cmdp = easy()
    changes = {"compare": True, "votes": 5, "early_stop": False, "tol_value": 0.07, "tol_utility": 0.05, "eps_rho": 0.0}
    learner = PaperPRI(Spec.of(cmdp, 400_000), "paper", **changes, compare_episodes=2000)
    learner.run(Source.of(cmdp), stream(3), 100_000)
    tests = learner.explain()["tests"]
    assert tests and all(3 <= sum(int(x) for x in test["votes"].split()[::2]) <= 5 for test in tests)
    assert all(("3 yes" in test["votes"]) == test["passed"] for test in tests)
    assert np.array_equal(learner.pruning.D, support(cmdp))


def test_pruning_that_runs_out_of_episodes_keeps_what_it_has_not_tested_and_says_so():
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, 30_000), "paper", compare=True, prune_max=2500, compare_episodes=1000, eps_rho=0.0)
    learner.run(Source.of(cmdp), stream(1), 30_000)
    assert "2 actions not tested" in learner.warnings()[0]


def test_the_tightening_is_a_share_of_the_slack_where_none_is_given():
    # The largest utility is 1.25: slack 0.25. The estimate has 1 % of that as its standard error.
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, 10**7), "paper", slack_share=0.1)
    learner.run(Source.of(cmdp), stream(1), 100_000)
    assert learner.pruning.slack == pytest.approx(0.25, abs=0.02)
    assert learner.explain()["tightening"] == pytest.approx([0.1 * learner.pruning.slack], abs=1e-6)
    loose = PaperPRI(Spec.of(cmdp, 10**7), "paper", slack_share=10.0)
    loose.run(Source.of(cmdp), stream(1), 100_000)
    assert loose.explain()["tightening"] == pytest.approx([math.log(14e6 / 3) ** 2 / math.sqrt(14e6 / 3)], abs=1e-4)


def test_an_infeasible_problem_is_reported_and_played_as_well_as_possible():
    cmdp = easy(rho=1.5)
    learner = PaperPRI(Spec.of(cmdp, 200_000), "paper")
    learner.run(Source.of(cmdp), stream(1), 200_000)
    said = " ".join(learner.warnings())
    assert "the problem may be infeasible" in said and "miss constraint 1 by 0.25" in said
    assert learner.explain()["tightening"] == [0.0]
    assert ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.recommend())).w[0] == pytest.approx(1.25, abs=0.01)


def test_two_constraints_and_none_and_a_single_surviving_policy():
    rng = np.random.default_rng(1)
    r, g = rng.random((2, 2, 3)), rng.random((2, 2, 2, 3))
    two = ck.CMDP(np.full((2, 2, 3, 2), 0.5), r, g, np.zeros(2), [0.5, 0.5])
    best = [float(ck.solve(ck.CMDP(two.P, x, mu=two.mu)).value) for x in two.g]
    two = two.with_bounds(**{c.name: 0.8 * b for c, b in zip(two.constraints, best, strict=True)})
    learner = PaperPRI(Spec.of(two, 600_000), "paper", eps_rho=0.001)
    learner.run(Source.of(two), stream(1), 600_000)
    values = ck.evaluate(two, ck.Policy.of(two, learner.recommend()))
    assert values.v == pytest.approx(ck.solve(two).value, abs=0.02)
    assert (values.w >= two.rho - 0.01).all()
    free = ck.CMDP(two.P, r, mu=two.mu)
    learner = PaperPRI(Spec.of(free, 100_000), "paper")
    learner.run(Source.of(free), stream(1), 100_000)
    assert learner.refinement.M == 1
    assert [name for name, _ in learner.phases()] == ["pruning by usage", "identification"]
    assert ck.evaluate(free, ck.Policy.of(free, learner.recommend())).v == pytest.approx(ck.solve(free).value)


def test_too_many_policies_are_cut_to_the_most_used_with_a_message():
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, 30_000), "paper", use_min=0.0, reach_min=0.0, max_policies=4, eps_rho=0.0)
    learner.run(Source.of(cmdp), stream(1), 30_000)
    assert learner.refinement.M == 4
    assert "6 policies, refinement takes the 4 most used ones; max_policies raises that" in learner.warnings()[0]


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("paper", {}),
        ("paper", {"draw_each": True, "base": "dual-q"}),
        ("paper", {"compare": True, "compare_episodes": 150, "votes": 3, "use_min": 0.0, "prune_max": 4000}),
        ("theory", {"votes": 3}),
    ],
)
def test_a_run_can_be_cut_and_resumed_anywhere_without_changing_a_bit(preset, changes):
    cmdp, K = synthetic(), 9000
    spec, optimum = Spec.of(cmdp, K), ck.solve(cmdp).value

    def fresh():
        return PaperPRI(spec, preset, **changes), Source.of(cmdp, optimum), stream(9)

    learner, source, rng = fresh()
    whole = learner.run(source, rng, K)
    rewards, cuts = [], np.random.default_rng(1).integers(1, 400, 100)
    cut, cut_source, cut_rng = fresh()
    left = K
    while left:
        n = min(int(cuts[left % 100]), left)
        rewards.append(cut.run(cut_source, cut_rng, n).reward)
        left -= n
        saved, meter = cut.state(), cut_source.meter.state()
        cut = PaperPRI(spec, preset, **changes)
        cut.restore(saved)
        cut_source = Source.of(cmdp, optimum)
        cut_source.meter.restore(meter)
    assert np.concatenate(rewards).tobytes() == whole.reward.tobytes()
    assert rng.tobytes() == cut_rng.tobytes()
    assert cut.recommend().tobytes() == learner.recommend().tobytes()
    assert cut.explain() == learner.explain() and cut.phases() == learner.phases()
    for name, array in learner.state().items():
        assert array.tobytes() == cut.state()[name].tobytes(), name
    for name, array in source.meter.state().items():
        assert array.tobytes() == cut_source.meter.state()[name].tobytes(), name


@pytest.mark.parametrize("draw_each", [False, True])
def test_what_is_measured_does_not_reach_the_learner(draw_each):
    cmdp = synthetic()
    seen, blind = Source.of(cmdp, 1.5), Source.of(cmdp)
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    blind = Source(blind.simulator, Meter.blind(cmdp.H, cmdp.rho, scales))
    runs = []
    for source in (seen, blind):
        learner = PaperPRI(Spec.of(cmdp, 9000), "paper", draw_each=draw_each)
        runs.append((learner.run(source, stream(1), 9000), learner.state()))
    assert runs[0][0].reward.tobytes() == runs[1][0].reward.tobytes()
    assert all(array.tobytes() == runs[1][1][name].tobytes() for name, array in runs[0][1].items())


@pytest.mark.parametrize("changes", [{}, {"draw_each": True, "base": "dual-q"}])
def test_driven_step_by_step_it_learns_the_same_to_the_bit(changes):
    from cmdpkit.simulate import reset, step

    cmdp, K = synthetic(), 2000
    spec, sim = Spec.of(cmdp, K), Source.of(cmdp).simulator
    compiled, driven = PaperPRI(spec, "paper", **changes), PaperPRI(spec, "paper", **changes)
    compiled.run(Source.of(cmdp), stream(4), K)
    rng = stream(4)
    for _ in range(K):
        s = reset(sim, rng)
        a = driven.first(int(s), rng)
        for h in range(cmdp.H):
            s, x = step(sim, h, s, a, rng)
            if h + 1 < cmdp.H:
                a = driven.next(sim.outcomes[x], int(s), rng)
        driven.last(sim.outcomes[x])
    assert driven.phases() == compiled.phases()
    for name, array in compiled.state().items():
        assert array.tobytes() == driven.state()[name].tobytes(), name


def test_its_account_names_thresholds_actions_policies_and_weights():
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, 300_000), "paper", eps_rho=0.01)
    assert learner.phases() == [] and learner.explain()["actions"]["now"] == 12
    learner.run(Source.of(cmdp), stream(1), 300_000)
    told = learner.explain()
    assert told["tightening"] == [0.01] and told["actions"] == {"to begin with": 12, "now": 5, "after usage": 5}
    (decision,) = told["open decisions"]
    assert (decision["step"], decision["state"], sorted(decision["use"])) == (1, 0, [0, 1])
    assert sorted(p["actions"] for p in told["policies"]) == [[0], [1]]
    assert sum(p["weight"] for p in told["policies"]) == pytest.approx(1.0)
    assert set(told["weights by round"]) >= {1, 2, 4, 8, 16, 32, 64, 128, 256}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runz": 3}, "unknown parameter 'runz'; did you mean 'runs'"),
        ({"runs": 0}, "runs is 0, expected at least 1"),
        ({"runs": 2.5}, "runs is 2.5, expected a whole number"),
        ({"base": "triple-p"}, "unknown algorithm 'triple-p'; did you mean 'triple-q'"),
        ({"base": "opt-dual"}, "base 'opt-dual' needs slack, which PRI does not know"),
        ({"base": "pri"}, "PRI cannot be its own base learner"),
        ({"compare": 1}, "compare is 1, expected a value like False"),
        ({"delta": 0.0}, "delta is 0.0, expected above 0 and below 1"),
        ({"quorum": 11}, "quorum is 11, expected at most runs = 10"),
        ({"eps_rho": math.inf}, "eps_rho is inf, expected a finite number"),
        ({"floor": "low"}, "floor is 'low', expected a number"),
    ],
)
def test_wrong_parameters_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        PaperPRI(Spec.of(easy(), 1000), "paper", **changes)


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="unknown preset 'papier'; did you mean 'paper'"):
        PaperPRI(Spec.of(easy(), 1000), "papier")


@pytest.mark.parametrize("preset", ["paper", "theory"])
@pytest.mark.parametrize("K", [1, 2, 7, 100])
def test_tiny_runs_end(preset, K):
    cmdp = easy()
    learner = PaperPRI(Spec.of(cmdp, K), preset)
    assert len(learner.run(Source.of(cmdp), stream(1), K).reward) == K
    assert learner.recommend().sum(axis=-1) == pytest.approx(1.0)
    assert learner.behaviour().sum(axis=-1) == pytest.approx(1.0)
