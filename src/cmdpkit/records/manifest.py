"""A record as plain values and back: the text of a manifest, with a checksum.

The schema is described in docs/schema.md. Numbers are read back to the bit, because Python writes the shortest text
that stands for the same number. JSON has no infinity, so it is written as {"float": "inf"}; NaN is refused.

Records of earlier versions are converted to the present fields. Schema 1 (version 0.1) kept changed bounds in the name
of the environment, kept noise and the digest of the baseline among the parameters, and did not record the code.
`cl-pri` had a parameter `memory` once: with "none" it is called `mf-pri` now, and so is `pri` with the preset
`practical` of version 0.1.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.formats.document import names_entry
from cmdpkit.io.formats.json_toml import dump_json
from cmdpkit.learners.registry import current_name
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import written_name
from cmdpkit.records.code import Checkout
from cmdpkit.records.record import Certificate, Evaluation, Run, RunRecord, plain

SCHEMA = 2  # version of the manifests that are written
RECORD, FAILURE = "cmdpkit record", "cmdpkit failure"  # the two kinds of manifest

Plain = dict[str, Any]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Failure:
    """A run that was started and did not finish."""

    run: Run  # the request
    reason: str  # why it did not finish, for people
    versions: Mapping[str, str] = field(default_factory=dict)  # of Python and packages


# -- the envelope ------------------------------------------------------------------------------------------------------


def seal(kind: str, body: Plain) -> str:
    """The text of a manifest: its kind, its schema, the body and a checksum of these."""
    document = {"format": kind, "schema": SCHEMA, **plain(body, kind)}
    return dump_json({**document, "checksum": _checksum(document)})


def unseal(path: Path, text: str, kind: str) -> Plain:
    """The body of a manifest, as it was written; a damaged one raises a CmdpkitError that says what to do."""
    remedy = "delete it and run again"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CmdpkitError(f"{path} is damaged ({error}); {remedy}") from None
    if not isinstance(document, dict) or document.get("format") != kind:
        raise CmdpkitError(f"{path} is not a {kind}; move it elsewhere")
    schema = document.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise CmdpkitError(f"{path} has schema {schema}, this cmdpkit reads up to {SCHEMA}; update cmdpkit")
    found = document.pop("checksum", None)
    if found != _checksum(document):
        raise CmdpkitError(f"{path} is damaged (its checksum does not fit); {remedy}")
    body: Plain = _restored(document)
    return body


def _checksum(document: Plain) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"float"} and value["float"] in ("inf", "-inf"):
            return float(value["float"])
        return {key: _restored(inner) for key, inner in value.items()}
    return [_restored(inner) for inner in value] if isinstance(value, list) else value


# -- records -----------------------------------------------------------------------------------------------------------


def _bound_entry(c: Constraint) -> Plain:
    """A constraint; a bound per step also has the number of steps that a value counts."""
    return {"name": c.name, "sense": c.sense, "bound": c.bound, **({"steps": c.scale} if c.per_step else {})}


def _bound_of(entry: Plain) -> Constraint:
    return Constraint(entry["name"], entry["sense"], entry["bound"], None, "steps" in entry, entry.get("steps"))


def body_of(record: RunRecord) -> Plain:
    """All parts of a record except its curves, as plain values."""
    return {
        "run": record.run.to_dict(),
        "key": record.run.key,
        "seconds": record.seconds,
        "versions": record.versions,
        "checkout": None if record.checkout is None else vars(record.checkout),
        "constraints": [_bound_entry(c) for c in record.constraints],
        "optimum": record.optimum,
        "policy_value": record.policy_value,
        "policy_utilities": record.policy_utilities,
        "evaluation": None if record.evaluation is None else record.evaluation.to_dict(),
        "certificate": None if record.certificate is None else vars(record.certificate),
        "phases": [{"name": name, "start": start} for name, start in record.phases],
        "stochastic_decisions": [
            {
                "step": d.step,
                "state": written_name(d.state),
                "probabilities": [(written_name(a), p) for a, p in d.probabilities.items()],
            }
            for d in record.decisions
        ],
        "notes": record.notes,
        "explanation": record.explanation,
        "policy": {
            "states": names_entry(record.policy.states),
            "actions": names_entry(record.policy.action_names),
            "pi": record.policy.pi.tolist(),
        },
    }


def record_of(body: Plain, curves: Mapping[str, FloatArray]) -> RunRecord:
    """The record with this body and these curves: the inverse of `body_of`, for earlier schemas too."""
    utilities = body["policy_utilities"]
    run = run_of(body["run"], body["schema"])
    return RunRecord(
        run=run,
        constraints=tuple(_bound_of(c) for c in body["constraints"]),
        optimum=body["optimum"],
        curves=curves,
        policy=_policy(body["policy"], run.unit == "step"),
        policy_value=body["policy_value"],
        policy_utilities=None if utilities is None else np.array(utilities, dtype=float),
        decisions=tuple(
            Decision(d["step"], d["state"], dict(d["probabilities"])) for d in body["stochastic_decisions"]
        ),
        certificate=_made(Certificate, body["certificate"]),
        phases=tuple((phase["name"], phase["start"]) for phase in body["phases"]),
        explanation=body["explanation"],
        notes=tuple(body["notes"]),
        seconds=body["seconds"],
        versions=body["versions"],
        checkout=_made(Checkout, body.get("checkout")),
        evaluation=_made(Evaluation, body.get("evaluation")),
    )


def difference(a: RunRecord, b: RunRecord) -> str | None:
    """The first part in which two results differ, by even a bit, or None; times, versions and commits do not count."""
    one, two = (plain(body_of(record), RECORD) for record in (a, b))
    for part in one:
        if part not in ("seconds", "versions", "checkout") and json.dumps(one[part]) != json.dumps(two[part]):
            return str(part)
    if list(a.curves) != list(b.curves):
        return "names of the curves"
    for name in a.curves:
        x, y = (np.asarray(record.curves[name]) for record in (a, b))
        if x.shape != y.shape or x.tobytes() != y.tobytes():
            return f"curve {name!r}"
    return None


def _policy(table: Plain, is_stationary: bool) -> Policy:
    states, actions = (() if isinstance(table[key], int) else table[key] for key in ("states", "actions"))
    return Policy(table["pi"], states, actions, is_stationary)


def _made(kind: Callable[..., Made], table: Plain | None) -> Made | None:
    """The object with the fields in a table, where lists stand for tuples; None if there is no table."""
    return None if table is None else kind(**{key: _tuples(x) for key, x in table.items()})


def _tuples(x: Any) -> Any:
    return tuple(map(_tuples, x)) if isinstance(x, list) else x


# -- Records of earlier versions, converted to the present fields.

CHANGED_BOUND = re.compile(r" with (.+?) = (\S+)")


def key_of(table: dict[str, Any], schema: int) -> str:
    """The key under which a run was saved, by its schema."""
    if schema > 1:
        return Run(**table).key
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:20]


def run_of(table: dict[str, Any], schema: int) -> Run:
    """The `Run` that was written with some schema."""
    params = dict(table["params"])
    if schema > 1:
        memory = params.pop("memory", None) if table["algo"] == "cl-pri" else None
        algo = table["algo"] if memory is None else current_name(table["algo"], table["preset"], memory)
        return Run(**{**table, "algo": algo, "params": params, "readings": tuple(table.get("readings", ()))})
    algo = current_name(table["algo"], table["preset"])
    env, bounds = split_bounds(table["env"])
    found = {"noise": params.pop("noise", "none"), "baseline": params.pop("baseline", "")}
    return Run(**{**table, "env": env, "algo": algo, "params": params}, bounds=bounds, **found)


def split_bounds(env: str) -> tuple[str, dict[str, float]]:
    """The environment in a name of schema 1, and the bounds that were changed.

    >>> split_bounds("paper/grid with cost = 0.3")
    ('paper/grid', {'cost': 0.3})
    >>> split_bounds("life with cats.json")
    ('life with cats.json', {})
    """
    source, _, _ = env.partition(" with ")
    found = CHANGED_BOUND.findall(env[len(source) :])
    if "".join(f" with {name} = {value}" for name, value in found) != env[len(source) :]:
        return env, {}
    try:
        return source, {name: float(value) for name, value in found}
    except ValueError:
        return env, {}
