"""What actions are worth where there is no horizon: after a given policy, and what they lose against the optimum.

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
from cmdpkit.exact.stationary.methods import best_total
from cmdpkit.exact.stationary.multichain import SeveralParts
from cmdpkit.exact.stationary.parts import EXACT
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.exact.stationary.sources import Stationary
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.chains import Chain, absorbing_states, chain_of, closed_classes
from cmdpkit.operators.row_lists import matrix_of


def relative_values(
    cmdp: CMDP, pi: FloatArray, signals: FloatArray, stand_in: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Means per step c [K] and relative values h [K, S] of signals [K, S, A] under the policy pi [S, A].

    h is what it is worth to be in a state, and zero at one recurrent state; for totals, c is 0 and h are the totals.
    Averages are refused where the policy has several recurrent classes, unless a discount is given to ``stand_in``.
    """
    P = chain_of(cmdp, pi)
    x = np.array([(pi * signal).sum(axis=1) for signal in signals]).T  # [S, K]
    if cmdp.criterion.kind == "total":
        absorbed = absorbing_states(cmdp)
        going = np.flatnonzero(~absorbed)
        h, part = np.zeros(x.shape), P[going]
        exits = np.asarray(part[:, np.flatnonzero(absorbed)].sum(axis=1)).reshape(-1)
        h[going] = Chain(part[:, going], bordered=False, exits=exits).values(x[going])[1]
        return np.zeros(len(signals)), h.T
    pivot = 0
    if cmdp.criterion.kind == "average" and stand_in is None:
        classes = closed_classes(P)
        if len(classes) > 1:
            raise CmdpkitError(
                f"the policy has {len(classes)} recurrent classes, so its relative values are not unique"
            )
        pivot = int(classes[0][0])
    c, h = Chain(P, stand_in or cmdp.criterion.discount or 1.0, pivot=pivot).values(x)
    return c, h.T


def stationary_action_values(
    cmdp: CMDP, pi: FloatArray, signals: FloatArray, stand_in: float | None = None
) -> FloatArray:
    """[K, S, A]: what signals [K, S, A] add up to if an action is taken once and pi [S, A] is followed afterwards.

    Discounted totals, and totals until absorption; for averages, what is gained in all on a run that starts by pi.
    """
    c, h = relative_values(cmdp, pi, signals, stand_in)
    gamma = stand_in or cmdp.criterion.discount or 1.0
    if cmdp.criterion.kind == "discounted":
        h, c = h + c[:, None] / (1 - gamma), np.zeros_like(c)
    rows = matrix_of(cmdp.rows, cmdp.S)
    ahead = np.array([(rows @ each).reshape(cmdp.S, cmdp.A) for each in h])
    values: FloatArray = signals - c[:, None, None] + gamma * ahead
    if cmdp.criterion.kind == "average":
        values -= h[:, :, None]
    return values


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
        h[outside] = best_total(passing, np.ascontiguousarray(ahead)).Y[:, 0]
    return h


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
