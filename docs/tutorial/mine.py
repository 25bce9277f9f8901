"""A learner of one's own in plain NumPy: Q-learning of reward and utilities, with a price for every constraint."""

from dataclasses import dataclass

import numpy as np

import cmdpkit as ck
from cmdpkit.learners import Params, uniform


@dataclass(frozen=True)
class MineParams(Params):
    rate: float = 0.1  # how far a value moves towards what was seen
    explore: float = 0.1  # probability of a random action
    price_step: float = 0.02  # how far a price moves per unit of shortfall


class Mine(ck.Learner):
    title = "Mine: Q-learning with a price for every constraint, as the tutorial writes it."
    presets = {"practical": MineParams(), "bold": MineParams(rate=0.3)}

    def __init__(self, spec, *, preset="practical", **params):
        super().__init__(spec, preset=preset, **params)
        self.Q = np.arange(spec.H, -1, -1.0)[:, None, None, None] + np.zeros((spec.H + 1, spec.S, spec.A, 1 + spec.N))
        self.prices, self.earned = np.ones(spec.N), np.zeros(spec.N)  # utilities earned in the running episode
        self.at = (0, 0, 0)  # step, state and action that wait for their outcome

    def first(self, s, rng):
        self.earned[:] = 0.0
        return self.act(0, s, rng)

    def next(self, signals, s, rng):
        h = self.at[0]
        self.learn(signals, self.Q[h + 1, s, self.best()[h + 1, s]])
        return self.act(h + 1, s, rng)

    def last(self, signals):
        self.learn(signals, 0.0)
        self.prices = np.clip(self.prices + self.params.price_step * (self.spec.rho - self.earned), 0.0, 10.0)

    def learn(self, signals, ahead):
        self.Q[self.at] += self.params.rate * (signals + ahead - self.Q[self.at])
        self.earned += signals[1:]

    def act(self, h, s, rng):
        chances = np.cumsum(self.behaviour()[h, s])
        self.at = (h, s, int(np.searchsorted(chances / chances[-1], uniform(rng), side="right")))
        return self.at[2]

    def best(self):
        value = self.Q[..., 0] + self.Q[..., 1:] @ self.prices
        value[:-1][~self.spec.allowed] = -np.inf  # step H has values of 0 and no actions
        return value.argmax(axis=-1)

    def behaviour(self):
        random = self.spec.allowed / self.spec.allowed.sum(axis=-1, keepdims=True)
        return (1 - self.params.explore) * self.recommend() + self.params.explore * random

    def recommend(self):
        return np.eye(self.spec.A)[self.best()[:-1]]
