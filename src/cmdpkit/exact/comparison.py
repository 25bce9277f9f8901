"""Policies beside the optimum: what they are worth, where they decide otherwise, what that costs, and why.

At the prices lam of the optimum, every decision has a worth in one currency: Q[h, s, a] is the most that reward plus
priced utilities can still add up to after action a, and V[h, s] = max_a Q[h, s, a]. For any policy pi,

    (v* - v) + lam . (w* - w) = sum over h, s, a of Prob_pi(s_h = s, a_h = a) (V[h, s] - Q[h, s, a])

exactly, with w the utilities (an "at most" total counts negatively). Each term is what one decision of the policy
costs, and a policy that costs nothing and meets its bounds, those that have a price without any slack, is optimal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.exact.sources import Induction
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import one_hot
from cmdpkit.model.fits import check_fits, check_model
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import Name, is_int
from cmdpkit.operators.chains import stationary_action_values
from cmdpkit.operators.policies import action_values, evaluate, markov, occupancy, reach

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_COST = 1e-9  # of the value's size: a smaller cost is rounding
MOST_ROUNDS = 100  # of policy iteration in states that the optimum never meets


class Judged(NamedTuple):
    """A policy with its exact totals."""

    name: str  # what the user calls the policy
    value: float  # expected total reward
    utilities: FloatArray  # [N], totals of the constraints' signals
    met: tuple[bool, ...]  # whether each bound is met
    below: float  # optimal value less this one; negative only if a bound is broken
    priced: float  # the same, plus what its utilities fall short of the optimum's, at the optimum's prices


class Difference(NamedTuple):
    """What a policy does otherwise in a state, summed over the steps at which it does so."""

    name: str  # of the policy
    steps: tuple[int, ...]  # from 1
    state: Name  # where the decisions are made
    does: Mapping[Name, float]  # probabilities of its actions, on average over the visits
    optimum: Mapping[Name, float]  # those of the optimum
    visits: float  # how often the policy gets there at these steps, per episode
    cost: float  # what the decisions cost per episode, at the optimum's prices
    costs: tuple[float, ...]  # the same by step


@dataclass(frozen=True, eq=False)
class PolicyComparison(Shown):
    """Several policies beside the optimum."""

    optimum: Solution  # the solution that the policies are compared with
    policies: tuple[Judged, ...]  # in the order in which they were given
    differences: tuple[Difference, ...]  # summed over steps, the dearest first; empty without a horizon

    def plot(self, *, size: float | tuple[float, float] | None = None, ax: Any = None) -> Figure:
        """A matplotlib figure: bars of the value and of every total against its bound, of policies and optimum.

        ``size`` is the width in inches, or width and height; ``ax`` are axes to draw into, one for each total.
        """
        return showing.draw(self, size=size, ax=ax)


def compare_policies(cmdp: CMDP, policies: Any) -> PolicyComparison:
    """Several policies and the optimum side by side, where they differ, and what each difference costs.

    Parameters
    ----------
    cmdp : the model
    policies : {name: policy}, or a single policy. A policy is a `Policy`, or whatever `Policy.of` makes one of: a
        function of the state (and the step), a mapping or an array. A `Mixture` is compared too; its decisions
        are those of the single policy that goes where the mixture goes.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> found = compare_policies(cmdp, {"always rest": lambda state: 2})
    >>> found.policies[0].value, found.policies[0].met, round(found.policies[0].below, 6)
    (0.0, (True,), 0.5)
    """
    check_model(cmdp)
    policies = _named(cmdp, policies)
    found = solve_fully(cmdp)
    lost = None
    if cmdp.criterion.has_horizon:
        Q, V = priced_values(cmdp, found.lam)
        lost = np.where(cmdp.actions, V[:-1, :, None] - Q, 0.0)
    judged, differences = [], []
    for name, policy in policies.items():
        values = evaluate(cmdp, policy)
        signed = cmdp.signs * (found.utilities - values.w)
        below = found.value - values.v
        met = tuple(bool(x) for x in cmdp.signs * values.w - cmdp.rho >= -found.tolerance)
        judged.append(Judged(name, values.v, values.w, met, below, below + float(found.lam @ signed)))
        if lost is not None:
            single = policy if isinstance(policy, Policy) else markov(cmdp, policy)
            differences += _differences(found, lost, name, single)
    return PolicyComparison(found, tuple(judged), tuple(sorted(differences, key=lambda x: -x.cost)))


def _named(cmdp: CMDP, given: Any) -> dict[str, Policy | Mixture]:
    """The policies by name; a single one is called by the name of its function, or "policy"."""
    if isinstance(given, (Policy, Mixture)) or callable(given):
        name = getattr(given, "__name__", "policy")
        given = {"policy" if name == "<lambda>" else name: given}
    if not isinstance(given, Mapping) or not given:
        kind = "empty" if isinstance(given, Mapping) else f"a {type(given).__name__}"
        raise CmdpkitError(f"policies is {kind}, expected a mapping: {{'my rule': policy}}")
    made: dict[str, Policy | Mixture] = {}
    for name, policy in given.items():
        try:
            made[name] = policy if isinstance(policy, (Policy, Mixture)) else Policy.of(cmdp, policy)
        except CmdpkitError as error:
            raise CmdpkitError(f"policies[{quoted(name)}]: {error}") from None
    return made


def _differences(found: Solution, lost: FloatArray, name: str, policy: Policy) -> list[Difference]:
    """Decisions that cost something, by the losses `lost` [H, S, A] at the prices; equal steps are summed."""
    cmdp = found.cmdp
    q = occupancy(cmdp, policy)
    cost, reach = (q * lost).sum(axis=-1), q.sum(axis=-1)
    rounding = NO_COST * max(1.0, abs(found.value))
    alike: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for s, h in np.argwhere(rounding < cost.T).tolist():
        actions = (tuple(np.flatnonzero(x.row(h, s) > NEGLIGIBLE).tolist()) for x in (policy, found.policy))
        alike.setdefault((s, next(actions), next(actions)), []).append(h)
    rows = []
    for (s, _, _), steps in alike.items():
        visits, costs = reach[steps, s], tuple(cost[steps, s].tolist())
        does, optimum = (visits @ [x.row(h, s) for h in steps] for x in (policy, found.policy))
        odds = _odds(cmdp, does), _odds(cmdp, optimum)
        where = tuple(h + 1 for h in steps), cmdp.states[s]
        rows.append(Difference(name, *where, *odds, float(visits.sum()), sum(costs), costs))
    return rows


def _odds(cmdp: CMDP, row: FloatArray) -> dict[Name, float]:
    """The probabilities of a decision [A], up to a factor, by the model's names of the actions."""
    p = row / row.sum()
    return {cmdp.action_names[int(a)]: float(p[a]) for a in np.flatnonzero(p > NEGLIGIBLE)}


def priced_values(cmdp: CMDP, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Q [H, S, A] and V [H+1, S] of the best policy for reward plus utilities at prices [N]; -inf without an action."""
    signal = cmdp.compact.r + np.tensordot(prices, cmdp.compact.g, 1)
    choice = Induction(cmdp).best(signal)[1]
    Q, V = action_values(cmdp, signal, one_hot(choice, cmdp.A))
    return np.where(cmdp.actions, Q, -np.inf), V


class Option(NamedTuple):
    """An action in a state, and its totals if the optimum follows; with averages, gains on those of the optimum."""

    action: Name  # its name
    probability: float  # with which the explained policy takes it
    value: float  # expected reward from here on
    utilities: FloatArray  # [N], expected totals of the constraints' signals from here on
    priced: float  # value plus utilities at the prices of the bounds
    loses: float  # against the best action, at these prices


@dataclass(frozen=True, eq=False)
class Explanation(Shown):
    """Why a policy does what it does in a state, at a step where there is a horizon."""

    cmdp: CMDP  # the model
    step: int | None  # from 1; None without a horizon
    state: Name  # the one that was asked about
    reach: float  # probability that the policy gets there; without a horizon the share of time, or visits for totals
    prices: FloatArray  # [N], of the bounds, in the units they were given in
    options: tuple[Option, ...]  # the best at these prices first

    @property
    def why(self) -> str:
        """The reason in a sentence."""
        taken = [x for x in self.options if x.probability > NEGLIGIBLE]
        worst = taken[-1]
        if worst.loses > NO_COST * max(1.0, abs(worst.priced)):
            return f"{quoted(worst.action)} is not the best action there: it loses {worst.loses:.6g} against the best"
        if len(taken) > 1:
            names = " and ".join(quoted(x.action) for x in taken)
            alike = f"{names} are equally good at the prices of the bounds"
            return f"{alike}; the policy randomises so that the bounds are met"
        if len(self.options) == 1:
            return f"{quoted(worst.action)} is the only action there is"
        best, second = self.options[:2]
        return f"{quoted(best.action)} is worth {second.loses:.6g} more than {quoted(second.action)}, the next best"


def explain(cmdp: CMDP, state: Name, step: int | None = None, policy: Policy | None = None) -> Explanation:
    """Why the optimum, or another policy, does what it does in a state at a step (from 1; none without a horizon).

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> sorted((x.action, abs(round(x.loses, 6))) for x in explain(cmdp, state=1, step=2).options)
    [(1, 0.0), (2, 0.0)]
    """
    check_model(cmdp)
    h, s = _place(cmdp, step), cmdp.state_index(state)
    found = solve_fully(cmdp)
    if not isinstance(found.policy, Policy):
        raise CmdpkitError(
            "the optimum is a draw among several policies, each of which is kept forever, so that no action has one "
            "value; cmdpkit.compare_policies(cmdp, {...}) says what policies of your own are worth"
        )
    shown = found.policy if policy is None else policy
    check_fits(cmdp, shown)
    visited = float(reach(cmdp, shown)[h, s])
    totals = (_ahead if cmdp.criterion.has_horizon else _endless)(found, h, s)
    priced = totals[0] + found.lam @ totals[1:]
    there, taken = np.flatnonzero(cmdp.actions[h, s]), shown.row(h, s)
    best = float(priced[there].max())
    options = []
    for a in there.tolist():
        value, utilities, worth = float(totals[0, a]), cmdp.signs * totals[1:, a] + 0.0, float(priced[a])
        options.append(Option(cmdp.action_names[a], float(taken[a]), value, utilities, worth, best - worth))
    ordered = tuple(sorted(options, key=lambda x: (x.loses, -x.probability)))
    when = h + 1 if cmdp.criterion.has_horizon else None
    return Explanation(cmdp, when, cmdp.states[s], visited, found.shadow_prices, ordered)


def _place(cmdp: CMDP, step: int | None) -> int:
    """Where the decisions of a step stand in pi."""
    if not cmdp.criterion.has_horizon:
        if step is not None:
            raise CmdpkitError(
                f"step is {quoted(step)}, but the model is judged by {cmdp.criterion.in_words}, where all steps are "
                "alike; leave it out"
            )
        return 0
    if step is None or not is_int(step) or not 1 <= step <= cmdp.H:
        raise CmdpkitError(f"step is {quoted(step)}, expected a whole number from 1 to {cmdp.H}")
    return int(step) - 1


def _ahead(found: Solution, h: int, s: int) -> FloatArray:
    """[1 + N, A]: totals of reward and utilities from a step on, by the action taken there.

    Afterwards the optimum is followed where its decisions are best at the prices, and a best action elsewhere.
    """
    cmdp, pi = found.cmdp, found.policy.pi
    Q, V = priced_values(cmdp, found.lam)
    best = V[:-1, :, None]
    good = (best - 1e-7 * np.maximum(1.0, np.abs(best)) <= Q).astype(float)
    kept = (pi * (1 - good)).sum(axis=-1, keepdims=True) <= NEGLIGIBLE
    followed = Policy.of(cmdp, np.where(kept, pi, one_hot(Q.argmax(axis=-1), cmdp.A)))
    return np.array([action_values(cmdp, x, followed.pi)[0][h, s] for x in (cmdp.compact.r, *cmdp.compact.g)])


def _endless(found: Solution, _h: int, s: int) -> FloatArray:
    """The same without a horizon; where the optimum never goes, what is best at the prices is done instead."""
    cmdp, c = found.cmdp, found.cmdp.compact
    signals = np.concatenate((c.r, c.g[:, 0]))
    prices = np.append(1.0, found.lam)
    pi, elsewhere = found.policy.table(0), found.reach[0] <= NEGLIGIBLE
    for _ in range(MOST_ROUNDS):
        totals = stationary_action_values(cmdp, pi, signals)
        Q = np.where(c.allowed[0], np.tensordot(prices, totals, 1), -np.inf)
        now = np.where(pi > 0, pi * np.where(c.allowed[0], Q, 0.0), 0.0).sum(axis=1)
        better = elsewhere & (Q.max(axis=1) > now + 1e-9 * np.maximum(1.0, np.abs(now)))
        if not better.any():
            break
        pi[better] = np.eye(cmdp.A)[Q.argmax(axis=1)[better]]
    return totals[:, s]
