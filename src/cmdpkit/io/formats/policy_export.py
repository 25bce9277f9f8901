"""Policies for others to read and run: a Markdown table, and a Python module that needs nothing but Python."""

from __future__ import annotations

from string import Template

import numpy as np

from cmdpkit.errors import quoted
from cmdpkit.io.formats.markdown import escaped, line
from cmdpkit.model.policy import Policy


def markdown(policy: Policy) -> str:
    """A table with one row per state and one column per step; consecutive steps with equal decisions share a column."""
    H, S, A = policy.pi.shape
    phases = _phases(policy)
    heads = ["state", *(f"step {a}" if a == b else f"steps {a}–{b}" for a, b in phases)]
    title = f"# Policy for {H} steps, {S} states, {A} actions"
    if policy.is_stationary:
        heads, title = ["state", "action"], f"# Stationary policy for {S} states, {A} actions"
    lines = [title, "", line(heads), line(["---"] * len(heads))]
    for s, name in enumerate(policy.states):
        lines.append(line([escaped(name), *(_decision(policy, first - 1, s) for first, _ in phases)]))
    return "\n".join(lines) + "\n"


def _phases(policy: Policy) -> list[tuple[int, int]]:
    """First and last step, counted from 1, of each longest sequence of steps with equal decisions."""
    new = [True, *(not np.array_equal(a, b) for a, b in zip(policy.pi, policy.pi[1:], strict=False))]
    starts = [h for h, is_new in enumerate(new, 1) if is_new]
    return list(zip(starts, [*(h - 1 for h in starts[1:]), len(policy.pi)], strict=True))


def _decision(policy: Policy, h: int, s: int) -> str:
    row = policy.pi[h, s]
    used = np.flatnonzero(row).tolist()
    if len(used) == 1:
        return escaped(policy.action_names[used[0]])
    return " / ".join(f"{escaped(policy.action_names[a])} {100 * row[a]:.4g} %" for a in used)


def python_module(policy: Policy) -> str:
    """The source of a module with ``act(step, state)`` and ``probabilities(step, state)``; names become literals.

    A stationary policy has no step: ``act(state)`` and ``probabilities(state)``.
    """
    H, S, A = policy.pi.shape
    lines = []
    for first, _ in _phases(policy):
        lines.append(f"    ({first}, (")
        for state, row in zip(policy.states, policy.pi[first - 1].tolist(), strict=True):
            used = tuple((a, p) for a, p in enumerate(row) if p > 0)
            lines.append(f"        {used!r},  # {quoted(state)}")
        lines.append("    )),")
    states, actions = (f"({', '.join(map(repr, names))},)" for names in (policy.states, policy.action_names))
    module = _MODULE.substitute(H=H, S=S, A=A, states=states, actions=actions, phases="\n".join(lines))
    return _without_steps(module) if policy.is_stationary else module


def _without_steps(module: str) -> str:
    """The module of a policy that has one phase, with the step taken out of its functions, texts and arguments."""
    for old, new in _STATIONARY:
        if old not in module:
            raise RuntimeError(f"the module has no {old!r}")
        module = module.replace(old, new)
    return module


_STATIONARY = (
    ("A policy for 1 steps, ", "A stationary policy for "),
    ("act(step, state) and probabilities(step, state)", "act(state) and probabilities(state)"),
    ("python THIS_FILE STEP STATE", "python THIS_FILE STATE"),
    ("Steps count from 1. Where", "Where"),
    ("HORIZON = 1\n", ""),
    ("# From a step on, until the next entry: for", "# For"),
    ("def probabilities(step, state):", "def probabilities(state):"),
    ("possible at a step (from 1) in a state", "possible in a state"),
    ("def act(step, state, rng=random):", "def act(state, rng=random):"),
    ("An action for a step (from 1) and a state", "An action for a state"),
    ("row = probabilities(step, state)", "row = probabilities(state)"),
    ("[rows for first, rows in PHASES if first <= step][-1]", "PHASES[0][1]"),
    (
        """    if step not in range(1, HORIZON + 1):
        raise ValueError(f"step is {step!r}, expected a whole number from 1 to {HORIZON}")
""",
        "",
    ),
    ("Print an action for STEP and STATE", "Print an action for STATE"),
    ("len(arguments) != 2 or not arguments[0].isdecimal()", "len(arguments) != 1"),
    ("act(int(arguments[0]), arguments[1])", "act(arguments[0])"),
)


_MODULE = Template('''\
"""A policy for $H steps, $S states and $A actions, exported by cmdpkit. It needs nothing but Python 3.

Use it as a module, act(step, state) and probabilities(step, state), or as a program, which prints an action:

    python THIS_FILE STEP STATE

Steps count from 1. Where the policy randomises, every call draws anew.
"""

import random
import sys

HORIZON = $H
STATES = $states
ACTIONS = $actions

# From a step on, until the next entry: for every state, the actions (by position in ACTIONS) and their probabilities.
PHASES = (
$phases
)
_POSITION = {str(name): i for i, name in enumerate(STATES)}


def probabilities(step, state):
    """The actions possible at a step (from 1) in a state, each with its probability."""
    if step not in range(1, HORIZON + 1):
        raise ValueError(f"step is {step!r}, expected a whole number from 1 to {HORIZON}")
    if str(state) not in _POSITION:
        raise ValueError(f"unknown state {state!r}; there are {len(STATES)}, the first is {STATES[0]!r}")
    table = [rows for first, rows in PHASES if first <= step][-1]
    return {ACTIONS[a]: p for a, p in table[_POSITION[str(state)]]}


def act(step, state, rng=random):
    """An action for a step (from 1) and a state, drawn with rng.random()."""
    row = probabilities(step, state)
    left = rng.random() * sum(row.values())
    for action, p in row.items():
        left -= p
        if left < 0:
            break
    return action


def main(arguments):
    """Print an action for STEP and STATE; the exit code."""
    if len(arguments) != 2 or not arguments[0].isdecimal():
        print("usage: python THIS_FILE STEP STATE", file=sys.stderr)
        return 2
    try:
        print(act(int(arguments[0]), arguments[1]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
''')
