"""Algorithms from the literature for long-run averages: their parts by hand, and the extended program against an LP."""

import math

import numpy as np
import pytest
from box_oracle import Sides, point
from scipy import sparse
from scipy.optimize import linprog

import cmdpkit as ck
from cmdpkit.estimate.continuing import box_around, cautious_model
from cmdpkit.exact.stationary.problem import ComponentRows, walk_to
from cmdpkit.learners import Spec, load
from cmdpkit.learners._continuing import planned
from cmdpkit.learners.ucrl_cmdp import optimistic_model
from cmdpkit.operators.chains import stationary_values
from cmdpkit.operators.row_lists import matrix_of
from cmdpkit.simulate.meter import Walk
from cmdpkit.simulate.random import stream
from counted import dense_moves, let_see, seen

pytestmark = pytest.mark.compiled


def frequencies(learner):
    """[S, A, S], how often each transition followed; alike for all states where nothing was seen."""
    moves = dense_moves(learner.counts, learner.spec.A)[0]
    moved = moves.sum(axis=2, keepdims=True)
    return np.where(moved > 0, moves / np.maximum(moved, 1), 1 / learner.spec.S)


def after(name, env, steps, **params):
    """A learner after so many steps in an environment, and its world."""
    cmdp = ck.load(env)
    learner, walk, rng = load(name)(Spec.of(cmdp, steps, None), **params), Walk.of(cmdp), stream(2)
    learner.walk(walk, rng, steps)
    return learner, walk, rng


# -- the extended program ----------------------------------------------------------------------------------------------


def extended_lp(lo, up, signals, rho, allowed, *, reach=False):
    """The largest <z, r> with <z, g> >= rho, or the largest t with <z, g> >= rho + t; None if there is none.

    Variables z[s, a, s'] and t, straight from the definition.
    """
    S, A, _ = lo.shape
    z = np.arange(S * A * S).reshape(S, A, S)
    size = z.size + 1
    equal, right = [np.append(np.ones(z.size), 0.0)], [1.0]
    below, most = [], []
    for s in range(S):
        row = np.zeros(size)
        row[z[s].ravel()] += 1
        row[z[:, :, s].ravel()] -= 1
        equal.append(row)
        right.append(0.0)
    for s, a in np.ndindex(S, A):
        for t in range(S):
            for sign, side in ((1, up), (-1, lo)):
                row = np.zeros(size)
                row[z[s, a]] -= sign * side[s, a, t]
                row[z[s, a, t]] += sign
                below.append(row)
                most.append(0.0)
    for g, bound in zip(signals[1:], rho, strict=True):
        below.append(np.append(-np.repeat(g.ravel(), S), 1.0 if reach else 0.0))
        most.append(-bound)
    cost = np.zeros(size)
    cost[:-1] = 0.0 if reach else -np.repeat(signals[0].ravel(), S)
    cost[-1] = -1.0 if reach else 0.0
    limits = [(0, None if allowed[s, a] else 0) for s, a in np.ndindex(S, A) for _ in range(S)]
    limits.append((None, None) if reach else (0, 0))
    found = linprog(cost, np.array(below), most, np.array(equal), right, limits)
    return -found.fun if found.status == 0 else None


@pytest.mark.parametrize("N", [0, 1, 2])
def test_the_extended_program_by_columns_agrees_with_the_same_program_written_out(N):
    rng = np.random.default_rng(N)
    infeasible = 0
    for _ in range(8):
        S, A = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        p = rng.dirichlet(np.full(S, 0.4), (S, A))
        radius = rng.random((S, A, 1)) * rng.choice([0.02, 0.4])
        lo, up = np.maximum(p - radius, 0), np.minimum(p + radius, 1)
        signals, allowed = rng.random((1 + N, S, A)), rng.random((S, A)) < 0.8
        allowed[:, 0] = True
        rho = rng.uniform(0.3, 0.8, N)
        start = np.eye(S)[0]
        model = optimistic_model(Sides(lo[None], up[None], start, start).boxed(1), signals, rho, allowed)
        kernel = matrix_of(model.rows, S).toarray()
        kernel = kernel.reshape(S, A, S)
        assert (kernel >= lo - 1e-12).all() and (kernel <= up + 1e-12).all()
        np.testing.assert_allclose(kernel.sum(axis=2), 1)
        best = extended_lp(lo, up, signals, rho, allowed)
        reach = best is None
        infeasible += reach
        if reach:
            best = extended_lp(lo, up, signals, rho, allowed, reach=True)
        # With the kernel that was chosen, policies alone reach what pairs of a policy and a kernel can reach.
        # The bounds are relaxed a little, as a kernel that meets them to rounding need not do so for another program.
        assert extended_lp(kernel, kernel, signals, rho - 1e-7, allowed, reach=reach) == pytest.approx(best, abs=5e-6)
    assert N == 0 or 0 < infeasible < 8


def test_where_the_box_is_a_point_the_plan_is_the_exact_optimum():
    cmdp = ck.load("machine")
    P = cmdp.kernel.dense(1)[0]
    spec = Spec.of(cmdp, 10)
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    tables = (cmdp.compact.r[0], *cmdp.compact.g[:, 0])
    signals = np.array([(x - scale.low) / scale.span for x, scale in zip(tables, scales, strict=True)])
    model = optimistic_model(point(P[None], np.eye(cmdp.S)[0]).boxed(1), signals, spec.rho, spec.allowed[0])
    found = planned(model, spec.rho)
    v, w = stationary_values(cmdp, found.pi)
    assert found.feasible and v == pytest.approx(0.506361775619, abs=1e-6)  # the published optimum, see its page
    assert w[0] == pytest.approx(0.88, abs=1e-7)


def test_states_without_a_plan_walk_to_it_by_the_action_that_most_probably_leads_nearer():
    # State 1 may go to 0 with 0.001, 0.6 or 0.4; state 2 reaches it through 1, with 0.3 or 0.2.
    P = [[1, 0, 0], [0.001, 0.999, 0], [0.6, 0.4, 0], [0.4, 0.6, 0], [0, 0.3, 0.7], [0, 0.2, 0.8]]
    rows = ComponentRows.of(sparse.csr_array(np.array(P)), np.array([0, 1, 1, 1, 2, 2]), np.arange(6))
    assert walk_to(rows, np.array([True, False, False])).tolist() == [-1, 2, 4]


# -- boxes -------------------------------------------------------------------------------------------------------------


def spec_of(S, A, **others):
    return Spec(1, S, A, 100, np.zeros(0), np.ones((1, S, A), dtype=bool), True, **{"criterion": "average", **others})


def test_a_pair_leads_where_it_has_led_to_once_it_was_tried_a_few_times():
    spec = spec_of(3, 2)
    counts = seen(spec, [[[6, 2, 0], [1, 0, 0]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 9], [5, 0, 0]]], state=1)
    box = Sides.of(box_around(counts, lambda p, row: np.full(len(p), 0.1), 5))
    may = box.up[0] > 0
    assert may[0].tolist() == [[True, True, False], [True, True, True]]  # the second action was tried once
    assert may[1].all() and may[2].tolist() == [[False, False, True], [True, False, False]]
    np.testing.assert_allclose(box.lo[0, 0], [[0.65, 0.15, 0], [0.9, 0, 0]])
    np.testing.assert_allclose(box.up[0, 0], [[0.85, 0.35, 0], [1, 0.1, 0.1]])
    assert (box.lo[0, 1] == 0).all() and (box.up[0, 1] == 1).all()  # nothing was seen: anything is possible
    assert box.start_lo.tolist() == box.start_up.tolist() == [0, 1, 0]  # the present state


def test_a_world_that_restarts_has_the_box_of_the_mixed_kernel():
    spec = spec_of(2, 1, criterion="discounted", restart=0.2)
    counts = seen(spec, [[[1, 3]], [[0, 4]]], starts=[3, 1])
    box = Sides.of(box_around(counts, lambda p, row: np.full(len(p), 0.05), 1))
    np.testing.assert_allclose(box.lo[0, 0, 0], [0.8 * 0.20 + 0.2 * 0.75, 0.8 * 0.70 + 0.2 * 0.25])
    np.testing.assert_allclose(box.up[0, 0, 0], [0.8 * 0.30 + 0.2 * 0.75, 0.8 * 0.80 + 0.2 * 0.25])


# -- C-UCRL ------------------------------------------------------------------------------------------------------------


def test_episode_k_of_c_ucrl_has_k_times_h_steps_of_which_the_first_h_explore():
    """Algorithm 1 of the paper: h exploring steps, then (k - 1) h of the plan; the first episode only explores."""
    cmdp = ck.load("machine-two")
    learner, walk, rng = load("c-ucrl")(Spec.of(cmdp, 200), explore=5), Walk.of(cmdp), stream(1)
    uniform = learner.behaviour()[0]
    explored = []
    for _ in range(5 + 10 + 15 + 20 + 5):
        learner.walk(walk, rng, 0)
        explored.append(np.array_equal(learner.behaviour()[0], uniform))
        learner.walk(walk, rng, 1)
    assert explored == [True] * 10 + [False] * 5 + [True] * 5 + [False] * 10 + [True] * 5 + [False] * 15 + [True] * 5
    assert learner.internals()["episodes"] == 5


def test_the_plausible_set_of_c_ucrl_fails_as_seldom_as_the_paper_says():
    learner, _, _ = after("c-ucrl", "machine-two", 90, preset="theory", delta=0.2)
    b, n = learner.bonus(), learner.seen().visits
    usable = learner.spec.allowed[0]
    assert n[usable].min() > 0
    # Hoeffding: a mean of n signals errs by more than b with probability 2 exp(-2 n b^2); there are two signals, S A
    # pairs (those that are not allowed included) and 90 possible numbers of visits.
    fails = 2 * np.exp(-2 * n[usable] * b[usable] ** 2) * 2 * learner.spec.S * learner.spec.A * 90
    np.testing.assert_allclose(fails, 6 * 0.2 / (math.pi**2 * 90**2))


def test_c_ucrl_hands_over_a_policy_that_meets_its_bounds_if_utilities_are_as_bad_as_plausible():
    learner, _, _ = after("c-ucrl", "machine-two", 1000, width=0.1)
    pi = learner.recommend()[0]
    chain = np.einsum("sa,sat->st", pi, frequencies(learner))
    shares = np.linalg.matrix_power(chain, 1000)[0]
    mean = learner.seen().means[1]
    worst = np.where(pi > 0, np.clip(mean - learner.bonus(), 0, 1), 0.0)
    assert shares @ (pi * worst).sum(axis=1) == pytest.approx(0.85, abs=1e-9)
    assert shares @ (pi * mean).sum(axis=1) > 0.86


# -- Triple-QA ---------------------------------------------------------------------------------------------------------


def two_steps(**params):
    """Triple-QA in a model of one state and two actions, bound 0.5 per step; values begin at H = 10."""
    defaults = {"horizon": 10, "frame": 4, "chi": 1, "eta": 2, "eps": 0.1, "bonus": 0, "keep": 0.5, "lift": 0.1}
    spec = Spec(1, 1, 2, 8, np.array([0.5]), np.ones((1, 1, 2), dtype=bool), True, criterion="average")
    return load("triple-qa")(spec, **(defaults | params))


def test_triple_qa_learns_one_step_as_computed_by_hand():
    learner, rng = two_steps(), stream(1)
    assert learner.first(0, rng) == 0
    # First visit: rate (1 + 1) / (1 + 1) = 1, so the value becomes 0.5 + 0.9 * 10 = 9.5 and the utility 0 + 9 = 9.
    assert learner.next(np.array([0.5, 0.0]), 0, rng) == 0  # chosen before the update, as in SARSA
    np.testing.assert_allclose(learner.learned.values[0], [[9.5, 9.0], [10, 10]])
    # Second visit, before action 1: rate 2/3 and target 1 + 0.9 * 10 = 10 for both, so 9.5 + 2/3 * 0.5 and 9 + 2/3.
    assert learner.next(np.array([1.0, 1.0]), 0, rng) == 1
    np.testing.assert_allclose(learner.learned.values[0], [[9.5 + 1 / 3, 9 + 2 / 3], [10, 10]])


def test_triple_qa_moves_queues_and_lifts_values_at_the_end_of_a_frame():
    learner, rng = two_steps(), stream(1)
    learner.first(0, rng)
    for _ in range(4):
        learner.next(np.array([1.0, 0.25]), 0, rng)
    assert learner.learned.queue[0] == pytest.approx(0.5 + 0.1 - 0.25)
    assert learner.multipliers[0] == pytest.approx(0.175)
    assert learner.learned.visits.sum() == 2.0  # half of four
    # Rewards of 1 leave the value at 10, which is the most there is; utilities are raised by 0.1 * 10 * (1 - 4 / 8).
    before = two_steps(lift=0.0)
    before.first(0, rng)
    for _ in range(4):
        before.next(np.array([1.0, 0.25]), 0, rng)
    lifted = np.minimum(before.learned.values + 0.5, 10.0)
    np.testing.assert_allclose(learner.learned.values, lifted)
    assert lifted[0, 0, 1] < 10 and (lifted[0, :, 0] == 10).all()


def test_copies_of_triple_qa_never_rise_within_a_frame_and_drive_its_queues():
    learner, rng = two_steps(monotone=True, estimated=True, frame=3, eps=0.5, lift=np.inf, keep=0.0), stream(1)
    learner.first(0, rng)
    learner.next(np.array([0.5, 0.0]), 0, rng)
    assert learner.learned.copies[0, 0].tolist() == [9.5, 9.0]
    learner.next(np.array([1.0, 1.0]), 0, rng)  # both would rise
    assert learner.learned.copies[0, 0].tolist() == [9.5, 9.0] and learner.learned.values[0, 0, 0] > 9.5
    learner.next(np.array([1.0, 1.0]), 0, rng)
    # The frame had C^ / H of action 0 twice (10, then 9) and of action 1 once (10).
    assert learner.learned.queue[0] == pytest.approx(1.0 - (1.0 + 0.9 + 1.0) / 3)
    assert (learner.learned.values == 10).all() and (learner.learned.visits == 0).all()


def test_the_theory_of_triple_qa_names_vacuous_constants():
    cmdp = ck.load("machine-two")
    learner = load("triple-qa")(Spec.of(cmdp, 10**6), preset="theory")
    p, iota = learner.params, 8 * math.log(math.sqrt(2) * 10**6)
    assert (p.horizon, p.eta, p.chi) == pytest.approx((10, 10, 100)) and p.frame in (10_000, 10_001)
    assert p.eps == pytest.approx(9 * math.sqrt(6 * iota)) and p.bonus == pytest.approx(10 * math.sqrt(iota))
    assert any("tightened by 235" in note for note in learner.notes)
    assert load("triple-qa")(Spec.of(cmdp, 10**6)).notes == ()


# -- UCRL-CMDP and Chen-Jain-Luo ---------------------------------------------------------------------------------------


def test_the_theory_of_ucrl_cmdp_plans_at_fixed_intervals():
    learner, _, _ = after("ucrl-cmdp", "machine-two", 64, preset="theory")
    assert (
        learner.internals()["plans"] == 64 // 4 + 1
    )  # epochs of 64^(1/3) = 4 steps, and one that begins after the last


def test_ucrl_cmdp_believes_in_the_best_kernel_of_its_box():
    # Two states, and what leads from 0 to 1 is not known well: 5 of 20 tries. Only 1 pays. With a wide radius the
    # plan tries action 0; if the radius is 0, it takes the other action, which is known to lead there with 0.3.
    spec = Spec(1, 2, 2, 1000, np.zeros(0), np.ones((1, 2, 2), dtype=bool), True, criterion="average")
    for c, action in ((0.0, 1), (0.02, 0)):
        learner = load("ucrl-cmdp")(spec, c=c)
        let_see(learner, [[[15, 5], [1400, 600]], [[1000, 0], [1000, 0]]], [[0, 0], [1000, 1000]])
        learner.position.clock[0] = 4020
        learner.decide(stream(1))
        # eps is sqrt(0.02 (2 log 4020 + log 4) / 20) = 0.13 for action 0, and 0.013 for action 1: 0.38 > 0.313.
        assert learner.behaviour()[0, 0].argmax() == action


def test_the_policies_of_a_segment_are_played_in_turn():
    cmdp = ck.load("machine")
    learner, walk, rng = load("chen-jain-luo")(Spec.of(cmdp, 3000), segment=7), Walk.of(cmdp), stream(3)
    learner.walk(walk, rng, 1400)
    differs = 0
    for t in range(70):
        s, a = walk.place
        assert learner.pi.shape == (7, cmdp.S, cmdp.A) and learner.pi[t % 7, s, a] > 0
        assert np.array_equal(learner.behaviour()[0], learner.pi[t % 7])
        differs += (learner.pi != learner.pi[0]).any()
        learner.walk(walk, rng, 1)
    assert differs > 0  # near the end of a segment other actions are best


def test_a_segment_is_planned_for_its_own_bounds_from_the_present_state():
    learner, walk, _ = after("chen-jain-luo", "machine-two", 7000, segment=7, c=0.0, replan=0.0, gap=0.0)
    cmdp, spec = ck.load("machine-two"), learner.spec
    p, r, g = frequencies(learner), cmdp.compact.r[0], cmdp.compact.g[0, 0]
    mean = ck.CMDP(p, r, g, 7 * 0.85, horizon=7, mu=int(walk.place[0]), actions=spec.allowed[0])
    # The optimum of the same problem with a horizon, by the exact solver, in the model of the observed frequencies.
    found = ck.evaluate(mean, ck.Policy.of(mean, learner.pi))
    assert found.v == pytest.approx(ck.solve(mean).value, abs=1e-6) and found.w[0] >= 7 * 0.85 - 1e-6


def test_a_segment_is_played_by_the_last_plan_from_its_state_until_counting_has_made_that_one_surer():
    learner, _, rng = after("chen-jain-luo", "machine-two", 3000)
    counts, steps, visits = learner.counts, learner.steps, learner.counts.visits.copy()

    def makes_a_plan(s):
        before = learner.plans
        learner.position.place[0] = s
        learner.decide(rng)
        return learner.plans > before

    learner.kept.start[...] = -1
    assert makes_a_plan(0) and makes_a_plan(1), "there is none yet"
    last = learner.pi.copy()
    assert not makes_a_plan(0)
    assert not makes_a_plan(1) and np.array_equal(learner.pi, last)
    counts.visits[...] = 1.03 * visits  # the error of a plan falls to 1 / sqrt(1.03) = 0.985 of what it was,
    assert not makes_a_plan(0)
    counts.visits[...] = 1.06 * visits  # and to 0.971, which is less than 0.98
    assert makes_a_plan(0) and not makes_a_plan(0) and makes_a_plan(1)
    learner.position.clock[0] = 2 * steps
    assert makes_a_plan(0) and not makes_a_plan(0), "at the latest when the number of steps has doubled"


def test_theory_plans_every_segment():
    learner, _, _ = after("chen-jain-luo", "machine-two", 600, preset="theory")
    assert learner.plans == math.ceil(600 / learner.params.segment) + (600 % learner.params.segment == 0)


# -- what is returned -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cmdp-psrl", "ucrl-cmdp", "chen-jain-luo"])
def test_a_policy_that_is_handed_over_does_not_rely_on_a_few_lucky_tries(name):
    # Only state 0 pays. Action 0 leads to either state, as 10,000 tries have shown. Action 1 was tried twice in state 0
    # and stayed there: a model that believes this would stay in state 0 forever.
    spec = Spec(1, 2, 2, 1000, np.zeros(0), np.ones((1, 2, 2), dtype=bool), True, criterion="average")
    learner = load(name)(spec)
    let_see(learner, [[[5000, 5000], [2, 0]], [[5000, 5000], [0, 2]]], [[10_000, 2], [0, 0]])
    assert learner.recommend()[0, 0] == pytest.approx([1.0, 0.0])


def test_a_policy_that_is_handed_over_leaves_bad_states_by_ways_that_were_seen():
    # State 0 pays 0.9. In state 1, action 0 pays 0.895 and was never seen to leave; action 1 pays nothing and leaves
    # after two steps. If action 0 left after 182 steps, as the cautious model says, it would be the better way.
    spec = Spec(1, 2, 2, 1000, np.zeros(0), np.ones((1, 2, 2), dtype=bool), True, criterion="average")
    learner = load("cmdp-psrl")(spec)
    let_see(learner, [[[9999, 1], [9999, 1]], [[0, 90], [45, 45]]], [[9000, 9000], [80.55, 0]])
    assert planned(cautious_model(learner.seen(), 100), spec.rho).pi[1] == pytest.approx([1.0, 0.0])
    assert learner.recommend()[0, 1] == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("back", [0, 1])
def test_a_policy_that_may_end_in_one_of_several_places_is_warned_of(back):
    # From state 0, where the run began, the only action leads to state 1 or 2, which were never left, or left once.
    spec = Spec(1, 3, 1, 1000, np.zeros(0), np.ones((1, 3, 1), dtype=bool), True, criterion="average")
    learner = load("cmdp-psrl")(spec)
    assert learner.warnings() == (), "nothing was seen yet"
    let_see(learner, [[[0, 1, 1]], [[0, 9, back]], [[0, back, 9]]], state=1)
    assert ["one of 2 sets of states" in x for x in learner.warnings()] == ([] if back else [True])
