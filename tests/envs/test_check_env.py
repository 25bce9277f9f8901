"""`check_env` accepts environments that are right and says of wrong ones what is wrong."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import TimeLimit

import cmdpkit as ck
from cmdpkit.testing import ContractBroken, check_env
from gym_line import Line, short_line

COST = [ck.at_most("cost", 1)]
RANGE = {"reward_range": (0.0, 1.0)}


def model(r=0.5, bound=1.0):
    return ck.CMDP(np.full((2, 2, 2, 2), 0.5), np.full((2, 2, 2), r), np.ones((2, 2, 2)), bound)


def world():
    return ck.gym.GymWorld(Line(chance=0.5), COST, horizon=5, **RANGE)


@pytest.mark.parametrize("right", [model, lambda: model(bound=99.0), world, lambda: ck.gym.make_env("gym/frozen-lake")])
def test_right_environments_pass(right):
    check_env(right)


def test_an_environment_passes_with_what_it_does_not_say_itself():
    check_env(short_line, COST, **RANGE)
    check_env("gym_line:short_line", COST, **RANGE)
    check_env(lambda: Line(chance=0.5), COST, horizon=5, **RANGE)
    check_env(
        lambda: Line(costs=([0.0, 1.0], [1.0, 0.0], [0.5, 0.5])), [*COST, ck.at_least("b", 1)], horizon=5, **RANGE
    )


def broken(source, *args, **options):
    """The sentences about an environment that is wrong."""
    with pytest.raises(ContractBroken) as caught:
        check_env(source, *args, **options)
    title, *sentences = str(caught.value).split("\n- ")
    assert title.endswith(" breaks the contract of an environment:")
    return sentences


def limited(kind, *args, **options):
    """A function that wraps an environment in a time limit of 5 steps; what `check_env` says about it."""
    return broken(lambda: TimeLimit(kind(*args, **options), 5), COST, **RANGE)


def test_a_function_that_returns_something_else_is_refused():
    (said,) = broken(dict)
    assert said == "It returns a dict, expected a CMDP, a gymnasium.Env or a GymWorld."


def test_a_model_that_is_wrong_is_explained_by_the_error_of_the_model():
    (said,) = broken(lambda: ck.CMDP(np.full((1, 2, 2, 2), 0.4), np.zeros((1, 2, 2))))
    assert said.startswith("When it is made, it fails: ") and "sums to 0.8" in said


def test_a_model_that_differs_at_every_call_is_found():
    random = np.random.default_rng(0)
    assert broken(lambda: model(random.random())) == ["Two calls of the function return different models."]


def test_a_function_that_returns_a_model_only_once_is_found():
    made = iter([model(), world()])
    assert broken(lambda: next(made)) == ["One call of the function returns a CMDP and the next one does not."]


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"constraints": COST, **RANGE}, "the environment has no time limit"),
        ({"horizon": 5, **RANGE}, "constraints are missing"),
        ({"constraints": COST, "horizon": 5}, "the range of the reward is not known"),
    ],
)
def test_horizon_constraints_and_ranges_have_to_be_known(options, missing):
    (said,) = broken(Line, **options)
    assert said.startswith(f"When it is made, it fails: {missing}")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rewards": (2.0, 1.0, 1.0)}, "episode 1, step 1: the reward is 2.0, outside its range 0 .. 1"),
        ({"costs": (-1.0, 1.0, 0.0)}, "episode 1, step 1: the cost 'cost' is -1.0, outside its range 0 .. 1"),
        ({"costs": ([1.0, 1.0],) * 3}, r'episode 1, step 1: info\["cost"\] is \[1.0, 1.0\], expected a number'),
        ({"costs": ("none",) * 3}, r"episode 1, step 1: info\[\"cost\"\] is 'none', expected a number"),
    ],
)
def test_rewards_and_costs_have_to_match_their_declaration(options, expected):
    (said,) = limited(Line, **options)
    assert re.match(f"Played with random actions, it fails: {expected}", said)


class Continuous(Line):
    observation_space = Box(0.0, 1.0)


class OutOfSpace(Line):
    observation_space = Discrete(2)


class Unseeded(Line):
    """Draws from a generator that reset does not seed."""

    def __init__(self):
        super().__init__(chance=0.5)
        self._np_random = np.random.default_rng(1)

    def reset(self, *, seed=None, options=None):
        self.s = 0
        return 0, {}


class Tired(Line):
    """After 100 steps of its life it moves no more, reset or not."""

    steps = 0

    def step(self, action):
        self.steps += 1
        return super().step(action if self.steps <= 100 else 0)


class Counted(Line):
    """The reward is another one for every instance."""

    made = 0

    def __init__(self):
        Counted.made += 1
        super().__init__(rewards=(1 / Counted.made,) * 3)


class Shared(gymnasium.Env):
    """Keeps its place in the class, so that all instances stand in the same cell; alone each is right."""

    observation_space, action_space = Discrete(3), Discrete(2)
    place = 0

    def reset(self, *, seed=None, options=None):
        Shared.place = 0
        return 0, {}

    def step(self, action):
        Shared.place = (Shared.place + action) % 3
        return Shared.place, 0.0, False, False, {"cost": 0.0}


class OneDoor(Line):
    """Closing one instance closes all."""

    open = True

    def step(self, action):
        if not OneDoor.open:
            raise OSError("the connection is closed")
        return super().step(action)

    def close(self):
        OneDoor.open = False


class Slams(Line):
    def close(self):
        raise OSError("no such window")


AGAIN = "Played again with the same seed and actions, it goes through other states"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Continuous, ".*observation_space is Box.* expected Discrete"),
        (OutOfSpace, ".*observation 2 is not in the observation space"),
        (Unseeded, f"{AGAIN} in episode 1"),
        (Tired, AGAIN),
        (Counted, "Made again and played with the same seed, it goes through other rewards or costs in episode 1.$"),
        (Shared, "Played in turns with another instance of itself, it goes through other states in episode 1"),
        (Slams, r"close\(\) raises OSError\('no such window'\)"),
        (OneDoor, "Played with .*the connection is closed"),
    ],
)
def test_a_broken_promise_is_named(kind, expected):
    first, *others = limited(kind)
    assert re.match(expected, first)
    assert not others or kind in (Unseeded, Tired), "what cannot be repeated breaks several promises"


def test_a_function_that_always_returns_the_same_environment_is_found():
    only = short_line()
    (said,) = broken(lambda: only, COST, **RANGE)
    assert said == "Two calls of the function return the same environment, not a new one."


def test_what_the_function_settles_cannot_be_given_again():
    assert broken(model, COST) == ["It returns a CMDP, which settles constraints itself."]
    assert broken(world, horizon=5) == ["It returns a GymWorld, which settles horizon itself."]
