"""Policies and what they are worth, exactly.

A `Policy` is Markov: pi[h, s, a]. A `Mixture` draws one of several policies at the start of each episode. Both have an
occupancy q[h, s, a] = Prob(s_h = s, a_h = a), computed forward, and start values computed backward; a mixture and the
Markov policy read off its occupancy have the same values (Lemma 2 of arXiv 2309.15395), and `decompose` goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import njit, readonly
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray
from cmdpkit.model.validate import Name, frozen, index_of, names_of, numbers

NEGLIGIBLE = 1e-12  # occupancies and probabilities below this are rounding, not decisions


class Values(NamedTuple):
    """Expected totals of a policy, in the user's units and sense."""

    v: float
    w: FloatArray  # [N]


class Decision(NamedTuple):
    """A state at a step where a policy gives several actions a positive probability."""

    step: int  # counts from 1
    state: Name
    probabilities: Mapping[Name, float]


@dataclass(frozen=True, eq=False)
class Policy:
    """A Markov policy: at step h in state s, action a has probability pi[h, s, a].

    >>> Policy.deterministic([[0, 1], [1, 1]], A=2).pi.tolist()
    [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    """

    pi: FloatArray  # [H, S, A]
    states: Sequence[Name] = ()
    action_names: Sequence[Name] = ()

    def __post_init__(self) -> None:
        pi = numbers("pi", self.pi)
        if pi.ndim != 3 or 0 in pi.shape:
            raise CmdpkitError(f"pi has shape {pi.shape}, expected (H, S, A)")
        bad = np.argwhere(~np.isfinite(pi) | (pi < 0))
        if len(bad):
            h, s, a = bad[0]
            raise CmdpkitError(f"pi[h={h}, s={s}, a={a}] is {pi[h, s, a]}, expected a probability")
        wrong = np.argwhere(np.abs(pi.sum(axis=-1) - 1) > ROW_SUM_TOLERANCE)
        if len(wrong):
            h, s = wrong[0]
            raise CmdpkitError(
                f"pi[h={h}, s={s}] sums to {pi[h, s].sum():.12g}, expected 1 within {ROW_SUM_TOLERANCE:g}"
            )
        _, S, A = pi.shape
        object.__setattr__(self, "pi", frozen(pi))
        object.__setattr__(self, "states", names_of("states", self.states or None, S))
        object.__setattr__(self, "action_names", names_of("action_names", self.action_names or None, A))

    @classmethod
    def of(cls, cmdp: CMDP, pi: ArrayLike) -> Policy:
        """A policy that carries the model's names and uses only actions the model has."""
        policy = cls(pi, cmdp.states, cmdp.action_names)  # type: ignore[arg-type]  # made an array there
        check_fits(cmdp, policy)
        return policy

    @classmethod
    def deterministic(cls, choice: ArrayLike, A: int) -> Policy:
        """The policy that takes action choice[h, s]."""
        chosen = numbers("choice", choice)
        if chosen.ndim != 2 or not np.isin(chosen, np.arange(A)).all():
            raise CmdpkitError(f"choice must be an array (H, S) of action indices in 0..{A - 1}")
        return cls(one_hot(chosen, A))

    @classmethod
    def uniform(cls, cmdp: CMDP) -> Policy:
        """Every action that exists, equally likely."""
        allowed = cmdp.actions.astype(float)
        return cls.of(cmdp, allowed / allowed.sum(axis=-1, keepdims=True))

    @property
    def horizon(self) -> int:
        """How many steps the policy covers."""
        return len(self.pi)

    def probabilities(self, step: int, state: Name) -> dict[Name, float]:
        """Actions with a positive probability at ``step`` (from 1) in a state, by name."""
        if step not in range(1, self.horizon + 1):
            raise CmdpkitError(f"step is {step!r}, expected a whole number from 1 to {self.horizon}")
        row = self.pi[int(step) - 1, index_of("state", self.states, state)]
        return {self.action_names[int(a)]: float(row[a]) for a in np.flatnonzero(row)}

    def act(self, step: int, state: Name, rng: np.random.Generator) -> Name:
        """Draw an action at ``step`` (from 1) in a state, by name."""
        row = self.probabilities(step, state)
        return list(row)[int(rng.choice(len(row), p=np.array(list(row.values())) / sum(row.values())))]

    def stochastic_decisions(self, reach: FloatArray | None = None) -> list[Decision]:
        """Every (step, state) with more than one possible action; with ``reach`` [H, S], only those ever reached."""
        several = (self.pi > NEGLIGIBLE).sum(axis=-1) > 1
        if reach is not None:
            several &= reach > NEGLIGIBLE
        found = []
        for h, s in np.argwhere(several):
            used = np.flatnonzero(self.pi[h, s] > NEGLIGIBLE)
            row = {self.action_names[int(a)]: float(self.pi[h, s, a]) for a in used}
            found.append(Decision(int(h) + 1, self.states[int(s)], row))
        return found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Policy)
            and np.array_equal(self.pi, other.pi)
            and list(self.states) == list(other.states)
            and list(self.action_names) == list(other.action_names)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        H, S, A = self.pi.shape
        return f"Policy(H={H}, S={S}, A={A}, stochastic decisions: {len(self.stochastic_decisions())})"


@dataclass(frozen=True, eq=False)
class Mixture:
    """Policy m is drawn with probability weights[m] at the start of an episode and kept to its end."""

    policies: tuple[Policy, ...]
    weights: FloatArray  # [M]

    def __post_init__(self) -> None:
        weights = numbers("weights", self.weights)
        if weights.shape != (len(self.policies),) or not len(self.policies):
            raise CmdpkitError(f"weights has shape {weights.shape} for {len(self.policies)} policies")
        if not np.isfinite(weights).all() or weights.min() < 0 or abs(weights.sum() - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(f"weights {weights.tolist()} are not a distribution")
        object.__setattr__(self, "weights", frozen(weights))


def evaluate(cmdp: CMDP, policy: Policy | Mixture) -> Values:
    """Expected total reward and expected totals of the constraints' signals, exact, in the user's units.

    >>> from cmdpkit import CMDP, at_most
    >>> P = [[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]]
    >>> cmdp = CMDP(P, [[1, 0], [2, 0]], constraints=[at_most("cost", 1, [[1, 0], [1, 0]])], horizon=2)
    >>> evaluate(cmdp, Policy.uniform(cmdp))
    Values(v=1.125, w=array([1.]))
    """
    if isinstance(policy, Mixture):
        parts = [evaluate(cmdp, p) for p in policy.policies]
        v = float(policy.weights @ [p.v for p in parts])
        return Values(v, np.array([policy.weights @ [p.w[n] for p in parts] for n in range(cmdp.N)]))
    check_fits(cmdp, policy)
    v, w = start_values(cmdp, policy.pi)
    return Values(v, cmdp.signs * w + 0.0)  # + 0.0: no negative zeros


def start_values(cmdp: CMDP, pi: FloatArray) -> tuple[float, FloatArray]:
    """v and the utilities w [N] (not the user's sense) of pi [H, S, A]: mu @ V[0] by the backward recursion."""
    v = float(cmdp.mu @ action_values(cmdp, cmdp.compact.r, pi)[1][0])
    w = np.array([cmdp.mu @ action_values(cmdp, x, pi)[1][0] for x in cmdp.compact.g])
    return v, w


def action_values(cmdp: CMDP, signal: FloatArray, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Q [H, S, A] and V [H+1, S] of a per-step signal [1 or H, S, A] under pi; Q is 0 where no action exists."""
    check_fits(cmdp, pi)
    Q = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    V = np.zeros((cmdp.H + 1, cmdp.S))
    c = cmdp.compact
    _backward(c.indptr, c.successors, c.prob, readonly(signal), c.allowed, readonly(pi), Q, V)
    return Q, V


def occupancy(cmdp: CMDP, policy: Policy | Mixture) -> FloatArray:
    """q[h, s, a] = Prob(s_h = s, a_h = a), exact."""
    if isinstance(policy, Mixture):
        total = np.zeros((cmdp.H, cmdp.S, cmdp.A))
        for weight, part in zip(policy.weights, policy.policies, strict=True):
            total += weight * occupancy(cmdp, part)
        return total
    check_fits(cmdp, policy)
    return flow(cmdp, policy.pi, np.zeros((cmdp.H, cmdp.S)), cmdp.mu)


def flow(cmdp: CMDP, pi: FloatArray, inflow: FloatArray, mu: FloatArray) -> FloatArray:
    """q [H, S, A] of mass mu at the first step plus inflow[h, s] joining at step h, all of it following pi."""
    q = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    c = cmdp.compact
    _forward(c.indptr, c.successors, c.prob, readonly(pi), readonly(mu), readonly(inflow), q)
    return q


def markov(cmdp: CMDP, mixture: Mixture) -> Policy:
    """The Markov policy with the mixture's occupancy, hence its values (Lemma 2).

    Where the mixture never goes, the first policy's decision is kept.
    """
    return from_occupancy(cmdp, occupancy(cmdp, mixture), mixture.policies[0].pi)


def from_occupancy(cmdp: CMDP, q: FloatArray, default: FloatArray) -> Policy:
    """pi[h, s, a] = q[h, s, a] / sum_a q[h, s, a], and default[h, s] where (h, s) is not reached."""
    q = np.where(q > NEGLIGIBLE, q, 0.0)
    reach = q.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return Policy.of(cmdp, np.where(reach > 0, q / reach, default))


def decompose(cmdp: CMDP, policy: Policy) -> Mixture:
    """Deterministic policies whose mixture has the policy's occupancy: the converse of Lemma 2.

    Peels greedily: follow the most used action everywhere, take as much of that policy as the occupancy holds, repeat
    on the rest, which is a flow again. Each round uses up an action, so E more actions than decisions make at most
    E + 1 policies (the product formula would make up to 2^E).
    """
    rest = occupancy(cmdp, policy)
    left = 1.0
    fallback = policy.pi.argmax(axis=-1)
    policies: list[Policy] = []
    weights: list[float] = []
    while left > NEGLIGIBLE:
        used = rest > NEGLIGIBLE * left
        choice = np.where(used.any(axis=-1), rest.argmax(axis=-1), fallback)
        part = Policy(one_hot(choice, cmdp.A), cmdp.states, cmdp.action_names)
        q = occupancy(cmdp, part)
        reached = q > NEGLIGIBLE
        share = min(left, float((rest[reached] / q[reached]).min()))
        if share <= NEGLIGIBLE:  # what is left is rounding
            break
        policies.append(part)
        weights.append(share)
        rest = np.maximum(rest - share * q, 0.0)
        left -= share
    return Mixture(tuple(policies), np.array(weights) / sum(weights))


def one_hot(choice: NDArray[Any], A: int) -> FloatArray:
    """pi [H, S, A] of the deterministic policy choice [H, S]."""
    hot: FloatArray = (choice[..., None] == np.arange(A)).astype(float)
    return hot


def _check_names(what: str, own: Sequence[Name], model: Sequence[Name]) -> None:
    """A policy without names of its own fits any model of its size; one with names must have the model's."""
    if own == range(1, len(own) + 1) or own is model or len(own) != len(model):
        return  # a wrong size is reported by the shape
    for i, (mine, theirs) in enumerate(zip(own, model, strict=True)):
        if mine != theirs:
            raise CmdpkitError(f"the policy's {what} {i + 1} is called {mine!r}, the model's {theirs!r}")


def check_fits(cmdp: CMDP, policy: Policy | FloatArray) -> None:
    """Raise a ValueError unless a policy has the sizes, the names and only the actions of a model."""
    pi = policy.pi if isinstance(policy, Policy) else policy
    if pi.shape != (cmdp.H, cmdp.S, cmdp.A):
        raise CmdpkitError(f"the policy has shape {pi.shape}, the model (H, S, A) = {(cmdp.H, cmdp.S, cmdp.A)}")
    if isinstance(policy, Policy):
        _check_names("state", policy.states, cmdp.states)
        _check_names("action", policy.action_names, cmdp.action_names)
    if cmdp.compact.allowed.all():
        return
    outside = np.argwhere((pi > 0) & ~cmdp.actions)
    if len(outside):
        h, s, a = (int(i) for i in outside[0])
        raise CmdpkitError(
            f"the policy gives action {cmdp.action_names[a]!r} probability {pi[h, s, a]} at step {h + 1} in state "
            f"{cmdp.states[s]!r}, where it does not exist"
        )


@njit(cache=True, nogil=True)
def _backward(indptr, successors, prob, signal, allowed, pi, Q, V):  # type: ignore[no-untyped-def]  # pragma: no cover
    """V[H] = 0; Q[h] = signal[h] + P[h] V[h+1]; V[h] = sum_a pi Q."""
    H, S, A = pi.shape
    T = (len(indptr) - 1) // (S * A)
    for h in range(H - 1, -1, -1):
        for s in range(S):
            total = 0.0
            for a in range(A):
                if not allowed[h % len(allowed), s, a]:
                    continue
                value = signal[h % len(signal), s, a]
                if h < H - 1:
                    row = ((h % T) * S + s) * A + a
                    for i in range(indptr[row], indptr[row + 1]):
                        value += prob[i] * V[h + 1, successors[i]]
                Q[h, s, a] = value
                total += pi[h, s, a] * value
            V[h, s] = total


@njit(cache=True, nogil=True)
def _forward(indptr, successors, prob, pi, mu, inflow, q):  # type: ignore[no-untyped-def]  # pragma: no cover
    """d[0] = mu; q = (d + inflow) pi; d[h+1] = sum_{s,a} q[h] P[h]. Signed inflow is allowed."""
    H, S, A = pi.shape
    T = (len(indptr) - 1) // (S * A)
    d = mu.copy()
    d_next = np.zeros(S)
    for h in range(H):
        d_next[:] = 0.0
        for s in range(S):
            here = d[s] + inflow[h, s]
            if here == 0.0:
                continue
            for a in range(A):
                mass = here * pi[h, s, a]
                q[h, s, a] = mass
                if mass != 0.0 and h < H - 1:
                    row = ((h % T) * S + s) * A + a
                    for i in range(indptr[row], indptr[row + 1]):
                        d_next[successors[i]] += mass * prob[i]
        d, d_next = d_next, d
