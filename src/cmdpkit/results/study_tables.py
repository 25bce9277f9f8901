"""The tables of a study: groups of runs on each problem, and how groups differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.records.record import Evaluation
from cmdpkit.results.groups import (
    KINDS,
    Comparison,
    Group,
    compare,
    curve_name,
    finals,
    policy_gaps,
    policy_misses,
    slope,
)
from cmdpkit.results.published import ONE_RUN
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.tables import (
    Cell,
    Column,
    Share,
    Table,
    not_at_all,
    part_alone,
    rounded,
    share,
    whole,
    with_ends,
    with_interval,
)
from cmdpkit.results.wording import label

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
FRESH = "The mean total of fresh episodes of the final policy."
CERTIFIED = "The final policy is proved to be at most this far below the optimum."
UNSAFE = "Episodes whose policy misses a bound in expectation."


# -- groups of runs ----------------------------------------------------------------------------------------------------


def by_problem(groups: Iterable[Group]) -> dict[tuple[str, str], list[Group]]:
    """Groups of runs on the same problem together: by the name of the environment and the fingerprint of its model."""
    together: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        together.setdefault((group.run.problem, group.run.fingerprint), []).append(group)
    return together


def study_tables(groups: Iterable[Group]) -> list[Table[Group]]:
    """One table per problem."""
    return [group_table(found) for found in by_problem(groups).values()]


def group_table(found: Sequence[Group]) -> Table[Group]:
    """One row per group of runs on one problem: regret and violation in all forms, and what became of the policies.

    Expected totals are shown where a model made them known, and observed ones where there was no model.
    """
    modelled = any(g.has("regret") or g.has("violation") for g in found)
    shown = KINDS[:2] if modelled else KINDS[2:]
    unit = found[0].run.unit
    grows = "gaps paid" if unit == "step" else "regret"
    columns: list[Column[Group]] = [
        Column("algorithm", "algorithm", "The algorithm, and what tells it from the others.", lambda g: g.label,
               data=not_at_all),
        Column("env", "", "The environment.", lambda g: g.run.env, shown=False),
        Column("bounds", "", "Bounds that were changed.", lambda g: dict(g.run.bounds), shown=False),
        Column("noise", "", "How signals were drawn.", lambda g: g.run.noise, shown=False),
        Column("algo", "", "The algorithm.", lambda g: g.run.algo, shown=False),
        Column("preset", "", "The preset of its parameters.", lambda g: g.run.preset, shown=False),
        Column("params", "", "Parameters that were set.", lambda g: dict(g.run.params), shown=False),
        Column("code", "", "A digest of the algorithm's code.", lambda g: g.run.code or "unknown", shown=False),
        Column(f"{unit}s", "", f"{unit.capitalize()}s of every run.", lambda g: g.run.episodes, shown=False),
        Column("seeds", "seeds", "Independent runs.", lambda g: len(g.seeds),
               lambda values, _: [_seeds(g) for g in found], "right"),
        Column("samples", "", "Runs that differ: seeds of a deterministic problem count once.",
               lambda g: len(g.samples), shown=False),
        *(_total("regret", kind, found, kind in shown) for kind in KINDS if _is_known(found, "regret", kind)),
        *(_total("violation", kind, found, kind in shown) for kind in KINDS if _is_known(found, "violation", kind)),
        *_observed(found),
        Column("unsafe_episodes", "unsafe episodes", UNSAFE, _final("unsafe_episodes"), with_interval(), "right",
               data=with_ends),
        Column("gaps_paid", "gaps paid", GAPS, _final("gaps_paid"), with_interval(), "right", data=with_ends),
        Column("certified_gap", "certified gap", CERTIFIED, _final("certified_gap"), with_interval(3), "right",
               data=with_ends),
        Column("slope", "growth", f"The b in {grows} ~ {unit}s^b, over the last nine tenths of the run.", _growth,
               with_interval(3), "right", data=with_ends),
        Column("policy_gap", "policy below optimum", "The optimal value minus that of the final policy.",
               lambda g: _estimated(policy_gaps(g)), with_interval(3), "right", data=with_ends),
        Column("policies_within_bounds", "policies within bounds",
               "Final policies that meet every bound, evaluated exactly.", _within, share, "right", data=part_alone),
        Column("worst_miss", "worst miss", "The most by which a final policy misses a bound.", _worst, rounded(3),
               "right"),
        Column("stochastic_decisions", "stochastic decisions", "The most stochastic decisions of a final policy.",
               lambda g: max(len(record.decisions) for record in g.records), whole, "right"),
        Column("seconds", "seconds", "The mean time of a run.", _seconds, with_interval(3), "right", data=with_ends),
    ]  # fmt: skip
    return Table(found[0].run.problem, tuple(columns), tuple(found))


def _seeds(group: Group) -> Cell:
    text = ONE_RUN if group.deterministic else str(len(group.seeds))
    return Cell(text, value=len(group.seeds))


def _observed(found: Sequence[Group]) -> list[Column[Group]]:
    """In a world without a model: what was earned, and what fresh episodes of the final policies gave."""
    if not any(group.has("realised_reward") for group in found):
        return []
    constraints = found[0].records[0].constraints
    parts = tuple(label(c.name) for c in constraints)
    columns: list[Column[Group]] = [
        Column("realised_reward", "realised reward", "The reward of all episodes, as observed.",
               _final("realised_reward"), with_interval(), "right", data=with_ends),
        Column("realised_utility", "realised totals", "The totals of all episodes, as observed.",
               _finals("realised_utility", len(constraints)), with_interval(), "right", parts, with_ends, shown=False),
        Column("evaluated_value", "policy value", FRESH, lambda g: _evaluated(g, lambda x: x.value), with_interval(),
               "right", data=with_ends),
        Column("evaluated_utility", "policy totals", FRESH,
               lambda g: _each_evaluated(g, len(constraints)), with_interval(), "right", parts, with_ends),
    ]  # fmt: skip
    return [column for column in columns if constraints or not column.key.endswith("utility")]


def _evaluated(group: Group, part: Callable[[Evaluation], float]) -> SeedMean | None:
    found = [record.evaluation for record in group.samples]
    return None if None in found else seed_mean(np.array([part(x) for x in found if x is not None]))


def _each_evaluated(group: Group, N: int) -> list[SeedMean] | None:
    found = [_evaluated(group, lambda x, n=n: x.utilities[n]) for n in range(N)]  # type: ignore[misc]
    return None if None in found else [x for x in found if x is not None]


def _is_known(found: Sequence[Group], subject: str, kind: str) -> bool:
    """Whether a group has the curve, and whether it says anything: without constraints there is no violation."""
    has = any(group.has(curve_name(subject, kind)) for group in found)
    return has and (subject == "regret" or len(found[0].records[0].constraints) > 0)


def _total(subject: str, kind: str, found: Sequence[Group], shown: bool) -> Column[Group]:
    """The final value of a curve; one for each constraint where it is a violation."""
    name = curve_name(subject, kind)
    constraints = found[0].records[0].constraints
    parts = tuple(label(c.name) for c in constraints) if subject == "violation" else ()
    get = _finals(name, len(constraints)) if subject == "violation" else _final(name)
    words, meaning = name.replace("_", " "), MEANINGS[found[0].run.unit][kind]
    return Column(name, words, meaning, get, with_interval(), "right", parts, with_ends, shown=shown)


def _final(name: str) -> Callable[[Group], SeedMean | None]:
    return lambda group: seed_mean(finals(group, name)) if group.has(name) else None


def _finals(name: str, N: int) -> Callable[[Group], list[SeedMean] | None]:
    return lambda group: [seed_mean(finals(group, name, n)) for n in range(N)] if group.has(name) else None


def _growth(group: Group) -> SeedMean | None:
    name = "gaps_paid" if group.run.unit == "step" else "regret"
    return slope(group, name) if group.has(name) else None


def _estimated(values: Any) -> SeedMean | None:
    return None if values is None else seed_mean(values)


def _within(group: Group) -> Share | None:
    misses = policy_misses(group)
    if misses is None or misses.shape[1] == 0:
        return None
    return Share(int((misses <= 0).all(axis=1).sum()), len(misses))


def _worst(group: Group) -> float | None:
    misses = policy_misses(group)
    return None if misses is None or misses.shape[1] == 0 else max(0.0, float(misses.max()))


def _seconds(group: Group) -> SeedMean:
    return seed_mean(np.array([record.seconds for record in group.records]))


# -- comparisons -------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two groups of runs on one problem, compared."""

    group: Group  # the group that is compared
    other: Group  # the group that it is compared with
    found: Comparison  # how they differ


def comparison_tables(groups: Iterable[Group], against: str, name: str = "regret", n: int = 0) -> list[Table[Pair]]:
    """One table per problem that has a group called ``against``: every other group minus that one, paired by seed."""
    problems = by_problem(groups).values()
    labels = sorted({group.label for found in problems for group in found})
    if against not in labels:
        raise CmdpkitError(f"no group is called {against!r}; there are {', '.join(labels)}")
    tables = []
    for found in problems:
        for other in (group for group in found if group.label == against):
            pairs = [Pair(group, other, compare(group, other, name, n)) for group in found if group is not other]
            tables.append(_comparison(pairs, other, name))
    return tables


def _comparison(pairs: Sequence[Pair], other: Group, name: str) -> Table[Pair]:
    columns: list[Column[Pair]] = [
        Column("env", "", "The environment.", lambda p: p.group.run.env, shown=False),
        Column("algorithm", "algorithm", "The group that is compared.", lambda p: p.group.label),
        Column("against", "", "The group that it is compared with.", lambda p: p.other.label, shown=False),
        Column("seeds", "seeds", "Seeds that both have.", lambda p: len(p.found.seeds), whole, "right"),
        Column("difference", "difference", "The mean difference of the final values, seed by seed.",
               lambda p: p.found.difference, with_interval(), "right", data=with_ends),
        Column("p", "p", "How likely so large a difference is if there is none, by a sign-flip test.",
               lambda p: p.found.p, rounded(2), "right"),
    ]  # fmt: skip
    title = f"{other.run.env}: {name.replace('_', ' ')} minus that of {other.label}"
    return Table(title, tuple(columns), tuple(pairs))
