"""The operators of `step` over many steps, on several threads where a step is large.

Choosing and evaluating are separate. Choosing carries the values of one objective only, and evaluating reads only the
rows of the actions that were chosen; together they read much less memory than one pass that carries the values of all
signals along for every action.

The states of a step are divided into chunks; threads take chunks until none is left, and the next step begins when all
are done. Nothing is added up across states, so that results do not depend on the number of threads, to the last bit. A
model whose steps are small is one chunk, and then many steps are done in one call.

Arrays V [L, S] and X [L, S, 1 + N] hold the values of L steps, of which two are enough, in turn. Those after the last
step are given, and have to be 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.compiled import ONE, TWO, ZERO, compiled
from cmdpkit.operators.rows import prepare
from cmdpkit.operators.step import backup, bellman, lookahead, occupy, sweep

NO_CHOICE = np.zeros((0, 0))  # in the place of values by which actions are chosen
BLOCK = 1000  # states that are evaluated together, after actions were chosen for all of them
CHUNK_WORK = 200_000  # transitions in one chunk; compiled code takes a fraction of a millisecond for them
CALL_WORK = 20_000_000  # transitions in one call of compiled code; Ctrl-C is noticed between two calls

Threads = int | None  # how many threads to use; None stands for all cores that this process may use
# Called with (first, last, low, high): computes steps last .. first, in this order, of the states low .. high - 1.
StepWork = Callable[[int, int, int, int], None]


@compiled
def induction(rows, x, allowed, signals, policy, first, last, low, high, V, X, Q):
    """Choose the best actions for x, policy.choice [H, S], at the steps last .. first, and evaluate all signals.

    If V is empty (`NO_CHOICE`), the policy is evaluated as it is; where rows can be chosen, those are taken that are
    best for the first signal. Nothing is evaluated if X has room for no signal. Q, unless it is empty, is filled by
    `backup`. A state is evaluated soon after its action was chosen, while its transitions are still in the cache of the
    processor.
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
