"""Models as other tools list them: states and choices by number, named reward structures, and nothing about bounds.

`Explicit` stands between a `CMDP` and the files of PRISM, Storm and others (see `prism` and `umb`). Such files know no
horizon and no bounds, so whoever reads one says which reward structure is the reward, which ones are bounded, and for
how long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel
from cmdpkit.model.validate import Name, index_of


@dataclass(frozen=True)
class Explicit:
    """A model as a list of choices, in the order of their states."""

    states: Sequence[Name]  # names of the states, by number
    actions: Sequence[Name]  # names of the actions, by number
    state: IntArray  # [choices], the state of each choice
    action: IntArray  # [choices], its action; different within a state
    indptr: IntArray  # [choices + 1], the transitions of choice i are those from indptr[i] to indptr[i + 1]
    successors: IntArray  # [transitions], the next state
    prob: FloatArray  # [transitions], its probability
    rewards: Mapping[str, FloatArray]  # by name, [choices]: what a choice earns on average
    start: Mapping[int, float]  # the probability of every first state

    def problem(self, reward: str, constraints: Sequence[Constraint], start: Any = None, **options: Any) -> CMDP:
        """The constrained problem in which `reward` is maximised; a constraint bounds the structure of its name.

        ``options`` are those of `CMDP`: horizon, discount, criterion and renormalise.
        """
        S, A = len(self.states), len(self.actions)
        at = self.state * A + self.action
        if start is None and not self.start:
            raise CmdpkitError("the file names no initial state; give one: start=...")
        if start is None:
            mu = np.zeros(S)
            mu[list(self.start)] = list(self.start.values())
        return CMDP(
            Kernel.from_entries((1, S, A), np.repeat(at, np.diff(self.indptr)), self.successors, self.prob),
            self._table(reward, at, S, A),
            mu=mu if start is None else start if isinstance(start, Mapping) else {start: 1.0},
            actions=np.isin(np.arange(S * A), at).reshape(S, A),
            constraints=[replace(c, signal=self._table(c.name, at, S, A)) for c in constraints],
            states=self.states,
            action_names=list(self.actions),
            **options,
        )

    def _table(self, name: str, at: Any, S: int, A: int) -> FloatArray:
        """A reward structure as an array [S, A]."""
        index_of("reward structure", list(self.rewards), name)
        table = np.zeros(S * A)
        table[at] = self.rewards[name]
        return table.reshape(S, A)


def explicit_of(cmdp: CMDP) -> Explicit:
    """A model whose parts are the same at every step; the reward is called "reward", and signals as their bounds."""
    c = cmdp.compact
    if cmdp.kernel.T > 1 or any(x.shape[-3] > 1 for x in (c.r, c.g, c.allowed)):
        raise CmdpkitError(
            "the model depends on the step, which this format cannot say; make the step a part of the state first"
        )
    if any(constraint.name == "reward" for constraint in cmdp.constraints):
        raise CmdpkitError("a constraint is called 'reward', which is the name of the reward in this format; rename it")
    state, action = np.nonzero(c.allowed[0])
    rows = cmdp.kernel.masked(c.allowed)  # all transitions that are left belong to an allowed choice, in their order
    sizes = np.diff(rows.indptr)[state * cmdp.A + action]
    signals = {"reward": c.r[0][state, action]}
    signals |= {x.name: x.sign * g[0][state, action] + 0.0 for x, g in zip(cmdp.constraints, c.g, strict=True)}
    return Explicit(
        states=cmdp.states,
        actions=cmdp.action_names,
        state=state,
        action=action,
        indptr=np.concatenate(([0], np.cumsum(sizes))),
        successors=rows.successors.astype(np.int64),
        prob=rows.prob,
        rewards=signals,
        start={int(s): float(cmdp.mu[s]) for s in np.flatnonzero(cmdp.mu)},
    )


def one_start(states: Sequence[int]) -> dict[int, float]:
    """The start distribution for the initial states of a file; several have no probabilities there."""
    if len(states) > 1:
        raise CmdpkitError(f"the file has {len(states)} initial states; say how likely each is: start=...")
    return dict.fromkeys(states, 1.0)


def told_apart(state: IntArray, given: Sequence[Name]) -> tuple[list[Name], IntArray]:
    """Names of actions, and the action of every choice, for choices that are called ``given``.

    Where two choices of a state have the same name, a number is put behind that of the second.

    >>> told_apart(np.array([0, 0, 1]), ["go", "go", "go"])
    (['go', 'go (2)'], array([0, 1, 0]))
    """
    used = set[tuple[int, Name]]()
    number: dict[Name, int] = {}
    action = np.zeros(len(given), dtype=np.int64)
    for i, (s, name) in enumerate(zip(state.tolist(), given, strict=True)):
        made, again = name, 1
        while (s, made) in used:
            again += 1
            made = f"{name} ({again})"
        used.add((s, made))
        action[i] = number.setdefault(made, len(number))
    return list(number), action


def check_names(path: Any, names: Mapping[str, Any]) -> None:
    """Refuse a file without any reward structure."""
    if not names:
        raise CmdpkitError(f"{path}: there is no reward structure; give files that hold one: rewards={{name: file}}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise CmdpkitError(f"{path}: a reward structure is called {quoted(name)}, expected a name")
