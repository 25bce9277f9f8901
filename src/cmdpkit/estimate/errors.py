"""How far estimates can be trusted: standard errors by the delta method, from counts.

A total W of a fixed policy is a smooth function of the estimated rows, one per cell. To first order, their errors move
it by the sum over the rows of flow(row) times the error of the mean of y = x + V(s'), where x is the signal of a
transition and V(s') the value of its next state, so

    Var(W) = sum over rows of flow(row)^2 Var(y in the row) / n(row)  +  Var(V(start)) / episodes.

`row_shares` is this sum, for counts per step and pooled (`plan_errors`), for one unbroken run (`stationary_errors`) and
for logs (`cmdpkit.estimate.fitted`). What differs is where the variance of a row comes from. Logs keep every
transition, and so know that signal and next state go together. Counts keep the moments of signals and the numbers of
next states apart, and add up the two variances.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.continuing import Seen, chain_of
from cmdpkit.estimate.counts import signal_variances
from cmdpkit.estimate.model import Model
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, compiled
from cmdpkit.model.tolerances import NO_FLOW
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chains import Chain, long_run_shares
from cmdpkit.operators.policies import action_values, flow
from cmdpkit.operators.row_lists import matrix_of


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
        _, V = action_values(cmdp, g, pi)
        through = np.zeros(T * S * A)  # flow through a cell that is followed by another step
        spread = np.zeros(T * S * A)  # variance of what a move out of the cell is worth, all steps together
        c, span = cmdp.compact, np.ptp(V, axis=1) * unseen
        args = c.indptr, c.successors, c.prob, counts.moves, q, V, span, through, spread
        call(_pooled_variance, len(c.prob) * cmdp.H // T, *args)
        unit = np.divide(spread, through**2, out=np.zeros_like(spread), where=through > NO_FLOW)
        moves = counts.moves * (through > 0)
        moved = row_shares(through, unit * moves, moves, pseudo=pseudo)
        variance = signal_variances(counts, np.eye(1, 1 + cmdp.N, 1 + n)[0])
        earned = row_shares(flow_all, variance * counts.visits, counts.visits, pseudo=0.0)
        start = _start_share(cmdp.mu, V[0], int(counts.starts.sum()))
        errors[n] = np.sqrt(moved.shares.sum() + earned.shares.sum() + start)
    return errors


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
    c, out = cmdp.compact, np.zeros((cmdp.H, cmdp.S, cmdp.A))
    call(_variance_ahead, len(c.prob) * cmdp.H // cmdp.kernel.T, c.indptr, c.successors, c.prob, V, out)
    return out


@compiled
def _variance_ahead(indptr, successors, prob, V, out):
    H, S, A = out.shape
    T = (len(indptr) - 1) // (S * A)
    for h in range(H - 1):
        for s in range(S):
            for a in range(A):
                row = ((h % T) * S + s) * A + a
                mean, square = 0.0, 0.0
                for i in range(indptr[row], indptr[row + 1]):
                    y = V[h + 1, successors[i]]
                    mean += prob[i] * y
                    square += prob[i] * y * y
                out[h, s, a] = max(square - mean * mean, 0.0)


@compiled
def _pooled_variance(indptr, successors, prob, moves, q, V, span, through, spread):
    """Per row: the flow that goes on from it, and the variance of sum_h q_h V[h+1] at its next state.

    Next states seen only once tell how much probability was not seen at all (Good and Turing). This share of it may
    lead to values that deviate by span [H+1].
    """
    H, S, A = q.shape
    T = (len(indptr) - 1) // (S * A)
    for row in range(len(through)):
        t, cell = row // (S * A), row % (S * A)
        s, a = cell // A, cell % A
        total, deviation = 0.0, 0.0
        for h in range(t, H - 1, T):
            total += q[h, s, a]
            deviation += q[h, s, a] * span[h + 1]
        through[row] = total
        if total == 0.0:
            continue
        mean, square, unseen = 0.0, 0.0, 0.0
        for i in range(indptr[row], indptr[row + 1]):
            u = 0.0
            for h in range(t, H - 1, T):
                u += q[h, s, a] * V[h + 1, successors[i]]
            mean += prob[i] * u
            square += prob[i] * u * u
            if prob[i] * moves[row] < 1.5:
                unseen += prob[i]
        spread[row] = max(square - mean * mean, 0.0) + unseen * deviation * deviation
