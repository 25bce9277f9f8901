"""Environments that break their promises at some moment: the run ends with a sentence, and what was learned is kept.

Every kind of misbehaviour is tried with learners of both kinds, at random moments. The oracle is an undisturbed run: a
run that was broken off and then continued in a sound environment must come to the same bits.
"""

import random
import re
import traceback
from collections import Counter

import gymnasium
import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.running.learning import learn
from gym_line import FALLS, Line, Watched, lake, told

pytestmark = [pytest.mark.compiled, pytest.mark.usefixtures("short_evaluation")]
EPISODES = 20
ROUNDS = 1  # random moments per kind and learner


class Unshowable:
    """An object whose text is an error, and whose numbers are too."""

    def __repr__(self):
        raise RuntimeError("no text")

    def __float__(self):
        raise RuntimeError("no number")


def boom(*_):
    raise ZeroDivisionError("inside of\nthe environment")


def changed(position, value):
    """Replaces one of the five things that a step returns."""
    return lambda result: (*result[:position], value, *result[position + 1 :])


def info(value):
    return lambda result: (*result[:4], value)


STEP = {  # what becomes of a step's answer, and what the message must say
    "raises": (boom, r"env\.step\(\d\) raised ZeroDivisionError\('inside of\\nthe environment'\)"),
    "none": (lambda result: None, r"env\.step returned None"),
    "dict": (lambda result: dict(enumerate(result)), r"env\.step returned \{0:"),
    "text": (lambda result: "done!", r"env\.step returned 'done!'"),
    "array": (lambda result: np.zeros(5), r"env\.step returned array"),
    "short": (lambda result: result[:4], "got 4 values"),
    "half a state": (changed(0, 1.7), "the observation is 1.7, expected a whole number"),
    "text as a state": (changed(0, "1"), "the observation is '1', expected a whole number"),
    "truth as a state": (changed(0, True), "the observation is True, expected a whole number"),
    "array as a state": (changed(0, np.array([1])), r"the observation is array\(\[1\]\), expected a whole"),
    "no state": (changed(0, None), "the observation is None, expected a whole number"),
    "infinite state": (changed(0, np.inf), "the observation is inf, expected a whole number"),
    "unshowable state": (changed(0, Unshowable()), "the observation is <Unshowable>"),
    "state far out": (changed(0, 10**30), "observation 10+ is not in the observation space"),
    "negative state": (changed(0, -1), "observation -1 is not in the observation space"),
    "reward infinite": (changed(1, -np.inf), r"the reward is -inf, outside its range"),
    "reward too large": (changed(1, 1 + 1e-6), r"the reward is 1\.000001, outside its range 0 \.\. 1"),
    "reward complex": (changed(1, 1j), "the reward is 1j, expected a number"),
    "reward an object": (changed(1, Unshowable()), "the reward is <Unshowable>"),
    "reward huge": (changed(1, 10**400), "the reward is 1000.*, expected a number"),
    "end as a text": (changed(2, "False"), "terminated is 'False', expected True or False"),
    "end as an array": (changed(3, np.zeros(2, bool)), r"truncated is array.*, expected True or False"),
    "end unknown": (changed(2, None), "terminated is None, expected True or False"),
    "no info": (info(None), 'info is None, expected a dict with a "cost"'),
    "info a text": (info("cost"), "info is 'cost', expected a dict"),
    "no cost": (info({}), 'info has no "cost" for 1 constraints'),
    "cost nan": (info({"cost": np.nan}), "the cost 'falls' is nan, outside its range"),
    "cost a text": (info({"cost": "1"}), r"info\[\"cost\"\] is '1', expected a number"),
    "cost too large": (info({"cost": 2}), "the cost 'falls' is 2.0, outside its range 0 .. 1"),
}
RESET = {
    "raises": (boom, r"env\.reset raised ZeroDivisionError"),
    "none": (lambda result: None, r"env\.reset returned None, expected \(obs, info\)"),
    "state alone": (lambda result: result[0], r"env\.reset returned 0, expected \(obs, info\)"),
    "three": (lambda result: (*result, 1), r"env\.reset returned \(0, .*expected \(obs, info\)"),
    "half a state": (lambda result: (0.5, {}), "the first observation is 0.5, expected a whole number"),
    "a text": (lambda result: "ab", r"env\.reset returned 'ab', expected \(obs, info\)"),
    "a dict": (lambda result: {0: "obs", 1: "info"}, r"env\.reset returned \{0: 'obs', 1: 'info'\}, expected \(obs"),
    "far out": (lambda result: (99, {}), "first observation 99 is not in the observation space"),
}
KINDS = [("step", name) for name in STEP] + [("reset", name) for name in RESET]


class Broken(gymnasium.Wrapper):
    """Misbehaves at the n-th call of one of its methods, and does not like to be closed either."""

    def __init__(self, env, method, change, moment):
        super().__init__(env)
        self.method, self.change, self.moment, self.calls = method, change, moment, Counter()
        self.place = ""

    def _answer(self, method, result):
        self.calls[method] += 1
        if method == self.method and self.calls[method] == self.moment:
            self.place = f"episode {self.calls['reset']}" + (f", step {self.here}" if method == "step" else "")
            return self.change(result)
        return result

    def reset(self, **options):
        self.here = 0
        return self._answer("reset", self.env.reset(**options))

    def step(self, action):
        self.here += 1
        return self._answer("step", self.env.step(action))

    def close(self):
        boom()


def same(a, b):
    assert a.curves.keys() == b.curves.keys() and a.policy == b.policy
    assert all(np.array_equal(a.curves[name], b.curves[name]) for name in a.curves)


@pytest.fixture(scope="module", params=["triple-q", "dual-q"], ids=["by episode", "by step"])
def undisturbed(request):
    """An algorithm, and its run in a sound environment."""
    return request.param, learn(lake(), request.param, constraints=FALLS, episodes=EPISODES, seed=5)


@pytest.mark.long
@pytest.mark.parametrize(("method", "kind"), KINDS, ids=[" ".join(kind) for kind in KINDS])
def test_a_faulty_answer_is_named_with_its_place_and_the_learned_policy_is_kept(method, kind, undisturbed, tmp_path):
    algo, whole = undisturbed
    change, said = {"step": STEP, "reset": RESET}[method][kind]
    moments = random.Random(f"{algo} {method} {kind}")
    for i in range(ROUNDS):
        moment = moments.randint(1, EPISODES if method == "reset" else 3 * EPISODES)
        env, path = Broken(lake(), method, change, moment), tmp_path / f"{i}.npz"
        asked = {"constraints": FALLS, "episodes": EPISODES, "seed": 5, "checkpoint": path}
        with pytest.raises(ck.RunFailed) as caught:
            learn(env, algo, **asked)
        message = str(caught.value)
        assert re.search(said, message), message
        assert f"seed 5: {env.place}: " in message and str(path) in message
        assert "\n" not in message and len(message) < 900
        if kind == "raises":
            shown = "".join(traceback.format_exception(caught.value))
            assert "in boom" in shown, "the traceback into the environment is kept"
        same(whole, learn(lake(), algo, **asked))


def test_without_a_checkpoint_it_is_said_that_nothing_is_kept():
    env = Broken(Line(), "step", changed(0, None), 7)
    right = np.tile([False, True], (3, 1))  # the only action that may be tried: an episode takes three steps
    world = ck.gym.GymWorld(env, [ck.at_most("cost", 1)], horizon=3, reward_range=(0, 1), allowed=right)
    with pytest.raises(ck.RunFailed, match=r"episode 3, step 1.*nothing of it is kept, as no checkpoint was given"):
        learn(world, "triple-q", episodes=9)


@pytest.mark.parametrize("state", [1, np.int64(1), np.uint8(1), np.array(1), 1.0, np.float32(1.0)], ids=repr)
def test_whole_numbers_of_any_type_are_the_state_that_they_are(state):
    class Typed(Line):
        def step(self, action):
            obs, *rest = super().step(action)
            return (state if obs == 1 else obs), *rest

    episodes, _ = told(Typed(), Watched(5), reward_range=(0, 1))
    assert episodes[0][0] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("algo", ["triple-q", "dual-q"], ids=["by episode", "by step"])
def test_a_reward_or_cost_beyond_its_range_by_rounding_counts_as_the_end_of_its_range(algo):
    def run(beyond):
        env = Line(rewards=(1 + beyond, 0 - beyond, 1.0), costs=(0 - beyond, 1 + beyond, 0.0), chance=0.5)
        world = ck.gym.GymWorld(env, [ck.at_most("cost", 1)], horizon=5, reward_range=(0, 1))
        return learn(world, algo, episodes=30, seed=2)

    same(run(0.0), run(1e-12))
    same(run(0.0), run(9e-10))
    with pytest.raises(ck.RunFailed, match=r"the reward is 1\.000000002, outside its range 0 \.\. 1"):
        run(2e-9)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (None, "the range of the reward is not known: give it"),
        ("all", "the range of the reward is not known: give it"),
        ({"reward_range": "wide"}, "reward_range is 'wide', expected a pair"),
        ({"reward_range": (None, 1)}, "reward_range is .*, expected a pair"),
    ],
)
def test_metadata_that_says_nothing_usable_is_asked_for(metadata, said):
    env = Line()
    env.metadata = metadata
    with pytest.raises(ck.CmdpkitError, match=said):
        ck.gym.GymWorld(env, FALLS, horizon=5)
