"""What actions lose against the optimum where there is no horizon.

Let lam be the optimal prices, o = r + lam . g, and c, h a solution of c + h(s) = max_a o(s, a) + gamma sum P h. Then

    gap(s, a) = c + h(s) - o(s, a) - gamma sum_s' P(s'|s, a) h(s') >= 0,

and for every stationary policy with occupancy q, value v and utilities w (per step, from the same start)

    v* - v = <q, gap> + lam . (w - rho).

Proof: <q, o> = sum_s d(s) (c + h(s)) - <q, gap> - gamma sum q P h = c + (1 - gamma) mu . h - <q, gap> by the balance of
q. The optimum has gap 0 wherever q > 0, and lam . (w* - rho) = 0, so c + (1 - gamma) mu . h = v* + lam . rho.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.stationary.careful import methods_for
from cmdpkit.exact.stationary.multichain import SeveralParts
from cmdpkit.exact.stationary.parts import EXACT, PolicyValues, first_policy, part_of
from cmdpkit.exact.stationary.problem import Arrays, ComponentRows
from cmdpkit.exact.stationary.sources import Stationary
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray


def _priced(cmdp: CMDP, signal: FloatArray, mu: FloatArray) -> tuple[Stationary, float]:
    """The best policy for one signal [S, A] from the start mu [S], and its proved value in the source's units."""
    c, criterion = cmdp.compact, cmdp.criterion
    nothing = np.zeros((0, cmdp.S, cmdp.A))
    model = (cmdp.rows, signal, nothing, mu, c.allowed[0], criterion.kind)
    source = Stationary(Arrays(*model, criterion.discount or 1.0))
    return source, source.best_policy(np.ones(1), 0.0, EXACT).bound


def gap_table(cmdp: CMDP, prices: FloatArray) -> FloatArray:
    """Losses [S, A] per step at the optimal prices, 0 where nothing can occur; averages need a single end component."""
    c = cmdp.compact
    if cmdp.criterion.kind == "total":
        raise CmdpkitError("the criterion is 'total', which has no means per step; use a discount to learn in it")
    source, _ = _priced(cmdp, c.r[0] + np.einsum("n,nsa->sa", prices, c.g[:, 0]), c.mu)
    if isinstance(source.part, SeveralParts):
        raise CmdpkitError(
            "learning a long-run average needs a model in which every place can be left again, but in this one a run "
            "settles in one of several parts that it never leaves, and cannot learn about the others then; use a "
            "discount, or solve the model with cmdpkit.solve"
        )
    rows = source.problem.rows
    x = source.scale.signals(source.problem.X)[0]
    h = _relative_values(source, x)
    lost = h[rows.owner] - x - rows.P @ h
    best = -float(lost.min())  # the c of the formula
    gaps = np.zeros(cmdp.S * cmdp.A)
    gaps[rows.pair] = best + lost
    return np.maximum(gaps, 0.0).reshape(cmdp.S, cmdp.A) * float(source.scale.unit[0])


def _relative_values(source: Stationary, x: FloatArray) -> FloatArray:
    """h [states of the part] of the signal x [R], also of states that are only passed through."""
    rows, policy = source.problem.rows, source.now
    if source.component is None:
        return np.array(policy.Y[:, 0])
    h = np.zeros(rows.S)
    inside = np.unique(rows.owner[source.component])
    h[inside] = policy.Y[:, 0]
    outside = np.setdiff1d(np.arange(rows.S), inside)
    if len(outside):
        passing, used = rows.part(outside)
        ahead = x[used] - float(policy.values[0]) + rows.P[used] @ h
        h[outside] = _best_total(passing, np.ascontiguousarray(ahead)).Y[:, 0]
    return h


def _best_total(rows: ComponentRows, x: FloatArray) -> PolicyValues:
    """The policy with the largest total of a signal x [R] until it leaves these rows, from a uniform start."""
    methods = methods_for(rows.S)
    start = np.full(rows.S, 1.0 / rows.S)
    part = part_of(rows, x[None], "total", start, endless=False, blur=0, careful=methods.careful)
    best: PolicyValues = methods.price(part, first_policy(part), np.ones(1), 0.0, EXACT)
    return best


def best_from_everywhere(cmdp: CMDP, signal: FloatArray) -> FloatArray:
    """[S]: the largest value of a signal [S, A] from each state, in own units, by one unconstrained solve."""
    source, upper = _priced(cmdp, signal, np.full(cmdp.S, 1.0 / cmdp.S))
    part, policy, states = source.part, source.now, source.problem.states
    scaled = np.zeros(cmdp.S)
    if isinstance(part, SeveralParts):
        scaled[states] = policy.quotient.Y[part.index, 0]
    elif source.kind == "average":
        scaled[:] = upper
    else:
        start = part.alpha * float(part.mu @ policy.Y[:, 0])
        scaled[states] = policy.values[0] - start + part.alpha * policy.Y[:, 0]
    return source.scale.own(scaled)
