"""The optimum of models by functions: column generation on sweeps, and the value as a function of one bound."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.columns import MORE_EXACT, Columns, Optimum, Parts
from cmdpkit.exact.large.folder import Folder
from cmdpkit.exact.large.policy import LargePart, LargePolicy, LargeSolution, single
from cmdpkit.exact.large.source import source_of
from cmdpkit.exact.large.sweeps import Sweeps, inspected
from cmdpkit.exact.solution import MIN_CLASH_MULTIPLIER, Infeasible
from cmdpkit.exact.solver import MIN_BINDING_SHARE, Report, Watch
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.tolerances import FEASIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.user_functions import outcomes, wrong_in
from cmdpkit.operators.steps import Threads

GAP = 1e-6  # relative, unless another is asked for
LEFT = 0.4  # share of the gap at which the mixture is good enough to make one policy of it
SHARPER = 0.01  # how much more exact values become where they are too rough to go on
ATTEMPTS = 15  # times that this happens at most
PLAIN = 100  # states that `check` also looks at with the functions as plain Python
SMALL_VALUE = 1e-3  # of the reward's unit: the gap is relative to at least this


class FunctionSearch:
    """Column generation for one model; serves any bounds."""

    def __init__(self, model: FunctionModel, watch: Watch, sweeps: Sweeps, folder: Any = None) -> None:
        self.model, self.watch = model, watch
        self.source = source_of(sweeps, Folder(folder, sweeps, watch.gap), watch.pulse)

    def begin(self) -> None:
        """Find the first columns."""
        self.source.begin()
        self.pool = Columns(self.source, max_unexplained_gap=FEASIBLE)

    def ends(self, k: int) -> list[float]:
        """The total of signal k where the reward is the largest, and its own best, in the bound's unit; sorted."""
        c, found = self.model.constraints[k], list[float]()
        self.source.gap = 0.0
        for signal in (0, 1 + k):
            values, half = self.pool.price(np.eye(1, self.model.K, signal)[0], self.watch.gap)[1].plan
            found.append(float(values[1 + k] - c.sign * half[1 + k]) / c.scale)  # what is certainly reached
        return sorted(found)

    def goal(self, value: float) -> float:
        """The gap that is asked for, scaled, for a scaled value."""
        unit = float(self.pool.units[0])
        return self.watch.gap * max(abs(value + float(self.pool.offsets[0]) / unit), SMALL_VALUE)

    def optimum(self, model: FunctionModel, share: float) -> tuple[Optimum, bool]:
        """The best mixture under a model's bounds, to a share of the gap; False if Ctrl-C ended the search."""
        pool, source = self.pool, self.source

        def enough(best: Optimum) -> bool:
            gap, goal = best.bound - best.value, self.goal(best.value)
            source.gap = max(gap, 0.5 * goal)
            self.watch.enough(pool.value(best), gap * pool.units[0], source.sweeps.done)
            return gap <= share * goal

        rho = self._reachable(model)
        pool.so_far = None
        try:
            for _ in range(ATTEMPTS):
                best = pool.maximise(rho, enough)
                if best.bound - best.value <= share * self.goal(best.value) or not self._sharpen(best.weights):
                    break
        except KeyboardInterrupt:
            if pool.so_far is None or source.sweeps.ranks.comm is not None:
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
                raise Infeasible(model, self._policy(columns), best, clash, reached[1:])
            self.source.gap = min(self.source.gap, -t) * SHARPER
            self._sharpen(weights)
        raise CmdpkitError(
            f"not solved: the bounds are so close to what can be reached ({-t:.2g} of the range) that it is not clear "
            "whether a policy meets them; relax one a little"
        )

    def _sharpen(self, weights: FloatArray) -> bool:
        """Evaluate the policies of a mixture more exactly; whether rounding allowed it."""
        columns, made = list(self.pool.columns), False
        for j in np.flatnonzero(weights):
            before = self.source.error(columns[j])
            columns[j] = self.source.refine(columns[j], SHARPER * before)
            made |= self.source.error(columns[j]) < MORE_EXACT * before
        self.pool.replace(columns)
        return made

    def solution(self, model: FunctionModel, policy: str = "mixture") -> LargeSolution:
        """The answer for the user."""
        pool, units, source = self.pool, self.pool.units, self.source
        best, complete = self.optimum(model, LEFT if policy == "one" else 1.0)
        goal, bound = self.goal(best.value), best.bound * units[0] + pool.offsets[0]
        shared, notes = pool.parts(best.weights), list[str]()
        found = None
        try:
            shared = [(share, source.refine(c, goal) if complete else c) for share, c in shared]
            mixed = self._policy(shared, lazy=policy == "mixture")
            if policy == "one" and len(shared) > 1 and complete:
                aim = best.rho * units[1:] + pool.offsets[1:]
                lost = bound - sum(share * (c.plan[0][0] - c.plan[1][0]) for share, c in shared)
                tolerance = FEASIBLE * units[1:]
                found = single(source, mixed, aim, tolerance, bound, max(goal * units[0], 2 * lost))
                if found is None:
                    notes.append("no single policy was found that is proved as good; this is the mixture")
        except KeyboardInterrupt:
            if source.sweeps.ranks.comm is not None:
                raise
            complete, mixed = False, self._policy(shared, lazy=True)
        if found is None:
            values, errors = (
                sum(x * c.plan[i] for x, (_, c) in zip(mixed.weights, shared, strict=True)) for i in (0, 1)
            )
        else:
            part, values, errors = found
            mixed = LargePolicy(model, np.ones(1), (part,))
        own, prices = model.signs * values, pool.prices(best.lam)
        gap = max(0.0, bound - float(own[0] - errors[0]))
        if complete and gap > goal * float(units[0]):
            notes.append("rounding or the limit on rounds leaves a larger gap than was asked for")
        return LargeSolution(
            model,
            mixed,
            float(values[0]),
            values[1:] + 0.0,
            prices * np.array([c.scale for c in model.constraints]),
            gap,
            errors,
            np.maximum(model.rho - (own - errors)[1:], 0.0),
            prices * units[1:] > MIN_BINDING_SHARE * units[0],
            len(pool.columns),
            source.sweeps.done,
            self.watch.seconds,
            "gap" if complete else "interrupted",
            tuple(notes),
        )

    def _policy(self, columns: Parts, *, lazy: bool = False) -> LargePolicy:
        """A mixture of columns; ``lazy`` if actions that are found by a pass may be found when they are asked for."""
        source, model = self.source, self.model
        lazy = lazy and source.exact and source.sweeps.ranks.comm is None
        numbers = [column.choice.number for _, column in columns]
        if lazy:
            parts = [LargePart(model, prices=source.kept[number], folder=source.folder) for number in numbers]
        else:
            parts = [LargePart(model, source.order("actions", number)) for number in numbers]
        shares = np.array([share for share, _ in columns])
        return LargePolicy(model, shares / shares.sum(), tuple(parts))


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
    if policy == "one" and model.criterion.kind == "average":
        raise CmdpkitError("policy is 'one', which needs visits that end, and averages have none: leave policy out")
    watch = Watch(GAP if gap is None else gap, progress)
    try:
        return _on_rank(FunctionSearch(model, watch, Sweeps(model, threads, comm), folder), policy)
    except Exception as error:
        if comm is not None and comm.size > 1 and not isinstance(error, Infeasible):
            print(f"cmdpkit: rank {comm.rank} of {comm.size} failed: {error}", file=sys.stderr, flush=True)
            comm.Abort(1)
        raise
    finally:
        watch.close()


def search_of(model: FunctionModel, threads: Threads) -> FunctionSearch:
    """A search that serves any bounds, with its first columns."""
    search = FunctionSearch(model, Watch(GAP), Sweeps(model, threads))
    search.begin()
    return search


def _on_rank(search: FunctionSearch, policy: str) -> LargeSolution:
    """The answer on rank 0, which the others serve; they get its numbers, or the same error."""
    model, ranks, told = search.model, search.source.sweeps.ranks, dict[str, Any]()
    found: LargeSolution | Infeasible
    if ranks.rank == 0:
        try:
            search.begin()
            found = search.solution(model, policy)
            told = {x.name: getattr(found, x.name) for x in fields(found) if x.name not in ("model", "policy")}
        except Infeasible as error:
            found = error
            told = {name: getattr(error, name) for name in ("best", "conflict", "utilities")}
        ranks.shared(None)
        ranks.shared(told)
    else:
        search.source.follow()
        told, nothing = ranks.shared(), LargePolicy(model, np.zeros(0), ())
        told["notes" if "notes" in told else "policy"] = ("the policy is on rank 0",) if "notes" in told else nothing
        found = Infeasible(model, **told) if "conflict" in told else LargeSolution(model, nothing, **told)
    if isinstance(found, Infeasible):
        raise found
    return found


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
    drawn = np.arange(model.S) if states >= model.S else np.random.default_rng(0).integers(0, model.S, states)
    for s in drawn[:PLAIN].tolist():
        outcomes(model, model.state(s))
    wrong, found, _ = inspected(model, ((s, s + 1) for s in drawn.tolist()))
    if wrong >= 0:
        raise wrong_in(model, wrong)
    return Checked(len(drawn), found.row_error, found.lowest, found.highest)
