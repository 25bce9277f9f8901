"""From a log of past decisions to a model, its coverage, and certified policies: `from_log`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.estimate.certificate import certified
from cmdpkit.estimate.changes import START, Alike, Observed, change_of, compared_groups, told
from cmdpkit.estimate.fitted import Fitted, judged_by, plug_in
from cmdpkit.estimate.intervals import Certificate
from cmdpkit.estimate.log import Log, condition_of, notes_on, place_of
from cmdpkit.estimate.promise import NoPromise, Promise, Range, nearest_policy, promised, range_of
from cmdpkit.io.formats.document import without_signals
from cmdpkit.io.logs import Cleaned, read_log
from cmdpkit.io.policies import read_policy
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, Criterion, checked_range, criterion_of
from cmdpkit.model.policy import Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray, IntArray, Kernel
from cmdpkit.model.validate import Name, nearest
from cmdpkit.operators.policies import occupancy

FEW = 30  # visits; an average of fewer says little


class Untried(NamedTuple):
    """An action that was never tried in a state where decisions were recorded."""

    state: Name  # where nothing is known of the action
    action: Name  # that was never tried there
    visits: int  # of the state


class Thin(NamedTuple):
    """A decision of the best policy of the plug-in model that rests on few visits."""

    step: int | None  # from 1; None where all steps share their counts
    state: Name  # where the decision is made
    action: Name  # that the policy takes there
    visits: int  # times that the log has this action there
    uses: float  # how often the policy does it in an episode (without a horizon, in a step)


@dataclass(frozen=True, eq=False)
class Coverage:
    """How much of the problem a log covers."""

    transitions: int  # how many the log has
    episodes: int  # how many it has
    pairs: int  # (state, action), of states in which decisions were recorded
    tried: int  # of those
    untried: tuple[Untried, ...]  # the most visited states first; at most 20
    thin: tuple[Thin, ...]  # the most used ones first; at most 20
    on_few: float  # share of the best policy's decisions that rest on fewer than 30 visits
    feasible: bool  # whether some policy of the plug-in model meets the bounds


@dataclass(frozen=True, eq=False)
class OffPolicyEvaluation(Shown):
    """Estimated totals of a policy that the log need not have followed."""

    cmdp: CMDP  # the plug-in model of the log
    confidence: float  # probability with which each range holds
    value: Range  # of the reward
    utilities: tuple[Range, ...]  # of every constraint
    unknown: float  # probability that the policy does something that the log does not know
    condition: str | None = None  # what has to be true of undeclared ranges, and of states that the log never met
    notes: tuple[str, ...] = ()  # what the log suggests, and what had to be assumed


@dataclass(frozen=True, eq=False)
class Estimate(Shown):
    """The model of a log, its coverage, and the policies that it can certify; made by `from_log`."""

    log: Log  # the transitions that it rests on
    stationary: bool  # whether all steps share their counts
    notes: tuple[str, ...]  # what the log suggests, and what had to be assumed
    contradiction: str | None = None  # why the log contradicts what was declared, which rules a promise out
    since: int | None = None  # the first time (see `Log.time`) after a change of the process, if one was found

    @property
    def T(self) -> int:
        """Steps with counts of their own: 1 if all share theirs."""
        return 1 if self.stationary else int(self.log.criterion.horizon or 1)

    @property
    def cleaned(self) -> Cleaned:
        """The episodes and rows that were left out of the log because of mistakes, and why."""
        return self.log.cleaned

    @property
    def episodes(self) -> int:
        """Number of episodes in the log."""
        return self.log.episodes

    @cached_property
    def visits(self) -> IntArray:
        """[T, S, A]: how often every action was recorded."""
        return self.log.visits(self.T)

    @cached_property
    def cmdp(self) -> CMDP:
        """The plug-in model: shares and means of the log. Actions that were never tried in a state do not exist in it.

        States where no action was recorded keep one, which stays there and signals nothing.
        """
        return plug_in(self.log, self.T)

    @cached_property
    def coverage(self) -> Coverage:
        """What was never tried, and where the best policy of the plug-in model rests on few visits."""
        return coverage(self.log, self.T, self.cmdp)

    def evaluate(self, policy: Any, confidence: float = 0.95) -> OffPolicyEvaluation:
        """The totals that a policy would have had, each with an interval of this confidence.

        The policy may be any that was fixed without looking at this log, also one that the log never followed. It is a
        `Policy`, or whatever `Policy.of` makes one of (a function, a mapping or an array), or the path of its file.
        """
        check_confidence(confidence)
        totals, unknown = Fitted(self.log, self.T).totals(self._policy(policy).pi)
        ranges = [range_of(x, confidence) for x in totals]
        condition = condition_of(self.log, self.T)
        return OffPolicyEvaluation(self.cmdp, confidence, ranges[0], tuple(ranges[1:]), unknown, condition, self.notes)

    def certificate(self, policy: Any, confidence: float = 0.95) -> Certificate:
        """What the log proves about a policy: how far it is from the optimum, and whether it meets its bounds.

        It holds for any policy, also one that was chosen from this log, at whatever time the log was closed and however
        its actions were decided about. The price is that it is wider than `evaluate`. The range of every signal must be
        declared, and the optimum is that of policies which do only what the log has tried. States that the log never
        met are counted, unless all states were declared (`states` of `from_log`).
        """
        check_confidence(confidence)
        if self.contradiction is not None:
            raise CmdpkitError(f"nothing can be proved: {self.contradiction}")
        if self.since is not None:
            raise CmdpkitError(
                "nothing can be proved, because the log shows that the process has changed, and a certificate is about "
                "one process: see the notes for when, and give from_log what was recorded afterwards"
            )
        return certified(self.log, self.T, self._policy(policy).pi, confidence)

    def _policy(self, given: Any) -> Policy:
        """A policy for the states and actions of the log; in states where the episode is over, a rule is not asked."""
        allowed, over = np.ones((1, self.log.S, self.log.A), dtype=bool), self.log.quiet
        if isinstance(given, Mapping):
            given = {**{self.log.states[s]: self.log.action_names[0] for s in np.flatnonzero(over)}, **given}
        elif callable(given) and not isinstance(given, Policy):
            allowed[:, over, 1:] = False
        cmdp = self.cmdp.reformulated(allowed=allowed)
        return read_policy(given, cmdp) if isinstance(given, (str, os.PathLike)) else Policy.of(cmdp, given)

    def solve(self, confidence: float = 0.95) -> Promise:
        """A policy whose true totals meet the bounds with this probability, as good as the log allows.

        `NoPromise`, a `CmdpkitError`, is raised if no policy can be promised. It names the limit, the bound that it
        misses, the data that would help most and, where chance is what is in the way, about how many episodes would be
        enough.
        """
        check_confidence(confidence)
        if self.contradiction is not None:
            raise NoPromise(f"no policy can be promised: {self.contradiction}", notes=self.notes, contradicted=True)
        log = self.log if self.since is None else self.log.part(self.log.time >= self.since)
        return promised(log, self.T, plug_in(log, self.T), confidence, self.notes)

    def __repr__(self) -> str:
        return f"Estimate({len(self.log.s):,} transitions of {self.episodes:,} episodes: {self.cmdp!r})"


def from_log(
    log: Any,
    *,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    criterion: str | None = None,
    constraints: Iterable[Constraint] = (),
    stationary: bool | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    states: Iterable[Name] | str | None = None,
    bad: str = "error",
) -> Estimate:
    """From a log of past decisions to a model, its coverage, and certified policies.

    Parameters
    ----------
    log : a CSV file, a data frame, a mapping from column names to columns, or rows (tuples or mappings). One
        row is one transition, with the columns episode, step, state, action, reward, next_state and one for each
        constraint. Without a step the rows of an episode are in order, and without a next_state (or where it is empty)
        it is the state of the following row. A continuing log (discount, average) needs no episode. A column time, if
        there is one, orders the episodes and dates changes; otherwise they are in the order of their first rows.
        Other columns are passed over.
    columns : names of the columns of plain tuples, in order; or a mapping from our names to those in the log, such as
        {"state": "stock"}
    horizon, discount, criterion : exactly one of them, as for `CMDP`; the criterion can be "average"
    constraints : `at_least` and `at_most` without a signal: the column of that name is the signal
    stationary : whether all steps behave alike, so that they share their counts. With a horizon they do not unless this
        is true; `Estimate.notes` reports if the log does not contradict it. Without a horizon they always do.
    ranges : the smallest and the largest value that a signal can have in a single step, such as {"cost": (0, 100)};
        "reward" may be among them, and a constraint may have its own: ``at_most("cost", 5, range=(0, 100))``. Without
        it, a promise holds on the condition that the log has seen the worst. A value outside of it is an error.
    states : all states that can occur, or "complete" if the log has met all of them. Otherwise, promises and
        certificates count states that the log never met, in which the worst of the range goes on to the end; where a
        range is missing, and for averages, promises hold on the condition that there are no such states
    bad : with "drop episodes", episodes with mistakes are left out; `Estimate.cleaned` counts them by kind

    A state in which no action was ever recorded, though an episode ended there before its last step, is one in which
    the episode is over.

    >>> did = ["work", "wait"] * 40
    >>> rows = [(k, h, "on", a, float(a == "work"), 1.0, "on") for k, a in enumerate(did) for h in (1, 2)]
    >>> names = ["episode", "step", "state", "action", "reward", "noise", "next_state"]
    >>> estimate = from_log(rows, columns=names, horizon=2, constraints=[Constraint("noise", "at_most", 2.5)])
    >>> estimate.cmdp, estimate.episodes
    (CMDP(H=2, S=1, A=2, N=1: noise ≤ 2.5), 80)
    >>> estimate.solve().policy.probabilities(step=1, state="on")
    {'work': 1.0}
    """
    bounds = without_signals(constraints)
    judged = _judged(horizon, discount, criterion, stationary)
    names = [c.name for c in bounds]
    read = read_log(log, columns, names, _declared(bounds, ranges), judged.horizon, states=states, bad=bad)
    made = Log(
        **vars(read),
        constraints=tuple(replace(c.over(judged.steps_in_value), range=None) for c in bounds),
        criterion=judged,
    )
    return estimated(made, not judged.has_horizon if stationary is None else stationary, asked=stationary is not None)


def _declared(bounds: Iterable[Constraint], ranges: Any) -> dict[str, tuple[float, float]]:
    """The ranges that the constraints bring, and those given by name."""
    found = {c.name: c.range for c in bounds if c.range is not None}
    if ranges is not None and not isinstance(ranges, Mapping):
        raise CmdpkitError(f"ranges is {quoted(ranges)}, expected a mapping such as {{'cost': (0, 100)}}")
    known = ["reward", *(c.name for c in bounds)]
    for name, pair in (ranges or {}).items():
        if name not in known:
            raise CmdpkitError(f"ranges names {quoted(name)}{nearest(name, known)}")
        if name in found:
            raise CmdpkitError(f"the range of {quoted(name)} is given twice: with its constraint and in ranges")
        found[name] = checked_range(name, pair)
    return found


def _judged(horizon: Any, discount: Any, criterion: Any, stationary: Any) -> Criterion:
    if horizon is None and discount is None and criterion is None:
        raise CmdpkitError("horizon is missing: give exactly one of horizon, discount and criterion")
    if criterion == "total":
        raise CmdpkitError(
            "criterion is 'total', about which a log cannot promise anything: give a horizon that is not shorter than "
            "the longest episode, or a discount"
        )
    if stationary not in (None, True, False):
        raise CmdpkitError(f"stationary is {quoted(stationary)}, expected True, False or None")
    judged = criterion_of(horizon, discount, criterion, {"the log": 1})
    if not judged.has_horizon and stationary is False:
        raise CmdpkitError(f"stationary is False, but the criterion is {judged}, where nothing may depend on the step")
    return judged


def estimated(log: Log, stationary: bool, *, asked: bool) -> Estimate:
    """What a log says, with notes; ``asked`` says whether the user decided if steps share their counts."""
    notes, contradiction, horizon = notes_on(log), None, log.criterion.horizon
    if horizon is not None:
        found = steps_alike(log)
        if stationary and found.contradicted:
            contradiction = (
                f"the log contradicts that all steps behave alike (p = {found.p:.2g}); count each step for itself "
                "(stationary=False, --by-step)"
            )
            notes.append(contradiction)
        elif not stationary and not asked and found.comparisons and not found.contradicted:
            notes.append(
                f"the log does not contradict that all steps behave alike (p = {found.p:.2g}): with stationary=True "
                "they share their counts, and the intervals are narrower"
            )
    change = change_in(log, 1 if stationary else int(horizon or 1))
    since = None
    if change is not None:
        since, note = change
        notes.append(f"{note}. Promises rest only on what was recorded after the change")
    return Estimate(log, stationary, tuple(notes), contradiction, since)


def coverage(log: Log, T: int, cmdp: CMDP, *, listed: int = 20) -> Coverage:
    """The coverage of a log with the plug-in model ``cmdp``; each list has at most `listed` places."""
    visits, known = log.visits(T), ~log.quiet
    by_state = visits.sum(axis=0)
    policy, feasible = nearest_policy(cmdp)
    q = occupancy(cmdp, policy)
    uses = np.where(known[:, None], q if len(q) == T else q.sum(axis=0, keepdims=True), 0.0)
    few = (uses > NEGLIGIBLE) & (visits < FEW)
    missing = np.argwhere((by_state == 0) & known[:, None])
    missing = missing[np.argsort(-by_state.sum(axis=1)[missing[:, 0]], kind="stable")][:listed]
    rows = np.flatnonzero(few)[np.argsort(-uses[few], kind="stable")][:listed]
    return Coverage(
        transitions=len(log.s),
        episodes=log.episodes,
        pairs=int(known.sum()) * log.A,
        tried=int((by_state > 0).sum()),
        untried=tuple(Untried(log.states[s], log.action_names[a], int(by_state[s].sum())) for s, a in missing.tolist()),
        thin=tuple(Thin(*log.named(i, T), int(visits.flat[i]), float(uses.flat[i])) for i in rows.tolist()),
        on_few=float(uses[few].sum() / max(float(uses.sum()), NEGLIGIBLE)),
        feasible=feasible,
    )


def check_confidence(confidence: float) -> None:
    """Refuse a probability that no promise can be made with."""
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)) or not 0.5 <= confidence < 1:
        raise CmdpkitError(f"confidence is {quoted(confidence)}, expected a number from 0.5 to below 1, such as 0.95")


# -- Changes in a log --------------------------------------------------------------------------------------------------


def steps_alike(log: Log, parts: int = 4) -> Alike:
    """Whether the log contradicts that all steps of the horizon, which is divided in so many parts, behave alike."""
    H = int(log.criterion.horizon or 1)
    seen = _observed(log, np.minimum(log.step * parts // H, parts - 1), parts, 1)
    return compared_groups(seen._replace(starts=np.zeros((0, log.S))))


def change_in(log: Log, T: int, periods: int = 8, dated: int = 40) -> tuple[int, str] | None:
    """The first time (see `Log.time`) after the clearest change of the process, and a note; None if none was found.

    So many periods are compared with each other, and a change is dated among ``dated`` shorter ones.
    """
    found, finer = compared_groups(_observed(log, _periods(log, periods), periods, T)), _periods(log, dated)
    change = change_of(found, _observed(log, finer, dated, T)) if found.contradicted else None
    if change is None:
        return None
    late = np.flatnonzero(finer >= change.split)
    first = int(late[np.argmin(log.time[late])])
    places = ["the beginning of an episode" if i == START else place_of(*log.named(i, T)) for i in change.cells]
    names = ["reward", *(c.name for c in log.constraints)]
    return int(log.time[first]), told(change, log.place[first], places, names)


def _periods(log: Log, periods: int) -> IntArray:
    """[n]: the period of time of each transition."""
    first, last = int(log.time.min()), int(log.time.max())
    return np.asarray((log.time - first) * periods // (last - first + 1))


def _observed(log: Log, group: IntArray, groups: int, T: int) -> Observed:
    """The transitions of a log in groups [n]."""
    cell, s_next, starts, horizon = log.rows(T), log.s_next, np.zeros((0, log.S)), log.criterion.horizon
    if horizon is not None:
        s_next = np.where(log.step < horizon - 1, s_next, -1)  # the next state after the last step does not matter
        place = group[log.begins] * log.S + log.s[log.begins]
        starts = np.bincount(place, minlength=groups * log.S).reshape(groups, -1).astype(float)
    n, spans = np.ones(len(cell)), np.ptp(log.x, axis=1)

    def judge(kernel: Kernel, signals: FloatArray, mu: FloatArray) -> CMDP:
        asked: Any = {"constraints": log.constraints, **judged_by(log)}
        return CMDP(kernel, signals[0], signals[1:], mu=mu, renormalise=True, **asked)

    return Observed((T, log.S, log.A), groups, group, cell, s_next, n, log.x, log.x**2, spans, starts, judge)
