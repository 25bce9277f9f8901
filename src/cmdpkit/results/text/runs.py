"""What learners did, for the terminal: one row a seed, means, the policy handed over and what is certain about it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cmdpkit.learners import Facts
from cmdpkit.model.policy import Decision
from cmdpkit.records.record import Evaluation, RunRecord
from cmdpkit.results.groups import groups, remarks
from cmdpkit.results.text.answers import GAP
from cmdpkit.results.text.policies import QUIET, TAKEN, plain_table, right
from cmdpkit.results.text.wording import counted, duration, label, number, odds, titled

MOST_DRAWN = 8  # decisions listed
MOST_SEEDS = 20  # rows; beyond that only the means
SAFE = {True: "certainly kept", False: "certainly missed", None: "undecided"}


def algorithms(listed: Mapping[str, Facts]) -> RenderableType:
    """What each is, what is proved about it, what it has to be given, and where it comes from."""
    table = Table.grid(padding=(0, 2))
    for name, facts in listed.items():
        needs = "" if facts.needs.startswith("nothing") else f"needs {facts.needs}"
        lines = [facts.line, f"guarantee: {facts.guarantee}", needs, facts.reference]
        table.add_row(Text(name, style=TAKEN), Text("\n".join(line for line in lines if line)))
        table.add_row("", "")
    return Group(table, Text("`cmdpkit learn MODEL --algo NAME --episodes K` runs one.", style=QUIET))


def learned(records: Sequence[RunRecord]) -> RenderableType:
    """The outcome of one request for several seeds."""
    first = records[0]
    run = first.run
    headline = Text.assemble((run.algo, "bold"), f" ({run.preset}) on ", (label(run.problem), "bold"))
    headline.append(f": {counted(run.episodes, 'episode')}, {counted(len(records), 'seed')}")
    parts: list[RenderableType] = [headline, GAP, _table(records), GAP, _policies(records)]
    notes = dict.fromkeys(note for record in records for note in record.notes)
    parts += [Text(remark, style="yellow") for remark in remarks(groups(records))]
    parts += [Text(f"note: {note}", style="yellow") for note in notes]
    parts.append(Text(f"{duration(sum(r.seconds for r in records))} of learning in all.", style=QUIET))
    return Group(*parts)


def _table(records: Sequence[RunRecord]) -> Table:
    """Figures of every seed, and their means; violations of several bounds stand side by side."""
    columns = [(name, get) for name, get in _columns(records[0]) if get(records[0]) is not None]
    table = plain_table("seed", *(right(name) for name, _ in columns))
    if len(records) <= MOST_SEEDS:
        for record in records:
            table.add_row(str(record.run.seed), *(_cell(get(record) or []) for _, get in columns))
    if len(records) > 1:
        means = [
            [statistics.fmean(x) for x in zip(*(get(r) or [] for r in records), strict=True)] for _, get in columns
        ]
        table.add_section()
        table.add_row("mean", *(_cell(x) for x in means))
    return table


def _means(rows: list[list[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


Column = tuple[str, Callable[[RunRecord], "list[float] | None"]]


def _columns(record: RunRecord) -> list[Column]:
    def final(name: str) -> Callable[[RunRecord], list[float] | None]:
        def get(r: RunRecord) -> list[float] | None:
            if name not in r.curves:
                return None
            last = r.final(name)
            return [last] if isinstance(last, float) else [float(x) for x in last]

        return get

    names = ["regret", "violation", "strong_regret", "strong_violation", "realised_violation", "unsafe_episodes"]
    names += ["realised_reward", "realised_utility"]
    listed: list[Column] = [(name.replace("_", "\n"), final(name)) for name in names]
    listed.append(("policy\nvalue", lambda r: None if r.policy_value is None else [r.policy_value]))
    totals = "\n".join(label(c.name) for c in record.constraints) or "utilities"
    listed.append((totals, lambda r: None if r.policy_utilities is None else [float(x) for x in r.policy_utilities]))
    return listed


def _cell(numbers: list[float]) -> str:
    return "\n".join(f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}" for x in numbers)


def _policies(records: Sequence[RunRecord]) -> RenderableType:
    """Optimum, where the policy of the first seed draws, and its certificate."""
    first = records[0]
    lines = []
    if first.optimum is not None:
        bounds = ", ".join(str(c) for c in first.constraints)
        lines.append(Text(f"The optimum is {number(first.optimum)}" + (f" with {bounds}." if bounds else ".")))
    draws = "nowhere" if not first.decisions else f"at {counted(len(first.decisions), 'place')}"
    lines.append(Text(f"The policy of seed {first.run.seed} draws {draws}" + (":" if first.decisions else ".")))
    lines += [_drawn(d) for d in first.decisions[:MOST_DRAWN]]
    if len(first.decisions) > MOST_DRAWN:
        lines.append(Text(f"  and {len(first.decisions) - MOST_DRAWN} more", style=QUIET))
    if first.certificate is not None:
        lines += _certified(first)
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


def _drawn(d: Decision) -> Text:
    return Text(f"  step {d.step}, {titled('state', d.state)}: {odds(d.probabilities)}")


def _certified(record: RunRecord) -> list[Text]:
    found = record.certificate
    assert found is not None
    low, high = found.value
    lines = [Text(f"Certain at {100 * found.level:g} % from its own data: value {number(low)} to {number(high)}")]
    for c, (a, b), safe in zip(record.constraints, found.utilities, found.safe, strict=True):
        lines.append(Text(f"  {label(c.name)} {number(a)} to {number(b)}: {c.symbol} {number(c.bound)} {SAFE[safe]}"))
    return lines
