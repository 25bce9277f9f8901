"""Which arguments a user's function wants: decided by the names and the number of its parameters, never by trying.

Every function is first given the state and the action. A further parameter called ``h`` (or ``step``, ``t``, ``time``)
is given the step, and one called ``s_next`` (or ``next_state``, ``s2``, ...) the next state. Whatever could be read in
two ways is refused, because a wrong guess would silently give a wrong model.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cmdpkit.errors import CmdpkitError, quoted

Role = Literal["step", "next"]
STEP_NAMES = frozenset({"h", "step", "t", "time"})
# fmt: off
NEXT_STATE_NAMES = frozenset({
    "s_next", "snext", "next_s", "next_state", "nextstate", "state_next", "next", "sn", "ns", "s1", "s2", "sp", "s_",
    "s_prime", "sprime", "s_new", "new_s", "new_state", "newstate", "successor", "s_to", "to_state",
})
# fmt: on
ACTION_NAMES = frozenset({"a", "action", "act"})
STATE_NAMES = frozenset({"s", "state"})
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
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature: they are given state and action
        return Function(what, lambda s, a, h: f(s, a), False, False)
    fixed = f.keywords if isinstance(f, functools.partial) else {}
    parameters = [p for p in parameters if p.name not in fixed and p.kind is not p.VAR_KEYWORD]
    takes = f"{what} takes ({', '.join(map(str, parameters))})"
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise CmdpkitError(f"{takes}, which does not say what it wants; spell its parameters out: {SIGNATURES}")
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if len(positional) < 2:
        raise CmdpkitError(f"{takes}, expected {SIGNATURES}")
    if positional[0].name.lower() in ACTION_NAMES and positional[1].name.lower() in STATE_NAMES:
        raise CmdpkitError(f"{takes}, but the state comes first: expected {SIGNATURES}")
    roles = _roles(takes, [*positional[2:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)])
    if "next" in roles.values() and not may_take_next:
        raise CmdpkitError(
            f"{takes}, but the next state is what it has to return: "
            f"expected (state, action) or (state, action, h), returning {{next state: probability}}"
        )
    in_order = tuple(roles[p.name] for p in positional[2:] if p.name in roles)
    by_name = {name: role for name, role in roles.items() if name not in {p.name for p in positional}}
    called = _called(f, in_order, by_name)
    return Function(what, called, "step" in roles.values(), "next" in roles.values())


class Step(NamedTuple):
    """The parameter of a function of the state that is given the step."""

    name: str  # of the parameter
    first: bool  # whether it comes before the state


def step_parameter(what: str, f: Callable[..., Any], expected: str) -> Step | None:
    """Which parameter of a function of the state is given the step; None for a function of the state alone."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature: they are given the state
        return None
    steps = [p for p in parameters if p.name.lower() in STEP_NAMES]
    others = [p for p in parameters if p not in steps and p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    takes = f"{what} takes ({', '.join(map(str, parameters))})"
    if len(others) != 1 or len(steps) > 1 or others[0].kind in (others[0].KEYWORD_ONLY, others[0].VAR_POSITIONAL):
        raise CmdpkitError(f"{takes}, expected {expected}")
    if not steps:
        return None
    first = parameters.index(steps[0]) < parameters.index(others[0])
    if steps[0].default is not steps[0].empty or (steps[0].kind is steps[0].POSITIONAL_ONLY and not first):
        raise CmdpkitError(f"{takes}, where {steps[0].name} is not an ordinary parameter; expected {expected}")
    return Step(steps[0].name, first)


def called_with_step(f: Callable[..., Any], step: Step | None) -> Callable[[Any, int], Any]:
    """A function of the state, or of the state and the step, as a function of (state, step)."""
    if step is None:
        return lambda s, h: f(s)
    return (lambda s, h: f(h, s)) if step.first else (lambda s, h: f(s, **{step.name: h}))


def read_actions(f: Callable[..., Any]) -> tuple[Callable[[Any, int], Any], bool]:
    """The available actions as a function of (state, step), and whether they depend on the step."""
    step = step_parameter("actions", f, "a function of the state, or of the state and h, which is the step from 0")
    return called_with_step(f, step), step is not None


def _roles(takes: str, parameters: list[inspect.Parameter]) -> dict[str, Role]:
    """What each parameter after state and action is given; others keep their defaults, and need one."""
    roles: dict[str, Role] = {}
    for p in parameters:
        name = p.name.lower()
        role: Role | None = "step" if name in STEP_NAMES else "next" if name in NEXT_STATE_NAMES else None
        if role is None:
            if p.default is p.empty:
                raise CmdpkitError(f"{takes}: {p.name} could be anything; expected {SIGNATURES}")
        elif p.default is not p.empty:
            meaning = "the step" if role == "step" else "the next state"
            raise CmdpkitError(
                f"{takes}: {p.name} has a default, so it may be meant as a constant; without the default it is given "
                f"{meaning}, and under another name it keeps its value"
            )
        elif role in roles.values():
            raise CmdpkitError(f"{takes}: two parameters are called like the same thing; expected {SIGNATURES}")
        else:
            roles[p.name] = role
    return roles


def _called(f: Callable[..., Any], in_order: tuple[Role, ...], by_name: dict[str, Role]) -> Callable[..., Any]:
    """``f`` as a function of (s, a, h) or (s, a, h, s_next)."""
    if by_name:

        def named(s: Any, a: Any, h: int, s_next: Any = None) -> Any:
            given = {"step": h, "next": s_next}
            extra = {name: given[role] for name, role in by_name.items()}
            return f(s, a, *(given[role] for role in in_order), **extra)

        return named
    if in_order == ():
        return lambda s, a, h: f(s, a)
    if in_order == ("next",):
        return lambda s, a, h, s_next: f(s, a, s_next)
    if in_order == ("next", "step"):
        return lambda s, a, h, s_next: f(s, a, s_next, h)
    return f  # (s, a, h) and (s, a, h, s_next) as they are
