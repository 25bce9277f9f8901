"""Learners that change their policy and their prices a little after every episode.

Their guarantees are about the average of all policies played, so what they hand over is a mixture: the policy that
chooses, in every state at every step, as the policies of the last half to three quarters of the run did when they came
there.

Values of a policy follow from Q[h] = x[h] + p[h] V[h+1], V[h, s] = sum_a pi[h, s, a] Q[h, s, a], V[H] = 0. Truncated
evaluation also cuts every Q[h] to [0, H - h] before V is taken: no sum of numbers in [0, 1] over the remaining steps
lies outside, so nothing true is lost when x carries an optimistic bonus. Pessimistic utilities are never truncated:
cutting them from below would call a policy safer than it was shown to be.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import total_radius, update_mean_radius, update_transition_bonus
from cmdpkit.estimate.means import Means
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.counting import Counting
from cmdpkit.model.compiled import compiled, internal, readonly
from cmdpkit.model.tolerances import LEAST_PROBABILITY
from cmdpkit.model.transitions import BoolArray, FloatArray

# -- Values of a policy in an estimated model.


def policy_values(p: FloatArray, x: FloatArray, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Q [H, S, A] and V [H+1, S] of a signal x [1 or H, S, A] under pi [H, S, A] and p [1 or H, S, A, S]."""
    Q, V = np.zeros(pi.shape), np.zeros((pi.shape[0] + 1, pi.shape[1]))
    update_values(readonly(p), readonly(x), readonly(pi), Q, V)
    return Q, V


@compiled
def update_values(p, x, pi, Q, V):
    """Fill Q [H, S, A] and V [H+1, S]."""
    _backward(p, x, pi, -np.inf, np.inf, Q, V)


@internal
def update_truncated_values(p, x, pi, Q, V):
    """Fill Q [H, S, A], cut to [0, H - h], and V [H+1, S]."""
    _backward(p, x, pi, 0.0, 1.0, Q, V)


@internal
def _backward(p, x, pi, least, most_per_step, Q, V):
    """The recursion with every Q[h] cut to [least, most_per_step * (H - h)]."""
    H, S, A = pi.shape
    V[H] = 0.0
    for h in range(H - 1, -1, -1):
        t, hx = h % len(p), h % len(x)
        most = most_per_step * (H - h)
        for s in range(S):
            total = 0.0
            for a in range(A):
                value = x[hx, s, a]
                for s_next in range(S):
                    value += p[t, s, a, s_next] * V[h + 1, s_next]
                Q[h, s, a] = min(max(value, least), most)
                total += pi[h, s, a] * Q[h, s, a]
            V[h, s] = total


class Iterating(Counting):
    """Counts, and remembers how the recent policies have chosen."""

    changing: ClassVar[tuple[str, ...]] = (*Counting.changing, "choices")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.allowed: BoolArray = np.array(spec.allowed, order="C")
        # [2, H, S, A]: choices before and since the number of episodes last doubled.
        self.choices = np.zeros((2, spec.H, spec.S, spec.A))

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that chooses as the policies of the last half to three quarters of the run did."""
        used = self.choices.sum(axis=0)
        reached = used.sum(axis=-1, keepdims=True)
        return np.where(reached > 0, used / np.where(reached > 0, reached, 1.0), self.behaviour())

    @abstractmethod
    def _improve(self) -> None:
        """Update policy and prices after an episode."""

    def _begin(self) -> None:
        """The policy is always ready."""

    def _end(self) -> None:
        self.playing.episodes[0] += 1
        remember(self.playing, self.choices)
        self._improve()


class PolicyEvaluation(NamedTuple):
    """The values of a policy in the estimated model; they are found again after every episode."""

    means: Means  # the estimated model, whose arrays are filled again each time
    bonus: FloatArray  # [H, S, A]: what is added to every signal
    radius: FloatArray  # [T, S, A]: the confidence radius of signals
    x: FloatArray  # [H, S, A]: the signal that is being evaluated, with its bonus
    Q: FloatArray  # [1+N, H, S, A]: action values of reward and utilities
    V: FloatArray  # [H+1, S]: state values of the signal that is being evaluated
    start: FloatArray  # [1+N]: optimistic expected totals of reward and utilities from the start
    mixed: FloatArray  # [H, S, A]: Q of the reward and of the priced utilities together

    @classmethod
    def of(cls, means: Means, H: int) -> PolicyEvaluation:
        """Around an estimated model, for H steps."""
        signals, _, S, A = means.signals.shape
        return cls(
            means=means,
            bonus=np.zeros((H, S, A)),
            radius=np.zeros(means.visits.shape),
            x=np.zeros((H, S, A)),
            Q=np.zeros((signals, H, S, A)),
            V=np.zeros((H + 1, S)),
            start=np.zeros(signals),
            mixed=np.zeros((H, S, A)),
        )


@compiled
def evaluate(values, pi, start_bonus):
    """Fill Q and `start` with the truncated values of signals and bonus under pi in the estimated model.

    `start_bonus` is what the unknown start distribution adds to every expected total.
    """
    H, S, A = values.x.shape
    T = len(values.means.p)
    for n in range(len(values.Q)):
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    values.x[h, s, a] = values.means.signals[n, h % T, s, a] + values.bonus[h, s, a]
        update_truncated_values(values.means.p, values.x, pi, values.Q[n], values.V)
        values.start[n] = start_bonus
        for s in range(S):
            values.start[n] += values.means.mu[s] * values.V[0, s]
        values.start[n] = min(values.start[n], float(H))


@internal
def fill_bernstein_bonus(values, kernel_log, mean_log):
    """Fill `bonus` with beta_l + H sum_s' beta_p."""
    H, S, A = values.bonus.shape
    update_mean_radius(values.means.visits, mean_log, values.radius)
    update_transition_bonus(values.means, kernel_log, values.bonus)
    for h in range(H):
        for s in range(S):
            for a in range(A):
                values.bonus[h, s, a] = values.radius[h % len(values.radius), s, a] + H * values.bonus[h, s, a]


@internal
def bernstein_start_bonus(values, kernel_log):
    """H sum_s beta_p of the start distribution."""
    return len(values.x) * total_radius(values.means.mu, values.means.episodes[0], kernel_log)


@internal
def mix(Q, lam, mixed):
    """Fill mixed [H, S, A] with Q[0] + sum_n lam_n Q[1 + n]."""
    H, S, A = mixed.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                mixed[h, s, a] = Q[0, h, s, a]
                for n in range(len(lam)):
                    mixed[h, s, a] += lam[n] * Q[1 + n, h, s, a]


@internal
def mirror(pi, G, rate, allowed):
    """pi[h, s, a] <- pi[h, s, a] exp(rate G[h, s, a]), normalised, no allowed action below LEAST_PROBABILITY."""
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            top, total = -np.inf, 0.0
            for a in range(A):
                if allowed[h, s, a]:
                    top = max(top, G[h, s, a])
            for a in range(A):
                if allowed[h, s, a]:
                    pi[h, s, a] *= np.exp(rate * (G[h, s, a] - top))
                    total += pi[h, s, a]
            for a in range(A):
                if allowed[h, s, a]:
                    pi[h, s, a] = max(pi[h, s, a] / total, LEAST_PROBABILITY)


@internal
def _retire(choices):
    """Drop the older half of the choices; the newer half takes its place."""
    for h in range(choices.shape[1]):
        for s in range(choices.shape[2]):
            for a in range(choices.shape[3]):
                choices[0, h, s, a] = choices[1, h, s, a]
                choices[1, h, s, a] = 0.0


@compiled
def remember(playing, choices):
    """Add the probabilities of the policy in the states that the last episode went through.

    When the number of episodes has doubled, the older half of what was noted is dropped.
    """
    k = playing.episodes[0]
    for h in range(len(playing.pi)):
        s = playing.path[h]
        for a in range(playing.pi.shape[2]):
            choices[1, h, s, a] += playing.pi[h, s, a]
    if k & (k - 1) == 0:
        _retire(choices)
    playing.changed[0] = True
