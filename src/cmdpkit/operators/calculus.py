"""The operators on a model and NumPy arrays, for algorithms of one's own.

Every function is one equation. h counts steps from 0, and arrays have the shapes

    V, d [S]   Q, pi, q [H, S, A]   x [H, S, A], or anything that broadcasts to it; the reward if it is left out

where H is 1 without a horizon. gamma is the discount, and 1 for all other criteria. A policy is an array of actions, as
whole numbers from 0, [S] or [H, S], or whatever `Policy.of` takes: probabilities pi, a function, a `Policy`. The prices
of a Lagrangian method enter by x: r + sum_n lam_n g_n is `cmdp.r + np.tensordot(lam, cmdp.g, 1)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.decisions import index_type, of_rows, undrawn
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import numbers
from cmdpkit.operators import policies, steps
from cmdpkit.operators.chains import flow_of, relative_values
from cmdpkit.operators.row_lists import matrix_of


class ActionValues(NamedTuple):
    """What a policy is worth."""

    Q: FloatArray  # [H, S, A], by the action taken first; 0 where no action exists
    V: FloatArray  # [H, S], from each state on


def bellman(cmdp: CMDP, V: ArrayLike, x: ArrayLike | None = None, *, h: int = 0) -> FloatArray:
    """(T V)(s) = max_a x(h,s,a) + gamma sum_s' P(s'|h,s,a) V(s'), for the values V [S] of the next states.

    Value iteration repeats it; with a horizon, V begins with 0 and h falls from H - 1 to 0.

    >>> import numpy as np
    >>> import cmdpkit as ck
    >>> P = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    >>> cmdp = ck.CMDP(P, r=[[1.0, 0.0], [3.0, 0.0]], discount=0.5)
    >>> V = np.zeros(2)
    >>> for _ in range(60):
    ...     V = bellman(cmdp, V)
    >>> V.round(12).tolist()
    [3.0, 6.0]
    """
    return _best(cmdp, V, x, h)[0]


def greedy(cmdp: CMDP, V: ArrayLike, x: ArrayLike | None = None, *, h: int = 0) -> NDArray[np.integer]:
    """The first action a(s) [S] that attains the maximum in `bellman`, as an index from 0.

    >>> import cmdpkit as ck
    >>> P = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    >>> cmdp = ck.CMDP(P, r=[[1.0, 0.0], [3.0, 0.0]], discount=0.5)
    >>> greedy(cmdp, [3.0, 6.0]).tolist(), greedy(cmdp, [0.0, 0.0]).tolist()
    ([1, 0], [0, 0])
    """
    return _best(cmdp, V, x, h)[1]


def evaluate(cmdp: CMDP, policy: Any, x: ArrayLike | None = None) -> ActionValues:
    """Q(h,s,a) = x(h,s,a) + gamma sum_s' P(s'|h,s,a) V(h+1,s') and V(h,s) = sum_a pi(a|h,s) Q(h,s,a).

    V is 0 after the last step. Without a horizon, V follows itself, and is 0 where a total is complete. For averages, c
    + V = x_pi + P V with the gain c = <q, x> of the occupancy q, V is 0 at a recurrent state, and Q = x - c + P V.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [1.0, 0.0]]], r=[[2.0, 1.0], [0.0, 4.0]], horizon=2)
    >>> Q, V = evaluate(cmdp, [[0.5, 0.5], [1.0, 0.0]])
    >>> V.tolist(), Q[0].tolist()
    ([[2.625, 0.0], [1.5, 0.0]], [[3.5, 1.75], [0.0, 5.5]])
    """
    policy, x = _policy(cmdp, policy), _signal(cmdp, x)
    if cmdp.criterion.has_horizon:
        Q, V = policies.action_values(cmdp, x, policy.pi)
        return ActionValues(Q, V[:-1])
    here: FloatArray = (policy.pi[0] * x[0]).sum(axis=1)
    V = resolvent(cmdp, policy, here)
    ahead = (matrix_of(cmdp.rows, cmdp.S) @ V).reshape(cmdp.S, cmdp.A)
    gain = 0.0
    if cmdp.criterion.kind == "average":
        gain = float((policies.occupancy(cmdp, policy)[0] * x[0]).sum())
    Q = np.where(cmdp.actions[0], x[0] - gain + (cmdp.criterion.discount or 1.0) * ahead, 0.0)
    return ActionValues(Q[None], V[None])


def push_forward(cmdp: CMDP, d: ArrayLike, policy: Any, *, h: int = 0) -> FloatArray:
    """d'(s') = sum_{s,a} d(s) pi(a|h,s) P(s'|h,s,a), where a mass d [S] is one step later; without a discount.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[0.25, 0.75]], [[1.0, 0.0]]], r=[[0.0], [0.0]], horizon=9)
    >>> push_forward(cmdp, [1.0, 0.0], [0, 0]).tolist()
    [0.25, 0.75]
    """
    _check_step(cmdp, h)
    return policies.one_step(cmdp, _policy(cmdp, policy), h, _states(cmdp, "d", d))


def occupancy(cmdp: CMDP, policy: Any) -> FloatArray:
    """q(h,s,a) [H, S, A] of a policy, with which the value of any signal x is <q, x> times the steps that it counts.

    With a horizon, q(h,s,a) is the probability of being in s at step h and taking a; <q, x> is the total. Without one,
    q(s,a) is the share of time (<q, x> is the average), the discounted share, (1 - gamma) sum_t gamma^t Prob(s_t = s,
    a_t = a) (the total is <q, x> / (1 - gamma)), or for totals the expected number of times.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[0.5, 0.5]], [[1.0, 0.0]]], r=[[3.0], [0.0]], criterion="average")
    >>> q = occupancy(cmdp, [0, 0])
    >>> q.round(12).tolist(), float((q * cmdp.r).sum().round(12))
    ([[[0.666666666667], [0.333333333333]]], 2.0)
    """
    return policies.occupancy(cmdp, _policy(cmdp, policy))


def resolvent(cmdp: CMDP, policy: Any, x: ArrayLike, *, adjoint: bool = False) -> FloatArray:
    """y = (I - gamma P_pi)^-1 x, that is y = x + gamma P_pi y; with `adjoint` d = x + gamma P_pi^T d.

    The first are the values of a signal x [S] collected in each state, the second the flow of a mass x [S] that comes
    in. Both belong together: <mu, y> = <d, x> for d of the inflow mu. Totals are counted until absorption, in the other
    states. For averages I - P_pi has no inverse; y = x - c + P_pi y with the gain c, 0 at one recurrent state, and d is
    the flow whose sum is 0, of an x whose sum is 0.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[0.0, 1.0]], [[1.0, 0.0]]], r=[[3.0], [0.0]], discount=0.5)
    >>> resolvent(cmdp, [0, 0], [3.0, 0.0]).round(12).tolist()
    [4.0, 2.0]
    >>> resolvent(cmdp, [0, 0], [1.0, 0.0], adjoint=True).round(12).tolist()
    [1.333333333333, 0.666666666667]
    """
    if cmdp.criterion.has_horizon:
        raise CmdpkitError(
            "a model with a horizon has no resolvent: evaluate(cmdp, policy, x) has the values of a signal, and "
            "occupancy(cmdp, policy) the flow from the start"
        )
    pi, x = _policy(cmdp, policy).table(0), _states(cmdp, "x", x)
    if not adjoint:
        level, y = relative_values(cmdp, pi, x[:, None])
        gamma = cmdp.criterion.discount
        return y[:, 0] if gamma is None else y[:, 0] + level[0] / (1 - gamma)
    if cmdp.criterion.kind == "average" and abs(x.sum()) > 1e-9 * np.abs(x).sum():
        raise CmdpkitError(
            f"x sums to {x.sum():g}, expected 0: under the criterion 'average' no mass leaves, so that none can come in"
        )
    return flow_of(cmdp, pi, x)


def _best(cmdp: CMDP, V: ArrayLike, x: ArrayLike | None, h: int) -> tuple[FloatArray, NDArray[np.integer]]:
    """Values [S] and choices [S] of one Bellman backup."""
    _check_step(cmdp, h)
    values = np.zeros((2, cmdp.S))
    values[(h + 1) % 2] = (cmdp.criterion.discount or 1.0) * _states(cmdp, "V", V)
    policy = undrawn(np.zeros((h + 1, cmdp.S), dtype=index_type(cmdp.A)), cmdp.A)
    given = cmdp.rows, readonly(_signal(cmdp, x)), readonly(cmdp.compact.allowed), cmdp.signals, policy
    work = cmdp.S * cmdp.A + cmdp.kernel.nonzeros // cmdp.kernel.T
    call(steps.induction, work, *given, h, h, 0, cmdp.S, values, np.zeros((2, cmdp.S, 0)), np.zeros((0, 1, 1)))
    return values[h % 2], policy.choice[h]


def _policy(cmdp: CMDP, policy: Any) -> Policy:
    """A policy; whole numbers are actions, also where their shape would fit probabilities."""
    if isinstance(policy, (list, tuple, np.ndarray)):
        given = np.asarray(policy)
        if given.dtype.kind in "iu" and given.shape in ((cmdp.S,), (cmdp.n_steps, cmdp.S)):
            nowhere = np.zeros((0, 2), dtype=np.int64), np.zeros((0, cmdp.A))
            return Policy.fitting(cmdp, of_rows(given.reshape(-1, cmdp.S), *nowhere), cmdp.n_steps)
    return Policy.of(cmdp, policy)


def _signal(cmdp: CMDP, x: ArrayLike | None) -> FloatArray:
    """A signal [1 or H, S, A]; the reward if none is given."""
    if x is None:
        return cmdp.compact.r
    given, shape = numbers("x", x, copy=False), (cmdp.n_steps, cmdp.S, cmdp.A)
    if given.ndim > 3 or any(m not in (1, n) for m, n in zip(given.shape[::-1], shape[::-1], strict=False)):
        raise CmdpkitError(
            f"x has shape {given.shape}, expected one that broadcasts to {shape}, steps, states, actions"
        )
    first = 1 if given.ndim < 3 else len(given)
    return np.ascontiguousarray(np.broadcast_to(given, (first, cmdp.S, cmdp.A)))


def _states(cmdp: CMDP, name: str, x: ArrayLike) -> FloatArray:
    """An array [S]."""
    given = numbers(name, x, copy=False)
    if given.shape != (cmdp.S,):
        raise CmdpkitError(f"{name} has shape {given.shape}, expected ({cmdp.S},), a number for every state")
    return given


def _check_step(cmdp: CMDP, h: int) -> None:
    if not 0 <= h < cmdp.n_steps:
        raise CmdpkitError(f"h is {h}, expected a step from 0 to {cmdp.n_steps - 1}")
