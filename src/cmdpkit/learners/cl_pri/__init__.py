"""CL-PRI: closed-loop PRI, our own algorithm for the purpose of PRI (`cmdpkit.learners.pri`, arXiv 2309.15395).

Few episodes in, one policy out that meets its bounds and has at most N stochastic decisions, with a certificate from
its own data. The whole of it, for K episodes with the bounds rho, of which k were played:

    EXPLORE   play the optimistic policy at prices that follow the shortfall (`play`), until no more than `new_cells`
              new actions are found per episode; at most for `exploration_share` of the run
    LOOP      in blocks of `growth` min(k, K - k) episodes, with the model that the counts suggest (`rules`)
                prices   <- those of the best plan for rho
                dear     <- `steep` prices, at most `repay_price`; from `freeze` K on also `repay_price` itself
                gain     <- by how much each bound can be exceeded at that price; sure: the part that can be relied on
                reserve  <- the largest bad luck in the last episodes, less what they repay if they gain what is sure
                owed     <- (k rho - realised + reserve) / (K - k)
                pi       <- the best plan for rho + min(owed, gain)
                tries    <- until `freeze` K: visits up to which an action is worth trying beside pi
                play pi; but wherever an action has fewer visits than `tries`, play that action
    HAND OVER at hand_over K: the plan with the margin that is worth most (`estimate.model.handed_over`)
    CERTIFY   from then on every other block plays the returned policy: betting intervals for its value and utilities

Problems without a horizon have a class of their own, in `continuing`. A run of unknown length (*anytime*) goes through
all this in stages, each of which doubles the length of the run. Where the world is declared stationary, all steps share
their counts. What is proved and what is not is in docs/theory/cl-pri.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cmdpkit.estimate.counts import Counts, new_counts, with_room_for_episodes
from cmdpkit.estimate.intervals import Intervals, margin_for_certificate
from cmdpkit.estimate.model import Model, best_plan, error_quantile, handed_over, model_of, spread
from cmdpkit.exact.sources import Horizon
from cmdpkit.learners import Spec, State
from cmdpkit.learners._closed_loop import BLIND, BlockLearner, Ledger, Timetable, few_episodes
from cmdpkit.learners._model_based.learner import certifier_of, proved
from cmdpkit.learners._note import Note, UnitTotals, decisions, notes_above
from cmdpkit.learners._q_learning import greedy_policy
from cmdpkit.learners.cl_pri import play, rules
from cmdpkit.learners.cl_pri.continuing import ContinuingPRI
from cmdpkit.learners.cl_pri.rules import ClosedLoopParams
from cmdpkit.model.policy import one_hot
from cmdpkit.model.tolerances import LP_TOLERANCE, NO_SHORTFALL
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.policies import flow

__all__ = ["ClosedLoopPRI", "ContinuingPRI"]


class ClosedLoopPRI(BlockLearner):
    """CL-PRI at work, with episodes; keyword arguments other than preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ClosedLoopPRI(Spec.of(cmdp, K=3000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 3000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 3000)
    """

    title = "CL-PRI: our own; plans from counts, steers what is realised to the bounds, one policy with a certificate."
    presets = {"practical": ClosedLoopParams()}
    anytime = True
    certifies = True
    changing = ("clock", "counts", "optimism", "ledger", "now", "block", "plans", "impossible")
    params: ClosedLoopParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        H, S, A, M, p = spec.H, spec.S, spec.A, 1 + spec.N, self.params
        self.T = 1 if spec.stationary else H
        self.cells = int(spec.allowed.any(axis=0).sum() if self.T == 1 else spec.allowed.sum())
        self.clock, self.table = play.Clock(), rules.timetable(spec, p)
        self.counts = new_counts(self.T, S, A, M)
        self.optimism = play.new_optimism(np.asarray(spec.allowed), M, (p.optimism, p.curiosity, p.pseudo))
        self.ledger = Ledger.of(M)
        pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        self.now = play.Policies(pi, pi.copy(), *(np.zeros(n) for n in (*[spec.N] * 5, M)))
        self.block = play.new_block(pi, np.zeros((H, S, A), dtype=np.int64), self.counts.visits)
        self.plans = self.impossible = 0
        self.certifier = certifier_of(spec, p.counted)
        self._safe: tuple[int, FloatArray | None] = -1, None  # episode, and the policy that is proved safe then
        if not spec.anytime and self.table.explore < self.cells:
            self.notes = (self._few(spec.K),)
        self._continue_exploration()

    # -- playing -------------------------------------------------------------------------------------------------------

    @property
    def exploring(self) -> bool:
        """Whether the run still explores."""
        return self.clock.explored < 0

    def _player(self) -> play.ClosedLoop:
        parts = self.counts, self.optimism, self.block, self.ledger
        return play.ClosedLoop(*parts, self.exploring, self.clock.certifying)

    def _make_room(self) -> int:
        """Room for transitions, which may be for fewer episodes than are left, and for the certificate."""
        self.counts, room = with_room_for_episodes(self.counts, self.spec.H)
        left = self.clock.block_end - self.clock.episode
        if self.clock.certifying:
            self.ledger = self.ledger.with_room(left)
        return min(room, left)

    def _count(self, played: int) -> None:
        clock = self.clock
        clock.episode += played
        if clock.episode < clock.block_end:
            return
        if self.exploring:
            self._sweep()
        if self.spec.anytime and clock.episode == self.table.K:
            self._begin_stage()
        if not self.exploring and clock.episode < self.table.K:
            self._begin_block()

    # -- EXPLORE -------------------------------------------------------------------------------------------------------

    def _continue_exploration(self) -> None:
        """Explore until the next sweep, or until exploration is looked at."""
        clock, p, k = self.clock, self.params, self.clock.episode
        if k == clock.checked:
            clock.check = min(self.table.explore, k + max(p.look, math.ceil(p.growth * k)))
        clock.block_end = min(clock.check, k + p.look)

    def _sweep(self) -> None:
        """Correct the prices and all values after a block of exploration, and see whether it has found enough."""
        clock, p, k, prices = self.clock, self.params, self.clock.episode, self.optimism.prices
        debt = (k - clock.swept) * self.spec.rho - (self.ledger.totals - self.now.swept)[1:]
        rate = p.rate / (self.spec.H * math.sqrt(self.table.explore - self.table.start))
        prices[1:] = np.clip(prices[1:] + rate * debt, 0.0, p.price)
        clock.swept, self.now.swept[...] = k, self.ledger.totals
        if k == clock.check and self._has_found_enough():
            clock.explored = k
            self.now.prices[...] = prices[1:]
        play.sweep(self.counts, self.optimism)
        if self.exploring:
            self._continue_exploration()

    def _has_found_enough(self) -> bool:
        """Take the prices of the estimated model, if it can meet the bounds; returns whether exploration has ended."""
        clock, p, k = self.clock, self.params, self.clock.episode
        plan = best_plan(self._model(), self.spec.rho)
        if plan.feasible:
            self.optimism.prices[1:] = np.minimum(plan.prices, p.price)
        clock.all_found = self.optimism.found[0] <= p.new_cells * (k - clock.checked) and not self.ledger.is_blind
        clock.checked, self.optimism.found[0] = k, 0
        return k >= self.table.explore or clock.all_found

    def _begin_stage(self) -> None:
        """An anytime run goes on: the next stage doubles its length, and explores again if there is more to find."""
        clock, k = self.clock, self.clock.episode
        clock.stage += 1
        clock.explored_before += clock.explored - clock.explored_from
        clock.explored_from = k
        self.table = self._timetable()
        if clock.all_found or self.table.explore == k:
            clock.explored = k
            return
        clock.explored, clock.checked, self.optimism.found[0], clock.swept = -1, k, 0, k
        self.optimism.prices[1:] = np.minimum(self.now.prices, self.params.price)
        self.now.swept[...] = self.ledger.totals
        play.sweep(self.counts, self.optimism)
        self._continue_exploration()

    def _timetable(self) -> Timetable:
        """The timetable of the stage that the clock shows."""
        return rules.timetable(self.spec, self.params, self.clock.stage, self.clock.explored_before)

    # -- LOOP ----------------------------------------------------------------------------------------------------------

    def _begin_block(self) -> None:
        """Make the next plan, or let the policy to return play a block for its certificate."""
        clock, k = self.clock, self.clock.episode
        if k >= self.table.hand and clock.handed < clock.stage:
            self._hand_over()
        clock.block_end = self.table.block_end(k)
        clock.certifying = k >= self.table.hand and not clock.certifying
        quota = np.zeros(self.now.pi.shape, dtype=np.int64) if clock.certifying else self._plan()
        self.block = play.new_block(self.now.final if clock.certifying else self.now.pi, quota, self.counts.visits)

    def _model(self) -> Model:
        """The model that the counts suggest."""
        return model_of(self.counts, self.spec.rho, np.asarray(self.spec.allowed), 1)

    def _plan(self) -> IntArray:
        """A new plan from everything seen so far; returns the visits up to which actions are tried beside it."""
        now, clock, p, spec, k = self.now, self.clock, self.params, self.spec, self.clock.episode
        settled = k >= self.table.freeze
        surplus = now.promised - spec.rho if k >= self.table.hand else np.zeros(spec.N)
        model = self._model()
        plan, spare = rules.repaying_plan(model, spec.rho, self._account(k, surplus), p, settled=settled)
        self.plans += 1
        clock.infeasible_last = not plan.feasible
        self.impossible += clock.infeasible_last
        pi = plan.pi
        if plan.feasible:
            now.prices[...] = plan.prices
        elif not settled:  # no policy seems to meet the bounds: look for one, at rising prices
            now.prices[...] = np.clip(2 * now.prices, 0.1, p.price)
            pi = one_hot(Horizon(model.cmdp).greedy(np.append(1.0, now.prices))[1].astype(int), spec.A)
        now.pi[...], now.predicted[...] = self._completed(model, pi), plan.utilities
        if settled:
            return np.zeros(pi.shape, dtype=np.int64)
        return rules.tries(model, np.asarray(spec.allowed), (now.pi, now.prices, spare), self.table.K, p)

    def _completed(self, model: Model, pi: FloatArray) -> FloatArray:
        """The plan, with an optimistic choice in states that the estimated model does not know."""
        return np.where(model.known[..., None], pi, self._optimistic())

    def _optimistic(self) -> FloatArray:
        """[H, S, A]: the policy of exploration."""
        return greedy_policy(self.spec, self.optimism.best)

    # -- HAND OVER -----------------------------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """Fix the policy to return, and begin its sample."""
        now, p, rho, model = self.now, self.params, self.spec.rho, self._model()
        extra = np.zeros(self.spec.N)
        if p.certified:  # a further margin lets the certificate say that the policy is safe
            delta, planned = self._stage_delta(self.clock.stage), self.table.sample_size()
            extra = margin_for_certificate(spread(model, now.pi), self.spec.H, delta, planned)
        found = handed_over(model, rho, extra, error_quantile(p.delta, self.spec.N), p.missed)
        now.final[...], now.promised[...] = self._completed(model, found.plan.pi), found.plan.utilities
        now.margin[...], now.uncovered[...] = found.margin, found.uncovered
        self.clock.handed, self.ledger.size[0] = self.clock.stage, 0

    # -- results -------------------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, tries included."""
        return self._optimistic() if self.exploring else self.block.pi.reshape(self.now.pi.shape).copy()

    def counted(self) -> Counts | None:
        """What was counted so far."""
        return self.counts

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to return now: the policy that was fixed last, or before that what the counts suggest.

        With `certified`, it is the policy that the counts prove to be safe, if that has the larger proved value.
        """
        safe = self._safe_policy() if self.params.certified else None
        return self._policy() if safe is None else safe

    def _policy(self) -> FloatArray:
        """The policy that was fixed last, or before that what the counts suggest."""
        if self.exploring and self.clock.handed < 0:
            model = self._model()
            return self._completed(model, best_plan(model, self.spec.rho).pi)
        return (self.now.final if self.clock.handed >= 0 else self.now.pi).copy()

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.optimism.prices[1:].copy() if self.exploring else self.now.prices.copy()

    def certificate(self) -> Intervals | None:
        """What is proved about `recommend()`, in unit scale, at all times at once with probability 1 - delta.

        The counts have a part of delta, and the sample of the policy that was fixed last has the rest.
        """
        pi = self.recommend()
        sample = self._sample() if np.array_equal(pi, self.now.final) else None
        found = proved(self.certifier, self.counts, pi, sample)
        return None if found is None else found._replace(level=1 - self.params.delta)

    def _sample(self) -> Intervals | None:
        """Intervals from episodes of the policy that was fixed last; all stages hold together."""
        stage = self.clock.handed
        planned = rules.timetable(self.spec, self.params, stage).sample_size()
        return self.ledger.intervals(self.spec.H, self._stage_delta(stage), planned)

    def _safe_policy(self) -> FloatArray | None:
        """A policy that the counts prove to be safe, unless what would be returned has a better certificate."""
        if self._safe[0] == self.clock.episode:
            return self._safe[1]
        pi, sample = self._policy(), self._sample() if self.clock.handed >= 0 else None
        own, safe = proved(self.certifier, self.counts, pi, sample), None
        if own is not None and np.isfinite(own.best):
            ends = np.array(own.intervals)[:, 0]
            found = self.certifier.safe_policy()
            if found is not None and (np.any(ends[1:] < self.spec.rho) or found[1] > ends[0]):
                safe = found[0]
        self._safe = self.clock.episode, safe
        return safe

    def _stage_delta(self, stage: int) -> float:
        """The error probability of the sample of a stage (from 0); all stages have the part of delta for samples."""
        delta = self.params.delta - self.params.counted
        return delta / ((stage + 1) * (stage + 2)) if self.spec.anytime else delta

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes; an anytime run also names its stages."""
        clock, table = self.clock, self.table
        found = [("exploration", clock.explored_from)] if clock.explored != clock.explored_from else []
        found += [("improvement", clock.explored)] if clock.explored >= 0 else []
        found += [("settling", table.freeze), ("certification", table.hand)]
        if not self.spec.anytime:
            return tuple(found)
        past = [(f"stage {j + 1}", self.spec.K << (j - 1) if j else 0) for j in range(clock.stage)]
        begun = [(f"stage {clock.stage + 1}: {name}", first) for name, first in found if first <= clock.episode]
        return (*past, *begun)

    def warnings(self) -> tuple[str | Note, ...]:
        """Bounds that were missed or cannot be promised, too few episodes, and a world that depends on the step."""
        now, k, p, said = self.now, self.clock.episode, self.params, list[str | Note]()
        if self.clock.infeasible_last and (k >= self.table.freeze or self.spec.anytime):
            said += notes_above("no plan for a bound", self.spec.rho - now.predicted, LP_TOLERANCE)
        if self.clock.handed >= 0:
            said += notes_above("not cleared", now.uncovered, LP_TOLERANCE)
        if k >= self.table.K or (self.spec.anytime and k > 0):
            short, dear = self.spec.rho - self.ledger.totals[1:] / k, now.prices > p.repay_price
            said += notes_above("too dear to repay", np.where(dear, short, 0.0), NO_SHORTFALL, now.prices)
            said += notes_above("exploration not repaid", np.where(dear, 0.0, short), NO_SHORTFALL)
            paid = np.where(dear, 0.0, now.prices)
            said += [Note("repaid dearly", n, price=float(x)) for n, x in enumerate(paid) if x > p.price]
        return (*said, *self._too_little_seen(), *self.certifier.contradictions(self.counts))

    def _too_little_seen(self) -> list[str]:
        """Whether the episodes were too few to see what the problem has to offer."""
        clock, p, said = self.clock, self.params, []
        if self.ledger.is_blind:
            said.append(BLIND.format(episodes=clock.episode))
        if self.spec.anytime and clock.episode * p.exploration_share < self.cells:
            said.append(self._few(clock.episode))
        elif not self.notes and not self.exploring and not clock.all_found:
            missing = self.cells - int((self.counts.visits > 0).sum())
            said.append(rules.UNFINISHED.format(episodes=clock.explored, missing=missing, cells=self.cells))
        return said

    def _few(self, episodes: int) -> str:
        """The sentence that so few episodes cannot try everything once."""
        enough = math.ceil(self.cells / self.params.exploration_share)
        return few_episodes(episodes, self.cells, enough, pooled=self.T == 1)

    def internals(self) -> dict[str, Any]:
        """The run as plain values. States and actions are given by index, totals in unit scale."""
        cmdp, pi = self._model().cmdp, self.recommend()
        visits = self.counts.visits.reshape(self.T, self.spec.S, self.spec.A)
        return {
            "counts": "shared by all steps" if self.T == 1 else "kept per step",
            "cells seen": f"{int((visits > 0).sum())} of {self.cells}",
            "plans": self.plans,
            "plans that could not meet the bounds": self.impossible,
            "margin of the returned policy": UnitTotals(self.now.margin.round(6).tolist()),
            **decisions(flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu).sum(axis=-1), pi, visits),
        }

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        super().restore(state)
        self.table, self._safe = self._timetable(), (-1, None)
