"""Functions that users write for models by functions, called as plain Python: what they return, and what is wrong.

Compiled functions tell little about a mistake. So where one is found, they are called again from here, and the error
names function, line, place, and what is expected.
"""

from __future__ import annotations

import traceback
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray

if TYPE_CHECKING:
    from cmdpkit.model.functions import FunctionModel  # which itself needs the checks from here

LARGEST = 1e150  # of a signal: its values then add up to a number, whatever the horizon
State = tuple[int, ...]
Outcomes = list[tuple[int, FloatArray, list[tuple[State, float]]]]  # of a state, see `outcomes`


@lru_cache(maxsize=8)
def kinds_of(d: int, K: int) -> dict[str, tuple[tuple[Any, ...], Any, str]]:
    """Of the function with each name: arguments and a result as examples, and what the result is called."""
    x, i, signals = (0,) * d, 0, (0.0,) * K
    state, numbers = f"a tuple of {d} whole numbers", f"a tuple of {K} numbers"
    return {
        "move": ((x, i), x, f"a state, {state}"),
        "step": ((x, i, i), (x, 0.0), f"(x_next, p), {state} and a float"),
        "collect": ((x, i), signals, f"{numbers}, the reward and one signal per constraint"),
        "after": ((x,), signals, f"{numbers}, the reward and one signal per constraint"),
        "allowed": ((x, i), 0.0, "True or False"),
    }


def _is_like(told: Any, example: Any) -> bool:
    """Whether a result is of a kind: tuples of the same length, whole numbers, or any numbers."""
    if isinstance(example, tuple):
        return isinstance(told, tuple) and len(told) == len(example) and all(map(_is_like, told, example))
    whole = isinstance(told, (int, np.integer, np.bool_))
    return whole or (isinstance(example, float) and isinstance(told, (float, np.floating)))


def outcomes(model: FunctionModel, x: State) -> Outcomes:
    """What every action does in a state, by the user's functions as plain Python: its index, signals and moves.

    The moves of a factored model are those before the noise. An error names what is wrong, and where.
    """
    functions, found = model.functions, Outcomes()
    for a in range(model.A):
        if functions["allowed"] is not None and not _plain(model, "allowed", x, a):
            continue
        place = _place(model, x, a)
        if "move" in functions:
            moves = [(_plain(model, "move", x, a), 1.0)]
        else:
            moves = [_plain(model, "step", x, a, e) for e in range(model.events)]
        for e, (then, p) in enumerate(moves):
            inside = all(0 <= i < n for i, n in zip(then, model.space, strict=True))
            if not (p >= 0 and inside):
                there = _place(model, x, a, None if "move" in functions else e)
                raise CmdpkitError(
                    f"{there} leads to {then} with probability {p:g}, expected a state of the space {model.space} and "
                    "a probability of at least 0"
                )
        total = sum(p for _, p in moves)
        if not abs(total - 1) <= ROW_SUM_TOLERANCE:
            raise CmdpkitError(f"{place} has probabilities that do not sum to 1: they sum to {total:.12g}")
        own: FloatArray = np.array(_plain(model, "collect", x, a), dtype=np.float64)
        if functions.get("after") is not None:
            own = own + _plain(model, "after", moves[0][0])
        if not (np.abs(own) <= LARGEST).all():
            raise CmdpkitError(
                f"{place} collects a signal that is not a finite number of at most {LARGEST:g}: {own.tolist()}"
            )
        found.append((a, own, moves))
    if not found:
        raise CmdpkitError(f"state {model.named(x)} has no action; `allowed` must leave one in every state")
    return found


def _place(model: FunctionModel, x: State, a: int | None = None, e: int | None = None) -> str:
    """How a state, an action and an event are told."""
    action = "" if a is None else f", action {quoted(model.action_names[a])} (index {a})"
    return f"state {model.named(x)}{action}" + ("" if e is None else f", event {e}")


def _plain(model: FunctionModel, name: str, *given: Any) -> Any:
    """What a function of the user returns as plain Python; refused unless it returns something, and of its kind."""
    function: Any = model.functions[name]
    function = getattr(function, "py_func", function)
    _, kind, expected = kinds_of(len(model.space), model.K)[name]
    file, line = function.__code__.co_filename, function.__code__.co_firstlineno
    try:
        told = function(*given)
    except Exception as error:
        lines = [x.lineno for x in traceback.extract_tb(error.__traceback__) if x.filename == file]
        raise CmdpkitError(
            f"{name} fails in {_place(model, *given)}: {type(error).__name__}: {error} (line {[line, *lines][-1]} of "
            f"{file}). It must return {expected}, for every state and action that `allowed` leaves"
        ) from None
    if not _is_like(told, kind):
        raise CmdpkitError(
            f"{name} returns {quoted(told)} in {_place(model, *given)}, expected {expected} (line {line} of {file})"
        )
    return told


def wrong_in(model: FunctionModel, s: int) -> CmdpkitError:
    """The error for a state in which compiled functions return something that is not as it must be."""
    try:
        outcomes(model, model.state(s))
    except CmdpkitError as error:
        return error
    return CmdpkitError(
        f"state {model.named(model.state(s))}: the functions return something wrong when they are compiled, and not "
        "as plain Python; do they depend on something that changes, or use whole numbers beyond 2**63?"
    )
