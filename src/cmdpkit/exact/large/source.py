"""Where columns of models by functions come from: policies that are priced by sweeps, with proved bounds.

Let h = weights . Y and delta = T h - h. Without a horizon, every policy has at most h(start) + max delta / (1 -
discount), and the values of one policy lie in Y(start) + [min, max] of (T Y - Y) / (1 - discount); for averages they
lie in [min, max] itself. So modified policy iteration knows at every moment how much a policy can lack, and is as exact
as a round of column generation needs. With a horizon, one backward pass is exact, and a policy is its prices.

Columns hold the lower ends of what is proved about a policy. So the gap of any mixture counts the errors of its values,
and a bound that it meets is met. All errors include rounding (docs/theory/large.md).

Rank 0 has the columns, and orders what all ranks do together: it names a method of their sources and its arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import PolicyColumn, Units
from cmdpkit.exact.large.storage import Folder
from cmdpkit.exact.large.sweeps import Choice, Draw, Sweeps
from cmdpkit.exact.solution import Infeasible
from cmdpkit.model.transitions import FloatArray, IntArray

COARSE = 1e-3  # of what signals can collect: the accuracy of the first columns, which only give units
FIRST_GAP = 0.1  # of the units, the gap that is assumed before one is known
LOOSEST = 0.05  # of the gap proved so far: no pricing is more exact
SHARE = 0.2  # of the slack of a pricing that may be due to errors of values
REFINED_SHARE = 0.02  # of the gap that is left: the error of values that are computed again
ROUNDINGS = 16  # the rounding in a total counts this many times in a tolerance, so that pricing decides what is met
DAMPED = 0.5  # step of a sweep where averages count: without it, a chain with a period would never settle
PATIENCE = 2_000  # sweeps in which the span of an average must fall by a tenth
MAX_IMPROVEMENTS = 1_000  # of one pricing
Pulse = Callable[[int], None]  # called with the number of sweeps so far
Draws = Mapping[tuple[int, int], Draw]  # the decisions that draw, by step and state


@dataclass(frozen=True)
class KeptPolicy:
    """A policy that its source keeps, as the pool of columns knows it."""

    source: FunctionSource = field(compare=False)
    number: int  # among those that are kept

    def differences(self, other: KeptPolicy) -> int:
        """In how many states two policies differ, on all ranks."""
        return 0 if self.number == other.number else int(self.source.order("different", self.number, other.number))


class FunctionSource:
    """What both sources share: units, the policies found, and what is kept of them in a folder.

    A source has three methods that all ranks call together: `priced` finds a policy with nearly the largest weights .
    totals, `actions` has all actions of a policy that is kept, and `different` says in how many states two differ.
    """

    exact = False

    def __init__(self, sweeps: Sweeps, folder: Folder | None = None, pulse: Pulse = lambda sweeps: None) -> None:
        self.sweeps, self.pulse = sweeps, pulse
        self.folder = Folder(None, sweeps.ranks, sweeps.model.S, {}) if folder is None else folder
        self.N, K = sweeps.model.N, sweeps.model.K
        self.Y, self.size = sweeps.table(K), np.zeros(K)  # tables of the values of a policy, and the largest |Y|
        self.values, self.half = np.zeros(K), np.full(K, np.inf)  # the values at the start are known to +- half
        self.kept: list[Any] = []  # policies found: choices or prices
        self.gap = 0.0  # proved so far, scaled; pricing need not be much more exact
        self.units, self.offsets = self._span(), np.zeros(sweeps.model.K)
        self.first: list[PolicyColumn] = []
        self.noise = np.full(K, 1e-15)  # rounding beyond the errors of columns, which count their own
        self.best = np.full(self.N, np.inf)  # upper bounds on the scaled utilities; none is known here

    def _span(self) -> FloatArray:
        """Upper bounds [K] on the ranges of the totals, from the smallest and largest signal of a step."""
        facts = self.sweeps.facts
        span = self.steps * (facts.highest - facts.lowest)
        return np.where(span > 0, span, 1.0)

    def begin(self) -> None:
        """Find the policy that collects the most of each signal, roughly; what they collect gives the units."""
        K = 1 + self.N
        found = [self.price(np.eye(1, K, k)[0], COARSE)[1][0] for k in range(K)]
        totals = np.array([self.sweeps.model.signs * column.plan[0] for column in found])
        if self.N:
            self.units = self._ranges(totals).unit
        self.offsets = totals.min(axis=0)
        self.first = [self._column(c.choice.number, c.plan, c.weights, np.inf) for c in found]
        self.gap = FIRST_GAP

    def _ranges(self, totals: FloatArray) -> Units:
        """Ranges of totals from those of some policies [policies, K], and the rounding that totals may have."""
        largest, worst = self.steps * self.sweeps.facts.size, totals.min(axis=0)
        rounding = ROUNDINGS * self.steps * self.sweeps.rounding(np.eye(1 + self.N), largest)
        return Units(worst, np.maximum(totals.max(axis=0), worst + COARSE * self._span()), rounding, largest)

    def _column(
        self, policy: int, known: tuple[FloatArray, FloatArray], weights: FloatArray, upper: float
    ) -> PolicyColumn:
        """A column of a kept policy with values in the user's units, each known to +- half."""
        values, half = known
        v, *w = (self.sweeps.model.signs * values - half - self.offsets) / self.units
        made = PolicyColumn(KeptPolicy(self, policy), float(v), np.array(w), weights, upper, plan=known)
        return made._replace(error=self.error(made))

    def error(self, column: PolicyColumn) -> float:
        """The largest width of what is proved about a value of a column, scaled."""
        return float(2 * (column.plan[1] / self.units).max())

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """An upper bound on weights . (v, w), scaled, and a policy within about `slack` of it."""
        per_unit = weights * self.sweeps.model.signs / self.units
        done = self._call("priced", per_unit.tolist(), slack, self.gap)
        upper = done["upper"] - float(weights @ (self.offsets / self.units))
        known = np.array(done["values"]), np.array(done["half"])
        return upper, [self._column(done["policy"], known, weights, upper)]

    def refine(self, column: PolicyColumn, goal: float | None = None) -> PolicyColumn:
        """The same column with values whose errors, scaled, sum to at most the goal: by default a share of the gap."""
        goal = REFINED_SHARE * self.gap if goal is None else goal
        if self.exact or self.error(column) <= goal:
            return column
        number = column.choice.number
        done = self._call("refined", number, goal, (1 / self.units).tolist())
        (before, wide), (after, half) = column.plan, (np.array(done["values"]), np.array(done["half"]))
        low, high = np.maximum(before - wide, after - half), np.minimum(before + wide, after + half)
        return self._column(number, ((low + high) / 2, (high - low) / 2), column.weights, column.objective)

    # -- what all ranks do together -----------------------------------------------------------------------------------

    def order(self, name: str, *arguments: Any) -> Any:
        """Let all ranks call a method; the result."""
        self.sweeps.ranks.shared((name, arguments))
        return getattr(self, name)(*arguments)

    def follow(self) -> None:
        """Do what rank 0 orders, until it orders nothing."""
        while order := self.sweeps.ranks.shared():
            name, arguments = order
            getattr(self, name)(*arguments)

    def infeasible(self, *found: Any) -> None:
        """Raise the error that rank 0 raises, without its policy."""
        raise Infeasible(self.sweeps.model, None, *found)

    def _call(self, *call: Any) -> dict[str, Any]:
        """A result from the journal, or found by all ranks and written there."""
        known: dict[str, Any] = self.folder.recall(list(call)) or self.order("recorded", *call)
        return known

    def recorded(self, name: str, *arguments: Any) -> dict[str, Any]:
        """What a method finds, written to the journal with the tables that the next call starts from."""
        policy, more = getattr(self, name)(*arguments)
        found = {"policy": policy, **{x: getattr(self, x).tolist() for x in ("values", "half", "size")}, **more}
        self.folder.record([name, *arguments], found, None if self.exact else self.Y)
        return found

    def valued(
        self, choice: NDArray[Any], draws: Draws, accuracy: FloatArray, wanted: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Totals and errors [K] of a policy [T, S], and Q - V [n, K] of the wanted (step, state, action) triples."""
        sweeps = self.sweeps
        gains = np.full((len(wanted), 1 + self.N), -np.inf)

        def compare(h: int, _: Choice) -> None:
            mine, place = sweeps.owned(wanted[:, 1])
            for i in np.flatnonzero(mine & (wanted[:, 0] == h)):
                gains[i] = sweeps.once(int(wanted[i, 1]), int(wanted[i, 2])) - self.Y[:, place[i]]

        own = choice[:, sweeps.ranks.stored]
        if sweeps.model.criterion.has_horizon:
            self.backward(own, draws, compare)
        else:
            self.evaluate(1.0, 1 / accuracy, own[0], [(s, p) for (_, s), p in draws.items()])
            compare(0, own[0])
        return self.values, self.half, sweeps.ranks.largest(gains)

    # -- the values of a policy ----------------------------------------------------------------------------------------

    @property
    def relative(self) -> bool:
        """Whether averages count: then tables are relative, and a sweep is damped."""
        return self.sweeps.model.criterion.kind == "average"

    @property
    def steps(self) -> float:
        """The factor of the largest T h - h, and of any signal of one step, in an upper bound on the value."""
        return float(self.sweeps.model.criterion.steps_in_value or 1.0)

    def rounding(self) -> FloatArray:
        """A bound [K] on the rounding of one sweep in each table."""
        return self.sweeps.rounding(np.eye(len(self.size)), self.size)

    def at_start(self) -> FloatArray:
        """The values [K] at the start by the tables; zeros for averages, whose tables are relative."""
        return np.zeros(len(self.size)) if self.relative else self.sweeps.at_start(self.Y)

    def evaluate(self, tol: float, w: FloatArray, choice: Choice, draws: Any = ()) -> None:
        """Without a horizon, sweep until |w| . half is at most tol, or as small as rounding allows."""
        sweeps, w, widths = self.sweeps, np.abs(w), [np.inf]
        far = 1.0 if self.relative else self.steps * (sweeps.model.criterion.discount or 1.0)
        tau = DAMPED if self.relative else 1.0
        while True:
            shift = sweeps.at_start(self.Y) if self.relative else np.zeros(len(w))
            low, high, self.size = sweeps.sweep(self.Y, choice, tau, shift, draws)
            size = np.maximum(self.size, self.size + np.maximum(np.abs(low), np.abs(high)) + np.abs(shift))
            error = sweeps.rounding(np.eye(len(w)), size) * self.steps
            self.values = self.at_start() + far * (low + high) / 2
            self.half = far * (high - low) / 2 + error
            widths.append(float(w @ self.half))
            if widths[-1] <= tol or (w * self.half <= 2 * w * error).all():
                return
            self.pulse(sweeps.done)
            if self.relative and len(widths) > PATIENCE and widths[-1] > 0.9 * widths[-PATIENCE]:
                raise CmdpkitError(
                    f"the average of a policy is known to +-{widths[-1]:.3g} only, and {PATIENCE} more sweeps do not "
                    "help: its chain may have several classes, which models by functions do not tell apart. Give a "
                    "discount, or solve model.arrays() if it is small enough"
                )

    def backward(
        self,
        given: NDArray[Any],
        draws: Draws | None = None,
        use: Callable[[int, Choice], object] = lambda h, choice: None,
    ) -> float:
        """With a horizon, evaluate the choices [H, stored], or the best ones for prices [K]; rounding in w . Y.

        Calls use(h, choice) for every step, beginning with the last.
        """
        sweeps, priced = self.sweeps, given.ndim == 1
        self.Y[:], self.half, self.size, error = 0.0, np.zeros(len(self.half)), np.zeros(len(self.half)), 0.0
        choice = sweeps.choices()
        for h in range(int(sweeps.model.criterion.horizon or 1) - 1, -1, -1):
            self.half = self.half + self.rounding()
            if priced:
                error += float(sweeps.rounding(given[None], self.size)[0])
                sweeps.improve(self.Y, given, 0.0, choice)
            else:
                choice = given[h]
            drawn = [(s, p) for (t, s), p in (draws or {}).items() if t == h]
            self.size = sweeps.sweep(self.Y, choice, 1.0, np.zeros(len(self.half)), drawn)[2]
            use(h, choice)
            self.pulse(sweeps.done)
        self.values = self.at_start()
        return error


class SweepSource(FunctionSource):
    """Without a horizon: modified policy iteration; tables Y and choices stay for the next pricing."""

    def __init__(self, sweeps: Sweeps, folder: Folder | None = None, pulse: Pulse = lambda sweeps: None) -> None:
        super().__init__(sweeps, folder, pulse)
        self.choice = sweeps.choices()
        for (name, *_), found in self.folder.known:  # policies of an earlier start
            if name == "priced" and found["policy"] == len(self.kept):
                self.kept.append(self.folder.mapped(f"choices-{len(self.kept)}.bin", self.choice))
        if self.folder.known:
            self.Y[:] = self.folder.mapped(self.folder.tables(), self.Y)
            self.choice[:] = self.kept[found["policy"]]
            self.values, self.half, self.size = (np.array(found[name]) for name in ("values", "half", "size"))

    def priced(self, weights: list[float], slack: float, gap: float) -> tuple[int, dict[str, float]]:
        """The number of a policy with nearly the largest weights . totals, and an upper bound on that."""
        sweeps, w, upper = self.sweeps, np.array(weights), np.inf
        slack = max(slack, LOOSEST * gap)
        for _ in range(MAX_IMPROVEMENTS):
            h = float(w @ self.at_start())
            error = float(sweeps.rounding(w[None], self.size)[0])
            evaluated = self.choice.copy()
            high, moved = sweeps.improve(self.Y, w, 2 * error, self.choice)
            self.pulse(sweeps.done)
            upper = min(upper, h + (high + error) * self.steps)
            known = bool(np.isfinite(self.half).all())
            width = float(np.abs(w) @ self.half) if known else np.inf
            lack = upper - float(w @ self.values) + width if known else np.inf
            floor = (8 * error + 4 * float(np.abs(w) @ self.rounding())) * self.steps
            if lack <= max(slack, floor):
                self.choice[:] = evaluated
                if width > max(SHARE * slack, floor):
                    self.evaluate(SHARE * slack, w, self.choice)
                break
            lack = lack if known else abs(high) * self.steps
            part = 0.1 if moved > sweeps.model.S / 20 else 0.01 if moved > sweeps.model.S / 200 else 0.001
            self.evaluate(max(part * lack, SHARE * slack), w, self.choice)
        return self._keep(self.choice), {"upper": upper}

    def _keep(self, choice: Choice) -> int:
        """The number of a policy among those that are kept."""
        for j in range(len(self.kept)):
            if self._count(choice, self.kept[j]) == 0:
                return j
        self.kept.append(self.folder.kept(f"choices-{len(self.kept)}.bin", choice.copy()))
        return len(self.kept) - 1

    def refined(self, policy: int, goal: float, per: list[float]) -> tuple[int, dict[str, float]]:
        """Evaluate a kept policy more exactly."""
        self.choice[:] = self.kept[policy]
        self.evaluate(goal, np.array(per), self.choice)
        return policy, {}

    def actions(self, policy: int) -> Any:
        """All actions [1, S] of a kept policy, on rank 0."""
        whole = self.sweeps.ranks.gathered(self.kept[policy])
        return None if whole is None else whole[None]

    def different(self, one: int, other: int) -> int:
        """In how many states two kept policies differ."""
        return self._count(self.kept[one], self.kept[other])

    def _count(self, one: Choice, other: Choice) -> int:
        ranks = self.sweeps.ranks
        return ranks.total(int(np.count_nonzero(ranks.own(one) != ranks.own(other))))


class BackwardSource(FunctionSource):
    """With a horizon: one backward pass per price, which is all that is kept of a policy."""

    exact = True

    def __init__(self, sweeps: Sweeps, folder: Folder | None = None, pulse: Pulse = lambda sweeps: None) -> None:
        super().__init__(sweeps, folder, pulse)
        self.kept = [np.array(call[1]) for call, _ in self.folder.known]

    def priced(self, weights: list[float], slack: float, gap: float) -> tuple[int, dict[str, float]]:
        """The number of the best policy, and an upper bound on its weights . totals."""
        w = np.array(weights)
        error = self.backward(w)
        self.kept.append(w)
        return len(self.kept) - 1, {"upper": float(w @ self.values) + 4 * error}

    def actions(self, policy: int) -> Any:
        """All actions [H, S] of a kept policy, on rank 0: found by another pass."""
        model, ranks, prices = self.sweeps.model, self.sweeps.ranks, self.kept[policy]
        name = f"actions-{hashlib.sha256(prices.tobytes()).hexdigest()[:16]}.bin"
        whole = self.folder.room(name, (int(model.criterion.horizon or 1), model.S), self.sweeps.choices().dtype)

        def gather(h: int, choice: Choice) -> None:
            found = ranks.gathered(choice)
            if found is not None:
                whole[h] = found

        self.backward(prices, use=gather)
        return whole

    def different(self, one: int, other: int) -> int:
        """In how many states two kept policies differ: in all, unless their prices are the same."""
        return 0 if np.array_equal(self.kept[one], self.kept[other]) else self.sweeps.model.S


def source_of(sweeps: Sweeps, folder: Folder | None = None, pulse: Pulse = lambda sweeps: None) -> FunctionSource:
    """The source of a model's columns."""
    return (BackwardSource if sweeps.model.criterion.has_horizon else SweepSource)(sweeps, folder, pulse)
