"""Triple-QA: Q-learning for reward and utilities of a discounted surrogate, with queues as prices.

Wei, Liu, Ying, "A Provably-Efficient Model-Free Algorithm for Infinite-Horizon Average-Reward Constrained Markov
Decision Processes" (AAAI 2022, doi 10.1609/aaai.v36i4.20302). The guarantee is from the abstract: expected regret of
order T^(5/6) and no expected violation once T is large, for ergodic models with slack; later papers restate both. All
constants are from memory, without the text at hand:

    gamma = 1 - 1/H;  all values Q, C_n and their copies Q^, C^_n are H;  queues Z_n = 0
    every step: take a = argmax Q^(s, .) + sum_n Z_n / eta C^_n(s, .), see r, g, s', and let a' be the same at s'
        n(s, a) += 1;  alpha = (chi + 1) / (chi + n);  bonus = kappa sqrt((chi + 1) iota / (chi + n))
        Q(s, a) += alpha (r + gamma Q^(s', a') + bonus - Q(s, a)), and likewise every C_n
        where no value of (s, a) has become larger than its copy, the copies take the new values
    every frame: Z_n = max(0, Z_n + rho_n + eps - mean over the frame of (1 - gamma) C^_n(s, a))
        n = 0, and all values are H again

"theory", with T steps and iota = 8 log(sqrt(2) T): chi = T^(1/3), frames of T^(2/3) steps, H = T^(1/6), eta = T^(1/6),
eps = 9 kappa sqrt(S A iota) / T^(1/6). kappa must bound the span of the values; H does, whatever the model.

Model-free: memory O(S A N), and O(A N) work per step.

Departures of "practical": H = 10, frames of sqrt(T) steps, chi = 2, eta = 1, eps = 0.002, no bonus and no copies; the
queues are driven by the utilities that were realised; after a frame the visits are multiplied by 0.85 instead of being
forgotten, and the values are raised by 0.001 H (1 - t / T) instead of being set to H, which tries everything again now
and then. H, eta and the lift are the best of 27 settings on development problems
(`bench/history/settings.md`, in a clone). Both presets return the shares of actions in the second half of the
run. H must exceed the time that the process needs to forget where it began, because what is learned is a discounted
problem.

A discounted problem is learned as the long-run average of a world that begins again: a new start is a step like others.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.learners import Params, Spec
from cmdpkit.learners._continuing import StepLearner, arrive, observe
from cmdpkit.learners._q_learning import numbers_of
from cmdpkit.learners.params import above_one, above_zero, at_least_one, at_least_zero, ruled
from cmdpkit.model.compiled import compiled, readonly
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.policies import conditional

STEPS, LEFT = 0, 1  # entries of `TripleQALearned.clock`


@dataclass(frozen=True, kw_only=True)
class TripleQAParams(Params):
    """Numbers that do not change during a run; the defaults are those of "practical"."""

    horizon: float = above_one(10.0)  # H: values are discounted by 1 - 1 / H
    frame: int = at_least_one()  # steps between two changes of the queues
    chi: float = at_least_zero(2.0)  # of the learning rate (chi + 1) / (chi + n)
    eta: float = above_zero(1.0)  # a queue divided by this is a price
    eps: float = at_least_zero(0.002)  # by how much the bounds are tightened
    bonus: float = at_least_zero(0.0)  # of a first visit
    keep: float = ruled("between 0 and 1", lambda x: 0 <= x <= 1)(0.85)  # share of the visits kept after a frame
    lift: float = at_least_zero(0.001)  # times H: rise of values after a frame, less with time; infinite: they become H
    monotone: bool = False  # whether decisions are made by copies of the values that never rise within a frame
    estimated: bool = False  # whether queues are driven by learned utilities instead of realised ones


TripleQANumbers = numbers_of(TripleQAParams)


def practical(spec: Spec) -> TripleQAParams:
    """Settings for runs that people can wait for."""
    return TripleQAParams(frame=max(1, round(math.sqrt(spec.K))))


def theory(spec: Spec) -> TripleQAParams:
    """The constants of the paper."""
    T = float(spec.K)
    root = max(T ** (1 / 6), 1.001)  # H must exceed 1
    iota, kappa = 8 * math.log(math.sqrt(2) * T), root
    return TripleQAParams(
        horizon=root,
        frame=math.ceil(T ** (2 / 3)),
        chi=T ** (1 / 3),
        eta=root,
        eps=9 * kappa * math.sqrt(spec.S * spec.A * iota) / root,
        bonus=kappa * math.sqrt(iota),
        keep=0.0,
        lift=math.inf,
        monotone=True,
        estimated=True,
    )


class TripleQALearned(NamedTuple):
    """What one run has learned; arrays that the compiled loop updates."""

    values: FloatArray  # [S, A, 1+N]: Q and every C_n
    copies: FloatArray  # [S, A, 1+N]: Q^ and every C^_n, by which actions are chosen
    visits: FloatArray  # [S, A]: n, faded at the end of frames
    queue: FloatArray  # [N]: Z
    driven: FloatArray  # [N]: utilities of this frame, realised or learned, added up
    clock: IntArray  # [2]: steps taken, and steps left in the frame
    place: IntArray  # [2]: the present state and the action chosen there
    signals: FloatArray  # [1+N]: those of the last step, until it is known where it has led
    taken: IntArray  # [2, S, A]: how often an action was taken in the first and in the second half of the run


class TripleQAPlayer(NamedTuple):
    """What compiled code plays and learns from."""

    place: IntArray  # that of `learned`
    learned: TripleQALearned
    usable: BoolArray  # [S, A]
    rho: FloatArray  # [N]: bounds, tightened by eps
    steps: int  # T
    p: Any  # the fields of `TripleQAParams`


class TripleQA(StepLearner):
    """Triple-QA at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> ck.learn("machine-two", "triple-qa", steps=1000).policy.pi.shape
    (1, 2, 3)
    """

    title = "Triple-QA: Q-learning with queues as prices, model-free, for averages and discounted totals."
    guarantee = "expected regret of order T^(5/6), no expected violation for large T; ergodic models with slack"
    paper = "doi 10.1609/aaai.v36i4.20302"
    source = "memory"
    presets = {"practical": practical, "theory": theory}
    fixed = (*StepLearner.fixed, "player")
    params: TripleQAParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, cells = self.params, (spec.S, spec.A, 1 + spec.N)
        self.learned = TripleQALearned(
            values=np.full(cells, p.horizon),
            copies=np.full(cells, p.horizon),
            visits=np.zeros(cells[:2]),
            queue=np.zeros(spec.N),
            driven=np.zeros(spec.N),
            clock=np.array([0, p.frame], dtype=np.int64),
            place=np.full(2, -1, dtype=np.int64),
            signals=np.zeros(1 + spec.N),
            taken=np.zeros((2, *cells[:2]), dtype=np.int64),
        )
        usable, rho = readonly(spec.allowed[0]), readonly(spec.rho + p.eps)
        numbers = TripleQANumbers(*astuple(p))
        self.player = TripleQAPlayer(self.learned.place, self.learned, usable, rho, spec.K, numbers)
        self.notes = _notes(spec, p)

    def _player(self) -> TripleQAPlayer:
        return self.player

    def behaviour(self) -> FloatArray:
        """pi [1, S, A] that is played now."""
        chosen = [best(self.player, s) for s in range(self.spec.S)]
        return np.eye(self.spec.A)[chosen][None]

    def recommend(self) -> FloatArray:
        """pi [1, S, A]: shares of actions in the second half of the run, else in the first, else what is played."""
        pi = self.behaviour()
        for taken in self.learned.taken:
            pi = conditional(taken, pi)
        return pi

    @property
    def multipliers(self) -> FloatArray:
        """The prices lam [N] = Z / eta."""
        return self.learned.queue / self.params.eta

    def internals(self) -> dict[str, Any]:
        """How many frames have ended, and the prices now, in unit scale."""
        frames = int(self.learned.clock[STEPS]) // self.params.frame
        return {"frames": frames, "prices": self.multipliers.round(6).tolist()}


def _notes(spec: Spec, p: TripleQAParams) -> tuple[str, ...]:
    """What makes constants vacuous at this number of steps."""
    said = []
    if spec.N and p.eps > 1:
        said.append(
            f"the bounds are tightened by {p.eps:.3g} times the range of a utility: the queues grow without end, and "
            "the reward counts for nothing"
        )
    if p.bonus > p.horizon:
        said.append(
            f"the bonus of a first visit is {p.bonus / p.horizon:.3g} times the largest value: in every frame values "
            "stay at their start until bonuses have faded"
        )
    return tuple(said)


@observe.of(TripleQAPlayer)
def _observe(player, outcomes, x):
    for n in range(len(player.learned.signals)):
        player.learned.signals[n] = outcomes[x, n]


@arrive.of(TripleQAPlayer)
def _arrive(player, s, restarted, rng):
    if player.place[0] < 0:  # the run begins
        player.place[0], player.place[1] = s, best(player, s)
    else:
        learn(player, s)
    return True


@compiled
def best(player, s):
    """The action that maximises Q^ + sum_n Z_n / eta C^_n; ties go to the lower number."""
    learned = player.learned
    found, top = -1, -np.inf
    for a in range(player.usable.shape[1]):
        if not player.usable[s, a]:
            continue
        value = learned.copies[s, a, 0]
        for n in range(len(learned.queue)):
            value += learned.queue[n] / player.p.eta * learned.copies[s, a, n + 1]
        if value > top:
            found, top = a, value
    return found


@compiled
def learn(player, s_next):
    """Learn from the step at `learned.place`, which led to s_next, and choose an action there."""
    learned, p, s, a = player.learned, player.p, player.place[0], player.place[1]
    signals, a_next = learned.signals, best(player, s_next)
    learned.taken[1 if 2 * learned.clock[STEPS] >= player.steps else 0, s, a] += 1
    learned.visits[s, a] += 1.0
    n_visits = learned.visits[s, a]
    rate = (p.chi + 1.0) / (p.chi + n_visits)
    gamma = 1.0 - 1.0 / p.horizon
    bonus = p.bonus * np.sqrt((p.chi + 1.0) / (p.chi + n_visits))
    lower = True
    for n in range(len(signals)):
        if n > 0:
            learned.driven[n - 1] += learned.copies[s, a, n] / p.horizon if p.estimated else signals[n]
        target = signals[n] + gamma * learned.copies[s_next, a_next, n] + bonus
        learned.values[s, a, n] += rate * (target - learned.values[s, a, n])
        lower = lower and learned.values[s, a, n] <= learned.copies[s, a, n]
    if lower or not p.monotone:
        for n in range(len(signals)):
            learned.copies[s, a, n] = learned.values[s, a, n]
    learned.clock[STEPS] += 1
    learned.clock[LEFT] -= 1
    if learned.clock[LEFT] == 0:  # move the queues, let the visits fade and raise the values
        learned.clock[LEFT] = p.frame
        for n in range(len(learned.queue)):
            learned.queue[n] = max(0.0, learned.queue[n] + player.rho[n] - learned.driven[n] / p.frame)
            learned.driven[n] = 0.0
        share = 1.0 - learned.clock[STEPS] / player.steps
        S, A, M = learned.values.shape
        for i in range(S):
            for b in range(A):
                learned.visits[i, b] *= p.keep
                for n in range(M):
                    value = learned.values[i, b, n]
                    if share > 0.0 and p.lift > 0.0:
                        learned.values[i, b, n] = min(p.horizon, value + p.lift * p.horizon * share)
                    learned.copies[i, b, n] = learned.values[i, b, n]
        a_next = best(player, s_next)
    learned.place[0] = s_next
    learned.place[1] = a_next
