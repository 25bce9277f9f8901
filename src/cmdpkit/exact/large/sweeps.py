"""Sweeps over all states of a model by functions: all that a solver needs, compiled for the user's functions.

Tables Y [K, states] hold a value for each of the K = 1 + N signals, in the user's units and sense. With weights in the
same units, h = weights . Y is a value function, and a sweep computes T h or T Y. Both forms of models are alike here: a
decision has outcomes step(x, a, e) -> (y, p), of which a factored model has one, and what follows them is a table

    E[y] = after(y) + discount E[Y | y] ,   so that an action is worth   collect(x, a) + sum_e p_e E[y_e] .

The expectation takes one coordinate after the other: sum(w_i) operations per state in place of prod(w_i) per state and
action; the coordinates of a model of events do not move by themselves. Nothing is added up across states, so threads
and ranks do not change a bit.

The operators of `cmdpkit.operators` take one row of transitions at a time. A kernel of this module takes up to `BLOCK`
states together, which differ in their last coordinate only. Its loops are over these states, one action and one event
at a time: whatever the user's functions compute of the action and the other coordinates is then computed once, and the
rest on several states at once by the processor.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.large.storage import Ranks
from cmdpkit.model.compiled import compiled, njit
from cmdpkit.model.functions import LOOSE, Form, FunctionModel, Part
from cmdpkit.model.tolerances import ROUNDOFF, ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.user_functions import LARGEST, wrong_in
from cmdpkit.operators.steps import CHUNK_WORK, Steps, Threads

PIECES = 64  # of a sweep, which threads take one after the other
BLOCK = 256  # states that a kernel takes together
Choice = NDArray[Any]  # [stored states], an action per state; the number A stands for a draw
Draw = tuple[tuple[int, float], ...]  # actions and their probabilities


class Kernels(NamedTuple):
    """The compiled sweeps of a form."""

    improve: Any
    sweep: Any
    expect: Any  # the table of what follows a decision
    carry: Any  # the visits to all states without a draw, one decision on


class Inspection(NamedTuple):
    """What one inspection of all states finds."""

    lowest: FloatArray  # [K], the smallest signal of any state and action
    highest: FloatArray  # [K], the largest one
    size: FloatArray  # [K], the largest |collect| + |after|
    row_error: float  # how far probabilities of a row miss 1 at most


@lru_cache(maxsize=8)
def kernels_of(form: Form) -> Kernels:
    """Compile the sweeps of a form."""
    step, collect, after, allowed, decode, encode, _, space, A, events, K = form
    inner, last, d = math.prod(space[1:]), space[-1], len(space)
    sizes, strides = np.array(space), np.array([math.prod(space[i + 1 :]) for i in range(d)])

    @njit(**LOOSE)
    def collected(first, n, a, choice, weights, out):
        """out[j] = weights . collect of action a, or of choice[j] if a is A, in the n states from `first` on."""
        for j in range(n):
            b = choice[j] if a == A else a
            x, value = first[:-1] + (first[-1] + j,), -np.inf  # noqa: RUF005  # Numba knows no unpacking here
            if b < A and (a == A or allowed(x, b)):
                own, value = collect(x, b), 0.0
                for k in range(K):
                    value += weights[k] * own[k]
            out[j] = value

    @njit(**LOOSE)
    def lead(first, n, a, choice, e, off, to, p):
        """Where event e leads from these states, and its probability; as before where there is no such action."""
        for j in range(n):
            b = choice[j] if a == A else a
            x = first[:-1] + (first[-1] + j,)  # noqa: RUF005
            if b < A and (a == A or allowed(x, b)):
                then, p[j] = step(x, b, e)
                to[j] = encode(then) - off

    @njit(**LOOSE)
    def improve(lo, hi, base, weights, tie, choice, Y, E):
        """Let every state of planes lo .. hi - 1 take its best action; the largest T h - h, and how many changed.

        A state keeps its action unless another is better by more than `tie`.
        """
        to, now, p = np.zeros(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.zeros(BLOCK)
        room = np.empty(5 * BLOCK)  # one array for all, so that the compiler knows that its parts do not overlap
        value, best, kept, top = room[:BLOCK], 1 * BLOCK, 2 * BLOCK, 3 * BLOCK
        high, moved, off, s = -np.inf, 0, base * inner, lo * inner
        while s < hi * inner:
            first, i = decode(s), s - off
            n = min(BLOCK, hi * inner - s, last - first[-1])
            for j in range(n):
                now[j] = choice[i + j]
                room[best + j] = room[kept + j] = -np.inf
                room[4 * BLOCK + j] = now[j]
            for a in range(A):
                collected(first, n, a, now, weights, value)
                for e in range(events):
                    lead(first, n, a, now, e, off, to, p)
                    follow(n, to, p, E[0], value)
                choose(n, float(a), room)
            for j in range(n):
                h = 0.0
                for k in range(K):
                    h += weights[k] * Y[k, i + j]
                high = max(high, room[best + j] - h)
                better = room[best + j] > room[kept + j] + tie
                moved += better
                choice[i + j] = np.int64(room[top + j]) if better else now[j]
            s += n
        return high, moved

    @njit(**LOOSE)
    def sweep(lo, hi, base, choice, Y, E, tau, shift, low, high, size):
        """Y <- Y + tau (T Y - Y) - shift for a choice; range of T Y - Y and largest |Y|, [K]. Draws are left out."""
        to, now, p = np.zeros(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.zeros(BLOCK)
        room, one, off, s = np.empty((K, BLOCK)), np.eye(K), base * inner, lo * inner
        while s < hi * inner:
            first, i = decode(s), s - off
            n = min(BLOCK, hi * inner - s, last - first[-1])
            for j in range(n):
                now[j] = choice[i + j]
            for k in range(K):
                collected(first, n, A, now, one[k], room[k])
            for e in range(events):
                lead(first, n, A, now, e, off, to, p)
                for k in range(K):
                    follow(n, to, p, E[k], room[k])
            for k in range(K):
                for j in range(n):
                    if now[j] < A:
                        value, before = room[k, j], Y[k, i + j]
                        low[k], high[k] = min(low[k], value - before), max(high[k], value - before)
                        value = (value if tau == 1.0 else before + tau * (value - before)) - shift[k]
                        Y[k, i + j], size[k] = value, max(size[k], abs(value))
            s += n

    @njit(**LOOSE)
    def carry(d, choice, out):
        for s in range(len(d)):
            if d[s] != 0.0 and choice[s] != A:
                for e in range(events):
                    then, p = step(decode(s), np.int64(choice[s]), e)
                    out[encode(then)] += p * d[s]

    @njit(**LOOSE)
    def expect(lo, hi, base, weights, discount, to, p, Y, E):
        """E[j, y] = weights[j] . (after(y) + discount E[Y | y]), one coordinate after the other."""
        room, other, row = np.empty(inner), np.empty(inner), min(inner, last)
        for plane in range(lo, hi):
            begin = (plane - base) * inner
            for j in range(len(weights)):
                room[:] = 0.0
                for w in range(len(to[0])):
                    at = (to[0][w, plane] - base) * inner
                    for k in range(K):
                        if weights[j, k] != 0.0 and p[0][w, plane] != 0.0:
                            add(p[0][w, plane] * weights[j, k], Y[k, at : at + inner], room)
                for i in range(1, len(to)):
                    along(to[i], p[i], sizes[i], strides[i], room, other)
                    room, other = other, room
                for c in range(0, inner, row):
                    first = decode(plane * inner + c)
                    for n in range(row):
                        own, value = after(first[:-1] + (first[-1] + n,)), discount * room[c + n]  # noqa: RUF005
                        for k in range(K):
                            value += weights[j, k] * own[k]
                        E[j, begin + c + n] = value

    return Kernels(improve, sweep, expect, carry)


@lru_cache(maxsize=8)
def inspector_of(form: Form) -> Any:
    """Compile the inspection of all states by functions in a form."""
    step, collect, after, allowed, decode, _, inside, _, A, events, K = form

    @njit(**LOOSE)
    def inspect(lo, hi, at, lowest, highest, size, reads, row_error):
        """Check states lo .. hi - 1: the first that is wrong, or -1; fills in the rest; at[0] is where it is."""
        for s in range(lo, hi):
            x, known, at[0] = decode(s), False, s
            for a in range(A):
                if not allowed(x, a):
                    continue
                known, own, total = True, collect(x, a), 0.0
                for e in range(events):
                    then, p = step(x, a, e)
                    if not (p >= 0.0 and inside(then)):
                        return s
                    more, total, reads[then[0]] = after(then), total + p, True
                row_error[0] = max(row_error[0], abs(total - 1.0))
                for k in range(K):
                    both = own[k] + more[k]
                    if not (abs(both) <= LARGEST and abs(total - 1.0) <= ROW_SUM_TOLERANCE):
                        return s
                    lowest[k], highest[k] = min(lowest[k], both), max(highest[k], both)
                    size[k] = max(size[k], abs(own[k]) + abs(more[k]))
            if not known:
                return s
        return -1

    return inspect


def inspected(model: FunctionModel, states: Iterable[tuple[int, int]]) -> tuple[int, Inspection, BoolArray]:
    """Check states lo .. hi - 1 for each pair: the first wrong one or -1, what is found, and which planes are read."""
    K, inspect, at = model.K, inspector_of(model.form(boundscheck=True)), np.zeros(1, dtype=np.int64)
    found = np.full(K, np.inf), np.full(K, -np.inf), np.zeros(K)
    reads, row_error, wrong = np.zeros(model.space[0], dtype=bool), np.zeros(1), -1
    for lo, hi in states:
        try:
            wrong = int(inspect(lo, hi, at, *found, reads, row_error))
        except Exception:  # of the user's functions; what they do as plain Python tells more
            wrong = int(at[0])
        if wrong >= 0:
            break
    return wrong, Inspection(*found, float(row_error[0])), reads


@compiled(inline=True)
def follow(n, to, p, table, out):
    """Add to every out[j] what follows one event."""
    for j in range(n):
        out[j] += p[j] * table[np.uint64(to[j])]


@compiled(inline=True)
def choose(n, a, room):
    """Take action a where its value, in the first block of `room`, is larger than the best so far, in the second."""
    best, kept, top, now = BLOCK, 2 * BLOCK, 3 * BLOCK, 4 * BLOCK
    for j in range(n):
        value, before = room[j], room[best + j]
        room[kept + j] = value if room[now + j] == a else room[kept + j]
        room[top + j] = a if value > before else room[top + j]
        room[best + j] = value if value > before else before


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


class Sweeps:
    """The sweeps of a model on threads, and on ranks if there are several; counts them in ``done``."""

    def __init__(self, model: FunctionModel, threads: Threads = None, comm: Any = None) -> None:
        self.model, self.kernels, self.ranks = model, kernels_of(model.form()), Ranks(comm, model.space)
        self._refuse_too_large()
        self.pieces = Steps(1, self.ranks.hi - self.ranks.lo, PIECES * CHUNK_WORK, threads)
        parts = model.noise or (Part(np.arange(model.space[0])[:, None], np.ones(1)),)
        to, p = [part.to for part in parts], [part.p for part in parts]
        self.noise = tuple(tuple(np.ascontiguousarray(x.T) for x in both) for both in (to, p))
        self.starts = np.array([model.state_index(x) for x in model.start])
        self.facts = self._inspected()
        self.E, self.done = self.table(model.K), 0

    def _refuse_too_large(self) -> None:
        """Raise CmdpkitError if the tables of a solve cannot be held in the memory of this machine."""
        needed = (16 * self.model.K + 2) * self.model.S / self.ranks.size
        if hasattr(os, "sysconf"):  # Windows has none, and says so when it has no memory left
            there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            if needed > there:
                raise CmdpkitError(
                    f"{self.model!r} needs {needed / 1e9:,.0f} GB for its tables, and this machine has "
                    f"{there / 1e9:,.0f}; merge states, or share them among several machines (cmdpkit[mpi])"
                )

    def table(self, *rows: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Zeros for all states that are stored here."""
        return np.zeros((*rows, self.ranks.stored.stop - self.ranks.stored.start), dtype)

    def choices(self) -> Choice:
        """Room for an action of each state that is stored here."""
        return self.table(dtype=np.uint8 if self.model.A < 255 else np.uint16)

    def over(self, work: Callable[[int, int], Any]) -> list[Any]:
        """Call work(first plane, last plane + 1) for pieces of the owned planes, on all threads, in any order."""
        found: list[Any] = []
        first = self.ranks.lo
        self.pieces.backward(lambda _, __, low, high: found.append(work(first + low, first + high)))
        return found

    def owned(self, s: Any) -> tuple[Any, Any]:
        """Which of these states are owned here, and where they are stored."""
        r = self.ranks
        return (r.lo * r.inner <= s) & (s < r.hi * r.inner), s - r.base * r.inner

    def at_start(self, Y: FloatArray) -> FloatArray:
        """The expectation of tables [K, stored] over the start, [K]."""
        mine, place = self.owned(self.starts)
        values = np.full((len(Y), len(place)), -np.inf)
        values[:, mine] = Y[:, place[mine]]
        return np.asarray(self.ranks.largest(values) @ np.array(list(self.model.start.values())))

    def _inspected(self) -> Inspection:
        """Check all states once, and connect the ranks."""
        model, r = self.model, self.ranks
        K, pieces = model.K, self.over(lambda lo, hi: inspected(model, [(lo * r.inner, hi * r.inner)]))
        wrong = [s for s, *_ in pieces if s >= 0]
        several = r.total(len(wrong))
        if wrong:
            raise wrong_in(model, min(wrong))
        if several:
            raise CmdpkitError("the states of another rank are wrong; its error says which")
        top = r.largest(
            np.max([np.concatenate((-x.lowest, x.highest, x.size, [x.row_error])) for _, x, _ in pieces], 0)
        )
        before = np.zeros(model.space[0], dtype=bool)
        before[self.noise[0][0][:, r.lo : r.hi]] = True
        r.connect(before, np.any([reads for *_, reads in pieces], axis=0))
        return Inspection(-top[:K], top[K : 2 * K], top[2 * K : 3 * K], float(top[-1]))

    def _prepare(self, weights: FloatArray, Y: FloatArray) -> FloatArray:
        """The tables E of what follows a decision, for the rows of weights [J, K]."""
        E, r, discount = self.E[: len(weights)], self.ranks, self.model.criterion.discount or 1.0
        r.exchange(0, Y)
        self.over(lambda lo, hi: self.kernels.expect(lo, hi, r.base, weights, discount, *self.noise, Y, E))
        r.exchange(1, E)
        return E

    def improve(self, Y: FloatArray, weights: FloatArray, tie: float, choice: Choice) -> tuple[float, int]:
        """Let every state take its best action for h = weights . Y; the largest T h - h, and how many changed."""
        given = (self.ranks.base, weights, tie, choice, Y, self._prepare(weights[None], Y))
        high, moved = zip(*self.over(lambda lo, hi: self.kernels.improve(lo, hi, *given)), strict=True)
        self.done += 1
        return float(self.ranks.largest(np.array([max(high)]))[0]), self.ranks.total(sum(moved))

    def sweep(
        self, Y: FloatArray, choice: Choice, tau: float, shift: FloatArray, draws: Sequence[tuple[int, Draw]] = ()
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Y <- T Y for all signals; the range of T Y - Y and the largest |Y|, [K] each; tau and shift as in kernels."""
        K = self.model.K
        E = self._prepare(np.eye(K), Y)

        def work(lo: int, hi: int) -> tuple[Any, ...]:
            found = np.full(K, np.inf), np.full(K, -np.inf), np.zeros(K)
            self.kernels.sweep(lo, hi, self.ranks.base, choice, Y, E, tau, shift, *found)
            return found

        pieces = self.over(work)
        for s, options in draws:
            mine, i = self.owned(s)
            if mine:
                change = sum(p * self.once(s, a) for a, p in options) - Y[:, i]
                Y[:, i] += tau * change - shift
                pieces.append((change, change, np.abs(Y[:, i])))
        self.done += 1
        low, high, size = (list(x) for x in zip(*pieces, strict=True))
        top = self.ranks.largest(np.concatenate((-np.min(low, axis=0), *np.max([high, size], axis=1))))
        return -top[:K], top[K : 2 * K], top[2 * K :]

    def leads(self, s: int, a: int) -> list[tuple[int, float]]:
        """The states where action a leads at once, and their probabilities."""
        form, x = self.model.form(), self.model.state(s)
        return [(form.encode(then), p) for then, p in (form.step(x, a, e) for e in range(form.events))]

    def once(self, s: int, a: int) -> FloatArray:
        """What action a in a state that is owned here gave in the last sweep, [K]."""
        found: FloatArray = np.array(self.model.form().collect(self.model.state(s), a))
        for then, p in self.leads(s, a):
            found += p * self.E[:, then - self.ranks.stored.start]
        return found

    def rounding(self, weights: FloatArray, size: FloatArray) -> FloatArray:
        """Largest error of a computed T h, for every row of weights [J, K], if |Y| is at most size [K].

        The statement and its derivation are in docs/theory/large.md.
        """
        model, facts = self.model, self.facts
        w = [part.to.shape[1] for part in model.noise]
        operations = 2 * (sum(w) + len(w)) + (model.K - 1) * w[0] if w else 2 * model.events + model.K
        operations += 3 * model.K + 10 + len(self.starts)
        rate = operations * ROUNDOFF / (1 - operations * ROUNDOFF) + facts.row_error
        return np.asarray(np.abs(weights) @ (2 * size + facts.size)) * rate
