"""Gymnasium environments that cannot be learned in, or go wrong on the way: what is said, and what to do about it."""

import re
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TimeLimit

import cmdpkit as ck
from cmdpkit.errors import RunFailed
from cmdpkit.running.gym import GymWorld
from cmdpkit.running.learning import learn
from cmdpkit.simulate.random import stream
from gym_line import FALLS, Line, SixValues, Vector, Watched, WatchedByStep, lake, told

pytestmark = pytest.mark.compiled


class OutOfSpace(Line):
    observation_space = Discrete(2)


def test_the_horizon_is_the_time_limit_or_less():
    assert GymWorld(lake(H=30), FALLS).spec(1).H == 30
    assert GymWorld(TimeLimit(lake(H=30), 7), FALLS).spec(1).H == 7
    assert GymWorld(gymnasium.make("FrozenLake-v1"), []).spec(1).H == 100
    assert GymWorld(gymnasium.make("FrozenLake-v1", max_episode_steps=12), [], horizon=9).spec(1).H == 9
    with pytest.raises(ValueError, match="horizon is 31, but the time limit of the environment is 30 steps"):
        GymWorld(lake(H=30), FALLS, horizon=31)
    with pytest.raises(ValueError, match=r"horizon is 0, expected a whole number of steps"):
        GymWorld(lake(H=30), FALLS, horizon=0)
    with pytest.raises(ValueError, match=r"no time limit: give a horizon, .* wrap it in gymnasium.wrappers.TimeLimit"):
        GymWorld(Line(), FALLS)


@pytest.mark.parametrize(("space", "wrapper"), [("observation", "ObservationWrapper"), ("action", "ActionWrapper")])
def test_spaces_that_are_not_discrete_are_refused_with_advice(space, wrapper):
    env = Line()
    setattr(env, f"{space}_space", Box(0, 1, (2,)))
    with pytest.raises(ValueError, match=rf"^{space}_space is Box.* expected Discrete.*gymnasium.{wrapper}"):
        GymWorld(env, FALLS, horizon=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the range of the reward is not known: give it"),
        ({"reward_range": 3}, "reward_range is 3, expected a pair"),
        ({"reward_range": (1, 0)}, "reward_range is (1, 0), expected two finite numbers, the smaller one first"),
        ({"reward_range": (0, np.inf)}, "reward_range is (0, inf), expected two finite numbers"),
        ({"reward_range": (0, 1), "cost_ranges": []}, "cost_ranges is [], expected a pair (low, high) for each of 1"),
        ({"reward_range": (0, 1), "cost_ranges": [4]}, "cost range of 'falls' is 4, expected a pair"),
        ({"reward_range": (0, 1), "allowed": np.ones((3, 3), bool)}, "actions has shape (3, 3), expected (3, 2)"),
        ({"reward_range": (0, 1), "allowed": np.ones((4, 3, 2), bool)}, "allowed has 4 steps, expected 1 or 5"),
        ({"reward_range": (0, 1), "model": ck.load("paper/grid")}, "model does not fit: it has (H, S, A) = (6, 25, 5)"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        GymWorld(Line(), FALLS, horizon=5, **options)


def test_a_range_may_be_declared_by_the_environment():
    env = Line()
    env.metadata = {"reward_range": (0, 3), "cost_ranges": [(0, 2)]}
    assert [scale.span for scale in GymWorld(env, FALLS, horizon=5).scales] == [3, 2]
    assert [scale.span for scale in GymWorld(env, FALLS, horizon=5, reward_range=(0, 4)).scales] == [4, 2]


@pytest.mark.parametrize("learner", [Watched(5), WatchedByStep()], ids=["by episode", "by step"])
@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Line(rewards=(0, 7, 0)), "episode 1, step 2: the reward is 7.0, outside its range 0 .. 1; give GymWorld"),
        (Line(rewards=(0, np.nan, 0)), "episode 1, step 2: the reward is nan, outside its range"),
        (Line(costs=(0, 0, -2)), "episode 1, step 3: the cost 'cost' is -2.0, outside its range 0 .. 1; give GymWorld"),
        (Line(costs=(0, None, 0)), 'episode 1, step 2: info["cost"] is None, expected a number'),
        (Line(costs=(0, [0, 1], 0)), 'episode 1, step 2: info["cost"] is [0, 1], expected a number'),
        (Line(rewards=(0, "x", 0)), "episode 1, step 2: the reward is 'x', expected a number"),
        (
            SixValues(Line()),
            "expected (obs, reward, terminated, truncated, info), got 6 values; let a wrapper move the",
        ),
        (Vector(Line()), "reward is array([1., 0.]), expected a number; cmdpkit.gym.WithCost can split a vector"),
    ],
)
def test_a_step_that_goes_wrong_is_named_with_a_remedy(env, learner, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        told(env, learner, reward_range=(0, 1))


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (
            lambda: GymWorld(gymnasium.make("FrozenLake-v1"), FALLS).play(Watched(100), stream(1), 1),
            'info has no "cost" for 1 constraints; cmdpkit.gym.WithCost adds one',
        ),
        (
            lambda: told(OutOfSpace(), Watched(5), reward_range=(0, 1)),
            "episode 1, step 2: observation 2 is not in the observation space",
        ),
        (lambda: learn(lake(), "triple-q", episodes=5), 'constraints are missing: which bounds hold for info["cost"]?'),
        (lambda: GymWorld(lake(), FALLS + FALLS), "two constraints have the same name: falls, falls"),
        (lambda: learn(7, "triple-q", episodes=5), "env is a int, expected a gymnasium.Env, a CMDP or its name"),
    ],
    ids=["no cost", "outside its space", "no constraint", "two of one name", "no environment"],
)
def test_what_is_missing_or_wrong_is_named(attempt, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        attempt()


class Quits(Line):
    """An environment that ends the program in the middle of an episode, as if all was well."""

    def step(self, action):
        sys.exit(0)


def test_an_environment_that_exits_fails_its_run_and_not_the_program():
    bounds = [ck.at_most("falls", 5)]
    with pytest.raises(RunFailed, match=r"episode 1, step 1: env\.step\(\d\) raised SystemExit"):
        ck.learn(GymWorld(Quits(), bounds, horizon=6, reward_range=(0, 1)), "triple-q", episodes=10)
