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
(in a clone: `python -m bench average_settings`). Both presets hand over the shares of actions in the second half of the
run. H must exceed the time that the process needs to forget where it began, because what is learned is a discounted
problem.

A discounted problem is learned as the long-run average of a world that begins again: a new start is a step like others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.learners.contract import Learner
from cmdpkit.learners.params import Params
from cmdpkit.learners.spec import Returns, Spec, check_walk
from cmdpkit.model.compiled import compiled, embedded, readonly
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import reset
from cmdpkit.simulate.steps import Walk, advance, count_step

STEPS, LEFT, PENDING = 0, 1, 2  # entries of `TripleQALearned.clock`


@dataclass(frozen=True)
class TripleQAParams(Params):
    """Numbers that do not change during a run."""

    horizon: float  # H: values are discounted by 1 - 1 / H
    frame: int  # steps between two changes of the queues
    chi: float  # of the learning rate (chi + 1) / (chi + n)
    eta: float  # a queue divided by this is a price
    eps: float  # by how much the bounds are tightened
    bonus: float  # of a first visit
    keep: float  # share of the visits that is kept after a frame
    lift: float  # times H: by how much values are raised after the first frame, later less; infinite: they become H
    monotone: bool  # whether decisions are made by copies of the values that never rise within a frame
    estimated: bool  # whether queues are driven by learned utilities instead of realised ones

    def __post_init__(self) -> None:
        self._expect("horizon", 1 < self.horizon < math.inf, "a finite number above 1")
        self._expect("frame", self.frame >= 1, "at least 1")
        for name in ("chi", "eps", "bonus", "lift"):
            self._expect(name, getattr(self, name) >= 0, "at least 0")
        self._expect("eta", self.eta > 0, "more than 0")
        self._expect("keep", 0 <= self.keep <= 1, "between 0 and 1")


def practical(spec: Spec) -> TripleQAParams:
    """Settings for runs that people can wait for."""
    frame = max(1, round(math.sqrt(spec.K)))
    return TripleQAParams(10.0, frame, 2.0, 1.0, 0.002, 0.0, 0.85, 0.001, monotone=False, estimated=False)


def theory(spec: Spec) -> TripleQAParams:
    """The constants of the paper."""
    T = float(spec.K)
    root = max(T ** (1 / 6), 1.001)  # H must exceed 1
    iota, kappa, chi = 8 * math.log(math.sqrt(2) * T), root, T ** (1 / 3)
    eps = 9 * kappa * math.sqrt(spec.S * spec.A * iota) / root
    bonus, frame = kappa * math.sqrt(iota), math.ceil(T ** (2 / 3))
    return TripleQAParams(root, frame, chi, root, eps, bonus, 0.0, math.inf, monotone=True, estimated=True)


class TripleQALearned(NamedTuple):
    """What one run has learned; arrays that the compiled loop updates."""

    values: Any  # [S, A, 1+N]: Q and every C_n
    copies: Any  # [S, A, 1+N]: Q^ and every C^_n, by which actions are chosen
    visits: Any  # [S, A]: n, faded at the end of frames
    queue: Any  # [N]: Z
    driven: Any  # [N]: utilities of this frame, realised or learned, added up
    clock: Any  # [3]: steps taken, steps left in the frame, and whether signals are pending
    place: Any  # [2]: the present state and the action chosen there
    pending: Any  # [1+N]: signals of a step that is followed by a new start, until that start is known
    taken: Any  # [2, S, A]: how often an action was taken in the first and in the second half of the run


class TripleQAConstants(NamedTuple):
    """What compiled code needs to know of spec and parameters."""

    usable: Any  # [S, A]
    rho: Any  # [N]: bounds, tightened by eps
    steps: int  # T
    frame: int  # this and the fields below are those of `TripleQAParams`
    horizon: float
    chi: float
    eta: float
    bonus: float
    keep: float
    lift: float
    monotone: bool
    estimated: bool


class TripleQA(Learner):
    """Triple-QA at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = ck.load("machine-two")
    >>> learner = TripleQA(Spec.of(cmdp, K=1000))
    >>> returns = learner.walk(Walk.of(cmdp), stream(1), 1000)
    >>> learner.recommend().shape
    (1, 2, 3)
    """

    title = "Triple-QA: Q-learning with queues as prices, model-free, for averages and discounted totals."
    guarantee = "expected regret of order T^(5/6), no expected violation for large T; ergodic models with slack"
    paper = "doi 10.1609/aaai.v36i4.20302"
    source = "memory"
    criteria: ClassVar[tuple[str, ...]] = ("average", "discounted")
    presets = {"practical": practical, "theory": theory}
    fixed = (*Learner.fixed, "constants")
    params: TripleQAParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, cells = self.params, (spec.S, spec.A, 1 + spec.N)
        self.constants = TripleQAConstants(
            readonly(spec.allowed[0]), readonly(spec.rho + p.eps), spec.K, p.frame, p.horizon, p.chi, p.eta, p.bonus,
            p.keep, p.lift, p.monotone, p.estimated,
        )  # fmt: skip
        self.learned = TripleQALearned(
            values=np.full(cells, p.horizon),
            copies=np.full(cells, p.horizon),
            visits=np.zeros(cells[:2]),
            queue=np.zeros(spec.N),
            driven=np.zeros(spec.N),
            clock=np.array([0, p.frame, 0], dtype=np.int64),
            place=np.full(2, -1, dtype=np.int64),
            pending=np.zeros(1 + spec.N),
            taken=np.zeros((2, *cells[:2]), dtype=np.int64),
        )
        self.notes = _notes(spec, p)

    def first(self, s: int, rng: Stream) -> int:
        """Begin the run, or go on after a new start, in state s."""
        learned = self.learned
        if learned.clock[PENDING]:
            learned.clock[PENDING] = 0
            learn(learned, self.constants, readonly(learned.pending), s)
            learned.pending[...] = 0.0
        else:
            learned.place[:] = s, best(learned, self.constants, s)
        return int(learned.place[1])

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step, and choose the next action."""
        learn(self.learned, self.constants, readonly(signals), s)
        return int(self.learned.place[1])

    def last(self, signals: FloatArray) -> None:
        """Remember a step that is followed by a new start."""
        self.learned.pending[...] = signals
        self.learned.clock[PENDING] = 1

    def walk(self, walk: Walk, rng: Stream, n: int) -> Returns:
        """Take n more steps in compiled code."""
        check_walk(walk, self.spec)
        out = np.empty((1 + self.spec.N, n))
        if walk.place[0] < 0:
            self.first(int(reset(walk.simulator, rng)), rng)
        play(walk, self.learned, self.constants, rng, out)
        walk.place[...] = self.learned.place
        return Returns(out[0], out[1:])

    def behaviour(self) -> FloatArray:
        """pi [1, S, A] that is played now."""
        chosen = [best(self.learned, self.constants, s) for s in range(self.spec.S)]
        pi: FloatArray = np.eye(self.spec.A)[chosen][None]
        return pi

    def recommend(self) -> FloatArray:
        """pi [1, S, A]: shares of actions in the second half of the run, else in the first, else what is played."""
        pi = self.behaviour()
        for taken in self.learned.taken:
            total = taken.sum(axis=1, keepdims=True)
            pi = np.where(total > 0, taken / np.maximum(total, 1), pi)
        return pi

    @property
    def multipliers(self) -> FloatArray:
        """The prices lam [N] = Z / eta."""
        prices: FloatArray = self.learned.queue / self.params.eta
        return prices

    def explain(self) -> dict[str, Any]:
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


@compiled
def play(walk, learned, c, rng, out):
    """Take as many steps as out [1+N, n] has columns."""
    outcomes = walk.simulator.outcomes
    for t in range(out.shape[1]):
        s, a = learned.place[0], learned.place[1]
        s_next, x, _ = advance(walk, s, a, rng)
        signals = outcomes[x]
        count_step(walk.meter, s, a, signals)
        for n in range(len(signals)):
            out[n, t] = signals[n]
        learn(learned, c, signals, np.int64(s_next))


@compiled
def best(learned, c, s):
    """The action that maximises Q^ + sum_n Z_n / eta C^_n; ties go to the lower number."""
    found, top = -1, -np.inf
    for a in range(c.usable.shape[1]):
        if not c.usable[s, a]:
            continue
        value = learned.copies[s, a, 0]
        for n in range(len(learned.queue)):
            value += learned.queue[n] / c.eta * learned.copies[s, a, n + 1]
        if value > top:
            found, top = a, value
    return found


@compiled
def learn(learned, c, signals, s_next):
    """Learn from the signals [1+N] of the step at `learned.place`, which led to s_next, and choose an action there."""
    s, a = learned.place[0], learned.place[1]
    a_next = best(learned, c, s_next)
    learned.taken[1 if 2 * learned.clock[STEPS] >= c.steps else 0, s, a] += 1
    learned.visits[s, a] += 1.0
    n_visits = learned.visits[s, a]
    rate = (c.chi + 1.0) / (c.chi + n_visits)
    gamma = 1.0 - 1.0 / c.horizon
    bonus = c.bonus * np.sqrt((c.chi + 1.0) / (c.chi + n_visits))
    lower = True
    for n in range(len(signals)):
        if n > 0:
            learned.driven[n - 1] += learned.copies[s, a, n] / c.horizon if c.estimated else signals[n]
        target = signals[n] + gamma * learned.copies[s_next, a_next, n] + bonus
        learned.values[s, a, n] += rate * (target - learned.values[s, a, n])
        lower = lower and learned.values[s, a, n] <= learned.copies[s, a, n]
    if lower or not c.monotone:
        for n in range(len(signals)):
            learned.copies[s, a, n] = learned.values[s, a, n]
    learned.clock[STEPS] += 1
    learned.clock[LEFT] -= 1
    if learned.clock[LEFT] == 0:
        _end_frame(learned, c)
        a_next = best(learned, c, s_next)
    learned.place[0] = s_next
    learned.place[1] = a_next


@embedded
def _end_frame(learned, c):
    """Move the queues, let the visits fade and raise the values."""
    learned.clock[LEFT] = c.frame
    for n in range(len(learned.queue)):
        learned.queue[n] = max(0.0, learned.queue[n] + c.rho[n] - learned.driven[n] / c.frame)
        learned.driven[n] = 0.0
    share = 1.0 - learned.clock[STEPS] / c.steps
    S, A, M = learned.values.shape
    for s in range(S):
        for a in range(A):
            learned.visits[s, a] *= c.keep
            for n in range(M):
                if share > 0.0 and c.lift > 0.0:
                    learned.values[s, a, n] = min(c.horizon, learned.values[s, a, n] + c.lift * c.horizon * share)
                learned.copies[s, a, n] = learned.values[s, a, n]
