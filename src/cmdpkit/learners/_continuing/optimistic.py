"""The extended program for long-run averages: the best stationary policy and kernel of a box together, under bounds.

    maximise <z, r>  over z(s, a, s') = q(s, a) p(s, a, s'), p in the box, q the long-run shares of a policy under p
    subject to <z, g_n> >= rho_n for all n

Its extreme points are recurrent classes of deterministic policies with an extreme kernel each, so that column
generation solves it (`cmdpkit.exact.columns`). A mixture of such points is a point of the same polytope, so one
kernel of the box can be read off it, and the policy is the optimum of that model. Pricing is relative value iteration
in which every row takes the best distribution of the box, as in UCRL2 (Jaksch, Ortner, Auer 2010). For any h and the
improved (T h)(s) = max over a and p of o(s, a) + p h, no policy under any kernel of the box has more of the objective o
than max_s (T h - h)(s): the proof in `cmdpkit.exact.stationary.engine` holds with the actions (a, p).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cmdpkit.estimate.boxes import Box
from cmdpkit.estimate.continuing import Model
from cmdpkit.estimate.extended import fill_row, row_value, sort_descending
from cmdpkit.exact.columns import EXTRA_LOWERING, Columns, PolicyColumn
from cmdpkit.model.chain_systems import DAMPING
from cmdpkit.model.chains import Chain, closed_classes, within
from cmdpkit.model.compiled import compiled, readonly
from cmdpkit.model.tolerances import FEASIBLE, MAX_UNEXPLAINED_GAP, NEGLIGIBLE, PRICED
from cmdpkit.model.transitions import BoolArray, FloatArray


class ContinuingBoxSource:
    """Columns of the extended program: recurrent classes of the best pair of a policy and a kernel of the box.

    The `plan` of a column holds the rows of its class, their shares of time, and their kernel [rows, S]. Pricing takes
    at most `sweeps`; a box that needs more only gets a looser upper bound.
    """

    exact = False
    first: tuple[PolicyColumn, ...] = ()

    def __init__(self, box: Box, signals: FloatArray, allowed: BoolArray, sweeps: int = 20_000) -> None:
        S, A = allowed.shape
        self.sweeps = sweeps
        self.N, self.X = len(signals) - 1, signals.reshape(len(signals), S * A)
        self.units, self.offsets, self.noise = np.ones(1 + self.N), np.zeros(1 + self.N), np.zeros(1 + self.N)
        self.best = np.full(self.N, np.inf)
        self.box, self.allowed = Box(*map(readonly, box)), readonly(allowed)
        self.h, self.change = np.zeros(S), np.zeros(S)
        self.order, self.choice = np.arange(S), np.zeros(S, dtype=np.int64)
        self.P = np.zeros((S, S))

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """Classes are always evaluated up to rounding."""
        return column

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """An upper bound on weights . (v, w) over all pairs, and the classes of a pair that nearly reaches it."""
        S, A = self.allowed.shape
        objective, most = readonly((weights @ self.X).reshape(S, A)), float(np.abs(weights).sum())
        work = (self.h, self.change, self.order, self.choice, self.P)
        upper = float(_iterate(self.box, objective, self.allowed, max(PRICED * most, slack), self.sweeps, *work))
        self.P[self.P < NEGLIGIBLE] = 0.0  # rounding would connect classes that nothing connects
        rows, P = np.arange(S) * A + self.choice, sparse.csr_array(self.P)
        columns = []
        for members in closed_classes(P):
            q = np.maximum(Chain(within(P, members)).flow(np.zeros(len(members)), 1.0), 0.0)
            shares = q / q.sum()
            v, *w = self.X[:, rows[members]] @ shares
            plan = rows[members], shares, self.P[members]
            columns.append(PolicyColumn(rows, float(v), np.array(w), weights, 0.0, plan=plan))
        columns.sort(key=lambda c: -float(weights @ np.append(c.v, c.w)))  # the best class first
        return upper, columns


def optimistic_model(box: Box, signals: FloatArray, rho: FloatArray, allowed: BoolArray) -> Model:
    """The model of the box in which the best policy with utilities of at least rho [N] has most reward.

    signals [1 + N, S, A], allowed [S, A]. If no policy reaches rho in any model of the box, it is the model in which
    the worst bound is missed least. Pairs that the best policy does not use have the kernel that is best for it.
    """
    source = ContinuingBoxSource(box, signals, allowed)
    pool = Columns(source, FEASIBLE, MAX_UNEXPLAINED_GAP)
    met, parts = True, []
    if len(rho):
        reached, weights, _ = pool.reach(rho, np.ones(len(rho)), enough=0.0)
        met = reached >= -FEASIBLE
        parts = pool.parts(weights)
        rho = rho if reached >= 0 else rho + reached - EXTRA_LOWERING
    if met:
        parts = pool.parts(pool.maximise(rho).weights)
    S, A = allowed.shape
    kernel = np.zeros((S * A, S))
    _fill_all(source.box, source.order, kernel)
    q, flow = np.zeros(S * A), np.zeros((S * A, S))
    for weight, column in parts:
        rows, shares, taken = column.plan
        q[rows] += weight * shares
        flow[rows] += (weight * shares)[:, None] * taken
    used = q > NEGLIGIBLE
    kernel[used] = flow[used] / q[used, None]
    kernel[kernel < NEGLIGIBLE] = 0.0
    P = sparse.csr_array(kernel)
    return Model(P.indptr, P.indices, P.data, signals[0], signals[1:], box.start_lo, allowed, "average")


@compiled
def _iterate(box, objective, allowed, closed, sweeps, h, change, order, choice, P):
    """Improve h [S] until the span of its change is at most `closed`; fill choice [S] and its kernel P [S, S].

    There are at most `sweeps`. Returns the largest change of the last one, which no pair exceeds. `order` lists the
    states by falling h.
    """
    S, A = objective.shape
    sort_descending(h, order)
    for sweep in range(sweeps):
        low, high = np.inf, -np.inf
        for s in range(S):
            top = -np.inf
            for a in range(A):
                if allowed[s, a]:
                    value = objective[s, a] + row_value(box, 0, s, a, h, order)
                    if value > top:
                        top = value
                        choice[s] = a
            change[s] = top - h[s]
            low, high = min(low, change[s]), max(high, change[s])
        if high - low <= closed or sweep + 1 == sweeps:
            break
        base = h[0] + DAMPING * change[0]
        for s in range(S):
            h[s] += DAMPING * change[s] - base
        sort_descending(h, order)
    for s in range(S):
        fill_row(box.lo[0, s, choice[s]], box.up[0, s, choice[s]], order, P[s])
    return high


@compiled
def _fill_all(box, order, kernel):
    """Fill kernel [S*A, S] with the rows of the box that give most to the states first in `order`."""
    _, S, A, _ = box.lo.shape
    for s in range(S):
        for a in range(A):
            fill_row(box.lo[0, s, a], box.up[0, s, a], order, kernel[s * A + a])
