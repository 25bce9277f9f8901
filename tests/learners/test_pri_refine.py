"""Refinement and identification as published: weights, rounds and the policy they amount to, against exact answers."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

import cmdpkit as ck
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.params import chosen
from cmdpkit.learners.pri import PRI
from cmdpkit.learners.pri.presets import rad
from cmdpkit.learners.pri.refine import (
    IDENTIFY,
    REFINE,
    Refinement,
    decomposition_opt,
    most_visited,
    policies_in,
    simplex,
    whole_plays,
)
from cmdpkit.model.policy import one_hot
from cmdpkit.simulate.random import stream
from pri_instance import easy, support

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("rad_t", [None, 0.05])
@pytest.mark.parametrize(("M", "N"), [(2, 1), (4, 1), (4, 2), (8, 3), (5, 0)])
def test_decomposition_opt_agrees_with_another_solver(M, N, rad_t):
    rng = np.random.default_rng(M + 10 * N)
    highs, infeasible = simplex(), 0
    for _ in range(40):
        v, w, rho, floor = rng.random(M), rng.random((M, N)), 0.3 + 0.4 * rng.random(N), 0.2 / M
        found = decomposition_opt(highs, v, w, rho, floor, rad_t)
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
    rng, used = np.random.default_rng(2), simplex()
    for _ in range(200):
        problem = rng.random(6), rng.random((6, 2)), np.array([0.45, 0.4]), 0.01, None
        again, fresh = decomposition_opt(used, *problem), decomposition_opt(simplex(), *problem)
        assert again.alpha.tobytes() == fresh.alpha.tobytes()


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


def test_the_policies_of_an_action_set_come_in_order_of_visits_however_many_there_are():
    rng = np.random.default_rng(6)
    D = rng.random((2, 3, 3)) < 0.7
    D[..., 0] = True
    use = rng.random(D.shape) * D
    share = (use / use.sum(axis=(1, 2), keepdims=True)).reshape(-1, 3)  # of the episodes that use each action
    share[range(len(share)), share.argmax(axis=-1)] = 1.0  # no deviation
    rows = [np.flatnonzero(row) for row in D.reshape(-1, 3)]
    every = sorted(itertools.product(*rows), key=lambda c: -math.prod(share[i, a] for i, a in enumerate(c)))
    assert policies_in(D) == len(every) > 8
    assert most_visited(D, use, 10**6).tolist() == [list(c) for c in every]
    assert most_visited(D, use, 5).tolist() == [list(c) for c in every[:5]]
    huge = np.ones((20, 50, 4), dtype=bool)
    assert policies_in(huge) == 4**1000 and most_visited(huge, rng.random(huge.shape), 7).shape == (7, 1000)


def test_a_tie_in_a_rare_state_does_not_crowd_out_a_decision_that_matters():
    """Ten states share 10 of 1,000 visits, half and half; in state 1 the second action has 50 of 990."""
    use = np.full((1, 11, 2), 0.5)
    use[0, 0] = 940.0, 50.0
    second, third, *_ = most_visited(np.ones(use.shape, dtype=bool), use, 4)[1:].tolist()
    assert second == [1] + [0] * 10 and third[0] == 0 and sum(third) == 1


def refinement(cmdp, D, K, **changes):
    """The phases of refinement inside D, for the thresholds as they are."""
    spec = Spec.of(cmdp, 4 * K)
    p = chosen(PRI.presets, spec, "printed", {"K": K, "eps_rho": 0.0, **changes})
    return Refinement(spec, p, D, D.astype(float), spec.rho)


def play(phase, cmdp, n, seed=1):
    source, rng, done = Source.of(cmdp, ck.solve(cmdp).value), stream(seed), 0
    out = np.empty((1 + cmdp.N, n))
    while done < n:
        done += phase.play(source, rng, out[:, done:])
    return out, source


def test_refinement_finds_the_weights_of_the_optimum():
    """sd of an estimated utility is 0.5 / sqrt(plays): with 1e4 plays of each policy alpha errs by 0.014, 4 sd."""
    cmdp = easy()
    phase = refinement(cmdp, support(cmdp), 40_000, band=False, floor=0.25)
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
    phase = refinement(cmdp, D, 100, draw_each=draw_each)
    play(phase, cmdp, 150, seed=2)
    assert phase.phase == IDENTIFY
    phase.alpha = np.array([0.3, 0.05, 0.1, 0.05, 0.05, 0.02, 0.05, 0.38])
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
        phase = refinement(cmdp, support(cmdp), 10_000, draw_each=draw_each, floor=0.0)
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
    assert tallies[True].unsafe == (90_050 if (w < 1.0).any() else 0)
    assert 0 < tallies[False].unsafe < 90_050  # in turn, one part misses the bound and the other does not


def test_only_the_first_plays_of_a_round_count_as_in_the_paper():
    cmdp = easy()
    literal = refinement(cmdp, support(cmdp), 10_000, floor=0.1)
    play(literal, cmdp, 5 * 100)
    assert literal.sums[:, 0].tolist() == [5 * 10, 5 * 10] and literal.plays[REFINE].sum() == 500


def test_the_printed_band_is_used_to_miss_the_threshold_and_the_one_sided_form_is_not():
    cmdp = easy()
    w = {}
    for band in (True, False):
        phase = refinement(cmdp, support(cmdp), 90_000, band=band, floor=0.05)
        play(phase, cmdp, 90_001)
        w[band] = float(phase.alpha @ phase.estimates()[1][:, 0])
    assert w[False] == pytest.approx(1.0, abs=1e-6)
    assert w[True] == pytest.approx(1.0 - rad(2, 90_000, 0.05, 300), abs=1e-6)
