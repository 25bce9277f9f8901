"""The safe policy that some algorithms must be told: found in the model, or brought by the user."""

import numpy as np
import pytest

from cmdpkit import CMDP, CmdpkitError, Learner, at_least, at_most, continue_run, envs, evaluate, learn, load, solve
from cmdpkit.model.policy import Policy, one_hot
from cmdpkit.operators.policies import decompose
from cmdpkit.running.gym import GymWorld
from cmdpkit.running.learning import learn_many
from cmdpkit.running.request import known_safe, safest
from cmdpkit.running.worlds import ModelWorld

SAFE = ("dope", "opsrl", "opt-pess-lp")
TOLD = (*SAFE, "opt-dual", "opt-primal-dual", "opdop", "opt-pess-primal-dual")


def unconstrained(cmdp: CMDP, signal: np.ndarray) -> float:
    """The largest total of a signal, by another CMDP that has it for its reward."""
    return solve(CMDP(cmdp.P, signal, mu=cmdp.mu, horizon=cmdp.H, actions=cmdp.actions)).value


def without_model(cmdp: CMDP) -> GymWorld:
    world = GymWorld(cmdp.to_gym())
    world.cmdp = world.solution = None
    return world


@pytest.mark.parametrize("name", ["paper/synthetic", "paper/grid", "random:S=5,A=3,H=4,seed=3"])
def test_with_one_bound_the_safest_policy_maximises_the_utility(name):
    cmdp = load(name)
    w = cmdp.signs * evaluate(cmdp, safest(cmdp)).w
    assert w[0] == pytest.approx(unconstrained(cmdp, cmdp.g[0]), abs=1e-9)


def test_with_two_bounds_it_leaves_the_same_room_at_both_if_they_are_opposed():
    """One state, two actions, one of them good for either bound: the best is a coin."""
    signal = np.array([[1.0, 0.0]])
    bounds = [at_least("left", 0.3, signal), at_least("right", 0.3, 1 - signal)]
    cmdp = CMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), constraints=bounds, horizon=1)
    assert evaluate(cmdp, safest(cmdp)).w == pytest.approx([0.5, 0.5])
    assert known_safe(ModelWorld(cmdp)).slack == pytest.approx(0.2)


def test_a_user_s_baseline_is_told_in_unit_scale_and_in_the_sense_of_a_utility():
    """Costs 2 and 4 at a step, at most 7 in two steps: 6 is 1 within, half a span of 2, of 2 steps."""
    cost = np.array([[2.0, 4.0]])
    cmdp = CMDP(np.ones((1, 2, 1)), cost, constraints=[at_most("cost", 7.0, cost)], horizon=2)
    policy = Policy.of(cmdp, [[[1.0, 0.0]], [[0.0, 1.0]]])
    found = known_safe(ModelWorld(cmdp), policy)
    assert found.slack == pytest.approx(0.5)
    assert found.utility == pytest.approx([1.0])
    same = known_safe(ModelWorld(cmdp), policy, 6.0)
    assert same.digest() == found.digest()
    np.testing.assert_array_equal(found.pi, policy.pi)


@pytest.mark.parametrize("algo", SAFE)
@pytest.mark.parametrize("world", [ModelWorld, lambda cmdp: GymWorld(cmdp.to_gym()), without_model])
def test_a_safe_algorithm_plays_the_policy_it_was_given_until_it_knows_better(algo, world):
    """With theory constants that is forever, so what is earned is the given policy's: 5 sigma, p < 1e-6 a case."""
    cmdp, K = envs.build("paper/synthetic"), 800
    mine = solve(cmdp.with_bounds(utility=2.05)).policy
    w = evaluate(cmdp, mine).w
    run = learn(world(cmdp), algo, episodes=K, preset="theory", baseline=mine, baseline_utility=w)
    assert "told: baseline, baseline_utility of the policy that was given" in run.notes[0]
    np.testing.assert_allclose(run.policy.pi, mine.pi)
    earned = 2.0 - run.final("realised_violation")[0] / K
    assert abs(earned - w[0]) < 5 * 1.5 / np.sqrt(K)
    assert abs(earned - evaluate(cmdp, safest(cmdp)).w[0]) > 1e-3


@pytest.mark.parametrize("algo", TOLD)
def test_an_environment_that_brings_its_model_needs_no_word_from_the_user(algo):
    cmdp = envs.build("paper/synthetic")
    run = learn(GymWorld(cmdp.to_gym()), algo, episodes=30)
    assert "the policy farthest from all bounds" in run.notes[0]
    found, direct = known_safe(GymWorld(cmdp.to_gym())), known_safe(ModelWorld(cmdp))
    np.testing.assert_allclose(found.pi[:, :-1], direct.pi)
    assert found.slack == pytest.approx(direct.slack)


def test_the_key_of_a_run_tells_whose_baseline_it_was():
    cmdp = envs.build("paper/synthetic")
    keys = {learn(cmdp, "dope", episodes=5).run.key}
    for bound in (2.03, 2.05):
        keys.add(learn(cmdp, "dope", episodes=5, baseline=solve(cmdp.with_bounds(utility=bound)).policy).run.key)
    assert len(keys) == 3


def test_utilities_alone_are_enough_for_those_that_never_play_the_policy():
    world = without_model(envs.build("paper/synthetic"))
    assert learn(world, "opt-pess-primal-dual", episodes=20, baseline_utility=[2.05]).run.episodes == 20
    with pytest.raises(ValueError, match="plays the safe policy itself: give it as baseline="):
        learn(world, "dope", episodes=20, baseline_utility=[2.05])


def test_what_is_missing_or_wrong_is_named():
    cmdp = envs.build("paper/synthetic")
    world, best = without_model(cmdp), solve(cmdp.with_bounds(utility=2.05)).policy
    for options, said in (
        ({}, "has no model to find a safe policy in; give baseline=, baseline_utility="),
        ({"baseline": best}, "baseline_utility is missing"),
        ({"baseline": best, "baseline_utility": [2.05, 1.0]}, r"utility has shape \(2,\), expected one number"),
        ({"baseline": best, "baseline_utility": 2.0}, "baseline's utility is 2, expected strictly within the bound"),
        ({"baseline": best, "baseline_utility": np.nan}, "the baseline's utility is nan, expected strictly within"),
        ({"baseline": Policy(np.ones((3, 2, 1))), "baseline_utility": 2.05}, r"\(3, 2, 1\), expected \(H, S, A\)"),
        ({"baseline": decompose(cmdp, best), "baseline_utility": 2.05}, "the policy is a Mixture, expected a Policy"),
    ):
        with pytest.raises(ValueError, match=said):
            learn(world, "dope", episodes=20, **options)
    with pytest.raises(ValueError, match="triple-q needs no safe policy"):
        learn(cmdp, "triple-q", episodes=20, baseline=best)
    with pytest.raises(ValueError, match=r"the baseline's utility is 1\.2"):
        learn(cmdp, "dope", episodes=20, baseline=solve(cmdp.with_bounds(utility=0.0)).policy)


class Told(Learner):
    """Plays the first action for as long as one likes, and tells what it was told."""

    title, anytime, needs, fixed = "Told.", True, ("slack",), (*Learner.fixed, "slack")

    def __init__(self, spec, *, preset=None, slack=None, **params):
        super().__init__(spec, preset=preset, **params)
        self.slack, self.h = slack, 0

    def recommend(self):
        return one_hot(self.spec.allowed.argmax(axis=-1), self.spec.A)

    def first(self, s, rng):
        self.h = 0
        return int(self.spec.allowed[0, s].argmax())

    def next(self, signals, s, rng):
        self.h += 1
        return int(self.spec.allowed[self.h, s].argmax())

    def last(self, signals):
        pass

    def internals(self):
        return {"slack": self.slack}


def test_a_run_that_stops_by_a_rule_is_told_the_baseline_that_was_given(tmp_path):
    """With a folder the model's safest policy was taken instead, under the key of a run with the user's."""
    mine = solve(load("paper/synthetic").with_bounds(utility=2.05)).policy
    asked = {"stop": 20, "seeds": [0], "baseline": mine}
    (alone,), (kept,) = (learn_many("paper/synthetic", Told, **asked, out=out) for out in (None, tmp_path))
    assert alone.internals == kept.internals == {"slack": pytest.approx(0.05)}
    with pytest.raises(CmdpkitError, match="call learn again with the same baseline and a later stop="):
        continue_run(kept, episodes=10)
