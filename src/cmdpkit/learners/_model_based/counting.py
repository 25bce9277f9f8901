"""What model-based learners have in common: they play a policy, count what they see, and can be stopped anywhere.

A subclass says how the policy comes about: by planning now and then (`planner`) or by an update after every episode
(`iterating`). What changes is named in `Counting.changing`, so that saving and resuming needs no further thought.
`certifier_of` and `proved` make certificates of all learners that count.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.estimate.alike import steps_differ
from cmdpkit.estimate.certificate import Certifier
from cmdpkit.estimate.counts import (
    Counts,
    compare_move,
    compare_signals,
    count_move,
    count_start,
    count_step,
    new_counts,
    with_room,
    with_room_for_episodes,
)
from cmdpkit.estimate.intervals import Intervals
from cmdpkit.learners import Learner, Returns, Source, Spec
from cmdpkit.learners._model_based.settings import PlannerSettings
from cmdpkit.learners._note import Note
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.simulate.meter import collect, watch_policy
from cmdpkit.simulate.random import Stream, uniform
from cmdpkit.simulate.simulator import reset, step


class Playing(NamedTuple):
    """The policy in use, its prices, and the episode that is being played."""

    pi: FloatArray  # [H, S, A]: the policy
    rows: FloatArray  # [H*S, A]: the same memory, in the shape that the meter reads
    lam: FloatArray  # [N]: the price in reward that is put on each utility
    episodes: IntArray  # [1]: how many episodes were played
    changed: BoolArray  # [1]: whether pi has changed since the last episode began
    path: IntArray  # [H]: states of the episode played last
    actions: IntArray  # [H]: its actions


class Counting(Learner):
    """A learner that plays a policy pi [H, S, A] and counts, over all steps together where the world is stationary."""

    params: PlannerSettings
    certifies = True
    changing: ClassVar[tuple[str, ...]] = ("playing", "counts")
    growing: ClassVar[tuple[str, ...]] = ("counts/link", "counts/state", "counts/times")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.T = 1 if spec.stationary else spec.H  # steps with counts of their own
        self.counts = new_counts(self.T, spec.S, spec.A, 1 + spec.N)
        pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        self.playing = Playing(
            pi=pi,
            rows=pi.reshape(-1, spec.A),
            lam=np.zeros(spec.N),
            episodes=np.zeros(1, dtype=np.int64),
            changed=np.ones(1, dtype=bool),
            path=np.zeros(spec.H, dtype=np.int64),
            actions=np.zeros(spec.H, dtype=np.int64),
        )
        self.certifier = certifier_of(spec, self.params.delta)
        self._at = (0, 0)  # step and cell whose outcome is not known yet

    # -- what a subclass says ------------------------------------------------------------------------------------------

    @abstractmethod
    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        """Fill out [1+N, n], which is full of zeros, with the totals of n more episodes."""

    @abstractmethod
    def _begin(self) -> None:
        """Make sure that pi is the policy of the next episode."""

    @abstractmethod
    def _end(self) -> None:
        """What is done after an episode that was played step by step."""

    # -- playing -------------------------------------------------------------------------------------------------------

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops."""
        source.check(self.spec)
        parts, done = [np.zeros((1 + self.spec.N, 0))], 0
        while done < n:
            self.counts, room = with_room_for_episodes(self.counts, self.spec.H)
            parts.append(np.zeros((1 + self.spec.N, min(room, n - done))))
            self._play(source, rng, parts[-1])
            done += parts[-1].shape[1]
        out = np.concatenate(parts, axis=1)
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._begin()
        self.playing.changed[0] = False
        self.counts = with_room(self.counts, self.spec.H)
        count_start(self.counts, s)
        return self._act(0, s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to s: the action to take there."""
        h, cell = self._at
        self._learn(signals)
        count_move(self.counts, cell, s)
        compare_move(self.counts, cell, h, self.spec.H, s)
        return self._act(h + 1, s, rng)

    def last(self, signals: FloatArray) -> None:
        """Learn from the last step's reward and utilities [1+N], and end the episode."""
        self._learn(signals)
        self._end()

    def _learn(self, signals: FloatArray) -> None:
        """Count the signals of the step that was taken last."""
        (h, cell), earned = self._at, np.reshape(signals, (1, -1))
        count_step(self.counts, cell, earned, 0)
        compare_signals(self.counts, cell, h, self.spec.H, earned, 0)

    def _act(self, h: int, s: int, rng: Stream) -> int:
        a = int(draw(self.playing.pi, h, s, rng))
        self._at = (h, (h % self.T * self.spec.S + s) * self.spec.A + a)
        self.playing.path[h], self.playing.actions[h] = s, a
        return a

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays."""
        self._begin()
        return self.playing.pi.copy()

    def counted(self) -> Counts:
        """What was counted so far."""
        return self.counts

    def warnings(self) -> tuple[str | Note, ...]:
        """Data that contradict what was declared about the world."""
        return self.certifier.contradictions(self.counts)

    def certificate(self) -> Intervals | None:
        """What the counts prove about `recommend()`, in unit scale, with probability 1 - delta at all times at once."""
        return proved(self.certifier, self.counts, self.recommend())

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes, by name; of the lists of next states only what is in use."""
        used = int(self.counts.used[0])
        return {name: x[:used] if name in self.growing else x for name, x in super().state().items()}

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.playing.lam.copy()


def certifier_of(spec: Spec, delta: float) -> Certifier:
    """What proves statements from the counts of a run that may be wrong with probability delta."""
    T = 1 if spec.stationary else spec.H
    return Certifier(np.asarray(spec.allowed), spec.rho, T, delta, noiseless=spec.noiseless)


def proved(certifier: Certifier, counts: Counts, pi: FloatArray, sample: Intervals | None = None) -> Intervals | None:
    """What the counts, and a `sample` of intervals from episodes of pi itself, prove about pi; None if nothing.

    Counts that contradict the declaration that the world is stationary prove nothing: the sample is left.
    """
    if not counts.starts.any() or steps_differ(counts.parts, counts.part_moves):
        return sample
    certifier.look(counts)
    return certifier.prove(pi, sample)


@compiled(inline=True)
def play(sim, meter, counts, playing, rng, out, k):
    """One episode of the policy in use, counted; its totals are added to column k of out."""
    watch_policy(meter, playing.changed[0], playing.rows)
    playing.changed[0] = False
    H, S, A = playing.pi.shape
    T = len(counts.head) // (S * A)
    s = reset(sim, rng)
    count_start(counts, s)
    for h in range(H):
        a = draw(playing.pi, h, s, rng)
        s_next, x = step(sim, h, s, a, rng)
        playing.path[h] = s
        playing.actions[h] = a
        cell = ((0 if T == 1 else h) * S + np.int64(s)) * A + a
        count_step(counts, cell, sim.outcomes, x)
        compare_signals(counts, cell, h, H, sim.outcomes, x)
        if h + 1 < H:
            count_move(counts, cell, s_next)
            compare_move(counts, cell, h, H, s_next)
        for n in range(len(out)):
            out[n, k] += sim.outcomes[x, n]
        s = s_next
    collect(meter, out[:, k])
    playing.episodes[0] += 1


@compiled(inline=True)
def draw(pi, h, s, rng):
    """An action drawn from pi[h, s]; where rounding leaves the sum below 1, the last possible action gets the rest."""
    u = uniform(rng)
    chosen = 0
    for a in range(pi.shape[2]):
        if pi[h, s, a] > 0.0:
            chosen = a
            u -= pi[h, s, a]
            if u < 0.0:
                break
    return chosen
