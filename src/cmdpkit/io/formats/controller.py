"""Policies for others to use: a Python module to run that needs nothing but Python.

The module holds the index of the action for every state, once for each sequence of steps with equal decisions, as
compressed bytes, and the few stochastic decisions as they are.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from string import Template
from typing import Any

import numpy as np

from cmdpkit.model.decisions import drawn_at, same_at
from cmdpkit.model.policy import Policy

WIDTH = 100  # characters in a line of packed bytes


def phases_of(policy: Policy) -> list[tuple[int, int]]:
    """First and last step, counted from 1, of each longest sequence of steps with equal decisions."""
    found = policy.decisions
    starts = [1, *(h + 1 for h in range(1, len(found.choice)) if not same_at(found, h - 1, found, h))]
    return list(zip(starts, [*(h - 1 for h in starts[1:]), policy.shape[0]], strict=True))


def python_module(policy: Policy) -> Iterator[str]:
    """The source of a module with ``act`` and ``probabilities`` by step and state; names are literals."""
    H, S, A = policy.shape
    made = policy.made_for
    head, middle, tail = _MODULE.substitute(
        {key: Template(pair[policy.is_stationary]).substitute(H=H) for key, pair in _PARTS.items()},
        S=S,
        A=A,
        states=_literal(policy.states),
        actions=_literal(policy.action_names),
        model="None" if made is None else repr({**made._asdict(), "bounds": list(made.bounds)}),
    ).split("# ----\n")
    yield head
    phases = phases_of(policy)
    for first, _ in phases:
        yield f"    ({first},\n"
        yield from _packed(policy.choice[first - 1])
        yield "    ),\n"
    yield middle
    for i, (first, _) in enumerate(phases):
        for s, row in drawn_at(policy.decisions, first - 1).items():
            used = tuple((a, float(row[a])) for a in np.flatnonzero(row).tolist())
            yield f"    ({i}, {s}): {used!r},\n"
    yield tail


def _packed(choice: Any) -> Iterator[str]:
    """The indices as lines of text: little-endian, compressed, base 64."""
    data = np.ascontiguousarray(choice, dtype="<u4").tobytes()
    text = base64.b64encode(zlib.compress(data, 6)).decode()
    for i in range(0, len(text), WIDTH):
        yield f'        "{text[i : i + WIDTH]}"\n'


def _literal(name: Any) -> str:
    """Python source of names or of one name; what is more than text, numbers and tuples of them becomes its text."""
    if type(name) is tuple:
        return f"({''.join(f'{_literal(x)}, ' for x in name)})"
    return repr(name) if type(name) in (str, int, bool, range, type(None)) else repr(str(name))


# What differs between policies with steps, which come first, and without.
_PARTS = {
    "kind": ("A policy for $H steps, ", "A stationary policy for "),
    "step": ("step, ", ""),
    "STEP": ("STEP ", ""),
    "counting": ("Steps count from 1. ", ""),
    "horizon": ("HORIZON = $H\n", ""),
    "until": ("From a step on, until the next entry, for", "For"),
    "place": ("at a step (from 1) in a state", "in a state"),
    "given": ("a step (from 1) and a state", "a state"),
    "phase": (
        """    if step not in range(1, HORIZON + 1):
        raise ValueError(f"step is {step!r}, expected a whole number from 1 to {HORIZON}")
    phase = bisect.bisect(_FIRST, step) - 1
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

${counting}Where the policy randomises, every call draws again.
"""

import base64
import bisect
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
    table = array("I", zlib.decompress(base64.b64decode(text)))
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
