"""Parameters of learners: numbers that do not change during a run, and how a preset and single changes become one set.

A learner declares a frozen dataclass that inherits from `Params`, and `presets`: for each name either such an object or
a function that makes one from a `Spec`. The first preset is the default. All learners are served by `chosen`, so an
unknown name is answered in the same words everywhere. A field that is made by `positive` or its neighbours, from its
default, must obey that rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners.spec import Spec
from cmdpkit.model.validate import MIN_DELTA, index_of, is_int

NEVER = 2**62  # a number of visits or steps that no run reaches


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
