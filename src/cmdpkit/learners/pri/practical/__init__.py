"""Practical PRI: constrained policy iteration on data, in a closed loop, with a certificate at the end.

Pruning, refinement and identification of arXiv 2309.15395 (see `pri.paper`) rest on fixed votes and an open loop. This
is what we recommend instead; the argument is in docs/theory/pri.md. Memory grows with H*S*A, no transition is ever
counted.

1. Warm-up: a short run of Dual-Q gives a first policy and first prices.
2. Improvement: epochs of growing length play the policy with deviations to actions still in question (`play`).
   After each, an LP over measured effects finds the next policy and prices (`master`), and tests with an error
   budget rule actions out (`improve`). The stochastic decisions are steered, block by block, so that what was
   realised stays just above the bounds: inside the right support, regret is then bounded too.
3. Settling: no more deviations, no newcomers; the loop goes on.
4. Certification: the policy to hand over is fixed. Every other block plays it, unchanged, for the certificate; the
   blocks between go on steering.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Returns, Source, Spec, State, dual_q
from cmdpkit.learners._certificate import Intervals, simultaneous
from cmdpkit.learners._state import copies, put_back
from cmdpkit.learners.pri.practical import book as at
from cmdpkit.learners.pri.practical.book import Task, new_book, new_tables, new_tape
from cmdpkit.learners.pri.practical.explain import account, warnings_of
from cmdpkit.learners.pri.practical.improve import begin_epoch, improve
from cmdpkit.learners.pri.practical.moments import covariance, means
from cmdpkit.learners.pri.practical.plan import error_quantile, params, timetable
from cmdpkit.learners.pri.practical.play import Plan, act, episodes, finish
from cmdpkit.learners.pri.practical.steer import steered
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

WORTH = 20.0  # noise over loss counts at most this much
MOST = 0.5  # deviations per episode


class PracticalPRI:
    """The learner behind preset "practical" of `cmdpkit.learners.pri`."""

    def __init__(self, spec: Spec, **changes: Any) -> None:
        p = params(changes)
        table = timetable(spec, p)
        tests = int(spec.allowed.sum()) * len(table.ends)
        z_safe = error_quantile(p.delta / 8, spec.N)
        self.spec, self.params = spec, p
        self.task = Task(spec, p, table, error_quantile(p.delta, tests), z_safe)
        self.warm = dual_q.Learner(Spec(spec.H, spec.S, spec.A, table.warm, spec.rho, spec.allowed))
        self.book, self.tables, self.tape = new_book(spec, table), new_tables(spec), new_tape(spec)
        self.notes = _notes(spec, table.warm, int(spec.allowed.sum()))
        self._step = 0
        self._plan: Plan | None = None  # of the running block, made when needed

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops, block by block."""
        out = np.empty((1 + self.spec.N, n))
        done = 0
        while done < n:
            m = min(n - done, self._left())
            if self.warming:
                part = out[:, done : done + m]
                part[0], part[1:] = self.warm.run(source, rng, m)
                for column in part.T:
                    self.tables.totals[...] += column
            else:
                sim, meter, new = source.simulator, source.meter, bool(self.book.clock[at.NEW])
                episodes(sim, meter, self._block(), self.tables, self.tape, rng, new, out, done, m)
                self.book.clock[at.NEW] = 0
            self._count(m)
            done += m
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._step = 0
        if self.warming:
            return self.warm.first(s, rng)
        return int(act(self._block(), self.tape, 0, s, rng))

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self.tape.signals[self._step] = signals
        self._step += 1
        if self.warming:
            return self.warm.next(signals, s, rng)
        return int(act(self._block(), self.tape, self._step, s, rng))

    def last(self, signals: FloatArray) -> None:
        """Note the last step's reward and utilities [1+N], and learn from the episode."""
        self.tape.signals[self._step] = signals
        if self.warming:
            self.warm.last(signals)
            total = np.zeros(1 + self.spec.N)
            for earned in self.tape.signals:  # the order in which the compiled loop adds
                total += earned
            self.tables.totals[...] += total
        else:
            finish(self._block(), self.tables, self.tape)
        self._count(1)

    @property
    def warming(self) -> bool:
        """Whether the warm-up is still on."""
        return int(self.book.clock[at.EPISODE]) < self.task.table.warm

    def _left(self) -> int:
        return int(self.book.clock[at.BLOCK_END] - self.book.clock[at.EPISODE])

    def _count(self, m: int) -> None:
        """m episodes were played; at the end of a block, see what comes next."""
        book, table = self.book, self.task.table
        book.clock[at.EPISODE] += m
        if self._left():
            return
        k = int(book.clock[at.EPISODE])
        if k == table.warm:
            self._end_warm_up()
        else:
            book.played[...] += (self.tables.start[0] - book.scales[at.COUNTED]) * book.playing
        if k <= table.hand and k in table.ends:
            improve(self.task, book, self.tables)
            book.clock[at.EPOCH] += 1
            begin_epoch(self.task, book, self.tables)
        if k == table.hand:
            book.final[...] = book.pi
        self._begin_block(k)

    def _end_warm_up(self) -> None:
        """The first policy and prices."""
        book = self.book
        book.lam[...] = self.warm.mean_multipliers
        book.base[...] = self.warm.greedy_at(book.lam)
        book.pi[...] = np.eye(self.spec.A)[book.base]
        book.core[...] = book.pi > 0
        book.explore[...] = self.spec.allowed & ~book.core
        begin_epoch(self.task, book, self.tables)

    def _begin_block(self, k: int) -> None:
        book, table = self.book, self.task.table
        size = table.block(k)
        if k < table.hand:
            size = min(size, table.ends[book.clock[at.EPOCH]] - k)
        book.clock[at.BLOCK_END] = k + size
        book.scales[at.COUNTED] = self.tables.start[0]
        book.clock[at.NEW] = 1
        book.clock[at.CERTIFY] = k >= table.hand and not book.clock[at.CERTIFY]
        book.scales[at.COIN] = self._coin(k)
        book.playing[...] = book.final if book.clock[at.CERTIFY] else steered(self.task, book, self.tables, k)
        self._plan = None

    def _coin(self, k: int) -> float:
        """Chance of a deviation per step: more while losses are small beside the noise, less and less in time."""
        book = self.book
        if k >= self.task.table.freeze or not book.explore.any():
            return 0.0
        worth = min(max(book.scales[at.SIGMA] / max(book.scales[at.LOSS], 1e-9), 1.0), WORTH)
        per_episode = self.params.explore * worth * np.sqrt(self.spec.allowed.sum() / k)
        return float(min(MOST, per_episode) / self.spec.H)

    def _block(self) -> Plan:
        """What the running block plays, in the kernels' form."""
        if self._plan is not None:
            return self._plan
        spec, book = self.spec, self.book
        H, S, A, n = spec.H, spec.S, spec.A, spec.H * spec.S
        options = book.explore.reshape(n, A)
        choices, coin = options.sum(axis=-1), float(book.scales[at.COIN])
        pi = book.playing.reshape(n, A)
        cdf = np.cumsum(pi, axis=-1)
        deviating = np.where(choices[:, None] > 0, options / np.maximum(choices, 1)[:, None], pi)
        self._plan = Plan(
            H=np.uint64(H),
            S=np.uint64(S),
            A=np.uint64(A),
            zero=(1 + spec.N) * (0.0,),
            coin=coin,
            learn=int(book.clock[at.EPISODE]) < self.task.table.hand,
            certify=bool(book.clock[at.CERTIFY]),
            pi=(1 - coin) * pi + coin * deviating,
            cdf=cdf / cdf[:, -1:],
            sure=np.where(pi.max(axis=-1) == 1.0, pi.argmax(axis=-1), A).astype(np.uint64),
            options=np.argsort(~options, axis=-1, kind="stable").astype(np.uint64),
            choices=choices,
            ahead=book.ahead,
            known=book.known,
        )
        return self._plan

    # -- what it has to say --------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, deviations included."""
        spec = self.spec
        return self.warm.behaviour() if self.warming else self._block().pi.reshape(spec.H, spec.S, spec.A)

    def recommend(self) -> FloatArray:
        """pi [H, S, A]: the policy fixed for certification; before that, the policy of the epoch."""
        if self.warming:
            return self.warm.recommend()
        return (self.book.final if self.certifying else self.book.pi).copy()

    @property
    def certifying(self) -> bool:
        """Whether the policy to hand over is fixed."""
        return int(self.book.clock[at.EPISODE]) >= self.task.table.hand

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.warm.multipliers if self.warming else self.book.lam.copy()

    def certificate(self) -> Intervals | None:
        """Simultaneous intervals for value and utilities of `recommend()`, in unit scale; None before there are any."""
        sample, M = self.tables.sample, 1 + self.spec.N
        n = int(sample[0])
        if n < 2:
            return None
        variances = np.diag(covariance(sample, M)) * n / (n - 1)
        return simultaneous(n, means(sample, M), variances, float(self.spec.H), self.params.delta)

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        return self.task.table.phases()

    def warnings(self) -> tuple[str, ...]:
        """Bounds that look out of reach, and what the data did not settle."""
        return () if self.warming else warnings_of(self.task, self.book)

    def explain(self) -> dict[str, Any]:
        """The run's account as plain values; see `explain`."""
        return account(self.task, self.book, self.tables)

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change, between two episodes."""
        return copies(self._arrays())

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        put_back(self._arrays(), state)
        self._plan = None

    def _arrays(self) -> dict[str, NDArray[Any]]:
        parts = {"": self.book._asdict(), "moments.": self.tables._asdict(), "warm_up.": self.warm.tables._asdict()}
        return {f"{prefix}{name}": array for prefix, part in parts.items() for name, array in part.items()}


def _notes(spec: Spec, warm: int, pairs: int) -> tuple[str, ...]:
    if warm >= pairs:
        return ()
    return (
        f"K = {spec.K:,} is short for {pairs:,} (step, state, action) cells: the warm-up of {warm:,} episodes does not "
        "reach them all, and the policy may be far from the best",
    )
