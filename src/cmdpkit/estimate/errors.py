"""How far estimates can be trusted: standard errors by the delta method, from counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from cmdpkit.estimate.continuing import Seen, chain_of
from cmdpkit.estimate.counts import signal_variances
from cmdpkit.estimate.model import Model
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.model.chains import Chain, long_run_shares
from cmdpkit.model.compiled import compiled
from cmdpkit.model.evaluate import action_values, flow
from cmdpkit.model.transitions import FloatArray, IntArray

PSEUDO_VISITS = 2.0  # visits that the average variance of a step counts as, in the error of an action's value
UNSEEN_SPREAD = 0.25  # of the range of values: the deviation that a next state not seen yet may bring
PSEUDO_MOVES = 5.0  # the same in the error of a whole policy


class Evidence(NamedTuple):
    """What the counts says of every action at given prices, beside a policy."""

    advantage: FloatArray  # [H, S, A]: over the policy
    error: FloatArray  # [H, S, A]: its standard error
    reach: FloatArray  # [H, S]: of the policy, in the estimated model
    effect: FloatArray  # [N, H, S, A]: what one episode's utility gains per unit of flow moved to the action
    surprise: FloatArray  # [H, 1, 1]: how far the values of next states are apart, of which few tries show only some


def evidence(model: Model, pi: FloatArray, prices: FloatArray, caution: float = 1.0) -> Evidence:
    """Advantages over pi at prices [N], with their standard errors.

    A few visits that were alike by chance make an error look small. Caution is by how much more than usual the average
    variance of a step is believed instead.
    """
    cmdp, c = model.cmdp, np.append(1.0, prices)
    found = [action_values(cmdp, x, pi) for x in (cmdp.compact.r, *cmdp.compact.g)]
    Q = sum(weight * q for weight, (q, _) in zip(c, found, strict=True))
    V = sum(weight * v for weight, (_, v) in zip(c, found, strict=True))
    reach = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu).sum(axis=-1)
    gains = np.array([q - v[:-1, :, None] for q, v in found[1:]]).reshape(len(prices), *pi.shape)
    errors = np.sqrt(_squared_errors(model, V, c, caution * PSEUDO_VISITS))
    return Evidence(Q - V[:-1, :, None], errors, reach, gains, _surprise(model, V))


def _surprise(model: Model, V: FloatArray) -> FloatArray:
    """[H, 1, 1]: the largest minus the smallest value of a known state at the next step."""
    after = V[1:-1]
    highest = np.where(model.known[1:], after, -np.inf).max(axis=1)
    lowest = np.where(model.known[1:], after, np.inf).min(axis=1)
    spread: FloatArray = np.append(np.maximum(highest - lowest, 0.0), 0.0)
    return spread[:, None, None]


def _squared_errors(model: Model, V: FloatArray, c: FloatArray, pseudo: float) -> FloatArray:
    """[H, S, A]: squared standard error of an action's value, from where it leads and from what it earns."""
    cmdp, counts = model.cmdp, model.counts
    H, S, A = cmdp.H, cmdp.S, cmdp.A
    T = cmdp.kernel.T
    moves, visits = (np.broadcast_to(x.reshape(T, S, A), (H, S, A)) for x in (counts.moves, counts.visits))
    ahead = np.zeros((H, S, A))
    _variance_ahead(cmdp.compact.indptr, cmdp.compact.successors, cmdp.compact.prob, V, ahead)
    ahead = _with_average(ahead, moves, pseudo)
    ahead[-1] = 0.0
    earned = np.broadcast_to(signal_variances(counts, c).reshape(T, S, A), (H, S, A))
    earned = _with_average(earned, visits, pseudo)
    errors: FloatArray = ahead / np.maximum(moves, 1) + earned / np.maximum(visits, 1)
    return errors


def _with_average(variance: FloatArray, n: IntArray, pseudo: float) -> FloatArray:
    """Few samples say little about their variance, so the average of the step is mixed in."""
    weight = n.sum(axis=(1, 2), keepdims=True)
    average = (variance * n).sum(axis=(1, 2), keepdims=True) / np.maximum(weight, 1)
    mixed: FloatArray = (variance * n + pseudo * average) / (n + pseudo)
    return mixed


def plan_errors(model: Model, pi: FloatArray) -> FloatArray:
    """[N]: standard errors of a policy's predicted utilities, by the delta method.

    Where all steps share their counts, an error of one estimate acts at every step at once: what the flow of all steps
    takes to a next state is added up before it is squared.
    """
    cmdp, counts = model.cmdp, model.counts
    T, S, A = cmdp.kernel.shape
    q = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu)
    episodes = max(int(counts.starts.sum()), 1)
    errors = np.zeros(cmdp.N)
    for n, g in enumerate(cmdp.compact.g):
        _, V = action_values(cmdp, g, pi)
        through = np.zeros(T * S * A)  # flow through a cell that is followed by another step
        spread = np.zeros(T * S * A)  # variance of what a move out of the cell is worth, all steps together
        span = np.ptp(V, axis=1) * UNSEEN_SPREAD  # [H+1]
        c = cmdp.compact
        _pooled_variance(c.indptr, c.successors, c.prob, counts.moves, q, V, span, through, spread)
        moves = np.maximum(counts.moves, 1)
        unit = np.divide(spread, through**2, out=np.zeros_like(spread), where=through > 1e-12)
        counted = counts.moves * (through > 0)
        average = float((counted * unit).sum() / max(counted.sum(), 1))
        unit = (counted * unit + PSEUDO_MOVES * average) / (counted + PSEUDO_MOVES)
        moved = float((through**2 * unit / moves).sum())
        flow_all = q.reshape(-1, T, S * A).sum(axis=0).ravel() if T == 1 else q.reshape(-1)
        alone = np.eye(1, 1 + cmdp.N, 1 + n)[0]
        earned = float((flow_all**2 * signal_variances(counts, alone) / np.maximum(counts.visits, 1)).sum())
        start = float(cmdp.mu @ V[0] ** 2 - (cmdp.mu @ V[0]) ** 2) / episodes
        errors[n] = np.sqrt(moved + earned + max(start, 0.0))
    return errors


def stationary_errors(model: Arrays, seen: Seen, pi: FloatArray) -> FloatArray:
    """Standard errors [N] of the utilities per step of the policy pi [S, A], by the delta method.

    With relative values h of a utility g and the share of time q(s, a), an error of P and g at (s, a) changes the mean
    of g by q(s, a) times its effect on g + gamma P h, and errors of different pairs are independent: the variance is
    the sum of q^2 / n times the variance of g + gamma h(s') at (s, a). Discounted totals add the error of the start.
    """
    S, A = pi.shape
    P = sparse.csr_array((model.prob, model.successors, model.indptr), shape=(S * A, S))
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
    n = np.maximum(seen.visits, 1)
    spread = np.maximum(P @ h**2 - (P @ h) ** 2, 0.0).reshape(S, A, -1) * model.discount**2  # [S, A, N]
    means = seen.sums[1:] / n
    spread += np.moveaxis(np.maximum(seen.squares[1:] / n - means**2, 0.0), 0, -1)
    variance = np.einsum("sa,san->n", (shares[:, None] * pi) ** 2 / n, spread)
    if model.kind == "discounted":
        starts = max(1, int(seen.starts.sum()))
        variance += (1 - model.discount) ** 2 * (model.mu @ h**2 - (model.mu @ h) ** 2) / starts
    errors: FloatArray = np.sqrt(np.maximum(variance, 0.0))
    return errors


@compiled
def _variance_ahead(indptr, successors, prob, V, out):
    """Fill out [H, S, A] with the variance of V[h+1] at the next state; the last step stays 0."""
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

    Next states seen only once tell how much probability was not seen at all (Good and Turing): so much of it may lead
    to values that deviate by span [H+1].
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
