"""Backward induction on the sparse rows of a model: which policy is best, and what a policy is worth.

Choosing and evaluating are separate. Choosing carries the values of one objective only, and evaluating reads only the
rows of the actions that were chosen; together they read much less memory than one pass that carries the values of all
signals along for every action. This is the one place that knows how rows lie in memory.

The states of a step are divided into chunks; threads take chunks until none is left, and the next step begins when all
are done. Nothing is added up across states, so that results do not depend on the number of threads, to the last bit. A
model whose steps are small is one chunk, and then many steps are done in one call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import ONE, ZERO, call, compiled, embedded, readonly
from cmdpkit.model.transitions import FloatArray, IntArray

CHUNK_WORK = 200_000  # transitions in one chunk; compiled code takes a fraction of a millisecond for them
CALL_WORK = 20_000_000  # transitions in one call of compiled code; Ctrl-C is noticed between two calls

Threads = int | None  # how many threads to use; None stands for all cores that this process may use
# Called with (first, last, low, high): computes steps last .. first, in this order, of the states low .. high - 1.
StepWork = Callable[[int, int, int, int], None]
TWO = np.uint64(2)
BLOCK = 1000  # states that are evaluated together, after actions were chosen for all of them

Choice = NDArray[np.int16]  # [H, S], action index; A <= 32767 is checked


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


class Rows(NamedTuple):
    """The transitions as in `Compact`. Indices are unsigned, so that compiled code need not check for negative ones."""

    indptr: NDArray[np.uint64]  # [T*S*A + 1], where each row begins in the two arrays below
    successors: NDArray[np.uint32]  # [nonzeros], next states
    prob: FloatArray  # [nonzeros], their probabilities


class Signals(NamedTuple):
    """What is collected, as in `Compact`; each array has 1 or H steps."""

    r: FloatArray  # [T, S, A], reward
    g: FloatArray  # [N, T, S, A], utilities


class Draws(NamedTuple):
    """The stochastic decisions of a policy, at which it draws among several actions."""

    first: IntArray  # [H + 1], rows first[h] .. first[h+1] - 1 of the arrays below are the decisions of step h
    s: IntArray  # [D], the state of each decision, rising within a step
    a: NDArray[np.int16]  # [D, C], the actions of each decision, rising; those with probability 0 do not count
    p: FloatArray  # [D, C], the probabilities of these actions


class Induction:
    """Backward induction in a model with a horizon."""

    def __init__(self, cmdp: CMDP, threads: Threads = None) -> None:
        c = cmdp.compact
        rows = (c.indptr.view(np.uint64), c.successors.view(np.uint32), c.prob)
        self.cmdp, self.rows, self._allowed = cmdp, Rows(*map(readonly, rows)), readonly(c.allowed)
        self.steps = Steps(cmdp.H, cmdp.S, cmdp.kernel.nonzeros // cmdp.kernel.T, threads)
        self._signals = Signals(readonly(c.r), readonly(c.g))
        self._work = cmdp.H * (len(c.prob) // cmdp.kernel.T + cmdp.S * (cmdp.A + cmdp.N))  # inner loops of a pass
        nothing = (np.zeros(cmdp.H + 1, np.int64), np.zeros(0, np.int64), np.zeros((0, 1), np.int16), np.zeros((0, 1)))
        self._no_draws = Draws(*map(readonly, nothing))

    def best(self, objective: FloatArray) -> tuple[float, Choice, FloatArray]:
        """The largest expected total of `objective` [1 or H, S, A], the policy that has it, and its totals [1 + N].

        A state is evaluated soon after its action was chosen, while its transitions are still in the cache.
        """
        choice, V, X = self._choices(), self._room(), self._room(1 + self.cmdp.N)
        given = (self.rows, readonly(objective), self._allowed, self._signals, self._no_draws)
        filled = (V, choice, X, np.zeros((0, 1, 1 + self.cmdp.N)))
        self.steps.backward(lambda *place: call(_choose_and_evaluate, 2 * self._work, *given, *place, *filled))
        return float(self.cmdp.mu @ V[0]), choice, self._from_start(X)

    def extremes(self, signal: FloatArray) -> tuple[float, float, Choice]:
        """The least and largest total of `signal` [1 or H, S, A], in one pass, and the policy that has the latter."""
        choice, V = self._choices(), self._room(2)
        given = (self.rows, readonly(signal), self._allowed)
        self.steps.backward(lambda *place: call(_extremes, self._work, *given, *place, V, choice))
        worst, best = self._from_start(V).tolist()
        return worst, best, choice

    def evaluate(
        self, choice: Choice, draws: Draws | None = None, action_values: FloatArray | None = None
    ) -> FloatArray:
        """Expected reward and utilities [1 + N] if choice [H, S] is followed, except where the policy draws.

        ``action_values`` [D, C, 1 + N] is filled with the totals from each stochastic decision on, by action.
        """
        drawn = self._no_draws if draws is None else Draws(*map(readonly, draws))
        X = self._room(1 + self.cmdp.N)
        values = np.zeros((*drawn.p.shape, X.shape[2])) if action_values is None else action_values
        given = (self.rows, self._signals, choice, drawn)
        self.steps.backward(lambda *place: call(_evaluate, self._work, *given, *place, X, values))
        return self._from_start(X)

    def _choices(self) -> Choice:
        return np.zeros((self.cmdp.H, self.cmdp.S), dtype=np.int16)

    def _room(self, *signals: int) -> FloatArray:
        """Values of a step and of the one after it, in turn; 0 after the last step."""
        return np.zeros((2, self.cmdp.S, *signals))

    def _from_start(self, X: FloatArray) -> FloatArray:
        """Totals [n] from the start, given those from every state at the first step, X[0] [S, n]."""
        return np.array([self.cmdp.mu @ np.ascontiguousarray(x) for x in X[0].T])


@compiled
def _choose(rows, objective, allowed, first, last, low, high, V, choice):
    """Fill V and choice for the steps last .. first and the states low .. high - 1.

    There are no branches on values, because the processor cannot predict them.
    """
    H, S = choice.shape
    steps, _, A = objective.shape
    T = (len(rows.indptr) - 1) // (S * A)
    for h in range(last, first - 1, -1):
        now, then, here, open_ = V[h % 2], V[(h + 1) % 2], objective[h % steps], allowed[h % len(allowed)]
        row = np.uint64(((h % T) * S + low) * A)
        for s in range(np.uint64(low), np.uint64(high)):
            best, most = ZERO, -np.inf
            for a in range(np.uint64(A)):
                value = here[s, a]
                if h < H - 1:
                    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
                        value += rows.prob[i] * then[rows.successors[i]]
                row += ONE
                better = (value > most) & open_[s, a]
                most = value if better else most
                best = a if better else best  # type: ignore[assignment]
            choice[h, s] = best
            now[s] = most


@compiled
def _choose_and_evaluate(rows, objective, allowed, signals, draws, first, last, low, high, V, choice, X, action_values):
    """Both for the steps last .. first and the states low .. high - 1, some states at a time."""
    for h in range(last, first - 1, -1):
        for begin in range(low, high, BLOCK):
            end = min(begin + BLOCK, high)
            _choose(rows, objective, allowed, h, h, begin, end, V, choice)
            _evaluate(rows, signals, choice, draws, h, h, begin, end, X, action_values)


@compiled
def _extremes(rows, signal, allowed, first, last, low, high, V, choice):
    """The same as `_choose` for the least total, V[:, :, 0], and the largest, V[:, :, 1], whose choices are kept."""
    H, S = choice.shape
    steps, _, A = signal.shape
    T = (len(rows.indptr) - 1) // (S * A)
    for h in range(last, first - 1, -1):
        now, then, here, open_ = V[h % 2], V[(h + 1) % 2], signal[h % steps], allowed[h % len(allowed)]
        row = np.uint64(((h % T) * S + low) * A)
        for s in range(np.uint64(low), np.uint64(high)):
            best, most, least = ZERO, -np.inf, np.inf
            for a in range(np.uint64(A)):
                lower = upper = here[s, a]
                if h < H - 1:
                    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
                        p, s_next = rows.prob[i], rows.successors[i]
                        lower += p * then[s_next, ZERO]
                        upper += p * then[s_next, ONE]
                row += ONE
                better = (upper > most) & open_[s, a]
                most = upper if better else most
                best = a if better else best  # type: ignore[assignment]
                least = lower if (lower < least) & open_[s, a] else least
            choice[h, s] = best
            now[s, ZERO], now[s, ONE] = least, most


@compiled
def _evaluate(rows, signals, choice, draws, first, last, low, high, X, action_values):
    """Fill X for the steps last .. first and the states low .. high - 1, and the values of the actions drawn there."""
    S = choice.shape[1]
    A = signals.r.shape[2]
    T = (len(rows.indptr) - 1) // (S * A)
    signals_count = np.uint64(X.shape[2])
    pairs, odd = signals_count // TWO, signals_count % TWO == ONE
    for h in range(last, first - 1, -1):
        now, then = X[h % 2], X[(h + 1) % 2]
        begin = np.uint64((h % T) * S * A)
        at = (np.uint64(h % len(signals.r)), np.uint64(h % max(1, signals.g.shape[1])))
        for s in range(np.uint64(low), np.uint64(high)):
            a = np.uint64(choice[h, s])
            row = begin + s * np.uint64(A) + a
            for pair in range(pairs):  # two signals at a time: the row is read once for both
                k = TWO * pair
                now[s, k], now[s, k + ONE] = _two_values(rows, row, signals, k, at, s, a, then)
            if odd:
                now[s, signals_count - ONE] = _action_value(rows, row, signals, signals_count - ONE, at, s, a, then)
        for d in range(draws.first[h], draws.first[h + 1]):
            if not low <= draws.s[d] < high:
                continue
            s = np.uint64(draws.s[d])  # type: ignore[assignment]
            for n in range(signals_count):
                total = 0.0
                for j in range(draws.p.shape[1]):
                    a = np.uint64(draws.a[d, j])
                    value = _action_value(rows, begin + s * np.uint64(A) + a, signals, n, at, s, a, then)
                    action_values[d, j, n] = value
                    if draws.p[d, j] > 0.0:
                        total += draws.p[d, j] * value
                now[s, n] = total


@embedded
def _action_value(rows, row, signals, n, at, s, a, then):
    """Total of signal n (0 is the reward) from a step on after action a in state s; `then` is 0 after the last step."""
    value = _signal(signals, n, at, s, a)
    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
        value += rows.prob[i] * then[rows.successors[i], n]
    return value


@embedded
def _two_values(rows, row, signals, n, at, s, a, then):
    """The same for the signals n and n + 1."""
    value, other = _signal(signals, n, at, s, a), _signal(signals, n + ONE, at, s, a)
    for i in range(rows.indptr[row], rows.indptr[row + ONE]):
        p, s_next = rows.prob[i], rows.successors[i]
        value += p * then[s_next, n]
        other += p * then[s_next, n + ONE]
    return value, other


@embedded
def _signal(signals, n, at, s, a):
    """What signal n (0 is the reward) collects; `at` is where the step is found in r and in g."""
    return signals.r[at[0], s, a] if n == ZERO else signals.g[n - ONE, at[1], s, a]
