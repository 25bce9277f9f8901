"""Parameters of Dual-Q: what they mean, and the rule that sets them from a `Spec` alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Spec
from cmdpkit.model.validate import index_of

PRESETS = ("practical",)


@dataclass(frozen=True)
class Params:
    """Numbers that do not change during a run, in unit scale."""

    frame: int  # episodes between two steps of the prices
    eta: float  # step of a price per episode and unit of shortfall
    lam_start: float
    lam_max: float
    explore: float  # probability of a random action at first
    explore_for: float  # episodes after which it fades like 1/sqrt(k)

    def __post_init__(self) -> None:
        for name in ("frame", "eta", "lam_max", "explore_for"):
            if not getattr(self, name) > 0:
                raise CmdpkitError(f"{name} is {getattr(self, name)!r}, expected more than 0")
        if self.frame != int(self.frame):
            raise CmdpkitError(f"frame is {self.frame!r}, expected a whole number of episodes")
        if not 0 <= self.lam_start <= self.lam_max:
            raise CmdpkitError(f"lam_start is {self.lam_start!r}, expected a number from 0 to lam_max = {self.lam_max}")
        if not 0 <= self.explore <= 1:
            raise CmdpkitError(f"explore is {self.explore!r}, expected a probability")


def params(spec: Spec, preset: str, changes: dict[str, Any]) -> Params:
    """The preset for this spec, with some parameters changed by name."""
    index_of("preset", PRESETS, preset)
    known = [field.name for field in fields(Params)]
    for name in changes:
        index_of("parameter", known, name)
    return replace(practical(spec), **changes)


def practical(spec: Spec) -> Params:
    """One rule for all instances."""
    return Params(
        frame=math.ceil(spec.K ** (1 / 3)),
        eta=2 / (spec.H * math.sqrt(spec.K)),
        lam_start=1.0,
        lam_max=10.0,
        explore=0.1,
        explore_for=10.0 * int(spec.allowed.sum()),
    )
