"""Triple-Q: model-free learning with a virtual queue per constraint.

Wei, Liu, Ying, "A Provably-Efficient Model-Free Algorithm for Constrained Markov Decision Processes" (AISTATS 2022,
arXiv 2106.01577). Three things are learned: action values Q of the reward, action values C_n of every utility, and
queues Z_n that grow while a constraint is short. Actions maximise Q + sum_n (Z_n / eta) C_n.

Output: the occupancy of the last part of the run. Memory O(H S A (1 + N)).

Symbols: Q, C_n = columns of `TripleQLearned.cells`; t = its last column; Z = `queue`; Z / eta = `weight`;
alpha_t = (chi + 1) / (chi + t); b_t = bonus / sqrt(bonus_offset + t).

Departures from the paper, all behind `TripleQParams` (see docs/algorithms/triple-q.md for why):
- N constraints: one queue and one table C_n each, summed in the argmax, as the paper's conclusion suggests.
- An action set: the learner never uses an action that `Spec.allowed` excludes (its Q is minus infinity).
- Ties are broken at random when a frame begins (not in "practical", nor in the first frame); within a frame they go to
  the action that was best before, else to the first. Optimism resolves them by trying.
- "practical": queues follow realised utilities; counts fade and tables are lifted at a frame's end instead of being
  reset; the tightening is what repays the violation so far plus a margin; queues that swing are damped.
- "authors": each table is cut at its own ceiling (in their code a C above H also resets Q), and the queue reads C
  before the update of its episode, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cmdpkit.learners import Learner, Returns, Source, Spec
from cmdpkit.learners._note import Note
from cmdpkit.learners.triple_q.presets import TripleQParams, authors, notes, practical, theory
from cmdpkit.learners.triple_q.updates import TripleQConstants, TripleQLearned, chosen, learn, play, scan
from cmdpkit.model.compiled import per_signal
from cmdpkit.model.policy import one_hot
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream


class TripleQ(Learner):
    """Triple-Q at work; keyword arguments other than the preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = TripleQ(Spec.of(cmdp, K=20_000), eta=4.0)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 20_000)
    >>> bool(abs(returns.utilities.mean() - 2.0) < 0.05)
    True
    """

    title = "Triple-Q: model-free learning with a virtual queue per constraint."
    guarantee = (
        "regret of order (1/slack) H^4 sqrt(S A) K^0.8 and zero violation with preset theory, for K beyond any that "
        "can be run"
    )
    paper = "arXiv 2106.01577"
    source = "text"
    presets = {"practical": practical, "theory": theory, "authors": authors}

    changing: ClassVar[tuple[str, ...]] = ("learned",)
    params: TripleQParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.notes = notes(spec, self.preset)
        self.constants = _constants(spec, self.params)
        self.learned = _nothing_learned(spec, self.params, self.constants)
        self._episode_so_far = EpisodeSoFar.of(spec)
        scan(self.learned, self.constants)

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in the compiled loop."""
        source.check(self.spec)
        out = np.empty((1 + self.spec.N, n))
        play(source.simulator, source.meter, self.learned, self.constants, rng, out)
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self.learned.changed[0] = False
        self._episode_so_far.steps = 0
        return self._act(s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self._episode_so_far.earn(signals)
        return self._act(s, rng)

    def last(self, signals: FloatArray) -> None:
        """Note the last step's reward and utilities [1+N], and learn from the episode.

        Learning can wait until now because no choice within an episode depends on what was learned in it.
        """
        done = self._episode_so_far
        done.earn(signals)
        learn(self.learned, self.constants, done.states, done.actions, done.signals, done.rng)

    def _act(self, s: int, rng: Stream) -> int:
        """Choose an action at the next step, and note both."""
        now = self._episode_so_far
        action = int(chosen(self.learned, self.constants, now.steps, s, rng))
        now.states[now.steps], now.actions[now.steps], now.rng = s, action, rng
        return action

    def episodic(self) -> TripleQEpisodes:
        """The learner in the form that is driven by whole episodes."""
        return TripleQEpisodes(self)

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays: greedy, mixed with random actions where the preset explores."""
        usable = self.spec.allowed
        explore = self.learned.explore[0]
        pi: FloatArray = (1 - explore) * self._greedy() + explore * usable / usable.sum(axis=-1, keepdims=True)
        return pi

    def recommend(self) -> FloatArray:
        """pi [H, S, A] with the occupancy of the last half to three quarters of the run.

        It is better than the policy of any single episode. In states that the run did not reach in that time it takes
        the greedy action.
        """
        used = self.usage()
        reached = used.sum(axis=-1, keepdims=True)
        return np.where(reached > 0, used / np.maximum(reached, 1.0), self._greedy())

    def usage(self) -> FloatArray:
        """How often each (h, s, a) was used, [H, S, A], in the last half to three quarters of the run.

        Counting began when the number of frames reached the power of 2 before the most recent one.
        """
        return self._uses(2)

    def total_usage(self) -> FloatArray:
        """How often each (h, s, a) was used in the whole run, [H, S, A]."""
        return self._uses(3)

    def _uses(self, parts: int) -> FloatArray:
        """Uses of the running frame, and of the first `parts` rows of `TripleQLearned.usage`."""
        spec, t = self.spec, self.learned
        used: FloatArray = np.rint(t.usage[:parts].sum(axis=0) + t.cells[: len(t.kept), -1] - t.kept)
        return used.reshape(spec.H, spec.S, spec.A)

    @property
    def multipliers(self) -> FloatArray:
        """Z / eta [N], the price in reward that is put on each utility now."""
        return self.learned.weight.copy()

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that are still missed in the second half of the run."""
        spec, episodes = self.spec, self.learned.frames[0] * self.params.frame
        if episodes < spec.K / 2:
            return ()
        return tuple(
            Note("missed on average", n, by=debt / episodes, price=lam, figure=episodes)
            for n, (lam, debt) in enumerate(zip(self.multipliers, self.learned.debt, strict=True))
            if debt > self.params.missed * spec.H * episodes
        )

    def _greedy(self) -> FloatArray:
        spec = self.spec
        return one_hot(self.learned.best[: spec.H * spec.S].reshape(spec.H, spec.S), spec.A)


@dataclass
class EpisodeSoFar:
    """The running episode, when it is driven step by step."""

    states: IntArray  # [H]: the state at each step
    actions: IntArray  # [H]: the action taken at each step
    signals: FloatArray  # [H, 1+N]: reward and utilities of each step
    rng: Stream  # the stream that random actions are drawn from
    steps: int = 0  # how many steps are over

    @classmethod
    def of(cls, spec: Spec) -> EpisodeSoFar:
        """For the sizes of a problem."""
        states, actions = np.zeros((2, spec.H), dtype=np.int64)
        return cls(states, actions, np.zeros((spec.H, 1 + spec.N)), np.zeros(4, dtype=np.uint64))

    def earn(self, signals: FloatArray) -> None:
        """Note the outcome of a step."""
        self.signals[self.steps] = signals
        self.steps += 1


class TripleQEpisodes:
    """Triple-Q driven by whole episodes: it learns when an episode ends.

    No choice within an episode depends on what was learned in it, so this is the same algorithm, to the bit.
    """

    def __init__(self, learner: TripleQ) -> None:
        self.learned, self.constants, self.S = learner.learned, learner.constants, learner.spec.S

    def begin(self, rng: Stream) -> None:
        """A new episode."""
        self.learned.changed[0] = False
        self.rng = rng

    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s."""
        if self.constants.explores:
            return int(chosen(self.learned, self.constants, h, s, self.rng))
        return int(self.learned.best.item(h * self.S + s))

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode: states [H or more], actions [H], reward and utilities [H, 1+N] in unit scale."""
        learn(self.learned, self.constants, states, actions, signals, self.rng)


def _constants(spec: Spec, p: TripleQParams) -> TripleQConstants:
    ahead = spec.H - np.arange(spec.H) if p.stepwise else np.full(spec.H, spec.H)
    shares = np.ones((2, 1 + spec.N))
    shares[:, 0] = p.reward_start, p.reward_ceiling
    has_bonus = p.reward_bonus > 0 or p.utility_bonus > 0
    explores = p.explore > 0 or p.explore_start > 0
    word = np.uint64
    return TripleQConstants(
        H=word(spec.H),
        S=word(spec.S),
        A=word(spec.A),
        bonus=per_signal([p.reward_bonus] + spec.N * [p.utility_bonus]),
        lift=per_signal([p.reward_lift] + spec.N * [p.utility_lift]),
        fresh=ahead[:, None] * shares[0],
        ceiling=ahead[:, None] * shares[1],
        usable=np.array(spec.allowed, order="C").reshape(-1, spec.A),
        rho=spec.rho,
        K=float(spec.K),
        frame=int(p.frame),
        eta=float(p.eta),
        steady=float(p.steady),
        chi=float(p.chi),
        keep=float(p.keep),
        bonus_offset=float(p.bonus_offset),
        lift_power=float(p.lift_power),
        eps_low=float(p.eps_low),
        eps_high=float(p.eps_high),
        margin=float(p.margin),
        window=float(p.window),
        explore=float(p.explore),
        explore_decay=float(p.explore_decay),
        extras=True if has_bonus or explores or not p.realised else None,
        has_bonus=has_bonus,
        explores=explores,
        estimated=not p.realised,
        random_ties=bool(p.random_ties),
    )


def _nothing_learned(spec: Spec, p: TripleQParams, c: TripleQConstants) -> TripleQLearned:
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    cells = np.zeros((H + 1, S, A, N + 2))
    cells[:H, :, :, :-1] = c.fresh[:, None, None]
    cells[:H, :, :, 0][~spec.allowed] = -np.inf
    explore = 1 - (1 - p.explore) * (1 - p.explore_start)
    return TripleQLearned(
        cells=cells.reshape(-1, N + 2),
        best=np.zeros((H + 1) * S, dtype=np.uint64),
        second=np.zeros((H + 1) * S),
        weight=np.zeros(N),
        queue=np.zeros(N),
        short=np.zeros(N),
        swing=np.zeros(N),
        debt=np.zeros(N),
        drive=np.zeros(N),
        earned=np.zeros(1 + N),
        totals=np.zeros(1 + N),
        explore=np.array([explore, p.explore_start]),
        frames=np.zeros(1, dtype=np.int64),
        left=np.array([p.frame]),
        changed=np.ones(1, dtype=bool),
        kept=np.zeros(H * S * A),
        usage=np.zeros((3, H * S * A)),
    )
