"""Pruning: which actions the optimum does not need, found by running a base learner again and again.

There are two ways to find out. *Usage*: after several fresh base runs, an action that most of them rarely used is
removed. *Comparison*: an action a at (h, s) that usage has left is put to two tests, Compare(D, D without a) and
Compare(D, D with a alone at (h, s)), each of which is decided by a majority of votes. If the smaller set is as good, it
becomes D. An action that passes neither test is part of a stochastic decision. If there are several optimal solutions,
one of them survives, because as long as D holds two of them some action can be spared.

This is Algorithms 2 and 3 of arXiv 2309.15395. With `literal_tests` (preset "theory") tests are made as printed: in the
order of steps, states and actions, "without" before "alone", all votes are cast, and half of them suffice. A vote is a
call of Compare, which itself takes the majority of its `trials`. Otherwise (preset "printed") the least used actions
are tested first, "alone" comes first for an action that is used more than half the time, where two actions are left the
second is not tested because its tests are those of the first, and voting ends once its outcome is certain.

What the pseudo-code leaves undefined is decided so in both presets: no set is ever emptied, and the most used action
stays; decisions with a single action are not tested; pruning ends when its episodes are used up. All departures are
listed in reproduction/departures.py.

The published grid run ends a comparison early when the smaller set's regret or violation has grown large; how large is
not printed. Here it is as large as a run over the whole length may make it and still pass, plus what the run with all
of D lost while it was learning. Both are counted from the first episode on, burn-in included.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Learner, Source, Spec, State
from cmdpkit.learners.contract import Saved
from cmdpkit.learners.pri.presets import PRIParams, base_learner, within
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.policies import conditional
from cmdpkit.simulate.random import Stream

DROP, ALONE = 0, 1  # kinds of test
USAGE, REFERENCE, REDUCED, DONE = range(4)  # what the running base run is for
NO_SHARE = np.zeros(1)  # of the visits of an (h, s) where there were none
TEST_COLUMNS = ("step", "state", "action", "kind", "yes", "no", "passed", "reference", "value", "margin", "episode")


# -- Tallies [2, 1+N]: how many returns of reward and utilities, and their sum.

COUNT, SUM = 0, 1


def means(tally: FloatArray) -> FloatArray:
    """[1+N]: average reward and utilities, zero before the first episode that counts."""
    average: FloatArray = tally[SUM] / np.maximum(tally[COUNT], 1.0)
    return average


def empty_tally(N: int) -> FloatArray:
    """Where nothing was earned yet."""
    return np.zeros((2, 1 + N))


def add_up(returns: FloatArray, tally: FloatArray) -> None:
    """Add returns [1+N, n] to a tally, one after the other, so that the bits do not depend on how a run is cut."""
    tally[COUNT] += returns.shape[1]
    tally[SUM] = np.cumsum(np.column_stack((tally[SUM], returns)), axis=1)[:, -1]


# -- What is decided from arrays alone.


def underused(usage: FloatArray, p: PRIParams) -> BoolArray:
    """Which actions [H, S, A] have at most count_min uses plus a share use_min of the visits of their (h, s).

    All actions of an (h, s) that at most a share reach_min of the episodes reached count as under-used too: a base
    learner that went there only to explore says nothing about the optimum.
    """
    visits = usage.sum(axis=-1, keepdims=True)
    episodes = visits.sum(axis=1, keepdims=True)
    few: BoolArray = (usage <= p.count_min + p.use_min * visits) | (visits <= p.reach_min * episodes)
    return few


def survivors(D: BoolArray, under: IntArray, quorum: int, use: FloatArray) -> BoolArray:
    """D without the actions that were under-used in `quorum` runs; the most used of a (h, s) always stays.

    >>> D, use = np.ones((1, 2, 2), dtype=bool), np.array([[[9.0, 1.0], [0.0, 0.0]]])
    >>> survivors(D, np.array([[[0, 3], [3, 3]]]), 2, use).tolist()
    [[[True, False], [True, False]]]
    """
    kept = D & (under < quorum)
    most = np.where(D, use, -1.0).argmax(axis=-1)
    empty = np.argwhere(~kept.any(axis=-1))
    for h, s in empty:
        kept[h, s, most[h, s]] = True
    return kept


def next_test(D: BoolArray, flagged: BoolArray, use: FloatArray) -> tuple[int, int, int] | None:
    """The action to test next, or None if there is none.

    It is the least used action that was not tested yet, among those of decisions with several actions; the first of
    them where `use` is the same for all.
    """
    open_ = D & ~flagged & (D.sum(axis=-1, keepdims=True) > 1)
    if not open_.any():
        return None
    h, s, a = np.unravel_index(np.where(open_, conditional(use, NO_SHARE), np.inf).argmin(), D.shape)
    return int(h), int(s), int(a)


def first_kind(share: float) -> int:
    """Which of the two tests of an action comes first, given its share of the uses."""
    return ALONE if share > 0.5 else DROP


class Votes(NamedTuple):
    """Votes cast so far, of a fixed number."""

    yes: int
    no: int

    def outcome(self, number: int, literal: bool) -> bool | None:
        """Whether enough are in favour, None while that is open.

        Literally, all are cast and half of them suffice. Otherwise more than half are needed, and voting ends as soon
        as the rest cannot change the outcome.

        >>> Votes(2, 2).outcome(4, literal=True), Votes(2, 2).outcome(4, literal=False)
        (True, False)
        >>> Votes(3, 0).outcome(4, literal=True), Votes(3, 0).outcome(4, literal=False)
        (None, True)
        """
        needed = (number + 1) // 2 if literal else number // 2 + 1
        if literal and self.yes + self.no < number:
            return None
        if self.yes >= needed:
            return True
        return False if self.no > number - needed else None


def reduced(D: BoolArray, at: tuple[int, int, int], kind: int) -> BoolArray:
    """D without the action, or with it alone at its (h, s)."""
    h, s, a = at
    smaller = D.copy()
    if kind == ALONE:
        smaller[h, s] = False
    smaller[h, s, a] = kind == ALONE
    return smaller


def verdict(reference: FloatArray, tally: FloatArray, rho: FloatArray, p: PRIParams) -> bool:
    """Compare's answer by the averages alone: the smaller set (tally) earns as much as D (reference) and meets rho."""
    mean = means(tally)
    lost = float(means(reference)[0] - mean[0])
    as_good = (abs(lost) if p.two_sided else lost) <= p.tol_value
    return as_good and bool((mean[1:] >= rho - p.tol_utility).all())


def losses(target: FloatArray, whole: FloatArray) -> FloatArray:
    """[1+N]: by how much all returns of a run so far (a tally) fall short of a target per episode."""
    short: FloatArray = whole[COUNT] * target - whole[SUM]
    return short


def too_large(lost: FloatArray, learning: FloatArray, p: PRIParams, episodes: int) -> bool:
    """Whether a comparison's regret or violation so far (`lost`, [1+N]) exceeds what one of `episodes` may have.

    That is the tolerance for every episode, and what the run with all of D lost while it was `learning`, [1+N].
    """
    tolerance = np.append(p.tol_value, np.full(len(lost) - 1, p.tol_utility))
    return bool((lost > np.maximum(learning, 0.0) + tolerance * episodes).any())


def told(row: FloatArray) -> dict[str, Any]:
    """A row of `Pruning.tests` for people to read."""
    x = dict(zip(TEST_COLUMNS, row.tolist(), strict=True))
    return {
        "step": int(x["step"]) + 1,
        "state": int(x["state"]),
        "action": int(x["action"]),
        "test": "alone" if x["kind"] == ALONE else "drop",
        "votes": f"{int(x['yes'])} yes, {int(x['no'])} no",
        "passed": bool(x["passed"]),
        "value": round(x["value"], 4),
        "reference": round(x["reference"], 4),
        "margin": round(x["margin"], 4),
        "after episode": int(x["episode"]),
    }


def with_prefix(prefix: str, state: State) -> dict[str, NDArray[Any]]:
    """A state whose names have a prefix, as part of a larger one."""
    return {prefix + name: array for name, array in state.items()}


def without_prefix(prefix: str, state: State) -> dict[str, NDArray[Any]]:
    """The part of a state whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


# -- The episodes.


class BaseRun(Saved):
    """One run of a base learner inside an action set, of spec.K episodes; the first `burn_in` are not averaged.

    A base learner is any algorithm that needs nothing but K. It is told the action set and the tightened thresholds
    through its `Spec` and starts with empty tables. Afterwards its usage and its returns are taken from it.
    """

    changing: ClassVar[tuple[str, ...]] = ("played", "tally", "whole")

    def __init__(self, learner: Learner, burn_in: int = 0) -> None:
        self.learner, self.spec, self.burn_in = learner, learner.spec, burn_in
        self.played = 0
        self.tally = empty_tally(self.spec.N)  # returns after burn-in
        self.whole = empty_tally(self.spec.N)  # all returns

    @property
    def left(self) -> int:
        """Episodes still to play."""
        return self.spec.K - self.played

    def play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        """Fill out [1+N, n] with the returns of n more episodes."""
        returns = self.learner.run(source, rng, out.shape[1])
        out[0], out[1:] = returns.reward, returns.utilities
        self.count(out)

    def count(self, totals: FloatArray) -> None:
        """Note episodes that were played, by their totals [1+N, n]."""
        skip = min(max(self.burn_in - self.played, 0), totals.shape[1])
        add_up(totals, self.whole)
        add_up(totals[:, skip:], self.tally)
        self.played += totals.shape[1]

    def usage(self, whole: bool) -> FloatArray:
        """How often each action was used, [H, S, A]: in the whole run, or in its last part, scaled to the whole run.

        A learner that counts nothing is taken to have followed its recommended policy, and to have been in every state
        at every step of all episodes.
        """
        counted = self.learner.usage(whole)
        used = self.learner.recommend() if counted is None else counted
        episodes = 1.0 if counted is None else np.maximum(used.sum(axis=(1, 2), keepdims=True), 1.0)
        return used * (self.played / episodes)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes; the learner's own arrays under "learner/"."""
        return super().state() | with_prefix("learner/", self.learner.state())

    def restore(self, state: State) -> None:
        """Continue from a state."""
        super().restore(state)
        self.learner.restore(without_prefix("learner/", state))


class Pruning(Saved):
    """The phase at work. `D` is the action set, `rho` its thresholds."""

    changing: ClassVar[tuple[str, ...]] = (
        *("D", "flagged", "under", "use", "stage", "played", "usage_runs", "actions_after_usage"),
        *("at", "kind", "tried", "votes", "trials", "reference", "learning", "tests"),
    )

    def __init__(self, spec: Spec, preset: str, p: PRIParams) -> None:
        self.spec, self.preset, self.p = spec, preset, p
        shape = spec.allowed.shape
        self.D = spec.allowed.copy()  # [H, S, A]: actions that are left
        self.flagged = np.zeros(shape, dtype=bool)  # [H, S, A]: actions that were tested and stay
        self.under = np.zeros(shape, dtype=np.int64)  # [H, S, A]: usage runs that rarely used the action
        self.use = np.zeros(shape)  # [H, S, A]: uses in all usage runs
        self.rho = spec.rho + p.eps_prune  # [N]: tightened thresholds
        self.stage = USAGE  # what the running base run is for
        self.played = 0  # episodes of this phase
        self.usage_runs = 0  # usage runs that are over
        self.actions_after_usage = 0  # actions that usage has left, once it is over
        self.at = (0, 0, 0)  # step, state and action under test
        self.kind = DROP  # which of the two tests it is
        self.tried = 0  # tests of this action that are over
        self.votes = Votes(0, 0)  # comparisons of the running test
        self.trials = Votes(0, 0)  # trials of the running comparison
        self.reference = empty_tally(spec.N)  # of the base run with all of D, after burn-in
        self.learning = np.zeros(1 + spec.N)  # what that run lost against its own average, and missed thresholds by
        self.tests = np.zeros((0, len(TEST_COLUMNS)))  # one row per test that is over
        self.run = self._begin()

    @property
    def done(self) -> bool:
        """Whether D is final."""
        return self.stage == DONE

    @property
    def current(self) -> Learner:
        """The base learner at work."""
        return self._running().learner

    @property
    def untested(self) -> BoolArray:
        """Actions that comparison should have tested but pruning had no episodes left for, [H, S, A]."""
        waiting = self.D & ~self.flagged & (self.D.sum(axis=-1, keepdims=True) > 1)
        return waiting if self.p.compare else np.zeros_like(waiting)

    def open_decisions(self) -> list[dict[str, Any]]:
        """Decisions with several surviving actions, and their shares of use."""
        share = conditional(self.use, NO_SHARE)
        return [
            {
                "step": int(h) + 1,
                "state": int(s),
                "use": {int(a): round(float(share[h, s, a]), 4) for a in np.flatnonzero(self.D[h, s])},
            }
            for h, s in np.argwhere(self.D.sum(axis=-1) > 1)
        ]

    def play(self, source: Source, rng: Stream, out: FloatArray) -> int:
        """Play at most n episodes and write their totals into the first columns of out [1+N, n]; returns how many."""
        run = self._running()
        n = min(int(out.shape[1]), self._look - run.played % self._look, run.left)
        run.play(source, rng, out[:, :n])
        self._played(run, n)
        return n

    def last(self, signals: FloatArray, earned: FloatArray) -> None:
        """Pass on the last step's reward and utilities [1+N], and note what the whole episode has earned, [1+N]."""
        run = self._running()
        run.learner.last(signals)
        run.count(earned[:, None])
        self._played(run, 1)

    def _played(self, run: BaseRun, n: int) -> None:
        """Count n episodes; end the base run if all of it was played or early stop finds it decided."""
        self.played += n
        if run.left == 0 or (run.played % self._look == 0 and self._hopeless(run)):
            self._end_run(run)

    @property
    def _look(self) -> int:
        """Episodes between two checks of a base run by early stop."""
        return max(self._running().spec.K // self.p.checks, 1)

    @property
    def _has_time(self) -> bool:
        """Whether pruning has enough episodes left for one more comparison, which takes two base runs."""
        return self.played + 2 * self.p.compare_episodes <= self.p.prune_max

    def _running(self) -> BaseRun:
        if self.run is None:
            raise RuntimeError("pruning is over: there is no base learner")
        return self.run

    def _hopeless(self, run: BaseRun) -> bool:
        """Whether a comparison has lost too much already, so that early stop ends it."""
        if not self.p.early_stop or self.stage != REDUCED:
            return False
        return too_large(losses(self._target(), run.whole), self.learning, self.p, run.spec.K)

    def _target(self) -> FloatArray:
        """[1+N]: what regret and violation of a comparison are counted from, per episode."""
        return np.append(means(self.reference)[0], self.rho)

    def _begin(self) -> BaseRun | None:
        """A fresh base run for the present stage, or None when pruning is over."""
        spec, p = self.spec, self.p
        if self.stage == DONE:
            return None
        episodes = p.run_episodes if self.stage == USAGE else p.compare_episodes
        D = reduced(self.D, self.at, self.kind) if self.stage == REDUCED else self.D
        learner = base_learner(p, self.preset, within(spec, episodes, self.rho, D))
        return BaseRun(learner, int(p.burn_in * episodes))

    def _end_run(self, run: BaseRun) -> None:
        """Draw the conclusion of a base run, and begin the next."""
        if self.stage == USAGE:
            self._count(run.usage(self.p.whole_usage))
        elif self.stage == REFERENCE:
            self.reference = run.tally.copy()
            self.learning = losses(self._target(), run.whole)
            self.stage = REDUCED
        else:
            self._vote(run)
        self.run = self._begin()

    def _count(self, usage: FloatArray) -> None:
        self.use += usage
        self.under += underused(usage, self.p)
        self.usage_runs += 1
        if self.usage_runs < self.p.runs:
            return
        self.D = survivors(self.D, self.under, self.p.quorum, self.use)
        self.actions_after_usage = int(self.D.sum())
        self._next_test()

    def _next_test(self) -> None:
        """Find an action to test; done when there is none, or no episodes for it."""
        p = self.p
        use = np.zeros_like(self.use) if p.literal_tests else self.use
        found = next_test(self.D, self.flagged, use) if p.compare else None
        if found is None or not self._has_time:
            self.stage = DONE
            return
        self.at, self.tried = found, 0
        self._open(first_kind(float(conditional(use, NO_SHARE)[found])))

    def _open(self, kind: int) -> None:
        self.kind, self.stage = kind, REFERENCE
        self.votes = self.trials = Votes(0, 0)

    def _vote(self, run: BaseRun) -> None:
        """Count a trial; when the trials have decided a comparison, count its vote; when votes have, end the test.

        A run that early stop ended has failed.
        """
        p = self.p
        passed = not self._hopeless(run) and verdict(self.reference, run.tally, self.rho, p)
        self.trials = Votes(self.trials.yes + passed, self.trials.no + (not passed))
        as_good = self.trials.outcome(p.trials, p.literal_tests)
        if as_good is not None:
            self.trials = Votes(0, 0)
            self.votes = Votes(self.votes.yes + as_good, self.votes.no + (not as_good))
        outcome = self.votes.outcome(p.votes, p.literal_tests)
        if outcome is not None:
            self._settle(outcome, run)
        else:
            self.stage = REFERENCE if self._has_time else DONE

    def _settle(self, passed: bool, run: BaseRun) -> None:
        """Write the test down, apply it, and go on to the other test of the action or to the next action."""
        mean = means(run.tally if run.left == 0 else run.whole)
        margin = float((mean[1:] - self.rho).min(initial=np.inf))
        row = (*self.at, self.kind, *self.votes, passed, means(self.reference)[0], mean[0], margin, self.played)
        self.tests = np.vstack([self.tests, np.array(row, dtype=float)])
        h, s, _ = self.at
        self.tried += 1
        if passed:
            self.D = reduced(self.D, self.at, self.kind)
        elif self.tried < 2 and self._has_time:
            self._open(1 - self.kind)
            return
        if passed or self.tried == 2:
            self.flagged[self.at] = True
            if not self.p.literal_tests:  # with two actions left, the tests of the other are those just made
                self.flagged[h, s] |= not passed and self.D[h, s].sum() == 2
        self._next_test()

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes, as arrays; those of the base run under "run/"."""
        return super().state() | ({} if self.run is None else with_prefix("run/", self.run.state()))

    def restore(self, state: State) -> None:
        """Continue from a state."""
        super().restore(state)
        self.run = self._begin()
        if self.run is not None:
            self.run.restore(without_prefix("run/", state))
