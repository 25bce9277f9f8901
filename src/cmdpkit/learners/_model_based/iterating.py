"""Learners that change their policy and their prices a little after every episode.

Their guarantees are about the average of all policies played, so what they hand over is a mixture: the policy that
chooses, in every state at every step, as the policies of the last half to three quarters of the run did when they came
there.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.counting import CHANGED, EPISODES, Counting, end_episode
from cmdpkit.learners._model_based.settings import Settings
from cmdpkit.learners._planning.confidence import total_radius, update_mean_radius, update_transition_bonus
from cmdpkit.learners._planning.empirical import Estimate
from cmdpkit.learners._planning.evaluation import update_truncated_values
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray

FLOOR = 1e-26  # smallest probability of an action: one that is 0 could never come back


class Iterating(Counting):
    """Counts, and how the policies of late have chosen."""

    def __init__(self, spec: Spec, settings: Settings) -> None:
        super().__init__(spec, settings)
        self.allowed: BoolArray = np.array(spec.allowed, order="C")
        # Choices before and since the number of episodes last doubled.
        self.usage = np.zeros((2, spec.H, spec.S, spec.A))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that changes, by name; the arrays themselves."""
        return super().arrays | {"usage": self.usage}

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that chooses as the policies of the last half to three quarters of the run did."""
        used = self.usage.sum(axis=0)
        reached = used.sum(axis=-1, keepdims=True)
        return np.where(reached > 0, used / np.where(reached > 0, reached, 1.0), self.behaviour())

    @abstractmethod
    def _improve(self) -> None:
        """The policy and prices after an episode."""

    def _begin(self) -> None:
        """The policy is always ready."""

    def _end(self) -> None:
        end_episode(self.book)
        use(self.book, self.usage)
        self._improve()


class Bench(NamedTuple):
    """Room for the values of a policy in the estimated model; nothing here outlives an episode."""

    means: Estimate  # its arrays are refilled
    bonus: FloatArray  # [H, S, A], added to every signal
    radius: FloatArray  # [T, S, A], of signals
    x: FloatArray  # [H, S, A]
    Q: FloatArray  # [1+N, H, S, A]
    V: FloatArray  # [H+1, S]
    start: FloatArray  # [1+N], optimistic start values
    mixed: FloatArray  # [H, S, A], Q of reward and priced utilities together

    @classmethod
    def of(cls, means: Estimate, H: int) -> Bench:
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
def evaluate(bench, pi, start_bonus):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill Q, `start` with truncated values of signals + bonus under pi in the estimated model."""
    H, S, A = bench.x.shape
    T = len(bench.means.p)
    for n in range(len(bench.Q)):
        for h in range(H):
            for s in range(S):
                for a in range(A):
                    bench.x[h, s, a] = bench.means.signals[n, h % T, s, a] + bench.bonus[h, s, a]
        update_truncated_values(bench.means.p, bench.x, pi, bench.Q[n], bench.V)
        bench.start[n] = start_bonus
        for s in range(S):
            bench.start[n] += bench.means.mu[s] * bench.V[0, s]
        bench.start[n] = min(bench.start[n], float(H))


@compiled
def bernstein_bonus(bench, kernel_log, mean_log):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill `bonus` with beta_l + H sum_s' beta_p; returns that of the start distribution."""
    H, S, A = bench.bonus.shape
    update_mean_radius(bench.means.visits, mean_log, bench.radius)
    update_transition_bonus(bench.means, kernel_log, bench.bonus)
    for h in range(H):
        for s in range(S):
            for a in range(A):
                bench.bonus[h, s, a] = bench.radius[h % len(bench.radius), s, a] + H * bench.bonus[h, s, a]
    return H * total_radius(bench.means.mu, bench.means.episodes[0], kernel_log)


@compiled
def mix(Q, lam, mixed):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill mixed [H, S, A] with Q[0] + sum_n lam_n Q[1 + n]."""
    H, S, A = mixed.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                mixed[h, s, a] = Q[0, h, s, a]
                for n in range(len(lam)):
                    mixed[h, s, a] += lam[n] * Q[1 + n, h, s, a]


@compiled
def mirror(pi, G, rate, allowed):  # type: ignore[no-untyped-def]  # pragma: no cover
    """pi[h, s, a] <- pi[h, s, a] exp(rate G[h, s, a]), normalised, no allowed action below FLOOR."""
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
                    pi[h, s, a] = max(pi[h, s, a] / total, FLOOR)


@compiled
def _retire(usage):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The newer half becomes the older one."""
    for h in range(usage.shape[1]):
        for s in range(usage.shape[2]):
            for a in range(usage.shape[3]):
                usage[0, h, s, a] = usage[1, h, s, a]
                usage[1, h, s, a] = 0.0


@compiled
def use(book, usage):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Note how the policy of the episode that has ended chooses where it went; a doubling retires the older half."""
    k = book.clock[EPISODES]
    for h in range(len(book.pi)):
        s = book.path[h]
        for a in range(book.pi.shape[2]):
            usage[1, h, s, a] += book.pi[h, s, a]
    if k & (k - 1) == 0:
        _retire(usage)
    book.clock[CHANGED] = 1
