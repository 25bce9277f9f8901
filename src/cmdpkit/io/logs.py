"""The reader of logs: a table of recorded decisions becomes arrays of indices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.errors import quoted, shown
from cmdpkit.io.formats.log_table import LogTable, read_table
from cmdpkit.io.formats.source import Mistakes
from cmdpkit.model.transitions import FloatArray, IntArray

NEEDED = ("episode", "state", "action", "reward", "next_state")


@dataclass(frozen=True, eq=False)
class Recorded:
    """n recorded transitions as arrays of indices, ordered by episode and step."""

    states: tuple[Any, ...]  # the values in the log, in their natural order
    action_names: tuple[Any, ...]  # likewise
    episode: IntArray  # [n], numbered from 0
    step: IntArray  # [n], within the episode, from 0
    s: IntArray  # [n], state
    a: IntArray  # [n], action
    s_next: IntArray  # [n], next state
    x: FloatArray  # [1 + N, n], reward and the signals of the constraints, in the user's sense


def read_log(
    source: Any, columns: Sequence[str] | Mapping[str, str] | None, signals: Sequence[str], horizon: int | None
) -> Recorded:
    """Read a log from a file, a data frame, columns or rows; ``signals`` are the columns of the constraints."""
    table = read_table(source, columns, (*NEEDED, *signals), ("step",))
    mistakes = Mistakes(table.where)
    names = {key: table.names(key, mistakes) for key in ("episode", "state", "action", "next_state")}
    x = np.array([table.numbers(key, mistakes) for key in ("reward", *signals)])
    for key in ("episode", "state", "action"):
        for i in (i for i, value in enumerate(names[key]) if value is None):
            mistakes.add(
                f"{table.place(i)}: {key} is empty, expected one in every row; fill it in, or leave its episode out"
            )
    steps = table.numbers("step", mistakes) if "step" in table.columns else None
    mistakes.check()
    episodes = {name: k for k, name in enumerate(dict.fromkeys(names["episode"]))}
    episode = np.array([episodes[name] for name in names["episode"]])
    step = _steps(table, episode, steps, mistakes)
    order = np.lexsort((step, episode))
    follows = np.zeros(len(order), dtype=bool)  # whether the next row in order belongs to the same episode
    follows[:-1] = np.diff(episode[order]) == 0
    _check_order(table, names["episode"], step, order, follows, horizon, mistakes)
    mistakes.check()
    nexts = _next_states(table, names, step, order, follows, horizon, mistakes)
    mistakes.check()
    states = natural_order([*names["state"], *nexts])
    actions = natural_order(names["action"])
    state, action = {x: i for i, x in enumerate(states)}, {x: i for i, x in enumerate(actions)}
    indices = (
        np.array([state[x] for x in names["state"]]),
        np.array([action[x] for x in names["action"]]),
        np.array([state[x] for x in nexts]),
    )
    s, a, s_next = (column[order] for column in indices)
    return Recorded(states, actions, episode[order], step[order], s, a, s_next, x[:, order])


def _steps(table: LogTable, episode: IntArray, steps: list[float] | None, mistakes: Mistakes) -> IntArray:
    """The step of every row, from 0; without a column for it, rows of an episode are in order."""
    if steps is None:
        order = np.argsort(episode, kind="stable")
        position = np.arange(len(order)) - np.searchsorted(episode[order], episode[order])
        step = np.empty(len(order), dtype=np.int64)
        step[order] = position
        return step
    for i, value in enumerate(steps):
        if not float(value).is_integer():
            mistakes.add(f"{table.place(i)}: step is {value:g}, expected a whole number")
    mistakes.check()
    found: IntArray = np.array(steps, dtype=np.int64)
    found -= found.min()
    return found


def _check_order(
    table: LogTable,
    episodes: list[Any],
    step: IntArray,
    order: IntArray,
    follows: Any,
    horizon: int | None,
    mistakes: Mistakes,
) -> None:
    """Every episode begins at the first step and goes on step by step, up to the horizon."""
    first = True
    for i, goes_on in zip(order.tolist(), follows.tolist(), strict=True):
        if first and step[i] != 0:
            mistakes.add(
                f"{table.place(i)}: episode {quoted(episodes[i])} begins {step[i]} steps after the others, expected "
                "the same first step in all; correct its steps, or leave their column out if the rows are in order"
            )
        first = not goes_on
    here, there = order[:-1][follows[:-1]], order[1:][follows[:-1]]
    for i, j in zip(here[step[there] != step[here] + 1], there[step[there] != step[here] + 1], strict=True):
        if table.row(int(i)) == table.row(int(j)):
            mistakes.add(f"{table.place(int(j))}: is the same row as {table.place(int(i))}; leave one of them out")
            continue
        what = "has a step twice" if step[i] == step[j] else "leaves out steps"
        mistakes.add(
            f"{table.place(int(j))}: episode {quoted(episodes[int(j)])} {what}: {step[j] - step[i]} after the row "
            "before, expected 1; correct the steps, or leave their column out if the rows are in order"
        )
    if horizon is not None and step.max() >= horizon:
        i = int(step.argmax())
        mistakes.add(
            f"{table.place(i)}: episode {quoted(episodes[i])} has {int(step[i]) + 1} steps, but the horizon is "
            f"{horizon}; give a longer horizon, or leave the rows after it out"
        )


def _next_states(
    table: LogTable,
    names: Mapping[str, list[Any]],
    step: IntArray,
    order: IntArray,
    follows: Any,
    horizon: int | None,
    mistakes: Mistakes,
) -> list[Any]:
    """The next state of every row, which is the state of the row that follows it; an empty one is filled in."""
    nexts, states = list(names["next_state"]), names["state"]
    for place, i in enumerate(order.tolist()):
        if follows[place]:
            after = states[int(order[place + 1])]
            if nexts[i] is not None and nexts[i] != after:
                mistakes.add(
                    f"{table.place(i)}: next_state is {quoted(nexts[i])}, but the next row of this episode is in state "
                    f"{quoted(after)}; correct one of them, or leave next_state empty where a row follows"
                )
            nexts[i] = after
        elif nexts[i] is None:
            if horizon is None or step[i] + 1 < horizon:
                mistakes.add(
                    f"{table.place(i)}: next_state is empty, and no row of this episode follows; fill in where it led, "
                    "or leave the row out"
                )
            nexts[i] = states[i]  # after the last step it does not matter
    return nexts


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
