"""Compiled passes over the rows of a model without a horizon: improving a policy, and solving its chain."""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import ONE, compiled
from cmdpkit.operators.rows import change, expect

RESTARTS = 4  # of the Krylov method, each with the true residual
BROKEN = 1e6  # growth of the residual at which a Krylov method has failed


@compiled
def improve(rows, first, o, h, tie, choice):
    """Let every state take its best row for o [R] and what follows, h [S], unless its present one is within `tie`.

    State s has the rows first[s] to first[s + 1] - 1. `choice` [S] is updated in place. Returns the largest entry of
    T h - h, and how many states moved.
    """
    high, moved = -np.inf, 0
    for s in range(np.uint64(len(h))):
        top, chosen = first[s], np.uint64(choice[s])
        best, kept = -np.inf, -np.inf
        for i in range(first[s], first[s + ONE]):
            value = expect(rows, i, h, o[i])
            top = i if value > best else top
            best = value if value > best else best
            kept = value if i == chosen else kept
        high = max(high, best - h[s])
        if kept < best - tie:
            choice[s] = top
            moved += 1
    return high, moved


@compiled
def differences(rows, owner, loss, o, h, delta, size):
    """delta_i = o_i + sum_j P_ij (h_j - h_s) - loss_i h_s for every row i of state s, and the size of what is added.

    It is o_i + P_i h - h_s for a row that loses loss_i, without the subtraction of nearly equal numbers: where a
    state is seldom left, h is large and differs little from state to state. o, delta and size are [K, rows], h [K, S].
    """
    for k in range(len(o)):
        for i in range(np.uint64(o.shape[1])):
            s = owner[i]
            total, scale = change(rows, i, h[k], h[k, s])
            delta[k, i] = o[k, i] + total - loss[i] * h[k, s]
            size[k, i] = scale + abs(loss[i] * h[k, s])


@compiled(inline=True)
def _apply(rows, ref, y, out, other):
    """out = y - P y, plus y[ref] in every state if ref is not negative; the sums of out * other and of out * out."""
    base, product, square = y[ref] if ref >= 0 else 0.0, 0.0, 0.0
    for s in range(np.uint64(len(y))):
        v = y[s] - expect(rows, s, y, 0.0) + base
        out[s] = v
        product, square = product + other[s] * v, square + v * v
    return product, square


@compiled
def krylov(rows, x, ref, y, work, tol, most):
    """Solve y - P y (+ y[ref]) = x in place by BiCGSTAB; whether the residual is below tol. work [6, S] is room.

    With y[ref], the solution differs from relative values by a constant only, and y[ref] is the mean per step.
    """
    S = len(y)
    r, shadow, p, v, t, q = work[0], work[1], work[2], work[3], work[4], work[5]
    used = 0
    for _ in range(RESTARTS):
        _apply(rows, ref, y, t, y)
        used += 1
        top, rho = 0.0, 0.0
        for s in range(S):
            d = x[s] - t[s]
            r[s], shadow[s], p[s] = d, d, d
            top, rho = max(top, abs(d)), rho + d * d
        if top <= tol:
            return True
        start = top
        while used < most:
            along, _ = _apply(rows, ref, p, v, shadow)
            alpha = rho / along
            for s in range(S):
                q[s] = r[s] - alpha * v[s]
            along, square = _apply(rows, ref, q, t, q)
            used += 2
            omega = along / square
            top, new = 0.0, 0.0
            for s in range(S):
                y[s] += alpha * p[s] + omega * q[s]
                r[s] = q[s] - omega * t[s]
                top, new = max(top, abs(r[s])), new + shadow[s] * r[s]
            if not top > 0.5 * tol or not top < BROKEN * start:
                break
            beta = new / rho * alpha / omega
            rho = new
            for s in range(S):
                p[s] = r[s] + beta * (p[s] - omega * v[s])
        if not top < BROKEN * start or used >= most:
            return False
    return False


@compiled
def eliminate(P, loss, x, time, h, mean, relative):
    """Values of a chain P [S, S] that loses loss [S], by elimination without subtraction; all but h are overwritten.

    Signals x [S, K] become h [S, K] with h = x - mean + P h. If `relative`, mean [K] is such that h is 0 in state 0,
    which every state must be able to reach or lose its mass on the way; otherwise mean is 0. `time` [S] is room. The
    diagonal of P is not read: rows of P and loss sum to 1 by definition (Grassmann, Taksar, Heyman 1985).

    Returns how long it takes to come back to state 0, and the state that is visited most in between. With a state 0
    that is seldom visited, x and mean times time are large and nearly equal, so another one is the better choice.
    """
    S, K = x.shape
    time[:] = 1.0
    for n in range(S - 1, 0, -1):
        out = loss[n]
        for j in range(n):
            out += P[n, j]
        for i in range(n):
            if P[i, n] > 0.0:
                share = P[i, n] / out
                for j in range(n):
                    if P[n, j] > 0.0:
                        P[i, j] += share * P[n, j]
                loss[i] += share * loss[n]
                time[i] += share * time[n]
                for k in range(K):
                    x[i, k] += share * x[n, k]
    for k in range(K):
        mean[k] = x[0, k] / time[0] if relative else 0.0
        h[0, k] = 0.0 if relative else x[0, k] / loss[0]
    for n in range(1, S):
        out = loss[n]
        for j in range(n):
            out += P[n, j]
        for k in range(K):
            total = x[n, k] - mean[k] * time[n]
            for j in range(n):
                total += P[n, j] * h[j, k]
            h[n, k] = total / out
    back, most = time[0], 0
    time[0] = 1.0
    for n in range(1, S):
        out, into = loss[n], 0.0
        for j in range(n):
            out += P[n, j]
            into += time[j] * P[j, n]
        time[n] = into / out
        if time[n] > time[most]:
            most = n
    return back, most
