"""The optimum of models by functions: column generation on sweeps, and the value as a function of one bound."""

from __future__ import annotations

import math
import os
import sys
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.columns import Columns, Optimum, Parts
from cmdpkit.exact.large.policy import LargePart, LargePolicy, LargeSolution, single
from cmdpkit.exact.large.source import GATHER, STOP, BackwardSource, Folder, SweepSource
from cmdpkit.exact.large.sweeps import Sweeps, kernels_of, wrong
from cmdpkit.exact.solution import MIN_CLASH_MULTIPLIER, Infeasible
from cmdpkit.exact.solver import MIN_BINDING_SHARE, Report, Watch
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.steps import Threads

GAP = 1e-6  # relative, unless another is asked for
LEFT = 0.4  # share of the gap at which the mixture is good enough to make one policy of it
SHARPER = 0.1  # how much more exact pricing becomes where it was too rough to go on
NUMBERS = "value utilities shadow_prices gap errors tolerance binds columns sweeps seconds ended"  # for all ranks
ATTEMPTS = 15  # times that this happens at most
PULSE = 0.1  # seconds between two reports that sweeps go on
SMALL_VALUE = 1e-3  # of the reward's unit: the gap is relative to at least this


class SweepRound(NamedTuple):
    """How far a solve is, in the user's units."""

    number: int  # rounds so far, from 1; each finds one more policy
    value: float  # of the best policy within the bounds that is known
    gap: float  # proved: no policy within the bounds has a value above value + gap
    seconds: float  # since the solve began
    sweeps: int  # passes over all states so far
    left: float | None  # seconds left if the gap goes on falling as it did; None at first

    def __str__(self) -> str:
        left = "" if self.left is None else f", about {self.left:.3g} s left"
        found = "first policies" if not self.number else f"round {self.number}: value {self.value:.6g}"
        known = f", proved to within {self.gap:.2g}" if self.number else ""
        return f"{found}{known}, {self.sweeps:,} sweeps, {self.seconds:.1f} s{left}"


class SweepWatch(Watch):
    """A watch that also counts sweeps and estimates the time left."""

    def __init__(self, gap: float, progress: Report | bool) -> None:
        super().__init__(gap, progress)
        self.now = SweepRound(0, math.nan, math.inf, 0.0, 0, None)
        self._first: tuple[float, float] | None = None  # seconds and gap of the first round

    def pulse(self, sweeps: int) -> None:
        """Show that sweeps go on."""
        if self.seconds - self.now.seconds >= PULSE:
            self.now = self.now._replace(sweeps=sweeps, seconds=self.seconds)
            self.tell(self.now)

    def round(self, value: float, gap: float, goal: float, sweeps: int) -> None:
        """Note the end of a round."""
        seconds, left = self.seconds, None
        if self._first is None:
            self._first = seconds, gap
        elif 0 < goal < gap < self._first[1]:
            left = (seconds - self._first[0]) * math.log(gap / goal) / math.log(self._first[1] / gap)
        self.now = SweepRound(self.now.number + 1, value, gap, seconds, sweeps, left)
        self.tell(self.now)


class FunctionSearch:
    """Column generation for one model; serves any bounds."""

    def __init__(self, model: FunctionModel, gap: float, watch: SweepWatch, folder: Any, sweeps: Sweeps) -> None:
        self.model, self.gap, self.watch, self.sweeps = model, gap, watch, sweeps
        self.folder = Folder(folder, sweeps, gap)
        kind = BackwardSource if model.criterion.has_horizon else SweepSource
        self.source: SweepSource | BackwardSource = kind(sweeps, self.folder, watch.pulse)

    def begin(self) -> None:
        """Find the first columns."""
        self.source.begin()
        self.pool = Columns(self.source)

    def ends(self, k: int) -> list[float]:
        """The total of signal k where the reward is the largest, and its own best, in the bound's unit; sorted."""
        c, found = self.model.constraints[k], list[float]()
        self.source.gap = 0.0
        for signal in (0, 1 + k):
            values, half = self.pool.price(np.eye(1, self.model.K, signal)[0], self.gap)[1].plan
            found.append(float(values[1 + k] - c.sign * half[1 + k]) / c.scale)  # what is certainly reached
        return sorted(found)

    def goal(self, value: float) -> float:
        """The gap that is asked for, scaled, for a scaled value."""
        unit = float(self.pool.units[0])
        return self.gap * max(abs(value + float(self.pool.offsets[0]) / unit), SMALL_VALUE)

    def optimum(self, model: FunctionModel, share: float) -> tuple[Optimum, bool]:
        """The best mixture under a model's bounds, to a share of the gap; False if Ctrl-C ended the search."""
        pool, source = self.pool, self.source

        def enough(best: Optimum) -> bool:
            gap, goal = best.bound - best.value, self.goal(best.value)
            source.gap = max(gap, 0.5 * goal)
            self.watch.round(pool.value(best), gap * pool.units[0], goal * pool.units[0], self.sweeps.done)
            return gap <= share * goal

        rho = self._reachable(model)
        pool.so_far = None
        try:
            for _ in range(ATTEMPTS):
                best = pool.maximise(rho, enough)
                if best.bound - best.value <= share * self.goal(best.value):
                    break
                source.gap *= SHARPER
        except KeyboardInterrupt:
            if pool.so_far is None or self.sweeps.ranks.comm is not None:
                raise
            return pool.so_far, False
        return best, True

    def _reachable(self, model: FunctionModel) -> FloatArray:
        """The thresholds, scaled; raises if it is proved that no policy meets them."""
        pool, rho = self.pool, self.pool.scaled(model.rho)
        for _ in range(ATTEMPTS):
            possible = pool.thresholds(rho)
            if possible is not None:
                return possible
            t, weights, y = pool.reach(rho, np.ones(model.N))
            upper = pool.price(np.append(0.0, y))[0]
            if upper < float(y @ rho):
                columns, signs = pool.parts(weights), model.signs[1:]
                reached = sum(share * column.plan[0] for share, column in columns)
                best = signs * (signs * np.array([column.plan[0][1:] for column in pool.columns])).max(axis=0)
                clash = tuple(model.constraints[n].name for n in np.flatnonzero(y > MIN_CLASH_MULTIPLIER))
                raise LargeInfeasible(model, self._policy(columns), reached[1:], best, clash)
            self.source.gap = min(self.source.gap, max(-t, 1e-15)) * SHARPER
            pool.columns = [self.source.refine(column) for column in pool.columns]
        raise CmdpkitError(
            f"not solved: the bounds are so close to what can be reached ({-t:.2g} of the range) that it is not clear "
            "whether a policy meets them; relax one a little"
        )

    def solution(self, model: FunctionModel, policy: str = "mixture") -> LargeSolution:
        """The answer for the user."""
        pool, units, K = self.pool, self.pool.units, model.K
        best, complete = self.optimum(model, LEFT if policy == "one" else 1.0)
        goal = self.goal(best.value)
        shared = pool.parts(best.weights)
        try:
            shared = [(share, self.source.refine(c, goal) if complete else c) for share, c in shared]
        except KeyboardInterrupt:
            if self.sweeps.ranks.comm is not None:
                raise
            complete = False
        weights = np.array([share for share, _ in shared])
        weights /= weights.sum()
        values, errors = (sum(w * c.plan[i] for w, (_, c) in zip(weights, shared, strict=True)) for i in (0, 1))
        bound = best.bound * units[0] + pool.offsets[0]
        parts, notes = [self._part(c.choice.number) for _, c in shared], list[str]()
        if policy == "one" and len(parts) > 1 and complete:
            asked = model.rho, units, bound, goal * units[0]
            try:
                found = single(self.sweeps, parts, int(weights.argmax()), *asked, self.watch.pulse)
            except KeyboardInterrupt:
                found, complete = None, False
            if found is not None:
                part, values, errors = found
                parts, weights = [part], np.ones(1)
            else:
                notes.append("no single policy was found that is proved as good; this is the mixture")
        own, prices = model.signs * values, pool.prices(best.lam)
        gap = max(0.0, bound - float(own[0] - errors[0]))
        if complete and gap > goal * float(units[0]):
            notes.append("rounding or the limit on rounds leaves a larger gap than was asked for")
        return LargeSolution(
            model,
            LargePolicy(model, weights, tuple(parts)),
            float(values[0]),
            values[1:] + 0.0,
            prices * np.array([c.scale for c in model.constraints]),
            gap,
            errors[:K],
            np.maximum(model.rho - (own - errors)[1:], 0.0),
            prices * units[1:] > MIN_BINDING_SHARE * units[0],
            len(pool.columns),
            self.sweeps.done,
            self.watch.seconds,
            "gap" if complete else "interrupted",
            tuple(notes),
        )

    def _policy(self, columns: Parts) -> LargePolicy:
        shares = np.array([share for share, _ in columns])
        parts = [self._part(column.choice.number) for _, column in columns]
        return LargePolicy(self.model, shares / shares.sum(), tuple(parts))

    def _part(self, policy: int) -> LargePart:
        kept = self.source.kept[policy]
        if isinstance(self.source, BackwardSource):
            path = None if self.folder.path is None else str(self.folder.path)
            return LargePart(self.model, prices=kept, folder=path)
        whole = kept if self.sweeps.ranks.comm is None else self.source.order([GATHER, policy])
        return LargePart(self.model, whole[None])


def solve_large(
    model: FunctionModel,
    gap: float | None = None,
    threads: Threads = None,
    policy: str = "mixture",
    folder: str | os.PathLike[str] | None = None,
    comm: Any = None,
    progress: Report | bool = False,
) -> LargeSolution:
    """The optimum of a model by functions; `cmdpkit.solve` describes the parameters."""
    if policy not in ("mixture", "one"):
        raise CmdpkitError(f"policy is {quoted(policy)}, expected 'mixture' or 'one'")
    gap = GAP if gap is None else gap
    watch = SweepWatch(gap, progress)
    if policy == "one" and ((comm is not None and comm.size > 1) or model.criterion.kind == "average"):
        raise CmdpkitError(
            "policy is 'one', which needs visits; they are for one rank, and for discounted models and those with a "
            "horizon: leave policy out"
        )
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return _on_rank(model, gap, watch, policy, folder, Sweeps(model, threads, comm))
    except Exception as error:
        if comm is not None and comm.size > 1 and not isinstance(error, Infeasible):
            print(f"cmdpkit: rank {comm.rank} of {comm.size} failed: {error}", file=sys.stderr, flush=True)
            comm.Abort(1)
        raise
    finally:
        watch.close()


def search_of(model: FunctionModel, threads: Threads) -> FunctionSearch:
    """A search that serves any bounds, with its first columns."""
    search = FunctionSearch(model, GAP, SweepWatch(GAP, False), None, Sweeps(model, threads))
    search.begin()
    return search


def _on_rank(
    model: FunctionModel, gap: float, watch: SweepWatch, policy: str, folder: Any, sweeps: Sweeps
) -> LargeSolution:
    search = FunctionSearch(model, gap, watch, folder, sweeps)
    ranks = sweeps.ranks
    if ranks.comm is None:
        search.begin()
        return search.solution(model, policy)
    told: dict[str, Any] = {}
    if ranks.rank == 0:
        try:
            search.begin()
            found = search.solution(model, policy)
            told = {name: getattr(found, name) for name in NUMBERS.split()}
        except LargeInfeasible as error:
            told = {name: getattr(error, name) for name in ("utilities", "best", "conflict")}
            raise
        finally:
            search.source.order([STOP])
            ranks.comm.bcast(told)
        return found
    search.source.follow()
    told = ranks.comm.bcast(None)
    if not told:
        raise CmdpkitError("rank 0 found no policy; its error says why")
    nothing = LargePolicy(model, np.zeros(0), ())
    if "conflict" in told:
        raise LargeInfeasible(model, nothing, **told)
    return LargeSolution(model, nothing, **told, notes=("the policy is on rank 0",))


class LargeInfeasible(Infeasible):
    """No policy of a model by functions meets all bounds."""

    def __init__(
        self,
        model: FunctionModel,
        policy: LargePolicy,
        utilities: FloatArray,
        best: FloatArray,
        conflict: tuple[str, ...],
    ) -> None:
        self.cmdp: Any = model
        self.policy: Any = policy
        self.utilities, self.best, self.conflict = utilities, best, conflict
        CmdpkitError.__init__(self, self._explanation())


class Checked(NamedTuple):
    """What `check` looked at."""

    states: int  # drawn states
    row_error: float  # how far probabilities of a row miss 1 at most
    lowest: FloatArray  # [1 + N], the smallest reward and signals
    highest: FloatArray  # [1 + N], the largest ones


def check(model: FunctionModel, states: int = 10_000) -> Checked:
    """Check drawn states of a model by functions: positions inside the space, rows that sum to 1, finite signals.

    A solve checks all states before it begins; this answers at once.

    >>> import cmdpkit as ck
    >>> def step(x, a, e):
    ...     return (x[0] + e,), 0.5
    >>> model = ck.EventModel((4,), ["go"], 2, step, lambda x, a: (1.0,), start=(0,), discount=0.9)
    >>> ck.check(model)
    Traceback (most recent call last):
        ...
    cmdpkit.CmdpkitError: state (3,), action 'go' (index 0), event 1 leads outside of the space: ...
    """
    inspect = kernels_of(model.form).inspect
    drawn = np.arange(model.S) if states >= model.S else np.random.default_rng(0).integers(0, model.S, states)
    found = (
        np.full(model.K, np.inf),
        np.full(model.K, -np.inf),
        np.zeros(model.K),
        np.zeros(model.space[0], dtype=bool),
        np.zeros(1),
    )
    for s in drawn.tolist():
        problem = inspect(s, s + 1, *found)
        if problem[0]:
            raise wrong(model, problem)
    return Checked(len(drawn), float(found[4][0]), found[0], found[1])
