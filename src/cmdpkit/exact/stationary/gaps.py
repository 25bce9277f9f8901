"""What every action loses against the optimum of a model without a horizon, counted per step.

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
from cmdpkit.exact.stationary.multichain import Multichain
from cmdpkit.exact.stationary.pricing import Transient
from cmdpkit.exact.stationary.solution import prepared
from cmdpkit.exact.stationary.solving import Stationary
from cmdpkit.exact.stationary.sources import Total
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray


def gap_table(cmdp: CMDP, prices: FloatArray) -> FloatArray:
    """What each action loses per step, [S, A], at the optimal prices; 0 for actions and states that cannot occur.

    The criterion is "average", with a model that has only one end component, or "discounted".
    """
    c = cmdp.compact
    o = c.r[0] + np.einsum("n,nsa->sa", prices, c.g[:, 0])
    problem = prepared(cmdp, r=o, g=c.g[:0, 0])
    if isinstance(problem.source, Multichain):
        raise CmdpkitError(
            "learning a long-run average needs a model in which every place can be left again, but in this one a run "
            "settles in one of several parts that it never leaves, and cannot learn about the others then; use a "
            "discount, or solve the model with cmdpkit.solve"
        )
    if isinstance(problem.source, Total):
        raise CmdpkitError("the criterion is 'total', which has no means per step; use a discount to learn in it")
    problem.source.price(np.ones(1))
    rows, gamma = problem.problem.rows, problem.problem.discount
    h = _relative_values(problem)
    lost = h[rows.owner] - problem.X[0] - gamma * (rows.P @ h)
    best = -float(lost.min())  # the c of the formula
    gaps = np.zeros(cmdp.S * cmdp.A)
    gaps[rows.pair] = best + lost
    return np.maximum(gaps, 0.0).reshape(cmdp.S, cmdp.A) * float(problem.scaling.unit[0])


def _relative_values(problem: Stationary) -> FloatArray:
    """h [states of the part], also of states that are only passed through."""
    h = np.zeros(problem.problem.rows.S)
    rows, source = problem.problem.rows, problem.source
    if problem.component is None:
        return np.array(source.engine.h)
    inside = np.unique(rows.owner[problem.component])
    h[inside] = source.engine.h
    outside = np.setdiff1d(np.arange(rows.S), inside)
    if len(outside):
        o = source.X[0] + source.rows.P @ source.engine.h - source.engine.h[source.rows.owner]
        gain = float(np.maximum.reduceat(o, source.rows.first).max())
        passing = rows.part(outside, np.ones(len(rows.owner), dtype=bool))
        used = np.flatnonzero(np.isin(rows.owner, outside))
        engine = Transient(passing, np.full(len(outside), 1.0 / len(outside)))
        engine.best(problem.X[0, used] - gain + rows.P[used] @ h, 1.0)
        h[outside] = engine.h
    return h
