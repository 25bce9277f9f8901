"""Runs that differ in the seed alone, together, and what can be said about them: means with intervals, curves, growth.

Such runs are a `Group`, and the seed is the unit: every interval is over seeds, and a single seed has none. Where all
seeds give the same numbers, they count as one. Runs of different code are never pooled. They are groups of their own,
and their labels say which code is the newest one, and when each was run last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.tolerances import BOUND_MET
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Run, RunRecord

CODE_DIGITS = 8  # of a digest of code or of a model
KINDS = ("weak", "strong", "realised")
# Curves that cannot be negative, so that their intervals end at 0.
NONNEGATIVE = ("strong_regret", "strong_violation", "multiplier", "certified_gap", "unsafe_episodes", "gaps_paid")
SLOPE_POINTS = 24  # at which a curve is read to fit its growth
LEVEL = 0.95  # confidence level of intervals, unless the caller says otherwise

# What the columns of tables about runs mean.
MEANINGS = {  # by what the length of a run counts
    "episode": {
        "weak": "The total over all episodes, signed, expected under the policies that were played.",
        "strong": "The total of the positive parts, expected under the policies that were played.",
        "realised": "The total over all episodes, signed, as it was observed.",
    },
    "step": {
        "weak": "The total over all steps, signed, expected of the actions that were taken.",
        "strong": "The largest total at any time of the run.",
        "realised": "The total over all steps, signed, as it was observed.",
    },
}
GAPS = "What all actions that were taken lose against the optimum, at the prices of its bounds."
CERTIFIED = "The final policy is proved to be at most this far below the optimum."
UNSAFE = "Episodes whose policy misses a bound in expectation."

Kind = Literal["weak", "strong", "realised"]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in the seed alone, in order of their seeds."""

    records: tuple[RunRecord, ...]  # one per seed
    label: str  # the algorithm, and what tells it from other groups on the same problem
    request: str  # the label without the mark of the code, so that it stays the same after an edit
    problem: str  # the environment, and the bounds that were changed
    algo: str  # what the algorithm alone is called
    env: str  # what the environment alone is called

    @property
    def run(self) -> Run:
        """What was asked, with the first seed."""
        return self.records[0].run

    @property
    def seeds(self) -> tuple[int, ...]:
        """Their seeds."""
        return tuple(record.run.seed for record in self.records)

    @cached_property
    def deterministic(self) -> bool:
        """Whether there are several seeds and all of them gave the same numbers: nothing was left to chance."""
        return len(self.records) > 1 and all(_same(a, b) for a, b in pairwise(self.records))

    @property
    def samples(self) -> tuple[RunRecord, ...]:
        """The independent results: one record per seed, but only one of all where the seed makes no difference."""
        return self.records[:1] if self.deterministic else self.records

    def has(self, name: str) -> bool:
        """Whether every run has the curve."""
        return all(name in record.curves for record in self.records)

    def can_draw(self, name: str) -> bool:
        """Whether every run has the curve with more than its end: gaps are certified at `readings`."""
        if name != "certified_gap" or not self.has(name):
            return self.has(name)
        return any(np.ptp(record.curve(name)[:-1]) > 0 for record in self.records)


def groups(records: Iterable[RunRecord], labels: Mapping[str, str] | None = None) -> tuple[Group, ...]:
    """Records by everything but the seed, in the order of their first appearance.

    ``labels`` are other names: for algorithms, for labels such as "triple-q (eta=2.0)", for environments, or for
    problems such as "queue with energy = 20".
    """
    together: dict[tuple[object, ...], list[RunRecord]] = {}
    for record in records:
        together.setdefault((*_but_code(record.run), record.run.code), []).append(record)
    for same in together.values():
        same.sort(key=lambda record: record.run.seed)
        twice = [a.run.seed for a, b in pairwise(same) if a.run.seed == b.run.seed]
        if twice:
            raise CmdpkitError(f"{same[0].run.algo} on {same[0].run.problem}: seed {twice[0]} is given twice")
    runs = [same[0].run for same in together.values()]
    versions: dict[tuple[object, ...], list[RunRecord]] = {}  # runs of the same request with different code
    for same in together.values():
        versions.setdefault(_but_code(same[0].run), []).append(max(same, key=lambda record: record.finished))
    return tuple(
        _named(
            tuple(same), label_of(same[0].run, runs), _code_mark(same[0].run, versions[_but_code(same[0].run)]), labels
        )
        for same in together.values()
    )


def _named(records: tuple[RunRecord, ...], label: str, mark: str, labels: Mapping[str, str] | None) -> Group:
    """A group with what it is called: a label for the whole text, or else for the name at its beginning."""
    run, labels = records[0].run, labels or {}
    algo, env = labels.get(run.algo, run.algo), labels.get(run.env, run.env)
    request = labels.get(label, algo + label.removeprefix(run.algo))
    problem = labels.get(run.problem, env + run.problem.removeprefix(run.env))
    return Group(records, _detailed(request, [mark] if mark else []), request, problem, algo, env)


def group_key(run: Run) -> str:
    """A digest of everything that was asked but the seed."""
    return replace(run, seed=0).key


def remarks(found: Sequence[Group]) -> tuple[str, ...]:
    """What a reader of a table of groups has to know about them, in sentences."""
    told = []
    alike: dict[tuple[object, ...], list[Group]] = {}
    worlds: dict[str, set[str]] = {}
    for group in found:
        alike.setdefault(_but_code(group.run), []).append(group)
        worlds.setdefault(group.problem, set()).add(group.run.fingerprint)
    for problem, several in worlds.items():
        if len(several) > 1:
            told.append(f"{problem} was changed between runs: its {len(several)} versions are shown apart.")
    for rivals in alike.values():
        if len(rivals) > 1:
            algo, labels = rivals[0].run.algo, ", ".join(group.label for group in rivals)
            told.append(f"{algo} on {rivals[0].problem} was run with different code, which is shown apart: {labels}.")
    unknown = sum(len(group.records) for group in found if not group.run.code)
    if unknown:
        subject = "1 run does" if unknown == 1 else f"{unknown} runs do"
        told.append(f"{subject} not say which code was used (code unknown).")
    for group in found:
        if group.deterministic:
            told.append(
                f"All {len(group.seeds)} seeds of {group.label} on {group.problem} gave the same numbers: they "
                "count as one run (deterministic), without an interval."
            )
    return tuple(told)


def _but_code(run: Run) -> tuple[object, ...]:
    """Everything that was asked, but for the seed and the code."""
    world = (run.env, tuple(sorted(run.bounds.items())), run.fingerprint)
    return *world, run.algo, run.preset, _settings(run), run.length


def _settings(run: Run) -> str:
    """Parameters, noise, baseline, readings and unknown length, as far as they were set."""
    given = {name: json.dumps(value) for name, value in sorted(run.params.items())}
    given |= {"noise": run.noise} if run.noise != "none" else {}
    given |= {"baseline": run.baseline} if run.baseline else {}
    given |= {"readings": str(list(run.readings))} if run.readings else {}
    given |= {"anytime": "true"} if run.anytime else {}
    return ", ".join(f"{name}={value}" for name, value in given.items())


def label_of(run: Run, runs: Sequence[Run]) -> str:
    """The algorithm, with as much of preset, settings, length and model as tells it from others."""
    rivals = [other for other in runs if (other.problem, other.algo) == (run.problem, run.algo)]
    parts = (
        lambda r: r.preset,
        _settings,
        lambda r: f"{r.length:,} {r.unit}s",
        lambda r: f"model {r.fingerprint[:CODE_DIGITS]}",
    )
    details = []
    for part in parts:
        alike = [other for other in rivals if part(other) == part(run)]
        if len(alike) < len(rivals):
            details.append(part(run))
        rivals = alike
    return _detailed(run.algo, [text for text in details if text])


def _detailed(name: str, details: Sequence[str]) -> str:
    """A name with details in brackets, which join those that it has.

    >>> _detailed("pri", []), _detailed("pri", ["now"]), _detailed("pri (runs=4)", ["now"])
    ('pri', 'pri (now)', 'pri (runs=4, now)')
    """
    if not details:
        return name
    inner = ", ".join(details)
    return f"{name[:-1]}, {inner})" if name.endswith(")") else f"{name} ({inner})"


def _code_mark(run: Run, versions: Sequence[RunRecord]) -> str:
    """Which code a run is of, where there are runs of different code: the newest or earlier code, and its last run.

    ``versions`` has the last record of each code. Codes whose last runs have no date, or the same one, have a digest.
    """
    if len(versions) < 2:
        return ""
    if not run.code:
        return "code unknown"
    minutes = {record.run.code: record.finished[:16].replace("T", " ") for record in versions}
    mine = minutes[run.code]
    if not mine or list(minutes.values()).count(mine) > 1:
        return f"code {run.code[:CODE_DIGITS]}"
    return f"{'newest' if mine == max(minutes.values()) else 'before'}, {mine}"


def _same(a: RunRecord, b: RunRecord) -> bool:
    """Whether two runs have the same curves and the same policy, to the bit."""
    curves = a.curves.keys() == b.curves.keys() and all(
        a.curves[name].shape == b.curves[name].shape and a.curves[name].tobytes() == b.curves[name].tobytes()
        for name in a.curves
    )
    return curves and a.policy == b.policy


def curve_name(what: str, kind: str = "weak") -> str:
    """The name in a record of the weak, strong or realised form of "regret" or "violation".

    >>> curve_name("regret"), curve_name("violation", "strong")
    ('regret', 'strong_violation')
    """
    if kind not in KINDS:
        raise CmdpkitError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
    return what if kind == "weak" else f"{kind}_{what}"


# -- curves ------------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """One curve of a group on a common grid of episodes; all arrays but ``raw`` are [C]."""

    episode: FloatArray  # where the curve is read
    mean: FloatArray  # over the seeds
    low: FloatArray | None  # lower end of the interval; None with one seed
    high: FloatArray | None  # upper end of the interval; None with one seed
    raw: FloatArray  # [samples, C], the curve of every run


def curve(group: Group, name: str, n: int = 0) -> Curve:
    """A curve of every run of a group and their mean with an interval; ``n`` picks the constraint of a [N, C] curve.

    Where the runs have different checkpoints, all of them are used, with straight lines between, from where the last
    run begins to where the first one ends. The interval of a quantity that cannot be negative ends at 0.
    """
    lines = [(np.asarray(r.read_at, dtype=float), _row(r, name, n)) for r in group.samples]
    grid = lines[0][0]
    if any(not np.array_equal(episode, grid) for episode, _ in lines):
        grid = np.unique(np.concatenate([episode for episode, _ in lines]))
        first, last = max(e[0] for e, _ in lines), min(e[-1] for e, _ in lines)
        grid = grid[(grid >= first) & (grid <= last)]
        lines = [(grid, np.interp(grid, episode, line)) for episode, line in lines]
    raw = np.array([line for _, line in lines])
    over = seed_mean(raw)
    low = over.low if over.low is None or name not in NONNEGATIVE else np.maximum(over.low, np.minimum(over.mean, 0.0))
    return Curve(grid, over.mean, low, over.high, raw)


def _row(record: RunRecord, name: str, n: int) -> FloatArray:
    values = np.atleast_2d(np.asarray(record.curve(name), dtype=float))
    if not 0 <= n < len(values):
        raise CmdpkitError(f"curve {name!r} of {record.run.algo} has {len(values)} rows, there is no row {n}")
    line: FloatArray = values[n]
    return line


def _end(record: RunRecord, name: str, n: int | None) -> float:
    """Where a curve ends; the largest of its rows if none is chosen."""
    return float(np.max(record.final(name)) if n is None else _row(record, name, n)[-1])


def finals(group: Group, name: str, n: int = 0) -> FloatArray:
    """[samples]: where the curve of each run ends."""
    return np.array([_row(record, name, n)[-1] for record in group.samples])


def slope(group: Group, name: str, n: int = 0, *, since: float = 0.1) -> SeedMean | None:
    """Exponent b of "curve grows like episode**b" over the last part of the run, from ``since`` of its length on.

    Least squares of log on log for each seed, at points that are even in the log; None where a curve is not positive
    there or has too few checkpoints to tell.
    """
    found = []
    for record in group.samples:
        episode, line = np.asarray(record.read_at, dtype=float), _row(record, name, n)
        tail = episode >= since * episode[-1]
        if tail.sum() < 3 or not (line[tail] > 0).all():
            return None
        x, y = np.log(episode[tail]), np.log(line[tail])
        even = np.linspace(x[0], x[-1], SLOPE_POINTS)
        found.append(np.polyfit(even, np.interp(even, x, y), 1)[0])
    return seed_mean(np.array(found))


# -- policies ----------------------------------------------------------------------------------------------------------


def policy_gaps(group: Group) -> FloatArray | None:
    """[samples]: by how much each run's final policy stays below the optimum, where there is a model."""
    pairs = [(r.optimum, r.policy_value) for r in group.samples]
    if any(optimum is None or value is None for optimum, value in pairs):
        return None
    return np.array(pairs, dtype=float) @ [1.0, -1.0]


def policy_misses(group: Group) -> FloatArray | None:
    """[samples, N]: by how much each final policy misses each bound; 0 within rounding of it, negative inside."""
    utilities = [record.policy_utilities for record in group.samples]
    if any(w is None for w in utilities):
        return None
    constraints = group.records[0].constraints
    signs, bounds = (
        np.array([float(x) for x in column])
        for column in ([c.sign for c in constraints], [c.bound_on_total for c in constraints])
    )
    misses = signs * (bounds - np.array(utilities, dtype=float).reshape(len(utilities), len(constraints)))
    return np.where(np.abs(misses) <= 1e-9 * np.maximum(1.0, np.abs(bounds)), 0.0, misses)


def misses_bounds(group: Group, *, final: bool) -> bool:
    """Whether a bound is missed beyond the noise of the seeds: the interval of a violation lies above 0.

    What counts are the totals of the runs, or with ``final`` the returned policies, as far as they are known. Where
    there is no interval, because there is one run, its own figure counts.
    """
    if final:
        ends = policy_misses(group)
        rounding: FloatArray | float = 0.0
    else:
        name = "violation" if group.has("violation") else "realised_violation"
        ends = np.array([np.reshape(r.final(name), -1) for r in group.samples]) if group.has(name) else None
        bounds = np.array([float(c.bound_on_total) for c in group.records[0].constraints])
        rounding = BOUND_MET * group.run.length * np.maximum(1.0, np.abs(bounds))
    if ends is None:
        return False
    over = seed_mean(ends)
    return bool((np.asarray(over.mean if over.low is None else over.low) > rounding).any())


# -- one number per run ------------------------------------------------------------------------------------------------

OF_RUNS = ("policy_value", "policy_gap", "worst_miss", "seconds")  # metrics that are not the end of a curve


def larger_is_better(metric: str) -> bool:
    """Whether a metric is something to maximise."""
    return metric.endswith(("reward", "value"))


def scores(group: Group, metric: str, n: int | None = None) -> FloatArray | None:
    """[samples]: a metric of every run, or None where the group does not have it.

    The metric is the name of a curve, of which the end counts, "policy_value" or "policy_gap" (the exact value of the
    final policy, and the optimum minus it), "worst_miss" (the most by which it misses a bound) or "seconds". Of a curve
    with a row per constraint, ``n`` picks the row; by default the largest end counts.
    """
    if metric == "seconds":
        return np.array([record.seconds for record in group.samples])
    if metric == "policy_value":
        values = [record.policy_value for record in group.samples]
        return None if None in values else np.array(values, dtype=float)
    if metric == "policy_gap":
        return policy_gaps(group)
    if metric == "worst_miss":
        misses = policy_misses(group)
        return None if misses is None or not misses.shape[1] else np.maximum(0.0, misses.max(axis=1))
    if not group.has(metric) or not np.size(group.records[0].final(metric)):
        return None
    return np.array([_end(record, metric, n) for record in group.samples])


def check_metric(found: Sequence[Group], metric: str) -> None:
    """Refuse a metric that no group has."""
    if all(scores(group, metric) is None for group in found):
        known = sorted({name for group in found for name in group.records[0].curves})
        raise CmdpkitError(f"no run has the metric {metric!r}; there are {', '.join((*known, *OF_RUNS))}")


# -- intervals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its interval; numbers or arrays. With one seed there is no interval."""

    mean: Any  # over the seeds
    low: Any  # lower end of the interval, or None
    high: Any  # upper end of the interval, or None
    n: int  # number of seeds


def seed_mean(values: FloatArray, level: float = LEVEL) -> SeedMean:
    """Mean over the first axis with Student's interval.

    >>> seed_mean(np.array([1.0, 2.0, 3.0]))
    SeedMean(mean=2.0, low=-0.484..., high=4.484..., n=3)
    >>> seed_mean(np.array([1.0]))
    SeedMean(mean=1.0, low=None, high=None, n=1)
    """
    if not 0 < level < 1:
        raise CmdpkitError(f"level is {level}, expected a number between 0 and 1")
    values = np.asarray(values, dtype=float)
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        return SeedMean(_number(mean), None, None, n)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return SeedMean(_number(mean), _number(mean - half), _number(mean + half), n)


def _number(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x
