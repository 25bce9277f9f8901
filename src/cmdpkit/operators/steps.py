"""The operators of a Markov decision process on one step, for every form of transition rows (see `rows`), and on many.

    bellman    V[s] = max_a x[h,s,a] + E[V_next | h,s,a], and the first action that attains it
    lookahead  Q[s,a] = x[h,s,a] + E[V_next | h,s,a]
    backup     X[s,n] = E_pi[x_n + X_next[.,n] | h,s] for all signals n at once
    occupy     d_next += d P_pi, and totals[n] += <d, x_n>
    sweep      Z = Y + tau (x + P Y - Y), the damped backup of a Markov chain, and the range of x + P Y - Y

Signals (`Signals`) are the reward, n = 0, and the utilities. A policy is given as `Decisions`; `all_drawn` makes one of
a table pi that may change afterwards. Operators work on the states low .. high - 1, so that threads can share a step.
They add nothing up across states, and the values after the last step have to be 0.

Over many steps, choosing and evaluating are separate. Choosing carries the values of one objective only, and evaluating
reads only the rows of the actions that were chosen; together they read much less memory than one pass that carries the
values of all signals along for every action. Arrays V [L, S] and X [L, S, 1 + N] hold the values of L steps, of which
two are enough, in turn.

Where a step is large, its states are divided into chunks (`Steps`); threads take chunks until none is left, and the
next step begins when all are done. Results do not depend on the number of threads, to the last bit. A model whose steps
are small is one chunk, and then many steps are done in one call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.compiled import ONE, TWO, ZERO, compiled
from cmdpkit.model.decisions import Decisions
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.rows import at_most, expect, expect2, prepare, push, row_of

NO_CHOICE = np.zeros((0, 0))  # in the place of values by which actions are chosen
BLOCK = 1000  # states that are evaluated together, after actions were chosen for all of them
CHUNK_WORK = 200_000  # transitions in one chunk; compiled code takes a fraction of a millisecond for them
CALL_WORK = 20_000_000  # transitions in one call of compiled code; Ctrl-C is noticed between two calls

Threads = int | None  # how many threads to use; None stands for all cores that this process may use
# Called with (first, last, low, high): computes steps last .. first, in this order, of the states low .. high - 1.
StepWork = Callable[[int, int, int, int], None]


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


# -- over many steps ---------------------------------------------------------------------------------------------------


@compiled
def induction(rows, x, allowed, signals, policy, first, last, low, high, V, X, Q):
    """Choose the best actions for x, policy.choice [H, S], at the steps last .. first, and evaluate all signals.

    If V is empty (`NO_CHOICE`), the policy is evaluated as it is; where rows can be chosen, those are taken that are
    best for the first signal. Nothing is evaluated if X has room for no signal. Q, unless it is empty, is filled by
    `backup`. A state is evaluated soon after its action was chosen, while its transitions are still in the cache of the
    processor. Both are one function because a solve needs both, and would have to compile two.
    """
    chooses = len(V) > 0
    size = BLOCK if chooses else max(high - low, 1)
    for h in range(last, first - 1, -1):
        here, then = h % max(len(V), 1), (h + 1) % max(len(V), 1)
        if chooses:
            prepare(rows, h, V[then])
        else:
            prepare(rows, h, X[(h + 1) % len(X)][:, 0])
        for begin in range(low, high, size):
            end = min(begin + size, high)
            if chooses:
                bellman(rows, x, allowed, h, begin, end, V[then], V[here], policy.choice[h])
            if X.shape[2] > 0:
                backup(rows, signals, policy, h, begin, end, X[(h + 1) % len(X)], X[h % len(X)], Q)


@compiled
def lookaheads(rows, x, allowed, pi, Q, V):
    """Q[h] of `lookahead`, 0 where no action exists, and V[h] = sum_a pi[h] Q[h], for all steps, the last one first."""
    H, S, A = pi.shape
    for h in range(H - 1, -1, -1):
        lookahead(rows, x, h, V[h + 1], Q[h])
        for s in range(S):
            V[h, s] = 0.0
            for a in range(A):
                if allowed[h % len(allowed), s, a]:
                    V[h, s] += pi[h, s, a] * Q[h, s, a]
                else:
                    Q[h, s, a] = 0.0


@compiled
def expectations(rows, x, V, Q):
    """Fill Q[h,s,a] with x[h,s,a] + E[V[h+1] | h,s,a] for given values V [H + 1, S] and a signal x [1 or H, S, A]."""
    for h in range(len(Q) - 1, -1, -1):
        prepare(rows, h, V[h + 1])
        lookahead(rows, x, h, V[h + 1], Q[h])


@compiled
def flow(rows, policy, signals, first, last, inflow, d, totals):
    """Carry the probabilities d[first % L] [S] on to step `last`, d[h % L], adding up the signals on the way.

    At every step h after the first, inflow[h] joins, unless `inflow` [H, S] is empty; it may be negative. Signals of
    step `last` count, too.
    """
    for h in range(first, last):
        then = d[(h + 1) % len(d)]
        then[:] = 0.0
        occupy(rows, policy, signals, h, d[h % len(d)], then, totals)
        if len(inflow) > 0:
            for s in range(len(then)):
                then[s] += inflow[h + 1, s]
    if len(totals) > 0:
        occupy(rows, policy, signals, last, d[last % len(d)], d[0, :0], totals)


@compiled
def sweeps(rows, x, Y, Z, tau, relative, loss, along, goal, widths, low, high):
    """Repeat `sweep`, Y and Z [S, K] changing places, until the size of the residual is at most `goal`.

    The size is half of the range with `relative`, else the largest magnitude; widths[n] gets that of sweep n. Unless
    loss [S] is empty, tables are moved along a vector `along` [S] after each sweep, such that the squares of residuals
    are least in units of loss. Returns the number of sweeps, at most the length of `widths`.
    """
    K = np.uint64(Y.shape[1])
    for n in range(len(widths)):
        for k in range(ZERO, K - ONE, TWO):
            sweep(rows, x, Y, Z, tau, relative, k, k + ONE, low, high)
        if K % TWO == ONE:
            sweep(rows, x, Y, Z, tau, relative, K - ONE, None, low, high)
        widths[n] = 0.0
        for k in range(len(low)):
            widths[n] = max(widths[n], (high[k] - low[k]) / 2 if relative else max(-low[k], high[k]))
        if len(loss) > 0:
            _move_along(loss, along, Y, Z)
        if widths[n] <= goal:
            return n + 1
        Y, Z = Z, Y
    return len(widths)


@compiled(inline=True)
def _move_along(loss, along, Y, Z):
    """Add the multiple of `along` [S] to every column of Z that makes the squares of Z - Y least in units of loss."""
    for k in range(Y.shape[1]):
        up, down = 0.0, 0.0
        for s in range(len(Y)):
            up += loss[s] * (Z[s, k] - Y[s, k])
            down += loss[s] * loss[s]
        for s in range(len(Y)):
            Z[s, k] += up / down * along[s]


def thread_count(threads: Threads) -> int:
    """How many threads were asked for."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise CmdpkitError(f"threads is {quoted(threads)}, expected a whole number, at least 1")
    return int(threads)


class Steps:
    """The steps of a model with H steps, S states and so many transitions per step, divided into pieces of work."""

    def __init__(self, H: int, S: int, transitions: int, threads: Threads = None) -> None:
        chunks = max(1, min(S, transitions // CHUNK_WORK))
        edges = [S * i // chunks for i in range(chunks + 1)]
        self.chunks = list(pairwise(edges))
        block = max(1, CALL_WORK // max(1, transitions)) if chunks == 1 else 1  # steps in one call
        self.blocks = [(max(0, last - block + 1), last) for last in range(H - 1, -1, -block)]
        helpers = min(thread_count(threads), chunks) - 1
        self._executor = ThreadPoolExecutor(helpers) if helpers else None
        self._helpers = helpers

    def backward(self, work: StepWork) -> None:
        """Do the work for all steps, from the last to the first."""
        for first, last in self.blocks:
            if self._executor is None:
                _take(iter(self.chunks), work, first, last)
            else:
                self._together(self._executor, work, first, last)

    def _together(self, executor: ThreadPoolExecutor, work: StepWork, first: int, last: int) -> None:
        """Take chunks in this thread and in all helpers, and return when all chunks are done."""
        left = iter(self.chunks)
        futures = [executor.submit(_take, left, work, first, last) for _ in range(self._helpers)]
        try:
            _take(left, work, first, last)
        finally:
            wait(futures)  # also after Ctrl-C, because the helpers write to arrays of the caller
        for future in futures:
            future.result()


def _take(left: Iterator[tuple[int, int]], work: StepWork, first: int, last: int) -> None:
    """Work on one chunk after the other, until none is left; several threads may take from the same iterator."""
    for low, high in left:
        work(first, last, low, high)
