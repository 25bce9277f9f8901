"""MF-PRI: model-free closed-loop PRI, our own algorithm for the purpose of PRI (`cmdpkit.learners.pri`).

It has the three aims of PRI (arXiv 2309.15395): model-free, one policy, low regret. No transition is ever counted: its
memory is a few tables of H S A (1 + N)^2 numbers, and a problem takes tens of times as many episodes as with `cl_pri`,
whose timetable, repaying of debts, hand-over and certificate it shares. The whole of it, for K episodes with the bounds
rho, of which k were played:

    WARM UP   optimistic Q-learning with prices: a first policy pi and first prices lam (`play.warm_up`)
    LOOP      in blocks of `growth` min(k, K - k) episodes
                play pi; with a small chance per step deviate to an action in question; sample what follows (`play`)
                seen <- what an action brings more than that of the policy, with its error (`improve.view`)
                lam <- prices of best(seen, rho)
                pi  <- best(seen, rho + debt per episode left) at prices of at most `steep` lam + `extra`
                let samples that saw another continuation fade
                until freeze K: in question are actions that may gain at these prices
    HAND OVER at hand_over K: final <- the best policy for the bounds and a margin (`improve.handed_over`)
    CERTIFY   from then on every other block plays the final policy: betting intervals for its value and utilities

What is proved and what is not is in docs/theory/cl-pri.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from cmdpkit.estimate.intervals import Intervals, margin_for_certificate, simultaneous
from cmdpkit.learners import Learner, Params, Returns, Source, Spec, State
from cmdpkit.learners._closed_loop import Account, Timetable, owed
from cmdpkit.learners._note import Note
from cmdpkit.learners._q_learning import greedy_policy
from cmdpkit.learners.mf_pri import improve, play
from cmdpkit.learners.mf_pri.improve import Measured, best, means
from cmdpkit.learners.mf_pri.play import MfPriBlock, mean_prices, values_at
from cmdpkit.learners.params import above_zero, at_least_zero, share
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import LP_TOLERANCE, TIE_FEE
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import MIN_DELTA
from cmdpkit.simulate.random import Stream

UNSOLVED = (
    "the policy may be far from the best: when the warm-up ended, it had not found out that nothing better exists; "
    "more episodes would lengthen it"
)


@dataclass(frozen=True)
class ModelFreeParams(Params):
    """Numbers that do not change during a run; one setting for all problems. Prices and totals are in unit scale."""

    delta: float = 0.05  # error probability of the certificate; a convention
    certified: bool = False  # hand over a policy safe enough for its certificate to say so, at some loss of value
    freeze: float = 0.8  # share of the run after which nothing new is tried
    hand_over: float = 0.9  # share of the run after which the policy is fixed and certified
    warm_up: float = above_zero(10.0)  # episodes of warm-up per (step, state, action), at most a quarter of the run
    price: float = above_zero(100.0)  # highest price, reward per unit of utility; a tenth of it in the warm-up
    growth: float = above_zero(0.1)  # a block has this share of the episodes played or left, whichever are fewer
    explore: float = at_least_zero(2.0)  # deviations per episode: explore sqrt(actions / episodes so far)
    deviations: float = share(0.5)  # and at most this
    doubt: float = at_least_zero(3.0)  # standard errors by which an action must be worse to be out of question
    enter: float = at_least_zero(2.0)  # standard errors by which an action must be better to come into use
    known: float = above_zero(50.0)  # samples that make a value trusted, and that it keeps when later decisions change
    keep: float = share(0.5)  # weight that whole episodes keep when other actions come into use
    pseudo: float = above_zero(5.0)  # samples that the average variance of a step counts as
    least: float = above_zero(3.0)  # samples an action needs before they say anything
    tolerance: float = at_least_zero(1.0)  # standard errors by which a bound must be missed before its price is raised
    reserve: float = at_least_zero(5.0)  # standard deviations of bad luck that are kept in reserve
    steep: float = at_least_zero(3.0)  # until `freeze` debts are repaid at most at this multiple of a bound's price
    extra: float = at_least_zero(0.1)  # plus this
    missed: float = at_least_zero(0.05)  # a missed bound counts like this share of the range of values
    # Returns kept for the certificate, 128 kB per signal; in longer runs they are averages of several episodes.
    rows: int = above_zero(16_384)
    hope: float = at_least_zero(0.02)  # share of the range by which the hope of the warm-up may exceed what was found
    shown: int = at_least_zero(40)  # undecided and stochastic decisions that are listed in an account, of each at most

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"at least {MIN_DELTA:g} and below 1")
        self._expect("freeze", 0 < self.freeze <= self.hand_over, "above 0, at most hand_over")
        self._expect("hand_over", self.hand_over < 1, "less than 1")


@dataclass
class MfPriProgress:
    """Where a run stands between two episodes; arrays are changed in place."""

    pi: FloatArray  # [H, S, A]: the policy of the loop
    final: FloatArray  # [H, S, A]: the policy to hand over, once it is fixed
    question: BoolArray  # [H, S, A]: actions not in use that are worth deviating to
    lam: FloatArray  # [N]: prices of the bounds
    short: FloatArray  # [N]: what the last policy misses of the bounds
    uncovered: FloatArray  # [N]: what the policy to hand over misses of its margin
    played: FloatArray  # [H, S, A]: policies summed over the episodes of `Samples.start`
    ahead: FloatArray  # [(H+1)*S, 1+N]: values that samples of this block end with
    known: BoolArray  # [(H+1)*S]: where they are good enough to be used
    spare: FloatArray  # [N]: by how much the policy to hand over exceeds the bounds
    hoped: FloatArray  # [S]: what an episode from there could be worth when the warm-up ended, by its optimism
    hoped_lam: FloatArray  # [N]: at these prices
    episode: int = 0  # episodes played
    block_end: int = 0  # the episode at which the running block ends
    new_block: bool = False  # whether no episode of the block has begun
    certifying: bool = False  # whether the block plays `final`
    chance: float = 0.0  # probability per step that a deviation is asked for
    starts: float = 0.0  # n of `Samples.start` when the block began
    changes: int = 0  # improvements that changed the set of actions in use


class ModelFreePRI(Learner):
    """MF-PRI at work; keyword arguments other than preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ModelFreePRI(Spec.of(cmdp, K=200_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 200_000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 10528)
    """

    title = "MF-PRI: our own, without counts; improves by sampled returns, steers to the bounds, one policy certified."
    guarantee = "the certificate of the policy handed over holds with probability 1 - delta; no proved rate of regret"
    paper = "our own, after arXiv 2309.15395"
    source = "ours"
    presets = {"practical": ModelFreeParams()}

    changing: ClassVar[tuple[str, ...]] = ("progress", "samples", "values")
    params: ModelFreeParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, K, (H, S, A, N) = self.params, spec.K, (spec.H, spec.S, spec.A, spec.N)
        pairs = int(spec.allowed.sum())
        cells = int(spec.allowed.any(axis=0).sum()) if spec.stationary else pairs
        warm = max(1, min(math.ceil(p.warm_up * cells), K // 4))
        hand = max(warm, math.floor(p.hand_over * K))
        self.table = Timetable(0, K, warm, min(hand, max(warm, math.ceil(p.freeze * K))), hand, p.growth)
        self.rules, self.values = play.warm_up(spec, warm, p.price / 10)
        self.batch = max(1, math.ceil(self.table.sample_size() / p.rows))  # episodes whose returns are averaged
        self.samples = play.new_samples(spec, self.table.sample_size() // self.batch)
        nothing = np.zeros((H, S, A))
        self.progress = MfPriProgress(
            pi=nothing,
            final=nothing.copy(),
            question=np.zeros((H, S, A), dtype=bool),
            lam=np.zeros(N),
            short=np.zeros(N),
            uncovered=np.zeros(N),
            played=nothing.copy(),
            ahead=np.zeros(((H + 1) * S, 1 + N)),
            known=np.zeros((H + 1) * S, dtype=bool),
            spare=np.zeros(N),
            hoped=np.zeros(S),
            hoped_lam=np.zeros(N),
            block_end=warm,
        )
        self.notes = _notes(K, warm, pairs)
        self._now, self._step = play.new_episode(spec), 0
        self._block: MfPriBlock | None = None  # what the running block plays, made when needed

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops, block by block."""
        source.check(self.spec)
        out, done, now = np.empty((1 + self.spec.N, n)), 0, self.progress
        while done < n:
            m = min(n - done, now.block_end - now.episode)
            learned = (self.values, self.rules, self._played(), self.samples, self._now)
            play.episodes(*source, *learned, rng, now.new_block, out, done, m)
            now.new_block = False
            self._count(m)
            done += m
        return Returns(out[0], out[1:])

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._step = 0
        self.progress.new_block = False
        self.values.changed[0] &= not self.warming
        return self._act(s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self._now.signals[self._step] = signals
        self._step += 1
        return self._act(s, rng)

    def last(self, signals: FloatArray) -> None:
        """Note the last step's reward and utilities [1+N], and learn from the episode."""
        self._now.signals[self._step] = signals
        play.finish(self.values, self.rules, self._played(), self.samples, self._now)
        self._count(1)

    def _act(self, s: int, rng: Stream) -> int:
        return int(play.act(self.values, self.rules, self._played(), self._now, self._step, s, rng))

    @property
    def warming(self) -> bool:
        """Whether the warm-up is still on."""
        return self.progress.episode < self.table.explore

    @property
    def certifying(self) -> bool:
        """Whether the policy to hand over is fixed."""
        return self.progress.episode >= self.table.hand

    def _count(self, m: int) -> None:
        """m episodes were played; at the end of a block, see what comes next."""
        now, table = self.progress, self.table
        now.episode += m
        if now.episode < now.block_end:
            return
        if now.block_end == table.explore:
            self._end_warm_up()
        else:
            now.played[...] += (self.samples.start[0] - now.starts) * now.pi
        if now.episode < table.K:
            self._begin_block(now.episode)
        else:
            now.block_end += table.K  # a longer run goes on with the last block

    def _end_warm_up(self) -> None:
        """The first policy and prices."""
        now, spec = self.progress, self.spec
        now.lam[...] = now.hoped_lam[...] = mean_prices(self.values)
        worth = values_at(spec, self.values, now.lam)
        now.hoped[...] = worth[0].max(axis=-1)
        now.pi[...] = now.final[...] = one_hot(worth.argmax(axis=-1), spec.A)
        now.question[...] = spec.allowed & (now.pi == 0)

    def _begin_block(self, k: int) -> None:
        """Make the next policy, or let the one to hand over play a block for its certificate."""
        now, table, p, n = self.progress, self.table, self.params, self.spec.H * self.spec.S
        now.certifying = k >= table.hand and not now.certifying
        if not now.certifying or k == table.hand:
            self._improve(k)
        size = table.block_end(k) - k
        if k < table.freeze:
            size = min(max(size, math.ceil(p.known)), table.freeze - k)
        now.block_end, now.new_block, now.starts, self._block = k + size, True, self.samples.start[0], None
        asked = p.explore * math.sqrt(int(self.spec.allowed.sum()) / max(k, 1))
        now.chance = min(asked, p.deviations) / self.spec.H if k < table.freeze and now.question.any() else 0.0
        now.ahead[:n] = means(self.samples.values, 1 + self.spec.N)
        now.known[:n], now.known[n:] = self.samples.values[:, 0] >= p.known, True

    def _improve(self, k: int) -> None:
        """A new policy and new prices from everything sampled so far."""
        now, p, spec, table = self.progress, self.params, self.spec, self.table
        if self.samples.start[0] < p.known:
            now.final[...] = now.pi
            return
        seen = improve.view(self.samples, now.played, now.pi, p.pseudo, p.least)
        live = (seen.ok & spec.allowed) | (now.pi > 0)
        fee = np.where(now.pi > 0, 0.0, p.enter * seen.advantage(now.lam)[1] + TIE_FEE)
        if k == table.hand:
            self._hand_over(seen, live, fee)
        sd = np.sqrt(np.maximum(np.diag(seen.noise)[1:], 0.0))
        certain = spec.rho - p.tolerance * seen.errors(now.pi)  # a smaller shortfall may be noise
        at_bounds = best(seen, certain, np.full(spec.N, p.price), live, fee)
        now.lam[...], now.short[...] = at_bounds.lam, at_bounds.short
        cap = np.full(spec.N, p.price) if k >= table.freeze else np.minimum(p.steep * now.lam + p.extra, p.price)
        dearer = now.lam + np.diag(np.maximum(cap - now.lam, 0.0))  # [N, N]: one bound at its highest price
        gain = np.array([improve.greedy(seen, dearer[n], live)[1 + n] for n in range(spec.N)]) - spec.rho
        half, fixed = (table.K - k) / 2, k >= table.hand
        left, sampled, surplus = (half, half, now.spare) if fixed else (2 * half, 0.0, np.zeros(spec.N))
        account = Account(k * spec.rho - self.samples.totals[1:], left, sampled, surplus)
        asked = np.minimum(owed(account, sd, gain, p.reserve), np.maximum(gain, 0.0))
        pi = best(seen, spec.rho + asked, np.maximum(cap, at_bounds.lam), live, fee).p
        if k < table.hand:
            self._replace(seen, pi)
        now.pi[...] = pi
        if k < table.freeze:
            advantage, error = seen.advantage(now.lam)
            worse = seen.ok & (advantage + p.doubt * error < 0)
            now.question[...] = spec.allowed & (pi == 0) & ~worse

    def _replace(self, seen: Measured, pi: FloatArray) -> None:
        """The policy changes to pi: let samples that saw another continuation fade."""
        now, samples, p, (H, S, A) = self.progress, self.samples, self.params, pi.shape
        change = (pi - now.pi)[..., None] * seen.effect
        rows, values = improve.worth_keeping(samples.values.reshape(H, S, -1), change.sum(axis=2))
        improve.fade(samples.rows, np.maximum(rows, p.known).repeat(S * A))
        improve.fade(samples.values, np.maximum(values, p.known).repeat(S))
        if ((pi > 0) != (now.pi > 0)).any():
            now.changes += 1
            for array in (samples.start, samples.visits, now.played):
                array *= p.keep

    def _hand_over(self, seen: Measured, live: BoolArray, fee: FloatArray) -> None:
        """Fix the policy to hand over."""
        now, p, rho = self.progress, self.params, self.spec.rho
        extra = np.zeros(len(rho))
        if p.certified:  # a further margin lets the certificate say that the policy is safe
            sd = np.sqrt(np.maximum(np.diag(seen.noise)[1:], 0.0))
            extra = margin_for_certificate(sd, self.spec.H, p.delta, self.table.sample_size())
        now.final[...] = improve.handed_over(seen, rho, extra, live, fee, p.missed, p.price).p
        now.spare[...] = seen.totals(now.final)[1:] - rho
        now.uncovered[...] = np.maximum(NormalDist().inv_cdf(1 - p.delta) * seen.errors(now.final) - now.spare, 0.0)

    def _played(self) -> MfPriBlock | None:
        """What the running block plays, in the form that compiled code reads; None during the warm-up."""
        if self._block is None and not self.warming:
            now, samples = self.progress, not self.certifying
            pi, values = (now.final if now.certifying else now.pi), (now.ahead, now.known)
            self._block = play.new_block(pi, now.question, now.chance, values, samples, now.certifying, self.batch)
        return self._block

    # -- what it has to say --------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, deviations included."""
        block = self._played()
        if block is None:
            return greedy_policy(self.spec, self.values.best)
        return block.pi.reshape(self.spec.allowed.shape)

    def recommend(self) -> FloatArray:
        """pi [H, S, A]: the policy fixed for certification; before that, the policy of the loop."""
        if self.warming:
            return one_hot(values_at(self.spec, self.values, mean_prices(self.values)).argmax(axis=-1), self.spec.A)
        pi: FloatArray = self.progress.final if self.certifying else self.progress.pi
        return pi.copy()

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.values.weight[1:].copy() if self.warming else self.progress.lam.copy()

    def certificate(self) -> Intervals | None:
        """Simultaneous intervals for value and utilities of `recommend()`, in unit scale; None before there are any."""
        full = int(self.samples.sampled[0]) // self.batch
        if full < 2:
            return None
        totals, planned = self.samples.sample[:full] / self.batch, len(self.samples.sample)
        return simultaneous(totals, float(self.spec.H), self.params.delta, planned=planned, each=self.batch)

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        t = self.table
        named = (("warm-up", 0), ("improvement", t.explore), ("settling", t.freeze), ("certification", t.hand))
        return tuple((name, first) for i, (name, first) in enumerate(named) if i == 0 or first > named[i - 1][1])

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that look out of reach or were missed, and a policy that may not be the best."""
        now, k = self.progress, self.progress.episode
        said: list[str | Note] = []
        if self.warming:
            return ()
        if k >= self.table.freeze:
            for n in np.flatnonzero(now.short > LP_TOLERANCE):
                said.append(Note("missed", int(n), by=float(now.short[n]), price=float(now.lam[n])))
        if self.certifying:
            for n in np.flatnonzero(now.uncovered > 0):
                said.append(Note("margin too dear", int(n), by=float(now.uncovered[n])))
        if k >= self.table.K:
            short = self.spec.rho - self.samples.totals[1:] / k
            for n in np.flatnonzero(short > LP_TOLERANCE):
                said.append(Note("learning not repaid", int(n), by=float(short[n])))
            said += [UNSOLVED] if self._hopes() else []
        return tuple(said)

    def _hopes(self) -> bool:
        """Whether something better may be left to find, because the warm-up ended before its optimism did."""
        now, samples, c = self.progress, self.samples, np.append(1.0, self.progress.hoped_lam)
        starts = samples.visits[: self.spec.S]
        hoped = float(starts @ now.hoped) / max(float(starts.sum()), 1.0)
        missing = hoped - float(means(samples.start, len(c)) @ c)
        return missing > self.params.hope * self.spec.H * float(c.sum())

    def explain(self) -> dict[str, Any]:
        """The run's account as plain values; states and actions are given by index, because no names are known."""
        now, spec, pi = self.progress, self.spec, self.recommend()
        used, seen = pi > 0, improve.view(self.samples, now.played, pi, self.params.pseudo, self.params.least)
        advantage, error = seen.advantage(now.lam)
        reached = (seen.reach > 0)[..., None] & spec.allowed
        drawn = used & (used.sum(axis=-1, keepdims=True) > 1)
        open_ = ~used & ~(seen.ok & (advantage + self.params.doubt * error < 0))
        kinds = {"stochastic decisions": drawn, "undecided": open_, "ruled out": ~used & ~open_}
        told = {name: np.argwhere(reached & cells) for name, cells in kinds.items()}
        said = []
        if len(told["undecided"]):
            where = f"{int((reached & open_).any(axis=-1).sum())} decision(s)"
            said.append(f"{len(told['undecided'])} action(s) in {where} were neither ruled out nor taken into use")
        if (now.lam > LP_TOLERANCE).any() and not len(told["stochastic decisions"]):
            said.append("a bound has a price, but no stochastic decision was found that meets it exactly")

        shown = self.params.shown

        def cell(h: int, s: int, a: int) -> dict[str, Any]:
            known = {"advantage": advantage[h, s, a], "standard error": error[h, s, a]} if seen.ok[h, s, a] else {}
            return {
                "step": int(h) + 1,
                "state index": int(s),
                "action index": int(a),
                "probability": float(pi[h, s, a]),
                "reach": float(seen.reach[h, s]),
                "samples": float(self.samples.rows[(h * spec.S + s) * spec.A + a, 0]),
            } | {name: float(x) for name, x in known.items()}

        return {
            "multipliers": [float(x) for x in now.lam],
            "changes of the support": now.changes,
            "cells": {
                "allowed": int(spec.allowed.sum()),
                "reached by the policy": int(reached.sum()),
                "in use": int((reached & used).sum()),
                "ruled out": len(told["ruled out"]),
                "undecided": len(told["undecided"]),
            },
            "stochastic decisions": [cell(*x) for x in told["stochastic decisions"][:shown]],
            "undecided": [cell(*x) for x in sorted(told["undecided"], key=lambda x: -seen.reach[x[0], x[1]])[:shown]],
            "ambiguous": said,
        }

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        super().restore(state)
        self._block = None


def _notes(K: int, warm: int, pairs: int) -> tuple[str, ...]:
    if warm >= pairs:
        return ()
    return (
        f"K = {K:,} is short for {pairs:,} (step, state, action) cells: the warm-up of {warm:,} episodes does not "
        "reach them all, and the policy may be far from the best",
    )
