"""C-UCRL: explore a little, then play the plan whose utilities are certain enough, for longer and longer.

Zheng, Ratliff, "Constrained upper confidence reinforcement learning with known dynamics" (arXiv 2001.09377):

    episode k = 1, 2, ...:  h steps of an exploring policy that is known to be safe,
                            then (k - 1) h steps of the best policy for rewards r_hat + b and utilities g_hat - b,
    b(s, a) = sqrt(log(S A (1 + N) pi^2 t^3 / (3 delta)) / (2 n(s, a))),   n the visits of a pair, t the steps so far,

so that episode k has k h steps, and the first one only explores. The set of plausible signals fails at step t with
probability at most 6 delta / (pi^2 t^2) (equations 7 and 8 of the paper).

Guarantee of the paper: regret of order T^(3/4) sqrt(log(T / delta)), and bounds met with probability 1 - delta. It is
for a *known* kernel and a known safe policy. Per plan: column generation in a model of S states. Memory O(S^2 A).

Departures, in both presets: a learner is not told the kernel, so the plan uses the observed frequencies; and it is not
told a safe policy, so it explores with all allowed actions alike. Hence nothing is proved about what is here. Signals
stay in [0, 1] when b is added or subtracted; t is the step at which the plan is made, in the paper the one at which the
episode began. Where no policy of the estimated model meets the bounds with pessimistic utilities, the plan is the
policy that misses the worst bound by least; the paper goes on with the safe policy until there is one. The policy
returned has pessimistic utilities and observed rewards. "practical" has h = 4 S and 0.01 b, the best of three
settings on development problems (`bench/history/settings.md`, in a clone); the public code of arXiv 2405.19017
has a fixed h, b = 0.1 / sqrt(n) and uniform exploration. "theory" has the same h, which the paper leaves open, and b as
printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.estimate.continuing import Model, mean_model
from cmdpkit.learners import Params, Spec
from cmdpkit.learners._continuing import Player, at_random, planned
from cmdpkit.learners.params import at_least_one, not_negative, probability
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class ConfidenceParams(Params):
    """Numbers that do not change during a run."""

    explore: int = at_least_one()  # h, steps of exploration with which every episode begins
    width: float = not_negative(0.01)  # times b
    delta: float = probability(0.1)  # probability with which the plausible set may fail


def practical(spec: Spec) -> ConfidenceParams:
    """Narrow intervals, and four steps of exploration per state at the beginning of every episode."""
    return ConfidenceParams(explore=4 * spec.S)


def theory(spec: Spec) -> ConfidenceParams:
    """Intervals as printed, and as much exploration as in "practical", because the paper leaves it open."""
    return ConfidenceParams(explore=4 * spec.S, width=1.0)


class CUCRL(Player):
    """C-UCRL at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> from cmdpkit.simulate.random import stream
    >>> from cmdpkit.simulate.meter import Walk
    >>> cmdp = ck.load("machine-two")
    >>> learner = CUCRL(Spec.of(cmdp, K=1000))
    >>> returns = learner.walk(Walk.of(cmdp), stream(1), 1000)
    >>> learner.internals()["episodes"]  # of 1, 2, 3, ... times 8 steps
    16
    """

    title = "C-UCRL: explores now and then, and plans with pessimistic utilities, for averages and discounted totals."
    guarantee = "none without the kernel; with it, regret of order T^(3/4), and bounds met with probability 1 - delta"
    paper = "arXiv 2001.09377"
    source = "text"
    presets = {"practical": practical, "theory": theory}
    params: ConfidenceParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.episodes = 0  # episodes that have begun
        self.exploring = False  # whether the present episode is in its first part

    def decide(self, rng: Stream) -> None:
        """Begin the second part of an episode with a plan, or the next episode with exploration."""
        self.exploring = not self.exploring
        if self.exploring:
            self.episodes += 1
            self.pi[...] = at_random(self.spec)
            self.wait(self.params.explore)
            self.exploring = self.episodes > 1  # the first episode has no second part
        else:
            model = mean_model(self.seen())
            if model is not None:
                bonus = self.bonus()
                self.follow(planned(_shifted(model, bonus, -bonus), self.spec.rho))
            self.wait((self.episodes - 1) * self.params.explore)

    def bonus(self) -> FloatArray:
        """b [S, A]; infinite where nothing was seen."""
        spec, t = self.spec, max(self.steps, 1)
        events = (1 + spec.N) * math.pi**2 / 3 * spec.S * spec.A * float(t) ** 3
        log = math.log(events / self.params.delta)
        visits = self.counts.visits.reshape(spec.S, spec.A)
        n = np.maximum(visits, 1)
        return np.where(visits > 0, self.params.width * np.sqrt(log / (2 * n)), np.inf)

    def recommend(self) -> FloatArray:
        """pi [1, S, A], the best policy of the mean model with pessimistic utilities."""
        model = mean_model(self.seen())
        if model is None:
            return self.behaviour()
        return planned(_shifted(model, 0.0, -self.bonus()), self.spec.rho).pi[None]

    def internals(self) -> dict[str, Any]:
        """How many episodes were begun and plans made, and how many of these could not meet the bounds."""
        return {"episodes": self.episodes, **super().internals()}


def _shifted(model: Model, reward: FloatArray | float, utility: FloatArray | float) -> Model:
    """The model with its signals moved, as far as they stay in [0, 1]."""
    return model._replace(r=np.clip(model.r + reward, 0.0, 1.0), g=np.clip(model.g + utility, 0.0, 1.0))
