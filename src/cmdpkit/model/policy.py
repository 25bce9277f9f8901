"""Markov policies: at step h in state s, action a has probability pi[h, s, a].

Where there is no horizon, a policy is stationary: it has one decision per state, pi[0, s, a], and no steps.

What a policy is worth is computed in `evaluate`; a draw among several policies is a `mixture`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray
from cmdpkit.model.validate import Name, frozen, index_of, names_of, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEGLIGIBLE = 1e-12  # smaller occupancies and probabilities are due to rounding


class Decision(NamedTuple):
    """A state at a step where a policy gives several actions a positive probability."""

    step: int | None  # counts from 1; None if the policy is stationary
    state: Name
    probabilities: Mapping[Name, float]  # by the name of the action


@dataclass(frozen=True, eq=False)
class Policy(Shown):
    """A Markov policy, as a table of probabilities that is checked and cannot be changed.

    Parameters
    ----------
    pi : array [H, S, A]; every pi[h, s] is a distribution over the actions
    states, action_names : names; by default 1, 2, 3, ...

    >>> Policy.deterministic([[0, 1], [1, 1]], A=2).pi.tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    """

    pi: FloatArray  # [H, S, A]; [1, S, A] if stationary
    states: Sequence[Name] = ()
    action_names: Sequence[Name] = ()
    is_stationary: bool = False  # one decision per state, for as long as it takes

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
        T, S, A = pi.shape
        if self.is_stationary and T != 1:
            raise CmdpkitError(f"pi has {T} steps, expected one decision per state: the policy is stationary")
        object.__setattr__(self, "pi", frozen(pi))
        object.__setattr__(self, "states", names_of("states", self.states or None, S))
        object.__setattr__(self, "action_names", names_of("action_names", self.action_names or None, A))

    @classmethod
    def of(cls, cmdp: CMDP, pi: ArrayLike) -> Policy:
        """A policy that carries the model's names and uses only actions the model has."""
        stationary = cmdp.criterion.stationary
        pi = numbers("pi", pi)
        if stationary and pi.ndim == 2:
            pi = pi[None]
        policy = cls(pi, cmdp.states, cmdp.action_names, stationary)
        check_fits(cmdp, policy)
        return policy

    @classmethod
    def stationary(cls, pi: ArrayLike, states: Sequence[Name] = (), action_names: Sequence[Name] = ()) -> Policy:
        """The stationary policy pi[s, a].

        >>> Policy.stationary([[0.25, 0.75]]).probabilities(state=1)
        {1: 0.25, 2: 0.75}
        """
        table = numbers("pi", pi)
        if table.ndim != 2:
            raise CmdpkitError(f"pi has shape {table.shape}, expected (S, A)")
        return cls(table[None], states, action_names, True)

    def repeated(self, H: int) -> Policy:
        """A stationary policy as one for H steps that decides the same at each of them."""
        if not self.is_stationary:
            raise CmdpkitError(f"this policy is for {self.horizon} steps, expected a stationary one")
        return Policy(np.broadcast_to(self.pi, (H, *self.pi.shape[1:])), self.states, self.action_names)

    @classmethod
    def deterministic(cls, choice: ArrayLike, A: int) -> Policy:
        """The policy that takes the action with index choice[h, s], of A actions."""
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
        """How many steps the policy covers; stationary policies have no such attribute."""
        if self.is_stationary:
            raise AttributeError("this policy has no horizon: it is stationary")
        return len(self.pi)

    def probabilities(self, step: int | None = None, state: Name = "") -> dict[Name, float]:
        """Actions with a positive probability at ``step`` (from 1) in a state, by name; no step if stationary."""
        row = self.pi[self._position(step), index_of("state", self.states, state)]
        return {self.action_names[int(a)]: float(row[a]) for a in np.flatnonzero(row)}

    def _position(self, step: int | None) -> int:
        """Where the decisions of a step stand in pi."""
        if self.is_stationary:
            if step is not None:
                raise CmdpkitError(f"step is {step!r}, but the policy is stationary: give the state only, state=...")
            return 0
        if step is None or step not in range(1, self.horizon + 1):
            raise CmdpkitError(f"step is {step!r}, expected a whole number from 1 to {self.horizon}")
        return int(step) - 1

    def act(self, step: int | None = None, state: Name = "", rng: np.random.Generator | None = None) -> Name:
        """Draw an action at ``step`` (from 1) in a state, by name; a stationary policy takes ``state`` and ``rng``."""
        if rng is None:
            raise CmdpkitError("rng is missing: give a numpy random generator, rng=np.random.default_rng(seed)")
        row = self.probabilities(step, state)
        return list(row)[int(rng.choice(len(row), p=np.array(list(row.values())) / sum(row.values())))]

    def stochastic_decisions(self, reach: FloatArray | None = None) -> list[Decision]:
        """Every (step, state) with more than one possible action; with ``reach`` [H, S], only those ever reached.

        The step of a stationary policy's decisions is None.
        """
        several = (self.pi > NEGLIGIBLE).sum(axis=-1) > 1
        if reach is not None:
            several &= reach > NEGLIGIBLE
        found = []
        for h, s in np.argwhere(several):
            used = np.flatnonzero(self.pi[h, s] > NEGLIGIBLE)
            row = {self.action_names[int(a)]: float(self.pi[h, s, a]) for a in used}
            found.append(Decision(None if self.is_stationary else int(h) + 1, self.states[int(s)], row))
        return found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Policy)
            and np.array_equal(self.pi, other.pi)
            and self.is_stationary == other.is_stationary
            and list(self.states) == list(other.states)
            and list(self.action_names) == list(other.action_names)
        )

    __hash__ = None  # type: ignore[assignment]

    def plot(self) -> Figure:
        """A matplotlib figure: the action at every step in every state, one colour per action."""
        from cmdpkit.results.figures.maps import policy_map

        return policy_map(self)

    def __repr__(self) -> str:
        H, S, A = self.pi.shape
        length = "stationary" if self.is_stationary else f"H={H}"
        return f"Policy({length}, S={S}, A={A}, stochastic decisions: {len(self.stochastic_decisions())})"


def one_hot(choice: NDArray[Any], A: int) -> FloatArray:
    """pi [H, S, A] of the deterministic policy choice [H, S]."""
    hot: FloatArray = (choice[..., None] == np.arange(A)).astype(float)
    return hot


def _check_names(what: str, own: Sequence[Name], model: Sequence[Name]) -> None:
    """Refuse a policy whose names differ from the model's; default names fit every model."""
    if own == range(1, len(own) + 1) or own is model or len(own) != len(model):
        return  # a wrong size is reported by the shape
    for i, (mine, theirs) in enumerate(zip(own, model, strict=True)):
        if mine != theirs:
            raise CmdpkitError(f"the policy's {what} {i + 1} is called {mine!r}, the model's {theirs!r}")


def check_fits(cmdp: CMDP, policy: Policy | FloatArray) -> None:
    """Raise CmdpkitError unless a policy has the sizes and names of a model and uses only its actions."""
    pi = policy.pi if isinstance(policy, Policy) else policy
    if isinstance(policy, Policy) and policy.is_stationary != cmdp.criterion.stationary:
        has, needs = ("stationary", "one for every step: policy.repeated(H)")
        if cmdp.criterion.stationary:
            has, needs = (f"for {policy.horizon} steps", "a stationary one: Policy.stationary(pi)")
        raise CmdpkitError(f"the policy is {has}, but the model has {cmdp.criterion}, which needs {needs}")
    if pi.shape != (cmdp.steps, cmdp.S, cmdp.A):
        sizes = (cmdp.steps, cmdp.S, cmdp.A)
        raise CmdpkitError(f"the policy has shape {pi.shape}, the model (H, S, A) = {sizes}")
    if isinstance(policy, Policy):
        _check_names("state", policy.states, cmdp.states)
        _check_names("action", policy.action_names, cmdp.action_names)
    if cmdp.compact.allowed.all():
        return
    outside = np.argwhere((pi > 0) & ~cmdp.actions)
    if len(outside):
        h, s, a = (int(i) for i in outside[0])
        at = "" if cmdp.criterion.stationary else f" at step {h + 1}"
        raise CmdpkitError(
            f"the policy gives action {cmdp.action_names[a]!r} probability {pi[h, s, a]}{at} in state "
            f"{cmdp.states[s]!r}, where it does not exist"
        )
