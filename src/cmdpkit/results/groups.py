"""Runs that differ in the seed alone, together, and what can be said about them: curves, growth, paired comparisons.

Such runs are a `Group`, and the seed is the unit: every interval is over seeds, and a single seed has none. Where all
seeds give the same numbers, they count as one. Runs of different code are never pooled. They are groups of their own,
told apart by their labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Run, RunRecord
from cmdpkit.results.statistics import LEVEL, Method, SeedMean, seed_mean, sign_flip_p, t_p
from cmdpkit.results.wording import counted, number

CODE_DIGITS = 4  # of a digest of code, or more where these do not tell apart
KINDS = ("weak", "strong", "realised")
SLOPE_POINTS = 24  # at which a curve is read to fit its growth

Kind = Literal["weak", "strong", "realised"]


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in the seed alone, in order of their seeds."""

    records: tuple[RunRecord, ...]  # one per seed
    label: str  # the algorithm, and what tells it from other groups on the same problem

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


def groups(records: Iterable[RunRecord]) -> tuple[Group, ...]:
    """Records by everything but the seed, in the order of their first appearance."""
    together: dict[tuple[object, ...], list[RunRecord]] = {}
    for record in records:
        together.setdefault((*_but_code(record.run), record.run.code), []).append(record)
    for same in together.values():
        same.sort(key=lambda record: record.run.seed)
        twice = [a.run.seed for a, b in pairwise(same) if a.run.seed == b.run.seed]
        if twice:
            raise CmdpkitError(f"{same[0].run.algo} on {same[0].run.problem}: seed {twice[0]} is given twice")
    runs = [same[0].run for same in together.values()]
    return tuple(Group(tuple(same), _label(same[0].run, runs)) for same in together.values())


def remarks(found: Sequence[Group]) -> tuple[str, ...]:
    """What a reader of a table of groups has to know about them, in sentences."""
    told = []
    alike: dict[tuple[object, ...], list[Group]] = {}
    worlds: dict[str, set[str]] = {}
    for group in found:
        alike.setdefault(_but_code(group.run), []).append(group)
        worlds.setdefault(group.run.problem, set()).add(group.run.fingerprint)
    for problem, several in worlds.items():
        if len(several) > 1:
            told.append(f"{problem} was changed between runs: its {len(several)} versions are shown apart.")
    for rivals in alike.values():
        if len(rivals) > 1:
            run, labels = rivals[0].run, ", ".join(group.label for group in rivals)
            told.append(f"{run.algo} on {run.problem} was run with different code, which is shown apart: {labels}.")
    unknown = sum(len(group.records) for group in found if not group.run.code)
    if unknown:
        subject = "1 run does" if unknown == 1 else f"{unknown} runs do"
        told.append(f"{subject} not say which code was used (code unknown), as in records of version 0.1.")
    for group in found:
        if group.deterministic:
            told.append(
                f"All {len(group.seeds)} seeds of {group.label} on {group.run.problem} gave the same numbers: they "
                "count as one run (deterministic), without an interval."
            )
    return tuple(told)


def code_name(code: str, others: Iterable[str] = ()) -> str:
    """What people call a digest of code, with as many digits as tell it from others.

    >>> code_name("3f2a91"), code_name("3f2a91", ["3f2a07"]), code_name("")
    ('code 3f2a', 'code 3f2a9', 'code unknown')
    """
    if not code:
        return "code unknown"
    digits = CODE_DIGITS
    while digits < len(code) and any(x != code and x.startswith(code[:digits]) for x in others):
        digits += 1
    return f"code {code[:digits]}"


def _but_code(run: Run) -> tuple[object, ...]:
    """Everything that was asked, but for the seed and the code."""
    world = (run.env, tuple(sorted(run.bounds.items())), run.fingerprint)
    return *world, run.algo, run.preset, _settings(run), run.episodes


def _settings(run: Run) -> str:
    """Parameters, noise, baseline, readings and unknown length, as far as they were set."""
    given = {name: json.dumps(value) for name, value in sorted(run.params.items())}
    given |= {"noise": run.noise} if run.noise != "none" else {}
    given |= {"baseline": run.baseline} if run.baseline else {}
    given |= {"readings": str(list(run.readings))} if run.readings else {}
    given |= {"anytime": "true"} if run.anytime else {}
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _label(run: Run, runs: Sequence[Run]) -> str:
    """The algorithm, with as much of preset, settings, length, model and code as tells it from others."""
    rivals = [other for other in runs if (other.problem, other.algo) == (run.problem, run.algo)]
    codes = [other.code for other in rivals]
    parts = (
        lambda r: r.preset,
        _settings,
        lambda r: f"{r.episodes:,} {r.unit}s",
        lambda r: f"model {r.fingerprint[:CODE_DIGITS]}",
        lambda r: code_name(r.code, codes),
    )
    details = []
    for part in parts:
        alike = [other for other in rivals if part(other) == part(run)]
        if len(alike) < len(rivals):
            details.append(part(run))
        rivals = alike
    details = [text for text in details if text]
    return f"{run.algo} ({', '.join(details)})" if details else run.algo


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


def curve(group: Group, name: str, n: int = 0, *, method: Method = "t", level: float = LEVEL, seed: int = 0) -> Curve:
    """A curve of every run of a group and their mean with an interval; ``n`` picks the constraint of a [N, C] curve.

    Where the runs have different checkpoints, all of them are used, with straight lines between, from where the last
    run begins to where the first one ends.
    """
    lines = [(np.asarray(r.read_at, dtype=float), _row(r, name, n)) for r in group.samples]
    grid = lines[0][0]
    if any(not np.array_equal(episode, grid) for episode, _ in lines):
        grid = np.unique(np.concatenate([episode for episode, _ in lines]))
        first, last = max(e[0] for e, _ in lines), min(e[-1] for e, _ in lines)
        grid = grid[(grid >= first) & (grid <= last)]
        lines = [(grid, np.interp(grid, episode, line)) for episode, line in lines]
    raw = np.array([line for _, line in lines])
    over = seed_mean(raw, method=method, level=level, seed=seed)
    return Curve(grid, over.mean, over.low, over.high, raw)


def _row(record: RunRecord, name: str, n: int) -> FloatArray:
    values = np.atleast_2d(np.asarray(record.curve(name), dtype=float))
    if not 0 <= n < len(values):
        raise CmdpkitError(f"curve {name!r} of {record.run.algo} has {len(values)} rows, there is no row {n}")
    line: FloatArray = values[n]
    return line


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


# -- comparisons -------------------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """The final values of one group minus those of another, seed by seed."""

    seeds: tuple[int, ...]  # those both have
    difference: SeedMean  # mean difference with its interval
    p: float | None  # of "no difference"; absent with one seed

    def __str__(self) -> str:
        low, high = self.difference.low, self.difference.high
        interval = "" if low is None or high is None else f" ({number(low)} to {number(high)})"
        p = "" if self.p is None else f", p = {self.p:.2g}"
        return f"mean difference {number(self.difference.mean)}{interval}, {counted(len(self.seeds), 'seed')}{p}"


def compare(
    a: Group, b: Group, name: str = "regret", n: int = 0, *, test: Literal["sign-flip", "t"] = "sign-flip"
) -> Comparison:
    """``a`` minus ``b``, paired by seed, with an interval and the p of a sign-flip (exact) or a t test.

    Runs with the same seed share the problem and the sequence of random numbers, but use that sequence differently once
    their actions differ. So pairing is valid, and removes hardly any noise.
    """
    if test not in ("sign-flip", "t"):
        raise CmdpkitError(f"test is {test!r}, expected 'sign-flip' or 't'")
    ends = [{record.run.seed: _row(record, name, n)[-1] for record in group.records} for group in (a, b)]
    seeds = tuple(seed for seed in a.seeds if seed in ends[1])
    if not seeds:
        raise CmdpkitError(f"{a.label} and {b.label} have no seed in common: {list(a.seeds)} and {list(b.seeds)}")
    if a.deterministic and b.deterministic:
        seeds = seeds[:1]
    d = np.array([ends[0][seed] - ends[1][seed] for seed in seeds])
    p = None if len(d) < 2 else sign_flip_p(d) if test == "sign-flip" else t_p(d)
    return Comparison(seeds, seed_mean(d), p)


# -- policies ----------------------------------------------------------------------------------------------------------


def policy_gaps(group: Group) -> FloatArray | None:
    """[samples]: by how much each run's final policy stays below the optimum, where there is a model."""
    pairs = [(r.optimum, r.policy_value) for r in group.samples]
    if any(optimum is None or value is None for optimum, value in pairs):
        return None
    return np.array(pairs, dtype=float) @ [1.0, -1.0]


def policy_misses(group: Group, tolerance: float = 1e-9) -> FloatArray | None:
    """[samples, N]: by how much each final policy misses each bound; 0 within ``tolerance`` of it, negative inside."""
    utilities = [record.policy_utilities for record in group.samples]
    if any(w is None for w in utilities):
        return None
    constraints = group.records[0].constraints
    signs, bounds = (
        np.array([float(x) for x in column])
        for column in ([c.sign for c in constraints], [c.total for c in constraints])
    )
    misses = signs * (bounds - np.array(utilities, dtype=float).reshape(len(utilities), len(constraints)))
    return np.where(np.abs(misses) <= tolerance * np.maximum(1.0, np.abs(bounds)), 0.0, misses)
