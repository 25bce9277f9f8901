"""CL-PRI with counts: explore deeply, plan exactly in the estimated model, steer what is realised, hand over a policy.

1. Exploration: play what looks best when everything badly known is taken to be good (`explore`), until hardly any new
   (state, action) is found, for at most three tenths of the run.
2. Improvement: the model that the counts suggest is solved exactly (`estimate`), again and again as the counts grow. A
   plan is asked to exceed the bounds by what must be repaid. Beside it, actions are tried whose value is uncertain
   enough to matter in the episodes that are left. Block by block the stochastic decisions are shifted so that what was
   realised ends within the bounds (`steer`).
3. Settling: nothing new is tried any more.
4. Certification: the policy to hand over clears the bounds by a margin for the error of its own prediction. Every other
   block plays it, unchanged, for the certificate; the blocks between go on repaying.

A run whose length nobody knows (*anytime*) goes through these phases in stages, each of which doubles the length of the
run (`schedule`). Counts are kept from stage to stage, and exploration is taken up again while it still finds something.

Where the world is declared stationary, all steps share their counts, and a warning says if the data contradict the
declaration (`cmdpkit.estimate`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.estimate.counts import new_counts, new_episode, with_room
from cmdpkit.estimate.errors import evidence
from cmdpkit.estimate.intervals import Intervals, margin_for_certificate, simultaneous
from cmdpkit.estimate.margins import Quantiles, balanced_plan
from cmdpkit.estimate.model import Model, Plan, best_plan, model_of
from cmdpkit.estimate.quantiles import different_columns, error_quantile
from cmdpkit.learners import Returns, Source, Spec, State
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.learners.cl_pri.counts.account import account, notes_of, phases_of
from cmdpkit.learners.cl_pri.counts.certify import stage_delta
from cmdpkit.learners.cl_pri.counts.debts import affordable, repayment, repayment_rate
from cmdpkit.learners.cl_pri.counts.deviations import (
    choose_deviations,
    deviation_chance,
    least_observations,
    length_of,
    tilt_of,
)
from cmdpkit.learners.cl_pri.counts.doubts import warnings_of
from cmdpkit.learners.cl_pri.counts.exploration import (
    MAX_PRICE,
    end_exploration_block,
    next_exploration_block,
    resume_exploration,
)
from cmdpkit.learners.cl_pri.counts.explore import explore_episodes, learn_path, new_optimism
from cmdpkit.learners.cl_pri.counts.plans import largest_margin_error, repaying_plan
from cmdpkit.learners.cl_pri.counts.play import (
    Block,
    act,
    block_of,
    finish,
    new_ledger,
    play_episodes,
    tries_of,
    with_sample_room,
)
from cmdpkit.learners.cl_pri.counts.saving import Clock, restore, state_of
from cmdpkit.learners.cl_pri.counts.schedule import Timetable
from cmdpkit.learners.cl_pri.counts.steer import control, controls_of, steered
from cmdpkit.learners.cl_pri.settings import CountsParams
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream

KEEPING = 5  # a policy that keeps the actions of the best plan errs with at most such a part of delta


class WithCounts(ClosedLoopPRI):
    """CL-PRI with ``memory="counts"`` at work."""

    params: CountsParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        H, S, A, M = spec.H, spec.S, spec.A, 1 + spec.N
        self.T = 1 if spec.stationary else H
        cells = int(spec.allowed.any(axis=0).sum() if self.T == 1 else spec.allowed.sum())
        self.cells = cells
        self.clock = Clock()
        self.memory, self.episode = new_counts(self.T, S, A, M), new_episode(H, M)
        self.optimism = new_optimism(np.asarray(spec.allowed), M)
        self.ledger = new_ledger(M)
        self.pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)  # the plan
        self.final = self.pi.copy()  # the policy to hand over, once it is fixed
        self.playing = self.pi.copy()  # what the running block plays, deviations left out
        self.explore: BoolArray = np.zeros((H, S, A), dtype=bool)
        self.effect = np.zeros((spec.N, H, S, A))
        self.prices, self.predicted, self.final_utilities = np.zeros(spec.N), np.zeros(spec.N), np.zeros(spec.N)
        self.sd = np.full(M, H / 4)  # of an episode's totals
        self.urge = np.ones((H, S))  # by how much deviations are more frequent where they are cheap, or states rare
        self.weights = np.ones((H, S, A))  # how often each action is tried, beside the others of its state
        self.most = np.zeros((H, S))  # the largest chance of a deviation at a step
        self.chance = np.zeros((H, S))  # of a deviation, in the running block
        self.margin, self.uncovered = np.zeros(spec.N), np.zeros(spec.N)
        self.swept = np.zeros(M)  # totals at the last sweep
        self.shift = np.zeros(spec.N)  # by how much steering can raise the utilities of the plan
        self.surplus = np.zeros(spec.N)  # by how much plans could exceed the bounds at prices that are allowed
        self._block: Block | None = None
        self._proved: tuple[tuple[int, int], Intervals] | None = None  # stage, size of the sample, its certificate
        self._step = 0
        self._prepare_blocks()
        self._read_timetable()
        self.notes = notes_of(self)
        self.clock.check = self.table.next_check(0)
        next_exploration_block(self)

    def _read_timetable(self) -> None:
        """The timetable of the stage that the clock shows."""
        self.table = Timetable.of(self.spec, self.params, self.cells, self.clock.stage, self.clock.explored_before)

    # -- playing -------------------------------------------------------------------------------------------------------

    @property
    def exploring(self) -> bool:
        """Whether the run still explores."""
        return self.clock.explored < 0

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops, block by block."""
        source.check(self.spec)
        out = np.empty((1 + self.spec.N, n))
        done = 0
        while done < n:
            m = min(n - done, self.clock.block_end - self.clock.episode)
            self._make_room(m)
            played = self._play(source, rng, out, done, m)
            done += played
            self._count(played)
        return Returns(out[0], out[1:])

    def _make_room(self, episodes: int) -> None:
        """Room for the transitions of at least one more episode, and for so many episodes of the certificate."""
        self.memory = with_room(self.memory, self.spec.H)
        if self.clock.certifying:
            self.ledger = with_sample_room(self.ledger, episodes)

    def _play(self, source: Source, rng: Stream, out: FloatArray, done: int, m: int) -> int:
        sim, meter, room = source.simulator, source.meter, len(self.memory.link)
        if self.exploring:
            played, new = explore_episodes(
                sim, meter, self.memory, self.optimism, self.episode, rng, out, done, m, room
            )
            for column in out[:, done : done + played].T:
                self.ledger.totals[...] += column
            self.clock.new_cells += int(new)
            return int(played)
        first, certify = bool(self.clock.fresh), bool(self.clock.certifying)
        return int(
            play_episodes(
                sim, meter, self.memory, self._running(), self.ledger, self.episode, rng, out, done, m, room, first,
                certify,
            )
        )  # fmt: skip

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._step = 0
        return self._act(s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Note a step's reward and utilities [1+N], which led to s: the action to take there."""
        self.episode.signals[self._step] = signals
        self._step += 1
        return self._act(s, rng)

    def last(self, signals: FloatArray) -> None:
        """Note the last step's reward and utilities [1+N], and learn from the episode."""
        self.episode.signals[self._step] = signals
        self._make_room(1)
        if self.exploring:
            self.episode.totals[...] = 0.0
            for earned in self.episode.signals:
                self.episode.totals[...] += earned
            self.ledger.totals[...] += self.episode.totals
            self.clock.new_cells += int(learn_path(self.memory, self.optimism, self.episode))
        else:
            finish(self.memory, self._running(), self.ledger, self.episode, bool(self.clock.certifying))
        self._count(1)

    def _act(self, s: int, rng: Stream) -> int:
        h = self._step
        if self.exploring:
            a = int(self.optimism.best[h * self.spec.S + s])
        else:
            a = int(act(self._running(), h, s, self.spec.S, rng))
        self.episode.states[h], self.episode.actions[h] = s, a
        return a

    def _count(self, played: int) -> None:
        """So many episodes were played; at the end of a block, see what comes next."""
        clock = self.clock
        clock.episode += played
        clock.fresh = int(clock.fresh and not played)
        if clock.episode < clock.block_end:
            return
        if self.exploring:
            if end_exploration_block(self):
                self._improve()
        elif self.spec.anytime and clock.episode == self.table.K:
            self._begin_stage()
        elif clock.episode == clock.plan_end:
            self._improve()
        if not self.exploring:
            self._begin_block()

    def _begin_stage(self) -> None:
        """An anytime run goes on: the next stage doubles its length."""
        clock = self.clock
        clock.stage += 1
        clock.explored_before += clock.explored - clock.explored_from
        self._read_timetable()
        if not resume_exploration(self):
            self._improve()

    def _running(self) -> Block:
        """What the running block plays, as the compiled code wants it."""
        if self._block is None:
            self._block = block_of(self.playing, self._tries, self.chance)
        return self._block

    # -- plans ---------------------------------------------------------------------------------------------------------

    def _improve(self) -> None:
        """A new plan from everything seen so far, and what is still worth trying beside it."""
        clock, k = self.clock, self.clock.episode
        self._measure()
        if k == self.table.hand:  # before the next plan, which counts on what this policy brings
            fixed, last = self._planned(self._hand_over_plan)
            self.final[...] = self._completed(fixed, last)
            self.final_utilities[...] = last.utilities
            clock.handed, self.ledger.size[0] = clock.stage, 0
        model, plan = self._planned(self._next_plan)
        clock.plans += 1
        clock.infeasible_last = int(not plan.feasible)
        clock.infeasible += clock.infeasible_last
        self.pi[...], self.predicted[...] = self._completed(model, plan), plan.utilities
        self.prices[...] = plan.prices if plan.feasible else np.clip(1.5 * self.prices, 0.1, MAX_PRICE)
        found = evidence(model, self.pi, self.prices, max(length_of(self), 1.0))
        self.effect[...] = found.reach[None, :, :, None] * found.effect
        self.shift = control(self.pi, self.effect)
        choose_deviations(self, model, found)
        clock.plan_end = self.table.next_plan(k)
        self._prepare_blocks()

    def _prepare_blocks(self) -> None:
        """What all blocks of a plan have in common."""
        self._tries = tries_of(self.explore, self.weights)
        self._tilt = tilt_of(self.effect, self._tries)
        self._controls = controls_of(self.pi, self.effect, self.prices)

    def _planned(self, make: Callable[[Model], Plan]) -> tuple[Model, Plan]:
        """A plan in the estimated model; late in the run it uses no action that was hardly ever tried, if it can."""
        if self.clock.episode >= self.table.freeze:
            model = model_of(self.memory, self.spec.rho, self.spec.allowed, least_observations(self))
            plan = make(model)
            if plan.feasible:
                return model, plan
        model = model_of(self.memory, self.spec.rho, self.spec.allowed, 1)
        return model, make(model)

    def _completed(self, model: Model, plan: Plan) -> FloatArray:
        """The plan, with an optimistic choice in states that the estimated model does not know."""
        pi: FloatArray = np.where(model.known[..., None], plan.pi, np.eye(self.spec.A)[self._optimistic()])
        return pi

    def _optimistic(self) -> NDArray[np.int64]:
        return self.optimism.best.reshape(self.spec.H, self.spec.S).astype(np.int64)

    def _measure(self) -> None:
        """The spread of an episode's totals under the last plan, if it was played often enough to tell."""
        M, recent = 1 + self.spec.N, self.ledger.recent
        n = recent[0]
        if n >= 20:
            mean = recent[1 : 1 + M] / n
            self.sd[...] = np.sqrt(np.maximum(recent[1 + M :] / n - mean**2, 1e-12))
        recent[...] = 0.0

    def _next_plan(self, model: Model) -> Plan:
        """The best plan that meets the bounds and repays what is owed, unless that is dear."""
        settled = self.clock.episode >= self.table.freeze
        found = repaying_plan(model, self.spec.rho, repayment(self), self.params.repay_price, settled=settled)
        self.surplus = found.surplus
        return found.plan

    def _hand_over_plan(self, model: Model) -> Plan:
        """The policy to hand over: within the bounds by a margin for the error of its own prediction."""
        if not self.spec.N:
            return best_plan(model, self.spec.rho)
        delta, different = self.params.delta, different_columns(self.memory.moments[:, 1 : 1 + self.spec.N])
        errors = largest_margin_error(delta, self.table.K), delta / KEEPING
        quantiles = Quantiles(*(error_quantile(error, different) for error in errors))
        found = balanced_plan(model, self.spec.rho, quantiles, self._certificate_width())
        self.margin[...], self.uncovered[...] = found.margin, found.uncovered
        return found.plan

    def _certificate_width(self) -> FloatArray:
        """[N]: the further margin that lets the certificate say that the policy is safe, if that is asked for."""
        if not self.params.certified:
            return np.zeros(self.spec.N)
        planned = (self.table.K - self.table.hand) // 2
        delta = stage_delta(self.params.delta, self.clock.stage, anytime=self.spec.anytime)
        return margin_for_certificate(self.sd[1:], self.spec.H, delta, planned)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _begin_block(self) -> None:
        clock, k, table = self.clock, self.clock.episode, self.table
        if k >= table.K:
            return
        clock.block_end = table.block_end(k, clock.plan_end)
        clock.certifying = int(k >= table.hand and not clock.certifying)
        clock.fresh = 1
        self.chance[...] = deviation_chance(self)
        self.playing[...] = self.final if clock.certifying else self._steered()
        self._block = None

    def _steered(self) -> FloatArray:
        """The plan, shifted so that it makes up for deviations, and what is owed is repaid over the episodes left."""
        rate = affordable(repayment_rate(self), self.prices, self.params.repay_price)
        expected = self.predicted + np.tensordot(self._tilt, self.chance, 2)
        return steered(self.pi, self._controls, self.spec.rho + rate - expected)

    # -- what it has to say --------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, deviations included."""
        spec = self.spec
        if self.exploring:
            greedy: FloatArray = np.eye(spec.A)[self._optimistic()]
            return greedy
        return self._running().pi.reshape(spec.H, spec.S, spec.A).copy()

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to hand over now: the policy that was fixed last, or before that what the counts suggest."""
        if self.exploring and self.clock.handed < 0:
            model = model_of(self.memory, self.spec.rho, self.spec.allowed, 1)
            return self._completed(model, best_plan(model, self.spec.rho))
        pi: FloatArray = self.final if self.clock.handed >= 0 else self.pi
        return pi.copy()

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.optimism.prices[1:].copy() if self.exploring else self.prices.copy()

    def certificate(self) -> Intervals | None:
        """Simultaneous intervals for value and utilities of `recommend()`, in unit scale; None before there are any."""
        n, stage, p = int(self.ledger.size[0]), self.clock.handed, self.params
        if n < 2:
            return None
        if self._proved is None or self._proved[0] != (stage, n):  # a stop rule may ask again before anything is new
            delta = stage_delta(p.delta, stage, anytime=self.spec.anytime)
            planned = Timetable.of(self.spec, p, self.cells, stage).sample_size()
            found = simultaneous(self.ledger.sample[:n], self.spec.H, delta, planned=planned)
            self._proved = (stage, n), found._replace(level=1 - p.delta)  # certificates of all stages together
        return self._proved[1]

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0; see `account`."""
        return phases_of(self)

    def warnings(self) -> tuple[str, ...]:
        """What looks wrong by now; see `doubts`."""
        return warnings_of(self)

    def explain(self) -> dict[str, Any]:
        """The run's account as plain values; see `account`."""
        return account(self)

    # -- saving --------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change, between two episodes."""
        return state_of(self)

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        restore(self, state)
        self.shift = control(self.pi, self.effect)
        self._prepare_blocks()
        self._read_timetable()
        self._block = self._proved = None
