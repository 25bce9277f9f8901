"""Compiled passes over the rows of a model without a horizon.

State s has the rows first[s] to first[s + 1] - 1, and row i has the entries indptr[i] to indptr[i + 1] - 1 of `columns`
(next states) and `data` (their probabilities, times the discount, if any). The rows that a policy takes are copied into
a compact matrix of its own, because it is multiplied many times. Indices are unsigned, see `model.compiled`.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import ONE, ZERO, compiled, embedded

RESTARTS = 4  # of the Krylov method, each with the true residual
BROKEN = 1e6  # growth of the residual at which a Krylov method has failed


@compiled
def search(first, indptr, columns, data, found, queue):
    """Mark in `found` [S] every state that can be reached from those already marked; `queue` [S] is room to work in."""
    n = ZERO
    for s in range(len(found)):
        if found[s]:
            queue[n] = s
            n += ONE
    k = ZERO
    while k < n and n < np.uint64(len(found)):
        s = queue[k]
        k += ONE
        for e in range(indptr[first[s]], indptr[first[s + ONE]]):
            t = columns[e]
            if data[e] > 0.0 and not found[t]:
                found[t] = True
                queue[n] = t
                n += ONE


@compiled
def allowed_rows(indptr, successors, prob, allowed, first, row_end, columns, data, pair):
    """The allowed rows of a model [S, A], each divided by its sum; returns how many rows and entries there are."""
    S, A = allowed.shape
    n, i = 0, 0
    for s in range(S):
        for a in range(A):
            if not allowed[s, a]:
                continue
            begin, end = indptr[s * A + a], indptr[s * A + a + 1]
            total = 0.0
            for e in range(begin, end):
                total += prob[e]
            for e in range(begin, end):
                if prob[e] > 0.0:
                    columns[n], data[n] = successors[e], prob[e] / total
                    n += 1
            pair[i] = s * A + a
            i += 1
            row_end[i] = n
        first[s + 1] = i
    return i, n


@compiled
def part_rows(first, indptr, columns, data, number, wanted, new_first, row_end, new_columns, new_data, kept, exits):
    """The wanted rows of states with number[s] >= 0, renumbered; what they lose to other states is added to `exits`."""
    n, i = 0, 0
    for s in range(len(number)):
        if number[s] < 0:
            continue
        for row in range(first[s], first[s + 1]):
            if not wanted[row]:
                continue
            lost = 0.0
            for e in range(indptr[row], indptr[row + 1]):
                t = number[columns[e]]
                if t < 0:
                    lost += data[e]
                else:
                    new_columns[n], new_data[n] = t, data[e]
                    n += 1
            kept[i], exits[i] = row, lost
            i += 1
            row_end[i] = n
        new_first[number[s] + 1] = i
    return i, n


@compiled
def improve(first, indptr, columns, data, o, h, tie, choice):
    """Let every state take its best row for o [R] and what follows, h [S], unless its present one is within `tie`.

    `choice` [S] is updated in place. Returns the largest entry of T h - h, and how many states moved.
    """
    high, moved = -np.inf, 0
    i, e = ZERO, ZERO
    for s in range(np.uint64(len(h))):
        best, kept, top = -np.inf, -np.inf, i
        chosen, last = np.uint64(choice[s]), np.uint64(first[s + ONE])
        while i < last:
            value, end = o[i], np.uint64(indptr[i + ONE])
            while e < end:
                value += data[e] * h[columns[e]]
                e += ONE
            top = i if value > best else top
            best = value if value > best else best
            kept = value if i == chosen else kept
            i += ONE
        high = max(high, best - h[s])
        if kept < best - tie:
            choice[s] = top
            moved += 1
    return high, moved


@compiled
def gather(indptr, columns, data, X, choice, row_end, to, weight, x):
    """The rows of a choice [S] as a compact matrix (row_end [S + 1], to, weight), and their signals x [S, K]."""
    n = ZERO
    for s in range(np.uint64(len(choice))):
        i = np.uint64(choice[s])
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + ONE])):
            to[n], weight[n] = columns[e], data[e]
            n += ONE
        row_end[s + ONE] = n
        for k in range(len(X)):
            x[s, k] = X[k, i]


@embedded
def _sweep_two(row_end, to, weight, x, Y, Z, tau, relative, k, low, high):
    """One sweep of the signals k and k + 1, see `sweeps`; a row is read once for both."""
    j = k + ONE
    a, b, c, d = np.inf, -np.inf, np.inf, -np.inf
    base, other = 0.0, 0.0
    e = ZERO
    for s in range(np.uint64(len(Y))):
        v, w = x[s, k], x[s, j]
        end = np.uint64(row_end[s + ONE])
        while e < end:
            p, t = weight[e], to[e]
            v += p * Y[t, k]
            w += p * Y[t, j]
            e += ONE
        v, w = v - Y[s, k], w - Y[s, j]
        a, b, c, d = min(a, v), max(b, v), min(c, w), max(d, w)
        v, w = Y[s, k] + tau * v, Y[s, j] + tau * w
        if s == ZERO and relative:
            base, other = v, w
        Z[s, k], Z[s, j] = v - base, w - other
    low[k], high[k], low[j], high[j] = a, b, c, d


@embedded
def _sweep_one(row_end, to, weight, x, Y, Z, tau, relative, k, low, high):
    """The same for the signal k alone."""
    a, b, base = np.inf, -np.inf, 0.0
    e = ZERO
    for s in range(np.uint64(len(Y))):
        v = x[s, k]
        end = np.uint64(row_end[s + ONE])
        while e < end:
            v += weight[e] * Y[to[e], k]
            e += ONE
        v = v - Y[s, k]
        a, b = min(a, v), max(b, v)
        v = Y[s, k] + tau * v
        if s == ZERO and relative:
            base = v
        Z[s, k] = v - base
    low[k], high[k] = a, b


@compiled
def sweeps(row_end, to, weight, x, Y, Z, tau, relative, loss, along, goal, widths, low, high):
    """Repeat Z = Y + tau (x + P Y - Y), with Y and Z [S, K] changing places, until values are exact to `goal`.

    For every signal, low and high [K] are the smallest and the largest entry of x + P Y - Y in the last sweep, and
    `widths` has half of their distance, the largest of all signals, for every sweep. If `relative`, tables are 0 in
    state 0. Otherwise a width is the largest absolute entry, and with loss [S] and along [S] a table is moved along the
    latter such that the squares of entries are least, in units of loss. Returns how many sweeps were made, at most
    the length of `widths`.
    """
    S, K = len(Y), np.uint64(Y.shape[1])
    for n in range(len(widths)):
        k = ZERO
        while k + ONE < K:
            _sweep_two(row_end, to, weight, x, Y, Z, tau, relative, k, low, high)
            k += ONE + ONE
        if k < K:
            _sweep_one(row_end, to, weight, x, Y, Z, tau, relative, k, low, high)
        width = 0.0
        for i in range(K):
            width = max(width, (high[i] - low[i]) / 2 if relative else max(-low[i], high[i]))
        widths[n] = width
        if len(loss) > 0:  # the middle of the range would not converge
            for i in range(K):
                up, down = 0.0, 0.0
                for s in range(S):
                    up += loss[s] * (Z[s, i] - Y[s, i])
                    down += loss[s] * loss[s]
                for s in range(S):
                    Z[s, i] += up / down * along[s]
        if width <= goal:
            return n + 1
        Y, Z = Z, Y
    return len(widths)


@embedded
def _apply(row_end, to, weight, ref, y, out, other):
    """out = y - P y, plus y[ref] in every state if ref is not negative; the sums of out * other and of out * out."""
    base, product, square = y[ref] if ref >= 0 else 0.0, 0.0, 0.0
    e = ZERO
    for s in range(np.uint64(len(y))):
        v = 0.0
        end = np.uint64(row_end[s + ONE])
        while e < end:
            v += weight[e] * y[to[e]]
            e += ONE
        v = y[s] - v + base
        out[s] = v
        product, square = product + other[s] * v, square + v * v
    return product, square


@compiled
def krylov(row_end, to, weight, x, ref, y, work, tol, most):
    """Solve y - P y (+ y[ref]) = x in place by BiCGSTAB; whether the residual is below tol. work [6, S] is room.

    With y[ref], the solution differs from relative values by a constant only, and y[ref] is the mean per step.
    """
    S = len(y)
    r, shadow, p, v, t, q = work[0], work[1], work[2], work[3], work[4], work[5]
    used = 0
    for _ in range(RESTARTS):
        _apply(row_end, to, weight, ref, y, t, y)
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
            along, _ = _apply(row_end, to, weight, ref, p, v, shadow)
            alpha = rho / along
            for s in range(S):
                q[s] = r[s] - alpha * v[s]
            along, square = _apply(row_end, to, weight, ref, q, t, q)
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
def differences(indptr, columns, data, owner, loss, o, h, delta, size):
    """delta_i = o_i + sum_j P_ij (h_j - h_s) - loss_i h_s for every row i of state s, and the size of what is added.

    It is o_i + P_i h - h_s for a row that loses loss_i, without the subtraction of nearly equal numbers: where a
    state is seldom left, h is large and differs little from state to state. o, delta and size are [K, rows], h [K, S].
    """
    for k in range(len(o)):
        for i in range(o.shape[1]):
            s = owner[i]
            total, scale = 0.0, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                term = data[e] * (h[k, columns[e]] - h[k, s])
                total += term
                scale += abs(term)
            delta[k, i] = o[k, i] + total - loss[i] * h[k, s]
            size[k, i] = scale + abs(loss[i] * h[k, s])


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
