"""What learners did: one row per seed and their mean, the final policy and what is certain of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from cmdpkit.records.record import Certificate, Evaluation, RunRecord
from cmdpkit.results import tables
from cmdpkit.results.groups import CERTIFIED, GAPS, MEANINGS, UNSAFE, groups, remarks
from cmdpkit.results.tables import EMPTY_LINE, NOTICE, QUIET, Column, Table, TerminalTable, each
from cmdpkit.results.wording import bounded, counted, drawn, duration, label, number

MOST_DECISIONS = 8  # stochastic decisions that are listed
MOST_SEEDS = 20  # with more seeds, only their mean is shown
SAFE = {True: "certainly met", False: "certainly violated", None: "undecided"}
LIKELY = {True: "probably met", False: "probably violated", None: "undecided"}  # by intervals that are approximate
Entry = Mapping[str, Any]  # of one run in JSON, see `RunRecord.to_dict`
# The entries that are lists with one number per constraint.
LISTED = ("violation", "strong_violation", "realised_violation", "realised_utility", "policy_utilities")


def run_table(records: Sequence[RunRecord], most: int) -> Table[Entry]:
    """One row per seed, as in ``cmdpkit learn --json``, and their mean; for more than ``most`` seeds the mean alone."""
    entries = [record.to_dict() for record in records]
    constraints = tuple(label(c.name) for c in records[0].constraints)
    unit, lengths = records[0].run.unit, {record.run.length for record in records}
    meanings = MEANINGS[unit]
    columns: list[Column[Entry]] = [
        Column("seed", "seed", "The seed of the run.", lambda e: e["seed"], each(str)),
        _figure(f"{unit}s", f"{unit}s", "How long the run was.", shown=len(lengths) > 1),
        _figure("regret", "regret", meanings["weak"]),
        _figure("violation", "violation", meanings["weak"], constraints),
        _figure("strong_regret", "strong regret", meanings["strong"]),
        _figure("strong_violation", "strong violation", meanings["strong"], constraints),
        _figure("realised_regret", "realised regret", meanings["realised"], shown="regret" not in entries[0]),
        _figure("realised_violation", "realised violation", meanings["realised"], constraints),
        _figure("gaps_paid", "gaps paid", GAPS),
        _figure("realised_reward", "realised reward", "The reward of all episodes, as observed."),
        _figure("realised_utility", "realised total", "The totals of all episodes, as observed.", constraints),
        _figure("unsafe_episodes", "unsafe episodes", UNSAFE),
        _figure("certified_gap", "certified gap", CERTIFIED),
        _figure("policy_value", "policy value", "The exact value of the final policy."),
        _figure("policy_utilities", "policy total", "The exact totals of the final policy.", constraints),
    ]
    kept = tuple(column for column in columns if constraints or column.key not in LISTED)
    mean = ({**_means(entries), "seed": "mean"},) if len(entries) > 1 else ()
    return Table("runs", kept, tuple(entries) if len(entries) <= most else (), totals=mean)


def _figure(key: str, heading: str, meaning: str, parts: tuple[str, ...] = (), *, shown: bool = True) -> Column[Entry]:
    write = each(lambda x: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}")
    return Column(key, heading, meaning, lambda entry: entry.get(key), write, "right", parts, shown=shown)


def _means(entries: Sequence[Entry]) -> dict[str, Any]:
    """Means of the numbers that all runs have; of lists, item by item."""
    means: dict[str, Any] = {}
    for key in entries[0]:
        values: list[Any] = [entry.get(key) for entry in entries]
        if key in LISTED and None not in values:
            means[key] = [statistics.fmean(items) for items in zip(*values, strict=True)]
        elif all(isinstance(x, (int, float)) for x in values):
            means[key] = statistics.fmean(values)
    return means


def learned(records: Sequence[RunRecord]) -> RenderableType:
    """The outcome of one request for several seeds."""
    first = records[0]
    run = first.run
    headline = Text.assemble((run.algo, "bold"), f" ({run.preset}) on ", (label(run.problem), "bold"))
    lengths = sorted({record.run.length for record in records})  # differ where a rule has ended the runs
    length = counted(lengths[0], run.unit) if len(lengths) == 1 else f"{lengths[0]:,} to {lengths[-1]:,} {run.unit}s"
    headline.append(f": {length}, {counted(len(records), 'seed')}")
    parts: list[RenderableType] = [
        headline,
        EMPTY_LINE,
        TerminalTable(run_table(records, MOST_SEEDS)),
        EMPTY_LINE,
        _policies(records),
    ]
    notes = dict.fromkeys(note for record in records for note in record.notes)
    parts += [Text(remark, style=NOTICE) for remark in remarks(groups(records))]
    parts += [Text(f"note: {note}", style=NOTICE) for note in notes]
    parts.append(Text(f"{duration(sum(r.seconds for r in records))} of learning.", style=QUIET))
    return Lines(*parts)


def _policies(records: Sequence[RunRecord]) -> RenderableType:
    """Optimum, where the policy of the first seed draws, and its certificate."""
    first = records[0]
    lines = []
    if first.optimum is not None:
        bounds = ", ".join(str(c) for c in first.constraints)
        lines.append(Text(f"The optimum is {number(first.optimum)}" + (f" with {bounds}." if bounds else ".")))
    draws = "nowhere" if not first.decisions else f"at {counted(len(first.decisions), 'place')}"
    lines.append(Text(f"The policy of seed {first.run.seed} randomises {draws}" + (":" if first.decisions else ".")))
    lines += [Text(f"  {drawn(d)}") for d in first.decisions[:MOST_DECISIONS]]
    if len(first.decisions) > MOST_DECISIONS:
        lines.append(Text(f"  and {len(first.decisions) - MOST_DECISIONS} more", style=QUIET))
    if first.certificate is not None:
        lines += _certified(first, first.certificate)
    if first.evaluation is not None:
        lines += _evaluated(first, first.evaluation)
    return Lines(*lines)


def _evaluated(record: RunRecord, found: Evaluation) -> list[Text]:
    """What fresh episodes of the policy gave."""
    low, high = found.value_interval
    interval = f"{100 * found.level:g} % interval"
    said = f"{found.episodes:,} fresh episodes of it: value {number(found.value)}"
    lines = [Text(f"{said}, {interval} {number(low)} to {number(high)}")]
    for c, total, (a, b) in zip(record.constraints, found.utilities, found.utility_intervals, strict=True):
        lines.append(Text(f"  {label(str(c))}: {number(total)}, {interval} {number(a)} to {number(b)}"))
    return lines


def _certified(record: RunRecord, found: Certificate) -> list[Text]:
    low, high = found.value
    words, how = (LIKELY, "Likely at about") if found.approximate else (SAFE, "Certain at")
    if found.since is not None:
        how = "If the environment had not changed, at"
    lines = [Text(f"Proved: {found.sentence}.")] if found.sentence else []
    lines += [Text(f"{how} {100 * found.level:g} % from its own data: value {number(low)} to {number(high)}")]
    for c, (a, b), safe in zip(record.constraints, found.utilities, found.safe, strict=True):
        lines.append(Text(f"  {label(c.name)} {number(a)} to {number(b)}: {bounded(c)} {words[safe]}"))
    if found.since is not None:
        mixed = f"These intervals mix what was seen before and after the change at about episode {found.since:,}"
        lines.append(Text(f"  {mixed}: nothing is certain of the environment as it is now", style=NOTICE))
    return lines


def learned_data(records: Sequence[RunRecord]) -> dict[str, Any]:
    """One request for several seeds: what was asked (length null if it varies), the optimum, one entry per seed."""
    first = records[0]
    return {
        "env": first.run.env,
        "bounds": dict(first.run.bounds),
        "noise": first.run.noise,
        "code": first.run.code or "unknown",
        "algo": first.run.algo,
        "preset": first.run.preset,
        "params": dict(first.run.params),
        f"{first.run.unit}s": first.run.length if len({r.run.length for r in records}) == 1 else None,
        "optimum": first.optimum,
        "constraints": [
            {"name": c.name, "sense": c.sense, **tables.bound_parts("bound", c)} for c in first.constraints
        ],
        "runs": [record.to_dict() for record in records],
    }
