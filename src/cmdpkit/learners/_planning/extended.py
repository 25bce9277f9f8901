"""The extended LP: the best policy and kernel of a box together, under constraints.

    maximise <z, r>  over z[h, s, a, s'] = q[h, s, a] p[h, s, a, s'], p in the box, q the occupancy of a policy under p
    subject to <z, g_n> >= rho_n for all n

Written out it has H S^2 A variables and twice as many rows. Its extreme points are deterministic policies with an
extreme kernel each, so column generation solves it with extended value iteration as pricing; the logic is that of a
known model (`cmdpkit.exact.columns`). A mixture of such points is a point of the same polytope, so a policy and a
kernel of the box can be read off it. With lo = up = p it is the plain occupancy LP on p.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.columns import Choice, Columns
from cmdpkit.exact.units import FEASIBLE
from cmdpkit.learners._planning.confidence import Box
from cmdpkit.learners._planning.evaluation import policy_values
from cmdpkit.learners._planning.induction import Optimistic, extended_induction
from cmdpkit.model.compiled import compiled, readonly
from cmdpkit.model.policy import NEGLIGIBLE, one_hot
from cmdpkit.model.transitions import BoolArray, FloatArray


class Plan(NamedTuple):
    """A policy, the model it was planned in, and its values there."""

    pi: FloatArray  # [H, S, A]: the policy
    p: FloatArray  # [H, S, A, S]: the kernel, from the box; 0 where the action does not exist
    mu: FloatArray  # [S]: the start distribution, from the box
    value: float  # expected total reward of the policy in that model
    utilities: FloatArray  # [N]: expected total utilities of the policy in that model
    lam: FloatArray  # [N]: multipliers; if infeasible, weights with max lam . (w - rho) < 0 over all pairs
    feasible: bool  # whether some pair of a policy and a model meets the thresholds


class BoxPool(Columns):
    """Pairs of a policy and a kernel in the box; `last` is the pair found last."""

    def __init__(self, box: Box, r: FloatArray, g: FloatArray, allowed: BoolArray, H: int) -> None:
        super().__init__(r, g, H)
        self.last = Optimistic.empty(H, self.S, self.A, 1 + self.N)
        signals = np.empty((1 + self.N, *self._objective.shape))
        for signal, x in zip(signals, (r, *g), strict=True):
            signal[:] = x
        self._box, self._signals, self._allowed = Box(*map(readonly, box)), readonly(signals), readonly(allowed)

    def _induct(self, objective: FloatArray, choice: Choice, totals: FloatArray) -> None:
        extended_induction(self._box, readonly(objective), self._signals, self._allowed, self.last)
        choice[:], totals[:] = self.last.choice, self.last.totals


def plan(box: Box, r: FloatArray, g: FloatArray, rho: FloatArray, allowed: BoolArray, H: int) -> Plan:
    """Maximise the reward over policies and kernels of the box, with every utility at least rho [N].

    r [1 or H, S, A], g [N, 1 or H, S, A], allowed [1 or H, S, A]. If no pair of policy and kernel reaches rho, the plan
    is the one that misses it least, relative to the range of the utilities (for N = 1: the largest utility), and
    `feasible` is false.
    """
    pool = BoxPool(box, r, g, allowed, H)
    thresholds = pool.scaled(rho)
    if pool.N:
        t, weights, y = pool.reach(thresholds, np.ones(pool.N), enough=0.0)
        if t < -FEASIBLE:
            return _read_off(pool, weights, y / pool.units[1:], feasible=False)
    best = pool.maximise(thresholds)
    return _read_off(pool, best.weights, best.lam * pool.units[0] / pool.units[1:], feasible=True)


def _read_off(pool: BoxPool, weights: FloatArray, lam: FloatArray, *, feasible: bool) -> Plan:
    """The policy q / sum_a q and the kernel z / q of a mixture of pairs.

    In states that the mixture does not reach, policy and kernel are those of the pair that was found last.
    """
    pi, p = one_hot(pool.last.choice, pool.A), pool.last.p.copy()
    q, z, mu, d = np.zeros(pi.shape), np.zeros(p.shape), np.zeros(pool.S), np.zeros((2, pool.S))
    for weight, column in zip(weights, pool.columns, strict=False):
        if weight > 0:
            pool.respond(column.weights)
            mu += weight * pool.last.mu
            _add_flow(weight, pool.last, d, q, z)
    used = q > NEGLIGIBLE
    p[used] = z[used] / q[used][:, None]
    reached = used.any(axis=-1)
    pi[reached] = np.where(used, q, 0.0)[reached]
    pi /= pi.sum(axis=-1, keepdims=True)
    v, *w = (float(mu @ policy_values(p, x, pi)[1][0]) for x in (pool.r, *pool.g))
    return Plan(pi, p, mu, v, np.array(w), lam, feasible)


@compiled
def _add_flow(weight, pair, d, q, z):
    """Add `weight` times the flow of a pair to q [H, S, A] and z [H, S, A, S]; d [2, S] is working memory."""
    H, S = pair.choice.shape
    for s in range(S):
        d[0, s] = weight * pair.mu[s]
    for h in range(H):
        now, then = d[h % 2], d[(h + 1) % 2]
        then[:] = 0.0
        for s in range(S):
            if now[s] == 0.0:
                continue
            a = pair.choice[h, s]
            q[h, s, a] += now[s]
            for s_next in range(S):
                mass = now[s] * pair.p[h, s, a, s_next]
                z[h, s, a, s_next] += mass
                then[s_next] += mass
