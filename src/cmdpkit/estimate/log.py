"""A log: recorded transitions with the bounds and the criterion that were asked for, whole or in halves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cmdpkit.io.logs import Recorded
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.criterion import Criterion
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

GOLDEN = (5**0.5 - 1) / 2  # multiples of it spread evenly over the unit interval, with no period
VISITS_TO_CHOOSE = 50  # visits of every decision that suffice to choose policies, if the rest of the log tests them
LEAST_TO_CHOOSE, HALF = 0.25, 0.5  # share of the log for choosing, with several bounds and with one
MIN_EPISODES = 40  # a log with fewer episodes is split by stretches of its episodes instead
STRETCHES = 200  # so many of them


@dataclass(frozen=True, eq=False, kw_only=True)
class Log(Recorded):
    """The transitions that a log recorded, with the bounds and the criterion that were asked for."""

    constraints: tuple[Constraint, ...]  # the bounds that were asked for
    criterion: Criterion  # horizon, discount or average
    first_states: IntArray | None = None  # of the episodes, where this is a part that does not have them itself
    whole: Log | None = None  # the log that this is a part of

    @property
    def S(self) -> int:
        """Number of states."""
        return len(self.states)

    @property
    def A(self) -> int:
        """Number of actions."""
        return len(self.action_names)

    @property
    def N(self) -> int:
        """Number of constraints."""
        return len(self.constraints)

    @cached_property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(np.unique(self.episode))

    @cached_property
    def time(self) -> IntArray:
        """[n]: when each transition was recorded: its episode or, in a log of few long episodes, its row."""
        return self.episode if self.episodes >= MIN_EPISODES else np.arange(len(self.episode))

    @cached_property
    def starts(self) -> IntArray:
        """[episodes], the first state of each episode."""
        if self.first_states is not None:
            return self.first_states
        first = np.ones(len(self.episode), dtype=bool)
        first[1:] = np.diff(self.episode) != 0
        starts: IntArray = self.s[first & (self.step == 0)]
        return starts if len(starts) or self.whole is None else self.whole.starts

    @cached_property
    def terminal(self) -> BoolArray:
        """[S]: states in which no action was ever recorded; an episode that gets there is over."""
        if self.whole is not None:
            return self.whole.terminal
        quiet = np.ones(self.S, dtype=bool)
        quiet[self.s] = False
        return quiet

    @cached_property
    def ranges(self) -> FloatArray:
        """[1 + N, 2]: the smallest and the largest value that each signal is taken to be able to have in a step.

        These are the declared ones, or else the smallest and the largest of the log. A signal of a constraint that
        never changed says nothing about how far it can get, so its range is widened towards the bad side: by its own
        size, and by 1 at least.
        """
        if self.whole is not None:
            return self.whole.ranges
        found = np.stack((self.x.min(axis=1), self.x.max(axis=1)), axis=1)
        for n in self.constant:
            bad = 1 if self.constraints[n].sign < 0 else 0
            found[1 + n, bad] -= self.constraints[n].sign * max(abs(found[1 + n, bad]), 1.0)
        for m, declared in enumerate(self.declared):
            if declared is not None:
                found[m] = declared
        return found

    @cached_property
    def constant(self) -> list[int]:
        """The constraints without a declared range whose signal is the same in every row."""
        return [n for n, x in enumerate(self.x[1:]) if x.min() == x.max() and self.declared[1 + n] is None]

    def visits(self, T: int) -> IntArray:
        """[T, S, A]: how often each action was recorded in each state, at each step or (T = 1) at all of them."""
        row = (np.where(T > 1, self.step, 0) * self.S + self.s) * self.A + self.a
        return np.bincount(row, minlength=T * self.S * self.A).reshape(T, self.S, self.A)

    def part(self, keep: BoolArray) -> Log:
        """The same log with these transitions [n] only."""
        arrays = {name: getattr(self, name)[keep] for name in ("episode", "step", "s", "a", "s_next")}
        return replace(self, x=self.x[:, keep], whole=self.whole or self, **arrays)

    def parts(self, T: int) -> tuple[Log, Log]:
        """A part for choosing policies and a part for testing them.

        The rule looks only at the order of the episodes and at sizes. With one bound the parts are halves. Several
        bounds at once take more to test, so up to three quarters test them if the rest still visits every decision
        often enough to choose well. A log of few long episodes is cut into stretches, which is
        possible because the process has no memory beyond its state.
        """
        share = VISITS_TO_CHOOSE * T * self.S * self.A / len(self.s)
        share = min(max(share, LEAST_TO_CHOOSE), HALF) if self.N > 1 else HALF
        if self.episodes >= MIN_EPISODES:
            first = (self.episode * GOLDEN) % 1.0 < share
            return self.part(first), self.part(~first)
        stretch = np.arange(len(self.episode)) * STRETCHES // len(self.episode)
        first = (stretch * GOLDEN) % 1.0 < share
        whole = replace(self, first_states=self.starts)
        return whole.part(first), whole.part(~first)


def drawn_log(log: Log, T: int, size: int, rng: np.random.Generator) -> Log:
    """A log of `size` episodes (without a horizon, transitions) of the process and the behaviour that a log shows.

    Every step repeats a recorded one of the same state (at the same step if T > 1), with its action, its signals and
    its next state. A continuing log is drawn in `MIN_EPISODES` stretches.
    """
    horizon = log.criterion.horizon
    chains = size if horizon is not None else MIN_EPISODES
    steps = horizon if horizon is not None else max(size // chains, 1)
    place = np.where(T > 1, log.step, 0) * log.S + log.s
    order = np.argsort(place, kind="stable")
    counts = np.bincount(place, minlength=T * log.S)
    begins = np.cumsum(counts) - counts
    starts = log.starts if horizon is not None else log.s
    s, alive = rng.choice(starts, size=chains), np.arange(chains)
    picked, episode, step = [], [], []
    for h in range(steps):
        row = (h if T > 1 else 0) * log.S + s
        alive, row = alive[counts[row] > 0], row[counts[row] > 0]
        if not len(alive):
            break
        k = order[begins[row] + (rng.random(len(row)) * counts[row]).astype(np.int64)]
        picked.append(k)
        episode.append(alive)
        step.append(np.full(len(alive), h))
        s = log.s_next[k]
    k, episodes, at = np.concatenate(picked), np.concatenate(episode), np.concatenate(step)
    again = np.lexsort((at, episodes))
    k = k[again]
    return replace(log, episode=episodes[again], step=at[again], s=log.s[k], a=log.a[k], s_next=log.s_next[k],
                   x=log.x[:, k], place=(), first_states=None, whole=log.whole or log)  # fmt: skip
