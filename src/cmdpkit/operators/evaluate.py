"""The exact values of a policy, and the states and actions it visits.

Start values are computed backward from the last step, the occupancy q[h, s, a] = Prob(s_h = s, a_h = a) forward from
the first one. Both are linear, so a mixture has the weighted sum of what its policies have. The passes over a policy's
`Decisions` look only at actions with a positive probability, and nothing of size [H, S, A] is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, embedded, njit, readonly
from cmdpkit.model.decisions import rows_at
from cmdpkit.model.fits import check_fits, check_mixture
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import index_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cmdpkit.model.mixture import Mixture


class Values(NamedTuple):
    """Expected totals of a policy, in the user's units and sense."""

    v: float  # expected total reward
    w: FloatArray  # [N], expected totals of the constraints' signals


def evaluate(cmdp: CMDP, policy: Policy | Mixture) -> Values:
    """Expected reward and constraints' signals by the model's criterion, exact, in the user's units.

    Totals over the horizon; without one, discounted totals, long-run averages or totals until absorption.

    >>> from cmdpkit import CMDP, Policy, at_most
    >>> P = [[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]]
    >>> cmdp = CMDP(P, [[1, 0], [2, 0]], constraints=[at_most("cost", 1, [[1, 0], [1, 0]])], horizon=2)
    >>> evaluate(cmdp, Policy.uniform(cmdp))
    Values(v=1.125, w=array([1.]))
    """
    if not isinstance(policy, Policy):
        check_mixture(policy)
        parts = [evaluate(cmdp, p) for p in policy.policies]
        v = float(policy.weights @ [p.v for p in parts])
        return Values(v, np.array([policy.weights @ [p.w[n] for p in parts] for n in range(cmdp.N)]))
    check_fits(cmdp, policy)
    if cmdp.criterion.stationary:
        from cmdpkit.operators.chains import stationary_values

        v, w = stationary_values(cmdp, policy.table(0))
    else:
        v, *rest = backward(cmdp, policy).tolist()
        w = np.array(rest, dtype=float)
    return Values(v, cmdp.signs * w + 0.0)  # + 0.0: no negative zeros


class TimeCourse(NamedTuple):
    """A signal step by step under a policy, in the user's units and sense; all arrays are [H]."""

    step: FloatArray  # from 1
    mean: FloatArray  # what is expected at the step
    low: FloatArray  # lower end of the range that holds it in most episodes
    high: FloatArray  # upper end of that range
    signal: str = "reward"  # its name
    share: float = 0.9  # of the episodes that lie in the range
    of_means: bool = False  # whether the signal is known by its means alone: outcomes vary more

    def plot(self, *, name: str = "", size: float | tuple[float, float] | None = None, ax: Any = None) -> Figure:
        """A matplotlib figure of the expected signal with its range.

        ``name`` is that of the policy, ``size`` the width in inches, or width and height. With the same ``ax``, courses
        of several policies come into one panel.
        """
        return showing.draw(self, name=name, size=size, ax=ax)


def time_course(cmdp: CMDP, policy: Policy | Mixture, signal: str = "reward", *, share: float = 0.9) -> TimeCourse:
    """What is expected of a signal at every step, and the range in which a share of the episodes lies, exactly.

    Parameters
    ----------
    cmdp, policy : a model with a horizon, and a policy that fits it
    signal : "reward", or the name of a constraint
    share : of the episodes that lie between ``low`` and ``high``: 0.9 is the range from 5 % to 95 %

    >>> from cmdpkit import CMDP, Policy, at_most
    >>> cmdp = CMDP([[[1.0], [1.0]]], [[1, 0]], constraints=[at_most("cost", 1, [[2, 0]])], horizon=3)
    >>> course = time_course(cmdp, Policy.uniform(cmdp), "cost")
    >>> course.mean.tolist(), course.low.tolist(), course.high.tolist()
    ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0])
    """
    cmdp.need_horizon("a course over the steps")
    if not 0 < share < 1:
        raise CmdpkitError(f"share is {quoted(share)}, expected a number between 0 and 1, such as 0.9")
    i = index_of("signal", cmdp.signal_names, signal)
    found = np.zeros((3, cmdp.H))
    for h, q in enumerate(occupancy(cmdp, policy)):
        values, odds = _collected(cmdp, i, h, q)
        order = np.argsort(values)
        below = np.cumsum(odds[order])
        ends = np.searchsorted(below, [(1 - share) / 2, (1 + share) / 2]).clip(max=len(values) - 1)
        found[:, h] = odds @ values, *values[order][ends]
    mean, low, high = found
    return TimeCourse(np.arange(1.0, cmdp.H + 1), mean, low, high, signal, share, signal in cmdp.of_means)


def _collected(cmdp: CMDP, i: int, h: int, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What the i-th signal may be at step h with the occupancy q [S, A], and the odds of each value."""
    if cmdp.outcomes is None:
        x, sign = (cmdp.compact.g[i - 1], float(cmdp.signs[i - 1])) if i else (cmdp.compact.r, 1.0)
        taken = q > 0
        return sign * x[h % len(x)][taken] + 0.0, q[taken] / q.sum()
    rows, first = cmdp.outcomes.entries, (h % cmdp.outcomes.T) * q.size
    indptr = rows.indptr[first : first + q.size + 1]
    entries = slice(indptr[0], indptr[-1])
    odds = np.repeat(q.reshape(-1), np.diff(indptr)) * rows.prob[entries]
    taken = odds > 0
    return cmdp.outcomes.signals[entries, i][taken], odds[taken] / odds.sum()


def action_values(cmdp: CMDP, signal: FloatArray, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Q [H, S, A], 0 where no action exists, and V [H+1, S] of a signal [1 or H, S, A] under the policy table pi."""
    Q = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    V = np.zeros((cmdp.H + 1, cmdp.S))
    c = cmdp.compact
    call(_backward, _work(cmdp), c.indptr, c.successors, c.prob, readonly(signal), c.allowed, readonly(pi), Q, V)
    return Q, V


def occupancy(cmdp: CMDP, policy: Policy | Mixture) -> FloatArray:
    """q[h, s, a] = Prob(s_h = s, a_h = a), exact; without a horizon [1, S, A], see `chains`."""
    if not isinstance(policy, Policy):
        return _mixed(cmdp, policy, occupancy)
    check_fits(cmdp, policy)
    if cmdp.criterion.stationary:
        from cmdpkit.operators.chains import stationary_occupancy

        return stationary_occupancy(cmdp, policy.table(0))[None]
    return np.stack([d[:, None] * policy.table(h) for h, d in enumerate(forward(cmdp, policy))])


def reach(cmdp: CMDP, policy: Policy | Mixture) -> FloatArray:
    """The sums over a of the occupancy, [H, S] or [1, S]; it takes a fraction of the memory."""
    if not isinstance(policy, Policy):
        return _mixed(cmdp, policy, reach)
    if cmdp.criterion.stationary:
        shares: FloatArray = occupancy(cmdp, policy).sum(axis=-1)
        return shares
    check_fits(cmdp, policy)
    return forward(cmdp, policy)


def _mixed(cmdp: CMDP, mixture: Mixture, of: Callable[[CMDP, Policy], FloatArray]) -> FloatArray:
    """The weighted sum of what the policies of a mixture have."""
    check_mixture(mixture)
    parts = zip(mixture.weights, mixture.policies, strict=True)
    return sum((weight * of(cmdp, part) for weight, part in parts), np.zeros(()))


def action_uses(cmdp: CMDP, policy: Policy) -> FloatArray:
    """How often each action is taken over the horizon, [A], in expectation."""
    uses = np.zeros(cmdp.A)
    for h, d in enumerate(reach(cmdp, policy)):
        s, p = rows_at(policy.decisions, h)
        uses += d[s] @ p
        d[s] = 0.0
        uses += np.bincount(policy.choice[h], weights=d, minlength=cmdp.A)
    return uses


def flow(cmdp: CMDP, pi: FloatArray, inflow: FloatArray, mu: FloatArray) -> FloatArray:
    """q [H, S, A] if mass mu starts at the first step, mass inflow[h, s] joins at step h, and all of it follows pi."""
    q = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    c = cmdp.compact
    call(_forward, _work(cmdp), c.indptr, c.successors, c.prob, readonly(pi), readonly(mu), readonly(inflow), q)
    return q


def _work(cmdp: CMDP) -> int:
    """Inner loops of a pass over all steps, states and actions."""
    return cmdp.H * (cmdp.S * cmdp.A + cmdp.kernel.nonzeros // cmdp.kernel.T)


@njit(cache=True, nogil=True)
def _backward(indptr, successors, prob, signal, allowed, pi, Q, V):
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
def _forward(indptr, successors, prob, pi, mu, inflow, q):
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


# -- passes over the decisions of a policy ----------------------------------------------------------------------------


def backward(cmdp: CMDP, policy: Policy) -> FloatArray:
    """Expected totals [1 + N] of reward and utilities from the start, over the horizon."""
    c = cmdp.compact
    V, work = np.zeros((2, cmdp.S)), _choices_work(cmdp)
    found = []
    for signal in (c.r, *c.g):
        call(_backward_choices, work, c.indptr, c.successors, c.prob, signal, cmdp.H, policy.decisions, V)
        found.append(cmdp.mu @ V[0])
    return np.array(found)


def forward(cmdp: CMDP, policy: Policy) -> FloatArray:
    """The probability [H, S] of being in each state at each step."""
    return _carried(cmdp, policy, 0, cmdp.mu, cmdp.H)


def one_step(cmdp: CMDP, policy: Policy, h: int, here: FloatArray) -> FloatArray:
    """The probabilities [S] of the states at step h + 1, from those at step h."""
    there: FloatArray = _carried(cmdp, policy, h, here, 2)[1]
    return there


def _carried(cmdp: CMDP, policy: Policy, h: int, here: FloatArray, steps: int) -> FloatArray:
    """The probabilities [steps, S] of the states from step h on, where they are `here` [S]."""
    c = cmdp.compact
    d = np.zeros((steps, cmdp.S))
    d[0] = here
    call(_forward_choices, _choices_work(cmdp), c.indptr, c.successors, c.prob, policy.decisions, h, d)
    return d


def _choices_work(cmdp: CMDP) -> int:
    """Inner loops of a pass over all steps, for a policy that draws rarely."""
    return cmdp.H * (cmdp.S + cmdp.kernel.nonzeros // cmdp.kernel.T // cmdp.A)


@njit(cache=True, nogil=True)
def _backward_choices(indptr, successors, prob, signal, H, decisions, V):
    """Fill V[h % 2, s] with the expected total of the signal [1 or H, S, A] from step h on."""
    choice, first, s_draw, p_draw = decisions
    T, S = choice.shape
    A = p_draw.shape[1]
    kernels = (len(indptr) - 1) // (S * A)
    V[H % 2] = 0.0
    for h in range(H - 1, -1, -1):
        now, then = V[h % 2], V[(h + 1) % 2]
        x, row = signal[h % len(signal)], (h % kernels) * S * A
        draw, last = first[h % T], first[h % T + 1]
        for s in range(S):
            if draw < last and s_draw[draw] == s:
                total = 0.0
                for a in range(A):
                    if p_draw[draw, a] != 0.0:
                        value = _value(indptr, successors, prob, row + s * A + a, x[s, a], then)
                        total += p_draw[draw, a] * value
                now[s] = total
                draw += 1
            else:
                a = int(choice[h % T, s])
                now[s] = _value(indptr, successors, prob, row + s * A + a, x[s, a], then)


@embedded
def _value(indptr, successors, prob, row, signal, then):
    """The signal of one step, and the expected total `then` [S] afterwards."""
    value = signal
    for i in range(indptr[row], indptr[row + 1]):
        value += prob[i] * then[successors[i]]
    return value


@njit(cache=True, nogil=True)
def _forward_choices(indptr, successors, prob, decisions, begin, d):
    """Fill d[1], d[2], ... with the probabilities [S] of the states after step `begin`, given d[0] at that step."""
    choice, first, s_draw, p_draw = decisions
    T, S = choice.shape
    A = p_draw.shape[1]
    kernels = (len(indptr) - 1) // (S * A)
    for k in range(len(d) - 1):
        h, here, there = begin + k, d[k], d[k + 1]
        row = (h % kernels) * S * A
        draw, last = first[h % T], first[h % T + 1]
        for s in range(S):
            drawn = draw < last and s_draw[draw] == s
            if here[s] != 0.0:
                if drawn:
                    for a in range(A):
                        _send(indptr, successors, prob, row + s * A + a, here[s] * p_draw[draw, a], there)
                else:
                    _send(indptr, successors, prob, row + s * A + int(choice[h % T, s]), here[s], there)
            draw += drawn


@embedded
def _send(indptr, successors, prob, row, mass, there):
    """Add where a mass goes to the probabilities `there` [S] of the next step."""
    if mass != 0.0:
        for i in range(indptr[row], indptr[row + 1]):
            there[successors[i]] += mass * prob[i]
