"""What a learner is: what it is told (`Spec`), where it lives (`Source`) and what it must be able to do (`Learner`).

A learner works in unit scale, every reward and utility in [0, 1] and every constraint "at least rho".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import is_int
from cmdpkit.simulate.meter import Meter
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import Noise, Simulator

State = Mapping[str, NDArray[Any]]  # a learner's arrays by name, as a checkpoint keeps them


@dataclass(frozen=True, eq=False)
class Spec:
    """All that a learner knows: sizes, episodes to come, thresholds in unit scale, and the actions it may use.

    >>> from cmdpkit import envs
    >>> Spec.of(envs.build("paper/grid"), K=1000).rho.tolist()
    [5.5]
    """

    H: int
    S: int
    A: int
    K: int  # episodes of the whole run
    rho: FloatArray  # [N], W_n >= rho_n with utilities in [0, 1] per step
    allowed: BoolArray  # [H, S, A]
    stationary: bool = False  # whether the world is declared not to depend on the step

    def __post_init__(self) -> None:
        if not is_int(self.K) or self.K < 1:
            raise CmdpkitError(f"K is {self.K!r}, expected a whole number of episodes, at least 1")
        allowed = np.asarray(self.allowed)
        if allowed.shape != (self.H, self.S, self.A) or allowed.dtype != bool:
            expected = f"{(self.H, self.S, self.A)} and bool"
            raise CmdpkitError(f"allowed has shape {allowed.shape} and dtype {allowed.dtype}, expected {expected}")
        empty = np.argwhere(~allowed.any(axis=-1))
        if len(empty):
            h, s = (int(i) for i in empty[0])
            raise CmdpkitError(f"allowed[h={h}, s={s}] is empty: every state needs at least one action")
        object.__setattr__(self, "rho", np.array(self.rho, dtype=float))

    @property
    def N(self) -> int:
        """Number of constraints."""
        return len(self.rho)

    @classmethod
    def of(cls, cmdp: CMDP, K: int, allowed: BoolArray | None = None) -> Spec:
        """What a learner is told of a model; with `allowed` [H, S, A] it is confined to those actions."""
        rho = [scale.total_to_unit(x, cmdp.H) for scale, x in zip(cmdp.utility_scales, cmdp.rho, strict=True)]
        usable = cmdp.actions if allowed is None else allowed & cmdp.actions
        return cls(cmdp.H, cmdp.S, cmdp.A, K, np.array(rho), usable, _stationary(cmdp))


def _stationary(cmdp: CMDP) -> bool:
    """Whether nothing in a model but the allowed actions depends on the step."""
    signals = [len(cmdp.compact.r), *(len(x) for x in cmdp.compact.g)]
    return cmdp.kernel.T == 1 and max(signals) == 1


class Source(NamedTuple):
    """A world to learn in: what a learner acts on, and the meter that it shows its policies to."""

    simulator: Simulator
    meter: Meter

    @classmethod
    def of(cls, cmdp: CMDP, optimum: float | None = None, noise: Noise = "none") -> Source:
        """The world of a model; regret is measured against `optimum` (user's units), if given."""
        return cls(Simulator.of(cmdp, noise), Meter.of(cmdp, optimum))

    def check(self, spec: Spec) -> None:
        """Refuse a learner that was made for another size: compiled code would not notice."""
        sim = self.simulator
        sizes = (int(sim.H), int(sim.S), int(sim.A), sim.outcomes.shape[1] - 1)
        if sizes != (spec.H, spec.S, spec.A, spec.N):
            raise CmdpkitError(f"the source has (H, S, A, N) = {sizes}, the learner's spec is for another size")


class Returns(NamedTuple):
    """What each episode has realised, in unit scale."""

    reward: FloatArray  # [n]
    utilities: FloatArray  # [N, n]


class Learner(Protocol):
    """An algorithm at work; every algorithm has a class of this kind, called as ``Learner(spec, **params)``."""

    spec: Spec
    notes: tuple[str, ...]  # what a user should know about these parameters at this K

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes. Two runs of n are one of 2 n, to the bit."""

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays."""

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to hand over now."""

    def warnings(self) -> tuple[str, ...]:
        """What looks wrong by now, e.g. a bound that cannot be met."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change."""

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""


class Stepwise(Learner, Protocol):
    """A learner that can also be driven step by step, by whatever owns the environment."""

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to s: the action to take there."""

    def last(self, signals: FloatArray) -> None:
        """Learn from the last, H-th step's reward and utilities [1+N], and end the episode."""


class Episodic(Protocol):
    """What ``learner.episodic()`` returns, if learning can wait for the end of an episode: decisions are cheap then."""

    def begin(self, rng: Stream) -> None:
        """A new episode, with its source of random actions."""

    def act(self, h: int, s: int) -> int:
        """The action to take at step h in state s."""

    def end(self, states: IntArray, actions: IntArray, signals: FloatArray) -> None:
        """Learn from the episode: states [H or more], actions [H], reward and utilities [H, 1+N] in unit scale."""
