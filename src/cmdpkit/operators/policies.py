"""The exact values of a policy, and the states and actions it visits.

Start values are computed backward from the last step, the occupancy q[h, s, a] = Prob(s_h = s, a_h = a) forward from
the first one. Both are linear, so a mixture has the weighted sum of what its policies have. `markov` turns a mixture
into one Markov policy of the same occupancy and values, and `decompose` turns a policy into a mixture. The passes over
a policy's `Decisions` look only at actions with a positive probability, and nothing of size [H, S, A] is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.decisions import Decisions, of_rows, of_steps, rows_at
from cmdpkit.model.fits import check_fits, check_mixture, check_model
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.tolerances import ROUNDOFF, SMALLEST_OCCUPANCY, SMALLEST_WEIGHT, TOTALS_AGREE, USED_UP
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import index_of
from cmdpkit.operators import steps


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
    _carry(cmdp, Decisions(*map(readonly, steps.all_drawn(pi))), 0, cmdp.H - 1, inflow, d, cmdp.H * _work(cmdp))
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


# -- mixtures and Markov policies, turned into each other --------------------------------------------------------------


def markov(cmdp: CMDP, mixture: Mixture) -> Policy:
    """The Markov policy that has the occupancy of a mixture, and therefore its values (Lemma 2 of arXiv 2309.15395).

    Where the mixture never goes, the first policy's decision is kept. Long-run averages are refused: there a mixture
    may divide its time between classes of states that no single policy visits in the same proportion.
    """
    check_model(cmdp)
    if not isinstance(mixture, Mixture):
        raise CmdpkitError(f"mixture is a {type(mixture).__name__}, expected a Mixture: Mixture(policies, weights)")
    _refuse_average(cmdp)
    if not cmdp.criterion.has_horizon:
        return from_occupancy(cmdp, occupancy(cmdp, mixture), mixture.policies[0].pi)
    return Policy.fitting(cmdp, of_steps(_by_step(cmdp, mixture)), cmdp.H)


def from_occupancy(cmdp: CMDP, q: FloatArray, default: FloatArray) -> Policy:
    """pi[h, s, a] = q[h, s, a] / sum_a q[h, s, a], and default[h, s] where (h, s) is not reached."""
    return Policy.of(cmdp, conditional(q, default))


def _by_step(cmdp: CMDP, mixture: Mixture) -> Iterator[FloatArray]:
    """The probabilities [S, A] of the mixture's Markov policy, one step after the other."""
    for policy in mixture.policies:
        check_fits(cmdp, policy)
    shares = [cmdp.mu] * len(mixture.policies)
    for h in range(cmdp.H):
        q = np.zeros((cmdp.S, cmdp.A))
        for weight, policy, d in zip(mixture.weights, mixture.policies, shares, strict=True):
            q += weight * (d[:, None] * policy.table(h))
        shares = [one_step(cmdp, policy, h, d) for policy, d in zip(mixture.policies, shares, strict=True)]
        yield conditional(q, mixture.policies[0].table(h))


def conditional(q: FloatArray, default: FloatArray) -> FloatArray:
    """q[..., a] / sum_a q[..., a] of an occupancy q [..., A], however small, and the default where it is zero."""
    q = np.where(q > SMALLEST_OCCUPANCY, q, 0.0)
    reached = q.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        table: FloatArray = np.where(reached > 0, q / reached, default)
    return table


def decompose(cmdp: CMDP, policy: Policy) -> Mixture:
    """Deterministic policies whose mixture has the policy's occupancy: the converse of Lemma 2.

    This is a greedy method. It takes the most used action everywhere, subtracts as much of that policy as the occupancy
    contains, and continues with the rest, which is again the occupancy of some policy. Each round uses up one action.
    If the policy uses E more actions than it has decisions, this gives at most E + 1 policies, where the product
    formula would give up to 2^E. The expected totals of the mixture are compared with those of the policy before it
    is returned.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], horizon=2)
    >>> mixture = decompose(cmdp, ck.Policy([[[0.25, 0.75]], [[0.0, 1.0]]]))
    >>> mixture.weights.tolist(), [part.choice[:, 0].tolist() for part in mixture.policies]
    ([0.75, 0.25], [[1, 1], [0, 1]])
    """
    check_fits(cmdp, policy)
    _refuse_average(cmdp)
    where, p = policy.rows
    drawn = where[:, 0], where[:, 1]
    # Only decisions that draw limit the share of a part: everything else follows from them by the flow of occupancy.
    whole = reach(cmdp, policy)[drawn][:, None] * p  # [m, A], occupancy of their actions
    rest = whole.copy()
    choice, fallback = policy.choice.copy(), policy.choice[drawn]
    rows, left = np.arange(len(where)), 1.0
    policies: list[Policy] = []
    weights: list[float] = []
    while True:
        rest[rest <= USED_UP * whole] = 0.0
        choice[drawn] = np.where(rest.any(axis=1), rest.argmax(axis=1), fallback)
        part = Policy.fitting(cmdp, of_rows(choice, where[:0], p[:0]), policy.shape[0])
        policies.append(part)
        deterministic = np.count_nonzero(rest) <= np.count_nonzero(rest.any(axis=1))
        if deterministic or left <= SMALLEST_WEIGHT:
            weights.append(left)
            break
        q = reach(cmdp, part)[drawn]
        taken = rest[rows, choice[drawn]]
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where((taken > 0) & (q > 0), taken / q, np.inf)
        share = min(left, float(shares.min()))
        weights.append(share)
        left -= share
        rest[rows, choice[drawn]] = np.where(shares <= share, 0.0, np.maximum(taken - share * q, 0.0))
        if left <= 0.0:
            break
    mixture = Mixture(tuple(policies), np.array(weights))
    _check_totals(cmdp, policy, mixture)
    return mixture


def _check_totals(cmdp: CMDP, policy: Policy, mixture: Mixture) -> None:
    """Raise CmdpkitError unless a mixture has the expected totals of a policy, up to rounding."""
    parts = np.array([_totals(cmdp, part) for part in (policy, *mixture.policies)])
    size = cmdp.reformulated(r=np.abs(cmdp.compact.r), g=np.abs(cmdp.compact.g))
    magnitude = np.abs(np.array([_totals(size, part) for part in (policy, *mixture.policies)])).max(axis=0)
    missed = np.abs(mixture.weights @ parts[1:] - parts[0])
    terms = (cmdp.criterion.horizon or cmdp.S) * (int(cmdp.kernel.lengths.max(initial=1)) + 4)
    allowed = TOTALS_AGREE * np.ptp(parts, axis=0) + 2 * terms * ROUNDOFF * magnitude
    n = int((missed - allowed).argmax())
    if missed[n] > allowed[n]:
        name = "the reward" if n == 0 else quoted(cmdp.constraints[n - 1].name)
        raise CmdpkitError(
            f"the policy cannot be written as a mixture in double precision: the total of {name} would be wrong by "
            f"{missed[n]:.3g}, and {allowed[n]:.3g} is rounding; bring large and small signals and probabilities "
            "closer together"
        )


def _totals(cmdp: CMDP, policy: Policy) -> FloatArray:
    values = evaluate(cmdp, policy)
    return np.append(values.v, values.w)


def _refuse_average(cmdp: CMDP) -> None:
    if cmdp.criterion.kind == "average":
        raise CmdpkitError(
            "mixtures and single policies cannot be turned into each other under the criterion 'average': a mixture "
            "may settle in several classes of states, a single policy in its own proportions; evaluate takes both"
        )
