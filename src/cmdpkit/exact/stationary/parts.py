"""A problem without a horizon in units of its own, and the values of a policy of it, with a bound for all policies.

A policy is known by a table of relative values Y [S, K] of all signals. An objective is a weighted sum of the signals,
so h = Y @ weights is exact for the policy whatever the weights: a search at new prices begins where the last one ended,
and improving a policy and evaluating it are sweeps over the same table.

The bound is Lemma U of docs/theory/stationary.md: with delta_i = o_i + P_i h - h_s for every row i of a state s, and
any profile d [S] > 0, delta_i <= b + kappa d_s for all rows means that

    value of every policy <= alpha mu.h + b + kappa Omega    (totals: b = 0),

where Omega is at least the value of the signal d under every policy, and alpha is 1 - discount, 0 for averages and 1
for totals. A discount counts as a probability of leaving at every step. With d = 1, Omega is 1, or the longest expected
time until absorption. If a policy need not be absorbed (`endless`), every step costs at least c > 0 of the objective. A
policy that is better than one of value v takes at most -v / c steps, so Omega = -v / c will do.

Two sets of functions work on these data, `pricing` with d = 1, and `careful` with a profile and proved errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary.problem import ComponentRows, marked, walk_to
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chain_systems import DAMPING, NOTHING, krylov
from cmdpkit.operators.chains import Chain, closed_classes, within
from cmdpkit.operators.row_lists import Followed, differences, followed, matrix_of

EPS = float(np.finfo(float).eps)
EXACT = 1e-15  # accuracy of values that counts as exact
DIRECT_STATES = 64  # up to so many states, policies are evaluated carefully from the start
DENSE = 400  # up to so many states, care is taken wherever rounding matters
RARE = 4  # a pivot is visited seldom if it takes this many times the number of states to come back to it
IMPROVEMENTS = 50  # policy iteration is taken to cycle after this many improvements more than there are states
LONGEST = 1e12  # steps in expectation until absorption, beyond which a bound would say nothing

UNTRIED, SWEEPS, ELIMINATION = range(3)  # how policies are evaluated: no policy was yet, by sweeps, by elimination


class TooLong(CmdpkitError):
    """The longest time until absorption cannot be bounded."""

    def __init__(self) -> None:
        super().__init__(
            "not solved: some policy takes so long until absorption that double precision cannot tell how long; use a "
            "discount or make absorption more likely where a run may stay for very long"
        )


@dataclass(frozen=True, eq=False)
class ScaledPart:
    """A problem or an end component of one, with signals scaled such that values are of order 1."""

    rows: ComponentRows
    X: FloatArray  # [K, R], signals
    mu: FloatArray  # [S], the start; zero for averages whose value does not depend on it
    kind: str  # "discounted", "average" or "total"
    endless: bool  # whether a policy need not be absorbed; then every step costs something
    blur: int  # rows are wrong by this many roundings more than usual
    times: FloatArray  # [S], longest expected times, where exits differ and care is not taken; else empty
    losses: FloatArray  # [R], by how much these fall in a step, rounded down; else empty
    omega: float = 1.0  # the value of the signal 1, at most

    @property
    def S(self) -> int:
        """Number of states."""
        return self.rows.S

    @property
    def K(self) -> int:
        """Number of signals."""
        return len(self.X)

    @property
    def uniform(self) -> bool:
        """Whether all rows lose the same, so that values are relative."""
        return self.kind != "total"

    @property
    def tau(self) -> float:
        """Share of a new sweep."""
        return DAMPING if self.kind == "average" else 1.0

    @cached_property
    def alpha(self) -> float:
        """Weight of the start in a value."""
        return {"discounted": float(self.rows.exits[0]), "average": 0.0, "total": 1.0}[self.kind]

    @cached_property
    def starts(self) -> IntArray:
        """The states in which a run can start. Sums over few states: linear algebra would start threads."""
        return np.flatnonzero(self.mu)

    @cached_property
    def row_roundings(self) -> int:
        """How many roundings a sum over a row goes through."""
        return self.rows.widest + 8 + self.blur

    @property
    def start_roundings(self) -> int:
        """How many roundings a sum over the start goes through."""
        return len(self.starts) + 4 + self.blur

    @cached_property
    def largest(self) -> FloatArray:
        """[K], the largest magnitude of each signal."""
        return np.asarray(np.abs(self.X).max(axis=1))

    def from_start(self, y: FloatArray) -> FloatArray:
        """mu . y for y [S] or [S, K]."""
        return np.asarray(self.mu[self.starts] @ y[self.starts])

    def chain(self, choice: IntArray) -> Followed:
        """The chain of the policy that takes these rows [S], and its signals."""
        return followed(self.rows.rows, self.X, choice, int(self.rows.lengths[choice].sum()))

    def with_signals(self, X: FloatArray) -> ScaledPart:
        """The same part with other signals [K, R]."""
        return replace(self, X=X)

    def changes(self, o: FloatArray, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """o + P h - h of every row from differences of h, and the size of what is added up, [n, R] each; h [n, S]."""
        delta, size = np.empty((len(o), self.rows.R)), np.empty((len(o), self.rows.R))
        given = self.rows.owner, self.rows.exits, o, np.ascontiguousarray(h)
        differences(self.rows.rows, *given, delta, size)
        return delta, size


class Profile(NamedTuple):
    """In what proportion rounding may make the bound wrong in the states."""

    d: FloatArray  # [S]
    omega: float  # no policy has a larger value of the signal d


class PolicyValues(NamedTuple):
    """A policy with its values, and the bound for all policies that was proved with them."""

    choice: IntArray  # [S], the row taken in every state
    values: FloatArray  # [K], from the start
    error: FloatArray  # [K], proved, of these; infinite where nothing was evaluated
    Y: FloatArray  # [S, K], relative values
    level: FloatArray  # [K], T Y - Y of the policy, the b of the bound
    method: int  # how policies are evaluated from now on
    pivot: int  # a state that is visited
    bound: float = np.inf  # on the last objective, for all policies
    pad: float = 0.0  # rounding in this bound
    profile: Profile | None = None  # of careful bounds, made for this policy and those before it
    chain: Followed | None = None  # of the choice, where it was evaluated by sweeps

    def in_units(self, unit: FloatArray) -> PolicyValues:
        """The same policy, not evaluated yet, for signals that are the old ones divided by unit [K]."""
        none = np.zeros(len(unit))
        return PolicyValues(self.choice, none, np.full(len(unit), np.inf), self.Y / unit, none, self.method, self.pivot)


class Methods(NamedTuple):
    """Two functions that belong together."""

    careful: bool  # whether errors are proved state by state
    # evaluate(part, before, choice [S], tol, weights [K]): the values of a choice of rows, to within tol
    evaluate: Callable[[Any, Any, IntArray, float, FloatArray], Any]
    # price(part, policy, weights [K], slack, accuracy): a policy within slack of the best, values to within accuracy
    price: Callable[[Any, Any, FloatArray, float, float], Any]


def part_of(
    rows: ComponentRows, X: FloatArray, kind: str, mu: FloatArray, *, endless: bool, blur: int, careful: bool
) -> ScaledPart:
    """The part with these rows. Unless it is evaluated carefully, longest times are found if exits differ."""
    part = ScaledPart(rows, X, mu, kind, endless, blur, np.zeros(0), np.zeros(0))
    if part.uniform or endless or careful:
        return part
    times, omega = longest(part, first_policy(part), np.ones(part.S))
    if not omega < LONGEST:
        raise TooLong
    delta, _ = part.changes(np.zeros((1, rows.R)), times[None])
    return replace(part, times=times, losses=np.maximum(-delta[0], 0.0), omega=omega)


def first_policy(part: ScaledPart) -> PolicyValues:
    """Some policy, not evaluated yet: where policies need not be absorbed, one that is, as all better ones are then."""
    rows, choice, method = part.rows, part.rows.firsts, UNTRIED
    if part.endless:
        out = np.flatnonzero(rows.exits > 0)
        leaving = marked(part.S, rows.owner[out])
        choice = np.where(leaving, 0, walk_to(rows, leaving))
        choice[rows.owner[out]] = out
        method = SWEEPS
    return unevaluated(part, choice, method, int(part.mu.argmax()))


def unevaluated(part: ScaledPart, choice: IntArray, method: int, pivot: int) -> PolicyValues:
    """A policy whose values are not known."""
    none = np.zeros(part.K)
    return PolicyValues(choice, none, np.full(part.K, np.inf), np.zeros((part.S, part.K)), none, method, pivot)


def advantages(part: ScaledPart, policy: PolicyValues, taken: IntArray) -> FloatArray:
    """What each of some rows [n] gains if it is taken once instead of the policy's, [n, K]."""
    return np.asarray((part.changes(part.X, policy.Y.T)[0][:, taken]).T - policy.level)


def with_values(
    part: ScaledPart, methods: Methods, policy: PolicyValues, X: FloatArray
) -> tuple[ScaledPart, PolicyValues]:
    """The part with other signals X [K, R], and the policy with values of these."""
    other = part.with_signals(X)
    unknown = unevaluated(other, policy.choice, policy.method, policy.pivot)
    return other, methods.evaluate(other, unknown, policy.choice, EXACT, np.ones(len(X)))


# -- chains of policies ------------------------------------------------------------------------------------------------


class Solved(NamedTuple):
    """A policy's relative values by elimination."""

    choice: IntArray  # [S], the policy; for averages, connected
    chain: Followed
    level: FloatArray  # [K]
    Y: FloatArray  # [S, K]
    system: Chain  # the same chain, ready for other signals

    @property
    def pivot(self) -> int:
        """A state that is visited, from whose value others are counted."""
        return self.system.pivot


def by_elimination(part: ScaledPart, before: PolicyValues, choice: IntArray, weights: FloatArray) -> Solved:
    """Relative values of a choice of rows [S]; those of `before` where elimination finds none.

    For averages all states walk to the recurrent class that is best at the weights [K].
    """
    chain, pivot = part.chain(choice), before.pivot
    P = matrix_of(chain.rows, part.S)
    if part.kind == "average":
        walking, pivot = connected(part, P, chain.x, choice, pivot, weights)
        if walking is not choice:
            choice, chain = walking, part.chain(walking)
            P = matrix_of(chain.rows, part.S)
    system = eliminated(part, P, choice, pivot)
    level, Y = system.values(chain.x)
    if not np.isfinite(Y).all():
        level, Y = before.level, before.Y
    return Solved(choice, chain, level, Y, system)


def eliminated(part: ScaledPart, P: Any, choice: IntArray, pivot: int) -> Chain:
    """The chain P [S, S] of a policy, ready for elimination, with the same pivot if that is not visited seldom."""
    given: dict[str, Any] = {"bordered": part.uniform, "exits": part.rows.exits[choice], "work": 0.0}
    chain = Chain(P, pivot=pivot, **given)
    if part.uniform and chain.cycle > RARE * part.S:  # values count from those of the pivot
        chain = Chain(P, pivot=chain.most_visited, **given)
    return chain


def connected(
    part: ScaledPart, P: Any, x: FloatArray, choice: IntArray, pivot: int, weights: FloatArray
) -> tuple[IntArray, int]:
    """A choice of rows with which all states walk to its best recurrent class, and a pivot that is in it."""
    classes = closed_classes(P)
    if len(classes) == 1:
        return choice, pivot if (classes[0] == pivot).any() else int(classes[0][0])
    gains = [float(Chain(within(P, c)).values(x[c])[0] @ weights) for c in classes]
    target = marked(part.S, classes[int(np.argmax(gains))])
    lost = marked(part.S, np.concatenate([c for c in classes if not target[c[0]]]))
    chosen = ComponentRows.of(P, np.arange(part.S), choice)
    astray = lost | (walk_to(chosen, lost) >= 0)  # states that may end in another class
    return np.where(astray, walk_to(part.rows, target), choice), int(np.flatnonzero(target)[0])


def by_krylov(part: ScaledPart, chain: Followed, Y: FloatArray, tol: float) -> bool:
    """Bring Y [S, K] to residuals of at most tol; False if that fails."""
    work = np.zeros((6, part.S))
    left, right = (np.ones(part.S), np.ones(1)) if part.uniform else (NOTHING, NOTHING)
    solved = True
    for k in range(part.K):
        y, x = np.ascontiguousarray(Y[:, k]), np.ascontiguousarray(chain.x[:, k])
        if part.uniform:
            y -= y[0]
        least = 4 * EPS * (float(np.abs(y).max()) + float(np.abs(x).max()))
        solved &= bool(krylov(chain.rows, x, left, right, y, work, max(0.5 * tol, least)))
        if np.isfinite(y).all():
            Y[:, k] = y - y[0] if part.uniform else y
    return solved


def longest(part: ScaledPart, policy: PolicyValues, d: FloatArray) -> tuple[FloatArray, float]:
    """Largest values W [S] of the signal d [S] > 0 over all policies, and a bound on that from the start.

    The search begins with the given policy. The bound is infinite if rounding leaves none.
    """
    x = d[part.rows.owner]
    other = part.with_signals(x[None])
    now = unevaluated(other, policy.choice, policy.method, policy.pivot)
    for _ in range(part.S + IMPROVEMENTS):
        now = _long(other, now)
        W = now.Y[:, 0]
        (delta,), (size,) = part.changes(x[None], W[None])
        noise = part.row_roundings * EPS * (size + x + abs(now.level[0]))
        start = part.alpha * float(part.from_start(W))
        if part.uniform:
            bound = start + float((delta + noise).max())
        else:  # if W lacks at most a share theta of d anywhere, W / (1 - theta) lacks nothing
            theta = float(((delta + noise) / x).max())
            bound = start / (1 - theta) if theta < 1 else np.inf
        over = delta - now.level[0]
        more = over > np.maximum(4 * noise, 0.0 if part.uniform else 0.1 * x)
        if not more.any():
            break
        better = np.where(more, over, -np.inf)
        better[now.choice] = 0.0
        now = now._replace(choice=part.rows.best(better))
    return W, bound


def _long(part: ScaledPart, policy: PolicyValues) -> PolicyValues:
    """The policy with its values, by the cheapest method that finds them."""
    Y = policy.Y.copy()
    if policy.method == ELIMINATION or not by_krylov(part, part.chain(policy.choice), Y, 0.1):
        found = by_elimination(part, policy._replace(Y=Y), policy.choice, np.ones(1))
        return policy._replace(choice=found.choice, Y=found.Y, level=found.level, pivot=found.pivot)
    return policy._replace(Y=Y)


def combined(weights: FloatArray, signals: FloatArray) -> FloatArray:
    """weights . signals for signals [K, n]."""
    total: FloatArray = weights[0] * signals[0]
    for weight, signal in zip(weights[1:], signals[1:], strict=True):
        if weight:
            total += weight * signal
    return total
