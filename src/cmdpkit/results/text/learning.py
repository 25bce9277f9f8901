"""What learners did, for the terminal: one row per seed and their mean, the final policy, and what is certain of it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.records.record import Certificate, Evaluation, RunRecord
from cmdpkit.results.groups import groups, remarks
from cmdpkit.results.run_tables import run_table
from cmdpkit.results.text.layout import EMPTY_LINE, QUIET, TerminalTable
from cmdpkit.results.wording import bounded, counted, drawn, duration, label, number

MOST_DECISIONS = 8  # stochastic decisions that are listed
MOST_SEEDS = 20  # with more seeds, only their mean is shown
SAFE = {True: "certainly kept", False: "certainly missed", None: "undecided"}
LIKELY = {True: "probably kept", False: "probably missed", None: "undecided"}  # by intervals that are approximate


def learned(records: Sequence[RunRecord]) -> RenderableType:
    """The outcome of one request for several seeds."""
    first = records[0]
    run = first.run
    headline = Text.assemble((run.algo, "bold"), f" ({run.preset}) on ", (label(run.problem), "bold"))
    lengths = sorted({record.run.episodes for record in records})  # differ where a rule has ended the runs
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
    parts += [Text(remark, style="yellow") for remark in remarks(groups(records))]
    parts += [Text(f"note: {note}", style="yellow") for note in notes]
    parts.append(Text(f"{duration(sum(r.seconds for r in records))} of learning in all.", style=QUIET))
    return Group(*parts)


def _policies(records: Sequence[RunRecord]) -> RenderableType:
    """Optimum, where the policy of the first seed draws, and its certificate."""
    first = records[0]
    lines = []
    if first.optimum is not None:
        bounds = ", ".join(str(c) for c in first.constraints)
        lines.append(Text(f"The optimum is {number(first.optimum)}" + (f" with {bounds}." if bounds else ".")))
    draws = "nowhere" if not first.decisions else f"at {counted(len(first.decisions), 'place')}"
    lines.append(Text(f"The policy of seed {first.run.seed} draws {draws}" + (":" if first.decisions else ".")))
    lines += [Text(f"  {drawn(d)}") for d in first.decisions[:MOST_DECISIONS]]
    if len(first.decisions) > MOST_DECISIONS:
        lines.append(Text(f"  and {len(first.decisions) - MOST_DECISIONS} more", style=QUIET))
    if first.certificate is not None:
        lines += _certified(first, first.certificate)
    if first.evaluation is not None:
        lines += _evaluated(first, first.evaluation)
    return Group(*lines)


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
    lines = [Text(f"{how} {100 * found.level:g} % from its own data: value {number(low)} to {number(high)}")]
    for c, (a, b), safe in zip(record.constraints, found.utilities, found.safe, strict=True):
        lines.append(Text(f"  {label(c.name)} {number(a)} to {number(b)}: {bounded(c)} {words[safe]}"))
    return lines
