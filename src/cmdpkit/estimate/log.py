"""A log: recorded transitions with the bounds and the criterion that were asked for, whole or in parts.

A promise assumes that no step is worse than the declared range or, without one, than the worst of the log. States that
the log never met are counted (`Log.open`), or excluded by a condition (`condition_of`). `notes_on` says what in the log
speaks against the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cmdpkit.errors import quoted, shown
from cmdpkit.io.logs import Recorded
from cmdpkit.model.constraints import Constraint, Criterion
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import Name

MIN_EPISODES = 40  # a log with fewer episodes is split by stretches of its rows instead


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
    def begins(self) -> BoolArray:
        """[n]: whether an episode begins with this transition."""
        return np.asarray(np.append(True, np.diff(self.episode) != 0) & (self.step == 0))

    @cached_property
    def starts(self) -> IntArray:
        """[episodes], the first state of each episode."""
        if self.first_states is not None:
            return self.first_states
        starts: IntArray = self.s[self.begins]
        return starts if len(starts) or self.whole is None else self.whole.starts

    @property
    def open(self) -> bool:
        """Whether states that the log never met are counted as possible.

        They are unless the user has declared all states. Their worst has to be known: every constraint needs a declared
        range, and a long-run average has no end up to which it could be counted. Where that is missing, a condition
        excludes such states instead (`condition_of`).
        """
        return not self.complete and not self.undeclared and self.criterion.kind != "average"

    @property
    def undeclared(self) -> list[int]:
        """The constraints whose range is not declared."""
        return [n for n in range(self.N) if self.declared[1 + n] is None]

    @cached_property
    def quiet(self) -> BoolArray:
        """[S]: states in which no action was ever recorded."""
        if self.whole is not None:
            return self.whole.quiet
        quiet = np.ones(self.S, dtype=bool)
        quiet[self.s] = False
        return quiet

    @cached_property
    def terminal(self) -> BoolArray:
        """[S]: states in which no action was ever recorded, and in which an episode ended before its last step.

        An episode that gets there is over. A state that was met only after the last step of the horizon says nothing
        about what would have followed.
        """
        if self.whole is not None:
            return self.whole.terminal
        horizon = self.criterion.horizon
        ended = np.zeros(self.S, dtype=bool)
        ended[self.s_next if horizon is None else self.s_next[self.step + 1 < horizon]] = True
        terminal: BoolArray = self.quiet & ended
        return terminal

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
        return [n for n in self.undeclared if self.x[1 + n].min() == self.x[1 + n].max()]

    def rows(self, T: int, S: int | None = None) -> IntArray:
        """[n]: the row of each transition in arrays [T, S, A]; T = 1 if all steps share their rows."""
        return np.asarray((np.where(T > 1, self.step, 0) * (S or self.S) + self.s) * self.A + self.a)

    def visits(self, T: int) -> IntArray:
        """[T, S, A]: how often each action was recorded in each state, at each step or (T = 1) at all of them."""
        return np.bincount(self.rows(T), minlength=T * self.S * self.A).reshape(T, self.S, self.A)

    def usual_actions(self, T: int) -> IntArray:
        """[T, S]: what was done most often; where a state was not recorded at a step, what was done in it at others."""
        visits = self.visits(T)
        by_state = visits.sum(axis=0, keepdims=True)
        anywhere = by_state.sum(axis=1, keepdims=True)
        found = np.where(by_state.any(axis=-1), by_state.argmax(axis=-1), anywhere.argmax(axis=-1))
        usual: IntArray = np.where(visits.any(axis=-1), visits.argmax(axis=-1), found)
        return usual

    def named(self, row: int, T: int) -> tuple[int | None, Name, Name]:
        """Step (from 1, None where all steps share their rows), state and action of one of the `rows`."""
        t, s, a = np.unravel_index(row, (T, self.S, self.A))
        return int(t) + 1 if T > 1 else None, self.states[int(s)], self.action_names[int(a)]

    def part(self, keep: BoolArray) -> Log:
        """The same log with these transitions [n] only."""
        arrays = {name: getattr(self, name)[keep] for name in ("episode", "step", "s", "a", "s_next", "moved")}
        return replace(self, x=self.x[:, keep], whole=self.whole or self, **arrays)

    def moves(self, T: int) -> Log:
        """The transitions whose next state is known, if all steps share their counts; otherwise all of them.

        After the last step the next state does not matter, and a log need not have it. It would count for the other
        steps all the same.
        """
        pooled = T == 1 and self.criterion.horizon != 1
        return self.part(self.moved) if pooled and not self.moved.all() else self

    def parts(self, T: int, *, enough: int = 50, least: float = 0.25, stretches: int = 200) -> tuple[Log, Log]:
        """A part for choosing policies and a part for testing them.

        The rule looks only at the order of the episodes and at sizes. With one bound the parts are halves. Several
        bounds at once take more to test, so the share that chooses falls to `least` if it still has `enough` visits of
        every decision. A log of few long episodes is cut into `stretches`, which is possible because the process has no
        memory beyond its state.
        """
        share = min(max(enough * T * self.S * self.A / len(self.s), least), 0.5) if self.N > 1 else 0.5
        whole, number = self, self.episode
        if self.episodes < MIN_EPISODES:
            whole = replace(self, first_states=self.starts)
            number = np.arange(len(self.episode)) * stretches // len(self.episode)
        golden = (5**0.5 - 1) / 2  # its multiples spread evenly over the unit interval, with no period
        first = (number * golden) % 1.0 < share
        return whole.part(first), whole.part(~first)


def place_of(step: int | None, state: Name, action: Name) -> str:
    """How a decision is called in a sentence."""
    return f"{quoted(action)} in state {quoted(state)}{'' if step is None else f' at step {step}'}"


def notes_on(log: Log) -> list[str]:
    """What in a log speaks against the assumptions of a promise about single steps, and what had to be assumed."""
    notes, horizon = [], log.criterion.horizon
    if log.cleaned.episodes:
        notes.append(
            f"{log.cleaned}; this is right only if the mistakes in these episodes have nothing to do with what they "
            "earned and cost"
        )
    for n in log.constant:
        name, x, (low, high) = log.constraints[n].name, float(log.x[1 + n, 0]), log.ranges[1 + n]
        notes.append(
            f"{shown(name)} is {x:g} in all {len(log.s):,} rows, so its range is unknown; a range of {high - low:g} is "
            "assumed"
        )
    notes += _heavy_tails(log) + _names_alike("states", log.states) + _names_alike("actions", log.action_names)
    last = np.append(np.diff(log.episode) != 0, True)
    cut = int((last & (log.step + 1 < horizon) & ~log.terminal[log.s_next]).sum()) if horizon is not None else 0
    if cut:
        notes.append(
            f"{cut:,} of {log.episodes:,} episodes end before step {horizon} in a state where other decisions were "
            "recorded; they are taken as cut off there, which is right only if what cut them off has nothing to do "
            "with what would have followed"
        )
    return notes


def _names_alike(what: str, names: tuple[Name, ...]) -> list[str]:
    """A note on names that differ only in upper and lower case, which may be meant as one."""
    by_fold: dict[str, list[str]] = {}
    for name in names:
        if isinstance(name, str):
            by_fold.setdefault(name.casefold(), []).append(name)
    alike = [" and ".join(map(quoted, found)) for found in by_fold.values() if len(found) > 1]
    return [f"the {what} {', '.join(alike)} differ only in upper and lower case; correct the log if they are the same"
            ] if alike else []  # fmt: skip


def _heavy_tails(
    log: Log, *, factor: float = 10.0, heavy: float = 0.2, rows: float = 0.02, top: float = 0.005
) -> list[str]:
    """A note on every constraint without a declared range whose total rests on a few very large values.

    Values are far out if they exceed the usual one `factor` times. A tail is heavy if such values make up at least the
    share `heavy` of all, and are at most the share `rows` of the rows; if they are more, the largest `top` count. It is
    heavy too if the exponent of its largest values is below 2, at which the variance no longer exists.
    """
    notes = []
    for n in log.undeclared:
        c = log.constraints[n]
        bad = -c.sign * log.x[1 + n]
        over = bad - np.median(bad)
        usual = over[over > 0]
        if not len(usual):
            continue
        far = over > factor * np.median(usual)
        if far.mean() > rows:
            far &= over > np.quantile(over, 1 - top)
        share = float(over[far].sum() / usual.sum())
        worst = log.x[1 + n].max() if c.sign < 0 else log.x[1 + n].min()
        index = _tail_index(over)
        if share >= heavy:
            reason = (
                f"the worst {int(far.sum()):,} of {len(over):,} values make up {share:.0%} of what exceeds its usual "
                "value, and the very worst is"
            )
        elif index < 2.0:
            reason = (
                f"its largest values fall off like a power of {index:.2g}, too slowly for reliable limits, and the "
                f"very worst of {len(over):,} is"
            )
        else:
            continue
        notes.append(
            f"{shown(c.name)} has a heavy tail: {reason} {worst:g}; something worse may not have happened yet, so "
            f"declare what a single step can be at worst (ranges={{{c.name!r}: (low, high)}}, --range)"
        )
    return notes


def _tail_index(over: FloatArray, share: float = 0.05, least: int = 20) -> float:
    """Hill's estimate of the exponent with which the largest `share` of the values falls off; infinite for few values.

    Values that repeat are no continuous tail, so at most half of those that count may be equal to others.
    """
    k = int(share * len(over))
    if k < least:
        return np.inf
    largest = np.sort(over)[-k - 1 :]
    if largest[0] <= 0 or len(np.unique(largest)) < k / 2:
        return np.inf
    return 1 / float(np.log(largest[1:] / largest[0]).mean())


def condition_of(log: Log, T: int) -> str | None:
    """What has to be true of signals without a declared range, and of states that the log never met; None if nothing.

    T is 1 if all steps share their counts; otherwise a state must have been met at the step at which it occurs.
    """
    limits = []
    for n in log.undeclared:
        c, low_or_high = log.constraints[n], 1 if log.constraints[n].sign < 0 else 0
        word, end = ("above", "largest") if c.sign < 0 else ("below", "smallest")
        why = "an assumption, as all are equal" if n in log.constant else f"the {end} in this log"
        limits.append(f"{shown(c.name)} {word} {log.ranges[1 + n, low_or_high]:g} ({why})")
    said = [f"no single step ever has {' or '.join(limits)}"] if limits else []
    if not log.complete and not log.open:
        said.append(f"no state ever occurs that is not in this log{' at that step' if T > 1 else ''}")
    return f"if {' and '.join(said)}" if said else None
