"""A learner that learns nothing and only watches what was realised, for `paper/lower-bound`."""

import numpy as np

import cmdpkit as ck

REWARD, UTILITY = 0, 1  # the two actions of the first step, u and v


class Watch(ck.Learner):
    title = "Watch: asks for reward while the realised utility is ahead of the bound, and for utility otherwise."

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        self.violation = 0.0  # realised so far
        self.plays = np.zeros(spec.A)  # how often each action was taken at the first step

    def choice(self):
        return REWARD if self.violation <= -self.spec.rho[0] else UTILITY

    def first(self, s, rng):
        action = self.choice()
        self.violation += self.spec.rho[0]
        self.plays[action] += 1
        return action

    def next(self, signals, s, rng):
        self.violation -= signals[1]
        return REWARD  # from the second step on, actions make no difference

    def last(self, signals):
        self.violation -= signals[1]

    def behaviour(self):
        return self.policy(np.eye(self.spec.A)[self.choice()])

    def recommend(self):
        return self.policy((self.plays + 1) / (self.plays + 1).sum())

    def policy(self, first_step):
        pi = np.zeros((self.spec.H, self.spec.S, self.spec.A))
        pi[..., REWARD] = 1.0
        pi[0] = first_step
        return pi
