"""Learners that change their policy and their prices a little after every episode.

Their guarantees are about the average of all policies played, so what they return is a mixture: the policy that
chooses, in every state at every step, as the policies of the last half to three quarters of the run did when they came
there.

Values of a policy follow from Q[h] = x[h] + p[h] V[h+1], V[h, s] = sum_a pi[h, s, a] Q[h, s, a], V[H] = 0. Truncated
evaluation also cuts every Q[h] to [0, H - h] before V is taken: no sum of numbers in [0, 1] over the remaining steps
lies outside, so nothing true is lost when x carries an optimistic bonus. The cut and the entropy are what
`update_values` adds to the operator `lookahead`, whose rows are the counts themselves. Pessimistic utilities are never
truncated: cutting them from below would call a policy safer than it was shown to be.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.counts import frequencies, mean_of
from cmdpkit.estimate.radii import hoeffding, row_radius, start_bonus
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import ModelBased, follow_up
from cmdpkit.model.compiled import compiled, primitive
from cmdpkit.model.tolerances import LEAST_PROBABILITY
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.policies import conditional
from cmdpkit.operators.steps import lookahead

# -- Values of a policy in an estimated model.


class PolicyEvaluation(NamedTuple):
    """The values of a policy in the estimated model; they are found again after every episode."""

    allowed: BoolArray  # [H, S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    signals: FloatArray  # [1+N, T, S, A]: mean reward and utilities; 0 where the action was never taken
    mu: FloatArray  # [S]: start distribution; uniform before the first episode
    visits: IntArray  # [T*S*A]: visits that `signals` and `bonus` rest on; -1 before the first
    bonus: FloatArray  # [H, S, A]: what is added to every signal
    x: FloatArray  # [H, S, A]: the signal that is being evaluated, with its bonus
    Q: FloatArray  # [1+N, H, S, A]: action values of reward and utilities
    V: FloatArray  # [H+1, S]: state values of the signal that is being evaluated
    start: FloatArray  # [1+N]: optimistic expected totals of reward and utilities from the start
    mixed: FloatArray  # [H, S, A]: Q of the reward and of the priced utilities together, less tau ln pi

    @classmethod
    def of(cls, spec: Spec, T: int) -> PolicyEvaluation:
        """Before the first episode; T is 1 where all steps share their counts, else H."""
        cells = spec.allowed.shape
        return cls(
            allowed=np.array(spec.allowed, order="C"),
            rho=spec.rho,
            signals=np.zeros((1 + spec.N, T, *cells[1:])),
            mu=np.zeros(spec.S),
            visits=np.full(T * spec.S * spec.A, -1),
            bonus=np.zeros(cells),
            x=np.zeros(cells),
            Q=np.zeros((1 + spec.N, *cells)),
            V=np.zeros((spec.H + 1, spec.S)),
            start=np.zeros(1 + spec.N),
            mixed=np.zeros(cells),
        )


@compiled
def update_values(rows, x, pi, least, most_per_step, tau, Q, V):
    """Fill Q [H, S, A], cut to [least, most_per_step (H - h)], and V [H+1, S], to which tau times the entropy adds."""
    H, S, A = pi.shape
    V[H] = 0.0
    for h in range(H - 1, -1, -1):
        lookahead(rows, x, h, V[h + 1], Q[h])
        most = most_per_step * (H - h)
        for s in range(S):
            total = 0.0
            for a in range(A):
                Q[h, s, a] = min(max(Q[h, s, a], least), most)
                if tau == 0.0:
                    total += pi[h, s, a] * Q[h, s, a]
                elif pi[h, s, a] > 0.0:
                    total += pi[h, s, a] * (Q[h, s, a] - tau * math.log(pi[h, s, a]))
            V[h, s] = total


@primitive
def bonus_of(bonus, counts, row):
    """What is added to every signal of a row of counts: where a transition follows, and at the last step."""


@primitive
def start_bonus_of(bonus, counts):
    """What the unknown start distribution adds to every expected total."""


@compiled
def update_estimates(bonus, counts, values, extra):
    """Bring mean signals, bonus and start up to date; means divide by `extra` more than the number of observations."""
    H, S, A = values.bonus.shape
    M, T = values.signals.shape[:2]
    for t in range(T):
        for s in range(S):
            for a in range(A):
                row = (t * S + s) * A + a
                n = counts.visits[row]
                if values.visits[row] == n:
                    continue
                values.visits[row] = n
                for m in range(M):
                    values.signals[m, t, s, a] = mean_of(counts, row, m, extra)
                before_last, last = bonus_of(bonus, counts, row)
                for h in range(t, H, T):  # all steps that share the counts
                    values.bonus[h, s, a] = before_last if h + 1 < H else last
    episodes = counts.starts.sum()
    for s in range(S):
        values.mu[s] = counts.starts[s] / (episodes + extra) if episodes > 0 else (1.0 - extra) / S


@compiled
def evaluate(bonus, counts, values, pi, extra, tau):
    """Fill Q and `start` with the values of pi in the estimated model with a bonus on every signal.

    Values are truncated, except that of the reward if tau times the entropy of the steps to come adds to it (not None).
    """
    (H, S, A), T = pi.shape, values.signals.shape[1]
    rows, start_bonus = frequencies(counts, A, extra), start_bonus_of(bonus, counts)
    for n in range(len(values.Q)):
        for h in range(H):
            t = h % T
            for s in range(S):
                for a in range(A):
                    values.x[h, s, a] = values.signals[n, t, s, a] + values.bonus[h, s, a]
        if tau is not None and n == 0:
            update_values(rows, values.x, pi, -np.inf, 1.0 + tau * math.log(A), tau, values.Q[n], values.V)
        else:
            update_values(rows, values.x, pi, 0.0, 1.0, 0.0, values.Q[n], values.V)
        values.start[n] = start_bonus
        for s in range(S):
            values.start[n] += values.mu[s] * values.V[0, s]
        values.start[n] = min(values.start[n], float(H))


@compiled
def evaluate_and_mix(bonus, counts, values, playing, extra, tau):
    """Evaluate the policy in use with the newest counts, and fill `mixed`."""
    update_estimates(bonus, counts, values, extra)
    evaluate(bonus, counts, values, playing.pi, extra, tau)
    mix(values, playing, tau)


class BernsteinBonus(NamedTuple):
    """beta_l + H sum_s' beta_p, and H sum_s beta_p of the start."""

    H: int
    kernel_log: float  # the logarithm inside the radii of transitions
    mean_log: float  # the logarithm inside the radii of signals


@bonus_of.of(BernsteinBonus)
def _bernstein(bonus, counts, row):
    radius = hoeffding(counts.visits[row], bonus.mean_log)
    return radius + bonus.H * row_radius(counts, row, bonus.kernel_log), radius


@start_bonus_of.of(BernsteinBonus)
def _bernstein_start(bonus, counts):
    return bonus.H * start_bonus(counts.starts, bonus.kernel_log)


# -- Steps of policy and prices.


@compiled
def mix(values, playing, tau):
    """Fill `mixed` with Q[0] + sum_n lam_n Q[1 + n] - tau ln pi; without the last term if tau is None."""
    H, S, A = values.mixed.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                values.mixed[h, s, a] = values.Q[0, h, s, a]
                for n in range(len(playing.lam)):
                    values.mixed[h, s, a] += playing.lam[n] * values.Q[1 + n, h, s, a]
                if tau is not None and values.allowed[h, s, a]:
                    values.mixed[h, s, a] -= tau * math.log(playing.pi[h, s, a])


@compiled
def mirror(pi, values, rate):
    """pi[h, s, a] <- pi[h, s, a] exp(rate mixed[h, s, a]), normalised, no allowed action below LEAST_PROBABILITY."""
    G, allowed, (H, S, A) = values.mixed, values.allowed, pi.shape
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


@compiled
def take(pi, choice):
    """Let pi [H, S, A] take the actions `choice` [H, S]."""
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                pi[h, s, a] = 1.0 if a == choice[h, s] else 0.0


@compiled
def move_prices(lam, rho, w, rate, tau, margin, cap):
    """lam_n <- clip((1 - rate tau) lam_n + rate (rho_n + margin - w_n), 0, cap)."""
    for n in range(len(lam)):
        lam[n] = min(max((1.0 - rate * tau) * lam[n] + rate * (rho[n] + margin - w[n]), 0.0), cap)


# -- What follows an episode.


class PolicySteps(NamedTuple):
    """What is done after an episode: the policy is remembered, then `improve` changes it, and the prices."""

    choices: FloatArray  # [2, H, S, A]: choices before and since the number of episodes last doubled
    parts: Any  # working memory and constants of the learner; their type says which `improve` it is


@primitive
def improve(parts, counts, playing):
    """Change policy and prices after an episode."""


@follow_up.of(PolicySteps)
def _improve_after(steps, counts, playing, episode):
    """Note the policy in the states of the episode, and improve it.

    When the number of episodes has doubled, the older half of what was noted is dropped.
    """
    choices, k = steps.choices, playing.episodes[0]
    for h in range(len(playing.pi)):
        s = episode.states[h]
        for a in range(playing.pi.shape[2]):
            choices[1, h, s, a] += playing.pi[h, s, a]
    if k & (k - 1) == 0:
        for h in range(choices.shape[1]):
            for s in range(choices.shape[2]):
                for a in range(choices.shape[3]):
                    choices[0, h, s, a] = choices[1, h, s, a]
                    choices[1, h, s, a] = 0.0
    improve(steps.parts, counts, playing)
    playing.changed[0] = True
    return False


@compiled
def improved(parts, counts, playing):
    """Change policy and prices before the first episode."""
    improve(parts, counts, playing)


# -- The base class.


class Improving(ModelBased):
    """A learner that improves its policy after every episode; unless it says otherwise, it returns a mixture of all."""

    changing: ClassVar[tuple[str, ...]] = ("playing", "counts", "choices")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.values = PolicyEvaluation.of(spec, self.T)
        # [2, H, S, A]: choices before and since the number of episodes last doubled.
        self.choices = np.zeros((2, *spec.allowed.shape))

    def improve_with(self, parts: Any, *derived: IntArray) -> None:
        """Give `parts` to `improve` after every episode; `derived` are further visits that their memory rests on."""
        self.after = PolicySteps(self.choices, parts)
        self.derived = (self.values.visits, *derived)

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that chooses as the policies of the last half to three quarters of the run did."""
        return conditional(self.choices.sum(axis=0), self.behaviour())
