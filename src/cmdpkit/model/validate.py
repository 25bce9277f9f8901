"""Checks of the arguments of a model: arrays, masks, names. `Positions` finds names, also among millions of them."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from cmdpkit.errors import CmdpkitError, InputWarning, quoted, shown
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

Name: TypeAlias = Hashable  # what a user calls a state or an action: text, a number, a tuple, a date, anything hashable
MAX_HORIZON = 1_000_000_000  # number of steps; a larger one is taken for a mistake
MAX_COMPARED = 200  # characters; a longer word takes long to compare, and is rarely a misspelt name
MAX_EPISODES = 10**15  # episodes or steps of a run; counts stay exact as floats, and no run ever ends beyond
MAX_SEED = 2**63 - 1  # the largest whole number that a column of the results can hold
MIN_DELTA = 1e-12  # with a smaller probability of error, 1 - delta would be rounded too much


def numbers(what: str, x: Any, *, copy: bool = True) -> FloatArray:
    """A float array in C order, or an error that names `what`; without ``copy`` it may be the one given."""
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "biufO":  # texts, dates and complex numbers would be converted silently
            raise CmdpkitError(f"got an array of {array.dtype}")
        return np.array(array, dtype=float, order="C") if copy else np.asarray(array, dtype=float, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise CmdpkitError(f"{what} must be an array of numbers: {error}") from None


def frozen(x: Any) -> Any:
    """Make the array read-only, and return it."""
    x.flags.writeable = False
    return x


def table(what: str, x: Any) -> FloatArray:
    """An array [S, A] or [H, S, A] as [1 or H, S, A]."""
    array = numbers(what, x)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise CmdpkitError(f"{what} has shape {array.shape}, expected (S, A) or (H, S, A) with nothing empty")
    return array[None] if array.ndim == 2 else array


def action_mask(x: Any, S: int, A: int) -> BoolArray:
    """Which actions exist, bool [S, A] or [H, S, A], as [1 or H, S, A]."""
    try:
        mask = np.array(x, order="C")
    except ValueError as error:
        raise CmdpkitError(f"actions must be an array of truth values: {error}") from None
    if mask.dtype != bool:
        raise CmdpkitError(f"actions has dtype {mask.dtype}, expected bool (True where the action exists)")
    if mask.ndim not in (2, 3) or mask.shape[-2:] != (S, A) or 0 in mask.shape:
        raise CmdpkitError(f"actions has shape {mask.shape}, expected {(S, A)} or (H, {S}, {A})")
    return mask[None] if mask.ndim == 2 else mask


def without_forbidden(r: FloatArray, allowed: BoolArray) -> tuple[BoolArray, tuple[str, ...]]:
    """The actions without those of reward -inf, by which many tables mean "not allowed", and what to say about it."""
    forbidden = np.isneginf(r) & allowed
    if not forbidden.any():
        return allowed, ()
    note = (
        f"{forbidden.sum():,} rewards are -inf: these actions count as not allowed. To avoid this warning, "
        "give actions=, an array that is true where an action exists"
    )
    warnings.warn(note, InputWarning, stacklevel=3)
    return allowed & ~forbidden, (note,)


def read_signal(
    what: str, x: FloatArray, allowed: BoolArray, steps: float, place: Callable[[int, int, int, int], str]
) -> FloatArray:
    """x with zeros where no action exists; entries that are not finite are refused. A total counts ``steps`` steps."""
    largest = np.finfo(float).max / (4 * steps)  # totals, and their differences, must be finite too
    bad = np.argwhere(~(np.abs(x) <= largest) & allowed)
    if len(bad):
        h, s, a = (int(i) for i in bad[0])
        value = x[h % len(x), s, a]
        rule = f"at most {largest:.3g}, so that totals are finite" if np.isfinite(value) else "a finite number"
        raise CmdpkitError(f"{what}{place(h, s, a, max(len(x), len(allowed)))} is {value}, expected {rule}")
    return masked(x, allowed)


def masked(x: FloatArray, allowed: BoolArray) -> FloatArray:
    """x [1 or H, S, A] with zeros where no step has the action, and no negative zeros."""
    usable = allowed if len(allowed) <= len(x) else np.any(allowed, axis=0, keepdims=True)
    zeroed: FloatArray = np.where(usable, x, 0.0) + 0.0
    return zeroed


def horizon_of(horizon: int | None, **steps: int) -> int:
    """The horizon H: the one given, or else the number of steps of the arrays, all of which must have 1 or H steps."""
    if horizon is not None:
        check_horizon(horizon)
    H = int(horizon) if horizon is not None else max(steps.values())
    if horizon is None and H == 1 and steps["P"] == 1:
        raise CmdpkitError("horizon is missing: nothing given depends on the step (or give a discount or a criterion)")
    for what, T in steps.items():
        if T not in (1, H):
            raise CmdpkitError(f"{what} has {T} steps, expected 1 (stationary) or horizon = {H}")
    return H


def check_horizon(horizon: Any) -> None:
    """Raise CmdpkitError unless the horizon is a possible number of steps."""
    if not is_int(horizon) or not 1 <= horizon <= MAX_HORIZON:
        rule = f"at least 1 (and at most {MAX_HORIZON:,})"
        raise CmdpkitError(f"horizon is {quoted(horizon)}, expected a whole number of steps, {rule}")


def names_of(what: str, names: Iterable[Any] | None, n: int) -> Sequence[Name]:
    """Names as the user's objects (texts if unhashable), by default 1..n; their texts, shown in files, must differ."""
    if names is None:
        return range(1, n + 1)
    if isinstance(names, range) and names == range(1, n + 1):
        return names
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise CmdpkitError(f"{what} is {quoted(names)}, expected a list of names")
    listed = tuple(_name(x) for x in names)
    if len(listed) != n:
        raise CmdpkitError(f"{what} has {len(listed)} names, expected {n}")
    if len(set(listed)) == n and all(isinstance(x, str) and x.strip() for x in listed):
        return listed  # the usual case, at once
    seen: set[str] = set()
    objects: set[Any] = set()
    for i, name in enumerate(listed):
        if str(name) in seen or name in objects:
            raise CmdpkitError(f"{what}[{i}] is {quoted(name)} again: names must differ")
        if not str(name).strip():
            raise CmdpkitError(f"{what}[{i}] is empty")
        seen.add(str(name))
        objects.add(name)
    return listed


def _name(x: Any) -> Name:
    if isinstance(x, str):
        return x
    if is_int(x):
        return int(x)
    if isinstance(x, np.generic) and not isinstance(x, np.datetime64):
        x = x.item()  # a float or a truth value
    return x if is_hashable(x) else str(x)


def is_hashable(x: Any) -> bool:
    """Whether x can be compared with other names; a list, for example, cannot."""
    try:
        hash(x)
    except TypeError:
        return False
    return True


def written_name(name: Name) -> str | int:
    """A name as files, records and --json write it: text, or a whole number."""
    return int(name) if is_int(name) else str(name)  # type: ignore[call-overload]


def check_seed(seed: Any) -> None:
    """Raise CmdpkitError unless this is a seed that can be used and recorded."""
    if not is_int(seed) or not 0 <= seed <= MAX_SEED:
        raise CmdpkitError(f"seed is {seed!r}, expected a whole number from 0 to 2**63 - 1")


def check_length(what: str, n: Any, most: int = MAX_EPISODES) -> int:
    """A number of episodes or steps as an int; raises CmdpkitError unless it is whole and lies in 1..most."""
    if not is_int(n) or n < 1:
        raise CmdpkitError(f"{what} is {quoted(n)}, expected a whole number, at least 1")
    if n > most:
        raise CmdpkitError(f"{what} is {quoted(n)}, expected at most {most:,}")
    return int(n)


def is_int(x: Any) -> bool:
    """Whether x is a whole number and not a truth value."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def index_of(what: str, names: Sequence[Name], name: Any) -> int:
    """Position of a name, or an error that suggests the nearest one."""
    return Positions(what, names)(name)


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one most like it, or the first few."""
    listed = [x for x in known if len(x) <= MAX_COMPARED]
    near = difflib.get_close_matches(word, listed, 1) if len(word) <= MAX_COMPARED else []
    if near:
        return f"; did you mean {quoted(near[0])}?"
    return f"; known are {', '.join(map(shown, listed[:8]))}{' ...' if len(listed) > 8 else ''}"


class Renamed:
    """An attribute of earlier versions, refused with the name that replaced it."""

    def __init__(self, now: str) -> None:
        self.now = now

    def __set_name__(self, owner: type, name: str) -> None:
        self.told = f"{owner.__name__}.{name} is now called {self.now}"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        raise AttributeError(self.told)


# -- positions of names -----------------------------------------------------------------------------------------------


class Positions:
    """The positions of names, counted from 0; a name is found by itself or by its text, as files write it.

    >>> position = Positions("state", ("low", (1, 2)))
    >>> position((1, 2)), position("(1, 2)"), position.many(["low", "low"]).tolist()
    (1, 1, [0, 0])
    """

    def __init__(self, what: str, names: Sequence[Name]) -> None:
        self.what, self.names = what, names

    @cached_property
    def _by_name(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {str(name): i for i, name in enumerate(self.names)}

    def __call__(self, name: Any) -> int:
        """The position of a name, or an error that suggests the nearest one."""
        if isinstance(self.names, range) and is_int(name) and name in self.names:
            return self.names.index(int(name))
        try:
            if (found := self._by_name.get(name)) is not None:
                return found
        except TypeError:  # not hashable, such as a list
            pass
        if (found := self._by_text.get(str(name))) is not None:
            return found
        raise CmdpkitError(f"unknown {self.what} {quoted(name)}{nearest(str(name), self._by_text)}")

    def many(self, names: Any) -> IntArray:
        """The positions of many names."""
        if isinstance(names, str) or not hasattr(names, "__len__"):
            raise CmdpkitError(f"{self.what}s is {quoted(names)}, expected a list or array of names")
        if isinstance(self.names, range):
            given = np.asarray(names)
            if given.dtype.kind in "iu" and given.ndim == 1:
                outside = given[(given < self.names.start) | (given >= self.names.stop)]
                if len(outside):
                    self(int(outside[0]))
                return given.astype(np.int64) - self.names.start
        listed = names.tolist() if isinstance(names, np.ndarray) else names
        try:
            return np.fromiter(map(self._by_name.__getitem__, listed), dtype=np.int64, count=len(listed))
        except (KeyError, TypeError):
            return np.array([self(name) for name in listed], dtype=np.int64)
