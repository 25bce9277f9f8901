"""The report: a study as one HTML file that needs no network, no server and no other file.

The page is a Jinja template with everything escaped; its data are JSON, which a small script of our own draws as SVG.
(A chart library would add 0.9 MB to every report and 90 MB to the installation.) A content security policy allows this
script and nothing else. The studies give the numbers, the models give prices and boards.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.exact.tradeoff import tradeoff
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import reach
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import RunRecord
from cmdpkit.results.figures.style import COLOURS
from cmdpkit.results.groups import Group, curve
from cmdpkit.results.published import Claim, Row, headlines, in_order, numbered, published_tables
from cmdpkit.results.run import ledger_table
from cmdpkit.results.study import Study, model_of
from cmdpkit.results.study_tables import by_problem, group_table
from cmdpkit.results.tables import Cell, Column, Table
from cmdpkit.results.wording import bounded, drawn, label, number
from cmdpkit.running.importing import PRESET as IMPORTED
from cmdpkit.tolerances import NEGLIGIBLE

MOST_PAIRS = 20_000  # (step, state) pairs; a larger model is neither solved again for the report nor drawn
PRICE_POINTS = 25  # bounds at which the price curve is computed
BASELINE = "YOUR-POLICY.json"  # a record knows the digest of the policy, the user has the file
CURVE_DIGITS = 6  # significant digits of the points of a curve; tables carry every digit

Plain = dict[str, Any]


class Detail(NamedTuple):
    """How much of the data goes into the page."""

    points: int  # of every curve
    policies: int  # of how many seeds of every group


MOST_BYTES = 2_000_000  # of a page, unless the caller says otherwise
# How much detail is tried, one after the other, until the page is small enough.
DETAILS = (Detail(160, 1_000), Detail(80, 1_000), Detail(80, 3), Detail(60, 1), Detail(40, 0))
THINNED = "This study is large: curves are thinned, and not every seed's policy is on this page."
SCRIPTS = ("scale.js", "chart.js", "policy.js", "report.js")


def render(study: Study, *, title: str = "", rows: Sequence[Row] = (), limit: int = MOST_BYTES) -> str:
    """The report as text; where it would exceed ``limit`` bytes, it has fewer points and policies.

    ``rows`` are figures published elsewhere, beside what the study gives; they are shown first.
    """
    if not study.records and not study.failures:
        raise CmdpkitError("there is nothing to report: no run finished and none failed")
    for detail in DETAILS:
        page = _page(study, title, rows, detail)
        if len(page.encode()) < limit:
            return page
    raise CmdpkitError(
        f"the report would have {len(page.encode()):,} bytes, more than {limit:,}; report on fewer runs at a time"
    )


def _page(study: Study, title: str, rows: Sequence[Row], detail: Detail) -> str:
    parts = problems(study, detail)
    script = "".join(_asset(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    complete = detail == DETAILS[0]
    page: str = (
        _environment()
        .get_template("report.html")
        .render(
            title=title or "Constrained MDPs: what was learned",
            version=__version__,
            runs=len(study.records),
            zip=zip,
            published=published(rows, study.claims),
            problems=parts,
            failures=failures(study),
            data={"colours": len(COLOURS), "problems": [{"id": part["id"], **part["chart"]} for part in parts]},
            notes=(*study.remarks(), *(() if complete else (THINNED,))),
            style=_asset("report.css"),
            script=script,
            policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:",
        )
    )
    return page


def _asset(name: str) -> str:
    return resources.files("cmdpkit.results.report").joinpath("assets", name).read_text(encoding="utf-8")


def _environment() -> Any:
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ImportError:
        raise CmdpkitError("the report needs jinja2, which is not installed: pip install 'cmdpkit[report]'") from None
    return Environment(
        loader=DictLoader({"report.html": _asset("report.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


# -- problems ----------------------------------------------------------------------------------------------------------


def problems(study: Study, detail: Detail) -> list[Plain]:
    """One entry per problem, with everything its section shows."""
    together = list(by_problem(study.groups()).values())
    labels = list(dict.fromkeys(group.label for found in together for group in found))
    return [_problem(i, found, labels, study.models, detail) for i, found in enumerate(together)]


def _problem(
    i: int, found: Sequence[Group], labels: Sequence[str], models: Mapping[str, CMDP] | None, detail: Detail
) -> Plain:
    first = found[0].records[0]
    cmdp = model_of(first.run, models)
    small = cmdp is not None and cmdp.steps * cmdp.S <= MOST_PAIRS
    best = solve_fully(cmdp) if small and cmdp is not None and first.optimum is not None else None
    return {
        "id": f"problem-{i + 1}",
        "env": found[0].problem,
        "facts": _facts(first, cmdp, best),
        "looks": {group.label: labels.index(group.label) for group in found},
        "verdict": group_table(found),
        "ledger": ledger_table(found),
        "reproduction": _reproduction(found),
        "chart": {
            "constraints": [label(str(c)) for c in first.constraints],
            "prices": None if best is None else best.lam.tolist(),  # as learners' multipliers, per unit of the total
            "tradeoffs": [] if best is None else [_tradeoff(best, n, found) for n in range(best.cmdp.N)],
            "states": list(map(str, first.policy.states)),
            "actions": list(map(str, first.policy.action_names)),
            "numbered": [isinstance(x, range) for x in (first.policy.states, first.policy.action_names)],
            "grid": _grid(cmdp),
            "unit": first.run.unit,
            "stationary": first.policy.is_stationary,
            "groups": [_group(g, labels.index(g.label), cmdp if small else None, detail) for g in found],
        },
    }


# -- figures published elsewhere ---------------------------------------------------------------------------------------


def published(rows: Sequence[Row], claims: Sequence[Claim]) -> Plain | None:
    """The claims; one table per kind and problem, how many figures are as published, and what was assumed."""
    if not rows and not claims:
        return None
    tables = [(table.title, *_by_algorithm(table)) for table in published_tables(rows)]
    assumptions, said = list(numbered(in_order(rows))), headlines(rows)
    return {"claims": claims, "tables": tables, "assumptions": assumptions, "headlines": said}


def _by_algorithm(table: Table[Row]) -> tuple[tuple[Column[Row], ...], dict[str, list[tuple[Row, tuple[Cell, ...]]]]]:
    """The columns, and for every algorithm its rows with their cells."""
    columns, cells = table.by_row()
    together: dict[str, list[tuple[Row, tuple[Cell, ...]]]] = {}
    for row, its_cells in zip(table.rows, cells, strict=True):
        together.setdefault(row.algo, []).append((row, its_cells))
    return columns, together


# -- the problem -------------------------------------------------------------------------------------------------------


def _facts(first: RunRecord, cmdp: CMDP | None, best: Solution | None) -> list[tuple[str, str]]:
    """What the card of a problem says: names, and what stands beside them."""
    H, S, A = first.policy.shape
    steps = "no horizon" if first.policy.is_stationary else f"{H:,} steps"
    facts = [("size", f"{steps}, {S:,} states, {A:,} actions")]
    if cmdp is not None and first.policy.is_stationary:
        facts.append(("criterion", cmdp.criterion.in_words))
    facts.append(("optimal value", "unknown" if first.optimum is None else number(first.optimum)))
    for n, c in enumerate(first.constraints):
        price = "" if best is None else f", price {number(best.shadow_prices[n])} per unit{c.unit}"
        facts.append(
            (f"bound {n + 1}" if len(first.constraints) > 1 else "bound", f"{label(c.name)} {bounded(c)}{price}")
        )
    if best is not None:
        draws = "; ".join(map(drawn, best.stochastic_decisions()))
        facts.append(("the optimum draws at", draws or "no place, it is deterministic"))
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
        "bound": c.total,
        "bounds": (c.scale * line.bounds).tolist(),
        "values": line.values.tolist(),
        "prices": (line.prices / c.scale).tolist(),
        "points": points,
    }


def _grid(cmdp: CMDP | None) -> Plain | None:
    if cmdp is None or cmdp.grid is None:
        return None
    grid = cmdp.grid
    arrows = list(grid.arrows or map(str, cmdp.action_names))
    marks = [grid.marks.get(s, "") for s in range(cmdp.S)]
    return {"rows": grid.rows, "columns": grid.columns, "cells": grid.cells, "marks": marks, "arrows": arrows}


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
                if i < detail.policies and record.policy.choice.size <= MOST_PAIRS
                else None,
                "reach": _reach(cmdp, record.policy) if i < detail.policies else None,
            }
            for i, record in enumerate(group.records)
        ],
    }


def _drawn(group: Group, name: str) -> bool:
    drawn = name.endswith(("regret", "violation")) or name in ("multiplier", "gaps_paid", "certified_gap")
    return drawn and group.has(name)


def _lines(group: Group, name: str, points: int) -> list[Plain]:
    """A curve for every row of it, thinned: where it is read, means, and bounds where there are several seeds."""
    rows = len(np.atleast_2d(np.asarray(group.records[0].curves[name])))
    lines = []
    for n in range(rows):
        line = curve(group, name, n)
        at = np.unique(np.linspace(0, len(line.episode) - 1, min(points, len(line.episode))).round().astype(int))
        lines.append({key: _rounded(x[at]) for key, x in line._asdict().items() if key != "raw" and x is not None})
    return lines


def _rounded(x: FloatArray) -> list[float | int]:
    values = [float(f"{value:.{CURVE_DIGITS}g}") for value in x.tolist()]
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value for value in values]


def _policy(policy: Policy) -> list[list[Any]]:
    """[H][S]: the index of the action taken, or pairs of action and probability where several are."""
    return [[_choice(row) for row in policy.table(h)] for h in range(policy.shape[0])]


def _choice(row: FloatArray) -> int | list[tuple[int, float]]:
    taken = np.flatnonzero(row)
    return int(taken[0]) if len(taken) == 1 and row[taken[0]] == 1 else [(int(a), float(row[a])) for a in taken]


def _reach(cmdp: CMDP | None, policy: Policy) -> list[str] | None:
    """[H]: for every state 1 if the policy reaches it at that step and 0 if not."""
    if cmdp is None:
        return None
    return ["".join("01"[int(x > NEGLIGIBLE)] for x in row) for row in reach(cmdp, policy)]


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


def _reproduction(found: Sequence[Group]) -> Plain:
    versions: dict[str, set[str]] = {}
    for record in (record for group in found for record in group.records):
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    return {
        "commands": [_command(group) for group in found if group.run.preset != IMPORTED],
        "versions": [f"{name} {' or '.join(sorted(those))}" for name, those in sorted(versions.items())],
    }


def _command(group: Group) -> str:
    """What to type to have the same runs again: in Python where the shell has no option for what was asked."""
    run, seeds = group.run, group.seeds
    length = "stop" if run.anytime else f"{run.unit}s"
    options = {"bounds": dict(run.bounds), "noise": run.noise if run.noise != "none" else "", "readings": run.readings}
    if run.readings or seeds != tuple(range(seeds[0], seeds[0] + len(seeds))):
        given = {length: run.episodes, "preset": run.preset, **run.params, **options}
        words = [f"{name}={value!r}" for name, value in given.items() if name in run.params or value]
        words += ["baseline=baseline"] if run.baseline else []
        return f"for seed in {list(seeds)}: ck.learn({run.env!r}, {run.algo!r}, seed=seed, {', '.join(words)})"
    words = ["cmdpkit", "learn", run.env, "--algo", run.algo, "--preset", run.preset]
    words += [f"--{length}", str(run.episodes), "--seeds", str(len(seeds))]
    words += ["--first-seed", str(seeds[0])] if seeds[0] else []
    for name, bound in run.bounds.items():
        words += ["--bound", f"{name}={bound!r}"]
    for name, value in run.params.items():
        words += ["--set", f"{name}={_setting(value)}"]
    words += ["--noise", run.noise] if options["noise"] else []
    words += ["--baseline", BASELINE] if run.baseline else []
    return shlex.join(words)


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def failures(study: Study) -> list[Plain]:
    """Runs that did not finish, and why."""
    return [{"run": failure.run, "reason": failure.reason} for failure in study.failures]
