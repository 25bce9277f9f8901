"""MF-PRI: model-free closed-loop PRI, constrained policy iteration on sampled returns; our own.

It has the three aims of PRI (`cmdpkit.learners.pri`, arXiv 2309.15395): model-free, one policy, low regret. No
transition is ever counted: memory is O(H S A (1 + N)^2), and a problem takes tens of times as many episodes as with
`cl_pri`, whose closed loop, hand-over and certificate it shares. What is proved and what is not is in
docs/theory/cl-pri.md.

1. Warm-up: optimistic Q-learning finds a first policy and first prices (`warm_up`).
2. Improvement: epochs of growing length play the policy with deviations to actions still in question (`play`).
   After each, an LP over measured effects finds the next policy and prices (`master`), and tests with an error
   budget rule actions out (`improve`). The stochastic decisions are steered, block by block, so that what was
   realised stays just above the bounds: inside the right support, expected regret is then bounded too.
3. Settling: no more deviations, no newcomers; the loop goes on.
4. Certification: the policy to hand over is fixed. Every other block plays it, unchanged, for the certificate; the
   blocks between go on steering.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cmdpkit.estimate.intervals import Intervals, simultaneous
from cmdpkit.estimate.quantiles import error_quantile
from cmdpkit.learners import Learner, Returns, Source, Spec, State
from cmdpkit.learners.mf_pri.explain import account, warnings_of
from cmdpkit.learners.mf_pri.improve import begin_epoch, improve
from cmdpkit.learners.mf_pri.play import MfPriBlock, act, episodes, finish
from cmdpkit.learners.mf_pri.progress import MfPriTask, new_episode, new_progress, new_samples
from cmdpkit.learners.mf_pri.schedule import timetable
from cmdpkit.learners.mf_pri.settings import ModelFreeParams
from cmdpkit.learners.mf_pri.steer import steered
from cmdpkit.learners.mf_pri.warm_up import WarmUp
from cmdpkit.model.compiled import per_signal
from cmdpkit.model.policy import one_hot
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream


class ModelFreePRI(Learner):
    """MF-PRI at work; keyword arguments other than preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ModelFreePRI(Spec.of(cmdp, K=200_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 200_000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 10000)
    """

    title = "MF-PRI: our own, without counts; improves by sampled returns, steers to the bounds, one policy certified."
    guarantee = "the certificate of the policy handed over holds with probability 1 - delta; no proved rate of regret"
    paper = "our own, after arXiv 2309.15395"
    source = "ours"
    presets = {"practical": ModelFreeParams()}

    changing: ClassVar[tuple[str, ...]] = ("progress", "samples", "warm")
    params: ModelFreeParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p = self.params
        table = timetable(spec, p)
        pairs = int(spec.allowed.sum())
        self.task = MfPriTask(spec, p, table, error_quantile(p.delta, pairs * len(table.ends)))
        self.warm = WarmUp(spec, p, table.warm, table.cells)
        self.progress, self.samples = new_progress(spec, table), new_samples(spec, table)
        self.notes = _notes(spec, table.warm, pairs)
        self._episode_now, self._step = new_episode(spec), 0
        self._block: MfPriBlock | None = None  # what the running block plays, made when needed

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops, block by block."""
        source.check(self.spec)
        out = np.empty((1 + self.spec.N, n))
        done = 0
        while done < n:
            m = min(n - done, self._left())
            if self.warming:
                self.warm.run(source, self._episode_now, rng, out, done, m)
                for column in out[:, done : done + m].T:
                    self.samples.totals[...] += column
            else:
                sim, meter, new = source.simulator, source.meter, self.progress.new_block
                episodes(sim, meter, self._played_block(), self.samples, self._episode_now, rng, new, out, done, m)
                self.progress.new_block = False
            self._count(m)
            done += m
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._step = 0
        if self.warming:
            return self.warm.act(self._episode_now, 0, s, rng)
        self.progress.new_block = False
        return int(act(self._played_block(), self._episode_now, 0, s, rng))

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self._episode_now.signals[self._step] = signals
        self._step += 1
        if self.warming:
            return self.warm.act(self._episode_now, self._step, s, rng)
        return int(act(self._played_block(), self._episode_now, self._step, s, rng))

    def last(self, signals: FloatArray) -> None:
        """Note the last step's reward and utilities [1+N], and learn from the episode."""
        self._episode_now.signals[self._step] = signals
        if self.warming:
            self.warm.finish(self._episode_now)
            self.samples.totals[...] += self._episode_now.total
        else:
            finish(self._played_block(), self.samples, self._episode_now)
        self._count(1)

    @property
    def warming(self) -> bool:
        """Whether the warm-up is still on."""
        return int(self.progress.episode) < self.task.table.warm

    def _left(self) -> int:
        return int(self.progress.block_end - self.progress.episode)

    def _count(self, m: int) -> None:
        """m episodes were played; at the end of a block, see what comes next."""
        progress, table = self.progress, self.task.table
        progress.episode += m
        if self._left():
            return
        k = progress.episode
        if k == table.warm:
            self._end_warm_up()
        else:
            progress.played[...] += (self.samples.start[0] - progress.counted_starts) * progress.playing
        if k <= table.hand and k in table.ends:
            improve(self.task, progress, self.samples)
            progress.epoch += 1
            begin_epoch(self.task, progress, self.samples)
        if k == table.hand:
            progress.final[...] = progress.pi
        self._begin_block(k)

    def _end_warm_up(self) -> None:
        """The first policy and prices."""
        progress = self.progress
        progress.lam[...] = self.warm.mean_multipliers
        progress.hoped_lam[...] = progress.lam
        progress.hoped[...] = self.warm.hopes(progress.lam)
        progress.base[...] = self.warm.greedy_at(progress.lam)
        progress.pi[...] = np.eye(self.spec.A)[progress.base]
        progress.core[...] = progress.pi > 0
        progress.explore[...] = self.spec.allowed & ~progress.core
        begin_epoch(self.task, progress, self.samples)

    def _begin_block(self, k: int) -> None:
        progress, table = self.progress, self.task.table
        size = table.block(k)
        if k < table.hand:
            size = min(size, table.ends[progress.epoch] - k)
        progress.block_end = k + size
        progress.counted_starts = self.samples.start[0]
        progress.new_block = True
        progress.certifying = k >= table.hand and not progress.certifying
        progress.deviation_chance = self._deviation_chance(k)
        progress.playing[...] = progress.final if progress.certifying else steered(self.task, progress, self.samples, k)
        self._block = None

    def _deviation_chance(self, k: int) -> float:
        """Probability per step of a deviation: more while losses are small beside the noise, less and less in time."""
        progress = self.progress
        if k >= self.task.table.freeze or not progress.explore.any():
            return 0.0
        worth = min(max(progress.noise / max(progress.loss, 1e-9), 1.0), self.params.cheap)
        per_episode = self.params.explore * worth * np.sqrt(self.spec.allowed.sum() / k)
        return float(min(self.params.max_deviations, per_episode) / self.spec.H)

    def _played_block(self) -> MfPriBlock:
        """What the running block plays, in the form that compiled code reads."""
        if self._block is not None:
            return self._block
        spec, progress = self.spec, self.progress
        H, S, A, n = spec.H, spec.S, spec.A, spec.H * spec.S
        options = progress.explore.reshape(n, A)
        choices, chance = options.sum(axis=-1), progress.deviation_chance
        pi = progress.playing.reshape(n, A)
        cdf = np.cumsum(pi, axis=-1)
        deviating = np.where(choices[:, None] > 0, options / np.maximum(choices, 1)[:, None], pi)
        self._block = MfPriBlock(
            H=np.uint64(H),
            S=np.uint64(S),
            A=np.uint64(A),
            zero=per_signal([0.0] * (1 + spec.N)),
            deviation_chance=chance,
            learn=progress.episode < self.task.table.hand,
            certify=progress.certifying,
            batch=self.task.table.batch,
            pi=(1 - chance) * pi + chance * deviating,
            cdf=cdf / cdf[:, -1:],
            sure=np.where(pi.max(axis=-1) == 1.0, pi.argmax(axis=-1), A).astype(np.uint64),
            options=np.argsort(~options, axis=-1, kind="stable").astype(np.uint64),
            choices=choices,
            ahead=progress.ahead,
            known=progress.known,
        )
        return self._block

    # -- what it has to say --------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, deviations included."""
        spec = self.spec
        return self.warm.behaviour() if self.warming else self._played_block().pi.reshape(spec.H, spec.S, spec.A)

    def recommend(self) -> FloatArray:
        """pi [H, S, A]: the policy fixed for certification; before that, the policy of the epoch."""
        if self.warming:
            return one_hot(self.warm.greedy_at(self.warm.mean_multipliers), self.spec.A)
        return (self.progress.final if self.certifying else self.progress.pi).copy()

    @property
    def certifying(self) -> bool:
        """Whether the policy to hand over is fixed."""
        return int(self.progress.episode) >= self.task.table.hand

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.warm.multipliers if self.warming else self.progress.lam.copy()

    def certificate(self) -> Intervals | None:
        """Simultaneous intervals for value and utilities of `recommend()`, in unit scale; None before there are any."""
        table, samples, H = self.task.table, self.samples, float(self.spec.H)
        full = int(samples.sampled[0]) // table.batch
        if full < 2:
            return None
        totals = samples.sample[:full] / table.batch
        return simultaneous(totals, H, self.params.delta, planned=table.batches, each=table.batch)

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        return self.task.table.phases()

    def warnings(self) -> tuple[str, ...]:
        """Bounds that look out of reach, and what the data did not settle."""
        return () if self.warming else warnings_of(self.task, self.progress, self.samples)

    def explain(self) -> dict[str, Any]:
        """The run's account as plain values; see `explain`."""
        return account(self.task, self.progress, self.samples)

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        super().restore(state)
        self._block = None


def _notes(spec: Spec, warm: int, pairs: int) -> tuple[str, ...]:
    if warm >= pairs:
        return ()
    return (
        f"K = {spec.K:,} is short for {pairs:,} (step, state, action) cells: the warm-up of {warm:,} episodes does not "
        "reach them all, and the policy may be far from the best",
    )
