"""Policies for others to use: a Markdown table to read, and a Python module to run that needs nothing but Python.

The module holds the index of the action for every state, once for each sequence of steps with equal decisions, as
compressed bytes, and the few stochastic decisions as they are.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from string import Template
from typing import Any

import numpy as np

from cmdpkit.errors import markdown_escaped, markdown_line
from cmdpkit.model.decisions import drawn_at, same_at
from cmdpkit.model.policy import Policy
from cmdpkit.model.validate import Name

WIDTH = 100  # characters in a line of packed bytes
CODES = {1: "B", 2: "H", 4: "I"}  # array type codes by the number of bytes


def policy_table(policy: Policy) -> Iterator[str]:
    """A table with one row per state and one column per step; consecutive steps with equal decisions share a column."""
    H, S, A = policy.shape
    phases = phases_of(policy)
    heads = ["state", *(f"step {a}" if a == b else f"steps {a}–{b}" for a, b in phases)]
    title = f"# Policy for {H} steps, {S} states, {A} actions"
    if policy.is_stationary:
        heads, title = ["state", "action"], f"# Stationary policy for {S} states, {A} actions"
    yield f"{title}\n\n"
    if policy.made_for is not None:
        bounds = "; ".join(markdown_escaped(bound) for bound in policy.made_for.bounds) or "none"
        yield f"Made for the model {policy.made_for.fingerprint[:12]} with the bounds: {bounds}.\n\n"
    yield f"{markdown_line(heads)}\n{markdown_line(['---'] * len(heads))}\n"
    names = [markdown_escaped(name) for name in policy.action_names]
    drawn = [drawn_at(policy.decisions, a - 1) for a, _ in phases]
    chosen = policy.choice[[a - 1 for a, _ in phases]]
    for s, name in enumerate(policy.states):
        cells = [_odds(names, rows[s]) if s in rows else names[a] for rows, a in zip(drawn, chosen[:, s], strict=True)]
        yield markdown_line([markdown_escaped(name), *cells]) + "\n"


def phases_of(policy: Policy) -> list[tuple[int, int]]:
    """First and last step, counted from 1, of each longest sequence of steps with equal decisions."""
    found = policy.decisions
    starts = [1, *(h + 1 for h in range(1, len(found.choice)) if not same_at(found, h - 1, found, h))]
    return list(zip(starts, [*(h - 1 for h in starts[1:]), policy.shape[0]], strict=True))


def _odds(names: list[str], row: np.ndarray) -> str:
    used = np.flatnonzero(row).tolist()
    if len(used) == 1:
        return names[used[0]]
    return " / ".join(f"{names[a]} {100 * row[a]:.4g} %" for a in used)


def python_module(policy: Policy) -> Iterator[str]:
    """The source of a module with ``act``, ``act_many``, ``probabilities`` by step and state; names are literals."""
    H, S, A = policy.shape
    size = 1 if A < 1 << 8 else 2 if A < 1 << 16 else 4  # so that A itself, which is no action, fits too
    made = policy.made_for
    head, middle, tail = _MODULE.substitute(
        {key: Template(pair[policy.is_stationary]).substitute(H=H) for key, pair in _PARTS.items()},
        S=S,
        A=A,
        states=_names(policy.states),
        actions=_names(policy.action_names),
        code=CODES[size],
        model="None" if made is None else repr({**made._asdict(), "bounds": list(made.bounds)}),
    ).split("# ----\n")
    yield head
    phases = phases_of(policy)
    for first, _ in phases:
        yield f"    ({first},\n"
        yield from _packed(policy.choice[first - 1], size)
        yield "    ),\n"
    yield middle
    for i, (first, _) in enumerate(phases):
        for s, row in drawn_at(policy.decisions, first - 1).items():
            used = tuple((a, float(row[a])) for a in np.flatnonzero(row).tolist())
            yield f"    ({i}, {s}): {used!r},\n"
    yield tail


def _packed(choice: Any, size: int) -> Iterator[str]:
    """The indices as lines of text: little-endian, compressed, base 64."""
    data = np.ascontiguousarray(choice, dtype=f"<u{size}").tobytes()
    text = base64.b64encode(zlib.compress(data, 6)).decode()
    for i in range(0, len(text), WIDTH):
        yield f'        "{text[i : i + WIDTH]}"\n'


def _names(names: Sequence[Name]) -> str:
    if isinstance(names, range):
        return repr(names)
    return f"({', '.join(_literal(name) for name in names)},)"


def _literal(name: Any) -> str:
    """Python source of a name; what is more than text, numbers and tuples of them becomes its text."""
    if type(name) is tuple:
        return f"({''.join(f'{_literal(x)}, ' for x in name)})"
    return repr(name) if type(name) in (str, int, bool, type(None)) else repr(str(name))


# What differs between policies with steps, which come first, and without.
_PARTS = {
    "kind": ("A policy for $H steps, ", "A stationary policy for "),
    "step": ("step, ", ""),
    "steps": ("steps, ", ""),
    "STEP": ("STEP ", ""),
    "counting": ("Steps count from 1. ", ""),
    "horizon": ("HORIZON = $H\n", ""),
    "until": ("From a step on, until the next entry, for", "For"),
    "place": ("at a step (from 1) in a state", "in a state"),
    "given": ("a step (from 1) and a state", "a state"),
    "each": ("many states, at one step or at one step for each, ", "many states "),
    "phase": (
        """    if step not in range(1, HORIZON + 1):
        raise ValueError(f"step is {step!r}, expected a whole number from 1 to {HORIZON}")
    phase = bisect.bisect(_FIRST, step) - 1
""",
        "    phase = 0\n",
    ),
    "phases": (
        """    steps = np.asarray(steps)
    if (steps.size and steps.dtype.kind not in "iu") or ((steps < 1) | (steps > HORIZON)).any():
        raise ValueError(f"steps are {steps!r}, expected whole numbers from 1 to {HORIZON}")
    phase = np.searchsorted(_FIRST, steps, side="right") - 1
""",
        "    phase = 0\n",
    ),
    "wrong": ("len(arguments) != 2 or not arguments[0].isdecimal()", "len(arguments) != 1"),
    "arguments": ("int(arguments[0]), arguments[1]", "arguments[0]"),
}

_MODULE = Template('''\
"""${kind}$S states and $A actions, exported by cmdpkit. It needs nothing but Python 3.

Use it as a module, act(${step}state) and probabilities(${step}state), or as a program, which prints an action:

    python THIS_FILE ${STEP}STATE

${counting}Where the policy randomises, every call draws again. Only act_many(${steps}states, rng) needs NumPy.
"""

import base64
import bisect
import functools
import random
import sys
import zlib
from array import array

${horizon}STATES = $states
ACTIONS = $actions
MODEL = $model  # what the policy was made for, if that is known

# $until every state the position of its action in ACTIONS: bytes, compressed, in base 64.
PHASES = (
# ----
)
# Where several actions are possible, (position in PHASES, position in STATES): the actions and their probabilities.
DRAWS = {
# ----
}


def _unpacked(text):
    table = array("$code", zlib.decompress(base64.b64decode(text)))
    if sys.byteorder == "big":
        table.byteswap()
    return table


_FIRST = [first for first, _ in PHASES]
_CHOICE = [_unpacked(text) for _, text in PHASES]
_POSITION = {}  # of a state, by its text and by itself; default names, which count from 1, need no table
if not isinstance(STATES, range):
    _POSITION.update((str(name), i) for i, name in enumerate(STATES))
    _POSITION.update((name, i) for i, name in enumerate(STATES))


def _position(state):
    text = str(state)
    if isinstance(STATES, range) and text.isdecimal() and int(text) in STATES:
        return int(text) - 1
    if text not in _POSITION:
        raise ValueError(f"unknown state {state!r}; there are {len(STATES)}, the first is {STATES[0]!r}")
    return _POSITION[text]


def probabilities(${step}state):
    """The actions possible $place, each with its probability."""
${phase}    s = _position(state)
    return {ACTIONS[a]: p for a, p in DRAWS.get((phase, s)) or ((_CHOICE[phase][s], 1.0),)}


def act(${step}state, rng=random):
    """An action for $given, drawn with rng.random()."""
    row = probabilities(${step}state)
    left = rng.random() * sum(row.values())
    for action, p in row.items():
        left -= p
        if left < 0:
            break
    return action


def act_many(${steps}states, rng):
    """An array of actions for ${each}drawn with rng, a random generator of NumPy."""
    import numpy as np

    choice, places, cdf, names = _tables()
${phases}    s = _positions(states)
    if np.shape(phase) not in ((), s.shape):
        raise ValueError(f"there are {np.size(phase)} steps for {len(s)} states, expected one, or one for each state")
    place = np.broadcast_to(phase * len(STATES), s.shape) + s
    a = choice[place]
    drawn = np.flatnonzero(a == len(ACTIONS))
    if len(drawn):
        odds = cdf[np.searchsorted(places, place[drawn])]
        a[drawn] = (odds <= rng.random(len(drawn))[:, None] * odds[:, -1:]).sum(axis=1)
    return names[a]


def _positions(states):
    import numpy as np

    if isinstance(STATES, range):
        given = np.asarray(states)
        if given.dtype.kind in "iu" and given.size and 1 <= given.min() and given.max() <= len(STATES):
            return given.astype(np.int64) - 1
    if isinstance(states, str) or not hasattr(states, "__len__"):
        raise ValueError(f"states are {states!r}, expected a list or an array of states; act decides for one")
    listed = states.tolist() if hasattr(states, "tolist") else list(states)
    try:
        return np.fromiter(map(_POSITION.__getitem__, listed), dtype=np.int64, count=len(listed))
    except (KeyError, TypeError):
        return np.array([_position(state) for state in listed], dtype=np.int64)


@functools.cache
def _tables():
    import numpy as np

    choice = np.concatenate([np.frombuffer(table, dtype=table.typecode) for table in _CHOICE])
    places = np.array([phase * len(STATES) + s for phase, s in DRAWS], dtype=np.int64)
    choice[places] = len(ACTIONS)  # which is no position of an action: here one is drawn
    p = np.zeros((len(DRAWS), len(ACTIONS)))
    for i, row in enumerate(DRAWS.values()):
        for a, share in row:
            p[i, a] = share
    names = np.empty(len(ACTIONS), dtype=object)
    for a, name in enumerate(ACTIONS):
        names[a] = name
    return choice, places, p.cumsum(axis=1), names


def main(arguments):
    """Print an action for ${STEP}STATE; the exit code."""
    if $wrong:
        print("usage: python THIS_FILE ${STEP}STATE", file=sys.stderr)
        return 2
    try:
        print(act($arguments))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
''')
