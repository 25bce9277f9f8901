"""The policy to hand over: its margin, and whether the margin moves it away from the support of the best plan."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from cmdpkit import CMDP, envs
from cmdpkit.estimate.errors import plan_errors
from cmdpkit.estimate.margins import (
    HALVINGS,
    MISSED,
    WIDEST,
    Quantiles,
    _keeping_support,
    balanced_plan,
    covering_plan,
)
from cmdpkit.estimate.model import best_plan, model_of
from cmdpkit.estimate.quantiles import different_columns
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.cl_pri.counts import WithCounts
from cmdpkit.learners.cl_pri.counts.plans import largest_margin_error
from cmdpkit.model.evaluate import flow
from cmdpkit.simulate.random import stream

pytestmark = pytest.mark.compiled

LEAST, FULL = 1.5, 4.0  # standard errors


def watched(cmdp, episodes, seed=1):
    """A learner that has seen so many episodes of the uniform policy, and the model that they suggest."""
    learner = WithCounts(Spec.of(cmdp, 10**6))
    learner.clock.explored, learner.clock.block_end, learner.clock.plan_end = 0, 10**6, 10**6
    learner.run(Source.of(cmdp), stream(seed), episodes)
    return learner, model_of(learner.memory, learner.spec.rho, learner.spec.allowed, 1)


def used(model, pi):
    return flow(model.cmdp, pi, np.zeros(pi.shape[:2]), model.cmdp.mu) > 0


def widest(model, rho, errors, support):
    """The largest z for which flows inside the support clear the bounds by z errors: a linear program of SciPy's."""
    cmdp = model.cmdp
    H, S, A = support.shape
    P, g = np.broadcast_to(cmdp.P, (H, S, A, S)), np.broadcast_to(cmdp.g, (cmdp.N, H, S, A))
    flows, right = np.zeros((H * S, H * S * A + 1)), np.zeros(H * S)
    right[:S] = cmdp.mu
    for h in range(H):
        for s in range(S):
            flows[h * S + s, (h * S + s) * A : (h * S + s + 1) * A] = 1
            if h:
                flows[h * S + s, (h - 1) * S * A : h * S * A] = -P[h - 1, :, :, s].ravel()
    bounds = np.column_stack((-g.reshape(cmdp.N, -1), errors))
    limits = [(0, None if x else 0) for x in support.ravel()] + [(None, None)]
    goal = np.append(np.zeros(H * S * A), -1.0)
    found = linprog(goal, bounds, -rho, flows, right, limits)
    return float(found.x[-1])


def test_the_support_is_kept_where_the_least_margin_allows_it_and_the_margin_is_then_the_widest_there_is():
    """Forty random problems with one constraint; what the support allows is computed by another linear program."""
    kept = given_up = same = 0
    for seed in range(40):
        learner, model = watched(envs.build("random", S=4, A=3, H=3, N=1, conflict=0.5, seed=seed), 400)
        rho, none = learner.spec.rho, np.zeros(1)
        base, free = best_plan(model, rho), covering_plan(model, rho, FULL, np.zeros(1))
        if not base.feasible:
            continue
        found = _keeping_support(model, rho, (LEAST, FULL), none, base, free)
        if np.array_equal(used(model, free.plan.pi), used(model, base.pi)):
            same += 1
            np.testing.assert_array_equal(found.plan.pi, free.plan.pi)
            continue
        if np.array_equal(used(model, found.plan.pi), used(model, base.pi)):
            kept += 1
            assert np.all(found.plan.utilities >= rho + LEAST * plan_errors(model, found.plan.pi) / 1.02)
            allowed = widest(model, rho, found.margin, used(model, base.pi))
            step = (FULL - LEAST) / 2 ** (HALVINGS - 1)  # how finely the width of the margin is searched for
            full = np.all(found.margin >= (FULL - step) * plan_errors(model, base.pi))
            assert allowed >= 1 - 1e-6 and (full or allowed <= 1 + step / LEAST)
            assert found.plan.value >= free.plan.value and not found.uncovered.any()
        else:
            given_up += 1
            np.testing.assert_array_equal(found.plan.pi, free.plan.pi)
            allowed = widest(model, rho, plan_errors(model, base.pi), used(model, base.pi))
            assert allowed <= LEAST * 1.1  # the errors of other weights may be a little larger
    assert kept >= 3 and given_up >= 3 and same >= 3


def range_of_values(cmdp):
    """The largest minus the smallest value, by backward induction."""
    most, least = np.zeros(cmdp.S), np.zeros(cmdp.S)
    for h in reversed(range(cmdp.H)):
        most = np.where(cmdp.actions[h], cmdp.r[h] + cmdp.P[h] @ most, -np.inf).max(axis=1)
        least = np.where(cmdp.actions[h], cmdp.r[h] + cmdp.P[h] @ least, np.inf).min(axis=1)
    return cmdp.mu @ (most - least)


def test_the_margin_balances_what_it_costs_and_the_misses_that_it_avoids():
    """Ten random problems: no margin of a fine grid has a smaller sum of lost value and expected cost of a miss."""
    least, wider = 0.5, 0
    for seed in range(10):
        episodes = (300, 3000)[seed % 2]
        learner, model = watched(envs.build("random", S=4, A=3, H=3, N=1, conflict=0.5, seed=seed), episodes)
        rho, none, loss = learner.spec.rho, np.zeros(1), MISSED * range_of_values(model.cmdp)
        if not best_plan(model, rho + 2 * least * plan_errors(model, best_plan(model, rho).pi)).feasible:
            continue
        found = balanced_plan(model, rho, Quantiles(least, WIDEST), none)

        def cost(plan, model=model, rho=rho, loss=loss):
            z = (plan.utilities - rho) / plan_errors(model, plan.pi)
            return loss * float(norm.sf(z[0])) - plan.value, float(z[0])

        lost, z = cost(found.plan)
        grid = (best_plan(model, rho + x) for x in np.linspace(0, WIDEST, 40) * plan_errors(model, found.plan.pi))
        others = [cost(plan) for plan in grid if plan.feasible]
        assert z >= least / 1.03 and not found.uncovered.any()
        assert lost <= min(x for x, other in others if other >= least) + 0.02 * loss
        wider += z > 1.5
    assert wider >= 3


def test_a_margin_is_wider_where_it_is_cheaper_and_what_cannot_be_covered_is_said():
    cmdp = envs.build("random", S=4, A=3, H=3, N=1, conflict=0.5, seed=3)
    clearances = []
    for episodes in (300, 30_000):
        learner, model = watched(cmdp, episodes)
        rho = learner.spec.rho
        found = balanced_plan(model, rho, Quantiles(1.0, WIDEST), np.zeros(1))
        clearances.append((found.plan.utilities - rho) / plan_errors(model, found.plan.pi))
    assert clearances[1] > clearances[0] + 0.3
    most = best_plan(model, np.array([3.0])).utilities  # the best compromise with a bound that nothing can reach
    out_of_reach = most - 0.5 * plan_errors(model, found.plan.pi)
    tight = balanced_plan(model, out_of_reach, Quantiles(3.0, WIDEST), np.zeros(1))
    assert tight.plan.feasible and tight.uncovered[0] > 0
    assert tight.plan.utilities[0] > out_of_reach[0]


def test_copies_of_one_utility_count_once_and_others_do_not():
    one = envs.build("random", S=4, A=3, H=3, N=1, conflict=0.5, seed=1)
    three = envs.build("random", S=4, A=3, H=3, N=3, seed=1)
    copies = CMDP(one.P, one.r, np.repeat(one.g, 3, axis=0), np.array([0.5, 0.5, 0.6]), one.mu)
    for cmdp, expected in ((one, 1), (copies, 1), (three, 3)):
        learner, _ = watched(cmdp, 50)
        assert different_columns(learner.memory.moments[:, 1 : 1 + cmdp.N]) == expected


def test_short_runs_allow_their_margins_less_error_than_long_ones():
    """As the page says: half of delta in the end, a tenth of it with 1,000 episodes."""
    assert largest_margin_error(0.05, 1_000) == pytest.approx(0.005)
    assert [largest_margin_error(0.05, K) for K in (25_000, 10**7)] == [0.025, 0.025]
