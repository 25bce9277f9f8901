"""Sweeps over all states of a model by functions: all that a solver needs, compiled for the user's functions.

Tables Y [K, states] hold a value for each of the K = 1 + N signals, in the user's units and sense. With weights in the
same units, h = weights . Y is a value function, and a sweep computes T h or T Y one state after the other. Both forms
of models prepare a table E of what follows a decision:

    events    E = Y (or h), and an action is worth collect(x, a) + discount sum_e p_e E[x_e]
    factored  E[y] = after(y) + discount E[Y | y], and an action is worth collect(x, a) + E[move(x, a)]

The expectation of a factored model takes one coordinate after the other: sum(w_i) operations per state in place of
prod(w_i) per state and action. Nothing is added up across states, so threads and ranks do not change a bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.large.ranks import Ranks
from cmdpkit.model.compiled import compiled, njit
from cmdpkit.model.functions import LOOSE, Form, FunctionModel
from cmdpkit.model.tolerances import ROUNDOFF, ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.steps import Threads, thread_count

PIECES = 64  # of a sweep, which threads take one after the other
PROBLEMS = (
    "",
    "has no action; `allowed` must leave one in every state",
    "leads outside of the space",
    "has a probability that is negative or not a number",
    "has probabilities that do not sum to 1",
    "collects a signal that is not a finite number",
)
NO_ACTION, OUTSIDE, NO_PROBABILITY, NO_SUM, NOT_FINITE = range(1, 6)
Choice = NDArray[Any]  # [stored states], an action per state; the number A stands for a draw


class Kernels(NamedTuple):
    """The compiled sweeps of a form."""

    inspect: Any
    improve: Any
    sweep: Any
    once: Any  # what one action gives in one state
    expect: Any  # of factored models, None for events


class Inspection(NamedTuple):
    """What one inspection of all states finds."""

    lowest: FloatArray  # [K], the smallest signal of any state and action
    highest: FloatArray  # [K], the largest one
    size: FloatArray  # [K], the largest |collect| + |after|
    row_error: float  # how far probabilities of a row miss 1 at most


@lru_cache(maxsize=8)
def kernels_of(form: Form) -> Kernels:
    """Compile the sweeps of a form."""
    step, collect, after, allowed, decode, encode, inside, space, A, events, K = form
    inner = math.prod(space[1:])

    @njit(**LOOSE)
    def look(x, a, E, discount, off):  # what follows an action
        if after is None:
            one, two = 0.0, 0.0  # two sums, so that neither waits for the other
            for e in range(0, events - 1, 2):
                then, p = step(x, a, e)
                other, q = step(x, a, e + 1)
                one += p * E[np.uint64(encode(then) - off)]
                two += q * E[np.uint64(encode(other) - off)]
            if events % 2:
                then, p = step(x, a, events - 1)
                one += p * E[np.uint64(encode(then) - off)]
            return discount * (one + two)
        return E[np.uint64(encode(step(x, a)) - off)]

    @njit(**LOOSE)
    def once(s, a, E, discount, off, out):
        x = decode(s)
        own = collect(x, a)
        for k in range(K):
            out[k] = own[k] + look(x, a, E[k], discount, off)

    @njit(**LOOSE)
    def improve(lo, hi, base, weights, tie, choice, Y, E, discount):
        """Let every state of planes lo .. hi - 1 take its best action; the largest T h - h, and how many changed.

        A state keeps its action unless another is better by more than `tie`. The last result is a state whose values
        are not finite, or -1.
        """
        high, moved, bad, off = -np.inf, 0, -1, base * inner
        for s in range(lo * inner, hi * inner):
            i = np.uint64(s - off)
            x, now = decode(s), np.int64(choice[i])
            best, top, kept = -np.inf, 0, -np.inf
            for a in range(A):
                if allowed(x, a):
                    own, value = collect(x, a), look(x, a, E, discount, off)
                    for k in range(K):
                        value += weights[k] * own[k]
                    kept = value if now == a else kept
                    top = a if not value <= best else top  # also where the value is not a number
                    best = value if not value <= best else best
            h = 0.0
            for k in range(K):
                h += weights[k] * Y[k, i]
            high = max(high, best - h)
            better = best > kept + tie
            moved += better
            choice[i] = top if better else now
            bad = bad if np.isfinite(best) else s
        return high, moved, bad

    @njit(**LOOSE)
    def sweep(lo, hi, base, choice, Y, E, discount, tau, shift, low, high, size):
        """Y <- Y + tau (T Y - Y) - shift for a choice; range of T Y - Y and largest |Y|, [K]. Draws are left out."""
        bad, off = -1, base * inner
        for s in range(lo * inner, hi * inner):
            i = np.uint64(s - off)
            a = np.int64(choice[i])
            if a == A:
                continue
            x = decode(s)
            own = collect(x, a)
            for k in range(K):
                value, before = own[k] + look(x, a, E[k], discount, off), Y[k, i]
                low[k], high[k] = min(low[k], value - before), max(high[k], value - before)
                value = (value if tau == 1.0 else before + tau * (value - before)) - shift[k]
                Y[k, i], size[k] = value, max(size[k], abs(value))
                bad = bad if np.isfinite(value) else s
        return bad

    @njit(**LOOSE)
    def inspect(lo, hi, lowest, highest, size, reads, row_error):
        """Check states lo .. hi - 1: (problem, s, a, e) of the first that is wrong, or zeros; fills in the rest."""
        for s in range(lo, hi):
            x, open_ = decode(s), False
            for a in range(A):
                if not allowed(x, a):
                    continue
                open_, own = True, collect(x, a)
                if after is None:
                    total = 0.0
                    for e in range(events):
                        then, p = step(x, a, e)
                        if not p >= 0.0:
                            return NO_PROBABILITY, s, a, e
                        if not inside(then):
                            return OUTSIDE, s, a, e
                        total, reads[then[0]] = total + p, True
                    if not abs(total - 1.0) <= ROW_SUM_TOLERANCE:
                        return NO_SUM, s, a, 0
                    row_error[0] = max(row_error[0], abs(total - 1.0))
                    more = own
                else:
                    y = step(x, a)
                    if not inside(y):
                        return OUTSIDE, s, a, 0
                    reads[y[0]] = True
                    more = after(y)
                for k in range(K):
                    both = own[k] + (0.0 if after is None else more[k])
                    if not np.isfinite(both):
                        return NOT_FINITE, s, a, 0
                    lowest[k], highest[k] = min(lowest[k], both), max(highest[k], both)
                    size[k] = max(size[k], abs(own[k]) + (0.0 if after is None else abs(more[k])))
            if not open_:
                return NO_ACTION, s, 0, 0
        return 0, 0, 0, 0

    return Kernels(inspect, improve, sweep, once, None if after is None else _expectation(form))


def _expectation(form: Form) -> Any:
    """E[j, y] = after(y) + discount E[weights[j] . Y | y], one coordinate after the other; for factored models."""
    after, decode, space, K = form.after, form.decode, form.space, form.K
    inner, d = math.prod(space[1:]), len(space)
    sizes, strides = np.array(space), np.array([math.prod(space[i + 1 :]) for i in range(d)])

    @njit(**LOOSE)
    def expect(lo, hi, base, weights, discount, to, p, Y, E):
        room, other = np.empty(inner), np.empty(inner)
        for plane in range(lo, hi):
            begin = (plane - base) * inner
            for j in range(len(weights)):
                room[:] = 0.0
                for w in range(len(to[0])):
                    at = (to[0][w, plane] - base) * inner
                    for k in range(K):
                        if weights[j, k] != 0.0 and p[0][w, plane] != 0.0:
                            add(p[0][w, plane] * weights[j, k], Y[k, at : at + inner], room)
                for i in range(1, d):
                    along(to[i], p[i], sizes[i], strides[i], room, other)
                    room, other = other, room
                E[j, begin : begin + inner] = room
            for c in range(inner):
                own = after(decode(plane * inner + c))
                for j in range(len(weights)):
                    value = discount * E[j, begin + c]
                    for k in range(K):
                        value += weights[j, k] * own[k]
                    E[j, begin + c] = value

    return expect


@compiled
def add(q, source, out):
    """Add a multiple of one row to another."""
    for c in range(len(out)):
        out[c] += q * source[c]


@compiled
def along(to, p, n, m, table, out):
    """The expectation over one coordinate with n places, m entries apart; to and p are [outcomes, n]."""
    for b in range(len(table) // (n * m)):
        block, into = table[b * n * m : (b + 1) * n * m], out[b * n * m : (b + 1) * n * m]
        if m == 1:
            for j in range(n):
                into[j] = p[0, j] * block[to[0, j]]
            for w in range(1, len(to)):
                for j in range(n):
                    into[j] += p[w, j] * block[to[w, j]]
        else:
            into[:] = 0.0
            for j in range(n):
                for w in range(len(to)):
                    add(p[w, j], block[to[w, j] * m : (to[w, j] + 1) * m], into[j * m : (j + 1) * m])


@compiled
def combine(low, high, weights, Y, E):
    """E[j] = weights[j] . Y for entries low .. high - 1; for models of events."""
    for s in range(low, high):
        for j in range(len(weights)):
            value = 0.0
            for k in range(len(Y)):
                if weights[j, k] != 0.0:
                    value += weights[j, k] * Y[k, s]
            E[j, s] = value


class Sweeps:
    """The sweeps of a model on threads, and on ranks if there are several; counts them in ``done``."""

    def __init__(self, model: FunctionModel, threads: Threads = None, comm: Any = None) -> None:
        self.model, self.form = model, model.form
        self.K, self.S, self.inner = model.K, model.S, math.prod(model.space[1:])
        self.discount = model.criterion.discount or 1.0
        self.kernels = kernels_of(self.form)
        self.ranks = Ranks(comm, model.space[0])
        self._refuse_too_large()
        n = thread_count(threads)
        self.pool = ThreadPoolExecutor(n) if n > 1 else None
        self.to = tuple(np.ascontiguousarray(part.to.T) for part in model.noise)
        self.p = tuple(np.ascontiguousarray(part.p.T) for part in model.noise)
        self.starts = np.array([self.form.encode(x) for x in model.start])
        self.start_p = np.array(list(model.start.values()))
        self.facts = self._inspected()
        self.E, self.done = self.table(self.K), 0
        self.type = np.uint8 if model.A < 255 else np.uint16

    def _refuse_too_large(self) -> None:
        """Raise CmdpkitError if the tables of a solve cannot be held in the memory of this machine."""
        needed = (16 * self.K + 2) * self.S / self.ranks.size
        if hasattr(os, "sysconf"):  # Windows has none, and says so when it has no memory left
            there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            if needed > there:
                raise CmdpkitError(
                    f"{self.model!r} needs {needed / 1e9:,.0f} GB for its tables, and this machine has "
                    f"{there / 1e9:,.0f}; merge states, or share them among several machines (cmdpkit[mpi])"
                )

    def table(self, *rows: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Zeros for all states that are stored here."""
        return np.zeros((*rows, (self.ranks.top - self.ranks.base) * self.inner), dtype)

    def over(self, work: Callable[[int, int], Any]) -> list[Any]:
        """Call work(first plane, last plane + 1) for pieces of the owned planes, on all threads."""
        r = self.ranks
        edges = np.unique(np.linspace(r.lo, r.hi, min(PIECES, r.hi - r.lo) + 1).astype(int)).tolist()
        if self.pool is None:
            return [work(*piece) for piece in pairwise(edges)]
        futures = [self.pool.submit(work, *piece) for piece in pairwise(edges)]
        try:
            return [future.result() for future in futures]
        finally:
            wait(futures)  # also after Ctrl-C, because threads write to arrays of the caller

    def at_start(self, Y: FloatArray) -> FloatArray:
        """The expectation of tables [K, stored] over the start, [K]."""
        r = self.ranks
        mine = (self.starts >= r.lo * self.inner) & (self.starts < r.hi * self.inner)
        values = np.full((len(Y), len(self.starts)), -np.inf)
        values[:, mine] = Y[:, self.starts[mine] - r.base * self.inner]
        return np.asarray(r.largest(values) @ self.start_p)

    def _inspected(self) -> Inspection:
        """Check all states once, and connect the ranks."""
        K, planes = self.K, self.model.space[0]

        def work(lo: int, hi: int) -> tuple[Any, ...]:
            found = np.full(K, np.inf), np.full(K, -np.inf), np.zeros(K), np.zeros(planes, dtype=bool), np.zeros(1)
            return self.kernels.inspect(lo * self.inner, hi * self.inner, *found), *found

        pieces = self.over(work)
        problem = min((x[0] for x in pieces if x[0][0]), key=lambda x: x[1], default=(0, 0, 0, 0))
        worst = self.ranks.largest(np.array([float(problem[0])]))[0]
        if problem[0]:
            raise wrong(self.model, problem)
        if worst:
            raise CmdpkitError("the states of another rank are wrong; its error says which")
        _, lowest, highest, size, reads, error = (list(x) for x in zip(*pieces, strict=True))
        top = self.ranks.largest(
            np.concatenate((-np.min(lowest, axis=0), *np.max([highest, size], axis=1), np.max(error, axis=0)))
        )
        before = np.zeros(planes, dtype=bool)
        if self.model.noise:
            before[self.to[0][:, self.ranks.lo : self.ranks.hi]] = True
        self.plans = self.ranks.connect(before, np.any(reads, axis=0))
        return Inspection(-top[:K], top[K : 2 * K], top[2 * K : 3 * K], float(top[-1]))

    def _prepare(self, weights: FloatArray, Y: FloatArray) -> FloatArray:
        """The tables E of what follows a decision, for the rows of weights [J, K]."""
        E, r = self.E[: len(weights)], self.ranks
        if self.model.noise:
            r.exchange(self.plans[0], Y)
            self.over(lambda lo, hi: self.kernels.expect(lo, hi, r.base, weights, self.discount, self.to, self.p, Y, E))
        else:
            n = self.inner
            self.over(lambda lo, hi: combine((lo - r.base) * n, (hi - r.base) * n, weights, Y, E))
        r.exchange(self.plans[1], E)
        return E

    def improve(self, Y: FloatArray, weights: FloatArray, tie: float, choice: Choice) -> tuple[float, int]:
        """Let every state take its best action for h = weights . Y; the largest T h - h, and how many changed."""
        E = self._prepare(weights[None], Y)[0]
        given = (self.ranks.base, weights, tie, choice, Y, E, self.discount)
        found = self.over(lambda lo, hi: self.kernels.improve(lo, hi, *given))
        self._finite(x[2] for x in found)
        self.done += 1
        return float(self.ranks.largest(np.array([max(x[0] for x in found)]))[0]), self.ranks.total(
            sum(x[1] for x in found)
        )

    def sweep(
        self, Y: FloatArray, choice: Choice, tau: float, shift: FloatArray, draws: Draws = ()
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Y <- T Y for all signals; the range of T Y - Y and the largest |Y|, [K] each; tau and shift as in kernels."""
        E = self._prepare(np.eye(self.K), Y)

        def work(lo: int, hi: int) -> tuple[Any, ...]:
            found = np.full(self.K, np.inf), np.full(self.K, -np.inf), np.zeros(self.K)
            return self.kernels.sweep(lo, hi, self.ranks.base, choice, Y, E, self.discount, tau, shift, *found), *found

        pieces = self.over(work)
        for s, options in draws:
            value = sum(p * self.once(s, a) for a, p in options)
            change = value - Y[:, s]
            Y[:, s] += tau * change - shift
            pieces.append((-1 if np.isfinite(value).all() else s, change, change, np.abs(Y[:, s])))
        self._finite(x[0] for x in pieces)
        self.done += 1
        _, low, high, size = (list(x) for x in zip(*pieces, strict=True))
        top = self.ranks.largest(np.concatenate((-np.min(low, axis=0), *np.max([high, size], axis=1))))
        return -top[: self.K], top[self.K : 2 * self.K], top[2 * self.K :]

    def once(self, s: int, a: int) -> FloatArray:
        """What action a in state s gave in the last sweep, [K]; on one rank only."""
        out = np.empty(self.K)
        self.kernels.once(s, a, self.E, self.discount, 0, out)
        return out

    def _finite(self, bad: Any) -> None:
        s = self.ranks.largest(np.array([float(max(bad))]))[0]
        if s >= 0:
            x = self.model.named(self.model.state(int(s)))
            raise CmdpkitError(f"values are not finite in state {x}; scale the signals down")

    def rounding(self, weights: FloatArray, size: FloatArray) -> FloatArray:
        """Largest error of a computed T h, for every row of weights [J, K], if |Y| is at most size [K].

        The statement and its derivation are in docs/theory/large.md.
        """
        model, facts = self.model, self.facts
        w = [part.to.shape[1] for part in model.noise]
        operations = 2 * (sum(w) + len(w)) + (self.K - 1) * w[0] if w else 2 * model.events + self.K
        operations += 3 * self.K + 10 + len(self.starts)
        rate = operations * ROUNDOFF / (1 - operations * ROUNDOFF) + facts.row_error
        return np.asarray(np.abs(weights) @ (2 * size + facts.size)) * rate


Draws = Any  # of a step: pairs of a state and its (action, probability) pairs


def wrong(model: FunctionModel, problem: tuple[int, int, int, int]) -> CmdpkitError:
    """The error for a state that is not as it must be."""
    code, s, a, e = problem
    form = model.form
    x, name = form.decode(s), quoted(model.action_names[a])
    place = f"state {model.named(x)}" + ("" if code == NO_ACTION else f", action {name} (index {a})")
    told = PROBLEMS[code]
    if model.events and code in (OUTSIDE, NO_PROBABILITY):
        then, p = form.step(x, a, e)
        place += f", event {e}"
        told += f": step returns {then}, {p:g}"
    elif code == OUTSIDE:
        told += f": move returns {form.step(x, a)}"
    elif code == NO_SUM:
        told += f": they sum to {sum(form.step(x, a, i)[1] for i in range(model.events)):.12g}"
    elif code == NOT_FINITE:
        told += f": collect returns {form.collect(x, a)}"
        told += f", after {form.after(form.step(x, a))}" if model.noise else ""
    sizes = f"; the space is {model.space}" if code == OUTSIDE else ""
    return CmdpkitError(f"{place} {told}{sizes}")
