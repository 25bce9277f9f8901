"""The best policy and, at the same time, the best model of a box under constraints.

The problem is the *extended LP*:

    maximise <z, r>  over z[h, s, a, s'] = q[h, s, a] p[h, s, a, s'], p in the box, q the occupancy of a policy under p
    subject to <z, g_n> >= rho_n for all n

Written out it has H S^2 A variables and twice as many rows. Its extreme points are deterministic policies with an
extreme kernel each, so column generation solves it (`cmdpkit.exact.columns`), with extended value iteration as pricing:
backward induction in which every row is the best distribution of the box (`boxes.best_pair`). A mixture of such points
is a point of the same polytope, so a policy and a kernel of the box can be read off it. In a known model it is the
plain occupancy LP.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import BestPair, Models, best_pair, signals_of, visits, work_of
from cmdpkit.exact.columns import Columns, PolicyColumn
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import FEASIBLE, MAX_UNEXPLAINED_GAP, NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray


class ExtendedPlan(NamedTuple):
    """A policy, and its values in the model of the box that was chosen with it."""

    pi: FloatArray  # [H, S, A]: the policy
    value: float  # expected total reward of the policy in that model
    utilities: FloatArray  # [N]: expected total utilities of the policy in that model
    lam: FloatArray  # [N]: multipliers; if infeasible, weights with max lam . (w - rho) < 0 over all pairs
    feasible: bool  # whether some pair of a policy and a model meets the thresholds
    q: FloatArray  # [H, S, A]: expected visits of the policy in that model


class PairSource:
    """The source of columns of the extended LP: pairs of a policy and one of the models; `pair` is the latest.

    x [1 + N, 1 or H, S, A] are the reward and the utilities, in whose `units` [1 + N] values are scaled.
    """

    exact = True
    first: tuple[PolicyColumn, ...] = ()

    def __init__(self, models: Models, x: FloatArray, allowed: BoolArray, H: int, units: FloatArray) -> None:
        self.models, self.x, self.units, self.N = models, x, units, len(x) - 1
        self.offsets, self.noise = np.zeros(1 + self.N), np.zeros(1 + self.N)
        self.best = np.full(self.N, np.inf)
        self.pair = BestPair.empty((H, *x.shape[2:]), 1 + self.N)
        self._signals, self._allowed = signals_of(x), readonly(allowed)

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """Values of backward induction are exact up to rounding."""
        return column

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The pair with the largest weights . (v, w), and that value."""
        pair, objective = self.pair, np.tensordot(weights / self.units, self.x, axes=1)
        given = self.models, readonly(objective), self._allowed, self._signals, pair
        call(best_pair, 2 * work_of(self.models, len(pair.policy.choice)), *given)
        largest, values = float(pair.totals[0]), pair.totals[1:] / self.units
        choice = pair.policy.choice.copy()
        return largest, [PolicyColumn(choice, float(values[0]), values[1:], weights, largest)]


def plan(
    models: Models,
    x: FloatArray,
    rho: FloatArray,
    allowed: BoolArray,
    H: int,
    guess: FloatArray | None = None,
    gap: float = 0.0,
) -> ExtendedPlan:
    """Maximise the reward over policies and over the models, with every utility at least rho [N].

    x [1 + N, 1 or H, S, A] are reward and utilities, allowed [1 or H, S, A] says which actions exist. If no pair of
    policy and model reaches rho, the plan is the one that misses it least, relative to the range of the utilities (for
    N = 1: the largest utility), and `feasible` is false. Multipliers near a `guess` [N] are found sooner; those of a
    similar problem are a good one. The plan is the best one up to rounding, or up to `gap` times H times the largest
    reward, which is proved.
    """
    largest = np.abs(x).max(axis=(1, 2, 3), initial=0.0)
    units = np.where(largest > 0, H * largest, 1.0)
    pool = Columns(PairSource(models, x, allowed, H, units), FEASIBLE, MAX_UNEXPLAINED_GAP)
    thresholds = pool.scaled(rho)
    if guess is not None and guess.any():
        for factor in (1.05, 0.95):  # the first two columns are priced on both sides of it
            pool.price(np.append(1.0, factor * guess * pool.units[1:] / pool.units[0]))
    if pool.N and not (pool.w >= thresholds).all(axis=1).any():
        t, weights, y = pool.reach(thresholds, np.ones(pool.N), enough=0.0)
        if t < -FEASIBLE:
            return _read_off(pool, weights, y / pool.units[1:], feasible=False)
    best = pool.maximise(thresholds, enough=lambda found: found.bound - found.value <= gap)
    return _read_off(pool, best.weights, best.lam * pool.units[0] / pool.units[1:], feasible=True)


def _read_off(pool: Columns[PairSource], weights: FloatArray, lam: FloatArray, *, feasible: bool) -> ExtendedPlan:
    """The policy q / sum_a q of a mixture of pairs, and the values of the mixture.

    In states that the mixture does not reach, the policy is that of the pair that was found last.
    """
    source, A = pool.source, pool.source.x.shape[3]
    pi = one_hot(source.pair.policy.choice, A)
    q, totals = np.zeros(pi.shape), np.zeros(1 + pool.N)
    for weight, column in pool.parts(weights):
        source.price(column.weights, 0.0)
        totals += weight * source.pair.totals[1:]
        q += weight * visits(source.models, one_hot(source.pair.policy.choice, A))
    used = q > NEGLIGIBLE
    reached = used.any(axis=-1)
    pi[reached] = np.where(used, q, 0.0)[reached]
    pi /= pi.sum(axis=-1, keepdims=True)
    return ExtendedPlan(pi, float(totals[0]), totals[1:], lam, feasible, q)
