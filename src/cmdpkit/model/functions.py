"""Models by functions: nothing of the size of a transition table is stored, so a model may have 1e8 states.

A state is a tuple of small integers, one per coordinate; its index in row-major order is our arithmetic, not the
user's. There are two forms, and the functions of both are compiled:

    EventModel      step(x, a, e) -> (x_next, p): what event e does to state x under action a, and how likely it is
    FactoredModel   move(x, a) -> y at once, then every coordinate of y moves independently by a `Part` of its own

Both collect expected signals, `collect(x, a) -> (reward, signal of the first constraint, ...)` in the user's units. A
factored model also has signals of y alone, `after(y)`, which are computed once per y and not once per (x, a).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import njit, typed_for
from cmdpkit.model.constraints import Constraint, criterion_of, listed
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.user_functions import State, kinds_of, outcomes
from cmdpkit.model.validate import Name, index_of, is_int, names_of, numbers

MOST_STATES = 2**62  # indices are 64-bit integers
MOST_ACTIONS = 2**15  # choices are kept in at most 16 bits, with one number to spare
MOST_ENTRIES = 50_000_000  # transitions that `arrays` writes out
LOOSE: Any = {"nogil": True, "error_model": "numpy"}  # how functions are compiled that may allocate memory


@dataclass(frozen=True, eq=False)
class Part:
    """How one coordinate moves by itself: from place j to ``to[j, w]`` with probability ``p[j, w]``.

    ``p`` may be one row [w] for all places. Rows are divided by their sums, which must be 1 within 1e-9.

    >>> part = Part.demand(4, demand=[0, 2], p=[0.25, 0.75])
    >>> part.to.tolist()
    [[0, 0], [1, 0], [2, 0], [3, 1]]
    """

    to: IntArray  # [n, w], next places
    p: FloatArray  # [n, w], their probabilities

    def __post_init__(self) -> None:
        to = numbers("to of a Part", self.to)
        if to.ndim != 2 or not to.size or (to != np.rint(to)).any():
            raise CmdpkitError(f"to of a Part is {quoted(to.tolist())}, expected whole numbers [places, outcomes]")
        if to.min() < 0 or to.max() >= len(to):
            j, w = np.argwhere((to < 0) | (to >= len(to)))[0]
            raise CmdpkitError(f"to[{j}, {w}] of a Part is {to[j, w]:g}, expected a place from 0 to {len(to) - 1}")
        p = numbers("p of a Part", self.p)
        if p.shape not in (to.shape, to.shape[1:]):
            raise CmdpkitError(f"p of a Part has shape {p.shape}, expected {to.shape} or {to.shape[1:]}")
        p = np.broadcast_to(p, to.shape)
        sums = p.sum(axis=1)
        wrong = ~((p >= 0).all(axis=1) & (np.abs(sums - 1) <= ROW_SUM_TOLERANCE))
        if wrong.any():
            j = int(wrong.argmax())
            raise CmdpkitError(f"p[{j}] of a Part is {quoted(p[j].tolist())}, expected probabilities that sum to 1")
        object.__setattr__(self, "to", np.ascontiguousarray(to, dtype=np.int64))
        object.__setattr__(self, "p", p / sums[:, None])

    @cached_property
    def matrix(self) -> Any:
        """The probabilities of moves as a sparse matrix [n, n]."""
        n, w = self.to.shape
        return sparse.csr_array((self.p.reshape(-1), self.to.reshape(-1), np.arange(n + 1) * w), shape=(n, n))

    @classmethod
    def demand(cls, size: int, demand: Sequence[int], p: Any) -> Part:
        """A stock of 0 .. size - 1 pieces from which a random demand is taken, as far as the stock goes."""
        if not is_int(size) or size < 1:
            raise CmdpkitError(f"size of a Part is {quoted(size)}, expected a whole number of places, at least 1")
        return cls(np.maximum(np.arange(size)[:, None] - numbers("demand of a Part", demand), 0), p)


class Form(NamedTuple):
    """The compiled functions of a model, in the form that sweeps are compiled for."""

    step: Any  # (x, a, e) -> (x_next, p); of a factored model, which has one event, (position after the action, 1)
    collect: Any  # (x, a) -> signals, a tuple of 1 + N floats
    after: Any  # y -> signals; zeros for models of events
    allowed: Any  # (x, a) -> whether the action exists
    decode: Any  # index of a state -> x
    encode: Any  # x -> index of the state
    inside: Any  # x -> whether it lies in the space
    space: State
    A: int
    events: int
    K: int  # number of signals, 1 + N


class FunctionModel:
    """What both forms share: the space, the names, the bounds and the criterion."""

    events = 1  # number of events; the move of a factored model is one
    noise: tuple[Part, ...] = ()  # how the coordinates of a factored model move

    def __init__(
        self,
        space: Sequence[int] | Mapping[str, int],
        actions: int | Iterable[Any],
        functions: Mapping[str, Callable[..., Any] | None],
        constraints: Iterable[Constraint],
        start: State | Mapping[State, float],
        judged: Mapping[str, Any],
    ) -> None:
        given = space.values() if isinstance(space, Mapping) else space
        sizes = tuple(given) if isinstance(given, Iterable) else ()
        if not sizes or not all(is_int(n) and n > 0 for n in sizes):
            raise CmdpkitError(f"space is {quoted(space)}, expected the size of each coordinate, such as (20, 20)")
        self.space: State = tuple(int(n) for n in sizes)
        self.S = math.prod(self.space)
        if self.S > MOST_STATES:
            raise CmdpkitError(f"space {self.space} has {self.S:.3g} states, expected at most 2**62; merge coordinates")
        self.coordinates = names_of("space", list(space) if isinstance(space, Mapping) else None, len(sizes))
        named = list(actions) if isinstance(actions, Iterable) and not isinstance(actions, str) else None
        self.A = len(named) if named is not None else int(actions) if isinstance(actions, (int, np.integer)) else 0
        if isinstance(actions, bool) or not 1 <= self.A <= MOST_ACTIONS:
            raise CmdpkitError(f"actions is {quoted(actions)}, expected 1 to {MOST_ACTIONS} of them, or their names")
        self.action_names: Sequence[Name] = names_of("actions", range(self.A) if named is None else named, self.A)
        if all(x is None for x in judged.values()):
            raise CmdpkitError("a discount, a horizon or a criterion is missing; give one, such as discount=0.95")
        self.judged, self.criterion = judged, criterion_of(**judged, lengths={})
        if self.criterion.kind == "total":
            raise CmdpkitError("criterion is 'total', which models by functions do not have; give a discount")
        self.constraints = tuple(c.over(self.criterion.steps_in_value) for c in listed(constraints))
        self.N, self.K = len(self.constraints), 1 + len(self.constraints)
        for c in self.constraints:
            if c.signal is not None:
                raise CmdpkitError(
                    f"constraint {quoted(c.name)} has a signal, but `collect` returns all of them; leave it out"
                )
        if len({c.name for c in self.constraints}) < self.N:
            raise CmdpkitError(f"two constraints have the same name: {', '.join(c.name for c in self.constraints)}")
        self.functions = dict(functions)
        for name, function in functions.items():
            missing = function is None and name in ("after", "allowed")
            if not missing and not isinstance(getattr(function, "py_func", function), FunctionType):
                raise CmdpkitError(
                    f"{name} is {quoted(function)}, expected a function, made by `def` or `lambda`; write one that "
                    "calls it"
                )
        self.start = self._read_start(start)

    def _read_start(self, start: Any) -> dict[State, float]:
        for x in start if isinstance(start, Mapping) else [start]:
            self.state_index(x, "start: ")
        given = dict(start) if isinstance(start, Mapping) else {start: 1.0}
        p = numbers("start", list(given.values()))
        if not (p >= 0).all() or abs(p.sum() - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(f"start has probabilities {quoted(p.tolist())}, expected numbers that sum to 1")
        return {tuple(map(int, x)): float(q) for x, q in zip(given, p / p.sum(), strict=True)}

    def __repr__(self) -> str:
        bounds = ", ".join(map(str, self.constraints)) or "no bounds"
        sizes = " x ".join(map(str, self.space))
        return f"{type(self).__name__}({self.criterion}, S={sizes} = {self.S:,}, A={self.A}, N={self.N}: {bounds})"

    def form(self, *, boundscheck: bool = False) -> Form:
        """The compiled functions, made once; with ``boundscheck``, an index outside of an array is an error in them."""
        given = tuple(self.functions.items())
        return form_of(given, self.space, self.A, self.events, self.K, boundscheck=boundscheck)

    @property
    def signs(self) -> FloatArray:
        """+1 for the reward and "at least", -1 for "at most", [1 + N]: signals times signs are utilities."""
        return np.array([1.0, *(c.sign for c in self.constraints)])

    @property
    def rho(self) -> FloatArray:
        """Thresholds of the utilities, [N]."""
        return np.array([c.sign * c.bound_on_total for c in self.constraints], dtype=float)

    def with_bounds(self, /, **bounds: float) -> Any:
        """The same model with other bounds, by constraint name."""
        for name in bounds:
            self.constraint_index(name)
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.constraints = tuple(replace(c, bound=bounds[c.name]) if c.name in bounds else c for c in self.constraints)
        return made

    def constraint_index(self, name: str) -> int:
        """Index of a constraint by its name."""
        return index_of("constraint", [c.name for c in self.constraints], name)

    def state_index(self, x: Any, place: str = "") -> int:
        """The index of a state, refused unless it is one."""
        fits = isinstance(x, tuple) and len(x) == len(self.space) and all(map(is_int, x))
        if not fits or not all(0 <= i < n for i, n in zip(x, self.space, strict=True)):
            raise CmdpkitError(f"{place}{quoted(x)} is no state of the space {self.space}: a tuple of indices from 0")
        return int(np.ravel_multi_index(x, self.space))

    def named(self, x: State) -> str:
        """A state as it is shown: each coordinate with its name, if the user gave any."""
        if isinstance(self.coordinates, range):
            return str(x)
        return f"({', '.join(f'{name}={i}' for name, i in zip(self.coordinates, x, strict=True))})"

    def state(self, s: int) -> State:
        """The state with an index."""
        return tuple(int(i) for i in np.unravel_index(s, self.space))

    def check_policy(self, policy: Any) -> None:
        """Raise CmdpkitError unless this is a policy for a model by functions of these sizes."""
        if not hasattr(policy, "parts"):
            raise CmdpkitError(f"the policy is a {type(policy).__name__}, expected one of ck.solve(model).policy")
        made = policy.model
        if (made.space, made.A, made.criterion.horizon) != (self.space, self.A, self.criterion.horizon):
            raise CmdpkitError(f"the policy was made for {made!r}, not for {self!r}")

    def arrays(self) -> CMDP:
        """The same model as a `CMDP` with all arrays, for models small enough; the test of every model by functions.

        The user's functions are called as plain Python, so this is slow, and does not depend on compiled code.
        """
        entries = self.S * self.A * max(self.events, math.prod(part.to.shape[1] for part in self.noise))
        if entries > MOST_ENTRIES:
            raise CmdpkitError(f"{self!r} has {entries:.2g} transitions, arrays() writes at most {MOST_ENTRIES:.2g}")
        states = list(itertools.product(*(range(n) for n in self.space)))
        allowed, signals = np.zeros((self.S, self.A), dtype=bool), np.zeros((self.K, self.S, self.A))
        rows, columns, p = [], [], []
        for s, x in enumerate(states):
            for a, own, moves in outcomes(self, x):
                allowed[s, a], signals[:, s, a] = True, own
                rows += [s * self.A + a] * len(moves)
                columns += [then for then, _ in moves]
                p += [q for _, q in moves]
        to = np.ravel_multi_index(np.array(columns).T, self.space)
        P = sparse.csr_array((p, (rows, to)), shape=(self.S * self.A, self.S)) @ self._noise()
        bounds = [replace(c, signal=x) for c, x in zip(self.constraints, signals[1:], strict=True)]
        return CMDP(
            [P[a :: self.A] for a in range(self.A)],
            signals[0],
            mu=np.array([self.start.get(x, 0.0) for x in states]),
            actions=allowed,
            constraints=bounds,
            states=states,
            action_names=self.action_names,
            **self.judged,
        )

    def _noise(self) -> Any:
        """How the coordinates move after a decision, as a matrix [S, S]."""
        together = sparse.eye_array(1 if self.noise else self.S, format="csr")
        for part in self.noise:
            together = sparse.csr_array(sparse.kron(together, part.matrix))
        return together


class EventModel(FunctionModel):
    """A model whose transitions are a function: ``step(x, a, e) -> (x_next, p)`` for the events e = 0 .. events - 1.

    Parameters
    ----------
    space : the size of each coordinate, or {name: size}; a state x is a tuple with x[i] from 0 to space[i] - 1
    actions : how many actions there are, or their names; functions get their index from 0, which is also the name of
        an action without one
    events : number of events. The probabilities of a state and action sum to 1; where an event cannot happen, its p is
        0 and x_next any state, such as x
    step : ``step(x, a, e) -> (x_next, p)``. Tables of events, read by e, are twice as fast as arithmetic on e
    collect : ``collect(x, a) -> (reward, signal_1, ...)``, expected, one signal per constraint, in the user's units
    constraints : `at_least` and `at_most` without signals
    start : a state, or {state: probability}
    discount, horizon, criterion : exactly one of them; ``criterion="average"`` for models that forget their start
    allowed : ``allowed(x, a) -> bool``, by default all actions exist

    The functions are compiled by Numba. They may use numbers, tuples, NumPy arrays around them, and other functions
    that are compiled with ``numba.njit``.

    >>> import cmdpkit as ck
    >>> def step(x, a, e):  # a queue of up to 9 jobs; action 1 serves one, event 1 is an arrival
    ...     left = max(x[0] - a, 0)
    ...     return (min(left + e, 9),), 0.4 if e == 1 else 0.6
    >>> def collect(x, a):
    ...     return -1.0 * x[0], 1.0 * a
    >>> model = ck.EventModel((10,), ["wait", "serve"], 2, step, collect, start=(0,), discount=0.9,
    ...                       constraints=[ck.at_most("services", 2.0)])
    >>> model
    EventModel(discount=0.9, S=10 = 10, A=2, N=1: services ≤ 2)
    >>> sol = ck.solve(model)
    >>> exact = ck.solve(model.arrays())
    >>> bool(abs(sol.value - exact.value) <= sol.gap), sol.utilities <= 2.0
    (True, array([ True]))
    """

    def __init__(
        self,
        space: Sequence[int] | Mapping[str, int],
        actions: int | Iterable[Any],
        events: int,
        step: Callable[..., Any],
        collect: Callable[..., Any],
        *,
        constraints: Iterable[Constraint] = (),
        start: State | Mapping[State, float],
        discount: float | None = None,
        horizon: int | None = None,
        criterion: str | None = None,
        allowed: Callable[..., Any] | None = None,
    ) -> None:
        judged = {"horizon": horizon, "discount": discount, "criterion": criterion}
        functions = {"step": step, "collect": collect, "allowed": allowed}
        super().__init__(space, actions, functions, constraints, start, judged)
        if not is_int(events) or events < 1:
            raise CmdpkitError(f"events is {quoted(events)}, expected a whole number, at least 1")
        self.events = int(events)


class FactoredModel(FunctionModel):
    """A model that decides first, and whose coordinates then move independently.

    ``move(x, a) -> y`` happens at once: y is the position after the action. Then coordinate i moves from y[i] by
    ``noise[i]``, a `Part`, or stays where that is None. Signals are ``collect(x, a)`` plus ``after(y)``, both expected
    and in the user's units. An expectation takes one coordinate after the other, so that it costs the sum of the
    outcomes of all parts instead of their product, once per state and not once per action. The other parameters are
    those of `EventModel`.

    >>> import cmdpkit as ck
    >>> def move(x, a):
    ...     return (min(x[0] + a, 4), x[1])
    >>> model = ck.FactoredModel((5, 3), 2, move, [ck.Part.demand(5, [0, 1], [0.5, 0.5]), None],
    ...                          lambda x, a: (-1.0 * a, 0.0), lambda y: (1.0 * (y[0] > 0), 1.0 * (y[0] == 0)),
    ...                          constraints=[ck.at_most("empty", 1.5)], start=(0, 0), discount=0.9)
    >>> sol, exact = ck.solve(model), ck.solve(model.arrays())
    >>> bool(abs(sol.value - exact.value) <= sol.gap)
    True
    """

    def __init__(
        self,
        space: Sequence[int] | Mapping[str, int],
        actions: int | Iterable[Any],
        move: Callable[..., Any],
        noise: Sequence[Part | None],
        collect: Callable[..., Any],
        after: Callable[..., Any] | None = None,
        *,
        constraints: Iterable[Constraint] = (),
        start: State | Mapping[State, float],
        discount: float | None = None,
        horizon: int | None = None,
        criterion: str | None = None,
        allowed: Callable[..., Any] | None = None,
    ) -> None:
        judged = {"horizon": horizon, "discount": discount, "criterion": criterion}
        functions = {"move": move, "collect": collect, "after": after, "allowed": allowed}
        super().__init__(space, actions, functions, constraints, start, judged)
        if not isinstance(noise, Sequence) or len(noise) != len(self.space):
            wanted = f"a list with a Part, or None, for each of the {len(self.space)} coordinates"
            raise CmdpkitError(f"noise is {quoted(noise)}, expected {wanted}")
        parts = [
            Part(np.arange(n)[:, None], np.ones(1)) if x is None else x for x, n in zip(noise, self.space, strict=True)
        ]
        for i, (part, n) in enumerate(zip(parts, self.space, strict=True)):
            if not isinstance(part, Part) or len(part.to) != n:
                raise CmdpkitError(f"noise[{i}] is {quoted(part)}, expected a Part for {n} places, or None")
        self.noise = tuple(parts)


# -- compiled functions ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def form_of(
    given: tuple[tuple[str, Any], ...], space: State, A: int, events: int, K: int, *, boundscheck: bool = False
) -> Form:
    """Compile the user's functions, each alone first, so that an error names the function and its line."""
    kinds, signals = kinds_of(len(space), K), (0.0,) * K
    made: dict[str, Any] = {
        name: typed_for(name, f, *kinds[name], boundscheck=boundscheck) for name, f in given if f is not None
    }
    move = made.get("move")
    step = made["step"] if move is None else njit(**LOOSE)(lambda x, a, e: (move(x, a), 1.0))
    after = made.get("after") or njit(**LOOSE)(lambda y: signals)
    allowed = made.get("allowed") or njit(**LOOSE)(lambda x, a: True)
    return Form(step, made["collect"], after, allowed, *_places(space), space, A, events, K)


def _places(space: State) -> tuple[Any, Any, Any]:
    """Compiled decode(s) -> x, encode(x) -> s and inside(x); sizes are constants, so divisions become products."""
    size = space[0]
    if len(space) == 1:
        return (
            njit(**LOOSE)(lambda s: (s,)),
            njit(**LOOSE)(lambda x: x[0]),
            njit(**LOOSE)(lambda x: 0 <= x[0] < size),
        )
    inner = math.prod(space[1:])
    rest_of, index_of, rest_inside = _places(space[1:])
    return (
        njit(**LOOSE)(lambda s: (s // inner,) + rest_of(s % inner)),  # noqa: RUF005  # Numba knows no unpacking here
        njit(**LOOSE)(lambda x: x[0] * inner + index_of(x[1:])),
        njit(**LOOSE)(lambda x: 0 <= x[0] < size and rest_inside(x[1:])),
    )
