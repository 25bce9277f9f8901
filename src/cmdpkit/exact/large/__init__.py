"""Models by functions, solved by the same column generation: nothing of the size of a transition table is stored.

A model of `cmdpkit.model.functions` enters `solve_large`, below, and a `LargeSolution` leaves; `check` looks at some
states only. In the order of the imports:

    storage   states divided among processes (MPI), and what is kept of a solve on disk, so that it continues
    sweeps    improvement, evaluation and inspection of all states, compiled for the user's functions
    source    where columns come from: modified policy iteration, or one backward pass
    policy    choices, draws and mixtures; exact values, files, and one policy with few draws in place of a mixture
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Any, NamedTuple

import numpy as np

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.columns import MORE_EXACT, Columns, Optimum, Parts
from cmdpkit.exact.large.policy import LargePart, LargePolicy, LargeSolution, single
from cmdpkit.exact.large.source import source_of
from cmdpkit.exact.large.storage import Folder, safely
from cmdpkit.exact.large.sweeps import Sweeps, inspected
from cmdpkit.exact.solution import MIN_CLASH_MULTIPLIER, Infeasible
from cmdpkit.exact.solver import MIN_BINDING_SHARE, Report, Watch
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.tolerances import FEASIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.user_functions import outcomes, wrong_in
from cmdpkit.model.validate import is_int
from cmdpkit.operators.steps import Threads

GAP = 1e-6  # relative, unless another is asked for
LEFT = 0.4  # share of the gap at which the mixture is good enough to make one policy of it
SHARPER = 0.01  # how much more exact values become where they are too rough to go on
ATTEMPTS = 15  # times that this happens at most
LOOKED_AT = 200  # states whose outcomes tell models apart
PLAIN = 100  # states that `check` also looks at with the functions as plain Python
SMALL_VALUE = 1e-3  # of the reward's unit: the gap is relative to at least this


class FunctionSearch:
    """Column generation for one model; serves any bounds."""

    def __init__(self, sweeps: Sweeps, watch: Watch, folder: str | os.PathLike[str] | None = None) -> None:
        self.model, self.watch = sweeps.model, watch
        made = {"version": __version__, "model": digest_of(sweeps), "gap": watch.gap} if folder else {}
        self.source = source_of(sweeps, Folder(folder, sweeps.ranks, sweeps.model.S, made), watch.pulse)

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

    def optimum(self, model: FunctionModel, share: float) -> Optimum:
        """The best mixture under a model's bounds, to a share of the gap."""
        pool, source = self.pool, self.source

        def enough(best: Optimum) -> bool:
            gap, goal = best.bound - best.value, self.goal(best.value)
            source.gap = max(gap, 0.5 * goal)
            self.watch.enough(pool.value(best), gap * pool.units[0], source.sweeps.done)
            return gap <= share * goal

        rho = self._reachable(model)
        for _ in range(ATTEMPTS):
            best = pool.maximise(rho, enough)
            if best.bound - best.value <= share * self.goal(best.value) or not self._sharpen(best.weights):
                break
        return best

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
                policy = self._policy(columns)
                self.source.sweeps.ranks.shared(("infeasible", (best, clash, reached[1:])))
                raise Infeasible(model, policy, best, clash, reached[1:])
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
        """The answer for the user; after Ctrl-C, from the best mixture so far."""
        source, pool, one = self.source, self.pool, None
        pool.so_far = None
        units, offsets, complete, notes = pool.units, pool.offsets, True, list[str]()
        try:
            best = self.optimum(model, LEFT if policy == "one" else 1.0)
            shared = [(share, source.refine(c, self.goal(best.value))) for share, c in pool.parts(best.weights)]
            if policy == "one" and len(shared) > 1:
                one = self._single(best, shared)
                notes += [] if one else ["no single policy was found that is proved as good; this is the mixture"]
        except KeyboardInterrupt:
            if pool.so_far is None or source.sweeps.ranks.comm is not None:
                raise
            best, complete = pool.so_far, False
            shared = pool.parts(best.weights)
        if one is None:
            answer = self._policy(shared, lazy=policy == "mixture" or not complete)
            plans = [column.plan for _, column in shared]
            values, errors = (sum(x * p[i] for x, p in zip(answer.weights, plans, strict=True)) for i in (0, 1))
        else:
            part, values, errors = one
            answer = LargePolicy(model, np.ones(1), (part,))
        own, prices = model.signs * values, pool.prices(best.lam)
        gap = max(0.0, best.bound * units[0] + offsets[0] - float(own[0] - errors[0]))
        if complete and gap > self.goal(best.value) * float(units[0]):
            notes.append("rounding or the limit on rounds leaves a larger gap than was asked for")
        return LargeSolution(
            model,
            answer,
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

    def _single(self, best: Optimum, columns: Parts) -> tuple[LargePart, FloatArray, FloatArray] | None:
        """One policy that is as good as the mixture, its totals and their errors, if one is found."""
        pool = self.pool
        units, offsets = pool.units, pool.offsets
        bound = best.bound * units[0] + offsets[0]
        lost = bound - sum(share * (c.plan[0][0] - c.plan[1][0]) for share, c in columns)
        goal = max(self.goal(best.value) * units[0], 2 * lost)
        aim = best.rho * units[1:] + offsets[1:]
        return single(self.source, self._policy(columns), aim, FEASIBLE * units[1:], bound, goal)

    def _policy(self, columns: Parts, *, lazy: bool = False) -> LargePolicy:
        """A mixture of columns; ``lazy`` if actions that are found by a pass may be found when they are asked for."""
        source, model = self.source, self.model
        numbers = [column.choice.number for _, column in columns]
        if lazy and source.exact and source.sweeps.ranks.comm is None:
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
        with safely(folder):
            search = FunctionSearch(Sweeps(model, threads, comm), watch, folder)
            ranks = search.source.sweeps.ranks
            if ranks.rank > 0:
                search.source.follow()
                nothing = LargePolicy(model, np.zeros(0), ())
                own = {"model": model, "policy": nothing, "notes": ("the policy is on rank 0",)}
                return LargeSolution(**ranks.shared() | own)
            search.begin()
            found = search.solution(model, policy)
            ranks.shared(None)
            ranks.shared(vars(found) | {"model": None, "policy": None})  # a user's functions cannot always be sent
            return found
    except Exception as error:
        if comm is not None and comm.size > 1 and not isinstance(error, Infeasible):
            print(f"cmdpkit: rank {comm.rank} of {comm.size} failed: {error}", file=sys.stderr, flush=True)
            comm.Abort(1)
        raise
    finally:
        watch.close()


def search_of(model: FunctionModel, threads: Threads) -> FunctionSearch:
    """A search that serves any bounds, with its first columns."""
    search = FunctionSearch(Sweeps(model, threads), Watch(GAP))
    search.begin()
    return search


def digest_of(sweeps: Sweeps) -> str:
    """A digest of a model: sizes, bounds, criterion, and outcomes of the functions in some hundred states."""
    model = sweeps.model
    picked = np.unique(np.linspace(0, model.S - 1, LOOKED_AT).astype(np.int64)).tolist()
    parts: list[Any] = [repr(model), sorted(model.start.items()), [c.bound_on_total for c in model.constraints]]
    for s in picked:
        parts += [(a, own.tolist(), moves) for a, own, moves in outcomes(model, model.state(s))]
    parts += [(part.to.tolist(), part.p.tolist()) for part in model.noise]
    parts.append([x.tolist() for x in sweeps.facts[:3]])
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


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
    cmdpkit.CmdpkitError: state (3,), action 'go' (index 0), event 1 leads to (4,) with probability 0.5, expected ...
    """
    if not isinstance(model, FunctionModel):
        raise CmdpkitError(
            f"check is for models by functions, got {quoted(model)}; a model with arrays is checked when it is made, "
            "and cmdpkit.diagnose says more about it"
        )
    if not is_int(states) or states < 1:
        raise CmdpkitError(f"states is {quoted(states)}, expected a whole number, at least 1")
    drawn = np.arange(model.S) if states >= model.S else np.random.default_rng(0).integers(0, model.S, states)
    for s in drawn[:PLAIN].tolist():
        outcomes(model, model.state(s))
    wrong, found, _ = inspected(model, ((s, s + 1) for s in drawn.tolist()))
    if wrong >= 0:
        raise wrong_in(model, wrong)
    return Checked(len(drawn), found.row_error, found.lowest, found.highest)
