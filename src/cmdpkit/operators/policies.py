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
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.decisions import Decisions, rows_at
from cmdpkit.model.fits import check_fits, check_mixture, check_model
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import index_of
from cmdpkit.operators import steps
from cmdpkit.operators.step import all_drawn

if TYPE_CHECKING:
    from cmdpkit.model.policy import Mixture


class Values(NamedTuple):
    """Expected totals of a policy, in the user's units and sense."""

    v: float  # expected total reward
    w: FloatArray  # [N], expected totals of the constraints' signals


def evaluate(cmdp: CMDP | FunctionModel, policy: Any) -> Values:
    """Expected reward and constraints' signals by the model's criterion, exact, in the user's units.

    Totals over the horizon; without one, discounted totals, long-run averages or totals until absorption. Of a model by
    functions, the policy is one that `solve` found for such a model; without a horizon, its values are then computed to
    1e-9 of the largest values that signals can have. A solution, or anything else with the attribute ``policy``, stands
    for its policy.

    >>> from cmdpkit import CMDP, Policy, at_most
    >>> P = [[[0.5, 0.5], [1, 0]], [[0, 1], [1, 0]]]
    >>> cmdp = CMDP(P, [[1, 0], [2, 0]], constraints=[at_most("cost", 1, [[1, 0], [1, 0]])], horizon=2)
    >>> evaluate(cmdp, Policy.uniform(cmdp))
    Values(v=1.125, w=array([1.]))
    """
    policy = getattr(policy, "policy", policy)
    if isinstance(cmdp, FunctionModel):
        cmdp.check_policy(policy)
        v, *rest = policy.totals(cmdp)[0].tolist()
        return Values(v, np.array(rest, dtype=float))
    if not isinstance(policy, Policy):
        check_mixture(policy)
        parts = [evaluate(cmdp, p) for p in policy.policies]
        v = float(policy.weights @ [p.v for p in parts])
        return Values(v, np.array([policy.weights @ [p.w[n] for p in parts] for n in range(cmdp.N)]))
    check_fits(cmdp, policy)
    if not cmdp.criterion.has_horizon:
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
    check_model(cmdp)
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
    rows, t = cmdp.outcomes.entries, h % cmdp.outcomes.T
    entries = slice(rows.entries(t, 0, 0).start, rows.entries(t, rows.S - 1, rows.A - 1).stop)
    odds = np.repeat(q.reshape(-1), rows.lengths.reshape(rows.T, -1)[t]) * rows.prob[entries]
    taken = odds > 0
    return cmdp.outcomes.signals[entries, i][taken], odds[taken] / odds.sum()


def action_values(cmdp: CMDP, signal: FloatArray, pi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Q [H, S, A], 0 where no action exists, and V [H+1, S] of a signal [1 or H, S, A] under the policy table pi."""
    Q, V = np.zeros((cmdp.H, cmdp.S, cmdp.A)), np.zeros((cmdp.H + 1, cmdp.S))
    given = cmdp.rows, readonly(signal), readonly(cmdp.compact.allowed), readonly(pi)
    call(steps.lookaheads, cmdp.H * _work(cmdp), *given, Q, V)
    return Q, V


def occupancy(cmdp: CMDP, policy: Policy | Mixture) -> FloatArray:
    """q[h, s, a] = Prob(s_h = s, a_h = a), exact; without a horizon [1, S, A], see `chains`."""
    check_model(cmdp)
    if not isinstance(policy, Policy):
        return _mixed(cmdp, policy, occupancy)
    check_fits(cmdp, policy)
    if not cmdp.criterion.has_horizon:
        from cmdpkit.operators.chains import stationary_occupancy

        return stationary_occupancy(cmdp, policy.table(0))[None]
    return np.stack([d[:, None] * policy.table(h) for h, d in enumerate(forward(cmdp, policy))])


def reach(cmdp: CMDP, policy: Policy | Mixture) -> FloatArray:
    """The sums over a of the occupancy, [H, S] or [1, S]; it takes a fraction of the memory."""
    if not isinstance(policy, Policy):
        return _mixed(cmdp, policy, reach)
    if not cmdp.criterion.has_horizon:
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
    d = np.zeros((cmdp.H, cmdp.S))
    d[0] = mu + inflow[0]
    _carry(cmdp, Decisions(*map(readonly, all_drawn(pi))), 0, cmdp.H - 1, inflow, d, cmdp.H * _work(cmdp))
    q: FloatArray = d[:, :, None] * pi
    return q


def backward(cmdp: CMDP, policy: Policy) -> FloatArray:
    """Expected totals [1 + N] of reward and utilities from the start, over the horizon."""
    X = np.zeros((2, cmdp.S, 1 + cmdp.N))
    writable = np.array(policy.decisions.choice)  # of the same type as where actions are chosen
    decisions = policy.decisions._replace(choice=writable)
    given = cmdp.rows, cmdp.signals.r, readonly(cmdp.compact.allowed), cmdp.signals, decisions
    work = (1 + cmdp.N) * cmdp.n_steps * _choices_work(cmdp)
    call(steps.induction, work, *given, 0, cmdp.H - 1, 0, cmdp.S, steps.NO_CHOICE, X, np.zeros((0, 1, 1)))
    return np.array([cmdp.mu @ np.ascontiguousarray(x) for x in X[0].T])


def forward(cmdp: CMDP, policy: Policy) -> FloatArray:
    """The probability [H, S] of being in each state at each step."""
    d = np.zeros((cmdp.H, cmdp.S))
    d[0] = cmdp.mu
    _carry(cmdp, policy.decisions, 0, cmdp.H - 1, np.zeros((0, cmdp.S)), d, cmdp.n_steps * _choices_work(cmdp))
    return d


def one_step(cmdp: CMDP, policy: Policy, h: int, here: FloatArray) -> FloatArray:
    """The probabilities [S] of the states at step h + 1, from those at step h."""
    d = np.zeros((2, cmdp.S))
    d[h % 2] = here
    _carry(cmdp, policy.decisions, h, h + 1, np.zeros((0, cmdp.S)), d, _choices_work(cmdp))
    there: FloatArray = d[(h + 1) % 2]
    return there


def _carry(
    cmdp: CMDP, decisions: Decisions, first: int, last: int, inflow: FloatArray, d: FloatArray, work: int
) -> None:
    """Fill d after step `first` (see `steps.flow`); a quarter of the work is done, because few states are reached."""
    call(steps.flow, work // 4, cmdp.rows, decisions, cmdp.signals, first, last, readonly(inflow), d, np.zeros(0))


def _work(cmdp: CMDP) -> int:
    """Inner loops of a pass over all states and actions of a step."""
    return cmdp.S * cmdp.A + cmdp.kernel.nonzeros // cmdp.kernel.T


def _choices_work(cmdp: CMDP) -> int:
    """Inner loops of a step, for a policy that draws rarely."""
    return cmdp.S + cmdp.kernel.nonzeros // cmdp.kernel.T // cmdp.A
