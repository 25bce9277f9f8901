"""Posterior sampling in episodes: every episode plays the optimum of a model that is drawn from what was seen."""

import numpy as np

import cmdpkit as ck
from cmdpkit.learners import Learner, numpy_generator


class Posterior(Learner):
    """Dirichlet draws of the transitions, observed means of the signals (1 before the first visit)."""

    title = "Posterior sampling in episodes."

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        H, S, A, N = spec.H, spec.S, spec.A, spec.N
        self.moves = np.zeros((H, S, A, S))  # transitions seen
        self.visits = np.zeros((H, S, A))
        self.sums = np.zeros((1 + N, H, S, A))  # reward and utilities earned
        self.starts = np.zeros(S)
        self.pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        self.at = np.zeros(3, dtype=np.int64)  # step, state and action of the running episode
        self.episodes = 0

    def begin(self, rng):
        """Draw a model and plan in it, before the 1st, 2nd, 4th, 8th, ... episode."""
        self.episodes += 1
        if self.episodes & (self.episodes - 1) == 0:
            draw = numpy_generator(rng).standard_gamma(self.moves + 1.0)
            self.pi = self.plan(draw / draw.sum(axis=-1, keepdims=True))

    def plan(self, P):
        """The optimum under the bounds; the policy of the last plan where no policy meets them."""
        seen = np.maximum(self.visits, 1.0)
        signals = np.where(self.visits > 0, self.sums / seen, 1.0)
        mu = (self.starts + 1.0) / (self.starts + 1.0).sum()
        model = ck.CMDP(P, signals[0], signals[1:], self.spec.rho, mu, actions=self.spec.allowed)
        try:
            return ck.solve(model).policy.pi
        except ck.CmdpkitError:  # no policy of the drawn model meets the bounds
            return self.pi

    def first(self, s, rng):
        self.starts[s] += 1
        return self.choose(0, s, rng)

    def next(self, signals, s, rng):
        self.count(signals)
        h, before, a = self.at
        self.moves[h, before, a, s] += 1
        return self.choose(h + 1, s, rng)

    def last(self, signals):
        self.count(signals)

    def count(self, signals):
        h, s, a = self.at
        self.visits[h, s, a] += 1
        self.sums[:, h, s, a] += signals

    def choose(self, h, s, rng):
        a = int(np.searchsorted(np.cumsum(self.pi[h, s]), ck.learners.uniform(rng), side="right"))
        self.at[:] = h, s, min(a, np.flatnonzero(self.pi[h, s])[-1])
        return int(self.at[2])

    def recommend(self):
        return self.pi
