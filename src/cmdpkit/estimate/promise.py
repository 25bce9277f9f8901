"""A certified policy: its true totals meet the bounds with a given probability.

The best policy of an estimated model had the best luck in the log, so its totals in that model are too good. The log
is therefore divided in two parts, which know nothing of each other (`Log.parts`).

1. On the first part, policies are chosen: the behaviour of the log, and the best policies for bounds that are tightened
   by multiples of their standard errors, all bounds together and each further than the others, among the actions with
   20 visits or more and among those with 5 or more. Where no action has enough visits, a policy does what was done
   there most often. Where the part knows nothing, the worst is assumed.
2. On the second part, they are tested: a policy passes if the limit of every total meets its bound (see `fitted`). Of
   the policies that passed, the one with the best value is promised.

**Why all tests together err with probability 1 - confidence at most.** For the second part, the policies and all orders
are fixed. The behaviour, if the first part expects it to meet the bounds, is tested with a fifth of the permitted
error, which is handed on if it passes (the fallback procedure of Wiens, 2003). The rest is divided among the bounds.
For each bound by itself, the other policies are tested in a fixed order, those first whose limit on the first part is
furthest within the bound, until one fails; such a sequence accepts a policy that violates the bound with at most the
probability of a single error. A policy is promised only if it was accepted for every bound, so a broken promise needs
an error in one of the sequences. Where bounds pull against each other, this finds the policies between them that one
order would miss.

The ranges that are reported with the chosen policy are corrected for the number of policies tested, and end at the
bounds. The remaining assumptions are that the limits for a fixed policy have their nominal coverage, that the process
has no memory beyond its state and stays as it was, and the promise's `condition`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, shown
from cmdpkit.estimate.fitted import Fitted, Total, put_usual
from cmdpkit.estimate.log import Log, condition_of, place_of
from cmdpkit.estimate.model import as_recorded
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import solve_fully
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import BOUND_MET, LARGEST_ERROR, SMALLEST_ERROR
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.model.validate import Name

LEAST_VISITS = (20, 5)  # visits of the actions among which policies are chosen


class Range(NamedTuple):
    """An estimated number, and from where to where it can be trusted."""

    estimate: float  # the number itself
    low: float  # it is at least this
    high: float  # it is at most this


class Wanted(NamedTuple):
    """A place where more data would help."""

    step: int | None  # from 1; None where all steps share their counts
    state: Name  # where it should be recorded
    action: Name  # that should be tried there
    visits: int  # in the log
    share: float  # of the squared error of the total that misses its bound


@dataclass(frozen=True, eq=False)
class Promise(Shown):
    """A policy whose true totals meet the bounds with probability ``confidence``."""

    cmdp: CMDP  # the plug-in model of the whole log
    policy: Policy  # the one that was promised
    confidence: float  # probability with which the promise holds
    value: Range  # of the reward, and
    utilities: tuple[Range, ...]  # of every constraint: each holds with probability ``confidence``
    margins: tuple[float, ...]  # standard errors by which each bound was tightened when the policy was chosen
    tested: int  # policies that were tested
    unknown: float  # expected share of episodes in which the policy does what the second half of the log does not know
    episodes: tuple[int, int]  # of the part that chose and of the part that tested
    condition: str | None = None  # what has to be true of signals whose range is not declared
    notes: tuple[str, ...] = ()  # what the log suggests, and what had to be assumed

    def __repr__(self) -> str:
        totals = "".join(
            f", {shown(c.name)} {x.low:.4g} to {x.high:.4g}"
            for c, x in zip(self.cmdp.constraints, self.utilities, strict=True)
        )
        return f"Promise({self.confidence:.0%}: value {self.value.low:.4g} to {self.value.high:.4g}{totals})"


class NoPromise(CmdpkitError):
    """No policy can be certified to meet the bounds; the error names the bound, and the data that would help most."""

    __module__ = "cmdpkit"
    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        constraint: Constraint | None = None,
        total: Range | None = None,
        limit: float | None = None,
        level: float | None = None,
        wanted: Sequence[Wanted] = (),
        episodes: int | None = None,
        notes: tuple[str, ...] = (),
        contradicted: bool = False,
    ) -> None:
        super().__init__(message)
        self.constraint = constraint  # the bound that is missed, by the policy that came nearest
        self.total = total  # estimate and interval for that policy
        self.limit = limit  # the end of that interval which missed the bound,
        self.level = level  # and the confidence with which it was computed
        self.wanted = list(wanted)  # where more data would help, the most useful first
        self.episodes = episodes  # about how large a log would be enough; None if that is not known
        self.notes = notes  # what the log suggests, and what had to be assumed
        self.contradicted = contradicted  # whether the log contradicts what was declared about it


class _Chosen(NamedTuple):
    """A policy chosen on the first part of the log."""

    margins: FloatArray  # [N], standard errors by which the bounds were tightened
    pi: FloatArray  # [T', S, A]
    least: int  # visits of the actions among which it was chosen
    rooms: FloatArray  # [N], standard errors by which the limits of the totals are within the bounds
    value: float  # estimated total reward
    errors: FloatArray  # [N], standard errors of the totals
    hopeful: bool  # whether its estimates meet the bounds if the best is assumed where nothing was recorded
    feasible: bool  # whether it meets the tightened bounds in the model of the first part

    def order(self, n: int) -> tuple[float, int]:
        """By which bound n is tested: those first that the first part itself would promise with most room."""
        return -float(self.rooms[n]), -self.least


class _Tested(NamedTuple):
    """A policy tested on the second part."""

    chosen: _Chosen  # the policy, with what was known of it before the test
    totals: list[Total]  # of reward and constraints, estimated on the second part
    unknown: float  # share of episodes in which it does what the second part does not know
    level: float  # confidence of the limits that were compared with the bounds
    accepted: tuple[bool, ...]  # for each bound, whether it is met for sure

    @property
    def passed(self) -> bool:
        """Whether all bounds are met for sure."""
        return all(self.accepted)


def promised(log: Log, T: int, cmdp: CMDP, confidence: float, notes: tuple[str, ...] = ()) -> Promise:
    """The best policy that passes its test; `NoPromise` if none does. ``cmdp`` is the plug-in model of the log."""
    tests, sizes = _tests(log, T, confidence)
    passed = [x for x in tests if x.passed]
    if not passed:
        raise _declined(log, T, cmdp, *_obstacle(log, tests), notes)
    best = max(passed, key=lambda x: x.chosen.value)
    value, *others = (range_of(x, 1 - (1 - confidence) / len(tests)) for x in best.totals)
    utilities = tuple(_within(c, x) for c, x in zip(log.constraints, others, strict=True))
    policy, margins = Policy.of(cmdp, best.chosen.pi), tuple(best.chosen.margins.tolist())
    condition = condition_of(log, T)
    return Promise(
        cmdp, policy, confidence, value, utilities, margins, len(tests), best.unknown, sizes, condition, notes
    )


def _tests(log: Log, T: int, confidence: float) -> tuple[list[_Tested], tuple[int, int]]:
    """Choose policies on one part of the log and test them on the other; and the episodes of both parts."""
    first, second = log.parts(T)
    if not len(first.s) or not len(second.s):
        raise CmdpkitError(f"the log has {len(log.s)} transitions, too few to be split in two parts; record more")
    seen = second.visits(T).any(axis=-1)
    usual = np.where(seen, second.usual_actions(T), log.usual_actions(T))
    chooser = Fitted(first, T)
    behaviour = _rated(chooser, np.zeros(log.N), _behaviour(chooser, usual), 0, feasible=True)
    tests = _tested(log, Fitted(second, T), behaviour, _candidates(chooser, usual), confidence)
    return tests, (first.episodes, second.episodes)


def _within(c: Constraint, x: Range) -> Range:
    """A range that ends at the bound, which is promised."""
    return (
        x._replace(low=max(x.low, c.bound_on_total)) if c.sign > 0 else x._replace(high=min(x.high, c.bound_on_total))
    )


def _tested(
    log: Log, part: Fitted, behaviour: _Chosen, others: list[_Chosen], confidence: float, for_behaviour: float = 0.2
) -> list[_Tested]:
    """The tests of all policies on the second part of the log; see the top of this module.

    The share `for_behaviour` of the permitted error is for the test of what was done in the log.
    """
    error, found = 1 - confidence, []
    if behaviour.hopeful or not others:
        share = for_behaviour if others else 1.0
        totals, unknown = part.totals(behaviour.pi)
        passed = _misses(log, totals, 1 - share * error).max(initial=-np.inf) <= 0
        found.append(_Tested(behaviour, totals, unknown, 1 - share * error, (bool(passed),) * max(log.N, 1)))
        error -= 0.0 if passed else share * error
    level = 1 - error / max(log.N, 1)
    judged = [part.totals(x.pi) for x in others]
    accepted = np.ones((len(others), log.N), dtype=bool)
    misses = np.array([_misses(log, totals, level) for totals, _ in judged]).reshape(len(others), log.N)
    for n in range(log.N):
        order = sorted(range(len(others)), key=lambda i: others[i].order(n))
        failed = [k for k, i in enumerate(order) if misses[i, n] > 0]
        if failed:
            accepted[order[failed[0] :], n] = False
    for x, (totals, unknown), good in zip(others, judged, accepted, strict=True):
        found.append(_Tested(x, totals, unknown, level, tuple(good.tolist())))
    return found


def range_of(total: Total, level: float) -> Range:
    """Estimate and two-sided interval."""
    return Range(total.middle, total.below(0.5 + level / 2), total.above(0.5 + level / 2))


def _candidates(part: Fitted, usual: IntArray) -> list[_Chosen]:
    """Policies that are better than what was done, each once."""
    found = [x for least in LEAST_VISITS for x in _Planner(part, usual, least).policies()]
    return [x for i, x in enumerate(found) if not any(np.array_equal(x.pi, y.pi) for y in found[:i])]


def _behaviour(half: Fitted, usual: IntArray) -> FloatArray:
    """[T', S, A]: what was done in the first half, as often as it was done, without what was rarely tried."""
    visits = half.visits.reshape(half.T, half.S, half.A)[:, :-1].astype(float)
    visits[visits < min(LEAST_VISITS)] = 0.0
    put_usual(visits, usual)
    return as_recorded(visits, half.log.criterion.horizon)


def _rated(
    half: Fitted, margins: FloatArray, pi: FloatArray, least: int, *, feasible: bool, level: float = 0.95
) -> _Chosen:
    """A policy with what the first part expects of it; `level` is that of the limits by which policies are ordered."""
    reward, *totals = found = half.totals(pi)[0]
    pairs, rooms = list(zip(half.log.constraints, totals, strict=True)), -_misses(half.log, found, level)
    hopeful = all(c.sign * ((x.high if c.sign > 0 else x.low) - c.bound_on_total) >= 0 for c, x in pairs)
    errors = np.array([x.spread(c.sign) for c, x in pairs])
    return _Chosen(margins, pi, least, rooms, reward.low, errors, hopeful, feasible)


class _Planner:
    """Chooses policies in the model of the first part, pessimistic where that knows nothing.

    Only actions with at least `least` visits are allowed, and the usual one where there are none.
    """

    def __init__(self, half: Fitted, usual: IntArray, least: int) -> None:
        self.half, self.least = half, least
        tried: Any = half.visits.reshape(half.T, half.S, half.A) >= least
        tried[:, -1] = True  # the state that stands for "unknown"
        put_usual(tried, usual)
        low, high = half.log.ranges.T
        signs = np.array([1, *(c.sign for c in half.log.constraints)])
        self.cmdp = half.cmdp(np.where(signs > 0, low, high), tried)
        self.errors = np.zeros(half.log.N)  # [N], the unit of margins

    def policies(
        self,
        margins: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0),
        further: Sequence[float] = (1.0, 2.0, 4.0),
        others: Sequence[float] = (0.0, 0.5),
    ) -> Iterator[_Chosen]:
        """The best policies for tighter and tighter bounds.

        All bounds are tightened together by `margins`, in standard errors. Where there are several, each of them is
        then tightened `further` than the others, whose margin is a share, `others`, of the largest that all allow.
        """
        N = self.half.log.N
        plain = self._solved(np.zeros(N))
        yield plain
        if not N or not plain.feasible or not np.isfinite(plain.errors).all():
            return
        self.errors = plain.errors
        most = yield from self._path(np.zeros(N), np.ones(N), margins)
        for n in range(N if N > 1 and most > 0 else 0):
            for share in others:
                yield from self._path(np.full(N, share * most), np.eye(N)[n], [share * most + x for x in further])

    def _solved(self, margins: FloatArray) -> _Chosen:
        """The best policy that keeps each bound with its own margin [N], or the nearest one where no policy does."""
        tighter = {
            c.name: float(c.bound_on_total + c.sign * margin * error)
            for c, margin, error in zip(self.cmdp.constraints, margins, self.errors, strict=True)
        }
        policy, feasible = nearest_policy(self.cmdp.with_totals(tighter))
        if isinstance(policy, Mixture):
            policy = policy.policies[int(policy.weights.argmax())]
        return _rated(self.half, margins, policy.pi[:, :-1], self.least, feasible=feasible)  # without "unknown"

    def _path(
        self, base: FloatArray, direction: FloatArray, margins: Sequence[float], bisections: int = 4
    ) -> Generator[_Chosen, None, float]:
        """Policies for larger and larger margins in a direction, up to the largest that is possible; returns that."""
        low, high = 0.0, np.inf
        for margin in margins:
            found = self._solved(np.maximum(base, margin * direction))
            yield found  # where it is not within all bounds, it is the nearest to them
            if not found.feasible:
                high = margin
                break
            low = margin
        for _ in range(bisections if high < np.inf and len(base) > 1 else 0):
            middle = (low + high) / 2
            found = self._solved(np.maximum(base, middle * direction))
            if found.feasible:
                low = middle
                yield found
            else:
                high = middle
        return low


def _misses(log: Log, totals: list[Total], level: float) -> FloatArray:
    """[N]: by how many standard errors each total can miss its bound; 0 or less if it meets it with this confidence."""
    pairs = zip(log.constraints, totals[1:], strict=True)
    return np.array([_shortfall(c, x, level) / min(max(x.spread(c.sign), SMALLEST_ERROR), LARGEST_ERROR)
                     for c, x in pairs])  # fmt: skip


def _shortfall(c: Constraint, x: Total, confidence: float) -> float:
    """By how much the total can miss the bound; negative if it is met for sure."""
    if np.isinf(x.error):
        return np.inf
    slack = BOUND_MET * max(1.0, abs(c.bound_on_total))
    return (c.bound_on_total - x.below(confidence) if c.sign > 0 else x.above(confidence) - c.bound_on_total) - slack


def _obstacle(log: Log, tests: list[_Tested]) -> tuple[_Tested, int]:
    """The policy that came nearest to a promise, and the bound that it misses.

    If no policy was accepted for some bound, that is the bound to name, even if other policies miss other bounds by
    less: it stands in the way of all of them.
    """
    misses = np.array([_misses(log, x.totals, x.level) for x in tests])
    missed = np.where(misses > 0, misses, np.inf)
    hopeless = ~np.array([x.accepted for x in tests]).any(axis=0)
    if hopeless.any():
        n = int(np.argmax(np.where(hopeless, missed.min(axis=0), -np.inf)))
        return tests[int(np.argmin(missed[:, n]))], n
    largest = misses.max(axis=1)
    nearest = int(np.argmin(np.where(largest > 0, largest, np.inf)))
    return tests[nearest], int(np.argmax(misses[nearest]))


def _declined(log: Log, T: int, cmdp: CMDP, nearest: _Tested, n: int, notes: tuple[str, ...]) -> NoPromise:
    """What to tell the user when no policy passed; this one came nearest, and misses bound n."""
    level, c, x = nearest.level, log.constraints[n], nearest.totals[1 + n]
    total = Range(x.middle, x.below(level), x.above(level))
    limit = total.low if c.sign > 0 else total.high
    known: dict[str, Any] = {"constraint": c, "total": total, "limit": limit, "level": level, "notes": notes}
    text = f"no policy can be promised: {c} is required, and "
    if np.isinf(limit):
        text += (
            "the error of the estimates is unknown, because no decision was recorded twice "
            "or, where averages count, because the states fall apart into several parts; record more episodes, or let "
            "steps share their counts (stationary=True, --stationary) if they behave alike"
        )
        return NoPromise(text, **known)
    side = "at least" if c.sign > 0 else "at most"
    estimate, tested = (f"{total / c.scale:.6g}{c.unit}" for total in (x.middle, limit))
    text += (
        f"the policy that came nearest has an estimated total of {estimate}, and the held-out part of the log "
        f"proves, with {100 * level:.4g} % confidence, only that it is {side} {tested}"
    )
    inside = x.low - c.bound_on_total if c.sign > 0 else c.bound_on_total - x.high
    if inside <= 0 < (x.high - c.bound_on_total if c.sign > 0 else c.bound_on_total - x.low):
        text += "; too few of its decisions were recorded there, and the worst is assumed: record more episodes"
    elif inside <= 0:
        text += (
            "; in the estimated model other policies meet all bounds, but the log proves it of none of them"
            if nearest_policy(cmdp)[1]
            else "; in the estimated model no policy meets all bounds: relax a bound, or record other actions"
        )
    episodes, surprise = None, x.surprises[0 if c.sign > 0 else 1]
    if log.open and surprise > x.error:
        text += (
            ". Most of that is room for states that this log never met; if there are none, declare that "
            '(states="complete", --states-complete)'
        )
    elif x.error <= surprise:
        text += (
            ". Most of that is room for events that never happened in this log, so the number of episodes that would "
            "be enough is unknown"
        )
    elif inside > 0:
        episodes, told = _enough(log, abs(limit - (x.low if c.sign > 0 else x.high)) / inside)
        text += f". {told}"
    wanted = wanted_of(log, T, x.shares)
    if wanted:
        places = (f"{place_of(w.step, w.state, w.action)} ({w.visits} visits, {w.share:.0%})" for w in wanted[:3])
        text += f". Most of the error comes from {', '.join(places)}"
    return NoPromise(text, wanted=wanted, episodes=episodes, **known)


def nearest_policy(cmdp: CMDP) -> tuple[Policy | Mixture, bool]:
    """The best policy of a model, and True; or the one that comes nearest to its bounds, and False."""
    try:
        return solve_fully(cmdp).policy, True
    except Infeasible as infeasible:
        return infeasible.policy, False


def _enough(log: Log, lacking: float) -> tuple[int, str]:
    """About how many episodes (without a horizon, transitions) a log needs if its error has to fall by a factor.

    Errors fall like the square root of the size of a log.
    """
    unit, present = ("episodes", log.episodes) if log.criterion.has_horizon else ("transitions", len(log.s))
    size = int(float(f"{present * max(1.25, lacking**2):.2g}"))
    return size, f"About {size:,} {unit} of the same kind would be enough (this log has {present:,})"


def wanted_of(log: Log, T: int, shares: FloatArray, most: int = 5) -> list[Wanted]:
    """The rows that contribute most to a squared error, with how often the whole log visits them."""
    total, visits, flat = float(shares.sum()), log.visits(T).ravel(), shares.ravel()
    rows = [int(i) for i in np.argsort(-flat, kind="stable")[:most] if flat[i] > 0]
    return [Wanted(*log.named(i, T), int(visits[i]), float(flat[i]) / total) for i in rows]
