"""The report of a study: one HTML file (made by `page`) with a summary over all problems, then a section for each."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.diagnosis import tradeoff
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import RunRecord
from cmdpkit.results.groups import Group, curve, larger_is_better, scores
from cmdpkit.results.report import page
from cmdpkit.results.report.page import MOST_PAIRS, Plain
from cmdpkit.results.run import ledger_table
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.study import Study, model_of
from cmdpkit.results.study_tables import by_problem, grid_table, group_table, rank_table, within_bounds
from cmdpkit.results.wording import bounded, drawn, label, number, short
from cmdpkit.running.importing import PRESET as IMPORTED

BASELINE = "YOUR-POLICY.json"  # a record knows the digest of the policy, the user has the file
CURVE_DIGITS = 6  # significant digits of the points of a curve; tables carry every digit
SEED_DIGITS = 4  # of the lines of single seeds
# What the summary over problems shows, as far as there are runs that have it.
SUMMARISED = ("strong_regret", "strong_violation", "policy_gap", "worst_miss")
OBSERVED = ("realised_reward", "realised_violation")  # the same for runs without a model


DRAWN = ("multiplier", "gaps_paid", "certified_gap")  # curves that are drawn besides regret and violation


class Detail(NamedTuple):
    """How much of the data goes into the page."""

    points: int  # of every curve
    policies: int  # of how many seeds of every group
    lines: int  # groups of more seeds have no line per seed


MOST_BYTES = 2_000_000  # of a page, unless the caller says otherwise
# How much detail is tried, one after the other, until the page is small enough.
DETAILS = (
    Detail(160, 1_000, 1_000),
    Detail(120, 1_000, 1_000),
    Detail(80, 1_000, 10),
    Detail(80, 3, 3),
    Detail(60, 1, 0),
    Detail(40, 0, 0),
)
THINNED = "This study is large: curves are thinned, and not every seed's line or policy is on this page."


def render(study: Study, *, title: str = "", limit: int = MOST_BYTES) -> str:
    """The report as text, with fewer points and policies beyond ``limit`` bytes."""
    if not study.records and not study.failures:
        raise CmdpkitError("there is nothing to report: no run finished and none failed")
    for detail in DETAILS:
        made = _page(study, title, detail)
        if len(made.encode()) < limit:
            return made
    raise CmdpkitError(
        f"the report would have {len(made.encode()):,} bytes, more than {limit:,}; report on fewer runs at a time"
    )


def _page(study: Study, title: str, detail: Detail) -> str:
    parts = problems(study, detail)
    first = summary(study.groups(), parts)
    tables = {f"{part['id']}-verdict": part["verdict"] for part in parts}
    tables |= {} if first is None else {part["id"]: part["table"] for part in first["tables"]}
    return page.page_of(
        "report.html",
        "report.js",
        {"problems": [{"id": part["id"], "name": part["env"], **part["chart"]} for part in parts]},
        tables,
        title or "Constrained MDPs: what was learned",
        runs=len(study.records),
        summary=first,
        problems=parts,
        failures=study.failures,
        notes=(*study.remarks(), *(() if detail == DETAILS[0] else (THINNED,))),
    )


# -- all problems ------------------------------------------------------------------------------------------------------


def summary(found: Sequence[Group], parts: Sequence[Plain]) -> Plain | None:
    """Tables of problems x algorithms, and mean ranks if all were run on some problem; None if there is one problem."""
    if len(parts) < 2:
        return None
    known = [metric for metric in (*SUMMARISED, *OBSERVED) if any(scores(group, metric) is not None for group in found)]
    shown = [metric for metric in known if metric in SUMMARISED] or known
    tables = [
        {"id": f"summary-{metric}", "table": grid_table(found, metric, "bold"), "ranks": _ranks(found, metric)}
        for metric in shown
    ]
    if not tables:
        return None
    looks = {label: look for part in parts for label, look in part["looks"].items()}
    return {"tables": tables, "problems": len(parts), "looks": looks, "ids": [part["id"] for part in parts]}


def _ranks(found: Sequence[Group], metric: str) -> dict[str, float]:
    """The mean rank of every algorithm; nothing where no problem has all of them."""
    if len({group.label for group in found}) < 2:
        return {}
    try:
        return {row.label: row.over.mean for row in rank_table(found, metric).rows}
    except CmdpkitError:  # there is no problem that all of them were run on
        return {}


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
    small = cmdp is not None and cmdp.n_steps * cmdp.S <= MOST_PAIRS
    best = solve_fully(cmdp) if small and cmdp is not None and first.optimum is not None else None
    return {
        "id": f"problem-{i + 1}",
        "env": found[0].problem,
        "said": said(found),
        "facts": _facts(first, cmdp, best),
        "looks": {group.label: labels.index(group.label) for group in found},
        "verdict": group_table(found),
        "ledger": ledger_table(found),
        "reproduction": _reproduction(found),
        "chart": {
            "constraints": [label(str(c)) for c in first.constraints],
            "prices": None if best is None else best.lam.tolist(),  # as learners' multipliers, per unit of the total
            "tradeoffs": [] if best is None else [_tradeoff(best, n, found) for n in range(best.cmdp.N)],
            **page.policy_frame(first.policy, cmdp),
            "unit": first.run.unit,
            "groups": [_group(g, labels.index(g.label), cmdp if small else None, detail) for g in found],
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
    return page.tradeoff_data(tradeoff(best.cmdp, best.cmdp.constraints[n].name, page.PRICE_POINTS), points)


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


def _group(group: Group, look: int, cmdp: CMDP | None, detail: Detail) -> Plain:
    first = group.records[0]
    names = [name for name in first.curves if np.size(first.curves[name]) and group.can_draw(name)]
    names = [name for name in names if name in DRAWN or name.endswith(("regret", "violation"))]
    grid = curve(group, names[0]).episode if names else np.zeros(0)
    at = grid[np.unique(np.linspace(0, len(grid) - 1, min(detail.points, len(grid))).round().astype(int))]
    certified = first.certificate.sentence if first.certificate is not None else ""
    proved = {"proved about its policy": certified} if certified else {}
    return {
        "label": group.label,
        "look": look,
        "at": _rounded(at),
        "curves": {name: _lines(group, name, at, detail.lines) for name in names},
        "phases": [{"name": name, "start": start} for name, start in first.phases],
        "episodes": first.run.length,
        "seed": first.run.seed,
        "internals": _listed({**proved, **first.internals}),
        "notes": list(first.notes),
        "runs": [
            {
                "seed": record.run.seed,
                "key": record.run.key,
                **(page.policy_data(record.policy, cmdp) if i < detail.policies else {"policy": None, "reach": None}),
            }
            for i, record in enumerate(group.records)
        ],
    }


def _lines(group: Group, name: str, at: FloatArray, seeds: int) -> list[Plain]:
    """A curve for every row of it, read at some episodes: means, intervals, and the lines of single seeds."""
    lines = []
    for n in range(len(np.atleast_2d(np.asarray(group.records[0].curves[name])))):
        line = curve(group, name, n)
        kept = np.searchsorted(line.episode, at)
        found: Plain = {
            key: _rounded(x[kept]) for key in ("mean", "low", "high") if (x := getattr(line, key)) is not None
        }
        if 1 < len(line.raw) <= seeds:
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
        given = {length: run.length, "preset": run.preset, **run.params, **options}
        words = [f"{name}={value!r}" for name, value in given.items() if name in run.params or value]
        words += ["baseline=baseline"] if run.baseline else []
        return f"for seed in {list(seeds)}: ck.learn({run.env!r}, {run.algo!r}, seed=seed, {', '.join(words)})"
    words = ["cmdpkit", "learn", run.env, "--algo", run.algo, "--preset", run.preset]
    words += [f"--{length}", str(run.length), "--seeds", str(len(seeds))]
    words += ["--first-seed", str(seeds[0])] if seeds[0] else []
    for name, bound in run.bounds.items():
        words += ["--bound", f"{name}={bound!r}"]
    for name, value in run.params.items():
        words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    words += ["--noise", run.noise] if options["noise"] else []
    words += ["--baseline", BASELINE] if run.baseline else []
    return shlex.join(words)
