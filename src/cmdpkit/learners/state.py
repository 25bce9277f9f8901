"""What a learner has learned, as arrays by name: copied for a checkpoint, and put back.

`Saved` is the base class of everything that can be saved. It looks at the attributes of an object and finds its
arrays, numbers, texts and truth values, also inside of dataclasses, tuples and named tuples. It refuses any other kind
of attribute by name, so that nothing is lost in silence. A restored array must have the shape of the array whose place
it takes. There are exceptions: an array that is empty, a list of counts, or one that the class calls growing, may be
replaced by one of another length, and an attribute that is None may be replaced by anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.counts import Counts

State = Mapping[str, NDArray[Any]]  # arrays by name, as a checkpoint keeps them

PLAIN = (bool, int, float, str, np.generic)
NOTHING = np.zeros(0, dtype=bool)  # stands for None
COUNT_LISTS = ("link", "state", "times")  # the lists of counts, which grow; of these only what is in use is saved


class Saved:
    """An object whose attributes can be saved as arrays and put back."""

    fixed: ClassVar[tuple[str, ...]] = ()  # names of attributes that never change during a run
    changing: ClassVar[tuple[str, ...] | None] = None  # names of those that do; None: all that are not `fixed`
    growing: ClassVar[tuple[str, ...]] = ()  # names, in a state, of arrays that may be replaced by ones of other length

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes, by name; to be called between two episodes."""
        return {leaf.name: leaf.array.copy() for leaf in _leaves_of(self)}

    def restore(self, state: State) -> None:
        """Continue from a state, in an object made with the same arguments; one that does not fit changes nothing."""
        for leaf in _leaves_of(self):
            _check(leaf, state)
        _put_back(self, "", state)


class _Leaf(NamedTuple):
    """One array of a state."""

    name: str  # the names of the attributes that lead to it, joined by "/"
    array: NDArray[Any]  # the array itself, or an array made of the plain value
    grows: bool  # whether a saved array of another length may take its place


def _leaves_of(owner: Saved) -> Iterator[_Leaf]:
    for name in _names(owner):
        yield from _leaves(name, getattr(owner, name), owner)


def _names(value: Any) -> list[str]:
    """Names of the parts of an object, as far as they change."""
    if isinstance(value, Saved):
        return list(value.changing) if value.changing is not None else [x for x in vars(value) if x not in value.fixed]
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return list(value._fields)


def _has_names(value: Any) -> bool:
    return isinstance(value, Saved) or is_dataclass(value) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _leaves(name: str, value: Any, owner: Saved) -> Iterator[_Leaf]:
    """The arrays of a value, whose names begin with `name`."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
        yield _Leaf(name, value, value.ndim > 0 and (len(value) == 0 or name in owner.growing))
    elif value is None:
        yield _Leaf(name, NOTHING, True)
    elif isinstance(value, PLAIN) and np.array(value).dtype.kind in "biufSU":
        yield _Leaf(name, np.array(value), False)
    elif isinstance(value, list) and len({type(x) for x in value}) <= 1 and isinstance([*value, 0][0], PLAIN):
        yield _Leaf(name, np.array(value), True)
    elif _has_names(value):
        for part in _names(value):
            if isinstance(value, Counts) and part in COUNT_LISTS:
                yield _Leaf(f"{name}/{part}", getattr(value, part)[: value.used[0]], True)
            else:
                yield from _leaves(f"{name}/{part}", getattr(value, part), owner)
    elif isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _leaves(f"{name}/{i}", part, owner)
    else:
        raise CmdpkitError(
            f"{type(owner).__name__}.{name} is a {type(value).__name__}, which cannot be saved by itself: arrays, "
            "numbers, texts, truth values, lists of one of these, and tuples and dataclasses of all these can. Keep it "
            "in such a form, or write the methods state and restore"
        )


def _check(leaf: _Leaf, state: State) -> None:
    """Raise unless the state has an array that can take the place of this one."""
    expected, found = leaf.array, state.get(leaf.name)
    kept_kind = found is not None and expected.ndim > 0 and not leaf.grows
    if found is not None and kept_kind and not _is_none(found) and found.dtype.kind != expected.dtype.kind:
        raise CmdpkitError(f"state[{leaf.name!r}] holds {found.dtype}, expected {expected.dtype}")
    if found is not None and (found.shape == expected.shape or expected is NOTHING or _is_none(found)):
        return
    if found is not None and leaf.grows and found.ndim == expected.ndim and found.shape[1:] == expected.shape[1:]:
        return
    shape = "missing" if found is None else found.shape
    raise CmdpkitError(f"state[{leaf.name!r}] has shape {shape}, expected {expected.shape}")


def _is_none(found: NDArray[Any]) -> bool:
    return found.shape == NOTHING.shape and found.dtype == NOTHING.dtype


def _put_back(owner: Any, prefix: str, state: State) -> None:
    """Give the parts of an object the values of a state that was checked."""
    for name in _names(owner):
        object.__setattr__(owner, name, _restored(f"{prefix}{name}", getattr(owner, name), state))


def _restored(name: str, value: Any, state: State) -> Any:
    """What takes the place of a value; arrays are filled where they are, so that all who share them see it."""
    found = state.get(name, NOTHING)
    if isinstance(value, np.ndarray) and value.shape == found.shape:
        value[...] = found
        return value
    if value is None or isinstance(value, (np.ndarray, *PLAIN)):
        return None if _is_none(found) else found.copy() if found.ndim else found.item()
    if isinstance(value, list):
        return found.tolist()
    if isinstance(value, tuple):
        parts = value._fields if hasattr(value, "_fields") else range(len(value))
        new = (_restored(f"{name}/{part}", x, state) for part, x in zip(parts, value, strict=True))
        return type(value)(*new) if hasattr(value, "_fields") else tuple(new)
    _put_back(value, f"{name}/", state)
    return value
