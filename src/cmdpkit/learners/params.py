"""Parameters of learners: numbers that do not change during a run, and how a preset and single changes become one set.

A learner declares a frozen dataclass that inherits from `Params`, and `presets`: for each name either such an object or
a function that makes one from a `Spec`. The first preset is the default. All learners are served by `chosen`, so an
unknown name is answered in the same words everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners.spec import Spec
from cmdpkit.model.validate import index_of, is_int

NEVER = 2**62  # a number of visits or steps that no run reaches


@dataclass(frozen=True)
class Params:
    """Parameters of a learner; without fields, it has none. `__post_init__` of a subclass checks its fields."""

    def _expect(self, name: str, holds: bool, rule: str) -> None:
        """Raise an error about the parameter `name` unless its rule holds."""
        if not holds:
            raise CmdpkitError(f"{name} is {getattr(self, name)!r}, expected {rule}")


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
