"""Where columns of models by functions come from: policies that are priced by sweeps, with proved bounds.

Let h = weights . Y and delta = T h - h. Without a horizon, every policy has at most h(start) + max delta / (1 -
discount), and the values of one policy lie in Y(start) + [min, max] of (T Y - Y) / (1 - discount); for averages they
lie in [min, max] itself. So modified policy iteration knows at every moment how much a policy can lack, and is as exact
as a round of column generation needs. With a horizon, one backward pass is exact, and a policy is its prices.

Columns hold the lower ends of what is proved about a policy. So the gap of any mixture counts the errors of its values,
and a bound that it meets is met. All errors include rounding (docs/theory/large.md).

With a folder, a journal has the result of every call. A solve that is started again repeats its decisions, takes the
results of all calls in the journal from there, and goes on with the first call that is missing. Since the same calls
give the same bits, so does the whole solve. Files are written by ordinary writes and only then mapped, so that a full
disk is an error here and loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.columns import PolicyColumn
from cmdpkit.exact.large.sweeps import Choice, Sweeps
from cmdpkit.model.transitions import FloatArray

COARSE = 1e-3  # of what signals can collect: the accuracy of the first columns, which only give units
FIRST_GAP = 0.1  # of the units, the gap that is assumed before one is known
LOOSEST = 0.05  # of the gap proved so far: no pricing is more exact
SHARE = 0.2  # of the slack of a pricing that may be due to errors of values
REFINED_SHARE = 0.02  # of the gap that is left: the error of values that are computed again
DAMPED = 0.5  # step of a sweep where averages count: without it, a chain with a period would never settle
PATIENCE = 2_000  # sweeps in which the span of an average must fall by a tenth
MAX_IMPROVEMENTS = 1_000  # of one pricing
JOURNAL = "journal.jsonl"  # the calls and their results
STOP, PRICE, REFINE, DIFFER, GATHER = range(5)  # what rank 0 lets the others do


class Folder:
    """A folder for one solve; without a path, everything stays in memory and there is no journal."""

    def __init__(self, path: str | os.PathLike[str] | None, sweeps: Sweeps, gap: float) -> None:
        self.path, self.sweeps = None if path is None else Path(path), sweeps
        self.known: list[dict[str, Any]] = []  # calls of an earlier start that were not repeated yet
        self.calls = 0  # in the journal
        if self.path is not None:
            self._open(self.path, {"solve": digest_of(sweeps), "gap": gap})

    def _open(self, path: Path, head: dict[str, Any]) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            journal = path / JOURNAL
            if not journal.exists():
                if any(path.iterdir()):
                    raise CmdpkitError(f"folder {quoted(str(path))} holds other files; give a new or an empty one")
                self.sweeps.ranks.wait()
                self._append(head)
            else:
                whole = [line for line in journal.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
                found, *self.known = [json.loads(line) for line in whole]
                if found != head:
                    raise CmdpkitError(
                        f"folder {quoted(str(path))} belongs to a solve of another model, other bounds or another gap; "
                        "give a new one, or the same arguments as before"
                    )
                self.sweeps.ranks.wait()
                if self.sweeps.ranks.rank == 0:  # a line that was being written when the solve ended is dropped
                    journal.write_text("".join(whole), "utf-8")
            self.sweeps.ranks.wait()
            self.calls = len(self.known)
        except (OSError, json.JSONDecodeError) as error:
            raise self._failed(error) from None

    def recall(self, call: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a call of an earlier start, if it is in the journal."""
        if not self.known:
            return None
        result = self.known.pop(0)
        if any(result.get(key) != value for key, value in call.items()):
            raise CmdpkitError(f"the journal in {quoted(str(self.path))} does not fit this solve; give a new folder")
        return result

    def record(self, result: dict[str, Any], tables: NDArray[Any] | None = None) -> None:
        """Add a call to the journal, and keep the tables that the next call starts from."""
        if self.path is None:
            return
        if tables is not None:
            self.write(f"tables-{self.calls % 2}.bin", tables)
        try:
            self._append(result)
        except OSError as error:
            raise self._failed(error) from None
        self.calls += 1

    def _append(self, line: dict[str, Any]) -> None:
        if self.path is not None and self.sweeps.ranks.rank == 0:
            with open(self.path / JOURNAL, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def write(self, name: str, stored: NDArray[Any]) -> None:
        """Write the owned planes of an array [..., stored states] to a file that all ranks share."""
        if self.path is None:
            return
        r, inner, S = self.sweeps.ranks, self.sweeps.inner, self.sweeps.S
        rows, path = stored.reshape(-1, stored.shape[-1]), self.path / name
        try:
            if r.rank == 0:
                path.touch()
            r.wait()
            with open(path, "r+b") as file:
                for k, row in enumerate(rows):
                    file.seek((k * S + r.lo * inner) * row.itemsize)
                    file.write(row[(r.lo - r.base) * inner : (r.hi - r.base) * inner].data)
                file.flush()
                os.fsync(file.fileno())
            r.wait()
        except OSError as error:
            raise self._failed(error) from None

    def read(self, name: str, into: NDArray[Any]) -> None:
        """Fill the stored planes of an array [..., stored states] from a file."""
        if self.path is None:
            return
        r, inner = self.sweeps.ranks, self.sweeps.inner
        rows = into.reshape(-1, into.shape[-1])
        try:
            whole = np.memmap(self.path / name, into.dtype, "r", shape=(len(rows), self.sweeps.S))
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        rows[:] = whole[:, r.base * inner : r.top * inner]

    def mapped(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """The same array from a file, if there is a folder and only one rank: it then takes no memory."""
        self.write(name, stored)
        if self.path is None or self.sweeps.ranks.comm is not None:
            return stored
        return np.memmap(self.path / name, stored.dtype, "r", shape=stored.shape)

    def _failed(self, error: Exception) -> CmdpkitError:
        return CmdpkitError(
            f"folder {quoted(str(self.path))}: {error}. Nothing that was kept is lost: free some space or repair the "
            "folder, and start the same solve again; it continues"
        )


def digest_of(sweeps: Sweeps) -> str:
    """What tells solves apart: sizes, bounds, criterion, and what the functions return for some hundred states."""
    model, form = sweeps.model, sweeps.form
    picked = np.unique(np.linspace(0, model.S - 1, 200).astype(np.int64)).tolist()
    parts: list[Any] = [repr(model), sorted(model.start.items()), [c.bound_on_total for c in model.constraints]]
    for s in picked:
        x = form.decode(s)
        for a in range(model.A):
            if form.allowed(x, a):
                outcomes = [form.step(x, a, e) for e in range(model.events)] if model.events else form.step(x, a)
                parts.append((outcomes, form.collect(x, a)))
    parts += [(part.to.tolist(), part.p.tolist()) for part in model.noise]
    parts.append([x.tolist() for x in sweeps.facts[:3]])
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class KeptPolicy:
    """A policy that its source keeps, as the pool of columns knows it."""

    source: FunctionSource
    number: int  # among those that are kept

    def differences(self, other: KeptPolicy) -> int:
        """In how many states two policies differ, on all ranks."""
        if self.number == other.number:
            return 0
        return int(self.source.order([DIFFER, self.number, other.number]))


class FunctionSource:
    """What both sources share: units, the policies found, and the order of work among ranks."""

    exact = False

    def __init__(self, sweeps: Sweeps, folder: Folder, pulse: Callable[[int], None]) -> None:
        self.sweeps, self.folder, self.pulse = sweeps, folder, pulse
        self.K, self.N = sweeps.K, sweeps.K - 1
        self.signs = sweeps.model.signs
        self.noise, self.best = np.full(self.K, 1e-15), np.full(self.N, np.inf)
        self.Y, self.size = sweeps.table(self.K), np.zeros(self.K)
        self.kept: list[Any] = []  # policies found: choices or prices
        self.gap = 0.0  # proved so far, scaled; pricing need not be much more exact
        facts, steps = sweeps.facts, sweeps.model.criterion.steps_in_value or 1.0
        self.span = np.maximum(steps * (facts.highest - facts.lowest), 1e-300)  # no total has a larger range
        self.units, self.offsets = self.span.copy(), np.zeros(self.K)
        self.first: list[PolicyColumn] = []

    def begin(self) -> None:
        """Find the policy that collects the most of each signal, roughly; what they collect gives the units."""
        found = [self.price(np.eye(1, self.K, k)[0], COARSE)[1][0] for k in range(self.K)]
        totals = np.array([self.signs * column.plan[0] for column in found])
        spread = totals.max(axis=0) - totals.min(axis=0)
        self.units = np.maximum(spread, COARSE * self.span) if self.N else self.span
        self.offsets = totals.min(axis=0)
        self.first = [self._column(c.choice.number, c.plan, c.weights, np.inf) for c in found]
        self.gap = FIRST_GAP

    def _column(
        self, policy: int, known: tuple[FloatArray, FloatArray], weights: FloatArray, upper: float
    ) -> PolicyColumn:
        """A column of a kept policy with values in the user's units, each known to +- half."""
        values, half = known
        v, *w = (self.signs * values - half - self.offsets) / self.units
        return PolicyColumn(
            KeptPolicy(self, policy),
            float(v),
            np.array(w),
            weights,
            upper,
            float(2 * (half / self.units).max()),
            (values, half),
        )

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """An upper bound on weights . (v, w), scaled, and a policy within about `slack` of it."""
        per_unit = weights * self.signs / self.units
        done = self._call({"price": per_unit.tolist(), "slack": slack}, [PRICE, slack, *per_unit])
        upper = done["upper"] - float(weights @ (self.offsets / self.units))
        known = np.array(done["values"]), np.array(done["half"])
        return upper, [self._column(done["policy"], known, weights, upper)]

    def refine(self, column: PolicyColumn, goal: float | None = None) -> PolicyColumn:
        """The same column with values whose errors, scaled, sum to at most the goal: by default a share of the gap."""
        goal = REFINED_SHARE * self.gap if goal is None else goal
        if self.exact or column.error <= goal:
            return column
        number = column.choice.number
        done = self._call({"refine": number, "goal": goal}, [REFINE, number, goal, *(1 / self.units)])
        (before, wide), (now, half) = column.plan, (np.array(done["values"]), np.array(done["half"]))
        low, high = np.maximum(before - wide, now - half), np.minimum(before + wide, now + half)
        return self._column(number, ((low + high) / 2, (high - low) / 2), column.weights, column.objective)

    def _call(self, call: dict[str, Any], order: list[float]) -> dict[str, Any]:
        """A result from the journal, or computed by all ranks and written there."""
        known = self.folder.recall(call)
        if known is not None:
            return known
        return {**call, **self.order([*order, self.gap])}

    # -- ranks ---------------------------------------------------------------------------------------------------------

    def order(self, numbers: list[float]) -> Any:
        """Let all ranks do the same; the result."""
        return self.do(self.sweeps.ranks.share(np.array([*numbers, *[0.0] * (self.K + 5 - len(numbers))], dtype=float)))

    def follow(self) -> None:
        """Do what rank 0 orders, until it stops."""
        while True:
            numbers = self.sweeps.ranks.share(np.zeros(self.K + 5))
            if numbers[0] == STOP:
                return
            self.do(numbers)

    def do(self, numbers: FloatArray) -> Any:
        """One order."""
        what, one, K = int(numbers[0]), numbers[1], self.K
        if what == PRICE:
            result = self._price(numbers[2 : 2 + K], one, numbers[2 + K])
            call = {"price": numbers[2 : 2 + K].tolist(), "slack": one}
            self.folder.record({**call, **result}, self.state())
        elif what == REFINE:
            result = self._refine(int(one), numbers[2], numbers[3 : 3 + K])
            self.folder.record({"refine": int(one), "goal": numbers[2], **result}, self.state())
        elif what == DIFFER:
            return self._differences(int(one), int(numbers[2]))
        elif what == GATHER:
            return self.sweeps.ranks.gathered(self.kept[int(one)], self.sweeps.inner)
        return None if what == STOP else result

    def state(self) -> Any:
        """The tables that the next call starts from."""
        return None

    def _price(self, w: FloatArray, slack: float, gap: float) -> dict[str, Any]:
        raise NotImplementedError

    def _refine(self, policy: int, goal: float, per: FloatArray) -> dict[str, Any]:
        raise NotImplementedError

    def _differences(self, one: int, other: int) -> int:
        raise NotImplementedError


class SweepSource(FunctionSource):
    """Without a horizon: modified policy iteration; tables Y and choices stay for the next pricing."""

    def __init__(self, sweeps: Sweeps, folder: Folder, pulse: Callable[[int], None]) -> None:
        super().__init__(sweeps, folder, pulse)
        discount = sweeps.model.criterion.discount
        self.tau = 1.0 if discount else DAMPED
        self.steps, self.far = (1 / (1 - discount), discount / (1 - discount)) if discount else (1.0, 1.0)
        self.choice: Choice = sweeps.table(dtype=sweeps.type)
        self.values, self.half = np.zeros(self.K), np.full(self.K, np.inf)
        for done in folder.known:  # policies of an earlier start
            if "price" in done and done["policy"] == len(self.kept):
                self.kept.append(self._read(len(self.kept)))
        if folder.known:
            last = folder.known[-1]
            folder.read(f"tables-{(len(folder.known) - 1) % 2}.bin", self.Y)
            self.choice[:] = self.kept[last["policy"]]
            self.values, self.half = np.array(last["values"]), np.array(last["half"])
            self.size = np.array(last["size"])

    def _read(self, policy: int) -> Choice:
        choice = self.sweeps.table(dtype=self.sweeps.type)
        self.folder.read(f"choices-{policy}.bin", choice)
        return self.folder.mapped(f"choices-{policy}.bin", choice)

    def state(self) -> Any:
        """The tables of values."""
        return self.Y

    def evaluate(self, tol: float, w: FloatArray, choice: Choice, draws: Any = ()) -> None:
        """Sweep until the values of a policy are known such that |w| . half is at most tol, or to rounding."""
        model, w, widths = self.sweeps, np.abs(w), [np.inf]
        while True:
            shift = np.zeros(self.K) if self.tau == 1.0 else model.at_start(self.Y)
            low, high, self.size = model.sweep(self.Y, choice, self.tau, shift, draws)
            size = np.maximum(self.size, self.size + np.maximum(np.abs(low), np.abs(high)) + np.abs(shift))
            error = model.rounding(np.eye(self.K), size) * self.steps
            now = model.at_start(self.Y) if self.tau == 1.0 else np.zeros(self.K)
            self.values = now + self.far * (low + high) / 2
            self.half = self.far * (high - low) / 2 + error
            widths.append(float(w @ self.half))
            if widths[-1] <= max(tol, 2 * float(w @ error)):
                return
            self.pulse(model.done)
            if self.tau < 1.0 and len(widths) > PATIENCE and widths[-1] > 0.9 * widths[-PATIENCE]:
                raise CmdpkitError(
                    f"the average of a policy is known to +-{widths[-1]:.3g} only, and {PATIENCE} more sweeps do not "
                    "help: its chain may have several classes, which models by functions do not tell apart. Give a "
                    "discount, or solve model.arrays() if it is small enough"
                )

    def _price(self, w: FloatArray, slack: float, gap: float) -> dict[str, Any]:
        model, upper = self.sweeps, np.inf
        slack = max(slack, LOOSEST * gap)
        evaluated = self.choice.copy()
        for _ in range(MAX_IMPROVEMENTS):
            h = float(w @ model.at_start(self.Y)) if self.tau == 1.0 else 0.0
            error = float(model.rounding(w[None], self.size)[0])
            evaluated[:] = self.choice
            high, moved = model.improve(self.Y, w, 2 * error, self.choice)
            self.pulse(model.done)
            upper = min(upper, h + (high + error) * self.steps)
            known = bool(np.isfinite(self.half).all())
            width = float(np.abs(w) @ self.half) if known else np.inf
            lack = upper - float(w @ self.values) + width if known else np.inf
            floor = (
                8 * error * self.steps + 4 * float(np.abs(w) @ model.rounding(np.eye(self.K), self.size)) * self.steps
            )
            if lack <= max(slack, floor):
                self.choice[:] = evaluated
                if width > max(SHARE * slack, floor):
                    self.evaluate(SHARE * slack, w, self.choice)
                break
            if not known:
                lack = abs(high) * self.steps
            part = 0.1 if moved > model.S / 20 else 0.01 if moved > model.S / 200 else 0.001
            self.evaluate(max(part * lack, SHARE * slack), w, self.choice)
        return {"upper": upper, **self._known(self._keep(self.choice))}

    def _known(self, policy: int) -> dict[str, Any]:
        numbers = {"values": self.values.tolist(), "half": self.half.tolist(), "size": self.size.tolist()}
        return {"policy": policy, **numbers}

    def _keep(self, choice: Choice) -> int:
        """The number of a policy among those that are kept."""
        for j in range(len(self.kept)):
            if self._count(choice, self.kept[j]) == 0:
                return j
        self.kept.append(self.folder.mapped(f"choices-{len(self.kept)}.bin", choice.copy()))
        return len(self.kept) - 1

    def _refine(self, policy: int, goal: float, per: FloatArray) -> dict[str, Any]:
        self.choice[:] = self.kept[policy]
        self.evaluate(goal, per, self.choice)
        return self._known(policy)

    def _differences(self, one: int, other: int) -> int:
        return self._count(self.kept[one], self.kept[other])

    def _count(self, one: Choice, other: Choice) -> int:
        r, n = self.sweeps.ranks, self.sweeps.inner
        own = slice((r.lo - r.base) * n, (r.hi - r.base) * n)
        return r.total(int(np.count_nonzero(one[own] != other[own])))


class BackwardSource(FunctionSource):
    """With a horizon: one backward pass per price, which is all that is kept of a policy."""

    exact = True

    def __init__(self, sweeps: Sweeps, folder: Folder, pulse: Callable[[int], None]) -> None:
        super().__init__(sweeps, folder, pulse)
        self.H = int(sweeps.model.criterion.horizon or 1)
        self.kept = [np.array(done["price"]) for done in folder.known if "price" in done]

    def _price(self, w: FloatArray, slack: float, gap: float) -> dict[str, Any]:
        error, half = self.backward(w, lambda h, choice: None)
        values = self.sweeps.at_start(self.Y)
        self.kept.append(w.copy())
        numbers = {"values": values.tolist(), "half": half.tolist(), "policy": len(self.kept) - 1}
        return {"upper": float(w @ values) + 4 * error, **numbers}

    def backward(self, w: FloatArray, use: Callable[[int, Choice], None]) -> tuple[float, FloatArray]:
        """Choose and evaluate from the last step on, calling use(h, choice); rounding of w . Y, and of Y [K]."""
        model, choice = self.sweeps, self.sweeps.table(dtype=self.sweeps.type)
        self.Y[:], error, half, size = 0.0, 0.0, np.zeros(self.K), np.zeros(self.K)
        for h in range(self.H - 1, -1, -1):
            error += float(model.rounding(w[None], size)[0])
            half += model.rounding(np.eye(self.K), size)
            model.improve(self.Y, w, 0.0, choice)
            size = model.sweep(self.Y, choice, 1.0, np.zeros(self.K))[2]
            use(h, choice)
            self.pulse(model.done)
        return error, half

    def _differences(self, one: int, other: int) -> int:
        return 0 if np.array_equal(self.kept[one], self.kept[other]) else self.sweeps.S
