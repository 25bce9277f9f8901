"""A CMDP from Python functions: explore the states, ask for every row, name the offender when one is wrong."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import Constraint, listed
from cmdpkit.model.criterion import criterion_of
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, Kernel
from cmdpkit.model.validate import check_horizon, numbers

State = Hashable
Action = Hashable


def from_function(
    *,
    start: Any,
    horizon: int | None = None,
    discount: float | None = None,
    criterion: str | None = None,
    actions: Iterable[Action] | Callable[[Any], Iterable[Action]],
    step: Callable[..., Any],
    reward: Callable[..., float],
    constraints: Iterable[Constraint] = (),
    states: Iterable[State] | None = None,
    renormalise: bool = False,
    max_states: int = 1_000_000,
    grid: Grid | None = None,
) -> CMDP:
    """A CMDP from functions of (state, action), or of (state, action, h) with h counting from 0.

    Parameters
    ----------
    start : the initial state, or a mapping from state to probability
    horizon, discount, criterion : exactly one of them, as for `CMDP`; only with a horizon may functions take h
    actions : the actions, or a function from a state to those that exist there
    step : returns a list of (probability, next state) or a mapping from next state to probability
    reward : returns the (mean) reward; each constraint's signal likewise returns what is counted against its bound
    states : all states, in order; without it the states reachable within the horizon (if there is one) are explored.
        States met only after the last step are kept, with a self-loop that is never used.
    max_states : stop exploring with an error beyond this many

    >>> from cmdpkit import at_most
    >>> cmdp = CMDP.from_function(
    ...     start=0, horizon=20, actions=["serve", "rest"],
    ...     step=lambda s, a: {max(s - 1, 0): 1.0} if a == "serve" else [(0.7, min(s + 1, 4)), (0.3, max(s - 1, 0))],
    ...     reward=lambda s, a: float(a == "serve"),
    ...     constraints=[at_most("backlog", 30.0, lambda s, a: float(s))],
    ... )
    >>> cmdp
    CMDP(H=20, S=5, A=2, N=1: backlog ≤ 30)
    >>> cmdp.states
    (0, 1, 2, 3, 4)
    """
    constraints = listed(constraints)
    for c in constraints:
        if not callable(c.signal):
            raise CmdpkitError(f"constraint {c.name!r} needs a function of (state, action) as its signal")
    for what, f in (("step", step), ("reward", reward)):
        if not callable(f):
            raise CmdpkitError(f"{what} is {f!r}, expected a function of (state, action)")
    _check_length(horizon, discount, criterion, step, reward, *(c.signal for c in constraints))
    initial = dict(start) if isinstance(start, Mapping) else {_hashable("start", start): 1.0}
    fixed = None if callable(actions) else _different("actions", "an action", actions)

    def choices(s: State) -> list[Action]:
        return _different(f"actions({s!r})", "an action", actions(s)) if callable(actions) else fixed or []

    successors = _Successors(step, choices, horizon, renormalise)

    order = _different("states", "a state", states) if states is not None else successors.explore(initial, max_states)
    index = {s: i for i, s in enumerate(order)}
    for s in initial:
        if s not in index:
            raise CmdpkitError(f"start {s!r} is not among the states")
    outside = set() if states is not None else successors.beyond
    names: dict[Action, int] = {a: i for i, a in enumerate(fixed or [])}
    for s in order:
        for a in () if s in outside else choices(s):
            names.setdefault(a, len(names))
    if not names:
        raise CmdpkitError("there are no actions")

    timed = [_takes_step(f) for f in (step, reward, *(c.signal for c in constraints))]
    S, A = len(order), len(names)
    allowed = np.zeros((S, A), dtype=bool)
    T = (horizon or 1) if timed[0] else 1
    rows: list[int] = []
    nexts: list[int] = []
    probs: list[float] = []
    signals = [np.zeros(((horizon or 1) if t else 1, S, A)) for t in timed[1:]]
    for s, i in index.items():
        available = list(names)[:1] if s in outside else choices(s)
        if not available:
            raise CmdpkitError(f"state {s!r} has no actions; give it at least one (for example a self-loop)")
        for a in available:
            j = names[a]
            allowed[i, j] = True
            for h in range(T):
                row = {s: 1.0} if s in outside else successors(s, a, h)
                for s_next, p in row.items():
                    if s_next not in index:
                        raise CmdpkitError(f"step({s!r}, {a!r}) leads to {s_next!r}, which is not among the states")
                    rows.append((h * S + i) * A + j)
                    nexts.append(index[s_next])
                    probs.append(p)
            for x, f, what in zip(
                signals,
                (reward, *(c.signal for c in constraints)),
                ("reward", *(c.name for c in constraints)),
                strict=True,
            ):
                for h in range(len(x)):
                    x[h, i, j] = 0.0 if s in outside else _number(what, f, s, a, h)
    kernel = Kernel.from_entries((T, S, A), np.array(rows), np.array(nexts), np.array(probs))
    mu = np.zeros(S)
    for s, p in initial.items():
        mu[index[s]] = numbers(f"start[{s!r}]", [p])[0]
    return CMDP(
        kernel,
        signals[0],
        mu=mu,
        horizon=horizon,
        discount=discount,
        criterion=criterion,
        actions=allowed,
        constraints=[replace(c, signal=x) for c, x in zip(constraints, signals[1:], strict=True)],
        states=order,
        action_names=list(names),
        grid=grid,
    )


def _check_length(
    horizon: int | None, discount: float | None, criterion: str | None, *functions: Callable[..., Any]
) -> None:
    """Raise unless there is one criterion, and no function takes the step where there is no horizon."""
    if horizon is None and discount is None and criterion is None:
        raise CmdpkitError("horizon is missing: give exactly one of horizon, discount and criterion")
    if horizon is not None:
        check_horizon(horizon)
    judged = criterion_of(horizon, discount, criterion, {"P": horizon or 1})
    for f in functions:
        if judged.stationary and _takes_step(f):
            name = getattr(f, "__name__", repr(f))
            raise CmdpkitError(
                f"the function {name} takes the step h, but the criterion is {judged}, where nothing may depend on the "
                "step; make the step a part of the state, or give a horizon"
            )


class _Successors:
    """Calls the user's step function and checks each answer where it is asked."""

    def __init__(
        self, step: Callable[..., Any], choices: Callable[[Any], list[Action]], H: int | None, renormalise: bool
    ) -> None:
        self.step, self.choices, self.H, self.renormalise = step, choices, H, renormalise
        self.timed = _takes_step(step)
        self.beyond: set[State] = set()  # met only after the last step

    def __call__(self, s: State, a: Action, h: int) -> dict[State, float]:
        call = f"step({s!r}, {a!r}" + (f", {h})" if self.timed else ")")
        answer = self.step(s, a, h) if self.timed else self.step(s, a)
        try:
            pairs = [(p, x) for x, p in answer.items()] if isinstance(answer, Mapping) else [(p, x) for p, x in answer]
        except (TypeError, ValueError):
            raise CmdpkitError(f"{call} returned {answer!r}, expected [(probability, next state), ...]") from None
        row: dict[State, float] = {}
        for p, s_next in pairs:
            if not isinstance(p, (int, float, np.integer, np.floating)) or not 0 <= p <= sys.float_info.max:
                raise CmdpkitError(f"{call} gives {s_next!r} probability {p!r}, expected a number between 0 and 1")
            _hashable(f"next state of {call}", s_next)
            row[s_next] = row.get(s_next, 0.0) + float(p)
        total = sum(row.values())
        if self.renormalise and total > 0:
            return {x: p / total for x, p in row.items()}
        if abs(total - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(f"probabilities of {call} sum to {total:.12g}, expected 1 within {ROW_SUM_TOLERANCE:g}")
        return {x: p for x, p in row.items() if p > 0}

    def explore(self, initial: Mapping[State, float], max_states: int) -> list[State]:
        """States reachable in at most H steps (in any number if there is no horizon), in the order they are met."""
        found = list(initial)
        known = set(found)
        layer = list(found)
        depth = 0
        while layer and (self.H is None or depth < self.H):
            depth += 1
            fresh: dict[State, None] = {}
            for s in layer:
                for a in self.choices(s):
                    for h in range(self.H or 1 if self.timed else 1):
                        fresh.update(dict.fromkeys(x for x in self(s, a, h) if x not in known))
            found += fresh
            known |= fresh.keys()
            if len(found) > max_states:
                within = f" within {self.H} steps" if self.H is not None else ""
                raise CmdpkitError(f"more than max_states = {max_states:,} states are reachable{within}")
            if depth == self.H:
                self.beyond = set(fresh)
            layer = list(fresh)
        return found


def _hashable(what: str, x: Any) -> Any:
    try:
        hash(x)
    except TypeError:
        raise CmdpkitError(f"{what} is {x!r}: use something that cannot change, such as a tuple") from None
    return x


def _different(what: str, one: str, things: Any) -> list[Any]:
    """A list of things that are all different, as states and actions must be."""
    if isinstance(things, str) or not isinstance(things, Iterable):
        raise CmdpkitError(f"{what} is {things!r}, expected a list")
    found = [_hashable(f"an entry of {what}", x) for x in things]
    if len(set(found)) < len(found):
        twice = next(x for x in found if found.count(x) > 1)
        raise CmdpkitError(f"{what} lists {one} twice: {twice!r}")
    return found


def _takes_step(f: Callable[..., Any]) -> bool:
    """Whether f wants (state, action, h): it has a third positional parameter without a default."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(positional) >= 3


def _number(what: str, f: Callable[..., Any], s: State, a: Action, h: int) -> float:
    value = f(s, a, h) if _takes_step(f) else f(s, a)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise CmdpkitError(f"{what}({s!r}, {a!r}) is {value!r}, expected a number") from None
    if not np.isfinite(number):
        raise CmdpkitError(f"{what}({s!r}, {a!r}) is {number}, expected a finite number")
    return number
