"""What learners did: the runs of one request, seed by seed, and groups of runs on each problem and on all together."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from cmdpkit.records.record import Certificate, Evaluation, RunRecord
from cmdpkit.results import tables
from cmdpkit.results.groups import (
    CERTIFIED,
    GAPS,
    KINDS,
    MEANINGS,
    UNSAFE,
    Group,
    SeedMean,
    check_metric,
    curve_name,
    finals,
    groups,
    larger_is_better,
    misses_bounds,
    policy_misses,
    remarks,
    scores,
    seed_mean,
    slope,
)
from cmdpkit.results.tables import (
    EMPTY_LINE,
    NOTICE,
    QUIET,
    Column,
    Table,
    TerminalTable,
    each,
    means,
    numbers,
    rounded,
    whole,
    with_ends,
)
from cmdpkit.results.wording import bounded, counted, drawn, duration, label, number

MOST_DECISIONS = 8  # stochastic decisions that are listed
MOST_SEEDS = 20  # with more seeds, only their mean is shown
SAFE = {True: "certainly met", False: "certainly violated", None: "undecided"}
LIKELY = {True: "probably met", False: "probably violated", None: "undecided"}  # by intervals that are approximate
Entry = Mapping[str, Any]  # of one run in JSON, see `RunRecord.to_dict`
# The entries that are lists with one number per constraint.
LISTED = ("violation", "strong_violation", "realised_violation", "realised_utility", "policy_utilities")
DAGGER = "†"  # beside an algorithm that misses a bound
ONE_RUN = "one run (deterministic)"  # in place of a number of seeds, where seeds make no difference
FRESH = "The mean total of fresh episodes of the final policy."


# -- the runs of one request -------------------------------------------------------------------------------------------


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
    mean = ({**_mean_entry(entries), "seed": "mean"},) if len(entries) > 1 else ()
    return Table("runs", kept, tuple(entries) if len(entries) <= most else (), totals=mean)


def _figure(key: str, heading: str, meaning: str, parts: tuple[str, ...] = (), *, shown: bool = True) -> Column[Entry]:
    write = each(lambda x: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}")
    return Column(key, heading, meaning, lambda entry: entry.get(key), write, "right", parts, shown=shown)


def _mean_entry(entries: Sequence[Entry]) -> dict[str, Any]:
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
    parts: list[RenderableType] = [headline, EMPTY_LINE, TerminalTable(run_table(records, MOST_SEEDS)), EMPTY_LINE]
    parts.append(_policies(records))
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
        lines += _played(first, first.evaluation)
    return Lines(*lines)


def _played(record: RunRecord, found: Evaluation) -> list[Text]:
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


# -- groups of runs ----------------------------------------------------------------------------------------------------


def by_problem(found: Iterable[Group]) -> dict[tuple[str, str], list[Group]]:
    """Groups of runs on the same problem together: by the name of the environment and the fingerprint of its model."""
    together: dict[tuple[str, str], list[Group]] = {}
    for group in found:
        together.setdefault((group.run.problem, group.run.fingerprint), []).append(group)
    return together


def study_tables(found: Iterable[Group]) -> list[Table[Group]]:
    """One table per problem."""
    return [group_table(problem) for problem in by_problem(found).values()]


def group_table(found: Sequence[Group]) -> Table[Group]:
    """One row per group of runs on one problem; totals are expected ones where a model gives them, else observed."""
    modelled = any(g.has("regret") or g.has("violation") for g in found)
    shown = KINDS[:2] if modelled else KINDS[2:]
    unit = found[0].run.unit
    grows = "gaps paid" if unit == "step" else "regret"
    return Table(found[0].problem, (
        Column("algorithm", "algorithm", "The algorithm, and what tells it from the others.", lambda g: g.label,
               data=tables.not_at_all),
        Column("env", "", "The environment.", lambda g: g.run.env, shown=False),
        Column("bounds", "", "Bounds that were changed.", lambda g: dict(g.run.bounds), shown=False),
        Column("noise", "", "How signals were drawn.", lambda g: g.run.noise, shown=False),
        Column("algo", "", "The algorithm.", lambda g: g.run.algo, shown=False),
        Column("preset", "", "The preset of its parameters.", lambda g: g.run.preset, shown=False),
        Column("params", "", "Parameters that were set.", lambda g: dict(g.run.params), shown=False),
        Column("code", "", "A digest of the algorithm's code.", lambda g: g.run.code or "unknown", shown=False),
        Column(f"{unit}s", "", f"{unit.capitalize()}s of every run.", lambda g: g.run.length, shown=False),
        Column("seeds", "seeds", "Independent runs.", lambda g: len(g.seeds),
               lambda _values, _: [tables.Cell(ONE_RUN if g.deterministic else str(len(g.seeds)), value=len(g.seeds))
                                   for g in found], "right"),
        Column("samples", "", "Runs that differ: seeds of a deterministic problem count once.",
               lambda g: len(g.samples), shown=False),
        *(_total("regret", kind, found, kind in shown) for kind in KINDS if _is_known(found, "regret", kind)),
        *(_total("violation", kind, found, kind in shown) for kind in KINDS if _is_known(found, "violation", kind)),
        *_observed(found),
        means("unsafe_episodes", "unsafe episodes", UNSAFE, _mean("unsafe_episodes")),
        means("gaps_paid", "gaps paid", GAPS, _mean("gaps_paid")),
        means("certified_gap", "certified gap", CERTIFIED, _mean("certified_gap"), 3),
        means("slope", "growth", f"The b in {grows} ~ {unit}s^b, over the last nine tenths of the run.", _growth, 3),
        means("policy_gap", "policy below optimum", "The optimal value minus that of the final policy.",
              _mean("policy_gap"), 3),
        numbers("policies_within_bounds", "policies within bounds",
                "Final policies that meet every bound, evaluated exactly.", within_bounds, tables.share,
                data=tables.part_alone),
        numbers("worst_miss", "worst miss", "The most by which a final policy misses a bound.", _worst, rounded(3)),
        numbers("stochastic_decisions", "stochastic decisions", "The most stochastic decisions of a final policy.",
                lambda g: max(len(record.decisions) for record in g.records), whole),
        means("seconds", "seconds", "The mean time of a run.",
              lambda g: seed_mean(np.array([record.seconds for record in g.records])), 3),
    ), tuple(found))  # fmt: skip


def _observed(found: Sequence[Group]) -> list[Column[Group]]:
    """In a world without a model: what was earned, and what fresh episodes of the final policies gave."""
    if not any(group.has("realised_reward") for group in found):
        return []
    constraints = found[0].records[0].constraints
    parts = tuple(label(c.name) for c in constraints)
    columns: list[Column[Group]] = [
        means("realised_reward", "realised reward", "The reward of all episodes, as observed.",
              _mean("realised_reward")),
        means("realised_utility", "realised totals", "The totals of all episodes, as observed.",
              _means("realised_utility", len(constraints)), parts=parts, shown=False),
        means("evaluated_value", "policy value", FRESH, lambda g: _evaluated(g, "value")),
        means("evaluated_utility", "policy totals", FRESH, lambda g: _evaluated(g, "utilities"), parts=parts),
    ]  # fmt: skip
    return [column for column in columns if constraints or not column.key.endswith("utility")]


def _evaluated(group: Group, name: str) -> Any:
    """The mean over seeds of the value or of every total of the final policies in fresh episodes, where known."""
    found = [record.evaluation for record in group.samples]
    if None in found:
        return None
    values = [getattr(x, name) for x in found]
    return (
        seed_mean(np.array(values)) if name == "value" else [seed_mean(np.array(x)) for x in zip(*values, strict=True)]
    )


def _is_known(found: Sequence[Group], subject: str, kind: str) -> bool:
    """Whether a group has the curve, and whether it says anything: without constraints there is no violation."""
    has = any(group.has(curve_name(subject, kind)) for group in found)
    return has and (subject == "regret" or len(found[0].records[0].constraints) > 0)


def _total(subject: str, kind: str, found: Sequence[Group], shown: bool) -> Column[Group]:
    """The final value of a curve; one for each constraint where it is a violation."""
    name = curve_name(subject, kind)
    constraints = found[0].records[0].constraints if subject == "violation" else ()
    get = _means(name, len(constraints)) if subject == "violation" else _mean(name)
    words, meaning = name.replace("_", " "), MEANINGS[found[0].run.unit][kind]
    return means(name, words, meaning, get, parts=tuple(label(c.name) for c in constraints), shown=shown)


def _mean(metric: str) -> Callable[[Group], SeedMean | None]:
    """The mean of a metric over the seeds, where a group has it."""

    def mean(group: Group) -> SeedMean | None:
        values = scores(group, metric, 0)
        return None if values is None else seed_mean(values)

    return mean


def _means(name: str, N: int) -> Callable[[Group], list[SeedMean] | None]:
    """The same for every constraint, of the end of a curve."""
    return lambda group: [seed_mean(finals(group, name, n)) for n in range(N)] if group.has(name) else None


def _growth(group: Group) -> SeedMean | None:
    name = "gaps_paid" if group.run.unit == "step" else "regret"
    return slope(group, name) if group.has(name) else None


def within_bounds(group: Group) -> tables.Share | None:
    """How many of the final policies meet every bound; None where this is not known, or where there is no bound."""
    misses = policy_misses(group)
    if misses is None or misses.shape[1] == 0:
        return None
    return tables.Share(int((misses <= 0).all(axis=1).sum()), len(misses))


def _worst(group: Group) -> float | None:
    misses = scores(group, "worst_miss")
    return None if misses is None else float(misses.max())


# -- all problems together ---------------------------------------------------------------------------------------------


class GridRow(NamedTuple):
    """One problem, and a metric of every algorithm on it."""

    problem: str  # what it is called
    means: dict[str, SeedMean]  # by label; algorithms that were not run on it are missing
    best: tuple[str, ...]  # labels with the best mean, where there are several algorithms
    missed: tuple[str, ...]  # labels that miss a bound beyond noise, where the metric rewards missing a bound


def grid_table(found: Sequence[Group], metric: str, n: int | None = None) -> Table[GridRow]:
    """Problems x algorithms: the mean of a metric with its interval."""
    check_metric(found, metric)
    rows = tuple(_grid_row(problem, metric, n) for problem in by_problem(found).values())
    told = "; bold: best mean" if any(row.best for row in rows) else ""
    if any(row.missed for row in rows):
        told += f"; {DAGGER}: misses a bound, the interval of its violation is above 0"
    return Table(_in_words(metric, found, n) + told, (
        Column("problem", "problem", "The environment, and bounds that were changed.", lambda row: row.problem),
        *(_of_algorithm(name, rows) for name in dict.fromkeys(group.label for group in found)),
    ), rows)  # fmt: skip


def _grid_row(problem: Sequence[Group], metric: str, n: int | None) -> GridRow:
    known = {group.label: scores(group, metric, n) for group in problem}
    means = {label: seed_mean(values) for label, values in known.items() if values is not None}
    if metric.endswith(("regret", "reward")) or metric in ("policy_value", "policy_gap"):
        final = metric.startswith("policy")
        missed = tuple(g.label for g in problem if g.label in means and misses_bounds(g, final=final))
    else:
        missed = ()
    top = (max if larger_is_better(metric) else min)((x.mean for x in means.values()), default=None)
    best = tuple(label for label, x in means.items() if x.mean == top) if len(means) > 1 else ()
    return GridRow(problem[0].problem, means, best, missed)


def _of_algorithm(name: str, rows: Sequence[GridRow]) -> Column[GridRow]:
    def cells(values: Sequence[SeedMean | None], narrow: bool) -> list[tables.Cell]:
        made = zip(tables.with_interval()(values, narrow), rows, strict=True)
        return [cell._replace(text=cell.text + DAGGER) if name in row.missed else cell for cell, row in made]

    return numbers(name, label(name), "The mean over the seeds of this algorithm.", lambda row: row.means.get(name),
                   cells, data=with_ends, tone=lambda row: "best" if name in row.best else "")  # fmt: skip


def _in_words(metric: str, found: Sequence[Group], n: int | None) -> str:
    words = metric.replace("_", " ")
    constraints = max((group.records[0].constraints for group in found), key=len)
    if not metric.endswith(("violation", "utility", "multiplier")) or len(constraints) < 2:
        return words
    return f"{words}, largest of all bounds" if n is None else f"{words} of {label(constraints[n].name)}"
