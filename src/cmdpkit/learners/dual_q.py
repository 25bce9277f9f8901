"""Dual-Q: optimistic Q-learning of reward and utilities, with prices that follow the realised utilities.

The plainest model-free learner for constrained problems. Q-learning keeps action values of the reward and of every
utility; actions maximise Q + sum_n lam_n C_n, and the prices move against what was realised,

    lam_n <- clip(lam_n + eta (rho_n - realised utility n), 0, lam_max).

PRI begins with a short run of it, and can use it as a base learner: all of it stays inside `Spec.allowed`. Optimism is
in the first values alone (H - h at step h), so a few random actions are mixed in; the price is a step behind, so the
violation it ends with is of order sqrt(K).

Guarantee: none. Needs: nothing beside K. Output: the greedy policy at the mean prices. Memory O(H S A (1 + N)).

Symbols: Q, C_n = columns of `Tables.cells`, t = its last column; the t-th visit moves a cell by (H + 1) / (H + t)
towards what was seen, as in optimistic Q-learning (Jin et al., arXiv 1807.03765). Prices change at the end of a frame,
by the sum over its episodes: a policy that stays for a few episodes is what makes exact regret cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.arguments import index_of
from cmdpkit.compiled import ONE, ZERO, compiled, inlined
from cmdpkit.kernel import FloatArray
from cmdpkit.learners import Returns, Source, Spec, State
from cmdpkit.meter import collect, watch
from cmdpkit.simulate import reset, step
from cmdpkit.stream import Stream, uniform

EPISODES, CHANGED = 0, 1  # clock: episodes played; policy changed since it was watched
PRESETS = ("practical",)


@dataclass(frozen=True)
class Params:
    """Numbers that do not change during a run, in unit scale."""

    frame: int  # episodes between two steps of the prices
    eta: float  # step of a price per episode and unit of shortfall
    lam_start: float
    lam_max: float
    explore: float  # probability of a random action at first
    explore_for: float  # episodes after which it fades like 1/sqrt(k)

    def __post_init__(self) -> None:
        for name in ("frame", "eta", "lam_max", "explore_for"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected more than 0")
        if self.frame != int(self.frame):
            raise ValueError(f"frame is {self.frame!r}, expected a whole number of episodes")
        if not 0 <= self.lam_start <= self.lam_max:
            raise ValueError(f"lam_start is {self.lam_start!r}, expected a number from 0 to lam_max = {self.lam_max}")
        if not 0 <= self.explore <= 1:
            raise ValueError(f"explore is {self.explore!r}, expected a probability")

    @classmethod
    def practical(cls, spec: Spec) -> Params:
        """One rule for all instances."""
        return cls(
            frame=math.ceil(spec.K ** (1 / 3)),
            eta=2 / (spec.H * math.sqrt(spec.K)),
            lam_start=1.0,
            lam_max=10.0,
            explore=0.1,
            explore_for=10.0 * int(spec.allowed.sum()),
        )


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


class Learner:
    """Dual-Q at work; keyword arguments other than the preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.stream import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = Learner(Spec.of(cmdp, K=20_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 20_000)
    >>> bool(abs(returns.utilities[:, 10_000:].mean() - 2.0) < 0.05)
    True
    """

    def __init__(self, spec: Spec, preset: str = "practical", **changes: Any) -> None:
        index_of("preset", PRESETS, preset)
        known = [field.name for field in fields(Params)]
        for name in changes:
            index_of("parameter", known, name)
        self.spec = spec
        self.params = replace(Params.practical(spec), **changes)
        self.notes: tuple[str, ...] = ()
        self.constants = _constants(spec, self.params)
        self.tables = _tables(spec, self.params)
        self._at = (0, 0, 0)  # step, state and action that await their outcome
        _scan(self.tables, self.constants)

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in the compiled loop."""
        out = np.empty((1 + self.spec.N, n))
        _episodes(source.simulator, source.meter, self.tables, self.constants, rng, out)
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        a = int(_choose(self.tables, self.constants, 0, s, rng))
        self._at = (0, s, a)
        return a

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to s: the action to take there."""
        h = self._at[0]
        _learn(self.tables, self.constants, *self._at, signals, s)
        a = int(_choose(self.tables, self.constants, h + 1, s, rng))
        self._at = (h + 1, s, a)
        return a

    def last(self, signals: FloatArray) -> None:
        """Learn from the last step's reward and utilities [1+N], and end the episode."""
        _learn(self.tables, self.constants, *self._at, signals, 0)
        _end_episode(self.tables, self.constants)

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays: greedy, mixed with random actions."""
        usable, explore = self.spec.allowed, self.tables.explore[0]
        mixed: FloatArray = (1 - explore) * self._greedy() + explore * (usable / usable.sum(axis=-1, keepdims=True))
        return mixed

    def recommend(self) -> FloatArray:
        """pi [H, S, A] that chooses as the greedy policies of the last half to three quarters of the run did."""
        used = self.usage()
        reached = used.sum(axis=-1, keepdims=True)
        return np.where(reached > 0, used / np.maximum(reached, 1.0), self._greedy())

    def usage(self) -> FloatArray:
        """How often each (h, s, a) was the greedy choice since the episodes last but one doubled, [H, S, A]."""
        spec = self.spec
        used: FloatArray = self.tables.usage.sum(axis=0)
        return used.reshape(spec.H, spec.S, spec.A)

    def greedy_at(self, lam: FloatArray) -> NDArray[np.int64]:
        """Best action [H, S] at prices lam [N], by the values learned."""
        spec = self.spec
        values = self.tables.cells.reshape(spec.H + 1, spec.S, spec.A, -1)[: spec.H, :, :, : 1 + spec.N]
        weighed = np.where(spec.allowed, values[..., 0] + values[..., 1:] @ lam, -np.inf)
        best: NDArray[np.int64] = weighed.argmax(axis=-1)
        return best

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.tables.weight[1:].copy()

    @property
    def mean_multipliers(self) -> FloatArray:
        """Average of the prices over the second half of the run; before that, the prices now."""
        n, sums = self.tables.lam_sum[0], self.tables.lam_sum[1:]
        return sums / n if n else self.multipliers

    def warnings(self) -> tuple[str, ...]:
        """Prices at their limit: bounds that look out of reach."""
        stuck = np.flatnonzero(self.multipliers >= self.params.lam_max)
        return tuple(
            f"the price of constraint {n + 1} is at its limit lam_max = {self.params.lam_max:g}: its bound may be "
            "impossible"
            for n in stuck
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change, between two episodes."""
        return {name: array.copy() for name, array in self.tables._asdict().items()}

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        for name, array in self.tables._asdict().items():
            if name not in state or state[name].shape != array.shape:
                shape = state[name].shape if name in state else "missing"
                raise ValueError(f"state[{name!r}] has shape {shape}, expected {array.shape}")
            array[...] = state[name]

    def _greedy(self) -> FloatArray:
        spec = self.spec
        best = self.tables.best[: spec.H * spec.S].reshape(spec.H, spec.S, 1)
        chosen: FloatArray = (best == np.arange(spec.A, dtype=np.uint64)).astype(float)
        return chosen


def _constants(spec: Spec, p: Params) -> Constants:
    word = np.uint64
    return Constants(
        H=word(spec.H),
        S=word(spec.S),
        A=word(spec.A),
        fresh=(1 + spec.N) * (0.0,),
        usable=np.array(spec.allowed).reshape(-1, spec.A),
        rho=spec.rho,
        half=spec.K / 2,
        frame=int(p.frame),
        eta=float(p.eta),
        lam_max=float(p.lam_max),
        explore=float(p.explore),
        explore_for=float(p.explore_for),
    )


def _tables(spec: Spec, p: Params) -> Tables:
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    cells = np.zeros((H + 1, S, A, N + 2))
    cells[:H, :, :, :-1] = np.arange(H, 0, -1.0)[:, None, None, None]
    cells[:H, :, :, 0][~spec.allowed] = -np.inf
    return Tables(
        cells=cells.reshape(-1, N + 2),
        best=np.zeros((H + 1) * S, dtype=np.uint64),
        weight=np.append(1.0, np.full(N, float(p.lam_start))),
        drive=np.zeros(N),
        lam_sum=np.zeros(1 + N),
        totals=np.zeros(1 + N),
        explore=np.array([float(p.explore)]),
        clock=np.array([0, 1]),
        usage=np.zeros((2, H * S * A)),
    )


@compiled
def _episodes(sim, meter, tables, c, rng, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """As many episodes as `out` [1+N, n] has columns."""
    for k in range(out.shape[1]):
        watch(meter, tables.clock[CHANGED], tables.best, tables.explore[0], c.usable)
        tables.clock[CHANGED] = 0
        s = reset(sim, rng)
        for h in range(c.H):
            a = _choose(tables, c, h, s, rng)
            s_next, x = step(sim, h, s, a, rng)
            _update(tables, c, h, s, a, sim.outcomes, x, s_next)
            s = s_next
        for n in range(len(c.fresh)):
            out[n, k] = tables.totals[n]
        collect(meter, tables.totals)
        _end_episode(tables, c)


@compiled
def _choose(tables, c, h, s, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The action to take at step h in state s: the best one at the present prices, or a random one."""
    i = np.uint64(h) * c.S + np.uint64(s)
    if tables.explore[0] > 0.0 and uniform(rng) < tables.explore[0]:
        return _any(c, i, rng)
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
def _learn(tables, c, h, s, a, signals, s_next):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Learn from one step that somebody else has made."""
    _update(tables, c, h, s, a, signals.reshape((1, len(c.fresh))), 0, s_next)


@compiled
def _end_episode(tables, c):  # type: ignore[no-untyped-def]  # pragma: no cover
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
    _scan(tables, c)


@compiled
def _scan(tables, c):  # type: ignore[no-untyped-def]  # pragma: no cover
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


@inlined
def _any(c, i, rng):  # type: ignore[no-untyped-def]  # pragma: no cover
    """A usable action of row i, each equally likely."""
    left = 0
    for a in range(c.A):
        left += c.usable[i, a]
    draw = np.int64(uniform(rng) * left)
    for a in range(c.A):
        if c.usable[i, a]:
            if draw == 0:
                return np.uint64(a)
            draw -= 1
    return ZERO
