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

Where the world is declared stationary, all steps share their counts (`memory`), and `_counts.homogeneity` warns if the
data contradict the declaration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Returns, Source, Spec, State
from cmdpkit.learners._betting import betting_interval
from cmdpkit.learners._certificate import Intervals, half_width
from cmdpkit.learners._counts.estimate import Evidence, Model, Plan, best_plan, evidence, model_of
from cmdpkit.learners._counts.hand_over import covering_plan
from cmdpkit.learners._counts.memory import new_episode, new_memory, with_room
from cmdpkit.learners._quantiles import error_quantile
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.learners.cl_pri.counts.account import account, notes_of, warnings_of
from cmdpkit.learners.cl_pri.counts.explore import explore_episodes, learn_path, new_optimism, sweep
from cmdpkit.learners.cl_pri.counts.plans import repaying_plan, worth_trying
from cmdpkit.learners.cl_pri.counts.play import Block, Ledger, act, block_of, finish, play_episodes
from cmdpkit.learners.cl_pri.counts.saving import Clock, restore, state_of
from cmdpkit.learners.cl_pri.counts.schedule import SMALLEST_BLOCK, Timetable
from cmdpkit.learners.cl_pri.counts.steer import control, steered
from cmdpkit.learners.cl_pri.settings import CountsParams
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream

NEW_CELLS = 0.03  # of the episodes: exploration ends when it finds fewer new cells than that
MAX_PRICE = 10.0  # during exploration, and where no policy meets the bounds
STEEPEST = 0.02  # of H: the most that a plan is asked to exceed the bounds by to repay a debt
MAX_NOISE_TO_LOSS = 20.0  # by how much deviations are more frequent where they cost little
MAX_DEVIATIONS = 0.5  # per episode
HAND_OVER_LEAST = 3  # observations without which the policy handed over does not use an action
LOOKS = 60  # times that every action is tested in a run, for the error budget of the tests


class WithCounts(ClosedLoopPRI):
    """CL-PRI with ``memory="counts"`` at work."""

    params: CountsParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        H, S, A, M = spec.H, spec.S, spec.A, 1 + spec.N
        self.T = 1 if spec.stationary else H
        cells = int(spec.allowed.any(axis=0).sum() if self.T == 1 else spec.allowed.sum())
        self.cells = cells
        self.table = Timetable.of(spec, self.params, cells)
        self.memory, self.episode = new_memory(self.T, S, A, M), new_episode(H, M)
        self.optimism = new_optimism(np.asarray(spec.allowed), M)
        self.ledger = Ledger(
            totals=np.zeros(M),
            recent=np.zeros(1 + 2 * M),
            sample=np.zeros((self.spec.K - self.table.hand + 1, M)),
            size=np.zeros(1, dtype=np.int64),
        )
        self.clock = Clock(check=self.table.next_check(0))
        self.pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)  # the plan
        self.final = self.pi.copy()  # the policy to hand over, once it is fixed
        self.playing = self.pi.copy()  # what the running block plays, deviations left out
        self.explore: BoolArray = np.zeros((H, S, A), dtype=bool)
        self.effect = np.zeros((spec.N, H, S, A))
        self.prices, self.predicted, self.final_utilities = np.zeros(spec.N), np.zeros(spec.N), np.zeros(spec.N)
        self.sd = np.full(M, H / 4)  # of an episode's totals
        self.loss = np.array([H / 4])
        self.margin, self.uncovered = np.zeros(spec.N), np.zeros(spec.N)
        self.swept = np.zeros(M)  # totals at the last sweep
        self.notes = notes_of(spec, cells, self.table)
        self._block: Block | None = None
        self._step = 0
        self._next_exploration_block()

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
            self.memory = with_room(self.memory, self.spec.H)
            m = min(n - done, self.clock.block_end - self.clock.episode)
            played = self._play(source, rng, out, done, m)
            done += played
            self._count(played)
        return Returns(out[0], out[1:])

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
        self.memory = with_room(self.memory, self.spec.H)
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
            self._end_exploration_block()
        elif clock.episode == clock.plan_end:
            self._improve()
        if not self.exploring:
            self._begin_block()

    def _running(self) -> Block:
        """What the running block plays, as the compiled code wants it."""
        if self._block is None:
            self._block = block_of(self.playing, self.explore, self._coin())
        return self._block

    # -- exploration ---------------------------------------------------------------------------------------------------

    def _next_exploration_block(self) -> None:
        k, table = self.clock.episode, self.table
        self.clock.block_end = min(table.explore, self.clock.check, k + table.sweep - k % table.sweep)

    def _end_exploration_block(self) -> None:
        clock, spec = self.clock, self.spec
        k = clock.episode
        earned = self.ledger.totals - self.swept
        m = k - int(self._swept_at())
        rate = 2 / (spec.H * np.sqrt(self.table.explore))
        prices = self.optimism.prices
        prices[1:] = np.clip(prices[1:] + rate * (m * spec.rho - earned[1:]), 0.0, MAX_PRICE)
        self.swept[...] = self.ledger.totals
        done = False
        if k >= min(clock.check, self.table.explore):
            plan = best_plan(model_of(spec, self.memory, self.T, 1), spec.rho)
            if plan.feasible:
                prices[1:] = np.minimum(plan.prices, MAX_PRICE)
            done = clock.new_cells <= NEW_CELLS * (k - clock.checked) or k >= self.table.explore
            clock.checked, clock.new_cells = k, 0
            clock.check = self.table.next_check(k)
        sweep(self.memory, self.optimism)
        if done:
            clock.explored = k
            self.prices[...] = prices[1:]
            self._improve()
        else:
            self._next_exploration_block()

    def _swept_at(self) -> int:
        """The episode of the last sweep: blocks of exploration end with one each."""
        k, table = self.clock.episode, self.table
        ends = [0, self.clock.checked, (k - 1) // table.sweep * table.sweep]
        return max(x for x in ends if x < k)

    # -- plans ---------------------------------------------------------------------------------------------------------

    def _improve(self) -> None:
        """A new plan from everything seen so far, and what is still worth trying beside it."""
        clock, k = self.clock, self.clock.episode
        self._measure()
        model, plan = self._planned(self._next_plan)
        if k == self.table.hand:
            fixed, last = self._planned(self._hand_over_plan)
            self.final[...] = self._completed(fixed, last)
            self.final_utilities[...] = last.utilities
        clock.plans += 1
        clock.infeasible_last = int(not plan.feasible)
        clock.infeasible += clock.infeasible_last
        self.pi[...], self.predicted[...] = self._completed(model, plan), plan.utilities
        self.prices[...] = plan.prices if plan.feasible else np.clip(1.5 * self.prices, 0.1, MAX_PRICE)
        found = evidence(model, self.pi, self.prices)
        self.effect[...] = found.reach[None, :, :, None] * found.effect
        self._choose_deviations(model, found)
        clock.plan_end = self.table.next_plan(k)

    def _planned(self, make: Callable[[Model], Plan]) -> tuple[Model, Plan]:
        """A plan in the estimated model; late in the run it uses no action that was hardly ever tried, if it can."""
        if self.clock.episode >= self.table.freeze:
            model = model_of(self.spec, self.memory, self.T, HAND_OVER_LEAST)
            plan = make(model)
            if plan.feasible:
                return model, plan
        model = model_of(self.spec, self.memory, self.T, 1)
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

    def _owed(self) -> FloatArray:
        """[N]: what is short by now, with a margin for what the last blocks may bring."""
        k, left = self.clock.episode, self.spec.K - self.clock.episode
        sd = self.sd[1:]
        gain = np.maximum(control(self.playing, self.effect), 1e-12)
        worst = np.minimum((1.5 * sd / gain) ** 2, max(left, 0))
        helpless = np.maximum(3 * sd * np.sqrt(worst) - gain * worst, 0.0) * (gain > 1e-9)
        owed: FloatArray = k * self.spec.rho - self.ledger.totals[1:] + 3 * sd * np.sqrt(2 * SMALLEST_BLOCK)
        late: FloatArray = owed + min(1.0, 4 * k / self.spec.K) * helpless
        return late

    def _next_plan(self, model: Model) -> Plan:
        """The best plan that meets the bounds and repays what is owed, unless that is dear."""
        spec = self.spec
        return repaying_plan(model, spec.rho, np.clip(self._rate(self.clock.episode), 0.0, STEEPEST * spec.H))

    def _hand_over_plan(self, model: Model) -> Plan:
        """The policy to hand over: within the bounds by a margin for the error of its own prediction."""
        if not self.spec.N:
            return best_plan(model, self.spec.rho)
        z = error_quantile(self.params.delta / 3, self.spec.N)
        found = covering_plan(model, self.spec.rho, z, self._certificate_width())
        self.margin[...], self.uncovered[...] = found.margin, found.uncovered
        return found.plan

    def _certificate_width(self) -> FloatArray:
        """[N]: the further margin that lets the certificate say that the policy is safe, if that is asked for."""
        if not self.params.certified:
            return np.zeros(self.spec.N)
        n = max((self.spec.K - self.table.hand) // 2, 2)
        part = self.params.delta / (1 + self.spec.N)
        return np.array([2 * half_width(n, float(sd) ** 2, float(self.spec.H), part) for sd in self.sd[1:]])

    def _choose_deviations(self, model: Model, found: Evidence) -> None:
        """Which actions are worth trying beside the plan in the episodes that are left."""
        spec, left = self.spec, self.spec.K - self.clock.episode
        shape = (spec.H, spec.S, spec.A)
        seen = np.broadcast_to(self.memory.moves.reshape(self.T, spec.S, spec.A), shape).astype(float)
        seen[-1] = np.broadcast_to(self.memory.visits.reshape(self.T, spec.S, spec.A), shape)[-1]
        z = error_quantile(self.params.delta, self.cells * LOOKS)
        chosen = worth_trying(model, found, seen, self._visit_share(), left, self._noise(), z)
        self.explore[...] = chosen.worth & spec.allowed & (self.pi == 0)
        self.loss[0] = chosen.loss

    def _noise(self) -> float:
        """The spread of an episode's total at the present prices, at most."""
        return float(np.sqrt((np.append(1.0, self.prices) ** 2) @ self.sd**2))

    def _visit_share(self) -> FloatArray:
        """[H, S]: how often an episode so far came there; where steps share their counts, an average over them."""
        per_state = self.memory.visits.reshape(self.T, self.spec.S, self.spec.A).sum(axis=-1)
        share: FloatArray = per_state / max(self.clock.episode, 1) / (self.spec.H if self.T == 1 else 1)
        return np.broadcast_to(share, (self.spec.H, self.spec.S))

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _begin_block(self) -> None:
        clock, k, table = self.clock, self.clock.episode, self.table
        if k >= table.K:
            return
        size = table.block(k)
        clock.block_end = min(k + size, clock.plan_end, table.K)
        clock.certifying = int(k >= table.hand and not clock.certifying)
        clock.fresh = 1
        self.playing[...] = self.final if clock.certifying else self._steered(k)
        self._block = None

    def _steered(self, k: int) -> FloatArray:
        """The plan, shifted so that what is owed is repaid over the episodes left."""
        return steered(self.pi, self.effect, self.prices, self.spec.rho + self._rate(k) - self.predicted)

    def _rate(self, k: int) -> FloatArray:
        """[N]: by how much episodes that are steered must exceed the bounds, to repay what is owed by the end."""
        owed, left = self._owed(), float(self.spec.K - k)
        if k >= self.table.hand:  # every other block plays the policy that is handed over
            left = left / 2
            owed = owed - left * (self.final_utilities - self.spec.rho)
        rate: FloatArray = owed / max(left, 1)
        return rate

    def _coin(self) -> float:
        """Chance of a deviation per step: more while losses are small beside the noise, less and less in time."""
        k = self.clock.episode
        if k >= self.table.freeze or not self.explore.any():
            return 0.0
        worth = min(max(self._noise() / max(float(self.loss[0]), 1e-9), 1.0), MAX_NOISE_TO_LOSS)
        per_episode = self.params.deviations * worth * np.sqrt(self.cells / max(k, 1))
        return float(min(MAX_DEVIATIONS, per_episode) / self.spec.H)

    # -- what it has to say --------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, deviations included."""
        spec = self.spec
        if self.exploring:
            greedy: FloatArray = np.eye(spec.A)[self._optimistic()]
            return greedy
        return self._running().pi.reshape(spec.H, spec.S, spec.A).copy()

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to hand over now."""
        if self.exploring:
            model = model_of(self.spec, self.memory, self.T, 1)
            plan = best_plan(model, self.spec.rho)
            return self._completed(model, plan)
        pi: FloatArray = self.final if self.clock.episode >= self.table.hand else self.pi
        return pi.copy()

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.optimism.prices[1:].copy() if self.exploring else self.prices.copy()

    def certificate(self) -> Intervals | None:
        """Simultaneous intervals for value and utilities of `recommend()`, in unit scale; None before there are any."""
        n = int(self.ledger.size[0])
        if n < 2:
            return None
        H, M, delta = self.spec.H, 1 + self.spec.N, self.params.delta
        ends = [betting_interval(self.ledger.sample[:n, m] / H, delta / M) for m in range(M)]
        return Intervals(1 - delta, n, tuple((H * low, H * high) for low, high in ends))

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        found = [("exploration", 0)]
        if self.clock.explored >= 0:
            found += [("improvement", self.clock.explored)]
        return (*found, ("settling", self.table.freeze), ("certification", self.table.hand))

    def warnings(self) -> tuple[str, ...]:
        """What looks wrong by now; see `account`."""
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
        self._block = None
