"""CL-PRI with counts: what it remembers, what it concludes from that, and what it hands over."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit import CMDP, envs, evaluate
from cmdpkit.estimate.counts import (
    count_episode,
    new_counts,
    new_episode,
    signal_means,
    transitions,
    with_room,
)
from cmdpkit.estimate.errors import Evidence, evidence, plan_errors
from cmdpkit.estimate.halves import contradictions
from cmdpkit.estimate.model import Model, best_plan, model_of
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.cl_pri.counts import WithCounts
from cmdpkit.learners.cl_pri.counts.deviations import _rarity
from cmdpkit.learners.cl_pri.counts.plans import expected_gain, worth_trying
from cmdpkit.learners.cl_pri.counts.play import act, block_of, tries_of
from cmdpkit.learners.cl_pri.counts.steer import control, controls_of, steered
from cmdpkit.simulate.random import stream

pytestmark = pytest.mark.compiled


def remembered(T, H=4, S=5, A=2, M=2, episodes=60, seed=3):
    """A memory of random episodes, and the episodes."""
    rng = np.random.default_rng(seed)
    memory, tape, seen = new_counts(T, S, A, M), new_episode(H, M), []
    for _ in range(episodes):
        tape.states[:], tape.actions[:] = rng.integers(S, size=H), rng.integers(A, size=H)
        tape.signals[:] = rng.random((H, M))
        memory = with_room(memory, H)
        count_episode(memory, tape, A)
        seen.append((tape.states.copy(), tape.actions.copy(), tape.signals.copy()))
    return memory, seen


@pytest.mark.parametrize("T", [1, 4])
def test_the_estimated_kernel_and_signals_are_the_frequencies_of_what_was_seen(T):
    H, S, A, M = 4, 5, 2, 2
    memory, seen = remembered(T)
    counts, sums, visits = np.zeros((T, S, A, S)), np.zeros((T, S, A, M)), np.zeros((T, S, A))
    for states, actions, signals in seen:
        for h in range(H):
            t = h % T
            sums[t, states[h], actions[h]] += signals[h]
            visits[t, states[h], actions[h]] += 1
            if h + 1 < H:  # what follows the last step is not seen
                counts[t, states[h], actions[h], states[h + 1]] += 1
    known = counts.sum(axis=-1) > 0
    found = transitions(memory, T, A).dense(T) if T > 1 else transitions(memory, T, A).dense(1)
    np.testing.assert_allclose(found[known], counts[known] / counts[known].sum(axis=-1, keepdims=True), rtol=1e-14)
    means = signal_means(memory, M).reshape(T, S, A, M)
    np.testing.assert_allclose(means, sums / np.maximum(visits, 1)[..., None], rtol=1e-12)
    assert memory.starts.sum() == len(seen) and memory.moves.sum() == (H - 1) * len(seen)


def learned(cmdp, episodes, seed=1):
    """A learner that has explored a model for a while, and its estimate."""
    learner = WithCounts(Spec.of(cmdp, 10**6))
    learner.run(Source.of(cmdp), stream(seed), episodes)
    return learner, model_of(learner.memory, learner.spec.rho, learner.spec.allowed, 1)


def test_advantages_in_the_estimated_model_are_those_of_a_policy_that_deviates_once():
    cmdp = envs.build("random", S=5, A=3, H=4, N=1, stationary=True, seed=2)
    learner, model = learned(cmdp, 400)
    plan = best_plan(model, learner.spec.rho)
    found = evidence(model, plan.pi, plan.prices)
    start = evaluate(model.cmdp, ck.Policy(plan.pi))
    for h, s, a in [(0, int(np.argmax(found.reach[0])), 1), (2, int(np.argmax(found.reach[2])), 2)]:
        if not model.tried[h, s, a]:
            continue
        other = plan.pi.copy()
        other[h, s] = np.eye(3)[a]
        moved = evaluate(model.cmdp, ck.Policy(other))
        gained = moved.v - start.v + plan.prices @ (moved.w - start.w)
        np.testing.assert_allclose(found.reach[h, s] * found.advantage[h, s, a], gained, atol=1e-12)
        np.testing.assert_allclose(found.reach[h, s] * found.effect[:, h, s, a], moved.w - start.w, atol=1e-12)


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
        learner = WithCounts(Spec.of(cmdp, 10**6))
        learner.clock.explored, learner.clock.block_end, learner.clock.plan_end = 0, 10**6, 10**6
        learner.playing[...] = pi
        learner.run(Source.of(cmdp), stream(seed), 300)
        model = model_of(learner.memory, learner.spec.rho, learner.spec.allowed, 1)
        predictions.append(evaluate(model.cmdp, ck.Policy(pi)).w[0])
        claims.append(plan_errors(model, pi)[0] ** 2)
    assert 0.55 < np.mean(claims) / np.var(predictions, ddof=1) < 1.8


def test_the_gain_that_is_expected_of_an_action_is_the_mean_of_its_positive_part():
    """By integration over a grid of ten standard errors to either side; without error it is the advantage itself."""
    x = np.linspace(-10, 10, 200_001)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    for advantage, error in ((0.3, 0.2), (-0.3, 0.2), (-1.0, 0.25), (0.0, 0.1)):
        expected = (np.maximum(advantage + error * x, 0) * density).sum()
        assert expected_gain(np.array(advantage), np.array(error)) == pytest.approx(expected, rel=1e-6)
    assert expected_gain(np.array([0.5, -0.5]), np.zeros(2)).tolist() == [0.5, 0.0]


def test_rare_states_get_more_deviations_and_all_together_at_most_twice_as_many():
    rng = np.random.default_rng(2)
    reach = rng.dirichlet(np.full(8, 0.1), 5)
    factor = _rarity(reach, 5)
    order = np.argsort(reach, axis=1)
    assert np.all(np.diff(np.take_along_axis(factor, order, 1), axis=1) <= 0) and factor.min() >= 1
    assert np.all((reach * factor).sum(axis=1) <= 2) and factor.max() > 10
    np.testing.assert_array_equal(_rarity(reach, 1), np.tile(_rarity(reach.mean(axis=0)[None], 1), (5, 1)))


def test_a_block_deviates_with_the_chance_of_each_state_and_only_where_there_is_something_to_try():
    """Of 20,000 actions that are drawn, shares are within 5 standard errors of what the weights say."""
    pi = np.array([[[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]])
    explore = np.array([[[False, True, False, True], [False, False, False, False]]])
    weights = np.array([[[9.0, 3.0, 9.0, 1.0], [1.0, 1.0, 1.0, 1.0]]])
    block = block_of(pi, tries_of(explore, weights), np.array([[0.4, 0.3]]))
    np.testing.assert_allclose(block.pi, [[0.6, 0.3, 0.0, 0.1], [0.5, 0.5, 0.0, 0.0]])
    assert block.coin.tolist() == [0.4, 0.0]
    rng = stream(3)
    for s in (0, 1):
        drawn = np.bincount([act(block, 0, s, 2, rng) for _ in range(20_000)], minlength=4) / 20_000
        np.testing.assert_allclose(drawn, block.pi[s], atol=5 * np.sqrt(0.25 / 20_000))
        assert not drawn[block.pi[s] == 0].any()


def long_search(reach, advantage, error, seen, left=10**6):
    """What is worth trying in one step, if all that is known of the actions [S, A] is this."""
    S, A = advantage.shape
    cmdp = CMDP(np.full((1, S, A, S), 1 / S), np.zeros((1, S, A)), np.zeros((0, 1, S, A)), [])
    model = Model(cmdp, None, np.ones((1, S, A), bool), np.ones((1, S), bool), np.zeros(0, bool))
    found = Evidence(advantage[None], error[None], reach[None], np.zeros((0, 1, S, A)), np.zeros((1, 1, 1)))
    return worth_trying(model, found, seen[None], reach[None], left, noise=1.0, z=4.0, long=True)


def test_in_a_long_run_cheap_and_open_actions_cost_least_and_rare_states_are_searched_at_a_bounded_price():
    """With 1e6 episodes left: in the state reached once in 1e6 every action is tried, in the usual one only open ones.

    All tries in rare states together cost at most a fifth of the noise of the episodes left, sqrt(1e6).
    """
    reach = np.array([1 - 1e-6, 1e-6])
    advantage = np.array([[0.0, -0.004, -0.004, -0.8], [0.0, -0.5, -0.5, -0.5]])
    error = np.array([[0.001, 0.004, 0.0004, 0.1], [0.2, 0.2, 0.2, 0.2]])
    seen = np.array([[1e5, 1e4, 1e6, 50.0], [3.0, 2.0, 1.0, 0.0]])
    chosen = long_search(reach, advantage, error, seen)
    assert chosen.worth[0, 0].tolist() == [True, True, False, False] and chosen.worth[0, 1].all()
    assert chosen.rare[0].tolist() == [[False] * 4, [True] * 4]
    assert (
        chosen.loss[0, 0, 1] < 0.01 < chosen.loss[0, 0, 2]
    )  # equally good, but of the second nothing is left to learn
    tries = np.random.default_rng(1).dirichlet(np.full(50, 0.05))
    everywhere = long_search(tries, np.full((50, 2), -0.3), np.full((50, 2), 0.3), np.full((50, 2), 4.0))
    assert 0 < (everywhere.rare[0, :, 1] * tries * 0.3 * 1e6).sum() <= 0.2 * 1e3


def test_steering_changes_the_utilities_by_what_is_wanted_and_stays_a_policy():
    cmdp = envs.build("random", S=5, A=3, H=4, N=2, stationary=True, conflict=0.5, seed=4)
    learner, model = learned(cmdp, 800)
    plan = best_plan(model, learner.spec.rho)
    found = evidence(model, plan.pi, plan.prices)
    effect = found.reach[None, :, :, None] * found.effect
    drawn = ((plan.pi > 0) & (found.reach > 0)[..., None]).sum(axis=-1) > 1
    if not drawn.any():
        pytest.fail("the plan of this problem draws somewhere; choose another seed")
    active = plan.prices > 1e-6
    wanted = np.where(active, 0.1 * control(plan.pi, effect), 0.0)
    changed = steered(plan.pi, controls_of(plan.pi, effect, plan.prices), wanted)
    np.testing.assert_allclose(changed.sum(axis=-1), 1.0, atol=1e-12)
    assert changed.min() >= 0 and not (changed > 0)[plan.pi == 0].any()
    first_order = (effect * (changed - plan.pi)).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(first_order[active], wanted[active], atol=1e-9)


@pytest.mark.long
def test_a_world_that_depends_on_the_step_is_noticed_and_one_that_does_not_is_not():
    P = np.zeros((4, 2, 2, 2))
    P[:2, :, :, 0], P[2:, :, :, 1] = 1.0, 1.0  # two steps lead to the first state, two to the second
    changing = CMDP(P, np.zeros((2, 2)), horizon=4)
    spec = Spec.of(changing, 2000)
    learner = WithCounts(Spec(spec.H, spec.S, spec.A, spec.K, spec.rho, spec.allowed, stationary=True))
    learner.run(Source.of(changing), stream(1), 2000)
    assert contradictions(learner.memory.halves) > 0
    assert any("depend on the step" in note for note in learner.warnings())
    for seed in range(5):
        still = WithCounts(Spec.of(envs.build("random", S=6, A=3, H=8, N=1, stationary=True, seed=seed), 3000))
        still.run(Source.of(envs.build("random", S=6, A=3, H=8, N=1, stationary=True, seed=seed)), stream(seed), 3000)
        assert contradictions(still.memory.halves) == 0


def test_a_half_that_misses_an_outcome_by_chance_is_no_contradiction_and_halves_that_differ_are_one():
    """Cells with an outcome of probability 0.15 that were seen 33 times in one half and 588 times in the other.

    All 33 are alike in one of 200 cells, and with a variance of its own for each half, that looks like certainty: one
    in eleven tables of 20 cells would be a false alarm. One in 10,000 is promised, so that two or more alarms in 1,000
    tables have a probability of 0.005.
    """
    rng, steps = np.random.default_rng(7), np.array([33, 588])

    def table(p):
        seen, zeros = rng.binomial(steps, p, (20, 2)).astype(float), np.zeros((20, 2))
        return np.stack((np.broadcast_to(steps, (20, 2)), seen, seen, zeros, zeros), axis=-1)

    assert sum(contradictions(table(0.15)) > 0 for _ in range(1000)) <= 1
    assert contradictions(table([0.1, 0.9])) == 20


def test_counts_are_shared_where_the_model_is_stationary_and_only_there():
    assert WithCounts(Spec.of(envs.build("inventory"), 100)).T == 1
    assert WithCounts(Spec.of(envs.build("paper/synthetic"), 100)).T == 3


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


@pytest.mark.parametrize("memory", ["none", "counts"])
def test_the_parameter_memory_is_refused_with_the_new_name(memory):
    with pytest.raises(ck.CmdpkitError, match=f"memory is '{memory}', but cl-pri has no such parameter.*mf-pri"):
        ck.learn("paper/synthetic", "cl-pri", episodes=100, memory=memory)


@pytest.mark.long
def test_a_certificate_that_is_asked_for_says_that_the_bounds_are_kept():
    run = ck.learn("paper/synthetic", "cl-pri", episodes=40_000, seed=3, certified=True)
    assert run.certificate.safe == (True,) and run.policy_utilities[0] > 2
