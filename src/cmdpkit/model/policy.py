"""Markov policies: at step h in state s, action a has probability pi[h, s, a].

What a policy is worth is computed in `evaluate`; a draw among several policies is a `mixture`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray
from cmdpkit.model.validate import Name, frozen, index_of, names_of, numbers

NEGLIGIBLE = 1e-12  # occupancies and probabilities below this are rounding, not decisions


class Decision(NamedTuple):
    """A state at a step where a policy gives several actions a positive probability."""

    step: int  # counts from 1
    state: Name
    probabilities: Mapping[Name, float]


@dataclass(frozen=True, eq=False)
class Policy:
    """A Markov policy: at step h in state s, action a has probability pi[h, s, a].

    >>> Policy.deterministic([[0, 1], [1, 1]], A=2).pi.tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    """

    pi: FloatArray  # [H, S, A]
    states: Sequence[Name] = ()
    action_names: Sequence[Name] = ()

    def __post_init__(self) -> None:
        pi = numbers("pi", self.pi)
        if pi.ndim != 3 or 0 in pi.shape:
            raise CmdpkitError(f"pi has shape {pi.shape}, expected (H, S, A)")
        bad = np.argwhere(~np.isfinite(pi) | (pi < 0))
        if len(bad):
            h, s, a = bad[0]
            raise CmdpkitError(f"pi[h={h}, s={s}, a={a}] is {pi[h, s, a]}, expected a probability")
        wrong = np.argwhere(np.abs(pi.sum(axis=-1) - 1) > ROW_SUM_TOLERANCE)
        if len(wrong):
            h, s = wrong[0]
            raise CmdpkitError(
                f"pi[h={h}, s={s}] sums to {pi[h, s].sum():.12g}, expected 1 within {ROW_SUM_TOLERANCE:g}"
            )
        _, S, A = pi.shape
        object.__setattr__(self, "pi", frozen(pi))
        object.__setattr__(self, "states", names_of("states", self.states or None, S))
        object.__setattr__(self, "action_names", names_of("action_names", self.action_names or None, A))

    @classmethod
    def of(cls, cmdp: CMDP, pi: ArrayLike) -> Policy:
        """A policy that carries the model's names and uses only actions the model has."""
        policy = cls(pi, cmdp.states, cmdp.action_names)  # type: ignore[arg-type]  # made an array there
        check_fits(cmdp, policy)
        return policy

    @classmethod
    def deterministic(cls, choice: ArrayLike, A: int) -> Policy:
        """The policy that takes action choice[h, s]."""
        chosen = numbers("choice", choice)
        if chosen.ndim != 2 or not np.isin(chosen, np.arange(A)).all():
            raise CmdpkitError(f"choice must be an array (H, S) of action indices in 0..{A - 1}")
        return cls(one_hot(chosen, A))

    @classmethod
    def uniform(cls, cmdp: CMDP) -> Policy:
        """Every action that exists, equally likely."""
        allowed = cmdp.actions.astype(float)
        return cls.of(cmdp, allowed / allowed.sum(axis=-1, keepdims=True))

    @property
    def horizon(self) -> int:
        """How many steps the policy covers."""
        return len(self.pi)

    def probabilities(self, step: int, state: Name) -> dict[Name, float]:
        """Actions with a positive probability at ``step`` (from 1) in a state, by name."""
        if step not in range(1, self.horizon + 1):
            raise CmdpkitError(f"step is {step!r}, expected a whole number from 1 to {self.horizon}")
        row = self.pi[int(step) - 1, index_of("state", self.states, state)]
        return {self.action_names[int(a)]: float(row[a]) for a in np.flatnonzero(row)}

    def act(self, step: int, state: Name, rng: np.random.Generator) -> Name:
        """Draw an action at ``step`` (from 1) in a state, by name."""
        row = self.probabilities(step, state)
        return list(row)[int(rng.choice(len(row), p=np.array(list(row.values())) / sum(row.values())))]

    def stochastic_decisions(self, reach: FloatArray | None = None) -> list[Decision]:
        """Every (step, state) with more than one possible action; with ``reach`` [H, S], only those ever reached."""
        several = (self.pi > NEGLIGIBLE).sum(axis=-1) > 1
        if reach is not None:
            several &= reach > NEGLIGIBLE
        found = []
        for h, s in np.argwhere(several):
            used = np.flatnonzero(self.pi[h, s] > NEGLIGIBLE)
            row = {self.action_names[int(a)]: float(self.pi[h, s, a]) for a in used}
            found.append(Decision(int(h) + 1, self.states[int(s)], row))
        return found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Policy)
            and np.array_equal(self.pi, other.pi)
            and list(self.states) == list(other.states)
            and list(self.action_names) == list(other.action_names)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        H, S, A = self.pi.shape
        return f"Policy(H={H}, S={S}, A={A}, stochastic decisions: {len(self.stochastic_decisions())})"


def one_hot(choice: NDArray[Any], A: int) -> FloatArray:
    """pi [H, S, A] of the deterministic policy choice [H, S]."""
    hot: FloatArray = (choice[..., None] == np.arange(A)).astype(float)
    return hot


def _check_names(what: str, own: Sequence[Name], model: Sequence[Name]) -> None:
    """A policy without names of its own fits any model of its size; one with names must have the model's."""
    if own == range(1, len(own) + 1) or own is model or len(own) != len(model):
        return  # a wrong size is reported by the shape
    for i, (mine, theirs) in enumerate(zip(own, model, strict=True)):
        if mine != theirs:
            raise CmdpkitError(f"the policy's {what} {i + 1} is called {mine!r}, the model's {theirs!r}")


def check_fits(cmdp: CMDP, policy: Policy | FloatArray) -> None:
    """Raise a ValueError unless a policy has the sizes, the names and only the actions of a model."""
    pi = policy.pi if isinstance(policy, Policy) else policy
    if pi.shape != (cmdp.H, cmdp.S, cmdp.A):
        raise CmdpkitError(f"the policy has shape {pi.shape}, the model (H, S, A) = {(cmdp.H, cmdp.S, cmdp.A)}")
    if isinstance(policy, Policy):
        _check_names("state", policy.states, cmdp.states)
        _check_names("action", policy.action_names, cmdp.action_names)
    if cmdp.compact.allowed.all():
        return
    outside = np.argwhere((pi > 0) & ~cmdp.actions)
    if len(outside):
        h, s, a = (int(i) for i in outside[0])
        raise CmdpkitError(
            f"the policy gives action {cmdp.action_names[a]!r} probability {pi[h, s, a]} at step {h + 1} in state "
            f"{cmdp.states[s]!r}, where it does not exist"
        )
