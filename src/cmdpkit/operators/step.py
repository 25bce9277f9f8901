"""The operators of a Markov decision process on one step, for every form of transition rows (see `rows`).

    bellman    V[s] = max_a x[h,s,a] + E[V_next | h,s,a], and the first action that attains it
    lookahead  Q[s,a] = x[h,s,a] + E[V_next | h,s,a]
    backup     X[s,n] = E_pi[x_n + X_next[.,n] | h,s] for all signals n at once
    occupy     d_next += d P_pi, and totals[n] += <d, x_n>
    sweep      Z = Y + tau (x + P Y - Y), the damped backup of a Markov chain, and the range of x + P Y - Y

Signals (`Signals`) are the reward, n = 0, and the utilities. A policy is given as `Decisions`; `all_drawn` makes one of
a table pi that may change afterwards. Operators work on the states low .. high - 1, so that threads can share a step.
They add nothing up across states, and the values after the last step have to be 0.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import ONE, TWO, ZERO, compiled
from cmdpkit.model.decisions import Decisions
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.rows import at_most, expect, expect2, push, row_of


def all_drawn(pi: FloatArray) -> Decisions:
    """The policy table pi [H, S, A] as decisions all of which are drawn; they see later changes of the table."""
    H, S, A = pi.shape
    states = np.tile(np.arange(S, dtype=np.int32), H)
    return Decisions(np.zeros((H, S), np.int16), np.arange(H + 1, dtype=np.int64) * S, states, pi.reshape(-1, A))


@compiled(inline=True)
def place_of(signals, h):
    """Where step h is found in the reward and in the utilities."""
    return np.uint64(h % len(signals.r)), np.uint64(h % max(1, signals.g.shape[1]))


@compiled(inline=True)
def signal_at(signals, place, n, s, a):
    """Signal n of state s and action a at a step, given as `place_of` it."""
    return signals.r[place[0], s, a] if n == ZERO else signals.g[n - ONE, place[1], s, a]


@compiled
def bellman(rows, x, allowed, h, low, high, V_next, V, choice):
    """V[s] = max_a x[h,s,a] + E[V_next | h,s,a]; choice[s] is the first action that attains it."""
    here, open_ = x[h % len(x)], allowed[h % len(allowed)]
    for s in range(np.uint64(low), np.uint64(high)):
        best, most = ZERO, -np.inf
        for a in range(np.uint64(here.shape[1])):
            row = row_of(rows, h, s, a)
            if at_most(rows, row, V_next, here[s, a]) <= most:
                continue
            value = expect(rows, row, V_next, here[s, a])
            better = (value > most) & open_[s, a]  # no branch: the processor could not predict it
            most = value if better else most
            best = a if better else best  # type: ignore[assignment]
        V[s], choice[s] = most, best


@compiled
def lookahead(rows, x, h, V_next, Q):
    """Q[s,a] = x[h,s,a] + E[V_next | h,s,a], also where there is no such action."""
    here = x[h % len(x)]
    for s in range(np.uint64(Q.shape[0])):
        for a in range(np.uint64(Q.shape[1])):
            Q[s, a] = expect(rows, row_of(rows, h, s, a), V_next, here[s, a])


@compiled
def backup(rows, signals, policy, h, low, high, X_next, X, Q):
    """X[s,n] = E_pi[x_n + X_next[.,n] | h,s]; Q [m, A, 1 + N], unless it is empty, gets the values of drawn actions."""
    t, place, K = h % len(policy.choice), place_of(signals, h), np.uint64(X.shape[1])
    draw, last = policy.first[t], policy.first[t + 1]
    while draw < last and policy.s[draw] < low:
        draw += 1
    for s in range(np.uint64(low), np.uint64(high)):
        if draw < last and np.uint64(policy.s[draw]) == s:
            for n in range(K):
                total = 0.0
                for a in range(np.uint64(policy.p.shape[1])):
                    p = policy.p[draw, a]
                    if p != 0.0:
                        x = signal_at(signals, place, n, s, a)
                        value = expect(rows, row_of(rows, h, s, a), X_next[:, n], x)
                        total += p * value
                        if len(Q) > 0:
                            Q[draw, a, n] = value
                X[s, n] = total
            draw += 1
        else:
            a = np.uint64(policy.choice[t, s])  # type: ignore[assignment]
            _back_up_one(rows, row_of(rows, h, s, a), signals, place, s, a, X_next, X)


@compiled(inline=True)
def _back_up_one(rows, row, signals, place, s, a, X_next, X):
    """X[s,n] = x_n + E[X_next[.,n] | row], two signals at a time."""
    K = np.uint64(X.shape[1])
    for pair in range(K // TWO):
        n = TWO * pair
        x, y = signal_at(signals, place, n, s, a), signal_at(signals, place, n + ONE, s, a)
        X[s, n], X[s, n + ONE] = expect2(rows, row, X_next, n, x, y)
    if K % TWO == ONE:
        n = K - ONE
        X[s, n] = expect(rows, row, X_next[:, n], signal_at(signals, place, n, s, a))


@compiled
def occupy(rows, policy, signals, h, d, d_next, totals):
    """d_next += d P_pi, unless d_next is empty, and totals[n] += <d, x_n> for as many signals as `totals` has."""
    t, place = h % len(policy.choice), place_of(signals, h)
    draw, last = policy.first[t], policy.first[t + 1]
    for s in range(np.uint64(len(d))):
        if d[s] == 0.0:
            continue
        while draw < last and np.uint64(policy.s[draw]) < s:
            draw += 1
        if draw < last and np.uint64(policy.s[draw]) == s:
            for a in range(np.uint64(policy.p.shape[1])):
                mass = d[s] * policy.p[draw, a]
                if mass != 0.0:
                    _send(rows, signals, place, h, s, a, mass, d_next, totals)
        else:
            _send(rows, signals, place, h, s, np.uint64(policy.choice[t, s]), d[s], d_next, totals)


@compiled(inline=True)
def _send(rows, signals, place, h, s, a, mass, d_next, totals):
    """Let a mass take an action: add up the signals it collects, and push it on."""
    for n in range(np.uint64(len(totals))):
        totals[n] += mass * signal_at(signals, place, n, s, a)
    if len(d_next) > 0:
        push(rows, row_of(rows, h, s, a), mass, d_next)


@compiled
def sweep(rows, x, Y, Z, tau, relative, k, other_k, low, high):
    """Z = Y + tau (x + P Y - Y) for signals k and k + 1 (None: k alone); low, high [K] get the range of x + P Y - Y.

    With `relative`, a constant is subtracted such that Z is 0 in state 0.
    """
    j = k if other_k is None else other_k
    a, b, c, d, base, other = np.inf, -np.inf, np.inf, -np.inf, 0.0, 0.0
    for s in range(np.uint64(len(Y))):
        if other_k is None:
            v = w = expect(rows, s, Y[:, k], x[s, k])
        else:
            v, w = expect2(rows, s, Y, k, x[s, k], x[s, j])
        v, w = v - Y[s, k], w - Y[s, j]
        a, b, c, d = min(a, v), max(b, v), min(c, w), max(d, w)
        v, w = Y[s, k] + tau * v, Y[s, j] + tau * w
        if s == ZERO and relative:
            base, other = v, w
        Z[s, k], Z[s, j] = v - base, w - other
    low[k], high[k], low[j], high[j] = a, b, c, d
