"""CL-PRI with episodes: the loop of the module's docstring, its timetable, and what it has to say about a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.alike import steps_warning
from cmdpkit.estimate.counts import Counts, new_counts, new_episode, signal_means, with_room
from cmdpkit.estimate.intervals import Intervals, margin_for_certificate, simultaneous
from cmdpkit.estimate.model import Model, best_plan, model_of
from cmdpkit.exact.sources import Horizon
from cmdpkit.learners import Returns, Source, Spec, State
from cmdpkit.learners._certifying import certifier_of, proved
from cmdpkit.learners._closed_loop import Account, Timetable
from cmdpkit.learners._note import Note
from cmdpkit.learners.cl_pri import (
    Beside,
    ClosedLoopParams,
    ClosedLoopPRI,
    handed_over,
    repaying_plan,
    spread,
    tries,
)
from cmdpkit.learners.cl_pri.play import (
    Ledger,
    draw,
    explore_episodes,
    finish,
    learn_path,
    new_block,
    new_optimism,
    play_episodes,
    sweep,
)
from cmdpkit.model.evaluate import flow
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

SAME = 1e-12  # rewards, and totals per episode, that differ by less are the same
PREDICTED = 1e-9  # shortfalls up to this in what a linear program predicts are rounding
FEW_TRIES = 2  # episodes of exploration per cell below which a run is called short
DEAR = 20.0  # a price above this, in unit scale, is worth a word
SHOWN = 5  # decisions that are listed in an account
REACHED = 1e-3  # of the episodes: decisions in states that are reached less often are not listed
GROWING = ("counts/link", "counts/state", "counts/times", "ledger/sample")  # parts of a state that grow during a run

COUNTS_SHARE = 0.25  # of delta: for intervals of counts; the sample of the policy handed over has the rest


def timetable(spec: Spec, p: ClosedLoopParams, stage: int = 0, explored: int = 0) -> Timetable:
    """The timetable of a stage (from 0), before which `explored` episodes of exploration were played."""
    start, K = spec.K << (stage - 1) if stage else 0, spec.K << stage
    explore = start + max(max(1, int(p.exploration_share * K)) - explored, 0)
    if stage:
        explore = max(start, min(explore, math.floor(p.freeze * K)))
    hand = max(explore, math.floor(p.hand_over * K))
    return Timetable(start, K, explore, min(hand, max(explore, math.ceil(p.freeze * K))), hand, p.growth)


@dataclass
class Clock:
    """Where a run stands."""

    episode: int = 0  # episodes played
    block_end: int = 0  # the episode at which the running block ends
    swept: int = 0  # exploration: the episode of the last sweep
    check: int = 0  # exploration: the episode at which it is looked at next
    checked: int = 0  # exploration: the episode at which it was looked at last
    new_cells: int = 0  # exploration: cells found since then
    all_found: bool = False  # whether exploration ended because it found hardly anything new
    explored: int = -1  # the episode at which the exploration of this stage ended, -1 while it goes on
    explored_from: int = 0  # the episode at which it began
    explored_before: int = 0  # episodes of exploration in earlier stages
    stage: int = 0  # of an anytime run
    plans: int = 0  # plans made
    infeasible: int = 0  # plans that could not meet the bounds in the estimated model
    infeasible_last: bool = False  # whether the last plan was one of them
    certifying: bool = False  # whether the running block is a sample for the certificate
    handed: int = -1  # the stage in which a policy to hand over was fixed last, -1 if there is none yet


class Episodes(ClosedLoopPRI):
    """CL-PRI at work in a world with episodes; `ClosedLoopPRI` makes one where the spec has a horizon."""

    fixed = (*ClosedLoopPRI.fixed, "T", "cells", "table", "episode", "_step", "_proved", "certifier", "_safe")

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        H, S, A, M, p = spec.H, spec.S, spec.A, 1 + spec.N, self.params
        self.T = 1 if spec.stationary else H
        self.cells = int(spec.allowed.any(axis=0).sum() if self.T == 1 else spec.allowed.sum())
        self.table = timetable(spec, p)
        self.clock = Clock()
        self.counts, self.episode = new_counts(self.T, S, A, M), new_episode(H, M)
        self.optimism = new_optimism(np.asarray(spec.allowed), M, (p.optimism, p.curiosity, p.pseudo))
        self.ledger = Ledger(np.zeros(M), np.zeros((0, M)), np.zeros(1, dtype=np.int64))
        self.swept = np.zeros(M)  # totals at the last sweep
        self.pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)  # the plan
        self.final = self.pi.copy()  # the policy to hand over, once it is fixed
        self.block = new_block(self.pi, np.zeros((H, S, A), dtype=np.int64), self.counts.visits)
        self.prices, self.predicted, self.final_utilities = np.zeros(spec.N), np.zeros(spec.N), np.zeros(spec.N)
        self.margin, self.uncovered = np.zeros(spec.N), np.zeros(spec.N)
        self._step = 0
        self._proved: tuple[tuple[int, int], Intervals] | None = None  # stage, size of the sample, its intervals
        self.certifier = certifier_of(spec, COUNTS_SHARE * p.delta)
        self._safe: tuple[int, FloatArray | None] = -1, None  # episode, and the policy that is proved safe then
        few = not spec.anytime and self.table.explore < FEW_TRIES * self.cells
        self.notes = (self._short_run(spec.K),) if few else ()
        self._continue_exploration()

    # -- playing -------------------------------------------------------------------------------------------------------

    @property
    def exploring(self) -> bool:
        """Whether the run still explores."""
        return self.clock.explored < 0

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops, block by block."""
        source.check(self.spec)
        out, done = np.empty((1 + self.spec.N, n)), 0
        while done < n:
            m = min(n - done, self.clock.block_end - self.clock.episode)
            self._make_room(m)
            world, to = (source.simulator, source.meter), (rng, out, done, m, len(self.counts.link))
            if self.exploring:
                found = explore_episodes(*world, self.counts, self.optimism, self.ledger, self.episode, *to)
                played, self.clock.new_cells = int(found[0]), self.clock.new_cells + int(found[1])
            else:
                at = self.counts, self.block, self.ledger, self.episode
                played = int(play_episodes(*world, *at, *to, self.clock.certifying))
            done += played
            self._count(played)
        return Returns(out[0], out[1:])

    def _make_room(self, episodes: int) -> None:
        """Room for the transitions of at least one more episode, and for so many episodes of the certificate."""
        self.counts = with_room(self.counts, self.spec.H)
        missing = int(self.ledger.size[0]) + episodes - len(self.ledger.sample)
        if self.clock.certifying and missing > 0:
            more = np.zeros((max(missing, len(self.ledger.sample)), 1 + self.spec.N))
            self.ledger = self.ledger._replace(sample=np.concatenate((self.ledger.sample, more)))

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
            self.clock.new_cells += int(learn_path(self.counts, self.optimism, self.ledger, self.episode))
        else:
            finish(self.counts, self.block, self.ledger, self.episode, self.clock.certifying)
        self._count(1)

    def _act(self, s: int, rng: Stream) -> int:
        i = self._step * self.spec.S + s
        a = int(self.optimism.best[i]) if self.exploring else int(draw(self.block, i, rng))
        self.episode.states[self._step], self.episode.actions[self._step] = s, a
        return a

    def _count(self, played: int) -> None:
        """So many episodes were played; at the end of a block, see what comes next."""
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

    # -- exploration ---------------------------------------------------------------------------------------------------

    def _continue_exploration(self) -> None:
        """Explore until the next sweep, or until exploration is looked at."""
        clock, p, k = self.clock, self.params, self.clock.episode
        if k == clock.checked:
            clock.check = min(self.table.explore, k + max(p.look, math.ceil(p.widen * k)))
        clock.block_end = min(clock.check, k + p.look)

    def _sweep(self) -> None:
        """Correct the prices and all values after a block of exploration, and see whether it has found enough."""
        clock, p, k, prices = self.clock, self.params, self.clock.episode, self.optimism.prices
        debt = (k - clock.swept) * self.spec.rho - (self.ledger.totals - self.swept)[1:]
        rate = p.rate / (self.spec.H * math.sqrt(self.table.explore - self.table.start))
        prices[1:] = np.clip(prices[1:] + rate * debt, 0.0, p.price)
        clock.swept, self.swept[...] = k, self.ledger.totals
        if k == clock.check and self._has_found_enough():
            clock.explored = k
            self.prices[...] = prices[1:]
        sweep(self.counts, self.optimism)
        if self.exploring:
            self._continue_exploration()

    def _has_found_enough(self) -> bool:
        """Take the prices of the estimated model, if it can meet the bounds; returns whether exploration has ended.

        It does not end early while all rewards are equal: what earns another one may be deeper in the world.
        """
        clock, p, k = self.clock, self.params, self.clock.episode
        plan = best_plan(self._model(1), self.spec.rho)
        if plan.feasible:
            self.optimism.prices[1:] = np.minimum(plan.prices, p.price)
        clock.all_found = clock.new_cells <= p.new_cells * (k - clock.checked) and not self._is_blind()
        clock.checked, clock.new_cells = k, 0
        enough = clock.explored_before + k - clock.explored_from >= p.exploration * self.cells
        return k >= self.table.explore or clock.all_found or (enough and not self._is_blind())

    def _is_blind(self) -> bool:
        """Whether every step so far earned the same reward."""
        earned = signal_means(self.counts, 1 + self.spec.N)[self.counts.visits > 0, 0]
        return len(earned) > 0 and bool(np.ptp(earned) < SAME)

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
        clock.explored, clock.checked, clock.new_cells, clock.swept = -1, k, 0, k
        self.optimism.prices[1:] = np.minimum(self.prices, self.params.price)
        self.swept[...] = self.ledger.totals
        sweep(self.counts, self.optimism)
        self._continue_exploration()

    def _timetable(self) -> Timetable:
        """The timetable of the stage that the clock shows."""
        return timetable(self.spec, self.params, self.clock.stage, self.clock.explored_before)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def _begin_block(self) -> None:
        """Make the next plan, or let the policy to hand over play a block for its certificate."""
        clock, k = self.clock, self.clock.episode
        if k >= self.table.hand and clock.handed < clock.stage:
            self._hand_over()
        clock.block_end = self.table.block_end(k)
        clock.certifying = k >= self.table.hand and not clock.certifying
        quota = np.zeros(self.pi.shape, dtype=np.int64) if clock.certifying else self._plan()
        self.block = new_block(self.final if clock.certifying else self.pi, quota, self.counts.visits)

    def _model(self, least: int) -> Model:
        """The model that the counts suggest, of actions with at least so many observations."""
        return model_of(self.counts, self.spec.rho, np.asarray(self.spec.allowed), least)

    def _models(self) -> Iterator[Model]:
        """Models to plan in, one after the other as long as none meets the bounds."""
        if self.clock.episode >= self.table.freeze:
            yield self._model(self.params.least)
        yield self._model(1)

    def _plan(self) -> NDArray[np.int64]:
        """A new plan from everything seen so far; returns up to how many visits actions are tried beside it."""
        clock, p, spec, k = self.clock, self.params, self.spec, self.clock.episode
        settled = k >= self.table.freeze
        final = self.final_utilities - spec.rho if k >= self.table.hand else None
        account = Account(k * spec.rho - self.ledger.totals[1:], self.table.K - k, final)
        for model in self._models():
            plan, spare = repaying_plan(model, spec.rho, account, p, settled=settled)
            if plan.feasible:
                break
        clock.plans += 1
        clock.infeasible_last = not plan.feasible
        clock.infeasible += clock.infeasible_last
        pi = plan.pi
        if plan.feasible:
            self.prices[...] = plan.prices
        elif not settled:  # no policy seems to meet the bounds: look for one, at rising prices
            self.prices[...] = np.clip(2 * self.prices, 2 * p.extra, p.price)
            pi = np.eye(spec.A)[Horizon(model.cmdp).greedy(np.append(1.0, self.prices))[1].astype(int)]
        self.pi[...], self.predicted[...] = self._completed(model, pi), plan.utilities
        if settled:
            return np.zeros(pi.shape, dtype=np.int64)
        return tries(model, np.asarray(spec.allowed), Beside(self.pi, self.prices, spare, k, self.table.K), p)

    def _completed(self, model: Model, pi: FloatArray) -> FloatArray:
        """The plan, with an optimistic choice in states that the estimated model does not know."""
        completed: FloatArray = np.where(model.known[..., None], pi, self._optimistic())
        return completed

    def _optimistic(self) -> FloatArray:
        """[H, S, A]: the policy of exploration."""
        greedy: FloatArray = np.eye(self.spec.A)[self.optimism.best.reshape(self.spec.H, self.spec.S).astype(np.int64)]
        return greedy

    def _hand_over(self) -> None:
        """Fix the policy to hand over, and begin its sample."""
        p, rho = self.params, self.spec.rho
        z = NormalDist().inv_cdf(1 - p.delta)
        for model in self._models():
            extra = np.zeros(self.spec.N)
            if p.certified:  # a further margin lets the certificate say that the policy is safe
                delta, planned = self._stage_delta(self.clock.stage), self.table.sample_size()
                extra = margin_for_certificate(spread(model, self.pi), self.spec.H, delta, planned)
            found = handed_over(model, rho, extra, p.missed, z)
            if found.plan.feasible:
                break
        self.final[...], self.final_utilities[...] = self._completed(model, found.plan.pi), found.plan.utilities
        self.margin[...], self.uncovered[...] = found.margin, found.uncovered
        self.clock.handed, self.ledger.size[0] = self.clock.stage, 0

    # -- what it has to say --------------------------------------------------------------------------------------------

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays, tries included."""
        return self._optimistic() if self.exploring else self.block.pi.reshape(self.pi.shape).copy()

    def counted(self) -> Counts:
        """What was counted so far."""
        return self.counts

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to hand over now: the policy that was fixed last, or before that what the counts suggest.

        With `certified`, it is the policy that the counts prove to be safe, if that has the larger proved value.
        """
        safe = self._safe_policy() if self.params.certified else None
        return self._chosen() if safe is None else safe

    def _chosen(self) -> FloatArray:
        """The policy that was fixed last, or before that what the counts suggest."""
        if self.exploring and self.clock.handed < 0:
            model = self._model(1)
            return self._completed(model, best_plan(model, self.spec.rho).pi)
        pi: FloatArray = self.final if self.clock.handed >= 0 else self.pi
        return pi.copy()

    @property
    def multipliers(self) -> FloatArray:
        """lam [N], the price in reward that is put on each utility now."""
        return self.optimism.prices[1:].copy() if self.exploring else self.prices.copy()

    def certificate(self) -> Intervals | None:
        """What is proved about `recommend()`, in unit scale, at all times at once with probability 1 - delta.

        The counts have a part of delta, and the sample of the policy that was fixed last has the rest.
        """
        pi = self.recommend()
        sample = self._sample() if np.array_equal(pi, self.final) else None
        found = proved(self.certifier, self.counts, pi, sample)
        return None if found is None else found._replace(level=1 - self.params.delta)

    def _sample(self) -> Intervals | None:
        """Intervals from episodes of the policy that was fixed last; None before there are any.

        The policy is fixed before the first of these episodes, and which episodes belong to the sample depends on their
        numbers alone. Bets are made for a number of episodes that is known in advance, so the intervals hold whenever
        the run is stopped, and for all stages together.
        """
        n, stage = int(self.ledger.size[0]), self.clock.handed
        if n < 2:
            return None
        if self._proved is None or self._proved[0] != (stage, n):  # a stop rule may ask again before anything is new
            planned = timetable(self.spec, self.params, stage).sample_size()
            found = simultaneous(self.ledger.sample[:n], self.spec.H, self._stage_delta(stage), planned=planned)
            self._proved = (stage, n), found
        return self._proved[1]

    def _safe_policy(self) -> FloatArray | None:
        """A policy that the counts prove to be safe, unless what would be handed over has a better certificate."""
        if self._safe[0] == self.clock.episode:
            return self._safe[1]
        pi, sample = self._chosen(), self._sample() if self.clock.handed >= 0 else None
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
        delta = (1 - COUNTS_SHARE) * self.params.delta
        return delta / ((stage + 1) * (stage + 2)) if self.spec.anytime else delta

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes; an anytime run names its stages, and what has begun of one."""
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
        clock, table, rho, anytime = self.clock, self.table, self.spec.rho, self.spec.anytime
        said: list[str | Note] = []
        if clock.infeasible_last and (clock.episode >= table.freeze or anytime):
            said += [Note("no plan for a bound", n, by=by) for n, by in _above(rho - self.predicted, PREDICTED)]
        if clock.handed >= 0:
            said += [Note("not cleared", n, by=by) for n, by in _above(self.uncovered, PREDICTED)]
        if clock.episode >= table.K or (anytime and clock.episode):
            most = self.params.repay_price
            for n, by in _above(rho - self.ledger.totals[1:] / clock.episode, SAME):
                price = float(self.prices[n])
                kind = "exploration not repaid" if price <= most else "too dear to repay"
                said.append(Note(kind, n, by=by, price=price))
            dear = np.where(self.prices <= most, self.prices, 0.0)
            said += [Note("repaid dearly", n, price=x) for n, x in _above(dear, DEAR)]
        return (*said, *self._too_little_seen(), *(steps_warning(self.counts.halves) if self.T == 1 else ()))

    def _too_little_seen(self) -> list[str]:
        """Whether the episodes were too few to see what the problem has to offer."""
        clock, p, said = self.clock, self.params, []
        if self._is_blind():
            said.append(
                f"every step of {clock.episode:,} episodes earned the same reward: unless no action ever earns another "
                "one, what does was never reached, and the problem is unsolved; more episodes may reach it"
            )
        if self.spec.anytime and clock.episode * p.exploration_share < FEW_TRIES * self.cells:
            said.append(self._short_run(clock.episode))
        elif not self.notes and not self.exploring and not clock.all_found:
            missing = self.cells - int((self.counts.visits > 0).sum())
            said.append(
                f"exploration had to end after {clock.explored:,} episodes while it still found new actions, and "
                f"{missing:,} of {self.cells:,} were never tried: more episodes, or a larger exploration_share, would "
                "help"
            )
        return said

    def _short_run(self, episodes: int) -> str:
        """The sentence that a run is short for its problem, and how long it should be."""
        enough = math.ceil(FEW_TRIES * self.cells / self.params.exploration_share)
        cells = "(state, action) pairs" if self.T == 1 else "(step, state, action) triples"
        return (
            f"{episodes:,} episodes are few for {self.cells:,} {cells}: they cannot all be tried, and the policy may "
            f"be far from the best; at least {enough:,} episodes would help"
        )

    def explain(self) -> dict[str, Any]:
        """The run as plain values. States and actions are given by index, totals in unit scale."""
        clock, pi, cmdp = self.clock, self.recommend(), self._model(1).cmdp
        reach = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu).sum(axis=-1)
        visits = self.counts.visits.reshape(self.T, self.spec.S, self.spec.A)
        end = clock.episode if self.exploring else clock.explored
        return {
            "counts": "shared by all steps" if self.T == 1 else "kept per step",
            "cells seen": f"{int((visits > 0).sum())} of {self.cells}",
            "states reached": f"{int(visits.any(axis=(0, 2)).sum())} of {self.spec.S}",
            "transitions seen": int(self.counts.used[0]),
            "episodes of exploration": clock.explored_before + end - clock.explored_from,
            "plans": clock.plans,
            "plans that could not meet the bounds": clock.infeasible,
            "margin of the policy handed over, unit scale": self.margin.round(6).tolist(),
            "stochastic decisions": _drawn(pi, reach),
            "actions in use that were tried least": _least_tried(visits, pi, reach),
        }

    # -- saving --------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of everything that changes, between two episodes; of arrays with room to grow, what is in use."""
        found = super().state()
        used, size = int(self.counts.used[0]), int(self.ledger.size[0])
        return found | {name: found[name][: size if name == "ledger/sample" else used] for name in GROWING}

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        counts, ledger = self.counts, self.ledger
        lengths = [len(state[name]) if name in state else 0 for name in GROWING]
        if len({*lengths[:3]}) > 1:
            raise CmdpkitError(f"the arrays {', '.join(GROWING[:3])} of the state differ in length: {lengths[:3]}")
        for name, n in zip(GROWING, lengths, strict=True):
            part, field = name.split("/")
            owner = getattr(self, part)
            room = np.zeros((n, *getattr(owner, field).shape[1:]), getattr(owner, field).dtype)
            setattr(self, part, owner._replace(**{field: room}))
        try:
            super().restore(state)
        except CmdpkitError:
            self.counts, self.ledger = counts, ledger
            raise
        self.table, self._proved, self._safe = self._timetable(), None, (-1, None)


def _above(x: FloatArray, least: float) -> list[tuple[int, float]]:
    """Index and value of every entry above a limit."""
    return [(int(n), float(x[n])) for n in np.flatnonzero(x > least)]


def _drawn(pi: FloatArray, reach: FloatArray) -> list[dict[str, Any]]:
    """The decisions that draw, in states that are reached."""
    drawn = ((pi > 0).sum(axis=-1) > 1) & (reach > REACHED)
    return [
        {"step": int(h) + 1, "state index": int(s), "action index": int(a), "probability": float(pi[h, s, a])}
        for h, s in np.argwhere(drawn)
        for a in np.flatnonzero(pi[h, s])
    ]


def _least_tried(visits: NDArray[np.int64], pi: FloatArray, reach: FloatArray) -> list[dict[str, Any]]:
    """What the policy rests on least: the actions that it uses and that were taken most rarely.

    Where all steps share their counts visits [T, S, A], a pair is named once.
    """
    used, T = (pi > 0) & (reach > REACHED)[..., None], len(visits)
    times = np.broadcast_to(visits, pi.shape)
    chosen: dict[tuple[int, ...], dict[str, Any]] = {}
    for h, s, a in np.argwhere(used)[np.argsort(times[used], kind="stable")]:
        place = {"state index": int(s), "action index": int(a), "times tried": int(times[h, s, a])}
        chosen.setdefault((h % T, s, a), place if T == 1 else {"step": int(h) + 1, **place})
        if len(chosen) == SHOWN:
            break
    return list(chosen.values())
