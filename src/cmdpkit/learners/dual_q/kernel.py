"""The compiled part of Dual-Q: tables and constants, and what is done with them in an episode and in a frame."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners._exploration import random_action
from cmdpkit.model.compiled import ONE, ZERO, compiled, inlined
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.meter import collect, watch
from cmdpkit.simulate.random import uniform
from cmdpkit.simulate.simulator import reset, step

EPISODES, CHANGED = 0, 1  # clock: episodes played; policy changed since it was watched


class Constants(NamedTuple):
    """What the kernels need of spec and parameters. The length of `fresh`, 1 + N, is known when compiling."""

    H: Any  # uint64
    S: Any
    A: Any
    fresh: tuple[float, ...]  # [1+N], zeros
    usable: NDArray[np.bool_]  # [H*S, A]
    rho: FloatArray  # [N]
    half: float  # episodes after which prices are averaged
    frame: int
    eta: float
    lam_max: float
    explore: float
    explore_for: float


class Tables(NamedTuple):
    """What one run has learned; the kernels update it. Step H is a row of zeros, so the last step needs no case."""

    cells: FloatArray  # [(H+1)*S*A, N+2]: Q, C_1..C_N, visits
    best: NDArray[np.uint64]  # [(H+1)*S]: action of the largest weighted value
    weight: FloatArray  # [1+N]: 1, lam
    drive: FloatArray  # [N]: shortfall, summed over the frame
    lam_sum: FloatArray  # [1+N]: how many prices of the second half of the run were added up, and their sums
    totals: FloatArray  # [1+N], of the running episode
    explore: FloatArray  # [1]: probability of a random action
    clock: NDArray[np.int64]  # [2], see EPISODES, CHANGED
    usage: FloatArray  # [2, H*S*A]: greedy choices before and since the number of episodes last doubled


@compiled
def play(sim, meter, tables, c, rng, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """As many episodes as `out` [1+N, n] has columns."""
    for k in range(out.shape[1]):
        watch(meter, tables.clock[CHANGED], tables.best, tables.explore[0], c.usable)
        tables.clock[CHANGED] = 0
        s = reset(sim, rng)
        for h in range(c.H):
            a = choose(tables, c, h, s, rng)
            s_next, x = step(sim, h, s, a, rng)
            _update(tables, c, h, s, a, sim.outcomes, x, s_next)
            s = s_next
        for n in range(len(c.fresh)):
            out[n, k] = tables.totals[n]
        collect(meter, tables.totals)
        end_episode(tables, c)


@compiled
def choose(tables, c, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The action to take at step h in state s: the best one at the present prices, or a random one."""
    i = np.uint64(h) * c.S + np.uint64(s)
    if tables.explore[0] > 0.0 and uniform(rng) < tables.explore[0]:
        return random_action(c.usable, i, rng)
    tables.usage[1, i * c.A + tables.best[i]] += 1.0
    return tables.best[i]


@inlined
def _update(tables, c, h, s, a, outcomes, x, s_next):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Learn from outcomes[x], received at (h, s, a) on the way to s_next, where the best action is assumed."""
    i = np.uint64(h) * c.S + np.uint64(s)
    i_next = (np.uint64(h) + ONE) * c.S + np.uint64(s_next)
    j, j_next = i * c.A + np.uint64(a), i_next * c.A + tables.best[i_next]
    t = tables.cells[j, len(c.fresh)] + 1.0
    tables.cells[j, len(c.fresh)] = t
    rate = (c.H + 1.0) / (c.H + t)
    for n in range(len(c.fresh)):
        tables.cells[j, n] += rate * (outcomes[x, n] + tables.cells[j_next, n] - tables.cells[j, n])
        tables.totals[n] += outcomes[x, n]
    _search(tables, c, i)


@compiled
def learn(tables, c, h, s, a, signals, s_next):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Learn from one step that somebody else has made."""
    _update(tables, c, h, s, a, signals.reshape((1, len(c.fresh))), 0, s_next)


@compiled
def end_episode(tables, c):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Book the episode's totals; at the end of a frame, move the prices and fade the exploration."""
    for n in range(len(tables.drive)):
        tables.drive[n] += c.rho[n] - tables.totals[n + 1]
    for n in range(len(c.fresh)):
        tables.totals[n] = 0.0
    tables.clock[EPISODES] += 1
    k = tables.clock[EPISODES]
    if k & (k - 1) == 0:
        for j in range(tables.usage.shape[1]):
            tables.usage[0, j] = tables.usage[1, j]
            tables.usage[1, j] = 0.0
    if k % c.frame == 0:
        _end_frame(tables, c, k)


@inlined
def _end_frame(tables, c, k):  # type: ignore[no-untyped-def]  # pragma: no cover
    """A step of the prices; then all best actions are found anew."""
    for n in range(len(tables.drive)):
        lam = tables.weight[n + 1] + c.eta * tables.drive[n]
        tables.weight[n + 1] = min(max(lam, 0.0), c.lam_max)
        tables.drive[n] = 0.0
    if k >= c.half:
        tables.lam_sum[0] += 1.0
        for n in range(len(tables.drive)):
            tables.lam_sum[n + 1] += tables.weight[n + 1]
    tables.explore[0] = c.explore * min(1.0, np.sqrt(c.explore_for / k))
    tables.clock[CHANGED] = 1
    scan(tables, c)


@compiled
def scan(tables, c):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Find the best action everywhere."""
    for i in range(c.H * c.S):
        _search(tables, c, i)


@inlined
def _search(tables, c, i):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Find the best action of row i = h*S + s; ties go to the lower action, and optimism resolves them by trying."""
    best, top = ZERO, -np.inf
    for a in range(c.A):
        value = 0.0
        for n in range(len(c.fresh)):
            value += tables.weight[n] * tables.cells[i * c.A + a, n]
        if value > top:
            best, top = np.uint64(a), value
    if tables.best[i] != best:
        tables.best[i] = best
        tables.clock[CHANGED] = 1
