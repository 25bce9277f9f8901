"""MF-PRI: model-free closed-loop PRI, our own algorithm for the purpose of PRI (`cmdpkit.learners.pri`).

It has the three aims of PRI (arXiv 2309.15395): model-free, one policy, low regret. No transition is ever counted: its
memory is a few tables of H S A (1 + N)^2 numbers, and a problem takes four to ten times as many episodes as with
`cl_pri`, whose timetable, repaying of debts and certificate it shares. The whole of it, for K episodes with the bounds
rho, of which k were played:

    WARM UP   optimistic Q-learning with prices: a first policy pi and first prices lam (`samples.warm_up`)
    LOOP      in blocks of `growth` min(k, K - k) episodes
                play pi; with a small chance per step deviate to an action in question; sample what follows
                seen <- what an action earns more than that of the policy, with its error (`samples.view`)
                lam  <- prices of best(seen, rho)
                pi   <- best(seen, rho + owed) at prices of at most `steep` lam + `extra`
                until freeze K: in question are actions that may gain at these prices
    HAND OVER at hand_over K: final <- the best policy for the bounds and a margin, at the same prices
    CERTIFY   from then on every other block plays the final policy: betting intervals for its value and utilities

What is proved and what is not is in docs/theory/cl-pri.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.estimate.intervals import Intervals
from cmdpkit.learners import Spec
from cmdpkit.learners._closed_loop import BLIND, BlockLearner, Ledger, LoopParams, Timetable, few_episodes, owed
from cmdpkit.learners._note import Note, decisions, notes_above
from cmdpkit.learners._q_learning import greedy_policy
from cmdpkit.learners.mf_pri import samples
from cmdpkit.learners.params import above_zero, at_least_zero, share
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import LP_TOLERANCE, TIE_FEE
from cmdpkit.model.transitions import BoolArray, FloatArray


@dataclass(frozen=True)
class ModelFreeParams(LoopParams):
    """Numbers that do not change during a run; one setting for all problems. Prices and totals are in unit scale."""

    warm_up: float = above_zero(10.0)  # episodes of warm-up per (step, state, action), at most a quarter of the run
    price: float = above_zero(100.0)  # highest price, reward per unit of utility; a tenth of it in the warm-up
    explore: float = at_least_zero(2.0)  # deviations per episode: explore sqrt(actions / episodes so far), at most 1
    doubt: float = at_least_zero(3.0)  # standard errors by which an action must be worse to be out of question
    enter: float = at_least_zero(2.0)  # standard errors by which an action must be better to come into use
    known: float = above_zero(50.0)  # samples that make a value trusted
    keep: float = share(0.5)  # weight that whole episodes keep when other actions come into use
    pseudo: float = above_zero(5.0)  # samples that the average variance of a step counts as
    tolerance: float = at_least_zero(1.0)  # standard errors by which a bound must be missed before its price is raised
    reserve: float = at_least_zero(5.0)  # standard deviations of bad luck that are kept in reserve
    steep: float = at_least_zero(3.0)  # a margin, and debts until `freeze`, are worth this multiple of a bound's price
    extra: float = at_least_zero(0.1)  # plus this
    margin: float = at_least_zero(3.0)  # standard errors by which the returned policy is to clear its bounds


@dataclass
class LoopState:
    """Where the loop stands between two episodes; arrays are changed in place."""

    pi: FloatArray  # [H, S, A]: the policy of the loop
    final: FloatArray  # [H, S, A]: the policy to return, once it is fixed
    question: BoolArray  # [H, S, A]: actions not in use that are worth deviating to
    lam: FloatArray  # [N]: prices of the bounds
    short: FloatArray  # [N]: shortfall of the last policy from the bounds
    uncovered: FloatArray  # [N]: part of its margin that the policy to return does not clear
    spare: FloatArray  # [N]: by how much that policy exceeds the bounds
    block_end: int  # the episode at which the running block ends
    episode: int = 0  # episodes played


class ModelFreePRI(BlockLearner):
    """MF-PRI at work; keyword arguments other than preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ModelFreePRI(Spec.of(cmdp, K=200_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 200_000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 10528)
    """

    title = "MF-PRI: our own, without counts; improves by sampled returns, steers to the bounds, one policy certified."
    presets = {"practical": ModelFreeParams()}
    changing = ("now", "samples", "values", "block", "ledger")
    params: ModelFreeParams
    _episode: samples.SampledEpisode  # type: ignore[assignment]

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, K, shape, N = self.params, spec.K, spec.allowed.shape, spec.N
        cells = int((spec.allowed.any(axis=0) if spec.stationary else spec.allowed).sum())
        warm = max(1, min(math.ceil(p.warm_up * cells), K // 4))
        self.table = Timetable.of(0, K, warm, p)
        self.constants, self.values = samples.warm_up(spec, warm, p.price / 10)
        self.samples, self.ledger = samples.Samples.of(spec), Ledger.of(1 + N)
        pi, final = np.zeros((2, *shape))
        self.now = LoopState(pi, final, np.zeros(shape, dtype=bool), *np.zeros((4, N)), block_end=warm)  # type: ignore[misc]
        self._episode = samples.SampledEpisode.of(spec)
        self.block = self._new_block(greedy_policy(spec, self.values.best), 0.0, "repay")
        if warm < cells:
            self.notes = (few_episodes(K, cells, 4 * cells, pooled=spec.stationary),)

    # -- playing -------------------------------------------------------------------------------------------------------

    @property
    def warming(self) -> bool:
        """Whether the warm-up is still on."""
        return self.now.episode < self.table.explore

    def _player(self) -> samples.ModelFree:
        parts = self.values, self.constants, self.spec.stationary, self.block, self.samples, self.ledger
        return samples.ModelFree(*parts, self.warming)

    def _make_room(self) -> int:
        left = self.now.block_end - self.now.episode
        if self.block.certify:
            self.ledger = self.ledger.with_room(left)
        return left

    def _count(self, played: int) -> None:
        now, table = self.now, self.table
        now.episode += played
        if now.episode < now.block_end:
            return
        if now.block_end == table.explore:
            now.lam[...] = samples.mean_prices(self.values)
            now.pi[...] = now.final[...] = self._warm_policy()
            now.question[...] = self.spec.allowed & (now.pi == 0)
        if now.episode < table.K:
            self._begin_block(now.episode)
        else:
            now.block_end += table.K  # a longer run goes on with the last block

    # -- WARM UP -------------------------------------------------------------------------------------------------------

    def _warm_policy(self) -> FloatArray:
        """[H, S, A]: greedy for what the warm-up has learned, at the average of its prices."""
        H, S, A, N = *self.spec.allowed.shape, self.spec.N
        learned = self.values.cells.reshape(H + 1, S, A, -1)[:H, :, :, : 1 + N]
        worth = learned[..., 0] + learned[..., 1:] @ samples.mean_prices(self.values)
        return one_hot(np.where(self.spec.allowed, worth, -np.inf).argmax(axis=-1), A)

    # -- LOOP and HAND OVER --------------------------------------------------------------------------------------------

    def _begin_block(self, k: int) -> None:
        """Make the next policy, or let the one to return play a block for its certificate."""
        now, table, p = self.now, self.table, self.params
        certify = k >= table.hand and not self.block.certify
        if not certify or k == table.hand:
            self._improve(k)
        now.block_end = table.block_end(k)
        asked = p.explore * math.sqrt(int(self.spec.allowed.sum()) / max(k, 1))
        chance = min(asked, 1.0) / self.spec.H if k < table.freeze and now.question.any() else 0.0
        use = "certify" if certify else "repay" if k >= table.hand else "learn"
        self.block = self._new_block(now.final if certify else now.pi, chance, use)

    def _new_block(self, pi: FloatArray, chance: float, use: str) -> samples.SampledBlock:
        values = self.samples.values
        ends = samples.means(values), values[..., 0, 0] >= self.params.known
        return samples.SampledBlock.of(pi, self.now.question, chance, ends, use)

    def _improve(self, k: int) -> None:
        """A new policy and new prices from everything sampled so far."""
        now, p, spec, table = self.now, self.params, self.spec, self.table
        if self.samples.start[0, 0] < p.known:
            now.final[...] = now.pi
            return
        seen = samples.view(self.samples, now.pi, p.pseudo)
        live, highest = (seen.ok & spec.allowed) | (now.pi > 0), np.full(spec.N, p.price)
        fee = np.where(now.pi > 0, 0.0, p.enter * seen.advantage(now.lam)[1] + TIE_FEE)
        certain = spec.rho - p.tolerance * seen.errors(now.pi)  # a smaller shortfall may be noise
        at_bounds, now.lam[...], now.short[...] = samples.best(seen, certain, highest, live, fee)
        cheap = np.clip(p.steep * now.lam + p.extra, now.lam, p.price)
        if k == table.hand:
            now.final[...] = samples.best(seen, spec.rho + p.margin * seen.errors(at_bounds), cheap, live, fee)[0]
            now.spare[...] = seen.totals(now.final)[1:] - spec.rho
            now.uncovered[...] = np.maximum(p.margin * seen.errors(now.final) - now.spare, 0.0)
        dear = highest if k >= table.freeze else cheap
        dearer = now.lam + np.diag(dear - now.lam)  # [N, N]: one bound at its highest price
        gain = np.array([samples.greedy(seen, dearer[n], live)[1 + n] for n in range(spec.N)]) - spec.rho
        spread = np.sqrt(np.maximum(np.diag(seen.noise)[1:], 0.0))
        asked = np.minimum(owed(self._account(k, now.spare), spread, gain, p.reserve), np.maximum(gain, 0.0))
        pi, _, _ = samples.best(seen, spec.rho + asked, dear, live, fee)
        if k < table.hand and ((pi > 0) != (now.pi > 0)).any():
            for array in (self.samples.start, self.samples.visits):
                array *= p.keep
        now.pi[...] = pi
        if k < table.freeze:
            now.question[...] = spec.allowed & (pi == 0) & ~seen.worse(now.lam, p.doubt)

    # -- results -------------------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, deviations included."""
        if self.warming:
            return greedy_policy(self.spec, self.values.best)
        return np.asarray(self.block.pi.reshape(self.spec.allowed.shape))

    def recommend(self) -> FloatArray:
        """pi [H, S, A]: the policy fixed for certification; before that, the policy of the loop."""
        if self.warming:
            return self._warm_policy()
        return (self.now.final if self.now.episode >= self.table.hand else self.now.pi).copy()

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.values.weight.copy() if self.warming else self.now.lam.copy()

    def certificate(self) -> Intervals | None:
        """Simultaneous intervals for value and utilities of `recommend()`, in unit scale; None before there are any."""
        return self.ledger.intervals(self.spec.H, self.params.delta, self.table.sample_size())

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        t = self.table
        named = (("warm-up", 0), ("improvement", t.explore), ("settling", t.freeze), ("certification", t.hand))
        return tuple((name, first) for i, (name, first) in enumerate(named) if i == 0 or first > named[i - 1][1])

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that look out of reach or were missed, and rewards that were never found."""
        now, k, said = self.now, self.now.episode, list[str | Note]()
        if k >= self.table.freeze:
            said += notes_above("missed", now.short, LP_TOLERANCE, now.lam)
        if k >= self.table.hand:
            said += notes_above("not cleared", now.uncovered, 0.0)
        if k >= self.table.K:
            said += notes_above("exploration not repaid", self.spec.rho - self.ledger.totals[1:] / k, LP_TOLERANCE)
            said += [BLIND.format(episodes=k)] if self.ledger.is_blind else []
        return tuple(said)

    def internals(self) -> dict[str, Any]:
        """The run's account as plain values; states and actions are given by index, because no names are known."""
        p, pi = self.params, self.recommend()
        seen = samples.view(self.samples, pi, p.pseudo)
        reached, ruled_out = (seen.reach > 0)[..., None] & self.spec.allowed, seen.worse(self.now.lam, p.doubt)
        return {
            "actions undecided": int((reached & (pi == 0) & ~ruled_out).sum()),
            **decisions(seen.reach, pi, self.samples.rows[..., 0, 0]),
        }
