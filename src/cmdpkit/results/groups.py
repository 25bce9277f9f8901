"""Runs that differ in the seed alone, together: what is averaged over, and what is never averaged over.

Runs of different code are never pooled. They are groups of their own, told apart by their labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from cmdpkit.errors import CmdpkitError
from cmdpkit.records.record import Run, RunRecord

CODE_DIGITS = 4  # of a digest of code, or more where these do not tell apart


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
