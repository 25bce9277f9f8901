"""Reading the arguments of a model: arrays, masks, names and horizon, each with the message that says what is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import BoolArray, FloatArray

Name = str | int
MAX_HORIZON = 1_000_000_000


def numbers(what: str, x: Any) -> FloatArray:
    """A fresh float array, or an error that names `what`."""
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "biufO":  # texts, dates and complex numbers would be converted silently
            raise CmdpkitError(f"got an array of {array.dtype}")
        return np.array(array, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise CmdpkitError(f"{what} must be an array of numbers: {error}") from None


def frozen(x: Any) -> Any:
    """The array itself, read-only from now on."""
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
        mask = np.array(x)
    except ValueError as error:
        raise CmdpkitError(f"actions must be an array of truth values: {error}") from None
    if mask.dtype != bool:
        raise CmdpkitError(f"actions has dtype {mask.dtype}, expected bool (True where the action exists)")
    if mask.ndim not in (2, 3) or mask.shape[-2:] != (S, A) or 0 in mask.shape:
        raise CmdpkitError(f"actions has shape {mask.shape}, expected {(S, A)} or (H, {S}, {A})")
    return mask[None] if mask.ndim == 2 else mask


def horizon_of(horizon: int | None, **steps: int) -> int:
    """H from what was given; every array must have 1 or H steps."""
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
    """Raise ValueError unless it is a number of steps."""
    if not is_int(horizon) or not 1 <= horizon <= MAX_HORIZON:
        rule = f"at least 1 (and at most {MAX_HORIZON:,})"
        raise CmdpkitError(f"horizon is {horizon!r}, expected a whole number of steps, {rule}")


def names_of(what: str, names: Iterable[Any] | None, n: int) -> Sequence[Name]:
    """Names as strings or ints; by default they count from 1."""
    if names is None:
        return range(1, n + 1)
    if isinstance(names, range) and names == range(1, n + 1):
        return names
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise CmdpkitError(f"{what} is {names!r}, expected a list of names")
    listed = tuple(x if isinstance(x, str) else int(x) if is_int(x) else str(x) for x in names)
    if len(listed) != n:
        raise CmdpkitError(f"{what} has {len(listed)} names, expected {n}")
    seen: set[str] = set()
    for i, name in enumerate(listed):
        if str(name) in seen:
            raise CmdpkitError(f"{what}[{i}] is {name!r} again: names must differ")
        if not str(name).strip():
            raise CmdpkitError(f"{what}[{i}] is empty")
        seen.add(str(name))
    return listed


def is_int(x: Any) -> bool:
    """Whether x is a whole number and not a truth value."""
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def index_of(what: str, names: Sequence[Name], name: Any) -> int:
    """Position of a name, or an error that suggests the nearest one."""
    if name in names:
        return names.index(name)
    listed = [str(x) for x in names]
    if str(name) in listed:
        return listed.index(str(name))
    near = difflib.get_close_matches(str(name), listed, 1)
    hint = (
        f"; did you mean {near[0]!r}?"
        if near
        else f"; there are {', '.join(listed[:8])}{' ...' if len(listed) > 8 else ''}"
    )
    raise CmdpkitError(f"unknown {what} {name!r}{hint}")
