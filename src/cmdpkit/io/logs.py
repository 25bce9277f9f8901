"""The reader of logs: a table of recorded decisions becomes arrays of indices.

The table is a CSV file as people have it, a data frame, a dictionary of columns, or tuples. All mistakes are looked for
before any is reported. A later check looks only at episodes in which the earlier ones found nothing, so that one
mistake is not reported twice. Episodes with mistakes can be dropped; `Cleaned` says what went.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats.sheet import Sheet, columns_of, csv_table, name_of
from cmdpkit.io.formats.source import Mistakes, read_text, suffix_of
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import is_hashable, nearest

SUFFIXES = (".csv", ".tsv", ".txt")
LARGEST = 1e60  # a signal: sums of its third powers must still be numbers
LAST_STEP = 1e12  # of an episode
KEEP = "error"
DROP_EPISODES = "drop episodes"
COMPLETE = "complete"  # the states of the log are all there are


@dataclass(frozen=True)
class Cleaned:
    """Rows and episodes that were left out of a log on request, and why."""

    episodes: int = 0  # dropped because of a mistake
    rows: int = 0  # of those episodes
    unfinished: int = 0  # last rows without a next state, which say nothing about what followed
    reasons: tuple[tuple[str, int], ...] = ()  # kinds of mistakes with the number of rows that had them

    def __str__(self) -> str:
        said = []
        if self.episodes:
            why = ", ".join(f"{n:,} x {kind}" for kind, n in self.reasons)
            said.append(f"{_counted(self.episodes, 'episode')} with {_counted(self.rows, 'row')} ({why})")
        if self.unfinished:
            said.append(_counted(self.unfinished, "last row") + " without a next state")
        return "left out: " + ", ".join(said) if said else "nothing was left out"


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


@dataclass(frozen=True, eq=False)
class Recorded:
    """n recorded transitions as arrays of indices, ordered by episode and step."""

    states: tuple[Any, ...]  # those of the log or, if they are declared, all that can occur, in their natural order
    action_names: tuple[Any, ...]  # likewise
    episode: IntArray  # [n], numbered from 0 in the order of time
    step: IntArray  # [n], within the episode, from 0
    s: IntArray  # [n], state
    a: IntArray  # [n], action
    s_next: IntArray  # [n], next state
    moved: BoolArray  # [n], whether the next state is known; after the last step it need not be
    x: FloatArray  # [1 + N, n], reward and the signals of the constraints, in the user's sense
    declared: tuple[tuple[float, float] | None, ...]  # [1 + N], ranges of single steps, where they are declared
    place: tuple[Any, ...]  # [n], how messages name the place of each transition: its time, or its episode
    cleaned: Cleaned  # rows and episodes that were left out
    complete: bool  # whether the user has declared that there are no other states


def read_log(
    source: Any,
    columns: Sequence[str] | Mapping[str, str] | None,
    signals: Sequence[str],
    ranges: Mapping[str, tuple[float, float]],
    horizon: int | None,
    *,
    states: Any = None,
    bad: str = KEEP,
) -> Recorded:
    """Read a log from a file, a data frame, columns or rows; ``signals`` are the columns of the constraints.

    ``states`` are all states that can occur, "complete" if the log has all of them, or None if that is not known.
    """
    declared = _declared_states(states)
    if bad not in (KEEP, DROP_EPISODES):
        raise CmdpkitError(f"bad is {quoted(bad)}, expected {KEEP!r} or {DROP_EPISODES!r}")
    needed = (*["episode"] * (horizon is not None), "state", "action", "reward", *signals)
    table = _table_of(source, columns, needed, ("episode", "step", "next_state", "time"))
    return _Reader(table, ("reward", *signals), ranges, horizon).read(bad=bad, states=declared)


def _declared_states(states: Any) -> tuple[Any, ...] | None:
    """The names of all states that can occur; nothing if they are those of the log, None if they are not known."""
    if states is None or (isinstance(states, str) and states == COMPLETE):
        return None if states is None else ()
    if isinstance(states, str) or not isinstance(states, Iterable) or not all(map(is_hashable, found := list(states))):
        raise CmdpkitError(
            f'states is {quoted(states)}, expected a list of all states that can occur, or "complete" if the log has '
            "all of them"
        )
    return tuple(dict.fromkeys(map(name_of, found)))


class _Reader:
    """The columns of a table while they are checked; ``alive`` are the rows that are kept so far."""

    def __init__(
        self, table: Sheet, signals: Sequence[str], ranges: Mapping[str, tuple[float, float]], horizon: int | None
    ) -> None:
        self.table, self.horizon, n = table, horizon, len(table)
        self.faults = Mistakes(table.where, table.place)
        self.alive: BoolArray = np.ones(n, dtype=bool)
        table.note_broken(self.faults)
        self.names = {key: table.names(key, self.faults) for key in ("state", "action")}
        self.names["episode"] = table.names("episode", self.faults) if "episode" in table.columns else [0] * n
        self.has_next = "next_state" in table.columns
        self.names["next_state"] = table.names("next_state", self.faults) if self.has_next else [None] * n
        self.x = np.array([table.numbers(key, self.faults, LARGEST) for key in signals])
        self.steps = table.numbers("step", self.faults, LAST_STEP) if "step" in table.columns else None
        for key in ("episode", "state", "action"):
            told = f"{key} is empty, expected one in every row"
            for i, value in enumerate(self.names[key]):
                if value is None and i not in table.broken:
                    self.faults.add(f"{key} is empty", i, told, "fill it in")
        if (steps := self.steps) is not None:
            self._note("step is not a whole number", np.flatnonzero(steps != np.round(steps)),
                       lambda i: f"step is {steps[i]:g}, expected a whole number", "correct it")  # fmt: skip
        self.declared = tuple(ranges.get(name) for name in signals)
        self._check_ranges(signals)
        numbers = {name: k for k, name in enumerate(dict.fromkeys(self.names["episode"]))}  # in the order of first rows
        self.episode = np.array([numbers[name] for name in self.names["episode"]], dtype=np.int64)
        self._drop_faulty()

    def _note(self, kind: str, rows: Iterable[int], told: Callable[[int], str], advice: str) -> None:
        """Note the same mistake in some rows."""
        for i in rows:
            self.faults.add(kind, int(i), told(i), advice)

    def _check_ranges(self, signals: Sequence[str]) -> None:
        """Refuse a signal outside of its declared range; such a row is never dropped, or costs would vanish."""
        outside = Mistakes(self.table.where, self.table.place)
        bad = self.faults.rows
        for name, x, declared in zip(signals, self.x, self.declared, strict=True):
            low, high = (-np.inf, np.inf) if declared is None else declared
            kind = f"{shown(name)} is outside of its declared range"
            for i in np.flatnonzero((x < low) | (x > high)).tolist():
                if i not in bad:
                    told = f"{shown(name)} is {x[i]:g}, outside of its declared range {low:g} to {high:g}"
                    outside.add(kind, i, told, "correct the row or the range")
        outside.check()

    def _drop_faulty(self) -> None:
        """Leave the episodes out of further checks in which a mistake was found."""
        unnamed = {i for i in self.faults.rows if self.names["episode"][i] is None}
        rows = self.faults.rows | {j for i in unnamed for j in (i - 1, i + 1) if 0 <= j < len(self.alive)}
        faulty = np.zeros(int(self.episode.max()) + 1, dtype=bool)
        faulty[self.episode[list(rows)]] = True
        self.alive &= ~faulty[self.episode]

    def read(self, *, bad: str, states: tuple[Any, ...] | None) -> Recorded:
        """The arrays, or an error with all mistakes; ``states`` are those of `_declared_states`."""
        step = self._step_numbers()
        order = np.flatnonzero(self.alive)
        order = order[np.lexsort((step[order], self.episode[order]))]
        self._check_order(step, order)
        self._drop_faulty()
        order = order[self.alive[order]]
        nexts, unfinished = self._next_states(step, order)
        self._drop_faulty()
        order = order[self.alive[order] & ~unfinished[order]]
        lost = np.setdiff1d(self.episode, self.episode[self.alive])
        if bad == KEEP:
            many = _counted(len(lost), "episode")
            self.faults.check(f'bad="drop episodes" (--drop-bad-episodes) leaves {many} with mistakes out')
        cleaned = Cleaned(
            episodes=len(lost),
            rows=int(np.isin(self.episode, lost).sum()),
            unfinished=int(unfinished.sum()),
            reasons=tuple((kind, len(found)) for kind, found in self.faults.kinds.items()),
        )
        if not len(order):
            raise CmdpkitError(f"{self.table.where} has no transitions left ({cleaned}); correct the log")
        return self._recorded(step, order, nexts, cleaned, states)

    def _recorded(
        self, step: IntArray, order: IntArray, nexts: list[Any], cleaned: Cleaned, declared: tuple[Any, ...] | None
    ) -> Recorded:
        kept, moved = order.tolist(), np.array([after is not None for after in nexts])
        nexts = [here if after is None else after for here, after in zip(self.names["state"], nexts, strict=True)]
        found = dict.fromkeys([self.names["state"][i] for i in kept] + [nexts[i] for i in kept])
        known = set(declared or ())
        for name in found if declared else ():
            if name not in known:
                raise CmdpkitError(
                    f"{self.table.where} has a state {quoted(name)} that is not among the declared "
                    f"states{nearest(str(name), map(str, known))}; add it to states, or correct the log"
                )
        states = natural_order((*(declared or ()), *found))
        actions = natural_order([self.names["action"][i] for i in kept])
        state, action = {x: i for i, x in enumerate(states)}, {x: i for i, x in enumerate(actions)}
        time = self._times()
        episode = self.episode[order]
        if time is not None:  # episodes are numbered by the time of their first rows
            begins = np.full(int(episode.max()) + 1, np.inf)
            np.minimum.at(begins, episode, time[order])
            episode = np.argsort(np.argsort(begins, kind="stable"), kind="stable")[episode]
            again = np.lexsort((step[order], episode))
            order, episode = order[again], episode[again]
            kept = order.tolist()
        episode = np.unique(episode, return_inverse=True)[1].astype(np.int64)
        place = self.table.columns["time"] if time is not None else [f"episode {x}" for x in self.names["episode"]]
        return Recorded(
            states,
            actions,
            episode,
            step[order],
            np.array([state[self.names["state"][i]] for i in kept], dtype=np.int64),
            np.array([action[self.names["action"][i]] for i in kept], dtype=np.int64),
            np.array([state[nexts[i]] for i in kept], dtype=np.int64),
            moved[order],
            self.x[:, order],
            self.declared,
            tuple(str(place[i]) for i in kept),
            cleaned,
            complete=declared is not None,
        )

    def _times(self) -> FloatArray | None:
        """The time of every row as a number, if there is a column for it: numbers, dates, or ISO texts of dates."""
        if "time" not in self.table.columns:
            return None
        found = np.zeros(len(self.table))
        for i in np.flatnonzero(self.alive).tolist():
            value = self.table.columns["time"][i]
            try:
                found[i] = _moment(value)
            except (TypeError, ValueError, OverflowError):
                raise CmdpkitError(
                    f"{self.table.place(i)}: time is {quoted(value)}, expected a number, or a date such as 2024-05-31 "
                    "or 2024-05-31T12:00"
                ) from None
        return found

    def _step_numbers(self) -> IntArray:
        """The step of every row, from 0; without a column for it, rows of an episode are in order."""
        if self.steps is None:
            order = np.argsort(self.episode, kind="stable")
            position = np.arange(len(order)) - np.searchsorted(self.episode[order], self.episode[order])
            step = np.empty(len(order), dtype=np.int64)
            step[order] = position
            return step
        found: IntArray = np.round(self.steps).astype(np.int64)
        if self.alive.any():
            found -= found[self.alive].min()
        return found

    def _follows(self, order: IntArray) -> BoolArray:
        """Whether the next row in order belongs to the same episode."""
        follows = np.zeros(len(order), dtype=bool)
        follows[:-1] = np.diff(self.episode[order]) == 0
        return follows

    def _check_order(self, step: IntArray, order: IntArray) -> None:
        """Every episode begins at the first step and goes on step by step, up to the horizon."""
        follows, known = self._follows(order), set(self.faults.rows)
        named = self.names["episode"]
        advice = "correct the steps, or leave their column out if the rows are in order"
        first = np.ones(len(order), dtype=bool)
        first[1:] = ~follows[:-1]
        after = "steps after the others, expected the same first step in all"
        self._note("an episode begins at another step", order[first & (step[order] != 0)],
                   lambda i: f"episode {quoted(named[i])} begins {step[i]} {after}", advice)  # fmt: skip
        here, there = order[:-1][follows[:-1]], order[1:][follows[:-1]]
        wrong = step[there] != step[here] + 1
        seen = {int(self.episode[i]) for i in self.faults.rows}
        for i, j in zip(here[wrong].tolist(), there[wrong].tolist(), strict=True):
            if j in known or int(self.episode[j]) in seen:
                continue
            seen.add(int(self.episode[j]))
            what = "has a step twice" if step[i] == step[j] else "leaves out steps"
            told = f"episode {quoted(named[j])} {what}: {step[j] - step[i]} after the row before, expected 1"
            self.faults.add(f"an episode {what}", j, told, advice)
        if self.horizon is None:
            return
        last = order[~follows]
        late = (i for i in last[step[last] >= self.horizon] if int(self.episode[i]) not in seen)
        self._note("an episode is longer than the horizon", late,
                   lambda i: f"episode {quoted(named[i])} has {step[i] + 1} steps, but the horizon is {self.horizon}",
                   "give a longer horizon, or leave the rows after it out")  # fmt: skip

    def _next_states(self, step: IntArray, order: IntArray) -> tuple[list[Any], BoolArray]:
        """The next state of every row, and which rows have none that is known.

        It is the state of the row that follows in the episode. The last row of an episode needs one of its own, unless
        it is the last step, where it is None. Where the log has no such column, last rows are left out of a continuing
        log.
        """
        nexts, states = list(self.names["next_state"]), self.names["state"]
        unfinished = np.zeros(len(nexts), dtype=bool)
        follows = self._follows(order)
        for k, i in enumerate(order.tolist()):
            if follows[k]:
                after = states[int(order[k + 1])]
                if nexts[i] is not None and nexts[i] != after:
                    told = (
                        f"next_state is {quoted(nexts[i])}, but the next row of this episode is in state "
                        f"{quoted(after)}"
                    )
                    self.faults.add("next_state is not the state of the next row", i, told,
                                    "correct one of them, or leave next_state empty where a row follows")  # fmt: skip
                nexts[i] = after
            elif nexts[i] is None:
                if self.horizon is None and not self.has_next:
                    unfinished[i] = True
                elif self.horizon is None or step[i] + 1 < self.horizon:
                    told = "next_state is empty, and no row of this episode follows"
                    remedy = "fill in where it led"
                    if not self.has_next:
                        remedy = "add a column next_state, which is empty except where an episode ends before its time"
                    self.faults.add("the last next_state of an episode is empty", i, told, remedy)
        return nexts, unfinished


# -- tables of recorded decisions as columns ---------------------------------------------------------------------------


def _table_of(
    source: Any, columns: Sequence[str] | Mapping[str, str] | None, needed: Sequence[str], optional: Sequence[str]
) -> Sheet:
    """The needed and optional columns of a log; ``columns`` names those of tuples, or maps our names to others."""
    renamed = dict(columns) if isinstance(columns, Mapping) else {}
    for ours in renamed:
        if ours not in (*needed, *optional):
            raise CmdpkitError(f"columns names {quoted(ours)}{nearest(ours, (*needed, *optional))}")
    listed = None if columns is None or isinstance(columns, Mapping) else tuple(columns)
    if isinstance(source, (str, os.PathLike)):
        suffix_of(path := Path(source), SUFFIXES)
        found = csv_table(path, list(io.StringIO(read_text(path), newline="")))
    elif isinstance(source, Mapping):
        lists = {str(key): list(x.tolist() if hasattr(x, "tolist") else x) for key, x in source.items()}
        found = Sheet("the log", lists)
    elif not isinstance(source, Sequence) and (frame := columns_of(source)) is not None:
        found = Sheet("the log", frame)
    elif isinstance(source, Iterable):
        found = _from_rows(source, listed)
    else:
        raise CmdpkitError(f"the log is {quoted(source)}, expected a file, a data frame, columns, or rows")
    return _asked_for(found, renamed, needed, optional)


def _asked_for(table: Sheet, renamed: Mapping[str, str], needed: Sequence[str], optional: Sequence[str]) -> Sheet:
    there = {name.strip(): column for name, column in table.columns.items()}
    for name in (f"{name} {end}" for name in needed for end in ("min", "max")):
        if name in there:
            instead = "rename it, and declare ranges with ranges={NAME: (low, high)} (--range NAME=LOW:HIGH)"
            raise CmdpkitError(f"{table.where} has a column {quoted(name)}, which is not read; {instead}")
    chosen = {}
    for name in (*needed, *optional):
        theirs = renamed.get(name, name)
        if theirs in there:
            chosen[name] = there[theirs]
        elif name in needed or name in renamed:
            hint = f" (columns={{{name!r}: ...}} says which column it is; on the command line, --column {name}=...)"
            raise CmdpkitError(f"{table.where} has no column {quoted(theirs)}{nearest(theirs, there)}{hint}")
    sizes = {shown(name): len(column) for name, column in chosen.items()}
    if len(set(sizes.values())) > 1:
        raise CmdpkitError(f"{table.where}: columns differ in length: {sizes}")
    if not max(sizes.values()):
        raise CmdpkitError(f"{table.where} has no rows, expected one for each transition; give a log with rows")
    return replace(table, columns=chosen)


def _from_rows(rows: Iterable[Any], columns: Sequence[str] | None) -> Sheet:
    """Tuples, whose columns have to be named, or dictionaries."""
    listed = list(rows)
    if listed and isinstance(listed[0], Mapping):
        columns = columns or [str(key) for key in listed[0]]
        listed = [tuple(row.get(key) for key in columns) if isinstance(row, Mapping) else row for row in listed]
    if columns is None:
        raise CmdpkitError("columns is missing: it names the columns of the rows, such as columns=['episode', ...]")
    for i, row in enumerate(listed):
        if not isinstance(row, (Sequence, np.ndarray)) or isinstance(row, str) or len(row) != len(columns):
            raise CmdpkitError(f"row {i + 1} is {quoted(row)}, expected {len(columns)} values: {', '.join(columns)}")
    return Sheet("the log", {name: [row[i] for row in listed] for i, name in enumerate(columns)})


# -- times and names ---------------------------------------------------------------------------------------------------


def _moment(value: Any) -> float:
    """A time as a number that grows with it."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if hasattr(value, "toordinal"):
        return float(value.toordinal()) * 86_400
    if isinstance(value, str):
        try:
            moment = float(value)
        except ValueError:
            return _moment(datetime.fromisoformat(value.strip()))
    else:
        moment = float(value)
    if not np.isfinite(moment):
        raise ValueError
    return moment


def natural_order(values: Iterable[Any]) -> tuple[Any, ...]:
    """Different values in the order in which people count: numbers by size, texts with their numbers by size.

    >>> natural_order(["wear 10", "wear 2", "failed", "wear 2"]), natural_order([3, 1, 2]), natural_order(["b", 1])
    (('failed', 'wear 2', 'wear 10'), (1, 2, 3), ('b', 1))
    """
    found = list(dict.fromkeys(values))
    if all(isinstance(x, str) for x in found):
        return tuple(sorted(found, key=_parts))
    try:
        return tuple(sorted(found))
    except TypeError:  # values of different kinds stay in the order in which they came
        return tuple(found)


def _parts(text: str) -> list[tuple[int, int, str]]:
    """Texts and numbers of a name in turn, so that 2 comes before 10."""
    return [(0, int(x), "") if x.isdecimal() else (1, 0, x) for x in re.split(r"(\d+)", shown(text)) if x]
