"""Gymnasium environments and learners that show what passes between them."""

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.wrappers import TimeLimit

import cmdpkit as ck
from cmdpkit.running.gym import GymWorld, make_env
from cmdpkit.simulate.random import stream


class Line(gymnasium.Env):
    """Three cells in a row; action 1 goes right, with a chance, and beyond the last cell the episode ends."""

    observation_space, action_space = Discrete(3), Discrete(2)

    def __init__(self, rewards=(1.0, 1.0, 1.0), costs=(0.0, 1.0, 0.0), chance=1.0):
        self.rewards, self.costs, self.chance = rewards, costs, chance

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        s = self.s
        moves = action == 1 and self.np_random.random() < self.chance
        self.s += moves
        return min(self.s, 2), self.rewards[s], self.s == 3, False, {"cost": self.costs[s]}


def short_line():
    """A line that is random, and whose episodes end early."""
    return TimeLimit(Line(chance=0.5), 5)


class Watched:
    """A learner that always goes right and keeps what it is told, by episode or by step."""

    def __init__(self, H):
        self.H, self.told = H, []

    def episodic(self):
        return self

    def begin(self, rng):
        self.rng = rng

    def act(self, h, s):
        return 1

    def end(self, states, actions, signals):
        self.told.append((states[: self.H].tolist(), actions.tolist(), signals.tolist()))


class WatchedByStep:
    def __init__(self):
        self.told = []

    def episodic(self):
        return None

    def begin(self, rng):
        """Nothing to prepare."""

    def first(self, s, rng):
        self.states, self.signals = [s], []
        return 1

    def next(self, signals, s, rng):
        self.states.append(s)
        self.signals.append(signals.tolist())
        return 1

    def last(self, signals):
        self.told.append((self.states, [*self.signals, signals.tolist()]))


class Recorder(gymnasium.Wrapper):
    """Adds up what passes, and may break down at a step."""

    def __init__(self, env, breaks=None):
        super().__init__(env)
        self.reward = self.cost = self.steps = 0
        self.breaks, self.seeds = breaks, []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        self.steps += 1
        if self.steps == self.breaks:
            raise RuntimeError("power cut")
        result = self.env.step(action)
        self.reward += result[1]
        self.cost += np.array(result[4].get("cost", 0.0))
        return result


class SixValues(gymnasium.Wrapper):
    """The cost among what a step returns."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, info.pop("cost"), terminated, truncated, info


class Vector(gymnasium.Wrapper):
    """The cost beside the reward."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, np.array([reward, *np.atleast_1d(info.pop("cost"))]), terminated, truncated, info


def lake(**params):
    """The frozen lake, its model left behind."""
    return Recorder(make_env("gym/frozen-lake", **params))


FALLS = [ck.at_most("falls", 0.05)]


def told(env, learner, n=1, **options):
    world = GymWorld(env, [ck.at_most("cost", 1)], horizon=5, **options)
    world.spec(n)
    world.play(learner, stream(1), n)
    return learner.told, world
