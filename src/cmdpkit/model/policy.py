"""Markov policies: at step h in state s, action a has probability pi[h, s, a].

Where there is no horizon, a policy is stationary: it has one decision per state, pi[0, s, a], and no steps.

What a policy is worth is computed in `evaluate`; a draw among several policies is a `Mixture`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import Decisions, all_rows, draw, drawn_places, of_rows, of_table, rows_at, same, table_at
from cmdpkit.model.decisions import one_hot as one_hot
from cmdpkit.model.fits import check_fits, in_order
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE, ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Name, Positions, frozen, is_int, names_of, numbers, written_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = 1 << 20  # entries up to which the table pi is kept once it was asked for


class Decision(NamedTuple):
    """A state at a step where a policy gives several actions a positive probability."""

    step: int | None  # counts from 1; None if the policy is stationary
    state: Name  # what the state is called
    probabilities: Mapping[Name, float]  # by the name of the action


class MadeFor(NamedTuple):
    """The model that a policy was made for, as files name it."""

    fingerprint: str  # that of the model, its bounds included
    criterion: str  # such as "H=6" or "discount=0.95"
    bounds: tuple[str, ...]  # such as "cost ≤ 0.5"


class Policy(Shown):
    """A Markov policy, checked and never changed.

    It is stored as one action for each step and state, and the few stochastic decisions (`choice` and `rows`);
    `pi` writes it out as a table of probabilities.

    Parameters
    ----------
    pi : array [H, S, A]; every pi[h, s] is a distribution over the actions
    states, action_names : names; by default 1, 2, 3, ...
    is_stationary : whether pi [1, S, A] has one decision per state, for as long as it takes

    >>> Policy.deterministic([[0, 1], [1, 1]], A=2).pi.tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    """

    states: Sequence[Name]  # [S], names
    action_names: Sequence[Name]  # [A], names
    is_stationary: bool  # whether it has one decision per state, for as long as it takes
    decisions: Decisions  # the form that compiled code reads
    shape: tuple[int, int, int]  # (H, S, A), with H = 1 if stationary
    made_for: MadeFor | None = None  # the model that it was made for, where that is known

    def __init__(
        self, pi: ArrayLike, states: Sequence[Name] = (), action_names: Sequence[Name] = (), is_stationary: bool = False
    ) -> None:
        table = numbers("pi", pi, copy=False)
        if table.ndim != 3 or 0 in table.shape:
            raise CmdpkitError(f"pi has shape {table.shape}, expected (H, S, A)")
        self._set(of_table(table), len(table), states, action_names, is_stationary)

    def _set(
        self, decisions: Decisions, H: int, states: Sequence[Name], actions: Sequence[Name], is_stationary: bool
    ) -> None:
        if is_stationary and H != 1:
            raise CmdpkitError(f"pi has {H} steps, expected one decision per state: the policy is stationary")
        S, A = decisions.choice.shape[1], decisions.p.shape[1]
        names = (None if isinstance(x, tuple | list) and not x else x for x in (states, actions))
        vars(self).update(
            states=names_of("states", next(names), S),
            action_names=names_of("action_names", next(names), A),
            is_stationary=bool(is_stationary),
            decisions=decisions,
            shape=(H, S, A),
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Policy cannot be changed; {quoted(name)} stays as it is")

    # -- ways to make one ------------------------------------------------------------------------------------

    @classmethod
    def of(cls, cmdp: CMDP, rule: Any) -> Policy:
        """A policy for a model, from a function, mapping or array, with the names and actions of the model.

        Parameters
        ----------
        cmdp : the model
        rule : probabilities [H, S, A] or [S, A]; a mapping {state: action}; a function of the state, or of the state
            and ``h`` (or ``step``), which is the step, counted from 0; or a policy, whose states and actions may stand
            in another order, and which may have more states than the model. `read_policy` reads a file.
            In mappings and functions an action is its name, or {action: probability}. Indices of actions are made
            probabilities by ``np.eye(A)[indices]``.

        What does not depend on the step holds at every step. Where a state has only one action, a mapping may leave it
        out, and a function is not asked.

        >>> import cmdpkit as ck
        >>> P = np.full((3, 2, 3), 1 / 3)
        >>> cmdp = ck.CMDP(P, np.zeros((3, 2)), horizon=9, action_names=["buy", "wait"])
        >>> Policy.of(cmdp, lambda s: "buy" if s > 1 else {"buy": 0.5, "wait": 0.5})
        Policy(H=9, S=3, A=2, stochastic decisions: 9)
        >>> Policy.of(cmdp, {1: "wait", 2: "buy", 3: "buy"}) == Policy.of(cmdp, np.eye(2)[[1, 0, 0]])
        True
        """
        if isinstance(rule, Policy):
            repeats = rule.is_stationary and cmdp.criterion.has_horizon
            policy = rule.repeated(cmdp.H) if repeats else rule
            ordered = in_order(cmdp, policy)
            if ordered is policy.decisions:
                check_fits(cmdp, policy)
                return policy._with(states=cmdp.states, action_names=cmdp.action_names)
            return cls.fitting(cmdp, ordered, policy.shape[0])
        from cmdpkit.model.fits import decisions_of

        return cls.fitting(cmdp, *decisions_of(cmdp, rule))

    @classmethod
    def of_choices(
        cls,
        choice: ArrayLike,
        rows: tuple[ArrayLike, ArrayLike],
        states: Sequence[Name] = (),
        action_names: Sequence[Name] = (),
        is_stationary: bool = False,
    ) -> Policy:
        """A policy that is deterministic nearly everywhere, in the memory that such a policy needs.

        Parameters
        ----------
        choice : array [H, S] of action indices
        rows : where the policy randomises: an array [m, 2] with step and state, from 0, and their probabilities
            [m, A]. For a policy that never randomises, the second has the shape (0, A).

        >>> policy = Policy.of_choices([[0, 1], [1, 1]], ([[0, 1]], [[0.25, 0.75]]))
        >>> policy.pi.tolist()
        [[[1.0, 0.0], [0.25, 0.75]], [[0.0, 1.0], [0.0, 1.0]]]
        """
        chosen, p = np.asarray(choice), np.atleast_2d(numbers("rows", rows[1], copy=False))
        where = np.asarray(rows[0]).reshape(-1, 2)
        if chosen.ndim != 2 or 0 in chosen.shape or chosen.dtype.kind not in "iu":
            raise CmdpkitError(f"choice is {chosen.dtype} of shape {chosen.shape}, expected action indices (H, S)")
        if p.ndim != 2 or len(p) != len(where) or (len(where) and where.dtype.kind not in "iu"):
            raise CmdpkitError(
                f"rows are {where.dtype} of shape {where.shape} and numbers of shape {p.shape}, expected whole numbers "
                "(m, 2) and probabilities (m, A)"
            )
        made = object.__new__(cls)
        made._set(of_rows(chosen, where.astype(np.int64), p), len(chosen), states, action_names, is_stationary)
        return made

    @classmethod
    def fitting(cls, cmdp: CMDP, decisions: Decisions, H: int) -> Policy:
        """Decisions for H steps as a policy of a model, whose names they get; refused unless they fit."""
        made = object.__new__(cls)
        stationary = not cmdp.criterion.has_horizon
        made._set(decisions, H, (), (), stationary)
        check_fits(cmdp, made)
        vars(made).update(states=cmdp.states, action_names=cmdp.action_names)
        return made

    @classmethod
    def stationary(cls, pi: ArrayLike, states: Sequence[Name] = (), action_names: Sequence[Name] = ()) -> Policy:
        """The stationary policy pi[s, a].

        >>> Policy.stationary([[0.25, 0.75]]).probabilities(state=1)
        {1: 0.25, 2: 0.75}
        """
        table = numbers("pi", pi, copy=False)
        if table.ndim != 2:
            raise CmdpkitError(f"pi has shape {table.shape}, expected (S, A)")
        return cls(table[None], states, action_names, True)

    def repeated(self, H: int) -> Policy:
        """A stationary policy as one for H steps that decides the same at each of them; it takes no more memory."""
        if not self.is_stationary:
            raise CmdpkitError(f"this policy is for {self.horizon} steps, expected a stationary one")
        if not is_int(H) or H < 1:
            raise CmdpkitError(f"H is {quoted(H)}, expected a whole number of steps, at least 1")
        return self._with(is_stationary=False, shape=(int(H), *self.shape[1:]))

    def with_model(self, cmdp: CMDP) -> Policy:
        """The same policy, with a record in `made_for`, and in its files, of the model it was made for."""
        check_fits(cmdp, self)
        bounds = tuple(str(c) for c in cmdp.constraints)
        return self._with(made_for=MadeFor(cmdp.fingerprint(), str(cmdp.criterion), bounds))

    def _with(self, **changed: Any) -> Policy:
        made = object.__new__(Policy)
        vars(made).update({key: x for key, x in vars(self).items() if key != "_pi"}, **changed)
        return made

    @classmethod
    def deterministic(cls, choice: ArrayLike, A: int) -> Policy:
        """The policy that takes the action with index choice[h, s], of A actions."""
        return cls.of_choices(choice, ([], np.zeros((0, A))))

    @classmethod
    def uniform(cls, cmdp: CMDP) -> Policy:
        """Every action that exists, equally likely."""
        allowed = cmdp.compact.allowed.astype(float)
        return cls.fitting(cmdp, of_table(allowed / allowed.sum(axis=-1, keepdims=True)), cmdp.n_steps)

    # -- what it decides -------------------------------------------------------------------------------------

    @property
    def pi(self) -> FloatArray:
        """The probabilities [H, S, A], written out and read-only; of a large policy they are made again every time."""
        return self._pi if np.prod(self.shape, dtype=float) <= KEPT else self._written_out()

    @cached_property
    def _pi(self) -> FloatArray:
        return self._written_out()

    def _written_out(self) -> FloatArray:
        T = len(self.decisions.choice)
        table = np.stack([table_at(self.decisions, h) for h in range(T)])
        written: FloatArray = frozen(table if len(table) == self.shape[0] else np.broadcast_to(table, self.shape))
        return written

    @property
    def choice(self) -> NDArray[Any]:
        """The index of the action taken, [H, S]; the likeliest one where the policy randomises."""
        return np.broadcast_to(self.decisions.choice, self.shape[:2])

    @property
    def rows(self) -> tuple[IntArray, FloatArray]:
        """Where the policy randomises, [m, 2] with step and state from 0, and with which probabilities, [m, A]."""
        h, s, p = all_rows(self.decisions, self.shape[0])
        return np.stack((h, s), axis=1).astype(np.int64), p

    @property
    def horizon(self) -> int:
        """How many steps the policy covers; stationary policies have no such attribute."""
        if self.is_stationary:
            raise AttributeError("this policy has no horizon: it is stationary")
        return self.shape[0]

    def table(self, h: int) -> FloatArray:
        """The probabilities [S, A] at one step, which counts from 0."""
        return table_at(self.decisions, h)

    def row(self, h: int, s: int) -> FloatArray:
        """The probabilities [A] at one step in one state, both from 0."""
        states, p = rows_at(self.decisions, h)
        i = int(np.searchsorted(states, s))
        if i < len(states) and states[i] == s:
            drawn: FloatArray = p[i]
            return drawn
        sure: FloatArray = np.zeros(self.shape[2])
        sure[self.decisions.choice[h % len(self.decisions.choice), s]] = 1.0
        return sure

    def probabilities(self, step: int | None = None, state: Name = "") -> dict[Name, float]:
        """Actions with a positive probability at ``step`` (from 1) in a state, by name; no step if stationary."""
        row = self.row(int(self._positions(step)), self._state(state))
        return {self.action_names[int(a)]: float(row[a]) for a in np.flatnonzero(row)}

    @cached_property
    def _state(self) -> Positions:
        return Positions("state", self.states)

    def act(self, step: int | None = None, state: Name = "", rng: np.random.Generator | None = None) -> Name:
        """The action at ``step`` (from 1) in a state, by name; a stationary policy takes no step.

        ``rng`` is needed only where the policy randomises, and no random number is taken elsewhere.

        >>> Policy.of_choices([[0, 1]], ([], np.zeros((0, 2))), ("low", "high"), ("wait", "order")).act(1, "high")
        'order'
        """
        action: Name = self.act_many(step, [state], rng).tolist()[0]
        return action

    def act_many(
        self, steps: ArrayLike | None = None, states: Any = (), rng: np.random.Generator | None = None
    ) -> NDArray[Any]:
        """Draw actions for many steps (from 1) and states at once, by name, as an array.

        ``steps`` is one step for all or one for each state; a stationary policy takes ``states`` alone. ``rng`` is
        needed only if the policy randomises in one of them.

        >>> policy = Policy.of_choices([[0, 1]], ([], np.zeros((0, 2))), ("low", "high"), ("wait", "order"))
        >>> policy.act_many(1, ["high", "low", "high"], np.random.default_rng(0)).tolist()
        ['order', 'wait', 'order']
        """
        s = self._state.many(states)
        h = self._positions(steps)
        if h.shape not in ((), s.shape):
            raise CmdpkitError(
                f"there are {h.size} steps for {len(s)} states, expected one step, or one for each state"
            )
        h = np.broadcast_to(h, s.shape)
        drawn = draw(self.decisions, self._drawn_places, h, s, rng)
        if len(unknown := np.flatnonzero(drawn < 0)):
            state = quoted(self.states[int(s[unknown[0]])])
            raise CmdpkitError(
                f"rng is missing, and the policy randomises in state {state}: give a numpy random generator, "
                "rng=np.random.default_rng(seed)"
            )
        names: NDArray[Any] = self._action_array[drawn]
        return names

    def _positions(self, steps: Any) -> IntArray:
        """Where the decisions of steps stand in pi."""
        if self.is_stationary:
            if steps is not None:
                raise CmdpkitError(f"step is {steps!r}, but the policy is stationary: give the state only, state=...")
            return np.zeros((), dtype=np.int64)
        given = np.asarray(steps)
        wrong = given[(given < 1) | (given > self.horizon)] if given.dtype.kind in "iu" else given.reshape(-1)
        if len(wrong):
            raise CmdpkitError(f"step is {wrong.tolist()[0]!r}, expected a whole number from 1 to {self.horizon}")
        return given.astype(np.int64) - 1

    @cached_property
    def _drawn_places(self) -> IntArray:
        return drawn_places(self.decisions)

    @cached_property
    def _action_array(self) -> NDArray[Any]:
        whole = all(is_int(name) for name in self.action_names)
        array = np.empty(self.shape[2], dtype=np.int64 if whole else object)
        for a, name in enumerate(self.action_names):
            array[a] = name
        return array

    def stochastic_decisions(self, reach: FloatArray | None = None) -> list[Decision]:
        """Every (step, state) that draws, or with ``reach`` [H, S] those reached; the step is None if stationary."""
        h, s, p = all_rows(self.decisions, self.shape[0])
        several = (p > NEGLIGIBLE).sum(axis=-1) > 1
        if reach is not None:
            several &= np.asarray(reach)[h, s] > NEGLIGIBLE
        found = []
        for i in np.flatnonzero(several).tolist():
            row = {self.action_names[int(a)]: float(p[i, a]) for a in np.flatnonzero(p[i] > NEGLIGIBLE)}
            found.append(Decision(None if self.is_stationary else int(h[i]) + 1, self.states[int(s[i])], row))
        return found

    # -- for people ------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Policy)
            and self.shape == other.shape
            and self.is_stationary == other.is_stationary
            and same(self.decisions, other.decisions)
            and list(map(written_name, self.states)) == list(map(written_name, other.states))
            and list(map(written_name, self.action_names)) == list(map(written_name, other.action_names))
        )

    __hash__ = None  # type: ignore[assignment]

    def plot(self, *, size: float | tuple[float, float] | None = None) -> Figure:
        """A figure with one colour per action, by step and state; ``size`` is width, or width and height, in inches."""
        return showing.draw(self, size=size)

    def __repr__(self) -> str:
        H, S, A = self.shape
        length = "stationary" if self.is_stationary else f"H={H}"
        several = int(((self.decisions.p > NEGLIGIBLE).sum(axis=-1) > 1).sum()) * H // len(self.decisions.choice)
        return f"Policy({length}, S={S}, A={A}, stochastic decisions: {several})"


@dataclass(frozen=True, eq=False)
class Mixture:
    """Policy m is drawn with probability weights[m] at the start of an episode and followed until its end."""

    policies: tuple[Policy, ...]  # [M], what is drawn from
    weights: FloatArray  # [M], a distribution

    def __post_init__(self) -> None:
        weights = numbers("weights", self.weights)
        if weights.shape != (len(self.policies),) or not len(self.policies):
            raise CmdpkitError(
                f"weights has shape {weights.shape}, expected ({len(self.policies)},): one for each policy"
            )
        if not np.isfinite(weights).all() or weights.min() < 0 or abs(weights.sum() - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(f"weights is {weights.tolist()}, expected probabilities that sum to 1")
        object.__setattr__(self, "weights", frozen(weights))
