"""The constrained Markov decision process: what can be decided, what is earned, and what must stay within bounds.

Maximise E[sum_h r] subject to E[sum_h g_n] >= rho_n for n = 1..N over H steps, or the same for discounted totals,
long-run averages or totals until absorption (see `Criterion`). A `Constraint` keeps the user's words
(name, at least or at most, bound); inside, an "at most" cost is the utility -cost with threshold -bound, so that every
algorithm sees one form only. Arrays are copied in, checked, and read-only from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model import showing
from cmdpkit.model.compiled import readonly
from cmdpkit.model.constraints import Constraint, Criterion, criterion_of, read_constraints, scale_of, signal_names
from cmdpkit.model.constraints import Scale as Scale
from cmdpkit.model.outcomes import Outcomes, exactly_known
from cmdpkit.model.showing import Grid as Grid
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import BoolArray, Compact, FloatArray, Kernel, Rows, Signals
from cmdpkit.model.validate import (
    Name,
    Positions,
    Renamed,
    action_mask,
    corrected_rows,
    frozen,
    index_of,
    masked,
    names_of,
    read_signal,
    read_start,
    read_transitions,
    report_correction,
    table,
    written_name,
)

if TYPE_CHECKING:
    import gymnasium


class CMDP(Shown):
    """A constrained MDP over H steps, discounted, on long-run average, or until absorption.

    Parameters
    ----------
    P : array [H, S, A, S] or [S, A, S]; or a list of SciPy sparse matrices [S, S], one for each action; or a `Kernel`,
        which `Kernel.from_entries` makes of one entry per transition; or `Outcomes`, which hold reward and signals too,
        in place of ``r`` and ``g``
    r : array [H, S, A] or [S, A], mean reward in any finite range
    g, rho : utilities [N, H, S, A] or [N, S, A] and thresholds [N], meaning W_n >= rho_n. With a single number as
        ``rho``, ``g`` has the shape of ``r``. With ``constraints`` given, ``g[n]`` is the n-th constraint's own signal.
    mu : the initial state by its name, or by its index; a distribution [S]; or a mapping from state to probability; by
        default the first state. A name that is a whole number or a tuple could be an index or a distribution, and is
        refused; ``mu={state: 1.0}`` is always clear
    horizon : H, needed when nothing given depends on the step and there is no discount or criterion
    discount : a number between 0 and 1 instead of a horizon: values are sums of discount**t times the signal of step t
    criterion : "average" (long-run mean per step) or "total" (until absorption) instead of a horizon
    actions : bool [S, A] or [H, S, A], which actions exist; everything stored at the others is ignored
    constraints : `at_least` / `at_most` with names and bounds, carrying their signal arrays unless ``g`` does
    states, action_names : names; by default they count from 1
    exact : whether ``r`` and the signals are the exact signals of a step, and not only their means: True, or the names
        of those that are ("reward", or a constraint's name); the totals of single episodes are then known
    renormalise : divide every row of P, and mu, by its sum instead of refusing what does not sum to 1

    Rows of P must sum to 1 within 1e-9. Those of single precision may miss it by 1e-5: they are divided by their sum,
    with a `RoundingWarning` that is kept in ``notes``.

    >>> import numpy as np
    >>> P = np.full((2, 2, 2), 0.5)
    >>> cmdp = CMDP(P, r=[[1, 0], [1, 0]], g=[[0, 1], [0, 1]], rho=1.0, horizon=4)
    >>> cmdp
    CMDP(H=4, S=2, A=2, N=1: utility ≥ 1)
    """

    criterion: Criterion  # what a policy is judged by
    S: int  # number of states
    A: int  # number of actions
    N: int  # number of constraints
    kernel: Kernel  # the transitions
    compact: Compact  # reward, utilities, actions and start, as they are stored
    signals: Signals  # reward and utilities, in the form that the operators read
    rho: FloatArray  # [N], thresholds of the utilities
    mu: FloatArray  # [S], start distribution
    constraints: tuple[Constraint, ...]  # [N], in the user's words
    states: Sequence[Name]  # [S], names
    action_names: Sequence[Name]  # [A], names
    grid: Grid | None  # how to draw the states, if they are cells of a board
    notes: tuple[str, ...]  # what had to be corrected in the input
    outcomes: Outcomes | None  # what single steps bring, where a signal varies between outcomes of one action
    exact: tuple[str, ...]  # names of the signals of which single episodes are known, and not only means

    steps = Renamed("n_steps")

    def __init__(
        self,
        P: Any,
        r: Any = None,
        g: Any = None,
        rho: Any = None,
        mu: Any = None,
        *,
        horizon: int | None = None,
        discount: float | None = None,
        criterion: str | None = None,
        actions: Any = None,
        constraints: Iterable[Constraint] | None = None,
        states: Iterable[Any] | None = None,
        action_names: Iterable[Any] | None = None,
        exact: bool | Iterable[str] = False,
        renormalise: bool = False,
        grid: Grid | None = None,
    ) -> None:
        outcomes = P if isinstance(P, Outcomes) else None
        if (r is None) != (outcomes is not None) or (outcomes is not None and g is not None):
            raise CmdpkitError("r is missing" if r is None else "r and g are given beside outcomes, which hold both")
        if outcomes is not None:
            P, (r, *g) = outcomes.kernel(), outcomes.means()
            g = g or None
        r = table("r", r)
        S, A = r.shape[-2:]
        kernel, tolerance = read_transitions(P, S, A)
        constraints, signals = read_constraints(g, rho, constraints, r.shape)
        allowed = np.ones((1, S, A), dtype=bool) if actions is None else action_mask(actions, S, A)
        lengths = {"P": kernel.T, "r": len(r), "actions": len(allowed), "outcomes": outcomes.T if outcomes else 1}
        lengths |= {f"g[{n}]": len(x) for n, x in enumerate(signals)}
        if not isinstance(P, Kernel) and np.ndim(P) == 4 and {horizon, discount, criterion} == {None}:
            horizon = len(P)
        judged = criterion_of(horizon, discount, criterion, lengths)
        ends: Any = [[x, x] for x in (r, *signals)]
        if outcomes is not None:
            outcomes = outcomes.masked(allowed)
            kernel, (r, *signals) = outcomes.kernel(), outcomes.means()
            ends = np.stack(outcomes.extremes(), axis=1)
        constraints = tuple(
            c.over(judged.steps_in_value).without_range(x, allowed) for c, x in zip(constraints, ends[1:], strict=True)
        )
        vars(self).update(
            criterion=judged,
            S=S,
            A=A,
            N=len(constraints),
            constraints=constraints,
            states=names_of("states", states, S),
            action_names=names_of("action_names", action_names, A),
            grid=grid,
        )
        known = {*exactly_known(exact, self.signal_names)}
        if outcomes is not None:
            varying = outcomes.varying()
            known |= {name for name, x in zip(self.signal_names, varying, strict=True) if x}
            outcomes = outcomes.corrected() if varying.any() else None
        vars(self).update(outcomes=outcomes, exact=tuple(x for x in self.signal_names if x in known))
        if grid is not None:
            if not isinstance(grid, Grid):
                raise CmdpkitError(f"grid is {quoted(grid)}, expected a Grid")
            grid.check(S, A)
        self._refuse_empty(allowed, "is empty: every state needs at least one action")
        kernel = kernel.masked(allowed)
        kernel, correction = (kernel.renormalised(), 0.0) if renormalise else corrected_rows(kernel, tolerance)
        kernel.check(allowed, lambda t, s, a: self._place(t, s, a, kernel.T))
        steps = judged.steps_in_value or S
        called = ["r", *(f"signal of {quoted(c.name)} " for c in constraints)]
        for what, (low, high) in zip(called, ends if outcomes else (), strict=outcomes is not None):
            read_signal(what, np.where(np.abs(low) > np.abs(high), low, high), allowed, steps, self._place)
        r, *signals = (read_signal(*y, allowed, steps, self._place) for y in zip(called, (r, *signals), strict=True))
        stacked = np.zeros((len(signals), max(map(len, signals), default=1), S, A))
        for utility, c, x in zip(stacked, constraints, signals, strict=True):
            utility[...] = c.sign * x
        mu, moved = read_start(mu, self.states, self.state_index, renormalise=renormalise)
        vars(self).update(kernel=kernel, mu=frozen(mu), notes=())
        self._set_arrays(frozen(r), frozen(stacked), frozen(allowed))
        report_correction(self, max(correction, moved))

    def _set_arrays(self, r: FloatArray, g: FloatArray, allowed: BoolArray) -> None:
        for c, x in zip(self.constraints, g, strict=True):
            c.check_size(x, self.criterion.steps_in_value or self.S)
        rho = np.array([c.sign * c.bound_on_total for c in self.constraints], dtype=float)
        compact, signals = Compact(r, g, allowed, self.mu), Signals(readonly(r), readonly(g))
        vars(self).update(rho=frozen(rho), compact=compact, signals=signals)

    def _refuse_empty(self, allowed: BoolArray, what: str) -> None:
        """Refuse actions [1 or H, S, A] that leave a state without any; ``what`` ends the message."""
        empty = np.argwhere(~allowed.any(axis=-1))
        if len(empty):
            h, s = (int(i) for i in empty[0])
            raise CmdpkitError(f"actions{self._place(h, s, None, len(allowed))} {what}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a CMDP cannot be changed; {quoted(name)} stays as it is (see with_bounds and restrict)")

    @property
    def H(self) -> int:
        """The horizon; models without one have no such attribute."""
        if self.criterion.horizon is None:
            raise AttributeError(f"this model has no horizon: its criterion is {self.criterion.kind}")
        return self.criterion.horizon

    def need_horizon(self, purpose: str) -> None:
        """Raise a CmdpkitError unless the model has a horizon; `purpose` says what needs one."""
        if not self.criterion.has_horizon:
            raise CmdpkitError(
                f"{purpose} needs a horizon, but the model is judged by {self.criterion.in_words}; with bounds per "
                "step, cmdp.with_criterion(horizon=...) is the same model over so many steps"
            )

    @property
    def n_steps(self) -> int:
        """Length of the step axis of the arrays: H, or 1 where there is no horizon."""
        return self.criterion.horizon or 1

    @property
    def signal_names(self) -> list[str]:
        """What signals are called: "reward", and the names of the constraints."""
        return signal_names(self.constraints)

    @property
    def of_means(self) -> tuple[str, ...]:
        """Signals known by their means alone, so that totals of single episodes vary by more than the model knows."""
        return tuple(name for name in self.signal_names if name not in self.exact)

    # -- the arrays, written out -----------------------------------------------------------------------------

    @property
    def P(self) -> FloatArray:
        """Transition probabilities [H, S, A, S]; refused where that would not fit in memory."""
        return self.kernel.dense(self.n_steps)

    @property
    def r(self) -> FloatArray:
        """Reward [H, S, A], in the user's units."""
        return np.broadcast_to(self.compact.r, (self.n_steps, self.S, self.A))

    @property
    def g(self) -> FloatArray:
        """Utilities [N, H, S, A], in the user's units; the negative of an "at most" constraint's cost."""
        return np.broadcast_to(self.compact.g, (self.N, self.n_steps, self.S, self.A))

    @property
    def actions(self) -> BoolArray:
        """Which actions exist, [H, S, A]."""
        return np.broadcast_to(self.compact.allowed, (self.n_steps, self.S, self.A))

    @property
    def signs(self) -> FloatArray:
        """+1 for "at least" and -1 for "at most", [N]: utilities times signs are what the user counts."""
        return np.array([c.sign for c in self.constraints], dtype=float)

    @property
    def bound_scales(self) -> FloatArray:
        """How many units of the total one unit of each bound is, [N]: the steps of a bound per step, otherwise 1."""
        return np.array([c.scale for c in self.constraints], dtype=float)

    @cached_property
    def rows(self) -> Rows:
        """The transition rows, in the form that the operators read."""
        return Rows.of(*self.kernel.arrays, self.S, self.A)

    @cached_property
    def reward_scale(self) -> Scale:
        """Map of the reward to [0, 1]; the identity where it already lies there."""
        return self._scale(0, self.compact.r)

    @cached_property
    def utility_scales(self) -> tuple[Scale, ...]:
        """Map of each utility to [0, 1]; the identity where it already lies there."""
        return tuple(self._scale(n, x) for n, x in enumerate(self.compact.g, 1))

    def _scale(self, n: int, means: FloatArray) -> Scale:
        """The scale of the n-th signal, whose means are given: of everything that a step may bring."""
        sign = 1 if n == 0 else self.constraints[n - 1].sign
        ends = (means,) if self.outcomes is None else [sign * x[n] for x in self.outcomes.extremes()]
        return scale_of(self.compact.allowed, *ends)

    # -- variants --------------------------------------------------------------------------------------------

    def with_bounds(self, /, **bounds: float) -> CMDP:
        """The same problem with other bounds, by constraint name (`with_bounds(**{"a name": 3})` for any name).

        A bound is changed in the unit in which it was given: per step if the constraint is per step, and otherwise on
        the value by the model's criterion (a total, a discounted total, an average).

        >>> cost = Constraint("cost", "at_most", 0.5, [[1.0]], per_step=True)
        >>> CMDP([[[1.0]]], [[2.0]], constraints=[cost], horizon=10).with_bounds(cost=0.3)
        CMDP(H=10, S=1, A=1, N=1: cost ≤ 0.3 per step)
        """
        for name in bounds:
            self.constraint_index(name)
        changed = tuple(replace(c, bound=bounds[c.name]) if c.name in bounds else c for c in self.constraints)
        return self.reformulated(constraints=changed)

    def with_totals(self, totals: Mapping[str, float]) -> CMDP:
        """The same problem with other bounds on the values by its criterion, also where bounds are per step."""
        scales = {c.name: c.scale for c in self.constraints}
        return self.with_bounds(**{name: float(x) / scales.get(name, 1.0) for name, x in totals.items()})

    def with_criterion(
        self, *, horizon: int | None = None, discount: float | None = None, criterion: str | None = None
    ) -> CMDP:
        """The same model judged by another criterion; all bounds must have been given per step.

        >>> cmdp = CMDP([[[1.0]]], [[2.0]], constraints=[Constraint("cost", "at_most", 3, [[1.0]], True)], horizon=4)
        >>> cmdp.with_criterion(discount=0.5)
        CMDP(discount=0.5, S=1, A=1, N=1: cost ≤ 3 per step)
        """
        for c in self.constraints:
            if not c.per_step:
                raise CmdpkitError(
                    f"the bound of {quoted(c.name)} is on the whole value under the present criterion, which would "
                    "mean something else under another one; give the bound per step, with per_step=True"
                )
        arrays = self.compact
        signals = [c.sign * x for c, x in zip(self.constraints, arrays.g, strict=True)]
        made = CMDP(
            **({"P": self.kernel, "r": arrays.r, "g": signals} if self.outcomes is None else {"P": self.outcomes}),
            mu=self.mu,
            horizon=horizon,
            discount=discount,
            criterion=criterion,
            actions=arrays.allowed,
            constraints=self.constraints,
            states=self.states,
            action_names=self.action_names,
            exact=self.exact,
            grid=self.grid,
        )
        vars(made).update(notes=self.notes)
        return made

    def restrict(self, actions: Any) -> CMDP:
        """The same problem with only those of its actions for which ``actions``, [S, A] or [H, S, A], is true."""
        allowed = action_mask(actions, self.S, self.A) & self.compact.allowed
        if len(allowed) not in (1, self.n_steps):
            expected = f"1 or {self.n_steps}" if self.criterion.has_horizon else "1"
            raise CmdpkitError(f"actions has {len(allowed)} steps, expected {expected}")
        self._refuse_empty(allowed, "would be empty")
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
        if r is not None or g is not None:
            vars(new).update(outcomes=None, exact=())
        new._set_arrays(
            c.r if r is None else readonly(np.asarray(r, dtype=float)),
            c.g if g is None else readonly(np.asarray(g, dtype=float)),
            c.allowed if allowed is None else readonly(np.asarray(allowed, dtype=bool)),
        )
        return new

    @classmethod
    def from_function(
        cls,
        *,
        start: Any,
        horizon: int | None = None,
        discount: float | None = None,
        criterion: str | None = None,
        actions: Iterable[Hashable] | Callable[..., Iterable[Hashable]],
        step: Callable[..., Any] | None = None,
        reward: Callable[..., float] | None = None,
        outcome: Callable[..., Any] | None = None,
        constraints: Iterable[Constraint] = (),
        states: Iterable[Hashable] | None = None,
        exact: bool | Iterable[str] = False,
        renormalise: bool = False,
        max_states: int = 1_000_000,
        grid: Grid | None = None,
    ) -> CMDP:
        """A CMDP from Python functions of the state and the action, in this order.

        A function may have further parameters, and their names decide what it is given: ``h`` (or ``step``) is the
        step, counted from 0, and ``s_next`` (or ``next_state``) is the next state. A
        third parameter with any other name is refused.

        Parameters
        ----------
        start : the initial state, or a mapping from state to probability
        horizon : number of steps; exactly one of horizon, discount and criterion is given
        discount : a number between 0 and 1 in place of the horizon, as for `CMDP`; no function may take h then
        criterion : "average" or "total" in place of the horizon, likewise
        actions : the actions, or a function from a state to those that exist; `restrict` leaves some out at some steps
        step : function of (state, action) or (state, action, h) that returns the next states, best as a mapping
            {next state: probability}; a list [(probability, next state), ...] is taken where it cannot be misread
        reward : function of (state, action), (state, action, h), (state, action, s_next) or all four that returns the
            reward, or its mean for what it is given; with ``s_next``, the rewards of all next states are kept
        outcome : in place of step, reward and the constraints' functions, for rewards and signals that vary without the
            state: function of (state, action) or (state, action, h) that returns all outcomes of a step, as a
            list [(probability, next state, reward, {constraint: signal}), ...]
        constraints : `at_least` and `at_most`, each with a function like ``reward`` as its signal
        states : all states, in order; without it, those that can be reached (within the horizon, if there is one) are
            explored. States met only after the last step are kept, with a self-loop that is never used.
        exact : True if functions of state and action return exact signals, and not only their means, or the names of
            those that do ("reward", or a constraint's name). What takes ``s_next``, and ``outcome``, is exact anyway
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

        judged = {"horizon": horizon, "discount": discount, "criterion": criterion}
        given = (step, reward, outcome, constraints, states, exact, renormalise, max_states)
        return build(Description(start, judged, actions, *given, grid))

    # -- for people and for records --------------------------------------------------------------------------

    def __repr__(self) -> str:
        bounds = ": " + ", ".join(str(c) for c in self.constraints) if self.constraints else ""
        return f"CMDP({self.criterion}, S={self.S}, A={self.A}, N={self.N}{bounds})"

    def fingerprint(self) -> str:
        """SHA-256 of the problem and its names, without the grid, numbers of missing actions, and signs of zeros."""
        judged: Any = self.H if self.criterion.has_horizon else self.criterion
        bounds = tuple(replace(c, bound=c.bound_on_total, per_step=False) for c in self.constraints)
        digest = hashlib.sha256(repr((judged, self.kernel.shape, bounds)).encode())
        if any(c.per_step for c in self.constraints):
            digest.update(repr([c.per_step for c in self.constraints]).encode())
        for names in (self.states, self.action_names):
            digest.update(repr(names if isinstance(names, range) else tuple(map(written_name, names))).encode())
        c, rows = self.compact, self.kernel.masked(self.compact.allowed)
        signals = [masked(x, c.allowed) for x in (c.r, *c.g)]
        arrays: list[NDArray[Any]] = [*rows.arrays, *signals, c.allowed, c.mu + 0.0]
        if self.outcomes is not None:
            drawn = self.outcomes.masked(c.allowed)
            arrays += [*drawn.entries.arrays, drawn.signals]
        for x in arrays:
            digest.update(repr((x.shape, x.dtype.str)).encode())
            digest.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CMDP) and self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    @cached_property
    def _state(self) -> Positions:
        return Positions("state", self.states)

    def state_index(self, name: Any) -> int:
        """Index of a state by its name."""
        return self._state(name)

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

    def to_gym(
        self, noise: Literal["none", "bernoulli"] = "none", *, observe_step: bool = False
    ) -> gymnasium.Env[Any, Any]:
        """This problem as a Gymnasium environment; see `cmdpkit.gym.CMDPEnv`."""
        return showing.to_gym(self, noise, observe_step=observe_step)
