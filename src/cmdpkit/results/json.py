"""Results as plain data for ``--json``: names as the user gave them, and numbers, which are null if not finite."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cmdpkit.estimate.from_log import Estimate, OffPolicyEvaluation
from cmdpkit.estimate.promise import NoPromise, Promise
from cmdpkit.exact.diagnosis import Diagnosis, Separation, StationaryDiagnosis
from cmdpkit.exact.simple.simplified import Simplified
from cmdpkit.exact.solution import StationarySolution
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.mixture import Mixture
from cmdpkit.model.validate import Name, written_name
from cmdpkit.records.record import RunRecord
from cmdpkit.results.log_tables import promise_table, thin_table, untried_table, wanted_table
from cmdpkit.results.model_tables import constraint_table, range_table, separation_table, tradeoff_table

MOST_LISTED = 1_000  # states in a list


def text(answer: Any) -> str:
    """JSON text; numbers that are not finite become null, because JSON cannot express them.

    What would disturb a terminal is escaped.

    >>> text({"slack": float("inf")})
    '{\\n  "slack": null\\n}'
    """
    written = json.dumps(_finite(answer), indent=2, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[^\n -~]", lambda c: c[0] if c[0].isprintable() else json.dumps(c[0])[1:-1], written)


def _finite(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {str(key): _finite(item) for key, item in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(item) for item in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def solution(name: str, found: Solution) -> dict[str, Any]:
    """The optimum, its constraints and where the policy draws."""
    return {
        **(_stationary(found) if found.cmdp.criterion.stationary else {}),
        **({"simple": _simple(found)} if isinstance(found, Simplified) else {}),
        "env": name,
        "method": found.method,
        "value": found.value,
        "utilities": found.utilities.tolist(),
        "shadow_prices": found.shadow_prices.tolist(),
        "gap": found.gap,
        "ended": found.ended,
        "constraints": constraint_table(found).data(),
        "stochastic_decisions": [{**d._asdict(), "state": written_name(d.state)} for d in found.stochastic_decisions()],
        "seconds": found.seconds,
    }


def _stationary(found: Solution) -> dict[str, Any]:
    """What is known besides without a horizon: the criterion, values per step, and whether the optimum is attained."""
    optimum = found.optimum if isinstance(found, Simplified) else found
    steps = found.cmdp.criterion.steps  # None for totals
    return {
        "criterion": found.cmdp.criterion.kind,
        "discount": found.cmdp.criterion.discount,
        "start": optimum.start if isinstance(optimum, StationarySolution) else None,
        "value_per_step": None if steps is None else found.value / steps,
        "utilities_per_step": None if steps is None else (found.utilities / steps).tolist(),
        "attained": getattr(optimum, "attained", True),
        "notes": list(getattr(optimum, "notes", ())),
        "mixture": found.policy.weights.tolist() if isinstance(found.policy, Mixture) else None,
    }


def _simple(found: Simplified) -> dict[str, Any]:
    """What a simple policy has besides: the optimum, what is given up, how simple both are, and what to do when."""
    return {
        "optimum": found.optimum.value,
        "lost": found.lost,
        "share": found.share,
        "least": found.least,
        "slack": found.slack.tolist(),
        "changed": found.changed,
        "before": found.before._asdict(),
        "after": found.after._asdict(),
        "phases": [
            {
                "first": phase.first,
                "last": phase.last,
                "rule": [{"states": _names(rule.states), "action": written_name(rule.action)} for rule in phase.rules],
            }
            for phase in found.phases
        ],
    }


def diagnosis(name: str, cmdp: CMDP, found: Diagnosis, separated: Sequence[Separation] | None) -> dict[str, Any]:
    """All that `diagnose` found; "separation" is null where it was not computed."""
    return {
        "env": name,
        "steps": cmdp.criterion.horizon,
        "states": cmdp.S,
        "actions": cmdp.A,
        **(_components(found) if isinstance(found, StationaryDiagnosis) else {}),
        "reachable": found.reachable,
        "pairs": found.pairs,
        "feasible": found.feasible,
        "slater_slack": found.slater_slack,
        "ranges": range_table(found.ranges).data(),
        "value": None if found.solution is None else found.solution.value,
        "constraints": None if found.solution is None else constraint_table(found.solution).data(),
        "binding": list(found.binding),
        "conflict": [] if found.infeasible is None else list(found.infeasible.conflict),
        "separation": None if separated is None else separation_table(separated).data(),
    }


def _components(found: StationaryDiagnosis) -> dict[str, Any]:
    """Where one can stay and start; of long lists of states only the beginning, and how many there are."""
    listed = (*found.components, found.feasible_starts)
    cut = f"lists of states end after {MOST_LISTED:,} names; cmdpkit.diagnose(model) has all of them"
    return {
        "end_components": [_names(part) for part in found.components],
        "end_component_sizes": [len(part) for part in found.components],
        "feasible_starts": _names(found.feasible_starts),
        "feasible_starts_total": len(found.feasible_starts),
        "feasible_starts_exact": found.starts_exact,
        "left_out": cut if any(len(names) > MOST_LISTED for names in listed) else None,
    }


def _names(names: Sequence[Name]) -> list[str | int]:
    return [written_name(name) for name in names[:MOST_LISTED]]


def tradeoff(name: str, found: Tradeoff) -> dict[str, Any]:
    """The curve, point by point, and the bounds no policy meets."""
    return {
        "env": name,
        "constraint": found.name,
        "points": tradeoff_table(found).data(),
        "infeasible": found.infeasible.tolist(),
    }


def learned(records: Sequence[RunRecord]) -> dict[str, Any]:
    """One request for several seeds: what was asked, the optimum, and one entry per seed.

    The length is null where a rule has ended the runs after different numbers of episodes or steps.
    """
    first = records[0]
    return {
        "env": first.run.env,
        "bounds": dict(first.run.bounds),
        "noise": first.run.noise,
        "code": first.run.code or "unknown",
        "algo": first.run.algo,
        "preset": first.run.preset,
        "params": dict(first.run.params),
        f"{first.run.unit}s": first.run.episodes if len({r.run.episodes for r in records}) == 1 else None,
        "optimum": first.optimum,
        "constraints": [
            {"name": c.name, "sense": c.sense, "bound": c.bound, "per_step": c.per_step, "bound_total": c.total}
            for c in first.constraints
        ],
        "runs": [record.to_dict() for record in records],
    }


def off_policy(given: OffPolicyEvaluation | None) -> dict[str, Any] | None:
    """What a log says of a policy that was given, or None if none was."""
    if given is None:
        return None
    return {"confidence": given.confidence, "totals": promise_table(given).data(), "unknown": given.unknown}


def estimated(name: str, estimate: Estimate, answer: Promise | NoPromise) -> dict[str, Any]:
    """What a log says: what it covers, and the promise, or why there is none."""
    found = estimate.coverage
    told = {
        "log": name,
        "episodes": estimate.episodes,
        "transitions": found.transitions,
        "stationary": estimate.stationary,
        "notes": list(estimate.notes),
        "left_out": {
            "episodes": estimate.cleaned.episodes,
            "rows": estimate.cleaned.rows,
            "duplicates": estimate.cleaned.duplicates,
            "last_rows": estimate.cleaned.unfinished,
            "reasons": dict(estimate.cleaned.reasons),
        },
        "coverage": {
            "pairs": found.pairs,
            "tried": found.tried,
            "untried": untried_table(found.untried).data(),
            "share_on_few_visits": found.on_few,
            "thin": thin_table(found.thin).data(),
        },
        "plug_in_feasible": found.feasible,
    }
    if isinstance(answer, NoPromise):
        told["promise"] = None
        told["declined"] = {
            "reason": str(answer),
            "contradicted": answer.contradicted,
            "constraint": None if answer.constraint is None else answer.constraint.name,
            "estimate": None if answer.total is None else answer.total.estimate,
            "limit": answer.limit,
            "level": answer.level,
            "episodes_needed": answer.episodes,
            "wanted": wanted_table(answer.wanted).data(),
        }
        return told
    told["promise"] = {
        "confidence": answer.confidence,
        "totals": promise_table(answer).data(),
        "condition": answer.condition,
        "margins": list(answer.margins),
        "tested": answer.tested,
        "unknown": answer.unknown,
        "episodes": list(answer.episodes),
    }
    return told
