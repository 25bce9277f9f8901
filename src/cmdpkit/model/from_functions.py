"""A CMDP from Python functions: find the states, call the functions for each of them, and check every answer.

The functions are called once for each state and action (and step, if they depend on it). States are numbered in the
order in which they are reached, step by step from the start, unless the user lists them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import Constraint, Criterion, criterion_of, listed, signal_names
from cmdpkit.model.outcomes import Outcomes, exactly_known
from cmdpkit.model.signatures import (
    Function,
    OutcomeRows,
    Row,
    Successors,
    finite_number,
    hashable,
    read_function,
    read_state_function,
)
from cmdpkit.model.transitions import FloatArray, Kernel
from cmdpkit.model.validate import is_hashable, read_start, report_correction

State = Hashable
Action = Hashable


@dataclass(frozen=True)
class Description:
    """The arguments of `CMDP.from_function`, whose docstring says what each field means."""

    start: Any
    judged: Mapping[str, Any]  # horizon, discount and criterion
    actions: Iterable[Action] | Callable[..., Iterable[Action]]
    step: Callable[..., Any] | None
    reward: Callable[..., float] | None
    outcome: Callable[..., Any] | None
    constraints: Iterable[Constraint]
    states: Iterable[State] | None
    exact: bool | Iterable[str]
    renormalise: bool
    max_states: int
    grid: Grid | None


def build(described: Description) -> CMDP:
    """The model that the user's functions describe."""
    constraints = listed(described.constraints)
    _check_functions(described, constraints)
    if all(x is None for x in described.judged.values()):
        raise CmdpkitError("horizon is missing: give exactly one of horizon, discount and criterion")
    judged = criterion_of(**described.judged, lengths={"P": 1})
    explored = _Exploration(described, constraints, judged)
    initial = _initial(described)
    explored.explore(initial)
    mu = np.zeros(len(explored.index))
    for s, p in initial.items():
        mu[explored.index[s]] = p
    names = signal_names(constraints)
    cmdp = CMDP(
        **explored.dynamics(),
        mu=mu,
        **described.judged,
        actions=explored.allowed(),
        constraints=[replace(c, signal=None) for c in constraints],
        states=list(explored.index),
        action_names=list(explored.names),
        exact={
            *exactly_known(described.exact, names),
            *(name for name, x in zip(names, explored.drawn, strict=True) if x),
        },
        grid=described.grid,
    )
    report_correction(cmdp, explored.successors.correction)
    return cmdp


def _check_functions(described: Description, constraints: tuple[Constraint, ...]) -> None:
    """Refuse a description without one of its functions, or with something given twice."""
    if described.outcome is None:
        for what in ("step", "reward"):
            if getattr(described, what) is None:
                raise CmdpkitError(f"{what} is missing: give step and reward, or outcome in place of both")
    elif described.step is not None or described.reward is not None:
        raise CmdpkitError("step or reward is given together with outcome, which replaces both; leave them out")
    for c in constraints:
        if described.outcome is not None and c.signal is not None:
            raise CmdpkitError(
                f"constraint {quoted(c.name)} has a signal of its own, which outcome returns already; leave one of "
                "them out"
            )
        if described.outcome is None and not callable(c.signal):
            raise CmdpkitError(f"constraint {quoted(c.name)} needs a function of (state, action) as its signal")


def _initial(described: Description) -> dict[State, float]:
    """The probabilities of the first states."""
    start = described.start
    if not isinstance(start, Mapping) and not is_hashable(start):
        raise CmdpkitError(
            f"start is {quoted(start)}, expected a state, or a mapping from states to probabilities, such as "
            "{'low': 0.5, 'high': 0.5}"
        )
    given = start if isinstance(start, Mapping) else {start: 1.0}
    place = {s: i for i, s in enumerate(given)}
    mu, _ = read_start(given, list(place), place.__getitem__, what="start", renormalise=described.renormalise)
    return dict(zip(place, mu.tolist(), strict=True))


class _Exploration:
    """What the user's functions returned so far, in plain lists, which become arrays when every state is known."""

    def __init__(self, described: Description, constraints: tuple[Constraint, ...], judged: Criterion) -> None:
        self.horizon, self.max_states = judged.horizon, described.max_states
        names, fixed = [c.name for c in constraints], {"renormalise": described.renormalise}
        if described.outcome is None:
            self.successors = Successors(read_function("step", described.step, may_take_next=False), **fixed)
            signals = [("reward", described.reward), *((shown(c.name), c.signal) for c in constraints)]
            self.signals = [read_function(what, f) for what, f in signals]
            self.drawn = [f.on_next for f in self.signals]
        else:
            outcome = read_function("outcome", described.outcome, may_take_next=False)
            self.successors, self.signals = OutcomeRows(outcome, names, **fixed), []
            self.drawn = [True] * (1 + len(names))
        for f in (self.successors.step, *self.signals):
            if f.on_step and not judged.has_horizon:
                raise _no_steps(f.what, judged)
        every_step = self.horizon or 1
        self.T = every_step if self.successors.step.on_step else 1
        # A signal differs between steps if it is given the step, or averages over next states that differ.
        self.steps = [every_step if f.on_step or (f.on_next and self.T > 1) else 1 for f in self.signals]
        self.varies = any(self.drawn)  # whether the signals of every entry are kept, and not of every pair
        self.kept = max(self.T, *self.steps, 1) if self.varies else self.T  # steps whose rows are kept
        self.actions: Callable[[State, int], Iterable[Action]] | None = None
        if callable(described.actions):
            self.actions, step = read_state_function("actions", described.actions)
            if step is not None:
                raise CmdpkitError(
                    f"the function actions takes {step}, the step, expected a function of the state alone; "
                    "restrict(mask) of the model, with a mask [H, S, A], leaves out actions at some steps"
                )
        self.fixed = [] if callable(described.actions) else _different("actions", "an action", described.actions)
        if not self.fixed and self.actions is None:
            raise CmdpkitError("there are no actions, expected at least one: actions=[...]")
        self.names: dict[Action, int] = {a: i for i, a in enumerate(self.fixed)}
        self.listed = None if described.states is None else _different("states", "a state", described.states)
        self.index: dict[State, int] = {s: i for i, s in enumerate(self.listed or [])}
        self.met: list[State] = []  # states in the order in which they were reached, unless the user listed them
        self.states, self.taken = array("q"), array("q")  # every pair for which the functions were called
        self.sizes = array("q")  # number of entries in each row; every pair has one row or H rows
        self.nexts = array("q")  # next state of every transition
        self.prob = array("d")  # probability of every transition
        self.values = [array("d") for _ in self.signals]  # of every signal, for every pair 1 or H numbers
        self.outcomes = array("d")  # or else reward and signals of every entry

    def explore(self, initial: Mapping[State, float]) -> None:
        """Ask about all listed states, or about those that can be met before the last step if there is one."""
        if self.listed is not None:
            for s in initial:
                if s not in self.index:
                    raise CmdpkitError(
                        f"start {quoted(s)} is not among the states; list it there, or leave states out to have them "
                        "found"
                    )
            self._ask(self.listed)
            return
        for s in initial:
            self._number(s, None, None)
        step, first = 0, 0  # first: of the states that are met at this step for the first time
        while first < len(self.met) and step != self.horizon:
            layer, first = self.met[first:], len(self.met)
            self._ask(layer)
            step += 1
        self._close(self.met[first:])

    def _ask(self, states: list[State]) -> None:
        for s in states:
            for a in self.fixed or self._available(s):
                rows = [self.successors(s, a, h) for h in range(self.T)]
                signals = [
                    [_signal(f, s, a, h, rows[h % self.T]) for h in range(steps)]
                    for f, steps in zip(self.signals, self.steps, strict=True)
                ]
                self._keep(s, a, rows, signals)

    def _available(self, s: State) -> list[Action]:
        """The actions that exist in a state."""
        available = _different(f"actions({quoted(s)})", "an action", self.actions(s, 0))  # type: ignore[misc]
        if not available:
            raise CmdpkitError(f"state {quoted(s)} has no actions; give it at least one (for example a self-loop)")
        return available

    def _keep(self, s: State, a: Action, rows: list[Row], signals: list[list[Any]]) -> None:
        """Keep rows and signals of a pair, each for all steps or for every step, and number new next states.

        A signal at a step is a number, or a list with a number for each next state.
        """
        self.states.append(self.index[s])
        self.taken.append(self.names.setdefault(a, len(self.names)))
        for h in range(self.kept):
            row = rows[h % len(rows)]
            nexts = row if self.signals else [x for x, _ in row]
            self.sizes.append(len(row))
            self.prob.extend(row.values())
            found: list[Any] = list(map(self.index.get, nexts))
            self.nexts.extend([self._number(x, s, a) for x in nexts] if None in found else found)
            if not self.signals:
                for _, brought in row:
                    self.outcomes.extend(brought)
            elif self.varies:
                here = [x[h % len(x)] for x in signals]
                for k in range(len(row)):
                    self.outcomes.extend(x[k] if isinstance(x, list) else x for x in here)
        if not self.varies:
            for values, own in zip(self.values, signals, strict=True):
                values.extend(own)

    def _number(self, x: State, s: State, a: Action) -> int:
        """The number of a state that is met after an action in another one; a new one if it was not met before."""
        if x in self.index:
            return self.index[x]
        if self.listed is not None:
            where = f"{self.successors.step.what}({quoted(s)}, {quoted(a)})"
            raise CmdpkitError(
                f"{where} leads to {quoted(x)}, which is not among the states; list it in states, or leave states out "
                "to have them found"
            )
        if len(self.index) >= self.max_states:
            within = "" if self.horizon is None else f" within {self.horizon} steps"
            raise CmdpkitError(
                f"more than max_states = {self.max_states:,} states are reachable{within}; check that `step` does not "
                "make ever new states, or give a larger max_states"
            )
        self.met.append(x)
        return self.index.setdefault(x, len(self.index))

    def _close(self, beyond: list[State]) -> None:
        """Give self-loops to states that are reached only after the last step; every state needs a row, used or not."""
        for s in beyond:
            row: Row = {s if self.signals else (s, (0.0,) * len(self.drawn)): 1.0}
            self._keep(s, next(iter(self.names)), [row], [[0.0] * steps for steps in self.steps])

    def allowed(self) -> Any:
        """Which actions exist, [S, A]."""
        mask = np.zeros((len(self.index), len(self.names)), dtype=bool)
        mask[_numbers(self.states), _numbers(self.taken)] = True
        return mask

    def dynamics(self) -> dict[str, Any]:
        """The outcomes, or else transitions, reward and signals, as arguments of `CMDP`."""
        shape = self.kept, len(self.index), len(self.names)
        i, j = (_numbers(x)[:, None] for x in (self.states, self.taken))  # [pairs, 1], against the steps [T]
        rows = ((np.arange(self.kept) * shape[1] + i) * shape[2] + j).reshape(-1)
        entries = np.repeat(rows, _numbers(self.sizes)), _numbers(self.nexts), _numbers(self.prob)
        if self.varies:
            return {"P": Outcomes.from_entries(shape, *entries, _numbers(self.outcomes).reshape(-1, len(self.drawn)))}
        reward, *signals = self._tables()
        return {"P": Kernel.from_entries(shape, *entries), "r": reward, "g": signals}

    def _tables(self) -> list[FloatArray]:
        """Every signal as an array [1 or H, S, A]."""
        i, j = _numbers(self.states), _numbers(self.taken)
        made = []
        for values, steps in zip(self.values, self.steps, strict=True):
            table = np.zeros((steps, len(self.index), len(self.names)))
            table[:, i, j] = _numbers(values).reshape(-1, steps).T
            made.append(table)
        return made


def _numbers(x: array[Any]) -> Any:
    return np.frombuffer(x, dtype=x.typecode) if len(x) else np.zeros(0, dtype=x.typecode)


def _no_steps(what: str, judged: Criterion) -> CmdpkitError:
    """The error about a function that takes the step where there is no horizon."""
    return CmdpkitError(
        f"the function {what} takes the step h, but the criterion is {judged}, where nothing may depend on the step; "
        "make the step a part of the state, or give a horizon"
    )


def _signal(f: Function, s: State, a: Action, h: int, row: Row) -> float | list[float]:
    """The value of a function for a state and action; one for each next state if it depends on them."""
    if f.on_next:
        return [finite_number(f.what, f.call(s, a, h, x), s, a, x) for x in row]
    x = f.call(s, a, h)
    return x if type(x) is float and math.isfinite(x) else finite_number(f.what, x, s, a)  # the first at once


def _different(what: str, one: str, things: Any) -> list[Any]:
    """A list of states or actions, refused unless all of them are different."""
    if isinstance(things, str) or not isinstance(things, Iterable):
        raise CmdpkitError(f"{what} is {quoted(things)}, expected a list")
    found = [hashable(f"an entry of {what}", x) for x in things]
    if len(set(found)) < len(found):
        twice = next(x for x in found if found.count(x) > 1)
        raise CmdpkitError(f"{what} lists {one} twice: {quoted(twice)}")
    return found
