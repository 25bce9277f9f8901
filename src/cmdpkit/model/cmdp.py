"""The constrained Markov decision process: what can be decided, what is earned, and what must stay within bounds.

Maximise E[sum_h r] subject to E[sum_h g_n] >= rho_n for n = 1..N over H steps. A `Constraint` keeps the user's words
(name, at least or at most, bound); inside, an "at most" cost is the utility -cost with threshold -bound, so that every
algorithm sees one form only. Arrays are copied in, checked, and read-only from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.constraints import Constraint, read_constraints
from cmdpkit.model.read_dynamics import read_start, read_transitions
from cmdpkit.model.rounding import corrected_rows, report
from cmdpkit.model.transitions import BoolArray, FloatArray, Kernel
from cmdpkit.model.validate import Name, action_mask, frozen, horizon_of, index_of, masked, names_of, read_signal, table

if TYPE_CHECKING:
    from cmdpkit.running.gym import CMDPEnv


class Scale(NamedTuple):
    """An affine map between a per-step signal in the user's units and the unit interval that learners work in."""

    low: float  # the value that becomes 0
    span: float  # low + span becomes 1

    def to_unit(self, x: Any) -> Any:
        """Map a per-step signal to [0, 1]."""
        return (x - self.low) / self.span

    def total_to_unit(self, total: Any, H: int) -> Any:
        """Convert a total over H steps from the user's units to unit scale."""
        return (total - H * self.low) / self.span

    def total_from_unit(self, total: Any, H: int) -> Any:
        """Convert a total over H steps from unit scale back to the user's units."""
        return total * self.span + H * self.low


@dataclass(frozen=True)
class Grid:
    """How to draw a model whose states are cells of a board. It is used for pictures only, never for solving."""

    rows: int
    columns: int
    cells: tuple[tuple[int, int], ...]  # (row, column) of every state
    marks: Mapping[int, str] = field(default_factory=dict)  # state index -> symbol, e.g. goal or obstacle
    arrows: tuple[str, ...] = ()  # symbol of every action

    def __post_init__(self) -> None:
        for s, (row, column) in enumerate(self.cells):
            if not (0 <= row < self.rows and 0 <= column < self.columns):
                raise CmdpkitError(
                    f"grid cell of state index {s} is {(row, column)}, outside {self.rows} x {self.columns}"
                )

    def check(self, S: int, A: int) -> None:
        """Raise CmdpkitError unless this grid fits a model with S states and A actions."""
        if len(self.cells) != S:
            raise CmdpkitError(f"grid has {len(self.cells)} cells, expected one per state: {S}")
        if len(self.arrows) not in (0, A):
            raise CmdpkitError(f"grid has {len(self.arrows)} arrows, expected one per action: {A}")
        for s in self.marks:
            if s not in range(S):
                raise CmdpkitError(f"grid marks state index {quoted(s)}, expected 0..{S - 1}")


class Compact(NamedTuple):
    """The arrays that compiled code reads.

    Each array has its own T, which is 1 if it does not depend on the step, and H otherwise: index it with h % T.
    """

    indptr: Any  # [T*S*A + 1], where each row of `Kernel` begins in the two arrays below
    successors: Any  # [nonzeros], possible next states
    prob: Any  # [nonzeros], their probabilities
    r: Any  # [T, S, A], reward
    g: Any  # [N, T, S, A], utilities
    allowed: Any  # [T, S, A], which actions exist
    mu: Any  # [S], start distribution


class CMDP:
    """A finite-horizon constrained MDP.

    Parameters
    ----------
    P : array [H, S, A, S] or [S, A, S], SciPy sparse matrix [S*A, S], sequence of H of those, or `Kernel`
    r : array [H, S, A] or [S, A], reward in any finite range
    g, rho : utilities [N, H, S, A] or [N, S, A] and thresholds [N], meaning W_n >= rho_n. With a single number as
        ``rho``, ``g`` has the shape of ``r``. With ``constraints`` given, ``g[n]`` is the n-th constraint's own signal.
    mu : index or name of the initial state, or a distribution [S], or a mapping from state to probability
    horizon : H, needed when nothing given depends on the step
    actions : bool [S, A] or [H, S, A], which actions exist; numbers given for other actions are ignored
    constraints : a list of `at_least` and `at_most` with names, bounds and, unless they are in ``g``, signal arrays
    states, action_names : names; by default 1, 2, 3, ...
    renormalise : divide every row of P, and mu, by its sum instead of refusing those that do not sum to 1
    grid : how to draw the states as cells of a board

    Rows of P must sum to 1 within 1e-9. Those of single precision may miss it by 1e-5: they are divided by their sum,
    with a `RoundingWarning` that is kept in ``notes``.

    >>> import numpy as np
    >>> P = np.full((2, 2, 2), 0.5)
    >>> cmdp = CMDP(P, r=[[1, 0], [1, 0]], g=[[0, 1], [0, 1]], rho=1.0, horizon=4)
    >>> cmdp
    CMDP(H=4, S=2, A=2, N=1: utility ≥ 1)
    """

    H: int
    S: int
    A: int
    N: int
    kernel: Kernel
    compact: Compact
    rho: FloatArray
    mu: FloatArray
    constraints: tuple[Constraint, ...]
    states: Sequence[Name]
    action_names: Sequence[Name]
    grid: Grid | None
    notes: tuple[str, ...]  # what had to be corrected in the input

    def __init__(
        self,
        P: Any,
        r: Any,
        g: Any = None,
        rho: Any = None,
        mu: Any = 0,
        *,
        horizon: int | None = None,
        actions: Any = None,
        constraints: Iterable[Constraint] | None = None,
        states: Iterable[Any] | None = None,
        action_names: Iterable[Any] | None = None,
        renormalise: bool = False,
        grid: Grid | None = None,
    ) -> None:
        r = table("r", r)
        S, A = r.shape[-2:]
        kernel, tolerance = read_transitions(P, S, A)
        constraints, signals = read_constraints(g, rho, constraints, r.shape)
        allowed = np.ones((1, S, A), dtype=bool) if actions is None else action_mask(actions, S, A)
        if horizon is None and not isinstance(P, Kernel) and np.ndim(P) == 4:
            horizon = len(P)
        steps = {f"g[{n}]": len(x) for n, x in enumerate(signals)}
        H = horizon_of(horizon, P=kernel.T, r=len(r), actions=len(allowed), **steps)
        vars(self).update(
            H=H,
            S=S,
            A=A,
            N=len(constraints),
            constraints=constraints,
            states=names_of("states", states, S),
            action_names=names_of("action_names", action_names, A),
            grid=grid,
        )
        if grid is not None:
            if not isinstance(grid, Grid):
                raise CmdpkitError(f"grid is {quoted(grid)}, expected a Grid")
            grid.check(S, A)
        if not allowed.any(axis=-1).all():
            h, s = (int(i) for i in np.argwhere(~allowed.any(axis=-1))[0])
            raise CmdpkitError(
                f"actions{self._place(h, s, None, len(allowed))} is empty: every state needs at least one action"
            )
        kernel = kernel.masked(allowed)
        kernel, correction = (kernel.renormalised(), 0.0) if renormalise else corrected_rows(kernel, tolerance)
        kernel.check(allowed, lambda t, s, a: self._place(t, s, a, kernel.T))
        r = read_signal("r", r, allowed, H, self._place)
        utilities = [
            c.sign * read_signal(f"signal of {quoted(c.name)} ", x, allowed, H, self._place)
            for c, x in zip(constraints, signals, strict=True)
        ]
        T = max((len(x) for x in utilities), default=1)
        stacked = np.zeros((len(utilities), T, S, A))
        for n, x in enumerate(utilities):
            stacked[n] = x
        mu, moved = read_start(mu, S, self.state_index, renormalise=renormalise)
        vars(self).update(kernel=kernel, mu=frozen(mu), notes=())
        self._set_arrays(frozen(r), frozen(stacked), frozen(allowed))
        report(self, max(correction, moved))

    def _set_arrays(self, r: FloatArray, g: FloatArray, allowed: BoolArray) -> None:
        kernel = self.kernel
        rho = np.array([c.sign * c.bound for c in self.constraints], dtype=float)
        compact = Compact(kernel.indptr, kernel.successors, kernel.prob, r, g, allowed, self.mu)
        vars(self).update(rho=frozen(rho), compact=compact)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a CMDP cannot be changed; {quoted(name)} stays as it is (see with_bounds and restrict)")

    # -- the arrays, written out -----------------------------------------------------------------------------

    @property
    def P(self) -> FloatArray:
        """Transition probabilities [H, S, A, S]; refused for models so large that they would not fit in memory."""
        return self.kernel.dense(self.H)

    @property
    def r(self) -> FloatArray:
        """Reward [H, S, A], in the user's units."""
        return np.broadcast_to(self.compact.r, (self.H, self.S, self.A))

    @property
    def g(self) -> FloatArray:
        """Utilities [N, H, S, A], in the user's units; the negative of an "at most" constraint's cost."""
        return np.broadcast_to(self.compact.g, (self.N, self.H, self.S, self.A))

    @property
    def actions(self) -> BoolArray:
        """Which actions exist, [H, S, A]."""
        return np.broadcast_to(self.compact.allowed, (self.H, self.S, self.A))

    @property
    def signs(self) -> FloatArray:
        """+1 for "at least" and -1 for "at most", [N]: utilities times signs are what the user counts."""
        return np.array([c.sign for c in self.constraints], dtype=float)

    @cached_property
    def reward_scale(self) -> Scale:
        """Map of the reward to [0, 1]; the identity where it already lies there."""
        return _scale(self.compact.r, self.compact.allowed)

    @cached_property
    def utility_scales(self) -> tuple[Scale, ...]:
        """Map of each utility to [0, 1]; the identity where it already lies there."""
        return tuple(_scale(x, self.compact.allowed) for x in self.compact.g)

    # -- variants --------------------------------------------------------------------------------------------

    def with_bounds(self, /, **bounds: float) -> CMDP:
        """The same problem with other bounds, by constraint name; `with_bounds(**{"a name": 3})` takes any name."""
        for name in bounds:
            self.constraint_index(name)
        changed = tuple(replace(c, bound=bounds.get(c.name, c.bound)) for c in self.constraints)
        return self.reformulated(constraints=changed)

    def restrict(self, actions: Any) -> CMDP:
        """The same problem with only those of its actions for which ``actions``, [S, A] or [H, S, A], is true."""
        allowed = action_mask(actions, self.S, self.A) & self.compact.allowed
        if len(allowed) not in (1, self.H):
            raise CmdpkitError(f"actions has {len(allowed)} steps, expected 1 or {self.H}")
        empty = np.argwhere(~allowed.any(axis=-1))
        if len(empty):
            h, s = (int(i) for i in empty[0])
            raise CmdpkitError(f"actions{self._place(h, s, None, len(allowed))} would be empty")
        return self.reformulated(allowed=allowed)

    def reformulated(
        self,
        *,
        r: FloatArray | None = None,
        g: FloatArray | None = None,
        constraints: tuple[Constraint, ...] | None = None,
        allowed: BoolArray | None = None,
    ) -> CMDP:
        """The same dynamics with other arrays, shaped as in `Compact`; they are shared, neither copied nor checked."""
        c = self.compact
        new = object.__new__(CMDP)
        vars(new).update({k: v for k, v in vars(self).items() if k not in ("reward_scale", "utility_scales")})
        constraints = self.constraints if constraints is None else constraints
        vars(new).update(constraints=constraints, N=len(constraints))
        new._set_arrays(
            c.r if r is None else frozen(r),
            c.g if g is None else frozen(g),
            c.allowed if allowed is None else frozen(allowed),
        )
        return new

    @classmethod
    def from_function(
        cls,
        *,
        start: Any,
        horizon: int,
        actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
        step: Callable[..., Any],
        reward: Callable[..., float],
        constraints: Iterable[Constraint] = (),
        states: Iterable[Hashable] | None = None,
        renormalise: bool = False,
        max_states: int = 1_000_000,
        grid: Grid | None = None,
    ) -> CMDP:
        """A CMDP from Python functions of the state and the action, in this order.

        A function may have further parameters, and their names decide what it is given: ``h`` (or ``step``, ``t``,
        ``time``) is the step, counted from 0, and ``s_next`` (or ``next_state``, ``s2``, ...) is the next state. A
        third parameter with any other name is refused.

        Parameters
        ----------
        start : the initial state, or a mapping from state to probability
        horizon : number of steps
        actions : a list of the actions, or a function that returns those that exist in a state
        step : function of (state, action) or (state, action, h) that returns the next states, best as a mapping
            {next state: probability}; a list [(probability, next state), ...] is taken where it cannot be misread
        reward : function of (state, action), (state, action, h), (state, action, s_next) or all four that returns the
            mean reward; with ``s_next``, the mean over the next states is taken
        constraints : `at_least` and `at_most`, each with a function like ``reward`` as its signal
        states : all states, in order; by default, those that can be reached within the horizon are found. States that
            are reached only after the last step are kept, with a self-loop that is never used.
        renormalise : divide probabilities by their sum instead of refusing those that do not sum to 1
        max_states : raise an error if more states than this can be reached
        grid : how to draw the states as cells of a board

        >>> from cmdpkit import at_most
        >>> cmdp = CMDP.from_function(
        ...     start=0, horizon=20, actions=["serve", "rest"],
        ...     step=lambda s, a: {max(s - 1, 0): 1.0} if a == "serve" else {min(s + 1, 4): 0.7, max(s - 1, 0): 0.3},
        ...     reward=lambda s, a, s_next: float(s_next == 0),
        ...     constraints=[at_most("backlog", 30.0, lambda s, a: float(s))],
        ... )
        >>> cmdp
        CMDP(H=20, S=5, A=2, N=1: backlog ≤ 30)
        >>> cmdp.states, cmdp.r[0, 1].tolist()
        ((0, 1, 2, 3, 4), [1.0, 0.3])
        """
        from cmdpkit.model.from_functions import Description, build

        return build(
            Description(start, horizon, actions, step, reward, constraints, states, renormalise, max_states, grid)
        )

    def to_gym(self, noise: Literal["none", "bernoulli"] = "none") -> CMDPEnv:
        """This problem as a Gymnasium environment; see `cmdpkit.gym.to_gym`."""
        from cmdpkit.running.gym import to_gym

        return to_gym(self, noise)

    # -- for people and for records --------------------------------------------------------------------------

    def __repr__(self) -> str:
        bounds = ": " + ", ".join(str(c) for c in self.constraints) if self.constraints else ""
        return f"CMDP(H={self.H}, S={self.S}, A={self.A}, N={self.N}{bounds})"

    def fingerprint(self) -> str:
        """SHA-256 of everything that defines the problem, names included.

        The grid, numbers given for actions that do not exist, and the sign of a zero do not count.
        """
        digest = hashlib.sha256(repr((self.H, self.kernel.shape, self.constraints)).encode())
        for names in (self.states, self.action_names):
            digest.update(repr(names if isinstance(names, range) else tuple(names)).encode())
        c, rows = self.compact, self.kernel.masked(self.compact.allowed)
        signals = [masked(x, c.allowed) for x in (c.r, *c.g)]
        for x in (rows.indptr, rows.successors, rows.prob, *signals, c.allowed, c.mu + 0.0):
            digest.update(repr((x.shape, x.dtype.str)).encode() + np.ascontiguousarray(x).tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CMDP) and self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def state_index(self, name: Any) -> int:
        """Index of a state by its name."""
        return index_of("state", self.states, name)

    def action_index(self, name: Any) -> int:
        """Index of an action by its name."""
        return index_of("action", self.action_names, name)

    def constraint_index(self, name: str) -> int:
        """Index of a constraint by its name."""
        return index_of("constraint", [c.name for c in self.constraints], name)

    def _place(self, h: int, s: int, a: int | None, steps: int) -> str:
        """A place in an array for a message, with names if the user gave any; stationary arrays have no step."""
        parts = [f"h={h}"] * (steps > 1) + [f"s={s}"] + [f"a={a}"] * (a is not None)
        named = [] if isinstance(self.states, range) else [f"state {quoted(self.states[s])}"]
        if a is not None and not isinstance(self.action_names, range):
            named.append(f"action {quoted(self.action_names[a])}")
        return f"[{', '.join(parts)}]" + (f" ({', '.join(named)})" if named else "")


def _scale(x: FloatArray, allowed: BoolArray) -> Scale:
    shape = np.broadcast_shapes(x.shape, allowed.shape)
    values = np.broadcast_to(x, shape)[np.broadcast_to(allowed, shape)]
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        return Scale(0.0, 1.0)
    return Scale(low, high - low if high > low else 1.0)
