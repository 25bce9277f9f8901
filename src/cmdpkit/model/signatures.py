"""The functions from which a user builds a model: which arguments they take, and what the step function returns.

The names and the number of a function's parameters decide what it is given, never a trial call. Every function is first
given the state and the action. A further parameter called ``h`` (or ``step``) is given the step, and one called
``s_next`` (or ``next_state``) the next state. Every answer of the step function is checked.
Whatever could be read in two ways is refused, because a wrong guess would silently give a wrong model.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.validate import is_hashable, nearest, tolerance_of

Role = Literal["step", "next"]
STEP_NAMES = frozenset({"h", "step"})
NEXT_STATE_NAMES = frozenset({"s_next", "next_state"})
ACTION_NAMES = frozenset({"a", "action", "act"})
STATE_NAMES = frozenset({"s", "state"})
OF_STATE = "a function of the state, or of the state and h, which is the step from 0"
SIGNATURES = "(state, action), (state, action, h) for the step from 0, or (state, action, s_next) for the next state"


@dataclass(frozen=True)
class Function:
    """A user's function in one form: ``call(s, a, h)``, or ``call(s, a, h, s_next)`` if the next state matters."""

    what: str  # what messages call it
    call: Callable[..., Any]  # takes (s, a, h), or (s, a, h, s_next)
    on_step: bool  # whether it depends on the step
    on_next: bool  # whether it depends on the next state


def read_function(what: str, f: Any, *, may_take_next: bool = True) -> Function:
    """The function ``f``, which messages call ``what``, with the arguments that it wants.

    >>> reward = read_function("reward", lambda s, a, s_next: 10 * s + s_next)
    >>> reward.on_step, reward.on_next, reward.call(1, "go", 0, 2)
    (False, True, 12)
    """
    if not callable(f):
        raise CmdpkitError(f"{what} is {quoted(f)}, expected a function of (state, action)")
    parameters = [p for p in _parameters(what, f) if p.kind is not p.VAR_KEYWORD]
    takes = f"{what} takes ({', '.join(map(str, parameters))})"
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise CmdpkitError(f"{takes}, which hides its parameters; spell them out: {SIGNATURES}")
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if len(positional) < 2:
        raise CmdpkitError(f"{takes}, expected {SIGNATURES}")
    if positional[0].name.lower() in ACTION_NAMES and positional[1].name.lower() in STATE_NAMES:
        raise CmdpkitError(f"{takes}, but the state comes first: expected {SIGNATURES}")
    roles = _roles(takes, [p for p in parameters if p not in positional[:2]])
    if "next" in roles and not may_take_next:
        raise CmdpkitError(
            f"{takes}, but the next state is what it has to return: "
            f"expected (state, action) or (state, action, h), returning {{next state: probability}}"
        )
    calls: dict[tuple[Role, ...], Callable[..., Any]] = {
        (): lambda s, a, h: f(s, a),
        ("step",): f,
        ("next",): lambda s, a, h, s_next: f(s, a, s_next),
        ("step", "next"): f,
        ("next", "step"): lambda s, a, h, s_next: f(s, a, s_next, h),
    }
    return Function(what, calls[roles], "step" in roles, "next" in roles)


def read_state_function(what: str, f: Callable[..., Any]) -> tuple[Callable[[Any, int], Any], str | None]:
    """A function of the state, or of the state and the step, as a function of both, and the name of its step if any."""
    parameters = _parameters(what, f)
    given = [p for p in parameters if (p.default is p.empty and p.kind is not p.VAR_KEYWORD) or p.name in STEP_NAMES]
    are_steps = [p.name in STEP_NAMES for p in given]
    hidden = any(p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL) or p.default is not p.empty for p in given)
    if hidden or are_steps not in ([False], [False, True]):
        raise CmdpkitError(f"{what} takes ({', '.join(map(str, parameters))}), expected {OF_STATE}")
    return (lambda s, h: f(s), None) if len(given) == 1 else (f, given[1].name)


def _parameters(what: str, f: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function, without those that `functools.partial` has filled in."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # as for some functions written in C
        raise CmdpkitError(f"{what} hides its parameters; give a function that calls it, written in Python") from None
    filled = f.keywords if isinstance(f, functools.partial) else {}
    return [p for p in parameters if p.name not in filled]


def _roles(takes: str, parameters: list[inspect.Parameter]) -> tuple[Role, ...]:
    """What the parameters after state and action are given; others keep their defaults, and need one."""
    roles: list[Role] = []
    for p in parameters:
        role: Role | None = "step" if p.name in STEP_NAMES else "next" if p.name in NEXT_STATE_NAMES else None
        if role is None:
            if p.default is p.empty:
                raise CmdpkitError(f"{takes}: {p.name} could be anything; expected {SIGNATURES}")
            continue
        if p.default is not p.empty:
            meaning = "the step" if role == "step" else "the next state"
            raise CmdpkitError(
                f"{takes}: {p.name} has a default, so it may be meant as a constant; without the default it is given "
                f"{meaning}, and under another name it keeps its value"
            )
        if role in roles or p.kind is p.KEYWORD_ONLY:
            raise CmdpkitError(f"{takes}: {p.name} is there twice, or by keyword alone; expected {SIGNATURES}")
        roles.append(role)
    return tuple(roles)


# -- answers of the step function -------------------------------------------------------------------------------------

Row = dict[Any, float]  # next state -> probability, which is positive
Pairs = list[tuple[Any, Any]]  # (probability, next state)


class Successors:
    """The user's step function, called for one state and action at a time."""

    form = "[(probability, next state), ...] or {next state: probability}"  # of an answer

    def __init__(self, step: Function, *, renormalise: bool) -> None:
        self.step, self.renormalise = step, renormalise
        self.correction = 0.0  # the largest difference from 1 of a sum of rounded probabilities

    def __call__(self, s: Hashable, a: Hashable, h: int) -> Row:
        """The possible next states with their probabilities, which sum to 1."""
        answer = self.step.call(s, a, h)
        is_mapping = isinstance(answer, Mapping)
        try:
            pairs = self._pairs(answer)
        except (TypeError, ValueError) as error:
            place = self._place(s, a, h)
            if isinstance(error, CmdpkitError):
                raise CmdpkitError(f"{place}: {error}") from None
            raise CmdpkitError(f"{place} returned {quoted(answer)}, expected {self.form}") from None
        row: Row = {}
        tolerance = ROW_SUM_TOLERANCE
        for p, x in pairs:
            if not is_mapping and isinstance(x, (float, np.floating)) and 0 < x < 1:
                raise CmdpkitError(
                    f"{self._place(s, a, h)} returned {quoted(answer)}, where {x} could be a probability as well as a "
                    "next state; return a mapping {next state: probability}"
                )
            if type(p) is not float:
                is_number = isinstance(p, (int, float, np.integer, np.floating))
                tolerance = max(tolerance, tolerance_of(type(p)) if is_number else np.inf)
                p = float(p) if isinstance(p, np.floating) else p
            if tolerance == np.inf or not 0 <= p <= sys.float_info.max:
                what = f"{self._place(s, a, h)} gives {quoted(x)} probability {quoted(p)}"
                raise CmdpkitError(f"{what}, expected a number between 0 and 1 in {self.form}")
            try:
                row[x] = row.get(x, 0.0) + float(p)
            except TypeError:
                hashable(f"next state of {self._place(s, a, h)}", x)
                raise
        total = sum(row.values())
        miss = abs(total - 1)
        if miss > tolerance and not (self.renormalise and total > 0):
            advice = "correct them, or give renormalise=True to have them divided by their sum"
            if is_mapping and total < 1:
                advice = "a mapping keeps only the last of equal next states: add their probabilities up"
            raise CmdpkitError(
                f"probabilities of {self._place(s, a, h)} sum to {total:.12g}, expected 1 within {tolerance:g}; it "
                f"returned {quoted(answer)}; {advice}"
            )
        if self.renormalise:
            return {x: p / total for x, p in row.items()}
        if miss > ROW_SUM_TOLERANCE:
            self.correction = max(self.correction, miss)
            return {x: p / total for x, p in row.items() if p > 0}
        return {x: p for x, p in row.items() if p > 0}

    def _pairs(self, answer: Any) -> Pairs:
        """Every probability in an answer, and what it belongs to."""
        if isinstance(answer, Mapping):
            return [(p, x) for x, p in answer.items()]
        return [(p, x) for p, x in answer]

    def _place(self, s: Any, a: Any, h: int) -> str:
        return f"{self.step.what}({quoted(s)}, {quoted(a)}" + (f", {h})" if self.step.on_step else ")")


class OutcomeRows(Successors):
    """The user's outcome function likewise: its rows have keys (next state, (reward, signal, ...))."""

    form = "[(probability, next state, reward, {constraint: signal}), ...]"

    def __init__(self, outcome: Function, names: list[str], *, renormalise: bool) -> None:
        super().__init__(outcome, renormalise=renormalise)
        self.names = names  # of the constraints

    def _pairs(self, answer: Any) -> Pairs:
        if isinstance(answer, (str, Mapping)):
            raise TypeError
        return [(p, (x, self._signals(reward, *signals))) for p, x, reward, *signals in answer]

    def _signals(self, reward: Any, signals: Any = MappingProxyType({})) -> tuple[float, ...]:
        """Reward and signals as numbers."""
        if not isinstance(signals, Mapping):
            raise TypeError
        for name in (*signals, *self.names):
            if name not in self.names:
                raise CmdpkitError(f"an outcome has a signal {quoted(name)}{nearest(str(name), self.names)}")
            if name not in signals:
                raise CmdpkitError(f"an outcome has no value of the signal {quoted(name)}, expected one of every bound")
        return finite_number("reward", reward), *(finite_number(quoted(name), signals[name]) for name in self.names)


def finite_number(what: str, value: Any, *place: Any) -> float:
    """The number that a function returned, which must be finite; ``what`` and ``place`` are for messages."""
    if type(value) is float and math.isfinite(value):
        return value
    where = f"{what}({', '.join(map(quoted, place))})" if place else what
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise CmdpkitError(f"{where} is {quoted(value)}, expected a number") from None
    if not math.isfinite(number):
        raise CmdpkitError(
            f"{where} is {number}, expected a finite number; what is not allowed is left out of the actions of its "
            "state"
        )
    return number


def hashable(what: str, x: Any) -> Any:
    """Return x, or raise an error if it is not hashable and can therefore be neither a state nor an action."""
    if not is_hashable(x):
        raise CmdpkitError(f"{what} is {quoted(x)}: use something that cannot change, such as a tuple")
    return x
