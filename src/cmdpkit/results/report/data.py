"""What the report shows, as plain values: numbers from `cmdpkit.results.study`, prices and boards from the models."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.exact.diagnosis import tradeoff
from cmdpkit.exact.solver import Solution, solve
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import occupancy
from cmdpkit.model.policy import NEGLIGIBLE, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import RunRecord
from cmdpkit.results.models import model_of, source_of
from cmdpkit.results.published import Row, numbered
from cmdpkit.results.statistics import Estimate, estimate
from cmdpkit.results.study import (
    KINDS,
    Group,
    Study,
    curve,
    curve_name,
    finals,
    groups,
    policy_gaps,
    policy_misses,
    slope,
)
from cmdpkit.results.text.wording import label, number, odds, short, span, titled

LARGE = 20_000  # (step, state) pairs; a larger model is neither solved again for the report nor drawn
PRICE_POINTS = 25
OPTIONS = ("noise", "baseline")  # parameters that are options of `cmdpkit learn`, not settings
GIVEN = {"baseline": "YOUR-POLICY.json"}  # a record knows the digest of the policy, the user has the file
DIGITS = 6  # of the points of a curve; tables carry every digit

Plain = dict[str, Any]


class Detail(NamedTuple):
    """How much of the data goes into the page: points a curve, and the policies of how many seeds."""

    points: int
    policies: int


class Cell(NamedTuple):
    """A number of a table: every digit for sorting, a few for reading, its interval."""

    value: float | None
    text: str
    interval: str = ""


EMPTY = Cell(None, "–")


def problems(study: Study, detail: Detail) -> list[Plain]:
    """One entry an environment, with everything its section shows."""
    by_problem: dict[tuple[str, str], list[Group]] = {}
    for group in groups(study.records):
        by_problem.setdefault((group.run.env, group.run.fingerprint), []).append(group)
    labels = list(dict.fromkeys(group.label for found in by_problem.values() for group in found))
    return [_problem(i, found, labels, study.models, detail) for i, found in enumerate(by_problem.values())]


def _problem(
    i: int, found: Sequence[Group], labels: Sequence[str], models: Mapping[str, CMDP] | None, detail: Detail
) -> Plain:
    first = found[0].records[0]
    cmdp = model_of(first.run, models)
    small = cmdp is not None and cmdp.steps * cmdp.S <= LARGE
    best = solve(cmdp) if small and cmdp is not None and first.optimum is not None else None
    headings, rows = _verdicts(found)
    return {
        "id": f"problem-{i + 1}",
        "env": first.run.env,
        "facts": _facts(first, cmdp, best),
        "headings": headings,
        "rows": [
            {"look": labels.index(g.label), "label": g.label, "cells": r} for g, r in zip(found, rows, strict=True)
        ],
        "reproduction": _reproduction(found),
        "ledger": [_ledger_row(record, group.label) for group in found for record in group.records],
        "chart": {
            "constraints": [label(str(c)) for c in first.constraints],
            "prices": None if best is None else best.shadow_prices.tolist(),
            "tradeoffs": [] if best is None else [_tradeoff(best, n, found) for n in range(best.cmdp.N)],
            "states": list(map(str, first.policy.states)),
            "actions": list(map(str, first.policy.action_names)),
            "numbered": [isinstance(x, range) for x in (first.policy.states, first.policy.action_names)],
            "grid": _grid(cmdp),
            "groups": [_group(g, labels.index(g.label), cmdp if small else None, detail) for g in found],
        },
    }


# -- figures published elsewhere ---------------------------------------------------------------------------------------


def published(rows: Sequence[Row]) -> Plain | None:
    """A table a problem, its rows under their algorithms, and below all of them what was assumed."""
    if not rows:
        return None
    numbers = numbered(rows)
    tables: dict[str, dict[str, list[Plain]]] = {}
    for row in rows:
        shown = dict(zip(("published", "measured", "interval"), row.texts(), strict=True))
        marks = sorted(numbers[text] for text in row.assumptions)
        tables.setdefault(row.env, {}).setdefault(row.algo, []).append({"row": row, "texts": shown, "marks": marks})
    agreeing = sum(row.verdict.agrees for row in rows)
    return {"tables": tables, "assumptions": list(numbers), "agreeing": agreeing, "total": len(rows)}


# -- the problem -------------------------------------------------------------------------------------------------------


def _facts(first: RunRecord, cmdp: CMDP | None, best: Solution | None) -> list[tuple[str, str]]:
    """The problem card: names and what to write beside them."""
    H, S, A = first.policy.pi.shape
    facts = [("size", f"{H:,} steps, {S:,} states, {A:,} actions")]
    facts.append(("optimal value", "unknown" if first.optimum is None else number(first.optimum)))
    for n, c in enumerate(first.constraints):
        price = "" if best is None else f", price {number(best.shadow_prices[n])} per unit"
        facts.append((f"bound {n + 1}" if len(first.constraints) > 1 else "bound", f"{label(str(c))}{price}"))
    if best is not None:
        draws = [
            f"step {d.step}, {titled('state', d.state)}: {odds(d.probabilities)}" for d in best.stochastic_decisions()
        ]
        facts.append(("the optimum draws at", "; ".join(draws) if draws else "no place, it is deterministic"))
    facts.append(("model", first.run.fingerprint[:12] if first.run.fingerprint else "none: observed returns only"))
    if first.run.fingerprint and cmdp is None:
        facts.append(("note", "the model is not at hand any more, so prices and boards are left out"))
    return facts


def _tradeoff(best: Solution, n: int, found: Sequence[Group]) -> Plain:
    """The price curve of a constraint, and where each algorithm's policies lie."""
    c = best.cmdp.constraints[n]
    line = tradeoff(best.cmdp, c.name, PRICE_POINTS)
    points = []
    for group in found:
        pairs = [(r.policy_utilities[n], r.policy_value) for r in group.records if r.policy_utilities is not None]
        points.append({"label": group.label, "at": np.array(pairs, dtype=float).tolist()})
    return {
        "name": label(c.name),
        "bound": c.bound,
        "bounds": line.bounds.tolist(),
        "values": line.values.tolist(),
        "prices": line.prices.tolist(),
        "points": points,
    }


def _grid(cmdp: CMDP | None) -> Plain | None:
    if cmdp is None or cmdp.grid is None:
        return None
    grid = cmdp.grid
    arrows = list(grid.arrows or map(str, cmdp.action_names))
    marks = [grid.marks.get(s, "") for s in range(cmdp.S)]
    return {"rows": grid.rows, "columns": grid.columns, "cells": grid.cells, "marks": marks, "arrows": arrows}


# -- the table ---------------------------------------------------------------------------------------------------------


def _verdicts(found: Sequence[Group]) -> tuple[list[tuple[str, str]], list[list[Cell]]]:
    """Headings (text, explanation) and rows of the verdict table; columns that no group can fill are left out."""
    N = len(found[0].records[0].constraints)
    exact = any(g.has("regret") or g.has("violation") for g in found)
    kinds = KINDS[:2] if exact else KINDS[2:]
    columns: list[tuple[str, str, list[Cell]]] = [
        ("seeds", "independent runs", [Cell(len(g.seeds), str(len(g.seeds))) for g in found])
    ]
    for kind in kinds:
        name = curve_name("regret", kind)
        columns.append((_words("regret", kind), _meaning(kind), [_total(g, name) for g in found]))
    for n, kind in ((n, kind) for n in range(N) for kind in kinds):
        name = curve_name("violation", kind)
        heading = f"{_words('violation', kind)} of {label(found[0].records[0].constraints[n].name)}"
        columns.append((heading, _meaning(kind), [_total(g, name, n) for g in found]))
    columns += [
        (
            "unsafe episodes",
            "episodes whose policy misses a bound in expectation",
            [_total(g, "unsafe_episodes") for g in found],
        ),
        ("growth", "b in regret ~ episodes^b, over the last nine tenths", [_growth(g) for g in found]),
        ("policy below optimum", "optimal value minus that of the final policy", [_gap(g) for g in found]),
        (
            "policies within bounds",
            "final policies that meet every bound, exactly evaluated",
            [_within(g) for g in found],
        ),
        ("draws", "most stochastic decisions in a final policy", [_draws(g) for g in found]),
        (
            "seconds",
            "mean time of a run",
            [_cell(estimate(np.array([r.seconds for r in g.records])), 3) for g in found],
        ),
    ]
    kept = [column for column in columns if any(cell.value is not None for cell in column[2])]
    return [column[:2] for column in kept], [list(row) for row in zip(*(column[2] for column in kept), strict=True)]


def _words(subject: str, kind: str) -> str:
    return subject if kind == "weak" else f"{kind} {subject}"


def _meaning(kind: str) -> str:
    return {
        "weak": "total over all episodes, signed, expected under the policies played",
        "strong": "total of the positive parts, expected under the policies played",
        "realised": "total over all episodes, signed, as observed",
    }[kind]


def _cell(over: Estimate, digits: int = 4) -> Cell:
    return Cell(over.mean, short(over.mean, digits), "" if over.low is None else span(over.low, over.high, digits))


def _total(group: Group, name: str, n: int = 0) -> Cell:
    return _cell(estimate(finals(group, name, n))) if group.has(name) else EMPTY


def _growth(group: Group) -> Cell:
    found = slope(group, "regret") if group.has("regret") else None
    return EMPTY if found is None else _cell(found, 3)


def _gap(group: Group) -> Cell:
    gaps = policy_gaps(group)
    return EMPTY if gaps is None else _cell(estimate(gaps), 3)


def _within(group: Group) -> Cell:
    misses = policy_misses(group)
    if misses is None or misses.shape[1] == 0:
        return EMPTY
    met = int((misses <= 0).all(axis=1).sum())
    worst = float(misses.max())
    return Cell(met / len(misses), f"{met} of {len(misses)}", f"worst miss {short(worst, 3)}" if worst > 0 else "")


def _draws(group: Group) -> Cell:
    most = max(len(record.decisions) for record in group.records)
    return Cell(most, str(most))


# -- groups ------------------------------------------------------------------------------------------------------------


def _group(group: Group, look: int, cmdp: CMDP | None, detail: Detail) -> Plain:
    first = group.records[0]
    return {
        "label": group.label,
        "look": look,
        "curves": {name: _lines(group, name, detail.points) for name in first.curves if _drawn(group, name)},
        "phases": [{"name": name, "start": start} for name, start in first.phases],
        "episodes": first.run.episodes,
        "seed": first.run.seed,
        "explanation": _listed(first.explanation),
        "notes": list(first.notes),
        "runs": [
            {
                "seed": record.run.seed,
                "key": record.run.key,
                "policy": _policy(record.policy)
                if i < detail.policies and record.policy.pi[..., 0].size <= LARGE
                else None,
                "reach": _reach(cmdp, record.policy) if i < detail.policies else None,
            }
            for i, record in enumerate(group.records)
        ],
    }


def _drawn(group: Group, name: str) -> bool:
    return (name.endswith(("regret", "violation")) or name == "multiplier") and group.has(name)


def _lines(group: Group, name: str, points: int) -> list[Plain]:
    """A curve for every row of it, thinned: episodes, means, and bounds where there are several seeds."""
    rows = len(np.atleast_2d(np.asarray(group.records[0].curves[name])))
    lines = []
    for n in range(rows):
        line = curve(group, name, n)
        at = np.unique(np.linspace(0, len(line.episode) - 1, min(points, len(line.episode))).round().astype(int))
        lines.append({key: _rounded(x[at]) for key, x in line._asdict().items() if key != "raw" and x is not None})
    return lines


def _rounded(x: FloatArray) -> list[float | int]:
    values = [float(f"{value:.{DIGITS}g}") for value in x.tolist()]
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value for value in values]


def _policy(policy: Policy) -> list[list[Any]]:
    """[H][S]: the index of the action taken, or pairs of action and probability where several are."""
    return [[_choice(row) for row in step] for step in policy.pi]


def _choice(row: FloatArray) -> int | list[tuple[int, float]]:
    taken = np.flatnonzero(row)
    return int(taken[0]) if len(taken) == 1 and row[taken[0]] == 1 else [(int(a), float(row[a])) for a in taken]


def _reach(cmdp: CMDP | None, policy: Policy) -> list[str] | None:
    """[H]: for every state 1 if the policy reaches it at that step and 0 if not."""
    if cmdp is None:
        return None
    return ["".join("01"[int(x > NEGLIGIBLE)] for x in row) for row in occupancy(cmdp, policy).sum(axis=-1)]


def _listed(value: Any) -> Any:
    """An explanation as texts and lists of them, so that the order of its entries reaches the page."""
    if isinstance(value, Mapping):
        return {"entries": [[str(key), _listed(inner)] for key, inner in value.items()]}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_listed(inner) for inner in value]
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# -- runs --------------------------------------------------------------------------------------------------------------


def _ledger_row(record: RunRecord, group: str) -> Plain:
    totals = [name for name in ("regret", "realised_regret") if name in record.curves][:1]
    misses = [name for name in ("violation", "realised_violation") if name in record.curves][:1]
    safe = {True: "safe", False: "unsafe", None: "undecided"}
    return {
        "label": group,
        "run": record.run,
        "key": record.run.key,
        "regret": _cell(Estimate(float(record.final(totals[0])), None, None, 1)) if totals else EMPTY,
        "violation": [_cell(Estimate(x, None, None, 1)) for x in np.ravel(record.final(misses[0])).tolist()]
        if misses
        else [],
        "certificate": "" if record.certificate is None else ", ".join(safe[x] for x in record.certificate.safe),
        "seconds": _cell(Estimate(record.seconds, None, None, 1), 3),
    }


def _reproduction(found: Sequence[Group]) -> Plain:
    versions: dict[str, set[str]] = {}
    for record in (record for group in found for record in group.records):
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    return {
        "commands": [_command(group) for group in found],
        "versions": [f"{name} {' or '.join(sorted(those))}" for name, those in sorted(versions.items())],
    }


def _command(group: Group) -> str:
    """What to type to have the same runs again: in a shell, or in Python where the seeds do not count on."""
    run, seeds = group.run, group.seeds
    if seeds != tuple(range(seeds[0], seeds[0] + len(seeds))):
        given = {"episodes": run.episodes, "preset": run.preset, **run.params}
        arguments = ", ".join(f"{name}={name if name in GIVEN else repr(value)}" for name, value in given.items())
        return f"for seed in {list(seeds)}: ck.learn({run.env!r}, {run.algo!r}, seed=seed, {arguments})"
    source, bounds = source_of(run.env)
    words = ["cmdpkit", "learn", source, "--algo", run.algo, "--preset", run.preset, "--episodes", str(run.episodes)]
    words += ["--seeds", str(len(seeds)), *(("--first-seed", str(seeds[0])) if seeds[0] else ())]
    for name, bound in bounds.items():
        words += ["--bound", f"{name}={bound!r}"]
    for name, value in run.params.items():
        option = [f"--{name}", GIVEN.get(name, str(value))]
        words += option if name in OPTIONS else ["--set", f"{name}={_setting(value)}"]
    return shlex.join(words)


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def failures(study: Study) -> list[Plain]:
    """Runs that did not finish, and why."""
    return [{"run": failure.run, "reason": failure.reason} for failure in study.failures]
