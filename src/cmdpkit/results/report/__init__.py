"""The report of a study: one HTML file that needs no network, no server and no other file.

It has a summary over all problems, then a section for each. A page, here and in `plan`, is a Jinja template with
everything escaped; its data are JSON, which scripts of our own draw as SVG. A content security policy allows exactly
these scripts and nothing else. docs/design/charts.md says why no chart library is used.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.diagnosis import Tradeoff, tradeoff
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.io.formats.sheet import csv_cell
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.policies import reach
from cmdpkit.records.record import RunRecord
from cmdpkit.results.groups import Group, SeedMean, curve, larger_is_better, scores, seed_mean
from cmdpkit.results.runs import by_problem, grid_table, group_table, within_bounds
from cmdpkit.results.study import Study, model_of
from cmdpkit.results.tables import Table
from cmdpkit.results.wording import bounded, drawn, label, number, short
from cmdpkit.running.learning import IMPORTED

MOST_PAIRS = 20_000  # (step, state) pairs; a larger model is neither solved again for a page nor drawn
PRICE_POINTS = 25  # bounds at which the price curve is computed
TEMPLATES = ("page.html", "parts.html", "report.html", "plan.html")
SHARED_SCRIPTS = ("scale.js", "chart.js", "page.js", "policy.js")
CURVE_DIGITS = 6  # significant digits of the points of a curve; tables carry every digit
SEED_DIGITS = 4  # of the lines of single seeds
# What the summary over problems shows, as far as there are runs that have it.
SUMMARISED = ("strong_regret", "strong_violation", "policy_gap", "worst_miss")
OBSERVED = ("realised_reward", "realised_violation")  # the same for runs without a model


DRAWN = ("multiplier", "gaps_paid", "certified_gap")  # curves that are drawn besides regret and violation


Plain = dict[str, Any]


POINTS = 160  # of every curve, at most
MOST_LINES = 10  # seeds of a group that have a line each
MOST_POLICIES = 3  # seeds of a group whose policies are shown


def render(study: Study, *, title: str = "") -> str:
    """The report as text."""
    if not study.records and not study.failures:
        raise CmdpkitError("there is nothing to report: no run finished and none failed")
    parts = problems(study)
    first = summary(study.groups(), parts)
    tables = {f"{part['id']}-verdict": part["verdict"] for part in parts}
    tables |= {} if first is None else {part["id"]: part["table"] for part in first["tables"]}
    return page_of(
        "report.html",
        "report.js",
        {"problems": [{"id": part["id"], "name": part["env"], **part["chart"]} for part in parts]},
        tables,
        title or "Constrained MDPs: what was learned",
        runs=len(study.records),
        summary=first,
        problems=parts,
        failures=study.failures,
        notes=study.remarks(),
    )


# -- all problems ------------------------------------------------------------------------------------------------------


def summary(found: Sequence[Group], parts: Sequence[Plain]) -> Plain | None:
    """Tables of problems x algorithms; None if there is one problem."""
    if len(parts) < 2:
        return None
    known = [metric for metric in (*SUMMARISED, *OBSERVED) if any(scores(group, metric) is not None for group in found)]
    shown = [metric for metric in known if metric in SUMMARISED] or known
    tables = [{"id": f"summary-{metric}", "table": grid_table(found, metric)} for metric in shown]
    if not tables:
        return None
    looks = {label: look for part in parts for label, look in part["looks"].items()}
    return {"tables": tables, "problems": len(parts), "looks": looks, "ids": [part["id"] for part in parts]}


def problems(study: Study) -> list[Plain]:
    """One entry per problem, with everything its section shows."""
    together = list(by_problem(study.groups()).values())
    labels = list(dict.fromkeys(group.label for found in together for group in found))
    return [_problem(i, found, labels, study.models) for i, found in enumerate(together)]


def _problem(i: int, found: Sequence[Group], labels: Sequence[str], models: Mapping[str, CMDP] | None) -> Plain:
    first = found[0].records[0]
    cmdp = model_of(first.run, models)
    small = cmdp is not None and cmdp.n_steps * cmdp.S <= MOST_PAIRS
    best = solve_fully(cmdp) if small and cmdp is not None and first.optimum is not None else None
    return {
        "id": f"problem-{i + 1}",
        "env": found[0].problem,
        "said": said(found),
        "facts": _facts(first, cmdp, best),
        "looks": {group.label: labels.index(group.label) for group in found},
        "verdict": group_table(found),
        "reproduction": _reproduction(found),
        "chart": {
            "constraints": [label(str(c)) for c in first.constraints],
            "prices": None if best is None else best.lam.tolist(),  # as learners' multipliers, per unit of the total
            "tradeoffs": [] if best is None else [_tradeoff(best, n, found) for n in range(best.cmdp.N)],
            **policy_frame(first.policy, cmdp),
            "unit": first.run.unit,
            "groups": [_group(g, labels.index(g.label), cmdp if small else None) for g in found],
        },
    }


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
        facts.append(("the optimum randomises at", draws or "no place, it is deterministic"))
    facts.append(("model", first.run.fingerprint[:12] if first.run.fingerprint else "none: observed returns only"))
    if first.run.fingerprint and cmdp is None:
        facts.append(("note", "the model is not at hand any more, so prices and boards are left out"))
    return facts


def _tradeoff(best: Solution, n: int, found: Sequence[Group]) -> Plain:
    """The price curve of a constraint, and where each algorithm's policies lie."""
    points = []
    for group in found:
        pairs = [(r.policy_utilities[n], r.policy_value) for r in group.records if r.policy_utilities is not None]
        points.append({"label": group.label, "at": np.array(pairs, dtype=float).tolist()})
    return tradeoff_data(tradeoff(best.cmdp, best.cmdp.constraints[n].name, PRICE_POINTS), points)


# -- in words ----------------------------------------------------------------------------------------------------------


def said(found: Sequence[Group]) -> str:
    """The result on one problem in a sentence: who did best among those whose returned policies all meet the bounds."""
    metric = next((x for x in ("strong_regret", "realised_reward") if any(scores(g, x) is not None for g in found)), "")
    values = {group.label: scores(group, metric) for group in found} if metric else {}
    means = {label: seed_mean(x) for label, x in values.items() if x is not None}
    if not means:
        return ""
    kept = {group.label: within_bounds(group) for group in found}
    words = metric.replace("_", " ")
    if len(means) == 1:
        [(name, mean)] = means.items()
        share = kept[name]
        policies = "" if share is None else f"; {share.part} of {share.total} returned policies meet the bounds"
        return f"{label(name)}: {words} of {_with_interval(mean)}{policies}."
    certain = {name: mean for name, mean in means.items() if (x := kept[name]) is None or x.part == x.total}
    most = "largest" if larger_is_better(metric) else "least"
    name = (max if larger_is_better(metric) else min)(certain or means, key=lambda x: float(means[x].mean))
    result = f"{label(name)} has the {most} {words}, {_with_interval(means[name])}"
    if not any(kept.values()):
        return f"{result}."
    if certain:
        return f"{result}, of the algorithms whose returned policies all meet the bounds."
    return f"{result}, but no algorithm returned policies that all meet the bounds."


def _with_interval(over: SeedMean) -> str:
    half = "" if over.high is None else f" ± {short(float(over.high - over.mean), 2)}"
    return f"{short(float(over.mean))}{half}"


# -- groups ------------------------------------------------------------------------------------------------------------


def _group(group: Group, look: int, cmdp: CMDP | None) -> Plain:
    first = group.records[0]
    names = [name for name in first.curves if np.size(first.curves[name]) and group.can_draw(name)]
    names = [name for name in names if name in DRAWN or name.endswith(("regret", "violation"))]
    grid = curve(group, names[0]).episode if names else np.zeros(0)
    at = grid[np.unique(np.linspace(0, len(grid) - 1, min(POINTS, len(grid))).round().astype(int))]
    certified = first.certificate.sentence if first.certificate is not None else ""
    proved = {"proved about its policy": certified} if certified else {}
    return {
        "label": group.label,
        "look": look,
        "at": _rounded(at),
        "curves": {name: _lines(group, name, at) for name in names},
        "phases": [{"name": name, "start": start} for name, start in first.phases],
        "episodes": first.run.length,
        "seed": first.run.seed,
        "internals": _listed({**proved, **first.internals}),
        "notes": list(first.notes),
        "runs": [
            {"seed": record.run.seed, "key": record.run.key, **policy_data(record.policy, cmdp)}
            for record in group.records[:MOST_POLICIES]
        ],
    }


def _lines(group: Group, name: str, at: FloatArray) -> list[Plain]:
    """A curve for every row of it, read at some episodes: means, intervals, and the lines of single seeds."""
    lines = []
    for n in range(len(np.atleast_2d(np.asarray(group.records[0].curves[name])))):
        line = curve(group, name, n)
        kept = np.searchsorted(line.episode, at)
        found: Plain = {
            key: _rounded(x[kept]) for key in ("mean", "low", "high") if (x := getattr(line, key)) is not None
        }
        if 1 < len(line.raw) <= MOST_LINES:
            found["raw"] = [_rounded(x[kept], SEED_DIGITS) for x in line.raw]
        lines.append(found)
    return lines


def _rounded(x: FloatArray, digits: int = CURVE_DIGITS) -> list[float | int]:
    values = [float(f"{value:.{digits}g}") for value in x.tolist()]
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value for value in values]


def _listed(value: Any) -> Any:
    """The internals as texts and lists of them, so that the order of its entries reaches the page."""
    if isinstance(value, Mapping):
        return {"entries": [[str(key), _listed(inner)] for key, inner in value.items()]}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_listed(inner) for inner in value]
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _reproduction(found: Sequence[Group]) -> Plain:
    records = [record for group in found for record in group.records]
    return {
        "commands": [_command(group) for group in found if group.run.preset != IMPORTED],
        "versions": sorted({f"{name} {version}" for record in records for name, version in record.versions.items()}),
    }


def _command(group: Group) -> str:
    """What to type in Python to have the same runs again."""
    run = group.run
    length = "stop" if run.anytime else f"{run.unit}s"
    options = {"bounds": dict(run.bounds), "noise": run.noise if run.noise != "none" else "", "readings": run.readings}
    given = {length: run.length, "preset": run.preset, **run.params, **options}
    words = [f"{name}={value!r}" for name, value in given.items() if name in run.params or value]
    words += ["baseline=baseline"] if run.baseline else []
    return f"for seed in {list(group.seeds)}: ck.learn({run.env!r}, {run.algo!r}, seed=seed, {', '.join(words)})"


# -- pages -------------------------------------------------------------------------------------------------------------


def page_of(
    template: str, script: str, data: Plain, tables: Mapping[str, Table[Any]], title: str, **context: Any
) -> str:
    """The page as text; ``script`` draws ``data``, and ``tables`` can be taken away from it under their names."""
    source = "".join(map(_asset, (*SHARED_SCRIPTS, script)))
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    page: str = (
        _environment()
        .get_template(template)
        .render(
            title=title,
            tables=tables,
            version=__version__,
            data={**data, "tables": {name: _files(table) for name, table in tables.items()}},
            style=_asset("page.css"),
            script=source,
            policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:",
            **context,
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
    environment = Environment(
        loader=DictLoader({name: _asset(name) for name in TEMPLATES}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["zipped"] = lambda rows, cells: zip(rows, cells, strict=True)
    return environment


def _files(table: Table[Any]) -> Plain:
    """A table as files: LaTeX and Markdown as they are written for papers, CSV with every digit."""
    rows = table.data()
    names = list(dict.fromkeys(key for row in rows for key in row))
    lines: list[list[Any]] = [names, *([row.get(name) for name in names] for row in rows)]
    text = "".join(",".join(csv_cell(None if x is None else str(x)) for x in line) + "\r\n" for line in lines)
    files = {"tex": table.to_latex(), "md": table.to_markdown(), "csv": text}
    return {"name": label(table.title) or "table", "files": files}


# -- what policy.js and chart.js draw ----------------------------------------------------------------------------------


def policy_frame(policy: Policy, cmdp: CMDP | None) -> Plain:
    """The names of states and actions, and the board, that all policies of a problem share."""
    return {
        "states": list(map(str, policy.states)),
        "actions": list(map(str, policy.action_names)),
        "numbered": [isinstance(x, range) for x in (policy.states, policy.action_names)],
        "grid": _grid(cmdp),
        "stationary": policy.is_stationary,
    }


def _grid(cmdp: CMDP | None) -> Plain | None:
    if cmdp is None or cmdp.grid is None:
        return None
    grid = cmdp.grid
    arrows = list(grid.arrows or map(str, cmdp.action_names))
    marks = [grid.marks.get(s, "") for s in range(cmdp.S)]
    return {"rows": grid.rows, "columns": grid.columns, "cells": grid.cells, "marks": marks, "arrows": arrows}


def policy_data(policy: Policy, cmdp: CMDP | None) -> Plain:
    """The decisions of a policy, and where it goes if its model is known; nothing of a policy that is too large.

    A decision is the index of its action, or pairs of action and probability where there are several. Where it goes is
    a text for every step, with 1 for a state that is reached and 0 for others.
    """
    if policy.choice.size > MOST_PAIRS:
        return {"policy": None, "reach": None}

    def decision(row: FloatArray) -> int | list[tuple[int, float]]:
        taken = np.flatnonzero(row)
        return int(taken[0]) if len(taken) == 1 and row[taken[0]] == 1 else [(int(a), float(row[a])) for a in taken]

    there = [] if cmdp is None else ["".join("01"[int(x > NEGLIGIBLE)] for x in row) for row in reach(cmdp, policy)]
    table = [[decision(row) for row in policy.table(h)] for h in range(policy.shape[0])]
    return {"policy": table, "reach": None if cmdp is None else there}


def tradeoff_data(line: Tradeoff, points: Sequence[Plain]) -> Plain:
    """A price curve by totals, and the policies that lie in it: [{"label": name, "at": [[total, value], ...]}]."""
    c = line.constraint
    return {
        "name": label(c.name),
        "bound": c.bound_on_total,
        "bounds": (c.scale * line.bounds).tolist(),
        "values": line.values.tolist(),
        "prices": (line.prices / c.scale).tolist(),
        "points": list(points),
    }
