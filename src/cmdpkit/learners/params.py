"""What a learner is given: what it is told (`Spec`), where it acts (`Source`), and its parameters (`Params`).

A learner works in unit scale: every reward and utility is in [0, 1], and every constraint reads "at least rho".

Parameters are numbers that do not change during a run. A learner declares a frozen dataclass that inherits from
`Params`, and `presets`: for each name either such an object or a function that makes one from a `Spec`. The first
preset is the default. All learners are served by `chosen`, so an unknown name is answered in the same words everywhere.
A field that is made by `positive` or its neighbours, from its default, must obey that rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import MIN_DELTA, check_length, index_of, is_int
from cmdpkit.simulate.meter import Meter, Walk
from cmdpkit.simulate.simulator import Noise, Simulator

NEVER = 2**62  # a number of visits or steps that no run reaches


@dataclass(frozen=True, eq=False)
class Spec:
    """All that a learner knows: sizes, episodes to come, thresholds in unit scale, and the actions it may use.

    A world without a horizon has no episodes. There K counts steps, H is 1 (one decision per state), and rho holds
    means per step. Only learners whose `criteria` name the criterion are given such a spec.

    >>> from cmdpkit import envs
    >>> Spec.of(envs.build("paper/grid"), K=1000).rho.tolist()
    [5.5]
    """

    H: int  # number of steps of an episode
    S: int  # number of states
    A: int  # number of actions
    K: int  # number of episodes of the whole run; with `anytime`, of its first stage
    rho: FloatArray  # [N]: the expected total of utility n must be at least rho[n], with utilities in [0, 1] per step
    allowed: BoolArray  # [H, S, A]: whether an action may be used
    stationary: bool = False  # whether the world is declared not to depend on the step
    anytime: bool = False  # whether the length is not known in advance: the run may be stopped and continued at will
    criterion: str = "horizon"  # what is judged: totals over the "horizon", the "average", or "discounted" totals
    restart: float = 0.0  # "discounted": probability 1 - discount that a step is followed by a new start
    noiseless: bool = False  # whether (step, state, action) is declared to decide about reward and utilities

    def __post_init__(self) -> None:
        check_length("K", self.K)
        allowed = np.asarray(self.allowed)
        if allowed.shape != (self.H, self.S, self.A) or allowed.dtype != bool:
            expected = f"{(self.H, self.S, self.A)} and bool"
            raise CmdpkitError(f"allowed has shape {allowed.shape} and dtype {allowed.dtype}, expected {expected}")
        empty = np.argwhere(~allowed.any(axis=-1))
        if len(empty):
            h, s = (int(i) for i in empty[0])
            raise CmdpkitError(f"allowed[h={h}, s={s}] is empty: every state needs at least one action")
        object.__setattr__(self, "rho", np.array(self.rho, dtype=float))
        object.__setattr__(self, "allowed", np.array(allowed, order="C") if allowed.flags.writeable else allowed)

    @property
    def N(self) -> int:
        """Number of constraints."""
        return len(self.rho)

    @classmethod
    def of(cls, cmdp: CMDP, K: int, allowed: BoolArray | None = None) -> Spec:
        """What a learner is told of a model; with `allowed` [H, S, A] it is confined to those actions."""
        criterion, scales = cmdp.criterion, cmdp.utility_scales
        usable = cmdp.actions if allowed is None else allowed & cmdp.actions
        if criterion.has_horizon:
            rho = [scale.total_to_unit(x, cmdp.H) for scale, x in zip(scales, cmdp.rho, strict=True)]
            return cls(cmdp.H, cmdp.S, cmdp.A, K, np.array(rho), usable, is_stationary(cmdp))
        if criterion.steps_in_value is None:
            raise CmdpkitError(
                "learning is for models with a horizon, a discount or the criterion 'average', but the criterion of "
                "this one is 'total'; give it a discount, or solve it with cmdpkit.solve"
            )
        rho = [scale.to_unit(x) for scale, x in zip(scales, cmdp.rho / criterion.steps_in_value, strict=True)]
        restart = 0.0 if criterion.discount is None else 1.0 - criterion.discount
        return cls(1, cmdp.S, cmdp.A, K, np.array(rho), usable, True, criterion=criterion.kind, restart=restart)


def is_stationary(cmdp: CMDP) -> bool:
    """Whether nothing in a model but the allowed actions depends on the step."""
    signals = [len(cmdp.compact.r), *(len(x) for x in cmdp.compact.g)]
    return cmdp.kernel.T == 1 and max(signals) == 1


class Source(NamedTuple):
    """A model to learn in: the simulator that a learner acts on, and the meter that is told about its policies."""

    simulator: Simulator  # what the learner acts on
    meter: Meter  # what adds up regret and violation of the policies that it is told about

    @classmethod
    def of(cls, cmdp: CMDP, optimum: float | None = None, noise: Noise = "none") -> Source:
        """The world of a model; regret is measured against `optimum` (user's units), if given."""
        return cls(Simulator.of(cmdp, noise), Meter.of(cmdp, optimum))

    def check(self, spec: Spec) -> None:
        """Refuse a learner that was made for another size: compiled code would not notice."""
        sim = self.simulator
        sizes = (int(sim.H), int(sim.S), int(sim.A), sim.outcomes.shape[1] - 1)
        made_for = (spec.H, spec.S, spec.A, spec.N)
        if sizes != made_for:
            raise CmdpkitError(
                f"the source has (H, S, A, N) = {sizes}, but the learner's spec is for {made_for}; make both from the "
                "same model"
            )


class Returns(NamedTuple):
    """What each of n episodes has realised, in unit scale."""

    reward: FloatArray  # [n]: total reward of each episode
    utilities: FloatArray  # [N, n]: total utilities of each episode


def check_walk(walk: Walk, spec: Spec) -> None:
    """Refuse a learner that was made for another world: compiled code would not notice."""
    sim = walk.simulator
    sizes = (int(sim.S), int(sim.A), sim.outcomes.shape[1] - 1)
    if sizes != (spec.S, spec.A, spec.N) or spec.restart != walk.restart or spec.criterion == "horizon":
        raise CmdpkitError(
            f"the world has (S, A, N) = {sizes} and starts again with probability {walk.restart:g} after each step, "
            f"the learner's spec is for {(spec.S, spec.A, spec.N)} and {spec.restart:g} with criterion "
            f"{spec.criterion}; "
            "make both from the same model"
        )


# -- Parameters: how a preset and single changes become one set.


@dataclass(frozen=True)
class Params:
    """Parameters of a learner; without fields, it has none. `__post_init__` of a subclass may check more."""

    def __post_init__(self) -> None:
        for x in fields(self):
            if "rule" in x.metadata:
                self._expect(x.name, x.metadata["holds"](getattr(self, x.name)), x.metadata["rule"])

    def _expect(self, name: str, holds: bool, rule: str) -> None:
        """Raise an error about the parameter `name` unless its rule holds."""
        if not holds:
            raise CmdpkitError(f"{name} is {getattr(self, name)!r}, expected {rule}")


def ruled(rule: str, holds: Callable[[Any], bool]) -> Callable[..., Any]:
    """What makes a field from its default, if it has one; a value for which the rule does not hold is refused."""
    return lambda default=MISSING: field(default=default, metadata={"rule": rule, "holds": holds})


probability = ruled(f"a probability of at least {MIN_DELTA:g} and below 1", lambda x: MIN_DELTA <= x < 1)
positive = ruled("a finite number above 0", lambda x: 0 < x < math.inf)
not_negative = ruled("a finite number, at least 0", lambda x: 0 <= x < math.inf)
at_least_one = ruled("at least 1", lambda x: x >= 1)
at_least_zero = ruled("at least 0", lambda x: x >= 0)  # may be infinite, as the next
above_zero = ruled("more than 0", lambda x: x > 0)
above_one = ruled("a finite number above 1", lambda x: 1 < x < math.inf)
finite = ruled("a finite number", math.isfinite)
share = ruled("from 0 to 1", lambda x: 0 <= x <= 1)
below_one = ruled("at least 0 and below 1", lambda x: 0 <= x < 1)

Preset = Params | Callable[[Spec], Params]


def chosen(presets: Mapping[str, Preset], spec: Spec, preset: str, changes: Mapping[str, Any]) -> Params:
    """The parameters of a preset for this spec, with some of them changed by name."""
    names = list(presets)
    found = presets[names[index_of("preset", names, preset)]]
    made = found if isinstance(found, Params) else found(spec)
    known = [field.name for field in fields(made)]
    for name in changes:
        if not known:
            raise CmdpkitError(f"unknown parameter {name!r}; this algorithm has none")
        index_of("parameter", known, name)
    return replace(made, **{name: _like(name, getattr(made, name), value) for name, value in changes.items()})


def _like(name: str, present: Any, value: Any) -> Any:
    """The value, converted to the type of the present value of the parameter; whole numbers may be written as 2e5."""
    if isinstance(present, bool | str) or isinstance(value, bool | str):
        if type(value) is not type(present):
            raise CmdpkitError(f"{name} is {value!r}, expected a value like {present!r}")
        return value
    if value is None and present is None:
        return None
    if not (is_int(value) or isinstance(value, float)):
        raise CmdpkitError(f"{name} is {value!r}, expected a number")
    if not is_int(present):
        return float(value)
    if not float(value).is_integer():
        raise CmdpkitError(f"{name} is {value!r}, expected a whole number")
    return int(value)
