"""The parts of MF-PRI against exact answers: fair samples, honest errors, improvement."""

import numpy as np
import pytest
from oracle import optimum
from scipy.optimize import linprog

from cmdpkit import Policy, evaluate, occupancy, solve
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.mf_pri import ModelFreePRI
from cmdpkit.learners.mf_pri.samples import Measured, SampledBlock, best, covariance, greedy, means, view
from cmdpkit.simulate.random import stream
from instances import synthetic, tiny, with_rho

# -- samples -----------------------------------------------------------------------------------------------------------


def action_values(cmdp, pi):
    """Q [H, S, A, 1+N] and V [H+1, S, 1+N] by the plain recursion, in unit scale (these models are in it already)."""
    signals = np.stack([cmdp.r, *cmdp.g], axis=-1)
    V, Q = np.zeros((cmdp.H + 1, cmdp.S, signals.shape[-1])), np.zeros(signals.shape)
    for h in reversed(range(cmdp.H)):
        Q[h] = signals[h] + np.einsum("sat,tm->sam", cmdp.P[h], V[h + 1])
        V[h] = np.einsum("sa,sam->sm", pi[h], Q[h])
    return Q, V


def sampled(cmdp, pi, explore, chance, n, known, seed=5):
    """A learner and the returns of n episodes of pi with deviations; exact values to look ahead to if `known`."""
    learner = ModelFreePRI(Spec.of(cmdp, 10**9))
    source, (H, S) = Source.of(cmdp), pi.shape[:2]
    _, V = action_values(cmdp, pi)
    learner.now.episode, learner.now.block_end = learner.table.explore, 10**8
    learner.now.pi[...], learner.now.question[...] = pi, explore
    ends = V[:H], np.full((H, S), known)
    learner.block = SampledBlock.of(pi, explore, chance, ends, "learn")
    return learner, learner.run(source, stream(seed), n)


@pytest.mark.compiled
@pytest.mark.parametrize("known", [False, True])
def test_samples_of_actions_values_and_starts_are_unbiased_whatever_is_tried_and_known(known):
    """Deviations only at one step, from which the values of states differ: 5 standard errors, about 150 comparisons,
    so that a correct implementation fails with probability below 1e-4."""
    cmdp = synthetic()
    rng = np.random.default_rng(3)
    pi = np.eye(3)[rng.integers(0, 3, (3, 3))]
    pi[0, 1] = [0.5, 0.0, 0.5]
    explore = np.zeros((3, 3, 3), dtype=bool)
    explore[1, 0] = explore[1, 2] = explore[0, 1] = True
    explore &= pi == 0
    learner, returns = sampled(cmdp, pi, explore, 0.3, 60_000, known)
    samples = learner.samples
    Q, V = action_values(cmdp, pi)
    exact = {"rows": Q, "values": V[:3], "start": cmdp.mu @ V[0]}
    for name, truth in exact.items():
        record = getattr(samples, name)
        n = record[..., 0, 0, None]
        mean = record[..., 0, 1:] / np.maximum(n, 1)
        var = np.diagonal(record, axis1=-2, axis2=-1)[..., 1:] / np.maximum(n, 1) - mean**2
        error = np.sqrt(np.maximum(var, 0) / np.maximum(n, 1))
        assert np.all((np.abs(mean - truth) <= 5 * error + 1e-9) | (n <= 50)), name
    rows = samples.rows[..., 0, 0]
    assert np.all(rows[explore] > 50)
    assert np.all(rows[~explore & (pi == 0)] == 0)
    reach, n = occupancy(cmdp, Policy.of(cmdp, pi)), samples.start[0, 0]
    assert np.all(np.abs(samples.visits / n - reach) <= 5 * np.sqrt(reach * (1 - reach) / n) + 1e-12)
    assert n == pytest.approx(60_000 * 0.7**3, rel=0.02)
    played = evaluate(cmdp, Policy.of(cmdp, learner.behaviour()))
    assert abs(played.v - evaluate(cmdp, Policy.of(cmdp, pi)).v) > 0.02  # deviations do cost something here
    for x, truth in ((returns.reward, played.v), (returns.utilities[0], played.w[0])):
        assert abs(x.mean() - truth) <= 5 * x.std() / np.sqrt(len(x))


def test_moments_are_those_of_the_samples():
    rng = np.random.default_rng(4)
    M = 3
    x = rng.random((500, M)) @ rng.random((M, M))
    with_one = np.column_stack((np.ones(len(x)), x))
    record = with_one.T @ with_one
    np.testing.assert_allclose(means(record), x.mean(axis=0))
    np.testing.assert_allclose(covariance(record), np.cov(x.T, ddof=0), atol=1e-12)
    several = covariance(np.stack([record, 2 * record]))
    np.testing.assert_allclose(several[1], several[0], atol=1e-12)
    assert means(np.zeros((1 + M, 1 + M))).tolist() == [0, 0, 0]


def seen_by(learner, pi):
    """What the samples of a learner that played nothing but pi say."""
    return view(learner.samples, pi, learner.params.pseudo)


def test_standard_errors_of_advantages_and_utilities_are_those_of_repeated_experiments():
    """Spread over 300 independent tables against the errors that each table claims, at fixed prices."""
    cmdp, lam = synthetic(), np.array([0.7])
    pi = np.eye(3)[np.zeros((3, 3), dtype=int)]
    other = 0.6 * pi + 0.4 * np.roll(pi, 1, axis=-1)
    found, claimed, utilities, errors = [], [], [], []
    for seed in range(300):
        seen = seen_by(sampled(cmdp, pi, pi == 0, 0.3, 600, True, seed)[0], pi)
        advantage, error = seen.advantage(lam)
        found.append(advantage[:2])
        claimed.append(error[:2])
        utilities.append(seen.totals(other)[1])
        errors.append(seen.errors(other)[0])
    ratio = np.std(found, axis=0) / np.sqrt(np.mean(np.square(claimed), axis=0))
    moved = pi[:2] == 0
    assert np.all(ratio[moved] < 1.25)  # the spread of 300 has a relative error of 4 %
    assert np.all(ratio[moved] > 0.6)  # few samples are told to have a larger error than they have
    # Whole episodes and rows of base actions share samples. Their errors are added as if they were independent.
    assert 0.6 < np.std(utilities) / np.sqrt(np.mean(np.square(errors))) < 1.1
    Q, _ = action_values(cmdp, pi)
    truth = Q @ np.append(1.0, lam)
    truth -= truth[..., :1]
    assert np.abs(np.mean(found, axis=0) - truth[:2]).max() < 0.02


def test_the_error_of_a_changed_policy_is_that_of_the_played_one_and_of_the_changed_rows():
    """By the delta method, entry by entry, from the records themselves."""
    cmdp = synthetic()
    pi = np.eye(3)[np.zeros((3, 3), dtype=int)]
    learner, _ = sampled(cmdp, pi, pi == 0, 0.3, 3000, True)
    seen, samples = seen_by(learner, pi), learner.samples
    other = pi.copy()
    other[1, 2] = (0.25, 0.75, 0.0)
    n = samples.start[0, 0]
    expected = covariance(samples.start)[1, 1] / n
    for a, change in ((0, -0.75), (1, 0.75)):
        expected += (seen.reach[1, 2] * change) ** 2 * seen.error[1, 2, a, 1, 1]
    assert seen.errors(other)[0] == pytest.approx(np.sqrt(expected))
    row = samples.rows[1, 2, 1]
    plain = covariance(row)[1, 1] / row[0, 0]
    assert seen.error[1, 2, 1, 1, 1] == pytest.approx(plain, rel=0.3)  # five samples of the average are mixed in


# -- improvement -------------------------------------------------------------------------------------------------------


def exact(cmdp, pi, n=1e12):
    """What infinitely many samples of pi would say."""
    Q, V = action_values(cmdp, pi)
    base, M = pi.argmax(axis=-1), 1 + cmdp.N
    effect = Q - np.take_along_axis(Q, base[..., None, None], 2)
    reach = occupancy(cmdp, Policy.of(cmdp, pi)).sum(axis=-1)
    at_base = cmdp.mu @ V[0] - np.einsum("hs,hsa,hsam->m", reach, pi, effect)
    error = np.zeros((*pi.shape, M, M))
    played = reach[..., None] * pi
    return Measured(n, played, reach, base, at_base, effect, error, np.eye(M), np.ones(pi.shape, dtype=bool))


@pytest.mark.parametrize("N", [1, 2, 3])
def test_the_optimum_is_a_fixed_point_of_the_improvement_and_its_prices_are_the_shadow_prices(N):
    rng = np.random.default_rng(N)
    tried = 0
    while tried < 25:
        cmdp = tiny(rng, N, ties=False)
        cmdp = with_rho(cmdp, evaluate(cmdp, Policy.uniform(cmdp)).w + rng.uniform(0, 0.3, N))
        truth = optimum(cmdp)
        if truth is None or truth.prices.min() < 1e-3:
            continue
        tried += 1
        solution = solve(cmdp)
        pi, reach = solution.policy.pi, solution.occupancy.sum(axis=-1)
        p, lam, short = best(exact(cmdp, pi), cmdp.rho, np.full(N, 1e4), np.array(cmdp.actions), np.zeros(pi.shape))
        reached = reach > 1e-9
        np.testing.assert_allclose(p[reached], pi[reached], atol=1e-6)
        np.testing.assert_allclose(lam, truth.prices, rtol=1e-6, atol=1e-8)
        assert short.max() < 1e-8


def test_the_best_policy_around_what_was_played_is_that_of_another_lp_solver():
    rng = np.random.default_rng(8)
    for _ in range(40):
        N, S, A = int(rng.integers(1, 4)), int(rng.integers(1, 5)), 3
        reach, fee, effect = (
            rng.uniform(0.1, 1, (1, S)),
            rng.uniform(0, 0.2, (1, S, A)),
            rng.normal(size=(1, S, A, 1 + N)),
        )
        effect[:, :, 0] = 0.0  # of the base action
        live = np.ones((1, S, A), dtype=bool)
        live[0, :, 2] = rng.random(S) < 0.5
        at_base, target, high = rng.normal(size=1 + N), rng.normal(size=N), rng.uniform(0.5, 2, N)
        nothing = np.zeros((1, S, A))
        base, error = np.zeros((1, S), dtype=int), np.zeros((1, S, A, 1 + N, 1 + N))
        seen = Measured(1.0, nothing, reach, base, at_base, effect, error, np.eye(1 + N), live)
        p, lam, short = best(seen, target, high, live, fee)
        # Variables: the probabilities of live actions, the shortfall and the surplus of every utility.
        _, s, a = np.nonzero(live)
        m, each = len(s), reach[0, s] * effect[0, s, a].T
        cost = reach[0, s] * fee[0, s, a] - each[0]
        equal = np.zeros((S + N, m + 2 * N))
        equal[s, np.arange(m)] = 1
        equal[S:, :m], equal[S:, m : m + N], equal[S:, m + N :] = each[1:], np.eye(N), -np.eye(N)
        right = np.concatenate((np.ones(S), target - at_base[1:]))
        other = linprog(np.concatenate((cost, high, np.zeros(N))), A_eq=equal, b_eq=right)
        assert (seen.totals(p)[1:] + short >= target - 1e-9).all()
        assert cost @ p[0, s, a] + high @ short == pytest.approx(other.fun, abs=1e-7)
        np.testing.assert_allclose(lam, other.eqlin.marginals[S:], atol=1e-6)
        assert (p > 1e-9).sum() <= S + N  # a vertex: at most N actions beyond one per decision


def test_an_action_that_is_clearly_worse_is_ruled_out_and_one_that_is_as_good_stays_in_question():
    cmdp = synthetic()
    pi = solve(cmdp.with_bounds(utility=0.0)).policy.pi
    learner, _ = sampled(cmdp.with_bounds(utility=0.0), pi, pi == 0, 0.3, 20_000, False)
    learner._improve(learner.table.explore + 20_000)
    Q, V = action_values(cmdp, pi)
    loss = (V[:3, :, None] - Q)[..., 0]
    question = learner.now.question
    assert not question[loss > 0.15].any()
    assert not question[pi > 0].any()
    assert question[(pi == 0) & (loss < 0.001)].all()


def brute(seen, live, weights):
    """The largest weighted total of all deterministic policies on live actions, one decision after the other."""
    totals = seen.at_base.copy()
    for h, s in np.ndindex(*seen.base.shape):
        options = [seen.reach[h, s] * seen.effect[h, s, a] for a in np.flatnonzero(live[h, s])]
        totals += max(options, key=lambda x: float(weights @ x), default=np.zeros(len(weights)))
    return totals


def test_what_can_be_had_at_a_price_is_what_the_best_action_of_every_decision_brings():
    rng = np.random.default_rng(2)
    for _ in range(20):
        cmdp = tiny(rng, 2, ties=False)
        pi = Policy.uniform(cmdp).pi
        seen, live, lam = exact(cmdp, pi), np.array(cmdp.actions), rng.random(2) * 3
        np.testing.assert_allclose(greedy(seen, lam, live), brute(seen, live, np.append(1.0, lam)), atol=1e-12)
