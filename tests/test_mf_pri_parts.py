"""The parts of MF-PRI against exact answers: fair samples, honest errors, improvement, decisions, steering."""

import numpy as np
import pytest
from scipy.optimize import linprog

from cmdpkit import CMDP, Policy, envs, evaluate, occupancy, solve
from cmdpkit.estimate.quantiles import error_quantile
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.mf_pri import ModelFreePRI
from cmdpkit.learners.mf_pri.improve import decide
from cmdpkit.learners.mf_pri.master import allocate, linear, solve_master
from cmdpkit.learners.mf_pri.moments import covariance, evidence, means, record_size, spread
from cmdpkit.learners.mf_pri.settings import ModelFreeParams
from cmdpkit.learners.mf_pri.steer import debt, steered
from cmdpkit.simulate.random import stream
from instances import synthetic, tiny, with_rho
from oracle import optimum

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
    progress, source = learner.progress, Source.of(cmdp)
    H, S = cmdp.H, cmdp.S
    _, V = action_values(cmdp, pi)
    progress.episode, progress.block_end = learner.task.table.warm, 10**8
    progress.pi[...] = progress.playing[...] = pi
    progress.explore[...], progress.deviation_chance = explore, chance
    progress.ahead[...], progress.known[: H * S] = V.reshape(-1, V.shape[-1]), known
    progress.known[H * S :] = True
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
    exact = {"rows": Q.reshape(-1, 2), "values": V[:3].reshape(-1, 2), "start": cmdp.mu @ V[0]}
    for name, truth in exact.items():
        record = np.atleast_2d(getattr(samples, name))
        n, truth = record[:, 0], np.atleast_2d(truth)
        seen = n > 50
        mean = record[:, 1:3] / np.maximum(n, 1)[:, None]
        var = record[:, [3, 5]] / np.maximum(n, 1)[:, None] - mean**2
        error = np.sqrt(np.maximum(var, 0) / np.maximum(n, 1)[:, None])
        assert np.all(np.abs(mean - truth)[seen] <= 5 * error[seen] + 1e-9), name
    rows = samples.rows[:, 0].reshape(3, 3, 3)
    assert np.all(rows[explore] > 50)
    assert np.all(rows[~explore & (pi == 0)] == 0)
    reach = occupancy(cmdp, Policy.of(cmdp, pi)).sum(axis=-1).ravel()
    visits = samples.visits / samples.start[0]
    assert np.all(np.abs(visits - reach) <= 5 * np.sqrt(reach * (1 - reach) / samples.start[0]) + 1e-12)
    assert samples.start[0] == pytest.approx(60_000 * 0.7**3, rel=0.02)
    played = evaluate(cmdp, Policy.of(cmdp, learner.behaviour()))
    assert abs(played.v - evaluate(cmdp, Policy.of(cmdp, pi)).v) > 0.02  # deviations do cost something here
    for x, truth in ((returns.reward, played.v), (returns.utilities[0], played.w[0])):
        assert abs(x.mean() - truth) <= 5 * x.std() / np.sqrt(len(x))


def test_moments_are_those_of_the_samples():
    rng = np.random.default_rng(4)
    M = 3
    x = rng.random((500, M)) @ rng.random((M, M))
    rows, columns = np.tril_indices(M)
    record = np.concatenate(([len(x)], x.sum(axis=0), (x[:, rows] * x[:, columns]).sum(axis=0)))
    assert len(record) == record_size(M)
    np.testing.assert_allclose(means(record, M), x.mean(axis=0))
    np.testing.assert_allclose(covariance(record, M), np.cov(x.T, ddof=0), atol=1e-12)
    c = np.array([1.0, 0.7, -2.0])
    assert spread(record, c) == pytest.approx((x @ c).var())
    assert means(np.zeros(record_size(M)), M).tolist() == [0, 0, 0]


def test_standard_errors_of_advantages_are_those_of_repeated_experiments():
    """Spread of the advantage over 300 independent tables against the error that each table claims, at fixed prices."""
    cmdp, lam = synthetic(), np.array([0.7])
    pi = np.eye(3)[np.zeros((3, 3), dtype=int)]
    found, claimed = [], []
    for seed in range(300):
        samples = sampled(cmdp, pi, pi == 0, 0.3, 600, True, seed)[0].samples
        e = evidence(samples, pi.argmax(axis=-1), np.zeros_like(pi, dtype=bool), lam, ModelFreeParams())
        found.append(e.advantage[:2])
        claimed.append(e.own[:2])
    ratio = np.std(found, axis=0) / np.sqrt(np.mean(np.square(claimed), axis=0))
    moved = pi[:2] == 0
    assert np.all(ratio[moved] < 1.25)  # the spread of 300 has a relative error of 4 %
    assert np.all(ratio[moved] > 0.6)  # values that are looked ahead to are exact here, their error is counted anyway
    Q, _ = action_values(cmdp, pi)
    truth = Q @ np.append(1.0, lam)
    truth -= truth[..., :1]
    assert np.abs(np.mean(found, axis=0) - truth[:2]).max() < 0.02


def test_the_error_of_the_price_enters_every_advantage_by_its_effect_on_the_utility():
    """One price, fixed by one extra action: to first order its error is that action's, over that action's effect."""
    cmdp, lam = synthetic(), np.array([0.7])
    pi = np.eye(3)[np.zeros((3, 3), dtype=int)]
    samples = sampled(cmdp, pi, pi == 0, 0.3, 3000, True)[0].samples
    base, extra = pi.argmax(axis=-1), np.zeros_like(pi, dtype=bool)
    alone = evidence(samples, base, extra, lam, ModelFreeParams())
    np.testing.assert_array_equal(alone.own, alone.se)
    extra[0, 1, 2] = True
    found = evidence(samples, base, extra, lam, ModelFreeParams())
    C = means(samples.rows, 2).reshape(3, 3, 3, 2)[..., 1]
    ratio = np.clip((C - C[..., :1]) / (C[0, 1, 2] - C[0, 1, 0]), -5, 5)
    np.testing.assert_allclose(found.se**2, found.own**2 + ratio**2 * found.own[0, 1, 2] ** 2, rtol=1e-9)
    np.testing.assert_array_equal(found.own, alone.own)


# -- improvement -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [1, 2, 3])
def test_the_optimum_is_a_fixed_point_of_the_improvement_and_its_prices_are_the_shadow_prices(N):
    rng = np.random.default_rng(N)
    tried = 0
    while tried < 25:
        cmdp = tiny(rng, N, ties=False)
        cmdp = with_rho(cmdp, evaluate(cmdp, Policy.uniform(cmdp)).w + rng.uniform(0, 0.3, N))
        best = optimum(cmdp)
        if best is None or best.prices.min() < 1e-3:
            continue
        tried += 1
        solution = solve(cmdp)
        pi, reach = solution.policy.pi, solution.occupancy.sum(axis=-1)
        Q, _ = action_values(cmdp, pi)
        goal = cmdp.rho, np.zeros(N), np.full(N, 1e4)
        problem = linear((solution.utilities * cmdp.signs, reach, pi), Q, pi.argmax(axis=-1), goal)
        answer = solve_master(problem, np.array(cmdp.actions), pi > 0, np.zeros(pi.shape))
        reached = reach > 1e-9
        np.testing.assert_allclose(answer.p[reached], pi[reached], atol=1e-6)
        np.testing.assert_allclose(answer.lam, best.prices, rtol=1e-6, atol=1e-8)
        assert answer.short.max() < 1e-8


def test_the_allocation_is_that_of_another_lp_solver():
    rng = np.random.default_rng(8)
    for _ in range(40):
        N, decisions = int(rng.integers(1, 4)), int(rng.integers(1, 5))
        decision = np.repeat(np.arange(decisions), rng.integers(2, 4, decisions))
        m = len(decision)
        cost, effect, gap = rng.normal(size=m), rng.normal(size=(m, N)), rng.normal(size=N)
        low, high = rng.uniform(0, 0.3, N), rng.uniform(0.5, 2, N)
        q, lam, short = allocate(cost, effect, decision, gap, low, high)
        A = np.zeros((decisions + N, m + 2 * N))
        A[decision, np.arange(m)] = 1
        A[decisions:, :m], A[decisions:, m : m + N], A[decisions:, m + N :] = effect.T, np.eye(N), -np.eye(N)
        other = linprog(np.concatenate((cost, high, -low)), A_eq=A, b_eq=np.concatenate((np.ones(decisions), gap)))
        surplus = q @ effect + short - gap
        assert cost @ q + high @ short - low @ surplus == pytest.approx(other.fun, abs=1e-7)
        np.testing.assert_allclose(lam, other.eqlin.marginals[decisions:], atol=1e-6)
        assert (q > 1e-9).sum() <= decisions + N  # a vertex: at most N actions beyond one per decision


def test_an_action_as_good_as_the_one_in_use_is_ruled_out_no_more_often_than_the_error_budget_allows():
    """All actions are the same, so every ruling is an error. 200 tables with delta = 0.2 for all tests of one look
    together: at a true rate of 20 % more than 58 errors would have probability below 1e-3."""
    base = synthetic()
    same = [np.repeat(x[..., :1], 3, axis=-1) for x in (base.r, base.g[0])]
    cmdp = CMDP(np.repeat(base.P[:, :, :1], 3, axis=2), *same, 2.0, base.mu)
    pi = np.eye(3)[np.zeros((3, 3), dtype=int)]
    wrong = 0
    for seed in range(200):
        learner, _ = sampled(cmdp, pi, pi == 0, 0.3, 1000, False, seed)
        learner.progress.lam[...], learner.progress.reach[...] = 0.7, 1.0
        decide(learner.task._replace(z_out=error_quantile(0.2, 18)), learner.progress, learner.samples)
        wrong += learner.progress.decided.any()
    assert 2 <= wrong <= 58


def test_an_action_that_is_clearly_worse_is_ruled_out_and_no_longer_tried():
    cmdp = synthetic()
    pi = solve(cmdp.with_bounds(utility=0.0)).policy.pi
    learner, _ = sampled(cmdp, pi, pi == 0, 0.3, 20_000, False)
    learner.progress.reach[...] = 1.0
    learner.progress.base[...] = pi.argmax(axis=-1)
    decide(learner.task, learner.progress, learner.samples)
    Q, V = action_values(cmdp, pi)
    loss = (V[:3, :, None] - Q)[..., 0]
    assert learner.progress.decided[loss > 0.15].all()
    assert not learner.progress.decided[pi > 0].any()
    assert not (learner.progress.explore & learner.progress.decided).any()


def test_steering_repays_what_is_owed_and_when_it_cannot_leaves_the_least_shortfall():
    """Two controls and two bounds, against all shifts on a fine grid."""
    cmdp = envs.build("random", S=4, A=3, H=3, N=2, conflict=0.5, seed=3)
    rng = np.random.default_rng(6)
    exact = 0
    for _ in range(60):
        learner = ModelFreePRI(Spec.of(cmdp, 100_000))
        progress, samples, task, k = learner.progress, learner.samples, learner.task, 50_000
        progress.base[...], progress.pi[..., 0], progress.lam[...] = 0, 1.0, 1.0
        for h, p in ((0, 0.4), (2, 0.3)):
            progress.pi[h, 1, :2] = 1 - p, p
            progress.effect[h, 1, 1] = rng.normal(size=2)
        samples.totals[1:] = k * task.spec.rho + rng.normal(size=2) * rng.choice([20.0, 500.0])
        wanted = debt(task, progress, samples, k) / (10 * task.table.block(k))
        pi = steered(task, progress, samples, k)
        Policy.of(cmdp, pi)

        def left(x, y, wanted=wanted, effect=progress.effect):
            gained = np.multiply.outer(x - 0.4, effect[0, 1, 1]) + np.multiply.outer(y - 0.3, effect[2, 1, 1])
            short = wanted - gained
            return (np.maximum(short, 0) + 0.01 * np.maximum(-short, 0)).sum(axis=-1)

        x, y = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
        mine = left(pi[0, 1, 1], pi[2, 1, 1])
        exact += mine < 1e-9
        assert mine <= left(x, y).min() + 1e-9
    assert 5 < exact < 55
