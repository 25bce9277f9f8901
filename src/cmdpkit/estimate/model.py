"""The model that the counts suggest, the best policy in it, and how far its predictions can be trusted.

**Standard errors**, by the delta method. A total W of a fixed policy is a smooth function of the estimated rows, one
per cell. To first order, their errors move it by the sum over the rows of flow(row) times the error of the mean of
y = x + V(s'), where x is the signal of a transition and V(s') the value of its next state, so

    Var(W) = sum over rows of flow(row)^2 Var(y in the row) / n(row)  +  Var(V(start)) / episodes.

`row_shares` is this sum, for counts per step and pooled (`plan_errors`), for one unbroken run (`stationary_errors`) and
for logs (`cmdpkit.estimate.fitted`). What differs is where the variance of a row comes from. Logs keep every
transition, and so know that signal and next state go together. Counts keep the moments of signals and the numbers of
next states apart, and add up the two variances.
"""

from __future__ import annotations

import math
from operator import itemgetter
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, ndtr

from cmdpkit.estimate.continuing import Seen, chain_of
from cmdpkit.estimate.counts import Counts, estimated, signal_squares, signal_variances
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import Watch, solve_fully, solve_in
from cmdpkit.exact.sources import Horizon
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least
from cmdpkit.model.tolerances import EQUAL_SUMS, NO_FLOW, NO_SPREAD
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chains import Chain, closed_classes, long_run_shares, stationary_occupancy
from cmdpkit.operators.chains import chain_of as chain_in
from cmdpkit.operators.policies import action_values, flow
from cmdpkit.operators.row_lists import matrix_of, reached_from, rows_of


class Model(NamedTuple):
    """The estimated model and what it rests on."""

    cmdp: CMDP  # the model itself
    counts: Counts  # what it rests on
    tried: BoolArray  # [H, S, A]: actions whose outcome was seen often enough to plan with
    known: BoolArray  # [H, S]: states with such an action
    moot: BoolArray  # [N]: bounds that no plan asks for, because nothing that is done seems to matter to them


class Plan(NamedTuple):
    """A policy for the estimated model."""

    pi: FloatArray  # [H, S, A]
    prices: FloatArray  # [N]: of the bounds it was made for; 0 where it could not meet them
    utilities: FloatArray  # [N]: predicted
    feasible: bool
    value: float = -np.inf  # predicted; minus infinity where the bounds could not be met


def model_of(counts: Counts, rho: FloatArray, allowed: BoolArray, least: int | IntArray) -> Model:
    """The estimated model with bounds rho [N] and the actions `allowed` [H, S, A].

    An action counts as tried after `least` observations, perhaps by state [H, S, 1]. In a state with such an action the
    others do not exist; in a state without, all allowed actions do, and lead back to it.
    """
    H, S, A = allowed.shape
    found = estimated(counts, A)
    T = found.kernel.T
    moves, visits = (np.broadcast_to(x.reshape(T, S, A), (H, S, A)) for x in (counts.moves, counts.visits))
    tried = allowed & (moves >= least)
    tried[-1] = allowed[-1] & (visits[-1] >= np.broadcast_to(least, (H, S, 1))[-1])
    known = np.asarray(tried.any(axis=-1))
    cmdp = CMDP(
        found.kernel,
        found.signals[0],
        found.signals[1:],
        mu=found.mu,
        horizon=H,
        actions=np.where(known[..., None], tried, allowed),
        constraints=[at_least(f"utility {n}", float(x)) for n, x in enumerate(rho)],
        renormalise=True,
    )
    return Model(cmdp, counts, tried, known, indifferent(counts, T, H, rho))


def best_plan(model: Model, target: FloatArray, pool: Columns[Horizon] | None = None) -> Plan:
    """The best policy of the estimated model that reaches the target [N]; if none does, the best compromise.

    A pool of policies of this model makes further plans in it faster.
    """
    asked = np.where(model.moot, 0.0, target)  # no total is below 0, so that a target of 0 asks for nothing
    cmdp = model.cmdp.with_bounds(**{c.name: float(x) for c, x in zip(model.cmdp.constraints, asked, strict=True)})
    try:
        found = solve_fully(cmdp) if pool is None else solve_in(pool, cmdp, "auto", Watch())
    except Infeasible as error:
        return Plan(error.policy.pi.copy(), np.zeros(len(target)), error.utilities, False)
    return Plan(found.policy.pi.copy(), found.shadow_prices, found.utilities, True, found.value)


def indifferent(
    counts: Counts, T: int, H: int, rho: FloatArray, *, near: float = 3.0, error: float = 1e-4
) -> BoolArray:
    """[N]: utilities that no state and no action is seen to change, and whose total cannot be told from the bound.

    Where such a utility lies exactly at its bound and its signals are noisy, the estimated model says by chance that it
    misses the bound, or meets it with nothing to spare. A plan would then give up any amount of reward for actions that
    were merely lucky so far. Nothing is bought by that, so no plan asks for such a bound.

    T is 1 where all steps share their counts, else H. A total cannot be told from the bound within `near` standard
    errors. A utility that nothing changes is taken for one that something changes with probability `error`.
    """
    M, visits = 1 + len(rho), counts.visits.reshape(T, -1)
    all_squares, found = signal_squares(counts, M), np.zeros(len(rho), dtype=bool)
    for n, bound in enumerate(rho):
        sums, squares = (x[:, n + 1].reshape(visits.shape) for x in (counts.moments, all_squares))
        variance = _common_variance(visits, sums, squares, error)
        if variance is None:
            continue
        seen = np.maximum(visits.sum(axis=1), 1)
        total = H / T * (sums.sum(axis=1) / seen).sum()
        deviation = H / T * np.sqrt((variance / seen).sum())
        found[n] = abs(total - bound) <= near * deviation + EQUAL_SUMS
    return found


def _common_variance(visits: IntArray, sums: FloatArray, squares: FloatArray, error: float) -> float | None:
    """The variance of a signal around the mean of its step, or None if the means of a step's cells differ.

    visits, sums and squares [T, cells] are what each cell saw. Whether the means differ is decided by the F-test of the
    analysis of variance, which compares their spread with the spread within the cells.
    """
    steps = visits.sum(axis=1)
    around_cells = max(float((squares - sums**2 / np.maximum(visits, 1)).sum()), 0.0)
    around_steps = max(float((squares.sum(axis=1) - sums.sum(axis=1) ** 2 / np.maximum(steps, 1)).sum()), 0.0)
    between = int((visits > 0).sum()) - int((steps > 0).sum())
    within = int(np.maximum(visits - 1, 0).sum())
    if within < between or not between:  # too few visits to tell
        return None
    apart = around_steps - around_cells
    if apart > EQUAL_SUMS * float(squares.sum()):
        ratio = apart / between / max(around_cells / within, 1e-300)
        if fdtrc(between, within, ratio) < error:
            return None
    return around_steps / (between + within)


# -- Standard errors ---------------------------------------------------------------------------------------------------


def squared_errors(model: Model, V: FloatArray, c: FloatArray, pseudo: float) -> FloatArray:
    """[H, S, A]: squared standard error of an action's value, from where it leads and from what it earns."""
    cmdp, counts = model.cmdp, model.counts
    own, shape = cmdp.kernel.shape, (cmdp.H, cmdp.S, cmdp.A)
    moves, visits = (np.broadcast_to(x.reshape(own), shape) for x in (counts.moves, counts.visits))
    ahead = _with_average(_variances_ahead(cmdp, V), moves, pseudo)
    ahead[-1] = 0.0
    earned = _with_average(np.broadcast_to(signal_variances(counts, c).reshape(own), shape), visits, pseudo)
    errors: FloatArray = ahead / np.maximum(moves, 1) + earned / np.maximum(visits, 1)
    return errors


def _with_average(variance: FloatArray, n: IntArray, pseudo: float) -> FloatArray:
    """Few samples say little about their variance, so the average of the step is mixed in."""
    weight = n.sum(axis=(1, 2), keepdims=True)
    average = (variance * n).sum(axis=(1, 2), keepdims=True) / np.maximum(weight, 1)
    mixed: FloatArray = (variance * n + pseudo * average) / (n + pseudo)
    return mixed


class RowShares(NamedTuple):
    """What each row contributes to the squared error of a total."""

    shares: FloatArray  # [rows]: flow^2 times the variance of the row, divided by its observations
    freedom: FloatArray  # [rows]: degrees of freedom of that variance


def row_shares(through: FloatArray, squares: FloatArray, n: IntArray, *, pseudo: float, ddof: int = 0) -> RowShares:
    """The sum of the delta method, row by row; rows without observations contribute nothing.

    through, squares and n [rows] are the flow through a row, the sum of squared deviations of its observations from
    their mean, and their number. Few observations say little about a variance, so the average variance within the rows
    is mixed in with the weight of `pseudo` observations. With ddof = 1 variances are unbiased.

    >>> found = row_shares(np.array([2.0, 1.0]), np.array([8.0, 0.0]), np.array([4, 4]), pseudo=4.0)
    >>> found.shares.tolist()  # variances of 2 and 0, mixed evenly with their average of 1
    [1.5, 0.125]
    """
    seen = n > 0
    average = float(squares.sum()) / max(float((n - ddof)[seen].sum()), 1.0)
    freedom = np.where(seen, n - ddof + pseudo, 1.0)
    mixed = (squares + pseudo * average) / freedom
    return RowShares(np.where(seen, through**2 * mixed / np.maximum(n, 1), 0.0), freedom)


def plan_errors(model: Model, pi: FloatArray, *, pseudo: float = 5.0, unseen: float = 0.25) -> FloatArray:
    """[N]: standard errors of a policy's predicted utilities.

    Where all steps share their counts, an error of one estimate acts at every step at once: what the flow of all steps
    takes to a next state is added up before it is squared. A next state that was not seen yet may deviate by the share
    `unseen` of the range of values. `pseudo` is explained at `row_shares`.
    """
    cmdp, counts = model.cmdp, model.counts
    T, S, A = cmdp.kernel.shape
    q = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu)
    flow_all = q.reshape(-1, T, S * A).sum(axis=0).ravel() if T == 1 else q.reshape(-1)
    errors = np.zeros(cmdp.N)
    for n, g in enumerate(cmdp.compact.g):
        V = action_values(cmdp, g, pi)[1]
        through, spread = _pooled_variance(cmdp, counts.moves, q, V, np.ptp(V, axis=1) * unseen)
        unit = np.divide(spread, through**2, out=np.zeros_like(spread), where=through > NO_FLOW)
        moves = counts.moves * (through > 0)
        moved = row_shares(through, unit * moves, moves, pseudo=pseudo)
        variance = signal_variances(counts, np.eye(1, 1 + cmdp.N, 1 + n)[0])
        earned = row_shares(flow_all, variance * counts.visits, counts.visits, pseudo=0.0)
        start = _start_share(cmdp.mu, V[0], int(counts.starts.sum()))
        errors[n] = np.sqrt(moved.shares.sum() + earned.shares.sum() + start)
    return errors


def _pooled_variance(
    cmdp: CMDP, moves: IntArray, q: FloatArray, V: FloatArray, span: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """[rows] each: the flow that goes on from a row, and the variance of sum_h q_h V[h+1] at its next state.

    Next states seen only once tell how much probability was not seen at all (Good and Turing). This share of it may
    lead to values that deviate by span [H+1].
    """
    kernel, rows, size = cmdp.kernel, cmdp.kernel.rows, cmdp.S * cmdp.A
    through, deviation, worth = np.zeros((kernel.T, size)), np.zeros((kernel.T, size)), np.zeros(kernel.nonzeros)
    for h in range(cmdp.H - 1):
        t, flow_now = h % kernel.T, q[h].ravel()
        through[t] += flow_now
        deviation[t] += flow_now * span[h + 1]
        here = _entries_of_step(rows, t, size)
        worth[here] += flow_now[rows[here] % size] * V[h + 1, kernel.successors[here]]
    p = kernel.prob
    once = np.where(p * moves[rows] < 1.5, p, 0.0)
    sums = (np.bincount(rows, weights=x, minlength=through.size) for x in (p * worth, p * worth * worth, once))
    mean, square, unseen = sums
    spread = np.maximum(square - mean * mean, 0.0) + unseen * deviation.ravel() * deviation.ravel()
    return through.ravel(), spread


def _start_share(mu: FloatArray, V: FloatArray, episodes: int) -> float:
    """What the estimated start distribution mu [S] adds to the squared error of a total with values V [S]."""
    return max(float(mu @ V**2 - (mu @ V) ** 2), 0.0) / max(episodes, 1)


def stationary_errors(model: Arrays, seen: Seen, pi: FloatArray) -> FloatArray:
    """[N]: standard errors of the utilities per step of the policy pi [S, A] in a mean model of one unbroken run.

    The flow of a pair is its share of time, and the values are the relative ones, times the discount.
    """
    S = len(pi)
    P = matrix_of(model.rows, S)
    chain = chain_of(model, pi)
    if model.kind == "average":
        shares, classes = long_run_shares(chain, model.mu)
        used = max(classes, key=lambda found: found[1])[0]
    else:
        shares = Chain(chain, model.discount).flow((1 - model.discount) * model.mu, 1.0)
        used = np.arange(S)
    x = np.einsum("sa,nsa->sn", pi, model.g)[used]
    h = np.zeros((S, len(model.g)))
    h[used] = Chain(chain[used][:, used], model.discount).values(x)[1]
    through, n = (shares[:, None] * pi).ravel(), seen.visits.ravel()
    moved = np.maximum(P @ h**2 - (P @ h) ** 2, 0.0) * model.discount**2  # [S * A, N]
    signals = np.eye(1 + len(model.g))[1:]
    earned = np.stack([signal_variances(seen.counts, c) for c in signals], axis=1) if len(signals) else moved
    squares = np.asarray(n[:, None] * (moved + earned), dtype=float)
    errors = np.array([row_shares(through, column, n, pseudo=0.0).shares.sum() for column in squares.T])
    if model.kind == "discounted":
        episodes = int(seen.counts.starts.sum())
        errors += [(1 - model.discount) ** 2 * _start_share(model.mu, V, episodes) for V in h.T]
    found: FloatArray = np.sqrt(errors)
    return found


def spread(model: Model, pi: FloatArray) -> FloatArray:
    """[N]: standard deviation of an episode's utilities in the estimated model, by the law of total variance."""
    cmdp, N = model.cmdp, model.cmdp.N
    q, found = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu), np.zeros(N)
    for n, g in enumerate(cmdp.compact.g):
        Q, V = action_values(cmdp, g, pi)
        ahead = _variances_ahead(cmdp, V)
        noise = signal_variances(model.counts, np.eye(1, 1 + N, 1 + n)[0]).reshape(-1, *pi.shape[1:])
        start = cmdp.mu @ V[0] ** 2 - (cmdp.mu @ V[0]) ** 2
        found[n] = math.sqrt(max(float((q * (ahead + noise + (Q - V[:-1, :, None]) ** 2)).sum() + start), 0.0))
    return found


def _variances_ahead(cmdp: CMDP, V: FloatArray) -> FloatArray:
    """[H, S, A]: the variance of V[h+1] at the next state; 0 at the last step."""
    kernel, out = cmdp.kernel, np.zeros((cmdp.H, cmdp.S, cmdp.A))
    rows, size = kernel.rows, cmdp.S * cmdp.A
    for h in range(cmdp.H - 1):
        here = _entries_of_step(rows, h % kernel.T, size)
        p, y, row = kernel.prob[here], V[h + 1, kernel.successors[here]], rows[here] % size
        mean, square = (np.bincount(row, weights=x, minlength=size) for x in (p * y, p * y * y))
        out[h] = np.maximum(square - mean * mean, 0.0).reshape(out[h].shape)
    return out


def _entries_of_step(rows: IntArray, t: int, size: int) -> slice:
    """Where the entries of step t stand, if `rows` are those of all entries and every step has `size` rows."""
    first, last = np.searchsorted(rows, (t * size, (t + 1) * size))
    return slice(int(first), int(last))


# -- The policy to return, with a margin for the error of its own prediction -------------------------------------------


class HandOver(NamedTuple):
    """The policy to return and what its margin covers."""

    plan: Plan
    margin: FloatArray  # [N]: by how much it was asked to clear the bounds
    uncovered: FloatArray  # [N]: by how much its own error may take it beyond a bound all the same


def handed_over(model: Model, rho: FloatArray, extra: FloatArray, z: float, missed: float = 0.0) -> HandOver:
    """The best plan that clears the bounds by a margin of at least z standard errors, as far as that is possible.

    A wider margin costs value and makes it less likely that a bound is missed. Among margins of z, z + 1/3, ...
    standard errors, the plan is chosen that has the largest

        value - missed * range of values * (sum over the bounds of the probability of missing it),

    so the margin is wide where it is cheap. Where no policy clears all bounds by so much, the largest part of the
    margin is kept that all bounds allow together, and `uncovered` says what z standard errors lack. The margin comes on
    top of `extra` [N], or of as much of that as is possible.
    """
    pool, nothing = Columns(Horizon(model.cmdp)), np.zeros(len(rho))
    plan = best_plan(model, rho, pool)
    if not len(rho) or not plan.feasible:
        return HandOver(plan, nothing, _uncovered(model, rho, plan, z))
    base = extra * possible(pool, model, rho, extra) if extra.any() else nothing
    penalty, errors, chosen = missed * _value_range(pool), plan_errors(model, plan.pi), (-np.inf, plan, nothing)
    for i in range(9 if missed else 1):  # up to 8/3 standard errors beyond the least margin
        more = (z + i / 3) * errors
        share = possible(pool, model, rho + base, more) if more.any() else 1.0
        found = best_plan(model, rho + base + share * more, pool)
        if not found.feasible:
            break
        clear = (found.utilities - rho - base) / np.maximum(plan_errors(model, found.pi), NO_SPREAD)
        scored = worth(found.value, clear[~model.moot], penalty), found, base + share * more
        chosen = max(chosen, scored, key=itemgetter(0))
        if share < 1:
            break
    return HandOver(chosen[1], chosen[2], _uncovered(model, rho, chosen[1], z))


def worth(value: float, clear: FloatArray, penalty: float) -> float:
    """The value of a policy less a penalty times the sum of the probabilities of missing each bound.

    The policy clears its bounds by `clear` [N] standard errors.
    """
    return value - penalty * float(ndtr(-clear).sum())


def _uncovered(model: Model, rho: FloatArray, plan: Plan, z: float) -> FloatArray:
    """[N]: by how much z standard errors may take a plan's utilities below the bounds."""
    return np.maximum(rho + z * plan_errors(model, plan.pi) - plan.utilities, 0.0) if len(rho) else np.zeros(0)


def _value_range(pool: Columns[Horizon]) -> float:
    """The difference between the largest and the smallest value of all policies."""
    most, least = (pool.source.greedy(np.append(sign, np.zeros(pool.source.N)))[2][0] for sign in (1.0, -1.0))
    return float(most - least)


def error_quantile(delta: float, tests: int) -> float:
    """Standard errors beyond which one of several normal tests errs with probability at most delta, one-sided.

    >>> round(error_quantile(0.05, 27 * 40), 2)
    3.91
    """
    error = delta / max(tests, 1)
    if error < 1e-9:  # 1 - error would lose too many digits
        return -NormalDist().inv_cdf(error)
    return NormalDist().inv_cdf(1 - error)


def possible(pool: Columns[Horizon], model: Model, rho: FloatArray, more: FloatArray) -> float:
    """The share, at most 1, of `more` [N] by which all bounds rho can be exceeded at once, less 1 % for rounding."""
    per = np.maximum(more, max(float(more.max(initial=0.0)) / 1000, NO_SPREAD)) / pool.units[1:]
    reached = pool.reach(pool.scaled(np.where(model.moot, 0.0, rho)), per)[0]
    return min(1.0, max(0.0, 0.99 * reached))


# -- Exact values in a model that was estimated -----------------------------------------------------------------------


def as_recorded(visits: FloatArray, steps: int | None) -> FloatArray:
    """[steps or 1, S, A]: the policy that does everything as often as it was recorded, visits [T, S, A]."""
    pi = visits / visits.sum(axis=-1, keepdims=True)
    return np.ascontiguousarray(np.broadcast_to(pi, (steps or 1, *pi.shape[1:])))


def values_of(cmdp: CMDP, pi: FloatArray) -> tuple[FloatArray, list[float], list[FloatArray]]:
    """Occupancy q [H, S, A] of a policy, its totals [1 + N] in the user's sense, and the values of states [H+1, S].

    Without a horizon q is [1, S, A], and values are [1, S] and up to a constant.
    """
    signals = [(1.0, cmdp.compact.r), *((float(sign), g) for sign, g in zip(cmdp.signs, cmdp.compact.g, strict=True))]
    if cmdp.criterion.has_horizon:
        values = [sign * action_values(cmdp, x, pi)[1] for sign, x in signals]
        return flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu), [float(cmdp.mu @ V[0]) for V in values], values
    q = stationary_occupancy(cmdp, pi[0])
    totals = [sign * float((q * x[0]).sum()) * (cmdp.criterion.steps_in_value or 1.0) for sign, x in signals]
    values = [sign * _relative_values(cmdp, pi[0], (pi[0] * x[0]).sum(axis=1))[None] for sign, x in signals]
    return q[None], totals, values


def _relative_values(cmdp: CMDP, pi: FloatArray, x: FloatArray) -> FloatArray:
    """[S]: what it is worth to be in a state for the signal x [S], up to a constant; NaN where that is not defined.

    A long-run average has relative values only if the policy ends in the same set of states from wherever it starts.
    """
    P = chain_in(cmdp, pi)
    if cmdp.criterion.kind == "discounted":
        return Chain(P, cmdp.criterion.discount or 1.0).values(x[:, None])[1][:, 0]
    reached = _reached(P, cmdp.mu)
    P = P[reached][:, reached]
    classes = closed_classes(P)
    h = np.full(len(x), np.nan)
    if len(classes) == 1:
        h[:] = 0.0  # where the policy never gets, it does not matter
        h[reached] = Chain(P, pivot=int(classes[0][0])).values(x[reached, None])[1][:, 0]
    return h


def _reached(P: Any, mu: FloatArray) -> IntArray:
    """The states that a chain P can be in when it starts from mu."""
    return np.flatnonzero(reached_from(rows_of(P > 0), np.arange(len(mu) + 1, dtype=np.uint64), mu > 0))
