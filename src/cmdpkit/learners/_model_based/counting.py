"""What model-based learners have in common: they play a policy, count what they see, and can be stopped anywhere.

A subclass says how the policy comes about: by planning now and then (`planner`) or by an update after every episode
(`iterating`). All arrays that change are in `Counting.arrays`, so that saving and resuming needs no further thought.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Returns, Source, Spec, State
from cmdpkit.learners._model_based.settings import Settings
from cmdpkit.learners._planning.empirical import count_move, count_start, count_step, no_counts
from cmdpkit.learners._state import copies, put_back
from cmdpkit.model.compiled import inlined
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.meter import collect, watch_policy
from cmdpkit.simulate.random import Stream, uniform
from cmdpkit.simulate.simulator import reset, step

# clock: episodes; pi changed since the meter saw it; plans made, infeasible ones, the last one infeasible; pi is the
# baseline, episodes that played it
EPISODES, CHANGED, PLANS, INFEASIBLE, REFUSED, ON_BASELINE, BASELINE = range(7)


class Book(NamedTuple):
    """The policy in use and the account of it."""

    pi: FloatArray  # [H, S, A]
    rows: FloatArray  # [H*S, A], the same numbers, as the meter reads them
    lam: FloatArray  # [N], prices
    clock: IntArray  # [7], see EPISODES ...
    path: IntArray  # [H], states of the episode played last
    totals: FloatArray  # [1+N], what it has earned


class Counting(ABC):
    """A learner that plays a policy pi [H, S, A] and counts."""

    def __init__(self, spec: Spec, settings: Settings) -> None:
        self.spec, self.params = spec, settings
        self.notes: tuple[str, ...] = ()
        self.counts = no_counts(spec.H, spec.S, spec.A, spec.N, pooled=settings.pooled)
        pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        self.book = Book(
            pi=pi,
            rows=pi.reshape(-1, spec.A),
            lam=np.zeros(spec.N),
            clock=np.eye(1, 7, CHANGED, dtype=np.int64)[0],
            path=np.zeros(spec.H, dtype=np.int64),
            totals=np.zeros(1 + spec.N),
        )
        self._at = (0, 0, 0)  # step, state and action that await their outcome

    # -- what a subclass says ------------------------------------------------------------------------------------------

    @abstractmethod
    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        """Fill out [1+N, n] with the totals of n more episodes."""

    @abstractmethod
    def _begin(self) -> None:
        """See to it that pi is the policy of the next episode."""

    @abstractmethod
    def _end(self) -> None:
        """What is done after an episode that was played step by step."""

    @abstractmethod
    def recommend(self) -> FloatArray:
        """pi [H, S, A] to hand over now."""

    # -- playing -------------------------------------------------------------------------------------------------------

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops."""
        source.check(self.spec)
        out = np.empty((1 + self.spec.N, n))
        self._play(source, rng, out)
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._begin()
        count_start(self.counts, s)
        return self._act(0, s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to s: the action to take there."""
        h, *_ = self._at
        count_step(self.counts, *self._at, np.reshape(signals, (1, -1)), 0)
        count_move(self.counts, *self._at, s)
        return self._act(h + 1, s, rng)

    def last(self, signals: FloatArray) -> None:
        """Learn from the last step's reward and utilities [1+N], and end the episode."""
        count_step(self.counts, *self._at, np.reshape(signals, (1, -1)), 0)
        self._end()

    def _act(self, h: int, s: int, rng: Stream) -> int:
        a = int(draw(self.book.pi, h, s, rng))
        self._at = (h, s, a)
        self.book.path[h] = s
        return a

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays."""
        self._begin()
        return self.book.pi.copy()

    # -- the account ---------------------------------------------------------------------------------------------------

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.book.lam.copy()

    def warnings(self) -> tuple[str, ...]:
        """What looks wrong by now."""
        return ()

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that changes, by name; the arrays themselves."""
        book = {name: getattr(self.book, name) for name in ("pi", "lam", "clock")}
        return book | self.counts._asdict()

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change, between two episodes."""
        return copies(self.arrays)

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        put_back(self.arrays, state)


@inlined
def play(sim, meter, counts, book, rng, out, k):  # type: ignore[no-untyped-def]  # pragma: no cover
    """One episode of the policy in use, counted; its totals go to column k of out."""
    watch_policy(meter, book.clock[CHANGED], book.rows)
    book.clock[CHANGED] = 0
    for n in range(len(book.totals)):
        book.totals[n] = 0.0
    H = len(book.pi)
    s = reset(sim, rng)
    count_start(counts, s)
    for h in range(H):
        a = draw(book.pi, h, s, rng)
        s_next, x = step(sim, h, s, a, rng)
        book.path[h] = s
        count_step(counts, h, s, a, sim.outcomes, x)
        if h + 1 < H:
            count_move(counts, h, s, a, s_next)
        for n in range(len(book.totals)):
            book.totals[n] += sim.outcomes[x, n]
        s = s_next
    for n in range(len(book.totals)):
        out[n, k] = book.totals[n]
    collect(meter, book.totals)
    end_episode(book)


@inlined
def end_episode(book):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Count an episode that has ended."""
    book.clock[EPISODES] += 1
    book.clock[BASELINE] += book.clock[ON_BASELINE]


@inlined
def draw(pi, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """An action of pi[h, s]; what rounding leaves over goes to the last one that has a probability."""
    u = uniform(rng)
    chosen = 0
    for a in range(pi.shape[2]):
        if pi[h, s, a] > 0.0:
            chosen = a
            u -= pi[h, s, a]
            if u < 0.0:
                break
    return chosen
